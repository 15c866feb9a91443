#include "learn/recognise/embedder.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "kv/pages.h"
#include "learn/recognise/compare_weights.h"

enum {
    WIDTH = RVI_EMBEDDER_WIDTH,
    ROWS = RVI_EMBEDDER_TOKENS + 2,
    PAGES = (ROWS + RVI_PAGE_TOKENS - 1) / RVI_PAGE_TOKENS + RVI_EMBEDDER_PAIRS - 1
};

_Static_assert((int)RVI_COMPARE_WIDTH == WIDTH, "the tables are for another encoder");
_Static_assert(2 * RVI_EMBEDDER_COMPARED + 3 <= ROWS, "two texts fit");

/* What a pass came to. */
typedef struct known {
    int32_t ids[ROWS]; /* of a text, or of two with SEPARATOR between them */
    size_t n;
    float *values; /* states and mean of a text (rvi_embedder_read), the odds of two; NULL: this
                      place is free */
} known;

enum { SEPARATOR = -1, KNOWN = 112 }; /* passes of two requests and the turns before them */

struct rvi_embedder {
    const rvi_model *m;
    const rvi_tokenizer *t;
    rvi_backend *be;
    rvi_workspace *ws;
    rvi_pages *pages;
    rvi_seq seqs[RVI_EMBEDDER_PAIRS]; /* of the texts of a pass; mostly one */
    int32_t first, last;              /* the tokens around a text */
    rvi_row rows[ROWS];
    float *middle; /* ROWS x WIDTH, filled by the tap */
    float *final;  /* as many */
    /* makes the encoder compare two texts instead of telling what one means */
    rvi_adapter *comparing;
    rvi_adapter_use use;
    rvi_adapter_set set;
    /* in pieces */
    bool holds; /* it is held to rows_left, */
    int rows_left;
    bool was_held;
    bool began; /* a pass was computed since then */
    known known[KNOWN];
    size_t n_known; /* that were remembered: the oldest make room */
};

static void tap(void *ctx, const char *name, rvi_cols values, int n_rows)
{
    rvi_embedder *e = ctx;
    char wanted[16];
    if (e->rows[0].adapters) return;
    snprintf(wanted, sizeof wanted, "hidden.%d", RVI_EMBEDDER_MIDDLE);
    if (strcmp(name, wanted)) return;
    e->be->ops->fetch(e->be, values, n_rows, e->middle);
}

/* ---- the adapter ---- */

/* A character of the table as a number: -45 to 45. */
static float number_of(char c)
{
    return (float)((c == '!' ? '?' : c == ' ' ? '\\' : c) - 80);
}

static rv_status put_product(rvi_adapter *a, int slot, const rvi_lora_target *t,
                             const rvi_compare_product *p, rv_error *err)
{
    size_t n_in = (size_t)t->n_in, n_out = (size_t)t->n_out;
    float *in = rvi_alloc_array(RVI_COMPARE_RANK * (n_in + n_out), sizeof *in);
    float *out = in ? in + RVI_COMPARE_RANK * n_in : NULL;
    if (!in) return rvi_nomem(err, "embedder");
    for (size_t k = 0; k < RVI_COMPARE_RANK; k++) {
        for (size_t i = 0; i < n_in; i++) in[k * n_in + i] = p[k].scale * number_of(p[k].in[i]);
        for (size_t i = 0; i < n_out; i++) out[i * RVI_COMPARE_RANK + k] = number_of(p[k].out[i]);
    }
    rv_status st = rvi_adapter_put(a, slot, t, RVI_COMPARE_RANK, 1, in, out, err);
    rvi_free(in);
    return st;
}

static int find_target(const rvi_model *m, const char *name)
{
    for (int i = 0; i < m->n_targets; i++)
        if (!strcmp(m->targets[i].gguf_name, name)) return i;
    return -1;
}

static rv_status new_adapter(rvi_embedder *e, rv_error *err)
{
    rv_status st = rvi_adapter_new(&e->comparing, e->be, e->m->n_targets, err);
    for (int i = 0; !st && i < RVI_COMPARE_LAYERS; i++) {
        const rvi_compare_layer *l = &rvi_compare_layers[i];
        int slot = find_target(e->m, l->name);
        const rvi_lora_target *t = slot >= 0 ? &e->m->targets[slot] : NULL;
        if (!t || strlen(l->products[0].in) != (size_t)t->n_in ||
            strlen(l->products[0].out) != (size_t)t->n_out)
            st = rvi_error(err, RV_E_MODEL, "%s has no layer %s as all-MiniLM-L6-v2 has it",
                           e->m->source->name, l->name);
        else
            st = put_product(e->comparing, slot, t, l->products, err);
    }
    e->use = (rvi_adapter_use){e->comparing, 1};
    e->set = (rvi_adapter_set){.uses = &e->use, .n = 1, .serial = 1};
    return st;
}

