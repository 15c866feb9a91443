/* service.h - a service, as its files see it. */
#ifndef RVI_API_SERVICE_H
#define RVI_API_SERVICE_H

#include "api/api.h"
#include "scheduler/scheduler.h"

enum { RVI_SERVICE_TOKENS = 16384 }; /* where the caller names no number */

struct rv_service {
    rv_engine *e;
    rvi_scheduler *s;
    rvi_sessions *sessions; /* NULL: none */
    rv_engine *finder;      /* of the embedder; NULL: none */
    char embedder[RVI_SHA256_HEX];
    int n_context;
    rvi_quota_member member; /* of the runtime's budget */
    bool works;              /* its last step computed something; counted by the runtime */
    uint64_t round;          /* of its last step; these two are for the thread that steps */
    void (*wake)(void *ctx);
    void *wake_ctx;
    rvi_thread *thread; /* NULL: rv_service_step */
    rvi_wakeup *work;   /* something was submitted, cancelled or drained */
    rvi_wakeup *news;   /* there is a batch; NULL: a build without threads */
    atomic_bool stop;
    atomic_flag stepping; /* one thread at a time is in rv_service_step */
};

rv_status rvi_service_open_finder(rv_service *s, const rv_model *embedder,
                                  rv_error *err) RVI_MUST_CHECK;

/* Reports a chat template that writes the time: prompts cannot share what follows it for long. */
void rvi_service_check_template(const rv_model *m);

/* The KV room that the options mean for a model that was trained with so many tokens. */
int rvi_service_tokens(int n_context, bool is_encoder, const rv_service_options *o);

/* The request in the scheduler's form, checked; not submitted. */
rv_status rvi_service_read(const rv_service *s, const rv_request *given, rvi_order **out,
                           rv_error *err) RVI_MUST_CHECK;

#endif
