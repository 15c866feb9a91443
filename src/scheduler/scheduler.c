/* Lifetimes, the inbox, and the step. */
#include "scheduler/scheduler.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/os.h"
#include "base/sha256.h"
#include "scheduler/internal.h"

rv_status rvi_scheduler_new(rvi_scheduler **out, rvi_engine *e, const rvi_scheduler_options *o,
                            rv_error *err)
{
    *out = NULL;
    rvi_scheduler *s = rvi_zalloc(sizeof *s);
    if (!s) return rvi_nomem(err, "scheduler");
    s->e = e;
    s->o = *o;
    s->n_sharing = 1;
    s->tenants.quantum = o->quantum;
    s->key[0] = rvi_os_random();
    s->key[1] = rvi_os_random();
    atomic_init(&s->any_cancelled, false);
    atomic_init(&s->givable, 0);
    atomic_init(&s->to_give, 0);
    e->event_gap = INFINITY; /* events in the middle of a step would not leave before its end */
    s->pages = rvi_alloc_array((size_t)rvi_pages_most(e->pool) + 1, sizeof *s->pages);
    rv_status st = s->pages ? RV_OK : rvi_nomem(err, "scheduler");
    if (!st && o->spill && !rvi_buf_printf(&s->spill, "%s", o->spill))
        st = rvi_nomem(err, "scheduler");
    if (!st) st = rvi_lock_new(&s->lock, err);
    if (!st) st = rvi_events_init(&s->events, err);
    if (!st) st = rvi_prefix_new(&s->prefix, e->pool, RVI_PREFIX_WAYS, err);
    if (!st && o->saves_beside) st = rvi_saving_start(s, err);
    if (!st) {
        uint64_t bytes = (uint64_t)o->floor_pages * rvi_share_page_bytes(s);
        st = rvi_quota_await(o->quota, RVI_QUOTA_KV, bytes, NULL, "a service", err);
        if (!st) s->charged = bytes;
    }
    rvi_figures_set(&s->figures.pages, (uint64_t)rvi_pages_most(e->pool));
    if (st)
        rvi_scheduler_free(s);
    else
        *out = s;
    return st;
}

static void abandon(rvi_order *r)
{
    for (int i = 0; i < r->n_jobs; i++) {
        rvi_session_free(r->jobs[i].s);
        if (r->hooks.ended && !r->jobs[i].ended) r->hooks.ended(r->hooks.ctx, i, false);
    }
    rvi_order_free(r);
}

void rvi_scheduler_free(rvi_scheduler *s)
{
    if (!s) return;
    rvi_saving_stop(s);
    for (rvi_order *r = s->live, *next; r; r = next) {
        next = r->next;
        for (int i = 0; i < r->n_jobs; i++)
            rvi_tenant_unwait(r->beside ? &s->beside : r->of, &r->jobs[i].waiting);
        rvi_tenants_leave(&s->tenants, r->of);
        abandon(r);
    }
    for (rvi_order *r = s->inbox, *next; r; r = next) {
        next = r->next;
        abandon(r);
    }
    rvi_prefix_free(s->prefix);
    assert(!s->prefix || !rvi_pages_in_use(s->e->pool));
    rvi_quota_return(s->o.quota, RVI_QUOTA_KV, s->charged);
    rvi_events_deinit(&s->events);
    rvi_lock_free(s->lock);
    rvi_free(s->pages);
    rvi_buf_deinit(&s->spill);
    rvi_free(s);
}

/* ---- from other threads ---- */

/* Nobody who does not know the key can make two salts meet. */
static uint64_t hash_salt(const rvi_scheduler *s, const char *salt)
{
    rvi_sha256 h;
    uint8_t digest[RVI_SHA256_LEN];
    uint64_t out;
    rvi_sha256_init(&h);
    rvi_sha256_add(&h, s->key, sizeof s->key);
    rvi_sha256_add(&h, salt, strlen(salt));
    rvi_sha256_end(&h, digest);
    memcpy(&out, digest, sizeof out);
    return out;
}

