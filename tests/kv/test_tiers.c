/* Forms of pages: whatever sequences do, the rows that come next find what they read, and what
 * nobody can read is gone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"
#include "kv/pages.h"

enum { N_PAGES = 60, WARM = 3, P = RVI_PAGE_TOKENS };

static const rvi_kv_spec tiers = {.n_layers = 1,
                                  .n_kv_heads = 1,
                                  .head_size = 4,
                                  .n_pages = N_PAGES,
                                  .type = RV_KV_TIERED,
                                  .warm_pages = WARM};

typedef struct bed {
    rvi_backend *be;
    rvi_pages *pool;
} bed;

static void bed_init(bed *b)
{
    rv_error err = {0};
    assert_int_equal(rvi_backend_cpu_new(&b->be, &(rvi_cpu_options){.n_threads = 1}, NULL, &err),
                     RV_OK);
    assert_int_equal(rvi_pages_new(&b->pool, b->be, &tiers, NULL), RV_OK);
}

static void bed_deinit(bed *b)
{
    assert_int_equal(rvi_pages_in_use(b->pool), 0);
    for (unsigned f = RVI_KV_HOT; f <= RVI_KV_COLD; f <<= 1)
        assert_int_equal(rvi_pages_with(b->pool, f), 0);
    rvi_pages_trim(b->pool, 0);
    assert_int_equal(atomic_load(&b->be->memory->kv), 0);
    rvi_pages_free(b->pool);
    b->be->ops->free(b->be);
}

static unsigned forms(const bed *b, int32_t page)
{
    return b->be->ops->kv_forms(rvi_pages_store(b->pool), page);
}

/* What a row in page `own` reads of page i. */
static unsigned form_read(int own, int i)
{
    return own == i ? RVI_KV_HOT : own - i <= WARM ? RVI_KV_WARM : RVI_KV_COLD;
}

/* As a step does; its rows find all they read. */
static bool grow(const bed *b, rvi_seq *s, int n)
{
    int first = s->len;
    if (rvi_seq_extend(s, n, NULL)) return false;
    rvi_seq_drop_unread(s, first, s->len - 1);
    for (int own = first / P; own <= (s->len - 1) / P; own++)
        for (int i = 0; i <= own; i++)
            if (!(forms(b, s->pages[i]) & form_read(own, i)))
                fail_msg("page %d of a row in page %d has forms %u", i, own, forms(b, s->pages[i]));
    rvi_pages_trim(b->pool, 1);
    return true;
}

/* One text, token by token: the newest page is hot, three are warm, the rest is cold. */
static void one_text(void **state)
{
    (void)state;
    bed b;
    rvi_seq s;
    bed_init(&b);
    assert_int_equal(rvi_seq_init(&s, b.pool, 20 * P, NULL), RV_OK);
    for (int at = 0; at < 20 * P; at++) {
        assert_true(grow(&b, &s, 1));
        int own = at / P;
        assert_int_equal(rvi_pages_with(b.pool, RVI_KV_HOT), 1);
        assert_int_equal(rvi_pages_with(b.pool, RVI_KV_WARM),
                         RVI_MIN(own, WARM) + (at % P == P - 1));
        assert_int_equal(rvi_pages_with(b.pool, RVI_KV_COLD), RVI_MAX(own - WARM, 0));
    }
    assert_int_equal(rvi_pages_reusable(b.pool, s.pages, 20 * P), 20 * P);
    assert_int_equal(rvi_pages_reusable(b.pool, s.pages, 20 * P - 5), 20 * P - 5);
    assert_int_equal(rvi_pages_reusable(b.pool, s.pages, 19 * P), 19 * P);
    assert_int_equal(rvi_pages_reusable(b.pool, s.pages, 19 * P - 5), 0); /* page 15 is cold */
    rvi_seq_deinit(&s);
    bed_deinit(&b);
}

/* A prompt in one step, long enough to read cold what it writes. */
static void one_step(void **state)
{
    (void)state;
    bed b;
    rvi_seq s;
    bed_init(&b);
    assert_int_equal(rvi_seq_init(&s, b.pool, 20 * P, NULL), RV_OK);
    assert_true(grow(&b, &s, 12 * P + 7));
    assert_int_equal(rvi_pages_with(b.pool, RVI_KV_HOT), 13);
    assert_int_equal(rvi_pages_with(b.pool, RVI_KV_COLD), 9);
    /* rows that are taken back begin where they began */
    assert_int_equal(rvi_pages_reusable(b.pool, s.pages, 3), 3);
    assert_true(grow(&b, &s, 1));
    assert_int_equal(rvi_pages_with(b.pool, RVI_KV_HOT), 1);
    assert_int_equal(rvi_pages_with(b.pool, RVI_KV_WARM), WARM);
    rvi_seq_deinit(&s);
    bed_deinit(&b);
}

