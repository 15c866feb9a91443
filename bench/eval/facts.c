/* eval facts: teaches corrections, then asks for them in other words, and for what must not have
 * changed.
 *
 *   rel      the taught question gets the taught answer          gen      other wordings of it do
 *   nbr      the answer appears for other subjects               nbr_any  any answer of the
 *            relation does
 *   same     an answer of the subject appears where another relation of it is asked
 *   rev      the reversed question finds the subject
 *   loc      unrelated answers have the same words as before, loc6 the same first six,
 *   loc_identical  the same token ids
 *   dppl     rise of the perplexity with every adapter active for every token
 * nbr, nbr_any and same are counted against the model alone. */
#include <string.h>

#include "base/error.h"
#include "eval/eval.h"

typedef enum mode { INSTANT, BACKGROUND, DEEP, PRODUCT } mode;
static const char *const mode_names[] = {"instant", "background", "deep", "product"};

typedef struct facts_eval {
    eval e;
    eval_file file;
    mode mode;
    bool fenced, gate, slots, same_fence, asks;
    int group, one_by_one;
} facts_eval;

static const eval_ask ask = {.max_tokens = 16, .what = "asking"};

/* ---- questions ---- */

/* Each fact's prompt, held-out wordings, neighbours, same-subject and reversed questions, one fact
 * after the other; then the unrelated ones. */
typedef struct questions {
    const char **items;
    size_t n;
} questions;

static size_t count_of(const eval_fact *f)
{
    return 1 + f->heldout.n + f->neighbours.n + f->same.n + (f->reverse != NULL);
}

static void add(questions *q, const eval_texts *t)
{
    for (size_t i = 0; i < t->n; i++) q->items[q->n++] = t->items[i];
}

static rv_status collect(const eval_fact *facts, size_t n, const eval_texts *unrelated,
                         questions *out, rv_error *err)
{
    size_t all = unrelated->n;
    for (size_t i = 0; i < n; i++) all += count_of(&facts[i]);
    *out = (questions){rvi_zalloc_array(all, sizeof *out->items), 0};
    if (!out->items) return rvi_nomem(err, "questions");
    for (size_t i = 0; i < n; i++) {
        out->items[out->n++] = facts[i].prompt;
        add(out, &facts[i].heldout);
        add(out, &facts[i].neighbours);
        add(out, &facts[i].same);
        if (facts[i].reverse) out->items[out->n++] = facts[i].reverse;
    }
    add(out, unrelated);
    return RV_OK;
}

/* ---- figures ---- */

enum {
    REL,
    GEN,
    NBR,
    NBR_ANY,
    SAME,
    REV,
    LOC,
    LOC6,
    LOC_IDENTICAL,
    NBR_IDENTICAL,
    SAME_5,
    GEN_5,
    DPPL,
    SECONDS,
    CALIBRATE,
    SLOWEST,
    N_FIGURES
};

static const eval_row figure_rows[N_FIGURES] = {
    [REL] = {"rel", false},
    [GEN] = {"gen", false},
    [NBR] = {"nbr", true},
    [NBR_ANY] = {"nbr_any", true},
    [SAME] = {"same", true},
    [REV] = {"rev", false},
    [LOC] = {"loc", false},
    [LOC6] = {"loc6", false},
    [LOC_IDENTICAL] = {"loc_identical", false},
    [NBR_IDENTICAL] = {"nbr_identical", false},
    [SAME_5] = {"same_5", true},
    [GEN_5] = {"gen_5", false},
    [DPPL] = {"dppl", true},
    [SECONDS] = {"seconds", true},
    [CALIBRATE] = {"calibrate_s", true},
    [SLOWEST] = {"teach_max_s", true},
};

/* Sums of a rate: each fact's share counts alike, as long as the fact has such questions. */
typedef struct tally {
    double sum, n_facts, n;
} tally;

static void count(tally *t, double hits, size_t n)
{
    if (!n) return;
    t->sum += hits / (double)n;
    t->n_facts++;
    t->n += (double)n;
}

