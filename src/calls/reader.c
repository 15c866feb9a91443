#include "calls/reader.h"

#include <stdio.h>
#include <string.h>

#include "text/repair.h"

typedef enum state {
    START,   /* nothing but blanks so far */
    THOUGHT, /* inside the thoughts */
    TEXT,    /* a call may begin */
    PLAIN,   /* none can */
    OPEN,    /* what comes before a call's name */
    NAME,
    MIDDLE,
    ARGUMENTS, /* as JSON */
    MEMBERS,   /* as tags or keywords */
    VALUE,     /* of a member */
    CLOSE,
    NEXT /* another call, or the end of the section */
} state;

/* What held says of a text that may stand there. */
typedef enum match { NO, YES, MORE } match;

struct rvi_reader {
    rvi_reader_setup setup;
    state state;
    rvi_buf held; /* bytes that came, from `at` on not read yet */
    size_t at;
    rvi_buf raw;  /* of a call that was not told yet */
    bool ended;   /* no more bytes come */
    bool stopped; /* someone did not take what was said */
    char trigger[64];
    size_t n_calls;
    bool told;    /* the call was */
    bool first;   /* of its section */
    bool dropped; /* blanks: nothing of the text was told yet since a call or thought */
    char name[RVI_MAX_TOOL_NAME + 1], id[RVI_CALL_ID_LEN + 1];
    const rvi_tool *tool;
    int depth;
    bool quoted, escaped;
    size_t n_members;
    rvi_buf value; /* of a member that is not told piece by piece */
    bool is_text;
};

rv_status rvi_reader_new(rvi_reader **out, const rvi_reader_setup *setup, rv_error *err)
{
    *out = NULL;
    rvi_reader *r = rvi_zalloc(sizeof *r);
    if (!r) return rvi_nomem(err, "reader");
    r->setup = *setup;
    r->state = setup->thinking && setup->opened ? THOUGHT : START;
    r->dropped = true;
    if (setup->family) rvi_family_trigger(setup->family, r->trigger, sizeof r->trigger);
    *out = r;
    return RV_OK;
}

void rvi_reader_free(rvi_reader *r)
{
    if (!r) return;
    rvi_buf_deinit(&r->held);
    rvi_buf_deinit(&r->raw);
    rvi_buf_deinit(&r->value);
    rvi_free(r);
}

size_t rvi_reader_calls(const rvi_reader *r)
{
    return r->n_calls;
}

/* ---- saying ---- */

static void say(rvi_reader *r, rvi_reader_event_kind kind, const char *text, size_t len,
                bool complete)
{
    rvi_reader_event said = {.kind = kind, .text = text, .len = len, .complete = complete};
    if (kind >= RVI_SAID_CALL) {
        said.index = r->n_calls - 1;
        said.id = r->id;
        said.name = r->name;
    }
    if (kind < RVI_SAID_CALL || kind == RVI_SAID_ARGUMENTS)
        if (!len) return;
    if (!r->stopped && !r->setup.take(r->setup.ctx, &said)) r->stopped = true;
}

static void say_arguments(rvi_reader *r, const char *text)
{
    say(r, RVI_SAID_ARGUMENTS, text, strlen(text), false);
}

/* ---- the bytes that wait ---- */

static const char *rest(const rvi_reader *r)
{
    return r->held.data ? r->held.data + r->at : "";
}

static size_t left(const rvi_reader *r)
{
    return r->held.len - r->at;
}

