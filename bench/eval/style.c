#include "eval/style.h"

#include <string.h>

#include "base/utf8.h"
#include "text/chars.h"

const char *const style_names[N_STYLES] = {
    "two_sentences", "bullets", "greets", "lowercase", "ends_with_question", "one_line_label"};

bool style_find(const char *name, style_rule *out)
{
    for (int i = 0; i < N_STYLES; i++)
        if (!strcmp(name, style_names[i])) {
            *out = (style_rule)i;
            return true;
        }
    return false;
}

/* ---- characters ---- */

typedef struct span {
    const char *data;
    size_t len;
} span;

/* The character at i; *used: its bytes. */
static uint32_t char_at(span t, size_t i, size_t *used)
{
    uint32_t cp;
    *used = rvi_utf8_decode(t.data + i, t.len - i, &cp, NULL);
    return cp;
}

/* The lower case of a character where that is one character, otherwise the character itself. */
static uint32_t lower(uint32_t c)
{
    uint32_t to[3];
    return rvi_char_to_lower(c, to) == 1 ? to[0] : c;
}

static span trim_left(span t)
{
    size_t used;
    while (t.len && rvi_char_space(char_at(t, 0, &used))) t = (span){t.data + used, t.len - used};
    return t;
}

static span trim(span t)
{
    size_t end = 0, used;
    t = trim_left(t);
    for (size_t i = 0; i < t.len; i += used)
        if (!rvi_char_space(char_at(t, i, &used))) end = i + used;
    return (span){t.data, end};
}

static bool starts(span t, const char *with)
{
    size_t n = strlen(with);
    return t.len >= n && !memcmp(t.data, with, n);
}

/* ---- sentences ---- */

static bool ends_sentence(char c)
{
    return c == '.' || c == '!' || c == '?';
}

static bool has_word(span t)
{
    for (size_t i = 0, used; i < t.len; i += used)
        if (rvi_char_word(char_at(t, i, &used))) return true;
    return false;
}

/* Takes the next sentence with a word in it off the front of *rest: sentences end at white space
 * behind . ! or ?, and at line ends. False: there is none. */
static bool next_sentence(span *rest, span *out)
{
    while (rest->len) {
        span t = *rest;
        size_t i = 0, used = 0, gap = 0;
        for (; i < t.len; i += used) {
            uint32_t c = char_at(t, i, &used);
            bool after_end = i && ends_sentence(t.data[i - 1]) && rvi_char_space(c);
            if (!after_end && c != '\n') continue;
            for (size_t n; i + gap < t.len; gap += n) {
                c = char_at(t, i + gap, &n);
                if (!(after_end ? rvi_char_space(c) : c == '\n')) break;
            }
            break;
        }
        *out = (span){t.data, i};
        *rest = (span){t.data + i + gap, t.len - i - gap};
        if (has_word(*out)) return true;
    }
    return false;
}

static size_t count_sentences(span t)
{
    span rest = trim(t), one;
    size_t n = 0;
    while (next_sentence(&rest, &one)) n++;
    return n;
}

/* ---- judging ---- */

static double judge_bullets(span t)
{
    size_t n = 0, n_bullets = 0;
    while (t.len) {
        const char *end = memchr(t.data, '\n', t.len);
        size_t len = end ? (size_t)(end - t.data) : t.len;
        span line = trim_left((span){t.data, len});
        n += line.len > 0;
        n_bullets += starts(line, "- ") || starts(line, "* ");
        t = end ? (span){end + 1, t.len - len - 1} : (span){NULL, 0};
    }
    double share = n ? (double)n_bullets / (double)n : 0;
    return share >= 0.8 && n >= 2 ? 1 : 0.8 * share;
}

/* t begins with this text, whatever the case */
static bool starts_folded(span t, const char *with)
{
    span w = {with, strlen(with)};
    size_t i = 0, k = 0, used_t, used_w;
    for (; k < w.len; i += used_t, k += used_w) {
        if (i >= t.len) return false;
        if (lower(char_at(t, i, &used_t)) != lower(char_at(w, k, &used_w))) return false;
    }
    return true;
}

static double judge_greets(span t, const char *name)
{
    static const char *const greetings[] = {"hello", "hi", "hey", "dear"};
    for (size_t i = 0; i < RVI_COUNT(greetings); i++) {
        size_t n = strlen(greetings[i]), at = n, used;
        if (!starts_folded(t, greetings[i])) continue;
        while (at < t.len && (t.data[at] == ' ' || t.data[at] == ',')) at++;
        span rest = {t.data + at, t.len - at};
        if (at == n || !starts_folded(rest, name)) continue;
        size_t end = strlen(name);
        if (end >= rest.len || !rvi_char_word(char_at(rest, end, &used))) return 1;
    }
    return 0;
}

