#include "learn/instant/micro.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "learn/instant/vector.h"

static const char magic[8] = "rvmicro2";
static const double decay = 0.999, size_cap = 0.05, reach_cap = 0.15, b_rate = 16;

/* What an event changes. */
typedef struct state {
    float *a, *b; /* [rank][n_ff], [rank][n_embd], one block */
    uint64_t n_events;
} state;

enum { BLOCK = 6 }; /* tokens that are multiplied at a time: few enough to stay near */

enum { NOW, BEFORE, SPARE, GOOD, STATES };

struct rvi_micro {
    const rvi_model *model;
    rvi_kernels k;
    size_t n_ff, n_embd, n_floats; /* n_floats: of a state */
    int rank;
    rvi_micro_options o;
    double cap;
    state states[STATES];
    bool has_good;
    rvi_credits
        credits[SPARE + 1]; /* as states; a rollback leaves them, what was scored stays true */
    bool can_undo;
    uint64_t n_dropped, n_rollbacks;
    double kl_step;
    rvi_probe *probe;
    rvi_probe_result probed; /* of the last check */
    /* scratch of an event; u and g of a block of tokens, to be multiplied by their scales */
    rvi_event_tokens tokens;
    float u_scale[BLOCK], g_scale[BLOCK];
    float *da, *db; /* shaped like a and b */
    float *pull_g;  /* [pull tokens][n_embd] */
    /* A u, B^T g, dA u, dB^T g of the tokens */
    float au[RVI_MICRO_TOKENS][RVI_MICRO_MAX_RANK], gb[RVI_MICRO_TOKENS][RVI_MICRO_MAX_RANK],
        du[RVI_MICRO_TOKENS][RVI_MICRO_MAX_RANK], gd[RVI_MICRO_TOKENS][RVI_MICRO_MAX_RANK];
};

/* ---- making ---- */

static double normal(rvi_rng *rng)
{
    double r = 1 - rvi_rng_double(rng); /* above 0 */
    return sqrt(-2 * log(r)) * cos(6.283185307179586 * rvi_rng_double(rng));
}

/* A random, B 0. */
static void begin(rvi_micro *m)
{
    state *s = &m->states[NOW];
    rvi_rng rng = {m->o.seed};
    size_t n = (size_t)m->rank * m->n_ff;
    double deviation = 1 / sqrt((double)m->n_ff);
    for (size_t i = 0; i < n; i++) s->a[i] = (float)(deviation * normal(&rng));
    memset(s->b, 0, (m->n_floats - n) * sizeof *s->b);
    s->n_events = 0;
}

static rv_status fill(rvi_micro *m, rv_error *err)
{
    size_t rank = (size_t)m->rank;
    for (int i = 0; i < STATES; i++) {
        m->states[i].a = rvi_floats_new(m->n_floats);
        if (!m->states[i].a) return rvi_nomem(err, "micro adapter");
        memset(m->states[i].a, 0, m->n_floats * sizeof(float));
        m->states[i].b = m->states[i].a + rank * m->n_ff;
    }
    m->da = rvi_floats_new(m->n_floats);
    m->tokens.u = rvi_floats_new(BLOCK * m->n_ff);
    m->tokens.g = rvi_floats_new(BLOCK * m->n_embd);
    m->pull_g = rvi_floats_new(RVI_MICRO_PULL_TOKENS * m->n_embd);
    if (!m->da || !m->tokens.u || !m->tokens.g || !m->pull_g)
        return rvi_nomem(err, "micro adapter");
    m->db = m->da + rank * m->n_ff;
    begin(m);
    double norm;
    rv_status st = rvi_delta_weight_norm(&norm, m->model, err);
    m->cap = size_cap * norm;
    return st;
}

static double or_else(double given, double usual)
{
    return given > 0 ? given : usual;
}

