/* chat: a conversation on a terminal, or line by line from standard input.
 *
 * The conversation is a list of messages, rendered again for each turn; the session reuses the
 * common prefix. A turn that fails or does not fit leaves the conversation unchanged. */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/number.h"
#include "base/os.h"
#include "cli/chat.h"
#include "cli/conversation.h"
#include "cli/editor.h"
#include "cli/learning.h"
#include "cli/screen.h"
#include "cli/second_look.h"

typedef struct last_answer {
    bool made;
    int n_prompt, n_reused;
    size_t n_answer;
    double prompt_seconds, seconds;
    uint64_t seed;
} last_answer;

typedef struct chat {
    cli *c;
    cli_generation *g;
    const char *name; /* of the model, as it was given */
    cli_model model;
    rv_model_info info;
    rv_session *session;
    cli_conversation talk;
    rv_time
        now; /* when the chat began: a template that prints it renders the same past each turn */
    last_answer last;
    cli_learning learning;
    rv_error no_learning; /* why there is none */
    bool same_seed;       /* of the next answer: as of the last one */
    bool is_captured;     /* the conversation's last answer is what the learner can judge */
    rv_learn_plan *plan;  /* what took part in the last answer; NULL: nothing */
    bool hinted;          /* was told what lessons are recognised by */
    /* on a terminal alone */
    cli_editor *editor;
    FILE *screen;
    bool colour, quit;
} chat;

/* ---- saying things ---- */

/* A line, broken between words. */
static void say(const chat *t, const char *text)
{
    cli_screen screen;
    cli_screen_init(&screen, t->screen);
    (void)cli_screen_put(&screen, text, strlen(text));
    (void)cli_screen_end(&screen);
    fputc('\n', t->screen);
}

/* A remark beside the conversation: dim where there are colours. */
static void remark(const chat *t, const char *fmt, ...) RVI_PRINTF(2, 3);
static void remark(const chat *t, const char *fmt, ...)
{
    char text[2048];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (t->colour) fputs("\033[2m", t->screen);
    say(t, text);
    if (t->colour) fputs("\033[0m", t->screen);
    fflush(t->screen);
}

static void remark_error(const chat *t, const rv_error *err)
{
    rv_error shown = *err;
    cli_hush_line(shown.text, strlen(shown.text));
    remark(t, "%s", shown.text[0] ? shown.text : rv_status_text(shown.code));
}

static void remark_full(const chat *t, const char *what, size_t n_tokens)
{
    int context = rv_session_context(t->session);
    remark(t, "%s: %zu tokens, and the context holds %d. Nothing is lost:", what, n_tokens,
           context);
    remark(t, "  /drop N forgets the N oldest turns, /clear all of them;");
    if (t->info.n_context > context)
        remark(t,
               "  or /save FILE, begin again with --ctx N (this model was made for up to %d), and "
               "/load FILE.",
               t->info.n_context);
    else
        remark(t, "  this model was not made for more than %d tokens.", context);
}

/* ---- turns ---- */

static void remark_answer(const chat *t, const rv_answer *g)
{
    int context = rv_session_context(t->session);
    size_t used = (size_t)g->n_prompt + g->n_ids;
    if (g->finish == RV_FINISH_CANCELLED)
        remark(t, "(stopped)");
    else if (g->finish == RV_FINISH_LENGTH && used >= (size_t)context)
        remark_full(t, "The answer ends here because the context is full", used);
    else if (g->finish == RV_FINISH_LENGTH)
        remark(t, "(cut at %zu tokens; /max N allows more)", g->n_ids);
    if (t->c->verbose)
        remark(t, "%zu tokens, %.1f/s; prompt %d, %d of it reused, %.2f s; seed %llu", g->n_ids,
               cli_rate(g->n_ids, g->seconds), g->n_prompt, g->n_reused, g->prompt_seconds,
               (unsigned long long)t->g->sampling.seed);
}

/* Which lessons and adapters take part in the answer to the current conversation, if anything was
 * learned. */
static rv_status begin_learned(chat *t, rv_error *err)
{
    rvi_buf json = {0};
    t->is_captured = false;
    if (!t->learning.l) return RV_OK;
    rv_status st = cli_conversation_json(&t->talk, &json, err);
    rv_free(t->plan);
    t->plan = NULL;
    if (!st) st = cli_conversation_begin(t->learning.l, t->session, &json, &t->plan, err);
    rvi_buf_deinit(&json);
    return st;
}

/* Answers the last message, which is the user's. *answered: an assistant's message was added
 * (perhaps an incomplete answer). */
