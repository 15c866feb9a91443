/* eval pref: rules of style, judged by a program.
 *
 * From pairs: the model's own answer, and what a user who wants the style makes of it. From scores:
 * of four sampled answers to a question the best and the worst make a pair; with --loop instant,
 * every sampled answer is scored and changes the model at once.
 *
 *   obey     held-out answers that keep the rule, obey0 those of the model alone
 *   q        their mean quality, q0 of the model alone; gain: its rise in percent
 *   win      answers better than the model's own, equal ones counting half */
#include <string.h>

#include "base/error.h"
#include "base/os.h"
#include "eval/eval.h"

enum {
    ANSWER = 96,
    SHORT_ANSWER = 40,
    SAMPLES = 4,   /* that a pair is made of */
    GROUP = 4,     /* answers that are made before they are scored */
    MIN_PAIRS = 4, /* to learn anything from */
    ASKED = 8      /* times, where answers are sampled: with two, chance moves a gain by 5 points */
};

enum { OBEY0, OBEY, WIN, Q0, Q, GAIN, PAIRS, DPPL, SECONDS, N_FIGURES };
static const eval_row figure_rows[N_FIGURES] = {
    [OBEY0] = {"obey0", false}, [OBEY] = {"obey", false}, [WIN] = {"win", false},
    [Q0] = {"q0", false},       [Q] = {"q", false},       [GAIN] = {"gain", false},
    [PAIRS] = {"pairs", false}, [DPPL] = {"dppl", true},  [SECONDS] = {"seconds", true},
};

typedef struct pref_eval {
    eval e;
    eval_styles file;
    const char *style; /* NULL: all */
    bool kto, scores, instant, shuffled;
    int runs, events;
} pref_eval;

/* ---- asking ---- */

static size_t times_asked(const pref_eval *v)
{
    return v->instant ? ASKED : 1;
}

static double judge(const eval_style *s, const eval_request *r, const rv_answer *g)
{
    return style_judge(s->style, g->text, r->name, g->finish == RV_FINISH_EOS);
}

/* `each` answers to every request, those to one request side by side. */
static rv_status answer_requests(pref_eval *v, rv_learner *l, const eval_request *r, size_t n,
                                 size_t each, const eval_ask *ask, rv_answer ***out, rv_error *err)
{
    const char **q = rvi_zalloc_array(n * each, sizeof *q);
    rv_status st = q ? RV_OK : rvi_nomem(err, "questions");
    for (size_t i = 0; !st && i < n * each; i++) q[i] = r[i / each].prompt;
    if (!st) st = eval_answers(&v->e, l, q, n * each, ask, out, err);
    rvi_free(q);
    return st;
}

/* ---- pairs ---- */

typedef struct coin {
    rvi_rng rng;
    size_t n;
    bool up;
} coin;

/* The control turns one of every two pairs round, by chance the first or the second: no more of
 * them speak for the rule than against it. */
static rv_status prefer(pref_eval *v, const char *question, const char *chosen,
                        const char *rejected, coin *c, rv_error *err)
{
    if (c->n++ % 2 == 0) c->up = rvi_rng_u64(&c->rng) >> 63;
    bool swap = v->shuffled && c->up;
    c->up = !c->up;
    return rv_learner_prefer(v->e.l, question, swap ? rejected : chosen, swap ? chosen : rejected,
                             NULL, err);
}

static rv_status pairs_of_corrections(pref_eval *v, const eval_style *s, size_t *n_pairs,
                                      rv_error *err)
{
    const eval_ask ask = {.max_tokens = ANSWER, .what = "answers"};
    coin c = {.rng = {v->e.o.seed + 9}};
    rv_answer **own = NULL;
    rv_status st = answer_requests(v, NULL, s->teach, s->n_teach, 1, &ask, &own, err);
    for (size_t i = 0; !st && i < s->n_teach; i++) {
        rvi_buf better = {0};
        style_correct(s->style, own[i]->text, s->teach[i].name, &better);
        /* none where it cannot be corrected or follows the rule as it is */
        bool pair = better.data && strcmp(better.data, own[i]->text) != 0;
        if (better.failed)
            st = rvi_nomem(err, "correction");
        else if (pair)
            st = prefer(v, s->teach[i].prompt, better.data, own[i]->text, &c, err);
        *n_pairs += pair;
        rvi_buf_deinit(&better);
    }
    eval_free_answers(own, s->n_teach);
    return st;
}

