/* teach: corrections and preferences, one or a file of them */
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "base/os.h"
#include "cli/conversation.h"
#include "cli/generation.h"
#include "cli/learning.h"

enum { MAX_LINE = 1 << 20 };

typedef struct teach {
    cli *c;
    cli_model model;
    cli_learning learning;
    bool instant, background, deep, json;
    const char *question, *answer, *name;
    size_t n; /* lessons taught */
    rvi_buf out;
} teach;

static void report(teach *t, const rv_adaptation *a)
{
    if (t->json)
        cli_learning_write(a, &t->out);
    else
        cli_learning_describe(a, &t->out);
    rvi_buf_putc(&t->out, '\n');
}

static rv_status correct(teach *t, const char *question, const char *answer, rv_error *err)
{
    rv_adaptation a = {0};
    rv_status st = cli_learning_check("the question", question, strlen(question), err);
    if (!st) st = cli_learning_check("the answer", answer, strlen(answer), err);
    if (!st) st = rv_learner_correct(t->learning.l, NULL, question, answer, &a, err);
    if (!st) {
        t->n++;
        report(t, &a);
    }
    return st;
}

static rv_status prefer(teach *t, const char *question, const char *chosen, const char *rejected,
                        rv_error *err)
{
    rv_adaptation a = {0};
    rv_status st = cli_learning_check("the question", question, strlen(question), err);
    if (!st) st = cli_learning_check("the chosen answer", chosen, strlen(chosen), err);
    if (!st) st = rv_learner_prefer(t->learning.l, question, chosen, rejected, &a, err);
    if (!st) {
        t->n++;
        report(t, &a);
    }
    return st;
}

/* One line of a file. */
static rv_status teach_line(teach *t, const rvi_buf *line, rv_error *err)
{
    rvi_arena arena = {.max = 16 << 20};
    const rvi_json *v;
    rv_status st = rvi_json_parse(&v, line->data, line->len, &arena, "lesson", err);
    if (!st) {
        const char *question = rvi_json_string(rvi_json_get(v, "question"), NULL),
                   *answer = rvi_json_string(rvi_json_get(v, "answer"), NULL),
                   *chosen = rvi_json_string(rvi_json_get(v, "chosen"), NULL),
                   *rejected = rvi_json_string(rvi_json_get(v, "rejected"), NULL);
        if (question && answer)
            st = correct(t, question, answer, err);
        else if (question && chosen && rejected)
            st = prefer(t, question, chosen, rejected, err);
        else
            st = rvi_error(err, RV_E_CONFIG,
                           "\"question\" and \"answer\", or \"question\", \"chosen\" and "
                           "\"rejected\" are needed");
    }
    rvi_arena_deinit(&arena);
    return st;
}

/* Lines before one that is wrong are learned: each is an event of its own. */
static rv_status teach_file(teach *t, const char *path, rv_error *err)
{
    bool standard = !strcmp(path, "-");
    FILE *f = standard ? stdin : fopen(path, "rb");
    rvi_buf line = {.max = MAX_LINE};
    rv_status st = RV_OK;
    size_t number = 0;
    if (!f) return rvi_error(err, RV_E_NOT_FOUND, "%s: cannot be read", path);
    while (!st && cli_read_line(f, &line)) {
        rv_error own = {0};
        number++;
        if (!line.len) continue;
        st = teach_line(t, &line, &own);
        if (st)
            st = rvi_error(err, st, "%s, line %zu: %s", path, number,
                           own.text[0] ? own.text : rv_status_text(st));
    }
    if (!st && line.failed)
        st = rvi_error(err, RV_E_CONFIG, "%s, line %zu: longer than %d bytes", path, number + 1,
                       MAX_LINE);
    if (!st && !t->n) st = rvi_error(err, RV_E_CONFIG, "%s: there is no lesson in it", path);
    if (!standard) fclose(f);
    rvi_buf_deinit(&line);
    return st;
}

static rv_status train(teach *t, rv_error *err)
{
    rv_adaptation a = {0};
    cli_progress bar = {0};
    rv_status st =
        rv_learner_consolidate(t->learning.l, t->deep ? RV_LOOP_DEEP : RV_LOOP_BACKGROUND,
                               RV_LOSS_DPO, cli_learning_progress, &bar, &a, err);
    cli_progress_end(&bar);
    if (!st) report(t, &a);
    return st;
}

