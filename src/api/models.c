/* Several models by name: a thread of the list loads and unloads them, one at a time, in the order
 * in which they were asked for. The lock guards everything but what a model's state leaves to that
 * thread alone: m and service while it is loading or being unloaded. */
#include <string.h>

#include "api/service.h"
#include "base/machine.h"
#include "base/os.h"

typedef enum place { OUT, LOADING, LOADED, LEAVING, UNLOADING } place;

static const double PROMISE = 1; /* seconds */

typedef struct listed {
    struct listed *next;
    char *name, *path;
    rvi_arena texts;
    rv_open_options open;
    rv_service_options service;
    rv_model *embedder; /* the one of service, kept open; may be NULL */
    place place;
    rv_model *m;
    rv_service *svc;
    uint64_t bytes;         /* as far as they are known */
    int n_held, n_awaiting; /* awaiting: threads that will hold it once it is loaded */
    double used;            /* when it was last held or given back */
    double promised;        /* until then it stays, for whoever asked for it to come; 0: not */
    uint64_t ticket;        /* whoever asked first goes first; 0: nobody waits for it */
    uint64_t n_tries, n_loads;
    double load_seconds;
    rv_status failed; /* the last try */
    rv_error why;
} listed;

/* A thread that waits for a model; on its stack. */
typedef struct waiter {
    struct waiter *next;
    rvi_wakeup *wakeup;
} waiter;

struct rv_models {
    rv_runtime *rt;
    rv_models_options o;
    rvi_lock *lock;
    rvi_thread *thread;
    rvi_wakeup *work; /* for the thread: something may have to be done */
    listed *all;
    waiter *waiters;
    uint64_t n_tickets;
    atomic_bool stop;
};

/* ---- the thread of the list ---- */

/* Everybody looks again. Called without the lock. */
static void announce(rv_models *ms)
{
    rvi_lock_take(ms->lock);
    for (waiter *w = ms->waiters; w; w = w->next) rvi_wakeup_post(w->wakeup);
    rvi_lock_give(ms->lock);
    if (ms->o.changed) ms->o.changed(ms->o.changed_ctx);
}

/* The lock is held, and is not meanwhile. */
static void unload(rv_models *ms, listed *x)
{
    x->place = UNLOADING;
    rvi_lock_give(ms->lock);
    rv_service_free(&x->svc);
    rv_model_close(&x->m);
    rvi_lock_take(ms->lock);
    x->place = OUT;
    rvi_lock_give(ms->lock);
    announce(ms);
    rvi_lock_take(ms->lock);
}

static bool is_in(const listed *x)
{
    return x->place != OUT;
}

/* What a model is going to take: of the list's limit, and of the runtime's budget. */
typedef struct wanted {
    uint64_t bytes, shared;
    rvi_quota_class class;
} wanted;

static bool has_room(const rv_models *ms, const listed *for_one, const wanted *need)
{
    uint64_t bytes = need->bytes;
    int n = 1;
    for (const listed *x = ms->all; x; x = x->next) {
        if (x == for_one || !is_in(x)) continue;
        bytes += x->bytes;
        n++;
    }
    return (!ms->o.bytes || bytes <= ms->o.bytes) && (!ms->o.max_loaded || n <= ms->o.max_loaded) &&
           need->shared <= rvi_quota_room(&ms->rt->quota, need->class);
}

static bool is_alone(const rv_models *ms, const listed *one)
{
    const listed *x = ms->all;
    while (x && (x == one || !is_in(x))) x = x->next;
    return !x;
}

/* Nobody who asked for it has come yet. */
static bool is_new(const listed *x)
{
    return x->place == LOADED && (x->n_awaiting || x->promised > rvi_os_seconds());
}

/* The least recently used of those in this place; held or not. */
static listed *oldest(const rv_models *ms, place at, bool held)
{
    listed *best = NULL;
    for (listed *x = ms->all; x; x = x->next) {
        if (x->place != at || (x->n_held > 0) != held || is_new(x)) continue;
        if (!best || x->used < best->used) best = x;
    }
    return best;
}

