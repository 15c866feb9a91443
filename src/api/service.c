/* Services: the thread that computes, and the calls from other threads. */
#include "api/service.h"

#include <string.h>

#include "base/os.h"
#include "decode/draft.h"

enum { DEFAULT_RUNNING = 32, DEFAULT_WAITING = 4096, DEFAULT_ROWS = 512 };

/* ---- the thread that computes ---- */

/* The runtime's options may say that calls do not wait: this one does. */
static void enter(rvi_api_turn *turn, const rv_runtime *rt)
{
    while (rvi_api_enter(turn, rt, NULL)) rvi_thread_sleep(2e-4);
}

/* Services that compute share the time between two tokens, and have a step each in a round. The
 * turn is held. */
static void note_work(rv_service *s, bool works)
{
    rv_runtime *rt = s->e->m->rt;
    if (works != s->works) atomic_fetch_add(&rt->n_serving, works ? 1 : -1);
    s->works = works;
    s->round = atomic_load(&rt->round);
    if (works) rt->n_stepped++;
    if (rt->n_stepped < atomic_load(&rt->n_serving)) return;
    rt->n_stepped = 0;
    atomic_fetch_add(&rt->round, 1);
}

/* Until the others have had their steps of the round; not for long, one of them may have to wait
 * for something else. */
static void await_round(const rv_service *s)
{
    const double patience = 0.05, nap = 5e-5;
    const rv_runtime *rt = s->e->m->rt;
    double end = 0;
    while (s->works && atomic_load(&rt->n_serving) > 1 && s->round == atomic_load(&rt->round) &&
           !atomic_load(&s->stop)) {
        double now = rvi_os_seconds();
        if (end <= 0) end = now + patience;
        if (now >= end) return;
        rvi_thread_sleep(nap);
    }
}

/* Training computes while nothing else does. Where it has waited for long, services rest a
 * twenty-fifth of the time for it, all of them at once: of the times between tokens fewer than one
 * in twenty have such a rest in them. The turn is held, so no step of another service lasts into
 * the rest. Returns how many seconds are left of it. */
static double rest_due(const rv_service *s)
{
    const uint_fast64_t work_ns = 1200000000, rest_ns = 50000000;
    rv_runtime *rt = s->e->m->rt;
    if (!atomic_load(&rt->n_starving)) return 0;
    uint_fast64_t now = (uint_fast64_t)(rvi_os_seconds() * 1e9), until = atomic_load(&rt->rest_ns);
    if (s->works && now > until + work_ns) {
        until = now + rest_ns;
        atomic_store(&rt->rest_ns, until);
        atomic_fetch_add(&rt->n_rests, 1);
    }
    return now < until ? (double)(until - now) * 1e-9 : 0;
}

static void enter_rested(rvi_api_turn *turn, const rv_service *s)
{
    double rest;
    for (enter(turn, s->e->m->rt); (rest = rest_due(s)) > 0; enter(turn, s->e->m->rt)) {
        rvi_api_leave(turn);
        rvi_thread_sleep(rest);
    }
}

static rvi_step step(rv_service *s)
{
    rvi_api_turn turn;
    enter_rested(&turn, s);
    rvi_scheduler_share(s->s, atomic_load(&s->e->m->rt->n_serving));
    rvi_step done = rvi_scheduler_step(s->s);
    if (done.computed) rvi_api_note_use(s->e->m->rt);
    note_work(s, done.computed);
    rvi_api_leave(&turn);
    if (done.told && s->wake) s->wake(s->wake_ctx);
    if (done.told && s->news) rvi_wakeup_post(s->news);
    return done;
}

static void serve(void *ctx)
{
    rv_service *s = ctx;
    const rv_allocator *heap = rvi_api_use_heap(s->e->m->rt);
    while (!atomic_load(&s->stop)) {
        await_round(s);
        rvi_step done = step(s);
        if (!done.computed && !atomic_load(&s->stop)) rvi_wakeup_wait(s->work, done.wait);
    }
    rvi_api_leave_heap(heap);
}

/* ---- lifetimes ---- */

