#include "learn/consolidate/run.h"

#include <math.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/os.h"
#include "learn/journal/snapshot.h"
#include "learn/instant/vector.h"

enum {
    LAST = 10,          /* steps whose losses are told */
    PATIENCE = 6,       /* measurements without a new lowest loss */
    MEASUREMENTS = 24,  /* of a run, */
    MEASURE_EVERY = 25, /* but at least one in so many steps */
    MEASURE_SELDOM = 4, /* and no more than one in so many */
    SAVE_EVERY = 25,    /* steps */
    NUMBER = 1,         /* of its snapshot: there is one run at a time */
};

/* Where a run stands, beside the training itself; its bytes are kept as they are. */
typedef struct standing {
    char magic[8];
    double before, held; /* losses of what was set aside: at the beginning, at best_step */
    double best;         /* that, and what the run pays for drifting, as the training weighs it */
    double last_ce[LAST], last_kl[LAST];
    int32_t best_step, n_worse; /* best_step 0: not measured since the beginning */
} standing;

static const char magic[8] = "RVRUN03", name[] = "run";

typedef struct runner {
    rvi_training *t;
    const rvi_study *by;
    const rvi_index *held;
    const char *dir; /* where snapshots are kept; NULL: none are */
    standing at;
    float *best; /* parameters at best_step; NULL: nothing was set aside */
    uint8_t digest[RVI_SHA256_LEN];
    bool keeps; /* snapshots */
} runner;

/* ---- which run it is ---- */

static void add_numbers(rvi_sha256 *h, const size_t *x, size_t n)
{
    rvi_sha256_add_u64(h, n);
    for (size_t i = 0; i < n; i++) rvi_sha256_add_u64(h, x[i]);
}

static void add_float(rvi_sha256 *h, float x)
{
    rvi_sha256_add(h, &x, sizeof x);
}

/* Everything that the steps to come depend on. */
static void make_digest(runner *u)
{
    const rvi_training *t = u->t;
    const rvi_train_options *o = &t->o;
    const rvi_samples *s = t->texts;
    rvi_sha256 h;
    rvi_sha256_init(&h);
    rvi_sha256_add(&h, magic, sizeof magic);
    rvi_sha256_add(&h, u->by->model, strlen(u->by->model));
    const int numbers[] = {(int)o->objective, o->n_steps,  o->n_teach, o->n_keep,
                           o->random,         o->max_rows, s->lowest};
    for (size_t i = 0; i < RVI_COUNT(numbers); i++) rvi_sha256_add_u64(&h, (uint64_t)numbers[i]);
    const float floats[] = {o->beta,      o->rate,   o->warm_up, o->enough,
                            o->beta_pref, o->chosen, o->ewc};
    for (size_t i = 0; i < RVI_COUNT(floats); i++) add_float(&h, floats[i]);
    rvi_sha256_add_u64(&h, o->seed);
    rvi_sha256_add_u64(&h, s->n);
    rvi_sha256_add(&h, s->ids.data, s->ids.len * sizeof *s->ids.data);
    rvi_sha256_add(&h, s->at.data, s->at.len * sizeof *s->at.data);
    for (size_t i = 0; i < s->n; i++) {
        rvi_sha256_add_u64(&h, (uint64_t)s->items[i].n);
        rvi_sha256_add_u64(&h, (uint64_t)s->items[i].n_losses << 1 | s->items[i].keep);
    }
    add_numbers(&h, t->teach.order, t->teach.n);
    add_numbers(&h, t->keep.order, t->keep.n);
    add_numbers(&h, u->held->data, u->held->n);
    size_t bytes = t->theta->n * sizeof(float);
    rvi_sha256_add(&h, t->theta->theta, bytes);
    if (t->fisher && o->ewc > 0) {
        rvi_sha256_add(&h, t->fisher, bytes);
        rvi_sha256_add(&h, t->star, bytes);
    }
    rvi_sha256_end(&h, u->digest);
}

/* ---- snapshots ---- */

static void warn(const runner *u, const char *what, const rv_error *why)
{
    rvi_log_write(u->t->texts->v->be->log, RVI_LOG_WARN, "%s: %s", what, why->text);
}

/* A run goes on without snapshots where they cannot be written. */
static void save(runner *u)
{
    rvi_buf out = {0};
    rv_error why = {0};
    if (!u->keeps || rvi_backend_is_stopped(u->t->texts->v->be))
        return; /* the last step may be undefined */
    bool ok = rvi_buf_append(&out, &u->at, sizeof u->at);
    if (ok && u->best) ok = rvi_buf_append(&out, u->best, u->t->theta->n * sizeof *u->best);
    if (ok) ok = rvi_training_save(u->t, &out);
    rv_status st = ok ? rvi_snapshot_save(u->dir, name, NUMBER, u->digest, out.data, out.len, &why)
                      : rvi_nomem(&why, "snapshot");
    rvi_buf_deinit(&out);
    if (st) warn(u, "the run cannot be taken up again if it is stopped", &why);
    u->keeps = !st;
}

static bool is_sound(const standing *s, const rvi_training *t)
{
    return !memcmp(s->magic, magic, sizeof magic) && s->best_step >= 0 &&
           s->best_step <= t->o.n_steps && s->n_worse >= 0 && s->n_worse <= t->o.n_steps;
}

