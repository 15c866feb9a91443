/* /metrics in the text format of Prometheus. Where there are several models, the figures of each
 * that is loaded have its name as a label. */
#include <string.h>

#include "server/adapters.h"
#include "server/native.h"
#include "server/openai.h"

typedef struct figures {
    rvi_buf *out;
    int n;
    const rvi_serving **models; /* those that are loaded */
    rv_service_metrics *of;     /* n of them */
    rv_registry_metrics *adapters;
    bool labelled;
} figures;

/* A label of some figures beside the model's. */
typedef struct label {
    const char *name, *value;
} label;

/* ruvllm_NAME{model="...",NAME="...",le="..."}, without what is not there */
static void put_name(const figures *f, int i, const char *name, const char *end, const label *l,
                     const char *le)
{
    rvi_buf *out = f->out;
    const char *before = "{";
    rvi_buf_printf(out, "ruvllm_%s%s", name, end);
    if (f->labelled) {
        rvi_buf_puts(out, "{model=");
        rvi_put_text(out, f->models[i]->name);
        before = ",";
    }
    if (l) rvi_buf_printf(out, "%s%s=\"%s\"", before, l->name, l->value);
    if (l) before = ",";
    if (le) rvi_buf_printf(out, "%sle=\"%s\"", before, le);
    if (f->labelled || l || le) rvi_buf_putc(out, '}');
}

static void put_type(rvi_buf *out, const char *type, const char *name, const char *help)
{
    rvi_buf_printf(out, "# HELP ruvllm_%s %s\n# TYPE ruvllm_%s %s\n", name, help, name, type);
}

static void put_value(rvi_buf *out, const char *type, const char *name, const char *help, double v)
{
    put_type(out, type, name, help);
    rvi_buf_printf(out, "ruvllm_%s ", name);
    rvi_json_write_number(out, v);
    rvi_buf_putc(out, '\n');
}

static void put_count(rvi_buf *out, const char *name, const char *help, uint64_t n)
{
    put_type(out, "counter", name, help);
    rvi_buf_printf(out, "ruvllm_%s %llu\n", name, (unsigned long long)n);
}

static void put_histogram(const figures *f, int m, const char *name, const label *l,
                          const rv_histogram *h)
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
        put_name(f, m, name, "_bucket", l, bounds[k]);
        rvi_buf_printf(f->out, " %llu\n", (unsigned long long)below);
    }
    put_name(f, m, name, "_bucket", l, "+Inf");
    rvi_buf_printf(f->out, " %llu\n", (unsigned long long)h->n);
    put_name(f, m, name, "_sum", l, NULL);
    rvi_buf_putc(f->out, ' ');
    rvi_json_write_number(f->out, h->sum);
    rvi_buf_putc(f->out, '\n');
    put_name(f, m, name, "_count", l, NULL);
    rvi_buf_printf(f->out, " %llu\n", (unsigned long long)h->n);
}

/* ---- of each model ---- */

#define FIGURE(member) offsetof(rv_service_metrics, member)

