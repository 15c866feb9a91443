/* jinja_lex.c - template text to tokens, with Jinja's whitespace control.
 *
 * trim_blocks: one newline after %} and #} is dropped. lstrip_blocks: blanks between the start of a
 * line and {% or
 * {# are dropped. A minus sign inside a delimiter strips all white space on its side, a plus sign
 * keeps it. */
#include <string.h>

#include "base/number.h"
#include "base/utf8.h"
#include "template/jinja_ast.h"
#include "text/chars.h"

static const char *const token_names[] = {
    [RVI_JT_EOF] = "end of template",
    [RVI_JT_DATA] = "template data / text",
    [RVI_JT_BLOCK_BEGIN] = "begin of statement block",
    [RVI_JT_BLOCK_END] = "end of statement block",
    [RVI_JT_VAR_BEGIN] = "begin of print statement",
    [RVI_JT_VAR_END] = "end of print statement",
    [RVI_JT_NAME] = "name",
    [RVI_JT_STRING] = "string",
    [RVI_JT_INT] = "integer",
    [RVI_JT_FLOAT] = "float",
};

/* Longer ones first. */
static const struct {
    char text[3];
    rvi_jtoken_kind kind;
} operators[] = {
    {"//", RVI_JT_FLOORDIV}, {"**", RVI_JT_POW},      {"==", RVI_JT_EQ},    {"!=", RVI_JT_NE},
    {">=", RVI_JT_GE},       {"<=", RVI_JT_LE},       {"+", RVI_JT_ADD},    {"-", RVI_JT_SUB},
    {"/", RVI_JT_DIV},       {"*", RVI_JT_MUL},       {"%", RVI_JT_MOD},    {"~", RVI_JT_TILDE},
    {"[", RVI_JT_LBRACKET},  {"]", RVI_JT_RBRACKET},  {"(", RVI_JT_LPAREN}, {")", RVI_JT_RPAREN},
    {"{", RVI_JT_LBRACE},    {"}", RVI_JT_RBRACE},    {">", RVI_JT_GT},     {"<", RVI_JT_LT},
    {"=", RVI_JT_ASSIGN},    {".", RVI_JT_DOT},       {":", RVI_JT_COLON},  {"|", RVI_JT_PIPE},
    {",", RVI_JT_COMMA},     {";", RVI_JT_SEMICOLON},
};

const char *rvi_jtoken_name(rvi_jtoken_kind kind)
{
    if ((size_t)kind < RVI_COUNT(token_names) && token_names[kind]) return token_names[kind];
    for (size_t i = 0; i < RVI_COUNT(operators); i++)
        if (operators[i].kind == kind) return operators[i].text;
    return "?";
}

static rv_status bad(rvi_jlexer *lex, const char *what)
{
    return rvi_error(lex->err, RV_E_TOKENIZATION, "chat template, line %u: %s", lex->line, what);
}

rv_status rvi_jlexer_init(rvi_jlexer *lex, const char *text, size_t len, rvi_arena *arena,
                          rv_error *err)
{
    *lex = (rvi_jlexer){.line = 1, .pending = -1, .arena = arena, .err = err};
    if (len > RVI_JINJA_MAX_TEXT)
        return rvi_error(err, RV_E_TOKENIZATION, "chat template of %zu bytes: too long", len);
    char *copy = rvi_arena_alloc(arena, 3 * len + 1, 1); /* an invalid byte becomes U+FFFD */
    if (!copy) return rvi_nomem(err, "chat template");
    size_t n = 0;
    for (size_t i = 0; i < len;) {
        uint32_t cp;
        if (text[i] == '\r') {
            copy[n++] = '\n';
            i += i + 1 < len && text[i + 1] == '\n' ? 2 : 1;
        } else {
            i += rvi_utf8_decode(text + i, len - i, &cp, NULL);
            n += rvi_utf8_encode(cp, copy + n);
        }
    }
    if (n && copy[n - 1] == '\n') n--;
    lex->src = copy;
    lex->len = n;
    return RV_OK;
}

/* ---- small helpers over the text ---- */

static bool at(const rvi_jlexer *lex, size_t pos, const char *text)
{
    size_t n = strlen(text);
    return pos <= lex->len && lex->len - pos >= n && !memcmp(lex->src + pos, text, n);
}

