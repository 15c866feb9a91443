/* The files of an evaluation: sets of facts, and styles. What is read points into the evaluation's
 * text and arena. */
#include <string.h>

#include "base/error.h"
#include "eval/eval.h"

enum { MAX_FILE = 64 << 20, MAX_TREE = 512 << 20 };

static rv_status load_tree(eval *e, const rvi_json **tree, rv_error *err)
{
    e->arena = (rvi_arena){.max = MAX_TREE};
    e->text = (rvi_buf){.max = MAX_FILE};
    rv_status st = cli_read_file(e->path, &e->text, err);
    return st ? st : rvi_json_parse(tree, e->text.data, e->text.len, &e->arena, e->path, err);
}

/* A string of an object's member; NULL: missing or no string. */
static const char *member(const rvi_json *object, const char *key)
{
    return rvi_json_string(rvi_json_get(object, key), NULL);
}

/* ---- facts ---- */

static rv_status load_texts(eval *e, const rvi_json *list, const char *what, eval_texts *out,
                            rv_error *err)
{
    size_t n = rvi_json_count(list);
    *out = (eval_texts){0};
    if (!n) return RV_OK;
    if (!(out->items = rvi_arena_alloc(&e->arena, n, sizeof *out->items)))
        return rvi_nomem(err, what);
    for (size_t i = 0; i < n; i++)
        if (!(out->items[i] = rvi_json_string(rvi_json_at(list, i), NULL)))
            return rvi_error(err, RV_E_CONFIG, "%s: entry %zu is not a string", what, i);
    out->n = n;
    return RV_OK;
}

static rv_status load_fact(eval *e, const rvi_json *v, size_t i, eval_fact *out, rv_error *err)
{
    *out = (eval_fact){.subject = member(v, "subject"),
                       .relation = member(v, "relation"),
                       .answer = member(v, "answer"),
                       .prompt = member(v, "prompt"),
                       .reverse = member(v, "reverse")};
    if (!out->subject || !out->relation || !out->answer || !out->prompt)
        return rvi_error(
            err, RV_E_CONFIG,
            "fact %zu: \"subject\", \"relation\", \"answer\" and \"prompt\" are needed", i + 1);
    out->taught = out->answer;
    rv_status st =
        load_texts(e, rvi_json_get(v, "heldout"), "a fact's \"heldout\"", &out->heldout, err);
    if (!st)
        st = load_texts(e, rvi_json_get(v, "neighbours"), "a fact's \"neighbours\"",
                        &out->neighbours, err);
    if (!st)
        st = load_texts(e, rvi_json_get(v, "same_subject"), "a fact's \"same_subject\"", &out->same,
                        err);
    return st;
}

/* The control: no fact is taught its own answer. */
static void shuffle_answers(eval_set *s, rvi_rng *rng)
{
    for (int attempt = 0; attempt < 100; attempt++) {
        bool own = false;
        for (size_t i = s->n; i-- > 1;) {
            size_t k = (size_t)(rvi_rng_u64(rng) % i); /* below i: one cycle, no fixed point */
            const char *t = s->facts[i].taught;
            s->facts[i].taught = s->facts[k].taught;
            s->facts[k].taught = t;
        }
        for (size_t i = 0; i < s->n; i++) own |= !strcmp(s->facts[i].taught, s->facts[i].answer);
        if (!own) return;
    }
}

static rv_status load_set(eval *e, eval_file *f, const rvi_json *v, int number, rv_error *err)
{
    const eval_options *o = &e->o;
    eval_set *s = &f->sets[f->n_sets];
    const rvi_json *list = rvi_json_get(v, "facts");
    size_t n = rvi_json_count(list);
    rv_status st = RV_OK;
    if (!rvi_json_is(list, RVI_JSON_ARRAY) || !n)
        return rvi_error(err, RV_E_CONFIG, "set %d: a list \"facts\" is expected", number);
    if (o->limit) n = RVI_MIN(n, (size_t)o->limit);
    *s = (eval_set){
        .n = n, .number = number, .seed = (int)rvi_json_int(rvi_json_get(v, "seed"), number)};
    s->facts = rvi_arena_alloc(&e->arena, n, sizeof *s->facts);
    if (!s->facts) return rvi_nomem(err, "facts");
    for (size_t i = 0; !st && i < n; i++)
        st = load_fact(e, rvi_json_at(list, i), i, &s->facts[i], err);
    if (!st && o->control && !strcmp(o->control, "shuffled")) {
        rvi_rng rng = {o->seed * 1000 + (uint64_t)number};
        shuffle_answers(s, &rng);
    }
    if (!st) f->n_sets++;
    return st;
}