static bool blank(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

/* Bytes of a call that was not told are kept: it may turn out to be text. */
static void skip(rvi_reader *r, size_t n)
{
    if (r->state >= OPEN && !r->told) rvi_buf_append(&r->raw, rest(r), n);
    r->at += n;
}

static void skip_blanks(rvi_reader *r)
{
    size_t n = 0;
    while (n < left(r) && blank(rest(r)[n])) n++;
    skip(r, n);
}

/* How many of the last bytes may be the beginning of a text. */
static size_t partial(const char *data, size_t len, const char *text, size_t text_len)
{
    size_t n = RVI_MIN(len, text_len ? text_len - 1 : 0);
    while (n && memcmp(data + len - n, text, n) != 0) n--;
    return n;
}

static const char *find(const char *data, size_t len, const char *text, size_t text_len)
{
    for (size_t i = 0; i + text_len <= len; i++)
        if (data[i] == *text && !memcmp(data + i, text, text_len)) return data + i;
    return NULL;
}

/* Whether a text comes next, blanks more or less; *n: how many bytes it has. Blanks that it ends
 * with are only taken as they stand. */
static match look_for(const rvi_reader *r, const char *text, size_t *n)
{
    const char *s = rest(r), *end = s + left(r);
    size_t len = strlen(text), core = len;
    while (core && blank(text[core - 1])) core--;
    for (size_t i = 0; i < core; i++) {
        if (blank(text[i])) continue;
        while (s < end && blank(*s)) s++;
        if (s == end) return r->ended ? NO : MORE;
        if (*s++ != text[i]) return NO;
    }
    for (size_t i = core; i < len; i++) {
        if (s == end && !r->ended) return MORE;
        if (s == end || *s != text[i]) break;
        s++;
    }
    *n = (size_t)(s - rest(r));
    return YES;
}

/* Whether all that is left is the beginning of a text. */
static bool begins(const rvi_reader *r, const char *text)
{
    const char *s = rest(r), *end = s + left(r);
    for (;; s++) {
        while (s < end && blank(*s)) s++;
        while (blank(*text)) text++;
        if (s == end || *s != *text++) return s == end;
    }
}

static const char *or_empty(const char *text)
{
    return text ? text : "";
}

/* ---- what was no call ---- */

static void begin_plain(rvi_reader *r)
{
    r->state = PLAIN;
    r->told = false;
}

static void break_off(rvi_reader *r)
{
    size_t len = strlen(r->trigger);
    bool told = r->told;
    if (told)
        say(r, RVI_SAID_CALL_END, NULL, 0, false);
    else if (len && r->state == OPEN && r->first)
        skip(r, len); /* the mark that was found, or it would be found again */
    if (!told) say(r, RVI_SAID_TEXT, r->raw.data, r->raw.len, false);
    r->raw.len = 0;
    r->dropped = false;
    begin_plain(r);
    if (len) r->state = TEXT;
}

/* false: nothing can be read before more bytes come, or the call was broken off and there is
 * something else to read. */
static bool expect(rvi_reader *r, const char *text, bool *waits)
{
    size_t n;
    match m = look_for(r, text, &n);
    *waits = m == MORE;
    if (m == YES) skip(r, n);
    if (m == NO) break_off(r);
    return m == YES;
}

/* ---- text and thoughts ---- */

/* Says the bytes before `upto`, and keeps blanks at their end back, which go where a call or the
 * end of the thoughts follows. */
static void say_before(rvi_reader *r, rvi_reader_event_kind kind, size_t upto, bool drop_blanks)
{
    size_t n = upto;
    while (n && blank(rest(r)[n - 1])) n--;
    if (!drop_blanks && r->ended) n = upto;
    size_t from = 0;
    while (r->dropped && from < n && blank(rest(r)[from])) from++;
    if (n > from) {
        say(r, kind, rest(r) + from, n - from, false);
        r->dropped = false;
    }
    r->at += drop_blanks ? upto : n > from ? n : 0;
}

static bool read_thought(rvi_reader *r)
{
    const char *close = r->setup.thinking->close;
    size_t len = strlen(close);
    const char *hit = find(rest(r), left(r), close, len);
    if (!hit) {
        size_t keep = r->ended ? 0 : partial(rest(r), left(r), close, len);
        say_before(r, RVI_SAID_THOUGHT, left(r) - keep, false);
        return false;
    }
    say_before(r, RVI_SAID_THOUGHT, (size_t)(hit - rest(r)), true);
    r->at += len;
    r->dropped = true;
    r->state = TEXT;
    return true;
}

/* Text until the first of two: a call that begins, or (at the beginning alone) thoughts. */
static bool read_start(rvi_reader *r)
{
    size_t blanks = 0, n;
    if (!r->setup.thinking) {
        r->state = TEXT;
        r->dropped = false; /* nothing was before: its blanks are the text's */
        return true;
    }
    while (blanks < left(r) && blank(rest(r)[blanks])) blanks++;
    match m = look_for(r, r->setup.thinking->open, &n);
    if (m == MORE) return false;
    if (m == YES) r->at += n;
    r->state = m == YES ? THOUGHT : TEXT;
    r->dropped = m == YES;
    return true;
}

static void begin_section(rvi_reader *r)
{
    r->state = OPEN;
    r->first = true;
    r->told = false;
    r->raw.len = 0;
}

static bool read_text(rvi_reader *r)
{
    size_t len = strlen(r->trigger), n = 0;
    if (!r->setup.family) {
        begin_plain(r);
        return true;
    }
    if (!len) { /* a call is an answer that begins with a brace */
        while (n < left(r) && blank(rest(r)[n])) n++;
        if (n == left(r) && !r->ended) return false;
        if (n < left(r) && rest(r)[n] == '{' && !r->n_calls)
            begin_section(r);
        else
            begin_plain(r);
        return true;
    }
    const char *hit = find(rest(r), left(r), r->trigger, len);
    if (!hit) {
        size_t keep = r->ended ? 0 : partial(rest(r), left(r), r->trigger, len);
        say_before(r, RVI_SAID_TEXT, left(r) - keep, r->ended && r->n_calls);
        return false;
    }
    const char *from = rest(r);
    say_before(r, RVI_SAID_TEXT, (size_t)(hit - from), true);
    begin_section(r);
    while (hit > from && blank(hit[-1])) hit--;
    rvi_buf_append(&r->raw, hit, (size_t)(rest(r) - hit)); /* blanks, which go if it is a call */
    return true;
}

/* ---- calls ---- */

static bool read_open(rvi_reader *r)
{
    const rvi_family *f = r->setup.family;
    char all[128];
    bool waits;
    int n = snprintf(all, sizeof all, "%s%s%s", r->first ? or_empty(f->section_open) : "",
                     or_empty(f->open), f->body == RVI_CALL_OBJECT ? "{\"name\": \"" : "");
    (void)n;
    if (!expect(r, all, &waits)) return !waits;
    r->first = false;
    r->state = NAME;
    return true;
}

static bool name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c && strchr("_.-", c));
}

