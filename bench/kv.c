/* kv.c - what the types of KV cache cost and save: build/bench/kv MODEL TEXT [tokens [windows
 * [threads [exact]]]].
 *
 * Windows of the text are read once with each type. Of the second half of every window: perplexity,
 * the mean Kullback-Leibler divergence from the f16 cache's distribution of the next token, that of
 * the worst window, and how often the likeliest token stays the same. What f32 differs is what any
 * small change of a key does: products round activations to 8 bits, unless exact. Then, behind the
 * last window, the bytes of the pages, and the CPU time of the process for a token, and how much
 * more the slowest of 64 takes, of which two fill a page and another one becomes cold; the types
 * take turns, so that a busy machine slows them all. 0 windows: no quality, and tokens instead of
 * text (for models without meaning). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "program.h"

#include "api/api.h"
#include "base/mem.h"
#include "decode/logprobs.h"

enum { ROWS = 256, LOGITS = 32, TOKENS = 64, TYPES = 5 };

static const struct {
    const char *name;
    rv_kv_type type;
} types[TYPES] = {
    {"f16", RV_KV_F16},   {"f32", RV_KV_F32},       {"q8", RV_KV_Q8},
    {"warm", RV_KV_WARM}, {"tiered", RV_KV_TIERED},
};

typedef struct cache {
    rvi_pages *pool;
    rvi_seq seq;
    double log_p, divergence, same, worst; /* worst: divergence of a window, a token */
    size_t bytes, bytes_read;              /* of the pages: now, behind the last window */
    double seconds[TOKENS];
} cache;

