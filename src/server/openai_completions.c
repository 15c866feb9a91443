/* /v1/completions: the older interface, with prompts of text or token ids, echo and its own shape
 * of log probabilities. */
#include <math.h>
#include <string.h>

#include "base/utf8.h"
#include "server/openai.h"
#include "server/prompts.h"

static const char object[] = "text_completion";

/* Lists that grow together; the offsets count characters of the choice's whole text. */
typedef struct lists {
    rvi_buf tokens, probs, tops, offsets;
    int n;
    size_t at;
} lists;

typedef struct completion {
    rvi_prompt *prompts;
    int n_prompts;
    lists *lists; /* one for each choice */
} completion;

static void free_lists(lists *l)
{
    rvi_buf_deinit(&l->tokens);
    rvi_buf_deinit(&l->probs);
    rvi_buf_deinit(&l->tops);
    rvi_buf_deinit(&l->offsets);
    *l = (lists){.at = l->at};
}

/* ---- log probabilities ---- */

/* Part of a character has no text of its own; its bytes are named, as OpenAI does. */
static void put_name(rvi_buf *out, const rvi_buf *text)
{
    rvi_buf name = {0};
    bool valid = true;
    uint32_t cp;
    for (size_t i = 0; valid && i < text->len;)
        i += rvi_utf8_decode(text->data + i, text->len - i, &cp, &valid);
    if (!valid) rvi_buf_puts(&name, "bytes:");
    for (size_t i = 0; !valid && i < text->len; i++)
        rvi_buf_printf(&name, "\\x%02x", (unsigned char)text->data[i]);
    rvi_put_buf(out, valid ? text : &name);
    rvi_buf_deinit(&name);
}

/* Characters that begin in these bytes. */
static size_t beginnings(const rvi_buf *text)
{
    size_t n = 0;
    for (size_t i = 0; i < text->len; i++) n += ((unsigned char)text->data[i] & 0xC0) != 0x80;
    return n;
}

/* log_p NaN: none */
static void add_token(const rvi_serving *s, lists *l, int32_t id, double log_p)
{
    rvi_buf text = {0};
    const char *comma = l->n++ ? "," : "";
    bool special = rvi_call_token_text(s, id, &text);
    rvi_buf_puts(&l->tokens, comma);
    put_name(&l->tokens, &text);
    rvi_buf_puts(&l->probs, comma);
    rvi_json_write_number(&l->probs, log_p); /* null where it is none */
    rvi_buf_printf(&l->offsets, "%s%zu", comma, l->at);
    rvi_buf_puts(&l->tops, comma);
    if (!special) l->at += beginnings(&text);
    rvi_buf_deinit(&text);
}

static void add_top(const rvi_serving *s, lists *l, const rv_token_prob *top, size_t n)
{
    rvi_buf_putc(&l->tops, '{');
    for (size_t i = 0; i < n; i++) {
        rvi_buf text = {0};
        (void)rvi_call_token_text(s, top[i].id, &text);
        if (i) rvi_buf_putc(&l->tops, ',');
        put_name(&l->tops, &text);
        rvi_buf_putc(&l->tops, ':');
        rvi_json_write_number(&l->tops, (double)top[i].logprob);
        rvi_buf_deinit(&text);
    }
    rvi_buf_putc(&l->tops, '}');
}

/* The prompt's own: nothing before the first token predicts it. */
static void add_prompt(const rvi_call *k, lists *l, const rvi_prompt *p, const rvi_part *scores)
{
    for (size_t i = 0; i < p->n; i++) {
        bool known = i && scores && i - 1 < scores->n_values;
        add_token(k->s, l, p->ids[i], known ? (double)scores->values[i - 1] : NAN);
        if (known && scores->n_top)
            add_top(k->s, l, scores->top + (i - 1) * scores->n_top, scores->n_top);
        else
            rvi_buf_puts(&l->tops, "null");
    }
}

