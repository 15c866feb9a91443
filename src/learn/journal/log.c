#include "learn/journal/log.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/json.h"
#include "learn/journal/text.h"

#define STREAM "feedback"
#define HEAD   "feedback.head"

enum { ARENA_MAX = 64 << 20 }; /* bytes for the tree of one event */

enum {
    NEEDS_QUESTION = 1,
    NEEDS_CORRECTED = 2,
    NEEDS_SCORE = 4,
    NEEDS_ABOUT = 8, /* an answer's id, or a question */
    NEEDS_TARGET = 16,
    NEEDS_NOTE = 32,
    NEEDS_GENERATION = 64,
    NEEDS_RANGE = 128,
    NEEDS_DIGEST = 256,
    NEEDS_PARENTS = 512,
};

static const struct {
    const char *name;
    unsigned needs;
} kinds[] = {
#define X(name, text, needs) {text, needs},
    RVI_FEEDBACK_KINDS
#undef X
};

static const char *const scopes[] = {
#define X(name, text) text,
    RV_SCOPE_MAP(X)
#undef X
};

/* The members that are texts. */
static const struct {
    const char *name;
    size_t offset, max;
} texts[] = {
    {"user", offsetof(rvi_feedback, user), RVI_FEEDBACK_MAX_NAME},
    {"answer", offsetof(rvi_feedback, answer), RVI_FEEDBACK_MAX_NAME},
    {"question", offsetof(rvi_feedback, question), RVI_FEEDBACK_MAX_TEXT},
    {"given", offsetof(rvi_feedback, given), RVI_FEEDBACK_MAX_TEXT},
    {"corrected", offsetof(rvi_feedback, corrected), RVI_FEEDBACK_MAX_TEXT},
    {"note", offsetof(rvi_feedback, note), RVI_FEEDBACK_MAX_TEXT},
    {"recipe", offsetof(rvi_feedback, recipe), RVI_FEEDBACK_MAX_NAME},
};

/* The members that are whole numbers; 0 is not written. */
static const struct {
    const char *name;
    size_t offset;
} numbers[] = {
    {"target", offsetof(rvi_feedback, target)},
    {"branch", offsetof(rvi_feedback, branch)},
    {"generation", offsetof(rvi_feedback, generation)},
    {"first", offsetof(rvi_feedback, first)},
    {"last", offsetof(rvi_feedback, last)},
};

static const rvi_text *text_of(const rvi_feedback *f, size_t i)
{
    return (const rvi_text *)(const void *)((const char *)f + texts[i].offset);
}

static uint64_t number_of(const rvi_feedback *f, size_t i)
{
    return *(const uint64_t *)(const void *)((const char *)f + numbers[i].offset);
}

rvi_feedback rvi_feedback_new(rvi_feedback_kind kind)
{
    return (rvi_feedback){.kind = kind, .score = NAN};
}

const char *rvi_scope_name(rv_scope scope)
{
    return (size_t)scope < RVI_COUNT(scopes) ? scopes[scope] : "";
}

/* ---- what may be logged ---- */

static bool is_digest(const char *hex)
{
    return !hex[0] ||
           (strspn(hex, "0123456789abcdef") == RVI_SHA256_HEX - 1 && !hex[RVI_SHA256_HEX - 1]);
}

static const char *what_is_missing(const rvi_feedback *f)
{
    unsigned needs = kinds[f->kind].needs;
    if (needs & NEEDS_QUESTION && f->scope != RV_SCOPE_ALWAYS && rvi_text_blank(f->question))
        return "the question is empty";
    if (needs & NEEDS_CORRECTED && rvi_text_blank(f->corrected))
        return "the corrected answer is empty";
    if (needs & NEEDS_SCORE && isnan(f->score)) return "there is no score";
    if (needs & NEEDS_ABOUT && rvi_text_blank(f->answer) && rvi_text_blank(f->question))
        return "neither an answer nor a question is named";
    if (needs & NEEDS_TARGET && !f->target) return "no event is named";
    if (needs & NEEDS_NOTE && !f->target && rvi_text_blank(f->note)) return "the text is empty";
    if (needs & NEEDS_GENERATION && !f->generation) return "no generation is named";
    if (needs & NEEDS_RANGE && !f->first) return "no events are named";
    if (needs & NEEDS_DIGEST && !f->digest[0]) return "there is no digest";
    if (needs & NEEDS_PARENTS && !f->n_parents) return "no parents are named";
    return NULL;
}

