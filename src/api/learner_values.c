/* What goes into a learner and comes out of it: options, experiments, results as single blocks. */
#include <math.h>
#include <string.h>

#include "api/api.h"
#include "base/json.h"

/* ---- options ---- */

typedef struct setting {
    const char *name;
    size_t at;
    bool real;
} setting;

static const setting settings[] = {
#define IS_REAL_int                   false
#define IS_REAL_float                 true
#define X(name, type, value, meaning) {#name, offsetof(rvi_learner_options, name), IS_REAL_##type},
    RV_LEARNER_EXPERIMENTS(X)
#undef X
};

static rv_status set(rvi_learner_options *o, const char *item, size_t len, rv_error *err)
{
    const char *equals = memchr(item, '=', len);
    size_t n = equals ? (size_t)(equals - item) : len;
    rvi_arena arena = {.max = 1 << 16};
    const rvi_json *value = NULL;
    const setting *s = NULL;
    for (size_t i = 0; i < RVI_COUNT(settings) && !s; i++)
        if (strlen(settings[i].name) == n && !memcmp(settings[i].name, item, n)) s = &settings[i];
    if (!s || !equals)
        return rvi_error(err, RV_E_CONFIG, "experiments: '%.*s' is not name=value of a known name",
                         (int)RVI_MIN(len, (size_t)80), item);
    rv_status st = rvi_json_parse(&value, equals + 1, len - n - 1, &arena, s->name, err);
    bool whole = rvi_json_is(value, RVI_JSON_INT);
    if (!st && !whole && !(s->real && rvi_json_is(value, RVI_JSON_NUMBER)))
        st = rvi_error(err, RV_E_CONFIG, "experiments: %s must be %s number", s->name,
                       s->real ? "a" : "a whole");
    if (!st && s->real) {
        float v = (float)rvi_json_number(value, 0);
        memcpy((char *)o + s->at, &v, sizeof v);
    } else if (!st) {
        int64_t given = rvi_json_int(value, 0);
        int v = (int)RVI_MAX(RVI_MIN(given, (int64_t)INT32_MAX), (int64_t)INT32_MIN);
        memcpy((char *)o + s->at, &v, sizeof v);
    }
    rvi_arena_deinit(&arena);
    return st;
}

static rv_status check_range(const char *name, double value, double min, double max, rv_error *err)
{
    if (value >= min && value <= max) return RV_OK;
    return rvi_error(err, RV_E_CONFIG, "%s must be %lld..%lld (got %lld)", name, (long long)min,
                     (long long)max, isfinite(value) ? (long long)value : -1);
}

static rv_status check_settings(const rvi_learner_options *o, rv_error *err)
{
    rv_status st = check_range("rank", o->rank, 1, 256, err);
    if (!st) st = check_range("group_size", o->group_size, 1, 1000, err);
    if (!st) st = check_range("n_steps", o->n_steps, 0, 1000000, err);
    if (!st) st = check_range("sources", o->sources, 0, RVI_TEXTS_ALL, err);
    if (!st) st = check_range("recipe", o->recipe, 0, RVI_RECIPE_FENCED, err);
    if (!st) st = check_range("gate", o->gate, 0, RVI_GATING_OFF, err);
    if (!st) st = check_range("reading", o->reading, 0, RVI_READING_OFF, err);
    if (!st) st = check_range("deep_min_pairs", o->deep_min_pairs, 0, INT32_MAX, err);
    if (!st) st = check_range("deep_idle_seconds", o->deep_idle_seconds, 0, INT32_MAX, err);
    if (st) return st;
    if (!(o->learning_rate > 0) || !(o->learning_rate <= 1))
        return rvi_error(err, RV_E_CONFIG, "learning_rate must be above 0 and at most 1");
    if (!(o->rehearsal >= 0) || !(o->rehearsal < 1))
        return rvi_error(err, RV_E_CONFIG, "rehearsal must be 0 or more and below 1");
    if (!isfinite(o->alpha) || !isfinite(o->kl_weight) || !(o->ewc_lambda >= 0))
        return rvi_error(err, RV_E_CONFIG, "alpha, kl_weight or ewc_lambda is out of its range");
    return RV_OK;
}

