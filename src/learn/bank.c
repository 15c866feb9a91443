/* What feedback does to a bank, and reading it. */
#include "learn/bank_internal.h"

#include <math.h>

#include "learn/text.h"
#include "learn/vector.h"

/* ---- learning ---- */

typedef enum judgement { JUDGE_SCORE, JUDGE_REJECTED, JUDGE_CORRECTED } judgement;

static void judge(rvi_pattern *p, judgement how, float score)
{
    if (how == JUDGE_SCORE) {
        double n = (double)p->n_scores;
        p->quality = (float)(((double)p->quality * n + (double)score) / (n + 1));
        if (p->n_scores < UINT32_MAX) p->n_scores++;
        p->verdict = rvi_verdict_of((double)p->quality);
        return;
    }
    bool right = how == JUDGE_CORRECTED;
    p->quality = right ? 1 : 0;
    p->n_scores = 1;
    p->verdict = right ? RVI_VERDICT_SUCCESS : RVI_VERDICT_FAILURE;
    if (right) { /* said again: the weights, if they had it, have not kept it */
        p->state = RVI_PATTERN_LIVE;
        p->generation = 0;
    } else if (p->correction)
        p->state = RVI_PATTERN_SUPERSEDED;
    p->correction = right || p->correction;
}

/* A correction: every other answer to the question that is not known as wrong is out of date. */
static rv_status supersede(rvi_bank *b, size_t by, uint64_t event, rv_error *err)
{
    for (size_t i = 0; i < b->n; i++) {
        const rvi_pattern *mine = b->entries[by].now, *p = b->entries[i].now;
        if (i == by || !p || p->state == RVI_PATTERN_SUPERSEDED ||
            (p->verdict == RVI_VERDICT_FAILURE && !p->correction) ||
            rvi_bank_equal(b->entries[i].keys.answer, b->entries[by].keys.answer) ||
            !rvi_bank_same_question(b, mine, &b->entries[by].keys, p, &b->entries[i].keys))
            continue;
        rvi_pattern *changed = rvi_bank_edit(b, i, err);
        if (!changed) return RV_E_NOMEM;
        changed->state = RVI_PATTERN_SUPERSEDED;
        changed->last_event = event;
    }
    return RV_OK;
}

/* Judges the pattern of this question and answer, which is made if there is none. */
static rv_status teach(rvi_bank *b, const rvi_pattern *p, judgement how, uint64_t *next_id,
                       uint64_t *id, rv_error *err)
{
    rvi_pattern_keys keys;
    rv_status st = rvi_pattern_check(p, err);
    if (!st && p->n_dim && b->n_dim && p->n_dim != b->n_dim)
        st = rvi_error(err, RV_E_INVALID, "a vector of %zu numbers for a bank of %zu", p->n_dim,
                       b->n_dim);
    if (!st) st = rvi_pattern_keys_of(&keys, p, err);
    if (st) return st;
    /* compared as it will be kept: with a vector of length 1 */
    rvi_pattern *unit = rvi_pattern_copy(p, false);
    if (!unit) return rvi_nomem(err, "pattern");
    size_t at = 0;
    while (at < b->n &&
           !(b->entries[at].now && rvi_bank_equal(b->entries[at].keys.answer, keys.answer) &&
             rvi_bank_same_question(b, unit, &keys, b->entries[at].now, &b->entries[at].keys)))
        at++;
    float score = unit->quality;
    if (at == b->n) {
        unit->id = (*next_id)++;
        unit->last_event = unit->event;
        st = rvi_bank_insert(b, unit, &keys, true, err);
        if (!st && how != JUDGE_SCORE) judge(b->entries[at].now, how, score);
    } else {
        rvi_pattern *known = rvi_bank_edit(b, at, err);
        if (!known) st = RV_E_NOMEM;
        if (known) {
            judge(known, how, score);
            known->last_event = p->event;
        }
    }
    rvi_free(unit);
    if (!st && how == JUDGE_CORRECTED) st = supersede(b, at, p->event, err);
    if (!st) *id = b->entries[at].now->id;
    return st;
}

