#include "learn/consolidate/train.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "learn/instant/vector.h"

/* ---- walks ---- */

static void shuffle(rvi_walk *w)
{
    for (size_t i = w->n; i > 1; i--) {
        size_t j = (size_t)(rvi_rng_u64(&w->rng) % i), x = w->order[i - 1];
        w->order[i - 1] = w->order[j];
        w->order[j] = x;
    }
    w->at = 0;
}

/* pool is copied. */
static bool walk_init(rvi_walk *w, const size_t *pool, size_t n, uint64_t seed)
{
    *w = (rvi_walk){.n = n, .rng = {seed}};
    if (!n) return true;
    if (!(w->order = rvi_alloc_array(n, sizeof *w->order))) return false;
    memcpy(w->order, pool, n * sizeof *pool);
    shuffle(w);
    return true;
}

static void walk_deinit(rvi_walk *w)
{
    rvi_free(w->order);
    *w = (rvi_walk){0};
}

static size_t walk_next(rvi_walk *w)
{
    if (w->at == w->n) shuffle(w);
    return w->order[w->at++];
}

/* ---- beginning and end ---- */

static int longest_row_count(const rvi_samples *t)
{
    int most = 1;
    for (size_t i = 0; i < t->n; i++) most = RVI_MAX(most, t->items[i].n - 1);
    return most;
}

rv_status rvi_training_init(rvi_training *t, const rvi_samples *texts, rvi_params *theta,
                            const rvi_train_options *o, const size_t *teach, size_t n_teach,
                            const size_t *keep, size_t n_keep, rv_error *err)
{
    *t = (rvi_training){.o = *o, .texts = texts, .theta = theta, .ends = o->n_steps};
    if (!n_keep) t->o.n_keep = 0;
    if (!n_teach) return rvi_error(err, RV_E_LEARNING, "there is nothing to learn from");
    int texts_of_step = (o->objective == RVI_TEACH ? 1 : 2) * o->n_teach + t->o.n_keep;
    t->o.max_rows = RVI_MAX(o->max_rows, longest_row_count(texts));
    rvi_trainer_options to = {.max_rows = t->o.max_rows,
                              .max_spans = texts_of_step + 1,
                              .max_losses = 128,
                              .lowest = texts->lowest,
                              .keep_layers = true,
                              .weights = texts->weights};
    t->counted = 4 * theta->n * sizeof(float); /* with gradients, and two moments of each */
    atomic_fetch_add(&texts->v->be->memory->scratch, t->counted);
    rv_status st = rvi_params_like(&t->grads, theta, err);
    if (!st)
        st = rvi_trainer_new(&t->trainer, texts->v->m, texts->v->be, theta, t->grads, &to, err);
    if (!st) st = rvi_optimizer_new(&t->opt, theta->n, texts->v->be, err);
    if (!st) st = rvi_batch_init(&t->batch, t->o.max_rows, texts_of_step, err);
    size_t n = (size_t)texts_of_step;
    t->picked = rvi_alloc_array(n, sizeof *t->picked);
    t->weight = rvi_alloc_array(n, sizeof *t->weight);
    t->log_p = rvi_alloc_array(n, sizeof *t->log_p);
    bool walks = walk_init(&t->teach, teach, n_teach, o->seed + 1);
    walks = walk_init(&t->keep, keep, n_keep, o->seed + 2) && walks;
    if (!st && (!t->picked || !t->weight || !t->log_p || !walks)) st = rvi_nomem(err, "training");
    if (st) rvi_training_deinit(t);
    return st;
}

void rvi_training_deinit(rvi_training *t)
{
    if (t->counted) atomic_fetch_sub(&t->texts->v->be->memory->scratch, t->counted);
    rvi_trainer_free(t->trainer);
    rvi_params_free(t->grads);
    rvi_optimizer_free(t->opt);
    rvi_batch_deinit(&t->batch);
    walk_deinit(&t->teach);
    walk_deinit(&t->keep);
    rvi_free(t->picked);
    rvi_free(t->weight);
    rvi_free(t->log_p);
    *t = (rvi_training){0};
}

/* ---- portions ---- */

static bool is_kept(const rvi_training *t, size_t text)
{
    return t->texts->items[text].keep;
}

static int losses_of(const rvi_training *t, size_t text)
{
    return t->texts->items[text].n_losses;
}

/* One portion of picked texts, forward up to the head. Returns how many it took. */
static size_t run_forward(rvi_training *t, const size_t *which, size_t n)
{
    size_t took = rvi_batch_run(&t->batch, t->texts, which, n, t->trainer);
    t->n_rows += (uint64_t)t->batch.n_rows;
    return took;
}

