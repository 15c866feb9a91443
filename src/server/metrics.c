/* /metrics in the text format of Prometheus. Where there are several models, the figures of each
 * that is loaded have its name as a label. */
#include <string.h>

#include "server/native.h"
#include "server/openai.h"

typedef struct figures {
    rvi_buf *out;
    int n;
    const rvi_serving **models; /* those that are loaded */
    rv_service_metrics *of;     /* n of them */
    bool labelled;
} figures;

/* ruvllm_NAME{model="...",le="..."}, without what is not there */
static void put_name(const figures *f, int i, const char *name, const char *end, const char *le)
{
    rvi_buf *out = f->out;
    rvi_buf_printf(out, "ruvllm_%s%s", name, end);
    if (!f->labelled && !le) return;
    rvi_buf_putc(out, '{');
    if (f->labelled) {
        rvi_buf_puts(out, "model=");
        rvi_put_text(out, f->models[i]->name);
        if (le) rvi_buf_putc(out, ',');
    }
    if (le) rvi_buf_printf(out, "le=\"%s\"", le);
    rvi_buf_putc(out, '}');
}

static void put_type(rvi_buf *out, const char *type, const char *name)
{
    rvi_buf_printf(out, "# TYPE ruvllm_%s %s\n", name, type);
}

static void put_value(rvi_buf *out, const char *type, const char *name, double v)
{
    put_type(out, type, name);
    rvi_buf_printf(out, "ruvllm_%s ", name);
    rvi_json_write_number(out, v);
    rvi_buf_putc(out, '\n');
}

static void put_count(rvi_buf *out, const char *name, uint64_t n)
{
    put_type(out, "counter", name);
    rvi_buf_printf(out, "ruvllm_%s %llu\n", name, (unsigned long long)n);
}

static void put_histogram(const figures *f, int m, const char *name, const rv_histogram *h)
{
    static const char *const bounds[] = {"0.001", "0.0025", "0.005", "0.01", "0.025", "0.05",
                                         "0.1",   "0.25",   "0.5",   "1",    "2.5",   "5",
                                         "10",    "25",     "50",    "100"};
    static const double values[] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
                                    0.5,   1,      2.5,   5,    10,    25,   50,  100};
    uint64_t below = 0;
    int i = 0;
    for (size_t k = 0; k < RVI_COUNT(bounds); k++) {
        for (; i < RV_HISTOGRAM_BUCKETS - 1 && rv_histogram_bound(i) <= values[k]; i++)
            below += h->counts[i];
        put_name(f, m, name, "_bucket", bounds[k]);
        rvi_buf_printf(f->out, " %llu\n", (unsigned long long)below);
    }
    put_name(f, m, name, "_bucket", "+Inf");
    rvi_buf_printf(f->out, " %llu\n", (unsigned long long)h->n);
    put_name(f, m, name, "_sum", NULL);
    rvi_buf_putc(f->out, ' ');
    rvi_json_write_number(f->out, h->sum);
    rvi_buf_putc(f->out, '\n');
    put_name(f, m, name, "_count", NULL);
    rvi_buf_printf(f->out, " %llu\n", (unsigned long long)h->n);
}

/* ---- of each model ---- */

