/* What scores and thumbs taught, in the store.
 *
 * The log has every judgement, but not the gradients that were learned from. So the adapter of
 * scores is written as it is after each of them, in the transaction that logs the event: whatever
 * ends the process, what was acknowledged is there, bit for bit. The last RVI_INSTANT_STATES of
 * these are kept, and taking a score back means going on from the state before it. One that cannot
 * be read is passed over for the next older.
 *
 * The lists of thumbs are larger: each is written when the call that changed it has returned, or by
 * the background thread. What a thumb acknowledges does not depend on them (lessons.c). The
 * whitener, larger still and made once, is a snapshot file in the learner's directory. Where the
 * store is shared neither is: each process has its own lists, of the thumbs that it was given,
 * until it ends; what a thumb acknowledges counts for all. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "learn/learner/learner_internal.h"
#include "learn/journal/snapshot.h"
#include "learn/instant/vector.h"

enum { PIECE = RVI_STORE_MAX_RECORD / 2, OWNER = 16, KEY = 2 * OWNER + 32 };

static const char states[] = "instant", lists[] = "thumbs", whitener_name[] = "whitener";
static const char magic[8] = "RVINST2";

typedef struct header {
    char magic[8];
    rvi_scores scores;
    int32_t since_probe, probe_due;
    int32_t whole, unused; /* whole: with the snapshots of the adapter */
    uint64_t micro_len;
} header;

static int digit(char c)
{
    return c <= '9' ? c - '0' : c - 'a' + 10;
}

static void model_of(const rvi_learner *l, uint8_t out[RVI_SHA256_LEN])
{
    for (size_t i = 0; i < RVI_SHA256_LEN; i++)
        out[i] = (uint8_t)(16 * digit(l->digest[2 * i]) + digit(l->digest[2 * i + 1]));
}

static void warn(const rvi_learner *l, const char *what, const rv_error *why)
{
    rvi_log_write(l->parts.be->log, RVI_LOG_WARN, "%s: %s", what, why->text);
}

/* ---- values of any size, in pieces of the store ---- */

static void hash_key(char out[OWNER + 1], const char *a, const char *b)
{
    uint8_t hash[RVI_SHA256_LEN];
    rvi_sha256 h;
    rvi_sha256_init(&h);
    rvi_sha256_add(&h, a, strlen(a) + 1);
    rvi_sha256_add(&h, b, strlen(b) + 1);
    rvi_sha256_end(&h, hash);
    for (size_t i = 0; i < OWNER / 2; i++) snprintf(out + 2 * i, 3, "%02x", hash[i]);
}

/* A store may hold the state of several users and models. */
static void owner_of(const rvi_learner *l, char out[OWNER + 1])
{
    hash_key(out, l->user, l->digest);
}

static size_t piece_key(const char *value, size_t piece, char key[KEY])
{
    return (size_t)snprintf(key, KEY, "%s.%03zu", value, piece);
}

static rv_status put(rvi_learner *l, const char *table, const char *value, const rvi_buf *data,
                     rv_error *err)
{
    char key[KEY];
    rv_status st = RV_OK;
    for (size_t i = 0; !st && i <= data->len / PIECE; i++) {
        size_t at = i * PIECE, n = RVI_MIN(data->len - at, (size_t)PIECE);
        st =
            rvi_store_put(&l->store, table, key, piece_key(value, i, key), data->data + at, n, err);
    }
    return st;
}

static rv_status get(rvi_learner *l, const char *table, const char *value, rvi_buf *out,
                     rv_error *err)
{
    char key[KEY];
    bool found = true;
    rv_status st = RV_OK;
    out->len = 0;
    for (size_t i = 0, before = 0; !st && found; i++, before = out->len) {
        st = rvi_store_get(&l->store, table, key, piece_key(value, i, key), out, &found, err);
        if (out->len - before < PIECE) break;
    }
    return st;
}

static rv_status drop(rvi_learner *l, const char *table, const char *value, size_t len,
                      rv_error *err)
{
    char key[KEY];
    rv_status st = RV_OK;
    for (size_t i = 0; !st && i <= len / PIECE; i++)
        st = rvi_store_remove(&l->store, table, key, piece_key(value, i, key), err);
    return st;
}

/* ---- states of the adapter of scores ---- */

