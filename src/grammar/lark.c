#include "grammar/lark.h"

#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "grammar/rx.h"

typedef struct lark {
    const char *start, *s, *end;
    rvi_buf *out;
    rvi_buf ignored;  /* alternatives of what may stand between terminals */
    bool ignores;     /* there are some */
    bool in_terminal; /* what is read is part of a terminal: nothing stands between its parts */
    int depth;
    rv_status st;
    rv_error *err;
} lark;

enum { MAX_NESTING = 100, MAX_COUNT = 1000000 };

/* Lark's module `common`, as expressions. */
static const struct {
    const char *name, *regex;
} common[] = {
    {"DIGIT", "[0-9]"},
    {"HEXDIGIT", "[0-9a-fA-F]"},
    {"INT", "[0-9]+"},
    {"SIGNED_INT", "[+-]?[0-9]+"},
    {"DECIMAL", "[0-9]+\\.[0-9]*|\\.[0-9]+"},
    {"FLOAT", "([0-9]+|[0-9]+\\.[0-9]*|\\.[0-9]+)[eE][+-]?[0-9]+|[0-9]+\\.[0-9]*|\\.[0-9]+"},
    {"SIGNED_FLOAT", "[+-]?(([0-9]+|[0-9]+\\.[0-9]*|\\.[0-9]+)[eE][+-]?[0-9]+|[0-9]+\\.[0-9]*|"
                     "\\.[0-9]+)"},
    {"NUMBER", "([0-9]+|[0-9]+\\.[0-9]*|\\.[0-9]+)([eE][+-]?[0-9]+)?"},
    {"SIGNED_NUMBER", "[+-]?([0-9]+|[0-9]+\\.[0-9]*|\\.[0-9]+)([eE][+-]?[0-9]+)?"},
    {"ESCAPED_STRING", "\"([^\"\\\\\\n]|\\\\[^\\n])*\""},
    {"LCASE_LETTER", "[a-z]"},
    {"UCASE_LETTER", "[A-Z]"},
    {"LETTER", "[a-zA-Z]"},
    {"WORD", "[a-zA-Z]+"},
    {"CNAME", "[_a-zA-Z][_a-zA-Z0-9]*"},
    {"WS_INLINE", "[ \\t]+"},
    {"WS", "[ \\t\\f\\r\\n]+"},
    {"CR", "\\r"},
    {"LF", "\\n"},
    {"NEWLINE", "(\\r?\\n)+"},
    {"SH_COMMENT", "#[^\\n]*"},
    {"CPP_COMMENT", "//[^\\n]*"},
    {"C_COMMENT", "/\\*([^*]|\\*+[^*/])*\\*+/"},
    {"SQL_COMMENT", "--[^\\n]*"},
};

static void fail(lark *l, rv_status st, const char *why)
{
    size_t line = 1;
    for (const char *c = l->start; c < RVI_MIN(l->s, l->end); c++) line += *c == '\n';
    if (!l->st) l->st = rvi_error(l->err, st, "Lark grammar: line %zu: %s", line, why);
}

/* ---- reading ---- */

static char peek(const lark *l)
{
    return !l->st && l->s < l->end ? *l->s : 0;
}

static bool eat(lark *l, const char *word)
{
    size_t len = strlen(word);
    if (l->st || (size_t)(l->end - l->s) < len || memcmp(l->s, word, len) != 0) return false;
    l->s += len;
    return true;
}

static bool is_comment(const lark *l)
{
    return peek(l) == '#' || (peek(l) == '/' && l->end - l->s > 1 && l->s[1] == '/');
}

static void skip(lark *l, bool lines)
{
    while (peek(l)) {
        if (is_comment(l)) {
            while (peek(l) && peek(l) != '\n') l->s++;
        } else if (strchr(lines ? " \t\f\r\n" : " \t\f\r", peek(l))) {
            l->s++;
        } else {
            return;
        }
    }
}

/* Inside a group lines mean nothing; outside, a line goes on with the next one if that begins with
 * a bar. */
