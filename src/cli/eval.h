/* eval.h - what the evaluations of learning share: sets of facts, many answers at once, perplexity,
 * and the figures they are reported as.
 *
 * An evaluation teaches a learner that keeps nothing on the disk, and asks the model with and without
 * it. All rates are percent; a figure that was not measured is NaN and becomes null in JSON. */
#ifndef RVI_CLI_EVAL_H
#define RVI_CLI_EVAL_H

#include "base/json.h"
#include "base/rng.h"
#include "cli/cli.h"
#include "cli/style.h"

enum { EVAL_PARALLEL = 32, EVAL_WINDOW = 512 };

/* The options that every evaluation knows. */
typedef struct eval_options {
    bool json;
    int set; /* 0: all of the file */
    int windows, limit, steps, rank;
    uint64_t seed;
    float rate;
    const char *text, *control, *dump;
    const char *work; /* where what is made once for a model is kept; NULL: nowhere */
} eval_options;

enum { EVAL_OPTIONS = 12 };

typedef struct eval {
    cli *c;
    const char *model_name;
    cli_model model;
    rv_model_info info;
    rv_engine *engine;
    int room; /* tokens of one of the engine's sessions */
    cli_progress bar;
    /* the text of the perplexity: n_windows of EVAL_WINDOW tokens; none without a text */
    int32_t *windows;
    int n_windows;
    double base_nll;
    FILE *dump; /* every question and answer as a line of JSON, or NULL */
} eval;

void eval_options_init(eval_options *o);
/* Writes the rows of the options table, EVAL_OPTIONS of them. */
void eval_option_rows(eval_options *o, cli_option *rows);
/* CLI_OK, or CLI_USAGE after saying what is wrong. */
int eval_options_check(const cli *c, const eval_options *o);
/* "on" or "off"; NULL leaves *out as it is. */
int eval_switch(const cli *c, const char *name, const char *text, bool *out);

/* Opens the model, and measures its perplexity where there is a text. eval_close in any case. */
rv_status eval_open(eval *e, cli *c, const char *model, const eval_options *o,
                    rv_error *err) RVI_MUST_CHECK;
void eval_close(eval *e);
/* Options of a learner as an evaluation sets them. */
void eval_learner_options(const eval_options *o, rv_learner_options *out);

/* ---- asking ---- */

typedef struct eval_ask {
    int max_tokens;
    float temperature; /* 0: greedy */
    uint64_t seed;     /* question i is drawn with seed + i */
    const char *what;  /* beside the progress bar */
} eval_ask;

/* {"messages":[{"role":"user","content":...}],"add_generation_prompt":true} */
void eval_conversation(const char *question, rvi_buf *out);
/* The ids of that conversation; rv_free */
rv_status eval_prompt(const eval *e, const char *question, int32_t **ids, size_t *n,
                      rv_error *err) RVI_MUST_CHECK;
/* Answers n questions, each in a session of its own, EVAL_PARALLEL at a time. l NULL: the model
 * alone. out: n zeroed ones, freed by eval_free_answers also after a failure. */
rv_status eval_answers(eval *e, rv_learner *l, const char *const *questions, size_t n,
                       const eval_ask *ask, rv_generated *out, rv_error *err) RVI_MUST_CHECK;
void eval_free_answers(rv_generated *answers, size_t n); /* and the list; accepts NULL */

/* Tokens of the longest of these questions and an answer behind it. */
rv_status eval_room(const eval *e, const char *const *questions, size_t n, int max_tokens, int *out,
                    rv_error *err) RVI_MUST_CHECK;

/* Sessions that stay for feedback: at most EVAL_PARALLEL of them, for prompts and answers of `room`
 * tokens. mask: as in rv_generate_options, may be NULL. */
rv_status eval_sessions_new(eval *e, int room, rv_session **sessions, size_t n,
                            rv_error *err) RVI_MUST_CHECK;
typedef struct eval_mask {
    int (*forbid)(void *ctx, const int32_t *ids, size_t n_ids, float *logits, size_t n_vocab);
    void *ctx;
} eval_mask;
rv_status eval_answers_on(eval *e, rv_learner *l, rv_session **sessions,
                          const char *const *questions, size_t n, const eval_ask *ask,
                          const eval_mask *mask, rv_generated *out, rv_error *err) RVI_MUST_CHECK;

/* ---- perplexity ---- */

