/* eval seq: groups of facts, one after the other, into one shared adapter; how much of each group is
 * still known when the last one was learned.
 *
 *   own      a group's other wordings right after it was taught     end      after the last group
 *   ret      end / own of a group, and ret_min the worst of all groups but the last
 *   gen_old  end of all groups but the last                         gen_all, rel_all  of all groups */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/os.h"
#include "cli/eval.h"

enum { MAX_GROUPS = 20 };

enum { RET, RET_MIN, GEN_OLD, GEN_ALL, REL_ALL, DPPL, PROBE_KL, SECONDS, N_FIGURES };
static const struct {
    const char *name;
    bool low_is_good;
} figure_rows[N_FIGURES] = {
    [RET] = {"ret", false},          [RET_MIN] = {"ret_min", false}, [GEN_OLD] = {"gen_old", false},
    [GEN_ALL] = {"gen_all", false},  [REL_ALL] = {"rel_all", false}, [DPPL] = {"dppl", true},
    [PROBE_KL] = {"probe_kl", true}, [SECONDS] = {"seconds", true},
};

/* gen[after][of], percent */
typedef struct course {
    double gen[MAX_GROUPS][MAX_GROUPS], rel[MAX_GROUPS][MAX_GROUPS];
    int number;
} course;

typedef struct seq_eval {
    eval e;
    eval_options o;
    eval_file file;
    const char *path;
    bool rehearsal, ewc, kl, gate;
    int groups;
} seq_eval;

static const eval_ask ask = {16, 0, 0, "asking"};

/* Prompts and held-out wordings of n facts: rates of each group of `size`. */
static rv_status measure(seq_eval *v, rv_learner *l, const eval_fact *facts, size_t n, size_t size,
                         double *gen, double *rel, rv_error *err)
{
    size_t n_all = n;
    for (size_t i = 0; i < n; i++) n_all += facts[i].heldout.n;
    const char **q = rvi_zalloc_array(n_all, sizeof *q);
    rv_generated *out = rvi_zalloc_array(n_all, sizeof *out);
    rv_status st = q && out ? RV_OK : rvi_nomem(err, "questions");
    size_t at = 0;
    for (size_t i = 0; !st && i < n; i++) {
        q[at++] = facts[i].prompt;
        for (size_t k = 0; k < facts[i].heldout.n; k++) q[at++] = facts[i].heldout.items[k];
    }
    if (!st) st = eval_answers(&v->e, l, q, n_all, &ask, out, err);
    at = 0;
    for (size_t g = 0; !st && g < n / size; g++) {
        size_t hits = 0, asked = 0, exact = 0;
        for (size_t i = g * size; i < (g + 1) * size; i++) {
            exact += eval_hit(out[at++].text, facts[i].answer);
            asked += facts[i].heldout.n;
            for (size_t k = 0; k < facts[i].heldout.n; k++)
                hits += eval_hit(out[at++].text, facts[i].answer);
        }
        gen[g] = asked ? 100 * (double)hits / (double)asked : (double)NAN;
        rel[g] = 100 * (double)exact / (double)size;
    }
    eval_free_answers(out, out ? n_all : 0);
    rvi_free(q);
    return st;
}

static rv_status teach_groups(seq_eval *v, rv_learner *l, const eval_set *s, course *c,
                              double *seconds, rv_error *err)
{
    size_t size = s->n / (size_t)v->groups;
    rv_status st = rv_learner_reset(l, err);
    *seconds = 0;
    for (int g = 0; !st && g < v->groups; g++) {
        rv_adaptation a = {0};
        st = eval_teach(l, s->facts + (size_t)g * size, size, NULL, err);
        double begun = rvi_os_seconds();
        if (!st)
            st = rv_learner_consolidate(l, RV_LOOP_BACKGROUND, RV_LOSS_DPO, eval_progress, &v->e,
                                        &a, err);
        *seconds += rvi_os_seconds() - begun;
        if (!st && !a.applied) st = rvi_error(err, RV_E_SONA, "group %d: %s", g + 1, a.notes);
        if (!st)
            st = measure(v, l, s->facts, (size_t)(g + 1) * size, size, c->gen[g], c->rel[g], err);
    }
    return st;
}

static rv_status evaluate_set(seq_eval *v, rv_learner *l, const eval_set *s, course *c,
                              eval_figure *f, rv_error *err)
{
    int n = v->groups, last = n - 1;
    double n_heldout = 0;
    for (int k = 0; k < N_FIGURES; k++)
        f[k] = (eval_figure){figure_rows[k].name, figure_rows[k].low_is_good, 0, 0};
    c->number = s->number;
    f[DPPL].value = f[PROBE_KL].value = NAN;
    rv_status st = teach_groups(v, l, s, c, &f[SECONDS].value, err);
    if (st) return st;
    f[RET_MIN].value = INFINITY;
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
    st = eval_dppl(&v->e, l, &f[DPPL].value, err);
    if (!st) st = rv_learner_probe(l, &f[PROBE_KL].value, err);
    return st;
}

/* ---- output ---- */