rv_status rvi_feedback_check(const rvi_feedback *f, rv_error *err)
{
    if ((unsigned)f->kind >= RVI_FEEDBACK_N_KINDS)
        return rvi_error(err, RV_E_INVALID, "feedback of unknown kind %d", (int)f->kind);
    const char *kind = kinds[f->kind].name;
    for (size_t i = 0; i < RVI_COUNT(texts); i++) {
        const rvi_text *t = text_of(f, i);
        if (t->len > texts[i].max)
            return rvi_error(err, RV_E_INVALID, "%s: %s has %zu bytes; at most %zu are possible",
                             kind, texts[i].name, t->len, texts[i].max);
        size_t at = rvi_text_invalid(*t);
        if (at < t->len)
            return rvi_error(err, RV_E_INVALID, "%s: %s is not UTF-8 at byte %zu", kind,
                             texts[i].name, at);
    }
    for (size_t i = 0; i < RVI_COUNT(numbers); i++)
        if (number_of(f, i) > INT64_MAX)
            return rvi_error(err, RV_E_INVALID, "%s: %s is above 2^63 - 1", kind, numbers[i].name);
    if (f->n_parents > RVI_FEEDBACK_MAX_PARENTS)
        return rvi_error(err, RV_E_INVALID, "%s: %zu parents; at most %d are possible", kind,
                         f->n_parents, (int)RVI_FEEDBACK_MAX_PARENTS);
    for (size_t i = 0; i < f->n_parents; i++)
        if (f->parents[i] > INT64_MAX)
            return rvi_error(err, RV_E_INVALID, "%s: a parent is above 2^63 - 1", kind);
    if (!isnan(f->score) && !(f->score >= 0 && f->score <= 1))
        return rvi_error(err, RV_E_INVALID, "%s: score %g is not between 0 and 1", kind, f->score);
    if (f->kind == RVI_FEEDBACK_THUMB && f->score > 0 && f->score < 1)
        return rvi_error(err, RV_E_INVALID, "thumb: %g is neither 0 nor 1", f->score);
    if (f->first > f->last)
        return rvi_error(err, RV_E_INVALID, "%s: events %llu to %llu", kind,
                         (unsigned long long)f->first, (unsigned long long)f->last);
    if (f->time < 0) return rvi_error(err, RV_E_INVALID, "%s: a time before 1970", kind);
    if (!is_digest(f->digest))
        return rvi_error(err, RV_E_INVALID, "%s: digest is not 64 hexadecimal digits", kind);
    if ((unsigned)f->scope >= RVI_COUNT(scopes))
        return rvi_error(err, RV_E_INVALID, "%s: unknown scope %d", kind, (int)f->scope);
    const char *missing = what_is_missing(f);
    return missing ? rvi_error(err, RV_E_INVALID, "%s: %s", kind, missing) : RV_OK;
}

/* ---- text ---- */

