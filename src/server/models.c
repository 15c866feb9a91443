/* Models that come and go.
 *
 * Three threads have a part in it. The event loop alone holds and leaves models, parks requests and
 * lets them go on. The loader waits until a model is loaded and opens what belongs to it, while it
 * holds the model. The thread of rv_models, which loads and unloads, closes what belongs to a model
 * that it has unloaded, before it does anything else: whoever holds a model therefore finds what
 * belongs to this very model, or nothing yet. */
#include "server/models.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/os.h"
#include "server/adapters.h"
#include "server/call.h"
#include "server/presets.h"

/* A request that waits for a model. Keys may be read again meanwhile. */
typedef struct rvi_parked {
    struct rvi_parked *next;
    rvi_serving *s;
    rvi_conn *conn;
    rvi_key key;
    rvi_handler *handle;
    const rvi_dialect *dialect;
    double timeout; /* 0: it may wait as long as it takes */
} rvi_parked;

typedef struct loading {
    rvi_work work;
    rvi_serving *s;
    rv_service *service;
    rv_status st;
    rv_error err;
    bool opened, thinks;
    char digest[65];
    rvi_served_learning learning;
    void (*told)(void *ctx, rv_status st, const rv_error *err); /* NULL: nobody */
    void *ctx;
} loading;

rvi_serving *rvi_serving_find(const rvi_server *v, const char *name)
{
    int n = v->o->n_models;
    for (int i = 0; i < n; i++)
        if (rvi_serving_is_called(&v->models[i], name)) return &v->models[i];
    rvi_serving *base = rvi_presets_find(v, name);
    for (int i = 0; !base && i < n; i++) {
        size_t len = strlen(v->models[i].name);
        if (!strncmp(name, v->models[i].name, len) && name[len] == ':') base = &v->models[i];
    }
    /* an adapter alone is one of the first model's, which knows */
    bool first = v->models[0].any_model || v->adapters_folder.len;
    return base || !first ? base : &v->models[0];
}

/* ---- what belongs to a model ---- */

static void close_all(rvi_serving *s)
{
    rvi_adapters_close(s);
    rvi_teaching_close(&s->teaching);
    s->teaching.shared.learner = NULL;
    s->teaching.shared.ready = false;
    s->scratch = NULL;
    s->model = NULL;
    s->server->o->close_learning(s->server->o->ctx, s->index);
    atomic_store(&s->is_open, false);
}

/* On the thread of the list. */
static void on_changed(void *ctx)
{
    rvi_server *v = ctx;
    rv_listed_model *all = NULL;
    size_t n = 0;
    rv_error err;
    if (rv_models_list(v->list, &all, &n, &err)) return;
    for (size_t i = 0; i < n; i++) {
        bool out = all[i].state == RV_MODEL_OUT || all[i].state == RV_MODEL_LOADING;
        if (out && atomic_load(&v->models[i].is_open)) close_all(&v->models[i]);
    }
    rv_free(all);
}

/* Whether answers may have thoughts, by the model's chat template. */
static bool thinks(const rv_model *m)
{
    rv_tools *t = NULL;
    rv_error err;
    const rv_model_info *info = rv_model_get_info(m);
    rv_tools_options o = {.size = sizeof o};
    if (info->is_encoder || !info->has_tokenizer || rv_tools_new(&t, m, &o, &err)) return false;
    bool yes = rv_tools_variables(t);
    rv_tools_free(&t);
    return yes;
}

static rv_status open_all(loading *l)
{
    rvi_serving *s = l->s;
    rvi_server *v = s->server;
    s->model = rv_service_model(l->service);
    l->opened = true;
    l->thinks = thinks(s->model);
    uint64_t n_events;
    rv_status st = rv_model_digest(s->model, l->digest, &l->err);
    if (!st) st = v->o->open_learning(v->o->ctx, s->index, s->model, &l->learning, &l->err);
    if (!st && l->learning.learner)
        st = rv_learner_verify_log(l->learning.learner, &n_events, &l->err);
    if (!st) st = rvi_adapters_open(s, &l->err);
    if (!st && !s->index && v->o->presets && !v->presets)
        st = rvi_presets_open(v, v->o->presets, &l->err);
    return st;
}

/* ---- loading ---- */