rv_status rvi_micro_new(rvi_micro **out, const rvi_model *model, const rvi_micro_options *o,
                        rv_error *err)
{
    *out = NULL;
    if (model->arch->is_encoder)
        return rvi_error(err, RV_E_LEARNING, "an encoder has nothing to learn from scores");
    if (o->rank < 0 || o->rank > RVI_MICRO_MAX_RANK)
        return rvi_error(err, RV_E_CONFIG, "a micro adapter of rank %d: 1 to %d are possible",
                         o->rank, RVI_MICRO_MAX_RANK);
    rvi_micro *m = rvi_zalloc(sizeof *m);
    if (!m) return rvi_nomem(err, "micro adapter");
    m->model = model;
    rvi_kernels_init(&m->k, NULL);
    m->rank = o->rank ? o->rank : RVI_MICRO_MAX_RANK;
    m->n_ff = (size_t)model->hp.n_ff;
    m->n_embd = (size_t)model->hp.n_embd;
    m->n_floats = (size_t)m->rank * (m->n_ff + m->n_embd);
    m->o = (rvi_micro_options){.rank = m->rank,
                               .seed = o->seed,
                               .kl_step = or_else(o->kl_step, 0.03),
                               .kl_soft = or_else(o->kl_soft, 0.025),
                               .kl_hard = or_else(o->kl_hard, 0.05),
                               .ppl_hard = or_else(o->ppl_hard, 0.03)};
    m->kl_step = m->o.kl_step;
    rv_status st = fill(m, err);
    if (st)
        rvi_micro_free(m);
    else
        *out = m;
    return st;
}

void rvi_micro_free(rvi_micro *m)
{
    if (!m) return;
    for (int i = 0; i < STATES; i++) rvi_free(m->states[i].a);
    rvi_free(m->da);
    rvi_free(m->tokens.u);
    rvi_free(m->tokens.g);
    rvi_free(m->pull_g);
    rvi_free(m);
}

void rvi_micro_set_probe(rvi_micro *m, rvi_probe *p)
{
    m->probe = p;
}

static void copy_state(const rvi_micro *m, state *to, const state *from)
{
    memcpy(to->a, from->a, m->n_floats * sizeof(float));
    to->n_events = from->n_events;
}

static void swap_states(state *a, state *b)
{
    state t = *a;
    *a = *b;
    *b = t;
}

rvi_delta rvi_micro_delta(const rvi_micro *m)
{
    return (rvi_delta){m->rank, m->states[NOW].a, m->states[NOW].b};
}

/* ---- small sums ---- */

/* out[i][j] = row i . row j */
static void gram(const rvi_micro *m, const float *rows, size_t n,
                 float out[RVI_MICRO_MAX_RANK][RVI_MICRO_MAX_RANK])
{
    m->k.gemm_f32(rows, n, m->rank, rows, n, m->rank, out[0], RVI_MICRO_MAX_RANK, n);
}

static double size_of(const rvi_micro *m, const state *s)
{
    float aa[RVI_MICRO_MAX_RANK][RVI_MICRO_MAX_RANK], bb[RVI_MICRO_MAX_RANK][RVI_MICRO_MAX_RANK];
    double sum = 0;
    gram(m, s->a, m->n_ff, aa);
    gram(m, s->b, m->n_embd, bb);
    for (int i = 0; i < m->rank; i++)
        for (int j = 0; j < m->rank; j++) sum += (double)aa[i][j] * (double)bb[i][j];
    return sqrt(fmax(sum, 0)) + 0 * sum; /* NaN stays NaN */
}

static double length_of(const rvi_micro *m, const float *x, size_t n)
{
    float out;
    m->k.gemm_f32(x, 0, 1, x, 0, 1, &out, 0, n);
    return sqrt((double)out);
}

/* ---- an event ---- */

/* A row that stands for itself times its scale. */
typedef struct scaled {
    const float *x;
    float scale;
} scaled;

