/* What scores taught, in the store.
 *
 * The log has every judgement, but not the gradients that were learned from. So the adapter of
 * scores is written as it is after each of them, in the transaction that logs the event: whatever
 * ends the process, what was acknowledged is there, bit for bit. The last RVI_INSTANT_STATES of
 * these are kept, and taking a score back means going on from the state before it. One that cannot
 * be read is passed over for the next older. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "learn/journal/pieces.h"
#include "learn/learner/learner_internal.h"
#include "learn/instant/vector.h"

enum { OWNER = 16, KEY = 2 * OWNER + 32, DIGITS = 3 };

static const char states[] = "instant";
static const char magic[8] = "RVINST2";

typedef struct header {
    char magic[8];
    rvi_scores scores;
    int32_t since_probe, probe_due;
    int32_t whole, unused; /* whole: 1, but in some of earlier versions */
    uint64_t micro_len;
} header;

static void warn(const rvi_learner *l, const char *what, const rv_error *why)
{
    rvi_log_write(l->parts.be->log, RVI_LOG_WARN, "%s: %s", what, why->text);
}

/* A store may hold the state of several users and models. */
static void owner_of(const rvi_learner *l, char out[OWNER + 1])
{
    uint8_t hash[RVI_SHA256_LEN];
    rvi_sha256 h;
    rvi_sha256_init(&h);
    rvi_sha256_add(&h, l->user, strlen(l->user) + 1);
    rvi_sha256_add(&h, l->digest, strlen(l->digest) + 1);
    rvi_sha256_end(&h, hash);
    for (size_t i = 0; i < OWNER / 2; i++) snprintf(out + 2 * i, 3, "%02x", hash[i]);
}

/* ---- states of the adapter of scores ---- */

static void state_name(const rvi_learner *l, uint64_t event, char name[KEY])
{
    char owner[OWNER + 1];
    owner_of(l, owner);
    snprintf(name, KEY, "%s.%020llu", owner, (unsigned long long)event);
}

static rv_status write_state(rvi_learner *l, uint64_t event, rv_error *err)
{
    rvi_instant *in = &l->instant;
    char name[KEY];
    rvi_buf micro = {0}, out = {0};
    header h = {.scores = in->scores,
                .since_probe = in->since_probe,
                .probe_due = in->probe_due,
                .whole = 1};
    rv_status st = rvi_micro_save(in->micro, &micro, err);
    memcpy(h.magic, magic, sizeof magic);
    h.micro_len = micro.len;
    if (!st && !(rvi_buf_append(&out, &h, sizeof h) && rvi_buf_append(&out, micro.data, micro.len)))
        st = rvi_nomem(err, "state");
    state_name(l, event, name);
    if (!st) st = rvi_pieces_put(&l->store, states, name, DIGITS, out.data, out.len, err);
    in->state_len = RVI_MAX(in->state_len, out.len);
    rvi_buf_deinit(&micro);
    rvi_buf_deinit(&out);
    return st;
}

static rv_status drop(rvi_learner *l, size_t at, size_t n, rv_error *err)
{
    rvi_instant *in = &l->instant;
    char name[KEY];
    rv_status st = RV_OK;
    for (size_t i = 0; !st && i < n; i++) {
        state_name(l, in->states[at + i], name);
        st = rvi_pieces_remove(&l->store, states, name, DIGITS, in->state_len, err);
    }
    if (st) return st;
    in->n_states -= n;
    memmove(in->states + at, in->states + at + n, (in->n_states - at) * sizeof *in->states);
    return RV_OK;
}

rv_status rvi_instant_save(rvi_learner *l, uint64_t event, rv_error *err)
{
    rvi_instant *in = &l->instant;
    rv_status st = RV_OK;
    if (in->n_states && in->states[in->n_states - 1] == event) return write_state(l, event, err);
    if (in->n_states == RVI_INSTANT_STATES) st = drop(l, 0, 1, err);
    if (!st) st = write_state(l, event, err);
    if (!st) in->states[in->n_states++] = event;
    return st;
}

void rvi_instant_save_checked(rvi_learner *l, bool rolled_back)
{
    rvi_instant *in = &l->instant;
    rv_error why = {0};
    if (!in->n_states || rvi_store_begin(&l->store, false, NULL)) return;
    size_t n = in->n_states, newest = n - 1;
    uint64_t event = in->states[newest];
    rv_status st = rolled_back ? drop(l, 0, newest, &why) : RV_OK;
    if (!st) st = rvi_instant_save(l, event, &why);
    if (rvi_store_end(&l->store, st, &why)) warn(l, "the probe of scores is not saved", &why);
}

