/* bench: how fast a model runs here.
 *
 * Two tests. pp: a prompt of random ids onto the depth asked for. tg: single-token steps with
 * logits, of one or several sequences together. One run of each to warm up, then the repetitions
 * that count. Field names and definitions of the JSON and CSV output are those of llama-bench
 * (samples in nanoseconds, the standard deviation with n - 1), so that its tools can read it; our
 * own fields come after them. */
#include <math.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "base/json.h"
#include "base/os.h"
#include "base/rng.h"
#include "cli/bench_draft.h"
#include "cli/bench_service.h"
#include "cli/cli.h"
#include "cli/expect.h"

enum { STEP_ROWS = 512, MAX_PARALLEL = 256, MAX_TOKENS = 1 << 22, MAX_REPEAT = 1000 };

typedef struct bench {
    /* what was asked for */
    const char *name;
    int n_prompt, n_gen, depth, repeat, parallel;
    bool ops; /* where the time goes */
    rv_kv_type kv;
    /* what it runs on */
    cli_model model;
    rv_model_info info;
    cli_load load;
    char cpu[128], gpu[128]; /* gpu: "": none */
    bool split;              /* the CPU computes a part of the layers, or all */
    double copy_gbps;        /* of the GPU's memory; 0: there is none, or it was not measured */
    double gpu_used;         /* bytes of it in use, by whomever, after the tests */
    int threads;
    rv_engine *engine;
    rv_session *sessions[MAX_PARALLEL];
    int32_t *ids; /* depth + the longer of prompt and answer, for every sequence from its place */
    size_t n_ids;
    cli_progress bar;
    int n_done, n_all; /* runs */
} bench;

typedef struct result {
    int n_prompt, n_gen, n_parallel;
    double *ns; /* a sample each */
    int n;
    double ttft_ms; /* 0: not part of this test */
    size_t peak_rss;
    char time[32];
    char *ops; /* rv_runtime_profile's; NULL: not asked for */
} result;

/* ---- running ---- */

static rv_status fresh_session(bench *b, int i, rv_error *err)
{
    rv_session_options o;
    rv_session_free(&b->sessions[i]);
    o = (rv_session_options){.size = sizeof o};
    o.engine = b->engine;
    o.n_context = b->depth + RVI_MAX(b->n_prompt, b->n_gen);
    return rv_session_new(&b->sessions[i], b->model.m, &o, err);
}

/* The i-th sequence's past becomes its own `depth` ids. */
static rv_status rewind_session(bench *b, int i, rv_error *err)
{
    if (!b->sessions[i] || !b->depth) {
        rv_status st = fresh_session(b, i, err);
        if (st || !b->depth) return st;
    }
    return rv_session_sync(b->sessions[i], b->ids + i, (size_t)b->depth, NULL, NULL, err);
}

static void free_sessions(bench *b)
{
    for (int i = 0; i < MAX_PARALLEL; i++) rv_session_free(&b->sessions[i]);
}

static size_t largest(const float *x, size_t n)
{
    size_t at = 0;
    for (size_t i = 1; i < n; i++)
        if (x[i] > x[at]) at = i;
    return at;
}

/* One prompt. first: seconds until the first token of an answer is known. */
static rv_status run_prompt(bench *b, double *seconds, double *first, rv_error *err)
{
    float *logits = NULL;
    size_t reused = 0;
    rv_status st = rewind_session(b, 0, err);
    if (st) return st;
    double start = rvi_os_seconds();
    st = rv_session_sync(b->sessions[0], b->ids, (size_t)(b->depth + b->n_prompt), &reused, &logits,
                         err);
    if (st) return st;
    *seconds = rvi_os_seconds() - start;
    volatile size_t token = largest(logits, (size_t)b->info.n_vocab);
    (void)token;
    *first = rvi_os_seconds() - start;
    if (reused != (size_t)b->depth)
        return rvi_error(err, RV_E_STATE, "%zu tokens of the prompt were in the cache, not %d",
                         reused, b->depth);
    return RV_OK;
}

