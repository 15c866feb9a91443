/* serve: models behind HTTP */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/os.h"
#include "cli/answers.h"
#include "cli/generation.h"
#include "cli/learning.h"
#include "cli/settings.h"
#include "hub/hub.h"
#include "server/server.h"

enum { USUAL_PARALLEL = 32, MOST_MODELS = 64 };

/* A model of the server. */
typedef struct hosted {
    struct serve *s;
    const char *given; /* MODEL, or NAME=MODEL */
    const char *model; /* MODEL */
    cli_model at;      /* the runtime is the server's; m is there while it is loaded */
    cli_learning learning;
} hosted;

typedef struct serve {
    cli *c;
    const char *adapter;
    hosted models[MOST_MODELS];
    const char *names[MOST_MODELS];
    rvi_arena texts;
    rvi_buf template_text;
    rv_runtime *rt;
    rvi_server_options o;
    const char *alias, *llama, *config, *memory;
    const char *sessions, *session_room;
    int session_idle, session_age, sessions_per_key;
    const char *pressure, *spill, *spill_room;
    bool check;
    int parallel, max_waiting, max_tenant, drain, max_memory, unload_after;
    bool no_learning, pull, store_given;
    rv_store kept[2]; /* answers */
    rv_store witness; /* the same for the witness log; zeroed: it is in a folder */
} serve;

/* Without a place for what is learned the model is served as it is, unless the place was named. */
static rv_status open_state(hosted *h, rv_error *err)
{
    rv_error why = {0};
    rv_status st = cli_learning_open(&h->learning, h->s->c, &h->at, h->s->adapter, true, &why);
    if (!st) st = rv_learner_start(h->learning.l, &why);
    if (!st) return RV_OK;
    cli_learning_close(&h->learning);
    if (h->s->c->store) return rvi_error(err, st, "--store: %s", why.text);
    cli_warn("nothing is learned: %s", why.text);
    return RV_OK;
}

/* ---- tenants with learned state of their own ---- */

static void close_tenant(void *ctx, void *handle)
{
    (void)ctx;
    cli_learning_close(handle);
    rvi_free(handle);
}

static rv_status open_tenant(void *ctx, const char *tenant, rv_learner **out, void **handle,
                             rv_error *err)
{
    const hosted *h = ctx;
    cli_learning *l = rvi_zalloc(sizeof *l);
    *out = NULL;
    *handle = NULL;
    if (!l) return rvi_nomem(err, "tenant");
    rv_status st = cli_learning_open_tenant(l, h->s->c, &h->at, tenant, &h->learning, err);
    if (!st) st = rv_learner_start(l->l, err);
    if (st) {
        close_tenant(ctx, l);
        return st;
    }
    *out = l->l;
    *handle = l;
    return RV_OK;
}

/* ---- models ---- */

static rv_status open_learning(void *ctx, int i, const rv_model *m, rvi_served_learning *out,
                               rv_error *err)
{
    hosted *h = &((serve *)ctx)->models[i];
    rv_status st = RV_OK;
    h->at.rt = h->s->rt;
    h->at.m = (rv_model *)(uintptr_t)m; /* which is not closed here */
    if (!h->s->no_learning && !rv_model_get_info(m)->is_encoder) st = open_state(h, err);
    *out = (rvi_served_learning){.learner = h->learning.l,
                                 .scratch = h->learning.dir.data,
                                 .tenants = {open_tenant, close_tenant, h}};
    return st;
}

static void close_learning(void *ctx, int i)
{
    hosted *h = &((serve *)ctx)->models[i];
    cli_learning_close(&h->learning);
    h->at.m = NULL;
}

/* A model of the catalogue that is not on this machine yet. */
static rv_status fetch(const serve *s, const char *name, rv_error *err)
{
    const rvi_hub_model *m = rvi_hub_find(name);
    const char *cache;
    if (!s->pull || !m) return RV_OK;
    rv_status st = cli_cache(s->c, &cache, err);
    if (st || rvi_hub_present(cache, m)) return st;
    fprintf(stderr, "ruvllm: fetching %s, %.1f MB\n", m->name, (double)m->size / 1e6);
    return rvi_hub_pull(cache, m, NULL, NULL, NULL, err);
}