static void write_result(const seq_eval *v, const eval_figure *figures, const course *courses,
                         const int *numbers, rvi_buf *out)
{
    eval_write_head(out, "seq", &v->e, v->path, &v->o);
    rvi_buf_printf(out, ",\"groups\":%d,\"rehearsal\":%s,\"ewc\":%s,\"kl\":%s,\"gate\":%s,",
                   v->groups, v->rehearsal ? "true" : "false", v->ewc ? "true" : "false",
                   v->kl ? "true" : "false", v->gate ? "true" : "false");
    eval_write_sets(out, figures, N_FIGURES, numbers, v->file.n_sets);
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

static void print_result(const seq_eval *v, const eval_figure *figures, const course *courses,
                         rvi_buf *out)
{
    int last = v->groups - 1;
    rvi_buf_printf(out, "%d groups into one adapter: rehearsal %s, EWC %s, KL replay %s\n",
                   v->groups, v->rehearsal ? "on" : "off", v->ewc ? "on" : "off",
                   v->kl ? "on" : "off");
    for (size_t s = 0; s < v->file.n_sets; s++) {
        const course *c = &courses[s];
        rvi_buf_printf(out, "\nset %d, other wordings known, percent\n%-14s", c->number, "");
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
    eval_print_sets(out, figures, N_FIGURES, v->file.n_sets);
}

/* ---- the command ---- */

static rv_status evaluate(seq_eval *v, rvi_buf *out, rv_error *err)
{
    size_t n = v->file.n_sets;
    rv_learner *l = NULL;
    rv_learner_options lo;
    eval_figure *figures = rvi_zalloc_array(n * N_FIGURES, sizeof *figures);
    course *courses = rvi_zalloc_array(n, sizeof *courses);
    int *numbers = rvi_zalloc_array(n, sizeof *numbers);
    rv_status st = figures && courses && numbers ? RV_OK : rvi_nomem(err, "figures");
    eval_learner_options(&v->o, &lo);
    lo.recipe = RV_RECIPE_FENCED;
    lo.shared = 1;
    lo.no_slots = 1;
    lo.no_gate = !v->gate;
    lo.group_size = (int)(v->file.sets[0].n / (size_t)v->groups);
    if (!v->rehearsal) lo.rehearsal = 0;
    if (!v->ewc) lo.ewc_lambda = 0;
    lo.kl_weight = v->kl ? -1.0f : 0.0f;
    if (!st) st = rv_learner_new(&l, v->e.model.m, &lo, err);
    if (!st) st = rv_learner_calibrate(l, eval_progress, &v->e, err);
    for (size_t i = 0; !st && i < n; i++) {
        numbers[i] = v->file.sets[i].number;
        st = evaluate_set(v, l, &v->file.sets[i], &courses[i], figures + i * N_FIGURES, err);
    }
    if (!st && v->o.json)
        write_result(v, figures, courses, numbers, out);
    else if (!st)
        print_result(v, figures, courses, out);
    rv_learner_free(&l);
    rvi_free(figures);
    rvi_free(courses);
    rvi_free(numbers);
    return st;
}

int eval_seq(cli *c, int argc, char **argv)
{
    seq_eval v = {.rehearsal = true, .ewc = true, .kl = true, .groups = 5};
    const char *rehearsal = NULL, *ewc = NULL, *kl = NULL, *gate = NULL, *args[2];
    const cli_option own[] = {
        {"rehearsal", 0, CLI_TEXT, &rehearsal, NULL},
        {"ewc", 0, CLI_TEXT, &ewc, NULL},
        {"kl", 0, CLI_TEXT, &kl, NULL},
        {"gate", 0, CLI_TEXT, &gate, NULL},
        {"groups", 0, CLI_INT, &v.groups, NULL},
    };
    cli_option rows[EVAL_OPTIONS + RVI_COUNT(own)];
    eval_options_init(&v.o);
    eval_option_rows(&v.o, rows);
    memcpy(rows + EVAL_OPTIONS, own, sizeof own);
    int n_args;
    bool done;
    int code = cli_parse(c, rows, RVI_COUNT(rows), argc, argv, args, 2, &n_args, &done);
    if (code || done) return code;
    if (n_args < 2) return cli_usage(c, "a model and a file of facts are needed");
    if ((code = eval_switch(c, "rehearsal", rehearsal, &v.rehearsal)) ||
        (code = eval_switch(c, "ewc", ewc, &v.ewc)) || (code = eval_switch(c, "kl", kl, &v.kl)) ||
        (code = eval_switch(c, "gate", gate, &v.gate)) || (code = eval_options_check(c, &v.o)))
        return code;
    if (v.groups < 2 || v.groups > MAX_GROUPS)
        return cli_usage(c, "--groups: between 2 and %d", MAX_GROUPS);

    rv_error err = {0};
    rvi_buf out = {0};
    v.path = args[1];
    rv_status st = eval_file_load(&v.file, args[1], &v.o, &err);
    for (size_t i = 0; !st && i < v.file.n_sets; i++)
        if (v.file.sets[i].n < (size_t)v.groups)
            st = rvi_error(&err, RV_E_CONFIG, "set %d: %zu facts are fewer than %d groups",
                           v.file.sets[i].number, v.file.sets[i].n, v.groups);
    if (!st) st = eval_open(&v.e, c, args[0], &v.o, &err);
    if (!st) st = evaluate(&v, &out, &err);
    if (!st) code = cli_print(&out);
    rvi_buf_deinit(&out);
    eval_close(&v.e);
    eval_file_deinit(&v.file);
    return st ? cli_fail(&err) : code;
}
