#include "lora/merge.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "lora/svd.h"

/* B and A of one slot in double, B's columns and A's rows one after the other, `rank` of each.
 * Columns are padded with zeros to n_b and n_a values, so that none is shorter than the rank. */
typedef struct factors {
    double *b, *a;
    int rank, n_out, n_in, n_b, n_a;
} factors;

/* The product of such factors as Qb U diag(s) V^T Qa^T. */
typedef struct decomposed {
    factors q;       /* Qb, Qa */
    double *rb, *ra; /* rank x rank */
    double *u, *v, *s;
    int rank;
} decomposed;

typedef struct merger {
    const rvi_merge_rule *rule;
    const rvi_merge_part *parts;
    int n_parts;
    const rvi_lora_target *targets;
    rvi_adapter *out;
    int rank;
    rvi_merge_report report;
    double lost;     /* energy */
    rvi_arena arena; /* of the slot in work */
    rv_error *err;
} merger;

struct rvi_merge_rule {
    const char *name;
    rv_status (*check)(const merger *m);
    double (*weight)(const merger *m, int part); /* NULL: not a weighted sum of products */
};

static double *doubles(merger *m, size_t n)
{
    return rvi_arena_alloc(&m->arena, n, sizeof(double));
}

static size_t times(int a, int b)
{
    return (size_t)a * (size_t)b;
}

static rv_status factors_new(merger *m, factors *f, const rvi_lora_target *t, int rank)
{
    *f = (factors){.rank = rank,
                   .n_out = t->n_out,
                   .n_in = t->n_in,
                   .n_b = RVI_MAX(t->n_out, rank),
                   .n_a = RVI_MAX(t->n_in, rank)};
    f->b = doubles(m, times(f->n_b, rank));
    f->a = doubles(m, times(f->n_a, rank));
    return f->b && f->a ? RV_OK : rvi_nomem(m->err, "merging");
}

/* Values of part's slot, B times `weight`, as columns and rows `first` and following of f. */
static rv_status add_part(merger *m, factors *f, int slot, int part, double weight, int first)
{
    const rvi_adapter *a = m->parts[part].adapter;
    int rank = rvi_adapter_rank(a, slot);
    float *ma = rvi_arena_alloc(&m->arena, times(rank, f->n_in + f->n_out), sizeof *ma);
    if (!ma) return rvi_nomem(m->err, "merging");
    float *mb = ma + times(rank, f->n_in);
    rvi_adapter_read(a, slot, ma, mb);
    double sum = 0; /* not a number if one of them is not */
    for (int k = 0; k < rank; k++) {
        double *to_a = f->a + times(f->n_a, first + k), *to_b = f->b + times(f->n_b, first + k);
        for (int i = 0; i < f->n_in; i++)
            sum += to_a[i] = (double)ma[times(k, f->n_in) + (size_t)i];
        for (int i = 0; i < f->n_out; i++)
            sum += to_b[i] = weight * (double)mb[times(i, rank) + (size_t)k];
    }
    if (!isfinite(sum))
        return rvi_error(m->err, RV_E_ADAPTER, "merging: adapter %d, layer '%s': not a number",
                         part + 1, m->targets[slot].hf_name);
    return RV_OK;
}

/* f is used up. */
static rv_status decompose(merger *m, decomposed *d, factors *f)
{
    int n = f->rank;
    size_t square = times(n, n);
    *d = (decomposed){.q = *f, .rank = n};
    d->rb = doubles(m, 4 * square + (size_t)n);
    if (!d->rb) return rvi_nomem(m->err, "merging");
    d->ra = d->rb + square;
    d->u = d->ra + square;
    d->v = d->u + square;
    d->s = d->v + square;
    rvi_qr(d->q.b, f->n_b, n, d->rb);
    rvi_qr(d->q.a, f->n_a, n, d->ra);
    for (int j = 0; j < n; j++) /* Rb Ra^T */
        for (int i = 0; i < n; i++) {
            double sum = 0;
            for (int k = RVI_MAX(i, j); k < n; k++)
                sum += d->rb[times(k, n) + (size_t)i] * d->ra[times(k, n) + (size_t)j];
            d->u[times(j, n) + (size_t)i] = sum;
        }
    rvi_svd(d->u, n, d->s, d->v);
    return RV_OK;
}