static int count_tenant(const rvi_order *r, const char *tenant)
{
    int n = 0;
    for (; r; r = r->next) n += !r->beside && !strcmp(r->tenant, tenant);
    return n;
}

static rv_status check_room(const rvi_scheduler *s, const rvi_order *r, rv_error *err)
{
    if (r->beside) return RV_OK;
    if (s->n_waiting >= s->o.max_waiting)
        return rvi_error(err, RV_E_BUSY, "%d requests wait, which is the limit: try again later",
                         s->n_waiting);
    if (!s->o.max_tenant) return RV_OK;
    int n = count_tenant(s->inbox, r->tenant) + count_tenant(s->live, r->tenant);
    if (n < s->o.max_tenant) return RV_OK;
    return rvi_error(err, RV_E_BUSY, "'%s' has %d requests, which is the limit: try again later",
                     r->tenant, n);
}

rv_status rvi_scheduler_submit(rvi_scheduler *s, rvi_order *r, uint64_t *id, rv_error *err)
{
    /* one page more than it needs: while it writes to a copy, the tree may hold the original */
    int room = (rvi_pages_most(s->e->pool) - 1) * RVI_PAGE_TOKENS, total = rvi_job_total(r->jobs);
    if (total > room)
        return rvi_error(err, RV_E_TOO_LONG,
                         "prompt and answer may have %d tokens, but the service has room for %d",
                         total, room);
    r->arrived = rvi_os_seconds();
    r->space = hash_salt(s, r->salt);
    rvi_lock_take(s->lock);
    rv_status st = check_room(s, r, err);
    if (!st) {
        *id = r->id = ++s->n_requests;
        if (s->o.no_cache) r->space = r->id; /* it shares with itself alone */
        *(s->inbox ? &s->inbox_last->next : &s->inbox) = r;
        s->inbox_last = r;
        s->n_waiting += !r->beside;
        s->n_live++;
    }
    rvi_lock_give(s->lock);
    if (st) atomic_fetch_add(&s->figures.n_refused, 1); /* the one that other threads count */
    return st;
}

static void cancel_in(rvi_order *r, uint64_t id)
{
    for (; r; r = r->next)
        if (r->id == id) atomic_store(&r->cancelled, true);
}

void rvi_scheduler_cancel(rvi_scheduler *s, uint64_t id)
{
    rvi_lock_take(s->lock);
    cancel_in(s->inbox, id);
    cancel_in(s->live, id);
    rvi_lock_give(s->lock);
    atomic_store(&s->any_cancelled, true);
}

rv_batch *rvi_scheduler_take(rvi_scheduler *s)
{
    return rvi_events_take(&s->events);
}

bool rvi_scheduler_has_told(const rvi_scheduler *s)
{
    return atomic_load(&s->events.n_undrained) > 0;
}

void rvi_scheduler_read(const rvi_scheduler *s, rv_service_metrics *out)
{
    rvi_figures_read(&s->figures, out);
}

/* ---- a step ---- */

/* The first of the inbox becomes live; false: there is none, or no memory. */
static bool take_one(rvi_scheduler *s)
{
    rvi_lock_take(s->lock);
    rvi_order *r = s->inbox;
    rvi_lock_give(s->lock);
    if (!r || rvi_events_promise(&s->events, (size_t)r->n_jobs + 1, NULL)) return false;
    if (rvi_tenants_join(&s->tenants, r->tenant, &r->of, NULL)) {
        s->events.n_promised -= (size_t)r->n_jobs + 1;
        return false;
    }
    rvi_lock_take(s->lock);
    s->inbox = r->next;
    r->next = s->live;
    s->live = r;
    rvi_lock_give(s->lock);
    /* a step that had no memory for it has looked for cancelled ones without it */
    if (atomic_load(&r->cancelled)) atomic_store(&s->any_cancelled, true);
    rvi_figures_add(&s->figures.n_submitted, 1);
    if (r->deadline > 0 && (s->next_deadline <= 0 || r->deadline < s->next_deadline))
        s->next_deadline = r->deadline;
    rvi_admit_wait(s, &r->jobs[0]);
    return true;
}

