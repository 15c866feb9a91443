/* Looking inside a model: perplexity of a text, and taps on any intermediate. */
#include <string.h>

#include "api/api.h"
#include "decode/perplexity.h"
#include "formats/safetensors.h"

rv_status rv_model_perplexity(const rv_model *m, const int32_t *ids, size_t n, int n_context,
                              rv_kv_type kv_type,
                              int (*progress)(void *ctx, int done, int total, double running),
                              void *ctx, rv_perplexity *out, rv_error *err)
{
    if (!ids || !out) return rvi_error(err, RV_E_INVALID, "rv_model_perplexity: NULL argument");
    rv_status st = rvi_api_need_decoder(m, err);
    if (st) return st;
    int32_t bos =
        m->tokenizer && rvi_tokenizer_adds_bos(m->tokenizer) ? rvi_tokenizer_bos(m->tokenizer) : -1;
    rvi_api_turn turn;
    if (!st) st = rvi_api_check_kv_type(kv_type, err);
    if (!st) st = rvi_api_enter(&turn, m->rt, err);
    if (st) return st;
    rv_model *own = rvi_api_retain_model(m); /* progress may close it */
    st = rvi_perplexity_run(out, m->model, ids, n, n_context, rvi_api_kv_type(m->rt, kv_type, NULL),
                            bos, progress, ctx, err);
    rvi_api_release_model(own);
    rvi_api_leave(&turn);
    return st;
}

/* ---- taps ---- */

enum { MAX_CHUNK = 128 };

typedef struct tensor_out {
    char *name;
    float *data;
    int n_cols, n_rows; /* filled so far */
} tensor_out;

typedef struct collector {
    const rv_model *m;
    const char *names;
    size_t n_ids;
    tensor_out *tensors;
    size_t n_tensors, cap;
    rv_status st;
    rv_error *err;
} collector;

/* Is name in the comma-separated list? */
static bool wanted(const char *list, const char *name)
{
    if (!list || !*list) return !strncmp(name, "hidden.", 7) || !strcmp(name, "logits");
    for (const char *p = list; *p;) {
        size_t len = strcspn(p, ",");
        if ((len == 1 && *p == '*') || (strlen(name) == len && !memcmp(name, p, len))) return true;
        p += len + (p[len] == ',');
    }
    return false;
}

static tensor_out *add_tensor(collector *c, const char *name, int n_cols)
{
    if (c->n_tensors == c->cap) {
        size_t cap = c->cap ? c->cap * 2 : 64;
        tensor_out *grown = rvi_realloc_array(c->tensors, cap, sizeof *grown);
        if (!grown) return NULL;
        c->tensors = grown;
        c->cap = cap;
    }
    size_t len = strlen(name);
    tensor_out *t = &c->tensors[c->n_tensors];
    *t = (tensor_out){.n_cols = n_cols};
    t->name = rvi_alloc_array(len + 1, 1);
    if (c->n_ids <= SIZE_MAX / sizeof *t->data / (size_t)n_cols)
        t->data = rvi_alloc_array(c->n_ids * (size_t)n_cols, sizeof *t->data);
    if (t->name) memcpy(t->name, name, len + 1);
    c->n_tensors++;
    return t->name && t->data ? t : NULL;
}

static void collect(void *ctx, const char *name, rvi_cols values, int n_rows)
{
    collector *c = ctx;
    if (c->st || !wanted(c->names, name)) return;
    tensor_out *t = NULL;
    for (size_t i = 0; i < c->n_tensors && !t; i++)
        if (!strcmp(c->tensors[i].name, name)) t = &c->tensors[i];
    if (!t && !(t = add_tensor(c, name, values.n))) {
        c->st = rvi_nomem(c->err, name);
        return;
    }
    rvi_backend *be = c->m->model->be;
    be->ops->fetch(be, values, n_rows, t->data + (size_t)t->n_rows * (size_t)t->n_cols);
    t->n_rows += n_rows;
}

static rv_status run_rows(collector *c, const int32_t *ids, rv_kv_type kv_type,
                          const rvi_adapter_set *set)
{
    const rvi_model *m = c->m->model;
    bool encoder = m->arch->is_encoder; /* wants its text whole */
    int n = (int)c->n_ids, chunk = encoder ? n : RVI_MIN(n, MAX_CHUNK);
    rvi_kv_spec spec = rvi_model_kv_spec(m, kv_type, (n + RVI_PAGE_TOKENS - 1) / RVI_PAGE_TOKENS);
    rvi_pages *pool = NULL;
    rvi_seq seq = {0};
    rvi_workspace *ws = NULL;
    rvi_row *rows = rvi_alloc_array((size_t)chunk, sizeof *rows);
    int32_t *which = rvi_alloc_array((size_t)chunk, sizeof *which);
    bool logits = !encoder && wanted(c->names, "logits");
    rv_status st = rows && which ? RV_OK : rvi_nomem(c->err, "tap");
    if (!st) st = rvi_pages_new(&pool, m->be, &spec, c->err);
    if (!st) st = rvi_seq_init(&seq, pool, n, c->err);
    if (!st) st = rvi_workspace_new(&ws, m, chunk, logits ? chunk : 1, c->err);
    if (!st) rvi_workspace_set_tap(ws, collect, c);
    for (int at = 0; !st && at < n; at += chunk) {
        int k = RVI_MIN(chunk, n - at);
        if ((st = rvi_seq_extend(&seq, k, c->err))) break;
        for (int i = 0; i < k; i++) {
            rows[i] = (rvi_row){.seq = &seq,
                                .pos = at + i,
                                .token = ids[at + i],
                                .rope_set = rvi_rope_set(&m->rope, n),
                                .adapters = set};
            which[i] = i;
        }
        rvi_model_forward(m, ws, rows, k);
        if (logits) rvi_model_logits(m, ws, rows, which, k);
        st = c->st;
    }
    if (!st) st = rvi_model_check(m, ws, c->err);
    rvi_workspace_free(ws);
    rvi_seq_deinit(&seq);
    rvi_pages_free(pool);
    rvi_free(rows);
    rvi_free(which);
    return st;
}