/* n_gen steps of all sequences together. */
static rv_status run_steps(bench *b, double *seconds, double *first, rv_error *err)
{
    rv_row rows[MAX_PARALLEL];
    rv_status st = RV_OK;
    *first = 0;
    for (int i = 0; !st && i < b->parallel; i++) {
        st = rewind_session(b, i, err);
        rows[i] = (rv_row){.session = b->sessions[i], .want_logits = 1};
    }
    if (st) return st;
    double start = rvi_os_seconds();
    for (int at = 0; !st && at < b->n_gen; at++) {
        for (int i = 0; i < b->parallel; i++) rows[i].token = b->ids[b->depth + at + i];
        st = rv_engine_step(b->engine, rows, (size_t)b->parallel, err);
    }
    *seconds = rvi_os_seconds() - start;
    return st;
}

static void show(bench *b, const char *what)
{
    if (rvi_os_is_terminal(stderr))
        cli_progress_show(&b->bar, what, (uint64_t)b->n_done, (uint64_t)b->n_all, "");
}

static rv_status run_test(bench *b, bool prompt, result *r, rv_error *err)
{
    time_t now = time(NULL);
    const struct tm *utc = gmtime(&now);
    *r = (result){.n_prompt = prompt ? b->n_prompt : 0,
                  .n_gen = prompt ? 0 : b->n_gen,
                  .n_parallel = prompt ? 1 : b->parallel};
    if (!utc || !strftime(r->time, sizeof r->time, "%Y-%m-%dT%H:%M:%SZ", utc)) r->time[0] = 0;
    r->ns = rvi_alloc_array((size_t)b->repeat, sizeof *r->ns);
    if (!r->ns) return rvi_nomem(err, "samples");
    for (int i = -1; i < b->repeat; i++) {
        double seconds = 0, first = 0;
        show(b, prompt ? "prompt" : "decode");
        rv_status st = RV_OK;
        if (b->ops && i == 0 && (st = rv_runtime_profile(b->model.rt, NULL, err))) return st;
        st = prompt ? run_prompt(b, &seconds, &first, err) : run_steps(b, &seconds, &first, err);
        if (st) return st;
        b->n_done++;
        if (i < 0) continue;
        r->ns[r->n++] = RVI_MAX(floor(seconds * 1e9), 1);
        r->ttft_ms += first * 1e3 / b->repeat;
    }
    free_sessions(b);
    r->peak_rss = rvi_os_peak_rss();
    return b->ops ? rv_runtime_profile(b->model.rt, &r->ops, err) : RV_OK;
}

/* ---- figures ---- */

static double mean(const double *x, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) sum += x[i];
    return n ? sum / n : 0;
}

/* of the sample: n - 1 */
static double deviation(const double *x, int n)
{
    double m = mean(x, n), sum = 0;
    for (int i = 0; i < n; i++) sum += (x[i] - m) * (x[i] - m);
    return n > 1 ? sqrt(sum / (n - 1)) : 0;
}

static double tokens_a_second(const result *r, int i)
{
    return 1e9 * (r->n_prompt + (double)r->n_gen * r->n_parallel) / r->ns[i];
}

typedef struct figures {
    double avg_ns, stddev_ns, avg_ts, stddev_ts;
    double gbps, share; /* of the GPU's memory rate; 0: not part of this test */
} figures;

static figures figures_of(const bench *b, const result *r)
{
    double ts[MAX_REPEAT];
    for (int i = 0; i < r->n; i++) ts[i] = tokens_a_second(r, i);
    figures f = {
        mean(r->ns, r->n), deviation(r->ns, r->n), mean(ts, r->n), deviation(ts, r->n), 0, 0};
    if (r->n_gen) f.gbps = b->load.token_bytes * f.avg_ts / r->n_parallel / 1e9;
    if (b->copy_gbps > 0 && !b->split) f.share = f.gbps / b->copy_gbps;
    return f;
}

/* ---- output ---- */

typedef enum kind { TEXT, WHOLE, REAL } kind;

/* One field of a row of output; a figure that is not part of the test is null in JSON, empty in
 * CSV. */
typedef struct field {
    const char *name;
    kind kind;
    const char *text;
    double number;
    bool absent;
} field;

enum { N_FIELDS = 32 };

/* A GPU takes what suits it. */
static int step_rows(const bench *b)
{
    return strcmp(rv_runtime_isa(b->model.rt), "cuda") ? STEP_ROWS : 0;
}

static const char *kv_name(const bench *b)
{
    static const char *const names[] = {"f16", "f32", "f16", "q8", "warm", "tiered"};
    return names[b->kv];
}

