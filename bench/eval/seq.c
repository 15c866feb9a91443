/* eval seq: groups of facts, one after the other, into one shared adapter; how much of each group
 * is still known when the last one was learned.
 *
 *   own      a group's other wordings right after it was taught     end      after the last group
 *   ret      end / own of a group, and ret_min the worst of all groups but the last
 *   gen_old  end of all groups but the last                         gen_all, rel_all  of all
 * groups */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "eval/eval.h"

enum { MAX_GROUPS = 20 };

enum { RET, RET_MIN, GEN_OLD, GEN_ALL, REL_ALL, DPPL, SECONDS, N_FIGURES };
static const eval_row figure_rows[N_FIGURES] = {
    [RET] = {"ret", false},         [RET_MIN] = {"ret_min", false}, [GEN_OLD] = {"gen_old", false},
    [GEN_ALL] = {"gen_all", false}, [REL_ALL] = {"rel_all", false}, [DPPL] = {"dppl", true},
    [SECONDS] = {"seconds", true},
};

/* gen[after][of], percent */
typedef struct course {
    double gen[MAX_GROUPS][MAX_GROUPS], rel[MAX_GROUPS][MAX_GROUPS];
} course;

typedef struct seq_eval {
    eval e;
    eval_file file;
    bool rehearsal, ewc, kl, gate;
    int groups;
} seq_eval;

static const eval_ask ask = {.max_tokens = 16, .what = "asking"};

/* Prompts and held-out wordings of n facts: rates of each group of `size`. */
static rv_status measure(eval *e, const eval_fact *facts, size_t n, size_t size, double *gen,
                         double *rel, rv_error *err)
{
    size_t n_all = n;
    for (size_t i = 0; i < n; i++) n_all += facts[i].heldout.n;
    const char **q = rvi_zalloc_array(n_all, sizeof *q);
    rv_answer **out = NULL;
    rv_status st = q ? RV_OK : rvi_nomem(err, "questions");
    size_t at = 0;
    for (size_t i = 0; !st && i < n; i++) {
        q[at++] = facts[i].prompt;
        for (size_t k = 0; k < facts[i].heldout.n; k++) q[at++] = facts[i].heldout.items[k];
    }
    if (!st) st = eval_answers(e, e->l, q, n_all, &ask, &out, err);
    at = 0;
    for (size_t g = 0; !st && g < n / size; g++) {
        size_t hits = 0, asked = 0, exact = 0;
        for (size_t i = g * size; i < (g + 1) * size; i++) {
            exact += eval_hit(out[at++]->text, facts[i].answer);
            asked += facts[i].heldout.n;
            for (size_t k = 0; k < facts[i].heldout.n; k++)
                hits += eval_hit(out[at++]->text, facts[i].answer);
        }
        gen[g] = asked ? 100 * (double)hits / (double)asked : (double)NAN;
        rel[g] = 100 * (double)exact / (double)size;
    }
    eval_free_answers(out, n_all);
    rvi_free(q);
    return st;
}

static rv_status teach_groups(seq_eval *v, const eval_set *s, course *c, double *seconds,
                              rv_error *err)
{
    eval *e = &v->e;
    size_t size = s->n / (size_t)v->groups;
    rv_status st = rv_learner_reset(e->l, err);
    *seconds = 0;
    for (int g = 0; !st && g < v->groups; g++) {
        rv_adaptation *a = NULL;
        double took = 0;
        st = eval_teach(e, s->facts + (size_t)g * size, size, NULL, err);
        if (!st) st = eval_train(e, RV_LOOP_BACKGROUND, RV_LOSS_DPO, &a, &took, err);
        *seconds += took;
        if (!st && !a->applied) st = rvi_error(err, RV_E_LEARNING, "group %d: %s", g + 1, a->notes);
        rv_free(a);
        if (!st) st = measure(e, s->facts, (size_t)(g + 1) * size, size, c->gen[g], c->rel[g], err);
    }
    return st;
}

static rv_status evaluate_set(seq_eval *v, const eval_set *s, course *c, eval_figure *f,
                              rv_error *err)
{
    int n = v->groups, last = n - 1;
    double n_heldout = 0;
    rv_status st = teach_groups(v, s, c, &f[SECONDS].value, err);
    if (st) return st;
    for (int i = RET; i <= REL_ALL; i++) f[i].value = i == RET_MIN ? INFINITY : 0;
    for (int g = 0; g < n; g++) {
        f[GEN_ALL].value += c->gen[last][g] / n;
        f[REL_ALL].value += c->rel[last][g] / n;
        if (g == last) break;
        double ret = 100 * c->gen[last][g] / RVI_MAX(c->gen[g][g], 1e-4);
        f[RET].value += ret / last;
        f[RET_MIN].value = RVI_MIN(f[RET_MIN].value, ret);
        f[GEN_OLD].value += c->gen[last][g] / last;
    }
    for (size_t i = 0; i < s->n; i++) n_heldout += (double)s->facts[i].heldout.n;
    f[GEN_ALL].n = n_heldout;
    f[GEN_OLD].n = n_heldout * last / n;
    f[REL_ALL].n = (double)s->n;
    return eval_dppl(&v->e, &f[DPPL].value, err);
}

/* ---- output ---- */