/* What an option says; 0: it was not given. */
static uint64_t read_room(const char *text)
{
    uint64_t bytes = 0;
    if (text) (void)cli_read_size(text, &bytes); /* which was checked */
    return bytes;
}

/* --memory */
static rv_status limit_memory(const serve *s, rv_error *err)
{
    rv_budget b = {.size = sizeof b, .bytes = read_room(s->memory)};
    if (!s->memory) return RV_OK;
    return rv_runtime_set_budget(s->rt, &b, err);
}

/* What is not there is told before anybody could ask. */
static rv_status locate_models(serve *s, rv_error *err)
{
    rv_status st = RV_OK;
    for (int i = 0; !st && !s->pull && i < s->o.n_models; i++)
        st = cli_locate(s->c, s->models[i].model, &s->models[i].at.path, err);
    return st;
}

/* A model's own folder in one for all: its name, with what no file name has as in addresses. */
static const char *own_folder(serve *s, const char *folder, const char *name)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    rvi_buf path = {0};
    bool dots = name[0] == '.'; /* hidden, or not below the folder at all */
    rvi_buf_printf(&path, "%s/", folder);
    for (const char *c = name; *c; c++) {
        if (strchr(plain, *c) && !(dots && c == name))
            rvi_buf_putc(&path, *c);
        else
            rvi_buf_printf(&path, "%%%02X", (unsigned char)*c);
    }
    const char *own = path.failed ? NULL : rvi_arena_strndup(&s->texts, path.data, path.len);
    rvi_buf_deinit(&path);
    return own;
}

static rv_status set_sessions(serve *s, int model, rv_service_options *o, rv_error *err)
{
    if (!s->sessions) return RV_OK;
    o->sessions = own_folder(s, s->sessions, s->names[model]);
    o->session_idle = s->session_idle;
    o->session_age = s->session_age;
    o->session_bytes = read_room(s->session_room);
    o->tenant_sessions = s->sessions_per_key;
    return o->sessions ? RV_OK : rvi_nomem(err, "sessions");
}

/* --spill alone means the cheaper of writing and computing again. */
static rv_pressure pressure_of(const serve *s)
{
    static const char *const names[] = {
        [RV_PRESSURE_RECOMPUTE] = "recompute", [RV_PRESSURE_SPILL] = "spill",
        [RV_PRESSURE_CHEAPER] = "cheaper",     [RV_PRESSURE_REJECT] = "reject",
        [RV_PRESSURE_EVICT] = "evict",         [RV_PRESSURE_QUANTIZE] = "quantize"};
    unsigned i = s->spill ? RV_PRESSURE_CHEAPER : RV_PRESSURE_RECOMPUTE;
    if (s->pressure)
        for (i = 0; strcmp(names[i], s->pressure) != 0;) i++; /* it is one: that was checked */
    return (rv_pressure)i;
}

static rv_status set_pressure(serve *s, int model, rv_service_options *o, rv_error *err)
{
    o->pressure = pressure_of(s);
    if (!s->spill) return RV_OK;
    o->spill = own_folder(s, s->spill, s->names[model]);
    o->spill_bytes = read_room(s->spill_room);
    return o->spill ? RV_OK : rvi_nomem(err, "spill");
}