/* to (n_to values) = sqrt(s) times the combination of the columns of q (n values) by turn */
static void combine(double *to, int n_to, const double *q, int n, const double *turn, int n_columns,
                    double s)
{
    for (int k = 0; k < n_columns; k++)
        for (int i = 0; i < n_to; i++) to[i] += sqrt(s) * turn[k] * q[times(k, n) + (size_t)i];
}

/* Balanced factors of the `rank` largest singular values: both sides have the same norms. */
static rv_status balanced(merger *m, factors *f, const decomposed *d, const rvi_lora_target *t,
                          int rank)
{
    rv_status st = factors_new(m, f, t, rank);
    for (int i = 0; !st && i < rank; i++) {
        combine(f->b + times(f->n_b, i), f->n_out, d->q.b, d->q.n_b, d->u + times(i, d->rank),
                d->rank, d->s[i]);
        combine(f->a + times(f->n_a, i), f->n_in, d->q.a, d->q.n_a, d->v + times(i, d->rank),
                d->rank, d->s[i]);
    }
    return st;
}

/* ---- weighted sums ---- */

static rv_status sum_parts(merger *m, factors *f, int slot)
{
    int rank = 0, first = 0;
    for (int i = 0; i < m->n_parts; i++) rank += rvi_adapter_rank(m->parts[i].adapter, slot);
    if (rank > RVI_MAX_RANK)
        return rvi_error(m->err, RV_E_ADAPTER, "merging: the ranks add up to %d, more than %d",
                         rank, RVI_MAX_RANK);
    rv_status st = factors_new(m, f, &m->targets[slot], rank);
    for (int i = 0; !st && i < m->n_parts; i++) {
        const rvi_adapter *a = m->parts[i].adapter;
        if (!a->slots[slot].a) continue;
        st = add_part(m, f, slot, i, m->rule->weight(m, i) * (double)a->slots[slot].scale, first);
        first += rvi_adapter_rank(a, slot);
    }
    return st;
}

/* ---- by Fisher information ---- */

/* Where the Fisher information of a slot begins. */
static const float *fisher_at(const rvi_merge_part *p, const rvi_lora_target *targets, int slot)
{
    const float *f = p->fisher;
    for (int i = 0; i < slot; i++)
        f += times(rvi_adapter_rank(p->adapter, i), targets[i].n_in + targets[i].n_out);
    return f;
}

/* What turns a part's own factors into those of the common form, B' = B g and A' = h A with h the
 * inverse of g: both rank x rank, rank the largest of all parts. A direction without a singular
 * value has none: zero. */
typedef struct gauge {
    double *g, *h;
} gauge;

static rv_status find_gauge(merger *m, gauge *to, const decomposed *d)
{
    int n = d->rank;
    to->g = doubles(m, 2 * times(n, n));
    if (!to->g) return rvi_nomem(m->err, "merging");
    to->h = to->g + times(n, n);
    for (int i = 0; i < n; i++) {
        if (d->s[i] <= 0) continue;
        double root = sqrt(d->s[i]);
        for (int k = 0; k < n; k++) {
            double g = 0, h = 0; /* g = Ra^T V / root, h = U^T Rb / root */
            for (int l = 0; l < n; l++) {
                g += d->ra[times(k, n) + (size_t)l] * d->v[times(i, n) + (size_t)l];
                h += d->rb[times(k, n) + (size_t)l] * d->u[times(i, n) + (size_t)l];
            }
            to->g[times(i, n) + (size_t)k] = g / root; /* g: column i, row k */
            to->h[times(k, n) + (size_t)i] = h / root; /* h: column k, row i */
        }
    }
    return RV_OK;
}

/* x (n columns of n_x, of which n_rows count) times turn (n x n), in place; line: room for n. */
static void turn_columns(double *x, int n_x, int n_rows, int n, const double *turn, double *line)
{
    for (int r = 0; r < n_rows; r++) {
        for (int j = 0; j < n; j++) {
            line[j] = 0;
            for (int k = 0; k < n; k++)
                line[j] += x[times(k, n_x) + (size_t)r] * turn[times(j, n) + (size_t)k];
        }
        for (int j = 0; j < n; j++) x[times(j, n_x) + (size_t)r] = line[j];
    }
}

