/* eval.h - what the evaluations of learning share: sets of facts, many answers at once, perplexity,
 * and the figures they are reported as.
 *
 * An evaluation teaches a learner that keeps nothing on the disk, and asks the model with and
 * without it. All rates are percent; a figure that was not measured is NaN and becomes null in
 * JSON. */
#ifndef RVI_EVAL_EVAL_H
#define RVI_EVAL_EVAL_H

#include "base/json.h"
#include "base/rng.h"
#include "cli/cli.h"
#include "eval/style.h"
#include "ruvllm_experimental.h"

enum { EVAL_PARALLEL = 32, EVAL_WINDOW = 512, EVAL_STAGES = 8 };

/* What learning is doing, as it reports it, and how long that took. */
typedef struct eval_stage {
    char name[32];
    double seconds;
} eval_stage;

/* The options that every evaluation knows. */
typedef struct eval_options {
    bool json;
    int set; /* 0: all of the file */
    int windows, limit, steps, rank;
    int sources; /* of texts to train on; 0: all */
    uint64_t seed;
    float rate;
    const char *text, *control, *dump;
    const char *embedder; /* a folder; NULL: all-MiniLM-L6-v2 of the cache, if it is there */
    bool no_embedder;
    const char *work; /* where what is made once for a model is kept; NULL: nowhere */
} eval_options;

/* The first member of every evaluation's own state. */
typedef struct eval {
    cli *c;
    eval_options o;
    const char *model_name, *path; /* path: of the questions; NULL: they are its own */
    rvi_buf text;                  /* that file, */
    rvi_arena arena;               /* and what was read of it */
    cli_model model;
    rv_model *embedder; /* of the learner; NULL: none */
    rv_engine *engine;
    int room;  /* tokens of one of the engine's sessions */
    int spare; /* of them, for what the learner puts before a question */
    rv_learner *l;
    bool uncalibrated;              /* the learner is asked before it has looked at the model */
    double train_cpu_s;             /* CPU time of all training so far, of all threads */
    double calibrate_s;             /* seconds */
    eval_stage stages[EVAL_STAGES]; /* of calibrating and training so far, in order */
    int n_stages;
    double stage_begun;
    cli_progress bar;
    /* the text of the perplexity: n_windows of EVAL_WINDOW tokens; none without a text */
    int32_t *windows;
    int n_windows;
    double base_nll;
    rv_store store; /* of the learner; zeroed: in memory */
    rvi_buf work;   /* the folder of this evaluation alone */
    FILE *dump;     /* every question and answer as a line of JSON, or NULL */
} eval;

/* ---- the command line ---- */

enum { EVAL_MAX_OWN = 8 };
/* The common options and n_own more; the arguments are a model and, where with_file is set, a file.
 * needed: said where they are missing. As cli_parse. */
int eval_parse(eval *e, cli *c, const cli_option *own, size_t n_own, int argc, char **argv,
               bool with_file, const char *needed, bool *done);
/* Is it the first of the two? NULL leaves *out as it is. CLI_USAGE after saying that it is
 * neither. */
int eval_choice(const cli *c, const char *name, const char *text, const char *first,
                const char *second, bool *out);
int eval_switch(const cli *c, const char *name, const char *text, bool *out); /* on or off */

/* ---- running ---- */

/* Loads what is asked (load NULL: nothing), opens the model and measures its perplexity where there
 * is a text; then `work` writes the result, which is printed. Frees all that is in *e. Returns the
 * exit status. */
int eval_run(eval *e, rv_status (*load)(eval *e, rv_error *err),
             rv_status (*work)(eval *e, rvi_buf *out, rv_error *err));

/* Every setting of rv_learner_options.experiments. */
typedef struct eval_settings {
#define X(name, type, value, meaning) type name;
    RV_LEARNER_EXPERIMENTS(X)
#undef X
} eval_settings;

enum { EVAL_RECIPE_GATED, EVAL_RECIPE_FENCED };                    /* of eval_settings.recipe */
enum { EVAL_GATE_ON = 1, EVAL_GATE_OFF = 2 };                      /* of eval_settings.gate */
enum { EVAL_READING_MEASURED, EVAL_READING_ON, EVAL_READING_OFF }; /* .reading */

/* The defaults, and what the command line says. */
eval_settings eval_learner_settings(const eval *e);
/* The learner, calibrated unless e says otherwise. */
rv_status eval_learner_new(eval *e, const eval_settings *settings, rv_error *err) RVI_MUST_CHECK;
/* The learner's store, where --work is given. */
rv_status eval_store_open(eval *e, rv_error *err) RVI_MUST_CHECK;
void eval_store_shut(eval *e);
/* Consolidates, and says how long that took. *out: rv_free; out may be NULL. */
rv_status eval_train(eval *e, rv_learn_loop loop, rv_preference_loss loss, rv_adaptation **out,
                     double *seconds, rv_error *err) RVI_MUST_CHECK;

/* `,"stages":{"wordings":...,...}`: seconds of each. */
void eval_write_stages(rvi_buf *out, const eval *e);

/* ---- asking ---- */