typedef struct bench {
    rv_model *m;
    rvi_workspace *ws;
    rvi_row rows[ROWS];
    cache caches[TYPES];
    float *log_ps; /* [ROWS][n_vocab] of f16 */
    size_t n_scored;
} bench;

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int best_of(const float *x, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

/* A row of logits becomes ln p in the first cache, and is compared with that in the others. */
static void judge(bench *b, cache *c, const float *logits, int row, int32_t next)
{
    int n = b->m->model->hp.n_vocab;
    float *base = b->log_ps + (size_t)row * (size_t)n;
    double all = rvi_log_sum_exp(logits, n), sum = 0;
    c->log_p += (double)logits[next] - all;
    if (c == b->caches)
        for (int i = 0; i < n; i++) base[i] = (float)((double)logits[i] - all);
    for (int i = 0; i < n; i++)
        sum += exp((double)base[i]) * ((double)base[i] - ((double)logits[i] - all));
    c->divergence += sum;
    c->same += best_of(base, n) == best_of(logits, n);
}

static void compute(bench *b, cache *c, const int32_t *ids, int n)
{
    const rvi_backend *be = b->m->model->be;
    size_t before = atomic_load(&be->memory->kv);
    int at = c->seq.len;
    must(rvi_seq_extend(&c->seq, n, &err));
    for (int i = 0; i < n; i++)
        b->rows[i] = (rvi_row){.seq = &c->seq, .pos = at + i, .token = ids[i]};
    rvi_model_forward(b->m->model, b->ws, b->rows, n);
    c->bytes += atomic_load(&be->memory->kv) - before;
}

static void read_window(bench *b, const int32_t *ids, int n, bool judged)
{
    for (int t = 0; t < TYPES; t++) rvi_seq_truncate(&b->caches[t].seq, 0);
    for (int at = 0; at < n; at += ROWS)
        for (int t = 0; t < TYPES; t++) {
            int rows = RVI_MIN(ROWS, n - at), from = RVI_MAX(n / 2 - at, 0),
                to = RVI_MIN(rows, n - 1 - at);
            compute(b, &b->caches[t], ids + at, rows);
            for (int k; judged && from < to; from += k) {
                int32_t which[LOGITS];
                k = RVI_MIN(to - from, LOGITS);
                for (int i = 0; i < k; i++) which[i] = from + i;
                const float *logits = rvi_model_logits(b->m->model, b->ws, b->rows, which, k);
                for (int i = 0; i < k; i++)
                    judge(b, &b->caches[t], logits + (size_t)i * (size_t)b->m->model->hp.n_vocab,
                          from + i, ids[at + from + i + 1]);
                b->n_scored += t ? 0 : (size_t)k;
            }
        }
}

static void read_and_compare(bench *b, const int32_t *ids, int n, bool judged)
{
    double before[TYPES];
    size_t n_before = b->n_scored;
    for (int t = 0; t < TYPES; t++) before[t] = b->caches[t].divergence;
    read_window(b, ids, n, judged);
    for (int t = 0; judged && t < TYPES; t++) {
        cache *c = &b->caches[t];
        double own = (c->divergence - before[t]) / (double)(b->n_scored - n_before);
        c->worst = RVI_MAX(c->worst, own);
    }
}

static void decode(bench *b, const int32_t *ids)
{
    for (int i = 0; i < TOKENS; i++)
        for (int t = 0; t < TYPES; t++) {
            cache *c = &b->caches[t];
            double start = cpu_seconds();
            compute(b, c, ids + i, 1);
            /* of one precision the whole pool is there: what these pages take of it */
            if (!i)
                c->bytes_read = rvi_pages_is_tiered(c->pool)
                                    ? c->bytes
                                    : (size_t)c->seq.n_pages * rvi_pages_bytes(c->pool);
            (void)rvi_model_logits(b->m->model, b->ws, b->rows, (int32_t[]){0}, 1);
            c->seconds[i] = cpu_seconds() - start;
        }
}

static int32_t *read_text(const bench *b, const char *path, size_t *n)
{
    int32_t *ids;
    FILE *f = fopen(path, "rb");
    static char text[1 << 20];
    if (!f) {
        fprintf(stderr, "cannot read %s\n", path);
        exit(1);
    }
    must(rv_tokenize(b->m, text, fread(text, 1, sizeof text, f), 0, &ids, n, &err));
    fclose(f);
    return ids;
}

int main(int argc, char **argv)
{
    static bench b;
    rv_runtime *rt;
    if (argc < 3) {
        fprintf(stderr, "usage: kv MODEL TEXT [tokens [windows [threads [exact]]]]\n");
        return 2;
    }
    int n = argc > 3 ? atoi(argv[3]) : 4096, windows = argc > 4 ? atoi(argv[4]) : 4;
    if (n < 64 || n > 1 << 16 || windows < 0) {
        fprintf(stderr, "tokens must be 64..65536, windows 0 or more\n");
        return 2;
    }
    rv_runtime_options ro = {.size = sizeof ro,
                             .n_threads = argc > 5 ? atoi(argv[5]) : 1,
                             .exact = argc > 6 && !strcmp(argv[6], "exact")};
    must(rv_runtime_new(&rt, &ro, &err));
    must(rv_model_open(&b.m, rt, argv[1], NULL, &err));
    size_t n_ids;
    int32_t *ids = read_text(&b, argv[2], &n_ids);
    int read = RVI_MAX(windows, 1);
    if (n_ids < (size_t)(read * n + TOKENS)) {
        fprintf(stderr, "the text has only %zu tokens\n", n_ids);
        return 2;
    }
    const rvi_model *m = b.m->model;
    must(rvi_workspace_new(&b.ws, m, ROWS, LOGITS, &err));
    b.log_ps = rvi_alloc_array((size_t)ROWS * (size_t)m->hp.n_vocab, sizeof *b.log_ps);
    if (!b.log_ps) return 1;
    for (int t = 0; t < TYPES; t++) {
        size_t before = atomic_load(&m->be->memory->kv);
        rvi_kv_spec spec = rvi_model_kv_spec(m, types[t].type, (n + TOKENS) / RVI_PAGE_TOKENS);
        must(rvi_pages_new(&b.caches[t].pool, m->be, &spec, &err));
        must(rvi_seq_init(&b.caches[t].seq, b.caches[t].pool, n + TOKENS, &err));
        b.caches[t].bytes = atomic_load(&m->be->memory->kv) - before;
    }
    for (int w = 0; w < read; w++) read_and_compare(&b, ids + w * n, n, windows > 0);
    decode(&b, ids + (read - 1) * n);
    double base_seconds = 0, base_ppl = 0, base_bytes = 0;
    printf("%s, %d tokens, %d windows, %d thread(s)\n", argv[1], n, windows, ro.n_threads);
    for (int t = 0; t < TYPES; t++) {
        cache *c = &b.caches[t];
        qsort(c->seconds, TOKENS, sizeof c->seconds[0], by_value);
        double seconds = c->seconds[TOKENS / 2], bytes = (double)c->bytes_read;
        if (!t) base_seconds = seconds;
        printf("%-7s", types[t].name);
        if (windows) {
            double ppl = exp(-c->log_p / (double)b.n_scored);
            if (!t) base_ppl = ppl;
            printf(" ppl %8.4f (%+.3f %%)  KL %.6f, worst %.6f  same top %.2f %%", ppl,
                   100 * (ppl / base_ppl - 1), c->divergence / (double)b.n_scored, c->worst,
                   100 * c->same / (double)b.n_scored);
        }
        if (!t) base_bytes = bytes;
        printf("  %.3f ms a token (%.2f x), slowest %+.2f ms  %.1f MB (%.3f x)\n", 1e3 * seconds,
               base_seconds / seconds, 1e3 * (c->seconds[TOKENS - 1] - seconds), bytes * 1e-6,
               bytes / base_bytes);
    }
    for (int t = 0; t < TYPES; t++) {
        rvi_seq_deinit(&b.caches[t].seq);
        rvi_pages_free(b.caches[t].pool);
    }
    rvi_free(b.log_ps);
    rvi_workspace_free(b.ws);
    rv_free(ids);
    rv_model_close(&b.m);
    rv_runtime_free(&rt);
    return 0;
}
