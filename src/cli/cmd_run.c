/* run: one answer, or a chat line by line */
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "base/json.h"
#include "base/os.h"
#include "cli/cli.h"

typedef struct run {
    cli *c;
    cli_model model;
    cli_adapters adapters;
    rv_session *session;
    rv_generate_options generate;
    /* options */
    bool raw, greedy, json, ignore_eos;
    const char *messages, *ids, *system;
    int max_tokens;
    cli_texts stop, lora;
    rv_sampling s;
    bool temp_given, top_p_given, top_k_given, min_p_given, repeat_given, frequency_given,
        presence_given, seed_given, n_given;
} run;

/* ---- options ---- */

static int parse(run *r, int argc, char **argv, const char **args, int *n_args, bool *done)
{
    const cli_option table[] = {
        {"raw", 0, CLI_FLAG, &r->raw, NULL},
        {"messages", 0, CLI_TEXT, &r->messages, NULL},
        {"ids", 0, CLI_TEXT, &r->ids, NULL},
        {"system", 's', CLI_TEXT, &r->system, NULL},
        {"max-tokens", 'n', CLI_INT, &r->max_tokens, &r->n_given},
        {"greedy", 0, CLI_FLAG, &r->greedy, NULL},
        {"temp", 0, CLI_FLOAT, &r->s.temperature, &r->temp_given},
        {"top-p", 0, CLI_FLOAT, &r->s.top_p, &r->top_p_given},
        {"top-k", 0, CLI_INT, &r->s.top_k, &r->top_k_given},
        {"min-p", 0, CLI_FLOAT, &r->s.min_p, &r->min_p_given},
        {"repeat-penalty", 0, CLI_FLOAT, &r->s.repetition_penalty, &r->repeat_given},
        {"frequency-penalty", 0, CLI_FLOAT, &r->s.frequency_penalty, &r->frequency_given},
        {"presence-penalty", 0, CLI_FLOAT, &r->s.presence_penalty, &r->presence_given},
        {"seed", 0, CLI_UINT64, &r->s.seed, &r->seed_given},
        {"stop", 0, CLI_TEXTS, &r->stop, NULL},
        {"ignore-eos", 0, CLI_FLAG, &r->ignore_eos, NULL},
        {"lora", 0, CLI_TEXTS, &r->lora, NULL},
        {"json", 0, CLI_FLAG, &r->json, NULL},
    };
    return cli_parse(r->c, table, RVI_COUNT(table), argc, argv, args, 2, n_args, done);
}

/* Defaults (or, greedy, everything off), and over them what was given. */
static void fill_sampling(run *r, bool greedy)
{
    rv_sampling s;
    if (greedy)
        rv_sampling_init_greedy(&s);
    else
        rv_sampling_init(&s);
    if (r->temp_given && !r->greedy) s.temperature = r->s.temperature;
    if (r->top_p_given) s.top_p = r->s.top_p;
    if (r->top_k_given) s.top_k = r->s.top_k;
    if (r->min_p_given) s.min_p = r->s.min_p;
    if (r->repeat_given) s.repetition_penalty = r->s.repetition_penalty;
    if (r->frequency_given) s.frequency_penalty = r->s.frequency_penalty;
    if (r->presence_given) s.presence_penalty = r->s.presence_penalty;
    s.seed = r->seed_given ? r->s.seed : rvi_os_random();
    r->generate.sampling = s;
}

/* ---- prompts ---- */

static void add_message(rvi_buf *b, const char *role, const char *text, size_t len)
{
    if (b->len) rvi_buf_puts(b, ",");
    rvi_buf_printf(b, "{\"role\":\"%s\",\"content\":", role);
    rvi_json_write_string(b, text, len);
    rvi_buf_puts(b, "}");
}

/* messages: the inside of a JSON array */
static rv_status chat_ids(run *r, const rvi_buf *messages, int32_t **ids, size_t *n, rv_error *err)
{
    rvi_buf conversation = {0};
    char *text = NULL;
    size_t len = 0;
    time_t clock = time(NULL);
    const struct tm *t = localtime(&clock);
    rv_time now = {0};
    if (t)
        now = (rv_time){t->tm_year + 1900, t->tm_mon + 1, t->tm_mday,
                        t->tm_hour,        t->tm_min,     t->tm_sec};
    rv_status st = RV_OK;
    if (!rvi_buf_printf(&conversation, "{\"messages\":[%s],\"add_generation_prompt\":true}",
                        messages->data ? messages->data : ""))
        st = rvi_nomem(err, "conversation");
    if (!st)
        st =
            rv_render_chat(r->model.m, conversation.data, conversation.len, &now, &text, &len, err);
    if (!st) st = rv_tokenize(r->model.m, text, len, 0, ids, n, err);
    rv_free(text);
    rvi_buf_deinit(&conversation);
    return st;
}

