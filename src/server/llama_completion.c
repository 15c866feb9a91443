/* llama-server's /completion: any number of prompts, each with settings and timings beside it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "server/infill.h"
#include "server/llama_paths.h"
#include "server/openai.h"
#include "server/probs.h"
#include "server/prompts.h"
#include "server/timings.h"

typedef struct completion {
    rvi_prompt *prompts;
    int n;
    bool listed; /* the prompt was a list of prompts: so is the answer */
} completion;

/* ---- biases ---- */

typedef struct biases {
    rvi_call *k;
    rv_logit_bias *list;
    size_t n, cap;
} biases;

static bool add_bias(biases *b, int32_t id, float bias)
{
    if (b->n == b->cap) {
        size_t cap = b->cap ? 2 * b->cap : 64;
        rv_logit_bias *more = rvi_arena_alloc(&b->k->arena, cap, sizeof *more);
        if (!more) return rvi_problem_set(&b->k->problem, 503, NULL, NULL, "out of memory");
        if (b->n) memcpy(more, b->list, b->n * sizeof *more);
        b->list = more;
        b->cap = cap;
    }
    b->list[b->n++] = (rv_logit_bias){id, bias};
    return true;
}

static bool add_id(biases *b, int64_t id, float bias)
{
    if (id < 0 || id >= b->k->s->info.n_vocab)
        return rvi_problem_set(&b->k->problem, 400, "invalid_value", "logit_bias",
                               "logit_bias: token ids are from 0 to %d", b->k->s->info.n_vocab - 1);
    return add_bias(b, (int32_t)id, bias);
}

/* A number is a token; of any other text all its tokens. */
static bool add_text(biases *b, const char *text, float bias)
{
    char *end;
    int64_t id = strtoll(text, &end, 10);
    int32_t *ids = NULL;
    size_t n = 0;
    rv_error err = {0};
    if (*text && !*end) return add_id(b, id, bias);
    rv_status st =
        rv_tokenize(b->k->s->model, text, strlen(text), RV_TOKENIZE_SPECIAL, &ids, &n, &err);
    bool ok = !st || rvi_problem_from(&b->k->problem, st, &err);
    for (size_t i = 0; ok && i < n; i++) ok = add_bias(b, ids[i], bias);
    rv_free(ids);
    return ok;
}

/* false means never. */
static bool bias_of(const rvi_json *v, float *out)
{
    bool number = rvi_json_is(v, RVI_JSON_INT) || rvi_json_is(v, RVI_JSON_NUMBER);
    *out = number ? (float)rvi_json_number(v, 0) : -INFINITY;
    return number || (rvi_json_is(v, RVI_JSON_BOOL) && !rvi_json_bool(v, true));
}

/* {"token or text": bias} or [[token or text, bias], ...] */
static bool read_biases(rvi_call *k)
{
    const rvi_json *v = rvi_json_get(k->body, "logit_bias");
    biases b = {.k = k};
    bool object = rvi_json_is(v, RVI_JSON_OBJECT), ok = true;
    if (!v || rvi_json_is(v, RVI_JSON_NULL)) return true;
    for (size_t i = 0; ok && i < rvi_json_count(v); i++) {
        const rvi_json *item = rvi_json_at(v, i), *what = rvi_json_at(item, 0);
        float bias;
        bool pair = object || (rvi_json_is(item, RVI_JSON_ARRAY) && rvi_json_count(item) == 2);
        if (!pair || !bias_of(object ? item : rvi_json_at(item, 1), &bias))
            return rvi_problem_set(&k->problem, 400, "invalid_type", "logit_bias",
                                   "logit_bias has pairs of a token, or a text, and a number or "
                                   "false");
        if (object)
            ok = add_text(&b, item->key, bias);
        else if (rvi_json_is(what, RVI_JSON_STRING))
            ok = add_text(&b, rvi_json_string(what, ""), bias);
        else
            ok = add_id(&b, rvi_json_int(what, -1), bias);
    }
    k->wish.sampling.logit_bias = b.list;
    k->wish.sampling.n_logit_bias = b.n;
    return ok;
}

