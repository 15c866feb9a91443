#include "learn/recognise/reading.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "learn/recognise/judge_weights.h"
#include "text/chars.h"
#include "text/unicode.h"

enum {
    SEGMENTS = 120,
    WIDTH = RVI_EMBEDDER_WIDTH,
    EACH = RVI_SPELLING + 2 * WIDTH, /* bytes of a word's vectors */
    UNKNOWN = 100,                   /* [UNK] in the encoder's vocabulary */
};

/* ---- segments ---- */

typedef enum script { SPACE, PUNCTUATION, SYMBOL, LETTERS, HAN, HIRAGANA, KATAKANA } script;

static script script_of(uint32_t c)
{
    if ((c >= 0x3400 && c <= 0x9FFF) || (c >= 0xF900 && c <= 0xFAFF) ||
        (c >= 0x20000 && c <= 0x3FFFF))
        return HAN;
    if (c >= 0x3040 && c <= 0x309F) return HIRAGANA;
    if ((c >= 0x30A0 && c <= 0x30FF) || (c >= 0x31F0 && c <= 0x31FF) ||
        (c >= 0xFF66 && c <= 0xFF9F))
        return KATAKANA;
    if (c == '\t' || c == '\n' || c == '\r') return SPACE;
    if (c < 0x80 && c && strchr("#%&@/*\\", (int)c)) return SYMBOL;
    switch (rvi_char_class_of(c)) {
    case RVI_CHAR_LETTER:
    case RVI_CHAR_MARK:
    case RVI_CHAR_NUMBER: return LETTERS;
    case RVI_CHAR_SEPARATOR: return SPACE;
    case RVI_CHAR_SYMBOL: return SYMBOL;
    default: return PUNCTUATION;
    }
}

typedef struct segment {
    size_t at, len; /* bytes */
    script script;
    size_t first_id, n_ids;
    bool digits;
} segment;

typedef struct segments {
    segment s[SEGMENTS];
    size_t n;
    bool cut; /* there are more */
} segments;

static bool is_run(script s)
{
    return s == LETTERS || s == HIRAGANA || s == KATAKANA;
}

static void find_segments(segments *out, const char *text, size_t len)
{
    script before = SPACE;
    out->n = 0;
    out->cut = false;
    for (size_t at = 0, used; at < len; at += used) {
        uint32_t c;
        used = rvi_utf8_decode(text + at, len - at, &c, NULL);
        script is = script_of(c);
        bool more = is == before && is_run(is);
        if (is != SPACE && !more) {
            out->cut = out->n == SEGMENTS;
            if (out->cut) return;
            out->s[out->n++] = (segment){.at = at, .script = is};
        }
        if (is != SPACE) {
            segment *s = &out->s[out->n - 1];
            s->len = at + used - s->at;
            s->digits |= rvi_char_class_of(c) == RVI_CHAR_NUMBER;
        }
        before = is;
    }
}

typedef struct range {
    uint32_t first, last;
} range;

static bool is_in(uint32_t c, const range *r, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (c >= r[i].first && c <= r[i].last) return true;
    return false;
}

/* Thai, Lao, Burmese and Khmer: written without spaces between words, and read in runs. */
static bool lacks_spaces(uint32_t c)
{
    static const range runs[] = {{0x0E00, 0x0EFF}, {0x1000, 0x109F}, {0x1780, 0x17FF}};
    return is_in(c, runs, RVI_COUNT(runs));
}

/* Latin, Cyrillic, Arabic, Devanagari and Hangul, beside those of Han characters: the encoder has
 * hardly a word of others, and the judge saw none. */
static bool is_learned(uint32_t c)
{
    static const range learned[] = {{0x0000, 0x024F}, {0x0400, 0x052F}, {0x0600, 0x06FF},
                                    {0x0900, 0x097F}, {0x1100, 0x11FF}, {0x1E00, 0x1EFF},
                                    {0x3130, 0x318F}, {0xAC00, 0xD7AF}, {0xFF00, 0xFFEF}};
    return is_in(c, learned, RVI_COUNT(learned));
}

