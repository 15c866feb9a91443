/* Weights that stay as the file has them give the bits of packed ones: every model of tests/gguf,
 * every instruction set of this machine. Run under ASan it also shows that a panel packed at its
 * use stays within its scratch, for widths that are no multiple of a panel's step too. */
#include "golden.h"

#include "base/os.h"

enum { N_IDS = 37, MAX_MODELS = 64 }; /* rows: two whole groups for tiles, and some alone */

typedef struct results {
    float *hidden, *logits;
    size_t n_hidden, n_logits;
} results;

/* All ids in one pass; a decoder then takes one more by itself. */
static void compute(results *r, const char *path, bool no_pack, const char *isa)
{
    golden g;
    feed f;
    int32_t ids[N_IDS];
    golden_no_pack = no_pack;
    golden_open(&g, path, NULL, false, 2, isa);
    bool decodes = !g.m->arch->is_encoder;
    size_t width = (size_t)g.m->hp.n_embd, vocab = (size_t)g.m->hp.n_vocab;
    for (int i = 0; i < N_IDS; i++) ids[i] = (int32_t)((size_t)(i * 7 + 3) % vocab);
    *r = (results){.n_hidden = N_IDS * width, .n_logits = decodes ? 2 * vocab : 0};
    r->hidden = rvi_alloc_array(r->n_hidden, sizeof *r->hidden);
    r->logits = rvi_alloc_array(2 * vocab, sizeof *r->logits);
    assert_non_null(r->hidden);
    assert_non_null(r->logits);
    feed_init(&f, g.m, N_IDS + 1, N_IDS, RV_KV_F16);
    assert_ok(rvi_seq_extend(&f.seq, N_IDS, err));
    for (int i = 0; i < N_IDS; i++)
        f.rows[i] = (rvi_row){.seq = &f.seq, .pos = i, .token = ids[i], .rope_set = f.rope_set};
    rvi_model_forward(g.m, f.ws, f.rows, N_IDS);
    for (int i = 0; i < N_IDS; i++) rvi_workspace_hidden(f.ws, i, r->hidden + (size_t)i * width);
    if (decodes) {
        int32_t last = N_IDS - 1;
        memcpy(r->logits, rvi_model_logits(g.m, f.ws, f.rows, &last, 1), vocab * sizeof *r->logits);
        feed_ids(&f, ids, 1, 1, NULL, NULL, r->logits + vocab);
    }
    feed_deinit(&f);
    golden_close(&g);
}

static void results_free(results *r)
{
    rvi_free(r->hidden);
    rvi_free(r->logits);
}

typedef struct models {
    char path[MAX_MODELS][128];
    size_t n;
} models;

static int add_model(void *ctx, const char *name)
{
    models *m = ctx;
    size_t len = strlen(name);
    if (len < 5 || strcmp(name + len - 5, ".gguf")) return 0;
    assert_true(m->n < MAX_MODELS);
    snprintf(m->path[m->n++], sizeof m->path[0], "tests/gguf/%s", name);
    return 0;
}

static void same_bits(void **state)
{
    (void)state;
    static models found;
    assert_ok(rvi_os_list("tests/gguf", add_model, &found, err));
    assert_true(found.n >= 30);
    for (const char *const *isa = rvi_kernels_available(); *isa; isa++)
        for (size_t i = 0; i < found.n; i++) {
            results packed, plain;
            compute(&packed, found.path[i], false, *isa);
            compute(&plain, found.path[i], true, *isa);
            if (memcmp(packed.hidden, plain.hidden, packed.n_hidden * sizeof(float)) ||
                memcmp(packed.logits, plain.logits, packed.n_logits * sizeof(float)))
                fail_msg("%s, %s: packed and not packed differ", found.path[i], *isa);
            results_free(&packed);
            results_free(&plain);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_bits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