static double judge_lowercase(span t)
{
    size_t n = 0, n_lower = 0, used;
    bool inside = false, is_lower = true;
    for (size_t i = 0; i <= t.len; i += used) {
        uint32_t c = ' ';
        used = 1;
        if (i < t.len) c = char_at(t, i, &used);
        if (rvi_char_space(c)) {
            n += inside;
            n_lower += inside && is_lower;
            is_lower = true;
        } else if (lower(c) != c) {
            is_lower = false;
        }
        inside = !rvi_char_space(c);
    }
    return n ? (double)n_lower / (double)n : 0;
}

double style_judge(style_rule style, const char *text, const char *name, bool ended)
{
    span t = trim((span){text, strlen(text)});
    if (!t.len) return 0;
    switch (style) {
    case STYLE_TWO_SENTENCES: {
        double n = (double)count_sentences(t) + !ended;
        return n <= 2 ? 1 : n >= 8 ? 0 : (8 - n) / 7;
    }
    case STYLE_BULLETS: return judge_bullets(t);
    case STYLE_GREETS: return judge_greets(t, name);
    case STYLE_LOWERCASE: return judge_lowercase(t);
    case STYLE_ENDS_WITH_QUESTION: return t.data[t.len - 1] == '?' && ended;
    case STYLE_ONE_LINE_LABEL: return starts(t, "Short answer:");
    case N_STYLES: break;
    }
    return 0;
}

/* ---- correcting ---- */

/* The bytes of a list mark at i, with the white space around it: a number and a point, a dash or an
 * asterisk. 0: there is none. */
static size_t list_mark(span t, size_t i)
{
    size_t at = i, used = 0;
    while (at < t.len && rvi_char_space(char_at(t, at, &used))) at += used;
    size_t mark = at;
    if (at < t.len && (t.data[at] == '-' || t.data[at] == '*')) {
        at++;
    } else {
        while (at < t.len && t.data[at] >= '0' && t.data[at] <= '9') at++;
        if (at == mark || at >= t.len || t.data[at] != '.') return 0;
        at++;
    }
    size_t behind = at;
    while (at < t.len && rvi_char_space(char_at(t, at, &used))) at += used;
    return at > behind ? at - i : 0;
}

static void without_list_marks(span t, rvi_buf *out)
{
    for (size_t i = 0; i < t.len;) {
        size_t mark = i == 0 || t.data[i - 1] == '\n' ? list_mark(t, i) : 0;
        if (mark)
            i += mark;
        else
            rvi_buf_putc(out, t.data[i++]);
    }
}

static void put_lower(rvi_buf *out, span t)
{
    for (size_t i = 0, used; i < t.len; i += used) {
        char bytes[4];
        rvi_buf_append(out, bytes, rvi_utf8_encode(lower(char_at(t, i, &used)), bytes));
    }
}

void style_correct(style_rule style, const char *answer, const char *name, rvi_buf *out)
{
    enum { MOST = 4 };
    rvi_buf plain = {0};
    span first[MOST], one;
    size_t n = 0;
    bool whole = false; /* the last sentence has an end */
    without_list_marks((span){answer, strlen(answer)}, &plain);
    span rest = trim((span){plain.data, plain.len});
    while (next_sentence(&rest, &one)) {
        whole = ends_sentence(one.data[one.len - 1]);
        if (n < MOST) first[n] = one;
        n++;
    }
    if (n > 1 && !whole) n--;
    if (!n) {
        first[0] = (span){answer, strlen(answer)};
        n = 1;
    }
    size_t most = style == STYLE_BULLETS                              ? MOST
                  : style == STYLE_GREETS || style == STYLE_LOWERCASE ? 3
                  : style == STYLE_ONE_LINE_LABEL                     ? 1
                                                                      : 2;
    if (style == STYLE_GREETS) rvi_buf_printf(out, "Hello %s! ", name);
    if (style == STYLE_ONE_LINE_LABEL) rvi_buf_puts(out, "Short answer: ");
    for (size_t i = 0; i < RVI_MIN(n, most); i++) {
        if (i) rvi_buf_putc(out, style == STYLE_BULLETS ? '\n' : ' ');
        if (style == STYLE_BULLETS) rvi_buf_puts(out, "- ");
        if (style == STYLE_LOWERCASE)
            put_lower(out, first[i]);
        else
            rvi_buf_append(out, first[i].data, first[i].len);
    }
    if (style == STYLE_BULLETS && n < 2) rvi_buf_puts(out, "\n- That is all.");
    if (style == STYLE_ENDS_WITH_QUESTION) rvi_buf_puts(out, " Does that help?");
    if (plain.failed) out->failed = true;
    rvi_buf_deinit(&plain);
}
