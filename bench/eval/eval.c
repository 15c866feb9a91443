/* What the evaluations share: the command line, the course of one, many answers at once, drift. */
#include "eval/eval.h"

#include <math.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "base/os.h"
#include "cli/generation.h"

/* ---- options ---- */

static int check_options(const cli *c, const eval_options *o)
{
    if (o->set < 0) return cli_usage(c, "--set: sets are counted from 1");
    if (o->windows < 1) return cli_usage(c, "--windows: at least 1");
    if (o->limit < 0 || o->steps < 0 || o->rank < 0 || o->rate < 0)
        return cli_usage(c, "--limit, --steps, --rank and --rate must be 0 or more");
    bool any = false;
    return eval_choice(c, "control", o->control, "random", "shuffled", &any);
}

int eval_parse(eval *e, cli *c, const cli_option *own, size_t n_own, int argc, char **argv,
               bool with_file, const char *needed, bool *done)
{
    eval_options *o = &e->o;
    *o = (eval_options){.windows = 64, .seed = 1};
    const cli_option common[] = {
        {"embedder", 0, CLI_TEXT, &o->embedder, NULL},
        {"no-embedder", 0, CLI_FLAG, &o->no_embedder, NULL},
        {"json", 0, CLI_FLAG, &o->json, NULL},
        {"set", 0, CLI_INT, &o->set, NULL},
        {"windows", 0, CLI_INT, &o->windows, NULL},
        {"limit", 0, CLI_INT, &o->limit, NULL},
        {"steps", 0, CLI_INT, &o->steps, NULL},
        {"rank", 0, CLI_INT, &o->rank, NULL},
        {"sources", 0, CLI_INT, &o->sources, NULL},
        {"seed", 0, CLI_UINT64, &o->seed, NULL},
        {"rate", 0, CLI_FLOAT, &o->rate, NULL},
        {"text", 0, CLI_TEXT, &o->text, NULL},
        {"control", 0, CLI_TEXT, &o->control, NULL},
        {"dump", 0, CLI_TEXT, &o->dump, NULL},
        {"work", 0, CLI_TEXT, &o->work, NULL},
    };
    cli_option rows[RVI_COUNT(common) + EVAL_MAX_OWN];
    const char *args[2] = {NULL};
    int n_args, max = with_file ? 2 : 1;
    memcpy(rows, common, sizeof common);
    memcpy(rows + RVI_COUNT(common), own, n_own * sizeof *own);
    int code = cli_parse(c, rows, RVI_COUNT(common) + n_own, argc, argv, args, max, &n_args, done);
    if (code || *done) return code;
    if (n_args < max) return cli_usage(c, "%s", needed);
    e->c = c;
    e->model_name = args[0];
    e->path = args[1];
    return check_options(c, o);
}

int eval_choice(const cli *c, const char *name, const char *text, const char *first,
                const char *second, bool *out)
{
    if (!text) return CLI_OK;
    *out = !strcmp(text, first);
    if (*out || !strcmp(text, second)) return CLI_OK;
    return cli_usage(c, "--%s: '%s' is neither %s nor %s", name, text, first, second);
}

int eval_switch(const cli *c, const char *name, const char *text, bool *out)
{
    return eval_choice(c, name, text, "on", "off", out);
}

/* ---- asking ---- */

/* An engine whose sessions have room for so many tokens each; the sessions of the one before are
 * gone by then. */
static rv_status make_engine(eval *e, int room, rv_error *err)
{
    rv_engine_options o = {.size = sizeof o};
    room = (room + 63) / 32 * 32; /* whole pages, one to spare */
    if (e->engine && room <= e->room) return RV_OK;
    rv_engine_free(&e->engine);
    o.n_tokens = RVI_MAX(room * EVAL_PARALLEL, EVAL_WINDOW + 32);
    o.max_logits = EVAL_PARALLEL;
    rv_status st = cli_kv_type(e->c, &o.kv_type, err);
    if (!st) st = rv_engine_new(&e->engine, e->model.m, &o, err);
    if (!st) e->room = room;
    return st;
}

enum { TURNS = 3 };

/* A conversation of the i-th question, and of what stands before it; it points to turns. Control
 * tokens in a question are taken as such, as when chats could not yet treat them as text: the
 * figures stay comparable. */
