/* call.h - a request at the service: from the submitted parts to the last event.
 *
 * A call has one part for each prompt or text, and each part one or more choices. Its events arrive
 * on the thread of the event loop and go to a writer, which makes the response of its dialect. A
 * client that leaves cancels the parts; the call is freed with the last event of the last part. */
#ifndef RVI_SERVER_CALL_H
#define RVI_SERVER_CALL_H

#include "ruvllm_tools.h"
#include "server/dialect.h"
#include "server/items.h"
#include "server/keys.h"
#include "server/serving.h"
#include "server/wish.h"

typedef struct rvi_call rvi_call;

typedef struct rvi_choice {
    rvi_buf text;
    rvi_buf probs; /* log probabilities that were not sent yet, in the writer's form */
    int n_probs;
    int32_t *ids;
    size_t n_ids, cap_ids;
    rv_finish finish;
    size_t stop; /* RV_FINISH_STOP: the index of the stop string */
    int n_generated;
    bool begun;            /* the writer has sent the beginning of its stream */
    rvi_answer_items said; /* what the text says, where the writer hears it */
    rvi_call *call;
    double queue_seconds, prompt_seconds, seconds;
    double first_token; /* when it came; 0: not yet */
} rvi_choice;

typedef struct rvi_part {
    rvi_recipient recipient; /* first: the service knows the part by this */
    rvi_call *call;
    int index;
    uint64_t request;
    rv_request_kind kind;
    float *values; /* a vector, or scores */
    size_t n_values;
    rv_token_prob *top; /* of scores, n_top each; NULL: none */
    size_t n_top;
    int n_prompt, n_reused; /* known from the first token on */
    bool progressed;        /* the writer knows that it has begun */
    bool waits;             /* for an adapter, and is submitted later */
    rv_request later;
} rvi_part;

typedef struct rvi_writer {
    const rvi_dialect *dialect;
    void (*begin)(rvi_call *k); /* everything was submitted; NULL: nothing to do */
    /* Text that became certain; e->text may be empty. */
    void (*token)(rvi_call *k, int choice, const rv_service_event *e); /* may be NULL */
    void (*done)(rvi_call *k, int choice);                             /* may be NULL */
    void (*end)(rvi_call *k);                                          /* the whole response */
    void (*drop)(rvi_call *k); /* frees what is its own; may be NULL */
    /* A step of an item (items.h), streamed or not; NULL: all is plain text. */
    void (*said)(rvi_call *k, int choice, const rvi_answer_item *item, rvi_item_event event,
                 const char *text, size_t len);
    /* So many tokens of a prompt have been read: first those that were reused. May be NULL. */
    void (*progress)(rvi_call *k, int part, int done);
} rvi_writer;

struct rvi_call {
    rvi_serving *s;
    rvi_call *next, *prev;
    rvi_conn *conn; /* NULL: the client has left, or has its answer */
    const rvi_writer *writer;
    char id[40];
    char tenant[RVI_KEY_NAME + 1];
    const char *model;        /* as the client calls it */
    const char *adapter;      /* that has to be loaded first; NULL: none */
    rv_adapter_set *adapters; /* NULL: none */
    rvi_taught *taught;       /* what takes part in a chat; NULL: nothing */
    bool opens;               /* that is being opened, and the chat waits for it */
    long created;
    double since; /* when it came; monotonic */
    bool spoke;   /* a token came */
    uint64_t learned;
    rvi_arena arena;
    const rvi_json *body;
    rvi_wish wish;
    rv_tools *tools;     /* whose grammar holds the answers instead; NULL: neither tools nor
                            thoughts */
    rv_grammar *grammar; /* of the answers; NULL: their texts may be anything */
    rvi_part *parts;     /* n_parts in the arena */
    int n_parts, n_open; /* open: at the service, or on the way there */
    rvi_choice *choices; /* wish.n for each part that generates */
    int n_choices;
    rvi_problem problem;
    rvi_buf chat, question; /* of a chat */
    rv_chat talk;           /* chat, as it is submitted */
    int32_t beginning;      /* token to put before the chat; -1: none */
    rv_time now;            /* for templates that print the date */
    rvi_buf begun;          /* what the answer begins with, and is not said again */
    bool unloads;           /* the model goes when it has ended */
    bool claims;            /* its session, until it has ended */
    long n_forgotten;       /* tokens that its answers forgot for want of room */
    bool coarse;            /* or they read some in 4 bits */
    bool tells_session;     /* whether that was saved is known: */
    char not_saved[256];    /* why not; "": it is */
    bool instructed;        /* its first message is not part of the conversation */
    void *own;              /* the writer's, in the arena */
};

/* A call for the request of a connection, its body read as what (wish.h). NULL: the client was
 * answered. prefix: of its id. */
rvi_call *rvi_call_new(rvi_serving *s, rvi_conn *c, const rvi_writer *w, unsigned what,
                       const char *prefix);
/* Room for parts, of which the first n_generating make wish.n choices each. */
bool rvi_call_parts(rvi_call *k, int n_parts, int n_generating);
/* Hands a part to the service; false: k->problem is set. */
bool rvi_call_submit(rvi_call *k, int part, rv_request *r);
/* The one part of a chat, k->chat. Where k->begun says what the answer begins with, nothing that
 * was taught takes part. Where what was taught has to be opened first, it is submitted later. */
bool rvi_call_submit_chat(rvi_call *k);
/* After the last part was submitted, or something was wrong: k->problem. */
void rvi_call_start(rvi_call *k);
/* Instead of starting it: nothing was submitted, and the client has its answer. */
void rvi_call_drop(rvi_call *k);
/* The same where the service has refused a part; false. */
bool rvi_call_refused(rvi_call *k, const rv_request *r, rv_status st, const rv_error *err);
/* The service has taken a part, under this number. */
void rvi_call_taken(rvi_part *part, uint64_t request);
/* One less of those that n_open counts: with the last one the call ends, and is freed. */
void rvi_call_leave(rvi_call *k);
/* At the end, when the service is gone and sends no more events. */
void rvi_calls_free(rvi_serving *s);

/* ---- session.c: calls that name a session ---- */

/* Submits the part that answers, later; r is complete but for its session. False: k->problem is
 * set. */
bool rvi_call_submit_session(rvi_part *part, const rv_request *r);
/* A problem: it could not be read. False. */
bool rvi_call_session_damaged(const char *name, rvi_problem *p);
/* The event of a choice that is done says whether its session was saved. */
void rvi_call_note_session(rvi_call *k, const rv_service_event *done);
/* ,"session":{...}, once that is known; nothing where none was named. */
void rvi_call_put_session(const rvi_call *k, rvi_buf *out);

/* ---- figures ---- */

/* {"prompt_tokens": ...} is the dialect's: the sums of all parts. */
typedef struct rvi_usage {
    long prompt, cached, generated;
} rvi_usage;
rvi_usage rvi_call_usage(const rvi_call *k);
/* What the answer follows from, as two members: program and weights, and what was learned. At the
 * end also rvi_call_put_end. */
void rvi_call_put_state(const rvi_call *k, rvi_buf *out);
/* Members that most answers do not have: how want of room changed it, and what became of its
 * session. */
void rvi_call_put_end(const rvi_call *k, rvi_buf *out);

/* The bytes of one token, which may be part of a character; of a special one its name. True: it is
 * special, and adds nothing to a text. */
bool rvi_call_token_text(const rvi_serving *s, int32_t id, rvi_buf *out);

#endif
