/* What a chat teaches: thumbs, scores, corrections, and what is shown of them. */
#include <string.h>

#include "base/number.h"
#include "cli/chat_state.h"
#include "cli/screen.h"
#include "cli/second_look.h"

/* Returns the learner, or NULL after telling the user why there is none. */
static rv_learner *learner(const cli_chat_state *t)
{
    if (!t->learning.l)
        cli_remark(t, "Nothing is learned here: %s",
                   t->no_learning.text[0] ? t->no_learning.text : "--no-learn or --lora was given");
    return t->learning.l;
}

/* The conversation ends with a question and its answer. */
static bool is_answered(const cli_chat_state *t)
{
    size_t n = t->talk.n;
    return n > 1 && !t->talk.messages[n - 1].is_user && t->talk.messages[n - 2].is_user;
}

/* A judgement is of tokens that the learner saw being chosen. Those of the last answer are gone if
 * another prompt was begun since, or if it came out of a file: then the answer is made again,
 * unseen, by the same seed. True if it is the same one. */
static bool capture_again(cli_chat_state *t, rv_error *err)
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
    if (!st) st = cli_chat_begin_learned(t, err);
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
static rv_learner *judge(cli_chat_state *t)
{
    rv_error err = {0};
    rv_learner *l = learner(t);
    if (!l) return NULL;
    if (!is_answered(t))
        cli_remark(t, "There is no answer to judge yet.");
    else if (t->is_captured || capture_again(t, &err))
        return l;
    else if (err.text[0])
        cli_remark_error(t, &err);
    else
        cli_remark(t, "This answer was not made here just now, so it cannot be judged. /fix ANSWER "
                      "teaches the right one, or ask again.");
    return NULL;
}

/* Asks the last question again, with the same seed: what differs was learned. An answer that fails
 * leaves the old one. same (may be NULL): what to say where nothing differs. */
static void ask_again(cli_chat_state *t, const char *same)
{
    rv_error err = {0};
    bool answered = false;
    if (!is_answered(t)) return;
    cli_message old = t->talk.messages[t->talk.n - 1];
    t->talk.n--; /* taken out, and back in where there is no new one */
    t->same_seed = true;
    if (t->last.made && !t->g->seed_given) t->g->sampling.seed = t->last.seed;
    rv_status st = cli_chat_answer(t, &answered, &err);
    t->same_seed = false;
    if (st) cli_remark_error(t, &err);
    if (!answered) {
        t->talk.messages[t->talk.n++] = old;
        return;
    }
    const cli_message *now = &t->talk.messages[t->talk.n - 1];
    if (same && now->len == old.len && !memcmp(now->json, old.json, old.len))
        cli_remark(t, "%s", same);
    rvi_free(old.json);
}

/* What was taught, or turned down, about the last question: for a second look. */
typedef struct judged {
    const char *question, *answer; /* taught; answer NULL: nothing was */
    rv_scope scope;
    const rv_learn_plan *spoken; /* or read, and turned down or corrected; NULL: no lesson was */
    cli_glance *before;          /* what was answered; NULL: nobody looked */
    const char *same;            /* what to say where the question gets the same answer again */
} judged;

static void say(cli_chat_state *t, rvi_buf *line)
{
    if (!line->data || !line->len || line->failed) return;
    cli_hush_line(line->data, line->len);
    cli_remark(t, "%s", line->data);
    line->len = 0;
}

/* Says whether it is so now. */
static void look_again(cli_chat_state *t, const judged *j)
{
    rvi_buf line = {0};
    rv_error err = {0};
    rv_status st = RV_OK;
    if (j->before) {
        st = cli_glance_compare(j->before, &line, &err);
    } else {
        t->is_captured = false;
    }
    if (j->answer)
        st = cli_second_look_taught(t->model.m, t->learning.l, t->session, j->question, j->answer,
                                    j->scope, "/fix --exact", &line, &err);
    else if (j->spoken)
        st =
            cli_second_look_refused(t->learning.l, t->session, j->question, j->spoken, &line, &err);
    if (!st) say(t, &line);
    if (!st && j->answer && j->spoken && strcmp(j->answer, j->spoken->answer) != 0)
        st = cli_second_look_kept(t->learning.l, t->session, j->spoken, &line, &err);
    if (st)
        cli_remark_error(t, &err);
    else
        say(t, &line);
    rvi_buf_deinit(&line);
}

