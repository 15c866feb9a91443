/* dialect.h - what is wrong with a request, and the shape in which a family of clients is told. */
#ifndef RVI_SERVER_DIALECT_H
#define RVI_SERVER_DIALECT_H

#include "server/conn.h"

/* type and code are words for programs, message a sentence for people. */
typedef struct rvi_problem {
    int status;              /* 0: nothing is wrong */
    const char *type, *code; /* code NULL: none */
    char param[96];          /* the field at fault; "": none */
    char message[640];
    int retry_after;          /* seconds; 0: what is usual */
    long n_prompt, n_context; /* of a prompt that is too long; 0: not known */
} rvi_problem;

typedef struct rvi_dialect {
    void (*write_problem)(const rvi_problem *p, rvi_buf *out); /* the JSON object of an error */
    const char *before, *after;                                /* it, where it ends a stream */
    const char *id_name; /* of a second header with the request's id; NULL: none */
} rvi_dialect;

/* Fills p, with the usual type of the status, and returns false. param and code may be NULL. */
bool rvi_problem_set(rvi_problem *p, int status, const char *code, const char *param,
                     const char *fmt, ...) RVI_PRINTF(5, 6);
/* The same from a status of the library, without the paths of files. */
bool rvi_problem_from(rvi_problem *p, rv_status st, const rv_error *err);
bool rvi_problem_timed_out(rvi_problem *p, double timeout);
/* Leaves the last part of each path in a text for clients. */
void rvi_problem_hide_paths(char *text);

/* Answers with the problem, in the dialect. */
void rvi_dialect_refuse(const rvi_dialect *d, rvi_conn *c, const rvi_problem *p);

#endif
