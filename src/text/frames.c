#include "text/frames.h"

#include <string.h>

#include "base/utf8.h"
#include "text/chars.h"

/* ---- scripts ---- */

typedef struct script {
    uint32_t first, last;
    const char *names; /* that everybody knows, a space between two; NULL: its words are no names */
    const char *things; /* likewise, in lower case; NULL: the script has no cases */
    const char *breaks; /* characters that no word has, where no spaces tell; NULL: spaces do */
} script;

/* Of many kinds, and as far as possible the same in the languages of a script. */
static const char latin_names[] = "Kenya Brazil Paris Mozart Maria Hamlet Saturn Toyota Sony";
static const char latin_things[] = "piano hotel radio pizza taxi tennis museum";
static const char han_breaks[] = "的是在有了吗呢谁誰哪什么怎如何为我你和请";

static const script scripts[] = {
    {0x30, 0x24F, latin_names, latin_things, NULL},
    {0x1E00, 0x1EFF, latin_names, latin_things, NULL},
    {0x370, 0x3FF, "Κένυα Παρίσι Μότσαρτ Μαρία Άμλετ", "πιάνο ράδιο πίτσα ταξί μουσείο", NULL},
    {0x400, 0x52F, "Кения Париж Моцарт Мария Гамлет", "пианино радио пицца такси музей", NULL},
    {0x590, 0x5FF, "קניה פריז מוצרט מריה פסנתר פיצה", NULL, NULL},
    {0x600, 0x6FF, "كينيا باريس موزارت مريم بيانو بيتزا", NULL, NULL},
    {0x900, 0x97F, "केन्या पेरिस मोत्सार्ट मारिया पियानो पिज़्ज़ा", NULL, NULL},
    {0xAC00, 0xD7A3, "케냐 파리 모차르트 마리아 피아노 피자", NULL, NULL},
    {0x3040, 0x309F, NULL, NULL, NULL},
    {0x30A0, 0x30FF, "ケニア パリ モーツァルト マリア ピアノ ピザ", NULL, NULL},
    {0x3400, 0x9FFF, "中国 北京 李白 三国志 地球 牛肉", NULL, han_breaks},
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
    bool second;  /* right behind the first word of a sentence */
    bool article; /* behind another word as short as articles are */
} word;

/* The mark that closes what this one opens; 0: it opens nothing. A name may stand there that
 * nothing else marks as one. */
static uint32_t closing(uint32_t c)
{
    static const uint32_t pairs[][2] = {{0x300A, 0x300B}, {0x300C, 0x300D}, {0x300E, 0x300F},
                                        {0x201C, 0x201D}, {'"', '"'},       {0xAB, 0xBB}};
    for (size_t i = 0; i < RVI_COUNT(pairs); i++)
        if (c == pairs[i][0]) return pairs[i][1];
    return 0;
}

/* All of text[at, len) up to the closing mark, as one word; chars 0: there is no such mark, or
 * nothing of a script before it. */
static word quoted_word(const char *text, size_t len, size_t at, uint32_t close)
{
    word w = {.script = NO_SCRIPT, .at = at, .letter = true, .name = true};
    for (size_t used; at < len; at += used) {
        uint32_t c;
        used = rvi_utf8_decode(text + at, len - at, &c, NULL);
        if (c == close) {
            w.len = at - w.at;
            return w.script == NO_SCRIPT ? (word){0} : w;
        }
        if (!w.chars++) w.upper = rvi_char_upper(c);
        if (w.script == NO_SCRIPT) w.script = script_of(c);
    }
    return (word){0};
}

static bool ends_word(const word *w, const char *text, size_t len, size_t is)
{
    const char *breaks = scripts[w->script].breaks;
    char one[5] = {0};
    if (is != w->script) return true;
    memcpy(one, text, RVI_MIN(len, sizeof one - 1));
    return breaks && strstr(breaks, one) != NULL;
}

/* Where no spaces tell, a long run of characters is several words, and the last one the thing. */
static void take_last(word *w)
{
    enum { LONG = 4, WORD = 2, BYTES = 3 };
    if (w->script == NO_SCRIPT || !scripts[w->script].breaks || w->chars <= LONG) return;
    w->at += w->len - WORD * BYTES;
    w->len = WORD * BYTES;
    w->chars = WORD;
}

/* The next word from *at on; chars 0: there is none. first: of a sentence, where upper case says
 * nothing. */
