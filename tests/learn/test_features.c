/* Features of questions, from a small model. */
#include "model/golden.h"

#include <math.h>

#include "learn/features.h"

enum { N_TEXTS = 150, MOST_DIM = 512 };

typedef struct house {
    golden g;
    rvi_tokenizer *t;
    rvi_chat *chat;
    rvi_features *f;
    size_t dim;
} house;

static void open_house(house *h, const char *path)
{
    golden_open(&h->g, path, NULL, false, 1, NULL);
    assert_ok(rvi_tokenizer_from_gguf(&h->t, h->g.m->source->gguf, NULL, err));
    rvi_chat_source s = {.arch = "llama"};
    assert_ok(rvi_chat_new(&h->chat, &s, err));
    rvi_features_source src = {h->g.m, h->g.be, h->t, h->chat};
    assert_ok(rvi_features_new(&h->f, &src, err));
    h->dim = (size_t)rvi_features_dim(h->f);
    assert_true(h->dim <= MOST_DIM);
}

static void close_house(house *h)
{
    rvi_features_free(h->f);
    rvi_chat_free(h->chat);
    rvi_tokenizer_free(h->t);
    golden_close(&h->g);
}

static void read_one(house *h, const char *text, const char *mask, float *out)
{
    const char *at = mask ? strstr(text, mask) : NULL;
    rvi_gate_mask m = {at ? (size_t)(at - text) : 0, mask ? strlen(mask) : 0};
    rvi_gate_text t = {text, strlen(text), &m, at != NULL};
    assert_ok(rvi_features_read(h->f, &t, 1, out, err));
}

static double distance(const float *a, const float *b, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += fabs((double)a[i] - (double)b[i]);
    return sum;
}

/* A text has the same features alone and among others, more than fit at a time. */
static void alone_and_among_others(void **state)
{
    static const char *const paths[] = {"tests/gguf/llama.gguf", "tests/gguf/llama-spm.gguf"};
    (void)state;
    for (size_t p = 0; p < RVI_COUNT(paths); p++) {
        house h;
        char texts[N_TEXTS][64];
        rvi_gate_text list[N_TEXTS];
        open_house(&h, paths[p]);
        float *all = rvi_alloc_array(N_TEXTS * h.dim, sizeof *all), one[MOST_DIM];
        assert_non_null(all);
        for (size_t i = 0; i < N_TEXTS; i++) {
            snprintf(texts[i], sizeof texts[i], "the %zu of a %zu is here", i * 7, i);
            list[i] = (rvi_gate_text){.text = texts[i], .len = strlen(texts[i])};
        }
        assert_ok(rvi_features_read(h.f, list, N_TEXTS, all, err));
        for (size_t i = 0; i < N_TEXTS; i += 37) {
            read_one(&h, texts[i], NULL, one);
            assert_true(distance(one, all + i * h.dim, h.dim) < 1e-4 * (double)h.dim);
        }
        assert_true(distance(all, all + h.dim, h.dim) > 1e-3);
        rvi_free(all);
        close_house(&h);
    }
}

/* What is left out at the end of a text does not count; at the beginning the rest still sees it. */
static void leaves_words_out(void **state)
{
    house h;
    float whole[MOST_DIM], masked[MOST_DIM], other[MOST_DIM];
    (void)state;
    open_house(&h, "tests/gguf/llama.gguf");
    read_one(&h, "the name of bcd", NULL, whole);
    read_one(&h, "the name of bcd", "bcd", masked);
    read_one(&h, "the name of xyz", "xyz", other);
    assert_true(distance(whole, masked, h.dim) > 1e-3);
    assert_true(distance(masked, other, h.dim) < 1e-3);
    close_house(&h);
}

/* Of a long text the end counts; nothing at all is a vector of zeros. */
static void takes_any_length(void **state)
{
    enum { LONG = 20000 };
    house h;
    float a[MOST_DIM], b[MOST_DIM];
    (void)state;
    open_house(&h, "tests/gguf/llama.gguf");
    char *text = rvi_alloc_array(LONG + 1, 1);
    assert_non_null(text);
    for (size_t i = 0; i < LONG; i++) text[i] = "the end "[i % 8];
    text[LONG] = 0;
    read_one(&h, text, NULL, a);
    read_one(&h, text + 8000, NULL, b);
    assert_true(distance(a, b, h.dim) < 1e-4 * (double)h.dim);
    read_one(&h, "", NULL, a);
    for (size_t i = 0; i < h.dim; i++) assert_true(a[i] == 0);
    rvi_free(text);
    close_house(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(alone_and_among_others),
                                       cmocka_unit_test(leaves_words_out),
                                       cmocka_unit_test(takes_any_length)};
    return cmocka_run_group_tests_name("features", tests, NULL, NULL);
}
