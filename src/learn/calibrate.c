/* What is made once for a model: its own texts (replay.h) and the statistics of questions that the
 * gate goes by (gate.h). Both are kept in the store, table "model", in pieces that fit into a
 * record, so that opening a learner again needs no forward pass for them. Hidden states are not
 * part of it: they are made when somebody trains (ground.h). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "learn/learner_internal.h"

enum { PIECE = RVI_STORE_MAX_RECORD / 2, KEY = RVI_SHA256_HEX + 32, REPLAY_SEED = 7 };

/* ---- in the store ---- */

static size_t key_of(const rvi_learner *l, const char *what, size_t piece, char key[KEY])
{
    return (size_t)snprintf(key, KEY, "%s.%s.%zu", l->digest, what, piece);
}

/* Pieces of full size, and a shorter one behind them. */
static rv_status put(rvi_learner *l, const char *what, const rvi_buf *data, rv_error *err)
{
    char key[KEY];
    rv_status st = RV_OK;
    for (size_t i = 0; !st && i <= data->len / PIECE; i++) {
        size_t at = i * PIECE, n = RVI_MIN(data->len - at, (size_t)PIECE);
        st = rvi_store_put(&l->store, "model", key, key_of(l, what, i, key), data->data + at, n,
                           err);
    }
    return st;
}

static rv_status get(rvi_learner *l, const char *what, rvi_buf *out, rv_error *err)
{
    enum { MOST = 256 }; /* pieces */
    char key[KEY];
    bool found = true;
    rv_status st = RV_OK;
    for (size_t i = 0, before = 0; !st && found && i < MOST; i++, before = out->len) {
        st = rvi_store_get(&l->store, "model", key, key_of(l, what, i, key), out, &found, err);
        if (out->len - before < PIECE) break;
    }
    return st;
}

static rv_status save(rvi_learner *l, const rvi_replay *r, const rvi_calibration *c, rv_error *err)
{
    rvi_buf texts = {0}, statistics = {0};
    rv_status st = (!r || rvi_replay_save(r, &texts)) && rvi_calibration_save(c, &statistics)
                       ? rvi_store_begin(&l->store, false, err)
                       : rvi_nomem(err, "calibration");
    if (!st) {
        if (r) st = put(l, "replay", &texts, err);
        if (!st) st = put(l, "gate", &statistics, err);
        st = rvi_store_end(&l->store, st, err);
    }
    rvi_buf_deinit(&texts);
    rvi_buf_deinit(&statistics);
    return st;
}

static size_t prototype_key(const rvi_learner *l, const rvi_fact *f, char key[KEY])
{
    return (size_t)snprintf(key, KEY, "%s.%016llx", l->digest,
                            (unsigned long long)rvi_calibration_prototype(l->calibration, f));
}

/* The relation stands in front of the prototype, so that nothing is taken for another. */
bool rvi_calibration_recall(void *memory, const rvi_fact *f, float *prototype)
{
    rvi_learner *l = memory;
    char key[KEY];
    rvi_buf data = {0};
    bool found = false;
    size_t len = strlen(f->relation) + 1, bytes = (size_t)l->calibration->dim * sizeof(float);
    rv_status st =
        rvi_store_get(&l->store, "prototype", key, prototype_key(l, f, key), &data, &found, NULL);
    found = !st && found && data.len == len + bytes && !memcmp(data.data, f->relation, len);
    if (found) memcpy(prototype, data.data + len, bytes);
    for (int i = 0; found && i < l->calibration->dim; i++) found = isfinite(prototype[i]);
    rvi_buf_deinit(&data);
    return found;
}

/* Where it cannot be written it is made again next time. */
void rvi_calibration_remember(void *memory, const rvi_fact *f, const float *prototype)
{
    rvi_learner *l = memory;
    char key[KEY];
    rvi_buf data = {0};
    if (rvi_buf_append(&data, f->relation, strlen(f->relation) + 1) &&
        rvi_buf_append(&data, prototype, (size_t)l->calibration->dim * sizeof *prototype)) {
        rv_status st = rvi_store_put(&l->store, "prototype", key, prototype_key(l, f, key),
                                     data.data, data.len, NULL);
        (void)st;
    }
    rvi_buf_deinit(&data);
}

static rv_status new_features(const rvi_learner *l, rvi_backend *be, rvi_features **out,
                              rv_error *err)
{
    rvi_features_source src = {
        .model = l->parts.m, .be = be, .tokenizer = l->parts.t, .chat = l->parts.chat};
    return rvi_features_new(out, &src, err);
}

/* What is not there, or damaged, is made again when it is needed. */
rv_status rvi_calibration_reopen(rvi_learner *l, rv_error *err)
{
    rvi_buf data = {0};
    rv_error why = {0};
    rv_status st = get(l, "replay", &data, err);
    if (!st && data.len && rvi_replay_load(&l->replay, &l->voice, data.data, data.len, &why) &&
        why.code == RV_E_NOMEM)
        st = rvi_nomem(err, "replay texts");
    data.len = 0;
    if (!st && l->replay.n_pieces) st = get(l, "gate", &data, err);
    if (!st && l->replay.n_pieces && data.len) {
        rv_status bad =
            rvi_calibration_load(&l->calibration, l->parts.m->hp.n_embd, data.data, data.len, &why);
        if (bad == RV_E_NOMEM) st = rvi_nomem(err, "calibration");
        if (!bad) st = new_features(l, l->voice.be, &l->features, err);
        l->calibrated = !bad && !st;
    }
    rvi_buf_deinit(&data);
    return st;
}