static size_t skip_space(const rvi_jlexer *lex, size_t pos)
{
    while (pos < lex->len) {
        uint32_t cp;
        size_t used = rvi_utf8_decode(lex->src + pos, lex->len - pos, &cp, NULL);
        if (!rvi_char_space(cp)) break;
        pos += used;
    }
    return pos;
}

static size_t strip_end(const char *src, size_t from, size_t to)
{
    while (to > from) {
        size_t start = to - 1;
        while (start > from && ((unsigned char)src[start] & 0xC0) == 0x80) start--;
        uint32_t cp;
        rvi_utf8_decode(src + start, to - start, &cp, NULL);
        if (!rvi_char_space(cp)) break;
        to = start;
    }
    return to;
}

static void move_to(rvi_jlexer *lex, size_t pos)
{
    for (size_t i = lex->pos; i < pos; i++) lex->line += lex->src[i] == '\n';
    lex->pos = pos;
}

/* Where text that starts at `from` and is followed by a delimiter at `to` ends, once the
 * delimiter's white space control has been applied. sign: the character after the delimiter. */
static size_t data_end(const rvi_jlexer *lex, size_t from, size_t to, char sign, bool is_variable)
{
    if (sign == '-') return strip_end(lex->src, from, to);
    if (sign == '+' || is_variable) return to;
    size_t line = to;
    while (line > from && lex->src[line - 1] != '\n') line--;
    bool line_start = line > from || from == 0 || lex->src[from - 1] == '\n';
    return line_start && strip_end(lex->src, line, to) == line ? line : to;
}

/* The end of a tag at pos: "-X" and the white space behind it, "+X" (blocks only), or X and (blocks
 * only) a newline. SIZE_MAX: there is none. */
static size_t tag_end(const rvi_jlexer *lex, size_t pos, const char *close, bool block)
{
    if (block && pos < lex->len && lex->src[pos] == '+' && at(lex, pos + 1, close)) return pos + 3;
    if (pos < lex->len && lex->src[pos] == '-' && at(lex, pos + 1, close))
        return skip_space(lex, pos + 3);
    if (!at(lex, pos, close)) return SIZE_MAX;
    pos += 2;
    return block && pos < lex->len && lex->src[pos] == '\n' ? pos + 1 : pos;
}

/* {% raw %} at pos: where its text starts, or SIZE_MAX. */
static size_t raw_begin(const rvi_jlexer *lex, size_t pos)
{
    pos += 2;
    if (pos < lex->len && (lex->src[pos] == '-' || lex->src[pos] == '+')) pos++;
    pos = skip_space(lex, pos);
    if (!at(lex, pos, "raw")) return SIZE_MAX;
    pos = skip_space(lex, pos + 3);
    if (at(lex, pos, "-%}")) return skip_space(lex, pos + 3);
    return at(lex, pos, "%}") ? pos + 2 : SIZE_MAX;
}

/* {% endraw %} from pos on: its place, sign and end. */
static bool raw_end(const rvi_jlexer *lex, size_t pos, size_t *where, char *sign, size_t *end)
{
    for (; pos + 1 < lex->len; pos++) {
        const char *hit = memchr(lex->src + pos, '{', lex->len - pos);
        if (!hit) return false;
        pos = (size_t)(hit - lex->src);
        if (!at(lex, pos, "{%")) continue;
        size_t p = pos + 2;
        *sign = p < lex->len ? lex->src[p] : 0;
        if (*sign == '-' || *sign == '+') p++;
        p = skip_space(lex, p);
        if (!at(lex, p, "endraw")) continue;
        *end = tag_end(lex, skip_space(lex, p + 6), "%}", true);
        if (*end == SIZE_MAX) continue;
        *where = pos;
        return true;
    }
    return false;
}

static void data_token(const rvi_jlexer *lex, rvi_jtoken *out, size_t from, size_t to)
{
    out->kind = RVI_JT_DATA;
    out->text = lex->src + from;
    out->len = to - from;
}

static char sign_at(const rvi_jlexer *lex, size_t pos)
{
    return pos < lex->len && (lex->src[pos] == '-' || lex->src[pos] == '+') ? lex->src[pos] : 0;
}

/* One piece of text outside tags and, where one follows at once, the beginning of a tag. Sets
 * out->kind to DATA (maybe with no text) or EOF. */
