#include "learn/consolidate/samples.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "learn/journal/list.h"

bool rvi_index_push(rvi_index *x, size_t number)
{
    if (!rvi_list_room((void **)&x->data, x->n, &x->cap, sizeof *x->data)) return false;
    x->data[x->n++] = number;
    return true;
}

void rvi_index_deinit(rvi_index *x)
{
    rvi_free(x->data);
    *x = (rvi_index){0};
}

void rvi_samples_init(rvi_samples *t, const rvi_base_model *v, int lowest)
{
    *t = (rvi_samples){.v = v, .lowest = lowest};
}

rv_status rvi_samples_hold_weights(rvi_samples *t, rv_error *err)
{
    rvi_backend *be = t->v->be;
    if (t->weights || !be->ops->needs_held) return RV_OK;
    rvi_held_range range = {0, t->lowest};
    return rvi_held_weights_new(&t->weights, t->v->m, be, range,
                                rvi_held_weights_bytes(t->v->m, be, range), err);
}

void rvi_samples_let_weights_go(rvi_samples *t)
{
    rvi_held_weights_free(t->weights);
    t->weights = NULL;
}

void rvi_samples_deinit(rvi_samples *t)
{
    rvi_samples_let_weights_go(t);
    rvi_ids_deinit(&t->ids);
    rvi_ids_deinit(&t->at);
    rvi_free(t->items);
    rvi_free(t->frame_x);
    rvi_free(t->x);
    rvi_free(t->x_scale);
    rvi_free(t->top_ids);
    rvi_free(t->top_p);
    *t = (rvi_samples){0};
}

void rvi_samples_cut(rvi_samples *t, size_t n)
{
    if (n >= t->n) return;
    const rvi_sample *x = &t->items[n];
    t->ids.len = x->first;
    t->at.len = x->losses;
    t->n_rows = x->rows;
    t->n_keeps = x->keeps;
    t->n = n;
    t->n_ready = RVI_MIN(t->n_ready, n);
}

/* ---- adding ---- */

enum { SHIFT = 17 }; /* from one text to the next; any number that few lengths divide */

static bool begins_with_frame(const rvi_samples *t, const int32_t *ids, size_t n)
{
    const rvi_ids *f = &t->v->frame;
    return f->len && n > f->len + 1 && !memcmp(ids, f->data, f->len * sizeof *ids);
}

rv_status rvi_samples_add(rvi_samples *t, const int32_t *ids, size_t n, size_t first_loss,
                          bool keep, bool all, rvi_index *to, rv_error *err)
{
    if (n < 2 || first_loss > n - 2) return RV_OK; /* nothing to predict */
    if (n > RVI_SAMPLE_TOKENS &&
        first_loss >= RVI_SAMPLE_TOKENS / 2) { /* the end of a long question */
        size_t before = first_loss - RVI_SAMPLE_TOKENS / 2;
        ids += before;
        n -= before;
        first_loss -= before;
    }
    n = RVI_MIN(n, (size_t)RVI_SAMPLE_TOKENS);
    if (!rvi_list_room((void **)&t->items, t->n, &t->cap, sizeof *t->items))
        return rvi_nomem(err, "texts");
    rvi_sample x = {.first = t->ids.len, .n = (int)n, .losses = t->at.len, .keep = keep};
    if (begins_with_frame(t, ids, n) && first_loss >= t->v->frame.len)
        x.n_shared = (int)t->v->frame.len;
    size_t have = n - 1 - first_loss, want = all ? have : RVI_MIN(have, (size_t)RVI_SAMPLE_LOSSES);
    bool ok = rvi_ids_append(&t->ids, ids, n);
    /* the texts of a lesson end with the same answer: taken together, they teach all of it */
    size_t shift = t->n * SHIFT % have;
    for (size_t i = 0; ok && i < want; i++) {
        size_t k = want == have ? i
                   : keep       ? (i * (have - 1) + (want - 1) / 2) / (want - 1)
                                : (i * have + shift) / want;
        ok = rvi_ids_push(&t->at, (int32_t)(first_loss + k));
    }
    if (!ok || (to && !rvi_index_push(to, t->n))) {
        t->ids.len = x.first;
        t->at.len = x.losses;
        return rvi_nomem(err, "texts");
    }
    x.n_losses = (int)want;
    x.rows = t->n_rows;
    x.keeps = t->n_keeps;
    t->n_rows += n - 1 - (size_t)x.n_shared;
    if (keep) t->n_keeps += want;
    t->items[t->n++] = x;
    return RV_OK;
}