/* Nothing is loaded yet. */
static rv_status find_models(void *ctx, rv_runtime **rt, rvi_served *out, rv_error *err)
{
    serve *s = ctx;
    rv_kv_type kv_type;
    rv_status st = cli_kv_type(s->c, &kv_type, err);
    if (!st && s->c->template_file) st = cli_read_file(s->c->template_file, &s->template_text, err);
    if (!st && s->c->template_file && !rvi_buf_puts(&s->template_text, ""))
        st = rvi_nomem(err, "chat template");
    for (int i = 0; !st && i < s->o.n_models; i++) {
        hosted *h = &s->models[i];
        st = fetch(s, h->model, err);
        if (!st && !h->at.path.len) st = cli_locate(s->c, h->model, &h->at.path, err);
        out[i].path = h->at.path.data;
        out[i].open.chat_template = s->template_text.data;
        out[i].open.gpu_layers = s->c->gpu_layers;
        out[i].open.gpu_tokens = RV_GPU_WHOLE_CONTEXT;
        out[i].service = (rv_service_options){.n_context = s->c->context,
                                              .n_tokens = RV_WHOLE_CONTEXT,
                                              .kv_type = kv_type,
                                              .max_rows = s->o.llama.batch,
                                              .max_waiting = s->max_waiting,
                                              .max_tenant = s->max_tenant};
        out[i].service.max_running = s->parallel ? s->parallel : USUAL_PARALLEL;
        if (!st) st = set_sessions(s, i, &out[i].service, err);
        if (!st) st = set_pressure(s, i, &out[i].service, err);
    }
    if (!st) st = cli_runtime(s->c, s->c->threads, &s->rt, err);
    if (!st) st = limit_memory(s, err);
    *rt = s->rt;
    return st;
}

/* Where answers are to outlive the process, which they need not. */
static rv_status open_answers(serve *s, rv_error *err)
{
    rv_error why = {0};
    if (s->no_learning) return RV_OK;
    rv_status st = cli_answers_open(s->c, s->kept, &why);
    if (!st) {
        memcpy(s->o.kept, s->kept, sizeof s->o.kept);
        s->o.kept_limited = !s->c->store;
        return RV_OK;
    }
    if (s->c->store) return rvi_error(err, st, "%s", why.text);
    cli_warn("answers are kept in memory alone: %s", why.text);
    return RV_OK;
}

static rv_status open_stores(serve *s, rv_error *err)
{
    rv_status st = open_answers(s, err);
    if (st || !s->o.witness || !cli_is_database(s->o.witness)) return st;
    rv_store_options o = {.size = sizeof o, .space = CLI_WITNESS_SPACE};
    s->o.witness_store = &s->witness;
    return rv_store_open(&s->witness, s->o.witness, &o, err);
}

static int run(serve *s)
{
    rv_error err = {0};
    rv_status st = locate_models(s, &err);
    if (!st) st = open_stores(s, &err);
    if (!st) st = rvi_server_run(&s->o, &err);
    rv_store_close(&s->witness);
    rv_store_close(&s->kept[1]);
    rv_store_close(&s->kept[0]);
    for (int i = 0; i < s->o.n_models; i++) rvi_buf_deinit(&s->models[i].at.path);
    rv_runtime_free(&s->rt);
    return st ? cli_fail(&err) : CLI_OK;
}

/* Adds MODEL or NAME=MODEL. 0: nothing is wrong. */
static int add_model(serve *s, const char *given)
{
    const char *sign = strchr(given, '=');
    hosted *h = &s->models[s->o.n_models];
    if (s->o.n_models == MOST_MODELS)
        return cli_usage(s->c, "at most %d models can be served", MOST_MODELS);
    *h = (hosted){.s = s, .given = given, .model = given};
    const char *name = given;
    if (sign && sign > given && rvi_os_stat(given, NULL) == RVI_OS_NONE) {
        name = rvi_arena_strndup(&s->texts, given, (size_t)(sign - given));
        if (!name) return cli_usage(s->c, "out of memory");
        h->model = sign + 1;
    }
    for (int i = 0; i < s->o.n_models; i++)
        if (!strcmp(s->names[i], name))
            return cli_usage(s->c,
                             "two models are called '%s': give one another name with "
                             "NAME=MODEL",
                             name);
    s->names[s->o.n_models++] = name;
    return CLI_OK;
}

/* Those of a file of settings, with commas between them. */
static int add_models(serve *s, const char *list)
{
    int code = CLI_OK;
    if (rvi_os_stat(list, NULL) != RVI_OS_NONE) return add_model(s, list);
    while (!code && *list) {
        size_t n = strcspn(list, ",");
        const char *one = rvi_arena_strndup(&s->texts, list, n);
        code = one ? add_model(s, one) : cli_usage(s->c, "out of memory");
        list += n;
        while (*list == ',' || *list == ' ') list++;
    }
    return code;
}

