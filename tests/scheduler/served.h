/* served.h - running requests through a service and gathering what came of each. */
#ifndef TESTS_SCHEDULER_SERVED_H
#define TESTS_SCHEDULER_SERVED_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "api/opened.h"
#include "base/compat.h"
#include "ruvllm_service.h"

enum { SERVED_TOKENS = 160, SERVED_TEXT = 2048, SERVED_VALUES = 512 };

/* What the events of one choice said. */
typedef struct served {
    uint64_t request;
    int choice;
    int32_t ids[SERVED_TOKENS];
    float logprobs[SERVED_TOKENS];
    int n;
    char text[SERVED_TEXT];
    size_t text_len;
    float values[SERVED_VALUES];
    size_t n_values;
    int last_done, n_preempted;
    bool done, ended; /* ended: the whole request */
    rv_service_event last;
    char error[256];
} served;

/* The place of an event's choice in a list; NULL: it is not there. */
static inline served *served_find(served *list, size_t n, const rv_service_event *ev)
{
    for (size_t i = 0; i < n; i++)
        if (list[i].request == ev->request && list[i].choice == ev->choice) return &list[i];
    return NULL;
}

/* Checks the order of events on the way. */
static inline void served_note(served *s, const rv_service_event *ev)
{
    assert_false(s->ended);
    if (ev->kind == RV_SERVICE_END) {
        s->ended = true;
        return;
    }
    assert_false(s->done);
    if (ev->kind == RV_SERVICE_PROMPT) {
        if (ev->n_preempted > s->n_preempted) s->last_done = 0; /* it begins again */
        s->n_preempted = ev->n_preempted;
        assert_true(ev->n_done >= s->last_done && ev->n_done <= ev->n_prompt);
        assert_int_equal(s->n, 0);
        s->last_done = ev->n_done;
    } else if (ev->kind == RV_SERVICE_TOKEN) {
        assert_true(s->n < SERVED_TOKENS && s->text_len + ev->text_len < SERVED_TEXT);
        assert_int_equal(strlen(ev->text), ev->text_len);
        if (ev->id >= 0) {
            s->logprobs[s->n] = ev->chosen ? ev->chosen->logprob : 0;
            s->ids[s->n++] = ev->id;
        }
        memcpy(s->text + s->text_len, ev->text, ev->text_len + 1);
        s->text_len += ev->text_len;
    } else {
        s->done = true;
        s->last = *ev;
        if (ev->error) snprintf(s->error, sizeof s->error, "%s", ev->error);
        assert_true(ev->n_values <= SERVED_VALUES);
        s->n_values = ev->n_values;
        if (ev->n_values) memcpy(s->values, ev->values, ev->n_values * sizeof *s->values);
        assert_true(ev->queue_seconds >= 0 && ev->prompt_seconds >= 0 && ev->seconds >= 0);
    }
}

static inline void served_drain(rv_service *svc, double wait, served *list, size_t n)
{
    for (rv_batch *b;; wait = 0) {
        assert_ok(rv_service_drain(svc, wait, &b, err));
        if (!b) return;
        for (size_t i = 0; i < b->n; i++) {
            const rv_service_event *ev = &b->events[i];
            for (size_t k = 0; k < n && ev->kind == RV_SERVICE_END; k++)
                if (list[k].request == ev->request) served_note(&list[k], ev);
            if (ev->kind == RV_SERVICE_END) continue;
            served *s = served_find(list, n, ev);
            if (s) served_note(s, ev);
        }
        rv_free(b);
    }
}

/* Steps a service without a thread until nothing is left. */
static inline void served_run(rv_service *svc, served *list, size_t n)
{
    for (size_t left = 1; left;) {
        assert_ok(rv_service_step(svc, &left, err));
        served_drain(svc, 0, list, n);
    }
    for (size_t i = 0; i < n; i++) assert_true(list[i].done && list[i].ended);
}

static inline void served_metrics(rv_service *svc, rv_service_metrics *m)
{
    m->size = sizeof *m;
    assert_ok(rv_service_get_metrics(svc, m, err));
}

#endif