rv_status rvi_bank_learn(rvi_bank *b, const rvi_pattern *about, const rvi_feedback *f, uint64_t *id,
                         rv_error *err)
{
    rvi_pattern p = {.event = f->seq,
                     .last_use = f->time,
                     .question = about->question.len ? about->question : f->question,
                     .subject = about->subject,
                     .relation = about->relation,
                     .words = about->words,
                     .vector = about->vector,
                     .n_dim = about->n_dim};
    uint64_t taught = 0, other;
    size_t n_removed;
    if (id) *id = 0;
    rv_status st = rvi_feedback_check(f, err);
    if (st) return st;
    if (!f->seq) return rvi_error(err, RV_E_INVALID, "an event teaches only after it was logged");
    bool judged = f->kind == RVI_FEEDBACK_SCORE || f->kind == RVI_FEEDBACK_THUMB;
    if (!judged && f->kind != RVI_FEEDBACK_CORRECTION)
        return rvi_error(err, RV_E_INVALID, "the bank learns nothing from '%s'",
                         rvi_feedback_kind_name(f->kind));
    if (judged && rvi_text_blank(f->given))
        return rvi_error(err, RV_E_INVALID, "%s: the answer it is about is empty",
                         rvi_feedback_kind_name(f->kind));
    if ((st = rvi_bank_begin(b, true, err))) return st;
    uint64_t next_id = b->next_id;
    if (judged) {
        p.answer = f->given;
        p.quality = (float)f->score;
        p.n_scores = 1;
        p.verdict = rvi_verdict_of(f->score);
        st = teach(b, &p, JUDGE_SCORE, &next_id, &taught, err);
    } else {
        p.answer = f->given;
        if (!rvi_text_blank(f->given)) st = teach(b, &p, JUDGE_REJECTED, &next_id, &other, err);
        p.answer = f->corrected; /* if that is the same answer, it is right after all */
        if (!st) st = teach(b, &p, JUDGE_CORRECTED, &next_id, &taught, err);
    }
    if (!st) st = rvi_bank_make_room(b, true, &n_removed, err);
    st = rvi_bank_end(b, st, (rvi_bank_change){next_id, f->seq, true}, err);
    if (!st && id) *id = taught;
    return st;
}

rv_status rvi_bank_add(rvi_bank *b, const rvi_pattern *p, uint64_t *id, rv_error *err)
{
    uint64_t taught = 0;
    size_t n_removed;
    if (id) *id = 0;
    rv_status st = rvi_pattern_check(p, err);
    if (!st) st = rvi_bank_begin(b, true, err);
    if (st) return st;
    uint64_t next_id = b->next_id;
    st = teach(b, p, p->correction ? JUDGE_CORRECTED : JUDGE_SCORE, &next_id, &taught, err);
    if (!st) st = rvi_bank_make_room(b, true, &n_removed, err);
    st = rvi_bank_end(b, st, (rvi_bank_change){next_id, p->event, true}, err);
    if (!st && id) *id = taught;
    return st;
}

/* ---- undoing ---- */

/* Puts one pattern back as it was before the event. n: entries that there were when this began. */
static rv_status restore(rvi_bank *b, size_t n, uint64_t event, const uint8_t *key, float *vector,
                         rv_error *err)
{
    rvi_buf record = {0};
    rvi_pattern before;
    rvi_pattern_keys keys;
    size_t at = rvi_bank_index(b, n, rvi_bank_key(key + RVI_BANK_ID_LEN));
    rv_status st = rvi_bank_image(b, key, &record, err);
    if (!st && at != SIZE_MAX && b->entries[at].now->last_event != event)
        st = rvi_error(
            err, RV_E_LEARNING,
            "event %llu cannot be undone: event %llu came after it and is about the same",
            (unsigned long long)event, (unsigned long long)b->entries[at].now->last_event);
    if (!st && at != SIZE_MAX) rvi_bank_drop(b, at);
    if (!st && record.len) { /* empty: it was not there */
        st = rvi_pattern_parse(&before, (rvi_bytes){record.data, record.len}, vector, err);
        if (!st && (before.id != rvi_bank_key(key + RVI_BANK_ID_LEN) ||
                    (before.n_dim && b->n_dim && before.n_dim != b->n_dim)))
            st = rvi_error(err, RV_E_STORAGE, "what event %llu had changed is of another bank",
                           (unsigned long long)event);
        if (!st) st = rvi_pattern_keys_of(&keys, &before, err);
        if (!st && at == SIZE_MAX) st = rvi_bank_insert(b, &before, &keys, true, err);
        if (!st && at != SIZE_MAX && !(b->entries[at].now = rvi_pattern_copy(&before, true)))
            st = rvi_nomem(err, "pattern");
    }
    if (!st) st = rvi_bank_remove_image(b, key, err);
    rvi_buf_deinit(&record);
    return st;
}

