/* eval natural: teaches corrections as people make them, then asks for them in other words, and for
 * what must not have changed.
 *
 *   edit          the corrected question gets the right answer       wordings   other wordings do
 *   neighbours    other questions, near to it, get other token ids than from the model alone
 *   same_subject  so do questions for something else about the same subject
 *   leaked        of these two: the answer has in it what was taught, and the model's alone has not
 * An answer is right where one of the texts to accept stands in it. All are shares of questions, of
 * every correction, of every class and of every language.
 *
 * --recognise generates nothing: right is where the taught answer would be spoken, changed where
 * something that was taught would take part (and spoken: where a correction would be). */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/os.h"
#include "cli/generation.h"
#include "eval/natural.h"

typedef enum stage { TAUGHT, TRAINED, N_STAGES } stage;

typedef struct tally {
    size_t n, yes; /* yes: right, or changed */
    size_t more;   /* spoken (counted by --recognise alone), or leaked */
} tally;

/* Of all corrections, those of a class, or those in a language. */
typedef struct group {
    const char *by, *name;
    size_t n; /* corrections */
    tally t[N_STAGES][NATURAL_N_KINDS];
} group;

typedef struct timing {
    double sum, worst; /* seconds by the clock */
    double cpu;        /* seconds of this thread; with -t 1 of all the work */
    size_t n;
} timing;

typedef struct moment {
    double clock, cpu;
} moment;

typedef struct natural_eval {
    eval e;
    const char *paths[64];
    size_t n_paths;
    bool together, recognise, trained;
    bool slots, gate; /* corrections are spoken; adapters wait for one that is asked for */
    bool read;        /* not spoken: the lesson's turn stands before the request */
    int who_reads;    /* lessons that are only likely: eval_settings.reading */
    size_t n_read[NATURAL_N_KINDS]; /* requests with a lesson that is only likely */
    int group;                      /* corrections that make an adapter; 0: as many as usual */
    natural_file file;
    const char *beside;     /* a file of corrections that are taught too, and not asked */
    natural_file neglected; /* what it has */
    group *groups;          /* the first one: all */
    size_t n_groups;
    size_t (*member)[3]; /* the groups of each correction */
    const char **texts;  /* every question, correction by correction, kind by kind */
    size_t *first;       /* of each correction's texts; one more: their number */
    rv_answer **base;    /* what the model alone answers to each; NULL where it is not needed */
    timing teaching, reading, beginning;
    double training; /* seconds */
    size_t n_refused;
    const char *refusal; /* why the first correction of them was not learned */
} natural_eval;

static const eval_ask ask = {.max_tokens = 48};
enum { SPARE = 512 }; /* tokens of a lesson that is read: of none in the files are there more */
static const char *const figure_names[NATURAL_N_KINDS] = {"edit", "wordings", "neighbours",
                                                          "same_subject"};

static bool must_not_change(int kind)
{
    return kind == NATURAL_NEIGHBOUR || kind == NATURAL_SAME;
}

/* ---- groups ---- */

static size_t group_of(natural_eval *v, const char *by, const char *name)
{
    size_t i = 0;
    while (i < v->n_groups && (strcmp(v->groups[i].by, by) || strcmp(v->groups[i].name, name))) i++;
    if (i == v->n_groups) v->groups[v->n_groups++] = (group){.by = by, .name = name};
    v->groups[i].n++;
    return i;
}

static void count(natural_eval *v, size_t correction, stage at, int kind, bool yes, bool more)
{
    for (int i = 0; i < 3; i++) {
        tally *t = &v->groups[v->member[correction][i]].t[at][kind];
        t->n++;
        t->yes += yes;
        t->more += more;
    }
}