static rv_status pairs_of_scores(pref_eval *v, const eval_style *s, size_t *n_pairs, rv_error *err)
{
    const eval_ask ask = {ANSWER, 0.8f, v->e.o.seed * 1000 + 4, "samples", NULL, NULL};
    coin c = {.rng = {v->e.o.seed + 9}};
    rv_answer **out = NULL;
    rv_status st = answer_requests(v, NULL, s->teach, s->n_teach, SAMPLES, &ask, &out, err);
    for (size_t i = 0; !st && i < s->n_teach; i++) {
        rv_answer *const *of = out + i * SAMPLES;
        double quality[SAMPLES];
        size_t best = 0, worst = 0;
        for (size_t k = 0; k < SAMPLES; k++) {
            quality[k] = judge(s, &s->teach[i], of[k]);
            if (quality[k] >= quality[best]) best = k;
            if (quality[k] < quality[worst]) worst = k;
        }
        if (quality[best] <= quality[worst]) continue; /* nothing to tell them apart by */
        st = prefer(v, s->teach[i].prompt, of[best]->text, of[worst]->text, &c, err);
        ++*n_pairs;
    }
    eval_free_answers(out, s->n_teach * SAMPLES);
    return st;
}

/* ---- scores, at once ---- */

/* GROUP answers are made, then each is scored. */
static rv_status score_group(pref_eval *v, const eval_style *s, rvi_rng *rng, size_t n,
                             rv_error *err)
{
    const eval_ask ask = {SHORT_ANSWER, 0.8f, rvi_rng_u64(rng), "scores", NULL, NULL};
    rv_session *sessions[GROUP] = {NULL};
    rv_answer *out[GROUP] = {NULL};
    const eval_request *r[GROUP];
    const char *q[GROUP];
    for (size_t i = 0; i < n; i++) {
        r[i] = &s->teach[rvi_rng_u64(rng) % s->n_teach];
        q[i] = r[i]->prompt;
    }
    rv_status st = eval_answers_on(&v->e, v->e.l, q, n, &ask, sessions, out, err);
    for (size_t i = 0; !st && i < n; i++) {
        double quality = judge(s, r[i], out[i]);
        if (v->shuffled) quality = rvi_rng_double(rng);
        st = rv_learner_score(v->e.l, sessions[i], quality, NULL, err);
    }
    for (size_t i = 0; i < n; i++) {
        rv_free(out[i]);
        rv_session_free(&sessions[i]);
    }
    return st;
}

static rv_status learn_at_once(pref_eval *v, const eval_style *s, int run, rv_error *err)
{
    rvi_rng rng = {v->e.o.seed * 1000 + (uint64_t)run};
    rv_status st = RV_OK;
    for (int i = 0; !st && i < v->events; i += GROUP) {
        cli_progress_show(&v->e.bar, "scores", (uint64_t)i, (uint64_t)v->events, "");
        st = score_group(v, s, &rng, (size_t)RVI_MIN(GROUP, v->events - i), err);
    }
    cli_progress_end(&v->e.bar);
    return st;
}

/* ---- measuring ---- */

/* How good each answer to the held-out requests is, greedy or sampled: by the model alone (l is
 * NULL) or with what was learned. */
