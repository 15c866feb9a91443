/* generation.h - what `run` and `chat` share: sampling options, and generating an answer.
 *
 * The first Ctrl-C stops the current answer, or training; a second one ends the program at once,
 * whatever it is doing. The signal handler changes nothing but the count of interrupts. */
#ifndef RVI_CLI_GENERATION_H
#define RVI_CLI_GENERATION_H

#include "cli/cli.h"
#include "ruvllm_tools.h"

enum { CLI_SAMPLING_OPTIONS = 20, CLI_GENERATION_OPTIONS = CLI_SAMPLING_OPTIONS + 17 };

typedef struct cli_generation {
    /* options */
    rv_sampling given; /* values of the options that are_given marks */
    bool are_given[CLI_SAMPLING_OPTIONS];
    bool greedy, ignore_eos, no_history, no_learn, max_given, special;
    bool explain; /* what computes, and why */
    int max_tokens, min_tokens;
    int logprobs; /* as rv_generate_options has it */
    const char *system;
    const char *preset;  /* a file with options that the command line does not have; read before */
    const char *learned; /* the name of the learned state, NULL: the default */
    const char *draft;   /* "ngram", "off" or a model; NULL: the default */
    const char *memory;  /* a size that everything is to fit into; NULL: none */
    cli_texts stop, lora, breakers, biases;
    /* the resulting values, set by cli_generation_resolve */
    rv_sampling sampling;
    rv_logit_bias bias[RVI_COUNT(((cli_texts *)0)->items)];
    rv_generate_options options; /* sampling, stop and the like point into this struct */
    bool seed_given;
    char shortened[96];    /* why the context is shorter than usual; "": it is not */
    rv_tools *tools;       /* what its answers may call; NULL: their text is all */
    rv_model *draft_model; /* NULL: none; options.draft_session is of it */
} cli_generation;

extern const char cli_generation_help[];

void cli_generation_init(cli_generation *g);
/* Writes the rows of the options table, CLI_GENERATION_OPTIONS of them. */
void cli_generation_rows(cli_generation *g, cli_option *rows);
/* Call after parsing: sets the defaults (greedy: all sampling off) and applies the given options
 * over them. CLI_OK, or CLI_USAGE after saying what is wrong. */
int cli_generation_resolve(const cli *c, cli_generation *g, bool greedy);

/* Why nothing that was taught takes part in answers; NULL: it may. */
const char *cli_generation_alone(const cli_generation *g);

/* The temperature of answers from now on, 0: greedy; and what it is. */
void cli_generation_set_temperature(cli_generation *g, float temperature);
float cli_generation_temperature(const cli_generation *g);

/* A session on the model with the options --ctx, --kv and --lora, and one on that of --draft; with
 * --memory in no more than that. */
rv_status cli_generation_session(const cli *c, cli_generation *g, const cli_model *m,
                                 rv_session **out, rv_error *err) RVI_MUST_CHECK;
void cli_generation_close(cli_generation *g); /* the model of --draft; before the runtime goes */

/* Catches Ctrl-C from now on, and with also_end requests to end the program. last_words, a
 * constant, is written when the program ends at once. */
void cli_interrupts_catch(const char *last_words, bool also_end);
/* From now on the first Ctrl-C leaves too, after the moment that a step of training may need to
 * save what it has. */
void cli_interrupts_leave(void);
/* For the end of a command, when its output is written: ends the program at once. All that was
 * acknowledged is on the disk; stopping what computes in the background and freeing memory piece by
 * piece would only keep the user waiting. */
void cli_leave(int status);
bool cli_interrupted(void);
void cli_interrupts_forget(void);
/* While on, interrupts are only counted, because the line editor handles them. */
void cli_interrupts_reading(bool on);

/* Generates an answer; print: writes the text to standard output as it is generated, with tools
 * its calls as one JSON object a line, and not its thoughts. An interrupt
 * ends the answer with RV_FINISH_CANCELLED. */
rv_status cli_answer(cli_generation *g, rv_session *s, const int32_t *ids, size_t n, bool print,
                     rv_answer **out, rv_error *err) RVI_MUST_CHECK;
/* The most tokens of the answer that the plan (NULL: nothing was taught) takes part in: a lesson is
 * spoken to its end where nobody gave a limit. */
int cli_generation_most(const cli_generation *g, const rv_model *m, const rv_learn_plan *plan);
double cli_rate(size_t n, double seconds); /* n per second; 0 if seconds is 0 */

#endif