/* What the question gets now. */
static rv_status show_answer(teach *t, rv_error *err)
{
    cli_generation g;
    cli_conversation talk = {0};
    rv_session *s = NULL;
    rv_generated out = {0};
    rvi_buf json = {0};
    int32_t *ids = NULL;
    size_t n = 0;
    rv_time now = cli_now();
    cli_generation_init(&g);
    if (cli_generation_settle(t->c, &g, true)) return rvi_error(err, RV_E_CONFIG, "options");
    g.options.max_tokens = 64;
    rv_status st = cli_conversation_add(&talk, "user", t->question, strlen(t->question), err);
    if (!st) st = cli_conversation_ids(&talk, t->model.m, true, &now, &ids, &n, err);
    if (!st) st = cli_generation_session(t->c, &g, t->model.m, &s, err);
    if (!st) st = cli_conversation_json(&talk, &json, err);
    if (!st) st = rv_learner_begin(t->learning.l, s, json.data, json.len, NULL, err);
    if (!st) st = cli_answer(&g, s, ids, n, false, &out, err);
    if (!st && t->json) {
        rvi_buf_puts(&t->out, "{\"answer\":");
        rvi_json_write_string(&t->out, out.text, out.text_len);
        rvi_buf_puts(&t->out, "}\n");
    } else if (!st) {
        rvi_buf_printf(&t->out, "%s\n", out.text);
    }
    rv_generated_free(&out);
    rv_session_free(&s);
    rv_free(ids);
    rvi_buf_deinit(&json);
    cli_conversation_deinit(&talk);
    return st;
}

int cli_teach(cli *c, int argc, char **argv)
{
    teach t = {.c = c};
    const cli_option table[] = {{"question", 'q', CLI_TEXT, &t.question, NULL},
                                {"answer", 'a', CLI_TEXT, &t.answer, NULL},
                                {"instant", 0, CLI_FLAG, &t.instant, NULL},
                                {"background", 0, CLI_FLAG, &t.background, NULL},
                                {"deep", 0, CLI_FLAG, &t.deep, NULL},
                                {"adapter", 0, CLI_TEXT, &t.name, NULL},
                                {"json", 0, CLI_FLAG, &t.json, NULL}};
    const char *args[2];
    int n_args;
    bool done;
    int code = cli_parse(c, table, RVI_COUNT(table), argc, argv, args, 2, &n_args, &done);
    if (code || done) return code;
    if (!n_args) return cli_usage(c, "a model is needed");
    if (t.instant + t.background + t.deep > 1)
        return cli_usage(c, "give one of --instant, --background and --deep");
    if (!t.question != !t.answer) return cli_usage(c, "-q and -a go together");
    if ((n_args > 1) == (t.question != NULL))
        return cli_usage(c, "give either -q and -a, or a file of lessons");

    if (t.name && (code = cli_check_name(c, t.name))) return code;

    rv_error err = {0};
    rv_status st = RV_OK;
    if (t.question) st = cli_learning_check("the question", t.question, strlen(t.question), &err);
    if (!st && t.answer) st = cli_learning_check("the answer", t.answer, strlen(t.answer), &err);
    if (!st) st = cli_open(c, args[0], 0, &t.model, &err);
    if (!st) st = cli_learning_open(&t.learning, c, t.model.m, t.name, true, &err);
    if (!st) cli_interrupts_catch("\n", false);
    if (!st)
        st = t.question ? correct(&t, t.question, t.answer, &err) : teach_file(&t, args[1], &err);
    if (!st && (t.background || t.deep)) st = train(&t, &err);
    if (!st && t.question) st = show_answer(&t, &err);
    /* what was learned before a failure is learned: it is reported in any case */
    if (!t.json && t.out.data) cli_hush(t.out.data, t.out.len);
    code = cli_print(&t.out);
    cli_learning_close(&t.learning);
    cli_close(&t.model);
    if (!st && !code && cli_interrupted()) code = CLI_INTERRUPTED;
    return st ? cli_fail(&err) : code;
}
