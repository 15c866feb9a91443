#include "decode/constraint.h"

#include <math.h>

#include "base/mem.h"

rv_status rvi_bound_new(rvi_bound **out, const rvi_constraint *by, int n_vocab, int min_tokens,
                        int max_tokens, rv_error *err)
{
    enum { SPARE = 32, NEAR = 96 }; /* what must come behind one token is seldom more */
    *out = NULL;
    rvi_bound *b = rvi_zalloc(sizeof *b);
    if (!b) return rvi_nomem(err, "constraint");
    b->n_words = ((size_t)n_vocab + 63) / 64;
    if (!(b->mask = rvi_zalloc_array(b->n_words, sizeof *b->mask))) {
        rvi_free(b);
        return rvi_nomem(err, "constraint");
    }
    b->by = *by;
    b->state = by->state;
    b->spare = RVI_MIN(SPARE, max_tokens / 8);
    b->unused = RVI_MAX(max_tokens - min_tokens, 0);
    b->check_at = max_tokens; /* some take nearly all of them */
    b->near = NEAR;
    *out = b;
    return RV_OK;
}

void rvi_bound_free(rvi_bound *b)
{
    if (!b) return;
    b->by.release(b->by.ctx);
    rvi_free(b->mask);
    rvi_free(b);
}

/* Whether it is time to end. Looking takes a moment: the more tokens are left, the later the next
 * time. */
static rv_status check_end(rvi_bound *b, int left, rv_error *err)
{
    size_t n = 0;
    bool found;
    if (b->ending || left > b->check_at) return RV_OK;
    rv_status st = b->by.finish(b->by.ctx, b->state, b->forced, &n, &found, err);
    int need = (int)n;
    bool in_time = n && need <= left; /* what is too long now seldom becomes shorter */
    b->check_at = left - RVI_MAX(in_time ? (left - need) / 4 : left / 8, 1);
    b->ending = !st && in_time && left <= need + RVI_MIN(need / 4 + b->spare, b->unused);
    if (b->ending) b->n_forced = n;
    return st;
}

rv_status rvi_bound_force(rvi_bound *b, int left, int32_t *id, rv_error *err)
{
    *id = -1;
    if (b->n_taken == b->n_forced && !b->asked) {
        b->n_taken = b->n_forced = 0;
        rv_status st = check_end(b, left, err);
        if (!st && !b->n_forced)
            st = b->by.force(b->by.ctx, b->state, b->forced, &b->n_forced, err);
        if (st) return st;
        b->asked = true;
    }
    if (b->n_taken < b->n_forced) *id = b->forced[b->n_taken];
    return RV_OK;
}

static bool is_allowed(const rvi_bound *b, size_t id)
{
    return b->mask[id / 64] >> (id % 64) & 1;
}

/* The likeliest token behind which there is more to come, and an end in time; -1: none of the few
 * that are looked at. */
static rv_status go_on(rvi_bound *b, int left, const float *logits, size_t n_vocab, int32_t *id,
                       rv_error *err)
{
    enum { FEW = 8 }; /* each takes a search, while others wait */
    int32_t tried[FEW];
    *id = -1;
    for (int n_tried = 0; n_tried < FEW; n_tried++) {
        size_t best = n_vocab, n = 0;
        bool found = false;
        uint32_t next;
        for (size_t i = 0; i < n_vocab; i++) {
            if (!is_allowed(b, i) || !(logits[i] > (best < n_vocab ? logits[best] : -INFINITY)))
                continue;
            int k = 0;
            while (k < n_tried && (size_t)tried[k] != i) k++;
            if (k == n_tried) best = i;
        }
        if (best == n_vocab) return RV_OK;
        tried[n_tried] = (int32_t)best;
        rv_status st = b->by.peek(b->by.ctx, b->state, (int32_t)best, &next, err);
        if (!st && next) st = b->by.finish(b->by.ctx, next, b->forced, &n, &found, err);
        if (st) return st;
        if (!found || !n || (int)n >= left) continue;
        *id = (int32_t)best;
        return RV_OK;
    }
    return RV_OK;
}

rv_status rvi_bound_reconsider(rvi_bound *b, int left, const float *logits, size_t n_vocab,
                               int32_t *id, rv_error *err)
{
    uint32_t next;
    size_t n = 0;
    bool found = true;
    int32_t other = -1;
    if (b->ending || left > b->near || b->n_taken < b->n_forced) return RV_OK;
    rv_status st = b->by.peek(b->by.ctx, b->state, *id, &next, err);
    if (!st && next) st = b->by.finish(b->by.ctx, next, b->forced, &n, &found, err);
    if (!st && !found) b->near = left - RVI_MAX(left / 8, 1); /* looking in vain takes long */
    if (st || !found || (int)n < left) return st;
    st = b->by.finish(b->by.ctx, b->state, b->forced, &n, &found, err);
    if (st) return st;
    if (!found || (int)n > left) {
        b->near = left - RVI_MAX(left / 8, 1);
        return RV_OK;
    }
    if (left - (int)n > b->unused) { /* that would be too short */
        st = go_on(b, left, logits, n_vocab, &other, err);
        if (!st && other < 0) st = b->by.finish(b->by.ctx, b->state, b->forced, &n, &found, err);
        if (st) return st;
    }
    if (other >= 0) {
        *id = other;
        return RV_OK;
    }
    b->ending = true;
    b->n_forced = n;
    b->n_taken = 0;
    *id = n ? b->forced[0] : -1;
    return RV_OK;
}

rv_status rvi_bound_look(rvi_bound *b, rv_error *err)
{
    return b->by.mask(b->by.ctx, b->state, b->mask, b->n_words, err);
}

bool rvi_bound_leaves_only(const rvi_bound *b, const rvi_ids *ids)
{
    for (size_t w = 0; w < b->n_words; w++) {
        uint64_t left = b->mask[w];
        for (size_t i = 0; left && i < ids->len; i++)
            if (ids->data[i] >= 0 && (size_t)ids->data[i] / 64 == w)
                left &= ~(1ull << (ids->data[i] % 64));
        if (left) return false;
    }
    return true;
}

void rvi_bound_apply(const rvi_bound *b, float *logits, size_t n_vocab)
{
    for (size_t w = 0; w < b->n_words; w++) {
        uint64_t allowed = b->mask[w];
        size_t first = w * 64, last = RVI_MIN(first + 64, n_vocab);
        if (allowed == UINT64_MAX) continue;
        for (size_t i = first; i < last; i++)
            if (!(allowed >> (i - first) & 1)) logits[i] = -INFINITY;
    }
}

int rvi_bound_count_allowed(const rvi_bound *b, const int32_t *ids, int n, uint32_t *states)
{
    int i = 0;
    while (i < n && states[i] && !b->by.peek(b->by.ctx, states[i], ids[i], &states[i + 1], NULL) &&
           states[i + 1])
        i++;
    return i;
}

rv_status rvi_bound_accept(rvi_bound *b, int32_t token, rv_error *err)
{
    if (b->n_taken < b->n_forced && b->forced[b->n_taken] == token)
        b->n_taken++;
    else
        b->n_taken = b->n_forced = 0;
    b->asked = false;
    rv_status st = b->by.accept(b->by.ctx, b->state, token, &b->state, &b->complete, err);
    if (b->ending && b->n_taken == b->n_forced) b->complete = true;
    return st;
}