/* "llama 134.52M q4_1" */
static void model_type(const bench *b, char *out, size_t size)
{
    double n = b->load.n_params, unit = n < 1e6 ? 1e3 : n < 1e9 ? 1e6 : 1e9;
    snprintf(out, size, "%s %.2f%s %s", b->info.architecture, n / unit,
             n < 1e6   ? "K"
             : n < 1e9 ? "M"
                       : "B",
             b->info.type);
}

static void fill_fields(const bench *b, const result *r, const char *type, field out[N_FIELDS])
{
    figures f = figures_of(b, r);
    const field all[] = {
        {"build_commit", TEXT, cli_commit(), 0, false},
        {"build_number", WHOLE, NULL, cli_build_number(), false},
        {"cpu_info", TEXT, b->cpu, 0, false},
        {"gpu_info", TEXT, b->gpu, 0, false},
        {"backends", TEXT,
         !b->info.gpu_layers ? "CPU"
         : b->split          ? "CUDA,CPU"
                             : "CUDA",
         0, false},
        {"model_filename", TEXT, b->name, 0, false},
        {"model_type", TEXT, type, 0, false},
        {"model_size", WHOLE, NULL, b->load.model_bytes, false},
        {"model_n_params", WHOLE, NULL, b->load.n_params, false},
        {"n_batch", WHOLE, NULL, step_rows(b), false},
        {"n_ubatch", WHOLE, NULL, step_rows(b), false},
        {"n_threads", WHOLE, NULL, b->threads, false},
        {"type_k", TEXT, kv_name(b), 0, false},
        {"type_v", TEXT, kv_name(b), 0, false},
        {"n_prompt", WHOLE, NULL, r->n_prompt, false},
        {"n_gen", WHOLE, NULL, r->n_gen, false},
        {"n_depth", WHOLE, NULL, b->depth, false},
        {"test_time", TEXT, r->time, 0, false},
        {"avg_ns", WHOLE, NULL, floor(f.avg_ns), false},
        {"stddev_ns", WHOLE, NULL, floor(f.stddev_ns), false},
        {"avg_ts", REAL, NULL, f.avg_ts, false},
        {"stddev_ts", REAL, NULL, f.stddev_ts, false},
        {"n_parallel", WHOLE, NULL, r->n_parallel, false},
        {"ts_per_sequence", REAL, NULL, f.avg_ts / r->n_parallel, false},
        {"ttft_ms", REAL, NULL, r->ttft_ms, r->ttft_ms <= 0},
        {"gbps", REAL, NULL, f.gbps, f.gbps <= 0},
        {"peak_rss", WHOLE, NULL, (double)r->peak_rss, r->peak_rss == 0},
        {"isa", TEXT, rv_runtime_isa(b->model.rt), 0, false},
        {"n_gpu_layers", WHOLE, NULL, b->info.gpu_layers, false},
        {"gpu_copy_gbps", REAL, NULL, b->copy_gbps, b->copy_gbps <= 0},
        {"gpu_share", REAL, NULL, f.share, f.share <= 0},
        {"gpu_memory_used", WHOLE, NULL, b->gpu_used, b->gpu_used <= 0},
    };
    _Static_assert(sizeof all / sizeof all[0] == N_FIELDS, "one row each");
    memcpy(out, all, sizeof all);
}

static void put_number(rvi_buf *b, const field *f)
{
    rvi_buf_printf(b, f->kind == WHOLE ? "%.0f" : "%.6f", f->number);
}

static void write_json(const bench *b, const result *results, int n, rvi_buf *out)
{
    char type[96];
    field fields[N_FIELDS];
    model_type(b, type, sizeof type);
    rvi_buf_puts(out, "[\n");
    for (int i = 0; i < n; i++) {
        const result *r = &results[i];
        fill_fields(b, r, type, fields);
        rvi_buf_puts(out, i ? ",\n  {\n" : "  {\n");
        for (int k = 0; k < N_FIELDS; k++) {
            rvi_buf_printf(out, "    \"%s\": ", fields[k].name);
            if (fields[k].absent)
                rvi_buf_puts(out, "null");
            else if (fields[k].kind == TEXT)
                rvi_json_write_string(out, fields[k].text, strlen(fields[k].text));
            else
                put_number(out, &fields[k]);
            rvi_buf_puts(out, ",\n");
        }
        rvi_buf_puts(out, "    \"samples_ns\": [");
        for (int k = 0; k < r->n; k++) rvi_buf_printf(out, k ? ", %.0f" : "%.0f", r->ns[k]);
        rvi_buf_puts(out, "],\n    \"samples_ts\": [");
        for (int k = 0; k < r->n; k++)
            rvi_buf_printf(out, k ? ", %.6f" : "%.6f", tokens_a_second(r, k));
        rvi_buf_puts(out, "]\n  }");
    }
    rvi_buf_puts(out, "\n]\n");
}

