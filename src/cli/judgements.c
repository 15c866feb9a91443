/* The learner keeps no texts of what was judged: they are read from its log. */
#include "cli/judgements.h"

#include <string.h>

#include "base/error.h"

enum { HASH = 32 }; /* bytes before the JSON of a record of the log */

typedef struct reader {
    cli_judgements *out;
    rvi_arena *arena;
    const char *user;
    bool failed;
} reader;

static bool add(cli_judgements *j, const cli_judgement *x)
{
    if (j->n == j->cap) {
        size_t cap = j->cap ? j->cap * 2 : 64;
        cli_judgement *grown = rvi_realloc_array(j->list, cap, sizeof *grown);
        if (!grown) return false;
        j->list = grown;
        j->cap = cap;
    }
    j->list[j->n++] = *x;
    return true;
}

static void remove_one(cli_judgements *j, uint64_t event)
{
    for (size_t i = j->n; i-- > 0;)
        if (j->list[i].event == event)
            memmove(&j->list[i], &j->list[i + 1], (--j->n - i) * sizeof *j->list);
}

static int note_event(void *ctx, uint64_t event, rv_bytes record)
{
    reader *r = ctx;
    const rvi_json *e;
    if (record.len <= HASH || rvi_json_parse(&e, (const char *)record.data + HASH,
                                             record.len - HASH, r->arena, "event", NULL))
        return 0;
    const rvi_json *kind = rvi_json_get(e, "kind");
    if (strcmp(rvi_json_string(rvi_json_get(e, "user"), ""), r->user) != 0) return 0;
    if (rvi_json_is_string(kind, "undo") || rvi_json_is_string(kind, "forget"))
        remove_one(r->out, (uint64_t)rvi_json_int(rvi_json_get(e, "target"), 0));
    bool bad = rvi_json_is_string(kind, "thumb");
    if (!bad && !rvi_json_is_string(kind, "score")) return 0;
    cli_judgement x = {event,
                       bad,
                       rvi_json_number(rvi_json_get(e, "score"), 0),
                       rvi_json_string(rvi_json_get(e, "question"), ""),
                       rvi_json_string(rvi_json_get(e, "given"), ""),
                       rvi_json_string(rvi_json_get(e, "note"), "")};
    r->failed = !add(r->out, &x);
    return r->failed;
}

rv_status cli_judgements_read(cli_judgements *out, rv_store *store, const char *user,
                              rvi_arena *arena, rv_error *err)
{
    reader r = {.out = out, .arena = arena, .user = user};
    rv_status st = store->read(store->ctx, "feedback", 1, note_event, &r, err);
    if (!st && r.failed) st = rvi_nomem(err, "judgements");
    if (st) out->n = 0; /* of a part nobody knows what was taken back */
    return st;
}

void cli_judgement_write(const cli_judgement *x, rvi_arena *arena, rvi_buf *out)
{
    enum { WIDTH = 60 };
    const char *answer = cli_one_line(arena, x->answer);
    size_t len = strlen(answer), cut = RVI_MIN(len, (size_t)WIDTH);
    while (cut < len && cut && (answer[cut] & 0xC0) == 0x80) cut--; /* a whole character */
    rvi_buf_printf(out, "  %s\n    ", cli_one_line(arena, x->question));
    if (x->bad)
        rvi_buf_puts(out, "bad: ");
    else if (x->score >= 1)
        rvi_buf_puts(out, "good: ");
    else
        rvi_buf_printf(out, "score %.3g: ", x->score);
    rvi_buf_printf(out, "%.*s%s\n", (int)cut, answer, cut < len ? "..." : "");
}
