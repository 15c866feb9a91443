#include "server/serving.h"

#include <string.h>

/* ---- names ---- */

/* Is the name among those of the list, which have commas between them? */
static bool lists(const char *list, const char *name, size_t len)
{
    for (const char *at = list; at && *at;) {
        size_t n = strcspn(at, ",");
        if (n == len && !memcmp(at, name, n)) return true;
        at += n + (at[n] == ',');
    }
    return false;
}

bool rvi_serving_is_called(const rvi_serving *s, const char *name)
{
    size_t n = strlen(name);
    if (n > 7 && !strcmp(name + n - 7, ":latest")) n -= 7;
    return !strcmp(name, s->name) || (strlen(s->name) == n && !memcmp(name, s->name, n)) ||
           lists(s->aliases, name, n);
}

bool rvi_serving_is(const rvi_serving *s, const char *name)
{
    return s->any_model || rvi_serving_is_called(s, name);
}

bool rvi_serving_unknown(const rvi_server *v, const char *name, rvi_problem *p)
{
    rvi_buf all = {0};
    for (int i = 0; i < v->o->n_models; i++)
        rvi_buf_printf(&all, "%s'%s'", i ? ", " : "", v->models[i].name);
    (void)rvi_problem_set(p, 404, "model_not_found", "model",
                          "The model '%.200s' does not exist; this server has %.300s%s", name,
                          all.failed ? "others" : all.data,
                          v->adapters_folder.len ? " and adapters" : "");
    rvi_buf_deinit(&all);
    return false;
}

/* ---- holding ---- */

rv_model_state rvi_serving_state(const rvi_serving *s)
{
    rv_listed_model *all = NULL;
    size_t n = 0;
    rv_error err;
    rv_model_state state = s->index ? RV_MODEL_OUT : RV_MODEL_LOADING;
    if (s->server->list && !rv_models_list(s->server->list, &all, &n, &err) && (size_t)s->index < n)
        state = all[s->index].state;
    rv_free(all);
    return state == RV_MODEL_LOADED && !atomic_load(&s->is_open) ? RV_MODEL_LOADING : state;
}

bool rvi_serving_enter(rvi_serving *s)
{
    rv_models *list = s->server->list;
    rv_service *service;
    rv_error err;
    /* The list is asked also where somebody holds the model: one that is to make room for another
     * takes nobody any more, or it would never go. */
    if (s->comes || !list || rv_models_hold(list, s->name, 0, &service, &err)) return false;
    if (!s->service && atomic_load(&s->is_open))
        s->service = service;
    else
        rv_models_give_back(list, &service);
    if (s->service) rvi_serving_stay(s);
    return s->service;
}

void rvi_serving_stay(rvi_serving *s)
{
    s->users++;
}

void rvi_serving_leave(rvi_serving *s)
{
    if (!--s->users && s->service) rv_models_give_back(s->server->list, &s->service);
}
