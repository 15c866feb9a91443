/* regex_match.c - running a compiled expression over a text.
 *
 * A backtracking machine with a stack of its own. Bodies of look-arounds and atomic groups run in a
 * nested call (as deep as the pattern nests). When a text has cost more steps than a plain
 * expression needs, the machine begins to remember states: a state is a choice instruction at a
 * text position, and whether it can lead to the end of its program part does not depend on how it
 * was reached.
 *
 * Two bits for each state:
 *   SEEN   it was entered. Met again, it counts as failed: either it did fail, or it is on the way
 * to here without a character in between, and going round again would be endless. GOOD   inside a
 * look-around only: from here the body matches, which is all one asks of it. The log holds the
 * states on the way from the start of the current part to here. When a part succeeds, its logged
 * states did not fail: they lose SEEN, and in a look-around they get GOOD. When a choice is taken
 * back, the log is cut to the length it had there, and what is cut off stays SEEN: it failed. */
#include <string.h>

#include "base/utf8.h"
#include "tokenizer/regex_internal.h"

enum { SEEN = 1, GOOD = 2 };
/* Per byte of text: from STEPS_PER_BYTE on states are remembered; at STEPS_MOST (more for a longer
 * program) matching is given up. Only nested atomic groups and the like can get there. */
enum { STEPS_PER_BYTE = 16, STEPS_FREE = 20000, STEPS_MOST = 2000 };
static const uint64_t memo_max = (uint64_t)1 << 30; /* bytes */

typedef struct rvi_regex_choice {
    uint32_t pc; /* where to go on */
    uint8_t kind;
    size_t pos;
    size_t least; /* BACK_OFF: the loop may give back down to here */
    size_t n_log;
} choice;

enum { GO, BACK_OFF, BACK_OFF_LOGGED, TAKE_MORE };

typedef enum outcome { FAILED, MATCHED, NO_MEMORY, TOO_LONG } outcome;

static uint32_t char_at(const rvi_regex_work *w, size_t pos, size_t *next)
{
    unsigned char c = (unsigned char)w->text[pos];
    uint32_t cp = c;
    *next = pos + (c < 0x80 ? 1 : rvi_utf8_decode(w->text + pos, w->len - pos, &cp, NULL));
    return cp;
}

static size_t step_back(const rvi_regex_work *w, size_t pos)
{
    do pos--;
    while (pos && ((unsigned char)w->text[pos] & 0xC0) == 0x80);
    return pos;
}

/* ---- remembered states ---- */

static uint64_t state_of(const rvi_regex_work *w, uint32_t memo, size_t pos)
{
    return (uint64_t)memo * (w->len + 1) + pos;
}

static unsigned bits(const rvi_regex_work *w, uint64_t state)
{
    return (unsigned)w->memo[state >> 2] >> (2 * (unsigned)(state & 3)) & 3u;
}

static void set_bits(rvi_regex_work *w, uint64_t state, unsigned value)
{
    unsigned shift = 2 * (unsigned)(state & 3);
    w->memo[state >> 2] = (uint8_t)((w->memo[state >> 2] & ~(3u << shift)) | value << shift);
}

static outcome memo_start(rvi_regex_work *w)
{
    uint64_t bytes = ((uint64_t)w->re->n_memo * (w->len + 1) >> 2) + 1;
    if (bytes > memo_max) return TOO_LONG;
    if (w->cap_memo < bytes) {
        rvi_free(w->memo);
        w->memo = rvi_zalloc((size_t)bytes);
        w->cap_memo = w->memo ? (size_t)bytes : 0;
        if (!w->memo) return NO_MEMORY;
    } else {
        memset(w->memo, 0, (size_t)bytes);
    }
    w->n_log = 0;
    w->memo_on = true;
    return MATCHED;
}

static bool log_state(rvi_regex_work *w, uint64_t state)
{
    if (w->n_log == w->cap_log) {
        size_t cap = w->cap_log ? w->cap_log * 2 : 256;
        uint64_t *log = rvi_realloc_array(w->log, cap, sizeof *log);
        if (!log) return false;
        w->log = log;
        w->cap_log = cap;
    }
    w->log[w->n_log++] = state;
    set_bits(w, state, bits(w, state) | SEEN);
    return true;
}

