/* bench --service: many clients of one service in this process, as they see it.
 *
 * Closed loop: rounds of `clients` requests at once, each followed by the same load on an engine
 * without a scheduler (all prompts started, advanced until all have ended): the ratio is what the
 * scheduler costs. Rounds alternate, so that a busy machine disturbs both, and medians are shown;
 * the CPU time of a token (all threads of the process) is what other programs disturb least.
 * Open loop: requests arrive at random (Poisson) whether or not others have ended. Times are taken
 * where events arrive. Prompts are random ids, answers greedy and of fixed length. */
#include "cli/bench_service.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "base/os.h"
#include "base/rng.h"
#include "ruvllm_service.h"

enum {
    MAX_CLIENTS = 256,
    STREAM = 256,      /* tokens of a stream beside a long prompt */
    OPEN_AT_ONCE = 32, /* answers under way in the open loop; others wait */
    OPEN_LEAST = 12    /* requests there */
};

typedef struct samples {
    double *v;
    size_t n, cap;
} samples;

typedef struct client {
    double sent, last; /* seconds; last: of its latest token, 0: none yet */
    double last_cpu;   /* the process's CPU time then */
    bool quiet;        /* not part of the figures */
    bool ended;
} client;

typedef struct bench {
    const bench_load *load;
    cli_model model;
    rv_kv_type kv;
    int n_vocab;
    rvi_rng rng;
    int32_t *ids; /* of one prompt */
    rv_service *svc;
    client clients[MAX_CLIENTS];
    samples first, gaps;
    samples
        cpu_gaps; /* CPU time between two tokens of a stream: other programs have no part in it */
    int n_ended;
    size_t n_tokens;
    rv_memory memory; /* when the clients of the closed loop had all been there */
    uint64_t kept;    /* bytes of KV pages that were merely kept then */
} bench;

/* What one kind of load showed. */
typedef struct figures {
    char name[64];
    int requests;
    double rate;             /* tokens a second */
    double share;            /* of the engine's; 0: not compared */
    double cpu;              /* seconds of a token; 0: not measured */
    double first[2], gap[2]; /* seconds: median, 95 % */
    double cpu_gap[2];
} figures;

/* ---- figures ---- */

