/* The tree of prefixes against a plain list of texts: what it finds is the longest beginning that
 * was kept, no page is lost, and what is in use is never given up. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/os.h"
#include "base/rng.h"
#include "harness/assert_ok.h"
#include "scheduler/prefix.h"

enum { PAGE = RVI_PAGE_TOKENS };

static rvi_backend *be;
static rvi_pages *pool;
static rvi_prefix *tree;

static void set_up(int n_pages)
{
    rvi_kv_spec spec = {
        .n_layers = 1, .n_kv_heads = 1, .head_size = 4, .n_pages = n_pages, .type = RV_KV_F32};
    assert_ok(rvi_backend_cpu_new(&be, &(rvi_cpu_options){.n_threads = 1}, NULL, err));
    assert_ok(rvi_pages_new(&pool, be, &spec, err));
    assert_ok(rvi_prefix_new(&tree, pool, RVI_PREFIX_WAYS, err));
}

static void tear_down(void)
{
    rvi_prefix_free(tree);
    assert_int_equal(rvi_pages_in_use(pool), 0);
    rvi_pages_free(pool);
    be->ops->free(be);
}

static rvi_seq seq_of(int len)
{
    rvi_seq s;
    assert_ok(rvi_seq_init(&s, pool, 4096, err));
    assert_ok(rvi_seq_extend(&s, len, err));
    return s;
}

static void keep(const rvi_prefix_space *space, const int32_t *ids, int n)
{
    rvi_seq s = seq_of(n);
    rvi_prefix_insert(tree, space, ids, n, s.pages);
    rvi_seq_deinit(&s);
}

static void sharing_is_exact_to_the_token(void **state)
{
    static const rvi_prefix_space one = {.salt = 1}, two = {.salt = 2}, set = {1, 1, 0},
                                  rope = {.salt = 1, .rope_set = 1};
    int32_t ids[100], pages[4], again[4];
    (void)state;
    set_up(40);
    for (int i = 0; i < 100; i++) ids[i] = i;
    assert_int_equal(rvi_prefix_find(tree, &one, ids, 100, pages), 0);
    keep(&one, ids, 70);
    assert_int_equal(rvi_pages_in_use(pool), 3);
    assert_int_equal(rvi_prefix_find(tree, &one, ids, 100, pages), 70);
    assert_int_equal(rvi_prefix_find(tree, &one, ids, 64, again), 64);
    assert_int_equal(rvi_prefix_find(tree, &one, ids, 50, again), 50);
    assert_memory_equal(pages, again, 2 * sizeof *pages);
    ids[40] = 500; /* another way from the middle of a page on */
    assert_int_equal(rvi_prefix_find(tree, &one, ids, 100, again), 40);
    assert_memory_equal(pages, again, 2 * sizeof *pages);
    keep(&one, ids, 64);
    assert_int_equal(rvi_pages_in_use(pool), 4);
    assert_int_equal(rvi_prefix_find(tree, &one, ids, 100, again), 64);
    assert_int_not_equal(pages[1], again[1]);
    ids[40] = 40;
    keep(&one, ids, 66); /* nothing new */
    assert_int_equal(rvi_pages_in_use(pool), 4);
    keep(&one, ids, 90); /* the last page in a fuller state */
    assert_int_equal(rvi_pages_in_use(pool), 4);
    assert_int_equal(rvi_prefix_find(tree, &one, ids, 100, again), 90);
    /* another tenant, adapter set, set of rotary factors: nothing in common */
    assert_int_equal(rvi_prefix_find(tree, &two, ids, 100, pages), 0);
    assert_int_equal(rvi_prefix_find(tree, &set, ids, 100, pages), 0);
    assert_int_equal(rvi_prefix_find(tree, &rope, ids, 100, pages), 0);
    keep(&two, ids, 64);
    keep(&set, ids, 40); /* which has the salt of the first */
    assert_int_equal(rvi_pages_in_use(pool), 8);
    rvi_prefix_forget(tree, one.salt);
    assert_int_equal(rvi_pages_in_use(pool), 2);
    assert_int_equal(rvi_prefix_find(tree, &one, ids, 100, pages), 0);
    assert_int_equal(rvi_prefix_find(tree, &set, ids, 100, pages), 0);
    assert_int_equal(rvi_prefix_find(tree, &two, ids, 100, pages), 64);
    rvi_prefix_forget(tree, one.salt);
    tear_down();
}

