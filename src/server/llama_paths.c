#include "server/llama_paths.h"

#include "server/openai.h"
#include "server/vectors.h"

static void refuse_off(rvi_conn *c, const char *what)
{
    rvi_problem p;
    (void)rvi_problem_set(&p, 501, "not_supported", NULL,
                          "This server does not support %s: start it with '%s' among the words of "
                          "--llama-compatible",
                          what, what);
    p.type = "not_supported_error";
    rvi_dialect_refuse(&rvi_openai, c, &p);
}

/* What counts for requests that do not say. */
static void put_params(const rvi_serving *s, rvi_buf *out)
{
    const rvi_llama *l = &s->server->llama;
    rvi_buf_printf(out, "{\"seed\":%llu,\"temperature\":", (unsigned long long)l->seed);
    rvi_json_write_number(out, (double)l->temperature);
    rvi_buf_printf(out, ",\"n_predict\":%d}", l->n_predict ? l->n_predict : -1);
}

/* ---- props ---- */

void rvi_llama_props(rvi_serving *s, rvi_conn *c)
{
    rvi_buf out = {0};
    rvi_buf_printf(&out, "{\"total_slots\":%d", s->n_parallel);
    rvi_put_member(&out, "model_path", s->path);
    rvi_put_member(&out, "model_alias", s->name);
    rvi_put_member(&out, "build_info", s->fingerprint);
    rvi_buf_printf(&out,
                   ",\"default_generation_settings\":{\"n_ctx\":%d,\"params\":", s->n_context);
    put_params(s, &out);
    rvi_buf_puts(&out, "},\"modalities\":{\"vision\":false,\"audio\":false}}");
    rvi_reply_json(&rvi_openai, c, &out);
}

/* ---- slots ---- */

static rv_service_metrics *metrics_of(rvi_serving *s)
{
    rv_error err;
    rv_service_metrics *m = rvi_zalloc(sizeof *m);
    if (m) m->size = sizeof *m;
    if (m && rv_service_get_metrics(s->service, m, &err)) {
        rvi_free(m);
        m = NULL;
    }
    return m;
}

static void refuse_memory(rvi_conn *c)
{
    rvi_problem p;
    (void)rvi_problem_set(&p, 503, NULL, NULL, "out of memory");
    rvi_dialect_refuse(&rvi_openai, c, &p);
}

/* Requests have no slot of their own here: of the places, as many are taken as requests run. */
void rvi_llama_slots(rvi_serving *s, rvi_conn *c)
{
    rvi_buf out = {0};
    if (!s->server->llama.slots) {
        refuse_off(c, "slots");
        return;
    }
    rv_service_metrics *m = metrics_of(s);
    if (!m) {
        refuse_memory(c);
        return;
    }
    rvi_buf_putc(&out, '[');
    for (int i = 0; i < s->n_parallel; i++)
        rvi_buf_printf(
            &out, "%s{\"id\":%d,\"n_ctx\":%d,\"speculative\":false,\"is_processing\":%s}",
            i ? "," : "", i, s->n_context, (uint64_t)i < m->n_running ? "true" : "false");
    rvi_buf_putc(&out, ']');
    rvi_free(m);
    rvi_reply_json(&rvi_openai, c, &out);
}

/* ---- metrics ---- */

static void put_metric(rvi_buf *out, const char *type, const char *name, const char *help, double v)
{
    rvi_buf_printf(out, "# HELP llamacpp:%s %s\n# TYPE llamacpp:%s %s\nllamacpp:%s ", name, help,
                   name, type, name);
    rvi_json_write_number(out, v);
    rvi_buf_putc(out, '\n');
}

static double rate(double n, double seconds)
{
    return seconds > 0 ? n / seconds : 0;
}

static void put_metrics(const rvi_llama *l, const rv_service_metrics *m, rvi_buf *out)
{
    const struct {
        const char *name, *help;
        double v;
    } counters[] = {
        {"prompt_tokens_total", "Prompt tokens that were computed.", (double)l->n_prompt},
        {"prompt_tokens_cached_total", "Prompt tokens that were reused.", (double)l->n_cached},
        {"prompt_seconds_total", "Seconds for prompts.", l->prompt_seconds},
        {"tokens_predicted_total", "Tokens that were generated.", (double)l->n_predicted},
        {"tokens_predicted_seconds_total", "Seconds for them.", l->predicted_seconds},
        {"n_decode_total", "Steps.", (double)m->n_steps},
        {"n_tokens_max", "Most tokens of a request.", (double)l->most},
        {"spec_decode_num_draft_tokens_total", "Tokens that were guessed.", (double)m->n_guessed},
        {"spec_decode_num_accepted_tokens_total", "Guesses that came true.", (double)m->n_right},
        {"spec_decode_num_drafts_total", "Guesses, counted by token.", (double)m->n_guessed}};
    const struct {
        const char *name, *help;
        double v;
    } gauges[] = {{"prompt_tokens_seconds", "Prompt tokens a second.",
                   rate((double)l->n_prompt, l->prompt_seconds)},
                  {"predicted_tokens_seconds", "Generated tokens a second.",
                   rate((double)l->n_predicted, l->predicted_seconds)},
                  {"requests_processing", "Requests that run.", (double)m->n_running},
                  {"requests_deferred", "Requests that wait.", (double)m->n_waiting},
                  {"n_busy_slots_per_decode", "Generated tokens a step.",
                   m->n_steps ? (double)m->token_rows / (double)m->n_steps : 0}};
    for (size_t i = 0; i < RVI_COUNT(counters); i++)
        put_metric(out, "counter", counters[i].name, counters[i].help, counters[i].v);
    for (size_t i = 0; i < RVI_COUNT(gauges); i++)
        put_metric(out, "gauge", gauges[i].name, gauges[i].help, gauges[i].v);
}

void rvi_llama_metrics(rvi_serving *s, rvi_conn *c)
{
    rvi_buf out = {0};
    if (!s->server->llama.metrics) {
        refuse_off(c, "metrics");
        return;
    }
    rv_service_metrics *m = metrics_of(s);
    if (m) put_metrics(&s->server->llama, m, &out);
    if (!m || out.failed) {
        refuse_memory(c);
    } else {
        rvi_buf_printf(&c->headers, "Process-Start-Time-Unix: %ld\r\n", s->server->created);
        rvi_conn_reply(c, 200, "text/plain; version=0.0.4; charset=utf-8", out.data, out.len);
    }
    rvi_free(m);
    rvi_buf_deinit(&out);
}

/* ---- vectors ---- */

static void end_embeddings(rvi_call *k)
{
    rvi_buf out = {0};
    rvi_buf_putc(&out, '[');
    for (int i = 0; i < k->n_parts; i++) {
        rvi_buf_printf(&out, "%s{\"index\":%d,\"embedding\":[", i ? "," : "", i);
        rvi_put_floats(&out, k->parts[i].values, rvi_vectors_size(k, i));
        rvi_buf_puts(&out, "]}");
    }
    rvi_buf_putc(&out, ']');
    rvi_reply_json(&rvi_openai, k->conn, &out);
}

static const rvi_writer writer = {.dialect = &rvi_openai, .end = end_embeddings};

void rvi_llama_embeddings(rvi_serving *s, rvi_conn *c)
{
    rvi_call *k = rvi_call_new(s, c, &writer, RVI_FOR_EMBEDDING, "embd-");
    if (!k) return;
    (void)rvi_vectors_submit(k, rvi_json_get(k->body, "content") ? "content" : "input", false);
    rvi_call_start(k);
}