static bool read_name(rvi_reader *r)
{
    size_t n = 0;
    while (n < left(r) && n <= RVI_MAX_TOOL_NAME && name_char(rest(r)[n])) n++;
    if (n == left(r) && !r->ended && n <= RVI_MAX_TOOL_NAME) return false;
    r->tool = n <= RVI_MAX_TOOL_NAME ? rvi_tools_find(r->setup.tools, rest(r), n) : NULL;
    if (!r->tool) {
        break_off(r);
        return true;
    }
    snprintf(r->name, sizeof r->name, "%s", r->tool->name);
    skip(r, n);
    r->state = MIDDLE;
    return true;
}

/* A call's id: nine letters and digits by the seed and the call's number. */
static void make_id(rvi_reader *r)
{
    static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    uint64_t x = r->setup.seed + 0x9E3779B97F4A7C15ull * (r->n_calls + 1);
    for (int i = 0; i < RVI_CALL_ID_LEN; i++) {
        x ^= x >> 30;
        x *= 0xBF58476D1CE4E5B9ull;
        x ^= x >> 27;
        x *= 0x94D049BB133111EBull;
        x ^= x >> 31;
        r->id[i] = digits[x % (sizeof digits - 1)];
    }
}

static void tell_call(rvi_reader *r)
{
    r->n_calls++;
    r->told = true;
    r->raw.len = 0;
    say(r, RVI_SAID_CALL, NULL, 0, false);
    r->depth = 0;
    r->quoted = r->escaped = false;
    r->n_members = 0;
}

