/* Pages: nothing is lost, nothing shared is written, waste stays under one page a sequence. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"
#include "kv/pages.h"

static rvi_backend *backend(void)
{
    rvi_backend *be = NULL;
    rv_error err = {0};
    assert_int_equal(rvi_backend_cpu_new(&be, &(rvi_cpu_options){.n_threads = 1}, NULL, &err),
                     RV_OK);
    return be;
}

static const rvi_kv_spec small = {
    .n_layers = 1, .n_kv_heads = 1, .head_size = 4, .n_pages = 60, .type = RV_KV_F32};

/* 10,000 sequences come and go at random, up to 40 at a time. */
static void ten_thousand_sequences(void **state)
{
    (void)state;
    enum { LIVE = 40, TOTAL = 10000 };
    rvi_backend *be = backend();
    rvi_pages *pool;
    rvi_seq seqs[LIVE] = {{0}};
    rvi_rng rng = {7};
    int made = 0, forks = 0, refused = 0;
    assert_int_equal(rvi_pages_new(&pool, be, &small, NULL), RV_OK);
    while (made < TOTAL) {
        rvi_seq *s = &seqs[rvi_rng_u64(&rng) % LIVE];
        const rvi_seq *other = &seqs[rvi_rng_u64(&rng) % LIVE];
        if (!s->pages) {
            bool fork = other->pages && rvi_rng_u64(&rng) % 2;
            assert_int_equal(fork ? rvi_seq_fork(s, other, NULL) : rvi_seq_init(s, pool, 700, NULL),
                             RV_OK);
            forks += fork;
            made++;
        } else {
            switch (rvi_rng_u64(&rng) % 4) {
            case 0: rvi_seq_deinit(s); break;
            case 1: rvi_seq_truncate(s, (int)(rvi_rng_u64(&rng) % (uint64_t)(s->len + 1))); break;
            default: {
                int len = s->len, pages = s->n_pages;
                if (rvi_seq_extend(s, (int)(rvi_rng_u64(&rng) % 100),
                                   NULL)) { /* refused: nothing changed */
                    assert_int_equal(s->len, len);
                    assert_int_equal(s->n_pages, pages);
                    refused++;
                }
            }
            }
        }
        /* every page's count is the number of tables that hold it, and the pool's sum agrees */
        if (made % 64 == 0) {
            int refs[60] = {0}, used = 0;
            for (int i = 0; i < LIVE; i++)
                for (int p = 0; p < seqs[i].n_pages; p++) refs[seqs[i].pages[p]]++;
            for (int p = 0; p < 60; p++) {
                assert_int_equal(rvi_pages_refs(pool, p), refs[p]);
                used += refs[p] > 0;
            }
            assert_int_equal(rvi_pages_in_use(pool), used);
        }
        if (s->pages)
            assert_int_equal(s->n_pages, (s->len + RVI_PAGE_TOKENS - 1) / RVI_PAGE_TOKENS);
    }
    for (int i = 0; i < LIVE; i++) rvi_seq_deinit(&seqs[i]);
    print_message("# %d sequences, %d of them forks, %d extensions refused for lack of pages\n",
                  made, forks, refused);
    assert_true(forks > 1000 && refused > 100);
    assert_int_equal(rvi_pages_in_use(pool), 0);
    rvi_pages_free(pool);
    be->ops->free(be);
}

/* A fork's first write copies the shared page; the original keeps its own. */
static void copy_on_write(void **state)
{
    (void)state;
    rvi_backend *be = backend();
    rvi_pages *pool;
    rvi_seq a, b;
    assert_int_equal(rvi_pages_new(&pool, be, &small, NULL), RV_OK);
    assert_int_equal(rvi_seq_init(&a, pool, 100, NULL), RV_OK);
    assert_int_equal(rvi_seq_extend(&a, 40, NULL), RV_OK);
    assert_int_equal(rvi_seq_fork(&b, &a, NULL), RV_OK);
    assert_int_equal(rvi_pages_in_use(pool), 2);
    assert_int_equal(rvi_seq_extend(&b, 1, NULL), RV_OK);
    assert_int_equal(rvi_pages_in_use(pool), 3);
    assert_int_equal(a.pages[0], b.pages[0]); /* full pages stay shared */
    assert_int_not_equal(a.pages[1], b.pages[1]);
    assert_int_equal(rvi_pages_refs(pool, a.pages[0]), 2);
    rvi_seq_deinit(&a);
    assert_int_equal(rvi_pages_in_use(pool), 2);
    rvi_seq_deinit(&b);
    assert_int_equal(rvi_pages_in_use(pool), 0);
    rvi_pages_free(pool);
    be->ops->free(be);
}