static uint32_t first_of(const char *text, const segment *s)
{
    uint32_t c;
    bool valid;
    (void)rvi_utf8_decode(text + s->at, s->len, &c, &valid);
    return c;
}

static rvi_script learned_of(const char *text, const segments *all)
{
    size_t n = 0, n_strange = 0, n_runs = 0;
    for (size_t i = 0; i < all->n; i++) {
        const segment *s = &all->s[i];
        uint32_t c = first_of(text, s);
        bool strange = (s->script == LETTERS || s->script == SYMBOL) && !is_learned(c);
        n += s->script != PUNCTUATION;
        n_strange += strange;
        n_runs += strange && lacks_spaces(c);
    }
    if (2 * n_strange < n || !n) return RVI_SCRIPT_LEARNED;
    return 2 * n_runs >= n_strange ? RVI_SCRIPT_RUNS : RVI_SCRIPT_STRANGE;
}

/* How many words a language with spaces would have for it. */
static float words_of(const char *text, const segment *s)
{
    static const float HAN_WORD = 0.6f, LETTER_WORD = 0.2f;
    if (s->script == PUNCTUATION) return 0;
    if (s->script == HAN) return HAN_WORD;
    if (!lacks_spaces(first_of(text, s))) return 1;
    return fmaxf(LETTER_WORD * (float)rvi_utf8_count(text + s->at, s->len), 1);
}

static bool is_long(const char *text, const segments *all)
{
    float n = 0;
    for (size_t i = 0; i < all->n; i++) n += words_of(text, &all->s[i]);
    return n >= RVI_LONG_WORDS;
}

/* ---- spelling ---- */

/* Lower case, decomposed, without combining marks. */
static rv_status fold(const char *text, size_t len, rvi_buf *out, rv_error *err)
{
    rvi_buf lower = {0}, plain = {0};
    char bytes[4];
    for (size_t at = 0, used; at < len; at += used) {
        uint32_t c, to[3];
        used = rvi_utf8_decode(text + at, len - at, &c, NULL);
        size_t n = rvi_char_to_lower(c, to);
        for (size_t i = 0; i < n; i++)
            (void)rvi_buf_append(&lower, bytes, rvi_utf8_encode(to[i], bytes));
    }
    rv_status st = lower.failed ? rvi_nomem(err, "word") : RV_OK;
    if (!st) st = rvi_unicode_normalize(RVI_NFKD, lower.data, lower.len, &plain, err);
    for (size_t at = 0, used; !st && at < plain.len; at += used) {
        uint32_t c;
        used = rvi_utf8_decode(plain.data + at, plain.len - at, &c, NULL);
        if (!rvi_unicode_combining_class(c)) (void)rvi_buf_append(out, plain.data + at, used);
    }
    if (!st && !out->len) (void)rvi_buf_append(out, text, len);
    if (!st && out->failed) st = rvi_nomem(err, "word");
    rvi_buf_deinit(&lower);
    rvi_buf_deinit(&plain);
    return st;
}

/* FNV-1a */
static uint32_t hash(uint32_t h, const char *s, size_t len)
{
    for (size_t i = 0; i < len; i++) h = (h ^ (unsigned char)s[i]) * 16777619u;
    return h;
}

static const uint32_t HASH_START = 2166136261u;

static uint64_t key_of(const char *word, size_t len)
{
    return (uint64_t)hash(hash(HASH_START, "a", 1), word, len) << 32 |
           hash(hash(HASH_START, "b", 1), word, len);
}

/* Counts of two hash values, so that a rare word must collide twice to look frequent. */
static float rarity_of(uint64_t key)
{
    uint8_t a = rvi_judge_rarity[(key >> 32) % RVI_JUDGE_RARITIES];
    uint8_t b = rvi_judge_rarity[(uint32_t)key % RVI_JUDGE_RARITIES];
    return (float)RVI_MAX(a, b) / 255;
}