/* The text between the name and the arguments; ids and numbers in it are what they are. */
static bool read_middle(rvi_reader *r)
{
    const rvi_family *f = r->setup.family;
    char text[128];
    size_t n = 0, more;
    make_id(r);
    if (f->body == RVI_CALL_OBJECT) {
        bool waits;
        snprintf(text, sizeof text, "\", \"%s\": ", f->arguments);
        if (!expect(r, text, &waits)) return !waits;
    } else {
        rvi_reader ahead = *r;
        for (const char *m = f->middle; *m; ahead.at += more) {
            size_t len = strcspn(m, RVI_CALL_ID RVI_CALL_NUMBER);
            bool id = !len && *m == *RVI_CALL_ID;
            match is = YES;
            more = 0;
            if (len) {
                snprintf(text, sizeof text, "%.*s", (int)len, m);
                is = look_for(&ahead, text, &more);
                m += len;
            } else {
                while (more < left(&ahead) && name_char(rest(&ahead)[more]) && more < 32) more++;
                if (more == left(&ahead))
                    is = r->ended ? NO : MORE;
                else if (!more || (id && more != RVI_CALL_ID_LEN))
                    is = NO;
                if (is == YES && id) memcpy(r->id, rest(&ahead), RVI_CALL_ID_LEN);
                m++;
            }
            if (is == MORE) return false;
            if (is == NO) {
                break_off(r);
                return true;
            }
            n += more;
        }
        skip(r, n);
    }
    tell_call(r);
    r->state = f->body == RVI_CALL_OBJECT || f->body == RVI_CALL_NAMED ? ARGUMENTS : MEMBERS;
    return true;
}

/* A JSON object, as it comes. */
static bool read_arguments(rvi_reader *r)
{
    size_t n = 0;
    if (!r->depth) {
        skip_blanks(r);
        if (!left(r) && !r->ended) return false;
        if (!left(r) || *rest(r) != '{') {
            break_off(r);
            return true;
        }
    }
    for (bool open = true; open && n < left(r); n++) {
        char c = rest(r)[n];
        if (r->escaped) {
            r->escaped = false;
        } else if (r->quoted) {
            r->escaped = c == '\\';
            r->quoted = c != '"';
        } else {
            r->quoted = c == '"';
            r->depth += (c == '{' || c == '[') - (c == '}' || c == ']');
            open = r->depth > 0;
        }
    }
    say(r, RVI_SAID_ARGUMENTS, rest(r), n, false);
    r->at += n;
    if (r->depth <= 0)
        r->state = CLOSE;
    else if (r->ended)
        break_off(r);
    return r->depth <= 0 || r->ended;
}

/* ---- members one by one ---- */

static const rvi_json *member_schema(const rvi_reader *r, const char *key)
{
    return rvi_json_get(rvi_json_get(r->tool->parameters, "properties"), key);
}

static void begin_member(rvi_reader *r, const char *key, size_t len)
{
    rvi_buf out = {0};
    char name[256];
    bool text, other;
    snprintf(name, sizeof name, "%.*s", (int)RVI_MIN(len, sizeof name - 1), key);
    rvi_tool_kinds(r->tool->parameters, member_schema(r, name), &text, &other);
    rvi_buf_puts(&out, r->n_members++ ? ", " : "{");
    rvi_json_write_string(&out, key, len);
    rvi_buf_puts(&out, ": ");
    say(r, RVI_SAID_ARGUMENTS, out.data, out.len, false);
    r->held.failed = r->held.failed || out.failed;
    rvi_buf_deinit(&out);
    r->value.len = 0;
    r->is_text = r->setup.family->body == RVI_CALL_TAGS && text && !other;
    if (r->is_text) say_arguments(r, "\"");
    r->state = VALUE;
}

static bool end_members(rvi_reader *r)
{
    say_arguments(r, r->n_members ? "}" : "{}");
    r->state = CLOSE;
    return true;
}

/* open key close */
static bool read_tag(rvi_reader *r)
{
    const rvi_family *f = r->setup.family;
    size_t open, n = 0, close;
    match key = look_for(r, f->key_open, &open), done = look_for(r, f->close, &close);
    if (done == YES) return end_members(r);
    if (key == NO && done == MORE) return false;
    if (key == MORE) return false;
    if (key == NO) {
        break_off(r);
        return true;
    }
    const char *name = rest(r) + open;
    while (open + n < left(r) && name[n] != *f->key_close && n < 256) n++;
    if (open + n == left(r) && !r->ended) return false;
    rvi_reader ahead = *r;
    ahead.at += open + n;
    match end = look_for(&ahead, f->key_close, &close);
    if (end == MORE) return false;
    if (end == NO || !n || n == 256) {
        break_off(r);
        return true;
    }
    begin_member(r, name, n);
    r->at += open + n + close;
    return true;
}

