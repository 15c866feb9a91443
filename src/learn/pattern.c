#include "learn/pattern.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/cursor.h"
#include "learn/text.h"

enum { VERSION = 1, CORRECTION = 1, DISTILLED = 2 };

static const struct {
    const char *name;
    size_t offset, max;
} texts[] = {
    {"question", offsetof(rvi_pattern, question), RVI_PATTERN_MAX_TEXT},
    {"answer", offsetof(rvi_pattern, answer), RVI_PATTERN_MAX_TEXT},
    {"subject", offsetof(rvi_pattern, subject), RVI_PATTERN_MAX_WORD},
    {"relation", offsetof(rvi_pattern, relation), RVI_PATTERN_MAX_WORD},
    {"words", offsetof(rvi_pattern, words), RVI_PATTERN_MAX_WORD},
};

static rvi_text *text_of(rvi_pattern *p, size_t i)
{
    return (rvi_text *)(void *)((char *)p + texts[i].offset);
}

static rvi_text text_in(const rvi_pattern *p, size_t i)
{
    return *(const rvi_text *)(const void *)((const char *)p + texts[i].offset);
}

rvi_verdict rvi_verdict_of(double score)
{
    if (isnan(score)) return RVI_VERDICT_UNKNOWN;
    return score < 0.3    ? RVI_VERDICT_FAILURE
           : score >= 0.7 ? RVI_VERDICT_SUCCESS
                          : RVI_VERDICT_PARTIAL;
}

const char *rvi_verdict_name(rvi_verdict v)
{
    static const char *const names[] = {"failure", "unknown", "partial", "success"};
    return (unsigned)v < RVI_COUNT(names) ? names[v] : "?";
}

/* The length of a vector; 0 when it cannot be scaled to length 1. */
static double length_of(const float *v, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)v[i] * (double)v[i];
    double length = sqrt(sum);
    return length >= (double)FLT_MIN && length <= (double)FLT_MAX ? length : 0;
}

rv_status rvi_pattern_check(const rvi_pattern *p, rv_error *err)
{
    for (size_t i = 0; i < RVI_COUNT(texts); i++) {
        rvi_text t = text_in(p, i);
        if (t.len > texts[i].max)
            return rvi_error(err, RV_E_INVALID, "pattern: %s has %zu bytes; at most %zu",
                             texts[i].name, t.len, texts[i].max);
        size_t at = rvi_text_invalid(t);
        if (at < t.len)
            return rvi_error(err, RV_E_INVALID, "pattern: %s is not UTF-8 at byte %zu",
                             texts[i].name, at);
    }
    if (rvi_text_blank(p->question)) return rvi_error(err, RV_E_INVALID, "pattern: no question");
    if (rvi_text_blank(p->answer)) return rvi_error(err, RV_E_INVALID, "pattern: no answer");
    if ((unsigned)p->verdict > RVI_VERDICT_SUCCESS || (unsigned)p->state > RVI_PATTERN_SUPERSEDED)
        return rvi_error(err, RV_E_INVALID, "pattern: unknown verdict or state");
    if (!(p->quality >= 0 && p->quality <= 1))
        return rvi_error(err, RV_E_INVALID, "pattern: quality %g is not between 0 and 1",
                         (double)p->quality);
    if (!p->vector != !p->n_dim || p->n_dim > RVI_PATTERN_MAX_DIM)
        return rvi_error(err, RV_E_INVALID, "pattern: a vector of %zu numbers", p->n_dim);
    if (p->n_dim && length_of(p->vector, p->n_dim) == 0)
        return rvi_error(err, RV_E_INVALID, "pattern: the vector is zero or not finite");
    return RV_OK;
}

/* ---- bytes ---- */

static void put_uint(rvi_buf *out, uint64_t v, unsigned n_bytes)
{
    char bytes[8];
    for (unsigned i = 0; i < n_bytes; i++) bytes[i] = (char)(uint8_t)(v >> (8 * i));
    rvi_buf_append(out, bytes, n_bytes);
}

static void put_float(rvi_buf *out, float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    put_uint(out, u, 4);
}

rv_status rvi_pattern_write(rvi_buf *out, const rvi_pattern *p, rv_error *err)
{
    put_uint(out, VERSION, 1);
    put_uint(out, (uint64_t)p->verdict, 1);
    put_uint(out, (uint64_t)p->state, 1);
    put_uint(out, (p->correction ? CORRECTION : 0u) | (p->distilled ? DISTILLED : 0u), 1);
    put_float(out, p->quality);
    put_uint(out, p->n_scores, 4);
    put_uint(out, p->n_dim, 4);
    put_uint(out, p->id, 8);
    put_uint(out, p->event, 8);
    put_uint(out, p->last_event, 8);
    put_uint(out, p->uses, 8);
    put_uint(out, (uint64_t)p->last_use, 8);
    put_uint(out, p->generation, 8);
    for (size_t i = 0; i < RVI_COUNT(texts); i++) {
        rvi_text t = text_in(p, i);
        put_uint(out, t.len, 4);
        if (t.len) rvi_buf_append(out, t.data, t.len);
    }
    for (size_t i = 0; i < p->n_dim; i++) put_float(out, p->vector[i]);
    return out->failed ? rvi_nomem(err, "pattern") : RV_OK;
}