static void remove_request(rvi_scheduler *s, rvi_order *r)
{
    rvi_lock_take(s->lock);
    rvi_order **at = &s->live;
    while (*at != r) at = &(*at)->next;
    *at = r->next;
    if (!r->admitted) s->n_waiting -= !r->beside;
    s->n_live--;
    rvi_lock_give(s->lock);
    rv_service_event end = {.kind = RV_SERVICE_END, .request = r->id, .user = r->user, .id = -1};
    rvi_events_put_last(&s->events, &end);
    rvi_tenants_leave(&s->tenants, r->of);
    if (s->o.no_cache) rvi_prefix_forget(s->prefix, r->space); /* whatever adapters it had */
    rvi_order_free(r);
}

static void end_all(rvi_scheduler *s, rvi_order *r)
{
    for (int i = 0; i < r->n_jobs; i++)
        if (!r->jobs[i].ended) rvi_job_end(s, &r->jobs[i], RV_FINISH_CANCELLED, RV_OK, NULL);
}

/* Those that were cancelled, and those whose time is over. An answer that has ended, and whose
 * session is being saved, is none of them. */
static void end_unwanted(rvi_scheduler *s)
{
    bool late = s->next_deadline > 0 && s->now >= s->next_deadline;
    if (!atomic_exchange(&s->any_cancelled, false) && !late) return;
    s->next_deadline = 0;
    for (rvi_order *r = s->live, *next; r; r = next) {
        next = r->next;
        if (r->jobs[0].save) continue;
        bool cancelled = atomic_load(&r->cancelled);
        r->timed_out = !cancelled && r->deadline > 0 && s->now >= r->deadline;
        if (cancelled || r->timed_out) {
            end_all(s, r);
            remove_request(s, r);
        } else if (r->deadline > 0 && (s->next_deadline <= 0 || r->deadline < s->next_deadline)) {
            s->next_deadline = r->deadline;
        }
    }
}

/* The first choice has read the prompt: it is known from now on, and the others begin. */
static void note_read(rvi_scheduler *s, rvi_job *j)
{
    rvi_order *r = j->r;
    if (r->is_read || r->kind != RV_REQUEST_ANSWER || j->s->seq.len < r->n_ids - j->n_evicted)
        return;
    r->is_read = true;
    rvi_job_keep(s, j, r->n_jobs == 1);
    for (int i = 0; i < r->n_jobs; i++)
        if (!r->jobs[i].ended && !r->jobs[i].s) rvi_admit_wait(s, &r->jobs[i]);
}

/* Where a choice has ended before it had read the prompt, the next one does that. */
void rvi_scheduler_job_ended(rvi_scheduler *s, rvi_order *r)
{
    int i = 0;
    if (!r->n_left) {
        remove_request(s, r);
    } else if (!r->is_read && !r->jobs[0].save) {
        while (r->jobs[i].ended) i++;
        rvi_admit_wait(s, &r->jobs[i]);
    }
}

static void look_after(rvi_scheduler *s)
{
    for (rvi_job *j = s->running, *next; j; j = next) {
        rvi_order *r = j->r;
        next = j->next;
        note_read(s, j);
        if (!rvi_answer_ended(j->s)) continue;
        rvi_job_end(s, j, RV_FINISH_ERROR, RV_OK, NULL);
        rvi_scheduler_job_ended(s, r);
    }
}

/* Who holds how much. */
static void note_bytes(rvi_scheduler *s)
{
    rvi_figures *f = &s->figures;
    const rvi_pages *pool = s->e->pool;
    bool tiered = rvi_pages_is_tiered(pool);
    int hot = tiered ? rvi_pages_with(pool, RVI_KV_HOT) : rvi_pages_in_use(pool);
    rvi_figures_set(&f->bytes_hot, (uint64_t)hot * rvi_pages_form_bytes(pool, RVI_KV_HOT));
    rvi_figures_set(&f->bytes_warm, (uint64_t)rvi_pages_with(pool, RVI_KV_WARM) *
                                        rvi_pages_form_bytes(pool, RVI_KV_WARM));
    rvi_figures_set(&f->bytes_cold, (uint64_t)rvi_pages_with(pool, RVI_KV_COLD) *
                                        rvi_pages_form_bytes(pool, RVI_KV_COLD));
    rvi_figures_set(&f->bytes_kept, rvi_share_kept_bytes(s));
    rvi_figures_set(&f->bytes_spilled, s->spilled_bytes);
}

