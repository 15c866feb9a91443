#include "scheduler/events.h"

#include <string.h>

/* In front of the caller's part, in the same block; the caller frees both by the address of its own
 * part, so that comes first. */
struct rvi_batch {
    rv_batch given;
    rvi_batch *next;
};

rv_status rvi_events_init(rvi_events *e, rv_error *err)
{
    *e = (rvi_events){0};
    atomic_init(&e->n_undrained, 0);
    return rvi_lock_new(&e->lock, err);
}

void rvi_events_deinit(rvi_events *e)
{
    rv_batch *b;
    while (e->lock && (b = rvi_events_take(e))) rvi_free(b);
    rvi_free(e->gathered);
    rvi_buf_deinit(&e->data);
    rvi_lock_free(e->lock);
    *e = (rvi_events){0};
}

static bool make_room(rvi_events *e, size_t n)
{
    size_t want = e->n + n;
    if (want <= e->cap) return true;
    size_t cap = RVI_MAX(want, e->cap * 2);
    rv_service_event *more = rvi_realloc_array(e->gathered, cap, sizeof *more);
    if (!more) return false;
    e->gathered = more;
    e->cap = cap;
    return true;
}

rv_status rvi_events_promise(rvi_events *e, size_t n, rv_error *err)
{
    if (!make_room(e, e->n_promised + n)) return rvi_nomem(err, "events");
    e->n_promised += n;
    return RV_OK;
}

/* Where it will be in the block: an offset plus 1, as a pointer that nobody follows. */
static const void *put_bytes(rvi_events *e, const void *bytes, size_t len, bool *ok)
{
    static const char zeros[8];
    if (!bytes || !*ok) return NULL;
    size_t at = e->data.len, pad = (8 - len % 8) % 8;
    if (!rvi_buf_reserve(&e->data, len + pad)) {
        e->data.failed = false; /* a later one may find room */
        *ok = false;
        return NULL;
    }
    (void)rvi_buf_append(&e->data, bytes, len);
    (void)rvi_buf_append(&e->data, zeros, pad);
    return (const void *)(uintptr_t)(at + 1);
}

static bool copy(rvi_events *e, rv_service_event *to, const rv_service_event *ev)
{
    bool ok = true;
    *to = *ev;
    to->text = put_bytes(e, ev->text ? ev->text : "", ev->text ? ev->text_len + 1 : 1, &ok);
    to->chosen = put_bytes(e, ev->chosen, sizeof *ev->chosen, &ok);
    to->top = put_bytes(e, ev->top, ev->n_top * sizeof *ev->top, &ok);
    to->error = put_bytes(e, ev->error, ev->error ? strlen(ev->error) + 1 : 0, &ok);
    to->values = put_bytes(e, ev->values, ev->n_values * sizeof *ev->values, &ok);
    return ok;
}

bool rvi_events_put(rvi_events *e, const rv_service_event *ev)
{
    if (!make_room(e, e->n_promised + 1)) return false;
    size_t len = e->data.len;
    if (copy(e, &e->gathered[e->n], ev)) {
        e->n++;
        return true;
    }
    e->data.len = len;
    return false;
}

void rvi_events_put_last(rvi_events *e, const rv_service_event *ev)
{
    rv_service_event *to = &e->gathered[e->n++];
    e->n_promised--;
    if (copy(e, to, ev)) return;
    *to = *ev;
    to->text = to->error = NULL;
    to->values = NULL;
    to->top = NULL;
    to->n_values = to->n_top = 0;
    to->status = RV_E_NOMEM;
    to->finish = RV_FINISH_ERROR;
}

/* ---- batches ---- */

static const void *place(const char *data, const void *offset)
{
    return offset ? data + ((uintptr_t)offset - 1) : NULL;
}

bool rvi_events_hand_over(rvi_events *e)
{
    if (!e->n) return false;
    size_t events = e->n * sizeof *e->gathered;
    rvi_batch *b = rvi_alloc_array(sizeof *b + events + e->data.len + 1, 1);
    if (!b) return false;
    rv_service_event *list = (rv_service_event *)(b + 1);
    char *data = (char *)list + events;
    memcpy(list, e->gathered, events);
    if (e->data.len) memcpy(data, e->data.data, e->data.len);
    for (size_t i = 0; i < e->n; i++) {
        rv_service_event *ev = &list[i];
        ev->text = ev->text ? place(data, ev->text) : "";
        ev->chosen = place(data, ev->chosen);
        ev->top = place(data, ev->top);
        ev->error = place(data, ev->error);
        ev->values = place(data, ev->values);
        if (ev->status && !ev->error) ev->error = rv_status_text(ev->status);
    }
    *b = (rvi_batch){.given = {list, e->n}};
    atomic_fetch_add(&e->n_undrained, e->n);
    e->n = e->data.len = 0;
    rvi_lock_take(e->lock);
    *(e->last ? &e->last->next : &e->first) = b;
    e->last = b;
    rvi_lock_give(e->lock);
    return true;
}

rv_batch *rvi_events_take(rvi_events *e)
{
    rvi_lock_take(e->lock);
    rvi_batch *b = e->first;
    if (b) e->first = b->next;
    if (!e->first) e->last = NULL;
    rvi_lock_give(e->lock);
    if (!b) return NULL;
    atomic_fetch_sub(&e->n_undrained, b->given.n);
    return &b->given;
}
