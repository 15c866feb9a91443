/* serving.h - what every handler of a request sees: the model that it is for, and the server.
 *
 * A model is loaded when it is first asked for, and may be unloaded while no request holds it. What
 * belongs to it (learned state, adapters) is opened after it and closed with it. */
#ifndef RVI_SERVER_SERVING_H
#define RVI_SERVER_SERVING_H

#include <stdatomic.h>

#include "base/thread.h"
#include "ruvllm_service.h"
#include "server/answers.h"
#include "server/conn.h"
#include "server/dialect.h"
#include "server/kept.h"
#include "server/llama.h"
#include "server/options.h"
#include "server/taught.h"
#include "server/worker.h"

typedef struct rvi_serving rvi_serving;
typedef void rvi_handler(rvi_serving *s, rvi_conn *c);

/* Whom events of the service are for: what the user of a request points to. On the event loop. */
typedef struct rvi_recipient {
    void (*event)(struct rvi_recipient *r, const rv_service_event *e);
    /* Of those in a list of a model's: the service is gone and sends no more events. */
    void (*drop)(struct rvi_recipient *r);
    struct rvi_recipient *next;
} rvi_recipient;

/* What all models share. */
typedef struct rvi_server {
    const rvi_server_options *o;
    bool ready;          /* the first model has been loaded once */
    rvi_serving *models; /* o->n_models; the first is that of requests that name none */
    rv_models *list;     /* NULL: not made yet */
    rv_runtime *rt;      /* of all of them; NULL: not made yet */
    rvi_worker *loader;  /* waits for models, and opens what belongs to them */
    atomic_bool ending;
    rvi_lock *lock;              /* guards which adapters models have */
    struct rvi_presets *presets; /* NULL: there are none */
    rvi_buf adapters_folder;     /* its whole path; empty: there are none */
    rvi_llama llama;             /* on: as llama-server does it */
    long created;
    rvi_conns conns;
    rvi_worker *worker; /* alone calls learners */
    rvi_worker *reader; /* submits requests whose session is read first */
    rvi_answers answers;
    rvi_kept kept; /* answers of all instances */
    uint64_t n_feedback;
} rvi_server;

/* A model. What stands below the first line is for who holds it. */
struct rvi_serving {
    rvi_server *server;
    int index;
    const char *name;    /* for clients */
    const char *aliases; /* more names, with commas between them; NULL: none */
    bool any_model;      /* any name that nobody has means it too */
    const char *path;    /* of its file or folder; NULL: not known yet */
    uint64_t file_bytes;
    rvi_served served;
    /* Since it was loaded for the first time; info.architecture NULL: it never was. */
    rv_model_info info;
    rvi_arena texts;
    int n_context;
    int n_parallel;       /* requests that compute at the same time */
    bool thinks;          /* its chat template knows thoughts */
    char digest[65];      /* of the model */
    char fingerprint[32]; /* of the program and the weights */
    /* Seconds from a request that is whole to its first token, and to its end, as clients see them:
     * with reading and sending, which the service does not know. */
    rv_histogram first_token, whole;
    struct rvi_call *calls;  /* requests at the service */
    rvi_recipient *others;   /* who else waits for it */
    rv_registered *adapters; /* that were known when it was unloaded; NULL: none */
    size_t n_adapters;
    int users;                 /* that hold it */
    bool comes;                /* the loader waits for it */
    atomic_bool is_open;       /* what belongs to it */
    struct rvi_parked *parked; /* requests that wait for it */
    /* ---- */
    rv_service *service; /* NULL: nobody holds it */
    const rv_model *model;
    rv_registry *registry; /* of adapters; NULL: there are none */
    const char *scratch;   /* a folder for files that are soon removed; NULL: nothing is learned */
    rvi_teaching teaching;
};

/* Is it a name of this model? Ollama's clients may say NAME:latest. */
bool rvi_serving_is_called(const rvi_serving *s, const char *name);
bool rvi_serving_is(const rvi_serving *s, const char *name); /* or may it be called anything? */
/* A 404 that says which models there are. */
bool rvi_serving_unknown(const rvi_server *v, const char *name, rvi_problem *p);

/* Holds it, if that takes no waiting. True: until it is left. */
bool rvi_serving_enter(rvi_serving *s);
/* Holds it once more, while it is held, be it asked to go meanwhile or not. */
void rvi_serving_stay(rvi_serving *s);
void rvi_serving_leave(rvi_serving *s);
rv_model_state rvi_serving_state(const rvi_serving *s);

#endif