static rv_status answer(chat *t, bool *answered, rv_error *err)
{
    int32_t *ids = NULL;
    size_t n = 0;
    rv_answer *g = NULL;
    bool full = false;
    *answered = false;
    rv_status st = cli_conversation_ids(&t->talk, t->model.m, t->learning.l, t->g->special, &t->now,
                                        &ids, &n, err);
    if (!st && n >= (size_t)rv_session_context(t->session)) {
        full = true;
        if (t->editor)
            remark_full(t, "The conversation with this message does not fit", n);
        else
            st = rvi_error(err, RV_E_TOO_LONG,
                           "the conversation has %zu tokens and no longer fits the context of %d; "
                           "start again, or with a larger --ctx",
                           n, rv_session_context(t->session));
    }
    if (!st && !full) {
        if (!t->g->seed_given && !t->same_seed) t->g->sampling.seed = rvi_os_random();
        st = begin_learned(t, err);
        if (!st) st = cli_answer(t->g, t->session, ids, n, true, &g, err);
        fputc('\n', stdout);
        if (fflush(stdout) && !st)
            st = rvi_error(err, RV_E_IO, "cannot write the answer: %s", strerror(errno));
        /* what came before a failure is part of the conversation too */
        *answered = g && (g->text_len || (!st && g->finish != RV_FINISH_CANCELLED));
        if (*answered) {
            t->last = (last_answer){
                true,       g->n_prompt,        g->n_reused, g->n_ids, g->prompt_seconds,
                g->seconds, t->g->sampling.seed};
            t->is_captured = true;
        }
        rv_error add = {0};
        if (*answered && cli_conversation_add(&t->talk, "assistant", g->text, g->text_len, &add)) {
            *answered = false;
            if (!st) {
                *err = add;
                st = add.code;
            }
        }
        if (t->editor && !st) remark_answer(t, g);
    }
    rv_free(g);
    rv_free(ids);
    return st;
}

static rv_status turn(chat *t, const char *text, size_t len, rv_error *err)
{
    bool answered = false;
    size_t before = t->talk.n;
    rv_status st = cli_conversation_add(&t->talk, "user", text, len, err);
    if (!st) st = answer(t, &answered, err);
    if (!answered) {
        cli_conversation_cut(&t->talk, before);
        if (t->editor)
            remark(t, "(your message is not part of the conversation; arrow up brings it back)");
    }
    return st;
}

/* ---- learning ---- */

/* Returns the learner, or NULL after telling the user why there is none. */
static rv_learner *learner(const chat *t)
{
    if (!t->learning.l)
        remark(t, "Nothing is learned here: %s",
               t->no_learning.text[0] ? t->no_learning.text : "--no-learn or --lora was given");
    return t->learning.l;
}

/* The conversation ends with a question and its answer. */
static bool is_answered(const chat *t)
{
    size_t n = t->talk.n;
    return n > 1 && !t->talk.messages[n - 1].is_user && t->talk.messages[n - 2].is_user;
}

/* A judgement is of tokens that the learner saw being chosen. Those of the last answer are gone if
 * another prompt was begun since, or if it came out of a file: then the answer is made again,
 * unseen, by the same seed. True if it is the same one. */
static bool capture_again(chat *t, rv_error *err)
{
    int32_t *ids = NULL, *old = NULL;
    size_t n = 0, n_old = 0;
    rv_answer *g = NULL;
    rvi_buf text = {0};
    int most = t->g->options.max_tokens;
    uint64_t seed = t->g->sampling.seed;
    cli_conversation_text(&t->talk, t->talk.n - 1, &text);
    rv_status st =
        rv_tokenize(t->model.m, text.data ? text.data : "", text.len, 0, &old, &n_old, err);
    t->talk.n--; /* the answer, for a while */
    if (!st)
        st = cli_conversation_ids(&t->talk, t->model.m, t->learning.l, t->g->special, &t->now, &ids,
                                  &n, err);
    if (!st) st = begin_learned(t, err);
    t->talk.n++;
    t->g->options.max_tokens = (int)(t->last.made ? t->last.n_answer : n_old + 1);
    if (t->last.made) t->g->sampling.seed = t->last.seed;
    if (!st && n_old) st = cli_answer(t->g, t->session, ids, n, false, &g, err);
    t->g->options.max_tokens = most;
    t->g->sampling.seed = seed;
    /* an answer that was stopped may lack the end of its last character */
    t->is_captured = !st && g && g->text_len >= text.len &&
                     (t->last.made || g->text_len == text.len) &&
                     !memcmp(g->text, text.data, text.len);
    rvi_buf_deinit(&text);
    rv_free(g);
    rv_free(ids);
    rv_free(old);
    return t->is_captured;
}