static rv_status lex_data(rvi_jlexer *lex, rvi_jtoken *out)
{
    size_t from = lex->pos, p = from;
    if (from >= lex->len) {
        out->kind = RVI_JT_EOF;
        return RV_OK;
    }
    for (;; p++) {
        const char *hit = p < lex->len ? memchr(lex->src + p, '{', lex->len - p) : NULL;
        if (!hit) {
            data_token(lex, out, from, lex->len);
            move_to(lex, lex->len);
            return RV_OK;
        }
        p = (size_t)(hit - lex->src);
        if (at(lex, p, "{%") || at(lex, p, "{{") || at(lex, p, "{#")) break;
    }
    char type = lex->src[p + 1], sign = sign_at(lex, p + 2);
    data_token(lex, out, from, data_end(lex, from, p, sign, type == '{'));
    size_t inside = p + 2 + (sign != 0);

    if (type == '#') {
        size_t end = inside;
        while (end < lex->len && !at(lex, end, "#}")) end++;
        move_to(lex, p);
        if (end >= lex->len) return bad(lex, "Missing end of comment tag");
        char before = end > inside ? lex->src[end - 1] : 0;
        end += 2;
        if (before == '-')
            end = skip_space(lex, end);
        else if (before != '+' && end < lex->len && lex->src[end] == '\n')
            end++;
        move_to(lex, end);
        return RV_OK;
    }
    size_t raw = type == '%' ? raw_begin(lex, p) : SIZE_MAX;
    if (raw != SIZE_MAX) {
        size_t where = 0, end = 0;
        char end_sign = 0;
        move_to(lex, raw);
        if (!raw_end(lex, raw, &where, &end_sign, &end))
            return bad(lex, "Missing end of raw directive");
        size_t stop = data_end(lex, raw, where, end_sign, false);
        /* The text before the tag and the raw text become one token. */
        char *both = rvi_arena_alloc(lex->arena, out->len + (stop - raw) + 1, 1);
        if (!both) return rvi_nomem(lex->err, "chat template");
        if (out->len) memcpy(both, out->text, out->len);
        memcpy(both + out->len, lex->src + raw, stop - raw);
        out->text = both;
        out->len += stop - raw;
        move_to(lex, end);
        return RV_OK;
    }
    move_to(lex, inside);
    lex->state = type == '%' ? RVI_JLEX_BLOCK : RVI_JLEX_VAR;
    lex->pending = type == '%' ? RVI_JT_BLOCK_BEGIN : RVI_JT_VAR_BEGIN;
    return RV_OK;
}

/* ---- inside tags ---- */

static int digit_value(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return 99;
}

static bool is_digit(const rvi_jlexer *lex, size_t pos)
{
    return pos < lex->len && lex->src[pos] >= '0' && lex->src[pos] <= '9';
}

/* digits with single underscores between them: the position behind, or pos where there are none */
static size_t digit_run(const rvi_jlexer *lex, size_t pos)
{
    size_t end = pos;
    while (is_digit(lex, end) ||
           (end > pos && end < lex->len && lex->src[end] == '_' && is_digit(lex, end + 1)))
        end++;
    return end;
}

/* A float at pos: the position behind, or pos where there is none. */
static size_t float_end(const rvi_jlexer *lex, size_t pos)
{
    if (pos && lex->src[pos - 1] == '.') return pos;
    size_t end = digit_run(lex, pos), p = end;
    bool fraction = false;
    if (p == pos) return pos;
    if (p < lex->len && lex->src[p] == '.' && is_digit(lex, p + 1)) {
        p = digit_run(lex, p + 1);
        fraction = true;
    }
    size_t e = p;
    if (e < lex->len && (lex->src[e] == 'e' || lex->src[e] == 'E')) {
        e++;
        if (e < lex->len && (lex->src[e] == '+' || lex->src[e] == '-')) e++;
        if (is_digit(lex, e)) return digit_run(lex, e);
    }
    return fraction ? p : pos;
}

static rv_status lex_float(rvi_jlexer *lex, rvi_jtoken *out, size_t end)
{
    char copy[400];
    size_t n = 0;
    for (size_t i = lex->pos; i < end; i++) {
        if (lex->src[i] == '_') continue;
        if (n + 1 >= sizeof copy) return bad(lex, "number with too many digits");
        copy[n++] = lex->src[i];
    }
    copy[n] = 0;
    out->kind = RVI_JT_FLOAT;
    out->number = rvi_number_parse(copy, NULL);
    lex->pos = end;
    return RV_OK;
}

