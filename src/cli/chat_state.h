/* chat_state.h - what the files of the chat share: its state, and how it speaks beside the
 * conversation. cmd_chat.c has the turns and commands, chat_learning.c the commands that teach. */
#ifndef RVI_CLI_CHAT_STATE_H
#define RVI_CLI_CHAT_STATE_H

#include "cli/chat.h"
#include "cli/conversation.h"
#include "cli/editor.h"
#include "cli/learning.h"

typedef struct cli_last_answer {
    bool made;
    int n_prompt, n_reused;
    size_t n_answer;
    double prompt_seconds, seconds;
    uint64_t seed;
} cli_last_answer;

typedef struct cli_chat_state {
    cli *c;
    cli_generation *g;
    const char *name; /* of the model, as it was given */
    cli_model model;
    rv_model_info info;
    rv_session *session;
    cli_conversation talk;
    rv_time
        now; /* when the chat began: a template that prints it renders the same past each turn */
    cli_last_answer last;
    cli_learning learning;
    rv_error no_learning; /* why there is none */
    bool same_seed;       /* of the next answer: as of the last one */
    bool is_captured;     /* the conversation's last answer is what the learner can judge */
    rv_learn_plan *plan;  /* what took part in the last answer; NULL: nothing */
    bool hinted;          /* was told what lessons are recognised by, */
    bool told_cut;        /* and that an answer was cut */
    size_t n_lines;       /* that were read; 0: on a terminal */
    /* on a terminal alone */
    cli_editor *editor;
    FILE *screen;
    bool colour, quit;
} cli_chat_state;

/* ---- cmd_chat.c ---- */
/* A remark beside the conversation: dim where there are colours. */
void cli_remark(const cli_chat_state *t, const char *fmt, ...) RVI_PRINTF(2, 3);
void cli_remark_error(const cli_chat_state *t, const rv_error *err);
/* Which lessons and adapters take part in the answer to the current conversation, if anything was
 * learned. */
rv_status cli_chat_begin_learned(cli_chat_state *t, rv_error *err) RVI_MUST_CHECK;
/* Answers the last message, which is the user's. *answered: an assistant's message was added
 * (perhaps an incomplete answer). */
rv_status cli_chat_answer(cli_chat_state *t, bool *answered, rv_error *err) RVI_MUST_CHECK;

/* ---- chat_learning.c ---- */
/* The learned state, and on a terminal training while the user reads and types. A chat goes on
 * without where it cannot be had. */
void cli_chat_open_learning(cli_chat_state *t, bool terminal);
/* Commands */
void cli_chat_good(cli_chat_state *t, const char *argument);
void cli_chat_bad(cli_chat_state *t, const char *argument);
void cli_chat_fix(cli_chat_state *t, const char *argument);
void cli_chat_score(cli_chat_state *t, const char *argument);
void cli_chat_undo(cli_chat_state *t, const char *argument);
void cli_chat_learned(cli_chat_state *t, const char *argument);

#endif