static void skip_in_rule(lark *l)
{
    skip(l, l->depth > 0);
    const char *here = l->s;
    if (l->depth || peek(l) != '\n') return;
    skip(l, true);
    if (peek(l) != '|') l->s = here;
}

static bool word_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

typedef struct name {
    const char *text;
    size_t len;
} name;

static name read_name(lark *l)
{
    name n = {l->s, 0};
    while (word_char(peek(l))) l->s++;
    n.len = (size_t)(l->s - n.text);
    if (!n.len) fail(l, RV_E_CONFIG, "a name is expected");
    return n;
}

static bool is_terminal(name n)
{
    size_t i = 0;
    while (i < n.len && n.text[i] == '_') i++;
    return i < n.len && n.text[i] >= 'A' && n.text[i] <= 'Z';
}

static uint32_t number(lark *l)
{
    uint32_t n = 0;
    const char *first = l->s;
    for (; peek(l) >= '0' && peek(l) <= '9'; l->s++)
        n = n > MAX_COUNT ? n : n * 10 + (uint32_t)(*l->s - '0');
    if (l->s == first) fail(l, RV_E_CONFIG, "a number is expected");
    return n;
}

/* ---- writing ---- */

static void put(lark *l, const char *text)
{
    rvi_buf_puts(l->out, text);
}

/* A prefix keeps names from meaning something in GBNF. */
static void put_name(lark *l, name n)
{
    put(l, "lark-");
    rvi_buf_append(l->out, n.text, n.len);
}

static void put_character(lark *l, uint32_t cp)
{
    rvi_buf_printf(l->out, "\\U%08x", (unsigned)cp);
}

static void put_regex(lark *l, const char *text, size_t len)
{
    put(l, "%regex \"");
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '"' || text[i] == '\\') rvi_buf_putc(l->out, '\\');
        if (text[i] == '\n')
            put(l, "\\n");
        else
            rvi_buf_putc(l->out, text[i]);
    }
    put(l, "\"");
}

static void put_group(rvi_buf *out, const rvi_buf *inside, const char *end)
{
    rvi_buf_puts(out, "(");
    if (inside->len) rvi_buf_append(out, inside->data, inside->len);
    rvi_buf_puts(out, end);
}

/* ---- items ---- */

static uint32_t hex(lark *l, int n)
{
    uint32_t v = 0;
    for (int i = 0; i < n; i++, l->s++) {
        char c = peek(l), low = (char)(c | 32);
        if (!(c >= '0' && c <= '9') && !(low >= 'a' && low <= 'f')) {
            fail(l, RV_E_CONFIG, "a hexadecimal digit is expected");
            return 0;
        }
        v = v << 4 | (uint32_t)(c <= '9' ? c - '0' : low - 'a' + 10);
    }
    return v;
}

static uint32_t character(lark *l)
{
    static const char from[] = "nrtfvab0", to[] = "\n\r\t\f\v\a\b";
    uint32_t cp = 0;
    if (peek(l) != '\\') {
        l->s += rvi_utf8_decode(l->s, (size_t)(l->end - l->s), &cp, NULL);
        return cp;
    }
    l->s++;
    char c = peek(l);
    if (c) l->s++;
    if (c == 'x') return hex(l, 2);
    if (c == 'u') return hex(l, 4);
    if (c == 'U') cp = hex(l, 8);
    if (cp > RVI_RX_LAST) fail(l, RV_E_CONFIG, "no character");
    if (c == 'U') return cp;
    const char *at = c ? strchr(from, c) : NULL;
    if (at) return (unsigned char)to[at - from];
    if (c && !word_char(c)) return (unsigned char)c;
    fail(l, RV_E_CONFIG, "an unknown escape");
    return 0;
}

/* The characters of a text in quotes, 4 bytes each. */
static void read_text(lark *l, rvi_buf *out)
{
    if (!eat(l, "\"")) fail(l, RV_E_CONFIG, "a text is expected");
    while (peek(l) && peek(l) != '"' && peek(l) != '\n') {
        uint32_t cp = character(l);
        rvi_buf_append(out, (const char *)&cp, sizeof cp);
    }
    if (!eat(l, "\"")) fail(l, RV_E_CONFIG, "a text without its closing quote");
}