/* da, db += w * gradient of g . B A u, given by its products. */
static void add_row(rvi_micro *m, float w, scaled u, scaled g, const float *au, const float *gb)
{
    for (size_t j = 0; j < (size_t)m->rank; j++) {
        m->k.axpy(m->db + j * m->n_embd, w * au[j] * g.scale, g.x, m->n_embd);
        m->k.axpy(m->da + j * m->n_ff, w * gb[j] * u.scale, u.x, m->n_ff);
    }
}

/* [rank] products of each of a block's rows of x, times its scale, with the rows of a matrix */
static void products(const rvi_micro *m, const float *matrix, const float *x, const float *scales,
                     int n_rows, size_t n, float (*out)[RVI_MICRO_MAX_RANK])
{
    float by_row[RVI_MICRO_MAX_RANK][BLOCK]; /* more rows of x than of the matrix fill the tiles */
    m->k.gemm_f32(x, n, n_rows, matrix, n, m->rank, by_row[0], BLOCK, n);
    for (int t = 0; t < n_rows; t++)
        for (int j = 0; j < m->rank; j++) out[t][j] = by_row[j][t] * scales[t];
}

/* Down the KL of two probe texts, as strongly all in all as the event itself (`event`) goes up. */
static void add_pull(rvi_micro *m, double event)
{
    const state *s = &m->states[NOW];
    rvi_delta d = rvi_micro_delta(m);
    int n_texts = rvi_probe_n_texts(m->probe), turn = (int)(s->n_events % (1 << 20));
    for (int i = 0; i < RVI_MICRO_PULL_TEXTS; i++) {
        const float *u[RVI_MICRO_PULL_TOKENS];
        float low[RVI_MICRO_PULL_TOKENS * RVI_MICRO_MAX_RANK];
        int text = (turn + i * n_texts / RVI_MICRO_PULL_TEXTS) % n_texts;
        int n = rvi_probe_pull(m->probe, &d, text, turn / n_texts, RVI_MICRO_PULL_TOKENS, u,
                               m->pull_g, low);
        double pull = 0;
        for (int t = 0; t < n; t++)
            pull += length_of(m, m->pull_g + (size_t)t * m->n_embd, m->n_embd);
        double ratio = event / RVI_MICRO_PULL_TEXTS / fmax(pull, 1e-9);
        for (int t = 0; t < n; t++) {
            const float *g = m->pull_g + (size_t)t * m->n_embd;
            const float *au = low + t * m->rank;
            float gb[RVI_MICRO_MAX_RANK];
            m->k.gemm_f32(s->b, m->n_embd, m->rank, g, 0, 1, gb, 0, m->n_embd);
            add_row(m, (float)-ratio, (scaled){u[t], 1}, (scaled){g, 1}, au, gb);
        }
    }
}

/* Predicted KL of the step eta on the event's tokens: dx = (B + eta dB)(A + eta dA) u - B A u. */
static double predict(const rvi_micro *m, double eta)
{
    double sum = 0;
    for (int t = 0; t < m->tokens.n; t++) {
        double once = 0, twice = 0;
        for (int j = 0; j < m->rank; j++) {
            once += (double)m->gb[t][j] * (double)m->du[t][j] +
                    (double)m->gd[t][j] * (double)m->au[t][j];
            twice += (double)m->gd[t][j] * (double)m->du[t][j];
        }
        double move = eta * once + eta * eta * twice;
        sum += 0.5 * move * move;
    }
    return sum / m->tokens.n;
}

/* The factor of B that keeps the caps. */
static double capped(const rvi_micro *m, double eta)
{
    const state *s = &m->states[NOW];
    float bb[RVI_MICRO_MAX_RANK][RVI_MICRO_MAX_RANK];
    double factor = fmin(1, m->cap / fmax(size_of(m, s), 1e-9));
    gram(m, s->b, m->n_embd, bb);
    for (int t = 0; t < m->tokens.n; t++) { /* |B A u|^2 */
        double low[RVI_MICRO_MAX_RANK], squares = 0;
        for (int j = 0; j < m->rank; j++) low[j] = (double)m->au[t][j] + eta * (double)m->du[t][j];
        for (int i = 0; i < m->rank; i++)
            for (int j = 0; j < m->rank; j++) squares += low[i] * (double)bb[i][j] * low[j];
        double most = reach_cap * (double)m->tokens.reach[t];
        if (squares > most * most) factor = fmin(factor, most / sqrt(squares));
    }
    return factor;
}

