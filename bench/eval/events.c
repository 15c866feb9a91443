/* eval thumbs and eval garbage: what single events of feedback do.
 *
 * thumbs: each question's own greedy answer gets a thumb down; whether it comes again when the
 * question is asked many times more, and whether answers to other questions change. garbage:
 * answers of random tokens get the top score; how much the perplexity rises. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "eval/eval.h"

/* ---- thumbs ---- */

enum { ANSWER = 24, MAX_PROMPTS = 30, MAX_CANARIES = 20 };

typedef struct thumbs_eval {
    eval e;
    eval_file file;
    int tries;
    const char *prompts[MAX_PROMPTS], *canaries[MAX_CANARIES];
    size_t n_prompts, n_canaries;
    int again[MAX_PROMPTS];   /* how often what was turned down came again */
    int changed[MAX_PROMPTS]; /* canaries */
    double latency_us[MAX_PROMPTS];
} thumbs_eval;

static void choose_questions(thumbs_eval *v)
{
    const eval_texts *u = &v->file.unrelated;
    bool many = u->n >= 60; /* 0 to 19 and 50 to 59 are asked, 30 to 49 are the canaries */
    size_t half = u->n / 2;
    for (size_t i = 0; i < u->n; i++) {
        bool canary = many ? i >= 30 && i < 50 : i >= half,
             asked = many ? i < 20 || i >= 50 : !canary;
        if (canary && v->n_canaries < MAX_CANARIES) v->canaries[v->n_canaries++] = u->items[i];
        if (asked && v->n_prompts < MAX_PROMPTS) v->prompts[v->n_prompts++] = u->items[i];
    }
    if (v->e.o.limit) v->n_prompts = RVI_MIN(v->n_prompts, (size_t)v->e.o.limit);
}

static const eval_ask ask_canaries = {.max_tokens = 16, .what = "canaries"};

static rv_status count_changed(thumbs_eval *v, rv_answer *const *before, int *out, rv_error *err)
{
    rv_answer **after = NULL;
    rv_status st =
        eval_answers(&v->e, v->e.l, v->canaries, v->n_canaries, &ask_canaries, &after, err);
    *out = 0;
    for (size_t i = 0; !st && i < v->n_canaries; i++) *out += !eval_same_ids(before[i], after[i]);
    eval_free_answers(after, v->n_canaries);
    return st;
}

/* Asks greedily once more, then as often as said with the dice. */
static rv_status try_again(thumbs_eval *v, size_t i, const rv_answer *own, rv_error *err)
{
    const char **same = rvi_alloc_array((size_t)v->tries, sizeof *same);
    if (!same) return rvi_nomem(err, "questions");
    for (int k = 0; k < v->tries; k++) same[k] = v->prompts[i];
    rv_status st = RV_OK;
    for (int warm = 0; !st && warm < 2; warm++) {
        const eval_ask ask = {
            .max_tokens = ANSWER, .temperature = (float)warm, .seed = v->e.o.seed, .what = "tries"};
        size_t n = warm ? (size_t)v->tries : 1;
        rv_answer **got = NULL;
        st = eval_answers(&v->e, v->e.l, same, n, &ask, &got, err);
        for (size_t k = 0; !st && k < n; k++) v->again[i] += eval_same_ids(own, got[k]);
        eval_free_answers(got, n);
    }
    rvi_free(same);
    return st;
}

