#include "text/frames.h"

#include <string.h>

#include "base/utf8.h"
#include "text/chars.h"

/* ---- scripts ---- */

typedef struct script {
    uint32_t first, last;
    const char *made_up; /* a name that nobody has; NULL: its words are no names */
    size_t most;         /* characters of a word, where no spaces tell; 0: any number */
} script;

static const script scripts[] = {
    {0x30, 0x24F, "Zorvath", 0},     {0x1E00, 0x1EFF, "Zorvath", 0},  {0x370, 0x3FF, "Ζορβάθ", 0},
    {0x400, 0x52F, "Зорват", 0},     {0x590, 0x5FF, "זורבת", 0},      {0x600, 0x6FF, "زورفاث", 0},
    {0x900, 0x97F, "ज़ोरवथ", 0},      {0xAC00, 0xD7A3, "조르바트", 0}, {0x3040, 0x309F, NULL, 0},
    {0x30A0, 0x30FF, "ゾルバス", 0}, {0x3400, 0x9FFF, "苍岚", 2},
};
enum { LATIN = 0, LATIN_MORE = 1, KATAKANA = 9, NO_SCRIPT = RVI_COUNT(scripts) };

/* Of a letter, digit or mark; NO_SCRIPT: it is none, or of a script without a row. */
static size_t script_of(uint32_t c)
{
    rvi_char_class class = rvi_char_class_of(c);
    if (class != RVI_CHAR_LETTER && class != RVI_CHAR_MARK && class != RVI_CHAR_NUMBER)
        return NO_SCRIPT;
    for (size_t i = 0; i < RVI_COUNT(scripts); i++)
        if (c >= scripts[i].first && c <= scripts[i].last) return i == LATIN_MORE ? LATIN : i;
    return NO_SCRIPT;
}

static bool is_latin(const char *text, size_t len)
{
    size_t latin = 0, others = 0;
    for (size_t at = 0, used; at < len; at += used) {
        uint32_t c;
        used = rvi_utf8_decode(text + at, len - at, &c, NULL);
        if (rvi_char_class_of(c) != RVI_CHAR_LETTER) continue;
        if (script_of(c) == LATIN)
            latin++;
        else
            others++;
    }
    return latin > others;
}

/* ---- the same in other forms ---- */

static bool is_mark(uint32_t c)
{
    return rvi_char_space(c) || (c < 0x80 ? strchr(".?!", (int)c) != NULL
                                          : c == 0xBF || c == 0xA1 || c == 0x2026 || c == 0x3002 ||
                                                c == 0xFF1F || c == 0xFF01 || c == 0x61F);
}

/* Without the marks of sentences and the white space at its ends. */
static void strip(const char **text, size_t *len)
{
    size_t from = 0, end = 0;
    bool begun = false;
    for (size_t at = 0, used; at < *len; at += used) {
        uint32_t c;
        used = rvi_utf8_decode(*text + at, *len - at, &c, NULL);
        if (is_mark(c)) continue;
        if (!begun) from = at;
        begun = true;
        end = at + used;
    }
    *text += from;
    *len = end - from;
}

/* The first `most` characters in lower case, the rest as it is. */
static void put_lower(rvi_buf *out, const char *text, size_t len, size_t most)
{
    char bytes[4];
    for (size_t at = 0, used; at < len; at += used) {
        uint32_t c, to[3];
        bool valid = true;
        used = rvi_utf8_decode(text + at, len - at, &c, &valid);
        size_t n = most && valid ? rvi_char_to_lower(c, to) : 0;
        if (!n) rvi_buf_append(out, text + at, used);
        for (size_t i = 0; i < n; i++) rvi_buf_append(out, bytes, rvi_utf8_encode(to[i], bytes));
        if (most) most--;
    }
}

void rvi_frame_plain(const char *question, rvi_buf *out)
{
    size_t len = strlen(question), at = out->len;
    const char *text = question;
    strip(&text, &len);
    put_lower(out, text, len, len);
    if (!out->failed && out->len > at && out->len - at == strlen(question) &&
        !memcmp(out->data + at, question, out->len - at))
        out->len = at; /* it is so already */
}

void rvi_frame_addressed(const char *question, rvi_buf *out)
{
    const char *text = question;
    size_t len = strlen(question);
    strip(&text, &len);
    if (!len) return;
    if (is_latin(text, len)) {
        rvi_buf_puts(out, "Hello, ");
        put_lower(out, text, strlen(text), 1); /* its last mark stays */
    } else {
        rvi_buf_printf(out, "\"%s\"", question);
    }
}

/* ---- something else ---- */

typedef struct word {
    size_t at, len, chars;
    size_t script;
    bool letter, upper; /* its first character */
    bool name;
} word;

/* Where a name may stand that nothing else marks as one. */
static bool is_opening(uint32_t c)
{
    return c == 0x300A || c == 0x300C || c == 0x300E || c == 0x201C || c == '"' || c == 0xAB;
}

/* The next word from *at on; chars 0: there is none. first: of a sentence, where upper case says
 * nothing. */
static word next_word(const char *text, size_t len, size_t *at, bool *first)
{
    word w = {.script = NO_SCRIPT};
    bool quoted = false;
    for (size_t used; *at < len; *at += used) {
        uint32_t c;
        used = rvi_utf8_decode(text + *at, len - *at, &c, NULL);
        size_t is = script_of(c);
        size_t most = w.chars && !quoted ? scripts[w.script].most : 0;
        if (w.chars && (is != w.script || (most && w.chars == most))) break;
        if (is == NO_SCRIPT) {
            *first |= is_mark(c) && !rvi_char_space(c);
            quoted = is_opening(c);
            continue;
        }
        if (!w.chars) {
            w = (word){.at = *at, .script = is, .upper = rvi_char_upper(c)};
            w.letter = rvi_char_class_of(c) == RVI_CHAR_LETTER;
            w.name = quoted || (w.upper && !*first);
        }
        w.chars++;
        w.len = *at + used - w.at;
    }
    w.name = (w.name && (quoted || w.chars > 2)) || (w.script == KATAKANA && w.chars > 1);
    return w;
}

/* A name tells more than any other word, and of two the longer one, where none is rarer. */
static bool tells_more(const word *a, const word *b)
{
    if (!b->chars || a->name != b->name) return !b->chars || a->name;
    return a->chars > b->chars;
}

void rvi_frame_neighbour(const char *question, rvi_buf *out)
{
    size_t len = strlen(question), at = 0;
    word best = {0};
    bool first = true;
    for (;;) {
        word w = next_word(question, len, &at, &first);
        if (!w.chars) break;
        bool begins = first && w.script == LATIN && !w.name; /* with a word that asks */
        first = false;
        if (w.letter && scripts[w.script].made_up && !begins && tells_more(&w, &best)) best = w;
    }
    if (!best.chars) return;
    const char *made_up = scripts[best.script].made_up;
    if (strstr(question, made_up)) return;
    bool capital = best.upper || best.script != LATIN;
    rvi_buf_append(out, question, best.at);
    put_lower(out, made_up, strlen(made_up), !capital);
    rvi_buf_puts(out, question + best.at + best.len);
}
