/* serve: a model behind HTTP */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/os.h"
#include "cli/generation.h"
#include "cli/learning.h"
#include "cli/settings.h"
#include "server/server.h"

typedef struct serve {
    cli *c;
    const char *model_name, *adapter;
    rvi_server_options o;
    const char *alias, *llama, *config;
    bool check;
    int parallel, max_waiting, max_tenant, drain;
    bool no_learning;
    cli_model model;
    cli_learning learning;
    rv_store kept[2]; /* answers, by a connection of their own */
    rv_store witness; /* the same for the witness log; zeroed: it is in a folder */
} serve;

enum { USUAL_PARALLEL = 32 };

/* Room for one request of the whole context, and for others beside it. */
static int room_for(int context)
{
    enum { LEAST = 16384 };
    return RVI_MAX(context, LEAST);
}

/* Without a place for what is learned, or while another process has it, the model is served as it
 * is, unless the place was named. */
static rv_status open_learning(serve *s, rv_error *err)
{
    rv_error why = {0};
    rv_status st = cli_learning_open(&s->learning, s->c, &s->model, s->adapter, true, &why);
    if (!st && !cli_learning_claim(&s->learning, CLI_CHATTING))
        st = rvi_error(&why, RV_E_STORAGE, "a chat with this model is open and is learning");
    if (st && s->learning.l && s->c->store)
        st = rvi_error(&why, st,
                       "another process uses %s: each instance needs a state directory of its own "
                       "(RUVLLM_STATE_DIR)",
                       s->learning.dir.data);
    if (!st && !s->learning.paused) st = rv_learner_start(s->learning.l, &why);
    if (!st) return RV_OK;
    cli_learning_close(&s->learning);
    if (s->c->store) return rvi_error(err, st, "--store: %s", why.text);
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
    const serve *s = ctx;
    cli_learning *l = rvi_zalloc(sizeof *l);
    *out = NULL;
    *handle = NULL;
    if (!l) return rvi_nomem(err, "tenant");
    rv_status st = cli_learning_open_tenant(l, s->c, &s->model, tenant, &s->learning, err);
    if (!st && !l->paused) st = rv_learner_start(l->l, err);
    if (st) {
        close_tenant(ctx, l);
        return st;
    }
    *out = l->l;
    *handle = l;
    return RV_OK;
}

static rv_status open_kept(serve *s, rv_error *err)
{
    char space[96], digest[65];
    rv_store_options o = {.size = sizeof o, .busy_ms = 2000, .space = space};
    rv_status st = rv_model_digest(s->model.m, digest, err);
    snprintf(space, sizeof space, "%s/.answers", digest);
    if (!st) st = rv_store_open(&s->kept[0], s->c->store, &o, err);
    o.beside = &s->kept[0];
    return st ? st : rv_store_open(&s->kept[1], s->c->store, &o, err);
}

static rv_status open_all(void *ctx, rvi_served *out, rv_error *err)
{
    serve *s = ctx;
    rv_service_options *o = &out->service;
    rv_status st = cli_open(s->c, s->model_name, false, &s->model, err);
    if (!st) st = cli_kv_type(s->c, &o->kv_type, err);
    if (st) return st;
    const rv_model_info *info = rv_model_get_info(s->model.m);
    if (!s->no_learning && !info->is_encoder) st = open_learning(s, err);
    if (!st && s->learning.l && s->c->store) st = open_kept(s, err);
    if (st) return st;
    memcpy(out->kept, s->kept, sizeof out->kept);
    out->model = s->model.m;
    out->learner = s->learning.l;
    out->scratch = s->learning.dir.data;
    out->path = s->model.path.data;
    out->tenants = (rvi_taught_ways){open_tenant, close_tenant, s};
    o->n_context = s->c->context ? s->c->context : info->n_context;
    o->n_tokens = room_for(o->n_context);
    o->max_running = s->parallel ? s->parallel : USUAL_PARALLEL;
    o->max_rows = s->o.llama.batch;
    o->max_waiting = s->max_waiting;
    o->max_tenant = s->max_tenant;
    return RV_OK;
}