/* The learner if the last answer can be judged; NULL after saying why it cannot. */
static rv_learner *judge(chat *t)
{
    rv_error err = {0};
    rv_learner *l = learner(t);
    if (!l) return NULL;
    if (!is_answered(t))
        remark(t, "There is no answer to judge yet.");
    else if (t->is_captured || capture_again(t, &err))
        return l;
    else if (err.text[0])
        remark_error(t, &err);
    else
        remark(t, "This answer was not made here just now, so it cannot be judged. /fix ANSWER "
                  "teaches the right one, or ask again.");
    return NULL;
}

/* Asks the last question again, with the same seed: what differs was learned. An answer that fails
 * leaves the old one. */
static void ask_again(chat *t)
{
    rv_error err = {0};
    bool answered = false;
    if (!is_answered(t)) return;
    cli_message old = t->talk.messages[t->talk.n - 1];
    t->talk.n--; /* taken out, and back in where there is no new one */
    t->same_seed = true;
    if (t->last.made && !t->g->seed_given) t->g->sampling.seed = t->last.seed;
    rv_status st = answer(t, &answered, &err);
    t->same_seed = false;
    if (st) remark_error(t, &err);
    if (answered)
        rvi_free(old.json);
    else
        t->talk.messages[t->talk.n++] = old;
}

/* What was taught, or turned down, about the last question: for a second look. */
typedef struct judged {
    const char *question, *answer; /* taught; answer NULL: nothing was */
    rv_scope scope;
    const rv_learn_plan *spoken; /* turned down; NULL: no lesson was */
} judged;

/* Says whether it is so now. */
static void look_again(chat *t, const judged *j)
{
    rvi_buf line = {0};
    rv_error err = {0};
    rv_status st = RV_OK;
    t->is_captured = false;
    if (j->answer)
        st = cli_second_look_taught(t->learning.l, t->session, j->question, j->answer, j->scope,
                                    "/fix --exact", &line, &err);
    else if (j->spoken)
        st =
            cli_second_look_refused(t->learning.l, t->session, j->question, j->spoken, &line, &err);
    if (st) remark_error(t, &err);
    if (!st && line.data && !line.failed) {
        cli_hush_line(line.data, line.len);
        remark(t, "%s", line.data);
    }
    rvi_buf_deinit(&line);
}

/* Says what an event changed (said: in these words), looks whether it did (j; NULL: not), and shows
 * the answer as it is now. Frees a. */
static void show_change(chat *t, rv_status st, rv_adaptation *a, const char *said, const judged *j,
                        rv_error *err)
{
    rvi_buf line = {0};
    if (st) {
        (void)cli_learning_explain(&t->learning, st, err);
        remark_error(t, err);
        return;
    }
    cli_learning_describe(a, said, t->c->verbose, &line);
    if (line.data) {
        cli_hush(line.data, line.len);
        remark(t, "%s", line.data);
    }
    rvi_buf_deinit(&line);
    bool applied = a->applied;
    rv_free(a);
    if (applied && j) look_again(t, j);
    if (applied) ask_again(t);
}

static void good(chat *t, const char *argument)
{
    rv_error err = {0};
    rv_adaptation *a = NULL;
    rv_learner *l = judge(t);
    (void)argument;
    if (!l) return;
    rv_status st = rv_learner_thumb(l, t->session, 1, &a, &err);
    show_change(t, st, a, cli_learning_step, NULL, &err);
}

static void bad(chat *t, const char *argument)
{
    rv_error err = {0};
    rv_adaptation *a = NULL;
    rv_learner *l = judge(t);
    (void)argument;
    if (!l) return;
    rvi_buf question = {0};
    rv_learn_plan *spoken = t->plan && t->plan->slot ? t->plan : NULL;
    if (spoken) t->plan = NULL; /* the next answer has another one */
    cli_conversation_text(&t->talk, t->talk.n - 2, &question);
    rv_status st = rv_learner_thumb(l, t->session, 0, &a, &err);
    judged j = {.question = question.data ? question.data : "", .spoken = spoken};
    show_change(t, st, a, "Noted: not this answer again when this is asked", spoken ? &j : NULL,
                &err);
    rvi_buf_deinit(&question);
    rv_free(spoken);
}

