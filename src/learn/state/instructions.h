/* instructions.h - lessons of scope always: texts that stand before every chat. */
#ifndef RVI_LEARN_STATE_INSTRUCTIONS_H
#define RVI_LEARN_STATE_INSTRUCTIONS_H

#include "learn/journal/log.h"

enum {
    RVI_INSTRUCTIONS_MAX = 16, /* that stand: each is computed with every chat */
    RVI_INSTRUCTION_BYTES = 2048,
};

typedef struct rvi_instruction {
    uint64_t event;
    char *text;
    bool in_force;
    uint64_t ended_by; /* the event after which it is no longer in force */
} rvi_instruction;

typedef struct rvi_instructions { /* {0} is empty */
    rvi_instruction *list;        /* in the order of their events */
    size_t n, cap;
} rvi_instructions;

/* Is the text fit, and is there room for it? RV_E_INVALID says why not. */
rv_status rvi_instructions_check(const rvi_instructions *x, const char *text,
                                 rv_error *err) RVI_MUST_CHECK;
/* event 0: not logged yet. It takes the place of one with the same words. */
rv_status rvi_instructions_add(rvi_instructions *x, uint64_t event, rvi_text text,
                               rv_error *err) RVI_MUST_CHECK;
/* The one that was added last was logged; or, event 0, it was not. */
void rvi_instructions_logged(rvi_instructions *x, uint64_t event);
/* It ends, and what it had taken the place of stands again. Returns it; NULL: it did not stand. */
const rvi_instruction *rvi_instructions_take_back(rvi_instructions *x, uint64_t event, uint64_t by);
/* All with this text end; *n grows by their number. */
rv_status rvi_instructions_forget(rvi_instructions *x, const char *text, uint64_t by, int *n,
                                  rv_error *err) RVI_MUST_CHECK;
/* Appends those that stand, a line each, the newest last. */
rv_status rvi_instructions_write(const rvi_instructions *x, rvi_buf *out,
                                 rv_error *err) RVI_MUST_CHECK;
/* An event of the log as it was when it came. */
rv_status rvi_instructions_apply(rvi_instructions *x, const rvi_feedback *f,
                                 rv_error *err) RVI_MUST_CHECK;
void rvi_instructions_deinit(rvi_instructions *x);

#endif