static uint32_t character_at(const rvi_buf *text, size_t i)
{
    uint32_t cp;
    memcpy(&cp, text->data + i * sizeof cp, sizeof cp);
    return cp;
}

/* Both cases, of the letters of ASCII. */
static void put_both_cases(lark *l, uint32_t cp)
{
    bool letter = cp < 0x80 && ((cp | 32) >= 'a' && (cp | 32) <= 'z');
    put(l, "[");
    put_character(l, cp);
    if (letter) put_character(l, cp ^ 32);
    put(l, "]");
}

static void read_literal(lark *l)
{
    rvi_buf text = {0}, last = {0};
    read_text(l, &text);
    size_t n = text.len / sizeof(uint32_t);
    if (eat(l, "..")) {
        read_text(l, &last);
        if (!l->st && !text.failed && !last.failed &&
            (n != 1 || last.len != sizeof(uint32_t) ||
             character_at(&text, 0) > character_at(&last, 0)))
            fail(l, RV_E_CONFIG, "a range needs one character on each side, in order");
        if (!l->st && n == 1 && last.len) {
            put(l, "[");
            put_character(l, character_at(&text, 0));
            put(l, "-");
            put_character(l, character_at(&last, 0));
            put(l, "]");
        }
    } else if (eat(l, "i")) {
        for (size_t i = 0; i < n; i++) put_both_cases(l, character_at(&text, i));
    } else {
        put(l, "\"");
        for (size_t i = 0; i < n; i++) put_character(l, character_at(&text, i));
        put(l, "\"");
    }
    if (!l->st && (text.failed || last.failed)) l->st = rvi_nomem(l->err, "grammar");
    rvi_buf_deinit(&text);
    rvi_buf_deinit(&last);
}

/* One character of an expression with flags, as an expression without. */
static void put_flagged(rvi_buf *to, char c, bool in_class, bool any_case, bool dot_all)
{
    bool letter = (c | 32) >= 'a' && (c | 32) <= 'z';
    if (c == '.' && !in_class && dot_all)
        rvi_buf_puts(to, "[^]");
    else if (letter && any_case && in_class)
        rvi_buf_printf(to, "%c%c", c, c ^ 32);
    else if (letter && any_case)
        rvi_buf_printf(to, "[%c%c]", c, c ^ 32);
    else
        rvi_buf_putc(to, c);
}

static void read_expression(lark *l)
{
    const char *first = ++l->s;
    bool in_class = false, any_case = false, dot_all = false;
    rvi_buf text = {0};
    for (; peek(l) && peek(l) != '\n' && (peek(l) != '/' || in_class); l->s++) {
        if (*l->s == '\\' && l->s + 1 < l->end)
            l->s++;
        else if (*l->s == '[')
            in_class = true;
        else if (*l->s == ']')
            in_class = false;
    }
    const char *end = l->s;
    if (!eat(l, "/")) fail(l, RV_E_CONFIG, "an expression without its closing /");
    for (; strchr("imslux", peek(l)) && peek(l); l->s++) {
        any_case = any_case || *l->s == 'i';
        dot_all = dot_all || *l->s == 's';
        if (*l->s == 'x' || *l->s == 'm') fail(l, RV_E_UNSUPPORTED, "the flags m and x");
    }
    in_class = false;
    for (const char *c = first; c < end && !l->st; c++) {
        if (*c == '\\' && c + 1 < end) {
            if (any_case && strchr("xucpP", c[1]))
                fail(l, RV_E_UNSUPPORTED, "an escape of a character with the flag i");
            if (c[1] != '/') rvi_buf_putc(&text, '\\');
            rvi_buf_putc(&text, *++c);
            continue;
        }
        if (any_case && in_class && *c == '-' && c[1] != ']')
            fail(l, RV_E_UNSUPPORTED, "a range of a class with the flag i: write both cases");
        in_class = *c == '[' || (in_class && *c != ']');
        put_flagged(&text, *c, in_class, any_case, dot_all);
    }
    if (!l->st && text.failed) l->st = rvi_nomem(l->err, "grammar");
    if (!l->st) put_regex(l, text.data ? text.data : "", text.len);
    rvi_buf_deinit(&text);
}