/* A choice is reached. MATCHED: go on with it; FAILED: it leads nowhere. *good: the whole part
 * matches from here. */
static outcome enter(rvi_regex_work *w, uint32_t memo, size_t pos, bool *good)
{
    if (!w->memo_on) return MATCHED;
    uint64_t state = state_of(w, memo, pos);
    unsigned known = bits(w, state);
    if (known & GOOD)
        *good = true;
    else if (known & SEEN)
        return FAILED;
    else if (!log_state(w, state))
        return NO_MEMORY;
    return MATCHED;
}

static bool push(rvi_regex_work *w, choice c)
{
    if (w->n_stack == w->cap_stack) {
        size_t cap = w->cap_stack ? w->cap_stack * 2 : 64;
        choice *stack = rvi_realloc_array(w->stack, cap, sizeof *stack);
        if (!stack) return false;
        w->stack = stack;
        w->cap_stack = cap;
    }
    c.n_log = w->n_log;
    w->stack[w->n_stack++] = c;
    return true;
}

/* ---- loops over single characters ---- */

/* Takes as many characters as the loop may, at most `most`; the position behind them. With the memo
 * on, an endless loop stops at a state that is known, and logs each position it comes to. A
 * possessive loop that comes to a failed state has failed itself: both end at the same place. */
static outcome run_loop(rvi_regex_work *w, const rvi_regex_inst *in, size_t pos, size_t most,
                        size_t *end, size_t *count, bool *good)
{
    const rvi_cpset *set = &w->re->sets[in->set];
    bool remember = w->memo_on && in->max == RVI_REGEX_FOREVER;
    size_t n = 0, next;
    while (n < most && pos < w->len) {
        if (!rvi_cpset_has(set, char_at(w, pos, &next))) break;
        if (remember) {
            uint64_t state = state_of(w, in->memo, next);
            unsigned known = bits(w, state);
            if (known & GOOD) *good = true;
            if (known & SEEN && in->mode == RVI_REGEX_POSSESSIVE) return FAILED;
            if (known) break;
            if (!log_state(w, state)) return NO_MEMORY;
        }
        pos = next;
        n++;
    }
    w->steps += n;
    *end = pos;
    *count = n;
    return MATCHED;
}

/* A loop instruction at *pos. On success *pos is where to go on, and the other possibilities are on
 * the stack. */
static outcome do_loop(rvi_regex_work *w, const rvi_regex_inst *in, uint32_t pc, size_t *pos,
                       bool *good)
{
    size_t count, least = *pos;
    outcome o;
    if (in->min == in->max) {
        if ((o = run_loop(w, in, *pos, (size_t)in->max, pos, &count, good)) != MATCHED) return o;
        return count == (size_t)in->min ? MATCHED : FAILED;
    }
    if ((o = enter(w, in->memo, *pos, good)) != MATCHED || *good) return o;
    if (in->min > 0) {
        if ((o = run_loop(w, in, *pos, (size_t)in->min, &least, &count, good)) != MATCHED) return o;
        if (count < (size_t)in->min) return FAILED;
    }
    *pos = least;
    size_t most = in->max == RVI_REGEX_FOREVER ? SIZE_MAX : (size_t)(in->max - in->min);
    if (in->mode == RVI_REGEX_LAZY) {
        choice c = {.pc = pc, .kind = TAKE_MORE, .pos = least, .least = most};
        return push(w, c) ? MATCHED : NO_MEMORY;
    }
    bool logged = w->memo_on && in->max == RVI_REGEX_FOREVER;
    if ((o = run_loop(w, in, least, most, pos, &count, good)) != MATCHED || *good) return o;
    if (*pos == least || in->mode == RVI_REGEX_POSSESSIVE) return MATCHED;
    choice c = {
        .pc = pc + 1, .kind = logged ? BACK_OFF_LOGGED : BACK_OFF, .pos = *pos, .least = least};
    return push(w, c) ? MATCHED : NO_MEMORY;
}