rv_status eval_load_facts(eval *e, eval_file *f, rv_error *err)
{
    const rvi_json *tree, *sets;
    size_t only = (size_t)e->o.set;
    rv_status st = load_tree(e, &tree, err);
    if (st) return st;
    sets = rvi_json_get(tree, "sets");
    size_t n = rvi_json_count(sets);
    if (!rvi_json_is(sets, RVI_JSON_ARRAY) || !n)
        return rvi_error(err, RV_E_CONFIG, "%s: a list \"sets\" is expected", e->path);
    if (only > n)
        return rvi_error(err, RV_E_CONFIG, "%s: there is no set %zu, only %zu", e->path, only, n);
    if (!(f->sets = rvi_arena_alloc(&e->arena, n, sizeof *f->sets))) return rvi_nomem(err, "sets");
    st = load_texts(e, rvi_json_get(tree, "unrelated"), "\"unrelated\"", &f->unrelated, err);
    for (size_t i = 0; !st && i < n; i++)
        if (!only || only == i + 1) st = load_set(e, f, rvi_json_at(sets, i), (int)i + 1, err);
    return st;
}

/* ---- styles ---- */

static rv_status load_requests(eval *e, const rvi_json *list, const char *what, eval_request **out,
                               size_t *n, rv_error *err)
{
    *n = rvi_json_count(list);
    if (!rvi_json_is(list, RVI_JSON_ARRAY) || !*n)
        return rvi_error(err, RV_E_CONFIG, "a style's \"%s\" is not a list of requests", what);
    if (e->o.limit) *n = RVI_MIN(*n, (size_t)e->o.limit);
    if (!(*out = rvi_arena_alloc(&e->arena, *n, sizeof **out))) return rvi_nomem(err, what);
    for (size_t i = 0; i < *n; i++) {
        const rvi_json *r = rvi_json_at(list, i);
        (*out)[i] =
            (eval_request){member(r, "prompt"), rvi_json_string(rvi_json_get(r, "name"), "")};
        if (!(*out)[i].prompt)
            return rvi_error(err, RV_E_CONFIG, "\"%s\", entry %zu: there is no \"prompt\"", what,
                             i + 1);
    }
    return RV_OK;
}

static rv_status load_style(eval *e, eval_styles *f, const rvi_json *v, rv_error *err)
{
    const char *name = member(v, "style");
    eval_style *s = &f->items[f->n];
    if (!name) return rvi_error(err, RV_E_CONFIG, "an entry has no \"style\"");
    if (!style_find(name, &s->style)) {
        rvi_buf known = {0};
        for (int i = 0; i < N_STYLES; i++)
            rvi_buf_printf(&known, i ? ", %s" : "%s", style_names[i]);
        rv_status st = rvi_error(err, RV_E_CONFIG, "style '%s' is none that can be judged here: %s",
                                 name, known.data ? known.data : "");
        rvi_buf_deinit(&known);
        return st;
    }
    rv_status st = load_requests(e, rvi_json_get(v, "teach"), "teach", &s->teach, &s->n_teach, err);
    if (!st)
        st = load_requests(e, rvi_json_get(v, "heldout"), "heldout", &s->heldout, &s->n_heldout,
                           err);
    if (!st) f->n++;
    return st;
}

rv_status eval_load_styles(eval *e, const char *name, eval_styles *f, rv_error *err)
{
    const rvi_json *tree;
    rv_status st = load_tree(e, &tree, err);
    if (st) return st;
    size_t n = rvi_json_count(tree);
    if (!rvi_json_is(tree, RVI_JSON_ARRAY) || !n)
        return rvi_error(err, RV_E_CONFIG, "%s: a list of styles is expected", e->path);
    if (!(f->items = rvi_arena_alloc(&e->arena, n, sizeof *f->items)))
        return rvi_nomem(err, "styles");
    for (size_t i = 0; !st && i < n; i++) {
        const rvi_json *v = rvi_json_at(tree, i);
        if (!name || rvi_json_is_string(rvi_json_get(v, "style"), name))
            st = load_style(e, f, v, err);
    }
    if (!st && !f->n) st = rvi_error(err, RV_E_CONFIG, "%s: there is no style '%s'", e->path, name);
    return st;
}
