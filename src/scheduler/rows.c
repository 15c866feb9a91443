/* What a step computes: a row of every job that decodes, then rows of prompts as the budget of time
 * allows, shared out evenly between tenants. */
#include "scheduler/internal.h"

enum {
    LEAST_ROWS = 8, /* of prompts in a step, however long it takes */
    TOGETHER = 16,  /* rows that matrix units take at once: others cost more */
    LONG = 10,      /* steps at the target that a prompt takes which is long, */
    SHORT = 256,    /* and rows of one that is not, whatever a step holds */
};

/* Gives up to n rows to the tenant's jobs, the first by rank first. One behind which others wait
 * gets half of what is left, so that no long prompt keeps them all waiting. */
static int give_tenant(rvi_scheduler *s, rvi_tenant *x, int n)
{
    int left = n, n_reading = x->n_reading;
    for (rvi_job *j = s->running; j && left > 0; j = j->next) {
        if (j->r->of != x || !j->wants) continue;
        int share = --n_reading > 0 ? (left + 1) / 2 : left;
        int rows = RVI_MIN(j->wants, share);
        j->s->allowed += rows;
        j->wants -= rows;
        left -= rows;
        if (!j->wants) x->n_reading--;
    }
    return n - left;
}

static int tenants_reading(const rvi_tenants *t)
{
    int n = 0;
    const rvi_tenant *x = t->turn;
    for (; x; x = x->next == t->turn ? NULL : x->next) n += x->n_reading > 0;
    return n;
}

static void give_prompts(rvi_scheduler *s, int left)
{
    int n_tenants;
    while (left > 0 && (n_tenants = tenants_reading(&s->tenants)) > 0) {
        int share = (left + n_tenants - 1) / n_tenants;
        rvi_tenant *x = s->tenants.turn;
        do {
            if (x->n_reading) left -= give_tenant(s, x, RVI_MIN(share, left));
            x = x->next;
        } while (x != s->tenants.turn);
    }
}

/* An encoder reads a text whole: as many as fit. */
static void choose_texts(rvi_scheduler *s)
{
    int n = 0;
    for (rvi_job *j = s->running; j; j = j->next) {
        int rows = rvi_answer_waiting(j->s);
        j->s->allowed = rows <= s->e->o.max_rows - n ? rows : 0;
        n += j->s->allowed;
    }
}

/* While others stream, prompts that would take long at the target get only as many rows as hardly
 * slow the streams down, in equal parts. Returns how many rows fewer are wanted. */
static int hold_back(rvi_scheduler *s, int n_tokens, int n_reading, double seconds)
{
    int max_rows = s->e->o.max_rows, n_long = 0, n_fewer = 0;
    int least = RVI_MIN(n_tokens + LEAST_ROWS, max_rows);
    int most = rvi_budget_rows(&s->e->budget, least, max_rows, NULL, seconds) - n_tokens;
    double depth = 0, n_short_rows = 0;
    for (rvi_job *j = s->running; j; j = j->next) {
        j->is_long = j->wants && (j->is_long || j->wants > RVI_MAX(LONG * most, SHORT));
        n_long += j->is_long;
        if (j->is_long)
            depth += j->s->seq.len;
        else
            n_short_rows += j->wants;
    }
    s->pace.n_long = n_long;
    if (!n_long) return 0;
    s->pace.alone = n_long == n_reading;
    s->pace.depth = depth / n_long;
    int rows = rvi_pace_rows(&s->pace, n_tokens, max_rows, seconds);
    if (!s->pace.alone) { /* nothing can be measured, and the streams wait for the others anyway */
        int share = rvi_pace_share(&s->pace, n_reading - n_long, n_short_rows, most);
        rows = RVI_MAX(rows ? rows : RVI_MIN(LEAST_ROWS, most), share);
    }
    int k =
        (int)(s->pace.turn++ % (unsigned)n_long); /* who gets one more differs from step to step */
    for (rvi_job *j = s->running; j; j = j->next) {
        if (!j->is_long) continue;
        int share = RVI_MIN(rows / n_long + (k < rows % n_long), j->wants);
        k = (k + 1) % n_long;
        n_fewer += j->wants - share;
        s->pace.n_given += share;
        j->wants = share;
        if (!share) j->r->of->n_reading--;
    }
    return n_fewer;
}

/* What the step will read: tokens of streams, and the rows of prompts that may come beside. */
static rvi_budget_reads count_reads(const rvi_scheduler *s)
{
    rvi_budget_reads reads = {0};
    double depth = 0, n_rows = 0;
    int n_tokens = 0;
    for (const rvi_job *j = s->running; j; j = j->next) {
        double before = j->s->seq.len;
        reads.certain += before * (j->wants ? 1 - RVI_READ_TOGETHER : j->s->allowed);
        n_tokens += j->wants ? 0 : j->s->allowed;
        depth += before * j->wants;
        n_rows += j->wants;
    }
    if (n_rows > 0) reads.each = RVI_READ_TOGETHER * depth / n_rows;
    reads.certain -= n_tokens * reads.each; /* these rows are not the prompts' */
    return reads;
}

void rvi_rows_choose(rvi_scheduler *s)
{
    int n_tokens = 0, waiting = 0, n_reading = 0;
    if (s->e->m->arch->is_encoder) {
        choose_texts(s);
        return;
    }
    s->pace.alone = false;
    s->pace.n_given = s->pace.n_long = 0;
    for (rvi_job *j = s->running; j; j = j->next) j->r->of->n_reading = 0;
    for (rvi_job *j = s->running; j; j = j->next) {
        int rows = rvi_answer_waiting(j->s);
        bool decodes = rows == 1 && j->r->kind == RV_REQUEST_ANSWER;
        j->s->allowed = decodes;
        j->wants = decodes ? 0 : rows;
        n_tokens += decodes;
        waiting += j->wants;
        j->r->of->n_reading += j->wants > 0;
        n_reading += j->wants > 0;
        s->pace.n_long += j->wants && j->is_long; /* as far as that is known */
        if (decodes) rvi_tenants_pay(&s->tenants, j->r->of, 1);
    }
    double usual = rvi_budget_seconds(&s->e->budget, RVI_MAX(n_tokens, 1));
    double target = s->o.token_seconds, n = s->n_sharing;
    double seconds = n_tokens ? rvi_pace_target(&s->pace, n_tokens, n_reading, usual, target / n)
                              : rvi_pace_target(&s->pace, 0, n_reading, usual, target) / n;
    if (n_tokens) waiting -= hold_back(s, n_tokens, n_reading, seconds);
    if (!waiting) return;
    if (s->pace.alone) { /* as many as were planned */
        give_prompts(s, waiting);
        return;
    }
    int most = RVI_MIN(s->e->o.max_rows, n_tokens + waiting),
        whole = (n_tokens + LEAST_ROWS + TOGETHER - 1) / TOGETHER * TOGETHER,
        least = RVI_MIN(whole, most);
    rvi_budget_reads reads = count_reads(s);
    int rows = rvi_budget_rows(&s->e->budget, least, most, &reads, seconds);
    give_prompts(s, rvi_pace_whole(rows, least, most) - n_tokens);
}