static rv_status check_options(const rv_service_options *o, rv_error *err)
{
    const struct {
        const char *name;
        int value, most;
    } counts[] = {{"n_tokens", o->n_tokens == RV_WHOLE_CONTEXT ? 0 : o->n_tokens, RVI_MAX_CONTEXT},
                  {"n_context", o->n_context, RVI_MAX_CONTEXT},
                  {"max_running", o->max_running, 4096},
                  {"max_waiting", o->max_waiting, 1 << 20},
                  {"max_tenant", o->max_tenant, 1 << 20},
                  {"max_rows", o->max_rows, 1 << 20},
                  {"quantum", o->quantum, 1 << 20},
                  {"max_events", o->max_events, INT32_MAX},
                  {"cache_tokens", o->cache_tokens, RVI_MAX_CONTEXT},
                  {"tenant_sessions", o->tenant_sessions, INT32_MAX}};
    const struct {
        const char *name;
        double value, least, most;
    } numbers[] = {{"token_ms", o->token_ms, 0, 1e6},
                   {"session_idle", o->session_idle, 0, 1e12},
                   {"session_age", o->session_age, 0, 1e12},
                   {"overcommit", o->overcommit, 1, 1e6},
                   {"age_ms", o->age_ms, 0, 1e9}};
    for (size_t i = 0; i < RVI_COUNT(counts); i++)
        if (counts[i].value < 0 || counts[i].value > counts[i].most)
            return rvi_error(err, RV_E_CONFIG, "%s must be 0..%d (got %d)", counts[i].name,
                             counts[i].most, counts[i].value);
    for (size_t i = 0; i < RVI_COUNT(numbers); i++)
        if (numbers[i].value != 0 &&
            !(numbers[i].value >= numbers[i].least && numbers[i].value <= numbers[i].most))
            return rvi_error(err, RV_E_CONFIG, "%s must be 0 or %g..%g (got %g)", numbers[i].name,
                             numbers[i].least, numbers[i].most, numbers[i].value);
    bool spills = o->pressure == RV_PRESSURE_SPILL || o->pressure == RV_PRESSURE_CHEAPER;
    if (o->pressure == RV_PRESSURE_QUANTIZE && o->kv_type != RV_KV_TIERED)
        return rvi_error(err, RV_E_CONFIG, "pressure by quantizing needs the KV type tiered");
    if ((unsigned)o->pressure > RV_PRESSURE_QUANTIZE)
        return rvi_error(err, RV_E_CONFIG, "pressure %d is not known", (int)o->pressure);
    if (spills != (o->spill != NULL))
        return rvi_error(err, RV_E_CONFIG,
                         spills ? "spill must name the folder that pressure asks for"
                                : "spill names a folder, but pressure does not ask for it");
    return rvi_api_check_kv_type(o->kv_type, err);
}

static rvi_scheduler_options inner_options(const rv_service_options *o)
{
    return (rvi_scheduler_options){.max_running = o->max_running ? o->max_running : DEFAULT_RUNNING,
                                   .max_waiting = o->max_waiting ? o->max_waiting : DEFAULT_WAITING,
                                   .max_tenant = o->max_tenant,
                                   .max_events = o->max_events ? (size_t)o->max_events : 65536,
                                   .token_seconds = o->token_ms > 0 ? o->token_ms * 1e-3 : 0.05,
                                   .overcommit = o->pressure == RV_PRESSURE_REJECT ? 1
                                                 : o->overcommit > 0               ? o->overcommit
                                                                                   : 2,
                                   .pressure = o->pressure,
                                   .spill = o->spill,
                                   .spill_bytes = o->spill_bytes,
                                   .cache_pages =
                                       (o->cache_tokens + RVI_PAGE_TOKENS - 1) / RVI_PAGE_TOKENS,
                                   .age_seconds = o->age_ms > 0 ? o->age_ms * 1e-3 : 5,
                                   .quantum = o->quantum ? o->quantum : 64,
                                   .no_cache = o->no_cache != 0};
}

/* Room as it was asked for. */
static int asked_tokens(int n_context, bool is_encoder, const rv_service_options *o)
{
    if (o->n_tokens > 0) return o->n_tokens;
    enum { ENCODER_TOKENS = 2048 };
    int whole = o->n_context ? o->n_context : n_context;
    /* of an encoder's texts nothing is kept: room for those of a step, and for the longest */
    if (is_encoder) return RVI_MIN(RVI_MAX(whole, ENCODER_TOKENS), RVI_MAX_CONTEXT);
    bool is_whole = o->n_tokens == RV_WHOLE_CONTEXT && whole > RVI_SERVICE_TOKENS;
    return is_whole ? RVI_MIN(whole, RVI_MAX_CONTEXT) : RVI_SERVICE_TOKENS;
}