static int run(serve *s)
{
    rv_error err = {0};
    rv_status st = RV_OK;
    if (s->o.witness && cli_is_database(s->o.witness)) {
        rv_store_options o = {.size = sizeof o, .space = CLI_WITNESS_SPACE};
        st = rv_store_open(&s->witness, s->o.witness, &o, &err);
        s->o.witness_store = &s->witness;
    }
    if (!st) st = rvi_server_run(&s->o, &err);
    rv_store_close(&s->witness);
    rv_store_close(&s->kept[1]);
    rv_store_close(&s->kept[0]);
    cli_learning_close(&s->learning);
    cli_close(&s->model);
    return st ? cli_fail(&err) : CLI_OK;
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

/* What the options say together; 0: nothing is wrong. */
static int apply_options(serve *s, char *name, size_t size)
{
    cli *c = s->c;
    rv_error err = {0};
    int code = CLI_OK;
    if (!s->model_name) return cli_usage(c, CLI_MODEL_NEEDED);
    if (s->adapter && (code = cli_check_name(c, s->adapter))) return code;
    if (s->o.key && !*s->o.key) return cli_usage(c, "--api-key must not be empty");
    if (!s->o.tls_cert != !s->o.tls_key)
        return cli_usage(c, "--tls-cert and --tls-key go together");
    if (c->store && !cli_is_database(c->store))
        return cli_usage(c, "--store must be the address of a database, postgres://...");
    if (c->store && s->no_learning)
        return cli_usage(c, "--store and --no-learning exclude each other");
    if (s->o.witness_contents && (!s->o.witness || cli_is_database(s->o.witness)))
        return cli_usage(c, "--witness-contents needs --witness DIR");
    s->o.drain_seconds = s->drain;
    s->o.aliases = s->alias;
    s->o.name = s->alias ? first_name(s->alias, name, size) : s->model_name;
    if (s->alias && !*s->o.name) return cli_usage(c, "--alias must not be empty");
    if (s->llama && rvi_llama_read(&s->o.llama, s->llama, &err))
        return cli_usage(c, "%s", err.text);
    return CLI_OK;
}

static int serve_with(serve *s, const cli_settings *settings, const cli_option *table, size_t n)
{
    char name[128];
    int n_args = 0;
    bool done;
    int code = cli_parse(s->c, table, n, settings->argc, settings->argv, &s->model_name, 1, &n_args,
                         &done);
    if (code || done) return code;
    if (!n_args) s->model_name = settings->model;
    if ((code = apply_options(s, name, sizeof name))) return code;
    if (!s->check) return run(s);
    bool secret = s->o.witness && cli_is_database(s->o.witness); /* it may have a password */
    cli_settings_print(settings, s->c, s->model_name, table, n,
                       secret ? " api-key store witness " : " api-key store ");
    return CLI_OK;
}

int cli_serve(cli *c, int argc, char **argv)
{
    serve s = {.c = c, .o = {.host = "127.0.0.1", .port = 8080}};
    s.drain = 30;
    s.o.max_body = 32;
    s.o.inherited = inherited();
    s.o.notify = getenv("NOTIFY_SOCKET");
    s.o.open = open_all;
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
                                {"drain", 0, CLI_INT, &s.drain, NULL},
                                {"adapters", 0, CLI_TEXT, &s.o.adapters, NULL},
                                {"presets", 0, CLI_TEXT, &s.o.presets, NULL},
                                {"store", 0, CLI_TEXT, &c->store, NULL},
                                {"witness", 0, CLI_TEXT, &s.o.witness, NULL},
                                {"witness-contents", 0, CLI_FLAG, &s.o.witness_contents, NULL},
                                {"any-model", 0, CLI_FLAG, &s.o.any_model, NULL},
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
    return code;
}