static void count(float *v, const char *a, size_t a_len, const char *b, size_t b_len, float weight)
{
    v[hash(hash(HASH_START, a, a_len), b, b_len) % RVI_SPELLING] += weight;
}

/* Pairs and triples of characters, the word's ends among them. */
static void spell(float *v, const char *word, size_t len)
{
    size_t at[RVI_READING_CHARS + 1], n = 0;
    for (size_t i = 0; i < len && n < RVI_READING_CHARS; n++) {
        uint32_t c;
        at[n] = i;
        i += rvi_utf8_decode(word + i, len - i, &c, NULL);
        at[n + 1] = i;
    }
    for (size_t size = 2; size <= 3; size++) /* character 0 is the beginning, n + 1 the end */
        for (size_t i = 0; i + size <= n + 2; i++) {
            size_t first = RVI_MAX(i, (size_t)1) - 1, last = RVI_MIN(i + size - 1, n);
            uint32_t h = i ? HASH_START : hash(HASH_START, "^", 1);
            h = hash(h, word + at[first], at[last] - at[first]);
            if (i + size == n + 2) h = hash(h, "$", 1);
            v[h % RVI_SPELLING] += 1;
        }
}

/* A Han character with its neighbours of that script. */
static void spell_han(float *v, const char *text, const segments *all, size_t i)
{
    const segment *s = &all->s[i], *before = i ? s - 1 : NULL,
                  *after = i + 1 < all->n ? s + 1 : NULL;
    count(v, text + s->at, s->len, NULL, 0, 1);
    if (before && before->script == HAN)
        count(v, text + before->at, before->len, text + s->at, s->len, 0.5f);
    if (after && after->script == HAN)
        count(v, text + s->at, s->len, text + after->at, after->len, 0.5f);
}

/* ---- vectors ---- */

static float scale_to_one(float *v, int n)
{
    double squares = 0;
    for (int i = 0; i < n; i++) squares += (double)v[i] * (double)v[i];
    float scale = squares > 0 ? (float)(1 / sqrt(squares)) : 0;
    for (int i = 0; i < n; i++) v[i] *= scale;
    return scale;
}

/* As bytes, and what they must be multiplied with. */
static float to_bytes(int8_t *out, const float *v, int n)
{
    float most = 0;
    for (int i = 0; i < n; i++) most = fmaxf(most, fabsf(v[i]));
    float up = most > 0 ? 127 / most : 0;
    for (int i = 0; i < n; i++) out[i] = (int8_t)lrintf(v[i] * up);
    return most / 127;
}

/* The mean of a word's tokens, as it differs from what states are like on the whole. */
static float mean_state(int8_t *out, const float *states, const segment *s, const float *mean,
                        const float *scale)
{
    float v[WIDTH] = {0};
    for (size_t t = 0; t < s->n_ids; t++)
        for (int k = 0; k < WIDTH; k++) v[k] += states[(s->first_id + t) * WIDTH + (size_t)k];
    for (int k = 0; k < WIDTH; k++) v[k] = (v[k] / (float)s->n_ids - mean[k]) * scale[k];
    (void)scale_to_one(v, WIDTH);
    return to_bytes(out, v, WIDTH);
}

/* ---- a text ---- */

/* The ids of the segments, as far as they fit; the others are dropped. */
static rv_status tokenize(rvi_embedder *e, const char *text, segments *all, rvi_ids *ids,
                          rv_error *err)
{
    size_t n = 0;
    for (size_t i = 0; i < all->n; i++) {
        segment s = all->s[i];
        s.first_id = ids->len;
        rv_status st = rvi_tokenizer_encode(rvi_embedder_tokenizer(e), text + s.at, s.len,
                                            RVI_TOK_PLAIN, ids, err);
        if (st) return st;
        s.n_ids = ids->len - s.first_id;
        if (ids->len > RVI_EMBEDDER_TOKENS) {
            ids->len = s.first_id;
            all->cut = true;
            break;
        }
        if (s.n_ids) all->s[n++] = s;
    }
    all->n = n;
    return RV_OK;
}

