/* Who runs: admission by pages, and what gives when there are too few of them. */
#include <math.h>

#include "base/log.h"
#include "base/os.h"
#include "scheduler/internal.h"

/* ---- the queue and those that run ---- */

static rvi_tenant *queue_of(rvi_scheduler *s, const rvi_job *j)
{
    return j->r->beside ? &s->beside : j->r->of;
}

void rvi_admit_wait(rvi_scheduler *s, rvi_job *j)
{
    j->running = false;
    j->waiting.rank = j->r->arrived - j->r->priority * s->o.age_seconds;
    rvi_tenant_wait(queue_of(s, j), &j->waiting);
}

static void run(rvi_scheduler *s, rvi_job *j)
{
    rvi_job **at = &s->running;
    while (*at && (*at)->waiting.rank <= j->waiting.rank) at = &(*at)->next;
    j->next = *at;
    *at = j;
    j->running = true;
    s->n_running++;
    s->n_beside += j->r->beside;
}

void rvi_admit_stop(rvi_scheduler *s, rvi_job *j)
{
    if (!j->running) {
        rvi_tenant_unwait(queue_of(s, j), &j->waiting);
        return;
    }
    rvi_job **at = &s->running;
    while (*at != j) at = &(*at)->next;
    *at = j->next;
    j->next = NULL;
    j->running = false;
    s->n_running--;
    s->n_beside -= j->r->beside;
}

/* ---- admission ---- */

/* Looks for what is known of the job's tokens and can be used: how many of the n, and their pages
 * in s->pages. The last token is computed in any case, for its logits. n_dropped: how many more are
 * known, in pages that have lost a form. */
static int look_up(rvi_scheduler *s, const rvi_prefix_space *space, const int32_t *ids, int n,
                   int *n_dropped)
{
    double start = rvi_os_seconds();
    int known = rvi_prefix_find(s->prefix, space, ids, n - 1, s->pages);
    int len = rvi_pages_reusable(s->e->pool, s->pages, known);
    *n_dropped = known - len;
    rvi_tally_add(&s->figures.lookup, rvi_os_seconds() - start);
    return len;
}

/* Will the job write to a page that others hold too, as choices do that the last page of the prompt
 * is shared with? It takes another one then, and while it copies both are there. */
static bool will_copy(const rvi_scheduler *s, const rvi_job *j)
{
    const rvi_seq *own = &j->s->seq;
    int at = own->len / RVI_PAGE_TOKENS;
    if (j->r->n_jobs > 1 && !j->r->is_read) return true;
    return at < own->n_pages && rvi_pages_refs(s->e->pool, own->pages[at]) > 1;
}

/* Pages that those who run may still take. */
static int64_t growth(const rvi_scheduler *s)
{
    int64_t n = 0;
    for (const rvi_job *j = s->running; j; j = j->next)
        n += rvi_pages_for(rvi_job_total(j)) - j->s->seq.n_pages + will_copy(s, j);
    return n;
}

/* Is there room for the job, of whose tokens n_known are in s->pages? What others that run hold too
 * needs no room of its own. Who was preempted comes back when it can stay. later: who was first and
 * will need room too; or NULL */
static bool fits(const rvi_scheduler *s, const rvi_job *j, int n_known, const rvi_job *later)
{
    if (!s->n_running) return true;
    const rvi_pages *pool = s->e->pool;
    int total = rvi_pages_total(pool), need = rvi_pages_for(rvi_job_total(j));
    int now = rvi_pages_for(j->s ? (int)j->s->past.len : j->r->n_ids);
    if (later) {
        need += rvi_pages_for(rvi_job_total(later)) + 1; /* and one that it may copy */
        now += rvi_pages_for(later->r->n_ids);
    }
    int held = rvi_pages_in_use(pool) - rvi_pages_idle(pool);
    for (int i = 0; i < n_known / RVI_PAGE_TOKENS; i++) {
        if (rvi_pages_refs(pool, s->pages[i]) < 2) continue; /* the tree's alone */
        need--;
        now--;
    }
    /* a page that is known in part is held until it has been copied, and so is the last one of a
     * prompt that choices share */
    need += n_known % RVI_PAGE_TOKENS > 0 || (j->r->n_jobs > 1 && !j->r->is_read);
    double room = total * (j->n_preempted ? 1 : s->o.overcommit);
    return held + now + 1 <= total && (double)(held + growth(s) + need) <= room;
}