static void read_json(lark *l)
{
    bool quoted = false;
    int depth = 0;
    skip(l, true);
    const char *first = l->s;
    for (; peek(l); l->s++) {
        if (quoted) {
            quoted = *l->s != '"';
            l->s += *l->s == '\\' && l->s + 1 < l->end;
            continue;
        }
        quoted = *l->s == '"';
        depth += (*l->s == '{') - (*l->s == '}');
        if (*l->s == '}' && depth <= 0) break;
    }
    if (!eat(l, "}") || *first != '{') fail(l, RV_E_CONFIG, "%json: a schema is expected");
    put(l, "%json ");
    rvi_buf_append(l->out, first, (size_t)(l->s - first));
}

static void read_choice(lark *l);

/* One item. *whole: it is read as one terminal, behind which something to be ignored may stand. */
static bool read_atom(lark *l, bool *whole)
{
    char c = peek(l);
    *whole = true;
    if (c == '"') {
        read_literal(l);
    } else if (c == '/') {
        read_expression(l);
    } else if (eat(l, "%json")) {
        read_json(l);
    } else if (c == '(' || c == '[') {
        l->s++;
        *whole = false;
        if (++l->depth > MAX_NESTING) fail(l, RV_E_UNSUPPORTED, "nested too deeply");
        put(l, "(");
        read_choice(l);
        put(l, c == '[' ? ")?" : ")");
        l->depth--;
        if (!eat(l, c == '[' ? "]" : ")")) fail(l, RV_E_CONFIG, "a group without its end");
    } else if (word_char(c)) {
        name n = read_name(l);
        *whole = is_terminal(n);
        if (l->in_terminal && !*whole) fail(l, RV_E_CONFIG, "a terminal that contains a rule");
        if (peek(l) == '{') fail(l, RV_E_UNSUPPORTED, "templates");
        put_name(l, n);
    } else {
        if (c == '<') fail(l, RV_E_UNSUPPORTED, "special tokens");
        return false;
    }
    return !l->st;
}

/* ? * + ~n ~n..m */
static void read_repetition(lark *l)
{
    char c = peek(l);
    if (c && strchr("?*+", c)) {
        l->s++;
        rvi_buf_putc(l->out, c);
    } else if (eat(l, "~")) {
        skip(l, false);
        uint32_t min = number(l), max = min;
        if (eat(l, "..")) max = number(l);
        rvi_buf_printf(l->out, "{%u,%u}", (unsigned)min, (unsigned)max);
    }
}

static void read_sequence(lark *l)
{
    bool whole, any = false;
    for (skip_in_rule(l); peek(l); skip_in_rule(l)) {
        size_t before = l->out->len;
        put(l, "(");
        if (!read_atom(l, &whole)) {
            l->out->len = before;
            break;
        }
        if (whole && !l->in_terminal && l->ignores) put(l, " lark-ignored");
        put(l, ")");
        read_repetition(l);
        put(l, " ");
        any = true;
    }
    if (!any) put(l, "\"\" ");
    if (eat(l, "->")) { /* an alias names a part of the tree */
        skip(l, false);
        (void)read_name(l);
        skip_in_rule(l);
    }
}

static void read_choice(lark *l)
{
    read_sequence(l);
    while (eat(l, "|")) {
        put(l, "| ");
        read_sequence(l);
    }
}

/* ---- lines ---- */

/* Whether the next alternative begins with the rule itself; then that is read. */
static bool eat_self(lark *l, name self)
{
    const char *here = l->s;
    skip_in_rule(l);
    if (word_char(peek(l))) {
        name n = read_name(l);
        if (n.len == self.len && !memcmp(n.text, self.text, n.len) && !strchr("?*+~{", peek(l)))
            return true;
    }
    l->s = here;
    return false;
}