/* The longest request. */
static int longest(int n_context, bool is_encoder, const rv_service_options *o)
{
    int most = asked_tokens(n_context, is_encoder, o);
    return RVI_MIN(o->n_context ? o->n_context : n_context, most);
}

/* There is room for that, and for the page more that the scheduler wants. */
int rvi_service_tokens(int n_context, bool is_encoder, const rv_service_options *o)
{
    int asked = asked_tokens(n_context, is_encoder, o);
    int n_pages = (longest(n_context, is_encoder, o) + RVI_PAGE_TOKENS - 1) / RVI_PAGE_TOKENS + 1;
    return RVI_MIN(RVI_MAX(asked, n_pages * RVI_PAGE_TOKENS), RVI_MAX_CONTEXT);
}

/* Every running request has a row and logits in each step, and prompts and guesses have rows beside
 * them. */
static rv_status make_engine(rv_service *s, const rv_model *m, const rv_service_options *o,
                             int max_running, rv_error *err)
{
    int rows = RVI_MAX(o->max_rows ? o->max_rows : DEFAULT_ROWS, max_running + 64);
    /* where room counts in bytes, those of 4 bits need more pages */
    enum { PAGES_A_HOT_ONE = 3 };
    bool by_bytes = o->pressure == RV_PRESSURE_QUANTIZE;
    int n_context = m->model->hp.n_context;
    bool is_encoder = m->model->arch->is_encoder;
    int n_tokens = rvi_service_tokens(n_context, is_encoder, o);
    if (by_bytes) n_tokens = RVI_MIN(n_tokens, RVI_MAX_CONTEXT / PAGES_A_HOT_ONE);
    rv_engine_options eo = {.size = sizeof eo,
                            .n_tokens = n_tokens * (by_bytes ? PAGES_A_HOT_ONE : 1),
                            .max_rows = is_encoder ? o->max_rows : rows,
                            .max_logits = max_running + RVI_BESIDE + 2 * RVI_DRAFT_MOST,
                            .kv_type = o->kv_type,
                            .kv_warm = o->kv_warm};
    rv_status st = rv_engine_new(&s->e, m, &eo, err);
    if (st) return st;
    if (by_bytes)
        rvi_pages_limit(s->e->e->pool, (n_tokens + RVI_PAGE_TOKENS - 1) / RVI_PAGE_TOKENS);
    s->n_context = RVI_MIN(longest(n_context, is_encoder, o), n_tokens - RVI_PAGE_TOKENS);
    return RV_OK;
}

static rv_status open_sessions(rv_service *s, const rv_model *m, const rv_service_options *o,
                               rv_error *err)
{
    rvi_sessions_options so = {.dir = o->sessions,
                               .idle = o->session_idle,
                               .age = o->session_age,
                               .max_bytes = o->session_bytes,
                               .max_tenant = o->tenant_sessions};
    if (!o->sessions || m->model->arch->is_encoder) return RV_OK;
    rv_status st = rv_model_digest(m, so.model, err);
    return st ? st : rvi_sessions_new(&s->sessions, s->e->e, &so, err);
}

/* Others need room: called by any thread, for moments. */
static uint64_t give_room(void *ctx, uint64_t bytes)
{
    rv_service *s = ctx;
    uint64_t n = rvi_scheduler_shrink(s->s, bytes);
    if (bytes && n && s->work) rvi_wakeup_post(s->work);
    return n;
}

/* Room for one request of any length is the service's own: it never waits for that. While a page is
 * copied there are two of it, and guesses may begin one. */
static rv_status make_scheduler(rv_service *s, const rv_model *m, rvi_scheduler_options *inner,
                                rv_error *err)
{
    enum { BESIDE = 3 };
    int pages = (s->n_context + RVI_PAGE_TOKENS - 1) / RVI_PAGE_TOKENS + BESIDE;
    inner->quota = &m->rt->quota;
    inner->member = &s->member;
    inner->saves_beside = s->sessions ? s->work : NULL;
    inner->floor_pages = RVI_MIN(pages, rvi_pages_most(s->e->e->pool));
    rv_status st = rvi_scheduler_new(&s->s, s->e->e, inner, err);
    s->member = (rvi_quota_member){.class = RVI_QUOTA_KV, .give = give_room, .ctx = s};
    if (!st) rvi_quota_join(inner->quota, &s->member);
    return st;
}