static rv_chat chat_of(const char *question, const eval_ask *ask, size_t i, rv_message turns[TURNS])
{
    size_t n = 0;
    if (ask->before && ask->before[i][0]) {
        turns[n++] = (rv_message){.role = "user", .content = ask->before[i][0]};
        turns[n++] = (rv_message){.role = "assistant", .content = ask->before[i][1]};
    }
    turns[n++] = (rv_message){.role = "user", .content = question};
    return (rv_chat){.size = sizeof(rv_chat), .messages = turns, .n_messages = n, .special = 1};
}

/* Tokens of the longest of these questions and an answer behind it. */
static rv_status room_for(const eval *e, const char *const *questions, size_t n,
                          const eval_ask *ask, int *out, rv_error *err)
{
    size_t longest = 0;
    rv_status st = RV_OK;
    for (size_t i = 0; !st && i < n; i++) {
        rv_message turns[TURNS];
        rv_chat chat = chat_of(questions[i], ask, i, turns);
        int32_t *ids;
        size_t n_ids;
        st = rv_chat_tokenize(e->model.m, &chat, &ids, &n_ids, err);
        longest = RVI_MAX(longest, n_ids);
        rv_free(ids);
    }
    if (!st && longest > 1 << 20) st = rvi_error(err, RV_E_CONFIG, "too long a question");
    *out = (int)longest + e->spare + ask->max_tokens;
    return st;
}

static rv_status start(rv_session *s, const char *question, const eval_ask *ask, size_t i,
                       rv_error *err)
{
    /* where not greedy, drawn from the model's whole distribution */
    const rv_sampling sampling = {.size = sizeof sampling,
                                  .seed = ask->seed + i,
                                  .greedy = !(ask->temperature > 0),
                                  .temperature = ask->temperature,
                                  .top_p = 1,
                                  .repetition_penalty = 1};
    rv_generate_options o = {
        .size = sizeof o, .sampling = &sampling, .max_tokens = ask->max_tokens};
    rv_message turns[TURNS];
    rv_chat chat = chat_of(question, ask, i, turns);
    if (ask->mask) {
        o.mask = ask->mask->forbid;
        o.ctx = ask->mask->ctx;
        o.ignore_eos = ask->mask->ignore_eos;
        o.logprobs = 1;
    }
    return rv_session_start_chat(s, &chat, &o, err);
}

rv_status eval_answers_on(eval *e, rv_learner *l, const char *const *questions, size_t n,
                          const eval_ask *ask, rv_session **sessions, rv_answer **out,
                          rv_error *err)
{
    size_t n_started = 0, n_running = 1;
    int room = 0;
    rv_session_options o = {.size = sizeof o, .learner = l};
    rv_status st = room_for(e, questions, n, ask, &room, err);
    if (!st) st = make_engine(e, room, err);
    o.engine = e->engine;
    o.n_context = e->room;
    for (size_t i = 0; !st && i < n; i++) st = rv_session_new(&sessions[i], e->model.m, &o, err);
    while (!st && n_started < n) {
        st = start(sessions[n_started], questions[n_started], ask, n_started, err);
        if (!st) n_started++;
    }
    while (!st && n_running) {
        st = rv_engine_advance(e->engine, &n_running, err);
        if (!st && cli_interrupted()) st = rvi_error(err, RV_E_CANCELLED, "interrupted");
    }
    for (size_t i = 0; i < n_started; i++) {
        rv_error own = {0};
        rv_status one = rv_session_finish(sessions[i], &out[i], &own);
        if (!st && one) {
            st = one;
            if (err) *err = own;
        }
    }
    return st;
}

static void dump_answers(const eval *e, const rv_learner *l, const char *const *questions, size_t n,
                         rv_answer *const *answers)
{
    rvi_buf line = {0};
    for (size_t i = 0; i < n; i++) {
        rvi_buf_printf(&line, "{\"learned\":%s,\"question\":", l ? "true" : "false");
        rvi_json_write_string(&line, questions[i], strlen(questions[i]));
        rvi_buf_puts(&line, ",\"answer\":");
        rvi_json_write_string(&line, answers[i]->text, answers[i]->text_len);
        rvi_buf_puts(&line, "}\n");
    }
    if (line.data) fwrite(line.data, 1, line.len, e->dump);
    fflush(e->dump); /* an evaluation that is ended before its time leaves what it asked */
    rvi_buf_deinit(&line);
}