/* A lazy loop takes one more character. */
static outcome take_more(rvi_regex_work *w, choice c, uint32_t *pc, size_t *pos, bool *good)
{
    const rvi_regex_inst *in = &w->re->program[c.pc];
    size_t count;
    outcome o = c.least ? run_loop(w, in, c.pos, 1, pos, &count, good) : FAILED;
    if (o != MATCHED || *good) return o;
    if (!count) return FAILED;
    *pc = c.pc + 1;
    c.pos = *pos;
    if (c.least != SIZE_MAX) c.least--;
    return push(w, c) ? MATCHED : NO_MEMORY;
}

/* ---- the machine ---- */

static bool word_before(const rvi_regex_work *w, size_t pos)
{
    size_t next;
    return pos && rvi_cpset_has(&w->re->word, char_at(w, step_back(w, pos), &next));
}

static bool at_place(const rvi_regex_work *w, rvi_regex_place place, size_t pos)
{
    size_t next;
    bool edge;
    switch (place) {
    case RVI_REGEX_TEXT_START: return pos == 0;
    case RVI_REGEX_TEXT_END: return pos == w->len;
    case RVI_REGEX_TEXT_END_NEWLINE:
        return pos == w->len || (pos == w->len - 1 && w->text[pos] == '\n');
    case RVI_REGEX_LINE_START: return pos == 0 || (w->text[pos - 1] == '\n' && pos < w->len);
    case RVI_REGEX_LINE_END: return pos == w->len || w->text[pos] == '\n';
    default:
        edge = word_before(w, pos) !=
               (pos < w->len && rvi_cpset_has(&w->re->word, char_at(w, pos, &next)));
        return edge == (place == RVI_REGEX_WORD_EDGE);
    }
}

static outcome run(rvi_regex_work *w, uint32_t pc, size_t pos, bool look, size_t *end);

static outcome do_look(rvi_regex_work *w, const rvi_regex_inst *in, uint32_t pc, size_t pos)
{
    size_t end;
    for (int i = 0; i < in->min; i++) {
        if (!pos) return in->negative ? MATCHED : FAILED;
        pos = step_back(w, pos);
    }
    outcome o = run(w, pc + 1, pos, true, &end);
    if (o == MATCHED || o == FAILED) return (o == MATCHED) != in->negative ? MATCHED : FAILED;
    return o;
}

/* Goes back to the last open choice above `base`. */
static outcome go_back(rvi_regex_work *w, size_t base, uint32_t *pc, size_t *pos, bool *good)
{
    while (w->n_stack > base) {
        choice *c = &w->stack[w->n_stack - 1];
        w->n_log = c->n_log;
        *pc = c->pc;
        if (c->kind == BACK_OFF || c->kind == BACK_OFF_LOGGED) {
            c->pos = step_back(w, c->pos);
            if (c->kind == BACK_OFF_LOGGED) w->n_log = --c->n_log;
            *pos = c->pos;
            if (c->pos == c->least) w->n_stack--;
            return MATCHED;
        }
        w->n_stack--;
        if (c->kind == GO) {
            *pos = c->pos;
            return MATCHED;
        }
        outcome o = take_more(w, *c, pc, pos, good);
        if (o != FAILED) return o;
    }
    return FAILED;
}

/* The part that ends with RVI_OP_MATCH succeeded, so its logged states did not fail: clears their
 * marks. */
static void clear_failed(rvi_regex_work *w, size_t log_base, bool look)
{
    for (size_t i = log_base; i < w->n_log; i++) set_bits(w, w->log[i], look ? GOOD : 0);
}