/* Turns f, and its gauge, by the orthogonal matrix that brings it nearest to `to`. */
static rv_status align(merger *m, factors *f, gauge *g, const factors *to)
{
    int n = f->rank;
    double *u = doubles(m, 3 * times(n, n) + 2 * (size_t)n);
    if (!u) return rvi_nomem(m->err, "merging");
    double *v = u + times(n, n), *turn = v + times(n, n), *s = turn + times(n, n), *line = s + n;
    for (int j = 0; j < n; j++)
        for (int i = 0; i < n; i++) {
            double sum = 0;
            for (int k = 0; k < f->n_out; k++)
                sum += f->b[times(i, f->n_b) + (size_t)k] * to->b[times(j, f->n_b) + (size_t)k];
            for (int k = 0; k < f->n_in; k++)
                sum += f->a[times(i, f->n_a) + (size_t)k] * to->a[times(j, f->n_a) + (size_t)k];
            u[times(j, n) + (size_t)i] = sum;
        }
    rvi_svd(u, n, s, v);
    for (int j = 0; j < n; j++)
        for (int i = 0; i < n; i++)
            for (int k = 0; k < n; k++) /* U V^T */
                turn[times(j, n) + (size_t)i] +=
                    u[times(k, n) + (size_t)i] * v[times(k, n) + (size_t)j];
    turn_columns(f->b, f->n_b, f->n_out, n, turn, line);
    turn_columns(f->a, f->n_a, f->n_in, n, turn, line); /* A's rows: (turn^T A)^T = A^T turn */
    turn_columns(g->g, n, n, n, turn, line);
    for (int k = 0; k < n; k++) { /* h: turn^T h */
        double *column = g->h + times(k, n);
        for (int i = 0; i < n; i++) {
            line[i] = 0;
            for (int l = 0; l < n; l++) line[i] += turn[times(i, n) + (size_t)l] * column[l];
        }
        memcpy(column, line, (size_t)n * sizeof *column);
    }
    return RV_OK;
}

/* sum += fisher * x and weight += fisher, the diagonal of a part's Fisher information taken into
 * the common form: of A'[i] sum_k g[k,i]^2 F_A[k], of B'[.,i] sum_k h[i,k]^2 F_B[.,k] / scale^2. */
static void add_weighted(factors *sum, factors *weight, const factors *x, const gauge *g,
                         const float *fisher, int rank, float scale)
{
    const float *fisher_b = fisher + times(rank, x->n_in);
    double per_b = scale != 0 ? 1 / ((double)scale * (double)scale) : 0;
    for (int i = 0; i < x->rank; i++) {
        for (int c = 0; c < x->n_in; c++) {
            double f = 0;
            for (int k = 0; k < rank; k++) {
                double turn = g->g[times(i, x->rank) + (size_t)k];
                f += turn * turn * (double)fisher[times(k, x->n_in) + (size_t)c];
            }
            sum->a[times(i, x->n_a) + (size_t)c] += f * x->a[times(i, x->n_a) + (size_t)c];
            weight->a[times(i, x->n_a) + (size_t)c] += f;
        }
        for (int r = 0; r < x->n_out; r++) {
            double f = 0;
            for (int k = 0; k < rank; k++) {
                double turn = g->h[times(k, x->rank) + (size_t)i];
                f += turn * turn * (double)fisher_b[times(r, rank) + (size_t)k];
            }
            sum->b[times(i, x->n_b) + (size_t)r] += f * per_b * x->b[times(i, x->n_b) + (size_t)r];
            weight->b[times(i, x->n_b) + (size_t)r] += f * per_b;
        }
    }
}

/* Where nothing depends on a value in any part: their plain mean. */
static void divide(double *sum, const double *weight, const double *mean, size_t n)
{
    for (size_t i = 0; i < n; i++) sum[i] = weight[i] > 0 ? sum[i] / weight[i] : mean[i];
}

