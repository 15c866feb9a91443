/* sealed.c - what 8 bits change: build/bench/sealed MODEL ADAPTER ID...
 *
 * Computes the logits of a text, given as ids, without the adapter, with it as it was before it is
 * sealed (f16), and sealed. Prints the mean and the largest divergence (KL, nats a token) of the
 * sealed one from f16 and, for scale, of no adapter from f16, and how often the likeliest token is
 * the same. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "program.h"

#include "base/compat.h"
#include "base/mem.h"
#include "lora/file.h"
#include "model/model.h"

enum { MAX_ROWS = 256 };

static void *room(size_t n)
{
    void *p = rvi_alloc_array(n, sizeof(float));
    if (!p) exit(1);
    return p;
}

/* The same values, not sealed. */
static rvi_adapter *unsealed(const rvi_model *m, const rvi_adapter *from)
{
    rvi_adapter *a;
    must(rvi_adapter_new(&a, m->be, m->n_targets, &err));
    for (int i = 0; i < m->n_targets; i++) {
        const rvi_lora_target *t = &m->targets[i];
        size_t rank = (size_t)rvi_adapter_rank(from, i);
        if (!rank) continue;
        float *ma = room(rank * (size_t)t->n_in), *mb = room(rank * (size_t)t->n_out);
        rvi_adapter_read(from, i, ma, mb);
        must(rvi_adapter_put(a, i, t, (int)rank, from->slots[i].scale, ma, mb, &err));
        rvi_free(ma);
        rvi_free(mb);
    }
    return a;
}

static float *logits_of(rvi_model *m, const rvi_adapter *a, uint64_t serial, char **ids, int n)
{
    static rvi_row rows[MAX_ROWS];
    static int32_t which[MAX_ROWS];
    rvi_adapter_use use = {a, 1};
    rvi_adapter_set set = {.uses = &use, .n = 1, .serial = serial};
    rvi_kv_spec spec = rvi_model_kv_spec(m, RV_KV_F16, n / RVI_PAGE_TOKENS + 1);
    rvi_pages *pool;
    rvi_seq seq;
    rvi_workspace *ws;
    must(rvi_pages_new(&pool, m->be, &spec, &err));
    must(rvi_seq_init(&seq, pool, n, &err));
    must(rvi_seq_extend(&seq, n, &err));
    must(rvi_workspace_new(&ws, m, MAX_ROWS, MAX_ROWS, &err));
    for (int i = 0; i < n; i++) {
        rows[i] =
            (rvi_row){.seq = &seq, .pos = i, .token = atoi(ids[i]), .adapters = a ? &set : NULL};
        which[i] = i;
    }
    rvi_model_forward(m, ws, rows, n);
    size_t len = (size_t)n * (size_t)m->hp.n_vocab;
    float *out = room(len);
    memcpy(out, rvi_model_logits(m, ws, rows, which, n), len * sizeof *out);
    rvi_workspace_free(ws);
    rvi_seq_deinit(&seq);
    rvi_pages_free(pool);
    return out;
}

static int best_of(const float *z, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++)
        if (z[i] > z[best]) best = i;
    return best;
}

static double divergence(const float *p, const float *q, int n)
{
    double sp = 0, sq = 0, sum = 0, tp = (double)p[best_of(p, n)], tq = (double)q[best_of(q, n)];
    for (int i = 0; i < n; i++) {
        sp += exp((double)p[i] - tp);
        sq += exp((double)q[i] - tq);
    }
    for (int i = 0; i < n; i++) {
        double a = (double)p[i] - tp - log(sp), b = (double)q[i] - tq - log(sq);
        sum += exp(a) * (a - b);
    }
    return sum;
}

static void compare(const char *name, const float *p, const float *q, int n, int n_vocab)
{
    double sum = 0, worst = 0;
    int same = 0;
    for (int i = 0; i < n; i++) {
        const float *a = p + (size_t)i * (size_t)n_vocab, *b = q + (size_t)i * (size_t)n_vocab;
        double d = divergence(a, b, n_vocab);
        sum += d;
        worst = fmax(worst, d);
        same += best_of(a, n_vocab) == best_of(b, n_vocab);
    }
    printf("%-10s mean %.2e, largest %.2e, the same token %d of %d\n", name, sum / n, worst, same,
           n);
}

int main(int argc, char **argv)
{
    int n = argc - 3;
    if (n < 1 || n > MAX_ROWS) {
        fprintf(stderr, "usage: sealed MODEL ADAPTER ID... (up to %d)\n", MAX_ROWS);
        return 2;
    }
    rvi_backend *be;
    rvi_source *source;
    rvi_model *m;
    rvi_adapter *sealed;
    must(rvi_backend_cpu_new(&be, &(rvi_cpu_options){.n_threads = 2}, NULL, &err));
    must(rvi_source_open(&source, argv[1], &err));
    must(rvi_model_new(&m, be, source, NULL, &err));
    must(rvi_adapter_load(&sealed, be, argv[2], m->targets, m->n_targets, m->arch->gguf_names, NULL,
                          &err));
    rvi_adapter *f16 = unsealed(m, sealed);
    float *z[] = {logits_of(m, NULL, 0, argv + 3, n), logits_of(m, f16, 1, argv + 3, n),
                  logits_of(m, sealed, 2, argv + 3, n)};
    compare("sealed", z[1], z[2], n, m->hp.n_vocab);
    compare("no adapter", z[1], z[0], n, m->hp.n_vocab);
    for (int i = 0; i < 3; i++) rvi_free(z[i]);
    rvi_adapter_free(sealed);
    rvi_adapter_free(f16);
    rvi_model_free(m);
    be->ops->free(be);
    return 0;
}