/* Two that share a page in part, and write nothing to it, leave it to the tree one after the other,
 * each with what it knows of it: it is one page, which nobody holds in the end. */
static void one_page_in_two_lengths(void **state)
{
    static const rvi_prefix_space space = {.salt = 1};
    int32_t ids[20], pages[1];
    (void)state;
    set_up(4);
    for (int i = 0; i < 20; i++) ids[i] = i;
    rvi_seq s = seq_of(20);
    rvi_prefix_insert(tree, &space, ids, 15, s.pages);
    rvi_prefix_insert(tree, &space, ids, 20, s.pages);
    assert_int_equal(rvi_prefix_find(tree, &space, ids, 20, pages), 20);
    rvi_seq_deinit(&s);
    assert_int_equal(rvi_pages_held(pool), 0);
    assert_int_equal(rvi_pages_idle(pool), 1);
    assert_int_equal(rvi_prefix_evict(tree, 1), 1);
    assert_int_equal(rvi_pages_idle(pool), 0);
    tear_down();
}

/* Somebody who computed what is known, for it came at the same time, goes on: of the pages that are
 * the same its own are kept, so that none is there that could not be given up. */
static void pages_in_use_are_kept(void **state)
{
    static const rvi_prefix_space space = {.salt = 1};
    int32_t ids[3 * PAGE], pages[3];
    (void)state;
    set_up(8);
    for (int i = 0; i < 3 * PAGE; i++) ids[i] = i;
    keep(&space, ids, 2 * PAGE);
    assert_int_equal(rvi_pages_idle(pool), 2);
    rvi_seq s = seq_of(3 * PAGE);
    rvi_prefix_insert(tree, &space, ids, 3 * PAGE, s.pages);
    assert_int_equal(rvi_pages_idle(pool), 0);
    assert_int_equal(rvi_pages_in_use(pool), 3);
    assert_int_equal(rvi_prefix_find(tree, &space, ids, 3 * PAGE, pages), 3 * PAGE);
    assert_memory_equal(pages, s.pages, sizeof pages);
    rvi_seq other = seq_of(3 * PAGE); /* what somebody holds stays */
    rvi_prefix_insert(tree, &space, ids, 3 * PAGE, other.pages);
    assert_int_equal(rvi_prefix_find(tree, &space, ids, 3 * PAGE, pages), 3 * PAGE);
    assert_memory_equal(pages, s.pages, sizeof pages);
    rvi_seq_deinit(&other);
    rvi_seq_deinit(&s);
    assert_int_equal(rvi_prefix_evict(tree, 8), 3);
    tear_down();
}

static void gives_up_the_oldest_leaf(void **state)
{
    static const rvi_prefix_space space = {0};
    int32_t a[96], b[96], pages[4];
    (void)state;
    set_up(8);
    for (int i = 0; i < 96; i++) {
        a[i] = i;
        b[i] = i < PAGE ? i : i + 1000;
    }
    keep(&space, a, 96);
    keep(&space, b, 96);
    assert_int_equal(rvi_prefix_find(tree, &space, a, 96, pages), 96); /* a is newer now */
    assert_int_equal(rvi_pages_idle(pool), 5);
    assert_int_equal(rvi_prefix_evict(tree, 1), 1);
    assert_int_equal(rvi_prefix_find(tree, &space, b, 96, pages), 64);
    assert_int_equal(rvi_prefix_find(tree, &space, a, 96, pages), 96);
    rvi_seq s;
    assert_ok(rvi_seq_init(&s, pool, 96, err));
    rvi_seq_adopt(&s, pages, 80); /* in use, and so is what is above it */
    assert_int_equal(rvi_pages_idle(pool), 1);
    assert_int_equal(rvi_prefix_evict(tree, 9), 1);
    assert_int_equal(rvi_prefix_find(tree, &space, a, 96, pages), 96);
    rvi_seq_deinit(&s);
    assert_int_equal(rvi_prefix_evict(tree, 9), 3);
    assert_int_equal(rvi_pages_in_use(pool), 0);
    tear_down();
}

