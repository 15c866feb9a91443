/* adapters.c - what adapters cost in a batch: build/bench/adapters MODEL [rank [rows [threads
 * [word...]]]].
 *
 * Random adapters on every linear layer of the layers, or (qv) on q and v alone, as PEFT makes them
 * if it is not told otherwise; f16: as they are before they are sealed. Each round computes the
 * same batch, one row of each sequence and its logits (an encoder: one text), without an adapter,
 * with one for all rows and with one for each row, after each other, so that a busy machine slows
 * all three; CPU time of the process, medians over the rounds. text: rows are a prompt, with one
 * adapter or none. cuda: on a GPU, and time by the clock; then also how long the host took
 * to start the layers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "program.h"

#include "base/compat.h"
#include "base/mem.h"
#include "base/os.h"
#include "base/rng.h"
#include "model/model.h"

enum { MAX_ROWS = 2048, MAX_SEQS = 64, PAST = 96, ROUNDS = 41, WAYS = 3 };

static float *random_floats(rvi_rng *rng, size_t n)
{
    float *x = rvi_alloc_array(n, sizeof *x);
    if (!x) exit(1);
    for (size_t i = 0; i < n; i++) x[i] = (float)(rvi_rng_double(rng) - 0.5) * 0.02f;
    return x;
}

static bool is_q_or_v(const rvi_lora_target *t)
{
    return strstr(t->gguf_name, "attn_q") || strstr(t->gguf_name, "attn_v");
}

static rvi_adapter *random_adapter(const rvi_model *m, int rank, bool qv, bool f16, uint64_t seed)
{
    rvi_rng rng = {seed};
    rvi_adapter *a;
    must(rvi_adapter_new(&a, m->be, m->n_targets, &err));
    for (int i = 0; i < m->n_targets; i++) {
        const rvi_lora_target *t = &m->targets[i];
        if ((m->head.w && i == m->head.slot) || (qv && !is_q_or_v(t))) continue;
        float *ma = random_floats(&rng, (size_t)rank * (size_t)t->n_in);
        float *mb = random_floats(&rng, (size_t)rank * (size_t)t->n_out);
        must(rvi_adapter_put(a, i, t, rank, 1, ma, mb, &err));
        rvi_free(ma);
        rvi_free(mb);
    }
    if (!f16) must(rvi_adapter_seal(a, &err));
    return a;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

typedef struct bench {
    rvi_model *m;
    rvi_workspace *ws;
    rvi_pages *pool;
    rvi_seq seqs[MAX_SEQS];
    rvi_row rows[MAX_ROWS];
    rvi_adapter *adapters[MAX_SEQS];
    rvi_adapter_use uses[MAX_SEQS];
    rvi_adapter_set sets[MAX_SEQS];
    int n_rows, n_seqs, n_adapters;
    bool on_gpu, is_text;
} bench;

/* Rows of sequences stand behind a past that is all zeros. */
static void make_rows(bench *b)
{
    int len = b->is_text ? b->n_rows : PAST + 1;
    rvi_kv_spec spec = rvi_model_kv_spec(b->m, RV_KV_F16, b->n_seqs * (len / RVI_PAGE_TOKENS + 1));
    must(rvi_pages_new(&b->pool, b->m->be, &spec, &err));
    for (int i = 0; i < b->n_seqs; i++) {
        must(rvi_seq_init(&b->seqs[i], b->pool, len, &err));
        must(rvi_seq_extend(&b->seqs[i], len, &err));
    }
    for (int i = 0; i < b->n_rows; i++)
        b->rows[i] = (rvi_row){.seq = &b->seqs[b->is_text ? 0 : i],
                               .pos = b->is_text ? i : PAST,
                               .token = 100 + 7 * (i % 64)};
}

static double now(const bench *b)
{
    return b->on_gpu ? rvi_os_seconds() : cpu_seconds();
}