static void settle(eval_figure *f, const tally *t)
{
    if (t->n_facts > 0) f->value = 100 * t->sum / t->n_facts;
    f->n = t->n;
}

/* An answer of a fact with this relation or (by_subject) this subject stands in the text. */
static bool any_hit(const char *text, const eval_fact *facts, size_t n, const eval_fact *of,
                    bool by_subject)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(by_subject ? facts[i].subject : facts[i].relation,
                    by_subject ? of->subject : of->relation) &&
            eval_hit(text, facts[i].answer))
            return true;
    return false;
}

/* What one fact's answers add; out and base stand at its first question. facts: all that are
 * stored. */
static void score_fact(const eval_fact *f, const eval_fact *facts, size_t n, rv_answer *const *out,
                       rv_answer *const *base, tally t[N_FIGURES])
{
    double hits = 0, any = 0, equal = 0;
    count(&t[REL], eval_hit(out[0]->text, f->answer), 1);
    out++;
    base++;
    for (size_t i = 0; i < f->heldout.n; i++) hits += eval_hit(out[i]->text, f->answer);
    count(&t[GEN], hits, f->heldout.n);
    out += f->heldout.n;
    base += f->heldout.n;
    hits = 0;
    for (size_t i = 0; i < f->neighbours.n; i++) {
        hits += eval_hit(out[i]->text, f->answer) - eval_hit(base[i]->text, f->answer);
        any +=
            any_hit(out[i]->text, facts, n, f, false) - any_hit(base[i]->text, facts, n, f, false);
        equal += eval_same_ids(out[i], base[i]);
    }
    count(&t[NBR], hits, f->neighbours.n);
    count(&t[NBR_ANY], any, f->neighbours.n);
    count(&t[NBR_IDENTICAL], equal, f->neighbours.n);
    out += f->neighbours.n;
    base += f->neighbours.n;
    hits = 0;
    for (size_t i = 0; i < f->same.n; i++)
        hits +=
            any_hit(out[i]->text, facts, n, f, true) - any_hit(base[i]->text, facts, n, f, true);
    count(&t[SAME], hits, f->same.n);
    if (f->reverse) count(&t[REV], eval_hit(out[f->same.n]->text, f->subject), 1);
}

static void score_unrelated(rv_answer *const *out, rv_answer *const *base, size_t n,
                            tally t[N_FIGURES])
{
    for (size_t i = 0; i < n; i++) {
        count(&t[LOC], eval_same_words(out[i]->text, base[i]->text, 0), 1);
        count(&t[LOC6], eval_same_words(out[i]->text, base[i]->text, 6), 1);
        count(&t[LOC_IDENTICAL], eval_same_ids(out[i], base[i]), 1);
    }
}

/* ---- one set ---- */

static rv_status train(facts_eval *v, double *seconds, rv_error *err)
{
    rv_adaptation *a = NULL;
    rv_status st = eval_train(&v->e, v->mode == DEEP ? RV_LOOP_DEEP : RV_LOOP_BACKGROUND,
                              RV_LOSS_DPO, &a, seconds, err);
    if (!st && !a->applied) st = rvi_error(err, RV_E_LEARNING, "nothing was trained: %s", a->notes);
    rv_free(a);
    return st;
}

static rv_status evaluate_set(facts_eval *v, const eval_set *s, rv_answer *const *base,
                              const questions *q, eval_figure *figures, rv_error *err)
{
    eval *e = &v->e;
    tally t[N_FIGURES] = {{0}};
    rv_answer **out = NULL;
    rv_status st = rv_learner_reset(e->l, err);
    if (!st) st = eval_teach(e, s->facts, s->n, &figures[SLOWEST].value, err);
    if (!st && v->mode != INSTANT) st = train(v, &figures[SECONDS].value, err);
    if (!v->asks) return st;
    if (!st) st = eval_answers(e, e->l, q->items, q->n, &ask, &out, err);
    size_t at = 0;
    for (size_t i = 0; !st && i < s->n; at += count_of(&s->facts[i]), i++)
        score_fact(&s->facts[i], s->facts, s->n, out + at, base + at, t);
    if (!st) score_unrelated(out + at, base + at, v->file.unrelated.n, t);
    for (int i = 0; i <= NBR_IDENTICAL; i++) settle(&figures[i], &t[i]);
    if (!st && v->mode != INSTANT) st = eval_dppl(e, &figures[DPPL].value, err);
    eval_free_answers(out, q->n);
    return st;
}