/* A service manager that listens itself passes the socket as descriptor 3. */
static int inherited(void)
{
    enum { FIRST = 3 };
    const char *pid = getenv("LISTEN_PID"), *n = getenv("LISTEN_FDS");
    char own[24];
    snprintf(own, sizeof own, "%ld", rvi_os_process());
    return pid && n && !strcmp(pid, own) && !strcmp(n, "1") ? FIRST : -1;
}

/* Of names with commas between them. */
static const char *first_name(const char *names, char *out, size_t size)
{
    snprintf(out, size, "%.*s", (int)RVI_MIN(strcspn(names, ","), size - 1), names);
    return out;
}

static int check_pressure(const serve *s)
{
    rv_pressure p = pressure_of(s);
    bool spills = p == RV_PRESSURE_SPILL || p == RV_PRESSURE_CHEAPER;
    if (spills && !s->spill) return cli_usage(s->c, "--pressure %s needs --spill DIR", s->pressure);
    if (s->spill && !spills)
        return cli_usage(s->c, "--spill and --pressure %s exclude each other", s->pressure);
    if (s->spill_room && !s->spill) return cli_usage(s->c, "--spill-room needs --spill DIR");
    if (p == RV_PRESSURE_QUANTIZE && (!s->c->kv || strcmp(s->c->kv, "tiered") != 0))
        return cli_usage(s->c, "--pressure quantize needs --kv tiered");
    return CLI_OK;
}

/* What the options say together; 0: nothing is wrong. */
static int apply_options(serve *s, char *name, size_t size)
{
    cli *c = s->c;
    rv_error err = {0};
    int code = CLI_OK;
    if (!s->o.n_models) return cli_usage(c, CLI_MODEL_NEEDED);
    if (s->c->template_file && s->o.n_models > 1)
        return cli_usage(c, "--template is for one model");
    if (s->adapter && (code = cli_check_name(c, s->adapter))) return code;
    if (s->o.key && !*s->o.key) return cli_usage(c, "--api-key must not be empty");
    if (!s->o.tls_cert != !s->o.tls_key)
        return cli_usage(c, "--tls-cert and --tls-key go together");
    if (s->store_given && s->no_learning)
        return cli_usage(c, "--store and --no-learning exclude each other");
    if (s->no_learning) c->store = NULL;
    if (s->o.witness_contents && (!s->o.witness || cli_is_database(s->o.witness)))
        return cli_usage(c, "--witness-contents needs --witness DIR");
    if (!s->sessions &&
        (s->session_idle || s->session_age || s->sessions_per_key || s->session_room))
        return cli_usage(c, "--session-idle, --session-age, --sessions-per-key and --session-room "
                            "need --sessions");
    if ((code = check_pressure(s))) return code;
    s->o.drain_seconds = s->drain;
    s->o.aliases = s->alias;
    s->o.limits.bytes = (uint64_t)s->max_memory << 20;
    s->o.limits.idle = s->unload_after;
    s->o.names = s->names;
    if (s->alias) s->names[0] = first_name(s->alias, name, size);
    if (!*s->names[0]) return cli_usage(c, "--alias must not be empty");
    if (s->llama && rvi_llama_read(&s->o.llama, s->llama, &err))
        return cli_usage(c, "%s", err.text);
    return CLI_OK;
}

static int serve_with(serve *s, const cli_settings *settings, const cli_option *table, size_t n)
{
    char name[128];
    const char *given[MOST_MODELS];
    int n_given = 0;
    bool done;
    int code = cli_parse(s->c, table, n, settings->argc, settings->argv, given, MOST_MODELS,
                         &n_given, &done);
    if (code || done) return code;
    for (int i = 0; !code && i < n_given; i++) code = add_model(s, given[i]);
    if (!code && !n_given && settings->model) code = add_models(s, settings->model);
    if (code || (code = apply_options(s, name, sizeof name))) return code;
    if (!s->check) return run(s);
    rvi_buf models = {0};
    bool secret = s->o.witness && cli_is_database(s->o.witness); /* it may have a password */
    for (int i = 0; i < s->o.n_models; i++)
        rvi_buf_printf(&models, "%s%s", i ? "," : "", s->models[i].given);
    cli_settings_print(settings, s->c, models.failed ? NULL : models.data, table, n,
                       secret ? " api-key store witness " : " api-key store ");
    rvi_buf_deinit(&models);
    return CLI_OK;
}

