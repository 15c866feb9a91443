/* serving.h - what every handler of a request sees of the server. */
#ifndef RVI_SERVER_SERVING_H
#define RVI_SERVER_SERVING_H

#include "ruvllm_service.h"
#include "server/answers.h"
#include "server/conn.h"
#include "server/kept.h"
#include "server/llama.h"
#include "server/taught.h"
#include "server/worker.h"

typedef struct rvi_serving {
    /* Set when the model has been opened, and not changed until the end. */
    bool ready;
    const rv_model *model;
    const rv_model_info *info;
    rv_service *service;
    rv_registry *registry;       /* of adapters; NULL: there are none */
    rvi_buf adapters_folder;     /* its whole path */
    struct rvi_presets *presets; /* NULL: there are none */
    const char *scratch; /* a folder for files that are soon removed; NULL: nothing is learned */
    int n_context;
    const char *name;     /* of the model, for clients */
    const char *aliases;  /* more names, with commas between them; NULL: none */
    const char *path;     /* of its file or folder */
    int n_parallel;       /* requests that compute at the same time */
    rvi_llama llama;      /* on: as llama-server does it */
    bool thinks;          /* its chat template knows thoughts */
    bool any_model;       /* any other name means it too */
    char digest[65];      /* of the model */
    char fingerprint[32]; /* of the program and the weights */
    long created;
    /* ---- */
    rvi_teaching teaching; /* only the worker calls learners */
    rvi_conns conns;
    rvi_worker *worker;
    rvi_answers answers;
    rvi_kept kept; /* answers of all instances */
    uint64_t n_feedback;
    /* Seconds from a request that is whole to its first token, and to its end, as clients see them:
     * with reading and sending, which the service does not know. */
    rv_histogram first_token, whole;
    struct rvi_call *calls; /* requests at the service */
} rvi_serving;

#endif
