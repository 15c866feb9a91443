/* run: one answer; without a prompt, a chat */
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "base/os.h"
#include "cli/calls.h"
#include "cli/chat.h"
#include "cli/conversation.h"
#include "cli/explain.h"
#include "cli/form.h"
#include "cli/learning.h"
#include "cli/settings.h"

typedef struct run {
    cli *c;
    cli_model model;
    rv_session *session;
    cli_learning learning;
    cli_conversation turns; /* the conversation, where there is one */
    rvi_buf talk;           /* the same as JSON */
    cli_generation g;
    cli_form form;
    cli_calls calls;
    rv_grammar *grammar; /* of the form; NULL: any text */
    bool raw, json;
    rvi_buf backend; /* of --explain-backend with --json */
    const char *messages, *ids;
    int32_t *given; /* of --ids */
    size_t n_given;
    cli_settings preset;
} run;

static int parse(run *r, int argc, char **argv, const char **args, int *n_args, bool *done)
{
    const cli_option own[] = {
        {"raw", 0, CLI_FLAG, &r->raw, NULL},
        {"messages", 0, CLI_TEXT, &r->messages, NULL},
        {"ids", 0, CLI_TEXT, &r->ids, NULL},
        {"json", 0, CLI_FLAG, &r->json, NULL},
        {"logprobs", 0, CLI_INT, &r->g.logprobs, NULL},
        {"template", 0, CLI_TEXT, &r->c->template_file, NULL},
    };
    enum { BEFORE = CLI_GENERATION_OPTIONS + CLI_FORM_OPTIONS + CLI_CALLS_OPTIONS };
    cli_option rows[BEFORE + RVI_COUNT(own)];
    cli_generation_init(&r->g);
    cli_generation_rows(&r->g, rows);
    cli_form_rows(&r->form, rows + CLI_GENERATION_OPTIONS);
    cli_calls_rows(&r->calls, rows + CLI_GENERATION_OPTIONS + CLI_FORM_OPTIONS);
    memcpy(rows + BEFORE, own, sizeof own);
    int code = cli_preset_read(&r->preset, r->c, rows, RVI_COUNT(rows), argc, argv);
    if (code) return code;
    int of_preset = r->preset.model != NULL;
    args[0] = r->preset.model;
    code = cli_parse(r->c, rows, RVI_COUNT(rows), r->preset.argc, r->preset.argv, args + of_preset,
                     2 - of_preset, n_args, done);
    *n_args += of_preset;
    return code;
}

/* ---- prompts ---- */

/* The conversation of --messages with -s before it, or of the prompt alone. */
static rv_status begin_turns(run *r, const char *prompt, size_t len, rv_error *err)
{
    cli_conversation *turns = &r->turns;
    rv_status st = r->messages ? cli_conversation_load(turns, r->messages, err)
                               : cli_conversation_add(turns, "user", prompt, len, err);
    if (!st && !turns->n) st = rvi_error(err, RV_E_CONFIG, "%s: holds no messages", r->messages);
    if (!st && r->g.system) st = cli_conversation_set_system(turns, r->g.system, err);
    return st ? st : cli_calls_tell(&r->calls, turns, err);
}

static rv_status chat_ids(run *r, int32_t **ids, size_t *n, rv_error *err)
{
    rv_time now = cli_now();
    rv_status st =
        cli_conversation_ids(&r->turns, r->model.m, r->learning.l, r->g.special, &now, ids, n, err);
    r->talk.len = 0;
    return st ? st : cli_conversation_json(&r->turns, &r->talk, err);
}

/* Why what was taught takes no part; NULL: it does, in the answer of a conversation. */
static const char *alone(const run *r)
{
    const char *why = cli_generation_alone(&r->g);
    if (why) return why;
    return r->ids                   ? "--ids is no conversation"
           : r->raw && !r->messages ? "--raw is no conversation"
                                    : NULL;
}

static rv_status prompt_ids(run *r, const char *prompt, size_t len, int32_t **ids, size_t *n,
                            rv_error *err)
{
    *ids = NULL;
    *n = 0;
    if (r->raw && !r->messages)
        return rv_tokenize(r->model.m, prompt, len,
                           RV_TOKENIZE_BOS | (r->g.special ? RV_TOKENIZE_SPECIAL : 0), ids, n, err);
    rv_status st = begin_turns(r, prompt, len, err);
    return st ? st : chat_ids(r, ids, n, err);
}

/* ---- results ---- */

/* The text of a token that follows others. A tokenizer may leave out a space at the beginning of a
 * text, so the token is looked at behind itself. */