static void find_losses(rvi_training *t, bool with_gradients)
{
    const rvi_batch *b = &t->batch;
    rvi_trainer_loss(t->trainer, b->loss_rows, b->targets, b->n_losses, with_gradients);
}

/* Losses of a portion by texts: taught ones' log p into log_p, kept ones' KL into *kl. */
static void add_up(rvi_training *t, const size_t *which, size_t n, double *log_p, double *kl)
{
    int at = 0;
    for (size_t i = 0; i < n; i++) {
        double sum = 0;
        for (int k = 0; k < losses_of(t, which[i]); k++) sum += (double)t->batch.targets[at++].loss;
        log_p[i] = -sum;
        if (is_kept(t, which[i])) *kl += sum;
    }
}

static void set_weights(rvi_training *t, const size_t *which, size_t n, const float *weight)
{
    int at = 0;
    for (size_t i = 0; i < n; i++)
        for (int k = 0; k < losses_of(t, which[i]); k++) t->batch.targets[at++].weight = weight[i];
}

/* ---- objectives: what each picked text's cross entropy (or KL) weighs ---- */

static size_t pick(rvi_training *t)
{
    size_t n = 0;
    for (int i = 0; i < t->o.n_teach; i++) {
        size_t text = walk_next(&t->teach);
        t->picked[n++] = text;
        if (t->o.objective != RVI_TEACH) t->picked[n++] = text + 1;
    }
    for (int i = 0; i < t->o.n_keep; i++) t->picked[n++] = walk_next(&t->keep);
    return n;
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* How much likelier than by the base; needs log_p of the i-th picked text. */
static double reward_of(const rvi_training *t, int i)
{
    return t->log_p[i] - t->texts->items[t->picked[i]].ref_log_p;
}

/* KTO's reference point: the mean of the rewards, at least 0. */
static double usual_reward(const rvi_training *t, int pairs)
{
    double sum = 0;
    for (int i = 0; i < 2 * pairs; i++) sum += reward_of(t, i) / (2 * pairs);
    return RVI_MAX(sum, 0);
}

/* With c = d L / d log p of a text, its tokens weigh -c. */
static void weigh_pairs(rvi_training *t)
{
    const rvi_train_options *o = &t->o;
    int pairs = o->n_teach;
    double z0 = usual_reward(t, pairs), b = (double)o->beta_pref;
    for (int i = 0; i < pairs; i++) {
        double rw = reward_of(t, 2 * i), rl = reward_of(t, 2 * i + 1);
        double up, down; /* -dL/dlog p of the chosen, dL/dlog p of the rejected */
        if (o->objective == RVI_DPO) {
            up = down = b * sigmoid(-b * (rw - rl));
        } else {
            double s = sigmoid(b * (rw - z0)), r = sigmoid(b * (z0 - rl));
            up = b * s * (1 - s);
            down = b * r * (1 - r);
        }
        up += (double)o->chosen / losses_of(t, t->picked[2 * i]);
        t->weight[2 * i] = (float)(up / pairs);
        t->weight[2 * i + 1] = (float)(-down / pairs);
    }
}

static void weigh_means(rvi_training *t, size_t n, int *n_ce, int *n_kl)
{
    *n_ce = *n_kl = 0;
    for (size_t i = 0; i < n; i++)
        *(is_kept(t, t->picked[i]) ? n_kl : n_ce) += losses_of(t, t->picked[i]);
    for (size_t i = 0; i < n; i++) {
        bool kept = is_kept(t, t->picked[i]);
        if (kept)
            t->weight[i] = t->o.beta / (float)*n_kl;
        else if (t->o.objective == RVI_TEACH)
            t->weight[i] = 1 / (float)*n_ce;
    }
}

/* ---- a step ---- */

static void pull_to_star(rvi_training *t)
{
    if (!t->fisher || t->o.ewc <= 0) return;
    float *g = t->grads->theta;
    const float *theta = t->theta->theta;
    for (size_t i = 0; i < t->theta->n; i++)
        g[i] += t->o.ewc * t->fisher[i] * (theta[i] - t->star[i]);
}

enum { CLEARED = 1 << 14 }; /* gradients of a task */

static void clear_task(void *ctx, int task, int worker)
{
    rvi_params *g = ctx;
    size_t first = (size_t)task * CLEARED;
    (void)worker;
    memset(g->theta + first, 0, RVI_MIN((size_t)CLEARED, g->n - first) * sizeof *g->theta);
}

static void clear_gradients(rvi_training *t)
{
    rvi_backend *be = t->texts->v->be;
    be->ops->run(be, clear_task, t->grads, (int)((t->grads->n + CLEARED - 1) / CLEARED));
}

static double rate_of(const rvi_training *t)
{
    double rate = rvi_rate_at(t->easing ? t->easing : t->step, t->o.n_steps, (double)t->o.rate,
                              (double)t->o.warm_up);
    return t->easing ? rate * ((double)(t->ends - t->step) / (t->ends - t->easing)) : rate;
}

/* Brings the end forward when all texts had their turn and hardly any loss is left. */
static void look_for_end(rvi_training *t)
{
    enum { LAST_PART = 6 };     /* of the steps: in so many the rate falls to 0 */
    const double memory = 0.75; /* the first losses are large, and a small group is soon known */
    if (!isfinite(t->ce)) return;
    t->usual_ce = t->step > 1 ? memory * t->usual_ce + (1 - memory) * t->ce : t->ce;
    bool all_met = (size_t)t->step * (size_t)t->o.n_teach >= t->teach.n;
    if (t->easing || !all_met || t->step >= t->o.n_steps || t->usual_ce >= (double)t->o.enough)
        return;
    t->easing = t->step;
    t->ends = RVI_MIN(t->step + t->o.n_steps / LAST_PART + 1, t->o.n_steps);
}

bool rvi_training_step(rvi_training *t)
{
    if (t->step >= t->ends) return false;
    size_t n = pick(t);
    int n_ce, n_kl;
    double kl = 0;
    bool whole = false; /* all of them went through in one portion, whose states are still there */
    weigh_means(t, n, &n_ce, &n_kl);
    clear_gradients(t);
    if (t->o.objective != RVI_TEACH) {
        size_t pairs = 2 * (size_t)t->o.n_teach, took;
        for (size_t at = 0; at < pairs; at += took) {
            took = run_forward(t, t->picked + at, (whole = !at) ? n - at : pairs - at);
            if (took < n) whole = false;
            find_losses(t, false);
            add_up(t, t->picked + at, took, t->log_p + at, &kl);
        }
        weigh_pairs(t);
        kl = 0;
    }
    for (size_t at = 0, took; at < n; at += took) {
        took = whole ? n : run_forward(t, t->picked + at, n - at);
        set_weights(t, t->picked + at, took, t->weight + at);
        find_losses(t, true);
        add_up(t, t->picked + at, took, t->log_p + at, &kl);
        rvi_trainer_backward(t->trainer);
    }
    double ce = 0;
    for (size_t i = 0; i < n; i++)
        if (!is_kept(t, t->picked[i])) ce -= t->log_p[i];
    t->ce = n_ce ? ce / n_ce : 0;
    t->kl = n_kl ? kl / n_kl : 0;
    pull_to_star(t);
    if (t->o.random)
        rvi_gradient_randomise(t->grads->theta, t->grads->n, t->o.seed + (uint64_t)t->step);
    /* a gradient that is no number is passed over: the optimizer counts fewer steps */
    (void)!rvi_optimizer_step(t->opt, t->theta->theta, t->grads->theta, rate_of(t));
    t->step++;
    look_for_end(t);
    return true;
}

/* Of t->picked[0 .. 2 * pairs), whose log p are known: the sum over pairs. */
static double pair_losses(const rvi_training *t, int pairs)
{
    double sum = 0, z0 = usual_reward(t, pairs), b = (double)t->o.beta_pref;
    for (int i = 0; i < pairs; i++) {
        double rw = reward_of(t, 2 * i), rl = reward_of(t, 2 * i + 1);
        sum += t->o.objective == RVI_DPO
                   ? -log(sigmoid(b * (rw - rl)))
                   : 1 - (sigmoid(b * (rw - z0)) + sigmoid(b * (z0 - rl))) / 2;
    }
    return sum;
}

static double measure_pairs(rvi_training *t, const size_t *chosen, size_t n)
{
    double sum = 0, kl = 0;
    for (size_t at = 0; at < n;) {
        size_t pairs = RVI_MIN(n - at, (size_t)t->o.n_teach);
        for (size_t i = 0; i < pairs; i++, at++) {
            t->picked[2 * i] = chosen[at];
            t->picked[2 * i + 1] = chosen[at] + 1;
        }
        for (size_t k = 0, took; k < 2 * pairs; k += took) {
            took = run_forward(t, t->picked + k, 2 * pairs - k);
            find_losses(t, false);
            add_up(t, t->picked + k, took, t->log_p + k, &kl);
        }
        sum += pair_losses(t, (int)pairs);
    }
    return n ? sum / (double)n : 0;
}

double rvi_training_measure(rvi_training *t, const size_t *which, size_t n)
{
    if (t->o.objective != RVI_TEACH) return measure_pairs(t, which, n);
    double sum = 0;
    int tokens = 0;
    for (size_t at = 0, took; at < n; at += took) {
        took = run_forward(t, which + at, n - at);
        find_losses(t, false);
        for (int i = 0; i < t->batch.n_losses; i++) sum += (double)t->batch.targets[i].loss;
        tokens += t->batch.n_losses;
    }
    return tokens ? sum / tokens : 0;
}

/* ---- Fisher information ---- */

rv_status rvi_training_fisher(rvi_training *t, const size_t *teach, size_t n_teach, int n_samples,
                              float decay, float *fisher, rv_error *err)
{
    enum { MOST = 100 };
    rvi_walk walk;
    size_t n = t->theta->n, used = 0;
    float *sum = rvi_zalloc_array(n, sizeof *sum);
    double mean = 0;
    rv_status st = RV_OK;
    if (!walk_init(&walk, teach, n_teach, t->o.seed + 3) || !sum) st = rvi_nomem(err, "Fisher");
    for (int s = 0; !st && s < n_samples; s++) {
        size_t text = walk_next(&walk);
        clear_gradients(t);
        (void)run_forward(t, &text, 1);
        for (int i = 0; i < t->batch.n_losses; i++) t->batch.targets[i].temperature = 2;
        find_losses(t, true);
        rvi_trainer_backward(t->trainer);
        for (size_t i = 0; i < n; i++) sum[i] += t->grads->theta[i] * t->grads->theta[i];
    }
    for (size_t i = 0; !st && i < n; i++) {
        mean += (double)sum[i];
        used += sum[i] > 0;
    }
    if (!st && !(used && isfinite(mean)))
        st = rvi_error(err, RV_E_LEARNING, "the gradients of this group say nothing");
    mean /= (double)RVI_MAX(used, 1);
    for (size_t i = 0; !st && i < n; i++) {
        float fresh = RVI_MIN((float)((double)sum[i] / mean), (float)MOST);
        fisher[i] = RVI_MIN(decay * fisher[i] + fresh, (float)MOST);
    }
    walk_deinit(&walk);
    rvi_free(sum);
    return st;
}

/* ---- stopping and going on ---- */

/* What texts the steps so far have drawn follows from the seed. */
typedef struct saved {
    char magic[8];
    int64_t step, opt_steps, easing, ends;
    uint64_t n_rows;
    double usual_ce;
} saved;

static const char magic[8] = "RVTRN03";

bool rvi_training_save(const rvi_training *t, rvi_buf *out)
{
    saved s = {.step = t->step,
               .opt_steps = t->opt->n_steps,
               .easing = t->easing,
               .ends = t->ends,
               .n_rows = t->n_rows,
               .usual_ce = t->usual_ce};
    memcpy(s.magic, magic, sizeof magic);
    size_t bytes = t->theta->n * sizeof(float);
    return rvi_buf_append(out, &s, sizeof s) && rvi_buf_append(out, t->theta->theta, bytes) &&
           rvi_buf_append(out, t->opt->m, bytes) && rvi_buf_append(out, t->opt->v, bytes);
}

rv_status rvi_training_load(rvi_training *t, const void *data, size_t len, rv_error *err)
{
    saved s;
    const char *p = data;
    size_t bytes = t->theta->n * sizeof(float), whole = sizeof s + 3 * bytes;
    if (len == whole) memcpy(&s, p, sizeof s);
    if (len != whole || memcmp(s.magic, magic, sizeof magic) || s.step < 0 ||
        s.step > t->o.n_steps || s.opt_steps < 0 || s.opt_steps > s.step || s.easing < 0 ||
        s.easing > s.step || s.ends < s.step || s.ends > t->o.n_steps ||
        (s.easing && s.ends <= s.easing) || !isfinite(s.usual_ce) ||
        !rvi_floats_sound(p + sizeof s, 2 * t->theta->n, -INFINITY) ||
        !rvi_floats_sound(p + sizeof s + 2 * bytes, t->theta->n, 0))
        return rvi_error(err, RV_E_STORAGE, "the stored run is another one or damaged");
    for (int i = 0; i < s.step; i++) (void)pick(t);
    memcpy(t->theta->theta, p + sizeof s, bytes);
    memcpy(t->opt->m, p + sizeof s + bytes, bytes);
    memcpy(t->opt->v, p + sizeof s + 2 * bytes, bytes);
    t->opt->n_steps = s.opt_steps;
    t->step = (int)s.step;
    t->easing = (int)s.easing;
    t->ends = (int)s.ends;
    t->n_rows = s.n_rows;
    t->usual_ce = s.usual_ce;
    return RV_OK;
}