/* How many tokens of a text of two pages are left after some texts of four pages that nobody asks
 * for again, in a cache of 16 pages; before that, n_ways texts of three pages went on from it. */
static int left_after(int n_ways, int n_floods)
{
    static const rvi_prefix_space space = {0};
    int32_t ids[4 * PAGE], pages[4];
    set_up(16);
    for (int i = 0; i < 4 * PAGE; i++) ids[i] = i;
    for (int way = 0; way < n_ways; way++) {
        ids[2 * PAGE] = -1 - way;
        keep(&space, ids, 3 * PAGE);
    }
    for (int flood = 1; flood <= n_floods; flood++) {
        int32_t once[4 * PAGE];
        for (int i = 0; i < 4 * PAGE; i++) once[i] = 1000 * flood + i;
        int lack = 4 - (16 - rvi_pages_in_use(pool));
        if (lack > 0) assert_int_equal(rvi_prefix_evict(tree, lack), lack);
        keep(&space, once, 4 * PAGE);
    }
    int n = rvi_prefix_find(tree, &space, ids, 2 * PAGE, pages);
    tear_down();
    return n;
}

static void what_many_begin_with_stays_longer(void **state)
{
    int before = 0;
    (void)state;
    for (int n_ways = 1; n_ways <= 4; n_ways++) { /* a generation of 16 pages is four floods */
        int n = before;
        while (left_after(n_ways, n + 1) == 2 * PAGE) n++;
        if (n_ways > 1) assert_in_range(n - before, 2, 6);
        before = n;
    }
    assert_int_equal(left_after(9, 100), 0); /* and goes in the end */
}

/* The turns of a conversation do not make it a text that many go on from. */
static void turns_do_not_add_up(void **state)
{
    static const rvi_prefix_space space = {0};
    int32_t talk[6 * PAGE], once[6 * PAGE], pages[6];
    (void)state;
    set_up(12);
    for (int i = 0; i < 6 * PAGE; i++) {
        talk[i] = i;
        once[i] = -1 - i;
    }
    for (int n = 10; n <= 6 * PAGE; n += 10) {
        (void)rvi_prefix_find(tree, &space, talk, n, pages);
        keep(&space, talk, n);
    }
    keep(&space, talk, 6 * PAGE);
    keep(&space, once, 6 * PAGE);
    assert_int_equal(rvi_pages_in_use(pool), 12);
    assert_int_equal(rvi_prefix_evict(tree, 6), 6);
    assert_int_equal(rvi_prefix_find(tree, &space, once, 6 * PAGE, pages), 6 * PAGE);
    assert_int_equal(rvi_prefix_find(tree, &space, talk, 6 * PAGE, pages), 0);
    tear_down();
}

/* ---- random texts ---- */

enum { N_TEXTS = 60, LONGEST = 200 };

typedef struct text {
    rvi_prefix_space space;
    int32_t ids[LONGEST];
    int n;
} text;

/* Few different tokens, and many texts begin as another one. */
static text random_text(rvi_rng *rng, const text *texts, int n_texts)
{
    text t = {.space = {.adapters = rvi_rng_u64(rng) % 2, .salt = rvi_rng_u64(rng) % 2}};
    t.n = 1 + (int)(rvi_rng_u64(rng) % LONGEST);
    for (int i = 0; i < t.n; i++) t.ids[i] = (int32_t)(rvi_rng_u64(rng) % 3) - 1;
    if (n_texts && rvi_rng_u64(rng) % 4) {
        const text *other = &texts[rvi_rng_u64(rng) % (uint64_t)n_texts];
        int same = RVI_MIN(other->n, (int)(rvi_rng_u64(rng) % (uint64_t)(t.n + 1)));
        memcpy(t.ids, other->ids, (size_t)same * sizeof *t.ids);
    }
    return t;
}