static rv_status read_word(rvi_reading *r, const char *text, const segments *all, size_t i,
                           rv_error *err)
{
    const segment *s = &all->s[i];
    rvi_read_word *w = &r->words[r->n];
    float v[RVI_SPELLING] = {0};
    rvi_buf folded = {0};
    rv_status st = fold(text + s->at, s->len, &folded, err);
    if (st) {
        rvi_buf_deinit(&folded);
        return st;
    }
    size_t length = rvi_utf8_count(folded.data, folded.len);
    if (s->script == HAN)
        spell_han(v, text, all, i);
    else
        spell(v, folded.data, folded.len);
    w->key = key_of(folded.data, folded.len);
    w->rarity = rarity_of(w->key);
    w->length = (float)RVI_MIN(length, (size_t)12) / 12;
    w->pieces = (float)RVI_MIN(s->n_ids, (size_t)6) / 6;
    w->digits = s->digits;
    w->east_asian = s->script == HAN || s->script == HIRAGANA || s->script == KATAKANA;
    (void)scale_to_one(v, RVI_SPELLING);
    for (int k = 0; k < RVI_SPELLING; k++) r->gist.spelled[k] += v[k] * w->rarity * w->rarity;
    if (!r->brief) w->spelling_scale = to_bytes(r->spelling[r->n], v, RVI_SPELLING);
    rvi_buf_deinit(&folded);
    return RV_OK;
}

/* The encoder knows few characters of many scripts: the others are all one token to it. Give each
 * one of the tokens that its vocabulary has and does not use, so that they differ. */
static bool name_unknown(const char *word, size_t len, rvi_ids *out)
{
    enum { SPARE = 990, FEW = 99, MOST = 6 }; /* [unused0] is 1, [unused99] is 104 */
    int n = 0;
    for (size_t at = 0, used; at < len && n < MOST; at += used, n++) {
        uint32_t c, to[3];
        char bytes[4];
        used = rvi_utf8_decode(word + at, len - at, &c, NULL);
        (void)rvi_char_to_lower(c, to);
        int32_t k = (int32_t)(hash(HASH_START, bytes, rvi_utf8_encode(to[0], bytes)) % SPARE);
        if (!rvi_ids_push(out, k < FEW ? k + 1 : k + 5)) return false;
    }
    return true;
}

/* The last tokens, for comparing. */
static rv_status keep_ids(rvi_reading *r, const char *text, const rvi_ids *ids, const segments *all,
                          rv_error *err)
{
    rvi_ids named = {0};
    bool whole = true;
    for (size_t i = 0; i < all->n; i++) {
        const segment *s = &all->s[i];
        const int32_t *own = ids->data + s->first_id;
        if (s->n_ids == 1 && own[0] == UNKNOWN)
            whole &= name_unknown(text + s->at, s->len, &named);
        else
            for (size_t k = 0; k < s->n_ids; k++) whole &= rvi_ids_push(&named, own[k]);
    }
    if (whole) {
        r->n_ids = (int)RVI_MIN(named.len, (size_t)RVI_EMBEDDER_COMPARED);
        memcpy(r->ids, named.data + named.len - r->n_ids, (size_t)r->n_ids * sizeof *r->ids);
    }
    rvi_ids_deinit(&named);
    return whole ? RV_OK : rvi_nomem(err, "reading");
}

static rv_status read_states(rvi_reading *r, rvi_embedder *e, const rvi_ids *ids,
                             const segments *all, size_t from, rv_error *err)
{
    float *middle = rvi_alloc_array(ids->len * WIDTH, 2 * sizeof *middle);
    float *last = middle ? middle + ids->len * WIDTH : NULL;
    if (!middle) return rvi_nomem(err, "embedding");
    rv_status st = rvi_embedder_read(e, ids->data, ids->len, middle, last, r->gist.meaning, err);
    int n = 0;
    for (size_t i = from; !st && !r->brief && i < all->n; i++) {
        if (all->s[i].script == PUNCTUATION) continue;
        rvi_read_word *w = &r->words[n];
        w->middle_scale = mean_state(r->middle[n], middle, &all->s[i], rvi_judge_middle_mean,
                                     rvi_judge_middle_scale);
        w->last_scale =
            mean_state(r->last[n], last, &all->s[i], rvi_judge_last_mean, rvi_judge_last_scale);
        n++;
    }
    rvi_free(middle);
    return st;
}