bool rvi_micro_pulls(const rvi_micro *m)
{
    return m->probed.kl > m->o.kl_soft;
}

/* The tokens from `at` on that fit in, without their scales; returns how many. */
static int read_block(rvi_micro *m, const rvi_captured *tokens, int at)
{
    const rvi_event_tokens *e = &m->tokens;
    int n = RVI_MIN(e->n - at, (int)BLOCK);
    for (int t = 0; t < n; t++) {
        const rvi_captured *c = &tokens[e->which[at + t]];
        m->k.f16_to_f32(c->u, e->u + (size_t)t * m->n_ff, m->n_ff);
        m->k.f16_to_f32(c->g, e->g + (size_t)t * m->n_embd, m->n_embd);
        m->u_scale[t] = c->u_scale;
        m->g_scale[t] = c->g_scale;
    }
    return n;
}

/* The step's direction in da and db, and the products that prediction needs. Block after block: the
 * tokens as captured are small, and reading them twice takes less time than keeping them as
 * floats. */
static rvi_micro_outcome find_step(rvi_micro *m, const rvi_captured *tokens)
{
    const state *s = &m->states[NOW];
    const rvi_event_tokens *e = &m->tokens;
    bool pulls = m->probe && rvi_probe_n_texts(m->probe) && rvi_micro_pulls(m);
    double strength = 0;
    memset(m->da, 0, m->n_floats * sizeof(float));
    for (int at = 0, n; at < e->n; at += n) {
        n = read_block(m, tokens, at);
        products(m, s->a, e->u, m->u_scale, n, m->n_ff, m->au + at);
        products(m, s->b, e->g, m->g_scale, n, m->n_embd, m->gb + at);
        for (int t = 0; t < n; t++) {
            scaled u = {e->u + (size_t)t * m->n_ff, m->u_scale[t]};
            scaled g = {e->g + (size_t)t * m->n_embd, m->g_scale[t]};
            float w = e->w[at + t];
            add_row(m, w, u, g, m->au[at + t], m->gb[at + t]);
            if (pulls) strength += (double)fabsf(w * g.scale) * length_of(m, g.x, m->n_embd);
        }
    }
    if (pulls) add_pull(m, strength);
    double norm = length_of(m, m->da, m->n_floats);
    if (!isfinite(norm)) return RVI_MICRO_DROPPED;
    if (norm == 0) return RVI_MICRO_NOTHING;
    norm = fmax(norm, 1e-6);
    m->k.scale(m->da, (float)(1 / norm), (size_t)m->rank * m->n_ff);
    m->k.scale(m->db, (float)(b_rate / norm), (size_t)m->rank * m->n_embd);
    for (int at = 0, n; at < e->n; at += n) {
        n = read_block(m, tokens, at);
        products(m, m->da, e->u, m->u_scale, n, m->n_ff, m->du + at);
        products(m, m->db, e->g, m->g_scale, n, m->n_embd, m->gd + at);
    }
    return RVI_MICRO_STEPPED;
}