/* "--exact TEXT": the scope, and what follows it. */
static rv_scope read_scope(const char **argument)
{
    for (int i = RV_SCOPE_TOPIC; i <= RV_SCOPE_ALWAYS; i++) {
        const char *name = rv_scope_name((rv_scope)i), *at = *argument;
        size_t len = strlen(name);
        if (strncmp(at, "--", 2) || strncmp(at + 2, name, len)) continue;
        at += 2 + len;
        if (*at && *at != ' ') continue;
        while (*at == ' ') at++;
        *argument = at;
        return (rv_scope)i;
    }
    return RV_SCOPE_TOPIC;
}

/* A correction needs no more than the question, which a conversation out of a file has too; an
 * instruction for every chat needs none. */
static void fix(chat *t, const char *argument)
{
    rv_error err = {0};
    rv_adaptation *a = NULL;
    rvi_buf question = {0}, said = {0};
    rv_learner *l = learner(t);
    if (!l) return;
    rv_scope scope = read_scope(&argument);
    if (scope != RV_SCOPE_ALWAYS && !is_answered(t)) {
        remark(t, "There is no answer to correct yet.");
        return;
    }
    if (!*argument) {
        remark(t, "/fix takes the right answer: /fix ANSWER; with --exact before it, it counts for "
                  "this very question alone; /fix --always TEXT is read before every chat.");
        return;
    }
    if (is_answered(t)) cli_conversation_text(&t->talk, t->talk.n - 2, &question);
    rvi_buf_printf(
        &said, scope == RV_SCOPE_ALWAYS ? "Read before every chat from now on: %s" : "Learned: %s",
        argument);
    rv_status st = cli_learning_check("the correct answer", argument, strlen(argument), &err);
    const char *asked = t->is_captured || scope == RV_SCOPE_ALWAYS ? NULL
                        : question.data                            ? question.data
                                                                   : "";
    if (!st) st = rv_learner_teach(l, asked ? NULL : t->session, asked, argument, scope, &a, &err);
    judged j = {question.data ? question.data : "", argument, scope, NULL};
    show_change(t, st, a, said.data, scope == RV_SCOPE_ALWAYS ? NULL : &j, &err);
    if (!st && !t->hinted && cli_learning_hint(&t->learning)) {
        remark(t, "(%s)", cli_learning_hint(&t->learning));
        t->hinted = true;
    }
    rvi_buf_deinit(&question);
    rvi_buf_deinit(&said);
}

static void score(chat *t, const char *argument)
{
    rv_error err = {0};
    rv_adaptation *a = NULL;
    const char *end;
    double v = rvi_number_parse(argument, &end);
    bool is_number = *argument && !*end && v >= 0 && v <= 1;
    rv_learner *l = is_number ? judge(t) : learner(t);
    if (l && !is_number) remark(t, "/score takes a number from 0 (bad) to 1 (good).");
    if (!l || !is_number) return;
    rv_status st = rv_learner_score(l, t->session, v, &a, &err);
    show_change(t, st, a, cli_learning_step, NULL, &err);
}

static void undo(chat *t, const char *argument)
{
    rv_error err = {0};
    rv_adaptation *a = NULL;
    rv_learner *l = learner(t);
    (void)argument;
    if (!l) return;
    rv_status st = rv_learner_undo(l, &a, &err);
    show_change(t, st, a, NULL, NULL, &err);
}

static void learned(chat *t, const char *argument)
{
    rv_error err = {0};
    rvi_buf out = {0};
    (void)argument;
    if (!learner(t)) return;
    if (cli_learning_print(&t->learning, &out, &err))
        remark_error(t, &err);
    else if (out.data)
        cli_put_text(t->screen, out.data, out.len, true);
    fflush(t->screen);
    rvi_buf_deinit(&out);
}

/* The learned state, and on a terminal training while the user reads and types. A chat goes on
 * without where it cannot be had. */
static void open_learning(chat *t, bool terminal)
{
    rv_error err = {0};
    if (t->g->no_learn || t->g->lora.n) return;
    rv_status st =
        cli_learning_open(&t->learning, t->c, &t->model, t->g->learned, true, &t->no_learning);
    if (!st) (void)cli_learning_claim(&t->learning, CLI_CHATTING);
    if (!st && terminal && !t->learning.paused) st = rv_learner_start(t->learning.l, &err);
    if (st && t->no_learning.text[0]) {
        cli_learning_close(&t->learning);
        if (t->c->verbose || t->g->learned) cli_warn("nothing is learned: %s", t->no_learning.text);
    } else if (st) {
        cli_warn("no training in the background: %s", err.text);
    }
}

