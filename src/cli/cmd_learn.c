/* learn: looks at what was learned, trains it, takes it back, hands it on */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "base/os.h"
#include "cli/answers.h"
#include "cli/forget.h"
#include "cli/generation.h"
#include "cli/lost.h"
#include "cli/second_look.h"

typedef struct learn {
    cli *c;
    cli_model model;
    cli_learning learning;
    const char *args[3]; /* behind the action */
    int n_args;
    bool json, deep, f16, force, yes, model_given;
    int generation;
    const char *asked; /* the model, as the user named it */
    const char *name;  /* of --adapter, or NULL */
    rv_consolidation how;
    rv_preference_loss loss;
    rvi_buf out;
} learn;

static rv_status report(learn *t, rv_adaptation *a, const char *said)
{
    cli_learning_report(t->c, a, said, t->json, &t->out);
    return RV_OK;
}

/* Which model, and under which name. */
static void put_model(learn *t)
{
    bool is_path = !strcmp(t->asked, t->model.path.data);
    size_t at = t->out.len;
    rvi_buf_printf(&t->out, "%s%s%s%s, taught as '%s'%s", t->asked, is_path ? "" : " (",
                   is_path ? "" : t->model.path.data, is_path ? "" : ")",
                   t->name ? t->name : "default", t->model_given ? "" : "; -m names another model");
    if (!t->out.failed) cli_hush_line(t->out.data + at, t->out.len - at);
    rvi_buf_putc(&t->out, '\n');
}

static rv_status do_status(learn *t, rv_error *err)
{
    char *json = NULL;
    if (!t->json) {
        put_model(t);
        cli_lost_write(&t->learning, false, &t->out);
        return cli_learning_print(&t->learning, &t->out, err);
    }
    rv_status st = rv_learner_status(t->learning.l, &json, err);
    size_t len = st ? 0 : strlen(json);
    if (len && json[len - 1] == '}') { /* the library knows nothing of these */
        rvi_buf_append(&t->out, json, len - 1);
        rvi_buf_printf(&t->out, "%s\"recognises\":\"%s\",\"path\":", len > 2 ? "," : "",
                       t->learning.embedder ? "meaning" : "spelling");
        rvi_json_write_string(&t->out, t->model.path.data, t->model.path.len);
        cli_lost_write(&t->learning, true, &t->out);
        rvi_buf_puts(&t->out, "}\n");
    }
    rv_free(json);
    return st;
}

/* Is there anything to train? What cannot be told is left to training itself. */
static rv_status look_for_work(const learn *t, bool *any, rv_error *err)
{
    rvi_arena arena = {0};
    const rvi_json *s;
    rv_status st = cli_learning_status(&t->learning, &arena, &s, err);
    *any = !st && rvi_json_int(rvi_json_get(s, "waiting"), 1) > 0;
    const rvi_json *pairs = st ? NULL : rvi_json_get(s, "preferences");
    for (size_t i = 0; t->deep && i < rvi_json_count(pairs); i++)
        *any |= !rvi_json_bool(rvi_json_get(rvi_json_at(pairs, i), "trained"), false);
    rvi_arena_deinit(&arena);
    return st;
}

static rv_status say_nothing_waits(learn *t)
{
    if (t->json) {
        cli_learning_write(&(rv_adaptation){.loop = t->deep ? RV_LOOP_DEEP : RV_LOOP_BACKGROUND,
                                            .quality_delta = NAN,
                                            .notes = "nothing waits"},
                           &t->out);
        rvi_buf_putc(&t->out, '\n');
    } else {
        rvi_buf_puts(&t->out, "Nothing waits for training.\n");
    }
    return RV_OK;
}