rv_status rvi_bank_undo(rvi_bank *b, uint64_t event, uint64_t by, rv_error *err)
{
    rvi_buf keys = {0};
    if (!event) return rvi_error(err, RV_E_NOT_FOUND, "no event 0");
    rv_status st = rvi_bank_begin(b, true, err);
    if (st) return st;
    size_t n = b->n;
    float *vector = rvi_alloc_array(RVI_PATTERN_MAX_DIM, sizeof *vector);
    st = vector ? rvi_bank_images(b, event, &keys, NULL, err) : rvi_nomem(err, "vector");
    if (!st && !keys.len)
        st = rvi_error(err, RV_E_NOT_FOUND,
                       "event %llu is not among the last that taught the bank something",
                       (unsigned long long)event);
    for (size_t i = 0; !st && i < keys.len; i += RVI_BANK_IMAGE_LEN)
        st = restore(b, n, event, (const uint8_t *)keys.data + i, vector, err);
    rvi_free(vector);
    rvi_buf_deinit(&keys);
    return rvi_bank_end(b, st, (rvi_bank_change){b->next_id, by, false}, err);
}

/* ---- small changes ---- */

rv_status rvi_bank_use(rvi_bank *b, uint64_t id, int64_t now, rv_error *err)
{
    rv_status st = rvi_bank_begin(b, false, err);
    if (st) return st;
    size_t at = rvi_bank_index(b, b->n, id);
    rvi_pattern *p = NULL;
    if (at == SIZE_MAX)
        st = rvi_error(err, RV_E_NOT_FOUND, "no pattern %llu", (unsigned long long)id);
    else if (!(p = rvi_bank_edit(b, at, err)))
        st = RV_E_NOMEM;
    if (p) {
        p->uses++;
        p->last_use = now;
    }
    return rvi_bank_end(b, st, (rvi_bank_change){.next_id = b->next_id}, err);
}

rv_status rvi_bank_absorb(rvi_bank *b, const uint64_t *ids, size_t n, uint64_t generation,
                          rv_error *err)
{
    rv_status st = rvi_bank_begin(b, true, err);
    if (st) return st;
    for (size_t i = 0; !st && i < n; i++) {
        size_t at = rvi_bank_index(b, b->n, ids[i]);
        if (at == SIZE_MAX || b->entries[at].now->state == RVI_PATTERN_SUPERSEDED) continue;
        rvi_pattern *p = rvi_bank_edit(b, at, err);
        if (!p) st = RV_E_NOMEM;
        if (p) {
            p->state = RVI_PATTERN_ABSORBED;
            p->generation = generation;
        }
    }
    return rvi_bank_end(b, st, (rvi_bank_change){.next_id = b->next_id}, err);
}

rv_status rvi_bank_release(rvi_bank *b, uint64_t generation, rv_error *err)
{
    rv_status st = rvi_bank_begin(b, true, err);
    if (st) return st;
    for (size_t i = 0; !st && i < b->n; i++) {
        const rvi_pattern *p = b->entries[i].now;
        if (p->state != RVI_PATTERN_ABSORBED || p->generation <= generation) continue;
        rvi_pattern *changed = rvi_bank_edit(b, i, err);
        if (!changed) st = RV_E_NOMEM;
        if (changed) {
            changed->state = RVI_PATTERN_LIVE;
            changed->generation = 0;
        }
    }
    return rvi_bank_end(b, st, (rvi_bank_change){.next_id = b->next_id}, err);
}

static rv_status mentions(bool *yes, const rvi_pattern *p, rvi_text text, rv_error *err)
{
    const rvi_text fields[] = {p->question, p->answer, p->subject, p->words};
    rv_status st = RV_OK;
    *yes = false;
    for (size_t i = 0; !st && !*yes && i < RVI_COUNT(fields); i++)
        st = rvi_text_has_words(yes, fields[i], text, err);
    return st;
}

rv_status rvi_bank_forget(rvi_bank *b, rvi_text text, uint64_t by,
                          void (*each)(void *ctx, const rvi_pattern *p), void *ctx, size_t *n,
                          rv_error *err)
{
    size_t n_removed = 0;
    *n = 0;
    if (text.len > RVI_FORGET_MAX || rvi_text_invalid(text) < text.len || rvi_text_blank(text))
        return rvi_error(err, RV_E_INVALID, "a text to forget is 1 to %d bytes of UTF-8, not blank",
                         (int)RVI_FORGET_MAX);
    rv_status st = rvi_bank_begin(b, true, err);
    if (st) return st;
    for (size_t i = 0; !st && i < b->n; i++) {
        bool yes;
        st = mentions(&yes, b->entries[i].now, text, err);
        if (st || !yes) continue;
        if (each) each(ctx, b->entries[i].now);
        rvi_bank_drop(b, i);
        n_removed++;
    }
    if (!st) st = rvi_bank_trim_images(b, 0, err); /* they may hold the text */
    st = rvi_bank_end(b, st, (rvi_bank_change){b->next_id, by, false}, err);
    if (!st) *n = n_removed;
    return st;
}

