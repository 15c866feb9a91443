/* Saved sessions by what they are about. Vectors of a session's newest texts are made when somebody
 * looks for one, on that thread, and kept beside its file. */
#include <stdlib.h>
#include <string.h>

#include "api/service.h"
#include "base/os.h"
#include "scheduler/vectors.h"

enum { WINDOW = 192 }; /* tokens of a session that one vector is made of */

rv_status rvi_service_open_finder(rv_service *s, const rv_model *embedder, rv_error *err)
{
    rv_status st = rvi_api_need_weights(embedder, err);
    if (!st) st = rvi_api_need_tokenizer(embedder, err);
    if (!st) st = rvi_api_need_tokenizer(s->e->m, err);
    if (!st && (!embedder->model->arch->is_encoder || !s->sessions))
        st = rvi_error(err, RV_E_CONFIG,
                       "embedder must be a model that makes embeddings, for "
                       "sessions in a folder");
    if (!st) st = rv_model_digest(embedder, s->embedder, err);
    int n = st ? 0 : rvi_model_max_text(embedder->model);
    rv_engine_options eo = {.size = sizeof eo, .n_tokens = n, .max_rows = n};
    return st ? st : rv_engine_new(&s->finder, embedder, &eo, err);
}

static rv_status embed(const rv_service *s, const char *text, size_t len, float *out, rv_error *err)
{
    int32_t *ids;
    size_t n;
    rv_status st = rv_tokenize(s->finder->m, text, len, RV_TOKENIZE_WRAP, &ids, &n, err);
    if (!st) {
        size_t most = (size_t)rvi_model_max_text(s->finder->m->model);
        if (n > most) /* without a warning: part of a text says what it is about */
            n = rvi_embed_cut(s->finder->m->model, ids, n,
                              rvi_tokenizer_n_after(s->finder->m->tokenizer));
        st = rv_engine_embed(s->finder, ids, n, NULL, out, err);
    }
    rv_free(ids);
    return st;
}

/* Of the newest tokens, a window each, the newest first. */
static rv_status make_vectors(const rv_service *s, const rvi_ids *ids, rvi_vectors *v,
                              rv_error *err)
{
    rv_status st = RV_OK;
    v->n = 0;
    v->values = rvi_zalloc_array(RVI_VECTORS_MOST * v->size, sizeof *v->values);
    if (!v->values) return rvi_nomem(err, "vectors");
    for (size_t end = ids->len; !st && end && v->n < RVI_VECTORS_MOST;) {
        size_t from = end > WINDOW ? end - WINDOW : 0, len;
        char *text;
        st = rv_detokenize(s->e->m, ids->data + from, end - from, 1, &text, &len, err);
        if (!st) st = embed(s, text, len, v->values + v->n * v->size, err);
        if (!st) v->n++;
        rv_free(text);
        end = from;
    }
    return st;
}

/* RV_OK with n 0: the session is damaged or gone. */
static rv_status vectors_of(const rv_service *s, const char *tenant, const rvi_listed_session *x,
                            rvi_vectors *v, rv_error *err)
{
    rvi_ids ids = {0};
    *v = (rvi_vectors){.size = (size_t)s->finder->m->model->hp.n_embd};
    memcpy(v->embedder, s->embedder, sizeof v->embedder);
    if (!rvi_vectors_session(x->path, v->session)) {
        if (rvi_os_stat(x->path, NULL) == RVI_OS_NONE) rvi_vectors_remove(x->path);
        return RV_OK;
    }
    if (rvi_vectors_read(v, x->path)) return RV_OK;
    rv_status st = rvi_sessions_read(s->sessions, tenant, x, &ids, err);
    bool lost = st && st != RV_E_NOMEM;
    if (!st) st = make_vectors(s, &ids, v, err);
    rvi_ids_deinit(&ids);
    if (lost) return RV_OK;
    if (!st && v->n && rvi_vectors_write(v, x->path, NULL))
        rvi_log_write(&s->e->m->rt->log, RVI_LOG_WARN,
                      "vectors of session '%.64s' could not be kept: made again next time",
                      x->name);
    return st;
}

static float similarity(const rvi_vectors *v, const float *to)
{
    float best = -1;
    for (size_t k = 0; k < v->n; k++) {
        double sum = 0;
        for (size_t i = 0; i < v->size; i++) sum += (double)v->values[k * v->size + i] * to[i];
        if (sum > best) best = (float)sum;
    }
    return best;
}

static int by_similarity(const void *a, const void *b)
{
    const rv_found_session *x = a, *y = b;
    if (x->similarity != y->similarity) return x->similarity < y->similarity ? 1 : -1;
    return strcmp(x->name, y->name);
}

static rv_status find(const rv_service *s, const char *tenant, const char *text, size_t most,
                      rv_found_session **out, size_t *n, rv_error *err)
{
    rvi_listed_session *list = NULL;
    size_t count = 0, found = 0, texts = 0;
    size_t size = (size_t)s->finder->m->model->hp.n_embd;
    float *wanted = rvi_alloc_array(size, sizeof *wanted);
    rv_status st = wanted ? embed(s, text, strlen(text), wanted, err) : rvi_nomem(err, "vectors");
    if (!st) st = rvi_sessions_list(s->sessions, tenant, &list, &count, err);
    for (size_t i = 0; i < count; i++) texts += strlen(list[i].name) + 1;
    rv_found_session *all = st ? NULL : rvi_zalloc(count * sizeof *all + texts + 1);
    char *names = all ? (char *)(all + count) : NULL;
    if (!st && !all) st = rvi_nomem(err, "sessions");
    for (size_t i = 0; !st && i < count; i++) {
        rvi_vectors v;
        st = vectors_of(s, tenant, &list[i], &v, err);
        if (!st && v.n) {
            size_t len = strlen(list[i].name) + 1;
            memcpy(names, list[i].name, len);
            all[found++] = (rv_found_session){names, similarity(&v, wanted), list[i].saved};
            names += len;
        }
        rvi_free(v.values);
    }
    if (!st) {
        qsort(all, found, sizeof *all, by_similarity);
        *out = all;
        *n = RVI_MIN(found, most);
    } else {
        rvi_free(all);
    }
    rvi_free(list);
    rvi_free(wanted);
    return st;
}

rv_status rv_service_find(rv_service *s, const char *tenant, const char *text, size_t most,
                          rv_found_session **out, size_t *n, rv_error *err)
{
    if (!s || !text || !out || !n)
        return rvi_error(err, RV_E_INVALID, "rv_service_find: NULL argument");
    *out = NULL;
    *n = 0;
    if (!s->finder)
        return rvi_error(err, RV_E_CONFIG, "the service has no embedder to find sessions by");
    const rv_allocator *heap = rvi_api_use_heap(s->e->m->rt);
    rv_status st = find(s, tenant ? tenant : "", text, most, out, n, err);
    rvi_api_leave_heap(heap);
    return st;
}