rv_status rv_service_new(rv_service **out, const rv_model *m, const rv_service_options *given,
                         rv_error *err)
{
    if (!out) return rvi_error(err, RV_E_INVALID, "rv_service_new: NULL argument");
    *out = NULL;
    rv_service_options o;
    rv_status st = rvi_api_need_weights(m, err);
    if (!st) st = rvi_api_read_struct(&o, sizeof o, given, "rv_service_options", err);
    if (!st) st = check_options(&o, err);
    if (st) return st;
    const rv_allocator *heap = rvi_api_use_heap(m->rt);
    rvi_scheduler_options inner = inner_options(&o);
    rv_service *s = rvi_zalloc(sizeof *s);
    if (s) {
        atomic_init(&s->stop, false);
        atomic_flag_clear(&s->stepping);
        s->wake = o.wake;
        s->wake_ctx = o.wake_ctx;
        st = make_engine(s, m, &o, inner.max_running, err);
        if (!st) st = rvi_api_check_budget(m->rt, RVI_QUOTA_SCRATCH, "a service", err);
    } else {
        st = rvi_nomem(err, "service");
    }
    if (!st) st = open_sessions(s, m, &o, err);
    if (!st && o.embedder) st = rvi_service_open_finder(s, o.embedder, err);
    if (!st && o.spill) st = rvi_os_make_dirs(o.spill, err);
    if (!st && !o.no_thread) st = rvi_wakeup_new(&s->work, err);
    if (!st && !o.no_thread) st = rvi_wakeup_new(&s->news, err);
    if (!st) st = make_scheduler(s, m, &inner, err);
    atomic_store(&m->rt->token_ns, (uint_fast64_t)(inner.token_seconds * 1e9));
    if (!st && !o.no_thread) st = rvi_thread_start(&s->thread, serve, s, false, err);
    if (!st && !o.no_cache) rvi_service_check_template(m);
    rvi_api_leave_heap(heap);
    if (st)
        rv_service_free(&s);
    else
        *out = s;
    return st;
}

/* Answers that have ended are saved, though nobody will hear of it. */
static void finish_saving(rv_service *s)
{
    const rv_allocator *heap = rvi_api_use_heap(s->e->m->rt);
    for (bool more = true; more;) {
        rvi_api_turn turn;
        enter(&turn, s->e->m->rt);
        more = rvi_scheduler_finish(s->s);
        rvi_api_leave(&turn);
        if (more) rvi_wakeup_wait(s->work, 0);
    }
    rvi_api_leave_heap(heap);
}

void rv_service_free(rv_service **handle)
{
    if (!handle || !*handle) return;
    rv_service *s = *handle;
    *handle = NULL;
    atomic_store(&s->stop, true);
    if (s->thread) {
        rvi_wakeup_post(s->work);
        rvi_thread_join(s->thread);
    }
    if (s->thread) finish_saving(s);
    if (s->e) rvi_quota_leave(&s->e->m->rt->quota, &s->member);
    if (s->s) { /* sessions and learners' adapters go back in a turn */
        rvi_api_turn turn;
        enter(&turn, s->e->m->rt);
        note_work(s, false);
        rvi_scheduler_free(s->s);
        rvi_api_leave(&turn);
    }
    rvi_sessions_free(s->sessions);
    rvi_api_release_engine(s->finder);
    rvi_wakeup_free(s->work);
    rvi_wakeup_free(s->news);
    rvi_api_release_engine(s->e);
    rvi_free(s);
}

const rv_model *rv_service_model(const rv_service *s)
{
    return s ? s->e->m : NULL;
}

/* ---- calls from any thread ---- */

static void notify(rv_service *s)
{
    if (s->work) rvi_wakeup_post(s->work);
}

rv_status rv_service_submit(rv_service *s, const rv_request *given, uint64_t *id, rv_error *err)
{
    if (!s || !given || !id)
        return rvi_error(err, RV_E_INVALID, "rv_service_submit: NULL argument");
    *id = 0;
    rvi_order *r;
    const rv_allocator *heap = rvi_api_use_heap(s->e->m->rt);
    rv_status st = rvi_service_read(s, given, &r, err);
    if (!st && (st = rvi_scheduler_submit(s->s, r, id, err))) rvi_order_free(r);
    rvi_api_leave_heap(heap);
    if (!st) notify(s);
    return st;
}

void rv_service_cancel(rv_service *s, uint64_t id)
{
    if (!s) return;
    rvi_scheduler_cancel(s->s, id);
    notify(s);
}