static word next_word(const char *text, size_t len, size_t *at, bool *first)
{
    word w = {.script = NO_SCRIPT};
    for (size_t used; *at < len; *at += used) {
        uint32_t c;
        used = rvi_utf8_decode(text + *at, len - *at, &c, NULL);
        size_t is = script_of(c);
        if (w.chars && ends_word(&w, text + *at, used, is)) break;
        if (is == NO_SCRIPT) {
            word all = closing(c) ? quoted_word(text, len, *at + used, closing(c)) : (word){0};
            *first |= is_mark(c) && !rvi_char_space(c);
            if (!all.chars) continue;
            *at = all.at + all.len;
            return all;
        }
        if (!w.chars) {
            w = (word){.at = *at, .script = is, .upper = rvi_char_upper(c)};
            if (ends_word(&w, text + *at, used, is)) continue; /* no word by itself */
            w.letter = rvi_char_class_of(c) == RVI_CHAR_LETTER;
            w.name = w.upper && !*first;
        }
        w.chars++;
        w.len = *at + used - w.at;
    }
    w.name = (w.name && w.chars > 2) || (w.script == KATAKANA && w.chars > 1);
    take_last(&w);
    return w;
}

/* Does a, which comes after b, tell more? A name tells more than any other word, and of two the
 * longer one, where none is rarer. The word right behind one that asks is mostly a verb ("Who
 * waters the plants?", "When does the shop open?"): any other that is not short, that an article
 * may stand before, or that ends the question tells more. Of two alike the later one does, as long
 * as the script's languages put what is asked for first: "capital of Kenya", but 日本の首都. */
static bool tells_more(const word *a, const word *b, bool ends)
{
    enum { SHORT = 4 };
    if (!b->chars || a->name != b->name) return !b->chars || a->name;
    if (b->second && !b->name && (a->chars > SHORT || a->article || ends)) return true;
    bool later = a->chars > SHORT && scripts[a->script].things;
    return a->chars > b->chars || (later && a->chars == b->chars);
}

/* b goes on with the name that a begins: "New Zealand". */
static bool goes_on(const char *text, const word *a, const word *b)
{
    return a->name && b->upper && a->script == b->script && a->at + a->len + 1 == b->at &&
           text[b->at - 1] == ' ';
}

/* May something else stand there? Short words are those that all questions have. */
static bool may_tell(const word *w)
{
    enum { SHORT = 3 };
    const script *s = &scripts[w->script];
    return w->letter && s->names && (w->name || !s->things || w->chars > SHORT);
}

static bool has_words(const char *text)
{
    size_t len = strlen(text);
    for (size_t at = 0, used; at < len; at += used) {
        uint32_t c;
        used = rvi_utf8_decode(text + at, len - at, &c, NULL);
        if (script_of(c) != NO_SCRIPT) return true;
    }
    return false;
}

/* chars 0: nothing is named. */
static word telling_word(const char *question)
{
    enum { ARTICLE = 3 };
    size_t len = strlen(question), at = 0;
    word best = {0}, before = {0};
    for (bool first = true, begins = false;;) {
        word w = next_word(question, len, &at, &first);
        if (!w.chars) return best;
        w.second = begins && !first;
        w.article = !w.second && before.chars && before.chars <= ARTICLE;
        begins = first && scripts[w.script].things && !w.name; /* with a word that asks */
        first = false;
        if (goes_on(question, &before, &w)) {
            w.chars += before.chars + 1;
            w.len += w.at - before.at;
            w.at = before.at;
            w.name = true;
        }
        if (may_tell(&w) && !begins && tells_more(&w, &best, !has_words(question + at))) best = w;
        before = w;
    }
}

static bool has_text(const char *text, const char *part, size_t len)
{
    for (; *text; text++)
        if (!strncmp(text, part, len)) return true;
    return false;
}

/* The *i-th of the words in a list (NULL: none) that the question does not have; NULL: there are
 * fewer, and *i is less by as many. */
static const char *nth_other(const char *list, const char *question, size_t *i, size_t *len)
{
    for (const char *p = list; p && *p; p += *len + (p[*len] == ' ')) {
        *len = strcspn(p, " ");
        if (!has_text(question, p, *len) && !(*i)--) return p;
    }
    return NULL;
}

static void put_capital(rvi_buf *out, const char *text, size_t len)
{
    char bytes[4];
    uint32_t c, to[3];
    size_t used = rvi_utf8_decode(text, len, &c, NULL), n = rvi_char_to_upper(c, to);
    for (size_t i = 0; i < n; i++) rvi_buf_append(out, bytes, rvi_utf8_encode(to[i], bytes));
    rvi_buf_append(out, text + (n ? used : 0), len - (n ? used : 0));
}

bool rvi_frame_neighbour(const char *question, size_t i, rvi_buf *out)
{
    word w = telling_word(question);
    size_t len = 0;
    if (!w.chars) return false;
    const script *s = &scripts[w.script];
    bool lower = s->things && !w.upper && !w.name;
    const char *other = lower ? NULL : nth_other(s->names, question, &i, &len);
    bool thing = !other;
    if (thing) other = nth_other(s->things, question, &i, &len);
    if (!other) return false;
    rvi_buf_append(out, question, w.at);
    if (thing && !lower)
        put_capital(out, other, len);
    else
        rvi_buf_append(out, other, len);
    rvi_buf_puts(out, question + w.at + w.len);
    return true;
}