/* The mean negative log probability of every stride-th window. */
rv_status eval_nll(eval *e, const rv_adapter_set *adapters, int stride, double *out,
                   rv_error *err) RVI_MUST_CHECK;
/* How much the learner's adapters, active for every token, raise the perplexity; NaN without a text. */
rv_status eval_dppl(eval *e, rv_learner *l, double *percent, rv_error *err) RVI_MUST_CHECK;

/* Progress of training: a bar with the loss. */
int eval_progress(void *ctx, const char *stage, int done, int total, double loss);

/* ---- facts ---- */

typedef struct eval_texts {
    const char **items;
    size_t n;
} eval_texts;

typedef struct eval_fact {
    const char *subject, *relation, *answer, *prompt, *reverse; /* reverse NULL: none */
    const char *taught;                                         /* the answer, or of a control */
    eval_texts heldout, neighbours, same;
} eval_fact;

typedef struct eval_set {
    eval_fact *facts;
    size_t n;
    int number, seed; /* counted from 1; as the file has it */
} eval_set;

typedef struct eval_file {
    eval_set *sets;
    size_t n_sets;
    eval_texts unrelated;
    rvi_arena arena;
    rvi_buf text;
} eval_file;

/* The sets that the options choose, at most `limit` facts each, with the answers to teach.
 * eval_file_deinit in any case. */
rv_status eval_file_load(eval_file *f, const char *path, const eval_options *o,
                         rv_error *err) RVI_MUST_CHECK;
void eval_file_deinit(eval_file *f);
/* A string of an object's member; NULL: missing or no string. */
const char *eval_member(const rvi_json *object, const char *key);

/* Teaches the answers of n facts. *slowest (may be NULL): seconds of the slowest, forward included. */
rv_status eval_teach(rv_learner *l, const eval_fact *facts, size_t n, double *slowest,
                     rv_error *err) RVI_MUST_CHECK;

/* ---- styles ---- */

typedef struct eval_request {
    const char *prompt, *name; /* name: of who asks */
} eval_request;

typedef struct eval_style {
    cli_style style;
    eval_request *teach, *heldout;
    size_t n_teach, n_heldout;
} eval_style;

typedef struct eval_styles {
    eval_style *items;
    size_t n;
    rvi_arena arena;
    rvi_buf text;
} eval_styles;

/* [{"style", "teach": [{"prompt", "name"}, ...], "heldout": [...]}, ...]; name NULL: all of them.
 * eval_styles_deinit in any case. */
rv_status eval_styles_load(eval_styles *f, const char *path, const char *name,
                           const eval_options *o, rv_error *err) RVI_MUST_CHECK;
void eval_styles_deinit(eval_styles *f);

/* ---- figures ---- */

/* The answer stands in the text as whole words, letters and digits alone looked at. */
bool eval_hit(const char *text, const char *answer);
bool eval_same_words(const char *a, const char *b, size_t n_words); /* n_words 0: all of them */

/* The interval of a rate k of n at 95 %, percent (Wilson). */
void eval_wilson(double k, double n, double *low, double *high);

/* One figure of a result: name, value of each set, and which way is worse. */
typedef struct eval_figure {
    const char *name;
    bool low_is_good;
    double value, n; /* n: of the questions behind a rate, 0 for other figures */
} eval_figure;

/* The mean of figure i over the sets' results, and the worst one; NaN where none was measured. */
void eval_summary(const eval_figure *figures, size_t n_figures, size_t n_sets, size_t i,
                  double *mean, double *worst);
void eval_write_figures(rvi_buf *out, const eval_figure *figures, size_t n); /* "name":value,... */
/* `"rel":...,...,"worst":{...},"sets":[...]`: means, worst sets, and every set by its number. */
void eval_write_sets(rvi_buf *out, const eval_figure *figures, size_t n_figures, const int *numbers,
                     size_t n_sets);
/* A table: a row a figure, the mean, its interval, the worst set, every set. */
void eval_print_sets(rvi_buf *out, const eval_figure *figures, size_t n_figures, size_t n_sets);
/* `"model":...,"file":...,"seed":...` */
void eval_write_head(rvi_buf *out, const char *kind, const eval *e, const char *path,
                     const eval_options *o);

int eval_facts(cli *c, int argc, char **argv);
int eval_seq(cli *c, int argc, char **argv);
int eval_pref(cli *c, int argc, char **argv);
int eval_thumbs(cli *c, int argc, char **argv);
int eval_garbage(cli *c, int argc, char **argv);

#endif