static void put_lists(const rvi_call *k, const lists *before, lists *l, rvi_buf *out)
{
    const lists *both[] = {before, l};
    const rvi_buf *columns[4][2];
    static const char *const names[] = {"tokens", "token_logprobs", "top_logprobs", "text_offset"};
    for (int i = 0; i < 2; i++) {
        columns[0][i] = &both[i]->tokens;
        columns[1][i] = &both[i]->probs;
        columns[2][i] = &both[i]->tops;
        columns[3][i] = &both[i]->offsets;
    }
    rvi_buf_puts(out, ",\"logprobs\":");
    if (!k->wish.has_logprobs) {
        rvi_buf_puts(out, "null");
        return;
    }
    for (int c = 0; c < 4; c++) {
        rvi_buf_printf(out, "%s\"%s\":[", c ? "," : "{", names[c]);
        rvi_buf_append(out, columns[c][0]->data, columns[c][0]->len);
        if (before->n && l->n) rvi_buf_putc(out, ',');
        rvi_buf_append(out, columns[c][1]->data, columns[c][1]->len);
        rvi_buf_putc(out, ']');
    }
    rvi_buf_putc(out, '}');
}

/* ---- choices ---- */

static const rvi_prompt *prompt_of(const rvi_call *k, int choice)
{
    const completion *o = k->own;
    return &o->prompts[choice / k->wish.n];
}

static void put_prompt_text(const rvi_call *k, int choice, rvi_buf *out)
{
    const rvi_prompt *p = prompt_of(k, choice);
    char *text = NULL;
    size_t len = 0;
    rv_error err;
    if (p->text)
        rvi_buf_append(out, p->text, p->text_len);
    else if (!rv_detokenize(k->s->model, p->ids, p->n, 0, &text, &len, &err))
        rvi_buf_append(out, text, len);
    rv_free(text);
}

static void put_choice(rvi_call *k, int choice, const rvi_buf *text, const lists *before,
                       const char *finish, rvi_buf *out)
{
    completion *o = k->own;
    rvi_buf_printf(out, "{\"index\":%d,\"text\":", choice);
    rvi_put_buf(out, text);
    put_lists(k, before, &o->lists[choice], out);
    if (finish)
        rvi_buf_printf(out, ",\"finish_reason\":\"%s\"}", finish);
    else
        rvi_buf_puts(out, ",\"finish_reason\":null}");
}

static void send_chunk(rvi_call *k, int choice, const rvi_buf *text, const char *finish)
{
    completion *o = k->own;
    lists none = {0};
    rvi_buf json = {0};
    rvi_openai_open(k, object, &json);
    rvi_buf_puts(&json, ",\"choices\":[");
    put_choice(k, choice, text, &none, finish, &json);
    rvi_buf_puts(&json, k->wish.include_usage ? "],\"usage\":null}" : "]}");
    rvi_reply_event(k->conn, NULL, &json);
    free_lists(&o->lists[choice]);
}

static void begin(rvi_call *k)
{
    if (!k->wish.stream) return;
    rvi_conn_stream(k->conn, "text/event-stream; charset=utf-8", true);
    for (int i = 0; k->wish.echo && i < k->n_choices; i++) {
        rvi_buf text = {0};
        put_prompt_text(k, i, &text);
        send_chunk(k, i, &text, NULL);
        rvi_buf_deinit(&text);
    }
}

static void on_token(rvi_call *k, int choice, const rv_service_event *e)
{
    completion *o = k->own;
    lists *l = &o->lists[choice];
    if (k->wish.has_logprobs && e->chosen && e->id >= 0) {
        add_token(k->s, l, e->id, (double)e->chosen->logprob);
        add_top(k->s, l, e->top, e->n_top);
    }
    if (!k->wish.stream || !e->text_len) return;
    rvi_buf text = {0};
    rvi_buf_append(&text, e->text, e->text_len);
    send_chunk(k, choice, &text, NULL);
    rvi_buf_deinit(&text);
}

static void on_done(rvi_call *k, int choice)
{
    rvi_buf none = {0};
    if (k->wish.stream) send_chunk(k, choice, &none, rvi_openai_finish(k->choices[choice].finish));
}