/* A sequence takes over pages that somebody who is no sequence keeps; a page that it shares in part
 * is copied before it is written. */
static void adopts_what_is_kept(void **state)
{
    (void)state;
    rvi_backend *be = backend();
    rvi_pages *pool;
    rvi_seq a, b;
    int32_t kept[2];
    assert_int_equal(rvi_pages_new(&pool, be, &small, NULL), RV_OK);
    assert_int_equal(rvi_pages_total(pool), small.n_pages);
    assert_int_equal(rvi_seq_init(&a, pool, 100, NULL), RV_OK);
    assert_int_equal(rvi_seq_init(&b, pool, 100, NULL), RV_OK);
    assert_int_equal(rvi_seq_wants(&a, 40), 2);
    assert_int_equal(rvi_seq_wants(&a, 0), 0);
    assert_int_equal(rvi_seq_extend(&a, 40, NULL), RV_OK);
    assert_int_equal(rvi_seq_wants(&a, 24), 0);
    for (int i = 0; i < 2; i++) rvi_pages_keep(pool, kept[i] = a.pages[i]);
    assert_int_equal(rvi_seq_wants(&a, 24), 1); /* the copy */
    rvi_seq_deinit(&a);
    assert_int_equal(rvi_pages_in_use(pool), 2);
    assert_int_equal(rvi_pages_idle(pool), 2);
    rvi_seq_adopt(&b, kept, 35);
    assert_int_equal(rvi_pages_idle(pool), 0);
    assert_int_equal(b.len, 35);
    assert_int_equal(b.n_pages, 2);
    assert_int_equal(rvi_seq_wants(&b, 29), 1);
    assert_int_equal(rvi_seq_wants(&b, 30), 2);
    assert_int_equal(rvi_seq_extend(&b, 30, NULL), RV_OK);
    assert_int_equal(b.pages[0], kept[0]);
    assert_int_not_equal(b.pages[1], kept[1]);
    assert_int_equal(rvi_pages_refs(pool, kept[1]), 1);
    assert_int_equal(rvi_pages_idle(pool), 1);
    rvi_seq_deinit(&b);
    assert_int_equal(rvi_pages_idle(pool), 2);
    for (int i = 0; i < 2; i++) rvi_pages_unkeep(pool, kept[i]);
    assert_int_equal(rvi_pages_in_use(pool), 0);
    rvi_pages_free(pool);
    be->ops->free(be);
}

static void limits(void **state)
{
    (void)state;
    rvi_backend *be = backend();
    rvi_pages *pool;
    rvi_seq a, b;
    rv_error err;
    rvi_kv_spec spec = small;
    spec.n_pages = 2;
    assert_int_equal(rvi_pages_new(&pool, be, &spec, NULL), RV_OK);
    assert_int_equal(rvi_seq_init(&a, pool, 0, &err), RV_E_TOO_LONG);
    assert_int_equal(rvi_seq_init(&a, pool, 1000, &err), RV_OK);
    assert_int_equal(rvi_seq_extend(&a, 1001, &err), RV_E_TOO_LONG);
    assert_int_equal(rvi_seq_extend(&a, 65, &err), RV_E_NO_PAGES);
    assert_int_equal(rvi_seq_extend(&a, 40, &err), RV_OK);
    assert_int_equal(rvi_seq_fork(&b, &a, &err), RV_OK);
    assert_int_equal(rvi_seq_extend(&b, 1, &err), RV_E_NO_PAGES); /* no page left to copy to */
    assert_int_equal(b.len, 40);
    rvi_seq_deinit(&a);
    rvi_seq_deinit(&b);
    rvi_pages_free(pool);
    be->ops->free(be);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ten_thousand_sequences), cmocka_unit_test(copy_on_write),
        cmocka_unit_test(adopts_what_is_kept), cmocka_unit_test(limits)};
    return cmocka_run_group_tests_name("pages", tests, NULL, NULL);
}