static void write_csv(const bench *b, const result *results, int n, rvi_buf *out)
{
    char type[96];
    field fields[N_FIELDS];
    model_type(b, type, sizeof type);
    for (int i = 0; i < n; i++) {
        fill_fields(b, &results[i], type, fields);
        for (int k = 0; !i && k < N_FIELDS; k++)
            rvi_buf_printf(out, "%s%s", k ? "," : "", fields[k].name);
        rvi_buf_puts(out, i ? "" : "\n");
        for (int k = 0; k < N_FIELDS; k++) {
            rvi_buf_puts(out, k ? ",\"" : "\"");
            if (fields[k].kind == TEXT)
                for (const char *p = fields[k].text; *p; p++) {
                    if (*p == '"') rvi_buf_putc(out, '"');
                    rvi_buf_putc(out, *p);
                }
            else if (!fields[k].absent)
                put_number(out, &fields[k]);
            rvi_buf_putc(out, '"');
        }
        rvi_buf_putc(out, '\n');
    }
}

static void test_name(const bench *b, const result *r, char *out, size_t size)
{
    int n =
        snprintf(out, size, r->n_prompt ? "pp%d" : "tg%d", r->n_prompt ? r->n_prompt : r->n_gen);
    if (r->n_parallel > 1) n += snprintf(out + n, size - (size_t)n, " x%d", r->n_parallel);
    if (b->depth) snprintf(out + n, size - (size_t)n, " @ d%d", b->depth);
}

static void write_table(const bench *b, const result *results, int n, rvi_buf *out)
{
    char type[96];
    model_type(b, type, sizeof type);
    rvi_buf_printf(out, "model    %s, %.1f MiB of weights\n", type, b->load.model_bytes / 1048576);
    rvi_buf_printf(out, "machine  %s, %d thread%s, %s, KV %s\n", b->cpu[0] ? b->cpu : "unknown CPU",
                   b->threads, b->threads == 1 ? "" : "s", rv_runtime_isa(b->model.rt), kv_name(b));
    if (b->gpu[0])
        rvi_buf_printf(out, "gpu      %s, %d of %d layers, %.0f MiB of its memory in use\n", b->gpu,
                       b->info.gpu_layers, b->info.n_layers, b->gpu_used / 1048576);
    rvi_buf_printf(out, "program  ruvllm %s, commit %s\n\n", rv_version(), cli_commit());
    rvi_buf_printf(out, "%-20s %22s %16s %14s %8s %10s\n", "test", "tok/s", "each sequence",
                   "first token", "GB/s", "peak RSS");
    for (int i = 0; i < n; i++) {
        const result *r = &results[i];
        figures f = figures_of(b, r);
        char name[64], each[24] = "", first[24] = "", gbps[24] = "", rss[24] = "";
        test_name(b, r, name, sizeof name);
        if (r->n_parallel > 1) snprintf(each, sizeof each, "%.2f", f.avg_ts / r->n_parallel);
        if (r->ttft_ms > 0) snprintf(first, sizeof first, "%.1f ms", r->ttft_ms);
        if (f.gbps > 0) snprintf(gbps, sizeof gbps, "%.2f", f.gbps);
        if (r->peak_rss) snprintf(rss, sizeof rss, "%.0f MiB", (double)r->peak_rss / 1048576);
        rvi_buf_printf(out, "%-20s %11.2f \xc2\xb1 %8.2f %16s %14s %8s %10s\n", name, f.avg_ts,
                       f.stddev_ts, each, first, gbps, rss);
    }
    for (int i = 0; i < n; i++) {
        figures f = figures_of(b, &results[i]);
        char name[64];
        test_name(b, &results[i], name, sizeof name);
        if (f.share > 0)
            rvi_buf_printf(out,
                           "\n%s reads weights at %.0f %% of the rate of copies in the gpu's "
                           "memory, %.0f GB/s\n",
                           name, 100 * f.share, b->copy_gbps);
    }
}

/* ---- where the time goes ---- */

typedef struct peaks {
    double read, int8; /* bytes, operations a second; 0: unknown */
} peaks;