/* ---- commands ---- */

typedef struct command {
    const char *name, *argument, *help;
    void (*run)(chat *t, const char *argument);
} command;

static void show_help(chat *t, const char *argument);

static void set_system(chat *t, const char *argument)
{
    rvi_buf text = {0};
    rv_error err = {0};
    if (*argument) {
        if (cli_conversation_set_system(&t->talk, strcmp(argument, "-") ? argument : NULL, &err))
            remark_error(t, &err);
        else
            remark(t, "The conversation has %s from its first message on.",
                   strcmp(argument, "-") ? "this system message" : "no system message");
    } else if (cli_conversation_system(&t->talk, &text)) {
        cli_put_text(t->screen, text.data ? text.data : "", text.len, true);
        fputc('\n', t->screen);
    } else {
        remark(t, "There is no system message; /system TEXT sets one.");
    }
    rvi_buf_deinit(&text);
}

static void clear(chat *t, const char *argument)
{
    (void)argument;
    cli_conversation_cut(&t->talk, t->talk.n && t->talk.messages[0].is_system);
    t->last = (last_answer){0};
    remark(t, "A new conversation%s.", t->talk.n ? " with the same system message" : "");
}

static void drop(chat *t, const char *argument)
{
    char *end;
    long n = *argument ? strtol(argument, &end, 10) : 1;
    if (*argument && (*end || n < 1)) {
        remark(t, "/drop takes a whole number of turns, at least 1.");
        return;
    }
    size_t dropped = cli_conversation_drop_turns(&t->talk, (size_t)n);
    remark(t, "%zu turn%s forgotten.", dropped, dropped == 1 ? "" : "s");
}

/* FILE as the user means it: "~/" is the home directory, and a leading dash is part of a name. */
static bool file_name(const chat *t, const char *argument, rvi_buf *path)
{
    const char *home = getenv("HOME");
    if (!*argument)
        remark(t, "A file name is needed.");
    else if (!strncmp(argument, "~/", 2) && home && *home)
        rvi_buf_printf(path, "%s%s", home, argument + 1);
    else
        rvi_buf_printf(path, *argument == '-' ? "./%s" : "%s", argument);
    return path->data != NULL;
}

static void save_file(chat *t, const char *argument, bool replaces)
{
    rvi_buf path = {0};
    rv_error err = {0};
    uint64_t size = 0;
    if (file_name(t, argument, &path)) {
        if (!replaces && rvi_os_stat(path.data, &size) == RVI_OS_FILE && size)
            remark(t, "%s exists; /save! %s replaces it.", argument, argument);
        else if (cli_conversation_save(&t->talk, path.data, &err))
            remark_error(t, &err);
        else
            remark(t, "%zu message%s saved.", t->talk.n, t->talk.n == 1 ? "" : "s");
    }
    rvi_buf_deinit(&path);
}

static void save(chat *t, const char *argument)
{
    save_file(t, argument, false);
}

static void replace(chat *t, const char *argument)
{
    save_file(t, argument, true);
}

/* A conversation that the model's template refuses is not taken. */
static rv_status load_file(chat *t, const char *path, rv_error *err)
{
    cli_conversation loaded = {0};
    int32_t *ids = NULL;
    size_t n;
    if (rvi_os_stat(path, NULL) == RVI_OS_OTHER)
        return rvi_error(err, RV_E_IO, "%s: not a regular file", path);
    rv_status st = cli_conversation_load(&loaded, path, err);
    if (!st && loaded.n)
        st =
            cli_conversation_ids(&loaded, t->model.m, t->learning.l, false, &t->now, &ids, &n, err);
    if (st) {
        cli_conversation_deinit(&loaded);
    } else {
        cli_conversation_deinit(&t->talk);
        t->talk = loaded;
        t->last = (last_answer){0};
        t->is_captured = false;
    }
    rv_free(ids);
    return st;
}

static void load(chat *t, const char *argument)
{
    rvi_buf path = {0};
    rv_error err = {0};
    if (file_name(t, argument, &path)) {
        if (load_file(t, path.data, &err)) {
            remark_error(t, &err);
            remark(t, "The conversation is as it was.");
        } else {
            remark(t, "%zu message%s loaded.", t->talk.n, t->talk.n == 1 ? "" : "s");
        }
    }
    rvi_buf_deinit(&path);
}

static void set_temperature(chat *t, const char *argument)
{
    const char *end;
    float v = (float)rvi_number_parse(argument, &end);
    if (*argument && (*end || !isfinite(v) || v < 0))
        remark(t, "/temp takes a number, at least 0.");
    else if (*argument)
        cli_generation_set_temperature(t->g, v);
    remark(t, "Temperature %g.", (double)cli_generation_temperature(t->g));
}