static void wait_for_work(rv_models *ms, double seconds)
{
    rvi_lock_give(ms->lock);
    rvi_wakeup_wait(ms->work, seconds);
    rvi_lock_take(ms->lock);
}

static rv_status too_large(const listed *x, uint64_t need, uint64_t most, rv_error *err)
{
    return rvi_error(err, RV_E_NOMEM, "%s takes %llu bytes, and all models may take %llu", x->name,
                     (unsigned long long)need, (unsigned long long)most);
}

static rv_status no_room(const listed *x, uint64_t need, uint64_t left, rv_error *err)
{
    return rvi_error(err, RV_E_NOMEM,
                     "%s takes %.1f MB, and the budget has %.1f left; with a smaller context it "
                     "takes less",
                     x->name, (double)need / 1e6, (double)left / 1e6);
}

/* Others give up soon what they merely keep: waits for that. The lock is held. */
static void ask_others(rv_models *ms, const listed *x, const wanted *need)
{
    enum { TRIES = 100 };
    for (int i = 0; i < TRIES && !has_room(ms, x, need) && !atomic_load(&ms->stop); i++) {
        if (!rvi_quota_ask(&ms->rt->quota, need->class, need->shared, NULL)) return;
        wait_for_work(ms, 5e-3);
    }
}

/* Unloads others until what the model needs fits; of those that are held, the least recently used
 * is asked to leave, and waited for. The lock is held. */
static rv_status make_room(rv_models *ms, listed *x, const wanted *need, rv_error *err)
{
    if (ms->o.bytes && need->bytes > ms->o.bytes)
        return too_large(x, need->bytes, ms->o.bytes, err);
    ask_others(ms, x, need);
    while (!has_room(ms, x, need)) {
        listed *victim = oldest(ms, LEAVING, false);
        if (!victim) victim = oldest(ms, LOADED, false);
        if (victim) {
            unload(ms, victim);
            continue;
        }
        if (is_alone(ms, x))
            return no_room(x, need->shared, rvi_quota_room(&ms->rt->quota, need->class), err);
        if (!oldest(ms, LEAVING, true) && (victim = oldest(ms, LOADED, true)))
            victim->place = LEAVING;
        wait_for_work(ms, PROMISE);
        if (atomic_load(&ms->stop)) return rvi_error(err, RV_E_CANCELLED, "cancelled");
    }
    return RV_OK;
}

/* What the header of a model says of the room that it takes. */
typedef struct outline {
    uint64_t weights;     /* as they are arranged, or the file's where they are not */
    uint64_t packed;      /* of these; 0: none */
    uint64_t token_bytes; /* keys and values of a token (tiers: hot) */
    int n_context;        /* that it was trained with */
    bool is_encoder;
} outline;

static uint64_t token_bytes(const rv_models *ms, const listed *x, const rvi_sizes *z)
{
    rv_kv_type type = rvi_api_kv_type(ms->rt, x->service.kv_type, NULL);
    uint64_t bytes = 2 * (uint64_t)z->n_layers * (uint64_t)z->n_kv_heads * (uint64_t)z->head_size *
                     (type == RV_KV_F32 ? 4 : 2);
    return type == RV_KV_Q8 ? bytes * 17 / 32 : bytes;
}

/* Finds a file that is no model, or not whole, before others are unloaded for it. */
static rv_status read_outline(const rv_models *ms, const listed *x, outline *out, rv_error *err)
{
    rvi_source *source;
    rvi_sizes *z;
    rv_open_options open = x->open;
    open.vocabulary_only = 0; /* is refused later, in words */
    rv_status st = rvi_api_open_source(&source, x->path, &open, err);
    if (st) return st;
    st = rvi_sizes_new(&z, ms->rt->be, source, open.quantize != 0, err);
    if (!st) {
        uint64_t packed = 0;
        for (int i = 0; i < z->n_layers; i++) packed += z->layers[i];
        if (packed) packed += z->ends;
        *out = (outline){.weights = packed ? packed : rvi_source_bytes(source),
                         .packed = packed,
                         .token_bytes = token_bytes(ms, x, z),
                         .n_context = z->n_context,
                         .is_encoder = source->arch->is_encoder};
        rvi_free(z);
    }
    rvi_source_close(source);
    return st;
}