/* What all threads together can read from a set of the weights' size, and the fastest int8 loop. */
static rv_status measure_peaks(const bench *b, peaks *out, rv_error *err)
{
    rvi_arena arena = {0};
    const rvi_json *d;
    char *text = NULL;
    rv_status st = rv_runtime_describe(b->model.rt, 1, &text, err);
    if (!st) st = rvi_json_parse(&d, text, strlen(text), &arena, "description", err);
    if (!st) {
        const rvi_json *measured = rvi_json_get(d, "measured"),
                       *read = rvi_json_get(rvi_json_get(measured, "read_gbps"), "sets");
        for (size_t i = 0; i < rvi_json_count(read); i++) {
            const rvi_json *set = rvi_json_at(read, i);
            out->read = 1e9 * rvi_json_number(rvi_json_get(set, "all_threads"), 0);
            if (rvi_json_number(rvi_json_get(set, "bytes"), 0) >= b->load.token_bytes) break;
        }
        out->int8 =
            1e9 * rvi_json_number(rvi_json_get(rvi_json_get(measured, "int8"), "gops_all"), 0);
    }
    rv_free(text);
    rvi_arena_deinit(&arena);
    return st;
}

static void put_rate(rvi_buf *out, double amount, double seconds, double peak)
{
    if (amount <= 0 || seconds <= 0)
        rvi_buf_printf(out, " %10s %6s", "", "");
    else if (peak > 0)
        rvi_buf_printf(out, " %10.1f %5.0f%%", amount / seconds / 1e9,
                       100 * amount / seconds / peak);
    else
        rvi_buf_printf(out, " %10.1f %6s", amount / seconds / 1e9, "");
}

static rv_status write_ops(const bench *b, const result *r, const peaks *peak, rvi_buf *out,
                           rv_error *err)
{
    rvi_arena arena = {0};
    const rvi_json *list;
    char name[64];
    rv_status st = rvi_json_parse(&list, r->ops, strlen(r->ops), &arena, "profile", err);
    if (st) return st;
    double wall = 0, known = 0;
    for (int i = 0; i < r->n; i++) wall += r->ns[i] * 1e-9;
    test_name(b, r, name, sizeof name);
    rvi_buf_printf(out, "\n%-48s %8s %9s %6s %10s %6s %10s %6s\n", name, "calls", "ms", "share",
                   "GB/s", "roof", "GOP/s", "roof");
    for (size_t i = 0; i < rvi_json_count(list); i++) {
        const rvi_json *o = rvi_json_at(list, i);
        double seconds = rvi_json_number(rvi_json_get(o, "seconds"), 0);
        known += seconds;
        rvi_buf_printf(out, "%-48s %8.0f %9.2f %5.1f%%", rvi_json_string(rvi_json_get(o, "op"), ""),
                       rvi_json_number(rvi_json_get(o, "calls"), 0) / r->n, 1e3 * seconds / r->n,
                       100 * seconds / wall);
        put_rate(out, rvi_json_number(rvi_json_get(o, "bytes"), 0), seconds, peak->read);
        put_rate(out, rvi_json_number(rvi_json_get(o, "operations"), 0), seconds, peak->int8);
        rvi_buf_puts(out, "\n");
    }
    rvi_buf_printf(out, "%-48s %8s %9.2f %5.1f%%\n", "the rest", "", 1e3 * (wall - known) / r->n,
                   100 * (wall - known) / wall);
    rvi_arena_deinit(&arena);
    return RV_OK;
}

/* ---- the command ---- */

/* Model, CPU, and what its weights are. */
static rv_status look(bench *b, rv_error *err)
{
    rvi_arena arena = {0};
    const rvi_json *d;
    char *model = NULL, *machine = NULL;
    rv_status st = RV_OK;
    b->info = *rv_model_get_info(b->model.m);
    if (st) return rvi_error(err, st, "no information about the model");
    if (!(st = rv_model_describe(b->model.m, 1, &model, err)) &&
        !(st = rvi_json_parse(&d, model, strlen(model), &arena, "description", err)) &&
        !cli_load_of_model(&b->load, d))
        st = rvi_error(err, RV_E_INVALID, "%s generates no text, so there is nothing to measure",
                       b->name);
    if (!st) st = rv_runtime_describe(b->model.rt, 0, &machine, err);
    if (!st) st = rvi_json_parse(&d, machine, strlen(machine), &arena, "description", err);
    if (!st) {
        const char *cpu = rvi_json_string(rvi_json_get(rvi_json_get(d, "cpu"), "name"), "");
        snprintf(b->cpu, sizeof b->cpu, "%s", cpu);
        b->threads = (int)rvi_json_int(rvi_json_get(d, "threads"), 0);
        snprintf(b->gpu, sizeof b->gpu, "%s",
                 rvi_json_string(rvi_json_get(rvi_json_get(d, "gpu"), "name"), ""));
        b->split = b->gpu[0] && b->info.gpu_layers < b->info.n_layers;
    }
    rv_free(model);
    rv_free(machine);
    rvi_arena_deinit(&arena);
    return st;
}