static rv_status judge_answers(pref_eval *v, rv_learner *l, const eval_style *s, double *quality,
                               rv_error *err)
{
    const eval_ask greedy = {ANSWER, 0, 0, "asking", NULL, NULL},
                   sampled = {SHORT_ANSWER, 0.8f, 77, "asking", NULL, NULL};
    size_t each = times_asked(v), n = s->n_heldout * each;
    rv_answer **out = NULL;
    rv_status st = answer_requests(v, l, s->heldout, s->n_heldout, each,
                                   v->instant ? &sampled : &greedy, &out, err);
    for (size_t i = 0; !st && i < n; i++) quality[i] = judge(s, &s->heldout[i / each], out[i]);
    eval_free_answers(out, n);
    return st;
}

static void compare(const double *base, const double *now, size_t n, eval_figure *f)
{
    double obey0 = 0, obey = 0, q0 = 0, q = 0, win = 0;
    for (size_t i = 0; i < n; i++) {
        obey0 += base[i] >= 1;
        obey += now[i] >= 1;
        q0 += base[i];
        q += now[i];
        win += now[i] > base[i] ? 1 : now[i] < base[i] ? 0 : 0.5;
    }
    f[OBEY0].value = 100 * obey0 / (double)n;
    f[OBEY].value = 100 * obey / (double)n;
    f[WIN].value = 100 * win / (double)n;
    f[OBEY0].n = f[OBEY].n = f[WIN].n = (double)n;
    f[Q0].value = q0 / (double)n;
    f[Q].value = q / (double)n;
    if (q0 > 0) f[GAIN].value = 100 * (q / q0 - 1);
}

/* base: of the model alone */
static rv_status measure(pref_eval *v, const eval_style *s, const double *base, eval_figure *f,
                         rv_error *err)
{
    size_t n = s->n_heldout * times_asked(v);
    double *now = rvi_alloc_array(n, sizeof *now);
    rv_status st = now ? judge_answers(v, v->e.l, s, now, err) : rvi_nomem(err, "answers");
    if (!st) compare(base, now, n, f);
    if (!st) st = eval_dppl(&v->e, &f[DPPL].value, err);
    rvi_free(now);
    return st;
}

static rv_status evaluate_run(pref_eval *v, const eval_style *s, const double *base, int run,
                              eval_figure *f, rv_error *err)
{
    size_t n_pairs = 0;
    double begun = rvi_os_seconds(), took = 0;
    rv_status st = rv_learner_reset(v->e.l, err);
    if (!st && v->instant) {
        st = learn_at_once(v, s, run, err);
        took = rvi_os_seconds() - begun;
    } else if (!st) {
        st = (v->scores ? pairs_of_scores : pairs_of_corrections)(v, s, &n_pairs, err);
        f[PAIRS].value = (double)n_pairs;
        if (!st && n_pairs >= (v->scores ? MIN_PAIRS : 1)) /* few scores differ: they say nothing */
            st = eval_train(&v->e, RV_LOOP_DEEP, v->kto ? RV_LOSS_KTO : RV_LOSS_DPO, NULL, &took,
                            err);
    }
    f[SECONDS].value = took;
    if (!st) st = measure(v, s, base, f, err);
    return st;
}

/* All runs of a style, into results from `first` on */
static rv_status evaluate_style(pref_eval *v, const eval_style *s, eval_results *r, size_t first,
                                rv_error *err)
{
    double *base = rvi_alloc_array(s->n_heldout * times_asked(v), sizeof *base);
    rv_status st = base ? judge_answers(v, NULL, s, base, err) : rvi_nomem(err, "answers");
    for (int run = 0; !st && run < v->runs; run++)
        st = evaluate_run(v, s, base, run, eval_results_of(r, first + (size_t)run), err);
    rvi_free(base);
    return st;
}

/* ---- the command ---- */

static const char *loss_name(const pref_eval *v)
{
    return v->instant ? "instant" : v->kto ? "kto" : "dpo";
}