/* Weights of the right shapes may be damaged, or another model's: then it cannot tell what anybody
 * could. */
static rv_status try_out(rvi_embedder *e, rv_error *err)
{
    static const char *const texts[] = {"What is the capital of France?",
                                        "Which city is the capital of France?",
                                        "How long must an egg be boiled?"};
    enum { ASKED, SAME, OTHER, N };
    rvi_ids ids[N] = {{0}};
    rv_status st = RV_OK;
    for (int i = 0; !st && i < N; i++)
        st = rvi_tokenizer_encode(e->t, texts[i], strlen(texts[i]), 0, &ids[i], err);
    for (int i = 0; !st && i < N; i++)
        if (ids[i].len > RVI_EMBEDDER_COMPARED) st = RV_E_MODEL; /* no words of its own for these */
    rvi_embedder_pair pairs[] = {
        {ids[ASKED].data, ids[SAME].data, ids[ASKED].len, ids[SAME].len, 0},
        {ids[ASKED].data, ids[OTHER].data, ids[ASKED].len, ids[OTHER].len, 0}};
    if (!st) st = rvi_embedder_compare(e, pairs, RVI_COUNT(pairs), err);
    if (!st && !(pairs[0].odds > 0 && pairs[1].odds < 0)) st = RV_E_MODEL;
    if (st == RV_E_MODEL || st == RV_E_GENERATION)
        st = rvi_error(err, RV_E_MODEL, "%s is damaged, or not all-MiniLM-L6-v2",
                       e->m->source->name);
    for (int i = 0; i < N; i++) rvi_ids_deinit(&ids[i]);
    rvi_embedder_forget(e);
    return st;
}

rv_status rvi_embedder_new(rvi_embedder **out, const rvi_model *m, const rvi_tokenizer *t,
                           rvi_backend *be, rv_error *err)
{
    *out = NULL;
    if (!m->arch->is_encoder || !t || m->hp.n_embd != WIDTH ||
        m->hp.n_layers != RVI_EMBEDDER_LAYERS || m->hp.n_vocab != RVI_EMBEDDER_VOCABULARY)
        return rvi_error(err, RV_E_MODEL,
                         "lessons are recognised with all-MiniLM-L6-v2; %s is another model",
                         m->source->name);
    rvi_embedder *e = rvi_zalloc(sizeof *e);
    if (!e) return rvi_nomem(err, "embedder");
    e->m = m;
    e->t = t;
    e->be = be;
    rvi_ids around = {0};
    rvi_kv_spec spec = rvi_model_kv_spec(m, RV_KV_F32, PAGES);
    rv_status st = rvi_tokenizer_encode(t, "", 0, RVI_TOK_BOS_EOS, &around, err);
    if (!st && around.len != 2)
        st = rvi_error(err, RV_E_MODEL, "%s: its tokenizer puts %zu tokens around a text, not 2",
                       m->source->name, around.len);
    if (!st) {
        e->first = around.data[0];
        e->last = around.data[1];
    }
    rvi_ids_deinit(&around);
    e->middle = rvi_zalloc_array((size_t)ROWS * WIDTH, 2 * sizeof *e->middle);
    e->final = e->middle ? e->middle + (size_t)ROWS * WIDTH : NULL;
    if (!st && !e->middle) st = rvi_nomem(err, "embedder");
    if (!st) st = rvi_workspace_new_on(&e->ws, m, be, ROWS, 1, err);
    if (!st) st = rvi_pages_new(&e->pages, be, &spec, err);
    for (int i = 0; !st && i < RVI_EMBEDDER_PAIRS; i++)
        st = rvi_seq_init(&e->seqs[i], e->pages, ROWS, err);
    if (!st) st = new_adapter(e, err);
    if (!st) rvi_workspace_set_tap(e->ws, tap, e);
    if (!st) st = try_out(e, err);
    if (st)
        rvi_embedder_free(e);
    else
        *out = e;
    return st;
}

