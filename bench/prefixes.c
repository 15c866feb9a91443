/* prefixes.c - what the tree of prefixes keeps: build/bench/prefixes [SEED].
 *
 * Requests of made-up loads come one after the other, each reads what the tree does not have of its
 * prompt, and its prompt and answer are kept in a cache of so many tokens. Counted are rows of
 * prompts that somebody had computed before, and what they take: 0.4 ms at the beginning of a text,
 * twice that at token 683 (SmolLM2, a thread of the build machine). Once with a tree that gives up
 * by the time of the last use alone, and once with the service's. All is a function of the seed. */
#include <math.h>

#include "program.h"

#include "base/mem.h"
#include "base/rng.h"
#include "scheduler/prefix.h"

enum { PAGE = RVI_PAGE_TOKENS, MOST_PAGES = 1 << 10, MOST_TEXTS = 1 << 20, MOST_SHARED = 300 };

/* A page of a text, known by its index; its tokens are all that. */
typedef struct part {
    int before; /* -1: none */
    int depth;
    bool computed;
} part;

static part parts[MOST_TEXTS];
static int n_parts;

static int grow(int from, int n)
{
    while (n-- > 0) {
        if (n_parts == MOST_TEXTS) exit(1);
        parts[n_parts] = (part){from, from < 0 ? 0 : parts[from].depth + 1, false};
        from = n_parts++;
    }
    return from;
}

/* ---- the cache ---- */

typedef struct cache {
    rvi_pages *pool;
    rvi_prefix *tree;
    int n_pages;
    double rows, again, ms; /* of prompts: read at all, and of these read again */
} cache;

static void ask(cache *c, int last, int n_answer)
{
    static int32_t ids[MOST_PAGES * PAGE], pages[MOST_PAGES];
    static const rvi_prefix_space space = {.salt = 7};
    int n = parts[last].depth + 1, n_prompt = n - n_answer;
    rvi_seq seq;
    if (n > MOST_PAGES) exit(1);
    for (int x = last, i = n - 1; i >= 0; x = parts[x].before, i--)
        for (int k = 0; k < PAGE; k++) ids[i * PAGE + k] = x;
    int known = rvi_prefix_find(c->tree, &space, ids, n_prompt * PAGE, pages);
    for (int i = known / PAGE; i < n; i++) {
        part *x = &parts[ids[i * PAGE]];
        if (i < n_prompt) c->rows += PAGE;
        if (i < n_prompt && x->computed) {
            c->again += PAGE;
            c->ms += PAGE * 0.4 * (1 + (i + 0.5) * PAGE / 683);
        }
        x->computed = true;
    }
    must(rvi_seq_init(&seq, c->pool, n * PAGE, &err));
    rvi_seq_adopt(&seq, pages, known);
    int lack = n - known / PAGE - (c->n_pages - rvi_pages_in_use(c->pool));
    if (lack > 0) (void)rvi_prefix_evict(c->tree, lack);
    must(rvi_seq_extend(&seq, (n * PAGE) - known, &err));
    rvi_prefix_insert(c->tree, &space, ids, n * PAGE, seq.pages);
    rvi_seq_deinit(&seq);
}

/* ---- loads ---- */

static rvi_rng rng;

static int below(int n)
{
    return (int)(rvi_rng_u64(&rng) % (uint64_t)n);
}

static bool happens(double p)
{
    return rvi_rng_double(&rng) < p;
}

static int about(double mean) /* at least 1 */
{
    return 1 + (int)(-log(1 - rvi_rng_double(&rng)) * mean);
}

static int popular(int n) /* Zipf: the i-th is asked for half as often as the one at i / 2 */
{
    double sum = 0, x;
    for (int i = 1; i <= n; i++) sum += 1.0 / i;
    x = rvi_rng_double(&rng) * sum;
    int i = 0;
    while (i < n - 1 && (x -= 1.0 / (i + 1)) > 0) i++;
    return i;
}

static int shared[MOST_SHARED], talks[MOST_SHARED];

static void make_shared(int from, int n, int least, int most)
{
    for (int i = 0; i < n; i++) shared[i] = grow(from, least + below(most - least + 1));
}

static void turn(cache *c, int *talk, double question, double answer)
{
    int n = about(answer);
    *talk = grow(grow(*talk, about(question)), n);
    ask(c, *talk, n);
}

/* So many users at any time, 12 system prompts, six turns on average; `once` of the requests are
 * a long document each that nobody asks about again. */