rvi_micro_outcome rvi_micro_event(rvi_micro *m, const rvi_captured *tokens, int n, double advantage,
                                  double *kl)
{
    state *s = &m->states[NOW];
    if (kl) *kl = 0;
    if (n < 1 || fabs(advantage) < 0.02) return RVI_MICRO_NOTHING;
    rvi_micro_outcome o = RVI_MICRO_DROPPED;
    m->credits[SPARE] = m->credits[NOW];
    if (isfinite(advantage)) {
        rvi_credits_take(&m->credits[NOW], tokens, n, advantage);
        if (rvi_event_choose(&m->tokens, &m->k, tokens, n, advantage, &m->credits[NOW], m->n_embd))
            o = find_step(m, tokens);
    }
    m->n_dropped += o == RVI_MICRO_DROPPED;
    if (o != RVI_MICRO_STEPPED) {
        m->credits[NOW] = m->credits[SPARE];
        return o;
    }
    double size = m->kl_step * fabs(advantage);
    double eta = fmin(1, sqrt(size / fmax(predict(m, 1), 1e-12)));
    if (predict(m, eta) > 2 * size) eta /= 2;
    copy_state(m, &m->states[SPARE], s);
    m->k.axpy(s->a, (float)eta, m->da, m->n_floats); /* b lies behind a, as db behind da */
    m->k.scale(s->b, (float)(decay * capped(m, eta)), (size_t)m->rank * m->n_embd);
    if (!isfinite(length_of(m, s->a, m->n_floats)) || !isfinite(size_of(m, s))) {
        copy_state(m, s, &m->states[SPARE]);
        m->credits[NOW] = m->credits[SPARE];
        m->n_dropped++;
        return RVI_MICRO_DROPPED;
    }
    if (kl) *kl = predict(m, eta);
    s->n_events++;
    swap_states(&m->states[SPARE], &m->states[BEFORE]);
    m->credits[BEFORE] = m->credits[SPARE];
    m->can_undo = true;
    return RVI_MICRO_STEPPED;
}

/* ---- going back ---- */

bool rvi_micro_undo(rvi_micro *m)
{
    if (!m->can_undo) return false;
    m->can_undo = false;
    copy_state(m, &m->states[NOW], &m->states[BEFORE]);
    m->credits[NOW] = m->credits[BEFORE];
    if (m->states[GOOD].n_events > m->states[NOW].n_events) m->has_good = false;
    return true;
}

bool rvi_micro_check(rvi_micro *m, rvi_probe_result r)
{
    state *s = &m->states[NOW], *last = &m->states[GOOD];
    bool good = r.kl <= m->o.kl_hard && r.ppl <= m->o.ppl_hard; /* NaN is not */
    uint64_t since = s->n_events - (m->has_good ? last->n_events : 0);
    m->probed = r;
    if (good) {
        if (since >= RVI_MICRO_GOOD) copy_state(m, last, s);
        m->has_good = m->has_good || since >= RVI_MICRO_GOOD;
        m->kl_step = fmin(2 * m->kl_step, m->o.kl_step);
        return false;
    }
    m->has_good = m->has_good && since; /* else it was good once, and is no longer */
    if (m->has_good)
        copy_state(m, s, last);
    else
        begin(m);
    m->can_undo = false;
    m->n_rollbacks++;
    m->kl_step = fmax(m->kl_step / 2, m->o.kl_step / 16);
    m->probed = (rvi_probe_result){0, 0}; /* until the next check */
    return true;
}

bool rvi_micro_probe(rvi_micro *m, rvi_probe_result *r)
{
    rvi_probe_result now = {0, 0};
    rvi_delta d = rvi_micro_delta(m);
    if (m->probe) now = rvi_probe_score(m->probe, &d, 0, rvi_probe_n_texts(m->probe));
    if (r) *r = now;
    return rvi_micro_check(m, now);
}

rvi_micro_status rvi_micro_status_of(const rvi_micro *m)
{
    return (rvi_micro_status){.n_events = m->states[NOW].n_events,
                              .n_dropped = m->n_dropped,
                              .n_rollbacks = m->n_rollbacks,
                              .has_good = m->has_good,
                              .kl_step = m->kl_step,
                              .size = size_of(m, &m->states[NOW]),
                              .cap = m->cap,
                              .probe = m->probed};
}

/* ---- as bytes: a header, credits, the present state and the good one, if there is ---- */

/* Of states before this: earlier versions kept that of the last event, with its credits, and up to
 * MOST_GOOD good ones, the newest last; or KEPT_ELSEWHERE. */