static rv_status prepare(natural_eval *v, rv_error *err)
{
    size_t n = v->file.n, n_texts = 0;
    for (size_t i = 0; i < n; i++)
        for (int k = 0; k < NATURAL_N_KINDS; k++) n_texts += v->file.items[i].asked[k].n;
    v->groups = rvi_zalloc_array(2 * n + 1, sizeof *v->groups);
    v->member = rvi_zalloc_array(n, sizeof *v->member);
    v->first = rvi_zalloc_array(n + 1, sizeof *v->first);
    v->texts = rvi_zalloc_array(n_texts, sizeof *v->texts);
    v->base = rvi_zalloc_array(n_texts, sizeof *v->base);
    if (!v->groups || !v->member || !v->first || !v->texts || !v->base)
        return rvi_nomem(err, "corrections");
    for (size_t i = 0; i < n; i++) v->member[i][0] = group_of(v, "all", "all");
    for (size_t i = 0; i < n; i++) v->member[i][1] = group_of(v, "class", v->file.items[i].class);
    for (size_t i = 0; i < n; i++) v->member[i][2] = group_of(v, "lang", v->file.items[i].lang);
    for (size_t i = 0, at = 0; i < n; i++) {
        for (int k = 0; k < NATURAL_N_KINDS; k++) {
            const eval_texts *t = &v->file.items[i].asked[k];
            for (size_t j = 0; j < t->n; j++) v->texts[at++] = t->items[j];
        }
        v->first[i + 1] = at;
    }
    return RV_OK;
}

/* ---- the model alone ---- */

/* Asks it what must not change, all together. */
static rv_status ask_base(natural_eval *v, rv_error *err)
{
    eval_ask once = ask;
    size_t n = 0, n_texts = v->first[v->file.n];
    size_t *which = rvi_alloc_array(n_texts, sizeof *which);
    const char **texts = rvi_alloc_array(n_texts, sizeof *texts);
    rv_answer **answers = NULL;
    rv_status st = which && texts ? RV_OK : rvi_nomem(err, "questions");
    for (size_t i = 0; !st && i < v->file.n; i++) {
        const eval_texts *asked = v->file.items[i].asked;
        size_t skipped = asked[NATURAL_EDIT].n + asked[NATURAL_WORDING].n;
        for (size_t at = v->first[i] + skipped; at < v->first[i + 1]; at++) {
            which[n] = at;
            texts[n++] = v->texts[at];
        }
    }
    once.what = "model alone";
    if (!st && n) st = eval_answers(&v->e, NULL, texts, n, &once, &answers, err);
    for (size_t i = 0; answers && i < n; i++) v->base[which[i]] = answers[i];
    rvi_free(answers);
    rvi_free(which);
    rvi_free(texts);
    return st;
}

/* ---- asking ---- */

static moment now(void)
{
    return (moment){rvi_os_seconds(), rvi_os_thread_seconds()};
}

static void note_time(timing *t, moment begun)
{
    moment end = now();
    double s = end.clock - begun.clock;
    t->sum += s;
    t->cpu += end.cpu - begun.cpu;
    t->worst = RVI_MAX(t->worst, s);
    t->n++;
}

static void judge_answers(natural_eval *v, size_t correction, stage at, rv_answer *const *answers)
{
    const natural_correction *c = &v->file.items[correction];
    rv_answer *const *base = v->base + v->first[correction];
    size_t i = 0;
    for (int k = 0; k < NATURAL_N_KINDS; k++)
        for (size_t j = 0; j < c->asked[k].n; j++, i++) {
            bool has = eval_contains_any(answers[i]->text, &c->accept);
            bool leaked = base[i] && has && !eval_contains_any(base[i]->text, &c->accept);
            bool yes = must_not_change(k) ? !eval_same_ids(answers[i], base[i]) : has;
            count(v, correction, at, k, yes, leaked);
        }
}

static void dump_plan(const natural_eval *v, const natural_correction *c, int kind,
                      const char *text, const rv_learn_plan *plan, bool yes)
{
    rvi_buf line = {0};
    rvi_buf_puts(&line, "{\"id\":");
    rvi_json_write_string(&line, c->id, strlen(c->id));
    rvi_buf_printf(&line,
                   ",\"asked\":\"%s\",\"%s\":%s,\"open\":%s,\"spoken\":%s,\"read\":%s,"
                   "\"probability\":%.4f,\"question\":",
                   figure_names[kind], must_not_change(kind) ? "changed" : "right",
                   yes ? "true" : "false", plan->gate_open ? "true" : "false",
                   plan->slot ? "true" : "false", plan->read ? "true" : "false", plan->probability);
    rvi_json_write_string(&line, text, strlen(text));
    rvi_buf_puts(&line, ",\"answer\":");
    rvi_json_write_string(&line, plan->answer, strlen(plan->answer));
    rvi_buf_puts(&line, "}\n");
    if (line.data) fwrite(line.data, 1, line.len, v->e.dump);
    rvi_buf_deinit(&line);
}