static void chat(cache *c, int n_users, double once)
{
    make_shared(-1, 12, 6, 45);
    for (int i = 0; i < n_users; i++) talks[i] = -1;
    for (int k = 0; k < 3000; k++) {
        int from = shared[popular(12)], *talk = &talks[below(n_users)];
        if (happens(once)) {
            ask(c, grow(from, 60 + below(140)), 2);
            continue;
        }
        if (*talk < 0 || happens(1.0 / 6) || parts[*talk].depth > 500) *talk = from;
        turn(c, talk, 3, 6);
    }
}

static void chat_60(cache *c)
{
    chat(c, 60, 0);
}

static void chat_60_once(cache *c)
{
    chat(c, 60, 0.2);
}

static void chat_200_once(cache *c)
{
    chat(c, 200, 0.05);
}

/* 60 conversations of up to 8,000 tokens, some of which come back more often than others. */
static void long_talks(cache *c)
{
    make_shared(-1, 3, 10, 30);
    for (int i = 0; i < 60; i++) talks[i] = grow(shared[below(3)], about(40));
    for (int k = 0; k < 2500; k++) {
        int *talk = &talks[popular(60)];
        if (happens(0.2)) {
            ask(c, grow(-1, 60 + below(190)), 3);
            continue;
        }
        if (parts[*talk].depth > 250) *talk = grow(shared[below(3)], about(20));
        turn(c, talk, 3, 6);
    }
}

/* One question each about one of 300 documents behind a system prompt. */
static void documents(cache *c)
{
    make_shared(grow(-1, 12), 300, 16, 96);
    for (int k = 0; k < 3000; k++) {
        int talk = shared[popular(300)];
        turn(c, &talk, 2, 5);
    }
}

/* Twelve agents at a time, each with one of five lists of tools, in some fifteen quick steps. */
static void agents(cache *c)
{
    int left[12] = {0};
    make_shared(-1, 5, 60, 130);
    for (int k = 0; k < 2500; k++) {
        int i = below(12);
        if (!left[i] || parts[talks[i]].depth > 900) {
            left[i] = about(15);
            talks[i] = grow(shared[popular(5)], about(4));
        }
        turn(c, &talks[i], 9, 3);
        left[i]--;
    }
}

/* One question behind one of 40 long instructions with examples. */
static void instructions(cache *c)
{
    make_shared(-1, 40, 20, 120);
    for (int k = 0; k < 4000; k++) {
        int talk = shared[popular(40)];
        turn(c, &talk, 4, 6);
    }
}

typedef struct load {
    const char *name;
    void (*run)(cache *c);
} load;

static cache run(rvi_backend *be, const load *l, int n_tokens, int most_ways, uint64_t seed)
{
    cache c = {.n_pages = n_tokens / PAGE};
    rvi_kv_spec spec = {.n_layers = 1,
                        .n_kv_heads = 1,
                        .head_size = 8,
                        .n_pages = c.n_pages + MOST_PAGES,
                        .type = RV_KV_F16};
    n_parts = 0;
    rng = (rvi_rng){seed};
    must(rvi_pages_new(&c.pool, be, &spec, &err));
    must(rvi_prefix_new(&c.tree, c.pool, most_ways, &err));
    l->run(&c);
    rvi_prefix_free(c.tree);
    rvi_pages_free(c.pool);
    return c;
}

int main(int argc, char **argv)
{
    static const load loads[] = {
        {"chat, 60 users", chat_60},
        {"chat, 60 users, 20 % texts once", chat_60_once},
        {"chat, 200 users, 5 % texts once", chat_200_once},
        {"long talks, 20 % texts once", long_talks},
        {"questions about 300 documents", documents},
        {"12 agents", agents},
        {"40 instructions, one turn", instructions},
    };
    static const int sizes[] = {20480, 51200, 131072};
    uint64_t seed = argc > 1 ? (uint64_t)atoll(argv[1]) : 1;
    rvi_backend *be;
    must(rvi_backend_cpu_new(&be, &(rvi_cpu_options){.n_threads = 1}, NULL, &err));
    printf("%-33s %7s %10s %10s %6s %9s %9s %6s\n", "load", "cache", "rows again", "of which", "",
           "seconds", "", "of all");
    for (size_t i = 0; i < sizeof loads / sizeof *loads; i++)
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
            cache a = run(be, &loads[i], sizes[k], 1, seed),
                  b = run(be, &loads[i], sizes[k], RVI_PREFIX_WAYS, seed);
            printf("%-33s %7d %10.0f %10.0f %6.3f %9.1f %9.1f %6.3f\n", loads[i].name, sizes[k],
                   a.again, b.again, a.again > 0 ? b.again / a.again : 1, a.ms / 1e3, b.ms / 1e3,
                   b.rows / a.rows);
        }
    be->ops->free(be);
    return 0;
}