static rv_status write_token(const rv_model *m, int32_t id, rvi_buf *out, rv_error *err)
{
    const int32_t twice[2] = {id, id};
    char *one = NULL, *two = NULL;
    size_t one_len = 0, two_len = 0;
    rv_status st = rv_detokenize(m, twice, 1, 0, &one, &one_len, err);
    if (!st) st = rv_detokenize(m, twice, 2, 0, &two, &two_len, err);
    if (!st) {
        size_t skip = RVI_MIN(one_len, two_len);
        rvi_json_write_string(out, two + skip, two_len - skip);
    }
    rv_free(one);
    rv_free(two);
    return st;
}

static rv_status write_prob(const rv_model *m, const rv_token_prob *p, bool text, rvi_buf *out,
                            rv_error *err)
{
    rv_status st = RV_OK;
    rvi_buf_printf(out, "{\"id\":%d,\"token\":", p->id);
    if (text)
        st = write_token(m, p->id, out, err);
    else
        rvi_buf_puts(out, "null");
    rvi_buf_puts(out, ",\"logprob\":");
    cli_write_float(out, p->logprob);
    return st;
}

static rv_status write_logprobs(const rv_model *m, const rv_answer *g, rvi_buf *out, rv_error *err)
{
    rv_model_info info = *rv_model_get_info(m);
    rv_status st = RV_OK;
    rvi_buf_puts(out, ",\"logprobs\":[");
    for (size_t i = 0; !st && i < g->n_ids; i++) {
        if (i) rvi_buf_putc(out, ',');
        st = write_prob(m, &g->chosen[i], info.has_tokenizer, out, err);
        rvi_buf_puts(out, ",\"top\":[");
        for (size_t k = 0; !st && g->top && k < g->n_top; k++) {
            if (k) rvi_buf_putc(out, ',');
            st = write_prob(m, &g->top[i * g->n_top + k], info.has_tokenizer, out, err);
            rvi_buf_putc(out, '}');
        }
        rvi_buf_puts(out, "]}");
    }
    rvi_buf_putc(out, ']');
    return st;
}

static rv_status write_json(const run *r, const rv_answer *g, const rv_checked *checked,
                            const int32_t *ids, size_t n, rvi_buf *out, rv_error *err)
{
    rv_status st = RV_OK;
    char *message = NULL;
    if (r->calls.t && !checked)
        st = rv_tools_message(r->calls.t, g->text, g->text_len, &message, err);
    if (st) return st;
    rvi_buf_puts(out, "{\"text\":");
    rvi_json_write_string(out, g->text, g->text_len);
    if (message || checked)
        rvi_buf_printf(out, ",\"message\":%s", checked ? checked->message : message);
    rv_free(message);
    rvi_buf_puts(out, ",\"ids\":");
    cli_write_ids(out, g->ids, g->n_ids);
    rvi_buf_puts(out, ",\"prompt_ids\":");
    cli_write_ids(out, ids, n);
    if (g->chosen) st = write_logprobs(r->model.m, g, out, err);
    if (r->backend.len) rvi_buf_printf(out, ",\"backend\":%s", r->backend.data);
    rvi_buf_printf(out,
                   ",\"finish_reason\":\"%s\",\"timings\":{\"prompt_tokens\":%d,\"prompt_seconds\":"
                   "%.6f,\"prompt_tokens_per_second\":%.3f,"
                   "\"tokens\":%zu,\"seconds\":%.6f,\"tokens_per_second\":%.3f,\"guessed\":%d,"
                   "\"guessed_right\":%d},\"seed\":%llu}\n",
                   rv_finish_name(g->finish), g->n_prompt, g->prompt_seconds,
                   cli_rate((size_t)(g->n_prompt - g->n_reused), g->prompt_seconds), g->n_ids,
                   g->seconds, cli_rate(g->n_ids, g->seconds), g->n_guessed, g->n_right,
                   (unsigned long long)r->g.sampling.seed);
    return st;
}

/* Says that an answer was cut where nobody said that it should be. */
static void tell_cut(const run *r, const rv_answer *g)
{
    bool full = (size_t)g->n_prompt + g->n_ids >= (size_t)rv_session_context(r->session);
    if (g->finish != RV_FINISH_LENGTH || (r->g.max_given && !full)) return;
    fprintf(stderr, "ruvllm: cut at %zu tokens%s\n", g->n_ids,
            full ? ", where the context is full; --ctx N makes it larger" : "; -n N allows more");
}