/* ---- the answer ---- */

static void put_settings(const rvi_call *k, rvi_buf *out)
{
    const rv_sampling *s = &k->wish.sampling;
    const rv_model_info *m = rv_model_get_info(k->s->model); /* with the ids of its end */
    bool comma = false;
    int most = k->wish.generate.max_tokens;
    rvi_buf_printf(out, "{\"n_predict\":%d,\"seed\":%llu", most == RV_TO_CONTEXT_END ? -1 : most,
                   (unsigned long long)s->seed);
    if (s->greedy || s->temperature > 0) /* otherwise the usual one; so below */
        rvi_put_number(out, "temperature", s->greedy ? 0 : (double)s->temperature);
    if (s->top_p > 0) rvi_put_number(out, "top_p", (double)s->top_p);
    if (s->min_p > 0) rvi_put_number(out, "min_p", (double)s->min_p);
    if (s->top_k > 0) rvi_buf_printf(out, ",\"top_k\":%d", s->top_k);
    rvi_buf_printf(out, ",\"n_probs\":%d,\"stream\":%s", k->wish.top_logprobs,
                   k->wish.stream ? "true" : "false");
    rvi_buf_printf(out, ",\"ignore_eos\":%s,\"logit_bias\":[",
                   k->wish.generate.ignore_eos ? "true" : "false");
    for (size_t i = 0; i < s->n_logit_bias; i++) {
        rvi_buf_printf(out, "%s{\"token\":%d,\"bias\":", comma ? "," : "", s->logit_bias[i].id);
        if (isinf(s->logit_bias[i].bias))
            rvi_buf_puts(out, "null");
        else
            rvi_json_write_number(out, (double)s->logit_bias[i].bias);
        rvi_buf_putc(out, '}');
        comma = true;
    }
    for (size_t i = 0; k->wish.generate.ignore_eos && i < m->n_eos; i++) {
        rvi_buf_printf(out, "%s{\"token\":%d,\"bias\":null}", comma ? "," : "", m->eos[i]);
        comma = true;
    }
    rvi_buf_puts(out, "]}");
}

static void put_prompt(const rvi_call *k, int i, rvi_buf *out)
{
    const completion *o = k->own;
    char *text = NULL;
    rv_error err;
    if (rv_detokenize(k->s->model, o->prompts[i].ids, o->prompts[i].n, 0, &text, NULL, &err))
        out->failed = true;
    else
        rvi_put_text(out, text);
    rv_free(text);
}

static void put_ids(const rvi_choice *c, rvi_buf *out)
{
    rvi_buf_putc(out, '[');
    for (size_t i = 0; i < c->n_ids; i++) rvi_buf_printf(out, "%s%d", i ? "," : "", c->ids[i]);
    rvi_buf_putc(out, ']');
}

static void put_probs(const rvi_call *k, rvi_choice *c, rvi_buf *out)
{
    if (!k->wish.top_logprobs) return;
    rvi_buf_puts(out, ",\"completion_probabilities\":");
    rvi_probs_take(c, out);
}