rv_status eval_answers(eval *e, rv_learner *l, const char *const *questions, size_t n,
                       const eval_ask *ask, rv_answer ***out, rv_error *err)
{
    *out = rvi_zalloc_array(n, sizeof **out);
    rv_status st = *out ? RV_OK : rvi_nomem(err, "answers");
    for (size_t at = 0; !st && at < n; at += EVAL_PARALLEL) {
        /* new sessions each time: what takes part is decided anew, nothing of another question
         * stays */
        rv_session *sessions[EVAL_PARALLEL] = {NULL};
        size_t part = RVI_MIN((size_t)EVAL_PARALLEL, n - at);
        eval_ask here = *ask;
        here.seed += at;
        if (ask->before) here.before += at;
        if (ask->what) cli_progress_show(&e->bar, ask->what, at, n, "");
        st = eval_answers_on(e, l, questions + at, part, &here, sessions, *out + at, err);
        for (size_t i = 0; i < part; i++) rv_session_free(&sessions[i]);
    }
    if (!st && e->dump) dump_answers(e, l, questions, n, *out);
    if (ask->what) cli_progress_end(&e->bar);
    return st;
}

void eval_free_answers(rv_answer **answers, size_t n)
{
    for (size_t i = 0; answers && i < n; i++) rv_free(answers[i]);
    rvi_free(answers);
}

bool eval_same_ids(const rv_answer *a, const rv_answer *b)
{
    return a->n_ids == b->n_ids && !memcmp(a->ids, b->ids, a->n_ids * sizeof *a->ids);
}

/* ---- drift ---- */

/* n of the text's windows without overlap, evenly spread over it. */
static rv_status load_windows(eval *e, const char *path, int n, rv_error *err)
{
    rvi_buf text = {0};
    int32_t *ids = NULL;
    size_t n_ids = 0;
    rv_status st = cli_read_file(path, &text, err);
    if (!st)
        st = rv_tokenize(e->model.m, text.data, text.len, RV_TOKENIZE_SPECIAL, &ids, &n_ids, err);
    int all = (int)RVI_MIN(n_ids / EVAL_WINDOW, (size_t)1 << 20);
    if (!st && !all)
        st = rvi_error(err, RV_E_CONFIG, "%s: %zu tokens, and a window has %d", path, n_ids,
                       EVAL_WINDOW);
    if (!st) {
        n = RVI_MIN(n, all);
        e->windows = rvi_alloc_array((size_t)n * EVAL_WINDOW, sizeof *e->windows);
        if (!e->windows) st = rvi_nomem(err, "windows");
    }
    for (int i = 0; !st && i < n; i++) {
        /* from both ends, in f32: the places where torch.linspace puts them */
        float step = n > 1 ? (float)(all - 1) / (float)(n - 1) : 0;
        float at = i < n / 2 ? step * (float)i : (float)(all - 1) - step * (float)(n - 1 - i);
        memcpy(e->windows + (size_t)i * EVAL_WINDOW, ids + (size_t)at * EVAL_WINDOW,
               EVAL_WINDOW * sizeof *ids);
    }
    if (!st) e->n_windows = n;
    rv_free(ids);
    rvi_buf_deinit(&text);
    return st;
}

/* The mean negative log probability of a token. */
static rv_status measure_nll(eval *e, const rv_adapter_set *adapters, double *out, rv_error *err)
{
    float log_p[EVAL_WINDOW - 1];
    double sum = 0;
    rv_status st = RV_OK;
    for (int w = 0; !st && w < e->n_windows; w++) {
        cli_progress_show(&e->bar, "perplexity", (uint64_t)w, (uint64_t)e->n_windows, "");
        st = rv_engine_score(e->engine, e->windows + (size_t)w * EVAL_WINDOW, EVAL_WINDOW, adapters,
                             log_p, err);
        for (size_t i = 0; !st && i < RVI_COUNT(log_p); i++) sum -= (double)log_p[i];
        if (!st && cli_interrupted()) st = rvi_error(err, RV_E_CANCELLED, "interrupted");
    }
    cli_progress_end(&e->bar);
    *out = e->n_windows ? sum / ((double)e->n_windows * (EVAL_WINDOW - 1)) : (double)NAN;
    return st;
}