/* The alternatives of a rule: self a | b becomes (b)(a)*. */
static void read_body(lark *l, name self)
{
    rvi_buf first = {0}, again = {0}, *out = l->out;
    do {
        bool loops = !l->in_terminal && eat_self(l, self);
        l->out = loops ? &again : &first;
        if (l->out->len) put(l, "| ");
        read_sequence(l);
    } while (eat(l, "|"));
    l->out = out;
    if (!first.len && !first.failed) fail(l, RV_E_CONFIG, "a rule that always begins with itself");
    put_group(out, &first, ")");
    if (again.len) put_group(out, &again, ")*");
    if (!l->st && (first.failed || again.failed)) l->st = rvi_nomem(l->err, "grammar");
    rvi_buf_deinit(&first);
    rvi_buf_deinit(&again);
}

static void read_rule(lark *l)
{
    while (peek(l) == '?' || peek(l) == '!') l->s++;
    name n = read_name(l);
    l->in_terminal = is_terminal(n);
    if (peek(l) == '{') fail(l, RV_E_UNSUPPORTED, "templates");
    if (eat(l, ".")) { /* a priority decides between trees, not between texts */
        if (peek(l) == '-') l->s++;
        (void)number(l);
    }
    skip(l, false);
    if (!eat(l, ":")) fail(l, RV_E_CONFIG, "a : is expected");
    put_name(l, n);
    put(l, " ::= ");
    read_body(l, n);
    put(l, "\n");
    if (peek(l) && peek(l) != '\n') fail(l, RV_E_CONFIG, "an item is expected");
}

static void import_one(lark *l, bool may_rename)
{
    name n = read_name(l), as = n;
    skip(l, false);
    if (may_rename && eat(l, "->")) {
        skip(l, false);
        as = read_name(l);
    }
    for (size_t i = 0; i < RVI_COUNT(common) && !l->st; i++)
        if (strlen(common[i].name) == n.len && !memcmp(common[i].name, n.text, n.len)) {
            put_name(l, as);
            put(l, " ::= ");
            put_regex(l, common[i].regex, strlen(common[i].regex));
            put(l, "\n");
            return;
        }
    fail(l, RV_E_UNSUPPORTED, "%import: common has no such terminal here");
}

static void read_import(lark *l)
{
    skip(l, false);
    if (!eat(l, "common")) fail(l, RV_E_UNSUPPORTED, "%import of anything but common");
    if (eat(l, ".")) {
        import_one(l, true);
        return;
    }
    skip(l, false);
    if (!eat(l, "(")) fail(l, RV_E_CONFIG, "%import: a name is expected");
    do {
        skip(l, true);
        import_one(l, false);
        skip(l, true);
    } while (eat(l, ","));
    if (!eat(l, ")")) fail(l, RV_E_CONFIG, "%import: a ) is missing");
}

static void read_ignore(lark *l)
{
    rvi_buf *out = l->out;
    l->out = &l->ignored;
    l->in_terminal = true;
    if (l->ignored.len) put(l, "| ");
    read_choice(l);
    l->out = out;
}

static void read_line(lark *l)
{
    if (eat(l, "%ignore"))
        read_ignore(l);
    else if (eat(l, "%import"))
        read_import(l);
    else if (peek(l) == '%')
        fail(l, RV_E_UNSUPPORTED, "of statements only %ignore and %import are known");
    else
        read_rule(l);
}

rv_status rvi_lark_to_gbnf(rvi_buf *out, const char *text, size_t len, rv_error *err)
{
    lark l = {.start = text, .s = text, .end = text + len, .out = out, .err = err};
    for (size_t i = 0; i + 7 <= len && !l.ignores; i++) l.ignores = !memcmp(text + i, "%ignore", 7);
    if (memchr(text, 0, len)) fail(&l, RV_E_CONFIG, "a zero byte");
    put(&l, l.ignores ? "root ::= lark-ignored lark-start\n" : "root ::= lark-start\n");
    for (skip(&l, true); peek(&l); skip(&l, true)) read_line(&l);
    if (l.ignores) {
        put(&l, "lark-ignored ::= ");
        put_group(out, &l.ignored, ")*\n");
    }
    if (!l.st && (out->failed || l.ignored.failed)) l.st = rvi_nomem(err, "grammar");
    rvi_buf_deinit(&l.ignored);
    return l.st;
}