static void put_whole(rvi_call *k, int i, rvi_buf *out)
{
    completion *o = k->own;
    rvi_choice *c = &k->choices[i];
    lists before = {0};
    rvi_buf text = {0};
    int part = o->n_prompts + i / k->wish.n;
    if (k->wish.echo) put_prompt_text(k, i, &text);
    if (k->wish.echo && k->wish.has_logprobs)
        add_prompt(k, &before, prompt_of(k, i), part < k->n_parts ? &k->parts[part] : NULL);
    rvi_buf_append(&text, c->text.data, c->text.len);
    if (i) rvi_buf_putc(out, ',');
    put_choice(k, i, &text, &before, rvi_openai_finish(c->finish), out);
    if (text.failed || c->text.failed) out->failed = true;
    rvi_buf_deinit(&text);
    free_lists(&before);
}

static void end(rvi_call *k)
{
    rvi_buf out = {0};
    if (k->wish.stream) {
        rvi_openai_end_stream(k, object);
        return;
    }
    rvi_openai_open(k, object, &out);
    rvi_buf_puts(&out, ",\"choices\":[");
    for (int i = 0; i < k->n_choices; i++) put_whole(k, i, &out);
    rvi_buf_puts(&out, "],\"usage\":");
    rvi_openai_usage(k, &out);
    rvi_buf_putc(&out, '}');
    rvi_reply_json(&rvi_openai, k->conn, &out);
}

static void drop(rvi_call *k)
{
    completion *o = k->own;
    for (int i = 0; o && o->lists && i < k->n_choices; i++) free_lists(&o->lists[i]);
}

static const rvi_writer writer = {&rvi_openai, begin, on_token, on_done, end, drop, NULL, NULL};

/* ---- the request ---- */

/* Offsets of generated tokens begin behind the prompt that is echoed. */
static bool make_lists(rvi_call *k, completion *o)
{
    o->lists = rvi_arena_alloc(&k->arena, (size_t)k->n_choices, sizeof *o->lists);
    if (!o->lists) return rvi_problem_set(&k->problem, 503, NULL, NULL, "out of memory");
    for (int i = 0; k->wish.echo && i < k->n_choices; i++) {
        lists before = {0};
        add_prompt(k, &before, prompt_of(k, i), NULL);
        o->lists[i].at = before.at;
        free_lists(&before);
    }
    return true;
}

/* With echo and log probabilities a prompt of two tokens or more is scored too. */
static bool submit(rvi_call *k, completion *o)
{
    bool score = k->wish.echo && k->wish.has_logprobs;
    if (score && k->wish.stream)
        return rvi_problem_set(&k->problem, 400, "unsupported_parameter", "stream",
                               "echo with logprobs cannot be streamed");
    if (!rvi_call_parts(k, o->n_prompts * (score ? 2 : 1), o->n_prompts) || !make_lists(k, o))
        return false;
    for (int i = 0; i < k->n_parts; i++) {
        const rvi_prompt *p = &o->prompts[i % o->n_prompts];
        bool answers = i < o->n_prompts;
        rv_request r = {
            .kind = answers ? RV_REQUEST_ANSWER : RV_REQUEST_SCORE, .ids = p->ids, .n_ids = p->n};
        if (!answers) r.n_top = k->wish.top_logprobs;
        if ((answers || p->n > 1) && !rvi_call_submit(k, i, &r)) return false;
    }
    return true;
}

void rvi_openai_completions(rvi_serving *s, rvi_conn *c)
{
    rvi_call *k = rvi_call_new(s, c, &writer, RVI_FOR_COMPLETION, "cmpl-");
    if (!k) return;
    completion *o = k->own = rvi_arena_alloc(&k->arena, 1, sizeof *o);
    if (!o)
        (void)rvi_problem_set(&k->problem, 503, NULL, NULL, "out of memory");
    else if (rvi_prompts_read(s->model, rvi_json_get(k->body, "prompt"), "prompt",
                              RV_TOKENIZE_BOS | RV_TOKENIZE_SPECIAL, &k->arena, &o->prompts,
                              &o->n_prompts, &k->problem))
        (void)submit(k, o);
    rvi_call_start(k);
}