static void note_now(rvi_scheduler *s)
{
    rvi_figures *f = &s->figures;
    note_bytes(s);
    int idle = rvi_pages_idle(s->e->pool);
    rvi_figures_set(&f->n_running, (uint64_t)s->n_running);
    rvi_figures_set(&f->pages_kept, (uint64_t)idle);
    rvi_figures_set(&f->pages_running, (uint64_t)rvi_pages_held(s->e->pool));
    rvi_figures_set(&f->pages_hot, (uint64_t)rvi_pages_with(s->e->pool, RVI_KV_HOT));
    rvi_figures_set(&f->pages_warm, (uint64_t)rvi_pages_with(s->e->pool, RVI_KV_WARM));
    rvi_figures_set(&f->pages_cold, (uint64_t)rvi_pages_with(s->e->pool, RVI_KV_COLD));
    rvi_lock_take(s->lock);
    rvi_figures_set(&f->n_waiting, (uint64_t)s->n_waiting);
    rvi_lock_give(s->lock);
}

static void compute(rvi_scheduler *s, int n_rows)
{
    int n_tokens = 0, n_single = 0; /* the last row of a prompt costs what a token does */
    for (const rvi_job *j = s->running; j; j = j->next) {
        n_tokens += j->s->allowed && j->s->seq.len >= j->r->n_ids - j->n_evicted;
        n_single += j->s->allowed == 1 && !j->is_long;
    }
    double start = rvi_os_seconds();
    (void)rvi_answer_advance(s->e, NULL);
    double seconds = rvi_os_seconds() - start;
    rvi_pace_note(&s->pace, n_single, n_rows, seconds);
    rvi_figures_step(&s->figures, n_tokens, n_rows - n_tokens, seconds);
}

static int rows_allowed(const rvi_scheduler *s)
{
    int n = 0;
    for (const rvi_job *j = s->running; j; j = j->next) n += j->s->allowed;
    return n;
}

void rvi_scheduler_share(rvi_scheduler *s, int n)
{
    s->n_sharing = RVI_MAX(n, 1);
}

bool rvi_scheduler_finish(rvi_scheduler *s)
{
    rvi_saving_go_on(s);
    return s->n_saving > 0;
}

rvi_step rvi_scheduler_step(rvi_scheduler *s)
{
    enum { RETRY_MS = 2 };
    rvi_step step = {0};
    while (take_one(s)) {
    }
    s->now = rvi_os_seconds(); /* after the arrival of what was taken */
    end_unwanted(s);
    rvi_share_begin(s);
    bool drained = atomic_load(&s->events.n_undrained) < s->o.max_events;
    if (drained) {
        rvi_admit_waiting(s);
        rvi_rows_choose(s);
        rvi_admit_make_room(s);
        int n_rows = rows_allowed(s);
        step.computed = n_rows > 0;
        if (n_rows) compute(s, n_rows);
        look_after(s);
    }
    rvi_saving_go_on(s);
    if (drained) rvi_admit_limit_kept(s);
    rvi_share_end(s);
    note_now(s);
    step.told = rvi_events_hand_over(&s->events);
    rvi_lock_take(s->lock);
    step.n_live = s->n_live;
    rvi_lock_give(s->lock);
    bool untold = s->events.n > 0;          /* there was no memory for the batch */
    bool waits = step.n_live > s->n_saving; /* who saves says when it has something new */
    if ((waits || untold) && !step.computed) step.wait = 1e-3 * RETRY_MS;
    return step;
}
