#include "learn/recognise/sentences.h"

#include <string.h>

#include "base/mem.h"

/* How many bytes of the text are a mark that ends a sentence, or with `clause` also one within it;
 * 0: none. Those of scripts with spaces have one behind them. */
static size_t mark_at(const char *text, size_t left, bool clause)
{
    static const char *const wide[] = {"\xe3\x80\x82", "\xef\xbc\x9f", "\xef\xbc\x81",
                                       "\xef\xbc\x8c", "\xe3\x80\x81", "\xef\xbc\x9a"};
    enum { ENDS = 3 }; /* the others stand within a sentence: comma, enumeration comma, colon */
    if (*text == '\n') return 1;
    if (*text && strchr(clause ? ".?!,:" : ".?!", *text))
        return left > 1 && strchr(" \t\r\n", text[1]) ? 1 : 0;
    for (size_t i = 0; i < (clause ? RVI_COUNT(wide) : (size_t)ENDS); i++)
        if (left > 3 && !memcmp(text, wide[i], 3)) return 3;
    return 0;
}

static bool asks(const char *text, size_t n_mark)
{
    return *text == '?' || (n_mark == 3 && !memcmp(text, "\xef\xbc\x9f", 3));
}

size_t rvi_sentence_asking(const char *text, size_t end, const char **out)
{
    size_t len = end, start = 0, mark;
    bool found = false;
    *out = text;
    for (size_t i = 0; i < end; i += mark ? mark : 1) {
        mark = mark_at(text + i, end - i, false);
        bool last = i + RVI_MAX(mark, (size_t)1) >= end;
        if (!mark && !last) continue;
        bool ends_asking = asks(text + i, RVI_MAX(mark, (size_t)1));
        if (ends_asking || !found) {
            *out = text + start;
            len = i + RVI_MAX(mark, (size_t)1) - start;
        }
        found = found || ends_asking;
        start = i + RVI_MAX(mark, (size_t)1);
    }
    return len;
}

/* The next sentence, without spaces around it; *text and *len: what comes behind it. */
static bool next(const char **text, size_t *len, const char **out, size_t *n)
{
    while (*len && strchr(" \t\r\n", **text)) (*text)++, (*len)--;
    size_t end = 0, mark = 0;
    while (end < *len && !(mark = mark_at(*text + end, *len - end, false))) end++;
    *out = *text;
    *n = end + mark;
    *text += *n;
    *len -= *n;
    while (*n && strchr(" \t\r\n", (*out)[*n - 1])) (*n)--;
    return *n > 0;
}

static bool has_sentence(const char *text, size_t len, const char *sentence, size_t n)
{
    const char *s;
    size_t n_s;
    while (next(&text, &len, &s, &n_s))
        if (n_s == n && !memcmp(s, sentence, n)) return true;
    return false;
}

bool rvi_sentences_apart(const char *text, size_t len, const char *other, size_t n_other,
                         rvi_buf *out)
{
    const char *s;
    size_t n;
    bool shared = false;
    while (next(&text, &len, &s, &n)) {
        if (has_sentence(other, n_other, s, n)) {
            shared = true;
            continue;
        }
        if (out->len) rvi_buf_putc(out, ' ');
        rvi_buf_append(out, s, n);
    }
    return shared;
}

bool rvi_sentence_names_nothing(const char *text, size_t len, bool begins)
{
    for (size_t i = 0; i < len; i++)
        if ((text[i] >= '0' && text[i] <= '9') ||
            (text[i] >= 'A' && text[i] <= 'Z' && !(begins && i == 0)))
            return false;
    return true;
}

size_t rvi_sentence_trim(const char **text, size_t len, size_t most)
{
    const char *s = *text;
    for (bool again = true; again;) {
        again = false;
        for (size_t i = 0; i < RVI_MIN(len, most + 1); i++) {
            size_t mark = mark_at(s + i, len - i, true);
            if (!mark) continue;
            if (i && len > 2 * i + mark + 1 && rvi_sentence_names_nothing(s, i, true)) {
                for (i += mark; s[i] == ' '; i++) {
                }
                s += i;
                len -= i;
                again = true;
            }
            break;
        }
    }
    for (size_t i = len - RVI_MIN(len, most + 1); i < len; i++) {
        size_t mark = mark_at(s + i, len - i, true);
        if (mark && i + mark < len && i > len - i &&
            rvi_sentence_names_nothing(s + i, len - i, false)) {
            len = i;
            break;
        }
    }
    *text = s;
    return len;
}
