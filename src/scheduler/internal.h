/* internal.h - the scheduler as its own files see it. */
#ifndef RVI_SCHEDULER_INTERNAL_H
#define RVI_SCHEDULER_INTERNAL_H

#include "base/thread.h"
#include "scheduler/events.h"
#include "scheduler/figures.h"
#include "scheduler/pace.h"
#include "scheduler/prefix.h"
#include "scheduler/scheduler.h"
#include "scheduler/spill.h"
#include "scheduler/tenants.h"

typedef struct rvi_saver rvi_saver;

struct rvi_job {
    rvi_waiting waiting; /* first: the queue knows it by this */
    rvi_order *r;
    int choice;
    bool running, ended;
    bool lost;      /* there was no memory for one of its events */
    rvi_job *next;  /* of those that run, oldest rank first; or of those that are saved */
    rvi_session *s; /* NULL: never admitted, or ended */
    int wants;      /* rows of this step that it was not given */
    bool is_long;   /* its prompt is read gently, up to its end */
    int n_pieces;   /* of what beginning takes that were done */
    int n_reused;   /* tokens of its prompt that it found */
    int n_computed; /* tokens that were in its pages when it lost them */
    int n_generated, n_preempted;
    int n_evicted; /* tokens that it forgot */
    rvi_spilled spilled;
    double admitted, first, last; /* when; 0: not yet. last: its latest token */
    rvi_pooler *pooler;           /* of an embedding */
    float *values;                /* of an embedding or of scores */
    size_t n_values;
    rv_token_prob *top;   /* of scores: the likeliest tokens of each place; NULL: none */
    double sum;           /* of the scores */
    rvi_save *save;       /* its session is on the way to the disk; NULL: it is not */
    rv_service_event end; /* which is told then */
};

struct rvi_scheduler {
    rvi_engine *e;
    rvi_scheduler_options o;
    uint64_t key[2]; /* of the hash of salts */
    rvi_lock *lock;  /* of the next six */
    rvi_order *inbox, *inbox_last;
    rvi_order *live; /* changed by the thread that steps, which reads it without the lock */
    uint64_t n_requests;
    size_t n_live;
    int n_waiting; /* requests of which no job was admitted yet */
    atomic_bool any_cancelled;
    rvi_tenants tenants;
    rvi_tenant beside; /* of which only the queue is used: orders that are */
    rvi_job *running;
    int n_running, n_beside;       /* of those that run */
    rvi_job *saving, *saving_last; /* their answers have ended: oldest first */
    size_t n_saving;
    rvi_saver *saver; /* NULL: sessions are saved within the step */
    int n_sharing;    /* schedulers that take turns, this one among them */
    rvi_pace pace;
    rvi_prefix *prefix;
    uint64_t charged;             /* of the quota */
    atomic_uint_fast64_t givable; /* bytes of kept pages, */
    atomic_uint_fast64_t to_give; /* and of these what others have asked for */
    rvi_buf spill;                /* folder; empty: none */
    rvi_spill_costs spill_costs;
    uint64_t spilled_bytes;
    bool spill_failed; /* the last time */
    int32_t *pages;    /* scratch: of the longest sequence */
    rvi_events events;
    rvi_figures figures;
    double next_deadline; /* 0: none */
    double now;           /* of the step */
};

static inline int rvi_pages_for(int n_tokens)
{
    return (n_tokens + RVI_PAGE_TOKENS - 1) / RVI_PAGE_TOKENS;
}

static inline int rvi_job_total(const rvi_job *j) /* tokens it may have at most */
{
    int n = j->r->n_ids + (j->r->kind == RV_REQUEST_ANSWER ? j->r->o.max_tokens : 0);
    return n - j->n_evicted;
}

/* job.c: beginning and end of a job */
rv_status rvi_job_begin(rvi_scheduler *s, rvi_job *j, rv_error *err) RVI_MUST_CHECK;
rvi_prefix_space rvi_job_space(const rvi_scheduler *s, const rvi_job *j);
/* What it has computed goes into the tree; all, or only whole pages. */
void rvi_job_keep(rvi_scheduler *s, const rvi_job *j, bool whole);
/* What it has on disk is not needed any more. */
void rvi_job_unspill(rvi_scheduler *s, rvi_job *j);
/* Ends it, with its last event; where its session is saved first, that comes later. st: what
 * failed; otherwise finish says why, or its answer does. */
void rvi_job_end(rvi_scheduler *s, rvi_job *j, rv_finish finish, rv_status st, const rv_error *why);
void rvi_job_tell_end(rvi_scheduler *s, rvi_job *j, const rv_service_event *ev);

/* saving.c: sessions of answers that have ended, on their way to the disk */
rv_status rvi_saving_start(rvi_scheduler *s, rv_error *err) RVI_MUST_CHECK;
void rvi_saving_stop(rvi_scheduler *s); /* what is not saved yet is abandoned */
/* The job's answer ended well. Either its session was saved or could not be, which ev says then, or
 * j->save is set, and the job ends when that is over. why: the storage of what went wrong. */
void rvi_saving_begin(rvi_scheduler *s, rvi_job *j, const rvi_sampler_state *sampler,
                      rv_service_event *ev, rv_error *why);
/* Takes note of what is over, and copies the next pages. */
void rvi_saving_go_on(rvi_scheduler *s);

/* share.c: what the quota leaves to this service */
void rvi_share_begin(rvi_scheduler *s); /* of a step: gives up what others asked for */
/* How many pages the service may have changes with what others have. */
void rvi_share_allow(rvi_scheduler *s);
bool rvi_share_is_short(const rvi_scheduler *s); /* others have what it could use */
/* For n pages more than are in use; false: others took them meanwhile. */
bool rvi_share_take(rvi_scheduler *s, int n);
/* n pages are lacking: asks the others for them, and itself unless but_own. */
void rvi_share_ask(rvi_scheduler *s, int n, bool but_own);
void rvi_share_end(rvi_scheduler *s); /* of a step: what is not used goes back */
uint64_t rvi_share_page_bytes(const rvi_scheduler *s);
/* Of what is merely kept, which may be in fewer bits than 16. */
uint64_t rvi_share_kept_bytes(const rvi_scheduler *s);

/* admit.c: who runs */
void rvi_admit_waiting(rvi_scheduler *s);
void rvi_admit_wait(rvi_scheduler *s, rvi_job *j); /* into its tenant's queue */
void rvi_admit_stop(rvi_scheduler *s, rvi_job *j); /* out of it, or of those that run */
/* Makes room for the rows that the running jobs are allowed; takes pages from the youngest. */
void rvi_admit_make_room(rvi_scheduler *s);
/* Gives up kept pages beyond the limit, and some more, so that this is seldom. */
void rvi_admit_limit_kept(rvi_scheduler *s);
/* Gives up n kept pages, or as many as there are. */
int rvi_admit_drop_kept(rvi_scheduler *s, int n);

/* scheduler.c: after a job has ended; frees a request that has no job left. */
void rvi_scheduler_job_ended(rvi_scheduler *s, rvi_order *r);

/* rows.c: what a step computes */
void rvi_rows_choose(rvi_scheduler *s);

#endif