static rv_status do_run(learn *t, rv_error *err)
{
    rv_adaptation *a = NULL;
    bool any = false;
    int before = 0;
    char said[96];
    rv_status st = rv_learner_set_paused(t->learning.l, 0, err);
    if (!st) st = look_for_work(t, &any, err);
    if (!st && !any) return say_nothing_waits(t);
    if (!st) st = cli_second_look_newest(&t->learning, &before, err);
    if (!st)
        st = cli_learning_train(&t->learning, t->deep ? RV_LOOP_DEEP : RV_LOOP_BACKGROUND, t->loss,
                                &a, err);
    if (st == RV_E_CANCELLED) return rvi_error(err, st, "stopped; 'ruvllm learn run' goes on");
    if (st) return st;
    if (!a->applied && t->deep && !t->json) { /* corrections train whatever their number */
        rvi_buf_puts(&t->out, "There are too few preferences to train on yet.\n");
        rv_free(a);
        return RV_OK;
    }
    snprintf(said, sizeof said, "Trained on %d lesson%s", a->samples_used,
             a->samples_used == 1 ? "" : "s");
    st = report(t, a, said);
    if (st || t->json) return st;
    return cli_second_look_trained(t->model.m, &t->learning, before, &t->out, err);
}

static rv_status do_pause(learn *t, rv_error *err)
{
    rv_status st = rv_learner_set_paused(t->learning.l, 1, err);
    if (!st)
        rvi_buf_puts(&t->out, t->json ? "{\"paused\":true}\n"
                                      : "Training in the background is paused until 'learn run', "
                                        "also in chats and servers that run.\n");
    return st;
}

/* Whoever taught it. */
static rv_status do_undo(learn *t, rv_error *err)
{
    rv_adaptation *a = NULL;
    rv_status st = rv_learner_undo(t->learning.l, &a, err);
    return st ? st : report(t, a, NULL);
}

static bool read_number(const char *text, int *out)
{
    char *end;
    errno = 0;
    long v = strtol(text, &end, 10);
    *out = (int)v;
    return end != text && !*end && !errno && v >= 0 && v <= 1000000;
}

/* The newest generation that is active, 0: none; and the one before it that can be gone back to. */
static rv_status newest(learn *t, int *out, int *before, rv_error *err)
{
    rvi_arena arena = {0};
    const rvi_json *s;
    *out = *before = 0;
    rv_status st = cli_learning_status(&t->learning, &arena, &s, err);
    const rvi_json *list = st ? NULL : rvi_json_get(s, "generations");
    for (size_t i = 0; i < rvi_json_count(list); i++) {
        const rvi_json *g = rvi_json_at(list, i);
        int number = (int)rvi_json_int(rvi_json_get(g, "number"), 0);
        if (rvi_json_bool(rvi_json_get(g, "active"), false)) *out = RVI_MAX(*out, number);
    }
    for (size_t i = 0; i < rvi_json_count(list); i++) {
        const rvi_json *g = rvi_json_at(list, i);
        int number = (int)rvi_json_int(rvi_json_get(g, "number"), 0);
        if (number < *out && !rvi_json_bool(rvi_json_get(g, "rolled_back"), false))
            *before = RVI_MAX(*before, number);
    }
    rvi_arena_deinit(&arena);
    return st;
}

static rv_status do_rollback(learn *t, rv_error *err)
{
    rv_adaptation *a = NULL;
    int generation = 0, from;
    rv_status st = RV_OK;
    if (!t->n_args) {
        st = newest(t, &from, &generation, err);
        if (!st && !from)
            st = rvi_error(err, RV_E_NOT_FOUND, "there is no generation to roll back");
    } else if (!read_number(t->args[0], &generation)) {
        st = rvi_error(err, RV_E_CONFIG, "a generation must be a number");
    }
    if (!st) st = rv_learner_rollback(t->learning.l, generation, &a, err);
    if (st) return st;
    char said[64] = "Back to the model without an adapter";
    if (generation) snprintf(said, sizeof said, "Back to generation %d", generation);
    return report(t, a, said);
}

static rv_status do_export(learn *t, rv_error *err)
{
    rv_status st = cli_may_write(&t->model, t->args[0], t->force, err);
    rvi_os_private_files(false); /* it is made to be handed on */
    if (!st) st = rv_learner_export(t->learning.l, t->generation, t->args[0], t->f16, err);
    if (!st && t->json) {
        rvi_buf_puts(&t->out, "{\"path\":");
        rvi_json_write_string(&t->out, t->args[0], strlen(t->args[0]));
        rvi_buf_puts(&t->out, "}\n");
    } else if (!st) {
        rvi_buf_printf(&t->out, "Written to %s.\n", t->args[0]);
    }
    return st;
}

static rv_status do_import(learn *t, rv_error *err)
{
    rv_adaptation *a = NULL;
    rv_status st = rv_learner_import(t->learning.l, t->args[0], &a, err);
    return st ? st : report(t, a, "Imported");
}

