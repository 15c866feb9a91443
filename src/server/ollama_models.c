/* /api/tags, /api/show, /api/ps, /api/version */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "server/adapters.h"
#include "server/ollama.h"
#include "server/quick.h"
#include "server/reply.h"

static void put_details(const rvi_serving *s, rvi_buf *out)
{
    char type[32] = "";
    double n = (double)s->info.n_params;
    for (size_t i = 0; s->info.type && s->info.type[i] && i + 1 < sizeof type; i++) {
        char c = s->info.type[i];
        type[i] = (char)(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
    }
    const char *family = s->info.architecture ? s->info.architecture : "";
    rvi_buf_puts(out, ",\"details\":{\"parent_model\":\"\",\"format\":\"gguf\"");
    rvi_put_member(out, "family", family);
    rvi_buf_puts(out, ",\"families\":[");
    rvi_put_text(out, family);
    rvi_buf_putc(out, ']');
    if (n < 1e9)
        rvi_buf_printf(out, ",\"parameter_size\":\"%.2fM\"", n / 1e6);
    else
        rvi_buf_printf(out, ",\"parameter_size\":\"%.1fB\"", n / 1e9);
    rvi_put_member(out, "quantization_level", type);
    rvi_buf_putc(out, '}');
}

/* An entry of a list of models; the caller closes it. Of one that was never loaded little is known.
 */
static void open_model(const rvi_serving *s, rvi_buf *out)
{
    uint64_t bytes = s->info.architecture ? s->info.file_bytes : s->file_bytes;
    rvi_buf_puts(out, "{\"name\":");
    rvi_put_text(out, s->name);
    rvi_put_member(out, "model", s->name);
    rvi_buf_printf(out, ",\"size\":%llu", (unsigned long long)bytes);
    rvi_put_member(out, "digest", s->digest);
    put_details(s, out);
}

void rvi_ollama_tags(rvi_serving *s, rvi_conn *c)
{
    rvi_buf out = {0};
    rvi_buf_puts(&out, "{\"models\":[");
    for (int i = 0; i < s->server->o->n_models; i++) {
        if (i) rvi_buf_putc(&out, ',');
        open_model(&s->server->models[i], &out);
        rvi_buf_puts(&out, ",\"modified_at\":");
        rvi_put_time(&out, (double)s->server->created);
        rvi_buf_putc(&out, '}');
    }
    rvi_buf_puts(&out, "]}");
    rvi_reply_json(&rvi_ollama, c, &out);
}

/* Those that are loaded. Where they stay until the server ends, clients want a time all the same,
 * and get one in a century. */
void rvi_ollama_ps(rvi_serving *s, rvi_conn *c)
{
    const double century = 100 * 365.25 * 86400;
    double idle = s->server->o->limits.idle;
    double until = idle > 0 ? (double)time(NULL) + idle : (double)s->server->created + century;
    rvi_buf out = {0};
    bool any = false;
    rvi_buf_puts(&out, "{\"models\":[");
    for (int i = 0; i < s->server->o->n_models; i++) {
        const rvi_serving *one = &s->server->models[i];
        if (rvi_serving_state(one) != RV_MODEL_LOADED) continue;
        if (any) rvi_buf_putc(&out, ',');
        any = true;
        open_model(one, &out);
        rvi_buf_puts(&out, ",\"expires_at\":");
        rvi_put_time(&out, until);
        rvi_buf_printf(&out, ",\"size_vram\":0,\"context_length\":%d}", one->n_context);
    }
    rvi_buf_puts(&out, "]}");
    rvi_reply_json(&rvi_ollama, c, &out);
}

void rvi_ollama_version(rvi_serving *s, rvi_conn *c)
{
    rvi_buf out = {0};
    (void)s;
    rvi_buf_puts(&out, "{\"version\":");
    rvi_put_text(&out, rv_version());
    rvi_buf_putc(&out, '}');
    rvi_reply_json(&rvi_ollama, c, &out);
}

void rvi_ollama_not_here(rvi_serving *s, rvi_conn *c)
{
    rvi_problem p;
    (void)s;
    (void)rvi_problem_set(&p, 501, "not_supported", NULL,
                          "%.100s: this server has the models it was started with; use 'ruvllm "
                          "pull' and start it again",
                          c->in.path);
    rvi_dialect_refuse(&rvi_ollama, c, &p);
}

/* ---- show ---- */

/* By the names that GGUF files have. */
static void put_info(const rvi_serving *s, rvi_buf *out)
{
    const rv_model_info *m = &s->info;
    const struct {
        const char *name;
        int value;
    } figures[] = {{"context_length", m->n_context},
                   {"embedding_length", m->n_embd},
                   {"block_count", m->n_layers},
                   {"feed_forward_length", m->n_ff},
                   {"attention.head_count", m->n_heads},
                   {"attention.head_count_kv", m->n_kv_heads},
                   {"vocab_size", m->n_vocab}};
    rvi_buf_puts(out, ",\"model_info\":{\"general.architecture\":");
    rvi_put_text(out, m->architecture);
    rvi_buf_printf(out, ",\"general.parameter_count\":%llu", (unsigned long long)m->n_params);
    for (size_t i = 0; i < RVI_COUNT(figures); i++)
        rvi_buf_printf(out, ",\"%s.%s\":%d", m->architecture, figures[i].name, figures[i].value);
    rvi_buf_putc(out, '}');
}

static bool show(const rvi_quick *q, rvi_buf *out, rvi_problem *p)
{
    const rvi_json *model = rvi_json_get(q->body, "model"), *described;
    char *json = NULL;
    rv_error err = {0};
    if (!model) model = rvi_json_get(q->body, "name");
    if (!rvi_serving_is(q->s, rvi_json_string(model, "")))
        return rvi_problem_set(p, 404, "model_not_found", "model", "model '%.200s' not found",
                               rvi_json_string(model, ""));
    rv_status st = rv_model_describe(q->s->model, 0, &json, &err);
    if (!st) st = rvi_json_parse(&described, json, strlen(json), q->arena, "model", &err);
    if (st) {
        rv_free(json);
        return rvi_problem_from(p, st, &err);
    }
    rvi_buf_puts(out, "{\"modelfile\":\"\",\"parameters\":\"\"");
    rvi_put_member(out, "template", rvi_json_string(rvi_json_get(described, "template_text"), ""));
    put_details(q->s, out);
    put_info(q->s, out);
    rvi_buf_printf(out, ",\"capabilities\":[\"%s\"],\"modified_at\":",
                   q->s->info.is_encoder ? "embedding" : "completion");
    rvi_put_time(out, (double)q->s->server->created);
    rvi_buf_putc(out, '}');
    rv_free(json);
    return true;
}

void rvi_ollama_show(rvi_serving *s, rvi_conn *c)
{
    rvi_quick_answer(s, c, &rvi_ollama, show);
}