/* key= */
static bool read_keyword(rvi_reader *r)
{
    const char *s = rest(r);
    size_t at = 0, n = 0;
    while (at < left(r) && (blank(s[at]) || (r->n_members && s[at] == ','))) at++;
    if (at < left(r) && s[at] == ')') {
        r->at += at;
        return end_members(r);
    }
    while (at + n < left(r) && name_char(s[at + n]) && n < 256) n++;
    size_t equals = at + n;
    while (equals < left(r) && blank(s[equals])) equals++;
    if (equals >= left(r) && !r->ended && n < 256) return false;
    if (!n || n == 256 || equals >= left(r) || s[equals] != '=') {
        break_off(r);
        return true;
    }
    begin_member(r, s + at, n);
    r->at += equals + 1;
    r->depth = 0;
    r->quoted = r->escaped = false;
    return true;
}

static void say_escaped(rvi_reader *r, const char *text, size_t len)
{
    rvi_buf out = {0};
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '"' || c == '\\')
            rvi_buf_printf(&out, "\\%c", c);
        else if (c == '\n')
            rvi_buf_puts(&out, "\\n");
        else if (c < 0x20)
            rvi_buf_printf(&out, "\\u%04x", c);
        else
            rvi_buf_putc(&out, (char)c);
    }
    say(r, RVI_SAID_ARGUMENTS, out.data, out.len, false);
    r->held.failed = r->held.failed || out.failed;
    rvi_buf_deinit(&out);
}

/* A value as JSON: as it stands, as Python has it, or as a text. */
static void say_value(rvi_reader *r, const char *text, size_t len)
{
    rvi_arena arena = {.max = 64 << 20};
    const rvi_json *v;
    rvi_buf mended = {0};
    while (len && blank(*text)) text++, len--;
    while (len && blank(text[len - 1])) len--;
    bool tags = r->setup.family->body == RVI_CALL_TAGS;
    bool like =
        len && (strchr("-0123456789[{", *text) || (len == 4 && !memcmp(text, "true", 4)) ||
                (len == 4 && !memcmp(text, "null", 4)) || (len == 5 && !memcmp(text, "false", 5)));
    bool json = (like || !tags) && !rvi_json_parse(&v, text, len, &arena, "value", NULL);
    if (json)
        say(r, RVI_SAID_ARGUMENTS, text, len, false);
    else if (!tags && !rvi_json_repair(text, len, &mended, NULL, NULL, NULL) && mended.len)
        say(r, RVI_SAID_ARGUMENTS, mended.data, mended.len, false);
    else {
        say_arguments(r, "\"");
        say_escaped(r, text, len);
        say_arguments(r, "\"");
    }
    rvi_buf_deinit(&mended);
    rvi_arena_deinit(&arena);
}

static bool read_tagged_value(rvi_reader *r)
{
    const char *end = r->setup.family->value_end;
    size_t len = strlen(end);
    while (len && blank(end[len - 1])) len--;
    const char *hit = find(rest(r), left(r), end, len);
    size_t n = hit ? (size_t)(hit - rest(r)) : left(r) - partial(rest(r), left(r), end, len);
    if (r->is_text)
        say_escaped(r, rest(r), n);
    else
        rvi_buf_append(&r->value, rest(r), n);
    r->at += n;
    if (!hit) {
        if (r->ended) break_off(r);
        return r->ended;
    }
    r->at += len;
    if (r->is_text)
        say_arguments(r, "\"");
    else
        say_value(r, r->value.data ? r->value.data : "", r->value.len);
    r->state = MEMBERS;
    return true;
}