/* The plan's answer is the taught one, or the part of it that the learner took for the answer. */
static bool has_answer(const natural_correction *c, const rv_learn_plan *plan)
{
    return eval_contains_any(plan->answer, &c->accept) ||
           eval_contains_any(c->answer, &(eval_texts){(const char *[]){plan->answer}, 1});
}

static rv_status recognise(natural_eval *v, rv_session *s, size_t correction, rv_error *err)
{
    const natural_correction *c = &v->file.items[correction];
    const char **text = v->texts + v->first[correction];
    rv_status st = RV_OK;
    for (int k = 0; k < NATURAL_N_KINDS; k++)
        for (size_t j = 0; !st && j < c->asked[k].n; j++, text++) {
            rv_message turn = {.role = "user", .content = *text};
            rv_chat chat = {.size = sizeof chat, .messages = &turn, .n_messages = 1};
            rv_learn_plan *plan = NULL;
            moment begun = now();
            st = rv_learner_begin(v->e.l, s, &chat, &plan, err);
            if (st) break;
            note_time(&v->beginning, begun);
            bool yes = must_not_change(k) ? plan->gate_open || plan->slot
                                          : plan->slot && has_answer(c, plan);
            count(v, correction, TAUGHT, k, yes, plan->slot);
            v->n_read[k] += plan->read != 0;
            if (v->e.dump) dump_plan(v, c, k, *text, plan, yes);
            rv_free(plan);
        }
    return st;
}

/* The first request after a lesson was taught has it read: not a part of recognising. */
static rv_status read_lessons(natural_eval *v, rv_session *s, rv_error *err)
{
    rv_message turn = {.role = "user", .content = "Hello!"};
    rv_chat chat = {.size = sizeof chat, .messages = &turn, .n_messages = 1};
    rv_learn_plan *plan = NULL;
    moment begun = now();
    rv_status st = rv_learner_begin(v->e.l, s, &chat, &plan, err);
    if (!st) note_time(&v->reading, begun);
    rv_free(plan);
    return st;
}

/* Answers by the model alone, with the turn of the lesson that each request asks for before it.
 * Frees *s, whose engine may go. */
static rv_status read_and_answer(natural_eval *v, rv_session **s, size_t first, size_t n,
                                 const eval_ask *how, rv_answer ***answers, rv_error *err)
{
    const char *(*before)[2] = rvi_zalloc_array(n + 1, sizeof *before);
    eval_ask here = *how;
    rv_status st = before ? RV_OK : rvi_nomem(err, "turns");
    for (size_t i = 0; !st && i < n; i++) {
        rv_message turn = {.role = "user", .content = v->texts[first + i]};
        rv_chat chat = {.size = sizeof chat, .messages = &turn, .n_messages = 1};
        rv_learn_plan *plan = NULL;
        st = rv_learner_begin(v->e.l, *s, &chat, &plan, err);
        for (int k = 0; !st && plan->gate_open && k < 2; k++) {
            const char *text = k ? plan->answer : plan->question;
            before[i][k] = rvi_arena_strndup(&v->e.arena, text, strlen(text));
            if (!before[i][k]) st = rvi_nomem(err, "turns");
        }
        rv_free(plan);
    }
    rv_session_free(s);
    here.before = (const char *const(*)[2])before;
    if (!st) st = eval_answers(&v->e, NULL, v->texts + first, n, &here, answers, err);
    rvi_free(before);
    return st;
}