void rvi_embedder_free(rvi_embedder *e)
{
    if (!e) return;
    rvi_embedder_forget(e);
    for (int i = 0; i < RVI_EMBEDDER_PAIRS; i++) rvi_seq_deinit(&e->seqs[i]);
    rvi_pages_free(e->pages);
    rvi_workspace_free(e->ws);
    rvi_adapter_free(e->comparing);
    rvi_free(e->middle);
    rvi_free(e);
}

const rvi_tokenizer *rvi_embedder_tokenizer(const rvi_embedder *e)
{
    return e->t;
}

/* ---- in pieces ---- */

void rvi_embedder_hold(rvi_embedder *e, int n)
{
    e->holds = n >= 0;
    e->rows_left = n;
    e->began = e->was_held = false;
}

bool rvi_embedder_was_held(const rvi_embedder *e)
{
    return e->was_held;
}

void rvi_embedder_forget(rvi_embedder *e)
{
    for (int i = 0; i < KNOWN; i++) {
        rvi_free(e->known[i].values);
        e->known[i] = (known){0};
    }
}

/* May a pass of so many rows be computed? */
static rv_status take_rows(rvi_embedder *e, int n, rv_error *err)
{
    if (e->holds && e->began && n > e->rows_left) {
        e->was_held = true;
        return rvi_error(err, RV_E_BUSY, "others have their turn first");
    }
    e->began = true;
    e->rows_left -= RVI_MIN(n, e->rows_left);
    return RV_OK;
}

/* NULL: it is not known. */
static const float *recall(const rvi_embedder *e, const int32_t *ids, size_t n)
{
    for (int i = 0; i < KNOWN; i++) {
        const known *x = &e->known[i];
        if (x->values && x->n == n && !memcmp(x->ids, ids, n * sizeof *ids)) return x->values;
    }
    return NULL;
}

/* Room for n_values. NULL: there is no memory for them, or no need, and the pass is computed
 * again. */
static float *remember(rvi_embedder *e, const int32_t *ids, size_t n, size_t n_values)
{
    float *values = e->holds ? rvi_alloc_array(n_values, sizeof *values) : NULL;
    if (!values) return NULL;
    known *x = &e->known[e->n_known++ % KNOWN];
    rvi_free(x->values);
    *x = (known){.n = n, .values = values};
    memcpy(x->ids, ids, n * sizeof *ids);
    return values;
}

static size_t ids_of_pair(const rvi_embedder_pair *p, int32_t ids[ROWS])
{
    memcpy(ids, p->a, p->n_a * sizeof *ids);
    ids[p->n_a] = SEPARATOR;
    memcpy(ids + p->n_a + 1, p->b, p->n_b * sizeof *ids);
    return p->n_a + 1 + p->n_b;
}

/* ---- passes ---- */

rv_status rvi_embedder_read(rvi_embedder *e, const int32_t *ids, size_t n, float *middle,
                            float *last, float *mean, rv_error *err)
{
    double sum[WIDTH] = {0}, squares = 0;
    int n_rows = (int)n + 2;
    size_t n_states = n * WIDTH, bytes = n_states * sizeof *last;
    const float *before = recall(e, ids, n);
    if (before) {
        memcpy(middle, before, bytes);
        memcpy(last, before + n_states, bytes);
        memcpy(mean, before + 2 * n_states, WIDTH * sizeof *mean);
        return RV_OK;
    }
    rv_status st = take_rows(e, n_rows, err);
    if (!st) st = rvi_seq_extend(&e->seqs[0], n_rows, err);
    if (st) return st;
    for (int i = 0; i < n_rows; i++)
        e->rows[i] = (rvi_row){.seq = &e->seqs[0],
                               .pos = i,
                               .token = i == 0            ? e->first
                                        : i == n_rows - 1 ? e->last
                                                          : ids[i - 1]};
    rvi_model_forward(e->m, e->ws, e->rows, n_rows);
    rvi_workspace_hidden_rows(e->ws, n_rows, e->final);
    for (int i = 0; i < n_rows; i++)
        for (int k = 0; k < WIDTH; k++) sum[k] += (double)e->final[(size_t)i * WIDTH + (size_t)k];
    memcpy(last, e->final + WIDTH, bytes);
    memcpy(middle, e->middle + WIDTH, bytes);
    for (int k = 0; k < WIDTH; k++) squares += sum[k] * sum[k];
    double scale = squares > 0 ? 1 / sqrt(squares) : 0;
    for (int k = 0; k < WIDTH; k++) mean[k] = (float)(sum[k] * scale);
    rvi_seq_truncate(&e->seqs[0], 0);
    if ((st = rvi_model_check(e->m, e->ws, err))) return st;
    if (!isfinite(squares))
        return rvi_error(err, RV_E_GENERATION, "%s: its output is not finite", e->m->source->name);
    float *values = remember(e, ids, n, 2 * n_states + WIDTH);
    if (!values) return RV_OK;
    memcpy(values, middle, bytes);
    memcpy(values + n_states, last, bytes);
    memcpy(values + 2 * n_states, mean, WIDTH * sizeof *mean);
    return RV_OK;
}