static void put_counts(const figures *f)
{
    static const struct {
        const char *type, *name;
        size_t at;
        const char *help;
    } all[] = {
        {"gauge", "num_requests_running", FIGURE(n_running), "Requests that compute."},
        {"gauge", "num_requests_waiting", FIGURE(n_waiting), "Requests that wait for their turn."},
        {"gauge", "kv_pages_running", FIGURE(pages_running),
         "KV pages of 32 tokens that requests hold."},
        {"gauge", "kv_pages_kept", FIGURE(pages_kept), "KV pages that are merely cached."},
        {"gauge", "kv_pages_hot", FIGURE(pages_hot), "KV pages of tiers in 16 bits."},
        {"gauge", "kv_pages_warm", FIGURE(pages_warm), "KV pages of tiers in 8 bits."},
        {"gauge", "kv_pages_cold", FIGURE(pages_cold), "KV pages of tiers in 4 bits."},
        {"counter", "requests_submitted_total", FIGURE(n_submitted), "Requests that came."},
        {"counter", "requests_refused_total", FIGURE(n_refused), "Requests without a place."},
        {"counter", "request_success_total", FIGURE(n_done), "Requests that were answered."},
        {"counter", "requests_cancelled_total", FIGURE(n_cancelled), "Requests whose client left."},
        {"counter", "requests_timed_out_total", FIGURE(n_timed_out),
         "Requests that were not answered within their timeout."},
        {"counter", "requests_failed_total", FIGURE(n_failed), "Requests that ended in an error."},
        {"counter", "steps_total", FIGURE(n_steps), "Forward passes."},
        {"counter", "prompt_tokens_total", FIGURE(prompt_tokens), "Tokens of prompts."},
        {"counter", "generation_tokens_total", FIGURE(answer_tokens), "Tokens of answers."},
        {"counter", "prefix_cache_queries", FIGURE(prompt_tokens), "Tokens that were looked up."},
        {"counter", "prefix_cache_hits", FIGURE(reused_tokens), "Of these, known already."},
        {"counter", "spec_decode_num_draft_tokens_total", FIGURE(n_guessed), "Guessed tokens."},
        {"counter", "spec_decode_num_accepted_tokens_total", FIGURE(n_right),
         "Of these, those that came true."},
        {"counter", "num_preemptions", FIGURE(n_preempted), "Times a request lost its room."},
        {"counter", "recomputed_tokens_total", FIGURE(recomputed_rows),
         "Tokens that were computed again after that."},
        {"counter", "kv_dropped_tokens_total", FIGURE(dropped_rows),
         "Tokens that were computed again for their precision had been dropped."},
        {"counter", "kv_pages_given_up_total", FIGURE(n_dropped_kept),
         "KV pages of cached prompts that made room."},
        {"counter", "spilled_requests_total", FIGURE(n_spilled),
         "Requests that were written to disk when they lost their room."},
        {"counter", "spilled_tokens_total", FIGURE(spilled_rows),
         "Tokens that were read back from there."},
        {"counter", "spill_failures_total", FIGURE(n_spill_failed),
         "Requests that could not be written or read back."},
        {"gauge", "spilled_bytes", FIGURE(bytes_spilled), "What lies on disk."},
        {"counter", "forgotten_tokens_total", FIGURE(n_evicted), "Tokens that answers forgot."},
        {"counter", "coarse_answers_total", FIGURE(n_coarsened), "Answers that went to 4 bits."}};
    for (size_t k = 0; k < RVI_COUNT(all); k++) {
        put_type(f->out, all[k].type, all[k].name, all[k].help);
        for (int i = 0; i < f->n; i++) {
            uint64_t v;
            memcpy(&v, (const char *)&f->of[i] + all[k].at, sizeof v);
            put_name(f, i, all[k].name, "", NULL, NULL);
            rvi_buf_printf(f->out, " %llu\n", (unsigned long long)v);
        }
    }
}

static void put_number(const figures *f, const char *type, const char *name, const char *help,
                       double (*of)(const rvi_serving *s, const rv_service_metrics *m))
{
    put_type(f->out, type, name, help);
    for (int i = 0; i < f->n; i++) {
        put_name(f, i, name, "", NULL, NULL);
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
        const char *name, *help;
        size_t at;
        bool outside; /* in the server's figures, which know of reading and sending */
    } all[] = {{"request_queue_time_seconds", "From its coming until a request computes.",
                FIGURE(queue), false},
               {"inter_token_latency_seconds", "From a token to the next one.", FIGURE(inter_token),
                false},
               {"step_seconds", "Of a forward pass.", FIGURE(step), false},
               {"time_to_first_token_seconds", "From a whole request to its first token.",
                offsetof(rvi_serving, first_token), true},
               {"e2e_request_latency_seconds", "From a whole request to its end.",
                offsetof(rvi_serving, whole), true}};
    for (size_t k = 0; k < RVI_COUNT(all); k++) {
        put_type(f->out, "histogram", all[k].name, all[k].help);
        for (int i = 0; i < f->n; i++) {
            const char *of = all[k].outside ? (const char *)f->models[i] : (const char *)&f->of[i];
            put_histogram(f, i, all[k].name, NULL, (const void *)(of + all[k].at));
        }
    }
}

