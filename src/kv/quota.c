#include "kv/quota.h"

#include "base/os.h"

rv_status rvi_quota_init(rvi_quota *q, const rvi_backend_memory *counted,
                         const atomic_size_t *adapters, rv_error *err)
{
    *q = (rvi_quota){.counted = counted, .adapters = adapters};
    return rvi_lock_new(&q->lock, err);
}

void rvi_quota_deinit(rvi_quota *q)
{
    rvi_lock_free(q->lock);
    *q = (rvi_quota){0};
}

void rvi_quota_limit(rvi_quota *q, const rvi_quota_limits *limits)
{
    rvi_lock_take(q->lock);
    q->limits = *limits;
    rvi_lock_give(q->lock);
    for (int c = 0; c < RVI_QUOTA_CLASSES; c++) (void)rvi_quota_ask(q, (rvi_quota_class)c, 0, NULL);
}

/* ---- members: the lock is held while they are called, so that none leaves meanwhile ---- */

void rvi_quota_join(rvi_quota *q, rvi_quota_member *m)
{
    rvi_lock_take(q->lock);
    m->next = q->members;
    q->members = m;
    rvi_lock_give(q->lock);
}

void rvi_quota_leave(rvi_quota *q, rvi_quota_member *m)
{
    rvi_lock_take(q->lock);
    rvi_quota_member **at = &q->members;
    while (*at && *at != m) at = &(*at)->next;
    if (*at) *at = m->next;
    rvi_lock_give(q->lock);
}

/* ---- what is used; the lock is held ---- */

/* What a job has, or may have at any time. */
static uint64_t held_by(const rvi_quota_job *j)
{
    return RVI_MAX((uint64_t)rvi_backend_memory_sum(&j->memory), j->promised);
}

static uint64_t used(const rvi_quota *q, rvi_quota_class class)
{
    uint64_t floats = atomic_load(&q->counted->weights), adapters = atomic_load(q->adapters);
    uint64_t n = q->taken[class];
    if (class == RVI_QUOTA_WEIGHTS) n += floats > adapters ? floats - adapters : 0;
    if (class == RVI_QUOTA_ADAPTERS) n += adapters;
    if (class == RVI_QUOTA_SCRATCH) {
        n += atomic_load(&q->counted->scratch);
        for (const rvi_quota_job *j = q->jobs; j; j = j->next) n += held_by(j);
    }
    return n;
}

static uint64_t used_in_all(const rvi_quota *q)
{
    uint64_t n = 0;
    for (int c = 0; c < RVI_QUOTA_CLASSES; c++) n += used(q, (rvi_quota_class)c);
    return n;
}

static uint64_t left_of(uint64_t most, uint64_t n)
{
    return !most ? UINT64_MAX : most > n ? most - n : 0;
}

static uint64_t room(const rvi_quota *q, rvi_quota_class class)
{
    uint64_t all = left_of(q->limits.most, used_in_all(q));
    uint64_t own = left_of(q->limits.most_of[class], used(q, class));
    return RVI_MIN(all, own);
}

static bool fits(const rvi_quota *q, rvi_quota_class class, uint64_t bytes)
{
    const rvi_quota_limits *l = &q->limits;
    return (!l->most || used_in_all(q) + bytes <= l->most) &&
           (!l->most_of[class] || used(q, class) + bytes <= l->most_of[class]);
}

uint64_t rvi_quota_room(rvi_quota *q, rvi_quota_class class)
{
    rvi_lock_take(q->lock);
    uint64_t n = room(q, class);
    rvi_lock_give(q->lock);
    return n;
}

bool rvi_quota_take(rvi_quota *q, rvi_quota_class class, uint64_t bytes)
{
    rvi_lock_take(q->lock);
    bool done = fits(q, class, bytes);
    if (done) q->taken[class] += bytes;
    rvi_lock_give(q->lock);
    return done;
}

void rvi_quota_return(rvi_quota *q, rvi_quota_class class, uint64_t bytes)
{
    rvi_lock_take(q->lock);
    q->taken[class] -= RVI_MIN(bytes, q->taken[class]);
    rvi_lock_give(q->lock);
}

/* ---- asking ---- */

/* What exceeds the low mark once so many bytes more are used; 0: they fit below the high one. */
static uint64_t excess(const rvi_quota *q, uint64_t most, uint64_t n, uint64_t bytes)
{
    if (!most || n + bytes <= most) return 0;
    uint64_t low = (uint64_t)((double)most * q->limits.low);
    return n + bytes > low ? n + bytes - low : 0;
}

/* Pages first: they are soonest made again. */
static const rvi_quota_class order[] = {RVI_QUOTA_KV, RVI_QUOTA_ADAPTERS};