static void set_max(chat *t, const char *argument)
{
    char *end;
    errno = 0;
    long v = strtol(argument, &end, 10);
    if (*argument && (*end || errno || v < 1 || v > 1000000000))
        remark(t, "/max takes a whole number, at least 1.");
    else if (*argument)
        t->g->options.max_tokens = (int)v;
    remark(t, "Answers have at most %d tokens.", t->g->options.max_tokens);
}

static void set_seed(chat *t, const char *argument)
{
    char *end;
    errno = 0;
    unsigned long long v = strtoull(argument, &end, 10);
    if (*argument && (*end || errno || *argument == '-')) {
        remark(t, "/seed takes a whole number.");
    } else if (*argument) {
        t->g->sampling.seed = v;
        t->g->seed_given = true;
    }
    if (t->g->seed_given)
        remark(t, "Seed %llu for every answer.", (unsigned long long)t->g->sampling.seed);
    else
        remark(t, "A new seed for every answer.");
}

static void show_tokens(chat *t, const char *argument)
{
    int32_t *ids = NULL;
    size_t n = 0;
    rv_error err = {0};
    (void)argument;
    if (t->talk.n &&
        cli_conversation_ids(&t->talk, t->model.m, t->learning.l, false, &t->now, &ids, &n, &err))
        remark_error(t, &err);
    else
        remark(t, "%zu of %d tokens of the context are used.", n, rv_session_context(t->session));
    rv_free(ids);
    if (t->last.made)
        remark(t,
               "The last answer: prompt %d tokens (%d reused, the rest %.1f tok/s), answer %zu "
               "tokens (%.1f tok/s).",
               t->last.n_prompt, t->last.n_reused,
               cli_rate((size_t)(t->last.n_prompt - t->last.n_reused), t->last.prompt_seconds),
               t->last.n_answer, cli_rate(t->last.n_answer, t->last.seconds));
}

static void quit(chat *t, const char *argument)
{
    (void)argument;
    t->quit = true;
}

static const command commands[] = {
    {"system", "[TEXT|-]", "show the system message, set it, or (-) remove it", set_system},
    {"clear", "", "begin a new conversation", clear},
    {"drop", "[N]", "forget the N oldest turns (1)", drop},
    {"save", "FILE", "write the conversation as JSON to a new file", save},
    {"save!", "FILE", "the same, and replace a conversation that is there", replace},
    {"load", "FILE", "replace the conversation by a saved one", load},
    {"temp", "[T]", "temperature; 0: the most likely token each time", set_temperature},
    {"max", "[N]", "maximum tokens of an answer", set_max},
    {"seed", "[N]", "the same seed gives the same answer", set_seed},
    {"tokens", "", "how much of the context is used, and the speed", show_tokens},
    {"good", "", "a good answer: more like it", good},
    {"bad", "", "a bad answer: not this one again", bad},
    {"fix", "ANSWER", "the right answer to the last question (see /fix)", fix},
    {"score", "0..1", "how good the last answer was", score},
    {"undo", "", "undo the last of these", undo},
    {"learned", "", "what was learned, and what is not trained yet", learned},
    {"help", "", "this list", show_help},
    {"quit", "", "leave (as Ctrl-D does)", quit},
};

/* Ends with NULL. */
static const char *const *command_names(void)
{
    static const char *names[RVI_COUNT(commands) + 1];
    for (size_t i = 0; i < RVI_COUNT(commands); i++) names[i] = commands[i].name;
    return names;
}

static void show_help(chat *t, const char *argument)
{
    (void)argument;
    for (size_t i = 0; i < RVI_COUNT(commands); i++)
        fprintf(t->screen, "  /%-7s %-9s %s\n", commands[i].name, commands[i].argument,
                commands[i].help);
    say(t, "A line is a message; // begins one with a slash.");
    if (t->editor)
        say(t, "A line that ends in a backslash goes on in the next one; between two lines of "
               "\"\"\" all lines are one message. Tab completes a command. Ctrl-C stops an answer "
               "or clears the line; pressed twice it leaves.");
}

/* The command that a line "/name argument" names, NULL: none. */
static const command *find_command(const char *line)
{
    size_t len = strcspn(line + 1, " \t\n");
    for (size_t i = 0; i < RVI_COUNT(commands); i++)
        if (strlen(commands[i].name) == len && !memcmp(commands[i].name, line + 1, len))
            return &commands[i];
    return NULL;
}