static void load(rvi_work *w)
{
    static const double PATIENCE = 0.2; /* between two looks whether the server ends; seconds */
    loading *l = (loading *)w;
    rvi_server *v = l->s->server;
    do l->st = rv_models_hold(v->list, l->s->name, PATIENCE, &l->service, &l->err);
    while (l->st == RV_E_BUSY && !atomic_load(&v->ending));
    if (l->st || atomic_load(&l->s->is_open)) return;
    l->st = open_all(l);
    if (!l->st) return;
    close_all(l->s);
    rv_models_give_back(v->list, &l->service);
}

static bool copy_text(rvi_arena *arena, const char **text)
{
    return *text && (*text = rvi_arena_strndup(arena, *text, strlen(*text)));
}

/* Of its requests, which may be shorter than the model's. */
static int context_of(const rv_service *service, int n_context)
{
    rv_service_metrics *m = rvi_zalloc(sizeof *m); /* some pages: not on the stack */
    if (!m) return n_context;
    m->size = sizeof *m;
    if (!rv_service_get_metrics(service, m, NULL)) n_context = (int)m->n_context;
    rvi_free(m);
    return n_context;
}

/* What is said of the model while it is not loaded. */
static void describe(rvi_serving *s)
{
    rv_model_info info = *rv_model_get_info(s->model);
    info.eos = NULL;
    info.n_eos = 0;
    s->n_context = context_of(s->service, info.n_context);
    s->n_parallel = s->served.service.max_running;
    if (s->info.architecture) return;
    if (copy_text(&s->texts, &info.architecture) && copy_text(&s->texts, &info.name) &&
        copy_text(&s->texts, &info.type) && copy_text(&s->texts, &info.tokenizer) &&
        copy_text(&s->texts, &info.chat_template))
        s->info = info;
}

static void take_over(loading *l)
{
    rvi_serving *s = l->s;
    rv_service *again = l->service;
    if (s->service) /* it was to go, and stays: it is held once for all who use it */
        rv_models_give_back(s->server->list, &again);
    else
        s->service = again;
    if (!l->opened) return;
    memcpy(s->digest, l->digest, sizeof s->digest);
    snprintf(s->fingerprint, sizeof s->fingerprint,
             s->server->llama.on ? "b%d-%.12s" : "rv%d-%.12s", RV_VERSION_NUMBER, s->digest);
    s->thinks = l->thinks;
    describe(s);
    rvi_taught *shared = &s->teaching.shared;
    shared->learner = rv_model_get_info(s->model)->is_encoder ? NULL : l->learning.learner;
    shared->ready = shared->learner;
    s->teaching.ways = l->learning.tenants;
    s->scratch = l->learning.scratch;
    atomic_store(&s->is_open, true);
}

/* A request goes on, or is told why not. */
static void release(rvi_parked *p, const loading *l)
{
    rvi_problem problem;
    rvi_conn *c = p->conn;
    c->gone = NULL;
    c->key = &p->key;
    if (l->service) {
        p->handle(p->s, c);
    } else {
        (void)rvi_problem_from(&problem, l->st, &l->err);
        if (problem.status != 503) {
            problem.status = 500;
            problem.type = "server_error";
            problem.code = "model_not_loaded";
        }
        rvi_problem_hide_paths(problem.message);
        rvi_dialect_refuse(p->dialect, c, &problem);
    }
    rvi_free(p);
}

static void loaded(rvi_work *w)
{
    loading *l = (loading *)w;
    rvi_serving *s = l->s;
    s->comes = false;
    if (!l->service && !l->st)
        l->st = rvi_error(&l->err, RV_E_CANCELLED, "the server is shutting down");
    else if (l->st && l->st != RV_E_BUSY && !l->told) /* clients are told less */
        fprintf(stderr, "ruvllm: warning: the model %s cannot be loaded: %s\n", s->name,
                l->err.text);
    if (l->service) take_over(l);
    if (l->service) rvi_serving_stay(s);
    if (l->service && !s->index) s->server->ready = true;
    if (l->told) l->told(l->ctx, l->st, &l->err);
    while (s->parked) {
        rvi_parked *p = s->parked;
        s->parked = p->next;
        release(p, l);
    }
    if (l->service) rvi_serving_leave(s);
    rvi_free(l);
}

static loading *post_loading(rvi_serving *s)
{
    loading *l = rvi_zalloc(sizeof *l);
    if (!l) return NULL;
    l->work = (rvi_work){.run = load, .done = loaded};
    l->s = s;
    s->comes = true;
    rvi_worker_post(s->server->loader, &l->work);
    return l;
}