static uint64_t ask(rvi_quota *q, uint64_t bytes, const rvi_quota_class *of, int n_of,
                    const rvi_quota_member *but)
{
    uint64_t got = 0;
    for (int i = 0; i < n_of; i++)
        for (const rvi_quota_member *m = q->members; m && got < bytes; m = m->next)
            if (m != but && m->class == of[i]) got += m->give(m->ctx, bytes - got);
    return got;
}

uint64_t rvi_quota_ask(rvi_quota *q, rvi_quota_class class, uint64_t bytes,
                       const rvi_quota_member *but)
{
    rvi_lock_take(q->lock);
    uint64_t own = excess(q, q->limits.most_of[class], used(q, class), bytes);
    uint64_t got = ask(q, own, &class, 1, but);
    uint64_t all = excess(q, q->limits.most, used_in_all(q), bytes);
    if (all > got) got += ask(q, all - got, order, (int)RVI_COUNT(order), but);
    q->n_asked += own || all;
    rvi_lock_give(q->lock);
    return got;
}

rv_status rvi_quota_await(rvi_quota *q, rvi_quota_class class, uint64_t bytes,
                          const atomic_bool *stop, const char *what, rv_error *err)
{
    const double patience = 1, nap = 1e-3;
    double end = 0;
    while (!rvi_quota_take(q, class, bytes)) {
        double now = rvi_os_seconds();
        bool comes = rvi_quota_ask(q, class, bytes, NULL) > 0;
        if (end <= 0) end = now + patience;
        if (comes && now < end && !(stop && atomic_load(stop))) {
            rvi_thread_sleep(nap);
            continue;
        }
        if (rvi_quota_take(q, class, bytes)) return RV_OK; /* given up at once */
        rvi_lock_take(q->lock);
        q->n_refused++;
        uint64_t left = room(q, class);
        rvi_lock_give(q->lock);
        if (!bytes)
            return rvi_error(err, RV_E_NOMEM, "there is no room for %.64s: the budget is used up",
                             what);
        return rvi_error(err, RV_E_NOMEM, "%.64s takes %.1f MB, and the budget has %.1f left", what,
                         (double)bytes / 1e6, (double)left / 1e6);
    }
    return RV_OK;
}

/* What jobs may still take beside what was promised to them. */
static uint64_t spare_of_jobs(const rvi_quota *q)
{
    uint64_t n = 0;
    for (const rvi_quota_job *j = q->jobs; j; j = j->next) {
        uint64_t most = j->promised + atomic_load(&j->memory.spare), held = held_by(j);
        n += most > held ? most - held : 0;
    }
    return n;
}

rv_status rvi_quota_begin_job(rvi_quota *q, rvi_quota_job *j, uint64_t bytes,
                              const atomic_bool *stop, const char *what, rv_error *err)
{
    rv_status st = rvi_quota_await(q, RVI_QUOTA_SCRATCH, bytes, stop, what, err);
    if (st) return st;
    rvi_lock_take(q->lock);
    uint64_t left = room(q, RVI_QUOTA_SCRATCH), others = spare_of_jobs(q);
    if (left < UINT64_MAX)
        atomic_store(&j->memory.spare, (size_t)((left - RVI_MIN(others, left)) / 2) + 1);
    q->taken[RVI_QUOTA_SCRATCH] -= bytes;
    j->promised = bytes;
    j->next = q->jobs;
    q->jobs = j;
    rvi_lock_give(q->lock);
    return RV_OK;
}

void rvi_quota_end_job(rvi_quota *q, rvi_quota_job *j)
{
    rvi_lock_take(q->lock);
    rvi_quota_job **at = &q->jobs;
    while (*at && *at != j) at = &(*at)->next;
    if (*at) *at = j->next;
    rvi_lock_give(q->lock);
}

uint64_t rvi_quota_in_jobs(const rvi_quota *q)
{
    uint64_t n = 0;
    rvi_lock_take(q->lock);
    for (const rvi_quota_job *j = q->jobs; j; j = j->next) n += rvi_backend_memory_sum(&j->memory);
    rvi_lock_give(q->lock);
    return n;
}

void rvi_quota_read(rvi_quota *q, rvi_quota_use *out)
{
    rvi_lock_take(q->lock);
    *out = (rvi_quota_use){.limits = q->limits, .n_asked = q->n_asked, .n_refused = q->n_refused};
    for (int c = 0; c < RVI_QUOTA_CLASSES; c++) out->used[c] = used(q, (rvi_quota_class)c);
    for (const rvi_quota_member *m = q->members; m; m = m->next)
        out->kept[m->class] += m->give(m->ctx, 0);
    rvi_lock_give(q->lock);
}