/* A reading with room for n words, which has none yet. */
static rvi_reading *new_block(size_t n, bool brief)
{
    rvi_reading *r = rvi_zalloc(sizeof *r + (brief ? 0 : n * EACH));
    if (!r) return NULL;
    r->brief = brief;
    if (brief) return r;
    int8_t *bytes = (int8_t *)(r + 1);
    r->spelling = (int8_t(*)[RVI_SPELLING])(void *)bytes;
    r->middle = (int8_t(*)[WIDTH])(void *)(bytes + n * RVI_SPELLING);
    r->last = (int8_t(*)[WIDTH])(void *)(bytes + n * (RVI_SPELLING + WIDTH));
    return r;
}

rv_status rvi_reading_new(rvi_reading **out, rvi_embedder *e, const char *text, size_t len,
                          bool brief, rv_error *err)
{
    *out = NULL;
    segments *all = rvi_alloc_array(1, sizeof *all);
    if (!all) return rvi_nomem(err, "reading");
    rvi_ids ids = {0};
    rv_status st = RV_OK;
    find_segments(all, text, len);
    if (e) st = tokenize(e, text, all, &ids, err);
    size_t n = 0, from = all->n;
    while (from > 0 && n < RVI_READING_WORDS) n += all->s[--from].script != PUNCTUATION;
    rvi_reading *r = !st ? new_block(n, brief) : NULL;
    if (!st && !r) st = rvi_nomem(err, "reading");
    if (!st) r->embedded = e != NULL;
    if (!st) r->cut = all->cut;
    if (!st) r->is_long = is_long(text, all);
    if (!st) r->script = learned_of(text, all);
    for (size_t i = from; !st && i < all->n; i++) {
        if (all->s[i].script == PUNCTUATION) continue;
        st = read_word(r, text, all, i, err);
        if (!st) r->n++;
    }
    if (!st) (void)scale_to_one(r->gist.spelled, RVI_SPELLING);
    if (!st && e && r->n) st = read_states(r, e, &ids, all, from, err);
    if (!st && e && r->n) st = keep_ids(r, text, &ids, all, err);
    rvi_ids_deinit(&ids);
    rvi_free(all);
    if (st)
        rvi_reading_free(r);
    else
        *out = r;
    return st;
}

void rvi_reading_free(rvi_reading *r)
{
    rvi_free(r);
}

bool rvi_reading_has(const rvi_reading *r, uint64_t key)
{
    for (int i = 0; i < r->n; i++)
        if (r->words[i].key == key) return true;
    return false;
}

/* ---- what an earlier text lends ---- */

static bool ends_sentence(const char *text, const segment *s)
{
    return s->script == PUNCTUATION &&
           ((unsigned char)text[s->at] >= 0x80 || strchr(".?!:", text[s->at]));
}

/* Has it digits, or a capital where no sentence begins? */
static bool is_name(const char *text, const segments *all, size_t i)
{
    const segment *s = &all->s[i];
    uint32_t c, to[3];
    if (s->digits) return true;
    if (s->script != LETTERS || !i || ends_sentence(text, s - 1)) return false;
    (void)rvi_utf8_decode(text + s->at, s->len, &c, NULL);
    return rvi_char_to_lower(c, to) != 1 || to[0] != c;
}

static rv_status key_in(const char *text, const segment *s, uint64_t *out, rv_error *err)
{
    rvi_buf folded = {0};
    rv_status st = fold(text + s->at, s->len, &folded, err);
    *out = !st ? key_of(folded.data, folded.len) : 0;
    rvi_buf_deinit(&folded);
    return st;
}