static int longest_known(const text *texts, int n_texts, const text *t)
{
    int best = 0;
    for (int i = 0; i < n_texts; i++) {
        if (memcmp(&texts[i].space, &t->space, sizeof t->space)) continue;
        int n = 0;
        while (n < RVI_MIN(texts[i].n, t->n) && texts[i].ids[n] == t->ids[n]) n++;
        best = RVI_MAX(best, n);
    }
    return best;
}

static void finds_what_a_list_finds(void **state)
{
    rvi_rng rng = {3};
    (void)state;
    for (int round = 0; round < 20; round++) {
        static text texts[N_TEXTS];
        int32_t pages[LONGEST / PAGE + 1];
        set_up(N_TEXTS * (LONGEST / PAGE + 1));
        for (int i = 0; i < N_TEXTS; i++) {
            text t = random_text(&rng, texts, i);
            int want = longest_known(texts, i, &t);
            assert_int_equal(rvi_prefix_find(tree, &t.space, t.ids, t.n, pages), want);
            texts[i] = t;
            keep(&t.space, t.ids, t.n);
            assert_int_equal(rvi_prefix_find(tree, &t.space, t.ids, t.n, pages), t.n);
        }
        assert_int_equal(rvi_pages_idle(pool), rvi_pages_in_use(pool));
        tear_down();
    }
}

/* Sequences come, share, go and are evicted at random: references add up at the end. */
static void random_lives(void **state)
{
    enum { LIVE = 12, STEPS = 6000 };
    static text texts[LIVE];
    rvi_seq seqs[LIVE] = {{0}};
    rvi_rng rng = {9};
    int n_shared = 0, n_evicted = 0;
    (void)state;
    set_up(48);
    for (int step = 0; step < STEPS; step++) {
        int i = (int)(rvi_rng_u64(&rng) % LIVE);
        rvi_seq *s = &seqs[i];
        text *t = &texts[i];
        int32_t pages[LONGEST / PAGE + 1];
        if (s->pages) {
            rvi_prefix_insert(tree, &t->space, t->ids, s->len, s->pages);
            rvi_seq_deinit(s);
            continue;
        }
        *t = random_text(&rng, texts, LIVE);
        assert_ok(rvi_seq_init(s, pool, LONGEST, err));
        int n = rvi_prefix_find(tree, &t->space, t->ids, t->n, pages);
        rvi_seq_adopt(s, pages, n);
        n_shared += n > 0;
        int wants = rvi_seq_wants(s, t->n - n);
        int lacks = wants - (48 - rvi_pages_in_use(pool));
        if (lacks > 0) {
            int n_idle = rvi_pages_idle(pool), freed = rvi_prefix_evict(tree, lacks);
            assert_int_equal(freed, RVI_MIN(lacks, n_idle));
            n_evicted += freed;
        }
        if (rvi_seq_extend(s, t->n - n, NULL)) rvi_seq_deinit(s);
    }
    assert_true(n_shared > 500 && n_evicted > 500);
    for (int i = 0; i < LIVE; i++) rvi_seq_deinit(&seqs[i]);
    assert_int_equal(rvi_pages_idle(pool), rvi_pages_in_use(pool));
    rvi_prefix_evict(tree, 1000);
    assert_int_equal(rvi_pages_in_use(pool), 0);
    tear_down();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sharing_is_exact_to_the_token),
                                       cmocka_unit_test(one_page_in_two_lengths),
                                       cmocka_unit_test(pages_in_use_are_kept),
                                       cmocka_unit_test(gives_up_the_oldest_leaf),
                                       cmocka_unit_test(what_many_begin_with_stays_longer),
                                       cmocka_unit_test(turns_do_not_add_up),
                                       cmocka_unit_test(finds_what_a_list_finds),
                                       cmocka_unit_test(random_lives)};
    return cmocka_run_group_tests_name("prefix", tests, NULL, NULL);
}