static bool add_sample(samples *s, double v)
{
    if (s->n == s->cap) {
        size_t cap = s->cap ? 2 * s->cap : 1024;
        double *more = rvi_realloc_array(s->v, cap, sizeof *more);
        if (!more) return false;
        s->v = more;
        s->cap = cap;
    }
    s->v[s->n++] = v;
    return true;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double quantile(samples *s, double q)
{
    if (!s->n) return 0;
    qsort(s->v, s->n, sizeof *s->v, by_size);
    return s->v[(size_t)(q * (double)(s->n - 1) + 0.5)];
}

static void sum_up(bench *b, figures *f)
{
    f->first[0] = quantile(&b->first, 0.5);
    f->first[1] = quantile(&b->first, 0.95);
    f->gap[0] = quantile(&b->gaps, 0.5);
    f->gap[1] = quantile(&b->gaps, 0.95);
    f->cpu_gap[0] = quantile(&b->cpu_gaps, 0.5);
    f->cpu_gap[1] = quantile(&b->cpu_gaps, 0.95);
    b->first.n = b->gaps.n = b->cpu_gaps.n = 0;
}

static double cpu_seconds(void)
{
    return (double)clock() / CLOCKS_PER_SEC;
}

/* ---- requests ---- */

static rv_generate_options answer_of(int n)
{
    static const rv_sampling greedy = {.size = sizeof greedy, .greedy = 1, .repetition_penalty = 1};
    return (rv_generate_options){.size = sizeof(rv_generate_options),
                                 .sampling = &greedy,
                                 .max_tokens = n,
                                 .ignore_eos = 1,
                                 .draft = RV_DRAFT_OFF}; /* a token of each stream in a step */
}

static void fill_ids(bench *b, int n)
{
    for (int i = 0; i < n; i++) b->ids[i] = (int32_t)(rvi_rng_u64(&b->rng) % (uint64_t)b->n_vocab);
}

static rv_status send(bench *b, client *who, int n_prompt, int n_gen, rv_error *err)
{
    rv_generate_options o = answer_of(n_gen);
    rv_request r = {
        .size = sizeof r, .ids = b->ids, .n_ids = (size_t)n_prompt, .generate = &o, .user = who};
    uint64_t id;
    who->sent = rvi_os_seconds();
    who->last = 0;
    who->ended = false;
    return rv_service_submit(b->svc, &r, &id, err);
}

static rv_status note(bench *b, const rv_service_event *ev, double now, rv_error *err)
{
    client *who = ev->user;
    bool ok = true;
    if (ev->kind == RV_SERVICE_DONE && ev->status)
        return rvi_error(err, ev->status, "%s", ev->error);
    b->n_ended += ev->kind == RV_SERVICE_END;
    who->ended = who->ended || ev->kind == RV_SERVICE_END;
    if (ev->kind != RV_SERVICE_TOKEN || ev->id < 0) return RV_OK;
    double cpu = cpu_seconds();
    if (!who->quiet && who->last > 0) ok = add_sample(&b->cpu_gaps, cpu - who->last_cpu);
    who->last_cpu = cpu;
    if (ok && !who->quiet) {
        ok = add_sample(who->last > 0 ? &b->gaps : &b->first,
                        now - (who->last > 0 ? who->last : who->sent));
        b->n_tokens++;
    }
    who->last = now;
    return ok ? RV_OK : rvi_nomem(err, "samples");
}

/* What has come, waiting for it for up to `wait` seconds. */
static rv_status listen(bench *b, double wait, rv_error *err)
{
    rv_batch *batch = NULL;
    rv_status st = rv_service_drain(b->svc, wait, &batch, err);
    double now = rvi_os_seconds();
    for (size_t i = 0; !st && batch && i < batch->n; i++) st = note(b, &batch->events[i], now, err);
    rv_free(batch);
    return st;
}

static rv_status listen_until(bench *b, int n_ended, rv_error *err)
{
    rv_status st = RV_OK;
    while (!st && b->n_ended < n_ended) st = listen(b, 10, err);
    return st;
}

static rv_status open_service(bench *b, int n_tokens, int at_once, rv_error *err)
{
    int longest = RVI_MAX(b->load->long_one, b->load->shared) + b->load->n_prompt +
                  RVI_MAX(b->load->n_gen, STREAM);
    rv_service_options o = {.size = sizeof o,
                            .n_tokens = n_tokens + longest + 64,
                            .n_context = longest + 64,
                            .max_running = at_once + 1,
                            .kv_type = b->kv,
                            .token_ms = (double)b->load->token_ms};
    return rv_service_new(&b->svc, b->model.m, &o, err);
}

/* ---- loads ---- */

static int per_request(const bench_load *l)
{
    return (l->n_prompt + l->n_gen + 31) / 32 * 32 + 32; /* whole pages, one to spare */
}

/* What a round took. */
typedef struct taken {
    double seconds, cpu;
} taken;

static taken begin(void)
{
    return (taken){rvi_os_seconds(), cpu_seconds()};
}

static taken since(taken start)
{
    return (taken){rvi_os_seconds() - start.seconds, cpu_seconds() - start.cpu};
}

/* One round of all clients without a service. */
static rv_status run_engine(bench *b, taken *round, rv_error *err)
{
    const bench_load *l = b->load;
    rv_session *sessions[MAX_CLIENTS] = {NULL};
    rv_engine *e;
    rv_engine_options eo = {.size = sizeof eo,
                            .n_tokens = per_request(l) * l->clients,
                            .max_logits = l->clients,
                            .kv_type = b->kv};
    rv_generate_options o = answer_of(l->n_gen);
    rv_status st = rv_engine_new(&e, b->model.m, &eo, err);
    for (int i = 0; !st && i < l->clients; i++) {
        rv_session_options so = {
            .size = sizeof so, .engine = e, .n_context = l->n_prompt + l->n_gen + 1};
        st = rv_session_new(&sessions[i], b->model.m, &so, err);
    }
    taken start = begin();
    for (int i = 0; !st && i < l->clients; i++) {
        fill_ids(b, l->n_prompt);
        st = rv_session_start(sessions[i], b->ids, (size_t)l->n_prompt, &o, err);
    }
    for (size_t running = 1; !st && running;) st = rv_engine_advance(e, &running, err);
    *round = since(start);
    for (int i = 0; i < l->clients; i++) rv_session_free(&sessions[i]);
    rv_engine_free(&e);
    return st;
}

static rv_status run_round(bench *b, taken *round, rv_error *err)
{
    const bench_load *l = b->load;
    rv_status st = RV_OK;
    taken start = begin();
    b->n_ended = 0;
    for (int i = 0; !st && i < l->clients; i++) {
        fill_ids(b, l->n_prompt);
        st = send(b, &b->clients[i], l->n_prompt, l->n_gen, err);
    }
    if (!st) st = listen_until(b, l->clients, err);
    *round = since(start);
    return st;
}

static rv_status look_at_memory(bench *b, rv_error *err)
{
    rv_service_metrics *m = rvi_zalloc(sizeof *m);
    if (!m) return rvi_nomem(err, "metrics");
    m->size = sizeof *m;
    b->memory.size = sizeof b->memory;
    rv_status st = rv_service_get_metrics(b->svc, m, err);
    if (!st) st = rv_runtime_memory(b->model.rt, &b->memory, err);
    b->kept = m->bytes_kept;
    rvi_free(m);
    return st;
}

static rv_status closed_loop(bench *b, figures out[2], rv_error *err)
{
    const bench_load *l = b->load;
    samples rate[2] = {{0}}, cpu[2] = {{0}};
    double tokens = (double)l->n_gen * l->clients;
    rv_status st = open_service(b, per_request(l) * l->clients, l->clients, err);
    bench_load one = *l;
    one.clients = 1;
    for (int i = -1; !st && i < l->repeat; i++) {
        b->load = i < 0 ? &one : l; /* one client to warm up */
        for (int k = 0; !st && k < 2; k++) {
            taken round;
            st = (k ? run_round : run_engine)(b, &round, err);
            if (!st && i >= 0 &&
                (!add_sample(&rate[k], tokens / round.seconds) ||
                 !add_sample(&cpu[k], round.cpu / tokens)))
                st = rvi_nomem(err, "samples");
        }
        if (i < 0) b->first.n = b->gaps.n = b->cpu_gaps.n = 0;
    }
    for (int k = 0; k < 2; k++) {
        snprintf(out[k].name, sizeof out[k].name, k ? "service x%d" : "engine x%d", l->clients);
        out[k].requests = l->repeat * l->clients;
        out[k].rate = quantile(&rate[k], 0.5);
        out[k].cpu = quantile(&cpu[k], 0.5);
        rvi_free(rate[k].v);
        rvi_free(cpu[k].v);
    }
    b->load = l;
    if (out[0].rate > 0) out[1].share = out[1].rate / out[0].rate;
    sum_up(b, &out[1]);
    if (!st) st = look_at_memory(b, err);
    rv_service_free(&b->svc);
    return st;
}

/* As many requests as in the closed loop, or a few more, at random times. */
static rv_status open_loop(bench *b, figures *out, rv_error *err)
{
    const bench_load *l = b->load;
    int n = RVI_MAX(l->repeat * l->clients, OPEN_LEAST), n_sent = 0;
    client *all = rvi_zalloc_array((size_t)n, sizeof *all);
    if (!all) return rvi_nomem(err, "clients");
    rv_status st = open_service(b, per_request(l) * OPEN_AT_ONCE, OPEN_AT_ONCE, err);
    double start = rvi_os_seconds(), next = start;
    b->n_ended = 0;
    b->n_tokens = 0;
    while (!st && b->n_ended < n) {
        double now = rvi_os_seconds();
        if (n_sent < n && now >= next) {
            fill_ids(b, l->n_prompt);
            st = send(b, &all[n_sent++], l->n_prompt, l->n_gen, err);
            next += -log(1 - rvi_rng_double(&b->rng)) / (double)l->rate;
        } else {
            st = listen(b, n_sent < n ? RVI_MIN(next - now, 10) : 10, err);
        }
    }
    snprintf(out->name, sizeof out->name, "open loop %g/s", (double)l->rate);
    out->requests = n;
    out->rate = (double)b->n_tokens / (rvi_os_seconds() - start);
    sum_up(b, out);
    rv_service_free(&b->svc);
    rvi_free(all);
    return st;
}

/* A stream of a client: its prompt is the same every time, so that it need not be read again, and
 * an answer has STREAM tokens. The first ones of n clients are at different places of theirs, as
 * they are ever after. */
static rv_status send_stream(bench *b, int i, bool is_first, rv_error *err)
{
    const bench_load *l = b->load;
    int n_done = is_first ? STREAM * i / l->clients : 0;
    rvi_rng rest = b->rng;
    b->rng = (rvi_rng){1000 + (uint64_t)i};
    fill_ids(b, l->n_prompt + n_done);
    b->rng = rest;
    return send(b, &b->clients[i], l->n_prompt + n_done, STREAM - n_done, err);
}

/* Listens to streams, each of which is followed by another, until n times between tokens were
 * measured or the reader has its first token. */
static rv_status listen_to_streams(bench *b, size_t n, const client *reader, rv_error *err)
{
    rv_status st = RV_OK;
    while (!st && (reader ? reader->last <= 0 : b->gaps.n < n)) {
        st = listen(b, 10, err);
        for (int i = 0; !st && i < b->load->clients; i++)
            if (b->clients[i].ended) st = send_stream(b, i, false, err);
    }
    return st;
}

/* Clients listen to streams; then a long prompt comes, and they go on listening, also after it has
 * been read. The time between tokens beside the prompt is compared with the mean of those before
 * and after it, each for as many steps as a stream has: of a few, one in twenty would be none. */
static rv_status beside_a_prompt(bench *b, figures out[3], rv_error *err)
{
    const bench_load *l = b->load;
    client reader = {.quiet = true};
    rv_status st = open_service(b, (per_request(l) + 2 * STREAM) * l->clients, l->clients, err);
    for (int i = 0; !st && i < l->clients; i++) st = send_stream(b, i, true, err);
    while (!st && b->first.n < (size_t)l->clients) st = listen(b, 10, err);
    for (int part = 0; !st && part < 3; part++) {
        size_t most = (size_t)STREAM * (size_t)l->clients;
        double start = rvi_os_seconds();
        b->gaps.n = b->cpu_gaps.n = b->n_tokens = 0;
        if (part == 1) {
            fill_ids(b, l->long_one);
            st = send(b, &reader, l->long_one, 1, err);
        }
        if (!st) st = listen_to_streams(b, most, part == 1 ? &reader : NULL, err);
        snprintf(out[part].name, sizeof out[part].name,
                 part == 1   ? "beside a prompt of %d"
                 : part == 0 ? "streams x%d"
                             : "streams x%d after it",
                 part == 1 ? l->long_one : l->clients);
        out[part].requests = l->clients;
        out[part].rate = (double)b->n_tokens / (rvi_os_seconds() - start);
        sum_up(b, &out[part]);
        out[part].first[0] = out[part].first[1] = part == 1 ? reader.last - reader.sent : 0;
    }
    double alone = (out[0].gap[1] + out[2].gap[1]) / 2;
    if (alone > 0) out[1].share = out[1].gap[1] / alone;
    rv_service_free(&b->svc);
    return st;
}

/* Two requests that begin with the same tokens; the times until their first tokens, as medians. */
static rv_status shared_prefix(bench *b, figures out[2], double *lookup, rv_error *err)
{
    const bench_load *l = b->load;
    samples times[2] = {{0}};
    int n = l->shared + 16;
    client who = {0};
    rv_status st = open_service(b, n * 2 * (l->repeat + 1), l->clients, err);
    for (int i = 0; !st && i < l->repeat; i++) {
        fill_ids(b, n);
        for (int k = 0; !st && k < 2; k++) {
            for (int at = l->shared; at < n; at++)
                b->ids[at] = (int32_t)(rvi_rng_u64(&b->rng) % (uint64_t)b->n_vocab);
            b->n_ended = 0;
            st = send(b, &who, n, 1, err);
            if (!st) st = listen_until(b, 1, err);
            if (!st && !add_sample(&times[k], who.last - who.sent)) st = rvi_nomem(err, "samples");
        }
    }
    rv_service_metrics *m = rvi_zalloc(sizeof *m);
    if (!st && !m) st = rvi_nomem(err, "metrics");
    if (!st) {
        m->size = sizeof *m;
        st = rv_service_get_metrics(b->svc, m, err);
        *lookup = rv_histogram_quantile(&m->lookup, 0.95);
    }
    for (int k = 0; k < 2; k++) {
        snprintf(out[k].name, sizeof out[k].name, k ? "second with %d shared" : "prompt of %d",
                 k ? l->shared : n);
        out[k].requests = l->repeat;
        out[k].first[0] = quantile(&times[k], 0.5);
        out[k].first[1] = quantile(&times[k], 0.95);
        rvi_free(times[k].v);
    }
    if (out[0].first[0] > 0) out[1].share = out[1].first[0] / out[0].first[0];
    b->first.n = b->gaps.n = b->cpu_gaps.n = 0;
    rv_service_free(&b->svc);
    rvi_free(m);
    return st;
}

/* ---- output ---- */

/* Who holds what, in MB. */
static void write_memory(const bench *b, rvi_buf *out)
{
    const rv_memory *m = &b->memory;
    const struct {
        const char *name;
        uint64_t bytes;
    } parts[] = {{"weights", m->weights},   {"KV", m->kv},     {"scratch", m->scratch},
                 {"adapters", m->adapters}, {"rest", m->heap}, {"mapped", m->mapped_resident},
                 {"program", m->program}};
    uint64_t sum = 0;
    rvi_buf_puts(out, "MB:");
    for (size_t i = 0; i < RVI_COUNT(parts); i++) {
        sum += parts[i].bytes;
        rvi_buf_printf(out, " %s %.1f%s", parts[i].name, (double)parts[i].bytes / 1e6,
                       i + 1 < RVI_COUNT(parts) ? "," : "");
    }
    rvi_buf_printf(out, ", less %.1f not used yet: %.1f, resident %.1f; of the KV %.1f kept\n",
                   (double)m->reserved / 1e6, (double)(sum - RVI_MIN(sum, m->reserved)) / 1e6,
                   (double)m->resident / 1e6, (double)b->kept / 1e6);
}

static void write_table(const bench *b, const figures *f, int n, double lookup, rvi_buf *out)
{
    rvi_buf_printf(out, "%-24s %8s %10s %7s %8s %21s %21s %19s\n", "load", "requests", "tok/s",
                   "ratio", "CPU ms", "first token, 95 %", "between tokens, 95 %",
                   "of CPU time, 95 %");
    for (int i = 0; i < n; i++) {
        char share[24] = "", first[48] = "", gap[48] = "", rate[24] = "", cpu[24] = "";
        char cpu_gap[48] = "";
        if (f[i].cpu_gap[1] > 0)
            snprintf(cpu_gap, sizeof cpu_gap, "%.1f %.1f ms", f[i].cpu_gap[0] * 1e3,
                     f[i].cpu_gap[1] * 1e3);
        if (f[i].cpu > 0) snprintf(cpu, sizeof cpu, "%.2f", f[i].cpu * 1e3);
        if (f[i].rate > 0) snprintf(rate, sizeof rate, "%.1f", f[i].rate);
        if (f[i].share > 0) snprintf(share, sizeof share, "%.3f", f[i].share);
        if (f[i].first[0] > 0)
            snprintf(first, sizeof first, "%.1f %.1f ms", f[i].first[0] * 1e3, f[i].first[1] * 1e3);
        if (f[i].gap[1] > 0)
            snprintf(gap, sizeof gap, "%.1f %.1f ms", f[i].gap[0] * 1e3, f[i].gap[1] * 1e3);
        rvi_buf_printf(out, "%-24s %8d %10s %7s %8s %21s %21s %19s\n", f[i].name, f[i].requests,
                       rate, share, cpu, first, gap, cpu_gap);
    }
    if (lookup > 0) rvi_buf_printf(out, "95 %% of look-ups took at most %.1f us\n", lookup * 1e6);
    write_memory(b, out);
}

static void write_json(const bench *b, const figures *f, int n, double lookup, rvi_buf *out)
{
    const rv_memory *m = &b->memory;
    rvi_buf_puts(out, "{\"loads\": [");
    for (int i = 0; i < n; i++)
        rvi_buf_printf(
            out,
            "%s\n  {\"name\": \"%s\", \"requests\": %d, \"tokens_per_second\": %.3f, "
            "\"ratio\": %.4f, \"cpu_ms_per_token\": %.4f, \"first_token_ms\": [%.3f, %.3f], "
            "\"between_tokens_ms\": [%.3f, %.3f], \"between_tokens_cpu_ms\": [%.3f, %.3f]}",
            i ? "," : "", f[i].name, f[i].requests, f[i].rate, f[i].share, f[i].cpu * 1e3,
            f[i].first[0] * 1e3, f[i].first[1] * 1e3, f[i].gap[0] * 1e3, f[i].gap[1] * 1e3,
            f[i].cpu_gap[0] * 1e3, f[i].cpu_gap[1] * 1e3);
    rvi_buf_printf(out,
                   "\n], \"lookup_us\": %.3f, \"bytes\": {\"weights\": %llu, \"kv\": %llu, "
                   "\"kv_kept\": %llu, \"scratch\": %llu, \"adapters\": %llu, \"mapped\": %llu, "
                   "\"program\": %llu, \"rest\": %llu, \"reserved\": %llu, \"resident\": %llu}}\n",
                   lookup * 1e6, (unsigned long long)m->weights, (unsigned long long)m->kv,
                   (unsigned long long)b->kept, (unsigned long long)m->scratch,
                   (unsigned long long)m->adapters, (unsigned long long)m->mapped_resident,
                   (unsigned long long)m->program, (unsigned long long)m->heap,
                   (unsigned long long)m->reserved, (unsigned long long)m->resident);
}

/* ---- the command ---- */

static rv_status set_up(cli *c, bench *b, rv_error *err)
{
    const bench_load *l = b->load;
    rv_status st = cli_open(c, l->name, false, &b->model, err);
    if (!st) st = cli_kv_type(c, &b->kv, err);
    if (st) return st;
    const rv_model_info *info = rv_model_get_info(b->model.m);
    if (info->is_encoder)
        return rvi_error(err, RV_E_INVALID, "%s generates no text, so there is nothing to measure",
                         l->name);
    b->n_vocab = info->n_vocab;
    b->ids =
        rvi_alloc_array((size_t)RVI_MAX(RVI_MAX(l->n_prompt + STREAM, l->long_one), l->shared + 16),
                        sizeof *b->ids);
    return b->ids ? RV_OK : rvi_nomem(err, "token ids");
}

int cli_bench_service(cli *c, const bench_load *load)
{
    bench b = {.load = load, .rng = {1}};
    figures f[8];
    int n = 0, code = CLI_OK;
    double lookup = 0;
    rv_error err = {0};
    rvi_buf out = {0};
    memset(f, 0, sizeof f);
    rv_status st = set_up(c, &b, &err);
    if (!st) st = closed_loop(&b, &f[n], &err);
    n += 2;
    if (!st && load->rate > 0) st = open_loop(&b, &f[n++], &err);
    if (!st && load->long_one) {
        st = beside_a_prompt(&b, &f[n], &err);
        n += 3;
    }
    if (!st && load->shared) {
        st = shared_prefix(&b, &f[n], &lookup, &err);
        n += 2;
    }
    if (!st) {
        (load->json ? write_json : write_table)(&b, f, n, lookup, &out);
        code = cli_print(&out);
    }
    rvi_free(b.first.v);
    rvi_free(b.gaps.v);
    rvi_free(b.cpu_gaps.v);
    rvi_free(b.ids);
    cli_close(&b.model);
    return st ? cli_fail(&err) : code;
}
