/* JSON that was held to nothing, mended and checked as it comes. */
#include "api/api.h"
#include "calls/validate.h"
#include "ruvllm_tools.h"
#include "text/repair.h"

enum { MAX_CHANGES = 1000 };

struct rv_json_stream {
    const rv_runtime *rt;
    rvi_mender *mender;
    rvi_validator *validator; /* NULL: there is no schema */
    rvi_buf text, problem;
    rv_repair changes[MAX_CHANGES];
    size_t n_changes;
    bool ended;
};

static void note(void *ctx, const char *what, size_t offset)
{
    rv_json_stream *s = ctx;
    if (s->n_changes < MAX_CHANGES) s->changes[s->n_changes++] = (rv_repair){what, offset};
}

rv_status rv_json_stream_new(rv_json_stream **out, const rv_runtime *rt, const char *schema,
                             size_t schema_len, rv_error *err)
{
    if (!out) return rvi_error(err, RV_E_INVALID, "rv_json_stream_new: NULL argument");
    *out = NULL;
    if (!rt) return rvi_error(err, RV_E_INVALID, "rv_json_stream_new: NULL argument");
    const rv_allocator *heap = rvi_api_use_heap(rt);
    rv_json_stream *s = rvi_zalloc(sizeof *s);
    rv_status st = s ? RV_OK : rvi_nomem(err, "JSON");
    if (!st) s->rt = rt;
    if (!st) st = rvi_mender_new(&s->mender, note, s, err);
    if (!st && schema) st = rvi_validator_new(&s->validator, schema, schema_len, err);
    rvi_api_leave_heap(heap);
    if (st)
        rv_json_stream_free(&s);
    else
        *out = s;
    return st;
}

void rv_json_stream_free(rv_json_stream **handle)
{
    if (!handle || !*handle) return;
    rv_json_stream *s = *handle;
    const rv_allocator *heap = rvi_api_use_heap(s->rt);
    rvi_mender_free(s->mender);
    rvi_validator_free(s->validator);
    rvi_buf_deinit(&s->text);
    rvi_buf_deinit(&s->problem);
    rvi_free(s);
    rvi_api_leave_heap(heap);
    *handle = NULL;
}

/* text NULL: it has ended. */
static rv_status go_on(rv_json_stream *s, const char *text, size_t len, rv_json_piece *out,
                       rv_error *err)
{
    if (s->ended) return rvi_error(err, RV_E_STATE, "the stream has ended");
    s->ended = !text;
    s->text.len = s->n_changes = 0;
    rv_status st = text ? rvi_mender_push(s->mender, text, len, &s->text, err)
                        : rvi_mender_end(s->mender, &s->text, err);
    const char *json = s->text.len ? s->text.data : "";
    if (!st && s->validator)
        st = rvi_validator_push(s->validator, json, s->text.len, &s->problem, err);
    if (!st && s->validator && !text) st = rvi_validator_end(s->validator, &s->problem, err);
    if (!st && s->text.failed) st = rvi_nomem(err, "JSON");
    if (st) {
        s->ended = true;
        return st;
    }
    *out = (rv_json_piece){.text = json,
                           .text_len = s->text.len,
                           .changes = s->changes,
                           .n_changes = s->n_changes,
                           .problem = s->problem.data ? s->problem.data : ""};
    return RV_OK;
}

static rv_status in_heap(rv_json_stream *s, const char *text, size_t len, rv_json_piece *out,
                         rv_error *err)
{
    const rv_allocator *heap = rvi_api_use_heap(s->rt);
    rv_status st = go_on(s, text, len, out, err);
    rvi_api_leave_heap(heap);
    return st;
}

rv_status rv_json_stream_push(rv_json_stream *s, const char *text, size_t len, rv_json_piece *out,
                              rv_error *err)
{
    if (!s || !out || (!text && len))
        return rvi_error(err, RV_E_INVALID, "rv_json_stream_push: NULL argument");
    return in_heap(s, text ? text : "", len, out, err);
}

rv_status rv_json_stream_end(rv_json_stream *s, rv_json_piece *out, rv_error *err)
{
    if (!s || !out) return rvi_error(err, RV_E_INVALID, "rv_json_stream_end: NULL argument");
    return in_heap(s, NULL, 0, out, err);
}