/* ---- one by one ---- */

enum { UNRELATED_EACH = 20, RELATIONS = 5 };

/* Facts of RELATIONS different relations (fewer where the set has fewer), those that are not done
 * first. Returns how many. */
static size_t pick_relations(const eval_set *s, const bool *done, size_t picked[RELATIONS])
{
    size_t n = 0;
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < s->n && n < RELATIONS; i++) {
            bool known = pass == 0 && done[i];
            for (size_t k = 0; k < n; k++)
                known |= !strcmp(s->facts[picked[k]].relation, s->facts[i].relation);
            if (!known) picked[n++] = i;
        }
    return n;
}

/* Asks what `few` facts (those at `which`) are about; base: answers of the whole set's
 * questions. */
static rv_status ask_about(facts_eval *v, const eval_set *s, const size_t *which, size_t n,
                           const eval_texts *unrelated, rv_answer *const *base,
                           rv_answer *const *base_unrelated, bool *done, tally t[N_FIGURES],
                           rv_error *err)
{
    eval *e = &v->e;
    questions q = {0};
    rv_answer **out = NULL;
    eval_fact *few = rvi_zalloc_array(n, sizeof *few);
    rv_status st = few ? RV_OK : rvi_nomem(err, "facts");
    for (size_t i = 0; !st && i < n; i++) few[i] = s->facts[which[i]];
    if (!st) st = rv_learner_reset(e->l, err);
    if (!st) st = eval_teach(e, few, n, NULL, err);
    if (!st) st = collect(few, n, unrelated, &q, err);
    if (!st) st = eval_answers(e, e->l, q.items, q.n, &ask, &out, err);
    size_t at = 0;
    for (size_t i = 0; !st && i < n; at += count_of(&few[i]), i++) {
        size_t from = 0;
        if (done && done[which[i]]) continue; /* stored for its relation alone */
        for (size_t k = 0; k < which[i]; k++) from += count_of(&s->facts[k]);
        score_fact(&few[i], few, n, out + at, base + from, t);
        if (done) done[which[i]] = true;
    }
    if (!st) score_unrelated(out + at, base_unrelated, unrelated->n, t);
    eval_free_answers(out, q.n);
    rvi_free(q.items);
    rvi_free(few);
    return st;
}

static rv_status evaluate_one_by_one(facts_eval *v, const eval_set *s, rv_answer *const *base,
                                     const questions *q, eval_figure *figures, rv_error *err)
{
    const eval_texts *all = &v->file.unrelated;
    rv_answer *const *base_unrelated = base + (q->n - all->n);
    size_t n = RVI_MIN(s->n, (size_t)v->one_by_one), n_done = 0;
    tally t[N_FIGURES] = {{0}}, five[N_FIGURES] = {{0}};
    bool *done = rvi_zalloc_array(s->n, sizeof *done);
    size_t picked[RELATIONS];
    rv_status st = done ? RV_OK : rvi_nomem(err, "facts");
    for (size_t i = 0; !st && i < n; i++) {
        size_t from = all->n ? i * UNRELATED_EACH % all->n : 0;
        eval_texts part = {all->items + from, RVI_MIN((size_t)UNRELATED_EACH, all->n - from)};
        cli_progress_show(&v->e.bar, "one by one", i, n, "");
        st = ask_about(v, s, &i, 1, &part, base, base_unrelated + from, NULL, t, err);
    }
    for (size_t i = n; i < s->n && done; i++) done[i] = true;
    for (size_t before = 0; !st && n_done < n; before = n_done) {
        size_t n_picked = pick_relations(s, done, picked);
        st = ask_about(v, s, picked, n_picked, &(eval_texts){0}, base, NULL, done, five, err);
        n_done = 0;
        for (size_t i = 0; i < n; i++) n_done += done[i];
        if (n_done == before) break;
    }
    for (int i = 0; i <= NBR_IDENTICAL; i++) settle(&figures[i], &t[i]);
    settle(&figures[SAME_5], &five[SAME]);
    settle(&figures[GEN_5], &five[GEN]);
    rvi_free(done);
    return st;
}