static rv_status need_generation(const learn *t, int number, rv_error *err)
{
    rvi_arena arena = {0};
    const rvi_json *s;
    bool there = false;
    rv_status st = cli_learning_status(&t->learning, &arena, &s, err);
    const rvi_json *list = st ? NULL : rvi_json_get(s, "generations");
    for (size_t i = 0; i < rvi_json_count(list); i++)
        there |= rvi_json_int(rvi_json_get(rvi_json_at(list, i), "number"), 0) == number;
    if (!st && !there)
        st = rvi_error(err, RV_E_NOT_FOUND,
                       "there is no generation %d ('ruvllm learn status' lists them)", number);
    rvi_arena_deinit(&arena);
    return st;
}

static rv_status do_merge(learn *t, rv_error *err)
{
    rv_adaptation *a = NULL;
    int one, two;
    if (!read_number(t->args[0], &one) || !read_number(t->args[1], &two))
        return rvi_error(err, RV_E_CONFIG, "a generation must be a number");
    rv_status st = one == two
                       ? rvi_error(err, RV_E_CONFIG,
                                   "two different generations are needed (got %d twice)", one)
                       : need_generation(t, one, err);
    if (!st) st = need_generation(t, two, err);
    if (!st) st = rv_learner_merge(t->learning.l, one, two, t->how, &a, err);
    return st ? st : report(t, a, "Merged");
}

static rv_status do_log(learn *t, rv_error *err)
{
    uint64_t n = 0;
    rv_status st = rv_learner_verify_log(t->learning.l, &n, err);
    if (st) return st;
    rvi_buf_printf(&t->out,
                   t->json  ? "{\"records\":%llu,\"whole\":true"
                   : n == 1 ? "%llu record, the chain is whole.\n"
                            : "%llu records, the chain is whole.\n",
                   (unsigned long long)n);
    cli_lost_write(&t->learning, t->json, &t->out);
    if (t->json) rvi_buf_puts(&t->out, "}\n");
    return RV_OK;
}

static rv_status do_forget(learn *t, rv_error *err)
{
    rv_status st = cli_forget(&t->learning, t->args[0], t->yes, t->json, &t->out, err);
    return st ? st : cli_answers_forget(t->c, err);
}

static const struct {
    const char *name;
    int min_args, max_args;
    bool create; /* works where nothing was learned yet */
    rv_status (*run)(learn *t, rv_error *err);
} actions[] = {
    {"status", 0, 0, false, do_status},     {"run", 0, 0, false, do_run},
    {"pause", 0, 0, true, do_pause},        {"undo", 0, 0, false, do_undo},
    {"rollback", 0, 1, false, do_rollback}, {"export", 1, 1, false, do_export},
    {"import", 1, 1, true, do_import},      {"merge", 2, 2, false, do_merge},
    {"log", 1, 1, false, do_log},           {"forget", 1, 1, false, do_forget},
};

/* What can be seen to be wrong before the model is opened. */
static int check_arguments(const cli *c, learn *t, const char *action, const char *how,
                           const char *loss)
{
    int number;
    t->how = how && !strcmp(how, "quality") ? RV_MERGE_QUALITY_WEIGHTED : RV_MERGE_AVERAGE;
    t->loss = loss && !strcmp(loss, "kto") ? RV_LOSS_KTO : RV_LOSS_DPO;
    if (!strcmp(action, "log") && strcmp(t->args[0], "verify") != 0)
        return cli_usage(c, "log must be followed by verify (got '%s')", t->args[0]);
    if (strcmp(action, "merge") != 0 && strcmp(action, "rollback") != 0) return CLI_OK;
    for (int i = 0; i < t->n_args; i++)
        if (!read_number(t->args[i], &number))
            return cli_usage(c, "%s: a generation must be a number, 0 to 1000000 (got '%s')",
                             action, t->args[i]);
    return CLI_OK;
}