static void put_counts(const figures *f)
{
    static const struct {
        const char *type, *name;
        size_t at;
    } all[] = {{"gauge", "num_requests_running", offsetof(rv_service_metrics, n_running)},
               {"gauge", "num_requests_waiting", offsetof(rv_service_metrics, n_waiting)},
               {"gauge", "kv_pages_hot", offsetof(rv_service_metrics, pages_hot)},
               {"gauge", "kv_pages_warm", offsetof(rv_service_metrics, pages_warm)},
               {"gauge", "kv_pages_cold", offsetof(rv_service_metrics, pages_cold)},
               {"counter", "requests_submitted_total", offsetof(rv_service_metrics, n_submitted)},
               {"counter", "requests_refused_total", offsetof(rv_service_metrics, n_refused)},
               {"counter", "request_success_total", offsetof(rv_service_metrics, n_done)},
               {"counter", "requests_cancelled_total", offsetof(rv_service_metrics, n_cancelled)},
               {"counter", "requests_failed_total", offsetof(rv_service_metrics, n_failed)},
               {"counter", "steps_total", offsetof(rv_service_metrics, n_steps)},
               {"counter", "prompt_tokens_total", offsetof(rv_service_metrics, prompt_tokens)},
               {"counter", "generation_tokens_total", offsetof(rv_service_metrics, token_rows)},
               {"counter", "prefix_cache_queries", offsetof(rv_service_metrics, prompt_tokens)},
               {"counter", "prefix_cache_hits", offsetof(rv_service_metrics, reused_tokens)},
               {"counter", "num_preemptions", offsetof(rv_service_metrics, n_preempted)},
               {"counter", "kv_dropped_tokens_total", offsetof(rv_service_metrics, dropped_rows)},
               {"counter", "spilled_requests_total", offsetof(rv_service_metrics, n_spilled)},
               {"counter", "spill_failures_total", offsetof(rv_service_metrics, n_spill_failed)},
               {"gauge", "spilled_bytes", offsetof(rv_service_metrics, bytes_spilled)},
               {"counter", "forgotten_tokens_total", offsetof(rv_service_metrics, n_evicted)},
               {"counter", "coarse_answers_total", offsetof(rv_service_metrics, n_coarsened)}};
    for (size_t k = 0; k < RVI_COUNT(all); k++) {
        put_type(f->out, all[k].type, all[k].name);
        for (int i = 0; i < f->n; i++) {
            uint64_t v;
            memcpy(&v, (const char *)&f->of[i] + all[k].at, sizeof v);
            put_name(f, i, all[k].name, "", NULL);
            rvi_buf_printf(f->out, " %llu\n", (unsigned long long)v);
        }
    }
}

static void put_number(const figures *f, const char *type, const char *name,
                       double (*of)(const rvi_serving *s, const rv_service_metrics *m))
{
    put_type(f->out, type, name);
    for (int i = 0; i < f->n; i++) {
        put_name(f, i, name, "", NULL);
        rvi_buf_putc(f->out, ' ');
        rvi_json_write_number(f->out, of(f->models[i], &f->of[i]));
        rvi_buf_putc(f->out, '\n');
    }
}

static double room_used(const rvi_serving *s, const rv_service_metrics *m)
{
    (void)s;
    return m->pages ? (double)m->pages_running / (double)m->pages : 0;
}

static double busy_seconds(const rvi_serving *s, const rv_service_metrics *m)
{
    (void)s;
    return m->busy_seconds;
}

static double prompt_seconds(const rvi_serving *s, const rv_service_metrics *m)
{
    (void)s;
    return m->prompt_seconds;
}

static double token_seconds(const rvi_serving *s, const rv_service_metrics *m)
{
    (void)s;
    return m->token_seconds;
}

static double learned_version(const rvi_serving *s, const rv_service_metrics *m)
{
    (void)m;
    return (double)rvi_taught_version(&s->teaching.shared);
}

static void put_times(const figures *f)
{
    static const struct {
        const char *name;
        size_t at;
        bool outside; /* in the server's figures, which know of reading and sending */
    } all[] = {{"request_queue_time_seconds", offsetof(rv_service_metrics, queue), false},
               {"inter_token_latency_seconds", offsetof(rv_service_metrics, inter_token), false},
               {"step_seconds", offsetof(rv_service_metrics, step), false},
               {"time_to_first_token_seconds", offsetof(rvi_serving, first_token), true},
               {"e2e_request_latency_seconds", offsetof(rvi_serving, whole), true}};
    for (size_t k = 0; k < RVI_COUNT(all); k++) {
        put_type(f->out, "histogram", all[k].name);
        for (int i = 0; i < f->n; i++) {
            const char *of = all[k].outside ? (const char *)f->models[i] : (const char *)&f->of[i];
            put_histogram(f, i, all[k].name, (const void *)(of + all[k].at));
        }
    }
}

