/* regex_class.c - escapes and bracketed classes of regular expressions. */
#include <string.h>

#include "base/utf8.h"
#include "tokenizer/regex_internal.h"

rv_status rvi_regex_fail(rvi_regex_source *s, const char *what)
{
    return rvi_error(s->err, RV_E_TOKENIZATION, "regular expression: %s at byte %zu of \"%.*s\"",
                     what, s->pos, (int)RVI_MIN(s->len, (size_t)200), s->pattern);
}

bool rvi_regex_peek(const rvi_regex_source *s, const char *text)
{
    size_t n = strlen(text);
    return s->len - s->pos >= n && !memcmp(s->pattern + s->pos, text, n);
}

uint32_t rvi_regex_take(rvi_regex_source *s)
{
    uint32_t cp;
    s->pos += rvi_utf8_decode(s->pattern + s->pos, s->len - s->pos, &cp, NULL);
    return cp;
}

static rv_status add_property(rvi_regex_source *s, rvi_cpset *out, const char *name, size_t len,
                              bool negative)
{
    static const char word[] = "word", inside[] = "Word_In_Brackets";
    bool is_word = len == 4;
    for (size_t i = 0; i < 4 && is_word; i++) is_word = (name[i] | 0x20) == word[i];
    if (is_word && s->in_brackets) {
        name = inside;
        len = sizeof inside - 1;
    }
    rvi_cpset set = {0};
    rv_status st = RV_OK;
    rvi_property_found found = rvi_cpset_add_property(&set, name, len);
    if (found == RVI_PROPERTY_UNKNOWN) {
        st = rvi_error(s->err, RV_E_TOKENIZATION, "regular expression: unknown property '%.*s'",
                       (int)RVI_MIN(len, (size_t)60), name);
    } else {
        rvi_cpset_close(&set);
        *s->n_ranges += set.n;
        if (*s->n_ranges > RVI_REGEX_RANGES_MAX)
            st = rvi_regex_fail(s, "too many character ranges");
        else if (found == RVI_PROPERTY_NOMEM || (negative && !rvi_cpset_invert(&set)) ||
                 !rvi_cpset_add_set(out, &set))
            st = rvi_nomem(s->err, "regular expression");
    }
    rvi_cpset_deinit(&set);
    return st;
}