/* Goes on where the same run stopped, if there is such a place. */
static rv_status resume(runner *u, bool *resumed, rv_error *err)
{
    rvi_snapshot s;
    rv_error why = {0};
    standing at;
    size_t head = sizeof at + (u->best ? u->t->theta->n * sizeof *u->best : 0);
    *resumed = false;
    if (!u->keeps) return RV_OK;
    rv_status st = rvi_snapshot_load(&s, u->dir, name, NUMBER, u->digest, &why);
    if (!st) {
        if (s.len >= head) memcpy(&at, s.data, sizeof at);
        if (s.len < head || !is_sound(&at, u->t) ||
            !rvi_floats_sound(s.data + sizeof at, (head - sizeof at) / sizeof(float), -INFINITY))
            st = rvi_error(&why, RV_E_STORAGE, "the stored run is another one or damaged");
        if (!st) st = rvi_training_load(u->t, s.data + head, s.len - head, &why);
    }
    if (!st) {
        if (u->best) memcpy(u->best, s.data + sizeof at, head - sizeof at);
        u->at = at;
        *resumed = true;
    }
    rvi_snapshot_close(&s);
    if (st == RV_E_NOMEM) return rvi_error(err, st, "%s", why.text);
    if (st && st != RV_E_NOT_FOUND) warn(u, "the run begins anew", &why);
    return RV_OK;
}

/* ---- the run ---- */

static int measure_every(const rvi_training *t)
{
    return RVI_MAX(RVI_MIN(t->o.n_steps / MEASUREMENTS, MEASURE_EVERY), MEASURE_SELDOM);
}

static double mean_of(const runner *u, const double last[LAST])
{
    int n = RVI_MIN(u->t->step, LAST);
    double mean = 0;
    for (int i = 0; i < n; i++) mean += last[(u->t->step - i) % LAST] / n;
    return mean;
}

static void measure(runner *u)
{
    double own = rvi_training_measure(u->t, u->held->data, u->held->n);
    double loss = own + (double)u->t->o.beta * mean_of(u, u->at.last_kl);
    if (!u->at.best_step || isnan(u->at.best) || loss < u->at.best) {
        u->at.best = loss;
        u->at.held = own;
        u->at.best_step = u->t->step;
        u->at.n_worse = 0;
        memcpy(u->best, u->t->theta->theta, u->t->theta->n * sizeof *u->best);
    } else {
        u->at.n_worse++;
    }
}

static rv_status take_steps(runner *u, rv_error *err)
{
    rvi_training *t = u->t;
    bool cancelled = false;
    while (!cancelled && !(u->best && u->at.n_worse >= PATIENCE) && rvi_training_step(t)) {
        if (isfinite(t->ce) && isfinite(t->kl)) { /* else the step was skipped */
            u->at.last_ce[t->step % LAST] = t->ce;
            u->at.last_kl[t->step % LAST] = t->kl;
        }
        if (u->best && (t->step % measure_every(t) == 0 || t->step == t->ends)) measure(u);
        cancelled =
            u->by->progress && u->by->progress(u->by->ctx, "training", t->step, t->ends, t->ce);
        if (cancelled || t->step % SAVE_EVERY == 0) save(u);
    }
    if (cancelled) return rvi_error(err, RV_E_CANCELLED, "cancelled");
    rvi_backend *be = t->texts->v->be;
    rv_status lost = be->ops->check(be, err);
    if (lost) return lost;
    int skipped = t->step - (int)t->opt->n_steps;
    if (skipped > t->step / 4)
        return rvi_error(err, RV_E_LEARNING, "%d of %d steps had gradients that are not numbers",
                         skipped, t->step);
    return RV_OK;
}

static void tell_result(const runner *u, rvi_study_result *out)
{
    out->n_steps = u->t->step;
    out->n_rows = u->t->n_rows;
    out->ce = mean_of(u, u->at.last_ce);
    out->kl = mean_of(u, u->at.last_kl);
    if (!u->best) return;
    out->n_held = u->held->n;
    out->held_before = u->at.before;
    out->held_after = u->at.held;
    out->best_step = u->at.best_step;
}

rv_status rvi_run_training(rvi_training *t, const rvi_study *by, const rvi_index *held,
                           rvi_study_result *result, rv_error *err)
{
    const char *dir = by->o->dir;
    runner u = {.t = t, .by = by, .held = held, .dir = dir, .keeps = dir != NULL};
    double start = rvi_os_seconds();
    *result = (rvi_study_result){.held_before = NAN, .held_after = NAN};
    memcpy(u.at.magic, magic, sizeof magic);
    if (held->n && !(u.best = rvi_zalloc_array(t->theta->n, sizeof *u.best)))
        return rvi_nomem(err, "parameters");
    if (u.keeps) make_digest(&u);
    rv_status st = resume(&u, &result->resumed, err);
    if (!st && u.best && !result->resumed)
        u.at.before = rvi_training_measure(t, held->data, held->n);
    if (!st) st = take_steps(&u, err);
    tell_result(&u, result);
    if (!st && u.best) memcpy(t->theta->theta, u.best, t->theta->n * sizeof *u.best);
    if (!st && dir) rvi_snapshot_drop(dir, name, UINT64_MAX);
    result->seconds = rvi_os_seconds() - start;
    rvi_free(u.best);
    return st;
}