/* The end of an answer whose text has been printed as it came. */
static int end_plain(const run *r, const rv_answer *g)
{
    rvi_buf out = {0};
    if (!rv_model_get_info(r->model.m)->has_tokenizer) /* ids are all there is */
        for (size_t i = 0; i < g->n_ids; i++) rvi_buf_printf(&out, i ? ",%d" : "%d", g->ids[i]);
    rvi_buf_puts(&out, "\n");
    int code = cli_print(&out);
    tell_cut(r, g);
    if (r->c->verbose)
        fprintf(stderr,
                "%d prompt tokens in %.2f s, %zu tokens in %.2f s (%.1f/s; %d guessed, %d right), "
                "ended by %s\n",
                g->n_prompt, g->prompt_seconds, g->n_ids, g->seconds,
                cli_rate(g->n_ids, g->seconds), g->n_guessed, g->n_right,
                rv_finish_name(g->finish));
    return code;
}

/* One answer to the ids, or with --retries to the conversation until it is right. *ids change with
 * it: they are what was answered last. */
static rv_status answer(run *r, int32_t **ids, size_t *n, rv_answer **g, rv_checked **checked,
                        rv_error *err)
{
    bool checks = r->calls.retries >= 0;
    rv_status st = RV_OK;
    for (int try = 0;; try++) {
        const int32_t *given = r->ids ? r->given : *ids;
        rv_learn_plan *plan = NULL;
        if (!st && r->learning.l)
            st = cli_conversation_begin(r->learning.l, r->session, &r->talk, &plan, err);
        r->g.options.max_tokens = cli_generation_most(&r->g, r->model.m, plan);
        rv_free(plan);
        if (!st) st = cli_answer(&r->g, r->session, given, *n, !r->json && !checks, g, err);
        if (!st && checks)
            st = rv_tools_check(r->calls.t, (*g)->text, (*g)->text_len, checked, err);
        if (st || !checks || !*(*checked)->problem || cli_interrupted()) return st;
        if (try == r->calls.retries)
            return rvi_error(err, RV_E_CONFIG, "no answer of %d was right: %s", try + 1,
                             (*checked)->problem);
        if (r->c->verbose) fprintf(stderr, "answer %d: %s\n", try + 1, (*checked)->problem);
        st = cli_conversation_append(&r->turns, (*checked)->turns, err);
        rv_free(*g);
        rv_free(*checked);
        rv_free(*ids);
        *g = NULL;
        *checked = NULL;
        *ids = NULL;
        if (!st) st = chat_ids(r, ids, n, err);
        if (st) return st;
    }
}

/* Before anything is computed. */
static rv_status explain(run *r, rv_error *err)
{
    const cli_explained e = {r->model.m, r->session, &r->g, &r->learning};
    rvi_buf text = {0};
    rv_status st = cli_explain(&e, r->json, r->json ? &r->backend : &text, err);
    if (!st && text.data) cli_put_text(stderr, text.data, text.len, rvi_os_is_terminal(stderr));
    rvi_buf_deinit(&text);
    return st;
}

static int answer_once(run *r, const char *prompt, size_t len)
{
    rv_error err = {0};
    int32_t *ids = NULL;
    size_t n = r->n_given;
    rv_answer *g = NULL;
    rv_checked *checked = NULL;
    rvi_buf out = {0};
    int code = CLI_OK;
    rv_status st = cli_learning_use(&r->learning, r->c, &r->model, r->g.learned, alone(r), &err);
    if (!st) st = cli_calls_open(&r->calls, &r->form, r->model.m, r->g.sampling.seed, &err);
    if (!st && !r->ids) st = prompt_ids(r, prompt, len, &ids, &n, &err);
    if (!st && !n)
        st = rvi_error(&err, RV_E_INVALID,
                       "the prompt is empty, and this model has no token to begin a text with");
    if (!st) st = cli_generation_session(r->c, &r->g, &r->model, &r->session, &err);
    if (!st && r->g.explain) st = explain(r, &err);
    if (!st && !r->calls.t) st = cli_form_grammar(&r->form, r->model.m, &r->grammar, &err);
    if (!st) {
        r->g.tools = r->calls.t;
        r->g.options.grammar = r->calls.t ? rv_tools_grammar(r->calls.t) : r->grammar;
        cli_interrupts_catch("\n", false);
        st = answer(r, &ids, &n, &g, &checked, &err);
        if (st && g && g->n_ids && !r->json && !checked) fputc('\n', stdout);
    }
    if (!st && r->json)
        st = write_json(r, g, checked, r->ids ? r->given : ids, n, &out, &err);
    else if (!st && checked)
        st = cli_calls_print(checked, &out, &err);
    if (!st) code = r->json || checked ? cli_print(&out) : end_plain(r, g);
    if (!code && cli_interrupted()) code = CLI_INTERRUPTED;
    rv_free(g);
    rv_free(checked);
    rvi_buf_deinit(&out);
    rv_free(ids);
    return st ? cli_fail(&err) : code;
}

