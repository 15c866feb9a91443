/* A service's part of the quota. It has room for its longest request in any case, so that a request
 * that runs alone always ends; beyond that, as many pages as the others leave. */
#include "scheduler/internal.h"

/* What a page takes at most: beside the 16 bits its 8, until the next step, and its 4 where they
 * are read already; of a page that several share all three stay. Were that more than is counted,
 * there would be pages without bytes for them. */
uint64_t rvi_share_page_bytes(const rvi_scheduler *s)
{
    const rvi_pages *pool = s->e->pool;
    uint64_t n = 0;
    for (unsigned f = RVI_KV_HOT; f <= RVI_KV_COLD; f <<= 1) n += rvi_pages_form_bytes(pool, f);
    return n;
}

static uint64_t used_bytes(const rvi_scheduler *s)
{
    const rvi_pages *pool = s->e->pool;
    uint64_t n = 0;
    if (!rvi_pages_is_tiered(pool)) return (uint64_t)rvi_pages_in_use(pool) * rvi_pages_bytes(pool);
    for (unsigned f = RVI_KV_HOT; f <= RVI_KV_COLD; f <<= 1)
        n += (uint64_t)rvi_pages_with(pool, f) * rvi_pages_form_bytes(pool, f);
    return n;
}

static uint64_t floor_bytes(const rvi_scheduler *s)
{
    return (uint64_t)s->o.floor_pages * rvi_share_page_bytes(s);
}

static bool charge(rvi_scheduler *s, uint64_t bytes)
{
    bytes = RVI_MAX(bytes, floor_bytes(s));
    if (bytes > s->charged && !rvi_quota_take(s->o.quota, RVI_QUOTA_KV, bytes - s->charged))
        return false;
    if (bytes < s->charged) rvi_quota_return(s->o.quota, RVI_QUOTA_KV, s->charged - bytes);
    s->charged = bytes;
    return true;
}

void rvi_share_allow(rvi_scheduler *s)
{
    uint64_t room = rvi_quota_room(s->o.quota, RVI_QUOTA_KV), used = used_bytes(s);
    int most = rvi_pages_most(s->e->pool);
    if (room < UINT64_MAX) {
        room += s->charged - RVI_MIN(used, s->charged);
        uint64_t n = (uint64_t)rvi_pages_in_use(s->e->pool) + room / rvi_share_page_bytes(s);
        most = (int)RVI_MIN((uint64_t)most, RVI_MAX(n, (uint64_t)s->o.floor_pages));
    }
    rvi_pages_allow(s->e->pool, most);
}

bool rvi_share_is_short(const rvi_scheduler *s)
{
    return rvi_pages_total(s->e->pool) < rvi_pages_most(s->e->pool);
}

/* Guesses may begin a page in every sequence; where there is no room for that, they do without. */
bool rvi_share_take(rvi_scheduler *s, int n)
{
    uint64_t used = used_bytes(s), page = rvi_share_page_bytes(s);
    bool taken = charge(s, used + (uint64_t)(n + s->n_running) * page) ||
                 charge(s, used + (uint64_t)n * page);
    if (taken && rvi_share_is_short(s)) {
        uint64_t more = (s->charged - RVI_MIN(used, s->charged)) / page;
        rvi_pages_allow(s->e->pool, rvi_pages_in_use(s->e->pool) + (int)more);
    }
    return taken;
}

static uint64_t kept_page_bytes(const rvi_scheduler *s)
{
    const rvi_pages *pool = s->e->pool;
    return rvi_pages_form_bytes(pool, rvi_pages_is_tiered(pool) ? RVI_KV_WARM : RVI_KV_HOT);
}

uint64_t rvi_share_kept_bytes(const rvi_scheduler *s)
{
    return (uint64_t)rvi_pages_idle(s->e->pool) * kept_page_bytes(s);
}

static void give_up(rvi_scheduler *s)
{
    uint64_t bytes = atomic_exchange(&s->to_give, 0), page = kept_page_bytes(s);
    if (!bytes) return;
    uint64_t n = RVI_MIN((bytes + page - 1) / page, (uint64_t)rvi_pages_most(s->e->pool));
    (void)rvi_admit_drop_kept(s, (int)n);
    rvi_pages_release_free(s->e->pool);
    rvi_pages_trim(s->e->pool, 0);
    (void)charge(s, used_bytes(s));
}

void rvi_share_begin(rvi_scheduler *s)
{
    give_up(s);
    rvi_share_allow(s);
}

void rvi_share_ask(rvi_scheduler *s, int n, bool but_own)
{
    (void)rvi_quota_ask(s->o.quota, RVI_QUOTA_KV, (uint64_t)n * rvi_share_page_bytes(s),
                        but_own ? s->o.member : NULL);
    give_up(s);
    rvi_share_allow(s);
}

void rvi_share_end(rvi_scheduler *s)
{
    (void)charge(s, used_bytes(s));
    atomic_store(&s->givable, RVI_MIN(rvi_share_kept_bytes(s), s->charged - floor_bytes(s)));
}

uint64_t rvi_scheduler_shrink(rvi_scheduler *s, uint64_t bytes)
{
    uint64_t all = atomic_load(&s->givable), some = RVI_MIN(bytes, all);
    uint64_t before = atomic_load(&s->to_give);
    if (!bytes) return all;
    while (before < some && !atomic_compare_exchange_weak(&s->to_give, &before, some)) {
    }
    return some;
}