/* Room for keys and values; *request: what one request of any length has of that. */
static uint64_t kv_bytes(const outline *l, const rv_service_options *o, uint64_t *request)
{
    uint64_t n = (uint64_t)rvi_service_tokens(l->n_context, l->is_encoder, o);
    uint64_t most = (uint64_t)(o->n_context ? o->n_context : l->n_context);
    *request = RVI_MIN(n, most) * l->token_bytes;
    return n * l->token_bytes;
}

/* A context whose length nobody gave is halved until its keys and values have room: pages are only
 * taken as texts grow, so a machine that lacks them would fail in the middle of an answer. Returns
 * whether it was. */
static bool fit_context(const outline *l, rv_service_options *o, uint64_t room)
{
    enum { LEAST = 4096 };
    if (o->n_context || o->n_tokens != RV_WHOLE_CONTEXT || l->is_encoder) return false;
    int whole = RVI_MAX(l->n_context, RVI_SERVICE_TOKENS), n = whole;
    while (n / 2 >= LEAST && (uint64_t)n * l->token_bytes > room) n /= 2;
    if (n == whole) return false;
    o->n_tokens = n;
    o->n_context = RVI_MIN(n, l->n_context);
    return true;
}

/* To the room that there is. */
static void fit(const rv_models *ms, listed *x, const outline *l)
{
    rvi_machine_info machine;
    if (!rvi_backend_is_cpu(x->m->model->be)) return;
    rvi_machine_read(&machine, "");
    uint64_t left = machine.memory_available ? machine.memory_available / 4 * 3 : UINT64_MAX;
    uint64_t room = RVI_MIN(rvi_quota_room(&ms->rt->quota, RVI_QUOTA_KV), left);
    if (fit_context(l, &x->service, room))
        rvi_log_write(
            &ms->rt->log, RVI_LOG_WARN,
            "%s: requests have a context of %d tokens, of %d that the model was made for, and "
            "room for %d together: there is memory for no more",
            x->name, x->service.n_context, l->n_context, x->service.n_tokens);
}

/* Would it fit if it were alone? *need: the least that it takes. */
static rv_status foresee(rv_models *ms, const listed *x, const outline *l, uint64_t *need,
                         rv_error *err)
{
    rv_service_options least = x->service;
    uint64_t request;
    rvi_quota_use use;
    (void)fit_context(l, &least, 0);
    *need = l->weights + kv_bytes(l, &least, &request);
    rvi_quota_read(&ms->rt->quota, &use);
    const uint64_t *of = use.limits.most_of;
    if (use.limits.most && l->packed + request > use.limits.most)
        return no_room(x, l->packed + request, use.limits.most, err);
    if (of[RVI_QUOTA_KV] && request > of[RVI_QUOTA_KV])
        return no_room(x, request, of[RVI_QUOTA_KV], err);
    if (of[RVI_QUOTA_WEIGHTS] && l->weights > of[RVI_QUOTA_WEIGHTS])
        return no_room(x, l->weights, of[RVI_QUOTA_WEIGHTS], err);
    return RV_OK;
}

/* The runtime may be told not to wait; this thread has time. */
static rv_status make_service(listed *x, const atomic_bool *stop, rv_error *err)
{
    rv_status st;
    while ((st = rv_service_new(&x->svc, x->m, &x->service, err)) == RV_E_BUSY &&
           !atomic_load(stop))
        rvi_thread_sleep(1e-3);
    return st;
}