/* Says what an event changed (said: in these words), looks whether it did (j; NULL: not), and shows
 * the answer as it is now. Frees a. */
static void show_change(cli_chat_state *t, rv_status st, rv_adaptation *a, const char *said,
                        const judged *j, rv_error *err)
{
    rvi_buf line = {0};
    if (st) {
        cli_remark_error(t, err);
        return;
    }
    cli_learning_describe(a, said, t->c->verbose, &line);
    if (line.data) {
        cli_hush(line.data, line.len);
        cli_remark(t, "%s", line.data);
    }
    rvi_buf_deinit(&line);
    judged of = j ? *j : (judged){0};
    if (*a->question) of.question = a->question;
    if (a->applied && j) look_again(t, &of);
    if (a->applied) ask_again(t, of.same);
    rv_free(a);
}

/* What other wordings of the last question get before its answer is judged. NULL: nobody looks. */
static cli_glance *glance(cli_chat_state *t, const rvi_buf *question)
{
    cli_glance *g = NULL;
    rv_error err = {0};
    if (!question->data || question->failed) return NULL;
    rv_status st = cli_glance_new(&g, t->model.m, t->learning.l, rv_session_context(t->session),
                                  question->data, &err);
    if (st) cli_remark_error(t, &err);
    return g;
}

/* A thumb up or a score. */
static void take_score(cli_chat_state *t, double score, bool thumb)
{
    rv_error err = {0};
    rv_adaptation *a = NULL;
    rv_learner *l = judge(t);
    rvi_buf question = {0};
    if (!l) return;
    cli_conversation_text(&t->talk, t->talk.n - 2, &question);
    judged j = {.before = glance(t, &question), .same = "The answer is the same as before."};
    rv_status st = thumb ? rv_learner_thumb(l, t->session, 1, &a, &err)
                         : rv_learner_score(l, t->session, score, &a, &err);
    show_change(t, st, a, cli_learning_step, &j, &err);
    cli_glance_free(j.before);
    rvi_buf_deinit(&question);
}

void cli_chat_good(cli_chat_state *t, const char *argument)
{
    (void)argument;
    take_score(t, 1, true);
}

void cli_chat_bad(cli_chat_state *t, const char *argument)
{
    rv_error err = {0};
    rv_adaptation *a = NULL;
    rv_learner *l = judge(t);
    (void)argument;
    if (!l) return;
    rvi_buf question = {0};
    rv_learn_plan *spoken = t->plan && (t->plan->slot || t->plan->read) ? t->plan : NULL;
    if (spoken) t->plan = NULL; /* the next answer has another one */
    cli_conversation_text(&t->talk, t->talk.n - 2, &question);
    judged j = {.question = question.data ? question.data : "",
                .spoken = spoken,
                .before = spoken ? NULL : glance(t, &question),
                .same = "This did not take: it is the same answer again."};
    rv_status st = rv_learner_thumb(l, t->session, 0, &a, &err);
    show_change(t, st, a, "Noted: not this answer again when this is asked", &j, &err);
    cli_glance_free(j.before);
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
        if (*at && *at != ' ' && *at != '\n') continue;
        while (*at == ' ' || *at == '\n') at++;
        *argument = at;
        return (rv_scope)i;
    }
    return RV_SCOPE_TOPIC;
}

/* A mistyped scope would be taught as a part of the answer. The one that was meant; NULL: none. */
static const char *misspelt_scope(const char *argument)
{
    char word[16];
    size_t len = strncmp(argument, "--", 2) ? 0 : strcspn(argument + 2, " \n");
    const char *names[] = {rv_scope_name(RV_SCOPE_TOPIC), rv_scope_name(RV_SCOPE_EXACT),
                           rv_scope_name(RV_SCOPE_ALWAYS), NULL};
    if (!len || len >= sizeof word || !argument[2 + len]) return NULL;
    memcpy(word, argument + 2, len);
    word[len] = 0;
    return cli_nearest(word, names);
}

/* A correction needs no more than the question, which a conversation out of a file has too; an
 * instruction for every chat needs none. */
