/* answer.h - generating answers: prompts in chunks, sampling, text, stop strings, events.
 *
 * Any number of answers, one a session, advance together: a step takes one token of each that
 * decodes and fills up with rows of the prompts that wait. An answer that fails ends without
 * affecting the others. What is guessed of an answer is checked in the same steps (draft.h).
 * Everything an answer needs is reserved when it starts: advancing allocates
 * nothing (unless a text outgrows RVI_TEXT_RESERVE). */
#ifndef RVI_DECODE_ANSWER_H
#define RVI_DECODE_ANSWER_H

#include "decode/constraint.h"
#include "decode/engine.h"
#include "decode/sampler.h"

enum { RVI_TEXT_RESERVE = 16 << 20, RVI_MAX_TOP_LOGPROBS = 20, RVI_MAX_SLOT = 4096 };

/* Probability 0.999 against 160 rivals as likely as the best of them. */
#define RVI_SLOT_MARGIN 12.0f

typedef struct rvi_generated {
    rvi_ids ids; /* an end token that ended it is the last one */
    rvi_buf text;
    rv_token_prob *chosen, *top; /* one, and n_top, for each id; NULL: not asked for */
    size_t n_top;
    rv_finish finish;
    size_t stop;                    /* RV_FINISH_STOP: the index of the stop string */
    int n_prompt, n_reused;         /* prompt tokens, and how many of them were in the cache */
    int n_guessed, n_right;         /* guesses that were tried, and those that came true, */
    int n_turned;                   /* of these, the ones that left the likeliest way */
    double prompt_seconds, seconds; /* prefill; the token loop after it */
    uint32_t state;                 /* of its constraint, behind the last id; 0: none */
} rvi_generated;

void rvi_generated_deinit(rvi_generated *g);

/* Options are those of the public header, already completed to full size; they are copied. */
rv_status rvi_answer_start(rvi_session *s, const int32_t *prompt, size_t n_prompt,
                           const rv_generate_options *o, rv_error *err) RVI_MUST_CHECK;
/* Instead of continuing a prompt: reads its rows. Called after each step that had some of them, the
 * engine's rows first .. first + n - 1 at positions pos .. pos + n - 1 of the session, in order;
 * again from 0 on if the session was suspended. The workspace holds them until it returns. An error
 * ends the answer. */
typedef struct rvi_reader {
    rv_status (*read)(void *ctx, const rvi_engine *e, int first, int n, int pos, rv_error *err);
    void *ctx;
} rvi_reader;

/* An answer without tokens, which ends when all of the prompt was read. Nothing is reused. o:
 * on_event and ctx count. */
rv_status rvi_answer_start_reading(rvi_session *s, const int32_t *prompt, size_t n_prompt,
                                   const rvi_reader *reader, const rv_generate_options *o,
                                   rv_error *err) RVI_MUST_CHECK;
/* Would these options of an answer be taken? The prompt has n_prompt tokens. */
rv_status rvi_answer_check(const rvi_engine *e, int n_context, size_t n_prompt,
                           const rv_generate_options *o, rv_error *err) RVI_MUST_CHECK;
/* rvi_session_cut for a session whose answer has begun to decode. */
void rvi_answer_cut(rvi_session *s, int from, int n);
/* Tokens of the session's past that are not in its pages; an answer that decodes has 1. */
int rvi_answer_waiting(const rvi_session *s);

/* An answer to reproduce: while the generated ids equal ids[0 .. j-1], the logit of ids[j] is
 * raised to `margin` above the largest before the sampler sees them. Masked tokens stay masked;
 * logprobs are those of the unchanged logits. The last id may be an end token. */
typedef struct rvi_slot {
    const int32_t *ids;
    size_t n;
    float margin; /* 0: RVI_SLOT_MARGIN */
} rvi_slot;

/* For the session's answer, which has generated nothing yet; ids are copied. */
rv_status rvi_answer_lock(rvi_session *s, const rvi_slot *slot, rv_error *err) RVI_MUST_CHECK;
/* A text the answer must not repeat: it may equal the text for `branch` bytes and must differ after
 * that. If `branch` is the whole text, the answer must not end there. */
typedef struct rvi_avoid {
    const char *text;
    size_t len, branch;
} rvi_avoid;

/* As for rvi_answer_lock; texts are copied. Without a tokenizer it has no effect. */
rv_status rvi_answer_avoid(rvi_session *s, const rvi_avoid *list, size_t n,
                           rv_error *err) RVI_MUST_CHECK;
/* The sampler of the session's answer, which continues its prompt. */
rvi_sampler *rvi_answer_sampler(rvi_session *s);
/* As for rvi_answer_lock; takes the constraint over, unless it fails. The answer ends once its text
 * is complete and nothing can follow, without an end token, also with ignore_eos; min_tokens does
 * not count where nothing else can come, or nothing else that would end in time. Forced tokens are
 * not picked, unless a mask, a slot or texts to avoid have a say; their rows go through the next
 * step together, unless logprobs or a capture want the logits of each: that changes no token.
 * Before max_tokens are used up, the last tokens are chosen such that the text ends. */
rv_status rvi_answer_constrain(rvi_session *s, const rvi_constraint *by,
                               rv_error *err) RVI_MUST_CHECK;
/* As for rvi_answer_lock: guesses come from this session of a smaller model, which follows the
 * answer and must live until it has ended. */
rv_status rvi_answer_draft(rvi_session *s, rvi_session *by, rv_error *err) RVI_MUST_CHECK;
/* Computes one step of all unfinished answers, or of that of `only`. Returns how many remain
 * unfinished. */
size_t rvi_answer_advance(rvi_engine *e, const rvi_session *only);
bool rvi_answer_ended(const rvi_session *s); /* the session has a finished answer */
int rvi_answer_count(const rvi_engine *e);   /* that are under way */
/* Moves the session's answer to out and returns its status; cancels it if it is unfinished. The
 * session must have an answer. */
rv_status rvi_answer_take(rvi_session *s, rvi_generated *out, rv_error *err) RVI_MUST_CHECK;
void rvi_answer_drop(rvi_session *s); /* discards the answer, if there is one */

#endif