/* Unloads the least recently used that nobody holds; false: there is none. */
static bool give_way(rv_models *ms)
{
    rvi_lock_take(ms->lock);
    listed *victim = oldest(ms, LEAVING, false);
    if (!victim) victim = oldest(ms, LOADED, false);
    if (victim) unload(ms, victim);
    rvi_lock_give(ms->lock);
    return victim;
}

/* The lock is held, and is not meanwhile: nobody but this thread has to do with a model that is
 * out. */
static rv_status load(rv_models *ms, listed *x, rv_error *err)
{
    rvi_quota *quota = &ms->rt->quota;
    outline l = {0};
    wanted first = {.class = RVI_QUOTA_WEIGHTS}, then = {.class = RVI_QUOTA_KV};
    rvi_lock_give(ms->lock);
    rv_status st = read_outline(ms, x, &l, err);
    if (!st) st = foresee(ms, x, &l, &first.bytes, err);
    rvi_lock_take(ms->lock);
    first.shared = l.weights;
    if (!st) st = make_room(ms, x, &first, err);
    if (st) return st;
    bool taken = rvi_quota_take(quota, RVI_QUOTA_WEIGHTS, l.weights);
    x->place = LOADING;
    rvi_lock_give(ms->lock);
    double begun = rvi_os_seconds();
    st = rv_model_open(&x->m, ms->rt, x->path, &x->open, err);
    if (!st) st = rvi_api_need_weights(x->m, err);
    if (taken) rvi_quota_return(quota, RVI_QUOTA_WEIGHTS, l.weights); /* they are counted now */
    if (!st) fit(ms, x, &l);
    if (!st) then.bytes = l.weights + kv_bytes(&l, &x->service, &then.shared);
    rvi_lock_take(ms->lock);
    if (!st) x->bytes = then.bytes;
    if (!st) st = make_room(ms, x, &then, err);
    rvi_lock_give(ms->lock);
    if (!st) st = make_service(x, &ms->stop, err);
    while (st == RV_E_NOMEM && x->m && give_way(ms)) st = make_service(x, &ms->stop, err);
    if (st) rv_model_close(&x->m);
    rvi_lock_take(ms->lock);
    x->load_seconds = rvi_os_seconds() - begun;
    x->place = st ? OUT : LOADED;
    x->n_loads += !st;
    return st;
}

/* The model that was asked for first and can be loaded; NULL: none. */
static listed *next_wanted(const rv_models *ms)
{
    listed *best = NULL;
    for (listed *x = ms->all; x; x = x->next)
        if (x->ticket && !is_in(x) && (!best || x->ticket < best->ticket)) best = x;
    return best;
}

/* Unloads one that is to go; *wait: seconds until one may have been idle for too long, 0: none
 * will. */
static bool unload_one(rv_models *ms, double *wait)
{
    listed *x = oldest(ms, LEAVING, false);
    *wait = 0;
    if (!x && ms->o.idle > 0 && (x = oldest(ms, LOADED, false))) {
        double left = x->used + ms->o.idle - rvi_os_seconds();
        if (left > 0) *wait = left;
        if (left > 0) x = NULL;
    } else if (!x && ms->o.idle > 0) {
        *wait = PROMISE;
    }
    if (x) unload(ms, x);
    return x;
}

static void look_after(void *ctx)
{
    rv_models *ms = ctx;
    const rv_allocator *heap = rvi_api_use_heap(ms->rt);
    rvi_lock_take(ms->lock);
    while (!atomic_load(&ms->stop)) {
        double wait;
        if (unload_one(ms, &wait)) continue;
        listed *x = next_wanted(ms);
        if (!x) {
            wait_for_work(ms, wait);
            continue;
        }
        rv_error why = {0};
        x->failed = load(ms, x, &why);
        x->why = why;
        x->n_tries++;
        x->ticket = 0;
        x->used = rvi_os_seconds();
        x->promised = x->used + PROMISE;
        rvi_lock_give(ms->lock);
        announce(ms);
        rvi_lock_take(ms->lock);
    }
    rvi_lock_give(ms->lock);
    rvi_api_leave_heap(heap);
}

/* ---- lifetimes ---- */