/* ---- of the server ---- */

/* Who holds what, as rv_memory has it. */
static void put_memory(const rvi_server *v, rvi_buf *out)
{
    static const struct {
        const char *name;
        size_t at;
    } all[] = {{"memory_weights_bytes", offsetof(rv_memory, weights)},
               {"memory_kv_bytes", offsetof(rv_memory, kv)},
               {"memory_scratch_bytes", offsetof(rv_memory, scratch)},
               {"memory_adapters_bytes", offsetof(rv_memory, adapters)},
               {"memory_training_bytes", offsetof(rv_memory, training)},
               {"memory_heap_bytes", offsetof(rv_memory, heap)},
               {"memory_mapped_bytes", offsetof(rv_memory, mapped_resident)},
               {"memory_program_bytes", offsetof(rv_memory, program)},
               {"memory_reserved_bytes", offsetof(rv_memory, reserved)},
               {"memory_resident_bytes", offsetof(rv_memory, resident)}};
    rv_memory m = {.size = sizeof m};
    rv_error err;
    if (rv_runtime_memory(v->rt, &m, &err)) return;
    for (size_t k = 0; k < RVI_COUNT(all); k++) {
        uint64_t n;
        memcpy(&n, (const char *)&m + all[k].at, sizeof n);
        put_value(out, "gauge", all[k].name, (double)n);
    }
}

static void put_server(const rvi_server *v, rvi_buf *out)
{
    put_value(out, "gauge", "connections", v->conns.n);
    put_count(out, "connections_total", v->conns.n_accepted);
    put_count(out, "http_requests_total", v->conns.n_requests);
    put_count(out, "feedback_total", v->n_feedback);
    if (v->conns.witness) {
        uint64_t records, dropped;
        rvi_witness_counts(v->conns.witness, &records, &dropped);
        put_count(out, "witness_records_total", records);
        put_count(out, "witness_dropped_total", dropped);
    }
}

static void put_all(const rvi_server *v, figures *f)
{
    rv_error err;
    for (int i = 0; i < v->o->n_models; i++) {
        rvi_serving *s = &v->models[i];
        f->of[f->n].size = sizeof *f->of;
        f->models[f->n] = s;
        if (!rv_models_get_metrics(v->list, s->name, &f->of[f->n], &err)) f->n++;
    }
    put_counts(f);
    put_number(f, "gauge", "kv_cache_usage_perc", room_used);
    put_number(f, "counter", "busy_seconds_total", busy_seconds);
    put_number(f, "counter", "prompt_seconds_total", prompt_seconds);
    put_number(f, "counter", "token_seconds_total", token_seconds);
    put_number(f, "gauge", "learned_version", learned_version);
    put_times(f);
    put_server(v, f->out);
    put_memory(v, f->out);
}

void rvi_native_metrics(rvi_serving *s, rvi_conn *c)
{
    rvi_buf out = {0};
    rvi_problem p;
    rvi_arena arena = {.max = 64 << 20};
    size_t n = (size_t)s->server->o->n_models;
    figures f = {.out = &out, .labelled = n > 1};
    f.of = rvi_arena_alloc(&arena, n, sizeof *f.of);
    f.models = rvi_arena_alloc(&arena, n, sizeof *f.models);
    if (f.of && f.models) put_all(s->server, &f);
    if (out.len && !out.failed) {
        rvi_conn_reply(c, 200, "text/plain; version=0.0.4; charset=utf-8", out.data, out.len);
    } else {
        (void)rvi_problem_set(&p, 503, NULL, NULL, "out of memory");
        rvi_dialect_refuse(&rvi_openai, c, &p);
    }
    rvi_arena_deinit(&arena);
    rvi_buf_deinit(&out);
}