typedef struct header {
    char magic[8];
    int32_t rank, n_ff, n_embd, n_good;
    uint64_t n_before, seed, n_dropped, n_rollbacks;
    double kl_step;
    rvi_probe_result probed;
} header;

static bool put_state(const rvi_micro *m, const state *s, rvi_buf *out)
{
    return rvi_buf_append(out, &s->n_events, sizeof s->n_events) &&
           rvi_buf_append(out, s->a, m->n_floats * sizeof(float));
}

enum { MOST_GOOD = 8, KEPT_ELSEWHERE = -1 };

rv_status rvi_micro_save(const rvi_micro *m, rvi_buf *out, rv_error *err)
{
    header h = {.rank = m->rank,
                .n_ff = (int32_t)m->n_ff,
                .n_embd = (int32_t)m->n_embd,
                .n_good = m->has_good,
                .seed = m->o.seed,
                .n_dropped = m->n_dropped,
                .n_rollbacks = m->n_rollbacks,
                .kl_step = m->kl_step,
                .probed = m->probed};
    memcpy(h.magic, magic, sizeof magic);
    bool ok = rvi_buf_append(out, &h, sizeof h) &&
              rvi_buf_append(out, &m->credits[NOW], sizeof *m->credits) &&
              put_state(m, &m->states[NOW], out) &&
              (!m->has_good || put_state(m, &m->states[GOOD], out));
    return ok ? RV_OK : rvi_nomem(err, "micro adapter");
}

static void get_state(const rvi_micro *m, state *s, const char *at)
{
    memcpy(&s->n_events, at, sizeof s->n_events);
    memcpy(s->a, at + sizeof s->n_events, m->n_floats * sizeof(float));
}

rv_status rvi_micro_load(rvi_micro *m, const void *bytes, size_t len, rv_error *err)
{
    header h;
    const char *credits = (const char *)bytes + sizeof h, *end = (const char *)bytes + len;
    size_t each = sizeof(uint64_t) + m->n_floats * sizeof(float);
    if (len < sizeof h) return rvi_error(err, RV_E_LEARNING, "micro adapter: %zu bytes", len);
    memcpy(&h, bytes, sizeof h);
    if (memcmp(h.magic, magic, sizeof magic) || h.rank != m->rank || h.n_ff != (int)m->n_ff ||
        h.n_embd != (int)m->n_embd || h.n_good < KEPT_ELSEWHERE || h.n_good > MOST_GOOD ||
        h.n_before > 1 || !(h.kl_step > 0) || !isfinite(h.kl_step) ||
        len != sizeof h + (1 + h.n_before) * sizeof *m->credits +
                   each * (1 + (size_t)h.n_before + (size_t)RVI_MAX(h.n_good, 0)))
        return rvi_error(err, RV_E_LEARNING,
                         "micro adapter: not one of rank %d for layers of %zu and %zu", m->rank,
                         m->n_ff, m->n_embd);
    memcpy(&m->credits[SPARE], credits, sizeof *m->credits);
    if (!rvi_credits_are_sound(&m->credits[SPARE]))
        return rvi_error(err, RV_E_LEARNING, "micro adapter: credits that cannot be");
    const char *states = credits + (1 + h.n_before) * sizeof *m->credits;
    for (const char *p = states; p < end; p += each)
        if (!rvi_floats_sound(p + sizeof(uint64_t), m->n_floats, -INFINITY))
            return rvi_error(err, RV_E_LEARNING, "micro adapter: a value is not a number");
    m->o.seed = h.seed;
    m->n_dropped = h.n_dropped;
    m->n_rollbacks = h.n_rollbacks;
    m->kl_step = fmin(h.kl_step, m->o.kl_step);
    m->probed = h.probed;
    m->can_undo = false;
    m->credits[NOW] = m->credits[SPARE];
    get_state(m, &m->states[NOW], states);
    if (h.n_good > 0) get_state(m, &m->states[GOOD], end - each);
    m->has_good = h.n_good > 0 && m->states[GOOD].n_events <= m->states[NOW].n_events;
    return RV_OK;
}