rv_status rv_models_new(rv_models **out, rv_runtime *rt, const rv_models_options *given,
                        rv_error *err)
{
    if (out) *out = NULL;
    if (!out || !rt) return rvi_error(err, RV_E_INVALID, "rv_models_new: NULL argument");
    rv_models_options o;
    rv_status st = rvi_api_read_struct(&o, sizeof o, given, "rv_models_options", err);
    if (st) return st;
    if (o.max_loaded < 0)
        return rvi_error(err, RV_E_CONFIG, "max_loaded must be 0 or more (got %d)", o.max_loaded);
    if (!(o.idle >= 0) || o.idle > 1e9)
        return rvi_error(err, RV_E_CONFIG, "idle must be 0..1e9 seconds (got %g)", o.idle);
    const rv_allocator *heap = rvi_api_use_heap(rt);
    rv_models *ms = rvi_zalloc(sizeof *ms);
    if (ms) {
        ms->rt = rvi_api_retain_runtime(rt);
        ms->o = o;
        atomic_init(&ms->stop, false);
        st = rvi_lock_new(&ms->lock, err);
        if (!st) st = rvi_wakeup_new(&ms->work, err);
        if (!st) st = rvi_thread_start(&ms->thread, look_after, ms, false, err);
    } else {
        st = rvi_nomem(err, "list of models");
    }
    rvi_api_leave_heap(heap);
    if (st)
        rv_models_free(&ms);
    else
        *out = ms;
    return st;
}

static void listed_free(listed *x)
{
    rv_service_free(&x->svc);
    rv_model_close(&x->m);
    rvi_api_release_model(x->embedder);
    rvi_arena_deinit(&x->texts);
    rvi_free(x);
}

void rv_models_free(rv_models **handle)
{
    if (!handle || !*handle) return;
    rv_models *ms = *handle;
    *handle = NULL;
    atomic_store(&ms->stop, true);
    if (ms->thread) {
        rvi_wakeup_post(ms->work);
        rvi_thread_join(ms->thread);
    }
    for (listed *x = ms->all, *next; x; x = next) {
        next = x->next;
        listed_free(x);
    }
    rvi_wakeup_free(ms->work);
    rvi_lock_free(ms->lock);
    rvi_api_release_runtime(ms->rt);
    rvi_free(ms);
}

/* ---- calls from any thread ---- */

static listed *find(const rv_models *ms, const char *name)
{
    listed *x = ms->all;
    while (x && strcmp(x->name, name)) x = x->next;
    return x;
}

static rv_status unknown(const char *name, rv_error *err)
{
    return rvi_error(err, RV_E_NOT_FOUND, "no model is called '%s'", name);
}

static bool copy_text(rvi_arena *a, const char **text)
{
    return !*text || (*text = rvi_arena_strndup(a, *text, strlen(*text)));
}

/* A copy that needs nothing of the caller's. */
static rv_status listed_new(listed **out, const char *name, const char *path,
                            const rv_open_options *open, const rv_service_options *service,
                            rv_error *err)
{
    listed *x = rvi_zalloc(sizeof *x);
    *out = x;
    if (!x) return rvi_nomem(err, "model");
    rv_status st = rvi_api_read_struct(&x->open, sizeof x->open, open, "rv_open_options", err);
    if (!st)
        st =
            rvi_api_read_struct(&x->service, sizeof x->service, service, "rv_service_options", err);
    if (st) return st;
    if (x->open.gpu_tokens == RV_GPU_WHOLE_CONTEXT && x->service.n_context > 0)
        x->open.gpu_tokens = rvi_api_whole_context(x->service.n_context);
    if (x->service.embedder) x->embedder = rvi_api_retain_model(x->service.embedder);
    x->name = rvi_arena_strndup(&x->texts, name, strlen(name));
    x->path = rvi_arena_strndup(&x->texts, path, strlen(path));
    bool copied = x->name && x->path && copy_text(&x->texts, &x->open.chat_template) &&
                  copy_text(&x->texts, &x->service.sessions) &&
                  copy_text(&x->texts, &x->service.spill);
    return copied ? RV_OK : rvi_nomem(err, "model");
}