static void write_result(const seq_eval *v, const eval_results *r, const course *courses,
                         rvi_buf *out)
{
    eval_write_head(out, "seq", &v->e);
    rvi_buf_printf(out, ",\"groups\":%d,\"rehearsal\":%s,\"ewc\":%s,\"kl\":%s,\"gate\":%s,",
                   v->groups, v->rehearsal ? "true" : "false", v->ewc ? "true" : "false",
                   v->kl ? "true" : "false", v->gate ? "true" : "false");
    eval_write_sets(out, r);
    rvi_buf_puts(out, ",\"matrix\":[");
    for (size_t s = 0; s < v->file.n_sets; s++) {
        rvi_buf_puts(out, s ? ",[" : "[");
        for (int g = 0; g < v->groups; g++) {
            rvi_buf_puts(out, g ? ",[" : "[");
            for (int k = 0; k <= g; k++)
                rvi_buf_printf(out, k ? ",%.6g" : "%.6g", courses[s].gen[g][k]);
            rvi_buf_puts(out, "]");
        }
        rvi_buf_puts(out, "]");
    }
    rvi_buf_puts(out, "]}\n");
}

static void print_result(const seq_eval *v, const eval_results *r, const course *courses,
                         rvi_buf *out)
{
    int last = v->groups - 1;
    rvi_buf_printf(out, "%d groups into one adapter: rehearsal %s, EWC %s, KL replay %s\n",
                   v->groups, v->rehearsal ? "on" : "off", v->ewc ? "on" : "off",
                   v->kl ? "on" : "off");
    for (size_t s = 0; s < v->file.n_sets; s++) {
        const course *c = &courses[s];
        rvi_buf_printf(out, "\nset %d, other wordings known, percent\n%-14s", r->numbers[s], "");
        for (int k = 0; k < v->groups; k++) rvi_buf_printf(out, "  group %d", k + 1);
        for (int g = 0; g < v->groups; g++) {
            rvi_buf_printf(out, "\nafter group %-2d", g + 1);
            for (int k = 0; k <= g; k++) rvi_buf_printf(out, "%9.1f", c->gen[g][k]);
        }
        rvi_buf_printf(out, "\n%-14s", "kept");
        for (int k = 0; k < last; k++)
            rvi_buf_printf(out, "%9.1f", 100 * c->gen[last][k] / RVI_MAX(c->gen[k][k], 1e-4));
        rvi_buf_putc(out, '\n');
    }
    rvi_buf_putc(out, '\n');
    eval_print_sets(out, r, 0, r->n_sets);
}

/* ---- the command ---- */

static rv_status make_learner(seq_eval *v, rv_error *err)
{
    eval_settings s = eval_learner_settings(&v->e);
    s.recipe = EVAL_RECIPE_FENCED;
    s.shared = 1;
    s.no_slots = 1;
    s.gate = v->gate ? EVAL_GATE_ON : EVAL_GATE_OFF;
    s.group_size = (int)(v->file.sets[0].n / (size_t)v->groups);
    if (!v->rehearsal) s.rehearsal = 0;
    if (!v->ewc) s.ewc_lambda = 0;
    s.kl_weight = v->kl ? -1.0f : 0.0f;
    return eval_learner_new(&v->e, &s, err);
}

static rv_status load(eval *e, rv_error *err)
{
    seq_eval *v = (seq_eval *)e;
    rv_status st = eval_load_facts(e, &v->file, err);
    for (size_t i = 0; !st && i < v->file.n_sets; i++)
        if (v->file.sets[i].n < (size_t)v->groups)
            st = rvi_error(err, RV_E_CONFIG, "set %d: %zu facts are fewer than %d groups",
                           v->file.sets[i].number, v->file.sets[i].n, v->groups);
    return st;
}

static rv_status evaluate(eval *e, rvi_buf *out, rv_error *err)
{
    seq_eval *v = (seq_eval *)e;
    size_t n = v->file.n_sets;
    eval_results r;
    course *courses = rvi_zalloc_array(n, sizeof *courses);
    rv_status st = eval_results_init(&r, figure_rows, N_FIGURES, n, err);
    if (!st && !courses) st = rvi_nomem(err, "figures");
    if (!st) st = make_learner(v, err);
    for (size_t i = 0; !st && i < n; i++) {
        r.numbers[i] = v->file.sets[i].number;
        st = evaluate_set(v, &v->file.sets[i], &courses[i], eval_results_of(&r, i), err);
    }
    if (!st) (e->o.json ? write_result : print_result)(v, &r, courses, out);
    eval_results_deinit(&r);
    rvi_free(courses);
    return st;
}

int eval_seq(cli *c, int argc, char **argv)
{
    seq_eval v = {.rehearsal = true, .ewc = true, .kl = true, .groups = 5};
    const char *rehearsal = NULL, *ewc = NULL, *kl = NULL, *gate = NULL;
    const cli_option own[] = {
        {"rehearsal", 0, CLI_TEXT, &rehearsal, NULL},
        {"ewc", 0, CLI_TEXT, &ewc, NULL},
        {"kl", 0, CLI_TEXT, &kl, NULL},
        {"gate", 0, CLI_TEXT, &gate, NULL},
        {"groups", 0, CLI_INT, &v.groups, NULL},
    };
    bool done;
    int code = eval_parse(&v.e, c, own, RVI_COUNT(own), argc, argv, true,
                          "a model and a file of facts are needed", &done);
    if (code || done || (code = eval_switch(c, "rehearsal", rehearsal, &v.rehearsal)) ||
        (code = eval_switch(c, "ewc", ewc, &v.ewc)) || (code = eval_switch(c, "kl", kl, &v.kl)) ||
        (code = eval_switch(c, "gate", gate, &v.gate)))
        return code;
    if (v.groups < 2 || v.groups > MAX_GROUPS)
        return cli_usage(c, "--groups: between 2 and %d", MAX_GROUPS);
    return eval_run(&v.e, load, evaluate);
}