rv_status rvi_samples_teach(rvi_samples *t, const char *question, const char *answer, size_t most,
                            bool all, rvi_index *to, rv_error *err)
{
    const rvi_base_model *v = t->v;
    rvi_ids ids = {0};
    rv_status st = rvi_base_model_prompt(v, question, strlen(question), &ids, err);
    size_t first = ids.len;
    if (!st) st = rvi_base_model_encode(v, answer, strlen(answer), &ids, err);
    if (!st && ids.len - first >= most)
        ids.len = first + most;
    else if (!st && !rvi_ids_push(&ids, v->end))
        st = rvi_nomem(err, "text");
    if (!st) st = rvi_samples_add(t, ids.data, ids.len, first - 1, false, all, to, err);
    rvi_ids_deinit(&ids);
    return st;
}

/* ---- batches ---- */

rv_status rvi_batch_init(rvi_batch *b, int max_rows, int max_texts, rv_error *err)
{
    size_t rows = (size_t)max_rows, texts = (size_t)max_texts;
    *b = (rvi_batch){.max_rows = max_rows, .max_texts = max_texts};
    b->tokens = rvi_alloc_array(rows, sizeof *b->tokens);
    b->loss_rows = rvi_alloc_array(rows, sizeof *b->loss_rows);
    b->kept = rvi_alloc_array(rows, sizeof *b->kept);
    b->states = rvi_alloc_array(rows, sizeof *b->states);
    b->targets = rvi_alloc_array(rows, sizeof *b->targets);
    b->spans = rvi_alloc_array(texts + 1, sizeof *b->spans);
    if (b->tokens && b->loss_rows && b->kept && b->states && b->targets && b->spans) return RV_OK;
    rvi_batch_deinit(b);
    return rvi_nomem(err, "batch");
}

void rvi_batch_deinit(rvi_batch *b)
{
    rvi_free(b->tokens);
    rvi_free(b->loss_rows);
    rvi_free(b->kept);
    rvi_free(b->states);
    rvi_free(b->targets);
    rvi_free(b->spans);
    *b = (rvi_batch){0};
}

static const float certain = 1; /* the probability of a taught token */

static void add_losses(rvi_batch *b, const rvi_samples *t, const rvi_sample *x, int first_row)
{
    const int32_t *ids = t->ids.data + x->first;
    for (int i = 0; i < x->n_losses; i++) {
        int pos = t->at.data[x->losses + (size_t)i];
        rvi_target target = {
            .ids = ids + pos + 1, .p = &certain, .n = 1, .temperature = 1, .weight = 1};
        if (x->keep) {
            size_t at = (x->keeps + (size_t)i) * RVI_SAMPLE_TOP;
            target.ids = t->top_ids + at;
            target.p = t->top_p + at;
            target.n = RVI_SAMPLE_TOP;
            float sum = 0;
            for (int k = 0; k < RVI_SAMPLE_TOP; k++) sum += target.p[k];
            target.rest = RVI_MAX(1 - sum, 0);
        }
        b->loss_rows[b->n_losses] = first_row + pos - x->n_shared;
        b->targets[b->n_losses++] = target;
    }
}

/* Hidden states of the frame are counted from here on. */
static const size_t of_frame = SIZE_MAX / 2;

/* Rows of a span, and which hidden states they have. */
static void add_rows(rvi_batch *b, const int32_t *tokens, int n, int first_pos, int parent,
                     size_t first_state)
{
    b->spans[b->n_spans++] = (rvi_span){b->n_rows, n, first_pos, parent};
    memcpy(b->tokens + b->n_rows, tokens, (size_t)n * sizeof *tokens);
    for (int i = 0; i < n; i++) b->states[b->n_rows++] = first_state + (size_t)i;
}