rv_status rv_models_add(rv_models *ms, const char *name, const char *path,
                        const rv_open_options *open, const rv_service_options *service,
                        rv_error *err)
{
    if (!ms || !name || !path || !*name)
        return rvi_error(err, RV_E_INVALID, "rv_models_add: NULL argument, or an empty name");
    listed *x;
    const rv_allocator *heap = rvi_api_use_heap(ms->rt);
    rv_status st = listed_new(&x, name, path, open, service, err);
    rvi_api_leave_heap(heap);
    if (!st) {
        rvi_lock_take(ms->lock);
        listed **end = &ms->all;
        while (*end && strcmp((*end)->name, name)) end = &(*end)->next;
        if (*end)
            st = rvi_error(err, RV_E_STATE, "there is a model called '%s' already", name);
        else
            *end = x;
        rvi_lock_give(ms->lock);
    }
    if (st && x) listed_free(x);
    return st;
}

/* One that was told to go stays when it is asked for again and nobody waits for its room. */
static void keep(const rv_models *ms, listed *x)
{
    const listed *other = ms->all;
    while (other && (other == x || !other->ticket)) other = other->next;
    if (x->place != LEAVING || other) return;
    x->place = LOADED;
    x->ticket = 0;
}

static void ask(rv_models *ms, listed *x)
{
    if (!x->ticket) x->ticket = ++ms->n_tickets;
    rvi_wakeup_post(ms->work);
}

/* Waits until the model is there or loading it has failed. The lock is held. */
static rv_status await(rv_models *ms, listed *x, double wait, rv_error *err)
{
    waiter me = {.next = NULL};
    uint64_t n_tries = x->n_tries;
    double end = rvi_os_seconds() + wait;
    rv_status st = rvi_wakeup_new(&me.wakeup, err);
    if (st) return st;
    me.next = ms->waiters;
    ms->waiters = &me;
    x->n_awaiting++;
    while (x->place != LOADED && x->n_tries == n_tries && wait > 0) {
        rvi_lock_give(ms->lock);
        rvi_wakeup_wait(me.wakeup, wait);
        wait = end - rvi_os_seconds();
        rvi_lock_take(ms->lock);
        keep(ms, x);
        /* it was loaded, and told to go before this thread looked */
        if (x->place != LOADED && x->n_tries != n_tries && !x->failed) {
            n_tries = x->n_tries;
            ask(ms, x);
        }
    }
    x->n_awaiting--;
    waiter **at = &ms->waiters;
    while (*at != &me) at = &(*at)->next;
    *at = me.next;
    rvi_wakeup_free(me.wakeup);
    if (x->place == LOADED) return RV_OK;
    if (x->n_tries == n_tries)
        return rvi_error(err, RV_E_BUSY, "'%s' is being loaded: try again later", x->name);
    if (err) *err = x->why;
    return x->failed;
}

rv_status rv_models_hold(rv_models *ms, const char *name, double wait, rv_service **out,
                         rv_error *err)
{
    if (out) *out = NULL;
    if (!ms || !name || !out) return rvi_error(err, RV_E_INVALID, "rv_models_hold: NULL argument");
    if (!(wait >= 0) || wait > 1e9)
        return rvi_error(err, RV_E_CONFIG, "wait must be 0..1e9 seconds (got %g)", wait);
    const rv_allocator *heap = rvi_api_use_heap(ms->rt);
    rvi_lock_take(ms->lock);
    listed *x = find(ms, name);
    rv_status st = x ? RV_OK : unknown(name, err);
    if (!st) keep(ms, x);
    if (!st && x->place != LOADED) {
        ask(ms, x);
        st = await(ms, x, wait, err);
    }
    if (!st) {
        x->n_held++;
        x->promised = 0;
        x->used = rvi_os_seconds();
        *out = x->svc;
    }
    rvi_lock_give(ms->lock);
    rvi_api_leave_heap(heap);
    return st;
}