static int rows_of(const rvi_embedder_pair *p)
{
    return (int)(p->n_a + p->n_b) + 3;
}

/* The rows of a pair: its first, whose final state is asked for, is row `first`, and the others
 * are from row `at` on. */
static rv_status put_pair(rvi_embedder *e, rvi_seq *seq, const rvi_embedder_pair *pair, int first,
                          int at, rv_error *err)
{
    const struct {
        const int32_t *ids;
        size_t n;
    } parts[] = {
        {&e->first, 1}, {pair->a, pair->n_a}, {&e->last, 1}, {pair->b, pair->n_b}, {&e->last, 1}};
    int n = 0;
    for (size_t p = 0; p < RVI_COUNT(parts); p++)
        for (size_t i = 0; i < parts[p].n; i++, n++)
            e->rows[n ? at + n - 1 : first] =
                (rvi_row){.seq = seq, .pos = n, .token = parts[p].ids[i], .adapters = &e->set};
    return rvi_seq_extend(seq, n, err);
}

/* Compares the pairs that one pass has room for; *n says how many these are. */
static rv_status compare_some(rvi_embedder *e, rvi_embedder_pair *pairs, size_t *n, rv_error *err)
{
    int n_rows = 0;
    size_t n_taken = 0;
    rv_status st = RV_OK;
    while (n_taken < *n && n_rows + rows_of(&pairs[n_taken]) <= ROWS)
        n_rows += rows_of(&pairs[n_taken++]);
    *n = n_taken;
    st = take_rows(e, n_rows, err);
    for (int i = 0, at = (int)n_taken; !st && i < (int)n_taken; i++) {
        st = put_pair(e, &e->seqs[i], &pairs[i], i, at, err);
        at += rows_of(&pairs[i]) - 1;
    }
    if (!st) rvi_model_encode(e->m, e->ws, e->rows, n_rows, (int)n_taken);
    if (!st) rvi_workspace_hidden_rows(e->ws, (int)n_taken, e->final);
    for (size_t i = 0; i < n_taken; i++) {
        const float *first = e->final + i * WIDTH;
        double sum = (double)rvi_compare_bias;
        rvi_seq_truncate(&e->seqs[i], 0);
        if (st) continue;
        for (int k = 0; k < WIDTH; k++) sum += (double)first[k] * (double)rvi_compare_head[k];
        pairs[i].odds = (float)sum;
    }
    if (!st) st = rvi_model_check(e->m, e->ws, err);
    for (size_t i = 0; !st && i < n_taken; i++)
        if (!isfinite(pairs[i].odds))
            st =
                rvi_error(err, RV_E_GENERATION, "%s: its output is not finite", e->m->source->name);
    return st;
}

rv_status rvi_embedder_compare(rvi_embedder *e, rvi_embedder_pair *pairs, size_t n, rv_error *err)
{
    rvi_embedder_pair new[RVI_EMBEDDER_PAIRS];
    size_t at[RVI_EMBEDDER_PAIRS], n_new = 0;
    int32_t ids[ROWS];
    rv_status st = RV_OK;
    for (size_t i = 0; i < n; i++) {
        const float *odds = recall(e, ids, ids_of_pair(&pairs[i], ids));
        at[n_new] = i;
        if (odds)
            pairs[i].odds = *odds;
        else
            new[n_new++] = pairs[i];
    }
    for (size_t done = 0, some; !st && done < n_new; done += some) {
        some = n_new - done;
        st = compare_some(e, new + done, &some, err);
        for (size_t i = done; !st && i < done + some; i++) {
            pairs[at[i]].odds = new[i].odds;
            float *odds = remember(e, ids, ids_of_pair(&new[i], ids), 1);
            if (odds) *odds = new[i].odds;
        }
    }
    return st;
}