static void adopt(rvi_scheduler *s, rvi_job *j)
{
    rvi_session *own = j->s;
    rvi_prefix_space space = rvi_job_space(s, j);
    int n_dropped = 0, n = 0;
    if (j->spilled.n_pages) {
        bool failed;
        n = rvi_spill_in(&j->spilled, s->prefix, &space, s->e->pool, own->past.data, s->pages,
                         &s->spill_costs, &failed);
        if (failed) rvi_figures_add(&s->figures.n_spill_failed, 1);
        rvi_figures_add(&s->figures.spilled_rows, (uint64_t)n);
        rvi_job_unspill(s, j);
    }
    if (j->r->kind == RV_REQUEST_ANSWER)
        n = look_up(s, &space, own->past.data, (int)own->past.len, &n_dropped);
    rvi_session_adopt(own, s->pages, n);
    rvi_figures_add(&s->figures.dropped_rows, (uint64_t)n_dropped);
    if (j->n_preempted) {
        rvi_figures_add(&s->figures.recomputed_rows, (uint64_t)RVI_MAX(j->n_computed - n, 0));
        return;
    }
    j->n_reused = n;
    rvi_figures_add(&s->figures.prompt_tokens, (uint64_t)j->r->n_ids);
    rvi_figures_add(&s->figures.reused_tokens, (uint64_t)n);
    rvi_tenants_pay(&s->tenants, j->r->of, j->r->n_ids - n);
}

static void note_admission(rvi_scheduler *s, rvi_job *j)
{
    if (j->admitted > 0) return;
    j->admitted = s->now;
    rvi_tally_add(&s->figures.queue, s->now - j->r->arrived);
    if (j->r->admitted) return;
    j->r->admitted = true;
    rvi_lock_take(s->lock);
    s->n_waiting -= !j->r->beside;
    rvi_lock_give(s->lock);
}

/* What beginning takes, in pieces until `end`; false: there are more. However many they seem to be,
 * it begins at some time. */
static bool prepare(rvi_job *j, double end)
{
    enum { MOST = 4096 };
    const rvi_order_hooks *h = &j->r->hooks;
    while (!j->s && h->prepare && j->n_pieces < MOST && h->prepare(h->ctx)) {
        j->n_pieces++;
        if (rvi_os_seconds() > end) return false;
    }
    return true;
}

/* True: the request has another prompt since. */
static bool compose(rvi_order *r)
{
    bool asked = r->composed || !r->hooks.compose;
    r->composed = true;
    return !asked && r->hooks.compose(r->hooks.ctx, r);
}

typedef enum admission { NO_ROOM, LATER, ADMITTED } admission;

/* end: until when its beginning may be prepared in this step. later: whom it passes, or NULL */
static admission admit(rvi_scheduler *s, rvi_job *j, double end, const rvi_job *later)
{
    rvi_order *r = j->r;
    int n_known = 0, n_dropped;
    if (r->kind == RV_REQUEST_ANSWER) {
        rvi_prefix_space space = rvi_job_space(s, j);
        n_known = j->s ? look_up(s, &space, j->s->past.data, (int)j->s->past.len, &n_dropped)
                       : look_up(s, &space, r->ids, r->n_ids, &n_dropped);
    }
    if (!fits(s, j, n_known, later)) {
        if (later || !rvi_share_is_short(s)) return NO_ROOM;
        rvi_share_ask(s, rvi_pages_for(rvi_job_total(j)), true);
        if (!fits(s, j, n_known, NULL)) return NO_ROOM;
    }
    if (!prepare(j, end)) return LATER;
    if (compose(r)) return admit(s, j, end, later);
    rv_error why = {0};
    rv_status st = j->s ? RV_OK : rvi_job_begin(s, j, &why);
    rvi_admit_stop(s, j); /* it waits no more */
    run(s, j);
    note_admission(s, j);
    if (st) {
        rvi_job_end(s, j, RV_FINISH_ERROR, st, &why);
        rvi_scheduler_job_ended(s, r);
    } else {
        adopt(s, j);
    }
    return ADMITTED;
}

/* Does its beginning take next to no time? */
static bool is_quick(const rvi_job *j)
{
    return (j->s || !j->r->hooks.prepare) && !j->spilled.n_pages && !j->r->kept;
}

/* The tenant's first, but for `later`, which quick ones alone may pass; NULL: none. */
static rvi_job *first_of(const rvi_tenant *x, const rvi_job *later)
{
    rvi_job *j = (rvi_job *)x->first;
    if (j && j == later) j = (rvi_job *)j->waiting.next;
    return j && later && !is_quick(j) ? NULL : j;
}

static bool has_waiting(void *ctx, const rvi_tenant *x)
{
    return first_of(x, ctx) != NULL;
}

static void reject(rvi_scheduler *s, rvi_job *j)
{
    rv_error why;
    rvi_order *r = j->r;
    rv_status st = rvi_error(&why, RV_E_BUSY, "there is no room for %d tokens now: try again later",
                             rvi_job_total(j));
    rvi_job_end(s, j, RV_FINISH_ERROR, st, &why);
    rvi_scheduler_job_ended(s, r);
}