/* ---- reading ---- */

size_t rvi_bank_count(const rvi_bank *b)
{
    return b->n;
}

size_t rvi_bank_damaged(const rvi_bank *b)
{
    return b->n_damaged;
}

const rvi_pattern *rvi_bank_at(const rvi_bank *b, size_t i)
{
    return i < b->n ? b->entries[i].now : NULL;
}

const rvi_pattern *rvi_bank_find(const rvi_bank *b, uint64_t id)
{
    size_t at = rvi_bank_index(b, b->n, id);
    return at == SIZE_MAX ? NULL : b->entries[at].now;
}

uint64_t rvi_bank_last_event(const rvi_bank *b)
{
    return b->last_event;
}

rv_status rvi_bank_digest(const rvi_bank *b, uint8_t out[RVI_SHA256_LEN], rv_error *err)
{
    rvi_buf record = {0};
    rvi_sha256 h;
    rv_status st = RV_OK;
    rvi_sha256_init(&h);
    rvi_sha256_add_u64(&h, b->n);
    for (size_t i = 0; !st && i < b->n; i++) {
        record.len = 0;
        st = rvi_pattern_write(&record, b->entries[i].now, err);
        rvi_sha256_add_u64(&h, record.len);
        if (!st) rvi_sha256_add(&h, record.data, record.len);
    }
    rvi_sha256_end(&h, out);
    rvi_buf_deinit(&record);
    return st;
}

rv_status rvi_bank_nearest(const rvi_bank *b, const float *vector, size_t n_dim, size_t k,
                           rvi_verdict at_least, rvi_bank_hit *hits, size_t *n, rv_error *err)
{
    *n = 0;
    if (!b->n_dim || !k) return RV_OK;
    if (n_dim != b->n_dim)
        return rvi_error(err, RV_E_INVALID, "a vector of %zu numbers for a bank of %zu", n_dim,
                         b->n_dim);
    float length = sqrtf(rvi_vector_dot(vector, vector, n_dim));
    if (!(length > 0) || !isfinite(length))
        return rvi_error(err, RV_E_INVALID, "the vector is zero or not finite");
    for (size_t i = b->n; i-- > 0;) { /* the newest first: an equal one stays behind it */
        const rvi_pattern *p = b->entries[i].now;
        if (!p->n_dim || p->state == RVI_PATTERN_SUPERSEDED || p->verdict < at_least) continue;
        float cosine = rvi_vector_dot(p->vector, vector, n_dim) / length;
        if (*n == k && cosine <= hits[k - 1].cosine) continue;
        size_t at = *n < k ? (*n)++ : k - 1;
        for (; at > 0 && hits[at - 1].cosine < cosine; at--) hits[at] = hits[at - 1];
        hits[at] = (rvi_bank_hit){p, cosine};
    }
    return RV_OK;
}

/* ---- opening ---- */

rv_status rvi_bank_refresh(rvi_bank *b, rv_error *err)
{
    uint64_t version;
    rv_status st = rvi_bank_stored_version(b, &version, err);
    if (st || version == b->version) return st;
    if ((st = rvi_store_begin(b->store, false, err))) return st;
    st = rvi_bank_load(b, err);
    return rvi_store_end(b->store, st, err);
}

rv_status rvi_bank_open(rvi_bank **out, rvi_store *store, const rvi_bank_options *options,
                        rv_error *err)
{
    *out = NULL;
    rvi_bank *b = rvi_zalloc(sizeof *b);
    if (!b) return rvi_nomem(err, "bank");
    b->store = store;
    if (options) b->options = *options;
    if (!b->options.max_patterns) b->options.max_patterns = 10000;
    if (!b->options.max_bytes) b->options.max_bytes = (size_t)256 << 20;
    if (!b->options.keep) b->options.keep = 8;
    if (!(b->options.same > 0)) b->options.same = 0.95f;
    rv_status st = rvi_store_begin(store, false, err);
    if (!st) st = rvi_store_end(store, rvi_bank_load(b, err), err);
    if (st) {
        rvi_bank_free(b);
        return st;
    }
    *out = b;
    return RV_OK;
}

void rvi_bank_free(rvi_bank *b)
{
    if (!b) return;
    rvi_bank_clear(b);
    rvi_free(b->entries);
    rvi_free(b);
}