/* Asks everything about n corrections; what: beside the progress bar, or NULL. */
static rv_status ask_about(natural_eval *v, size_t correction, size_t n, stage at, const char *what,
                           rv_error *err)
{
    eval *e = &v->e;
    size_t first = v->first[correction], n_texts = v->first[correction + n] - first;
    rv_answer **answers = NULL;
    rv_session *s = NULL;
    eval_ask here = ask;
    rv_status st;
    here.what = what;
    if (v->recognise || v->read) {
        rv_session_options o = {.size = sizeof o, .engine = e->engine, .learner = e->l};
        st = rv_session_new(&s, e->model.m, &o, err);
        if (!st) st = read_lessons(v, s, err);
        if (!st && v->read) st = read_and_answer(v, &s, first, n_texts, &here, &answers, err);
    } else {
        st = eval_answers(e, e->l, v->texts + first, n_texts, &here, &answers, err);
    }
    for (size_t i = 0; !st && i < n; i++) {
        size_t c = correction + i;
        if (what) cli_progress_show(&e->bar, what, i, n, "");
        if (v->recognise)
            st = recognise(v, s, c, err);
        else
            judge_answers(v, c, at, answers + (v->first[c] - first));
        if (!st && cli_interrupted()) st = rvi_error(err, RV_E_CANCELLED, "interrupted");
    }
    if (what) cli_progress_end(&e->bar);
    rv_session_free(&s);
    eval_free_answers(answers, n_texts);
    return st;
}

/* ---- teaching ---- */

static rv_status teach(natural_eval *v, const natural_correction *c, rv_error *err)
{
    rv_adaptation *a = NULL;
    moment begun = now();
    rv_status st = rv_learner_correct(v->e.l, NULL, c->question, c->answer, &a, err);
    if (st) return st;
    note_time(&v->teaching, begun);
    if (!a->applied && !v->n_refused++)
        v->refusal = rvi_arena_strndup(&v->e.arena, a->notes, strlen(a->notes));
    rv_free(a);
    return st;
}

/* n corrections into a learner that knows nothing, and everything about them asked, also after
 * training. It is the same learner, made to forget: a new one would first take most of a minute to
 * look at the model. */
static rv_status evaluate_part(natural_eval *v, size_t correction, size_t n, bool bar,
                               rv_error *err)
{
    eval *e = &v->e;
    double seconds = 0;
    size_t n_beside = v->neglected.n;
    rv_status st = rv_learner_reset(e->l, err);
    for (size_t i = 0; !st && i < n_beside + n; i++) {
        if (bar) cli_progress_show(&e->bar, "teaching", i, n_beside + n, "");
        st = teach(
            v, i < n_beside ? &v->neglected.items[i] : &v->file.items[correction + i - n_beside],
            err);
        if (!st && cli_interrupted()) st = rvi_error(err, RV_E_CANCELLED, "interrupted");
    }
    if (bar) cli_progress_end(&e->bar);
    if (!st && v->slots) st = ask_about(v, correction, n, TAUGHT, bar ? "asking" : NULL, err);
    if (st || !v->trained) return st;
    st = eval_train(e, RV_LOOP_BACKGROUND, RV_LOSS_DPO, NULL, &seconds, err);
    v->training += seconds;
    return st ? st : ask_about(v, correction, n, TRAINED, bar ? "asking" : NULL, err);
}

/* ---- results ---- */

static double percent(size_t part, size_t n)
{
    return n ? 100.0 * (double)part / (double)n : (double)NAN;
}

static void put_number(rvi_buf *out, const char *name, double value)
{
    rvi_buf_printf(out, "\"%s\":", name);
    if (isnan(value))
        rvi_buf_puts(out, "null");
    else
        rvi_buf_printf(out, "%.6g", value);
}

static void write_group(const natural_eval *v, const group *g, stage at, rvi_buf *out)
{
    for (int k = 0; k < NATURAL_N_KINDS; k++) {
        const tally *t = &g->t[at][k];
        const char *name = figure_names[k];
        if (k) rvi_buf_putc(out, ',');
        put_number(out, name, percent(t->yes, t->n));
        rvi_buf_printf(out, ",\"%s_count\":%zu,\"%s_of\":%zu", name, t->yes, name, t->n);
        if (v->recognise) rvi_buf_printf(out, ",\"%s_spoken\":%zu", name, t->more);
        if (!v->recognise && must_not_change(k))
            rvi_buf_printf(out, ",\"%s_leaked\":%zu", name, t->more);
    }
}