/* --messages: the file's array, and -s before it */
static rv_status messages_ids(run *r, int32_t **ids, size_t *n, rv_error *err)
{
    rvi_buf file = {0}, inside = {0};
    rvi_arena arena = {0};
    const rvi_json *list;
    rv_status st = cli_read_file(r->messages, &file, err);
    if (!st) st = rvi_json_parse(&list, file.data, file.len, &arena, r->messages, err);
    if (!st && (!rvi_json_is(list, RVI_JSON_ARRAY) || !rvi_json_count(list)))
        st = rvi_error(err, RV_E_CONFIG, "%s: a list of {\"role\", \"content\"} is expected",
                       r->messages);
    if (!st) {
        const char *open = strchr(file.data, '['), *close = strrchr(file.data, ']');
        if (r->system) add_message(&inside, "system", r->system, strlen(r->system));
        if (inside.len) rvi_buf_puts(&inside, ",");
        if (!rvi_buf_append(&inside, open + 1, (size_t)(close - open - 1)))
            st = rvi_nomem(err, "conversation");
    }
    if (!st) st = chat_ids(r, &inside, ids, n, err);
    rvi_buf_deinit(&file);
    rvi_buf_deinit(&inside);
    rvi_arena_deinit(&arena);
    return st;
}

static rv_status prompt_ids(run *r, const char *prompt, size_t len, int32_t **ids, size_t *n,
                            rv_error *err)
{
    *ids = NULL;
    *n = 0;
    if (r->ids) return cli_parse_ids(r->ids, ids, n, err);
    if (r->messages) return messages_ids(r, ids, n, err);
    if (r->raw) return rv_tokenize(r->model.m, prompt, len, RV_TOKENIZE_BOS, ids, n, err);
    rvi_buf messages = {0};
    if (r->system) add_message(&messages, "system", r->system, strlen(r->system));
    add_message(&messages, "user", prompt, len);
    rv_status st =
        messages.failed ? rvi_nomem(err, "conversation") : chat_ids(r, &messages, ids, n, err);
    rvi_buf_deinit(&messages);
    return st;
}

/* ---- answering ---- */

static int print_token(void *ctx, int32_t id, const char *text, size_t len)
{
    (void)ctx;
    (void)id;
    return fwrite(text, 1, len, stdout) != len || fflush(stdout);
}

static rv_status open_session(run *r, rv_error *err)
{
    rv_session_options o;
    rv_status st = cli_load_adapters(&r->lora, r->model.m, &r->adapters, err);
    if (!st) st = cli_session_options(r->c, r->model.m, &o, err);
    if (st) return st;
    o.adapters = r->adapters.uses;
    o.n_adapters = r->adapters.n;
    return rv_session_new(&r->session, r->model.m, &o, err);
}

static void write_json(const rv_generated *g, const int32_t *ids, size_t n, const rv_sampling *s,
                       rvi_buf *out)
{
    rvi_buf_puts(out, "{\"text\":");
    rvi_json_write_string(out, g->text, g->text_len);
    rvi_buf_puts(out, ",\"ids\":");
    cli_write_ids(out, g->ids, g->n_ids);
    rvi_buf_puts(out, ",\"prompt_ids\":");
    cli_write_ids(out, ids, n);
    double rate = g->seconds > 0 ? (double)g->n_ids / g->seconds : 0,
           prompt_rate =
               g->prompt_seconds > 0 ? (double)(g->n_prompt - g->n_reused) / g->prompt_seconds : 0;
    rvi_buf_printf(out,
                   ",\"finish_reason\":\"%s\",\"timings\":{\"prompt_tokens\":%d,\"prompt_seconds\":"
                   "%.6f,\"prompt_tokens_per_second\":%.3f,"
                   "\"tokens\":%zu,\"seconds\":%.6f,\"tokens_per_second\":%.3f},\"seed\":%llu}\n",
                   rv_finish_name(g->finish), g->n_prompt, g->prompt_seconds, prompt_rate, g->n_ids,
                   g->seconds, rate, (unsigned long long)s->seed);
}

