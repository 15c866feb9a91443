/* options.h - what a server is told: where it listens, whom it answers, which models it has. */
#ifndef RVI_SERVER_OPTIONS_H
#define RVI_SERVER_OPTIONS_H

#include <stdbool.h>

#include "ruvllm_service.h"
#include "server/llama.h"
#include "server/taught.h"

/* A model, and how it is served. Texts live until rvi_server_run returns. */
typedef struct rvi_served {
    const char *path;
    rv_open_options open;
    rv_service_options service; /* wake is the server's */
} rvi_served;

/* What was learned of a model. */
typedef struct rvi_served_learning {
    rv_learner *learner;     /* for all; NULL: nothing is learned */
    const char *scratch;     /* a folder where there is a learner */
    rvi_taught_ways tenants; /* how the learned state of tenants is opened */
} rvi_served_learning;

typedef struct rvi_server_options {
    const char *host;               /* an address or a name */
    int port;                       /* 0: any that is free */
    const char *unix_path;          /* listen there instead; NULL: on host and port */
    int inherited;                  /* a socket that listens already; -1: none */
    const char *key;                /* that may do everything; NULL: none */
    const char *keys;               /* a file of keys (keys.h), read again at SIGHUP; NULL: none */
    const char *origins;            /* of pages that may ask (access.h); NULL: the server's own */
    const char *tls_cert, *tls_key; /* PEM files, read again at SIGHUP; NULL: plain connections */
    int max_body;                   /* MiB of a request */
    const char *notify;             /* NOTIFY_SOCKET of who started the process; NULL: none */
    const char *adapters;           /* a folder of them; NULL: none */
    const char *presets;            /* a folder of them; NULL: none */
    const char *witness;            /* the folder of its log (witness.h); NULL: none */
    rv_store kept[2];               /* for answers (kept.h); zeroed: they are in memory alone */
    bool kept_limited;              /* to a number and a size */
    const rv_store *witness_store;  /* where that log is instead; NULL: in the folder */
    bool witness_contents;          /* which keeps bodies too */
    bool any_model;                 /* a name that nobody has means the first model */
    const char *const *names;       /* of the models, for clients */
    int n_models;                   /* at least one */
    const char *aliases;      /* more names for the first, with commas between them, or NULL */
    rv_models_options limits; /* of what is loaded at the same time; changed is the server's */
    rvi_llama llama;          /* on: as llama-server does it */
    double drain_seconds;     /* for requests under way when a signal comes */
    /* Finds the models, on a thread of its own, while requests are told to wait. What it gives must
     * live until rvi_server_run returns. */
    rv_status (*open)(void *ctx, rv_runtime **rt, rvi_served *models, rv_error *err);
    /* Opens and closes what was learned of a model, after it was loaded and when it is unloaded;
     * never two calls for one model at the same time. */
    rv_status (*open_learning)(void *ctx, int model, const rv_model *m, rvi_served_learning *out,
                               rv_error *err);
    void (*close_learning)(void *ctx, int model);
    void *ctx;
} rvi_server_options;

#endif