/* The card after the tests. Memory for copies need not be left. */
static rv_status look_at_gpu(bench *b, rv_error *err)
{
    rvi_arena arena = {0};
    const rvi_json *d;
    char *text = NULL;
    if (!b->gpu[0]) return RV_OK;
    rv_status st = rv_runtime_describe(b->model.rt, 0, &text, err);
    if (!st) st = rvi_json_parse(&d, text, strlen(text), &arena, "description", err);
    if (!st) {
        const rvi_json *gpu = rvi_json_get(d, "gpu");
        b->gpu_used = rvi_json_number(rvi_json_get(gpu, "total"), 0) -
                      rvi_json_number(rvi_json_get(gpu, "available"), 0);
    }
    rv_free(text);
    text = NULL;
    if (!st && !rv_runtime_describe(b->model.rt, 2, &text, NULL) &&
        !rvi_json_parse(&d, text, strlen(text), &arena, "description", NULL))
        b->copy_gbps = rvi_json_number(
            rvi_json_get(rvi_json_get(rvi_json_get(d, "gpu"), "measured"), "copy_gbps"), 0);
    rv_free(text);
    rvi_arena_deinit(&arena);
    return st;
}

static rv_status set_up(cli *c, bench *b, rv_error *err)
{
    rv_kv_type kv;
    rv_engine_options o;
    rvi_rng rng = {1};
    int longest = RVI_MAX(b->n_prompt, b->n_gen), parallel = b->n_gen ? b->parallel : 1;
    int per_sequence = (b->depth + longest + 31) / 32 * 32 + 32; /* whole pages, one to spare */
    if (per_sequence > MAX_TOKENS / parallel)
        return rvi_error(err, RV_E_CONFIG, "%d sequences of %d tokens are too many", parallel,
                         b->depth + longest);
    c->gpu_tokens = per_sequence * parallel;
    rv_status st = cli_open(c, b->name, false, &b->model, err);
    if (!st) st = cli_kv_type(c, &kv, err);
    if (!st) st = look(b, err);
    if (st) return st;
    b->kv = kv != RV_KV_DEFAULT ? kv : c->exact ? RV_KV_F32 : RV_KV_F16;
    o = (rv_engine_options){.size = sizeof o};
    o.n_tokens = per_sequence * parallel;
    o.max_rows = step_rows(b);
    o.max_logits = parallel;
    o.kv_type = b->kv;
    if ((st = rv_engine_new(&b->engine, b->model.m, &o, err))) return st;
    b->n_ids = (size_t)b->depth + (size_t)longest + (size_t)parallel;
    b->ids = rvi_alloc_array(b->n_ids, sizeof *b->ids);
    if (!b->ids) return rvi_nomem(err, "token ids");
    for (size_t i = 0; i < b->n_ids; i++)
        b->ids[i] = (int32_t)(rvi_rng_u64(&rng) % (uint64_t)b->info.n_vocab);
    if (b->info.bos >= 0) b->ids[0] = b->info.bos;
    return RV_OK;
}

static int check(const cli *c, const bench *b)
{
    if (b->n_prompt < 0 || b->n_gen < 0 || b->depth < 0)
        return cli_usage(c, "-p, -n and -d must not be negative");
    if (!b->n_prompt && !b->n_gen) return cli_usage(c, "-p 0 and -n 0 leave nothing to measure");
    if (RVI_MAX(RVI_MAX(b->n_prompt, b->n_gen), b->depth) > MAX_TOKENS)
        return cli_usage(c, "-p, -n and -d must be at most %d", MAX_TOKENS);
    if (b->repeat < 1 || b->repeat > MAX_REPEAT)
        return cli_usage(c, "-r must be 1..%d (got %d)", MAX_REPEAT, b->repeat);
    if (b->parallel < 1 || b->parallel > MAX_PARALLEL)
        return cli_usage(c, "--parallel must be 1..%d (got %d)", MAX_PARALLEL, b->parallel);
    return CLI_OK;
}