/* The figures of all corrections, and those of the groups. */
static void write_stage(const natural_eval *v, stage at, rvi_buf *out)
{
    write_group(v, &v->groups[0], at, out);
    rvi_buf_puts(out, ",\"groups\":[");
    for (size_t i = 1; i < v->n_groups; i++) {
        const group *g = &v->groups[i];
        rvi_buf_printf(out, "%s{\"%s\":", i > 1 ? "," : "", g->by);
        rvi_json_write_string(out, g->name, strlen(g->name));
        rvi_buf_printf(out, ",\"corrections\":%zu,", g->n);
        write_group(v, g, at, out);
        rvi_buf_putc(out, '}');
    }
    rvi_buf_putc(out, ']');
}

static void write_timing(const char *name, const timing *t, rvi_buf *out)
{
    char worst[32];
    snprintf(worst, sizeof worst, "%s_max_us", name);
    rvi_buf_printf(out, ",\"%s_us\":%.6g,\"%s_cpu_us\":%.6g,", name, 1e6 * t->sum / (double)t->n,
                   name, 1e6 * t->cpu / (double)t->n);
    put_number(out, worst, 1e6 * t->worst);
}

static void write_result(const natural_eval *v, rvi_buf *out)
{
    eval_write_head(out, "natural", &v->e);
    rvi_buf_puts(out, ",\"files\":[");
    for (size_t i = 0; i < v->n_paths; i++) {
        if (i) rvi_buf_putc(out, ',');
        rvi_json_write_string(out, v->paths[i], strlen(v->paths[i]));
    }
    rvi_buf_printf(
        out,
        "],\"corrections\":%zu,\"together\":%s,\"recognise\":%s,\"read\":%s,\"embedder\":%s,"
        "\"refused\":%zu",
        v->file.n, v->together ? "true" : "false", v->recognise ? "true" : "false",
        v->read ? "true" : "false", v->e.embedder ? "true" : "false", v->n_refused);
    write_timing("teach", &v->teaching, out);
    if (v->recognise) write_timing("begin", &v->beginning, out);
    for (int k = 0; v->recognise && k < NATURAL_N_KINDS; k++)
        rvi_buf_printf(out, ",\"%s_read\":%zu", figure_names[k], v->n_read[k]);
    rvi_buf_putc(out, ',');
    write_stage(v, TAUGHT, out);
    if (v->trained) {
        rvi_buf_printf(out, ",\"slots\":%s,\"gate\":%s,\"group\":%d", v->slots ? "true" : "false",
                       v->gate ? "true" : "false", v->group);
        rvi_buf_printf(out, ",\"train_s\":%.6g,\"train_cpu_s\":%.6g,\"trained\":{", v->training,
                       v->e.train_cpu_s);
        write_stage(v, TRAINED, out);
        rvi_buf_putc(out, '}');
    }
    rvi_buf_puts(out, "}\n");
}

static void print_cell(size_t part, size_t n, rvi_buf *out)
{
    char counts[32] = "";
    if (n) snprintf(counts, sizeof counts, "%zu/%zu", part, n);
    if (n)
        rvi_buf_printf(out, "  %5.1f %-11s", percent(part, n), counts);
    else
        rvi_buf_printf(out, "  %5s %-11s", "-", "");
}

/* without the blanks of its last column */
static void end_line(rvi_buf *out)
{
    while (out->len && out->data[out->len - 1] == ' ') out->len--;
    rvi_buf_putc(out, '\n');
}

static void print_stage(const natural_eval *v, stage at, rvi_buf *out)
{
    const char *by = "all";
    rvi_buf_printf(out, "%-24s  %-18s %-18s %-18s %-18s", "", "edit", "wordings", "neighbours",
                   "same subject");
    rvi_buf_puts(out, v->recognise ? " nbr. spoken        same spoken"
                                   : " nbr. leaked        same leaked");
    end_line(out);
    for (size_t i = 0; i < v->n_groups; i++) {
        const group *g = &v->groups[i];
        const tally *t = g->t[at];
        if (i && g->n == v->file.n) continue; /* the only class, or language */
        if (strcmp(by, g->by)) rvi_buf_printf(out, "%s\n", g->by);
        by = g->by;
        rvi_buf_printf(out, i ? "  %-16s %5zu" : "%-18s %5zu", g->name, g->n);
        for (int k = 0; k < NATURAL_N_KINDS; k++) print_cell(t[k].yes, t[k].n, out);
        for (int k = NATURAL_NEIGHBOUR; k < NATURAL_N_KINDS; k++)
            print_cell(t[k].more, t[k].n, out);
        end_line(out);
    }
}