/* Forces answers: forbid is the mask of rv_generate_options. Their probabilities are measured. */
typedef struct eval_mask {
    int (*forbid)(void *ctx, const int32_t *ids, size_t n_ids, float *logits, size_t n_vocab);
    void *ctx;
    bool ignore_eos;
} eval_mask;

typedef struct eval_ask {
    int max_tokens;
    float temperature;     /* 0: greedy */
    uint64_t seed;         /* question i is drawn with seed + i */
    const char *what;      /* beside the progress bar; NULL: the caller has one of its own */
    const eval_mask *mask; /* NULL: free answers */
    /* a question and its answer that stand before each question; NULL, NULL: nothing does there */
    const char *const (*before)[2]; /* NULL: before none */
} eval_ask;

/* Answers n questions, each in a session of its own, EVAL_PARALLEL at a time. l NULL: the model
 * alone. *out: n of them, for eval_free_answers, also after a failure. */
rv_status eval_answers(eval *e, rv_learner *l, const char *const *questions, size_t n,
                       const eval_ask *ask, rv_answer ***out, rv_error *err) RVI_MUST_CHECK;
void eval_free_answers(rv_answer **answers, size_t n); /* and the list; accepts NULL */

/* The same for at most EVAL_PARALLEL questions whose sessions stay for feedback: sessions and out
 * are n NULL pointers, the caller's to free also after a failure. */
rv_status eval_answers_on(eval *e, rv_learner *l, const char *const *questions, size_t n,
                          const eval_ask *ask, rv_session **sessions, rv_answer **out,
                          rv_error *err) RVI_MUST_CHECK;
bool eval_same_ids(const rv_answer *a, const rv_answer *b);

/* ---- drift ---- */

/* How much the learner's adapters, active for every token, raise the perplexity; NaN without a
 * text. */
rv_status eval_dppl(eval *e, double *percent, rv_error *err) RVI_MUST_CHECK;

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
} eval_file;

/* The sets that the options choose, at most `limit` facts each, with the answers to teach. Lives as
 * long as e. */
rv_status eval_load_facts(eval *e, eval_file *f, rv_error *err) RVI_MUST_CHECK;

/* Teaches the answers of n facts. *slowest (may be NULL): seconds of the slowest, forward
 * included. */
rv_status eval_teach(eval *e, const eval_fact *facts, size_t n, double *slowest,
                     rv_error *err) RVI_MUST_CHECK;

/* ---- styles ---- */

typedef struct eval_request {
    const char *prompt, *name; /* name: of who asks */
} eval_request;

typedef struct eval_style {
    style_rule style;
    eval_request *teach, *heldout;
    size_t n_teach, n_heldout;
} eval_style;

typedef struct eval_styles {
    eval_style *items;
    size_t n;
} eval_styles;

/* [{"style", "teach": [{"prompt", "name"}, ...], "heldout": [...]}, ...]; name NULL: all of them.
 * Lives as long as e. */
rv_status eval_load_styles(eval *e, const char *name, eval_styles *f, rv_error *err) RVI_MUST_CHECK;

/* ---- figures ---- */

/* The answer stands in the text as whole words, letters and digits alone looked at. */
bool eval_hit(const char *text, const char *answer);
/* One of these stands in the text, in upper or lower case, sign by sign. */
bool eval_contains_any(const char *text, const eval_texts *any);
bool eval_same_words(const char *a, const char *b, size_t n_words); /* n_words 0: all of them */

/* A row of a result: a figure's name, and which way is worse. */
typedef struct eval_row {
    const char *name;
    bool low_is_good;
} eval_row;

typedef struct eval_figure {
    double value, n; /* n: of the questions behind a rate, 0 for other figures */
} eval_figure;

/* The figures of every set, one set after the other. */
typedef struct eval_results {
    const eval_row *rows;
    size_t n_rows;
    eval_figure *figures; /* n_sets x n_rows; value NaN until it is measured */
    int *numbers;         /* of the sets; counted from 1 until others are given */
    size_t n_sets;
} eval_results;

/* eval_results_deinit in any case. */
rv_status eval_results_init(eval_results *r, const eval_row *rows, size_t n_rows, size_t n_sets,
                            rv_error *err) RVI_MUST_CHECK;
void eval_results_deinit(eval_results *r);
eval_figure *eval_results_of(const eval_results *r, size_t set);

/* `"rel":...,...,"worst":{...},"sets":[...]`: means, worst sets, and every set by its number. */
void eval_write_sets(rvi_buf *out, const eval_results *r);
/* A table of n_sets sets: a row a figure, the mean, its interval, the worst set, every set. */
void eval_print_sets(rvi_buf *out, const eval_results *r, size_t first, size_t n_sets);
/* `{"eval":...,"model":...,"file":...,"seed":...` */
void eval_write_head(rvi_buf *out, const char *kind, const eval *e);

int eval_facts(cli *c, int argc, char **argv);
int eval_seq(cli *c, int argc, char **argv);
int eval_pref(cli *c, int argc, char **argv);
int eval_thumbs(cli *c, int argc, char **argv);
int eval_garbage(cli *c, int argc, char **argv);
int eval_natural(cli *c, int argc, char **argv);

#endif
