#include "learn/recognise/follow.h"

#include <math.h>
#include <string.h>

#include "learn/recognise/reading.h"

/* A digit, or a capital behind the first letter. */
static bool has_name(const char *text)
{
    bool begun = false;
    for (const char *c = text; *c; c++) {
        bool capital = *c >= 'A' && *c <= 'Z';
        if ((*c >= '0' && *c <= '9') || (begun && capital)) return true;
        begun |= capital || (*c >= 'a' && *c <= 'z');
    }
    return false;
}

/* Of words, and of each with the one before it; returns how many. */
static int find_buckets(const rvi_reading *r, uint32_t out[2 * RVI_READING_WORDS])
{
    int n = 0;
    for (int i = 0; i < r->n; i++) {
        uint32_t key = (uint32_t)(r->words[i].key >> 32);
        out[n++] = key % RVI_FOLLOW_WORDS;
        if (i)
            out[n++] =
                ((uint32_t)(r->words[i - 1].key >> 32) * 2654435761u + key) % RVI_FOLLOW_WORDS;
    }
    return n;
}

/* The logarithm of the odds. */
static float odds_of(const rvi_reading *r, const char *text)
{
    enum { MANY = 12 };
    const rvi_follow_weights *f = &rvi_follow;
    uint32_t buckets[2 * RVI_READING_WORDS];
    int n = find_buckets(r, buckets);
    int sum = r->n ? f->word[RVI_FOLLOW_WORDS + (uint32_t)r->words[0].key % RVI_FOLLOW_FIRST] : 0;
    for (int i = 0; i < n; i++) {
        bool new = true;
        for (int k = 0; k < i; k++) new &= buckets[k] != buckets[i];
        if (new) sum += f->word[buckets[i]];
    }
    return f->scale * (float)sum + f->length * (float)RVI_MIN(r->n, (int)MANY) / MANY +
           f->name * has_name(text) + f->bias;
}

static float probability(const rvi_reading *r, const char *text)
{
    return r->n && !r->cut ? 1 / (1 + expf(-odds_of(r, text))) : 0;
}

static bool is_one(const rvi_reading *r, const char *text)
{
    return probability(r, text) >= rvi_follow.sure;
}

rv_status rvi_follow_probability(const char *request, float *out, rv_error *err)
{
    rvi_reading *r = NULL;
    rv_status st = rvi_reading_new(&r, NULL, request, strlen(request), true, err);
    *out = st ? 0 : r->n ? probability(r, request) : 1; /* what has no words explains nothing */
    rvi_reading_free(r);
    return st;
}

rv_status rvi_follow_is_one(const char *request, bool *out, rv_error *err)
{
    rvi_reading *r = NULL;
    rv_status st = rvi_reading_new(&r, NULL, request, strlen(request), true, err);
    *out = !st && is_one(r, request);
    rvi_reading_free(r);
    return st;
}

rv_status rvi_follow_resolve(const char *const *turns, size_t n, const char *request, rvi_buf *out,
                             rv_error *err)
{
    enum { BACK = 3 };
    rvi_reading *r = NULL;
    size_t before = out->len;
    rv_status st = rvi_reading_new(&r, NULL, request, strlen(request), true, err);
    bool needed = !st && is_one(r, request);
    for (size_t back = 1; !st && needed && back <= RVI_MIN(n, (size_t)BACK); back++) {
        const char *turn = turns[n - back];
        st = rvi_reading_lend(turn, strlen(turn), NULL, r, out, err);
        if (st || out->len == before) continue;
        if (!rvi_buf_printf(out, ". %s", request)) st = rvi_nomem(err, "question");
        break;
    }
    rvi_reading_free(r);
    return st;
}