int cli_serve(cli *c, int argc, char **argv)
{
    serve s = {.c = c, .o = {.host = "127.0.0.1", .port = 8080}};
    s.drain = 30;
    s.o.max_body = 32;
    s.o.inherited = inherited();
    s.o.notify = getenv("NOTIFY_SOCKET");
    s.o.open = find_models;
    s.o.open_learning = open_learning;
    s.o.close_learning = close_learning;
    s.texts.max = 1 << 20;
    s.o.ctx = &s;
    const cli_option table[] = {{"host", 0, CLI_TEXT, &s.o.host, NULL},
                                {"port", 0, CLI_INT, &s.o.port, NULL},
                                {"unix", 0, CLI_TEXT, &s.o.unix_path, NULL},
                                {"api-key", 0, CLI_TEXT, &s.o.key, NULL},
                                {"keys", 0, CLI_TEXT, &s.o.keys, NULL},
                                {"cors-origin", 0, CLI_TEXT, &s.o.origins, NULL},
                                {"tls-cert", 0, CLI_TEXT, &s.o.tls_cert, NULL},
                                {"tls-key", 0, CLI_TEXT, &s.o.tls_key, NULL},
                                {"max-body", 0, CLI_INT, &s.o.max_body, NULL},
                                {"max-waiting", 0, CLI_INT, &s.max_waiting, NULL},
                                {"max-per-key", 0, CLI_INT, &s.max_tenant, NULL},
                                {"max-memory", 0, CLI_INT, &s.max_memory, NULL},
                                {"memory", 0, CLI_TEXT, &s.memory, NULL},
                                {"max-loaded", 0, CLI_INT, &s.o.limits.max_loaded, NULL},
                                {"unload-after", 0, CLI_INT, &s.unload_after, NULL},
                                {"drain", 0, CLI_INT, &s.drain, NULL},
                                {"adapters", 0, CLI_TEXT, &s.o.adapters, NULL},
                                {"presets", 0, CLI_TEXT, &s.o.presets, NULL},
                                {"sessions", 0, CLI_TEXT, &s.sessions, NULL},
                                {"session-idle", 0, CLI_INT, &s.session_idle, NULL},
                                {"session-age", 0, CLI_INT, &s.session_age, NULL},
                                {"sessions-per-key", 0, CLI_INT, &s.sessions_per_key, NULL},
                                {"session-room", 0, CLI_TEXT, &s.session_room, NULL},
                                {"pressure", 0, CLI_TEXT, &s.pressure, NULL},
                                {"spill", 0, CLI_TEXT, &s.spill, NULL},
                                {"spill-room", 0, CLI_TEXT, &s.spill_room, NULL},
                                {"store", 0, CLI_TEXT, &c->store, &s.store_given},
                                {"witness", 0, CLI_TEXT, &s.o.witness, NULL},
                                {"witness-contents", 0, CLI_FLAG, &s.o.witness_contents, NULL},
                                {"any-model", 0, CLI_FLAG, &s.o.any_model, NULL},
                                {"pull", 0, CLI_FLAG, &s.pull, NULL},
                                {"parallel", 0, CLI_INT, &s.parallel, NULL},
                                {"adapter", 0, CLI_TEXT, &s.adapter, NULL},
                                {"template", 0, CLI_TEXT, &c->template_file, NULL},
                                {"alias", 0, CLI_TEXT, &s.alias, NULL},
                                {"llama-compatible", 0, CLI_TEXT, &s.llama, NULL},
                                {"config", 0, CLI_TEXT, &s.config, NULL},
                                {"check", 0, CLI_FLAG, &s.check, NULL},
                                {"no-learning", 0, CLI_FLAG, &s.no_learning, NULL}};
    cli_settings settings;
    int code = cli_settings_read(&settings, c, table, RVI_COUNT(table), argc, argv);
    if (!code) code = serve_with(&s, &settings, table, RVI_COUNT(table));
    cli_settings_free(&settings);
    rvi_buf_deinit(&s.template_text);
    rvi_arena_deinit(&s.texts);
    return code;
}