/* started: when the host had nothing more to do for the layers. */
static double measure(bench *b, int way, double *started)
{
    for (int i = 0; i < b->n_rows; i++)
        b->rows[i].adapters = way ? &b->sets[way == 1 ? 0 : i] : NULL;
    static int32_t which[MAX_ROWS];
    int n = b->is_text ? 1 : b->n_rows;
    for (int i = 0; i < n; i++) which[i] = b->n_rows - n + i;
    double begun = now(b);
    rvi_model_forward(b->m, b->ws, b->rows, b->n_rows);
    *started = now(b) - begun;
    if (!b->m->arch->is_encoder) (void)rvi_model_logits(b->m, b->ws, b->rows, which, n);
    must(b->m->be->ops->check(b->m->be, &err));
    return now(b) - begun;
}

static bool has_word(int argc, char **argv, const char *word)
{
    for (int i = 5; i < argc; i++)
        if (!strcmp(argv[i], word)) return true;
    return false;
}

int main(int argc, char **argv)
{
    static bench b;
    static double times[WAYS][ROUNDS], starts[WAYS][ROUNDS];
    static const char *const names[WAYS] = {"no adapter", "one adapter", "one for each row"};
    if (argc < 2) {
        fprintf(stderr, "usage: adapters MODEL [rank [rows [threads [qv] [f16] [text] [cuda]]]]\n");
        return 2;
    }
    int rank = argc > 2 ? atoi(argv[2]) : 8, threads = argc > 4 ? atoi(argv[4]) : 1;
    bool qv = has_word(argc, argv, "qv"), f16 = has_word(argc, argv, "f16");
    b.on_gpu = has_word(argc, argv, "cuda");
    b.n_rows = argc > 3 ? atoi(argv[3]) : 8;
    rvi_backend *be;
    rvi_source *source;
    must(b.on_gpu ? rvi_backend_cuda_new(&be, &(rvi_cuda_options){.n_threads = threads}, NULL, &err)
                  : rvi_backend_cpu_new(&be, &(rvi_cpu_options){.n_threads = threads}, NULL, &err));
    must(rvi_source_open(&source, argv[1], &err));
    must(rvi_model_new(&b.m, be, source, NULL, &err));
    bool text = has_word(argc, argv, "text");
    b.is_text = b.m->arch->is_encoder || text;
    b.n_seqs = b.is_text ? 1 : b.n_rows;
    b.n_adapters = text ? 1 : b.n_rows;
    int most = text ? MAX_ROWS : MAX_SEQS, ways = text ? WAYS - 1 : WAYS;
    if (rank < 1 || rank > RVI_MAX_RANK || b.n_rows < 1 || b.n_rows > most || threads < 1) {
        fprintf(stderr, "rank must be 1..%d, rows 1..%d\n", RVI_MAX_RANK, most);
        return 2;
    }
    must(rvi_workspace_new(&b.ws, b.m, b.n_rows, b.n_rows, &err));
    make_rows(&b);
    for (int i = 0; i < b.n_adapters; i++) {
        b.adapters[i] = random_adapter(b.m, rank, qv, f16, (uint64_t)i + 1);
        b.uses[i] = (rvi_adapter_use){b.adapters[i], 1};
        b.sets[i] = (rvi_adapter_set){.uses = &b.uses[i], .n = 1, .serial = (uint64_t)i + 1};
    }
    for (int r = -3; r < ROUNDS; r++) /* the first ones warm up */
        for (int w = 0; w < ways; w++) {
            double started, s = measure(&b, w, &started);
            if (r >= 0) times[w][r] = s, starts[w][r] = started;
        }
    for (int w = 0; w < ways; w++) {
        qsort(times[w], ROUNDS, sizeof times[w][0], by_value);
        qsort(starts[w], ROUNDS, sizeof starts[w][0], by_value);
        printf("%-16s %8.3f ms, best %8.3f ms, %5.1f %% of none's rate", names[w],
               times[w][ROUNDS / 2] * 1e3, times[w][0] * 1e3,
               100 * times[0][ROUNDS / 2] / times[w][ROUNDS / 2]);
        if (b.on_gpu) printf(", started in %.3f ms", starts[w][ROUNDS / 2] * 1e3);
        printf("\n");
    }
    for (int i = 0; i < b.n_adapters; i++) rvi_adapter_free(b.adapters[i]);
    for (int i = 0; i < b.n_seqs; i++) rvi_seq_deinit(&b.seqs[i]);
    rvi_workspace_free(b.ws);
    rvi_pages_free(b.pool);
    rvi_model_free(b.m);
    be->ops->free(be);
    return 0;
}