rv_status rvi_pattern_parse(rvi_pattern *out, rvi_bytes bytes, float *vector, rv_error *err)
{
    *out = (rvi_pattern){0};
    rvi_cursor c = {.data = bytes.data, .len = bytes.len};
    if (rvi_cursor_u8(&c) != VERSION)
        return rvi_error(err, RV_E_STORAGE, "pattern: written by another version");
    out->verdict = (rvi_verdict)rvi_cursor_u8(&c);
    out->state = (rvi_pattern_state)rvi_cursor_u8(&c);
    unsigned flags = rvi_cursor_u8(&c);
    out->correction = flags & CORRECTION;
    out->distilled = flags & DISTILLED;
    out->quality = rvi_cursor_f32(&c);
    out->n_scores = rvi_cursor_u32(&c);
    out->n_dim = rvi_cursor_u32(&c);
    out->id = rvi_cursor_u64(&c);
    out->event = rvi_cursor_u64(&c);
    out->last_event = rvi_cursor_u64(&c);
    out->uses = rvi_cursor_u64(&c);
    out->last_use = (int64_t)rvi_cursor_u64(&c);
    out->generation = rvi_cursor_u64(&c);
    for (size_t i = 0; i < RVI_COUNT(texts); i++) {
        uint32_t len = rvi_cursor_u32(&c);
        const uint8_t *data = rvi_cursor_take(&c, len);
        if (data && len) *text_of(out, i) = (rvi_text){(const char *)data, len};
    }
    if (flags > (CORRECTION | DISTILLED) || out->n_dim > RVI_PATTERN_MAX_DIM) c.failed = true;
    for (size_t i = 0; i < out->n_dim && !c.failed; i++) vector[i] = rvi_cursor_f32(&c);
    if (c.failed || c.pos != c.len)
        return rvi_error(err, RV_E_STORAGE, "pattern: its parts do not fit its size");
    if (out->n_dim) out->vector = vector;
    return rvi_pattern_check(out, err);
}

/* ---- copies and keys ---- */

size_t rvi_pattern_size(const rvi_pattern *p)
{
    size_t size = sizeof *p + p->n_dim * sizeof *p->vector;
    for (size_t i = 0; i < RVI_COUNT(texts); i++) size += text_in(p, i).len;
    return size;
}

rvi_pattern *rvi_pattern_copy(const rvi_pattern *p, bool exact)
{
    _Static_assert(sizeof(rvi_pattern) % sizeof(float) == 0, "the vector stands behind the struct");
    rvi_pattern *copy = rvi_zalloc(rvi_pattern_size(p));
    if (!copy) return NULL;
    *copy = *p;
    float *vector = (float *)(void *)(copy + 1);
    double scale = p->n_dim && !exact ? 1 / length_of(p->vector, p->n_dim) : 1;
    for (size_t i = 0; i < p->n_dim; i++)
        vector[i] = exact ? p->vector[i] : (float)((double)p->vector[i] * scale);
    if (p->n_dim) copy->vector = vector;
    char *at = (char *)(vector + p->n_dim);
    for (size_t i = 0; i < RVI_COUNT(texts); i++) {
        rvi_text t = text_in(p, i);
        if (t.len) memcpy(at, t.data, t.len);
        *text_of(copy, i) = (rvi_text){t.len ? at : NULL, t.len};
        at += t.len;
    }
    return copy;
}

static bool key_of(uint8_t out[16], rvi_buf *scratch, rvi_text t)
{
    uint8_t digest[RVI_SHA256_LEN];
    rvi_sha256 h;
    scratch->len = 0;
    memset(out, 0, 16);
    if (!rvi_text_fold(scratch, t)) return false;
    if (!scratch->len) return true;
    rvi_sha256_init(&h);
    rvi_sha256_add(&h, scratch->data, scratch->len);
    rvi_sha256_end(&h, digest);
    memcpy(out, digest, 16);
    return true;
}

rv_status rvi_pattern_keys_of(rvi_pattern_keys *out, const rvi_pattern *p, rv_error *err)
{
    char storage[1024];
    rvi_buf scratch = rvi_buf_over(storage, sizeof storage);
    bool ok =
        key_of(out->question, &scratch, p->question) && key_of(out->answer, &scratch, p->answer) &&
        key_of(out->subject, &scratch, p->subject) && key_of(out->relation, &scratch, p->relation);
    rvi_buf_deinit(&scratch);
    return ok ? RV_OK : rvi_nomem(err, "keys of a pattern");
}