static void put_adapters(const figures *f)
{
    static const struct {
        const char *name, *help;
        size_t at;
    } counts[] = {
        {"adapters_known", "Adapters that have a name.", offsetof(rv_registry_metrics, n)},
        {"adapters_open", "Of these, open files.", offsetof(rv_registry_metrics, n_open)},
        {"adapters_ready", "Of these, ready to compute.", offsetof(rv_registry_metrics, n_ready)}};
    static const char times[] = "adapter_load_seconds";
    static const struct {
        label l;
        size_t at;
    } from[] = {{{"from", "ready"}, offsetof(rv_registry_metrics, ready)},
                {{"from", "open"}, offsetof(rv_registry_metrics, open)},
                {{"from", "disk"}, offsetof(rv_registry_metrics, on_disk)}};
    for (size_t k = 0; k < RVI_COUNT(counts); k++) {
        put_type(f->out, "gauge", counts[k].name, counts[k].help);
        for (int i = 0; i < f->n; i++) {
            uint64_t n;
            memcpy(&n, (const char *)&f->adapters[i] + counts[k].at, sizeof n);
            put_name(f, i, counts[k].name, "", NULL, NULL);
            rvi_buf_printf(f->out, " %llu\n", (unsigned long long)n);
        }
    }
    put_type(f->out, "histogram", times, "Until a request had its adapter, by where that was.");
    for (int i = 0; i < f->n; i++)
        for (size_t k = 0; k < RVI_COUNT(from); k++)
            put_histogram(f, i, times, &from[k].l,
                          (const void *)((const char *)&f->adapters[i] + from[k].at));
}

/* ---- of the server ---- */

/* Who holds what, as rv_memory has it. */
static void put_memory(const rvi_server *v, rvi_buf *out)
{
    static const struct {
        const char *name, *help;
        size_t at;
    } all[] = {
        {"memory_weights_bytes", "Packed weights.", offsetof(rv_memory, weights)},
        {"memory_kv_bytes", "KV pages.", offsetof(rv_memory, kv)},
        {"memory_scratch_bytes", "Activations and logits.", offsetof(rv_memory, scratch)},
        {"memory_adapters_bytes", "Adapters that are ready.", offsetof(rv_memory, adapters)},
        {"memory_training_bytes", "What trains in the background.", offsetof(rv_memory, training)},
        {"memory_heap_bytes", "Other blocks.", offsetof(rv_memory, heap)},
        {"memory_mapped_bytes", "Model files in memory.", offsetof(rv_memory, mapped_resident)},
        {"memory_program_bytes", "Program and libraries.", offsetof(rv_memory, program)},
        {"memory_reserved_bytes", "Never written to.", offsetof(rv_memory, reserved)},
        {"memory_resident_bytes", "The process.", offsetof(rv_memory, resident)}};
    rv_memory m = {.size = sizeof m};
    rv_error err;
    if (rv_runtime_memory(v->rt, &m, &err)) return;
    for (size_t k = 0; k < RVI_COUNT(all); k++) {
        uint64_t n;
        memcpy(&n, (const char *)&m + all[k].at, sizeof n);
        put_value(out, "gauge", all[k].name, all[k].help, (double)n);
    }
}

