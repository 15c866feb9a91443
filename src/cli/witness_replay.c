/* witness replay: what was taught over HTTP, by the witness log and its contents, is what the
 * learned state's own log has; and its adapters come out of that log again, bit for bit. */
#include "cli/witness_replay.h"

#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "base/mem.h"
#include "cli/generation.h"
#include "cli/learning.h"
#include "server/witness.h"

enum { MOST_CONTENT = 64 << 20, MOST_ARENA = 1 << 30 };

/* Something that was taught, by the number that it got in the log of what was learned. */
typedef struct taught {
    uint64_t event, record;
    const rvi_json *in;
} taught;

typedef struct replay {
    const cli_replay_options *o;
    char digest[65];
    rvi_arena arena;
    taught *list;
    size_t n, cap;
    uint64_t n_gone, n_elsewhere; /* contents that were deleted; other models, tenants */
    uint64_t n_same, n_otherwise; /* in both logs; only in the learned state's */
    uint64_t wrong;               /* the first record that differs; 0: none */
    rv_status st;
    rv_error *err;
} replay;

/* ---- the witness log ---- */

static const rvi_json *read_content(replay *r, uint64_t record, const char *side)
{
    rvi_buf path = {0}, text = {0};
    rv_error err;
    const rvi_json *v = NULL;
    rvi_buf_printf(&path, "%s/contents/%012llu.%s", r->o->folder, (unsigned long long)record, side);
    if (!path.failed && !cli_read_file(path.data, &text, &err) && text.len <= MOST_CONTENT) {
        char *kept = rvi_arena_strndup(&r->arena, text.data ? text.data : "", text.len);
        if (kept && rvi_json_parse(&v, kept, text.len, &r->arena, side, &err)) v = NULL;
    }
    rvi_buf_deinit(&text);
    rvi_buf_deinit(&path);
    return v;
}

/* Was it for this model, and for this tenant or for all? */
static bool is_ours(const replay *r, const rvi_json *out)
{
    const char *print = rvi_json_string(rvi_json_get(out, "system_fingerprint"), "");
    const char *tenant = rvi_json_string(rvi_json_get(out, "tenant"), "");
    const char *digest = strchr(print, '-');
    return digest && !strncmp(digest + 1, r->digest, 12) &&
           !strcmp(tenant, r->o->tenant ? r->o->tenant : "");
}

static rv_status add(replay *r, uint64_t record, rv_error *err)
{
    const rvi_json *in = read_content(r, record, "in"), *out = read_content(r, record, "out");
    if (!out) {
        r->n_gone++;
        return RV_OK;
    }
    uint64_t event = (uint64_t)rvi_json_int(rvi_json_get(out, "event"), 0);
    if (!event) return RV_OK; /* it changed nothing */
    if (!is_ours(r, out)) {
        r->n_elsewhere++;
        return RV_OK;
    }
    if (r->n == r->cap) {
        size_t cap = r->cap ? 2 * r->cap : 64;
        taught *list = rvi_realloc_array(r->list, cap, sizeof *list);
        if (!list) return rvi_nomem(err, "witness log");
        r->list = list;
        r->cap = cap;
    }
    r->list[r->n++] = (taught){.event = event, .record = record, .in = in};
    return RV_OK;
}

static rv_status read_witness(replay *r, rv_error *err)
{
    rvi_buf path = {0}, text = {0};
    rv_status st = rvi_buf_printf(&path, "%s/witness.jsonl", r->o->folder)
                       ? cli_read_file(path.data, &text, err)
                       : rvi_nomem(err, "path");
    for (char *at = text.data, *next; !st && at && at < text.data + text.len; at = next) {
        rvi_arena arena = {.max = 16 << 20};
        const rvi_json *v = NULL;
        rv_error why;
        char *end = memchr(at, '\n', (size_t)(text.data + text.len - at));
        size_t len = end ? (size_t)(end - at) : (size_t)(text.data + text.len - at);
        next = at + len + 1;
        if (!rvi_json_parse(&v, at, len, &arena, "line", &why) &&
            rvi_json_is_string(rvi_json_get(v, "kind"), "feedback") &&
            rvi_json_int(rvi_json_get(v, "status"), 0) == 200)
            st = add(r, (uint64_t)rvi_json_int(rvi_json_get(v, "n"), 0), err);
        rvi_arena_deinit(&arena);
    }
    rvi_buf_deinit(&text);
    rvi_buf_deinit(&path);
    return st;
}

/* ---- the log of what was learned ---- */

static bool same_text(const rvi_json *said, const rvi_json *event, const char *name)
{
    return rvi_json_is(said, RVI_JSON_STRING) &&
           rvi_json_is_string(rvi_json_get(event, name), rvi_json_string(said, ""));
}