static size_t fill(rvi_batch *b, const rvi_samples *t, const size_t *which, size_t n)
{
    int frame = -1;
    size_t taken = 0;
    b->n_rows = b->n_spans = b->n_losses = 0;
    for (; taken < n && taken < (size_t)b->max_texts; taken++) {
        const rvi_sample *x = &t->items[which[taken]];
        int own = x->n - 1 - x->n_shared;
        int more = own + (x->n_shared && frame < 0 ? x->n_shared : 0);
        if (b->n_rows + more > b->max_rows) break;
        if (x->n_shared && frame < 0) {
            frame = b->n_spans;
            add_rows(b, t->v->frame.data, x->n_shared, 0, -1, of_frame);
        }
        add_losses(b, t, x, b->n_rows);
        add_rows(b, t->ids.data + x->first + x->n_shared, own, x->n_shared,
                 x->n_shared ? frame : -1, x->rows);
    }
    return taken;
}

typedef struct states {
    const rvi_samples *t;
    const size_t *at;
} states;

static void read_state(void *ctx, int row, int first, int n, float *out)
{
    const states *s = ctx;
    size_t d = (size_t)s->t->v->m->hp.n_embd, at = s->at[row];
    if (at >= of_frame) {
        memcpy(out, s->t->frame_x + (at - of_frame) * d + (size_t)first, (size_t)n * sizeof *out);
        return;
    }
    const rvi_f16 *x = s->t->x + at * d + (size_t)first;
    for (int k = 0; k < n; k++) out[k] = rvi_f16_to_f32(x[k]) * s->t->x_scale[at];
}

size_t rvi_batch_run(rvi_batch *b, const rvi_samples *t, const size_t *which, size_t n,
                     rvi_trainer *trainer)
{
    n = fill(b, t, which, n);
    rvi_trainer_begin(trainer, b->tokens, b->spans, b->n_spans);
    if (t->lowest) rvi_trainer_fill_x(trainer, read_state, &(states){t, b->states});
    rvi_trainer_forward(trainer, t->lowest, t->v->m->hp.n_layers);
    return n;
}

/* ---- preparing ---- */

static rv_status grow(rvi_samples *t, rv_error *err)
{
    size_t d = (size_t)t->v->m->hp.n_embd, rows = RVI_MAX(t->n_rows, 1), keeps = t->n_keeps + 1;
    rvi_f16 *x = rvi_realloc_array(t->x, rows * d, sizeof *x);
    if (x) t->x = x;
    float *scale = rvi_realloc_array(t->x_scale, rows, sizeof *scale);
    if (scale) t->x_scale = scale;
    int32_t *ids = rvi_realloc_array(t->top_ids, keeps * RVI_SAMPLE_TOP, sizeof *ids);
    if (ids) t->top_ids = ids;
    float *p = rvi_realloc_array(t->top_p, keeps * RVI_SAMPLE_TOP, sizeof *p);
    if (p) t->top_p = p;
    if (!t->frame_x) t->frame_x = rvi_alloc_array(RVI_MAX(t->v->frame.len, 1) * d, sizeof(float));
    return x && scale && ids && p && t->frame_x ? RV_OK : rvi_nomem(err, "texts");
}

/* A row as f16: its largest value becomes 1024, so that any magnitude keeps 11 bits. */
static void store_row(rvi_samples *t, size_t at, const float *x, size_t d)
{
    float most = 0;
    for (size_t k = 0; k < d; k++) most = RVI_MAX(most, fabsf(x[k]));
    float scale = most > 0 ? most / 1024 : 1;
    t->x_scale[at] = scale;
    for (size_t k = 0; k < d; k++) t->x[at * d + k] = rvi_f32_to_f16(x[k] / scale);
}

/* Rows of a batch on their way to the samples */
typedef struct storing {
    rvi_samples *t;
    const rvi_batch *b;
    float *x; /* rows x n_embd */
} storing;

static void store_task(void *ctx, int row, int worker)
{
    const storing *s = ctx;
    size_t d = (size_t)s->t->v->m->hp.n_embd, at = s->b->states[row];
    const float *x = s->x + (size_t)row * d;
    (void)worker;
    if (at >= of_frame)
        memcpy(s->t->frame_x + (at - of_frame) * d, x, d * sizeof *x);
    else
        store_row(s->t, at, x, d);
}