int cli_bench(cli *c, int argc, char **argv)
{
    static const bench none = {.n_prompt = 512, .n_gen = 128, .repeat = 5, .parallel = 1};
    bench b = none;
    bench_load load = {0};
    const char *draft = NULL;
    bool json = false, csv = false, service = false, done;
    const cli_option table[] = {{"prompt", 'p', CLI_INT, &b.n_prompt, NULL},
                                {"tokens", 'n', CLI_INT, &b.n_gen, NULL},
                                {"depth", 'd', CLI_INT, &b.depth, NULL},
                                {"repeat", 'r', CLI_INT, &b.repeat, NULL},
                                {"parallel", 0, CLI_INT, &b.parallel, NULL},
                                {"ops", 0, CLI_FLAG, &b.ops, NULL},
                                {"json", 0, CLI_FLAG, &json, NULL},
                                {"csv", 0, CLI_FLAG, &csv, NULL},
                                {"service", 0, CLI_FLAG, &service, NULL},
                                {"draft", 0, CLI_TEXT, &draft, NULL},
                                {"rate", 0, CLI_FLOAT, &load.rate, NULL},
                                {"long", 0, CLI_INT, &load.long_one, NULL},
                                {"shared", 0, CLI_INT, &load.shared, NULL},
                                {"token-ms", 0, CLI_FLOAT, &load.token_ms, NULL}};
    const char *args[1];
    int n_args, code = cli_parse(c, table, RVI_COUNT(table), argc, argv, args, 1, &n_args, &done);
    if (code || done) return code;
    if (!n_args) return cli_usage(c, CLI_MODEL_NEEDED);
    if (json + csv + b.ops > 1) return cli_usage(c, "give one of --json, --csv and --ops");
    if ((code = check(c, &b))) return code;
    if (!service && (load.rate > 0 || load.long_one || load.shared || load.token_ms > 0))
        return cli_usage(c, "--rate, --long, --shared and --token-ms need --service");
    if (service) {
        if (draft) return cli_usage(c, "give one of --service and --draft");
        if (csv || b.ops || b.depth) return cli_usage(c, "--service takes no --csv, --ops and -d");
        if (!b.n_prompt || !b.n_gen) return cli_usage(c, "--service needs -p and -n above 0");
        load.name = args[0];
        load.n_prompt = b.n_prompt;
        load.n_gen = b.n_gen;
        load.clients = b.parallel;
        load.repeat = b.repeat;
        load.json = json;
        return cli_bench_service(c, &load);
    }

    if (draft) {
        if (csv || b.ops || b.depth || b.parallel != 1)
            return cli_usage(c, "--draft takes no --csv, --ops, -d and --parallel");
        if (!*draft) return cli_usage(c, "--draft must be a model or ngram (got '')");
        bench_guesses g = {args[0], draft, b.n_prompt, b.n_gen, b.repeat, json};
        return cli_bench_draft(c, &g);
    }

    rv_error err = {0};
    rvi_buf out = {0};
    result results[2] = {{0}};
    int n = 0;
    b.name = args[0];
    b.n_all = ((b.n_prompt > 0) + (b.n_gen > 0)) * (b.repeat + 1);
    rv_status st = set_up(c, &b, &err);
    if (!st && b.n_prompt) st = run_test(&b, true, &results[n++], &err);
    if (!st && b.n_gen) st = run_test(&b, false, &results[n++], &err);
    cli_progress_end(&b.bar);
    peaks peak = {0};
    if (!st) st = look_at_gpu(&b, &err);
    if (!st && b.ops) st = measure_peaks(&b, &peak, &err);
    if (!st) {
        (json ? write_json : csv ? write_csv : write_table)(&b, results, n, &out);
        for (int i = 0; !st && b.ops && i < n; i++)
            st = write_ops(&b, &results[i], &peak, &out, &err);
        if (!json && !csv && out.data) cli_hush(out.data, out.len);
        code = cli_print(&out);
    }
    for (int i = 0; i < n; i++) {
        rvi_free(results[i].ns);
        rv_free(results[i].ops);
    }
    free_sessions(&b);
    rv_engine_free(&b.engine);
    rvi_free(b.ids);
    cli_close(&b.model);
    return st ? cli_fail(&err) : code;
}