/* One instruction. FAILED asks for going back; *done: the part matched, and ended at *pos. */
static outcome step(rvi_regex_work *w, uint32_t *pc, size_t *pos, bool *done)
{
    const rvi_regex_inst *in = &w->re->program[*pc];
    size_t next;
    outcome o;
    switch (in->op) {
    case RVI_OP_CHAR:
        if (*pos >= w->len || char_at(w, *pos, &next) != in->cp) return FAILED;
        *pos = next;
        break;
    case RVI_OP_SET:
        if (*pos >= w->len || !rvi_cpset_has(&w->re->sets[in->set], char_at(w, *pos, &next)))
            return FAILED;
        *pos = next;
        break;
    case RVI_OP_LOOP:
        if ((o = do_loop(w, in, *pc, pos, done)) != MATCHED) return o;
        break;
    case RVI_OP_SPLIT:
        if ((o = enter(w, in->memo, *pos, done)) != MATCHED) return o;
        if (!push(w, (choice){.pc = in->y, .kind = GO, .pos = *pos})) return NO_MEMORY;
        *pc = in->x;
        return MATCHED;
    case RVI_OP_JUMP: *pc = in->x; return MATCHED;
    case RVI_OP_LOOK:
        if ((o = do_look(w, in, *pc, *pos)) != MATCHED) return o;
        *pc = in->x;
        return MATCHED;
    case RVI_OP_ATOMIC:
        if ((o = run(w, *pc + 1, *pos, false, pos)) != MATCHED) return o;
        *pc = in->x;
        return MATCHED;
    case RVI_OP_PLACE:
        if (!at_place(w, (rvi_regex_place)in->place, *pos)) return FAILED;
        break;
    case RVI_OP_MATCH: *done = true; return MATCHED;
    }
    ++*pc;
    return MATCHED;
}

/* Runs the part that begins at pc. Leaves stack and log as they were. */
static outcome run(rvi_regex_work *w, uint32_t pc, size_t pos, bool look, size_t *end)
{
    size_t base = w->n_stack, log_base = w->n_log;
    bool done = false;
    outcome o = MATCHED;
    while (o == MATCHED && !done) {
        if (++w->steps > w->steps_before_memo && !w->memo_on) o = memo_start(w);
        if (w->steps > w->steps_max) o = TOO_LONG;
        if (o != MATCHED) break;
        o = step(w, &pc, &pos, &done);
        if (o == FAILED) o = go_back(w, base, &pc, &pos, &done);
    }
    if (o == MATCHED) {
        *end = pos;
        if (w->memo_on) clear_failed(w, log_base, look);
    }
    w->n_stack = base;
    w->n_log = log_base;
    return o;
}

void rvi_regex_begin(rvi_regex_work *w, const rvi_regex *re, const char *text, size_t len)
{
    w->re = re;
    w->text = text;
    w->len = len;
    w->next = 0;
    w->last_end = SIZE_MAX;
    w->steps = 0;
    w->steps_before_memo = re->empty_loop ? 0 : (uint64_t)len * STEPS_PER_BYTE + STEPS_FREE;
    w->steps_max = ((uint64_t)len + 1000) * (STEPS_MOST + 8 * re->n_program);
    w->memo_on = false;
    w->n_stack = w->n_log = 0;
}

rv_status rvi_regex_next(rvi_regex_work *w, bool *found, size_t *start, size_t *end, rv_error *err)
{
    size_t pos = w->next, skipped;
    *found = false;
    while (pos <= w->len) {
        outcome o = run(w, 0, pos, false, end);
        if (o == NO_MEMORY) return rvi_nomem(err, "regular expression");
        if (o == TOO_LONG)
            return rvi_error(err, RV_E_TOKENIZATION, "text too long for this regular expression");
        if (o == MATCHED && (*end > pos || pos != w->last_end)) {
            *found = true;
            *start = pos;
            w->next = w->last_end = *end;
            return RV_OK;
        }
        if (pos == w->len) break;
        char_at(w, pos, &skipped);
        pos = skipped;
    }
    w->next = w->len + 1;
    return RV_OK;
}

void rvi_regex_work_deinit(rvi_regex_work *w)
{
    rvi_free(w->stack);
    rvi_free(w->memo);
    rvi_free(w->log);
    *w = (rvi_regex_work){0};
}