/* The one bound of --memory, and those of its parts. */
static void put_budget(const rvi_server *v, rvi_buf *out)
{
    static const struct {
        const char *pool;
        size_t at;
    } pools[] = {{"all", offsetof(rv_budget_use, all)},
                 {"weights", offsetof(rv_budget_use, weights)},
                 {"adapters", offsetof(rv_budget_use, adapters)},
                 {"scratch", offsetof(rv_budget_use, scratch)},
                 {"kv", offsetof(rv_budget_use, kv)}};
    static const struct {
        const char *name, *help;
        size_t at;
    } all[] = {
        {"budget_limit_bytes", "What a pool may take; 0: no limit of its own.",
         offsetof(rv_budget_share, most)},
        {"budget_used_bytes", "What it takes.", offsetof(rv_budget_share, used)},
        {"budget_kept_bytes", "Of that, what would make room.", offsetof(rv_budget_share, kept)}};
    rv_budget_use b = {.size = sizeof b};
    rv_error err;
    if (rv_runtime_get_budget(v->rt, &b, &err)) return;
    for (size_t k = 0; k < RVI_COUNT(all); k++) {
        put_type(out, "gauge", all[k].name, all[k].help);
        for (size_t i = 0; i < RVI_COUNT(pools); i++) {
            uint64_t n;
            memcpy(&n, (const char *)&b + pools[i].at + all[k].at, sizeof n);
            rvi_buf_printf(out, "ruvllm_%s{pool=\"%s\"} %llu\n", all[k].name, pools[i].pool,
                           (unsigned long long)n);
        }
    }
    put_count(out, "budget_asked_total", "Times that some were asked to make room.", b.n_asked);
    put_count(out, "budget_refused_total", "Times that there was no room.", b.n_refused);
}

static void put_server(const rvi_server *v, rvi_buf *out)
{
    put_value(out, "gauge", "connections", "Open connections.", v->conns.n);
    put_count(out, "connections_total", "Connections that came.", v->conns.n_accepted);
    put_count(out, "http_requests_total", "Requests of any path.", v->conns.n_requests);
    put_count(out, "feedback_total", "Verdicts on answers.", v->n_feedback);
    if (v->conns.witness) {
        uint64_t records, dropped;
        rvi_witness_counts(v->conns.witness, &records, &dropped);
        put_count(out, "witness_records_total", "Lines of the witness log.", records);
        put_count(out, "witness_dropped_total", "Lines that could not be written.", dropped);
    }
}

static void put_all(const rvi_server *v, figures *f)
{
    rv_error err;
    for (int i = 0; i < v->o->n_models; i++) {
        rvi_serving *s = &v->models[i];
        f->of[f->n].size = sizeof *f->of;
        f->models[f->n] = s;
        rvi_adapters_count(s, &f->adapters[f->n]);
        if (!rv_models_get_metrics(v->list, s->name, &f->of[f->n], &err)) f->n++;
    }
    put_counts(f);
    put_number(f, "gauge", "kv_cache_usage_perc", "KV pages that requests hold, as a share.",
               room_used);
    put_number(f, "counter", "busy_seconds_total", "Seconds of forward passes.", busy_seconds);
    put_number(f, "counter", "prompt_seconds_total", "Of these, for prompts.", prompt_seconds);
    put_number(f, "counter", "token_seconds_total", "Of these, for answers.", token_seconds);
    put_number(f, "gauge", "learned_version", "The last event of what was learned.",
               learned_version);
    put_times(f);
    if (v->adapters_folder.len) put_adapters(f);
    put_server(v, f->out);
    put_memory(v, f->out);
    put_budget(v, f->out);
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
    f.adapters = rvi_arena_alloc(&arena, n, sizeof *f.adapters);
    if (f.of && f.models && f.adapters) put_all(s->server, &f);
    if (out.len && !out.failed) {
        rvi_conn_reply(c, 200, "text/plain; version=0.0.4; charset=utf-8", out.data, out.len);
    } else {
        (void)rvi_problem_set(&p, 503, NULL, NULL, "out of memory");
        rvi_dialect_refuse(&rvi_openai, c, &p);
    }
    rvi_arena_deinit(&arena);
    rvi_buf_deinit(&out);
}