static bool any_kept(const rvi_samples *t, const size_t *which, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (t->items[which[i]].keep) return true;
    return false;
}

/* The base's own distribution at the positions of kept texts; log p of taught ones where it is
 * wanted. The texts of a batch follow each other, so the targets of the kept ones do too. */
static void store_targets(rvi_samples *t, rvi_batch *b, const size_t *which, size_t n,
                          rvi_trainer *trainer)
{
    int at = 0, n_keep = 0;
    size_t first = t->items[which[0]].keeps * RVI_SAMPLE_TOP;
    for (size_t i = 0; i < n; i++) { /* rows of kept texts to the front of the list `kept` */
        const rvi_sample *x = &t->items[which[i]];
        for (int k = 0; x->keep && k < x->n_losses; k++) b->kept[n_keep++] = b->loss_rows[at + k];
        at += x->n_losses;
    }
    rvi_trainer_top(trainer, b->kept, n_keep, RVI_SAMPLE_TOP, t->top_ids + first, t->top_p + first);
    for (size_t k = 0; k < (size_t)n_keep * RVI_SAMPLE_TOP; k++)
        t->top_p[first + k] = expf(t->top_p[first + k]);
    if (!t->want_refs) return;
    at = 0;
    for (size_t i = 0; i < n; i++) { /* of kept texts too, which have no other targets yet */
        const rvi_sample *x = &t->items[which[i]];
        const int32_t *ids = t->ids.data + x->first + 1;
        for (int k = 0; k < x->n_losses; k++)
            b->targets[at++] = (rvi_target){.ids = ids + t->at.data[x->losses + (size_t)k],
                                            .p = &certain,
                                            .n = 1,
                                            .temperature = 1,
                                            .weight = 1};
    }
    rvi_trainer_loss(trainer, b->loss_rows, b->targets, b->n_losses, false);
    at = 0;
    for (size_t i = 0; i < n; i++) {
        rvi_sample *x = &t->items[which[i]];
        x->ref_log_p = 0;
        for (int k = 0; k < x->n_losses; k++) x->ref_log_p -= (double)b->targets[at++].loss;
    }
}

rv_status rvi_samples_prepare(rvi_samples *t, rvi_trainer *trainer, int max_rows,
                              rvi_progress_fn progress, void *ctx, rv_error *err)
{
    enum { MOST = RVI_SAMPLES_AT_ONCE };
    size_t which[MOST], fresh = t->n - t->n_ready, from = t->n_ready;
    rvi_batch b = {0};
    if (!fresh) return RV_OK;
    rv_status st = grow(t, err);
    if (!st) st = rvi_batch_init(&b, max_rows, MOST, err);
    storing s = {t, &b, NULL};
    if (!st && !(s.x = rvi_alloc_array((size_t)max_rows * (size_t)t->v->m->hp.n_embd, sizeof *s.x)))
        st = rvi_nomem(err, "texts");
    while (!st && t->n_ready < t->n) {
        size_t n = RVI_MIN(t->n - t->n_ready, (size_t)MOST);
        for (size_t i = 0; i < n; i++) which[i] = t->n_ready + i;
        n = fill(&b, t, which, n);
        if (!n) {
            st = rvi_error(err, RV_E_LEARNING, "a text of %d tokens is too long to learn from",
                           t->items[t->n_ready].n);
            break;
        }
        rvi_trainer_begin(trainer, b.tokens, b.spans, b.n_spans);
        rvi_trainer_forward(trainer, 0, t->lowest);
        rvi_trainer_get_x(trainer, s.x);
        t->v->be->ops->run(t->v->be, store_task, &s, b.n_rows);
        if (t->want_refs || any_kept(t, which, n)) {
            rvi_trainer_forward(trainer, t->lowest, t->v->m->hp.n_layers);
            store_targets(t, &b, which, n, trainer);
        }
        if ((progress && progress(ctx, t->n_ready + n - from, fresh)) ||
            rvi_backend_is_stopped(t->v->be))
            st = rvi_error(err, RV_E_CANCELLED, "cancelled"); /* this batch may be undefined */
        else
            t->n_ready += n;
    }
    rvi_free(s.x);
    rvi_batch_deinit(&b);
    return st;
}
