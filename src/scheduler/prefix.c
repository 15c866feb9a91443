#include "scheduler/prefix.h"

#include <string.h>

#include "base/mem.h"

/* A name space is the first level of the tree: these words in place of tokens. */
enum { SPACE_WORDS = 5, SALT_AT = 2, N_LEVELS = RVI_PREFIX_WAYS + 1 };

/* In a ring, whose head is a link too. */
typedef struct link link;
struct link {
    link *older, *newer;
};

typedef struct node node;
struct node {
    link by_use; /* first: among the nodes of a level */
    node *parent;
    node **children;
    int n_children, cap;
    int n_ways;   /* in which texts have gone on from here, at least 1 and at most most_ways */
    int32_t page; /* -1: a name space */
    int n;        /* tokens */
    int32_t tokens[RVI_PAGE_TOKENS];
};

struct rvi_prefix {
    rvi_pages *pool;
    int most_ways;
    node root; /* in no level */
    link levels[N_LEVELS];
    int level; /* of which pages are given up; the next one is behind it */
};

rv_status rvi_prefix_new(rvi_prefix **out, rvi_pages *pool, int most_ways, rv_error *err)
{
    rvi_prefix *p = *out = rvi_zalloc(sizeof **out);
    if (!p) return rvi_nomem(err, "prefix tree");
    p->pool = pool;
    p->most_ways = most_ways;
    for (int i = 0; i < N_LEVELS; i++) p->levels[i] = (link){&p->levels[i], &p->levels[i]};
    return RV_OK;
}

/* ---- order of use ---- */

static void unlink_node(node *x)
{
    x->by_use.older->newer = x->by_use.newer;
    x->by_use.newer->older = x->by_use.older;
}

static void link_newest(rvi_prefix *p, node *x)
{
    link *head = &p->levels[(p->level + x->n_ways) % N_LEVELS];
    x->by_use = (link){head->older, head};
    head->older = head->older->newer = &x->by_use;
}

/* What is left of this level comes before the next one. Returns the first that was there. */
static link *next_level(rvi_prefix *p)
{
    link *head = &p->levels[p->level], *next;
    p->level = (p->level + 1) % N_LEVELS;
    next = &p->levels[p->level];
    link *first = next->newer;
    if (head->newer != head) {
        head->older->newer = first;
        first->older = head->older;
        head->newer->older = next;
        next->newer = head->newer;
        *head = (link){head, head};
    }
    return first;
}

/* From x upwards, so that parents end up newer. */
static void touch_path(rvi_prefix *p, node *x)
{
    for (; x != &p->root; x = x->parent) {
        unlink_node(x);
        link_newest(p, x);
    }
}

/* ---- children ---- */

static int common(const int32_t *a, int n_a, const int32_t *b, int n_b)
{
    int n = 0, most = RVI_MIN(n_a, n_b);
    while (n < most && a[n] == b[n]) n++;
    return n;
}

/* a before b; a beginning comes before what it begins. */
static bool is_before(const int32_t *a, int n_a, const int32_t *b, int n_b)
{
    int same = common(a, n_a, b, n_b);
    return same == n_a ? n_a < n_b : same < n_b && a[same] < b[same];
}