/* The text to answer: the prompt given, and what standard input brings where it is no terminal:
 * `cat notes | ruvllm run MODEL "Summarise:"`. Like other tools that read a pipe this waits for its
 * end, however long the program before it takes, but says so when nothing comes: a pipe that a
 * script inherited may never end. */
static rv_status read_prompt(const run *r, const char *prompt, rvi_buf *text, rv_error *err)
{
    enum { PATIENCE = 3 /* seconds */ };
    rv_status st = RV_OK;
    rvi_buf input = {0};
    if (!prompt || (!rvi_os_is_terminal(stdin) && rvi_os_is_readable(stdin))) {
        if (prompt && !rvi_os_has_input(stdin, PATIENCE))
            fputs("ruvllm: waiting for standard input, which is appended to the prompt ('< "
                  "/dev/null' "
                  "gives none)\n",
                  stderr);
        st = cli_read_file("-", &input, err);
        while (prompt && input.len && strchr("\r\n", input.data[input.len - 1])) input.len--;
    }
    if (!st && prompt) rvi_buf_puts(text, prompt);
    if (!st && prompt && *prompt && input.len) rvi_buf_puts(text, "\n\n");
    if (!st && !(rvi_buf_append(text, input.data, input.len) && rvi_buf_puts(text, "")))
        st = rvi_nomem(err, "prompt");
    if (!st && !text->len && !r->raw)
        st = rvi_error(err, RV_E_CONFIG, "the prompt is empty: there is nothing to answer");
    rvi_buf_deinit(&input);
    return st;
}

static int run_with(run *r, int argc, char **argv)
{
    cli *c = r->c;
    const char *args[2];
    int n_args;
    bool done;
    int code = parse(r, argc, argv, args, &n_args, &done);
    if (code || done) return code;
    if (!n_args) return cli_usage(c, CLI_MODEL_NEEDED);
    if ((r->ids != NULL) + (r->messages != NULL) + (n_args > 1) > 1)
        return cli_usage(c, "give one of PROMPT, --messages and --ids");
    if (r->g.logprobs >= 0 && !r->json) return cli_usage(c, "--logprobs needs --json");
    if ((code = cli_form_check(c, &r->form)) || (code = cli_calls_check(c, &r->calls, &r->form)))
        return code;
    if (r->calls.retries >= 0 && (r->raw || r->ids))
        return cli_usage(c, "--retries needs a conversation: neither --raw nor --ids");
    bool formed = cli_form_given(&r->form) || cli_calls_given(&r->calls);
    bool prompted = r->ids || r->messages || n_args > 1;
    if (r->g.explain && !prompted) return cli_explain_only(c, args[0], &r->g, alone(r), r->json);
    if (!prompted && !r->raw && !r->json && !formed) return cli_chat_with(c, args[0], &r->g);
    code = cli_generation_resolve(c, &r->g, false);
    if (!code && r->ids) code = cli_parse_ids(c, r->ids, &r->given, &r->n_given);
    if (code) return code;

    rv_error err = {0};
    rvi_buf text = {0};
    const char *prompt = n_args > 1 && strcmp(args[1], "-") ? args[1] : NULL;
    rv_status st = cli_open(c, args[0], false, &r->model, &err);
    if (!st && !r->ids && !r->messages) st = read_prompt(r, prompt, &text, &err);
    code = st ? cli_fail(&err) : answer_once(r, text.data, text.len);
    rv_session_free(&r->session);
    rv_grammar_free(&r->grammar);
    cli_calls_close(&r->calls);
    cli_generation_close(&r->g);
    cli_learning_close(&r->learning);
    cli_close(&r->model);
    cli_conversation_deinit(&r->turns);
    rvi_buf_deinit(&r->talk);
    rvi_buf_deinit(&r->backend);
    rvi_free(r->given);
    rvi_buf_deinit(&text);
    return code;
}

int cli_run(cli *c, int argc, char **argv)
{
    run r = {.c = c};
    int code = run_with(&r, argc, argv);
    cli_settings_free(&r.preset);
    return code;
}