rv_status rvi_feedback_write(rvi_buf *out, const rvi_feedback *f, rv_error *err)
{
    rvi_buf_printf(out, "{\"v\":1,\"seq\":%llu,\"time\":%lld,\"kind\":\"%s\"",
                   (unsigned long long)f->seq, (long long)f->time, kinds[f->kind].name);
    for (size_t i = 0; i < RVI_COUNT(texts); i++) {
        const rvi_text *t = text_of(f, i);
        if (!t->len) continue;
        rvi_buf_printf(out, ",\"%s\":", texts[i].name);
        rvi_json_write_string(out, t->data, t->len);
    }
    if (f->scope) rvi_buf_printf(out, ",\"scope\":\"%s\"", scopes[f->scope]);
    if (!isnan(f->score)) {
        rvi_buf_puts(out, ",\"score\":");
        rvi_json_write_number(out, f->score);
    }
    for (size_t i = 0; i < RVI_COUNT(numbers); i++)
        if (number_of(f, i))
            rvi_buf_printf(out, ",\"%s\":%llu", numbers[i].name,
                           (unsigned long long)number_of(f, i));
    if (f->seed) rvi_buf_printf(out, ",\"seed\":%lld", (long long)f->seed);
    if (f->n_parents) {
        rvi_buf_puts(out, ",\"parents\":[");
        for (size_t i = 0; i < f->n_parents; i++)
            rvi_buf_printf(out, "%s%llu", i ? "," : "", (unsigned long long)f->parents[i]);
        rvi_buf_puts(out, "]");
    }
    if (f->digest[0]) rvi_buf_printf(out, ",\"digest\":\"%s\"", f->digest);
    rvi_buf_puts(out, "}");
    return out->failed ? rvi_nomem(err, "text of an event") : RV_OK;
}

static rv_status parse_fail(rv_error *err, const char *member)
{
    return rvi_error(err, RV_E_STORAGE, "event: bad %s", member);
}

static bool get_number(const rvi_json *object, const char *name, uint64_t *out)
{
    const rvi_json *v = rvi_json_get(object, name);
    if (v && (!rvi_json_is(v, RVI_JSON_INT) || v->as.integer < 0)) return false;
    *out = v ? (uint64_t)v->as.integer : 0;
    return true;
}

static bool get_scope(const rvi_json *v, rv_scope *out)
{
    for (size_t i = 0; i < RVI_COUNT(scopes); i++) {
        if (!rvi_json_is_string(v, scopes[i])) continue;
        *out = (rv_scope)i;
        return true;
    }
    return false;
}

static bool get_parents(const rvi_json *v, rvi_feedback *f)
{
    if (!v) return true;
    f->n_parents = rvi_json_count(v);
    if (!rvi_json_is(v, RVI_JSON_ARRAY) || f->n_parents > RVI_FEEDBACK_MAX_PARENTS) return false;
    for (size_t i = 0; i < f->n_parents; i++) {
        const rvi_json *p = rvi_json_at(v, i);
        if (!rvi_json_is(p, RVI_JSON_INT) || p->as.integer < 0) return false;
        f->parents[i] = (uint64_t)p->as.integer;
    }
    return true;
}