static bool is_sound(const header *h, const rvi_buf *data)
{
    return !memcmp(h->magic, magic, sizeof magic) && h->micro_len == data->len - sizeof *h &&
           h->scores.n >= 0 && h->scores.n <= RVI_SCORES && h->scores.next >= 0 &&
           h->scores.next < RVI_SCORES &&
           rvi_floats_sound(h->scores.last, RVI_COUNT(h->scores.last), 0);
}

static rv_status load_state(rvi_learner *l, uint64_t event, rv_error *err)
{
    rvi_instant *in = &l->instant;
    char name[KEY];
    header h = {0};
    rvi_buf data = {0};
    state_name(l, event, name);
    rv_status st = rvi_pieces_get(&l->store, states, name, DIGITS, &data, err);
    if (!st && data.len >= sizeof h) memcpy(&h, data.data, sizeof h);
    if (!st && !is_sound(&h, &data))
        st = rvi_error(err, RV_E_STORAGE, "the state after event %llu is damaged",
                       (unsigned long long)event);
    if (!st) st = rvi_micro_load(in->micro, data.data + sizeof h, (size_t)h.micro_len, err);
    if (!st) {
        in->scores = h.scores;
        in->since_probe = h.since_probe;
        in->probe_due = h.probe_due != 0;
        in->state_len = RVI_MAX(in->state_len, data.len);
    }
    rvi_buf_deinit(&data);
    return st;
}

bool rvi_instant_has_before(const rvi_learner *l, uint64_t event)
{
    return l->instant.n_states && l->instant.states[0] < event;
}

rv_status rvi_instant_go_before(rvi_learner *l, uint64_t event, rv_error *err)
{
    rvi_instant *in = &l->instant;
    size_t n = in->n_states;
    while (n && in->states[n - 1] >= event) n--;
    if (!n) return rvi_error(err, RV_E_LEARNING, "the state before it is no longer known");
    rv_status st = load_state(l, in->states[n - 1], err);
    return st ? st : rvi_instant_publish(l, err);
}

rv_status rvi_instant_drop_from(rvi_learner *l, uint64_t event, rv_error *err)
{
    size_t n = l->instant.n_states, at = n;
    while (at && l->instant.states[at - 1] >= event) at--;
    return drop(l, at, n - at, err);
}

/* ---- opening ---- */

static int note_state(void *ctx, rvi_bytes key, rvi_bytes record)
{
    rvi_learner *l = ctx;
    rvi_instant *in = &l->instant;
    char owner[OWNER + 1], name[KEY] = "";
    (void)record;
    owner_of(l, owner);
    if (key.len >= KEY) return 0;
    memcpy(name, key.data, key.len);
    if (strncmp(name, owner, OWNER)) return 1; /* those of others come then */
    if (key.len <= OWNER + 4 || strcmp(name + key.len - 4, ".000")) return 0; /* no first piece */
    if (in->n_states == RVI_INSTANT_STATES) /* more than this version keeps */
        memmove(in->states, in->states + 1, --in->n_states * sizeof *in->states);
    in->states[in->n_states++] = strtoull(name + OWNER + 1, NULL, 10);
    return 0;
}

/* From the newest state that can be read. */
static rv_status load_newest(rvi_learner *l, rv_error *err)
{
    rvi_instant *in = &l->instant;
    for (; in->n_states; in->n_states--) {
        rv_error why = {0};
        rv_status st = load_state(l, in->states[in->n_states - 1], &why);
        if (st == RV_E_NOMEM) return rvi_nomem(err, "state");
        if (!st) return rvi_instant_publish(l, err);
        warn(l, "a score's step is left out", &why);
    }
    return RV_OK;
}

rv_status rvi_instant_reopen_scores(rvi_learner *l, rv_error *err)
{
    rvi_instant *in = &l->instant;
    char owner[OWNER + 1];
    owner_of(l, owner);
    in->n_states = 0;
    rv_status st = rvi_store_scan(&l->store, states, owner, OWNER, note_state, l, err);
    if (!st && in->n_states) st = rvi_instant_new_micro(l, err);
    if (!st && in->n_states) st = load_newest(l, err);
    return st;
}