/* Takes out all segments but the words that may explain a request (rvi_reading_lend). */
static rv_status choose_lent(segments *all, const char *text, const rvi_reading *question,
                             const rvi_reading *request, rv_error *err)
{
    bool lent[SEGMENTS] = {false}, name[SEGMENTS] = {false}, any_name = false;
    for (size_t i = 0; i < all->n; i++) {
        const segment *s = &all->s[i];
        uint64_t key;
        if (s->script == PUNCTUATION) continue;
        rv_status st = key_in(text, s, &key, err);
        if (st) return st;
        lent[i] = rarity_of(key) >= RVI_LENT_RARITY &&
                  (!question || rvi_reading_has(question, key)) && !rvi_reading_has(request, key);
        name[i] = lent[i] && !question && is_name(text, all, i);
        any_name |= name[i];
    }
    size_t n = 0;
    for (size_t i = 0; i < all->n; i++)
        if (any_name ? name[i] : lent[i]) all->s[n++] = all->s[i];
    all->n = n;
    return RV_OK;
}

rv_status rvi_reading_lend(const char *earlier, size_t len, const rvi_reading *question,
                           const rvi_reading *request, rvi_buf *out, rv_error *err)
{
    segments *all = rvi_alloc_array(1, sizeof *all);
    if (!all) return rvi_nomem(err, "reading");
    find_segments(all, earlier, len);
    rv_status st = choose_lent(all, earlier, question, request, err);
    for (size_t i = 0, end = 0; !st && i < all->n; i++) {
        const segment *s = &all->s[i];
        if (end && s->at > end) rvi_buf_putc(out, ' '); /* as they stood */
        (void)rvi_buf_append(out, earlier + s->at, s->len);
        end = s->at + s->len;
    }
    rvi_free(all);
    return !st && out->failed ? rvi_nomem(err, "reading") : st;
}

rv_status rvi_reading_without(const char *text, size_t len, const rvi_reading *these, rvi_buf *out,
                              rv_error *err)
{
    segments *all = rvi_alloc_array(1, sizeof *all);
    if (!all) return rvi_nomem(err, "reading");
    find_segments(all, text, len);
    rv_status st = RV_OK;
    size_t from = 0;
    for (size_t i = 0; !st && i < all->n; i++) {
        const segment *s = &all->s[i];
        uint64_t key;
        if (s->script == PUNCTUATION) continue;
        st = key_in(text, s, &key, err);
        if (st || !rvi_reading_has(these, key)) continue;
        (void)rvi_buf_append(out, text + from, s->at - from);
        from = s->at + s->len;
    }
    (void)rvi_buf_append(out, text + from, len - from);
    rvi_free(all);
    return !st && out->failed ? rvi_nomem(err, "reading") : st;
}

/* ---- as bytes ---- */

typedef struct saved {
    uint32_t n, embedded, cut, is_long, script, brief, n_ids;
    int32_t ids[RVI_EMBEDDER_COMPARED];
    rvi_gist gist;
} saved;

bool rvi_reading_save(const rvi_reading *r, rvi_buf *out)
{
    saved head = {.n = (uint32_t)r->n,
                  .embedded = r->embedded,
                  .cut = r->cut,
                  .is_long = r->is_long,
                  .script = r->script,
                  .brief = r->brief,
                  .n_ids = (uint32_t)r->n_ids,
                  .gist = r->gist};
    memcpy(head.ids, r->ids, sizeof head.ids);
    return rvi_buf_append(out, &head, sizeof head) &&
           rvi_buf_append(out, r->words, (size_t)r->n * sizeof *r->words) &&
           (r->brief || rvi_buf_append(out, r->spelling, (size_t)r->n * EACH));
}

static bool is_unit(float v)
{
    return v >= -1.01f && v <= 1.01f;
}

bool rvi_gist_is_sound(const rvi_gist *g)
{
    bool sound = true;
    for (int i = 0; i < RVI_SPELLING; i++) sound &= is_unit(g->spelled[i]);
    for (int i = 0; i < WIDTH; i++) sound &= is_unit(g->meaning[i]);
    return sound;
}