static bool read_keyword_value(rvi_reader *r)
{
    size_t n = 0;
    bool done = false;
    for (; n < left(r) && !done; n++) {
        char c = rest(r)[n];
        if (r->escaped) {
            r->escaped = false;
        } else if (r->quoted) {
            r->escaped = c == '\\';
            r->quoted = c != (r->is_text ? '\'' : '"');
        } else if (c == '"' || c == '\'') {
            r->quoted = true;
            r->is_text = c == '\'';
        } else {
            done = !r->depth && (c == ',' || c == ')');
            r->depth += (c == '{' || c == '[' || c == '(') - (c == '}' || c == ']' || c == ')');
        }
    }
    n -= done;
    rvi_buf_append(&r->value, rest(r), n);
    r->at += n;
    if (done) {
        say_value(r, r->value.data ? r->value.data : "", r->value.len);
        r->state = MEMBERS;
    } else if (r->ended) {
        break_off(r);
    }
    return done || r->ended;
}

/* ---- behind a call ---- */

static bool read_close(rvi_reader *r)
{
    const rvi_family *f = r->setup.family;
    size_t n = 0, at = 0;
    if (f->body == RVI_CALL_OBJECT) { /* members that say nothing, then the brace */
        bool quoted = false;
        while (at < left(r) && (quoted || rest(r)[at] != '}')) quoted ^= rest(r)[at++] == '"';
        if (at == left(r) && !r->ended) return false;
        at += at < left(r);
    }
    rvi_reader ahead = *r;
    ahead.at += at;
    match m = look_for(&ahead, or_empty(f->close), &n);
    if (m == MORE) return false;
    r->at += at + (m == YES ? n : 0);
    say(r, RVI_SAID_CALL_END, NULL, 0, true);
    r->told = false;
    r->dropped = true;
    r->state = f->section_close ? NEXT : TEXT;
    if (f->single) begin_plain(r);
    return true;
}

static bool read_next(rvi_reader *r)
{
    const rvi_family *f = r->setup.family;
    size_t n;
    match end = look_for(r, f->section_close, &n);
    if (end == MORE) return false;
    if (end == YES || (r->ended && begins(r, f->section_close))) {
        r->at += end == YES ? n : left(r);
        r->state = TEXT;
        return true;
    }
    match more = look_for(r, or_empty(f->between), &n);
    if (more == MORE) return false;
    r->raw.len = 0;
    r->state = OPEN;
    if (more == YES) skip(r, n);
    if (!left(r) && r->ended) begin_plain(r);
    return true;
}

static bool read_plain(rvi_reader *r)
{
    say_before(r, RVI_SAID_TEXT, left(r), r->ended && r->n_calls);
    return false;
}

/* Reads what can be read; false: more bytes are needed. */
static bool step(rvi_reader *r)
{
    bool tags = r->setup.family && r->setup.family->body == RVI_CALL_TAGS;
    switch (r->state) {
    case START: return read_start(r);
    case THOUGHT: return read_thought(r);
    case TEXT: return read_text(r);
    case PLAIN: return read_plain(r);
    case OPEN: return read_open(r);
    case NAME: return read_name(r);
    case MIDDLE: return read_middle(r);
    case ARGUMENTS: return read_arguments(r);
    case MEMBERS: return tags ? read_tag(r) : read_keyword(r);
    case VALUE: return tags ? read_tagged_value(r) : read_keyword_value(r);
    case CLOSE: return read_close(r);
    case NEXT: return read_next(r);
    }
    return false;
}

static rv_status run(rvi_reader *r, rv_error *err)
{
    while (!r->stopped && !r->held.failed && !r->raw.failed && !r->value.failed && step(r)) {
    }
    if (r->held.failed || r->raw.failed || r->value.failed) return rvi_nomem(err, "reader");
    if (r->stopped) return rvi_error(err, RV_E_CANCELLED, "reading was ended");
    if (r->at) memmove(r->held.data, r->held.data + r->at, left(r));
    r->held.len -= r->at;
    r->at = 0;
    return RV_OK;
}

rv_status rvi_reader_push(rvi_reader *r, const char *bytes, size_t len, rv_error *err)
{
    if (!rvi_buf_append(&r->held, bytes, len)) return rvi_nomem(err, "reader");
    return run(r, err);
}

rv_status rvi_reader_end(rvi_reader *r, rv_error *err)
{
    r->ended = true;
    return run(r, err);
}