rv_status rvi_feedback_parse(rvi_feedback *out, const char *text, size_t len, rvi_arena *arena,
                             rv_error *err)
{
    const rvi_json *object;
    uint64_t version;
    *out = rvi_feedback_new(RVI_FEEDBACK_N_KINDS);
    if (len > RVI_STORE_MAX_RECORD) return parse_fail(err, "size");
    rv_status st = rvi_json_parse(&object, text, len, arena, "event", err);
    if (st) return st;
    if (!rvi_json_is(object, RVI_JSON_OBJECT)) return parse_fail(err, "text, not an object");
    if (!get_number(object, "v", &version) || version != 1) return parse_fail(err, "version");
    const rvi_json *time = rvi_json_get(object, "time");
    if (!get_number(object, "seq", &out->seq) || (time && !rvi_json_is(time, RVI_JSON_INT)))
        return parse_fail(err, "seq or time");
    out->time = RVI_MAX(rvi_json_int(time, 0), 0); /* a clock before 1970 says nothing */
    const rvi_json *kind = rvi_json_get(object, "kind");
    for (int i = 0; i < RVI_FEEDBACK_N_KINDS; i++)
        if (rvi_json_is_string(kind, kinds[i].name)) out->kind = (rvi_feedback_kind)i;
    if (out->kind == RVI_FEEDBACK_N_KINDS) return parse_fail(err, "kind");
    for (size_t i = 0; i < RVI_COUNT(texts); i++) {
        const rvi_json *v = rvi_json_get(object, texts[i].name);
        if (!v) continue;
        if (!rvi_json_is(v, RVI_JSON_STRING)) return parse_fail(err, texts[i].name);
        *(rvi_text *)(void *)((char *)out + texts[i].offset) =
            (rvi_text){v->as.string.data, v->as.string.len};
    }
    for (size_t i = 0; i < RVI_COUNT(numbers); i++)
        if (!get_number(object, numbers[i].name,
                        (uint64_t *)(void *)((char *)out + numbers[i].offset)))
            return parse_fail(err, numbers[i].name);
    const rvi_json *scope = rvi_json_get(object, "scope");
    if (scope && !get_scope(scope, &out->scope)) return parse_fail(err, "scope");
    const rvi_json *seed = rvi_json_get(object, "seed"); /* all 64 bits, as a signed number */
    if (seed && !rvi_json_is(seed, RVI_JSON_INT)) return parse_fail(err, "seed");
    out->seed = (uint64_t)rvi_json_int(seed, 0);
    const rvi_json *score = rvi_json_get(object, "score");
    if (score) {
        out->score = rvi_json_number(score, NAN);
        if (isnan(out->score)) return parse_fail(err, "score");
    }
    if (!get_parents(rvi_json_get(object, "parents"), out)) return parse_fail(err, "parents");
    const rvi_json *digest = rvi_json_get(object, "digest");
    if (digest) {
        const char *hex = rvi_json_string(digest, "");
        if (strlen(hex) != RVI_SHA256_HEX - 1) return parse_fail(err, "digest");
        memcpy(out->digest, hex, RVI_SHA256_HEX);
    }
    return rvi_feedback_check(out, err);
}

/* ---- the chain ---- */

typedef struct head {
    uint64_t n;
    uint8_t hash[RVI_SHA256_LEN];
} head;

enum { HEAD_LEN = 8 + RVI_SHA256_LEN };

static void link_hash(uint8_t hash[RVI_SHA256_LEN], const void *text, size_t len)
{
    rvi_sha256 h;
    rvi_sha256_init(&h);
    rvi_sha256_add(&h, hash, RVI_SHA256_LEN);
    rvi_sha256_add(&h, text, len);
    rvi_sha256_end(&h, hash);
}

static rv_status read_head(rvi_store *s, head *out, rv_error *err)
{
    char storage[128];
    rvi_buf b = rvi_buf_over(storage, sizeof storage);
    bool found;
    *out = (head){0};
    rv_status st = rvi_store_get(s, HEAD, "head", 4, &b, &found, err);
    if (!st && found) {
        if (b.len != HEAD_LEN)
            st = rvi_error(err, RV_E_STORAGE, "the head of the feedback log is damaged");
        for (size_t i = 0; !st && i < 8; i++) out->n |= (uint64_t)(uint8_t)b.data[i] << (8 * i);
        if (!st) memcpy(out->hash, b.data + 8, RVI_SHA256_LEN);
    }
    rvi_buf_deinit(&b);
    return st;
}

static rv_status write_head(rvi_store *s, const head *h, rv_error *err)
{
    uint8_t bytes[HEAD_LEN];
    for (size_t i = 0; i < 8; i++) bytes[i] = (uint8_t)(h->n >> (8 * i));
    memcpy(bytes + 8, h->hash, RVI_SHA256_LEN);
    return rvi_store_put(s, HEAD, "head", 4, bytes, sizeof bytes, err);
}