/* ---- requests that wait ---- */

static void on_gone(void *ctx)
{
    rvi_parked *p = ctx;
    rvi_parked **at = &p->s->parked;
    while (*at != p) at = &(*at)->next;
    *at = p->next;
    rvi_free(p);
}

/* Whatever else the request says, its handler reads. */
static double timeout_of(const rvi_conn *c)
{
    enum { MOST_ARENA = 256 << 20 };
    rvi_arena arena = {.max = MOST_ARENA};
    const rvi_json *body = NULL;
    rvi_problem unread;
    double timeout = 0;
    if (c->in.body.len && rvi_wish_body(&body, &c->in.body, &arena, &unread))
        timeout = rvi_json_number(rvi_json_get(body, "timeout"), 0);
    rvi_arena_deinit(&arena);
    return timeout;
}

void rvi_servings_tick(rvi_server *v)
{
    double now = rvi_os_seconds();
    for (int i = 0; i < v->o->n_models; i++)
        for (rvi_parked *p = v->models[i].parked, *next; p; p = next) {
            rvi_conn *c = p->conn;
            rvi_problem problem;
            next = p->next;
            if (!(p->timeout > 0) || now - c->since < p->timeout) continue;
            (void)rvi_problem_timed_out(&problem, p->timeout);
            c->gone = NULL;
            c->key = &p->key;
            rvi_dialect_refuse(p->dialect, c, &problem);
            on_gone(p);
        }
}

void rvi_serving_await(rvi_serving *s, rvi_conn *c, rvi_handler *handle, const rvi_dialect *d)
{
    rvi_problem problem;
    rvi_parked *p = rvi_zalloc(sizeof *p);
    if (!p || (!s->comes && !post_loading(s))) {
        rvi_free(p);
        (void)rvi_problem_set(&problem, 503, NULL, NULL, "out of memory");
        rvi_dialect_refuse(d, c, &problem);
        return;
    }
    *p = (rvi_parked){.s = s, .conn = c, .key = *c->key, .handle = handle, .dialect = d};
    p->timeout = timeout_of(c);
    rvi_parked **end = &s->parked;
    while (*end) end = &(*end)->next;
    *end = p;
    c->gone = on_gone;
    c->gone_ctx = p;
}

/* ---- lifetimes ---- */

rv_status rvi_servings_open(rvi_server *v, rv_runtime *rt, rv_error *err)
{
    rv_models_options limits = v->o->limits;
    limits.size = sizeof limits;
    limits.changed = on_changed;
    limits.changed_ctx = v;
    rv_status st = RV_OK;
    if (v->o->adapters && !rvi_os_resolve(v->o->adapters, &v->adapters_folder))
        st = rvi_error(err, RV_E_NOT_FOUND, "--adapters %s: there is no such folder",
                       v->o->adapters);
    v->rt = rt;
    if (!st) st = rv_models_new(&v->list, rt, &limits, err);
    for (int i = 0; !st && i < v->o->n_models; i++) {
        rvi_serving *s = &v->models[i];
        st = rv_models_add(v->list, s->name, s->served.path, &s->served.open, &s->served.service,
                           err);
        s->path = s->served.path;
        if (rvi_os_stat(s->path, &s->file_bytes) != RVI_OS_FILE) s->file_bytes = 0;
    }
    return st;
}

bool rvi_servings_begin(rvi_server *v, void (*told)(void *ctx, rv_status st, const rv_error *err),
                        void *ctx)
{
    loading *l = post_loading(&v->models[0]);
    if (!l) return false;
    l->told = told;
    l->ctx = ctx;
    return true;
}

void rvi_servings_close(rvi_server *v)
{
    for (int i = 0; i < v->o->n_models; i++)
        if (v->models[i].service) rv_models_give_back(v->list, &v->models[i].service);
    rv_models_free(&v->list);
    for (int i = 0; i < v->o->n_models; i++) {
        rvi_serving *s = &v->models[i];
        rvi_calls_free(s);
        while (s->others) {
            rvi_recipient *r = s->others;
            s->others = r->next;
            r->drop(r);
        }
        if (atomic_load(&s->is_open)) close_all(s);
        rv_free(s->adapters);
        rvi_arena_deinit(&s->texts);
    }
    rvi_presets_close(v);
    rvi_buf_deinit(&v->adapters_folder);
    rvi_free(v->models);
    v->models = NULL;
}