/* The members of an answer that has ended, content apart. */
static void put_end(rvi_call *k, int i, rvi_buf *out)
{
    const rvi_choice *c = &k->choices[i];
    const rvi_part *p = &k->parts[i];
    bool length = c->finish == RV_FINISH_LENGTH, by_string = c->finish == RV_FINISH_STOP;
    const char *line = c->text.len ? memchr(c->text.data, '\n', c->text.len) : NULL;
    rvi_buf_printf(out, ",\"id_slot\":0,\"stop\":true,\"tokens_predicted\":%d", c->n_generated);
    rvi_put_member(out, "model", k->s->name);
    rvi_buf_printf(out, ",\"tokens_evaluated\":%d,\"tokens_cached\":%d", p->n_prompt,
                   p->n_prompt + c->n_generated);
    rvi_buf_printf(out, ",\"has_new_line\":%s,\"truncated\":%s", line ? "true" : "false",
                   length && p->n_prompt + c->n_generated >= k->s->n_context ? "true" : "false");
    rvi_put_member(out, "stop_type", length ? "limit" : by_string ? "word" : "eos");
    rvi_put_member(out, "stopping_word", by_string ? k->wish.stops[c->stop] : "");
    rvi_buf_puts(out, ",\"generation_settings\":");
    put_settings(k, out);
    rvi_buf_puts(out, ",\"prompt\":");
    put_prompt(k, i, out);
    rvi_timings_put(k, i, out);
    rvi_call_put_end(k, out);
}

/* Only the members that were asked for: "name" or "name/member". */
static void put_fields(const rvi_call *k, const rvi_buf *whole, rvi_buf *out)
{
    const rvi_json *fields = rvi_json_get(k->body, "response_fields"), *all = NULL;
    enum { MOST_ARENA = 256 << 20 };
    rvi_arena arena = {.max = MOST_ARENA};
    rv_error err;
    bool comma = false;
    if (!rvi_json_count(fields)) {
        rvi_buf_append(out, whole->data, whole->len);
        return;
    }
    if (rvi_json_parse(&all, whole->data, whole->len, &arena, "answer", &err)) out->failed = true;
    rvi_buf_putc(out, '{');
    for (size_t i = 0; i < rvi_json_count(fields); i++) {
        const char *path = rvi_json_string(rvi_json_at(fields, i), "");
        char name[64];
        size_t n = strcspn(path, "/");
        snprintf(name, sizeof name, "%.*s", (int)RVI_MIN(n, sizeof name - 1), path);
        const rvi_json *v = rvi_json_get(all, name);
        if (path[n]) v = rvi_json_get(v, path + n + 1);
        if (!v) continue;
        if (comma) rvi_buf_putc(out, ',');
        rvi_put_text(out, path);
        rvi_buf_putc(out, ':');
        rvi_json_write(out, v);
        comma = true;
    }
    rvi_buf_putc(out, '}');
    rvi_arena_deinit(&arena);
}

static void begin(rvi_call *k)
{
    if (k->wish.stream) rvi_conn_stream(k->conn, "text/event-stream; charset=utf-8", true);
}

static void on_token(rvi_call *k, int choice, const rv_service_event *e)
{
    rvi_buf json = {0};
    const rvi_part *p = &k->parts[choice];
    rvi_probs_add(k, choice, e);
    if (!k->wish.stream) return;
    rvi_buf_printf(&json, "{\"index\":%d,\"content\":", choice);
    rvi_json_write_string(&json, e->text, e->text_len);
    if (e->id >= 0)
        rvi_buf_printf(&json, ",\"tokens\":[%d]", e->id);
    else
        rvi_buf_puts(&json, ",\"tokens\":[]");
    rvi_buf_printf(&json, ",\"stop\":false,\"id_slot\":0,\"tokens_predicted\":%zu",
                   k->choices[choice].n_ids);
    rvi_buf_printf(&json, ",\"tokens_evaluated\":%d", p->n_prompt);
    put_probs(k, &k->choices[choice], &json);
    if (rvi_timings_wanted(k)) rvi_timings_put(k, choice, &json);
    rvi_buf_putc(&json, '}');
    rvi_reply_event(k->conn, NULL, &json);
}

static void on_progress(rvi_call *k, int part, int done)
{
    rvi_buf json = {0};
    if (!rvi_progress_wanted(k)) return;
    rvi_buf_printf(&json, "{\"index\":%d,\"content\":\"\",\"tokens\":[],\"stop\":false", part);
    rvi_timings_put_progress(k, part, done, &json);
    rvi_buf_putc(&json, '}');
    rvi_reply_event(k->conn, NULL, &json);
}