/* line: "/name argument" */
static void run_command(chat *t, const char *line)
{
    const char *name = line + 1;
    size_t len = strcspn(name, " \t\n");
    const char *argument = name + len + strspn(name + len, " \t\n");
    rvi_buf trimmed = {0};
    size_t end = strlen(argument);
    while (end && strchr(" \t\n", argument[end - 1])) end--;
    if (!rvi_buf_append(&trimmed, argument, end) || !rvi_buf_puts(&trimmed, "")) return;
    const command *cmd = find_command(line);
    if (cmd) cmd->run(t, trimmed.data);
    rvi_buf_deinit(&trimmed);
    if (cmd) return;
    char shown[64];
    snprintf(shown, sizeof shown, "%.*s", (int)RVI_MIN(len, sizeof shown - 1), name);
    const char *near = cli_nearest(shown, command_names());
    remark(t,
           "There is no command /%s.%s%s%s /help lists the commands; // begins a message with a "
           "slash.",
           shown, near ? " Did you mean /" : "", near ? near : "", near ? "?" : "");
}

/* ---- on a terminal ---- */

static bool is_quotes(const rvi_buf *line)
{
    size_t len = line->len;
    while (len && (line->data[len - 1] == ' ' || line->data[len - 1] == '\t')) len--;
    return len == 3 && !memcmp(line->data, "\"\"\"", 3);
}

/* One message or command: a line, lines that go on after a backslash, or a block between quotes. */
static cli_read read_message(chat *t, rvi_buf *line, rvi_buf *message, bool *is_command)
{
    bool block = false, more = false;
    message->len = 0;
    *is_command = false;
    do {
        bool first = !block && !more;
        cli_interrupts_reading(true);
        cli_read r = cli_editor_read(t->editor, first ? ">" : ".", t->colour, line);
        cli_interrupts_reading(false);
        if (r == CLI_READ_INTERRUPT_EMPTY && !first) return CLI_READ_INTERRUPT;
        if (r != CLI_READ_LINE) return r;
        if (is_quotes(line) && !more) {
            if (block) break;
            block = true;
            continue;
        }
        if (first) *is_command = line->data[0] == '/' && line->data[1] != '/';
        more = !block && line->len && line->data[line->len - 1] == '\\';
        if (more) line->len--;
        bool escaped = first && line->len > 1 && line->data[0] == '/' && line->data[1] == '/';
        rvi_buf_append(message, line->data + escaped, line->len - escaped);
        if (block || more) rvi_buf_putc(message, '\n');
    } while (block || more);
    if (block && message->len) message->len--; /* the end of its last line */
    rvi_buf_puts(message, "");
    if (message->data) message->data[message->len] = 0;
    return CLI_READ_LINE;
}

static bool is_blank(const rvi_buf *text)
{
    for (size_t i = 0; i < text->len; i++)
        if (!strchr(" \t\n", text->data[i])) return false;
    return true;
}

/* So that what arrow-up brings back means the same again. */
static void remember(chat *t, const rvi_buf *message, bool is_command)
{
    rvi_buf entry = {0};
    if (!is_command && message->data[0] == '/') rvi_buf_putc(&entry, '/');
    if (rvi_buf_append(&entry, message->data, message->len))
        cli_editor_remember(t->editor, entry.data, entry.len);
    rvi_buf_deinit(&entry);
}

/* With the name by which the user asked for the model: the one in the file may be anything. */
static void greet(const chat *t)
{
    char name[256];
    const char *slash = strrchr(t->name, '/');
    snprintf(name, sizeof name, "%s", slash && slash[1] ? slash + 1 : t->name);
    cli_hush_line(name, strlen(name));
    remark(t, "Chat with %s. /help lists the commands, Ctrl-D leaves.", name);
}

