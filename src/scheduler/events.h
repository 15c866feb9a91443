/* events.h - from the computing thread to whoever drains: events are gathered during a step and
 * handed over as one batch.
 *
 * Gathering may fail for lack of memory, but not for the last events of what was admitted: for
 * those room was promised. A batch that cannot be made stays gathered and goes with the next. The
 * computing thread gathers and hands over; any thread takes. */
#ifndef RVI_SCHEDULER_EVENTS_H
#define RVI_SCHEDULER_EVENTS_H

#include <stdatomic.h>

#include "base/mem.h"
#include "base/thread.h"
#include "ruvllm_service.h"

typedef struct rvi_batch rvi_batch;

typedef struct rvi_events {
    rv_service_event *gathered; /* pointers are offsets into `data` plus 1; NULL: NULL */
    size_t n, cap;
    size_t n_promised; /* events that must find room */
    rvi_buf data;      /* texts, probabilities, values */
    rvi_lock *lock;    /* of first and last */
    rvi_batch *first, *last;
    atomic_size_t n_undrained; /* events in batches */
} rvi_events;

rv_status rvi_events_init(rvi_events *e, rv_error *err) RVI_MUST_CHECK;
void rvi_events_deinit(rvi_events *e);

/* Room for n more last events. */
rv_status rvi_events_promise(rvi_events *e, size_t n, rv_error *err) RVI_MUST_CHECK;
/* Copies the event and what it points to; false: no memory. */
bool rvi_events_put(rvi_events *e, const rv_service_event *ev);
/* Without memory for what it points to, the event comes without that. Keeps a promise. */
void rvi_events_put_last(rvi_events *e, const rv_service_event *ev);
/* Is there a new batch? */
bool rvi_events_hand_over(rvi_events *e);
rv_batch *rvi_events_take(rvi_events *e); /* NULL: none */

#endif