static void on_done(rvi_call *k, int choice)
{
    rvi_buf json = {0};
    if (!k->wish.stream) return;
    rvi_buf_printf(&json, "{\"index\":%d,\"content\":\"\",\"tokens\":[]", choice);
    put_end(k, choice, &json);
    rvi_buf_putc(&json, '}');
    rvi_reply_event(k->conn, NULL, &json);
}

static void end(rvi_call *k)
{
    const completion *o = k->own;
    bool ids = rvi_json_bool(rvi_json_get(k->body, "return_tokens"), false);
    rvi_buf out = {0};
    if (k->wish.stream) {
        rvi_conn_end(k->conn);
        return;
    }
    if (o->listed) rvi_buf_putc(&out, '[');
    for (int i = 0; i < k->n_choices; i++) {
        rvi_buf one = {0};
        rvi_buf_printf(&one, "{\"index\":%d,\"content\":", i);
        rvi_put_buf(&one, &k->choices[i].text);
        rvi_buf_puts(&one, ",\"tokens\":");
        if (ids)
            put_ids(&k->choices[i], &one);
        else
            rvi_buf_puts(&one, "[]");
        put_end(k, i, &one);
        put_probs(k, &k->choices[i], &one);
        rvi_buf_putc(&one, '}');
        if (i) rvi_buf_putc(&out, ',');
        if (one.failed)
            out.failed = true;
        else
            put_fields(k, &one, &out);
        rvi_buf_deinit(&one);
    }
    if (o->listed) rvi_buf_putc(&out, ']');
    rvi_reply_json(&rvi_openai, k->conn, &out);
}

static const rvi_writer writer = {.dialect = &rvi_openai,
                                  .begin = begin,
                                  .token = on_token,
                                  .done = on_done,
                                  .end = end,
                                  .progress = on_progress};

/* ---- the request ---- */

static bool read_prompts(rvi_call *k, completion *o)
{
    const rvi_json *prompt = rvi_json_get(k->body, "prompt");
    o->listed = rvi_prompts_many(prompt);
    return rvi_prompts_read(k->s->model, prompt, "prompt", RV_TOKENIZE_BOS | RV_TOKENIZE_SPECIAL,
                            &k->arena, &o->prompts, &o->n, &k->problem);
}

static bool read_gap(rvi_call *k, completion *o)
{
    o->n = 1;
    o->prompts = rvi_arena_alloc(&k->arena, 1, sizeof *o->prompts);
    return o->prompts ? rvi_infill_read(k, o->prompts)
                      : rvi_problem_set(&k->problem, 503, NULL, NULL, "out of memory");
}

static bool submit(rvi_call *k, completion *o)
{
    if (!read_biases(k) || !rvi_call_parts(k, o->n, o->n)) return false;
    for (int i = 0; i < o->n; i++) {
        rv_request r = {
            .kind = RV_REQUEST_ANSWER, .ids = o->prompts[i].ids, .n_ids = o->prompts[i].n};
        if (!rvi_call_submit(k, i, &r)) return false;
    }
    return true;
}

static void complete(rvi_serving *s, rvi_conn *c, unsigned what,
                     bool (*read)(rvi_call *k, completion *o))
{
    rvi_call *k = rvi_call_new(s, c, &writer, what, "cmpl-");
    if (!k) return;
    completion *o = k->own = rvi_arena_alloc(&k->arena, 1, sizeof *o);
    if (!o)
        (void)rvi_problem_set(&k->problem, 503, NULL, NULL, "out of memory");
    else
        (void)(read(k, o) && submit(k, o));
    rvi_call_start(k);
}

void rvi_llama_completion(rvi_serving *s, rvi_conn *c)
{
    complete(s, c, RVI_FOR_NATIVE, read_prompts);
}

void rvi_llama_infill(rvi_serving *s, rvi_conn *c)
{
    complete(s, c, RVI_FOR_NATIVE | RVI_FOR_INFILL, read_gap);
}