/* behind \p or \P */
static rv_status braced_property(rvi_regex_source *s, rvi_cpset *out, bool negative)
{
    if (!rvi_regex_peek(s, "{")) { /* \pL */
        if (s->pos >= s->len) return rvi_regex_fail(s, "property name missing");
        s->pos++;
        return add_property(s, out, s->pattern + s->pos - 1, 1, negative);
    }
    s->pos++;
    if (rvi_regex_peek(s, "^")) {
        negative = !negative;
        s->pos++;
    }
    const char *end = memchr(s->pattern + s->pos, '}', s->len - s->pos);
    if (!end) return rvi_regex_fail(s, "'}' missing behind a property");
    const char *name = s->pattern + s->pos;
    s->pos = (size_t)(end - s->pattern) + 1;
    return add_property(s, out, name, (size_t)(end - name), negative);
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static rv_status hex_escape(rvi_regex_source *s, size_t least, size_t most, uint32_t *cp)
{
    size_t n = 0;
    *cp = 0;
    while (n < most && s->pos < s->len && hex_value(s->pattern[s->pos]) >= 0) {
        *cp = *cp << 4 | (uint32_t)hex_value(s->pattern[s->pos++]);
        n++;
    }
    if (n < least || *cp > RVI_UNICODE_LAST) return rvi_regex_fail(s, "bad hexadecimal escape");
    return RV_OK;
}

rv_status rvi_regex_escape(rvi_regex_source *s, rvi_cpset *out, bool *is_set, uint32_t *cp)
{
    static const char plain[] = "tnrfvae";
    static const char value[] = "\t\n\r\f\v\a\x1B";
    static const struct {
        char letter;
        const char *property;
    } classes[] = {{'d', "Nd"}, {'s', "White_Space"}, {'w', "Word"}, {'h', "XDigit"}};
    rv_status st;
    *is_set = false;
    if (s->pos >= s->len) return rvi_regex_fail(s, "nothing behind '\\'");
    uint32_t c = rvi_regex_take(s);
    if (c == 'p' || c == 'P') {
        *is_set = true;
        return braced_property(s, out, c == 'P');
    }
    for (size_t i = 0; i < RVI_COUNT(classes); i++) {
        uint32_t lower = (uint32_t)classes[i].letter;
        if (c != lower && c != lower - 32) continue;
        *is_set = true;
        return add_property(s, out, classes[i].property, strlen(classes[i].property), c != lower);
    }
    if (c == 'x' && rvi_regex_peek(s, "{")) {
        s->pos++;
        if ((st = hex_escape(s, 1, 8, cp))) return st;
        if (!rvi_regex_peek(s, "}")) return rvi_regex_fail(s, "'}' missing behind \\x{");
        s->pos++;
        return RV_OK;
    }
    if (c == 'x') return hex_escape(s, 1, 2, cp);
    if (c == 'u') return hex_escape(s, 4, 4, cp);
    const char *at = c && c < 0x80 ? strchr(plain, (int)c) : NULL;
    if (at) {
        *cp = (uint32_t)value[at - plain];
        return RV_OK;
    }
    bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (letter) {
        char what[40] = "unsupported escape \\?";
        what[20] = (char)c;
        return rvi_regex_fail(s, what);
    }
    *cp = c;
    return RV_OK;
}

/* "[:alpha:]" inside a class; *done is false when it is not one. */
static rv_status posix_class(rvi_regex_source *s, rvi_cpset *out, bool *done)
{
    *done = false;
    if (!rvi_regex_peek(s, "[:")) return RV_OK;
    size_t start = s->pos + 2, end = start;
    bool negative = start < s->len && s->pattern[start] == '^';
    if (negative) end = ++start;
    while (end < s->len && ((s->pattern[end] >= 'a' && s->pattern[end] <= 'z'))) end++;
    if (s->len - end < 2 || memcmp(s->pattern + end, ":]", 2)) return RV_OK;
    *done = true;
    s->pos = end + 2;
    const char *name = s->pattern + start;
    size_t len = end - start;
    if (len == 5 && !memcmp(name, "punct", 5))
        return add_property(s, out, "Posix_Punct", 11, negative);
    return add_property(s, out, name, len, negative);
}

/* One member that may begin a range: a character or an escape. */
static rv_status class_member(rvi_regex_source *s, rvi_cpset *out, bool *is_set, uint32_t *cp)
{
    *is_set = false;
    if (s->pos >= s->len) return rvi_regex_fail(s, "']' missing");
    if (s->pattern[s->pos] == '\\') {
        s->pos++;
        if (rvi_regex_peek(s, "b")) { /* backspace, inside a class */
            s->pos++;
            *cp = '\b';
            return RV_OK;
        }
        return rvi_regex_escape(s, out, is_set, cp);
    }
    *cp = rvi_regex_take(s);
    return RV_OK;
}

static rv_status class_range(rvi_regex_source *s, rvi_cpset *out)
{
    bool is_set, last_is_set = false;
    uint32_t first, last;
    rv_status st = class_member(s, out, &is_set, &first);
    if (st || is_set) return st;
    last = first;
    /* '-' makes a range unless it is the last member */
    if (rvi_regex_peek(s, "-") && s->len - s->pos >= 2 && s->pattern[s->pos + 1] != ']') {
        size_t back = s->pos++;
        if (rvi_regex_peek(s, "[")) { /* "a-[b]": the '-' is itself */
            s->pos = back;
        } else {
            if ((st = class_member(s, out, &last_is_set, &last))) return st;
            if (last_is_set) { /* "a-\d": the '-' is itself */
                if (!rvi_cpset_add(out, '-', '-')) return rvi_nomem(s->err, "regular expression");
                last = first;
            }
            if (last < first) return rvi_regex_fail(s, "range in reverse order");
        }
    }
    ++*s->n_ranges;
    return rvi_cpset_add(out, first, last) ? RV_OK : rvi_nomem(s->err, "regular expression");
}

static rv_status class_items(rvi_regex_source *s, rvi_cpset *out, int depth);

/* The part behind "&&", up to the next one or the end, becomes the intersection with what is there.
 */
static rv_status class_intersection(rvi_regex_source *s, rvi_cpset *out, int depth)
{
    rvi_cpset right = {0};
    s->pos += 2;
    rv_status st = class_items(s, &right, depth);
    rvi_cpset_close(out);
    rvi_cpset_close(&right);
    if (!st && !rvi_cpset_intersect(out, &right)) st = rvi_nomem(s->err, "regular expression");
    rvi_cpset_deinit(&right);
    return st;
}

/* Members up to ']' or "&&" */
static rv_status class_items(rvi_regex_source *s, rvi_cpset *out, int depth)
{
    rv_status st;
    for (;;) {
        bool done;
        if (*s->n_ranges > RVI_REGEX_RANGES_MAX)
            return rvi_regex_fail(s, "too many character ranges");
        if (s->pos >= s->len) return rvi_regex_fail(s, "']' missing");
        if (rvi_regex_peek(s, "]") || rvi_regex_peek(s, "&&")) return RV_OK;
        if ((st = posix_class(s, out, &done))) return st;
        if (done) continue;
        if (rvi_regex_peek(s, "[")) {
            rvi_cpset inner = {0};
            st = rvi_regex_class(s, &inner, depth + 1);
            if (!st && !rvi_cpset_add_set(out, &inner))
                st = rvi_nomem(s->err, "regular expression");
            *s->n_ranges += inner.n;
            rvi_cpset_deinit(&inner);
        } else {
            st = class_range(s, out);
        }
        if (st) return st;
    }
}

/* out is open and empty before, closed after. */
rv_status rvi_regex_class(rvi_regex_source *s, rvi_cpset *out, int depth)
{
    rv_status st;
    if (depth > RVI_REGEX_DEPTH_MAX) return rvi_regex_fail(s, "nested too deeply");
    s->in_brackets = true;
    s->pos++;
    bool negative = rvi_regex_peek(s, "^");
    if (negative) s->pos++;
    if (rvi_regex_peek(
            s, "]")) { /* a ']' in the first place is a member, if another one closes the class */
        if (!memchr(s->pattern + s->pos + 1, ']', s->len - s->pos - 1))
            return rvi_regex_fail(s, "empty class");
        s->pos++;
        if (!rvi_cpset_add(out, ']', ']')) return rvi_nomem(s->err, "regular expression");
    }
    if ((st = class_items(s, out, depth))) return st;
    while (rvi_regex_peek(s, "&&"))
        if ((st = class_intersection(s, out, depth))) return st;
    s->pos++; /* ']' */
    rvi_cpset_close(out);
    if (s->fold && !rvi_cpset_fold(out)) return rvi_nomem(s->err, "regular expression");
    if (negative && !rvi_cpset_invert(out)) return rvi_nomem(s->err, "regular expression");
    *s->n_ranges += out->n;
    s->in_brackets = depth > 0;
    return RV_OK;
}