static void print_timing(const char *what, const timing *t, rvi_buf *out)
{
    rvi_buf_printf(out, "%s: %.0f us, the slowest %.0f us; of this thread's CPU %.0f us\n", what,
                   1e6 * t->sum / (double)t->n, 1e6 * t->worst, 1e6 * t->cpu / (double)t->n);
}

static void print_result(const natural_eval *v, rvi_buf *out)
{
    rvi_buf_printf(out, "%zu corrections, %s, %s an embedder%s\n", v->file.n,
                   v->together ? "all taught to one learner" : "each taught alone",
                   v->e.embedder ? "with" : "without",
                   v->recognise ? ", recognised only"
                   : v->read    ? ", read and not spoken"
                                : "");
    rvi_buf_puts(out, v->recognise ? "percent of questions: the taught answer would be spoken; "
                                     "something taught would take part\n\n"
                                   : "percent of questions: answered right; answered otherwise "
                                     "than by the model alone\n\n");
    if (v->slots) print_stage(v, TAUGHT, out);
    if (v->trained) {
        rvi_buf_printf(out, "%strained (%.0f s, CPU time %.0f s)%s%s\n", v->slots ? "\n" : "",
                       v->training, v->e.train_cpu_s, v->slots ? "" : ", by weights alone",
                       v->gate ? "" : ", in every answer");
        print_stage(v, TRAINED, out);
    }
    rvi_buf_putc(out, '\n');
    if (v->n_refused)
        rvi_buf_printf(out, "%zu corrections were not learned; the first: %s\n", v->n_refused,
                       v->refusal ? v->refusal : "");
    print_timing("a correction", &v->teaching, out);
    if (v->recognise) print_timing("reading new lessons", &v->reading, out);
    if (v->recognise) print_timing("a recognition", &v->beginning, out);
    for (int k = 0; v->recognise && k < NATURAL_N_KINDS; k++)
        if (v->n_read[k]) rvi_buf_printf(out, "read, %s: %zu\n", figure_names[k], v->n_read[k]);
}

/* ---- the command ---- */

static rv_status load(eval *e, rv_error *err)
{
    natural_eval *v = (natural_eval *)e;
    rv_status st = RV_OK;
    for (size_t i = 0; !st && i < v->n_paths; i++) st = natural_load(e, v->paths[i], &v->file, err);
    if (!st && v->beside) st = natural_load(e, v->beside, &v->neglected, err);
    return st ? st : prepare(v, err);
}

static rv_status evaluate(eval *e, rvi_buf *out, rv_error *err)
{
    natural_eval *v = (natural_eval *)e;
    eval_settings settings = eval_learner_settings(e);
    settings.no_slots = !v->slots;
    settings.reading = v->who_reads;
    if (!v->gate) settings.gate = EVAL_GATE_OFF;
    if (v->group) settings.group_size = v->group;
    v->group = settings.group_size;
    rv_status st = eval_learner_new(e, &settings, err);
    if (!st && !v->recognise) st = ask_base(v, err);
    if (!st && v->together) st = evaluate_part(v, 0, v->file.n, true, err);
    for (size_t i = 0; !st && !v->together && i < v->file.n; i++) {
        cli_progress_show(&e->bar, "corrections", i, v->file.n, v->file.items[i].id);
        st = evaluate_part(v, i, 1, false, err);
    }
    cli_progress_end(&e->bar);
    if (!st) (e->o.json ? write_result : print_result)(v, out);
    return st;
}

/* Who reads lessons that are only likely. Whether a model reads is measured with what else is made
 * once for it. */
static int settle_reading(const cli *c, natural_eval *v, const char *text)
{
    static const char *const names[] = {
        [EVAL_READING_MEASURED] = "measured", [EVAL_READING_ON] = "on", [EVAL_READING_OFF] = "off"};
    int i = 0;
    while (i < (int)RVI_COUNT(names) && text && strcmp(text, names[i])) i++;
    if (i == (int)RVI_COUNT(names))
        return cli_usage(c, "--reading: '%s' is none of measured, on and off", text);
    v->who_reads = i;
    if (text && i == EVAL_READING_MEASURED) v->e.uncalibrated = false;
    if (text && i != EVAL_READING_OFF) v->e.spare = SPARE;
    return CLI_OK;
}