static void state_name(const rvi_learner *l, uint64_t event, char name[KEY])
{
    char owner[OWNER + 1];
    owner_of(l, owner);
    snprintf(name, KEY, "%s.%020llu", owner, (unsigned long long)event);
}

static rv_status write_state(rvi_learner *l, uint64_t event, bool whole, rv_error *err)
{
    rvi_instant *in = &l->instant;
    char name[KEY];
    rvi_buf micro = {0}, out = {0};
    header h = {.scores = in->scores,
                .since_probe = in->since_probe,
                .probe_due = in->probe_due,
                .whole = whole};
    rv_status st = rvi_micro_save(in->micro, !whole, &micro, err);
    memcpy(h.magic, magic, sizeof magic);
    h.micro_len = micro.len;
    if (!st && !(rvi_buf_append(&out, &h, sizeof h) && rvi_buf_append(&out, micro.data, micro.len)))
        st = rvi_nomem(err, "state");
    state_name(l, event, name);
    if (!st) st = put(l, states, name, &out, err);
    in->state_len = RVI_MAX(in->state_len, out.len);
    rvi_buf_deinit(&micro);
    rvi_buf_deinit(&out);
    return st;
}

static rv_status drop_oldest(rvi_learner *l, size_t n, rv_error *err)
{
    rvi_instant *in = &l->instant;
    char name[KEY];
    rv_status st = RV_OK;
    for (size_t i = 0; !st && i < n; i++) {
        state_name(l, in->states[i], name);
        st = drop(l, states, name, in->state_len, err);
    }
    if (st) return st;
    in->n_states -= n;
    memmove(in->states, in->states + n, in->n_states * sizeof *in->states);
    return RV_OK;
}

rv_status rvi_instant_save(rvi_learner *l, uint64_t event, bool whole, rv_error *err)
{
    rvi_instant *in = &l->instant;
    rv_status st = RV_OK;
    if (in->n_states && in->states[in->n_states - 1] == event)
        return write_state(l, event, whole, err);
    if (in->n_states == RVI_INSTANT_STATES) st = drop_oldest(l, 1, err);
    if (!st) st = write_state(l, event, whole, err);
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
    rv_status st = rolled_back ? drop_oldest(l, newest, &why) : RV_OK;
    if (!st) st = rvi_instant_save(l, event, true, &why);
    if (rvi_store_end(&l->store, st, &why)) warn(l, "the probe of scores is not saved", &why);
}

static rv_status read_state(rvi_learner *l, uint64_t event, rvi_buf *data, header *h, rv_error *err)
{
    char name[KEY];
    state_name(l, event, name);
    rv_status st = get(l, states, name, data, err);
    if (st) return st;
    if (data->len >= sizeof *h) memcpy(h, data->data, sizeof *h);
    if (data->len < sizeof *h || memcmp(h->magic, magic, sizeof magic) || h->scores.n < 0 ||
        h->micro_len != data->len - sizeof *h || h->scores.n > RVI_SCORES || h->scores.next < 0 ||
        h->scores.next >= RVI_SCORES ||
        !rvi_floats_sound(h->scores.last, RVI_COUNT(h->scores.last), 0))
        return rvi_error(err, RV_E_STORAGE, "the state after event %llu is damaged",
                         (unsigned long long)event);
    return RV_OK;
}

static rv_status load_state(rvi_learner *l, uint64_t event, header *h, rv_error *err)
{
    rvi_instant *in = &l->instant;
    rvi_buf data = {0};
    rv_status st = read_state(l, event, &data, h, err);
    if (!st) st = rvi_micro_load(in->micro, data.data + sizeof *h, (size_t)h->micro_len, err);
    if (!st) {
        in->scores = h->scores;
        in->since_probe = h->since_probe;
        in->probe_due = h->probe_due != 0;
        in->state_len = RVI_MAX(in->state_len, data.len);
    }
    rvi_buf_deinit(&data);
    return st;
}

static rv_status publish(rvi_learner *l, rv_error *err)
{
    rvi_instant *in = &l->instant;
    rvi_delta d = rvi_micro_delta(in->micro);
    if (!(rvi_micro_status_of(in->micro).size > 0)) d.rank = 0;
    return rvi_instant_publish(l, &in->adapter, &d, err);
}

bool rvi_instant_has_before(const rvi_learner *l, uint64_t event)
{
    return l->instant.n_states && l->instant.states[0] < event;
}

