/* answer_internal.h - what the files of an answer share.
 *
 *   answer.c         beginning, what it was asked for, end
 *   answer_events.c  text and events
 *   answer_token.c   the next token, from logits or because the constraint leaves no other
 *   answer_guess.c   guesses: which a step tries, and which came true
 *   answer_step.c    rows of all answers through one forward pass */
#ifndef RVI_DECODE_ANSWER_INTERNAL_H
#define RVI_DECODE_ANSWER_INTERNAL_H

#include "decode/answer.h"
#include "decode/capture.h"
#include "decode/drafter.h"
#include "decode/stop.h"

struct rvi_answer {
    rvi_answer *next; /* in the engine's list while under way */
    rvi_session *s;
    rv_generate_options o;
    char **stop;          /* copies of the stop strings */
    rvi_reader reader;    /* read NULL: the prompt is continued, not read */
    rvi_sampler *sampler; /* NULL: a reader needs none */
    rvi_detok detok;
    rvi_stop stops;
    rvi_buf piece;
    float *raw; /* the model's own logits of a step; NULL: neither logprobs nor capture want them */
    const rvi_drawn *drawn; /* what is known of them instead; NULL: raw has them */
    rvi_capture *capture;   /* the session's when it began */
    float temperature;      /* for capture */
    int32_t *slot_ids;      /* NULL: no slot */
    size_t n_slot;
    float slot_margin;
    rvi_avoid *avoid; /* texts are its own; those that no longer matter are dropped */
    size_t n_avoid;
    rvi_bound *bound; /* what the text may be; NULL: anything */
    rvi_generated out;
    int max_tokens;
    int n_cut;     /* tokens of the prompt that are no part of the past any more */
    int n_rows;    /* in the step being computed, */
    int first_row; /* from this one on */
    int logits_at; /* place of its logits in that; -1: none */
    rvi_draft draft;
    rvi_drafter drafter;
    int n_tried;                      /* guesses that are rows of the step */
    int tried_logits;                 /* the place of the logits of the first way, */
    int side_logits[RVI_DRAFT_SIDES]; /* and of the others */
    rvi_seq sides[RVI_DRAFT_SIDES];   /* their keys and values, during a step */
    bool has_sides;                   /* these are there */
    int32_t picked;                   /* from these logits; -1: not yet */
    rv_status pick_status;
    bool ended;
    rv_status status;
    rv_error error;
    double start, first; /* when it began, when its first logits came */
    double told;         /* when its last event of progress was sent, */
    int n_told;          /* and what that said: a step that is done again tells no less */
};

/* answer.c */
void rvi_answer_drop_avoid(rvi_answer *a, size_t i); /* the last one takes its place */
/* Takes it off the engine's list and tells the caller how it went. */
void rvi_answer_end(rvi_answer *a, rv_finish finish, rv_status st);

/* answer_events.c; cancel: set if the caller wants no more, may be NULL */
void rvi_answer_send(rvi_answer *a, const rv_event *ev, bool *cancel);
/* Passes a token (id -1: the end of the text) through detokenizer and stop strings, and tells the
 * caller what became certain. */
rv_status rvi_answer_emit(rvi_answer *a, int32_t id, bool *cancel);
bool rvi_answer_is_prompting(const rvi_answer *a); /* the step has rows of its prompt */
/* n_done tokens of its past are computed. */
void rvi_answer_tell_prompt(rvi_answer *a, int n_done, bool *cancel);
/* In the middle of a step of the engine ctx: an rvi_workspace_set_progress callback. */
void rvi_answer_report_step(void *ctx, int n_done, int n_halves);

/* answer_token.c */
bool rvi_answer_follows_slot(rvi_answer *a); /* all has come as the slot says, which says more */
/* Finds out what the constraint says of the next token: which must come (then it is picked), or
 * which may. */
void rvi_answer_look_ahead(rvi_answer *a, const float *logits);
/* What must be known of logits for the `ahead`-th token after the next one. */
rvi_draw_ask rvi_answer_ask(const rvi_answer *a, int ahead);
/* Picks the tokens of all answers that have logits, side by side. */
void rvi_answer_pick_all(rvi_engine *e);
void rvi_answer_take_token(rvi_answer *a, float *logits);
/* Takes the tokens that come in any case and whose logits nobody wants: their rows wait for the
 * next step as those of a prompt do. */
void rvi_answer_jump(rvi_answer *a);

/* answer_guess.c */
void rvi_answer_guess_all(rvi_engine *e); /* adds guesses to the step, where there is room */
/* The tokens of a step: the one that follows the answer's last, then those that follow guesses, as
 * long as they are right. */
void rvi_answer_take_tokens(rvi_answer *a);
void rvi_answer_forget_guesses(rvi_session *s); /* those behind the token at hand */
void rvi_answer_drop_sides(rvi_answer *a);

#endif
