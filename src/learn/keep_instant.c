/* What scores and thumbs taught, on the disk: the small adapters as they are, whole or not at all,
 * in a ring of snapshots (snapshot.h). The log has every event, but not the gradients that it was
 * learned by: what came after the last snapshot is lost with the process. The whitener, larger and
 * made once, has snapshots of its own. */
#include <string.h>

#include "base/mem.h"
#include "learn/learner_internal.h"
#include "learn/snapshot.h"
#include "learn/vector.h"

enum { EVERY = 16 };

static const char name[] = "instant", whitener_name[] = "whitener";
static const char magic[8] = "RVINST1";

typedef struct header {
    char magic[8];
    rvi_scores scores;
    uint64_t micro_len, n_dislikes;
} header;

typedef struct dislike_header {
    uint64_t question_len, pairs_len;
} dislike_header;

static int digit(char c)
{
    return c <= '9' ? c - '0' : c - 'a' + 10;
}

static void model_of(const rvi_learner *l, uint8_t out[RVI_SHA256_LEN])
{
    for (size_t i = 0; i < RVI_SHA256_LEN; i++)
        out[i] = (uint8_t)(16 * digit(l->digest[2 * i]) + digit(l->digest[2 * i + 1]));
}

/* ---- saving ---- */

static rv_status put_dislike(const rvi_dislike *d, rvi_buf *out, rv_error *err)
{
    rvi_buf pairs = {0};
    rv_status st = rvi_pairs_save(d->pairs, &pairs, err);
    if (!st) {
        dislike_header h = {strlen(d->question), pairs.len};
        (void)rvi_buf_append(out, &h, sizeof h);
        (void)rvi_buf_append(out, d->question, (size_t)h.question_len);
        (void)rvi_buf_append(out, pairs.data, pairs.len);
    }
    rvi_buf_deinit(&pairs);
    return st;
}

rv_status rvi_instant_save(rvi_learner *l, rv_error *err)
{
    rvi_instant *in = &l->instant;
    rvi_buf micro = {0}, out = {0};
    uint8_t model[RVI_SHA256_LEN];
    header h = {.scores = in->scores, .n_dislikes = in->n_dislikes};
    if (!l->dir) {
        in->unsaved = 0;
        return RV_OK;
    }
    rv_status st = rvi_instant_catch_up(l, err);
    if (!st && in->micro) st = rvi_micro_save(in->micro, &micro, err);
    memcpy(h.magic, magic, sizeof magic);
    h.micro_len = micro.len;
    (void)rvi_buf_append(&out, &h, sizeof h);
    if (micro.len) (void)rvi_buf_append(&out, micro.data, micro.len);
    for (size_t i = 0; !st && i < in->n_dislikes; i++)
        st = put_dislike(&in->dislikes[i], &out, err);
    if (!st && out.failed) st = rvi_nomem(err, "snapshot");
    model_of(l, model);
    if (!st) st = rvi_snapshot_save(l->dir, name, model, 0, out.data, out.len, NULL, err);
    if (!st) in->unsaved = 0;
    rvi_buf_deinit(&micro);
    rvi_buf_deinit(&out);
    return st;
}

static void warn(const rvi_learner *l, const char *what, const rv_error *why)
{
    rvi_log_write(l->parts.be->log, RVI_LOG_WARN, "%s: %s", what, why->text);
}

void rvi_instant_save_whitener(rvi_learner *l)
{
    rvi_buf out = {0};
    rv_error why = {0};
    uint8_t model[RVI_SHA256_LEN];
    if (!l->dir) return;
    model_of(l, model);
    rv_status st = rvi_whitener_save(l->instant.whitener, &out, &why);
    if (!st)
        st = rvi_snapshot_save(l->dir, whitener_name, model, l->instant.whole, out.data, out.len,
                               NULL, &why);
    if (st) warn(l, "what thumbs need is not saved", &why);
    rvi_buf_deinit(&out);
}

void rvi_instant_count(rvi_learner *l)
{
    if (++l->instant.unsaved % EVERY == 0) l->instant.save_due = true;
}

void rvi_instant_save_due(rvi_learner *l)
{
    rv_error why = {0};
    if (!l->instant.save_due) return;
    l->instant.save_due = false;
    if (rvi_instant_save(l, &why)) warn(l, "what scores taught is not saved", &why);
}

/* ---- opening ---- */

static const uint8_t *take(const uint8_t **p, const uint8_t *end, uint64_t len)
{
    if ((uint64_t)(end - *p) < len) return NULL;
    const uint8_t *at = *p;
    *p += len;
    return at;
}