static bool any_streams(const rvi_scheduler *s)
{
    const rvi_job *j = s->running;
    while (j && !j->n_generated) j = j->next;
    return j != NULL;
}

/* What a learner decides at the beginning of an answer, and pages that are read from disk, take
 * milliseconds: while somebody listens, that is spread over steps, a pass at a time. Meanwhile
 * those that need nothing of the kind may pass, if there is a place and room for both; the one that
 * is passed goes on in the next step as if it had not been. */
void rvi_admit_waiting(rvi_scheduler *s)
{
    const double part = 0.1; /* of the time between two tokens */
    double end = any_streams(s) ? rvi_os_seconds() + part * s->o.token_seconds : INFINITY;
    rvi_job *later = NULL;
    s->tenants.begins = NULL;
    while (s->beside.first && s->n_beside < RVI_BESIDE)
        if (admit(s, (rvi_job *)s->beside.first, end, NULL) != ADMITTED) break;
    for (int n = 0; s->n_running - s->n_beside + (later != NULL) < s->o.max_running; n++) {
        if (n && !later && rvi_os_seconds() > end) return;
        rvi_tenant *x = rvi_tenants_next(&s->tenants, has_waiting, later);
        rvi_job *j = x ? first_of(x, later) : NULL;
        if (!j) break;
        admission got = admit(s, j, end, later);
        if (got == ADMITTED) continue;
        if (got == LATER) {
            later = j;
            s->tenants.begins = &j->waiting;
            continue;
        }
        if (later || s->o.pressure != RV_PRESSURE_REJECT || j->s) break;
        reject(s, j);
    }
    if (later) s->tenants.turn = later->r->of;
}

/* ---- too few pages ---- */

static int needed(const rvi_scheduler *s)
{
    int need = 0;
    for (const rvi_job *j = s->running; j; j = j->next)
        need += rvi_seq_wants(&j->s->seq, RVI_MIN(j->s->allowed, rvi_answer_waiting(j->s)));
    return need;
}

static int lacking(const rvi_scheduler *s)
{
    return needed(s) - (rvi_pages_total(s->e->pool) - rvi_pages_in_use(s->e->pool));
}

static rvi_job *youngest(const rvi_scheduler *s)
{
    rvi_job *best = NULL;
    for (rvi_job *j = s->running; j; j = j->next)
        if (!best || j->r->id > best->r->id || (j->r == best->r && j->choice > best->choice))
            best = j;
    return best;
}

/* Is writing n pages to disk and reading them again worth it? What is not known is tried. */
static bool is_worth_spilling(const rvi_scheduler *s, int n_pages)
{
    if (s->o.pressure != RV_PRESSURE_CHEAPER) return s->o.pressure == RV_PRESSURE_SPILL;
    const rvi_spill_costs *c = &s->spill_costs;
    int n = n_pages * RVI_PAGE_TOKENS, rows = RVI_MIN(n, s->e->o.max_rows);
    double again = rvi_budget_seconds(&s->e->budget, rows) * n / RVI_MAX(rows, 1);
    return again > n_pages * (c->write + c->read);
}

static void spill(rvi_scheduler *s, rvi_job *j)
{
    rv_error why = {.text = "the limit of its bytes is reached"};
    int n_pages = j->s->seq.len / RVI_PAGE_TOKENS;
    if (!s->spill.len || !n_pages || !is_worth_spilling(s, n_pages)) return;
    uint64_t bytes = (uint64_t)n_pages * rvi_pages_bytes(s->e->pool);
    rvi_job_unspill(s, j);
    bool failed = (s->o.spill_bytes && s->spilled_bytes + bytes > s->o.spill_bytes) ||
                  rvi_spill_out(&j->spilled, s->spill.data, &j->s->seq, &s->spill_costs, &why);
    if (!failed) s->spilled_bytes += bytes;
    if (failed && !s->spill_failed) /* said once, until there is room again */
        rvi_log_write(s->e->m->be->log, RVI_LOG_WARN,
                      "requests that lose their room are not written to %s but computed again: %s",
                      s->spill.data, why.text);
    s->spill_failed = failed;
    rvi_figures_add(failed ? &s->figures.n_spill_failed : &s->figures.n_spilled, 1);
}

/* Its pages go to the tree, from whose end they are taken as they are needed. */
static void preempt(rvi_scheduler *s, rvi_job *j)
{
    j->n_computed = j->s->seq.len;
    j->n_preempted++;
    rvi_figures_add(&s->figures.n_preempted, 1);
    if (j->r->kind == RV_REQUEST_ANSWER) {
        rvi_job_keep(s, j, false);
        spill(s, j);
    }
    rvi_session_suspend(j->s);
    j->s->allowed = 0;
    s->pace.n_planned = 0; /* the step does not have the rows any more that it was to have */
    rvi_admit_stop(s, j);
    rvi_admit_wait(s, j);
}

