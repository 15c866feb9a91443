/* /metrics in the text format of Prometheus. */
#include <string.h>

#include "server/native.h"
#include "server/openai.h"

static void put_value(rvi_buf *out, const char *type, const char *name, double v)
{
    rvi_buf_printf(out, "# TYPE ruvllm_%s %s\nruvllm_%s ", name, type, name);
    rvi_json_write_number(out, v);
    rvi_buf_putc(out, '\n');
}

static void put_count(rvi_buf *out, const char *name, uint64_t n)
{
    rvi_buf_printf(out, "# TYPE ruvllm_%s counter\nruvllm_%s %llu\n", name, name,
                   (unsigned long long)n);
}

static void put_histogram(rvi_buf *out, const char *name, const rv_histogram *h)
{
    static const double bounds[] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
                                    0.5,   1,      2.5,   5,    10,    25,   50,  100};
    uint64_t below = 0;
    int i = 0;
    rvi_buf_printf(out, "# TYPE ruvllm_%s histogram\n", name);
    for (size_t k = 0; k < RVI_COUNT(bounds); k++) {
        for (; i < RV_HISTOGRAM_BUCKETS - 1 && rv_histogram_bound(i) <= bounds[k]; i++)
            below += h->counts[i];
        rvi_buf_printf(out, "ruvllm_%s_bucket{le=\"", name);
        rvi_json_write_number(out, bounds[k]);
        rvi_buf_printf(out, "\"} %llu\n", (unsigned long long)below);
    }
    rvi_buf_printf(out, "ruvllm_%s_bucket{le=\"+Inf\"} %llu\nruvllm_%s_sum ", name,
                   (unsigned long long)h->n, name);
    rvi_json_write_number(out, h->sum);
    rvi_buf_printf(out, "\nruvllm_%s_count %llu\n", name, (unsigned long long)h->n);
}

static void put_service(rvi_buf *out, const rv_service_metrics *m)
{
    put_value(out, "gauge", "num_requests_running", (double)m->n_running);
    put_value(out, "gauge", "num_requests_waiting", (double)m->n_waiting);
    put_value(out, "gauge", "kv_cache_usage_perc",
              m->pages ? (double)m->pages_running / (double)m->pages : 0);
    put_value(out, "gauge", "kv_pages_hot", (double)m->pages_hot);
    put_value(out, "gauge", "kv_pages_warm", (double)m->pages_warm);
    put_value(out, "gauge", "kv_pages_cold", (double)m->pages_cold);
    put_count(out, "requests_submitted_total", m->n_submitted);
    put_count(out, "requests_refused_total", m->n_refused);
    put_count(out, "request_success_total", m->n_done);
    put_count(out, "requests_cancelled_total", m->n_cancelled);
    put_count(out, "requests_failed_total", m->n_failed);
    put_count(out, "steps_total", m->n_steps);
    put_count(out, "prompt_tokens_total", m->prompt_tokens);
    put_count(out, "generation_tokens_total", m->token_rows);
    put_count(out, "prefix_cache_queries", m->prompt_tokens);
    put_count(out, "prefix_cache_hits", m->reused_tokens);
    put_count(out, "num_preemptions", m->n_preempted);
    put_count(out, "kv_dropped_tokens_total", m->dropped_rows);
    put_value(out, "counter", "busy_seconds_total", m->busy_seconds);
    put_histogram(out, "request_queue_time_seconds", &m->queue);
    put_histogram(out, "inter_token_latency_seconds", &m->inter_token);
    put_histogram(out, "step_seconds", &m->step);
}

void rvi_native_metrics(rvi_serving *s, rvi_conn *c)
{
    rvi_buf out = {0};
    rvi_problem p;
    rv_error err = {0};
    rv_service_metrics *m = rvi_zalloc(sizeof *m);
    rv_status st = m ? RV_OK : RV_E_NOMEM;
    if (m) m->size = sizeof *m;
    if (!st) st = rv_service_get_metrics(s->service, m, &err);
    if (!st) {
        put_service(&out, m);
        put_histogram(&out, "time_to_first_token_seconds", &s->first_token);
        put_histogram(&out, "e2e_request_latency_seconds", &s->whole);
        put_value(&out, "gauge", "connections", s->conns.n);
        put_count(&out, "connections_total", s->conns.n_accepted);
        put_count(&out, "http_requests_total", s->conns.n_requests);
        put_count(&out, "feedback_total", s->n_feedback);
        if (s->conns.witness) {
            uint64_t records, dropped;
            rvi_witness_counts(s->conns.witness, &records, &dropped);
            put_count(&out, "witness_records_total", records);
            put_count(&out, "witness_dropped_total", dropped);
        }
        put_value(&out, "gauge", "learned_version",
                  (double)rvi_taught_version(&s->teaching.shared));
    }
    rvi_free(m);
    if (!st && !out.failed) {
        rvi_conn_reply(c, 200, "text/plain; version=0.0.4; charset=utf-8", out.data, out.len);
    } else {
        (void)rvi_problem_from(&p, st ? st : RV_E_NOMEM, &err);
        rvi_dialect_refuse(&rvi_openai, c, &p);
    }
    rvi_buf_deinit(&out);
}
