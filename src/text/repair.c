#include "text/repair.h"

#include <stdint.h>
#include <string.h>

#include "base/json.h"
#include "base/utf8.h"

enum { MAX_DEPTH = RVI_JSON_DEPTH, MAX_WORD = 1 << 20 };

typedef enum state {
    BEFORE, /* JSON is still to come */
    VALUE,  /* a value, or in an array its end */
    KEY,    /* a name, or the object's end */
    COLON,  /* behind a name */
    AFTER,  /* behind a value */
    WORD,   /* number, word, or a text or name without quotes */
    STRING,
    COMMENT, /* until the end of the line, or to its own end */
    DONE
} state;

typedef enum quote { DOUBLE, SINGLE, CURLY } quote;

struct rvi_mender {
    state state, behind; /* behind: what a comment interrupted */
    rvi_repair_note note;
    void *ctx;
    size_t at; /* bytes that came before the one being read */
    char stack[MAX_DEPTH];
    int depth;
    rvi_buf gap;     /* blanks since the last token */
    rvi_buf name;    /* of a member whose value has not begun, in quotes */
    rvi_buf word;    /* also: everything before JSON is found */
    bool comma;      /* came since the last value, */
    size_t comma_at; /* behind so many blanks of the gap */
    bool is_key;     /* the text or word being read is a name */
    bool block;      /* the comment is */
    quote quote;
    size_t began; /* where the text or word did */
    int curl;     /* bytes read of what may be the closing curly quote */
    int escape;   /* 0: none; 1: behind a backslash; 2..5: hexadecimal digits of \u are to come */
    char hex[5];
    char last[3]; /* the bytes before */
    bool slash;   /* a / came, perhaps a comment */
    bool talked;  /* text around it was told of */
};

rv_status rvi_mender_new(rvi_mender **out, rvi_repair_note note, void *ctx, rv_error *err)
{
    rvi_mender *m = *out = rvi_zalloc(sizeof *m);
    if (!m) return rvi_nomem(err, "repair");
    m->note = note;
    m->ctx = ctx;
    return RV_OK;
}

void rvi_mender_free(rvi_mender *m)
{
    if (!m) return;
    rvi_buf_deinit(&m->gap);
    rvi_buf_deinit(&m->name);
    rvi_buf_deinit(&m->word);
    rvi_free(m);
}

static void tell(rvi_mender *m, const char *what, size_t offset)
{
    if (m->note) m->note(m->ctx, what, offset);
}

