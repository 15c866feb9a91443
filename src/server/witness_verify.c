#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/os.h"
#include "server/witness.h"

enum { MOST_LINE = 128 << 10 };

typedef struct check {
    const char *folder;
    rvi_witness_report *out;
    uint64_t line, last;       /* last: the number of the last record */
    char head[RVI_SHA256_HEX]; /* of the line before */
    rv_error *err;
} check;

static rv_status wrong(const check *c, const char *what)
{
    return rvi_error(c->err, RV_E_STORAGE, "%s/witness.jsonl:%llu: %s", c->folder,
                     (unsigned long long)c->line, what);
}

/* *there: the file is; it must have this hash then. */
static rv_status check_content(const check *c, const char *side, const char *hash, bool *there)
{
    rvi_buf path = {0};
    rvi_sha256 h;
    char bytes[4096], found[RVI_SHA256_HEX];
    rvi_buf_printf(&path, "%s/contents/%012llu.%s", c->folder, (unsigned long long)c->last, side);
    if (path.failed) return rvi_nomem(c->err, "witness log");
    FILE *f = fopen(path.data, "rb");
    *there = f;
    rv_status st = RV_OK;
    rvi_sha256_init(&h);
    for (size_t n; f && (n = fread(bytes, 1, sizeof bytes, f));) rvi_sha256_add(&h, bytes, n);
    rvi_sha256_end_hex(&h, found);
    if (f && ferror(f))
        st = rvi_error(c->err, RV_E_IO, "%s cannot be read", path.data);
    else if (f && (!hash || strcmp(found, hash)))
        st = rvi_error(c->err, RV_E_STORAGE, "%s is not what the log says it was", path.data);
    if (f) (void)fclose(f);
    rvi_buf_deinit(&path);
    return st;
}

static rv_status check_contents(check *c, const rvi_json *v)
{
    static const char *const sides[] = {"in", "out"};
    for (size_t i = 0; i < RVI_COUNT(sides); i++) {
        bool there;
        rv_status st =
            check_content(c, sides[i], rvi_json_string(rvi_json_get(v, sides[i]), NULL), &there);
        if (st) return st;
        c->out->kept += there;
        c->out->deleted += !there;
    }
    return RV_OK;
}

static rv_status check_record(check *c, const rvi_json *v)
{
    const rvi_json *kind = rvi_json_get(v, "kind");
    uint64_t n = (uint64_t)rvi_json_int(rvi_json_get(v, "n"), 0);
    if (!rvi_json_is_string(rvi_json_get(v, "prev"), c->head))
        return wrong(c, "the chain is broken: it does not follow the line before it");
    if (n != c->last + 1) return wrong(c, "its number is not the next one");
    c->last = n;
    if (rvi_json_is_string(kind, "start")) {
        c->out->starts++;
    } else if (rvi_json_is_string(kind, "dropped")) {
        c->out->dropped += (uint64_t)rvi_json_int(rvi_json_get(v, "count"), 0);
    } else {
        c->out->records++;
        if (rvi_json_bool(rvi_json_get(v, "kept"), false)) return check_contents(c, v);
    }
    return RV_OK;
}

/* A line that is no record is one that a crash cut short, and only a start may follow it; that the
 * chain goes over it is seen there. */
static rv_status check_line(check *c, const char *text, size_t len, bool after_torn, bool *torn)
{
    rvi_arena arena = {.max = 16 * MOST_LINE};
    const rvi_json *v = NULL;
    rv_error err;
    rvi_sha256 h;
    *torn = rvi_json_parse(&v, text, len, &arena, "line", &err) || !rvi_json_get(v, "prev");
    rv_status st = RV_OK;
    if (*torn)
        c->out->torn++;
    else
        st = check_record(c, v);
    const rvi_json *kind = rvi_json_get(v, "kind");
    if (!st && after_torn &&
        (*torn || !(rvi_json_is_string(kind, "start") || rvi_json_is_string(kind, "dropped"))))
        st = wrong(c, "the line before it is no record");
    rvi_arena_deinit(&arena);
    rvi_sha256_init(&h);
    rvi_sha256_add(&h, text, len);
    rvi_sha256_end_hex(&h, c->head);
    return st;
}

/* The next line without its end; *more: there was one. */
static rv_status next_line(const check *c, FILE *f, char *line, size_t *len, bool *more)
{
    int b;
    *len = 0;
    while ((b = getc(f)) != EOF && b != '\n') {
        if (*len == MOST_LINE) return wrong(c, "it is too long for a line of this log");
        line[(*len)++] = (char)b;
    }
    *more = b != EOF || *len;
    return ferror(f) ? wrong(c, "it cannot be read") : RV_OK;
}

rv_status rvi_witness_verify(const char *folder, const char *head, rvi_witness_report *out,
                             rv_error *err)
{
    rvi_buf path = {0};
    char *line = rvi_alloc_array(MOST_LINE, 1);
    check c = {.folder = folder, .out = out, .err = err};
    bool more = true, torn = false, met = !head;
    *out = (rvi_witness_report){0};
    memset(c.head, '0', sizeof c.head - 1);
    rvi_buf_printf(&path, "%s/witness.jsonl", folder);
    FILE *f = line && !path.failed ? fopen(path.data, "rb") : NULL;
    rv_status st = RV_OK;
    if (!line || path.failed)
        st = rvi_nomem(err, "witness log");
    else if (!f)
        st = rvi_error(err, RV_E_NOT_FOUND, "%s: %s", path.data, strerror(errno));
    while (!st && more) {
        size_t len;
        bool after_torn = torn;
        c.line++;
        st = next_line(&c, f, line, &len, &more);
        if (!st && more) st = check_line(&c, line, len, after_torn, &torn);
        met = met || !strcmp(c.head, head);
    }
    if (!st && !met)
        st = rvi_error(err, RV_E_STORAGE, "%s has no line with the hash %s: some were cut off",
                       path.data, head);
    memcpy(out->head, c.head, sizeof out->head);
    if (f) (void)fclose(f);
    rvi_buf_deinit(&path);
    rvi_free(line);
    return st;
}