rv_status eval_dppl(eval *e, double *percent, rv_error *err)
{
    rv_adapter_set *adapters = NULL;
    double nll = NAN;
    *percent = NAN;
    if (!e->n_windows) return RV_OK;
    rv_status st = rv_learner_adapters(e->l, &adapters, err);
    if (!st) st = measure_nll(e, adapters, &nll, err);
    if (!st) *percent = 100 * (exp(nll - e->base_nll) - 1);
    rv_adapter_set_free(&adapters);
    return st;
}

/* ---- the learner ---- */

/* What passed since the last report went into the stage that reports now. */
static void note_stage(eval *e, const char *name)
{
    double now = rvi_os_seconds();
    int i = 0;
    while (i < e->n_stages && strcmp(e->stages[i].name, name) != 0) i++;
    if (i == EVAL_STAGES) return;
    if (i == e->n_stages) {
        (void)snprintf(e->stages[i].name, sizeof e->stages[i].name, "%s", name);
        e->n_stages++;
    }
    e->stages[i].seconds += now - e->stage_begun;
    e->stage_begun = now;
}

void eval_write_stages(rvi_buf *out, const eval *e)
{
    rvi_buf_puts(out, ",\"stages\":{");
    for (int i = 0; i < e->n_stages; i++)
        rvi_buf_printf(out, "%s\"%s\":%.4g", i ? "," : "", e->stages[i].name, e->stages[i].seconds);
    rvi_buf_putc(out, '}');
}

/* Progress of training: a bar with the loss. */
static int show_progress(void *ctx, const char *stage, int done, int total, double loss)
{
    eval *e = ctx;
    char note[48] = "";
    note_stage(e, stage);
    if (!isnan(loss)) snprintf(note, sizeof note, "loss %.4f", loss);
    cli_progress_show(&e->bar, stage, (uint64_t)RVI_MAX(done, 0), (uint64_t)RVI_MAX(total, 0),
                      note);
    if (done >= total) cli_progress_end(&e->bar);
    return cli_interrupted();
}

eval_settings eval_learner_settings(const eval *e)
{
    const eval_options *o = &e->o;
    eval_settings s = {
#define X(name, type, value, meaning) .name = (type)(value),
        RV_LEARNER_EXPERIMENTS(X)
#undef X
    };
    s.random_gradient = o->control && !strcmp(o->control, "random");
    if (o->steps) s.n_steps = o->steps;
    if (o->rank) {
        s.rank = o->rank;
        s.alpha = 2 * (float)o->rank;
    }
    if (o->rate > 0) s.learning_rate = o->rate;
    if (o->sources) s.sources = o->sources;
    return s;
}

static void put_int(rvi_buf *out, int value)
{
    rvi_buf_printf(out, "%d", value);
}

/* Written exactly: it is read as the same value again, whatever the locale. */
static void put_float(rvi_buf *out, float value)
{
    rvi_json_write_number(out, (double)value);
}