static int unknown_action(const cli *c, const char *name)
{
    const char *names[RVI_COUNT(actions) + 1] = {0};
    for (size_t i = 0; i < RVI_COUNT(actions); i++) names[i] = actions[i].name;
    const char *near = cli_nearest(name, names);
    if (near) return cli_usage(c, "unknown action '%s'; did you mean '%s'?", name, near);
    rvi_buf all = {0};
    for (size_t i = 0; i < RVI_COUNT(actions); i++)
        rvi_buf_printf(&all, "%s%s", i ? ", " : "", actions[i].name);
    int code = cli_usage(c, "unknown action '%s'; there are %s", name, all.data ? all.data : "");
    rvi_buf_deinit(&all);
    return code;
}

int cli_learn(cli *c, int argc, char **argv)
{
    learn t = {.c = c, .asked = "smollm2"};
    const char *how = NULL, *loss = NULL, *args[3];
    const cli_option table[] = {{"model", 'm', CLI_TEXT, &t.asked, &t.model_given},
                                {"adapter", 0, CLI_TEXT, &t.name, NULL},
                                {"json", 0, CLI_FLAG, &t.json, NULL},
                                {"deep", 0, CLI_FLAG, &t.deep, NULL},
                                {"loss", 0, CLI_TEXT, &loss, NULL},
                                {"how", 0, CLI_TEXT, &how, NULL},
                                {"generation", 0, CLI_INT, &t.generation, NULL},
                                {"force", 0, CLI_FLAG, &t.force, NULL},
                                {"yes", 'y', CLI_FLAG, &t.yes, NULL},
                                {"f16", 0, CLI_FLAG, &t.f16, NULL}};
    int n_args;
    bool done;
    int code = cli_parse(c, table, RVI_COUNT(table), argc, argv, args, 3, &n_args, &done);
    if (code || done) return code;
    if (!n_args)
        return cli_usage(c, "an action is needed: status, run, pause, undo, rollback, export, "
                            "import, merge, log verify or forget");
    size_t i = 0;
    while (i < RVI_COUNT(actions) && strcmp(args[0], actions[i].name) != 0) i++;
    if (i == RVI_COUNT(actions)) return unknown_action(c, args[0]);
    t.n_args = n_args - 1;
    memcpy(t.args, args + 1, (size_t)t.n_args * sizeof *args);
    if (t.n_args < actions[i].min_args || t.n_args > actions[i].max_args)
        return cli_usage(c, "learn %s takes %s (got %d)", args[0],
                         actions[i].run == do_forget ? "one text, in quotes if it has several words"
                         : actions[i].run == do_log  ? "one argument, verify"
                         : actions[i].max_args == 0  ? "no argument"
                         : actions[i].min_args == 0  ? "at most one argument"
                         : actions[i].max_args == 1  ? "one argument"
                                                     : "two arguments",
                         t.n_args);
    if ((code = check_arguments(c, &t, args[0], how, loss))) return code;
    if (t.name && (code = cli_check_name(c, t.name))) return code;

    rv_error err = {0};
    rv_status st = cli_open(c, t.asked, false, &t.model, &err);
    if (st && !t.model_given) {
        rv_error own = err;
        st = rvi_error(&err, st, "%s (-m names another model)", own.text);
    }
    if (!st) st = cli_learning_open(&t.learning, c, &t.model, t.name, actions[i].create, &err);
    if (!st && !t.learning.l && actions[i].run == do_status) {
        if (!t.json) put_model(&t);
        rvi_buf_puts(&t.out, t.json ? "{\"lessons\":0,\"waiting\":0,\"generations\":[],\"learned\":"
                                      "[],\"preferences\":[]}\n"
                                    : "Nothing was taught to this model yet.\n");
    } else if (!st && !t.learning.l && actions[i].run == do_run) {
        st = say_nothing_waits(&t);
    } else if (!st && !t.learning.l) {
        st = rvi_error(&err, RV_E_NOT_FOUND, "nothing was taught to this model yet");
    } else if (!st) {
        cli_interrupts_catch(
            actions[i].run == do_run ? "\nStopped; 'ruvllm learn run' goes on.\n" : "\n", false);
        cli_interrupts_leave();
        st = actions[i].run(&t, &err);
    }
    if (!st && !t.json && t.out.data) cli_hush(t.out.data, t.out.len);
    if (!st) code = cli_print(&t.out);
    rvi_buf_deinit(&t.out);
    cli_learning_close(&t.learning);
    cli_close(&t.model);
    if (!st && !code && cli_interrupted()) code = CLI_INTERRUPTED;
    return st ? cli_fail(&err) : code;
}