static int answer_once(run *r, const char *prompt, size_t len)
{
    rv_error err = {0};
    int32_t *ids = NULL;
    size_t n = 0;
    rv_generated g = {0};
    rvi_buf out = {0};
    int code = CLI_OK;
    rv_status st = prompt_ids(r, prompt, len, &ids, &n, &err);
    if (!st && !n)
        st = rvi_error(&err, RV_E_GENERATION,
                       "the prompt is empty, and this model has no token to begin a text with");
    if (!st) st = open_session(r, &err);
    if (!st) {
        r->generate.on_token = r->json ? NULL : print_token;
        st = rv_session_generate(r->session, ids, n, &r->generate, &g, &err);
    }
    if (!st && r->json) {
        write_json(&g, ids, n, &r->generate.sampling, &out);
        code = cli_print(&out);
    } else if (!st) {
        rv_model_info info;
        (void)rv_model_get_info(r->model.m, &info);
        if (!info.has_tokenizer) { /* ids are all there is to show */
            for (size_t i = 0; i < g.n_ids; i++) rvi_buf_printf(&out, i ? ",%d" : "%d", g.ids[i]);
        }
        rvi_buf_puts(&out, "\n");
        code = cli_print(&out);
        if (r->c->verbose)
            fprintf(stderr,
                    "%d prompt tokens in %.2f s, %zu tokens in %.2f s (%.1f/s), ended by %s\n",
                    g.n_prompt, g.prompt_seconds, g.n_ids, g.seconds,
                    g.seconds > 0 ? (double)g.n_ids / g.seconds : 0, rv_finish_name(g.finish));
    } else if (g.n_ids && !r->json) {
        fputc('\n', stdout);
    }
    rv_generated_free(&g);
    rv_free(ids);
    return st ? cli_fail(&err) : code;
}

/* Every line is a user's turn; the answers stay in the conversation. */
static int chat(run *r)
{
    rv_error err = {0};
    rvi_buf line = {0}, messages = {0};
    bool terminal = rvi_os_is_terminal(stdin);
    bool colour = terminal && !r->c->no_color && rvi_os_is_terminal(stdout);
    rv_status st = open_session(r, &err);
    if (!r->n_given) r->generate.max_tokens = 512;
    r->generate.on_token = print_token;
    if (r->system) add_message(&messages, "system", r->system, strlen(r->system));
    if (!st && terminal) fputs("A line is a message; Ctrl-D ends.\n", stderr);
    while (!st) {
        if (terminal) {
            fputs(colour ? "\033[1m> \033[0m" : "> ", stdout);
            fflush(stdout);
        }
        if (!cli_read_line(stdin, &line)) break;
        if (!line.len) continue;
        size_t before = messages.len;
        int32_t *ids = NULL;
        size_t n;
        rv_generated g = {0};
        add_message(&messages, "user", line.data, line.len);
        if (messages.failed) st = rvi_nomem(&err, "conversation");
        if (!st) st = chat_ids(r, &messages, &ids, &n, &err);
        if (!st && n >= (size_t)rv_session_context(r->session)) {
            fprintf(stderr,
                    "ruvllm: the conversation has %zu tokens and no longer fits the context of %d; "
                    "start again, or with a larger --ctx\n",
                    n, rv_session_context(r->session));
            rv_free(ids);
            if (!terminal) {
                rvi_buf_deinit(&line);
                rvi_buf_deinit(&messages);
                return CLI_FAILED;
            }
            messages.len = before;
            messages.data[before] = 0;
            continue;
        }
        if (!st) st = rv_session_generate(r->session, ids, n, &r->generate, &g, &err);
        if (!st) add_message(&messages, "assistant", g.text, g.text_len);
        fputc('\n', stdout);
        fflush(stdout);
        rv_generated_free(&g);
        rv_free(ids);
    }
    if (terminal) fputc('\n', stdout);
    rvi_buf_deinit(&line);
    rvi_buf_deinit(&messages);
    return st ? cli_fail(&err) : CLI_OK;
}

int cli_run(cli *c, int argc, char **argv)
{
    run r = {.c = c, .max_tokens = 256};
    const char *args[2];
    int n_args;
    bool done;
    int code = parse(&r, argc, argv, args, &n_args, &done);
    if (code || done) return code;
    if (!n_args) return cli_usage(c, "a model is needed");
    if (r.max_tokens < 0) return cli_usage(c, "-n: %d is not possible", r.max_tokens);
    if ((r.ids != NULL) + (r.messages != NULL) + (n_args > 1) > 1)
        return cli_usage(c, "give one of PROMPT, --messages and --ids");

    rv_error err = {0};
    rvi_buf text = {0};
    bool one = r.ids || r.messages || n_args > 1 || r.raw || r.json;
    const char *prompt = n_args > 1 && strcmp(args[1], "-") ? args[1] : NULL;
    rv_status st = cli_open(c, args[0], 0, &r.model, &err);
    if (!st && one && !prompt && !r.ids && !r.messages) st = cli_read_file("-", &text, &err);
    if (st) {
        code = cli_fail(&err);
    } else {
        rv_generate_options_init(&r.generate);
        r.generate.max_tokens = r.max_tokens;
        r.generate.stop = r.stop.items;
        r.generate.n_stop = r.stop.n;
        r.generate.ignore_eos = r.ignore_eos;
        fill_sampling(&r, r.greedy || (!one && !rvi_os_is_terminal(stdin)));
        code =
            one ? answer_once(&r, prompt ? prompt : text.data, prompt ? strlen(prompt) : text.len)
                : chat(&r);
    }
    rv_session_free(r.session);
    cli_free_adapters(&r.adapters);
    cli_close(&r.model);
    rvi_buf_deinit(&text);
    return code;
}