static rv_status fisher_parts(merger *m, factors *f, int slot)
{
    const rvi_lora_target *t = &m->targets[slot];
    factors first = {0}, weight, mean;
    int rank = 0, n_with = 0;
    for (int i = 0; i < m->n_parts; i++) {
        int r = rvi_adapter_rank(m->parts[i].adapter, slot);
        rank = RVI_MAX(rank, r);
        n_with += r > 0;
    }
    rv_status st = factors_new(m, f, t, rank);
    if (!st) st = factors_new(m, &weight, t, rank);
    if (!st) st = factors_new(m, &mean, t, rank);
    for (int i = 0; !st && i < m->n_parts; i++) {
        const rvi_merge_part *p = &m->parts[i];
        const rvi_lora_slot *s = &p->adapter->slots[slot];
        factors own, x;
        decomposed d;
        gauge g = {0};
        if (!s->a) continue;
        st = factors_new(m, &own, t, rank);
        if (!st) st = add_part(m, &own, slot, i, (double)s->scale, 0);
        if (!st) st = decompose(m, &d, &own);
        if (!st) st = balanced(m, &x, &d, t, rank);
        if (!st) st = find_gauge(m, &g, &d);
        if (!st && first.rank) st = align(m, &x, &g, &first);
        if (st) return st;
        if (!first.rank) first = x;
        add_weighted(f, &weight, &x, &g, fisher_at(p, m->targets, slot),
                     rvi_adapter_rank(p->adapter, slot), s->scale);
        for (size_t k = 0; k < times(x.n_b, rank); k++) mean.b[k] += x.b[k] / n_with;
        for (size_t k = 0; k < times(x.n_a, rank); k++) mean.a[k] += x.a[k] / n_with;
    }
    if (st) return st;
    divide(f->b, weight.b, mean.b, times(f->n_b, rank));
    divide(f->a, weight.a, mean.a, times(f->n_a, rank));
    return RV_OK;
}

/* ---- the rules ---- */

static rv_status check_nothing(const merger *m)
{
    (void)m;
    return RV_OK;
}

static double weigh_one(const merger *m, int part)
{
    (void)m;
    (void)part;
    return 1;
}

static double weigh_equally(const merger *m, int part)
{
    (void)part;
    return 1.0 / m->n_parts;
}

static double total_quality(const merger *m)
{
    double sum = 0;
    for (int i = 0; i < m->n_parts; i++) sum += m->parts[i].quality * m->parts[i].n_samples;
    return sum;
}

static rv_status check_quality(const merger *m)
{
    double sum = total_quality(m);
    bool good = isfinite(sum) && sum > 0;
    for (int i = 0; i < m->n_parts; i++)
        good = good && m->parts[i].quality >= 0 && m->parts[i].n_samples >= 0;
    return good ? RV_OK
                : rvi_error(m->err, RV_E_INVALID,
                            "merging by quality needs qualities and counts that are not negative, "
                            "and one that is more than 0");
}

static double weigh_quality(const merger *m, int part)
{
    return m->parts[part].quality * m->parts[part].n_samples / total_quality(m);
}

static rv_status check_two(const merger *m)
{
    return m->n_parts == 2 ? RV_OK
                           : rvi_error(m->err, RV_E_INVALID,
                                       "a moving average takes two adapters: the running one and "
                                       "the new one");
}

static double weigh_moving(const merger *m, int part)
{
    (void)m;
    return part ? 0.01 : 0.99;
}

static rv_status check_fisher(const merger *m)
{
    for (int i = 0; i < m->n_parts; i++) {
        const float *f = m->parts[i].fisher;
        size_t n = rvi_adapter_n_params(m->parts[i].adapter);
        if (!f)
            return rvi_error(m->err, RV_E_INVALID,
                             "merging by Fisher information: adapter %d has none", i + 1);
        for (size_t k = 0; k < n; k++)
            if (!(f[k] >= 0) || isinf(f[k]))
                return rvi_error(m->err, RV_E_ADAPTER,
                                 "merging: the Fisher information of adapter %d holds a value that "
                                 "is negative or not a number",
                                 i + 1);
    }
    return RV_OK;
}

static const rvi_merge_rule rules[] = {
    {"average", check_nothing, weigh_equally},
    {"quality_weighted", check_quality, weigh_quality},
    {"ewc", check_fisher, NULL},
    {"ema", check_two, weigh_moving},
    {"sum", check_nothing, weigh_one},
};

const rvi_merge_rule *rvi_merge_find(const char *name)
{
    for (size_t i = 0; i < RVI_COUNT(rules); i++)
        if (!strcmp(rules[i].name, name)) return &rules[i];
    return NULL;
}

/* ---- slot by slot ---- */