static int settle_options(cli *c, natural_eval *v, const char **args, int n_args, bool each,
                          const char *slots, const char *gate, const char *reading)
{
    const eval_options *o = &v->e.o;
    if (n_args < 2) return cli_usage(c, "a model and a file of corrections are needed");
    if (o->limit < 0 || o->steps < 0 || o->rank < 0 || o->rate < 0)
        return cli_usage(c, "--limit, --steps, --rank and --rate: below 0 is not possible");
    if (v->group < 0 || v->group > 1000) return cli_usage(c, "--group: 1 to 1000");
    if (each && v->together) return cli_usage(c, "--each or --together, not both");
    if (v->beside && !v->together) return cli_usage(c, "--beside needs --together");
    if (v->read && (v->recognise || v->trained))
        return cli_usage(c, "--read goes without --recognise and --trained");
    if (v->recognise && v->trained)
        return cli_usage(c, "--recognise or --trained, not both: training changes no recognition");
    v->slots = v->gate = true;
    int code = eval_switch(c, "slots", slots, &v->slots);
    if (!code) code = eval_switch(c, "gate", gate, &v->gate);
    if (code) return code;
    if (!v->trained && (v->group || !v->slots || !v->gate))
        return cli_usage(c, "--group, --slots off and --gate off go with --trained");
    v->e.uncalibrated = !v->trained;
    if ((code = settle_reading(c, v, reading))) return code;
    v->e.c = c;
    v->e.model_name = args[0];
    v->n_paths = (size_t)n_args - 1;
    memcpy(v->paths, args + 1, v->n_paths * sizeof *args);
    return CLI_OK;
}

int eval_natural(cli *c, int argc, char **argv)
{
    natural_eval v = {.e.o = {.windows = 64, .seed = 1}};
    eval_options *o = &v.e.o;
    bool each = false, done;
    const char *slots = NULL, *gate = NULL, *reading = NULL, *args[1 + RVI_COUNT(v.paths)];
    int n_args;
    const cli_option options[] = {
        {"each", 0, CLI_FLAG, &each, NULL},
        {"together", 0, CLI_FLAG, &v.together, NULL},
        {"beside", 0, CLI_TEXT, &v.beside, NULL},
        {"recognise", 0, CLI_FLAG, &v.recognise, NULL},
        {"trained", 0, CLI_FLAG, &v.trained, NULL},
        {"read", 0, CLI_FLAG, &v.read, NULL},
        {"group", 0, CLI_INT, &v.group, NULL},
        {"slots", 0, CLI_TEXT, &slots, NULL},
        {"gate", 0, CLI_TEXT, &gate, NULL},
        {"reading", 0, CLI_TEXT, &reading, NULL},
        {"embedder", 0, CLI_TEXT, &o->embedder, NULL},
        {"no-embedder", 0, CLI_FLAG, &o->no_embedder, NULL},
        {"limit", 0, CLI_INT, &o->limit, NULL},
        {"seed", 0, CLI_UINT64, &o->seed, NULL},
        {"steps", 0, CLI_INT, &o->steps, NULL},
        {"rank", 0, CLI_INT, &o->rank, NULL},
        {"sources", 0, CLI_INT, &o->sources, NULL},
        {"rate", 0, CLI_FLOAT, &o->rate, NULL},
        {"dump", 0, CLI_TEXT, &o->dump, NULL},
        {"work", 0, CLI_TEXT, &o->work, NULL},
        {"json", 0, CLI_FLAG, &o->json, NULL},
    };
    int code = cli_parse(c, options, RVI_COUNT(options), argc, argv, args, (int)RVI_COUNT(args),
                         &n_args, &done);
    if (code || done) return code;
    code = settle_options(c, &v, args, n_args, each, slots, gate, reading);
    if (code) return code;
    code = eval_run(&v.e, load, evaluate);
    eval_free_answers(v.base, v.first ? v.first[v.file.n] : 0);
    rvi_free(v.texts);
    rvi_free(v.first);
    rvi_free(v.member);
    rvi_free(v.groups);
    rvi_free(v.file.items);
    rvi_free(v.neglected.items);
    return code;
}