static rv_status check_tap(const rv_model *m, const int32_t *ids, size_t n, const char *path,
                           rv_error *err)
{
    if (!m || !m->model || !ids || !path)
        return rvi_error(err, RV_E_INVALID,
                         "rv_model_tap: NULL argument, or a model without weights");
    if (!n || n > RVI_MAX_CONTEXT)
        return rvi_error(err, RV_E_CONFIG, "%zu token ids are not possible", n);
    if (m->model->arch->is_encoder && n > (size_t)m->model->hp.n_context)
        return rvi_error(err, RV_E_CONFIG, "%zu tokens, but the model takes at most %d", n,
                         m->model->hp.n_context);
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= m->model->hp.n_vocab)
            return rvi_error(err, RV_E_CONFIG, "token id %d is not in the vocabulary of %d", ids[i],
                             m->model->hp.n_vocab);
    return RV_OK;
}

/* Every name asked for must have come by. */
static rv_status check_names(const collector *c)
{
    for (const char *p = c->names ? c->names : ""; *p;) {
        size_t len = strcspn(p, ",");
        bool found = len == 0 || (len == 1 && *p == '*');
        for (size_t i = 0; i < c->n_tensors && !found; i++)
            found = strlen(c->tensors[i].name) == len && !memcmp(c->tensors[i].name, p, len);
        if (!found)
            return rvi_error(c->err, RV_E_NOT_FOUND, "this model has no tap named '%.*s'",
                             (int)RVI_MIN(len, (size_t)64), p);
        p += len + (p[len] == ',');
    }
    return RV_OK;
}

static rv_status write_out(const collector *c, const char *path)
{
    rvi_st_entry *entries = rvi_zalloc_array(c->n_tensors, sizeof *entries);
    if (!entries) return rvi_nomem(c->err, "tap");
    for (size_t i = 0; i < c->n_tensors; i++) {
        const tensor_out *t = &c->tensors[i];
        entries[i] = (rvi_st_entry){.name = t->name,
                                    .n_dims = 2,
                                    .shape = {(uint64_t)t->n_rows, (uint64_t)t->n_cols},
                                    .data = t->data};
    }
    rv_status st = rvi_safetensors_write(path, entries, c->n_tensors, c->err);
    rvi_free(entries);
    return st;
}

rv_status rv_model_tap(const rv_model *m, const int32_t *ids, size_t n, const char *names,
                       rv_kv_type kv_type, const rv_adapter_set *adapters, const char *path,
                       rv_error *err)
{
    rv_status st = check_tap(m, ids, n, path, err);
    if (!st) st = rvi_api_check_kv_type(kv_type, err);
    if (!st && adapters && adapters->m != m)
        st = rvi_error(err, RV_E_ADAPTER, "the adapters were loaded for another model");
    rvi_api_turn turn;
    if (!st) st = rvi_api_enter(&turn, m->rt, err);
    if (st) return st;
    rv_model *own = rvi_api_retain_model(m); /* the log's sink may free both */
    rv_adapter_set *own_set = rvi_api_retain_set(adapters);
    if (n > (size_t)m->model->hp.n_context)
        rvi_log_write(&m->rt->log, RVI_LOG_WARN,
                      "%zu tokens are more than the %d this model was made for", n,
                      m->model->hp.n_context);
    collector c = {.m = m, .names = names, .n_ids = n, .err = err};
    st = run_rows(&c, ids, rvi_api_kv_type(m->rt, kv_type, NULL),
                  adapters && adapters->set.n ? &adapters->set : NULL);
    if (!st) st = check_names(&c);
    if (!st) st = write_out(&c, path);
    for (size_t i = 0; i < c.n_tensors; i++) {
        rvi_free(c.tensors[i].name);
        rvi_free(c.tensors[i].data);
    }
    rvi_free(c.tensors);
    rvi_api_release_set(own_set);
    rvi_api_release_model(own);
    rvi_api_leave(&turn);
    return st;
}