static bool blank(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static bool in_object(const rvi_mender *m)
{
    return m->depth && m->stack[m->depth - 1] == '{';
}

/* ---- tokens ---- */

/* The blanks, and the comma among them if one came. */
static void put_gap(rvi_mender *m, rvi_buf *out)
{
    size_t before = m->comma ? RVI_MIN(m->comma_at, m->gap.len) : 0;
    rvi_buf_append(out, m->gap.data, before);
    if (m->comma) rvi_buf_putc(out, ',');
    if (m->gap.len) rvi_buf_append(out, m->gap.data + before, m->gap.len - before);
    m->comma = false;
    m->gap.len = 0;
}

/* A value begins: what waited for it comes first. */
static void begin_value(rvi_mender *m, rvi_buf *out)
{
    rvi_buf_append(out, m->name.data, m->name.len);
    m->name.len = 0;
    put_gap(m, out);
}

static void end_value(rvi_mender *m)
{
    m->state = m->depth ? AFTER : DONE;
}

static rv_status open_list(rvi_mender *m, char c, rvi_buf *out, rv_error *err)
{
    if (m->depth == MAX_DEPTH)
        return rvi_error(err, RV_E_CONFIG, "JSON is nested more than %d deep", MAX_DEPTH);
    begin_value(m, out);
    rvi_buf_putc(out, c);
    m->stack[m->depth++] = c;
    m->state = c == '{' ? KEY : VALUE;
    return RV_OK;
}

static void pop(rvi_mender *m, rvi_buf *out)
{
    rvi_buf_putc(out, m->stack[--m->depth] == '{' ? '}' : ']');
    end_value(m);
}

/* A name that no value follows goes. True: a comma stood before it, which separates what follows
 * from what came before. */
static bool drop_name(rvi_mender *m)
{
    size_t at = 0;
    if (!m->name.len) return false;
    tell(m, "name without a value removed", m->began);
    while (at < m->name.len && blank(m->name.data[at])) at++;
    bool separates = at < m->name.len && m->name.data[at] == ',';
    m->name.len = 0;
    return separates;
}

static void close_list(rvi_mender *m, char c, rvi_buf *out)
{
    char open = c == '}' ? '{' : '[';
    int at = m->depth;
    while (at && m->stack[at - 1] != open) at--;
    if (!at) {
        tell(m, "closing bracket removed", m->at);
        return;
    }
    (void)drop_name(m);
    if (m->comma) tell(m, "trailing comma removed", m->at);
    m->comma = false;
    for (; m->depth > at; pop(m, out)) tell(m, "closing bracket added", m->at);
    put_gap(m, out);
    pop(m, out);
}

/* Between two values or members. */
static void separate(rvi_mender *m)
{
    if (m->state == AFTER && !m->comma) {
        tell(m, "missing comma added", m->at);
        m->comma = true;
        m->comma_at = 0;
    }
}

/* ---- texts ---- */

static rvi_buf *text_out(rvi_mender *m, rvi_buf *out)
{
    return m->is_key ? &m->name : out;
}

static void begin_text(rvi_mender *m, quote q, rvi_buf *out)
{
    separate(m);
    m->is_key = in_object(m) && m->state != VALUE;
    m->began = m->at;
    m->quote = q;
    m->escape = m->curl = 0;
    if (q != DOUBLE)
        tell(m, q == SINGLE ? "single quotes replaced" : "curly quotes replaced", m->at);
    if (m->is_key) {
        put_gap(m, &m->name);
    } else {
        begin_value(m, out);
    }
    rvi_buf_putc(text_out(m, out), '"');
    m->state = STRING;
}

static void end_text(rvi_mender *m, rvi_buf *out)
{
    rvi_buf_putc(text_out(m, out), '"');
    if (m->is_key)
        m->state = COLON;
    else
        end_value(m);
}

static bool hex_digit(char c)
{
    return (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'f');
}

static void put_char(rvi_mender *m, char c, rvi_buf *to)
{
    if ((unsigned char)c < 0x20) {
        tell(m, "control character escaped", m->at);
        if (c == '\n' || c == '\t' || c == '\r')
            rvi_buf_printf(to, "\\%c", c == '\n' ? 'n' : c == '\t' ? 't' : 'r');
        else
            rvi_buf_printf(to, "\\u%04x", (unsigned)(unsigned char)c);
    } else {
        if (c == '"') rvi_buf_putc(to, '\\');
        rvi_buf_putc(to, c);
    }
}

static void put_bad_escape(rvi_mender *m, rvi_buf *to)
{
    tell(m, "escape mended", m->at);
    rvi_buf_puts(to, "\\\\");
    if (m->escape > 1) rvi_buf_printf(to, "u%.*s", m->escape - 2, m->hex);
    m->escape = 0;
}

/* Inside an escape; false: the byte is still to be read as any other. */
static bool read_escape(rvi_mender *m, char c, rvi_buf *to)
{
    if (m->escape == 1) {
        m->escape = c == 'u' ? 2 : 0;
        if (c == 'u') return true;
        if (c && strchr("\"\\/bfnrt", c)) {
            rvi_buf_putc(to, '\\');
            rvi_buf_putc(to, c);
            return true;
        }
        if (c == '\'') {
            tell(m, "escape mended", m->at);
            rvi_buf_putc(to, c);
            return true;
        }
        m->escape = 1;
        put_bad_escape(m, to);
        return false;
    }
    if (!hex_digit(c)) {
        put_bad_escape(m, to);
        return false;
    }
    m->hex[m->escape++ - 2] = c;
    if (m->escape == 6) {
        rvi_buf_printf(to, "\\u%.4s", m->hex);
        m->escape = 0;
    }
    return true;
}

static void read_text(rvi_mender *m, char c, rvi_buf *out)
{
    static const char curly[] = "\xE2\x80"; /* then 9C or 9D */
    rvi_buf *to = text_out(m, out);
    if (m->escape && read_escape(m, c, to)) return;
    if (c == '\\') {
        m->escape = 1;
    } else if ((m->quote == DOUBLE && c == '"') || (m->quote == SINGLE && c == '\'')) {
        end_text(m, out);
    } else if (m->quote == CURLY && m->curl == 2 && c == '\x9D') {
        m->curl = 0;
        end_text(m, out);
    } else if (m->quote == CURLY && m->curl < 2 && c == curly[m->curl]) {
        m->curl++; /* perhaps the end */
    } else {
        rvi_buf_append(to, curly, (size_t)m->curl);
        m->curl = m->quote == CURLY && c == *curly;
        if (!m->curl) put_char(m, c, to);
    }
}

/* ---- words ---- */

static bool is_number(const char *s, size_t len)
{
    rvi_arena arena = {0};
    const rvi_json *v;
    bool ok = len && (*s == '-' || (*s >= '0' && *s <= '9')) &&
              !rvi_json_parse(&v, s, len, &arena, "number", NULL);
    rvi_arena_deinit(&arena);
    return ok;
}

static bool same(const rvi_buf *w, const char *text)
{
    return w->len == strlen(text) && !memcmp(w->data, text, w->len);
}

/* A number that is none in JSON (+1, .5, 1., 007), or was cut off (1e). False: no number. */
static bool mend_number(const rvi_buf *w, rvi_buf *out)
{
    const char *s = w->data;
    size_t len = w->len, before = out->len;
    bool minus = len && *s == '-';
    if (len && (*s == '+' || *s == '-')) s++, len--;
    if (!len || (!(*s >= '0' && *s <= '9') && *s != '.')) return false;
    while (len > 1 && *s == '0' && s[1] >= '0' && s[1] <= '9') s++, len--;
    while (len && strchr(".eE+-", s[len - 1])) len--;
    if (!len) return false;
    if (minus) rvi_buf_putc(out, '-');
    if (*s == '.') rvi_buf_putc(out, '0');
    rvi_buf_append(out, s, len);
    if (!out->failed && is_number(out->data + before, out->len - before)) return true;
    out->len = before;
    return false;
}

static void end_word(rvi_mender *m, rvi_buf *out, bool cut)
{
    static const struct {
        const char *word, *json;
    } words[] = {{"true", "true"},   {"false", "false"}, {"null", "null"}, {"True", "true"},
                 {"False", "false"}, {"None", "null"},   {"NaN", "null"},  {"undefined", "null"}};
    rvi_buf *w = &m->word;
    size_t blanks = 0; /* at its end: they stand behind it */
    for (; w->len && blank(w->data[w->len - 1]); blanks++) w->len--;
    if (m->is_key) {
        tell(m, "name put in quotes", m->began);
        rvi_json_write_string(&m->name, w->data, w->len);
        m->state = COLON;
        w->len = 0;
        return;
    }
    begin_value(m, out);
    size_t i = 0;
    while (i < RVI_COUNT(words) && !same(w, words[i].word)) i++;
    if (i < RVI_COUNT(words)) {
        if (i > 2) tell(m, "word replaced", m->began);
        rvi_buf_puts(out, words[i].json);
    } else if (is_number(w->data, w->len)) {
        rvi_buf_append(out, w->data, w->len);
    } else if (mend_number(w, out)) {
        tell(m, "number mended", m->began);
    } else {
        for (i = 0; i < 3 && cut && w->len; i++)
            if (w->len < strlen(words[i].word) && !memcmp(w->data, words[i].word, w->len)) break;
        if (i < 3 && cut && w->len) {
            tell(m, "word completed", m->began);
            rvi_buf_puts(out, words[i].json);
        } else {
            tell(m, "text put in quotes", m->began);
            rvi_json_write_string(out, w->data, w->len);
        }
    }
    if (m->depth && blanks) rvi_buf_append(&m->gap, w->data + w->len, blanks);
    w->len = 0;
    end_value(m);
}

static void begin_word(rvi_mender *m, char c)
{
    separate(m);
    m->is_key = in_object(m) && m->state != VALUE;
    m->began = m->at;
    if (m->is_key) put_gap(m, &m->name);
    m->word.len = 0;
    rvi_buf_putc(&m->word, c);
    m->state = WORD;
}

static bool ends_word(const rvi_mender *m, char c)
{
    return c == ',' || c == '}' || c == ']' || c == '\n' || c == '\r' || c == '/' || c == '#' ||
           (m->is_key && (c == ':' || blank(c)));
}

/* ---- between tokens ---- */

static rv_status read_between(rvi_mender *m, char c, rvi_buf *out, rv_error *err)
{
    if (m->slash) {
        m->slash = false;
        if (c == '/' || c == '*') {
            tell(m, "comment removed", m->at - 1);
            m->behind = m->state;
            m->block = c == '*';
            m->state = COMMENT;
            return RV_OK;
        }
        tell(m, "character removed", m->at - 1);
    }
    if (blank(c)) {
        rvi_buf_putc(&m->gap, c);
    } else if (c == '/') {
        m->slash = true;
    } else if (c == '#') {
        tell(m, "comment removed", m->at);
        m->behind = m->state;
        m->block = false;
        m->state = COMMENT;
    } else if (c == '}' || c == ']') {
        close_list(m, c, out);
    } else if (c == ',') {
        if (m->state != AFTER || m->comma) {
            tell(m, "comma removed", m->at);
        } else {
            m->comma = true;
            m->comma_at = m->gap.len;
        }
        if (m->state != AFTER && drop_name(m)) {
            m->comma = true;
            m->comma_at = 0;
            m->state = AFTER;
        }
        m->state = in_object(m) ? (m->state == AFTER ? AFTER : KEY) : m->state;
    } else if (m->state == COLON) {
        if (c != ':') tell(m, "missing colon added", m->at);
        put_gap(m, &m->name);
        rvi_buf_putc(&m->name, ':');
        m->state = VALUE;
        if (c != ':') return read_between(m, c, out, err);
    } else if (c == ':') {
        tell(m, "character removed", m->at);
    } else if (c == '"' || c == '\'') {
        begin_text(m, c == '"' ? DOUBLE : SINGLE, out);
    } else if (c == '{' || c == '[') {
        separate(m);
        if (in_object(m) && m->state != VALUE) { /* a member without a name cannot be kept */
            tell(m, "name added", m->at);
            put_gap(m, &m->name);
            rvi_buf_puts(&m->name, "\"\":");
        }
        return open_list(m, c, out, err);
    } else {
        begin_word(m, c);
    }
    return RV_OK;
}

static void read_comment(rvi_mender *m, char c)
{
    bool over = m->block ? c == '/' && m->last[2] == '*' : c == '\n';
    if (!over) return;
    m->state = m->behind;
    if (!m->block) rvi_buf_putc(&m->gap, c);
}

/* ---- one byte ---- */

/* Curly quotes begin with the same two bytes as other characters: they are a word until the third
 * shows what they are. */
static bool turns_curly(rvi_mender *m, char c, rvi_buf *out)
{
    if (m->state != WORD || c != '\x9C' || !same(&m->word, "\xE2\x80")) return false;
    m->word.len = 0;
    m->state = m->is_key ? KEY : m->depth ? VALUE : BEFORE;
    m->at -= 2;
    begin_text(m, CURLY, out);
    m->at += 2;
    return true;
}

static rv_status read_byte(rvi_mender *m, char c, rvi_buf *out, rv_error *err)
{
    switch (m->state) {
    case BEFORE:
        if (c == '{' || c == '[') {
            bool talk = false;
            for (size_t i = 0; i < m->word.len; i++) talk = talk || !blank(m->word.data[i]);
            if (talk) tell(m, "text before removed", 0);
            m->word.len = 0;
            return open_list(m, c, out, err);
        }
        if (m->word.len < MAX_WORD) rvi_buf_putc(&m->word, c);
        return RV_OK;
    case STRING: read_text(m, c, out); return RV_OK;
    case COMMENT: read_comment(m, c); return RV_OK;
    case WORD:
        if (turns_curly(m, c, out)) return RV_OK;
        if (!ends_word(m, c)) {
            if (m->word.len == MAX_WORD)
                return rvi_error(err, RV_E_CONFIG, "JSON: a word of more than %d bytes", MAX_WORD);
            rvi_buf_putc(&m->word, c);
            return RV_OK;
        }
        end_word(m, out, false);
        return m->state == DONE ? RV_OK : read_between(m, c, out, err);
    case DONE:
        if (!blank(c) && !m->talked) tell(m, "text behind removed", m->at);
        m->talked = m->talked || !blank(c);
        return RV_OK;
    default: return read_between(m, c, out, err);
    }
}

rv_status rvi_mender_push(rvi_mender *m, const char *text, size_t len, rvi_buf *out, rv_error *err)
{
    rv_status st = RV_OK;
    for (size_t i = 0; i < len && !st; i++) {
        st = read_byte(m, text[i], out, err);
        m->last[0] = m->last[1];
        m->last[1] = m->last[2];
        m->last[2] = text[i];
        m->at++;
    }
    bool failed = out->failed || m->gap.failed || m->name.failed || m->word.failed;
    return st || !failed ? st : rvi_nomem(err, "repair");
}

/* No list and no object came: a text, a number or a word may be all there is. */
static rv_status end_scalar(rvi_mender *m, rvi_buf *out, rv_error *err)
{
    char *s = m->word.data;
    size_t len = m->word.len;
    while (len && blank(*s)) s++, len--;
    while (len && blank(s[len - 1])) len--;
    if (len && (*s == '"' || *s == '\'')) {
        begin_text(m, *s == '"' ? DOUBLE : SINGLE, out);
        for (size_t i = 1; i < len && m->state == STRING; i++) read_text(m, s[i], out);
        return RV_OK;
    }
    rvi_buf word = {0};
    rvi_buf_append(&word, s, len);
    m->word.len = 0;
    rvi_buf_append(&m->word, word.data, word.len);
    rvi_buf_deinit(&word);
    bool one = len > 0;
    for (size_t i = 0; i < m->word.len; i++) one = one && !blank(m->word.data[i]);
    if (!one) return rvi_error(err, RV_E_CONFIG, "there is no JSON in the text");
    end_word(m, out, true);
    return RV_OK;
}

/* A character that was cut off. */
static void drop_half(rvi_buf *to)
{
    size_t n = 0;
    while (n < 3 && n < to->len && ((unsigned char)to->data[to->len - 1 - n] & 0xC0) == 0x80) n++;
    if (n == to->len) return;
    unsigned char lead = (unsigned char)to->data[to->len - 1 - n];
    size_t whole = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : lead >= 0xC0 ? 1 : n;
    if (n < whole) to->len -= n + 1;
}

rv_status rvi_mender_end(rvi_mender *m, rvi_buf *out, rv_error *err)
{
    rv_status st = RV_OK;
    if (m->state == BEFORE) st = end_scalar(m, out, err);
    if (st) return st;
    if (m->state == STRING) {
        tell(m, "text that was cut off ended", m->at);
        drop_half(text_out(m, out));
        end_text(m, out); /* half an escape goes too */
    }
    if (m->state == WORD) end_word(m, out, true);
    if (m->depth) {
        (void)drop_name(m);
        if (m->comma) tell(m, "trailing comma removed", m->at);
    }
    while (m->depth) {
        tell(m, "closing bracket added", m->at);
        pop(m, out);
    }
    bool failed = out->failed || m->gap.failed || m->name.failed || m->word.failed;
    return failed ? rvi_nomem(err, "repair") : RV_OK;
}

rv_status rvi_json_repair(const char *text, size_t len, rvi_buf *out, rvi_repair_note note,
                          void *ctx, rv_error *err)
{
    rvi_mender *m;
    rv_status st = rvi_mender_new(&m, note, ctx, err);
    if (!st) st = rvi_mender_push(m, text, len, out, err);
    if (!st) st = rvi_mender_end(m, out, err);
    rvi_mender_free(m);
    return st;
}