rv_status rvi_instant_load_whitener(rvi_learner *l, rv_error *err)
{
    rvi_instant *in = &l->instant;
    rvi_snapshot s = {0};
    uint8_t model[RVI_SHA256_LEN];
    if (!l->dir) return rvi_error(err, RV_E_NOT_FOUND, "there is no directory");
    model_of(l, model);
    rv_status st = rvi_snapshot_load(&s, l->dir, whitener_name, model, 0, err);
    if (!st) {
        rvi_whitener_free(in->whitener); /* one that was not made to its end */
        in->whitener = NULL;
        st = rvi_whitener_load(&in->whitener, s.data, s.len, l->parts.m->hp.n_ff, err);
    }
    if (!st) st = rvi_thumbs_new(&in->thumbs, l->parts.m, in->whitener, 0, err);
    in->whole = !st && s.generation;
    if (st) {
        rvi_whitener_free(in->whitener);
        in->whitener = NULL;
    }
    rvi_snapshot_close(&s);
    return st;
}

static rv_status load_dislike(rvi_learner *l, const uint8_t **p, const uint8_t *end, rv_error *err)
{
    rvi_instant *in = &l->instant;
    dislike_header h;
    const uint8_t *at = take(p, end, sizeof h), *question = NULL, *pairs = NULL;
    if (at) memcpy(&h, at, sizeof h);
    if (at) question = take(p, end, h.question_len);
    if (question) pairs = take(p, end, h.pairs_len);
    if (!pairs || memchr(question, 0, (size_t)h.question_len))
        return rvi_error(err, RV_E_STORAGE, "the snapshot is cut off");
    rvi_dislike *d =
        rvi_learner_room((void **)&in->dislikes, in->n_dislikes, &in->cap_dislikes, sizeof *d);
    if (!d || !(d->question = rvi_alloc_array((size_t)h.question_len + 1, 1)))
        return rvi_nomem(err, "thumbs");
    memcpy(d->question, question, (size_t)h.question_len);
    d->question[h.question_len] = 0;
    rv_status st = rvi_pairs_load(&d->pairs, in->thumbs, pairs, (size_t)h.pairs_len, err);
    if (st) {
        rvi_free(d->question);
        return st;
    }
    in->n_dislikes++;
    rvi_delta delta = rvi_pairs_delta(d->pairs);
    return rvi_instant_publish(l, &d->adapter, &delta, err);
}

static rv_status load(rvi_learner *l, const rvi_snapshot *s, rv_error *err)
{
    rvi_instant *in = &l->instant;
    const uint8_t *p = s->data, *end = s->data + s->len;
    header h;
    const uint8_t *at = take(&p, end, sizeof h);
    if (at) memcpy(&h, at, sizeof h);
    const uint8_t *micro =
        at && !memcmp(h.magic, magic, sizeof magic) ? take(&p, end, h.micro_len) : NULL;
    if (!micro || h.scores.n < 0 || h.scores.n > RVI_SCORES || h.scores.next < 0 ||
        h.scores.next >= RVI_SCORES ||
        !rvi_floats_sound(h.scores.last, RVI_COUNT(h.scores.last), 0))
        return rvi_error(err, RV_E_STORAGE, "the snapshot is not one of scores and thumbs");
    rv_status st = RV_OK;
    if (h.micro_len) {
        rv_error why = {0};
        st = rvi_instant_new_micro(l, err);
        if (!st &&
            rvi_micro_load(in->micro, micro, (size_t)h.micro_len, &why)) /* of another rank */
            warn(l, "what scores taught is left out", &why);
        rvi_delta d = {0};
        if (!st) d = rvi_micro_delta(in->micro);
        if (!st && rvi_micro_status_of(in->micro).size > 0)
            st = rvi_instant_publish(l, &in->adapter, &d, err);
    }
    in->scores = h.scores;
    if (!st && h.n_dislikes) st = rvi_instant_load_whitener(l, err);
    for (uint64_t i = 0; !st && i < h.n_dislikes; i++) st = load_dislike(l, &p, end, err);
    return st;
}

/* What cannot be read is left out: then nothing was ever scored. */
rv_status rvi_instant_reopen(rvi_learner *l, rv_error *err)
{
    rvi_snapshot s = {0};
    uint8_t model[RVI_SHA256_LEN];
    rv_error why = {0};
    if (!l->dir) return RV_OK;
    model_of(l, model);
    rv_status st = rvi_snapshot_load(&s, l->dir, name, model, 0, &why);
    if (!st) {
        st = load(l, &s, &why);
        if (st) rvi_instant_deinit(l);
    }
    rvi_snapshot_close(&s);
    if (!st || st == RV_E_NOT_FOUND) return RV_OK;
    if (st == RV_E_NOMEM) return rvi_nomem(err, "snapshot");
    warn(l, "what scores taught is left out", &why);
    return RV_OK;
}