rv_status rvi_api_read_learner_options(rvi_learner_options *o, rv_store *store,
                                       const rv_model **embedder, const rv_learner_options *given,
                                       rv_error *err)
{
    rv_learner_options whole;
    rv_status st = rvi_api_read_struct(&whole, sizeof whole, given, "rv_learner_options", err);
    if (st) return st;
    *o = (rvi_learner_options)RVI_LEARNER_DEFAULTS;
    o->dir = whole.dir;
    o->user = whole.user;
    o->seed = whole.seed;
    *embedder = whole.embedder;
    o->n_threads = whole.n_threads;
    if (whole.lock_wait < RV_WAIT_NEVER)
        return rvi_error(err, RV_E_CONFIG, "lock_wait must be -1 or more milliseconds (got %d)",
                         whole.lock_wait);
    if (whole.lock_wait) o->lock_wait_ms = RVI_MAX(whole.lock_wait, 0);
    const rv_store *s = whole.store;
    if (s && (!s->append || !s->put || !s->get || !s->remove || !s->scan || !s->read || !s->begin ||
              !s->commit || !s->rollback))
        return rvi_error(err, RV_E_CONFIG, "store: every function must be set");
    if (s) *store = *s;
    for (const char *p = whole.experiments ? whole.experiments : ""; !st && *p;) {
        size_t len = strcspn(p, ",");
        if (len) st = set(o, p, len, err);
        p += len + (p[len] == ',');
    }
    return st ? st : check_settings(o, err);
}

/* ---- results: a struct, and the texts it points to behind it ---- */

static void *block(size_t size, size_t text_len, char **texts)
{
    char *b = rvi_alloc_array(size + text_len, 1);
    *texts = b ? b + size : NULL;
    return b;
}

static const char *put_text(char **at, const char *text)
{
    char *to = *at;
    size_t len = strlen(text) + 1;
    memcpy(to, text, len);
    *at += len;
    return to;
}

rv_status rvi_api_give_adaptation(const rvi_adaptation *r, rv_adaptation **out, rv_error *err)
{
    char *texts;
    const char *question = r->question ? r->question : "";
    rv_adaptation *a = block(sizeof *a, strlen(r->notes) + strlen(question) + 2, &texts);
    if (!a) return rvi_nomem(err, "adaptation");
    *a = (rv_adaptation){.applied = r->applied,
                         .loop = r->loop,
                         .notes = put_text(&texts, r->notes),
                         .question = put_text(&texts, question),
                         .latency_us = r->latency_us,
                         .forward_us = r->forward_us,
                         .quality_delta = r->quality_delta,
                         .samples_used = r->samples_used,
                         .generation = r->generation,
                         .event = r->event};
    *out = a;
    return RV_OK;
}

rv_status rvi_api_give_plan(const rvi_plan *plan, const char *instructions, rv_learn_plan **out,
                            rv_error *err)
{
    const rvi_lesson *x = plan->asked ? plan->asked : plan->read;
    const char *question = x ? x->question : "", *answer = x ? x->answer : "";
    char *texts;
    rv_learn_plan *p =
        block(sizeof *p, strlen(question) + strlen(answer) + strlen(instructions) + 3, &texts);
    if (!p) return rvi_nomem(err, "plan");
    *p = (rv_learn_plan){.gate_open = plan->asked != NULL,
                         .slot = plan->lesson != NULL,
                         .read = plan->read != NULL,
                         .event = x ? x->event : 0,
                         .n_adapters = plan->adapters ? rvi_made_set_of(plan->adapters)->n : 0,
                         .probability = (double)plan->probability,
                         .question = put_text(&texts, question),
                         .answer = put_text(&texts, answer),
                         .scope = x ? x->scope : RV_SCOPE_TOPIC,
                         .instructions = put_text(&texts, instructions)};
    *out = p;
    return RV_OK;
}

/* ---- adapters of the session and of the learner together ---- */

/* The same two sets are the same set again: keys and values computed with them are reused. Serials
 * count the sets of a runtime, so two of them fit 64 bits, beside those of single sets. */
static uint64_t composed_serial(uint64_t own, uint64_t learned)
{
    return UINT64_C(1) << 63 | (own & 0x7fffffff) << 32 | (learned & 0xffffffff);
}

rv_status rvi_api_compose(rv_session *s, const rvi_made_set *held, rv_error *err)
{
    const rvi_adapter_set *learned = held ? rvi_made_set_of(held) : NULL;
    const rvi_adapter_set *own = s->adapters ? &s->adapters->set : NULL;
    if (learned && !learned->n) learned = NULL;
    if (own && !own->n) own = NULL;
    if (!learned || !own) {
        s->s->adapters = learned ? learned : own;
        rvi_api_deinit_composed(s);
        return RV_OK;
    }
    size_t n_own = (size_t)own->n, n = n_own + (size_t)learned->n;
    rvi_adapter_use *uses = rvi_alloc_array(n, sizeof *uses);
    if (!uses) return rvi_nomem(err, "adapters");
    memcpy(uses, own->uses, n_own * sizeof *uses);
    memcpy(uses + n_own, learned->uses, (n - n_own) * sizeof *uses);
    rvi_api_deinit_composed(s);
    s->composed = (rvi_adapter_set){
        .uses = uses, .n = (int)n, .serial = composed_serial(own->serial, learned->serial)};
    s->s->adapters = &s->composed;
    return RV_OK;
}

void rvi_api_deinit_composed(rv_session *s)
{
    rvi_free((void *)(uintptr_t)s->composed.uses);
    s->composed = (rvi_adapter_set){0};
}