/* Does the event say what the request said? */
static bool agrees(const rvi_json *in, const rvi_json *event)
{
    const rvi_json *kind = rvi_json_get(event, "kind"), *rating = rvi_json_get(in, "rating");
    const rvi_json *score = rvi_json_get(event, "score");
    bool up = rvi_json_is_string(rating, "up") || rvi_json_int(rating, 0) == 1;
    if (rvi_json_is_string(kind, "correction")) {
        const rvi_json *text = rvi_json_get(in, "correction");
        return same_text(text ? text : rvi_json_get(in, "preferred"), event, "corrected");
    }
    if (rvi_json_is_string(kind, "thumb"))
        return rating && (rvi_json_number(score, -1) > 0.5) == up;
    if (rvi_json_is_string(kind, "score")) { /* a thumb up is the best one */
        double said = up ? 1 : rvi_json_number(rvi_json_get(in, "score"), -2);
        return fabs(rvi_json_number(score, -1) - said) < 1e-9;
    }
    if (rvi_json_is_string(kind, "forget"))
        return same_text(rvi_json_get(in, "text"), event, "note");
    if (rvi_json_is_string(kind, "rollback"))
        return rvi_json_int(rvi_json_get(in, "generation"), 0) ==
               rvi_json_int(rvi_json_get(event, "generation"), 0);
    return rvi_json_is_string(kind, "undo");
}

static int compare(void *ctx, uint64_t number, const char *json, size_t len)
{
    replay *r = ctx;
    rvi_arena arena = {.max = 16 << 20};
    const rvi_json *event = NULL;
    const taught *t = NULL;
    for (size_t i = 0; i < r->n && !t; i++)
        if (r->list[i].event == number) t = &r->list[i];
    r->st = rvi_json_parse(&event, json, len, &arena, "event", r->err);
    if (!r->st && !t)
        r->n_otherwise += !rvi_json_is_string(rvi_json_get(event, "kind"), "publish");
    else if (!r->st && agrees(t->in, event))
        r->n_same++;
    else if (!r->st)
        r->wrong = t->record;
    rvi_arena_deinit(&arena);
    return r->st || r->wrong;
}

/* ---- both ---- */

static rv_status compare_logs(replay *r, rv_learner *l, rv_error *err)
{
    rv_status st = rv_learner_read_log(l, 1, compare, r, err);
    if (!st) st = r->st;
    if (!st && r->wrong)
        st = rvi_error(err, RV_E_STORAGE,
                       "record %llu of the witness log was taught otherwise than it says",
                       (unsigned long long)r->wrong);
    if (!st && r->n_same < r->n)
        st = rvi_error(err, RV_E_STORAGE,
                       "%llu things that were taught are missing in the learned state",
                       (unsigned long long)(r->n - r->n_same));
    return st;
}

static void print(const replay *r, const rv_replay *made)
{
    printf("%llu things were taught, and are in the learned state as they were said",
           (unsigned long long)r->n_same);
    if (r->n_gone) printf("; contents of %llu were deleted", (unsigned long long)r->n_gone);
    if (r->n_elsewhere)
        printf("; %llu were for other models or tenants", (unsigned long long)r->n_elsewhere);
    if (r->n_otherwise)
        printf("; %llu events came another way", (unsigned long long)r->n_otherwise);
    printf("\n%llu generations were made again from %llu events, the same bit for bit\n",
           (unsigned long long)made->n_generations, (unsigned long long)made->n_events);
}

static rv_status open_state(const cli *c, const cli_replay_options *o, const cli_model *m,
                            cli_learning *out, rv_error *err)
{
    rv_status st = o->tenant ? cli_learning_open_tenant(out, c, m, o->tenant, NULL, err)
                             : cli_learning_open(out, c, m, o->name, false, err);
    if (!st && !out->l) st = rvi_error(err, RV_E_NOT_FOUND, "nothing was taught to this model yet");
    return st;
}

int cli_witness_replay(cli *c, const cli_replay_options *o)
{
    rv_error err = {0};
    rvi_witness_report checked;
    rv_replay made = {0};
    cli_model m = {0};
    cli_learning learning = {0};
    replay r = {.o = o, .arena = {.max = MOST_ARENA}, .err = &err};
    rv_status st = rvi_witness_verify(o->folder, NULL, &checked, &err);
    if (!st) st = cli_open(c, o->model, false, &m, &err);
    if (!st) st = rv_model_digest(m.m, r.digest, &err);
    if (!st) st = read_witness(&r, &err);
    if (!st) st = open_state(c, o, &m, &learning, &err);
    if (!st) st = compare_logs(&r, learning.l, &err);
    if (!st) st = rv_learner_replay(learning.l, NULL, NULL, &made, &err);
    if (!st && made.different)
        st = rvi_error(&err, RV_E_STORAGE,
                       "the generation of event %llu does not come out of the log again",
                       (unsigned long long)made.different);
    if (!st) print(&r, &made);
    rvi_free(r.list);
    rvi_arena_deinit(&r.arena);
    cli_learning_close(&learning);
    cli_close(&m);
    return st ? cli_fail(&err) : CLI_OK;
}