/* ---- all sets ---- */

static void write_result(const facts_eval *v, const eval_results *r, rvi_buf *out)
{
    eval_write_head(out, "facts", &v->e);
    rvi_buf_printf(out,
                   ",\"mode\":\"%s\",\"recipe\":\"%s\",\"gate\":%s,\"slots\":%s,"
                   "\"same_fence\":%s,\"facts\":%zu,\"one_by_one\":%d,\"group\":%d,",
                   mode_names[v->mode], v->fenced ? "R1" : "R7", v->gate ? "true" : "false",
                   v->slots ? "true" : "false", v->same_fence ? "true" : "false", v->file.sets[0].n,
                   v->one_by_one, v->group);
    eval_write_sets(out, r);
    eval_write_stages(out, &v->e);
    rvi_buf_printf(out, ",\"train_cpu_s\":%.6g}\n", v->e.train_cpu_s);
}

static void print_result(const facts_eval *v, const eval_results *r, rvi_buf *out)
{
    rvi_buf_printf(out, "%zu set%s of %zu facts, %s", v->file.n_sets,
                   v->file.n_sets == 1 ? "" : "s", v->file.sets[0].n, mode_names[v->mode]);
    if (v->mode != INSTANT)
        rvi_buf_printf(out, ", recipe %s, gate %s, slots %s", v->fenced ? "R1" : "R7",
                       v->gate ? "on" : "off", v->slots ? "on" : "off");
    if (!v->same_fence) rvi_buf_puts(out, ", no fence of questions about the same subject");
    if (v->one_by_one) rvi_buf_printf(out, ", the first %d one by one", v->one_by_one);
    if (v->e.o.control) rvi_buf_printf(out, ", control: %s", v->e.o.control);
    rvi_buf_puts(out, "\nrates in percent, with their 95 % intervals\n\n");
    eval_print_sets(out, r, 0, r->n_sets);
    if (!v->e.n_windows && v->mode != INSTANT)
        rvi_buf_puts(out, "(dppl needs a text: --text FILE)\n");
    if (v->mode == INSTANT) return;
    rvi_buf_puts(out, "Seconds of all sets by stage:");
    for (int i = 0; i < v->e.n_stages; i++)
        rvi_buf_printf(out, "%s %s %.2f", i ? "," : "", v->e.stages[i].name,
                       v->e.stages[i].seconds);
    rvi_buf_printf(out, "\nCPU time of training: %.0f s\n", v->e.train_cpu_s);
}

static rv_status make_learner(facts_eval *v, rv_error *err)
{
    eval_settings s = eval_learner_settings(&v->e);
    s.recipe = v->fenced ? EVAL_RECIPE_FENCED : EVAL_RECIPE_GATED;
    s.gate = v->gate ? EVAL_GATE_ON : EVAL_GATE_OFF;
    s.no_slots = !v->slots;
    if (v->group) s.group_size = v->group;
    v->group = s.group_size;
    s.no_same_fence = !v->same_fence;
    return eval_learner_new(&v->e, &s, err);
}

static rv_status load(eval *e, rv_error *err)
{
    facts_eval *v = (facts_eval *)e;
    rv_status st = eval_load_facts(e, &v->file, err);
    if (!st && !v->group && v->fenced) /* a whole set into one adapter, as it is for export */
        v->group = (int)v->file.sets[0].n;
    return st;
}