static rv_status lex_int(rvi_jlexer *lex, rvi_jtoken *out)
{
    size_t p = lex->pos;
    int base = 10;
    char mark = p + 1 < lex->len && lex->src[p] == '0' ? (char)(lex->src[p + 1] | 0x20) : 0;
    if (mark == 'x' || mark == 'o' || mark == 'b') {
        base = mark == 'x' ? 16 : mark == 'o' ? 8 : 2;
        size_t first = p + 2 + (p + 2 < lex->len && lex->src[p + 2] == '_');
        if (first < lex->len && digit_value(lex->src[first]) < base)
            p = first;
        else
            base = 10;
    }
    bool only_zeros = base == 10 && lex->src[p] == '0';
    int64_t value = 0;
    for (bool first = true; p < lex->len; first = false) {
        size_t q = p + (!first && lex->src[p] == '_');
        int d = q < lex->len ? digit_value(lex->src[q]) : 99;
        if (d >= base || (only_zeros && d)) break;
        if (value > (INT64_MAX - d) / base) return bad(lex, "integer beyond 64 bits");
        value = value * base + d;
        p = q + 1;
    }
    out->kind = RVI_JT_INT;
    out->integer = value;
    lex->pos = p;
    return RV_OK;
}

/* n hexadecimal digits at *p, within end. */
static bool hex(const char *src, size_t *p, size_t end, size_t n, uint32_t *out)
{
    *out = 0;
    if (end - *p < n) return false;
    for (size_t i = 0; i < n; i++) {
        int d = digit_value(src[*p + i]);
        if (d > 15) return false;
        *out = *out << 4 | (uint32_t)d;
    }
    *p += n;
    return true;
}

/* The escape behind the backslash at *p - 1. Appends to dst[*n]; an image is never longer than its
 * escape but for a backslash before a character beyond ASCII, which Python turns into that
 * character's escape (at most 11 bytes). */
static rv_status unescape(rvi_jlexer *lex, size_t *p, size_t end, char *dst, size_t *n)
{
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    char c = lex->src[*p];
    uint32_t cp, low;
    const char *known = c ? strchr(from, c) : NULL;
    if (known) {
        dst[(*n)++] = to[known - from];
        ++*p;
    } else if (c == '\n') {
        ++*p;
    } else if (c >= '0' && c <= '7') {
        cp = 0;
        for (int i = 0; i < 3 && *p < end && lex->src[*p] >= '0' && lex->src[*p] <= '7'; i++, ++*p)
            cp = cp * 8 + (uint32_t)(lex->src[*p] - '0');
        *n += rvi_utf8_encode(cp, dst + *n);
    } else if (c == 'x' || c == 'u' || c == 'U') {
        ++*p;
        if (!hex(lex->src, p, end, c == 'x' ? 2 : c == 'u' ? 4 : 8, &cp) || cp > 0x10FFFF)
            return bad(lex, c == 'x' ? "truncated \\xXX escape" : "bad \\u escape");
        size_t pair = *p + 2;
        if (cp >= 0xD800 && cp < 0xDC00 && *p + 6 <= end && lex->src[*p] == '\\' &&
            lex->src[*p + 1] == 'u' && hex(lex->src, &pair, end, 4, &low) && low >= 0xDC00 &&
            low < 0xE000) {
            cp = 0x10000 + ((cp - 0xD800) << 10) + (low - 0xDC00);
            *p = pair;
        }
        *n += rvi_utf8_encode(cp, dst + *n);
    } else if (c == 'N') {
        return bad(lex, "\\N escapes are not supported");
    } else if ((unsigned char)c >= 0x80) {
        static const char digits[] = "0123456789abcdef";
        *p += rvi_utf8_decode(lex->src + *p, end - *p, &cp, NULL);
        int width = cp < 0x100 ? 2 : cp < 0x10000 ? 4 : 8;
        dst[(*n)++] = '\\';
        dst[(*n)++] = width == 2 ? 'x' : width == 4 ? 'u' : 'U';
        for (int i = width - 1; i >= 0; i--) dst[(*n)++] = digits[cp >> (4 * i) & 15];
    } else {
        dst[(*n)++] = '\\'; /* unknown escapes stay as they are */
        dst[(*n)++] = c;
        ++*p;
    }
    return RV_OK;
}