/* Where tokens are or would be. */
static int place_of(const node *x, const int32_t *tokens, int n)
{
    int low = 0, high = x->n_children;
    while (low < high) {
        int mid = (low + high) / 2;
        if (is_before(x->children[mid]->tokens, x->children[mid]->n, tokens, n))
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* The child that shares most with tokens, and how many; NULL: none shares any. */
static node *nearest(const node *x, const int32_t *tokens, int n, int *shared)
{
    int at = place_of(x, tokens, n);
    node *best = NULL;
    *shared = 0;
    for (int i = at - 1; i <= at; i++) {
        if (i < 0 || i >= x->n_children) continue;
        int same = common(x->children[i]->tokens, x->children[i]->n, tokens, n);
        if (same > *shared) {
            *shared = same;
            best = x->children[i];
        }
    }
    return best;
}

/* Another text goes on from x than before, and so from all that is above it. */
static void count_way(const rvi_prefix *p, node *x)
{
    for (; x != &p->root; x = x->parent) x->n_ways = RVI_MIN(x->n_ways + 1, p->most_ways);
}

/* The caller touches the path to the child. */
static node *add_child(rvi_prefix *p, node *x, const int32_t *tokens, int n, int32_t page)
{
    if (x->n_children == x->cap) {
        int cap = x->cap ? 2 * x->cap : 1; /* most pages have one successor */
        node **more = rvi_realloc_array(x->children, (size_t)cap, sizeof(node *));
        if (!more) return NULL;
        x->children = more;
        x->cap = cap;
    }
    node *child = rvi_zalloc(sizeof *child);
    if (!child) return NULL;
    if (x->n_children) count_way(p, x);
    int at = place_of(x, tokens, n);
    memmove(x->children + at + 1, x->children + at, (size_t)(x->n_children - at) * sizeof(node *));
    x->children[at] = child;
    x->n_children++;
    child->parent = x;
    child->n_ways = 1;
    child->n = n;
    memcpy(child->tokens, tokens, (size_t)n * sizeof *tokens);
    child->page = page;
    if (page >= 0) rvi_pages_keep(p->pool, page);
    link_newest(p, child);
    return child;
}

static void remove_leaf(rvi_prefix *p, node *x)
{
    node *parent = x->parent;
    int at = place_of(parent, x->tokens, x->n);
    memmove(parent->children + at, parent->children + at + 1,
            (size_t)(parent->n_children - at - 1) * sizeof(node *));
    parent->n_children--;
    unlink_node(x);
    if (x->page >= 0) rvi_pages_unkeep(p->pool, x->page);
    rvi_free(x->children);
    rvi_free(x);
}

/* ---- finding and keeping ---- */

static void words_of(const rvi_prefix_space *s, int32_t words[SPACE_WORDS])
{
    uint32_t all[SPACE_WORDS] = {(uint32_t)s->adapters, (uint32_t)(s->adapters >> 32),
                                 (uint32_t)s->salt, (uint32_t)(s->salt >> 32),
                                 (uint32_t)s->rope_set};
    memcpy(words, all, sizeof all);
}

static node *find_space(const rvi_prefix *p, const int32_t words[SPACE_WORDS])
{
    int same;
    node *x = nearest(&p->root, words, SPACE_WORDS, &same);
    return same == SPACE_WORDS ? x : NULL;
}

int rvi_prefix_find(rvi_prefix *p, const rvi_prefix_space *space, const int32_t *ids, int n,
                    int32_t *pages)
{
    int32_t words[SPACE_WORDS];
    words_of(space, words);
    node *at = find_space(p, words);
    int len = 0, shared = RVI_PAGE_TOKENS;
    if (!at) return 0;
    while (shared == RVI_PAGE_TOKENS && len < n) {
        node *child = nearest(at, ids + len, RVI_MIN(n - len, (int)RVI_PAGE_TOKENS), &shared);
        if (!child) break;
        pages[len / RVI_PAGE_TOKENS] = child->page;
        len += shared;
        at = child;
    }
    touch_path(p, at);
    return len;
}

/* The node has another page from now on; or the same, of which more tokens are known. */
static void replace_page(rvi_prefix *p, node *x, int32_t page)
{
    if (x->page == page) return; /* it would be kept no more */
    rvi_pages_keep(p->pool, page);
    rvi_pages_unkeep(p->pool, x->page);
    x->page = page;
}

/* Of two whole pages with the same tokens, is the new one to be kept? It is, where it has forms
 * that the other has lost; and where nobody holds the other, which could not be given up as long as
 * there are pages behind it that somebody holds. */
static bool is_better(const rvi_prefix *p, int32_t page, int32_t kept)
{
    if (rvi_pages_is_finer(p->pool, page, kept)) return true;
    return rvi_pages_refs(p->pool, kept) == 1 && !rvi_pages_is_finer(p->pool, kept, page);
}

/* The node of this page of a text below x. NULL: there is no memory, or what is kept already goes
 * further than a last page that is not full. Where a text could go on from that and not from the
 * other, it is kept beside it. */
static node *keep_page(rvi_prefix *p, node *x, const int32_t *tokens, int n, int32_t page)
{
    int shared;
    node *near = nearest(x, tokens, n, &shared);
    if (near && shared == n && near->n == n && page != near->page &&
        (n == RVI_PAGE_TOKENS ? is_better(p, page, near->page)
                              : rvi_pages_is_finer(p->pool, page, near->page)))
        replace_page(p, near, page);
    if (near && shared == n && near->n == n) return near;
    if (near && shared == n)
        return rvi_pages_can_grow(p->pool, page) > rvi_pages_can_grow(p->pool, near->page)
                   ? add_child(p, x, tokens, n, page)
                   : NULL;
    if (!near || shared < near->n) return add_child(p, x, tokens, n, page);
    replace_page(p, near, page); /* the same page with more tokens */
    near->n = n;
    memcpy(near->tokens, tokens, (size_t)n * sizeof *tokens);
    return near;
}

void rvi_prefix_insert(rvi_prefix *p, const rvi_prefix_space *space, const int32_t *ids, int n,
                       const int32_t *pages)
{
    int32_t words[SPACE_WORDS];
    if (!n) return;
    words_of(space, words);
    node *at = find_space(p, words);
    if (!at) at = add_child(p, &p->root, words, SPACE_WORDS, -1);
    if (!at) return;
    for (int len = 0; len < n; len += RVI_PAGE_TOKENS) {
        node *next = keep_page(p, at, ids + len, RVI_MIN(n - len, (int)RVI_PAGE_TOKENS),
                               pages[len / RVI_PAGE_TOKENS]);
        if (!next) break;
        at = next;
    }
    touch_path(p, at);
}

/* ---- giving up ---- */

static bool is_idle(const rvi_prefix *p, const node *x)
{
    return x->page < 0 || rvi_pages_refs(p->pool, x->page) == 1;
}

/* What a level has left cannot go in this call, for what is below it came before it: a call walks
 * over each node once. */
int rvi_prefix_evict(rvi_prefix *p, int n)
{
    int freed = 0, n_more = N_LEVELS - 1;
    for (link *at = p->levels[p->level].newer, *newer; freed < n; at = newer) {
        if (at == &p->levels[p->level]) {
            if (!n_more--) break;
            newer = next_level(p);
            continue;
        }
        node *x = (node *)at;
        newer = at->newer;
        if (x->n_children || !is_idle(p, x)) continue;
        freed += x->page >= 0;
        remove_leaf(p, x);
    }
    return freed;
}

static void forget_below(rvi_prefix *p, node *top)
{
    node *x = top;
    for (;;) { /* down to a leaf, remove it, up again: as deep as a text is long */
        while (x->n_children) x = x->children[x->n_children - 1];
        node *parent = x->parent;
        if (x == top) return;
        remove_leaf(p, x);
        x = parent;
    }
}

void rvi_prefix_forget(rvi_prefix *p, uint64_t salt)
{
    int32_t of_salt[SPACE_WORDS];
    words_of(&(rvi_prefix_space){.salt = salt}, of_salt);
    for (int i = p->root.n_children - 1; i >= 0; i--) {
        node *x = p->root.children[i];
        if (memcmp(x->tokens + SALT_AT, of_salt + SALT_AT, sizeof salt)) continue;
        forget_below(p, x);
        remove_leaf(p, x);
    }
}

void rvi_prefix_free(rvi_prefix *p)
{
    if (!p) return;
    forget_below(p, &p->root);
    rvi_free(p->root.children);
    rvi_free(p);
}