static int chat_on_terminal(chat *t)
{
    rvi_buf line = {0}, message = {0};
    bool interrupted = false; /* the one before was an interrupt too */
    int code = CLI_OK;
    greet(t);
    while (!t->quit) {
        bool is_command;
        cli_read r = read_message(t, &line, &message, &is_command);
        cli_interrupts_forget();
        if (line.failed || message.failed) {
            remark(t, "Out of memory for this message.");
            code = CLI_FAILED;
            break;
        }
        if (r == CLI_READ_END) break;
        if (r != CLI_READ_LINE) {
            if (r == CLI_READ_INTERRUPT_EMPTY && interrupted) {
                code = CLI_INTERRUPTED;
                break;
            }
            if (r == CLI_READ_INTERRUPT_EMPTY) remark(t, "(Ctrl-C again, or Ctrl-D, leaves)");
            interrupted = true;
            continue;
        }
        interrupted = false;
        if (is_blank(&message)) continue;
        remember(t, &message, is_command);
        if (is_command) {
            run_command(t, message.data);
            interrupted = cli_interrupted();
            cli_interrupts_forget();
            continue;
        }
        rv_error err = {0};
        if (turn(t, message.data, message.len, &err)) remark_error(t, &err);
        interrupted = cli_interrupted();
        cli_interrupts_forget();
    }
    rvi_buf_deinit(&line);
    rvi_buf_deinit(&message);
    return code;
}

/* ---- elsewhere ---- */

static int chat_by_lines(chat *t)
{
    rvi_buf line = {0};
    rv_error err = {0};
    rv_status st = RV_OK;
    while (!st && !t->quit && !cli_interrupted() && cli_read_line(stdin, &line)) {
        bool slash = line.len && line.data[0] == '/', twice = slash && line.data[1] == '/';
        if (slash && !twice)
            run_command(t, line.data);
        else if (line.len)
            st = turn(t, line.data + twice, line.len - twice, &err);
    }
    if (!st && line.failed) st = rvi_nomem(&err, "input line");
    rvi_buf_deinit(&line);
    return st ? cli_fail(&err) : cli_interrupted() ? CLI_INTERRUPTED : CLI_OK;
}

/* ---- beginning ---- */

static rv_status open_editor(chat *t, rv_error *err)
{
    rvi_buf path = {0};
    const char *term = getenv("TERM");
    bool escapes = term && *term && strcmp(term, "dumb") != 0;
    t->screen = rvi_os_is_terminal(stdout) ? stdout : stderr;
    t->colour = escapes && !t->c->no_color;
    const char *dir = t->g->no_history ? NULL : cli_history_dir(t->c);
    if (dir && rvi_os_make_private_dirs(dir, NULL) == RV_OK)
        rvi_buf_printf(&path, "%s/chat_history", dir);
    rv_status st = cli_editor_new(&t->editor, t->screen, escapes, command_names(), path.data, err);
    rvi_buf_deinit(&path);
    cli_interrupts_catch(escapes ? cli_editor_last_words : "\n", true);
    return st;
}

int cli_chat_with(cli *c, const char *model, cli_generation *g)
{
    chat t = {.c = c, .g = g, .name = model, .now = cli_now(), .screen = stderr};
    rv_error err = {0};
    bool terminal =
        rvi_os_is_terminal(stdin) && (rvi_os_is_terminal(stdout) || rvi_os_is_terminal(stderr));
    int code = cli_generation_resolve(c, g, !rvi_os_is_terminal(stdin));
    if (code) return code;
    if (!g->max_given) g->options.max_tokens = 512;
    rv_status st = cli_open(c, model, false, &t.model, &err);
    if (!st) t.info = *rv_model_get_info(t.model.m);
    if (!st && !t.info.has_tokenizer)
        st = rvi_error(&err, RV_E_TOKENIZATION, "the model has no tokenizer to chat with");
    if (!st) st = cli_generation_session(c, g, &t.model, &t.session, &err);
    if (!st && g->system) st = cli_conversation_set_system(&t.talk, g->system, &err);
    if (!st) cli_interrupts_catch("\n", false);
    if (!st && terminal) st = open_editor(&t, &err);
    if (!st) open_learning(&t, terminal);
    if (!st) code = terminal ? chat_on_terminal(&t) : chat_by_lines(&t);
    cli_editor_free(&t.editor);
    if (!st && !fflush(stdout)) cli_leave(code);
    rv_free(t.plan);
    cli_conversation_deinit(&t.talk);
    rv_session_free(&t.session);
    cli_generation_close(g);
    cli_learning_close(&t.learning);
    cli_close(&t.model);
    return st ? cli_fail(&err) : code;
}

int cli_chat(cli *c, int argc, char **argv)
{
    cli_generation g;
    cli_option rows[CLI_GENERATION_OPTIONS];
    const char *args[1];
    int n_args;
    bool done;
    cli_generation_init(&g);
    cli_generation_rows(&g, rows);
    int code = cli_parse(c, rows, RVI_COUNT(rows), argc, argv, args, 1, &n_args, &done);
    if (code || done) return code;
    if (!n_args) return cli_usage(c, CLI_MODEL_NEEDED);
    return cli_chat_with(c, args[0], &g);
}