void rv_models_give_back(rv_models *ms, rv_service **s)
{
    if (!ms || !s || !*s) return;
    bool idle = false;
    rvi_lock_take(ms->lock);
    for (listed *x = ms->all; x; x = x->next)
        if ((x->place == LOADED || x->place == LEAVING) && x->svc == *s && x->n_held > 0) {
            idle = !--x->n_held;
            x->used = rvi_os_seconds();
        }
    rvi_lock_give(ms->lock);
    *s = NULL;
    if (idle) rvi_wakeup_post(ms->work);
}

rv_status rv_models_get_metrics(rv_models *ms, const char *name, rv_service_metrics *out,
                                rv_error *err)
{
    if (!ms || !name) return rvi_error(err, RV_E_INVALID, "rv_models_get_metrics: NULL argument");
    rvi_lock_take(ms->lock);
    listed *x = find(ms, name);
    bool is_there = x && (x->place == LOADED || x->place == LEAVING);
    if (is_there) x->n_held++;
    rvi_lock_give(ms->lock);
    if (!x) return unknown(name, err);
    if (!is_there) return rvi_error(err, RV_E_BUSY, "'%s' is not loaded", name);
    rv_status st = rv_service_get_metrics(x->svc, out, err);
    rvi_lock_take(ms->lock);
    x->n_held--;
    rvi_lock_give(ms->lock);
    rvi_wakeup_post(ms->work);
    return st;
}

rv_status rv_models_unload(rv_models *ms, const char *name, rv_error *err)
{
    if (!ms || !name) return rvi_error(err, RV_E_INVALID, "rv_models_unload: NULL argument");
    rvi_lock_take(ms->lock);
    listed *x = find(ms, name);
    if (x && x->place == LOADED) x->place = LEAVING;
    rvi_lock_give(ms->lock);
    if (!x) return unknown(name, err);
    rvi_wakeup_post(ms->work);
    return RV_OK;
}

static rv_model_state state_of(const listed *x)
{
    if (x->place == LOADED) return RV_MODEL_LOADED;
    if (x->place == LEAVING || x->place == UNLOADING) return RV_MODEL_LEAVING;
    return x->place == LOADING || x->ticket ? RV_MODEL_LOADING : RV_MODEL_OUT;
}

rv_status rv_models_list(rv_models *ms, rv_listed_model **out, size_t *n, rv_error *err)
{
    if (!ms || !out || !n) return rvi_error(err, RV_E_INVALID, "rv_models_list: NULL argument");
    *out = NULL;
    *n = 0;
    size_t count = 0, texts = 0;
    const rv_allocator *heap = rvi_api_use_heap(ms->rt);
    rvi_lock_take(ms->lock);
    double now = rvi_os_seconds();
    for (const listed *x = ms->all; x; x = x->next) {
        texts += strlen(x->name) + strlen(x->path) + 2;
        count++;
    }
    rv_listed_model *list = rvi_zalloc(count * sizeof *list + texts + 1);
    char *text = list ? (char *)(list + count) : NULL;
    for (const listed *x = ms->all; list && x; x = x->next) {
        size_t name = strlen(x->name) + 1, path = strlen(x->path) + 1;
        rv_listed_model *to = &list[(*n)++];
        *to =
            (rv_listed_model){.name = text,
                              .path = text + name,
                              .state = state_of(x),
                              .bytes = x->bytes,
                              .n_held = x->n_held,
                              .n_loads = x->n_loads,
                              .load_seconds = x->load_seconds,
                              .idle_seconds = x->place == LOADED && !x->n_held ? now - x->used : 0};
        memcpy(text, x->name, name);
        memcpy(text + name, x->path, path);
        text += name + path;
    }
    rvi_lock_give(ms->lock);
    rvi_api_leave_heap(heap);
    if (!list) return rvi_nomem(err, "list of models");
    *out = list;
    return RV_OK;
}