void cli_chat_fix(cli_chat_state *t, const char *argument)
{
    rv_error err = {0};
    rv_adaptation *a = NULL;
    rvi_buf question = {0}, said = {0};
    rv_learner *l = learner(t);
    if (!l) return;
    const char *given = argument;
    rv_scope scope = read_scope(&argument);
    const char *meant = argument == given ? misspelt_scope(argument) : NULL;
    if (meant) {
        cli_remark(t, "Did you mean --%s? To teach it as it is, write /fix --topic before it.",
                   meant);
        return;
    }
    if (scope != RV_SCOPE_ALWAYS && !is_answered(t)) {
        cli_remark(t, "There is no answer to correct yet.");
        return;
    }
    if (!*argument) {
        cli_remark(
            t, "/fix takes the right answer: /fix ANSWER, or /fix \"\"\" and then its lines up to "
               "one of \"\"\"; with --exact before it, it counts for this very question alone; "
               "/fix --always TEXT is read before every chat.");
        return;
    }
    if (is_answered(t)) cli_conversation_text(&t->talk, t->talk.n - 2, &question);
    cli_learning_said(&said,
                      scope == RV_SCOPE_ALWAYS ? "Read before every chat from now on" : "Learned",
                      argument);
    rv_status st = cli_learning_check("the correct answer", argument, strlen(argument), &err);
    if (!st && scope != RV_SCOPE_ALWAYS && question.len)
        st = cli_learning_check("the question", question.data, question.len, &err);
    const char *asked = t->is_captured || scope == RV_SCOPE_ALWAYS ? NULL
                        : question.data                            ? question.data
                                                                   : "";
    if (!st) st = rv_learner_teach(l, asked ? NULL : t->session, asked, argument, scope, &a, &err);
    judged j = {.question = question.data ? question.data : "", .answer = argument, .scope = scope};
    if (t->plan && t->plan->slot) j.spoken = t->plan;
    show_change(t, st, a, said.data, scope == RV_SCOPE_ALWAYS ? NULL : &j, &err);
    if (!st && !t->hinted && cli_learning_hint(&t->learning)) {
        cli_remark(t, "(%s)", cli_learning_hint(&t->learning));
        t->hinted = true;
    }
    rvi_buf_deinit(&question);
    rvi_buf_deinit(&said);
}

void cli_chat_score(cli_chat_state *t, const char *argument)
{
    const char *end;
    double v = rvi_number_parse(argument, &end);
    if (*argument && !*end && v >= 0 && v <= 1)
        take_score(t, v, false);
    else if (learner(t))
        cli_remark(t, "/score takes a number from 0 (bad) to 1 (good).");
}

void cli_chat_undo(cli_chat_state *t, const char *argument)
{
    rv_error err = {0};
    rv_adaptation *a = NULL;
    rv_learner *l = learner(t);
    (void)argument;
    if (!l) return;
    rv_status st = rv_learner_undo_own(l, &a, &err);
    bool none = !st && !a->applied && !a->event;
    show_change(t, st, a, NULL, NULL, &err);
    if (none)
        cli_remark(t, "'ruvllm learn undo' takes back what was taught last, wherever that was.");
}

void cli_chat_learned(cli_chat_state *t, const char *argument)
{
    rv_error err = {0};
    rvi_buf out = {0};
    (void)argument;
    if (!learner(t)) return;
    if (cli_learning_print(&t->learning, &out, &err))
        cli_remark_error(t, &err);
    else if (out.data)
        cli_put_text(t->screen, out.data, out.len, true);
    fflush(t->screen);
    rvi_buf_deinit(&out);
}

void cli_chat_open_learning(cli_chat_state *t, bool terminal)
{
    rv_error err = {0};
    if (cli_generation_alone(t->g)) return;
    rv_status st =
        cli_learning_open(&t->learning, t->c, &t->model, t->g->learned, true, &t->no_learning);
    if (!st && terminal) st = rv_learner_start(t->learning.l, &err);
    if (st && t->no_learning.text[0]) {
        cli_learning_close(&t->learning);
        if (t->c->verbose || t->g->learned || t->c->store)
            cli_warn("nothing is learned: %s", t->no_learning.text);
    } else if (st) {
        cli_warn("no training in the background: %s", err.text);
    }
}