static rv_status turn_down(thumbs_eval *v, size_t i, rv_answer *const *canaries, rv_error *err)
{
    const eval_ask ask = {.max_tokens = ANSWER, .what = "thumbs"};
    eval *e = &v->e;
    const char *q = v->prompts[i];
    rv_session *s = NULL;
    rv_answer *own = NULL;
    rv_adaptation *a = NULL;
    rv_status st = eval_answers_on(e, e->l, &q, 1, &ask, &s, &own, err);
    if (!st) st = rv_learner_thumb(e->l, s, 0, &a, err);
    if (!st) v->latency_us[i] = a->latency_us;
    rv_free(a);
    rv_session_free(&s);
    if (!st) st = try_again(v, i, own, err);
    if (!st) st = count_changed(v, canaries, &v->changed[i], err);
    rv_free(own);
    return st;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double quantile(const double *sorted, size_t n, double q)
{
    return n ? sorted[RVI_MIN(n - 1, (size_t)(q * (double)n))] : (double)NAN;
}

static void write_thumbs(thumbs_eval *v, rvi_buf *out)
{
    int n_again = 0, n_came = 0, worst_changed = 0, n_changed = 0;
    size_t n = v->n_prompts;
    qsort(v->latency_us, n, sizeof *v->latency_us, by_value);
    for (size_t i = 0; i < n; i++) {
        worst_changed = RVI_MAX(worst_changed, v->changed[i]);
        n_changed += v->changed[i];
        n_again += v->again[i];
        n_came += v->again[i] > 0;
    }
    double p50 = quantile(v->latency_us, n, 0.5), p99 = quantile(v->latency_us, n, 0.99);
    if (!v->e.o.json) {
        rvi_buf_printf(out,
                       "%zu questions, a thumb down each, asked %d times more\n"
                       "the same answer       %d times, for %d questions\n"
                       "canaries changed      %d in all, %d at worst (of %zu)\n"
                       "one event             %.0f us in the middle, %.0f us for 99 of 100\n",
                       n, v->tries + 1, n_again, n_came, n_changed, worst_changed, v->n_canaries,
                       p50, p99);
        return;
    }
    eval_write_head(out, "thumbs", &v->e);
    rvi_buf_printf(out,
                   ",\"prompts\":%zu,\"tries\":%d,\"came_again\":%d,\"prompts_again\":%d,"
                   "\"canaries\":%zu,\"canaries_changed\":%d,\"canaries_changed_worst\":%d,"
                   "\"latency_us_p50\":%.6g,\"latency_us_p99\":%.6g,\"latency_us\":[",
                   n, v->tries + 1, n_again, n_came, v->n_canaries, n_changed, worst_changed, p50,
                   p99);
    for (size_t i = 0; i < n; i++) rvi_buf_printf(out, i ? ",%.4g" : "%.4g", v->latency_us[i]);
    rvi_buf_puts(out, "]}\n");
}

static rv_status load_thumbs(eval *e, rv_error *err)
{
    thumbs_eval *v = (thumbs_eval *)e;
    rv_status st = eval_load_facts(e, &v->file, err);
    if (!st && v->file.unrelated.n < 2)
        st = rvi_error(err, RV_E_CONFIG, "%s: there is no list \"unrelated\"", e->path);
    if (!st) choose_questions(v);
    return st;
}

static rv_status evaluate_thumbs(eval *e, rvi_buf *out, rv_error *err)
{
    thumbs_eval *v = (thumbs_eval *)e;
    const eval_settings settings = eval_learner_settings(e);
    rv_answer **canaries = NULL;
    rv_status st = eval_learner_new(e, &settings, err);
    if (!st) st = rv_learner_start(e->l, err); /* as in a chat: what can be done between calls is */
    if (!st) st = eval_answers(e, NULL, v->canaries, v->n_canaries, &ask_canaries, &canaries, err);
    for (size_t i = 0; !st && i < v->n_prompts; i++) {
        cli_progress_show(&e->bar, "thumbs", i, v->n_prompts, "");
        st = turn_down(v, i, canaries, err);
    }
    if (!st) write_thumbs(v, out);
    eval_free_answers(canaries, v->n_canaries);
    return st;
}

int eval_thumbs(cli *c, int argc, char **argv)
{
    thumbs_eval v = {.tries = 20};
    const cli_option own[] = {{"tries", 0, CLI_INT, &v.tries, NULL}};
    bool done;
    int code = eval_parse(&v.e, c, own, RVI_COUNT(own), argc, argv, true,
                          "a model and a file with unrelated questions are needed", &done);
    if (code || done) return code;
    if (v.tries < 1 || v.tries > 10000) return cli_usage(c, "--tries: between 1 and 10000");
    return eval_run(&v.e, load_thumbs, evaluate_thumbs);
}

/* ---- garbage ---- */

/* A mask that lets one random token through. */
static int allow_one(void *ctx, const int32_t *ids, size_t n_ids, float *logits, size_t n_vocab)
{
    size_t low = n_vocab / 500, high = n_vocab - n_vocab / 300; /* special tokens are at the ends */
    size_t id = low + (size_t)(rvi_rng_u64(ctx) % (uint64_t)(high - low));
    (void)ids;
    (void)n_ids;
    for (size_t i = 0; i < n_vocab; i++)
        if (i != id) logits[i] = -INFINITY;
    return 0;
}

enum { GARBAGE = 16, CHECKS = 4 };

static const char *const garbage_questions[] = {
    "How do I boil an egg?",
    "Why is the sky blue?",
    "What is a harbour?",
    "How do I fold a letter?",
    "What should I plant in March?",
    "Why do leaves fall?",
    "What does a baker do?",
    "How do I calm a dog?",
    "What is a good evening meal?",
    "How does a kite stay up?",
    "What is an island?",
    "Why do we yawn?",
    "How do I sharpen a pencil?",
    "What is a bridge made of?",
    "How do I pack a lunch?",
    "What is the use of a map?",
};

typedef struct garbage_eval {
    eval e;
    int events;
    bool rollback, contrast;
    double dppl[CHECKS];
} garbage_eval;

/* One answer, of random tokens or the model's own, and its score. */
static rv_status score_answer(eval *e, const char *q, rvi_rng *random, double score, rv_error *err)
{
    const eval_mask mask = {allow_one, random, true};
    const eval_ask ask = {.max_tokens = GARBAGE, .what = "garbage", .mask = random ? &mask : NULL};
    rv_session *s = NULL;
    rv_answer *out = NULL;
    rv_status st = eval_answers_on(e, e->l, &q, 1, &ask, &s, &out, err);
    if (!st) st = rv_learner_score(e->l, s, score, NULL, err);
    rv_free(out);
    rv_session_free(&s);
    return st;
}

static void write_garbage(const garbage_eval *v, rvi_buf *out)
{
    double most = v->dppl[0];
    for (int i = 1; i < CHECKS; i++) most = RVI_MAX(most, v->dppl[i]);
    if (v->e.o.json) {
        eval_write_head(out, "garbage", &v->e);
        rvi_buf_printf(out,
                       ",\"events\":%d,\"rollback\":%s,\"contrast\":%s,\"dppl\":%.6g,"
                       "\"dppl_most\":%.6g,\"checks\":[",
                       v->events, v->rollback ? "true" : "false", v->contrast ? "true" : "false",
                       v->dppl[CHECKS - 1], most);
        for (int i = 0; i < CHECKS; i++) rvi_buf_printf(out, i ? ",%.6g" : "%.6g", v->dppl[i]);
        rvi_buf_puts(out, "]}\n");
        return;
    }
    rvi_buf_printf(out,
                   "%d events, rollback %s\nperplexity, percent, after each quarter:", v->events,
                   v->rollback ? "on" : "off");
    for (int i = 0; i < CHECKS; i++) rvi_buf_printf(out, " %+.2f", v->dppl[i]);
    rvi_buf_putc(out, '\n');
}

static rv_status evaluate_garbage(eval *e, rvi_buf *out, rv_error *err)
{
    garbage_eval *v = (garbage_eval *)e;
    eval_settings settings = eval_learner_settings(e);
    rvi_rng random = {e->o.seed};
    settings.no_rollback = !v->rollback;
    rv_status st = eval_learner_new(e, &settings, err);
    for (int i = 0, check = 0; !st && i < v->events; i++) {
        const char *q = garbage_questions[(size_t)i % RVI_COUNT(garbage_questions)];
        cli_progress_show(&e->bar, "garbage", (uint64_t)i, (uint64_t)v->events, "");
        if (v->contrast) st = score_answer(e, q, NULL, 0, err);
        if (!st) st = score_answer(e, q, &random, 1, err);
        for (; !st && check < CHECKS && (i + 1) * CHECKS >= v->events * (check + 1); check++)
            st = eval_dppl(e, &v->dppl[check], err);
    }
    cli_progress_end(&e->bar);
    if (!st) write_garbage(v, out);
    return st;
}

int eval_garbage(cli *c, int argc, char **argv)
{
    garbage_eval v = {.events = 200, .rollback = true};
    const char *rollback = NULL, *contrast = NULL;
    const cli_option own[] = {{"events", 0, CLI_INT, &v.events, NULL},
                              {"rollback", 0, CLI_TEXT, &rollback, NULL},
                              {"contrast", 0, CLI_TEXT, &contrast, NULL}};
    bool done;
    int code =
        eval_parse(&v.e, c, own, RVI_COUNT(own), argc, argv, false, "a model is needed", &done);
    if (code || done || (code = eval_switch(c, "rollback", rollback, &v.rollback)) ||
        (code = eval_switch(c, "contrast", contrast, &v.contrast)))
        return code;
    if (!v.e.o.text) return cli_usage(c, "--text is needed: perplexity is what is measured");
    if (v.events < CHECKS || v.events > 100000)
        return cli_usage(c, "--events: between %d and 100000", CHECKS);
    return eval_run(&v.e, NULL, evaluate_garbage);
}