static rv_status lex_string(rvi_jlexer *lex, rvi_jtoken *out)
{
    char quote = lex->src[lex->pos];
    size_t p = lex->pos + 1, end = p;
    while (end < lex->len && lex->src[end] != quote) end += lex->src[end] == '\\' ? 2 : 1;
    if (end >= lex->len) return bad(lex, "string without an end");
    char *dst = rvi_arena_alloc(lex->arena, 4 * (end - p) + 1, 1);
    if (!dst) return rvi_nomem(lex->err, "chat template");
    size_t n = 0;
    while (p < end) {
        if (lex->src[p] != '\\') {
            dst[n++] = lex->src[p++];
            continue;
        }
        p++;
        rv_status st = unescape(lex, &p, end, dst, &n);
        if (st) return st;
    }
    out->kind = RVI_JT_STRING;
    out->text = dst;
    out->len = n;
    move_to(lex, end + 1);
    return RV_OK;
}

static rv_status lex_operator(rvi_jlexer *lex, rvi_jtoken *out)
{
    for (size_t i = 0; i < RVI_COUNT(operators); i++) {
        const char *text = operators[i].text;
        if (!at(lex, lex->pos, text)) continue;
        if (strchr("([{", text[0]) && !text[1]) {
            if (lex->n_brackets == sizeof lex->brackets)
                return bad(lex, "brackets nested too deeply");
            lex->brackets[lex->n_brackets++] = text[0] == '(' ? ')' : text[0] == '[' ? ']' : '}';
        } else if (strchr(")]}", text[0]) && !text[1]) {
            char message[40] = "unexpected '?'";
            message[12] = text[0];
            if (!lex->n_brackets || lex->brackets[--lex->n_brackets] != text[0])
                return bad(lex, message);
        }
        out->kind = operators[i].kind;
        lex->pos += strlen(text);
        return RV_OK;
    }
    return bad(lex, "unexpected character in a tag");
}

static rv_status lex_tag(rvi_jlexer *lex, rvi_jtoken *out)
{
    bool block = lex->state == RVI_JLEX_BLOCK;
    for (;;) { /* white space; a closing delimiter counts only outside brackets */
        size_t end =
            lex->n_brackets ? SIZE_MAX : tag_end(lex, lex->pos, block ? "%}" : "}}", block);
        if (end != SIZE_MAX) {
            out->line = lex->line;
            out->kind = block ? RVI_JT_BLOCK_END : RVI_JT_VAR_END;
            lex->state = RVI_JLEX_DATA;
            move_to(lex, end);
            return RV_OK;
        }
        size_t p = skip_space(lex, lex->pos);
        if (p == lex->pos) break;
        move_to(lex, p);
    }
    out->line = lex->line;
    if (lex->pos >= lex->len) {
        out->kind = RVI_JT_EOF;
        return RV_OK;
    }
    char c = lex->src[lex->pos];
    if (c >= '0' && c <= '9') {
        size_t end = float_end(lex, lex->pos);
        return end > lex->pos ? lex_float(lex, out, end) : lex_int(lex, out);
    }
    if (c == '"' || c == '\'') return lex_string(lex, out);
    size_t p = lex->pos;
    while (p < lex->len) {
        uint32_t cp;
        size_t used = rvi_utf8_decode(lex->src + p, lex->len - p, &cp, NULL);
        if (!rvi_char_word(cp)) break;
        p += used;
    }
    if (p == lex->pos) return lex_operator(lex, out);
    if (p - lex->pos > RVI_JINJA_MAX_NAME) return bad(lex, "a name of more than 1000 bytes");
    out->kind = RVI_JT_NAME;
    out->text = lex->src + lex->pos;
    out->len = p - lex->pos;
    lex->pos = p;
    return RV_OK;
}

rv_status rvi_jlexer_next(rvi_jlexer *lex, rvi_jtoken *out)
{
    for (;;) {
        *out = (rvi_jtoken){.line = lex->line};
        if (lex->pending >= 0) {
            out->kind = (rvi_jtoken_kind)lex->pending;
            lex->pending = -1;
            return RV_OK;
        }
        rv_status st = lex->state == RVI_JLEX_DATA ? lex_data(lex, out) : lex_tag(lex, out);
        if (st || out->kind != RVI_JT_DATA || out->len) return st;
    }
}
