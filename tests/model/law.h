/* law.h - the law: a row's result depends on that row alone, bit for bit. A model is run in every
 * chunking, batched with strangers, forked, on one thread and two, on every instruction set; not
 * one bit may differ from the plain run of the reference kernels on one thread. */
#ifndef TESTS_MODEL_LAW_H
#define TESTS_MODEL_LAW_H

#include "golden.h"

typedef struct subject {
    const char *path;
    const int32_t *ids;
    int n;
    rv_kv_type kv;
    bool exact;
    bool fast_only; /* too long for the reference kernels: the best ones set the standard */
} subject;

static inline void same_bits(const float *got, const float *want, size_t n, const char *path,
                             const char *how)
{
    size_t differing = 0;
    for (size_t i = 0; i < n; i++) differing += memcmp(&got[i], &want[i], sizeof got[i]) != 0;
    if (differing) fail_msg("%s: %s: %zu of %zu values differ", path, how, differing, n);
}

/* Three other sequences go through the same batches, at positions of their own; ours is in the
 * middle. */
static inline void run_with_strangers(const golden *g, const subject *s, float *out)
{
    enum { STRANGERS = 3, CHUNK = 5 };
    const rvi_model *m = g->m;
    int vocab = m->hp.n_vocab;
    rvi_kv_spec spec = rvi_model_kv_spec(m, s->kv, 64);
    rvi_pages *pool;
    rvi_seq seqs[STRANGERS + 1];
    rvi_workspace *ws;
    rvi_row rows[(STRANGERS + 1) * CHUNK];
    assert_ok(rvi_pages_new(&pool, m->be, &spec, err));
    for (int i = 0; i <= STRANGERS; i++) assert_ok(rvi_seq_init(&seqs[i], pool, 256, err));
    assert_ok(rvi_workspace_new(&ws, m, (STRANGERS + 1) * CHUNK, CHUNK, err));
    for (int at = 0; at < s->n; at += CHUNK) {
        int n_rows = 0, ours = 0, k = RVI_MIN(CHUNK, s->n - at);
        for (int q = 0; q <= STRANGERS; q++) {
            bool mine = q == 2;
            int count = mine ? k : 1 + (at + q) % CHUNK;
            int first = seqs[q].len;
            assert_ok(rvi_seq_extend(&seqs[q], count, err));
            if (mine) ours = n_rows;
            for (int i = 0; i < count; i++)
                rows[n_rows++] = (rvi_row){.seq = &seqs[q],
                                           .pos = first + i,
                                           .token = mine ? s->ids[at + i]
                                                         : (int32_t)((first + i) * 7 + q) % vocab,
                                           .rope_set = rvi_rope_set(&m->rope, s->n)};
        }
        rvi_model_forward(m, ws, rows, n_rows);
        int32_t which[CHUNK];
        for (int i = 0; i < k; i++) which[i] = ours + i;
        memcpy(out + (size_t)at * (size_t)vocab, rvi_model_logits(m, ws, rows, which, k),
               (size_t)k * (size_t)vocab * sizeof *out);
    }
    rvi_workspace_free(ws);
    for (int i = 0; i <= STRANGERS; i++) rvi_seq_deinit(&seqs[i]);
    rvi_pages_free(pool);
}

/* The second half continues a fork of the first half, while the original goes another way. */
static inline void run_forked(const golden *g, const subject *s, float *out)
{
    feed a;
    int half = s->n / 2, vocab = g->m->hp.n_vocab;
    rvi_seq original;
    feed_init(&a, g->m, s->n, s->n, s->kv);
    feed_ids(&a, s->ids, half, half, NULL, out, NULL);
    original = a.seq;
    assert_ok(rvi_seq_fork(&a.seq, &original, err));
    rvi_seq copy = a.seq;
    a.seq = original;
    feed_ids(&a, s->ids, half, 3, NULL, NULL, NULL); /* the original goes on with other tokens */
    original = a.seq;
    a.seq = copy;
    feed_ids(&a, s->ids + half, s->n - half, 4, NULL, out + (size_t)half * (size_t)vocab, NULL);
    rvi_seq_deinit(&original);
    feed_deinit(&a);
}

static inline void check_subject(const subject *s)
{
    golden g;
    feed f;
    golden_open(&g, s->path, NULL, s->exact, 1, s->fast_only ? NULL : "ref");
    size_t total = (size_t)s->n * (size_t)g.m->hp.n_vocab;
    float *want = rvi_alloc_array(total, sizeof *want), *got = rvi_alloc_array(total, sizeof *got);
    feed_init(&f, g.m, s->n, s->n, s->kv);
    feed_ids(&f, s->ids, s->n, s->n, NULL, want, NULL);
    feed_deinit(&f);
    if (!test_driver()) golden_close(&g);

    for (const char *const *isa = rvi_kernels_available(); *isa; isa++)
        for (int threads = 1; threads <= 2; threads++) {
            static const int chunks[] = {1, 7, 64};
            char how[64];
            /* slow: one run besides the one it is compared with */
            bool reference = !strcmp(*isa, "ref") && !test_driver();
            if (test_driver() && (isa != rvi_kernels_available() || threads == 2))
                continue; /* a device has no instruction sets, and its own threads: one model */
            if (!test_driver()) golden_open(&g, s->path, NULL, s->exact, threads, *isa);
            for (size_t c = 0; c < RVI_COUNT(chunks); c++) {
                if (reference && (threads == 1 || chunks[c] != 7)) continue;
                snprintf(how, sizeof how, "%s, %d threads, chunks of %d", *isa, threads, chunks[c]);
                feed_init(&f, g.m, s->n, RVI_MIN(chunks[c], s->n), s->kv);
                feed_ids(&f, s->ids, s->n, chunks[c], NULL, got, NULL);
                same_bits(got, want, total, s->path, how);
                feed_deinit(&f);
            }
            if (reference) {
                golden_close(&g);
                continue;
            }
            if (threads == 2 && !s->exact) {
                golden unpacked;
                golden_no_pack = true;
                golden_open(&unpacked, s->path, NULL, s->exact, threads, *isa);
                golden_no_pack = false;
                snprintf(how, sizeof how, "%s, %d threads, not packed", *isa, threads);
                feed_init(&f, unpacked.m, s->n, s->n, s->kv);
                feed_ids(&f, s->ids, s->n, s->n, NULL, got, NULL);
                same_bits(got, want, total, s->path, how);
                feed_deinit(&f);
                golden_close(&unpacked);
            }
            snprintf(how, sizeof how, "%s, %d threads, with strangers", *isa, threads);
            run_with_strangers(&g, s, got);
            same_bits(got, want, total, s->path, how);
            snprintf(how, sizeof how, "%s, %d threads, forked", *isa, threads);
            run_forked(&g, s, got);
            same_bits(got, want, total, s->path, how);
            golden_close(&g);
        }
    rvi_free(want);
    rvi_free(got);
}

#endif