static void write_result(const pref_eval *v, const eval_results *r, rvi_buf *out)
{
    eval_write_head(out, "pref", &v->e);
    rvi_buf_printf(out, ",\"from\":\"%s\",\"loss\":\"%s\",\"loop\":\"%s\",\"runs\":%d,\"styles\":[",
                   v->scores ? "scores" : "pairs", loss_name(v),
                   v->instant ? "instant" : "background", v->runs);
    for (size_t i = 0; i < r->n_sets; i++)
        rvi_buf_printf(out, "%s\"%s\"", i ? "," : "",
                       style_names[v->file.items[i / (size_t)v->runs].style]);
    rvi_buf_puts(out, "],");
    eval_write_sets(out, r);
    rvi_buf_puts(out, "}\n");
}

static void print_result(const pref_eval *v, const eval_results *r, rvi_buf *out)
{
    size_t runs = (size_t)v->runs;
    rvi_buf_printf(out, "from %s, %s%s\n", v->scores ? "scores" : "pairs", loss_name(v),
                   v->e.o.control ? ", control" : "");
    for (size_t i = 0; i < v->file.n; i++) {
        rvi_buf_printf(out, "\n%s\n", style_names[v->file.items[i].style]);
        eval_print_sets(out, r, i * runs, runs);
    }
}

static rv_status load(eval *e, rv_error *err)
{
    pref_eval *v = (pref_eval *)e;
    return eval_load_styles(e, v->style, &v->file, err);
}

static rv_status evaluate(eval *e, rvi_buf *out, rv_error *err)
{
    pref_eval *v = (pref_eval *)e;
    size_t runs = (size_t)v->runs, n = v->file.n * runs;
    const eval_settings settings = eval_learner_settings(e);
    eval_results r;
    rv_status st = eval_results_init(&r, figure_rows, N_FIGURES, n, err);
    if (!st) st = eval_learner_new(e, &settings, err);
    for (size_t i = 0; !st && i < v->file.n; i++)
        st = evaluate_style(v, &v->file.items[i], &r, i * runs, err);
    if (!st) (e->o.json ? write_result : print_result)(v, &r, out);
    eval_results_deinit(&r);
    return st;
}

static int settle_options(cli *c, pref_eval *v, const char *loss, const char *from,
                          const char *loop)
{
    bool dpo = true, pairs = true, background = true;
    int code = eval_choice(c, "loss", loss, "dpo", "kto", &dpo);
    if (!code) code = eval_choice(c, "from", from, "pairs", "scores", &pairs);
    if (!code) code = eval_choice(c, "loop", loop, "background", "instant", &background);
    if (code) return code;
    v->kto = !dpo;
    v->scores = !pairs;
    v->instant = !background;
    v->shuffled = v->e.o.control && !strcmp(v->e.o.control, "shuffled");
    if (v->instant && !v->scores) return cli_usage(c, "--loop instant goes with --from scores");
    if (!v->runs) v->runs = v->instant ? 4 : 1;
    if (v->runs < 1 || v->runs > 100) return cli_usage(c, "--runs: between 1 and 100");
    if (v->events < 1 || v->events > 100000) return cli_usage(c, "--events: between 1 and 100000");
    return CLI_OK;
}

int eval_pref(cli *c, int argc, char **argv)
{
    pref_eval v = {.events = 200};
    const char *loss = NULL, *from = NULL, *loop = NULL;
    const cli_option own[] = {
        {"loss", 0, CLI_TEXT, &loss, NULL},  {"from", 0, CLI_TEXT, &from, NULL},
        {"loop", 0, CLI_TEXT, &loop, NULL},  {"style", 0, CLI_TEXT, &v.style, NULL},
        {"runs", 0, CLI_INT, &v.runs, NULL}, {"events", 0, CLI_INT, &v.events, NULL},
    };
    bool done;
    int code = eval_parse(&v.e, c, own, RVI_COUNT(own), argc, argv, true,
                          "a model and a file of styles are needed", &done);
    if (!code && !done) code = settle_options(c, &v, loss, from, loop);
    if (v.style && !strcmp(v.style, "all")) v.style = NULL;
    return code || done ? code : eval_run(&v.e, load, evaluate);
}