/* ---- making ---- */

rv_status rvi_calibrating_take(rvi_calibrating *c, const rvi_learner *l, rv_error *err)
{
    *c = (rvi_calibrating){.facts = rvi_alloc_array(l->n_lessons + 1, sizeof *c->facts)};
    if (!c->facts) return rvi_nomem(err, "facts");
    for (size_t i = 0; i < l->n_lessons; i++)
        if (l->lessons[i].stands && l->lessons[i].fact->kind != RVI_FACT_FREE)
            c->facts[c->n_facts++] = l->lessons[i].fact;
    return RV_OK;
}

rv_status rvi_calibrating_make(rvi_calibrating *c, const rvi_learner *l, const rvi_voice *v,
                               rvi_study_progress_fn progress, void *ctx, rv_error *err)
{
    rvi_study_teller t = {progress, ctx, "the model's own texts"};
    rvi_features *features = NULL;
    rv_status st = RV_OK;
    if (!l->replay.n_pieces)
        st = rvi_replay_make(&c->replay, v, REPLAY_SEED, rvi_study_tell, &t, err);
    const rvi_replay *r = l->replay.n_pieces ? &l->replay : &c->replay;
    const char **questions = rvi_alloc_array(r->n_questions + 1, sizeof *questions);
    if (!st && !questions) st = rvi_nomem(err, "questions");
    for (size_t i = 0; !st && i < r->n_questions; i++) questions[i] = rvi_replay_question(r, i);
    if (!st) st = new_features(l, v->be, &features, err);
    if (!st) {
        rvi_gate_reader reader = {
            .read = rvi_features_read, .ctx = features, .dim = rvi_features_dim(features)};
        st = rvi_calibration_new(&c->calibration, &reader, questions, r->n_questions, err);
        if (!st && c->n_facts)
            st = rvi_gate_new(&c->gate, l->parts.t, c->facts, c->n_facts, c->calibration, &reader,
                              NULL, err);
    }
    rvi_features_free(features);
    rvi_free(questions);
    return st;
}

/* Those that were made beside the learner, which had no store at hand. Where that fails they are
 * made again next time. */
static void keep_prototypes(const rvi_calibrating *c, rvi_learner *l)
{
    if (!c->gate || rvi_store_begin(&l->store, false, NULL)) return;
    for (size_t i = 0; i < c->n_facts; i++) {
        const float *prototype = rvi_gate_prototype(c->gate, c->facts[i]);
        if (prototype) rvi_calibration_remember(l, c->facts[i], prototype);
    }
    rv_status st = rvi_store_end(&l->store, RV_OK, NULL);
    (void)st;
}

rv_status rvi_calibrating_keep(rvi_calibrating *c, rvi_learner *l, rv_error *err)
{
    bool fresh = c->replay.n_pieces > 0;
    rvi_features *features = NULL;
    if (l->calibrated) return RV_OK; /* by another call meanwhile */
    rv_status st = save(l, fresh ? &c->replay : NULL, c->calibration, err);
    if (!st) st = new_features(l, l->voice.be, &features, err);
    if (st) return st;
    rvi_features *old = l->features;
    l->features = features;
    l->calibration = c->calibration;
    st = rvi_learner_make_gate(l, c->gate, err);
    if (st) { /* as it was */
        l->features = old;
        l->calibration = NULL;
        rvi_features_free(features);
        return st;
    }
    rvi_features_free(old);
    keep_prototypes(c, l);
    c->calibration = NULL;
    if (fresh) {
        l->replay = c->replay;
        c->replay = (rvi_replay){0};
    }
    l->calibrated = true;
    return RV_OK;
}

void rvi_calibrating_deinit(rvi_calibrating *c)
{
    rvi_gate_free(c->gate);
    rvi_calibration_free(c->calibration);
    rvi_replay_deinit(&c->replay);
    rvi_free(c->facts);
    *c = (rvi_calibrating){0};
}

rv_status rvi_learner_calibrate(rvi_learner *l, rvi_study_progress_fn progress, void *ctx,
                                rv_error *err)
{
    rvi_calibrating c = {0};
    if (l->calibrated) return RV_OK;
    rv_status st = rvi_calibrating_take(&c, l, err);
    if (!st) st = rvi_calibrating_make(&c, l, &l->voice, progress, ctx, err);
    if (!st) st = rvi_calibrating_keep(&c, l, err);
    rvi_calibrating_deinit(&c);
    return st;
}

rv_status rvi_learner_need_ground(rvi_learner *l, const rvi_voice *v,
                                  rvi_study_progress_fn progress, void *ctx, rv_error *err)
{
    rvi_study_teller t = {progress, ctx, "hidden states"};
    if (l->grounded) {
        rvi_ground_use(&l->ground, v);
        return RV_OK;
    }
    rv_status st = rvi_ground_init(&l->ground, v, &l->replay, rvi_study_tell, &t, err);
    l->grounded = !st;
    return st;
}