static rv_status put(merger *m, int slot, const factors *f)
{
    int rank = f->rank;
    float *a = rvi_arena_alloc(&m->arena, times(rank, f->n_in + f->n_out), sizeof *a);
    if (!a) return rvi_nomem(m->err, "merging");
    float *b = a + times(rank, f->n_in);
    for (int k = 0; k < rank; k++) {
        for (int i = 0; i < f->n_in; i++)
            a[times(k, f->n_in) + (size_t)i] = (float)f->a[times(k, f->n_a) + (size_t)i];
        for (int i = 0; i < f->n_out; i++)
            b[times(i, rank) + (size_t)k] = (float)f->b[times(k, f->n_b) + (size_t)i];
    }
    return rvi_adapter_put(m->out, slot, &m->targets[slot], rank, 1, a, b, m->err);
}

static void account(merger *m, int slot, double energy, double lost)
{
    double share = energy > 0 ? lost / energy : 0;
    m->report.energy += energy;
    m->lost += lost;
    if (m->report.slots) m->report.slots[slot] = share;
    if (share > m->report.worst) {
        m->report.worst = share;
        m->report.worst_slot = slot;
    }
}

static rv_status merge_slot(merger *m, int slot)
{
    factors f, kept;
    decomposed d;
    rv_status st = m->rule->weight ? sum_parts(m, &f, slot) : fisher_parts(m, &f, slot);
    if (!st && !m->rank) st = put(m, slot, &f); /* before f is used up */
    if (!st) st = decompose(m, &d, &f);
    if (st) return st;
    int rank = m->rank ? RVI_MIN(m->rank, f.rank) : f.rank;
    double energy = 0, lost = 0;
    for (int i = 0; i < f.rank; i++) {
        energy += d.s[i] * d.s[i];
        if (i >= rank) lost += d.s[i] * d.s[i];
    }
    account(m, slot, energy, lost);
    if (!m->rank) return RV_OK;
    st = balanced(m, &kept, &d, &m->targets[slot], rank);
    return st ? st : put(m, slot, &kept);
}

static rv_status check_parts(const merger *m, int n_slots)
{
    if (m->rank < 0 || m->rank > RVI_MAX_RANK)
        return rvi_error(m->err, RV_E_INVALID, "merging: rank must be 0..%d (got %d)", RVI_MAX_RANK,
                         m->rank);
    for (int i = 0; i < m->n_parts; i++)
        if (m->parts[i].adapter->n_slots != n_slots)
            return rvi_error(m->err, RV_E_INVALID, "merging: adapters of different models");
    return m->rule->check(m);
}

static bool is_used(const merger *m, int slot)
{
    for (int i = 0; i < m->n_parts; i++)
        if (m->parts[i].adapter->slots[slot].a) return true;
    return false;
}

static rv_status check_loss(merger *m)
{
    m->report.lost = m->report.energy > 0 ? m->lost / m->report.energy : 0;
    if (m->report.lost <= RVI_MERGE_MAX_LOST) return RV_OK;
    return rvi_error(m->err, RV_E_ADAPTER,
                     "merging to rank %d would discard %.2f %% of the energy (%.2f %% in '%s'); up "
                     "to %g %% is accepted: take a higher rank",
                     m->rank, 100 * m->report.lost, 100 * m->report.worst,
                     m->targets[m->report.worst_slot].hf_name, 100 * RVI_MERGE_MAX_LOST);
}

rv_status rvi_adapter_merge(rvi_adapter **out, const rvi_lora_target *targets,
                            const rvi_merge_rule *rule, const rvi_merge_part *parts, int n_parts,
                            int rank, rvi_merge_report *report, rv_error *err)
{
    *out = NULL;
    if (n_parts < 1) return rvi_error(err, RV_E_INVALID, "merging: no adapters");
    merger m = {.rule = rule,
                .parts = parts,
                .n_parts = n_parts,
                .targets = targets,
                .rank = rank,
                .report = {.worst_slot = -1, .slots = report ? report->slots : NULL},
                .err = err};
    int n_slots = parts[0].adapter->n_slots;
    for (int i = 0; m.report.slots && i < n_slots; i++) m.report.slots[i] = 0;
    rv_status st = check_parts(&m, n_slots);
    if (!st) st = rvi_adapter_new(&m.out, parts[0].adapter->be, n_slots, err);
    for (int i = 0; !st && i < n_slots; i++) {
        if (is_used(&m, i)) st = merge_slot(&m, i);
        rvi_arena_deinit(&m.arena);
    }
    if (!st) st = check_loss(&m);
    if (!st) st = rvi_adapter_seal(m.out, err);
    if (report) *report = m.report;
    if (st)
        rvi_adapter_free(m.out);
    else
        *out = m.out;
    return st;
}