/* "recipe=0,gate=0,..." */
static void write_settings(const eval_settings *s, rvi_buf *out)
{
#define X(name, type, value, meaning)                                                              \
    rvi_buf_puts(out, out->len ? "," #name "=" : #name "=");                                       \
    put_##type(out, s->name);
    RV_LEARNER_EXPERIMENTS(X)
#undef X
}

/* The one that is named, or all-MiniLM where the cache has it. */
static rv_status open_embedder(eval *e, rv_error *err)
{
    const eval_options *o = &e->o;
    const rv_open_options small = {.size = sizeof small, .quantize = 1};
    rvi_buf path = {0};
    const char *cache = e->c->cache_dir;
    rv_status st = RV_OK;
    if (e->embedder || o->no_embedder || (!o->embedder && !cache)) return RV_OK;
    if (!(o->embedder ? rvi_buf_puts(&path, o->embedder)
                      : rvi_buf_printf(&path, "%s/models/all-MiniLM-L6-v2", cache)))
        st = rvi_nomem(err, "path");
    if (!st && (o->embedder || rvi_os_stat(path.data, NULL) == RVI_OS_DIR))
        st = rv_model_open(&e->embedder, e->model.rt, path.data, &small, err);
    if (!st && e->embedder && !rv_model_get_info(e->embedder)->is_encoder)
        st = rvi_error(err, RV_E_CONFIG, "%s: not an encoder, which --embedder needs", path.data);
    rvi_buf_deinit(&path);
    return st;
}

rv_status eval_learner_new(eval *e, const eval_settings *settings, rv_error *err)
{
    rv_status st = open_embedder(e, err);
    if (st) return st;
    rv_learner_options o = {.size = sizeof o, .seed = e->o.seed, .embedder = e->embedder};
    rvi_buf experiments = {0};
    if (e->store.append) o.store = &e->store;
    write_settings(settings, &experiments);
    o.experiments = experiments.data;
    if (experiments.failed) st = rvi_nomem(err, "settings");
    if (!st) st = rv_learner_new(&e->l, e->model.m, &o, err);
    rvi_buf_deinit(&experiments);
    double begun = e->stage_begun = rvi_os_seconds();
    if (!st && !e->uncalibrated) st = rv_learner_calibrate(e->l, show_progress, e, err);
    e->calibrate_s = rvi_os_seconds() - begun;
    return st;
}

rv_status eval_teach(eval *e, const eval_fact *facts, size_t n, double *slowest, rv_error *err)
{
    rv_status st = RV_OK;
    double worst = 0;
    for (size_t i = 0; !st && i < n; i++) {
        rv_adaptation *a = NULL;
        st = rv_learner_correct(e->l, NULL, facts[i].prompt, facts[i].taught, &a, err);
        if (!st) worst = RVI_MAX(worst, (a->latency_us + a->forward_us) * 1e-6);
        if (!st && !a->applied)
            st = rvi_error(err, RV_E_LEARNING, "'%s' was not learned: %s", facts[i].prompt,
                           a->notes);
        rv_free(a);
    }
    if (slowest) *slowest = worst;
    return st;
}

rv_status eval_train(eval *e, rv_learn_loop loop, rv_preference_loss loss, rv_adaptation **out,
                     double *seconds, rv_error *err)
{
    double begun = e->stage_begun = rvi_os_seconds();
    clock_t cpu = clock();
    rv_status st = rv_learner_consolidate(e->l, loop, loss, show_progress, e, out, err);
    note_stage(e, "ending"); /* probes, saving */
    *seconds = rvi_os_seconds() - begun;
    e->train_cpu_s += (double)(clock() - cpu) / CLOCKS_PER_SEC;
    return st;
}

/* ---- the course ---- */

static rv_status open_model(eval *e, rv_error *err)
{
    const eval_options *o = &e->o;
    e->base_nll = NAN;
    rv_status st = cli_open(e->c, e->model_name, false, &e->model, err);
    const rv_model_info *info = rv_model_get_info(e->model.m);
    if (!st && (!info->has_tokenizer || info->is_encoder))
        st = rvi_error(err, RV_E_TOKENIZATION, "%s: answering needs a tokenizer and a decoder",
                       e->model_name);
    if (!st) cli_interrupts_catch("\n", false);
    if (!st && o->dump && !(e->dump = fopen(o->dump, "w")))
        st = rvi_error(err, RV_E_IO, "%s: cannot be written", o->dump);
    if (!st && o->work) st = eval_store_open(e, err);
    if (!st) st = make_engine(e, 128, err);
    if (!st && o->text) st = load_windows(e, o->text, o->windows, err);
    if (!st && o->text) st = measure_nll(e, NULL, &e->base_nll, err);
    return st;
}

static void deinit(eval *e)
{
    cli_progress_end(&e->bar);
    rv_learner_free(&e->l);
    eval_store_shut(e);
    rv_engine_free(&e->engine);
    rvi_free(e->windows);
    rv_model_close(&e->embedder);
    cli_close(&e->model);
    if (e->dump) fclose(e->dump);
    rvi_arena_deinit(&e->arena);
    rvi_buf_deinit(&e->text);
    *e = (eval){0};
}

int eval_run(eval *e, rv_status (*load)(eval *e, rv_error *err),
             rv_status (*work)(eval *e, rvi_buf *out, rv_error *err))
{
    rv_error err = {0};
    rvi_buf out = {0};
    int code = CLI_OK;
    rv_status st = load ? load(e, &err) : RV_OK;
    if (!st) st = open_model(e, &err);
    if (!st) st = work(e, &out, &err);
    if (!st) code = cli_print(&out);
    rvi_buf_deinit(&out);
    deinit(e);
    return st ? cli_fail(&err) : code;
}