rv_status rvi_instant_go_before(rvi_learner *l, uint64_t event, rv_error *err)
{
    rvi_instant *in = &l->instant;
    header h;
    size_t n = in->n_states;
    while (n && in->states[n - 1] >= event) n--;
    if (!n) return rvi_error(err, RV_E_LEARNING, "the state before it is no longer known");
    rv_status st = load_state(l, in->states[n - 1], &h, err);
    return st ? st : publish(l, err);
}

/* ---- lists of thumbs ---- */

typedef struct dislike_header {
    uint64_t question_len, edits_len;
} dislike_header;

static void list_name(const rvi_learner *l, const char *question, char name[KEY])
{
    char owner[OWNER + 1], about[OWNER + 1];
    owner_of(l, owner);
    hash_key(about, question, "");
    snprintf(name, KEY, "%s.%s", owner, about);
}

static rv_status write_list(rvi_learner *l, rvi_dislike *d, rv_error *err)
{
    char name[KEY];
    rvi_buf edits = {0}, out = {0};
    rv_status st = rvi_edits_save(d->edits, &edits, err);
    dislike_header h = {strlen(d->question), edits.len};
    if (!st && !(rvi_buf_append(&out, &h, sizeof h) &&
                 rvi_buf_append(&out, d->question, (size_t)h.question_len) &&
                 rvi_buf_append(&out, edits.data, edits.len)))
        st = rvi_nomem(err, "thumbs");
    list_name(l, d->question, name);
    if (!st) st = rvi_store_begin(&l->store, false, err);
    if (!st) {
        st = put(l, lists, name, &out, err);
        st = rvi_store_end(&l->store, st, err);
    }
    if (!st) d->unsaved = false;
    rvi_buf_deinit(&edits);
    rvi_buf_deinit(&out);
    return st;
}

void rvi_instant_save_lists(rvi_learner *l)
{
    rv_error why = {0};
    if (rvi_learner_shares(l)) return;
    for (size_t i = 0; i < l->instant.n_dislikes; i++)
        if (l->instant.dislikes[i].unsaved && write_list(l, &l->instant.dislikes[i], &why))
            warn(l, "what a thumb taught is not saved", &why);
}

void rvi_instant_drop_list(rvi_learner *l, const rvi_dislike *d)
{
    char name[KEY];
    rv_error why = {0};
    rvi_buf data = {0};
    if (rvi_learner_shares(l)) return;
    list_name(l, d->question, name);
    rv_status st = get(l, lists, name, &data, &why);
    if (!st && data.len) st = drop(l, lists, name, data.len, &why);
    if (st) warn(l, "what a thumb taught is not removed", &why);
    rvi_buf_deinit(&data);
}

static const char *take(const char **p, const char *end, uint64_t len)
{
    if ((uint64_t)(end - *p) < len) return NULL;
    const char *at = *p;
    *p += len;
    return at;
}

static rv_status load_list(rvi_learner *l, const rvi_buf *data, rv_error *err)
{
    rvi_instant *in = &l->instant;
    dislike_header h;
    const char *p = data->data, *end = p + data->len;
    const char *at = take(&p, end, sizeof h), *question = NULL, *edits = NULL;
    if (at) memcpy(&h, at, sizeof h);
    if (at) question = take(&p, end, h.question_len);
    if (question) edits = take(&p, end, h.edits_len);
    if (!edits || memchr(question, 0, (size_t)h.question_len))
        return rvi_error(err, RV_E_STORAGE, "a list of thumbs is cut off");
    rvi_dislike *d =
        rvi_list_room((void **)&in->dislikes, in->n_dislikes, &in->cap_dislikes, sizeof *d);
    if (!d || !(d->question = rvi_alloc_array((size_t)h.question_len + 1, 1)))
        return rvi_nomem(err, "thumbs");
    memcpy(d->question, question, (size_t)h.question_len);
    d->question[h.question_len] = 0;
    rv_status st = rvi_edits_load(&d->edits, in->thumbs, edits, (size_t)h.edits_len, err);
    if (st) {
        rvi_free(d->question);
        return st;
    }
    in->n_dislikes++;
    rvi_delta delta = rvi_edits_delta(d->edits);
    return rvi_instant_publish(l, &d->adapter, &delta, err);
}

/* ---- the whitener ---- */

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

/* ---- opening ---- */

typedef struct names {
    char owner[OWNER + 1];
    rvi_buf list; /* first pieces' names without the piece, each ended */
} names;