static int64_t now(void)
{
    struct timespec t;
    if (!timespec_get(&t, TIME_UTC) || t.tv_sec < 0) return 0; /* a clock that was never set */
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static rv_status append_linked(rvi_store *s, rvi_feedback *f, rv_error *err)
{
    head h;
    uint64_t seq = 0;
    rvi_buf record = {.max = 8 * RVI_STORE_MAX_RECORD};
    rv_status st = read_head(s, &h, err);
    if (st) return st;
    f->seq = h.n + 1;
    rvi_buf_append(&record, h.hash, RVI_SHA256_LEN);
    st = rvi_feedback_write(&record, f, err);
    if (!st) {
        link_hash(h.hash, record.data + RVI_SHA256_LEN, record.len - RVI_SHA256_LEN);
        memcpy(record.data, h.hash, RVI_SHA256_LEN);
        st = rvi_store_append(s, STREAM, record.data, record.len, &seq, err);
    }
    if (!st && seq != f->seq)
        st = rvi_error(err, RV_E_STORAGE,
                       "the feedback log is damaged: its head says %llu events, there are %llu",
                       (unsigned long long)h.n, (unsigned long long)(seq - 1));
    h.n = f->seq;
    if (!st) st = write_head(s, &h, err);
    rvi_buf_deinit(&record);
    return st;
}

rv_status rvi_feedback_append(rvi_store *s, rvi_feedback *f, rv_error *err)
{
    rvi_feedback copy = *f;
    bool within = s->in_transaction;
    rv_status st = rvi_feedback_check(f, err);
    if (st) return st;
    if (!copy.time) copy.time = now();
    if (!within && (st = rvi_store_begin(s, true, err))) return st;
    st = append_linked(s, &copy, err);
    if (!within) st = rvi_store_end(s, st, err);
    if (!st) *f = copy;
    return st;
}

/* ---- reading ---- */

typedef struct reader {
    rvi_feedback_fn each;
    void *ctx;
    rv_status st;
    rv_error *err;
} reader;

/* Parses one record as event number seq. */
static rv_status parse_record(rvi_feedback *out, uint64_t seq, rvi_bytes record, rvi_arena *arena,
                              rv_error *err)
{
    rv_error why = {0};
    if (record.len < RVI_SHA256_LEN)
        return rvi_error(err, RV_E_STORAGE, "event %llu of the feedback log is cut off",
                         (unsigned long long)seq);
    rv_status st = rvi_feedback_parse(out, (const char *)record.data + RVI_SHA256_LEN,
                                      record.len - RVI_SHA256_LEN, arena, &why);
    if (st == RV_E_NOMEM) return rvi_error(err, st, "%s", why.text);
    if (st)
        return rvi_error(err, RV_E_STORAGE, "event %llu of the feedback log cannot be read: %s",
                         (unsigned long long)seq, why.text);
    if (out->seq != seq)
        return rvi_error(err, RV_E_STORAGE, "event %llu of the feedback log says it is %llu",
                         (unsigned long long)seq, (unsigned long long)out->seq);
    return RV_OK;
}

static int read_one(void *ctx, uint64_t seq, rvi_bytes record)
{
    reader *r = ctx;
    rvi_arena arena = {.max = ARENA_MAX};
    rvi_feedback f;
    int stop = 1;
    r->st = parse_record(&f, seq, record, &arena, r->err);
    if (!r->st) stop = r->each(r->ctx, &f);
    rvi_arena_deinit(&arena);
    return stop;
}

rv_status rvi_feedback_read(rvi_store *s, uint64_t from, rvi_feedback_fn each, void *ctx,
                            rv_error *err)
{
    reader r = {each, ctx, RV_OK, err};
    rv_status st = rvi_store_read(s, STREAM, from, read_one, &r, err);
    return st ? st : r.st;
}

rv_status rvi_feedback_count(rvi_store *s, uint64_t *n, rv_error *err)
{
    head h;
    rv_status st = read_head(s, &h, err);
    *n = h.n;
    return st;
}

typedef struct walk {
    rvi_feedback_report *report;
    head head;    /* as it was before the walk */
    head now;     /* as it follows from the records so far */
    rv_status st; /* only for what is not the log's fault */
    rv_error *err;
} walk;

static int broken(rvi_feedback_report *r, uint64_t seq, const char *why)
{
    r->broken = seq;
    snprintf(r->why, sizeof r->why, "%s", why);
    return 1;
}

/* The chain with this record behind it; NULL, or what is wrong with that. */
static const char *follow_chain(head *h, uint64_t seq, rvi_bytes record)
{
    const uint8_t *bytes = record.data;
    uint8_t hash[RVI_SHA256_LEN];
    if (seq != h->n + 1) return "the event is missing";
    if (record.len < RVI_SHA256_LEN) return "the event is cut off";
    memcpy(hash, h->hash, sizeof hash);
    link_hash(hash, bytes + RVI_SHA256_LEN, record.len - RVI_SHA256_LEN);
    if (memcmp(hash, bytes, sizeof hash))
        return "its hash is not that of the event and the chain before it";
    h->n = seq;
    memcpy(h->hash, hash, sizeof hash);
    return NULL;
}

static int walk_one(void *ctx, uint64_t seq, rvi_bytes record)
{
    walk *w = ctx;
    rvi_feedback_report *r = w->report;
    rv_error err = {0};
    const char *why = follow_chain(&w->now, seq, record);
    if (!why && seq == w->head.n && memcmp(w->now.hash, w->head.hash, sizeof w->now.hash))
        why = "its hash is not that in the head of the log";
    if (why) return broken(r, r->n_events + 1, why);
    rvi_arena arena = {.max = ARENA_MAX};
    rvi_feedback f;
    rv_status st = parse_record(&f, seq, record, &arena, &err);
    rvi_arena_deinit(&arena);
    if (st == RV_E_NOMEM) {
        w->st = rvi_error(w->err, st, "%s", err.text);
        return 1;
    }
    if (st) return broken(r, seq, err.text);
    memcpy(r->hash, w->now.hash, sizeof r->hash);
    r->n_events = seq;
    return 0;
}

/* Others may append meanwhile: what was there before must be found, and no more than there is
 * after. */
rv_status rvi_feedback_verify(rvi_store *s, rvi_feedback_report *report, rv_error *err)
{
    *report = (rvi_feedback_report){0};
    walk w = {.report = report, .err = err};
    head after = {0};
    rv_status st = read_head(s, &w.head, err);
    if (!st) st = rvi_store_read(s, STREAM, 1, walk_one, &w, err);
    if (!st) st = w.st;
    if (!st) st = read_head(s, &after, err);
    if (st || report->broken) return st;
    if (report->n_events < w.head.n)
        broken(report, report->n_events + 1, "the log is cut off: the event is missing");
    else if (report->n_events > after.n)
        broken(report, after.n + 1, "the event is not in the head of the log");
    return RV_OK;
}

static int note_any(void *ctx, uint64_t seq, rvi_bytes record)
{
    (void)seq;
    (void)record;
    *(bool *)ctx = true;
    return 1;
}

rv_status rvi_feedback_repair(rvi_store *s, rv_error *err)
{
    head h;
    rv_error why = {0};
    bool behind = false;
    rvi_feedback_report report = {0};
    walk w = {.report = &report, .err = err}; /* without a head to compare with */
    rv_status st = read_head(s, &h, &why);
    if (st == RV_E_NOMEM) return rvi_nomem(err, "head of the log");
    if (!st)
        st = rvi_store_read(s, STREAM, h.n + 1, note_any, &behind, err);
    else
        behind = true;
    if (!behind) return st;
    /* others may append meanwhile */
    st = rvi_store_begin(s, true, err);
    if (st) return st;
    st = rvi_store_read(s, STREAM, 1, walk_one, &w, err);
    if (!st) st = w.st;
    if (!st && !report.broken) st = write_head(s, &w.now, err);
    return rvi_store_end(s, st, err);
}