/* ---- what changes texts ---- */

enum { SINK = RVI_PAGE_TOKENS, LEAST_KEPT = 64 }; /* of an answer that forgets */

static bool may_change(const rvi_job *j)
{
    return j->r->kind == RV_REQUEST_ANSWER && !j->r->exact && !j->r->kept;
}

/* How many tokens the job could forget now: half of those behind the first page, but the newest
 * stay. Before the first token of the answer it reads on. */
static int forgettable(const rvi_job *j)
{
    int n = (int)j->s->past.len - SINK;
    if (!may_change(j) || !(j->first > 0)) return 0;
    return RVI_MIN(n / 2, n - LEAST_KEPT) / RVI_PAGE_TOKENS * RVI_PAGE_TOKENS;
}

/* False: nobody has anything to forget. */
static bool evict(rvi_scheduler *s)
{
    rvi_job *longest = NULL;
    int most = 0;
    for (rvi_job *j = s->running; j; j = j->next) {
        int n = forgettable(j);
        if (n <= most) continue;
        most = n;
        longest = j;
    }
    if (!longest) return false;
    rvi_session *own = longest->s;
    rvi_job_keep(s, longest, false); /* another request may be about the whole text */
    int before = own->seq.len - most;
    rvi_answer_cut(own, SINK, most);
    rvi_figures_add(&s->figures.recomputed_rows, (uint64_t)RVI_MAX(before - own->seq.len, 0));
    longest->n_evicted += most;
    own->allowed = RVI_MIN(own->allowed, 1);
    rvi_figures_add(&s->figures.n_evicted, (uint64_t)most);
    return true;
}

/* False: all that may be are in 4 bits. */
static bool coarsen(rvi_scheduler *s)
{
    rvi_job *longest = NULL;
    for (rvi_job *j = s->running; j; j = j->next)
        if (may_change(j) && !j->s->seq.coarse && j->s->seq.n_pages > 1 &&
            (!longest || j->s->seq.len > longest->s->seq.len))
            longest = j;
    if (!longest) return false;
    rvi_seq_coarsen(&longest->s->seq);
    rvi_figures_add(&s->figures.n_coarsened, 1);
    return true;
}

/* ---- */

static bool change_a_text(rvi_scheduler *s)
{
    if (s->o.pressure == RV_PRESSURE_EVICT) return evict(s);
    return s->o.pressure == RV_PRESSURE_QUANTIZE && coarsen(s);
}

int rvi_admit_drop_kept(rvi_scheduler *s, int n)
{
    int given = rvi_prefix_evict(s->prefix, n);
    rvi_figures_add(&s->figures.n_dropped_kept, (uint64_t)given);
    return given;
}

/* Where pages count by their forms: what the last step has filled is read in fewer bits now. */
static void drop_unread(const rvi_scheduler *s)
{
    if (s->o.pressure != RV_PRESSURE_QUANTIZE) return;
    for (const rvi_job *j = s->running; j; j = j->next)
        rvi_seq_drop_unread(&j->s->seq, j->s->seq.len, j->s->seq.len);
}

void rvi_admit_make_room(rvi_scheduler *s)
{
    bool asked = false, looked = false;
    drop_unread(s);
    for (int n; (n = lacking(s)) > 0 || !rvi_share_take(s, needed(s));) {
        if (!asked && rvi_share_is_short(s)) {
            rvi_share_ask(s, RVI_MAX(n, 1), false);
            asked = true;
            continue;
        }
        if (n <= 0 && !looked) {
            rvi_share_allow(s);
            looked = true;
            continue;
        }
        n = RVI_MAX(n, 1); /* others have taken the bytes of what is free */
        if (rvi_admit_drop_kept(s, n) == n) continue;
        if (change_a_text(s)) continue;
        if (s->n_running < 2) { /* what a request may need at most fits, but for what is saved */
            if (s->saving && s->running) s->running->s->allowed = 0;
            return;
        }
        preempt(s, youngest(s));
    }
    /* guesses may begin a page: what is merely kept makes room for that, nobody who runs does */
    int spare = -lacking(s);
    if (spare < s->n_running) (void)rvi_admit_drop_kept(s, s->n_running - spare);
}

void rvi_admit_limit_kept(rvi_scheduler *s)
{
    int n = rvi_pages_idle(s->e->pool), most = s->o.cache_pages;
    if (!most || n <= most) return;
    (void)rvi_admit_drop_kept(s, n - most + most / 4);
}