static int note_name(void *ctx, rvi_bytes key, rvi_bytes record)
{
    names *n = ctx;
    const char *name = key.data;
    (void)record;
    if (key.len <= OWNER + 4 || key.len >= KEY || memcmp(name, n->owner, OWNER) ||
        memcmp(name + key.len - 4, ".000", 4))
        return key.len > OWNER && memcmp(name, n->owner, OWNER) > 0; /* those of others come then */
    return !rvi_buf_append(&n->list, name, key.len - 4) || !rvi_buf_putc(&n->list, 0);
}

static rv_status find_names(rvi_learner *l, const char *table, names *out, rv_error *err)
{
    *out = (names){0};
    owner_of(l, out->owner);
    rv_status st = rvi_store_scan(&l->store, table, out->owner, OWNER, note_name, out, err);
    if (!st && out->list.failed) st = rvi_nomem(err, "names");
    return st;
}

/* From the newest state that can be read; the adapter's snapshots are of the newest whole one. */
static rv_status load_newest(rvi_learner *l, rv_error *err)
{
    rvi_instant *in = &l->instant;
    header h = {0};
    rv_status st = RV_E_NOT_FOUND;
    while (in->n_states && st) {
        rv_error why = {0};
        st = load_state(l, in->states[in->n_states - 1], &h, &why);
        if (st == RV_E_NOMEM) return rvi_nomem(err, "state");
        if (!st) break;
        warn(l, "a score's step is left out", &why);
        in->n_states--;
    }
    for (size_t i = in->n_states; !st && !h.whole && i-- > 1;) {
        header older;
        rv_error why = {0};
        rvi_buf data = {0};
        st = read_state(l, in->states[i - 1], &data, &older, &why);
        rvi_buf_deinit(&data);
        if (st == RV_E_NOMEM) return rvi_nomem(err, "state");
        if (st || !older.whole) {
            st = RV_OK;
            continue;
        }
        st = load_state(l, in->states[i - 1], &h, &why);
        if (st == RV_E_NOMEM) return rvi_nomem(err, "state");
        h.whole = 1;
        st = load_state(l, in->states[in->n_states - 1], &older, err);
    }
    if (st && st != RV_E_NOT_FOUND) return st;
    return in->n_states ? publish(l, err) : RV_OK;
}

rv_status rvi_instant_reopen_scores(rvi_learner *l, rv_error *err)
{
    rvi_instant *in = &l->instant;
    names n;
    in->n_states = 0;
    rv_status st = find_names(l, states, &n, err);
    for (size_t at = 0; !st && at < n.list.len; at += strlen(n.list.data + at) + 1) {
        if (in->n_states == RVI_INSTANT_STATES) { /* more than this version keeps */
            memmove(in->states, in->states + 1, (in->n_states - 1) * sizeof *in->states);
            in->n_states--;
        }
        in->states[in->n_states++] = strtoull(n.list.data + at + OWNER + 1, NULL, 10);
    }
    if (!st && in->n_states) st = rvi_instant_new_micro(l, err);
    if (!st && in->n_states) st = load_newest(l, err);
    rvi_buf_deinit(&n.list);
    return st;
}

static rv_status reopen_lists(rvi_learner *l, rv_error *err)
{
    names n;
    rvi_buf data = {0};
    rv_error why = {0};
    rv_status st = find_names(l, lists, &n, err);
    if (!st && n.list.len && rvi_instant_load_whitener(l, &why)) {
        if (why.code == RV_E_NOMEM) st = rvi_nomem(err, "whitening");
        if (!st) warn(l, "what thumbs taught is left out", &why);
        n.list.len = 0;
    }
    for (size_t at = 0; !st && at < n.list.len; at += strlen(n.list.data + at) + 1) {
        if (get(l, lists, n.list.data + at, &data, &why) || load_list(l, &data, &why)) {
            if (why.code == RV_E_NOMEM) st = rvi_nomem(err, "thumbs");
            if (!st) warn(l, "a list of thumbs is left out", &why);
        }
    }
    rvi_buf_deinit(&data);
    rvi_buf_deinit(&n.list);
    return st;
}

rv_status rvi_instant_reopen(rvi_learner *l, rv_error *err)
{
    rv_status st = rvi_instant_reopen_scores(l, err);
    return st || rvi_learner_shares(l) ? st : reopen_lists(l, err);
}
