/* judgements.h - the thumbs and scores of a learner that count. */
#ifndef RVI_CLI_JUDGEMENTS_H
#define RVI_CLI_JUDGEMENTS_H

#include "base/json.h"
#include "cli/cli.h"
#include "ruvllm_store.h"

typedef struct cli_judgement {
    uint64_t event;
    bool bad;
    double score;
    const char *question;
    const char *answer; /* may lack the beginning of a long one, */
    const char *began;  /* which a thumb down has */
} cli_judgement;

typedef struct cli_judgements { /* {0} is empty */
    cli_judgement *list;        /* the newest last; the caller frees it */
    size_t n, cap;
} cli_judgements;

/* Those of a user that were neither taken back nor forgotten, by the log in the store. Texts are in
 * the arena. */
rv_status cli_judgements_read(cli_judgements *out, rv_store *store, const char *user,
                              rvi_arena *arena, rv_error *err) RVI_MUST_CHECK;
/* Two lines: the question, and the verdict with the beginning of the answer. */
void cli_judgement_write(const cli_judgement *x, rvi_arena *arena, rvi_buf *out);

#endif
