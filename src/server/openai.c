#include "server/openai.h"

#include <string.h>

#include "server/adapters.h"
#include "server/anthropic.h"
#include "server/models.h"
#include "server/presets.h"
#include "server/timings.h"

static void write_problem(const rvi_problem *p, rvi_buf *out)
{
    rvi_buf_puts(out, "{\"error\":{\"message\":");
    rvi_put_text(out, p->message);
    rvi_put_member(out, "type", p->type);
    rvi_put_member(out, "param", *p->param ? p->param : NULL);
    rvi_put_member(out, "code", p->code);
    if (p->n_context)
        rvi_buf_printf(out, ",\"n_prompt_tokens\":%ld,\"n_ctx\":%ld", p->n_prompt, p->n_context);
    rvi_buf_puts(out, "}}");
}

const rvi_dialect rvi_openai = {write_problem, "data: ", "\n\n", NULL};

void rvi_openai_open(const rvi_call *k, const char *object, rvi_buf *out)
{
    rvi_buf_printf(out, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%ld,\"model\":", k->id,
                   object, k->created);
    rvi_put_text(out, k->model);
    rvi_call_put_state(k, out);
}

void rvi_openai_usage(const rvi_call *k, rvi_buf *out)
{
    rvi_usage u = rvi_call_usage(k);
    rvi_buf_printf(out,
                   "{\"prompt_tokens\":%ld,\"completion_tokens\":%ld,\"total_tokens\":%ld,"
                   "\"prompt_tokens_details\":{\"cached_tokens\":%ld}}",
                   u.prompt, u.generated, u.prompt + u.generated, u.cached);
}

const char *rvi_openai_finish(rv_finish f)
{
    return f == RV_FINISH_LENGTH ? "length" : "stop";
}

void rvi_openai_end_stream(rvi_call *k, const char *object)
{
    rvi_buf json = {0};
    if (k->wish.include_usage) {
        rvi_openai_open(k, object, &json);
        rvi_buf_puts(&json, ",\"choices\":[],\"usage\":");
        rvi_openai_usage(k, &json);
        if (k->s->server->llama.on) rvi_timings_put(k, 0, &json);
        rvi_buf_putc(&json, '}');
        rvi_reply_event(k->conn, NULL, &json);
    }
    rvi_conn_send(k->conn, "data: [DONE]\n\n", 14);
    rvi_conn_end(k->conn);
}

/* ---- models ---- */

/* ,"member":[...] of names that have commas between them */
static void put_names(rvi_buf *out, const char *member, const char *names)
{
    if (!names) return;
    rvi_buf_printf(out, ",\"%s\":[", member);
    for (const char *at = names; *at;) {
        size_t n = strcspn(at, ",");
        if (at != names) rvi_buf_putc(out, ',');
        rvi_json_write_string(out, at, n);
        at += n + (at[n] == ',');
    }
    rvi_buf_putc(out, ']');
}

/* In the words of llama-server where that has several models. */
static const char *status_of(const rvi_serving *s)
{
    rv_model_state state = rvi_serving_state(s);
    if (state == RV_MODEL_LOADED) return "loaded";
    return state == RV_MODEL_LOADING ? "loading" : "unloaded";
}

static void put_model(const rvi_serving *s, rvi_buf *out)
{
    rvi_put_model(out, s->name, s->server->created);
    rvi_buf_printf(out, ",\"status\":{\"value\":\"%s\"}", status_of(s));
    if (s->info.architecture)
        rvi_buf_printf(out, ",\"capabilities\":[\"%s\"]",
                       s->info.is_encoder ? "embedding" : "completion");
    if (s->info.architecture)
        rvi_buf_printf(out,
                       ",\"max_model_len\":%d,\"meta\":{\"n_vocab\":%d,\"n_ctx_train\":%d,"
                       "\"n_embd\":%d,\"n_params\":%llu,\"size\":%llu}",
                       s->n_context, s->info.n_vocab, s->info.n_context, s->info.n_embd,
                       (unsigned long long)s->info.n_params,
                       (unsigned long long)s->info.file_bytes);
    put_names(out, "aliases", s->aliases);
    if (s->server->llama.on) put_names(out, "tags", s->server->llama.tags);
    rvi_buf_putc(out, '}');
}

void rvi_openai_models(rvi_serving *s, rvi_conn *c)
{
    rvi_buf out = {0};
    rvi_buf_puts(&out, "{\"object\":\"list\",\"data\":[");
    for (int i = 0; i < s->server->o->n_models; i++) {
        if (i) rvi_buf_putc(&out, ',');
        put_model(&s->server->models[i], &out);
    }
    for (int i = 0; i < s->server->o->n_models; i++)
        rvi_adapters_put_models(&s->server->models[i], &out);
    rvi_presets_put_models(s->server, &out);
    rvi_buf_puts(&out, "],\"has_more\":false}"); /* which Anthropic's clients look for */
    rvi_reply_json(&rvi_openai, c, &out);
}

void rvi_openai_model(rvi_serving *s, rvi_conn *c)
{
    char name[512];
    rvi_problem p;
    rvi_buf out = {0};
    snprintf(name, sizeof name, "%s", strstr(c->in.path, "/models/") + strlen("/models/"));
    rvi_http_unescape(name, false); /* clients escape the slash of a name */
    const rvi_serving *found = rvi_serving_find(s->server, name);
    if (!found || !rvi_serving_is(found, name)) {
        (void)rvi_serving_unknown(s->server, name, &p);
        rvi_dialect_refuse(rvi_anthropic_asks(c) ? &rvi_anthropic : &rvi_openai, c, &p);
        return;
    }
    put_model(found, &out);
    rvi_reply_json(&rvi_openai, c, &out);
}