/* What is kept of a beginning stays warm, and another text can begin with it. */
static void kept_beginning(void **state)
{
    (void)state;
    bed b;
    rvi_seq s, other;
    bed_init(&b);
    assert_int_equal(rvi_seq_init(&s, b.pool, 20 * P, NULL), RV_OK);
    assert_true(grow(&b, &s, 8 * P));
    for (int i = 0; i < 8; i++) rvi_pages_keep(b.pool, s.pages[i]);
    for (int i = 0; i < 10 * P; i++) assert_true(grow(&b, &s, 1));
    for (int i = 0; i < 8; i++)
        assert_int_equal(forms(&b, s.pages[i]), i < WARM ? RVI_KV_WARM | RVI_KV_COLD : RVI_KV_COLD);
    assert_int_equal(rvi_pages_reusable(b.pool, s.pages, 2 * P + 9), 2 * P);
    assert_int_equal(rvi_pages_reusable(b.pool, s.pages, 6 * P), WARM * P);
    assert_int_equal(rvi_seq_init(&other, b.pool, 20 * P, NULL), RV_OK);
    rvi_seq_adopt(&other, s.pages, WARM * P);
    assert_true(grow(&b, &other, 5));
    assert_true(grow(&b, &other, 4 * P));
    assert_true(rvi_pages_is_finer(b.pool, other.pages[WARM], s.pages[WARM]));
    assert_false(rvi_pages_is_finer(b.pool, s.pages[WARM], other.pages[WARM]));
    for (int i = 0; i < 8; i++) rvi_pages_unkeep(b.pool, s.pages[i]);
    rvi_seq_deinit(&other);
    rvi_seq_deinit(&s);
    bed_deinit(&b);
}

/* Sequences come and go, fork, go back as far as they can, are kept, at random. */
static void random_lives(void **state)
{
    (void)state;
    enum { LIVE = 12, STEPS = 20000 };
    bed b;
    rvi_seq seqs[LIVE] = {{0}};
    rvi_rng rng = {11};
    int back = 0, lost = 0, refused = 0;
    bed_init(&b);
    for (int step = 0; step < STEPS; step++) {
        rvi_seq *s = &seqs[rvi_rng_u64(&rng) % LIVE];
        const rvi_seq *from = &seqs[rvi_rng_u64(&rng) % LIVE];
        int what = (int)(rvi_rng_u64(&rng) % 8);
        if (!s->pages) {
            bool fork = from->pages && what < 4;
            assert_int_equal(
                fork ? rvi_seq_fork(s, from, NULL) : rvi_seq_init(s, b.pool, 30 * P, NULL), RV_OK);
        } else if (what == 0) {
            rvi_seq_deinit(s);
        } else if (what == 1) {
            int len = (int)(rvi_rng_u64(&rng) % (uint64_t)(s->len + 1));
            int able = rvi_pages_reusable(b.pool, s->pages, len);
            assert_true(able <= len);
            back++;
            lost += able < len;
            rvi_seq_truncate(s, able);
        } else if (what == 2 && from->len && !s->len) {
            int len = (int)(rvi_rng_u64(&rng) % (uint64_t)(from->len + 1));
            rvi_seq_adopt(s, from->pages, rvi_pages_reusable(b.pool, from->pages, len));
        } else if (s->len + 100 < 30 * P) {
            refused += !grow(&b, s, 1 + (int)(rvi_rng_u64(&rng) % (what > 5 ? 100 : 20)));
        }
    }
    print_message("# went back %d times, %d not as far as asked; %d refused\n", back, lost,
                  refused);
    assert_true(back > 1000 && lost > 100 && lost < back && refused > 100);
    for (int i = 0; i < LIVE; i++) rvi_seq_deinit(&seqs[i]);
    bed_deinit(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_text), cmocka_unit_test(one_step),
                                       cmocka_unit_test(kept_beginning),
                                       cmocka_unit_test(random_lives)};
    return cmocka_run_group_tests_name("tiers", tests, NULL, NULL);
}