/* Without their paths. */
static rv_listed_session *copy_list(const rvi_listed_session *list, size_t n)
{
    size_t texts = 0;
    for (size_t i = 0; i < n; i++) texts += strlen(list[i].name) + 1;
    rv_listed_session *out = rvi_alloc_array(n * sizeof *out + texts + 1, 1);
    char *text = out ? (char *)(out + n) : NULL;
    for (size_t i = 0; out && i < n; i++) {
        size_t len = strlen(list[i].name) + 1;
        memcpy(text, list[i].name, len);
        out[i] = (rv_listed_session){text, list[i].saved};
        text += len;
    }
    return out;
}

rv_status rv_service_list_sessions(rv_service *s, const char *tenant, rv_listed_session **out,
                                   size_t *n, rv_error *err)
{
    if (!s || !out || !n)
        return rvi_error(err, RV_E_INVALID, "rv_service_list_sessions: NULL argument");
    *out = NULL;
    *n = 0;
    if (!s->sessions) return RV_OK;
    const rv_allocator *heap = rvi_api_use_heap(s->e->m->rt);
    rvi_listed_session *list;
    rv_status st = rvi_sessions_list(s->sessions, tenant ? tenant : "", &list, n, err);
    if (!st && !(*out = copy_list(list, *n))) st = rvi_nomem(err, "sessions");
    if (st) *n = 0;
    rvi_free(list);
    rvi_api_leave_heap(heap);
    return st;
}

rv_status rv_service_forget(rv_service *s, const char *tenant, const char *session, rv_error *err)
{
    if (!s || !session) return rvi_error(err, RV_E_INVALID, "rv_service_forget: NULL argument");
    if (!s->sessions) return rvi_error(err, RV_E_NOT_FOUND, "the service keeps no sessions");
    return rvi_sessions_forget(s->sessions, tenant ? tenant : "", session, err);
}

rv_status rv_service_drain(rv_service *s, double wait, rv_batch **out, rv_error *err)
{
    if (out) *out = NULL;
    if (!s || !out) return rvi_error(err, RV_E_INVALID, "rv_service_drain: NULL argument");
    if (!(wait >= 0) || wait > 1e9)
        return rvi_error(err, RV_E_CONFIG, "wait must be 0..1e9 seconds (got %g)", wait);
    double end = wait > 0 ? rvi_os_seconds() + wait : 0;
    while (!(*out = rvi_scheduler_take(s->s)) && s->news && wait > 0) {
        rvi_wakeup_wait(s->news, wait);
        wait = end - rvi_os_seconds();
    }
    if (*out) notify(s); /* computing may have waited for it */
    /* two that come at once wake one thread: the other is for the next */
    if (*out && s->news && rvi_scheduler_has_told(s->s)) rvi_wakeup_post(s->news);
    return RV_OK;
}

rv_status rv_service_step(rv_service *s, size_t *n, rv_error *err)
{
    if (n) *n = 0;
    if (!s || !n) return rvi_error(err, RV_E_INVALID, "rv_service_step: NULL argument");
    if (s->thread) return rvi_error(err, RV_E_STATE, "the service has a thread that steps");
    if (atomic_flag_test_and_set(&s->stepping))
        return rvi_error(err, RV_E_BUSY, "another thread computes a step of this service");
    *n = step(s).n_live;
    atomic_flag_clear(&s->stepping);
    return RV_OK;
}

rv_status rv_service_get_metrics(const rv_service *s, rv_service_metrics *out, rv_error *err)
{
    if (!s || !out) return rvi_error(err, RV_E_INVALID, "rv_service_get_metrics: NULL argument");
    if (out->size < sizeof out->size || out->size > 1 << 20)
        return rvi_error(err, RV_E_CONFIG,
                         "rv_service_metrics.size must be sizeof(rv_service_metrics) (got %zu)",
                         out->size);
    const rv_allocator *heap = rvi_api_use_heap(s->e->m->rt);
    rv_service_metrics *full = rvi_zalloc(sizeof *full); /* some ten pages: not on the stack */
    rvi_api_leave_heap(heap);
    if (!full) return rvi_nomem(err, "metrics");
    size_t size = out->size;
    rvi_scheduler_read(s->s, full);
    full->size = size;
    full->n_context = (uint64_t)s->n_context;
    memcpy(out, full, RVI_MIN(size, sizeof *full));
    rvi_free(full);
    return RV_OK;
}
