/* golden.h - opening the models of tests/golden and running rows through them, for the tests of the
 * forward pass. */
#ifndef TESTS_MODEL_GOLDEN_H
#define TESTS_MODEL_GOLDEN_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "harness/assert_ok.h"
#include "harness/device.h"
#include "base/mem.h"
#include "kernels/kernels.h"
#include "model/model.h"

static const char *const golden_names[] = {"llama",   "llama3-rope",   "llama-yarn",
                                           "mistral", "qwen2",         "qwen3",
                                           "phi3",    "phi3-longrope", "gemma2"};

typedef struct golden {
    rvi_backend *be;
    rvi_model *m;
    rvi_safetensors *expected; /* NULL if there is none */
} golden;

static bool golden_no_pack; /* weights stay as the files have them */

static inline void golden_open(golden *g, const char *path, const char *expected, bool exact,
                               int n_threads, const char *isa)
{
    rvi_source *source;
    *g = (golden){0};
    assert_ok(test_backend_new(
        &g->be,
        &(rvi_cpu_options){
            .n_threads = n_threads, .exact = exact, .no_pack = golden_no_pack, .isa = isa},
        err));
    assert_ok(rvi_source_open(&source, path, err));
    assert_ok(rvi_model_new(&g->m, g->be, source, NULL, err));
    if (expected) assert_ok(rvi_safetensors_open(&g->expected, expected, err));
}

static inline void golden_open_named(golden *g, const char *name, bool exact, int n_threads,
                                     const char *isa)
{
    char dir[128], expected[160];
    snprintf(dir, sizeof dir, "tests/golden/%s", name);
    snprintf(expected, sizeof expected, "%s/expected.safetensors", dir);
    golden_open(g, dir, expected, exact, n_threads, isa);
}

static inline void golden_close(golden *g)
{
    rvi_safetensors_close(g->expected);
    rvi_model_free(g->m);
    if (g->be) g->be->ops->free(g->be);
}

/* An int32 tensor of the expected file; NULL if absent. */
static inline const int32_t *golden_ids(const rvi_safetensors *s, const char *name, int *n)
{
    const rvi_raw_tensor *t = rvi_safetensors_raw(s, name);
    *n = t ? (int)t->shape[0] : 0;
    return t ? (const int32_t *)(const void *)t->data : NULL;
}

static inline const float *golden_floats(rvi_safetensors *s, const char *name)
{
    rvi_tensor_view *v = rvi_safetensors_tensor(s, name);
    return v ? (const float *)(const void *)v->data : NULL;
}

/* A sequence with a pool and a workspace of its own: feeds ids in chunks, collects logits [n,
 * vocab] (all rows, or only the last). */
typedef struct feed {
    const rvi_model *m;
    rvi_pages *pool;
    rvi_seq seq;
    rvi_workspace *ws;
    rvi_row *rows;
    int max_rows, rope_set;
} feed;

static inline void feed_init(feed *f, const rvi_model *m, int declared, int max_rows, rv_kv_type kv)
{
    rvi_kv_spec spec = rvi_model_kv_spec(m, kv, declared / RVI_PAGE_TOKENS + 8);
    *f = (feed){.m = m, .max_rows = max_rows, .rope_set = rvi_rope_set(&m->rope, declared)};
    assert_ok(rvi_pages_new(&f->pool, m->be, &spec, err));
    assert_ok(rvi_seq_init(&f->seq, f->pool, declared + 64, err));
    assert_ok(rvi_workspace_new(&f->ws, m, max_rows, max_rows, err));
    f->rows = rvi_zalloc_array((size_t)max_rows, sizeof *f->rows);
    assert_non_null(f->rows);
}

static inline void feed_deinit(feed *f)
{
    rvi_seq_deinit(&f->seq);
    rvi_pages_free(f->pool);
    rvi_workspace_free(f->ws);
    rvi_free(f->rows);
}

/* Appends ids in chunks of at most `chunk`; logits of every new row go to out (may be NULL: only
 * the last row's go to last). */
static inline void feed_ids(feed *f, const int32_t *ids, int n, int chunk,
                            const rvi_adapter_set *set, float *out, float *last)
{
    int vocab = f->m->hp.n_vocab;
    for (int at = 0; at < n; at += chunk) {
        int k = RVI_MIN(RVI_MIN(chunk, f->max_rows), n - at), first = f->seq.len;
        assert_ok(rvi_seq_extend(&f->seq, k, err));
        for (int i = 0; i < k; i++)
            f->rows[i] = (rvi_row){.seq = &f->seq,
                                   .pos = first + i,
                                   .token = ids[at + i],
                                   .rope_set = f->rope_set,
                                   .adapters = set};
        rvi_model_forward(f->m, f->ws, f->rows, k);
        for (int32_t i = 0; i < k; i++) {
            if (!out && (at + i < n - 1)) continue;
            const float *logits = rvi_model_logits(f->m, f->ws, f->rows, &i, 1);
            if (out)
                memcpy(out + (size_t)(at + i) * (size_t)vocab, logits,
                       (size_t)vocab * sizeof *logits);
            if (last && at + i == n - 1) memcpy(last, logits, (size_t)vocab * sizeof *logits);
        }
    }
}

#endif