/* Whatever the bytes were: numbers that the judge can compute with. */
static bool is_sound(const rvi_reading *r)
{
    bool sound = rvi_gist_is_sound(&r->gist);
    for (int i = 0; i < r->n_ids; i++)
        sound &= r->ids[i] >= 0 && r->ids[i] < RVI_EMBEDDER_VOCABULARY;
    for (int i = 0; i < r->n; i++) {
        const rvi_read_word *w = &r->words[i];
        sound &= is_unit(w->rarity) && is_unit(w->length) && is_unit(w->pieces) &&
                 is_unit(w->spelling_scale) && is_unit(w->middle_scale) && is_unit(w->last_scale);
    }
    return sound;
}

rv_status rvi_reading_load(rvi_reading **out, const void *data, size_t len, rv_error *err)
{
    saved head;
    const char *at = data;
    *out = NULL;
    if (len >= sizeof head) memcpy(&head, at, sizeof head);
    if (len < sizeof head || head.n > RVI_READING_WORDS || head.embedded > 1 || head.cut > 1 ||
        head.is_long > 1 || head.script > RVI_SCRIPT_RUNS || head.brief > 1 ||
        head.n_ids > RVI_EMBEDDER_COMPARED ||
        len != sizeof head + head.n * (sizeof(rvi_read_word) + (head.brief ? 0 : EACH)))
        return rvi_error(err, RV_E_STORAGE, "no reading of a text");
    rvi_reading *r = new_block(head.n, head.brief);
    if (!r) return rvi_nomem(err, "reading");
    r->n = (int)head.n;
    r->embedded = head.embedded;
    r->cut = head.cut;
    r->is_long = head.is_long;
    r->script = (rvi_script)head.script;
    r->n_ids = (int)head.n_ids;
    memcpy(r->ids, head.ids, sizeof head.ids);
    r->gist = head.gist;
    at += sizeof head;
    for (int i = 0; i < r->n; i++, at += sizeof(rvi_read_word)) {
        rvi_read_word *w = &r->words[i];
        unsigned char bytes[sizeof(rvi_read_word)];
        memcpy(bytes, at, sizeof bytes);
        bytes[offsetof(rvi_read_word, digits)] &= 1; /* any other bits are no bool */
        bytes[offsetof(rvi_read_word, east_asian)] &= 1;
        memcpy(w, bytes, sizeof bytes);
    }
    if (!r->brief) memcpy(r->spelling, at, head.n * EACH);
    if (is_sound(r)) {
        *out = r;
        return RV_OK;
    }
    rvi_reading_free(r);
    return rvi_error(err, RV_E_STORAGE, "no reading of a text");
}

/* An embedder is told by what it makes of a text: its file may have any precision. */
rv_status rvi_reading_version(rvi_embedder *e, uint64_t *out, rv_error *err)
{
    static const char text[] = "Which encoder is this?";
    rvi_reading *r = NULL;
    rv_status st = rvi_reading_new(&r, e, text, sizeof text - 1, true, err);
    if (st) return st;
    const struct {
        const void *data;
        size_t len;
    } parts[] = {{&r->gist, sizeof r->gist},
                 {rvi_judge_rarity, sizeof rvi_judge_rarity},
                 {rvi_judge_middle_mean, sizeof rvi_judge_middle_mean},
                 {rvi_judge_middle_scale, sizeof rvi_judge_middle_scale},
                 {rvi_judge_last_mean, sizeof rvi_judge_last_mean},
                 {rvi_judge_last_scale, sizeof rvi_judge_last_scale}};
    uint32_t a = HASH_START, b = HASH_START + 1;
    for (size_t i = 0; i < RVI_COUNT(parts); i++) {
        a = hash(a, parts[i].data, parts[i].len);
        b = hash(b, parts[i].data, parts[i].len);
    }
    rvi_reading_free(r);
    *out = (uint64_t)a << 32 | b;
    return RV_OK;
}
