/* teach: corrections and preferences, one or a file of them */
#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "base/os.h"
#include "cli/conversation.h"
#include "cli/generation.h"
#include "cli/learning.h"
#include "cli/second_look.h"

#define NOTED "Noted; 'ruvllm learn run --deep' trains it"

enum { MAX_LINE = 1 << 20 };

/* A correction (answer), or a preference (chosen and rejected). */
typedef struct lesson {
    const char *question, *answer, *chosen, *rejected; /* question NULL: of scope always */
    rv_scope scope;
    uint64_t key; /* of the question */
    size_t line;  /* of the file; 0: of the command line */
} lesson;

typedef struct teach {
    cli *c;
    cli_model model;
    cli_learning learning;
    bool instant, background, deep, json;
    const char *question, *answer, *scope, *name;
    lesson *lessons;
    size_t n, cap, n_taught, n_known;
    const rvi_json *status; /* of the learner, in the arena; NULL: not looked at yet */
    rvi_arena arena;
    bool changed;    /* since then */
    rvi_arena texts; /* of the lessons */
    rvi_buf out;
} teach;

/* ---- reading: nothing is taught before all of it was found to be right ---- */

static rv_status check_text(const char *what, const char *text, rv_error *err)
{
    return cli_learning_check(what, text, strlen(text), err);
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* The next character of a text in which white space is one space, and none at the ends. */
static char next_char(const char **at, bool first)
{
    const char *p = *at;
    while (is_space(*p)) p++;
    bool space = p != *at && !first && *p;
    *at = space || !*p ? p : p + 1;
    return space ? ' ' : *p;
}

/* The same for texts that differ in white space alone (FNV-1a). */
static uint64_t key_of(const char *text)
{
    uint64_t key = 0xcbf29ce484222325u;
    bool first = true;
    for (char c; text && (c = next_char(&text, first)); first = false)
        key = (key ^ (unsigned char)c) * 0x100000001b3u;
    return key;
}

static rv_status add_lesson(teach *t, lesson l, rv_error *err)
{
    l.key = key_of(l.question);
    rv_status st = l.question ? check_text("the question", l.question, err) : RV_OK;
    if (!st && l.answer) st = check_text("the answer", l.answer, err);
    if (!st && l.chosen) st = check_text("the chosen answer", l.chosen, err);
    if (!st && l.rejected) st = check_text("the rejected answer", l.rejected, err);
    if (!st && t->n == t->cap) {
        size_t cap = t->cap ? t->cap * 2 : 64;
        lesson *grown = rvi_realloc_array(t->lessons, cap, sizeof *grown);
        if (!grown) return rvi_nomem(err, "lessons");
        t->lessons = grown;
        t->cap = cap;
    }
    if (!st) t->lessons[t->n++] = l;
    return st;
}

/* name NULL: topic. */
static rv_status read_scope(rv_scope *out, const char *name, rv_error *err)
{
    for (int i = RV_SCOPE_TOPIC; i <= RV_SCOPE_ALWAYS; i++)
        if (!strcmp(name ? name : "topic", rv_scope_name((rv_scope)i))) {
            *out = (rv_scope)i;
            return RV_OK;
        }
    return rvi_error(err, RV_E_CONFIG, "scope must be topic, exact or always (got '%s')", name);
}

/* What is needed of a lesson is there, and nothing that contradicts it. */
static rv_status check_lesson(const lesson *l, rv_error *err)
{
    bool always = l->scope == RV_SCOPE_ALWAYS;
    if (always && l->question)
        return rvi_error(err, RV_E_CONFIG,
                         "a lesson of scope always counts in every chat: it has no question");
    if (l->scope && !l->answer) return rvi_error(err, RV_E_CONFIG, "a preference has no scope");
    if (l->chosen && l->rejected && !strcmp(l->chosen, l->rejected))
        return rvi_error(err, RV_E_CONFIG, "\"chosen\" and \"rejected\" are the same text");
    if ((l->question || always) && (l->answer || (l->chosen && l->rejected))) return RV_OK;
    return rvi_error(err, RV_E_CONFIG,
                     "\"question\" and \"answer\", or \"question\", \"chosen\" and "
                     "\"rejected\" are needed");
}

/* NULL where there is none. */
static rv_status read_member(teach *t, const rvi_json *v, const char *name, const char **out,
                             rv_error *err)
{
    const rvi_json *text = rvi_json_get(v, name);
    *out = NULL;
    if (!text || rvi_json_is(text, RVI_JSON_NULL)) return RV_OK;
    if (!rvi_json_is(text, RVI_JSON_STRING))
        return rvi_error(err, RV_E_CONFIG, "\"%s\" must be a text, in quotes", name);
    if (memchr(text->as.string.data, 0, text->as.string.len))
        return rvi_error(err, RV_E_CONFIG, "\"%s\" holds a NUL character (\\u0000)", name);
    *out = rvi_arena_strndup(&t->texts, text->as.string.data, text->as.string.len);
    return *out ? RV_OK : rvi_nomem(err, "lessons");
}

static rv_status read_members(teach *t, const rvi_json *v, lesson *l, rv_error *err)
{
    const char *scope = NULL;
    rv_status st = read_member(t, v, "question", &l->question, err);
    if (!st) st = read_member(t, v, "answer", &l->answer, err);
    if (!st) st = read_member(t, v, "chosen", &l->chosen, err);
    if (!st) st = read_member(t, v, "rejected", &l->rejected, err);
    if (!st) st = read_member(t, v, "scope", &scope, err);
    return st ? st : read_scope(&l->scope, scope, err);
}

static rv_status read_line(teach *t, const rvi_buf *line, size_t number, rv_error *err)
{
    rvi_arena arena = {.max = 16 << 20};
    const rvi_json *v;
    rv_error own = {0};
    rv_status st = rvi_json_parse(&v, line->data, line->len, &arena, "", &own);
    if (st) {
        const char *reason =
            strstr(own.text, "line 1"); /* its own line number means nothing here */
        reason = reason ? reason + strlen("line 1") : own.text;
        st = rvi_error(err, st, "not JSON%s%s", *reason == ':' || *reason == ',' ? "" : ": ",
                       reason);
    }
    if (!st) {
        lesson l = {.line = number};
        st = read_members(t, v, &l, err);
        if (!st) st = check_lesson(&l, err);
        if (!st) st = add_lesson(t, l, err);
    }
    rvi_arena_deinit(&arena);
    return st;
}

/* All lines of a file; on failure the error is of the first that is wrong. */
static rv_status read_lessons(teach *t, const char *path, rv_error *err)
{
    bool standard = !strcmp(path, "-");
    bool is_dir = !standard && rvi_os_stat(path, NULL) == RVI_OS_DIR;
    FILE *f = standard ? stdin : is_dir ? NULL : fopen(path, "rb");
    rvi_buf line = {.max = MAX_LINE};
    rv_status st = RV_OK;
    size_t number = 0, n_wrong = 0;
    if (!f)
        return rvi_error(err, RV_E_NOT_FOUND, "%s: %s; a file of lessons is needed, or -q and -a",
                         path, is_dir ? "a directory" : strerror(errno));
    while (cli_read_line(f, &line)) {
        rv_error own = {0};
        number++;
        if (!line.len || !read_line(t, &line, number, &own)) continue;
        if (!n_wrong++)
            st = rvi_error(err, own.code, "%s, line %zu: %s", path, number,
                           own.text[0] ? own.text : rv_status_text(own.code));
    }
    if (!st && line.failed)
        st = rvi_error(err, RV_E_CONFIG, "%s, line %zu: longer than %d bytes", path, number + 1,
                       MAX_LINE);
    if (!st && !t->n) st = rvi_error(err, RV_E_CONFIG, "%s: holds no lesson", path);
    if (st && n_wrong && number > 1) {
        rv_error own = *err;
        st = rvi_error(err, st, "%s; nothing was taught (%zu of %zu lines wrong)", own.text,
                       n_wrong, number);
    }
    if (!standard) fclose(f);
    rvi_buf_deinit(&line);
    return st;
}

/* ---- teaching ---- */

static bool same_text(const char *a, const char *b)
{
    bool first = true;
    for (;; first = false) {
        char x = next_char(&a, first), y = next_char(&b, first);
        if (x != y) return false;
        if (!x) return true;
    }
}

static bool says(const rvi_json *entry, const char *name, const char *text)
{
    const char *known = rvi_json_string(rvi_json_get(entry, name), NULL);
    return known && same_text(known, text);
}

/* Is exactly this in the list of what was taught, and still spoken? */
static bool is_listed(const rvi_json *status, const lesson *l)
{
    const rvi_json *list = rvi_json_get(status, l->chosen     ? "preferences"
                                                : l->question ? "learned"
                                                              : "instructions");
    for (size_t i = 0; i < rvi_json_count(list); i++) {
        const rvi_json *x = rvi_json_at(list, i);
        if (l->question && !says(x, "question", l->question)) continue;
        if (rvi_json_bool(rvi_json_get(x, "silent"), false)) continue;
        if (l->chosen ? says(x, "chosen", l->chosen) && says(x, "rejected", l->rejected)
            : l->question
                ? says(x, "answer", l->answer) && says(x, "scope", rv_scope_name(l->scope))
                : says(x, "text", l->answer))
            return true;
    }
    return false;
}

/* Was a lesson for the same question taught before it by this command? */
static bool comes_again(const teach *t, const lesson *l)
{
    for (const lesson *x = t->lessons; x < l; x++)
        if (x->key == l->key) return true;
    return false;
}

/* Whether exactly this was taught and still counts. The learner is asked again only where what it
 * said before may be no longer so: a file may hold thousands of lessons. */
static rv_status look_up(teach *t, const lesson *l, bool *known, rv_error *err)
{
    *known = t->status && is_listed(t->status, l);
    if (t->status && !(t->changed && (*known || comes_again(t, l)))) return RV_OK;
    rvi_arena_deinit(&t->arena);
    t->arena = (rvi_arena){0};
    t->changed = false;
    rv_status st = cli_learning_status(&t->learning, &t->arena, &t->status, err);
    if (!st) *known = is_listed(t->status, l);
    return st;
}

static rv_status teach_one(teach *t, const lesson *l, rv_error *err)
{
    rv_adaptation *a = NULL;
    bool known;
    rv_status st = look_up(t, l, &known, err);
    if (!st && !known)
        st = l->answer
                 ? rv_learner_teach(t->learning.l, NULL, l->question, l->answer, l->scope, &a, err)
                 : rv_learner_prefer(t->learning.l, l->question, l->chosen, l->rejected, &a, err);
    if (st) return st;
    if (known || !a->applied) { /* the learner passes over other marks, too */
        rv_free(a);
        t->n_known++;
        if (t->json) {
            cli_learning_write(&(rv_adaptation){.notes = "already known"}, &t->out);
            rvi_buf_putc(&t->out, '\n');
        } else {
            rvi_buf_printf(&t->out, "Already known: %s\n", l->question ? l->question : l->answer);
        }
        return RV_OK;
    }
    t->n_taught++;
    t->changed = true;
    rvi_buf said = {0};
    if (l->answer) cli_learning_said(&said, "Learned", l->answer);
    if (!said.failed) cli_hush_line(said.data, said.len);
    cli_learning_report(t->c, a, l->answer ? said.data : NOTED, t->json, &t->out);
    rvi_buf_deinit(&said);
    return RV_OK;
}

static rv_status teach_all(teach *t, const char *path, rv_error *err)
{
    rv_status st = RV_OK;
    for (size_t i = 0; !st && !cli_interrupted() && i < t->n; i++) {
        rv_error own = {0};
        st = teach_one(t, &t->lessons[i], path ? &own : err);
        if (st && path)
            st = rvi_error(err, st, "%s, line %zu: %s", path, t->lessons[i].line,
                           own.text[0] ? own.text : rv_status_text(st));
    }
    if (path && !t->json)
        rvi_buf_printf(&t->out, "%zu lesson%s: %zu taught, %zu already known%s\n", t->n,
                       t->n == 1 ? "" : "s", t->n_taught, t->n_known,
                       t->n_taught + t->n_known < t->n ? ", the rest not" : "");
    return st;
}

static rv_status train(teach *t, rv_error *err)
{
    rv_adaptation *a = NULL;
    int before = 0;
    rv_status st = cli_second_look_newest(&t->learning, &before, err);
    if (!st)
        st = cli_learning_train(&t->learning, t->deep ? RV_LOOP_DEEP : RV_LOOP_BACKGROUND,
                                RV_LOSS_DPO, &a, err);
    if (st == RV_E_CANCELLED)
        return rvi_error(err, st, "training stopped; 'ruvllm learn run' goes on");
    if (st) return st;
    char said[64];
    snprintf(said, sizeof said, "Trained on %d lesson%s", a->samples_used,
             a->samples_used == 1 ? "" : "s");
    cli_learning_report(t->c, a, said, t->json, &t->out);
    return t->json ? RV_OK
                   : cli_second_look_trained(t->model.m, &t->learning, before, &t->out, err);
}

/* Whether the lesson of the command line is so now. */
static rv_status look_again(teach *t, rv_session *s, rv_error *err)
{
    if (t->json) return RV_OK;
    rv_status st = cli_second_look_taught(t->model.m, t->learning.l, s, t->question, t->answer,
                                          t->lessons[0].scope, "--scope exact", &t->out, err);
    rvi_buf_putc(&t->out, '\n');
    return st;
}

/* The next lesson of the file for the same question, which counts instead; NULL: none. */
static const lesson *next_of(const teach *t, const lesson *l)
{
    for (const lesson *x = l + 1; x < t->lessons + t->n; x++)
        if (x->key == l->key && x->answer && x->question) return x;
    return NULL;
}

/* Most likely a slip; the later line counts. */
static void warn_of_contradictions(const teach *t, const char *path)
{
    enum { SHOWN = 10 };
    size_t n = 0;
    for (const lesson *l = t->lessons; l < t->lessons + t->n; l++) {
        const lesson *x = l->answer && l->question ? next_of(t, l) : NULL;
        if (!x || same_text(x->answer, l->answer) || n++ >= SHOWN) continue;
        cli_warn("%s, lines %zu and %zu: two answers to one question; that of line %zu counts",
                 path, l->line, x->line, x->line);
    }
    if (n > SHOWN) cli_warn("%s: the same of %zu more lines", path, n - SHOWN);
}

/* How many lessons of a file are so now; of a long one, only the first are looked at. */
static rv_status look_at_all(teach *t, rv_error *err)
{
    enum { MOST = 200, CONTEXT = 512 };
    cli_looks k = {0};
    rv_session *s = NULL;
    rv_session_options o = {.size = sizeof o};
    o.n_context = RVI_MIN(rv_model_get_info(t->model.m)->n_context, CONTEXT);
    rv_status st = rv_session_new(&s, t->model.m, &o, err);
    for (size_t i = 0; !st && i < t->n && k.n < MOST && !cli_interrupted(); i++) {
        const lesson *l = &t->lessons[i];
        if (l->answer && l->question && !next_of(t, l))
            st = cli_second_look_count(t->learning.l, s, l->question, l->answer, l->scope, &k, err);
    }
    rv_session_free(&s);
    if (st || !k.n) return st;
    rvi_buf_printf(
        &t->out,
        "asked again: %zu of %zu get their answer, %zu of %zu other wordings too; %zu of "
        "%zu neighbours changed\n",
        k.taken, k.n, k.recognised, k.n_wordings, k.changed, k.n_others);
    return RV_OK;
}

/* What the question gets now. */
static rv_status show_answer(teach *t, rv_error *err)
{
    cli_generation g;
    cli_conversation talk = {0};
    rv_session *s = NULL;
    rv_answer *out = NULL;
    rv_learn_plan *plan = NULL;
    rvi_buf json = {0};
    int32_t *ids = NULL;
    size_t n = 0;
    rv_time now = cli_now();
    cli_generation_init(&g);
    if (cli_generation_resolve(t->c, &g, true)) return rvi_error(err, RV_E_CONFIG, "options");
    g.options.max_tokens = 64;
    rv_status st = cli_conversation_add(&talk, "user", t->question, strlen(t->question), err);
    if (!st)
        st = cli_conversation_ids(&talk, t->model.m, t->learning.l, false, &now, &ids, &n, err);
    if (!st) st = cli_generation_session(t->c, &g, &t->model, &s, err);
    if (!st) st = look_again(t, s, err);
    if (!st) st = cli_conversation_json(&talk, &json, err);
    if (!st) st = cli_conversation_begin(t->learning.l, s, &json, &plan, err);
    g.options.max_tokens = cli_generation_most(&g, t->model.m, plan);
    if (!st) st = cli_answer(&g, s, ids, n, false, &out, err);
    if (!st && t->json) {
        rvi_buf_puts(&t->out, "{\"answer\":");
        rvi_json_write_string(&t->out, out->text, out->text_len);
        rvi_buf_puts(&t->out, "}\n");
    } else if (!st) {
        rvi_buf_printf(&t->out, "%s\n", out->text);
    }
    rv_free(out);
    rv_free(plan);
    rv_session_free(&s);
    rv_free(ids);
    rvi_buf_deinit(&json);
    cli_conversation_deinit(&talk);
    return st;
}

static int print(teach *t)
{
    if (!t->json && t->out.data) cli_hush(t->out.data, t->out.len);
    return cli_print(&t->out);
}

int cli_teach(cli *c, int argc, char **argv)
{
    teach t = {.c = c};
    const cli_option table[] = {{"question", 'q', CLI_TEXT, &t.question, NULL},
                                {"answer", 'a', CLI_TEXT, &t.answer, NULL},
                                {"scope", 0, CLI_TEXT, &t.scope, NULL},
                                {"instant", 0, CLI_FLAG, &t.instant, NULL},
                                {"background", 0, CLI_FLAG, &t.background, NULL},
                                {"deep", 0, CLI_FLAG, &t.deep, NULL},
                                {"adapter", 0, CLI_TEXT, &t.name, NULL},
                                {"json", 0, CLI_FLAG, &t.json, NULL}};
    const char *args[3];
    int n_args;
    bool done;
    int code = cli_parse(c, table, RVI_COUNT(table), argc, argv, args, 3, &n_args, &done);
    if (code || done) return code;
    if (!n_args) return cli_usage(c, CLI_MODEL_NEEDED);
    if (t.instant + t.background + t.deep > 1)
        return cli_usage(c, "give one of --instant, --background and --deep");
    if (n_args > 2) return cli_usage(c, "a question and its answer are given by -q and -a");
    if (t.name && (code = cli_check_name(c, t.name))) return code;
    bool always = t.scope && !strcmp(t.scope, "always");
    if (always && t.question) return cli_usage(c, "a lesson of --scope always has no -q");
    if (!always && !t.question != !t.answer) return cli_usage(c, "-q and -a go together");
    if ((n_args > 1) == (t.answer != NULL))
        return cli_usage(c, "give either -q and -a, or a file of lessons");
    if (t.scope && !t.answer) return cli_usage(c, "in a file each lesson has its own \"scope\"");
    rv_error err = {0};
    lesson one = {.question = t.question, .answer = t.answer};
    if (read_scope(&one.scope, t.scope, &err)) return cli_usage(c, "--%s", err.text);
    const char *path = t.answer ? NULL : args[1];
    rv_status st = path ? read_lessons(&t, path, &err) : add_lesson(&t, one, &err);
    if (!st && path) warn_of_contradictions(&t, path);
    if (!st) st = cli_open(c, args[0], false, &t.model, &err);
    if (!st) st = cli_learning_open(&t.learning, c, &t.model, t.name, true, &err);
    if (!st) cli_interrupts_catch("\n", false);
    if (!st) st = teach_all(&t, path, &err);
    code = print(&t); /* what was learned before a failure is learned: it is reported in any case */
    if (!st && !code && !t.json && cli_learning_hint(&t.learning))
        fprintf(stderr, "ruvllm: note: %s\n", cli_learning_hint(&t.learning));
    cli_interrupts_leave();
    if (!st && !code && (t.background || t.deep)) st = train(&t, &err);
    if (!st && !code && t.question) st = show_answer(&t, &err);
    if (!st && !code && path && !t.json && t.n_taught) st = look_at_all(&t, &err);
    if (!code) code = print(&t);
    cli_learning_close(&t.learning);
    cli_close(&t.model);
    rvi_free(t.lessons);
    rvi_arena_deinit(&t.texts);
    rvi_arena_deinit(&t.arena);
    if (!st && !code && cli_interrupted()) code = CLI_INTERRUPTED;
    return st ? cli_fail(&err) : code;
}