static rv_status evaluate(eval *e, rvi_buf *out, rv_error *err)
{
    facts_eval *v = (facts_eval *)e;
    eval_results r;
    rv_status st = eval_results_init(&r, figure_rows, N_FIGURES, v->file.n_sets, err);
    if (!st) st = make_learner(v, err);
    for (size_t i = 0; !st && i < v->file.n_sets; i++) {
        const eval_set *s = &v->file.sets[i];
        eval_figure *own = eval_results_of(&r, i);
        questions q = {0};
        rv_answer **base = NULL;
        r.numbers[i] = s->number;
        own[CALIBRATE].value = e->calibrate_s;
        st = collect(s->facts, s->n, &v->file.unrelated, &q, err);
        if (!st && v->asks) st = eval_answers(e, NULL, q.items, q.n, &ask, &base, err);
        if (!st)
            st = (v->one_by_one ? evaluate_one_by_one : evaluate_set)(v, s, base, &q, own, err);
        eval_free_answers(base, q.n);
        rvi_free(q.items);
    }
    if (!st) (e->o.json ? write_result : print_result)(v, &r, out);
    eval_results_deinit(&r);
    return st;
}

/* ---- options ---- */

static int settle_options(cli *c, facts_eval *v, const char *mode_name, const char *recipe,
                          const char *gate, const char *slots)
{
    size_t m = 0;
    while (mode_name && m < RVI_COUNT(mode_names) && strcmp(mode_name, mode_names[m]) != 0) m++;
    if (m == RVI_COUNT(mode_names))
        return cli_usage(c, "--mode: '%s' is none of instant, background, deep and product",
                         mode_name);
    v->mode = mode_name ? (mode)m : BACKGROUND;
    if (v->one_by_one && !mode_name) v->mode = INSTANT;
    int code = eval_choice(c, "recipe", recipe, "R1", "R7", &v->fenced);
    v->slots = v->mode == INSTANT || v->mode == PRODUCT;
    v->gate = !v->fenced || v->mode == PRODUCT || v->mode == INSTANT;
    if (!code) code = eval_switch(c, "gate", gate, &v->gate);
    if (!code) code = eval_switch(c, "slots", slots, &v->slots);
    if (!code && v->one_by_one < 0) code = cli_usage(c, "--one-by-one: at least 1");
    if (!code && v->one_by_one && v->mode != INSTANT)
        code = cli_usage(c, "--one-by-one goes with --mode instant");
    v->e.uncalibrated = v->mode == INSTANT; /* nothing is trained */
    if (!code && v->group < 0) code = cli_usage(c, "--group: at least 1");
    return code;
}

int eval_facts(cli *c, int argc, char **argv)
{
    facts_eval v = {.mode = BACKGROUND};
    const char *mode_name = NULL, *recipe = NULL, *gate = NULL, *slots = NULL;
    const char *same = NULL, *asks = NULL;
    const cli_option own[] = {
        {"mode", 0, CLI_TEXT, &mode_name, NULL},
        {"recipe", 0, CLI_TEXT, &recipe, NULL},
        {"gate", 0, CLI_TEXT, &gate, NULL},
        {"slots", 0, CLI_TEXT, &slots, NULL},
        {"one-by-one", 0, CLI_INT, &v.one_by_one, NULL},
        {"group", 0, CLI_INT, &v.group, NULL},
        {"same-fence", 0, CLI_TEXT, &same, NULL},
        {"ask", 0, CLI_TEXT, &asks, NULL},
    };
    bool done;
    int code = eval_parse(&v.e, c, own, RVI_COUNT(own), argc, argv, true,
                          "a model and a file of facts are needed", &done);
    if (!code && !done) code = settle_options(c, &v, mode_name, recipe, gate, slots);
    v.same_fence = v.asks = true;
    if (!code && !done) code = eval_switch(c, "same-fence", same, &v.same_fence);
    if (!code && !done) code = eval_switch(c, "ask", asks, &v.asks);
    if (!code && !done && !v.asks && v.one_by_one)
        code = cli_usage(c, "--ask off: nothing is left of --one-by-one");
    if (!code && !done && !v.same_fence && !v.fenced)
        code = cli_usage(c, "--same-fence goes with --recipe R1");
    return code || done ? code : eval_run(&v.e, load, evaluate);
}
