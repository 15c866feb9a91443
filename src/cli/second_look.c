#include "cli/second_look.h"

#include <string.h>

#include "base/error.h"
#include "cli/conversation.h"
#include "cli/generation.h"
#include "text/frames.h"

enum { WORDINGS = 3 };

typedef struct look {
    const rv_model *m;
    rv_learner *l;
    rv_session *s;
    const char *answer;      /* of the lesson */
    rvi_buf texts[WORDINGS]; /* the question, and other wordings of it */
    bool spoken[WORDINGS];   /* the lesson's answer is, for each */
    int n, n_spoken, n_read; /* n_read: before which the model reads it */
} look;

/* White space around an answer is no part of it. */
static bool is_answer(const char *text, const char *answer)
{
    static const char space[] = " \t\r\n";
    answer += strspn(answer, space);
    size_t len = strlen(text);
    return !strncmp(text, answer, len) && !answer[len + strspn(answer + len, space)];
}

/* Would this be answered with the lesson? Where weights were seen to say it by themselves its gate
 * is open too. */
static rv_status ask(const look *k, const char *text, bool *spoken, bool *read, rv_error *err)
{
    cli_conversation talk = {0};
    rv_learn_plan *plan = NULL;
    rvi_buf json = {0};
    rv_status st = cli_conversation_add(&talk, "user", text, strlen(text), err);
    if (!st) st = cli_conversation_json(&talk, &json, err);
    if (!st) st = cli_conversation_begin(k->l, k->s, &json, &plan, err);
    bool same = !st && is_answer(plan->answer, k->answer);
    *spoken = same && plan->gate_open;
    *read = same && plan->read;
    rv_free(plan);
    rvi_buf_deinit(&json);
    cli_conversation_deinit(&talk);
    return st;
}

static rv_status ask_wordings(look *k, const char *question, int most, rv_error *err)
{
    rv_status st = RV_OK;
    void (*const frames[])(const char *, rvi_buf *) = {rvi_frame_plain, rvi_frame_addressed};
    k->n = k->n_spoken = k->n_read = 0;
    rvi_buf_puts(&k->texts[k->n++], question);
    for (int i = 1; i < most; i++) {
        frames[i - 1](question, &k->texts[k->n]);
        if (k->texts[k->n].len || k->texts[k->n].failed) k->n++;
    }
    for (int i = 0; !st && i < k->n; i++) {
        bool whole = rvi_buf_puts(&k->texts[i], ""), read = false;
        st = whole ? ask(k, k->texts[i].data, &k->spoken[i], &read, err)
                   : rvi_nomem(err, "question");
        k->n_spoken += !st && k->spoken[i];
        k->n_read += read;
    }
    return st;
}

static void end(look *k)
{
    for (int i = 0; i < WORDINGS; i++) rvi_buf_deinit(&k->texts[i]);
}

/* In quotation marks, on one line, and not all of a long one. */
static void quote(rvi_buf *out, const char *text)
{
    enum { SHOWN = 100 };
    size_t len = strlen(text), cut = RVI_MIN(len, (size_t)SHOWN);
    while (cut < len && cut && (text[cut] & 0xC0) == 0x80) cut--; /* a whole character */
    rvi_buf_putc(out, '"');
    for (size_t i = 0; i < cut; i++) rvi_buf_putc(out, text[i] == '\n' ? ' ' : text[i]);
    rvi_buf_puts(out, cut < len ? "...\"" : "\"");
}

static void put_missed(const look *k, rvi_buf *out)
{
    const char *between = " (not ";
    for (int i = 1; i < k->n; i++) {
        if (k->spoken[i]) continue;
        rvi_buf_puts(out, between);
        quote(out, k->texts[i].data);
        between = ", ";
    }
    if (k->n_spoken < k->n) rvi_buf_putc(out, ')');
}

/* ---- a neighbour ---- */

/* How likely the model finds a text, as a logarithm. */
static rv_status score(const rv_model *m, rv_engine *e, const rvi_buf *text, double *out,
                       rv_error *err)
{
    int32_t *ids = NULL;
    size_t n = 0;
    *out = 0;
    rv_status st = rv_tokenize(m, text->data, text->len, RV_TOKENIZE_BOS, &ids, &n, err);
    float *log_p = st ? NULL : rvi_zalloc_array(n + 1, sizeof *log_p);
    if (!st && !log_p) st = rvi_nomem(err, "question");
    if (!st && n > 1) st = rv_engine_score(e, ids, n, NULL, log_p, err);
    for (size_t i = 0; !st && i + 1 < n; i++) *out += (double)log_p[i];
    rvi_free(log_p);
    rv_free(ids);
    return st;
}

/* Of the neighbours of a question the one that the model finds likeliest: a question that one would
 * ask. The first one where that cannot be told, as in an engine without room. "": there is none. */
static rv_status find_neighbour(const rv_model *m, rv_engine *e, const char *question, rvi_buf *out,
                                rv_error *err)
{
    enum { MOST_BYTES = 600, MOST = 12 };
    bool tells = strlen(question) <= MOST_BYTES;
    double best = 0, p = 0;
    rvi_buf other = {0};
    for (size_t i = 0; i < MOST && rvi_frame_neighbour(question, i, &other); i++) {
        rv_error why = {0};
        if (tells) tells = !score(m, e, &other, &p, &why);
        if (!i || (tells && p > best)) {
            rvi_buf before = *out;
            *out = other;
            other = before;
            best = p;
        }
        other.len = 0;
        if (!tells) break;
    }
    bool failed = other.failed || out->failed;
    rvi_buf_deinit(&other);
    return failed ? rvi_nomem(err, "question") : RV_OK;
}

static rv_status put_neighbour(const look *k, const char *question, const char *exactly,
                               rvi_buf *out, rv_error *err)
{
    rvi_buf other = {0};
    bool changed = false, read = false;
    rv_status st = find_neighbour(k->m, rv_session_engine(k->s), question, &other, err);
    if (!st && other.len) {
        st = ask(k, other.data, &changed, &read, err);
        rvi_buf_puts(out, changed ? "; but so is " : "; ");
        quote(out, other.data);
        if (changed)
            rvi_buf_printf(out, ": %s keeps it to this very question", exactly);
        else
            rvi_buf_puts(out, read ? " with it in view" : " unchanged");
    }
    rvi_buf_deinit(&other);
    return st;
}

rv_status cli_second_look_taught(const rv_model *m, rv_learner *l, rv_session *s,
                                 const char *question, const char *answer, rv_scope scope,
                                 const char *exactly, rvi_buf *out, rv_error *err)
{
    look k = {.m = m, .l = l, .s = s, .answer = answer};
    bool exact = scope == RV_SCOPE_EXACT;
    rv_status st = ask_wordings(&k, question, exact ? 1 : WORDINGS, err);
    if (!st && !k.spoken[0]) {
        rvi_buf_puts(out, "this did not take: asked again, the question is not answered with it");
    } else if (!st) {
        if (exact)
            rvi_buf_puts(out, "now answered for this very question");
        else if (k.n == 1)
            rvi_buf_puts(out, "now answered");
        else
            rvi_buf_printf(out, "now answered in %d of %d wordings", k.n_spoken, k.n);
        put_missed(&k, out);
        if (k.n_read) rvi_buf_printf(out, ", in %d in the model's own words", k.n_read);
        st = put_neighbour(&k, question, exactly, out, err);
    }
    end(&k);
    return st;
}

rv_status cli_second_look_refused(rv_learner *l, rv_session *s, const char *request,
                                  const rv_learn_plan *spoken, rvi_buf *out, rv_error *err)
{
    look k = {.l = l, .s = s, .answer = spoken->answer};
    bool own = false, own_read = false;
    rv_status st = ask_wordings(&k, request, WORDINGS, err);
    if (!st) st = ask(&k, spoken->question, &own, &own_read, err);
    if (!st && k.spoken[0])
        rvi_buf_puts(out, "this did not take: the lesson would be spoken here again");
    else if (!st)
        rvi_buf_printf(out, "the lesson is gone from %d of %d wordings",
                       k.n - k.n_spoken - k.n_read, k.n);
    if (!st && strcmp(request, spoken->question)) {
        rvi_buf_puts(out, "; its own question, ");
        quote(out, spoken->question);
        rvi_buf_puts(out, own ? ", still gets it" : ", no longer gets it");
    }
    end(&k);
    return st;
}

rv_status cli_second_look_kept(rv_learner *l, rv_session *s, const rv_learn_plan *spoken,
                               rvi_buf *out, rv_error *err)
{
    look k = {.l = l, .s = s, .answer = spoken->answer};
    bool still = false, read = false;
    rv_status st = ask(&k, spoken->question, &still, &read, err);
    if (st || !still) return st;
    quote(out, spoken->question);
    rvi_buf_puts(out, " still gets ");
    quote(out, spoken->answer);
    return RV_OK;
}

rv_status cli_second_look_count(rv_learner *l, rv_session *s, const char *question,
                                const char *answer, rv_scope scope, cli_looks *counts,
                                rv_error *err)
{
    look k = {.l = l, .s = s, .answer = answer};
    rvi_buf other = {0};
    bool changed = false, read = false;
    rv_status st = ask_wordings(&k, question, scope == RV_SCOPE_EXACT ? 1 : WORDINGS, err);
    if (!st) {
        counts->n++;
        counts->taken += k.spoken[0];
        counts->n_wordings += (size_t)k.n - 1;
        counts->recognised += (size_t)(k.n_spoken - k.spoken[0]);
        (void)rvi_frame_neighbour(question, 0, &other);
        if (other.failed) st = rvi_nomem(err, "question");
    }
    if (!st && other.len) {
        st = ask(&k, other.data, &changed, &read, err);
        counts->n_others++;
        counts->changed += changed;
    }
    rvi_buf_deinit(&other);
    end(&k);
    return st;
}

/* ---- after training ---- */

static int number(const rvi_json *x, const char *name)
{
    return (int)rvi_json_int(rvi_json_get(x, name), 0);
}

rv_status cli_second_look_newest(const cli_learning *l, int *out, rv_error *err)
{
    rvi_arena arena = {0};
    const rvi_json *s = NULL;
    *out = 0;
    rv_status st = cli_learning_status(l, &arena, &s, err);
    const rvi_json *list = st ? NULL : rvi_json_get(s, "generations");
    for (size_t i = 0; i < rvi_json_count(list); i++)
        *out = RVI_MAX(*out, number(rvi_json_at(list, i), "number"));
    rvi_arena_deinit(&arena);
    return st;
}

/* Is this generation newer, and was it made by this process, which has seen what it says? */
static bool is_seen(const rvi_json *generations, int which, int since)
{
    for (size_t i = 0; which > since && i < rvi_json_count(generations); i++) {
        const rvi_json *g = rvi_json_at(generations, i);
        if (number(g, "number") == which) return rvi_json_get(g, "said") != NULL;
    }
    return false;
}

static rv_status count_neighbours(const rv_model *m, const cli_learning *l, const rvi_json *status,
                                  int since, cli_looks *k, rv_error *err)
{
    const rvi_json *learned = rvi_json_get(status, "learned"),
                   *made = rvi_json_get(status, "generations");
    enum { MOST = 100, CONTEXT = 512 };
    rv_session *s = NULL;
    rv_session_options o = {.size = sizeof o};
    o.n_context = RVI_MIN(rv_model_get_info(m)->n_context, CONTEXT);
    rv_status st = rv_session_new(&s, m, &o, err);
    for (size_t i = 0; !st && i < rvi_json_count(learned) && k->n < MOST; i++) {
        const rvi_json *x = rvi_json_at(learned, i);
        bool exact = rvi_json_is_string(rvi_json_get(x, "scope"), rv_scope_name(RV_SCOPE_EXACT));
        if (is_seen(made, number(x, "generation"), since) && !cli_interrupted())
            st = cli_second_look_count(l->l, s, rvi_json_string(rvi_json_get(x, "question"), ""),
                                       rvi_json_string(rvi_json_get(x, "answer"), ""),
                                       exact ? RV_SCOPE_EXACT : RV_SCOPE_TOPIC, k, err);
    }
    rv_session_free(&s);
    return st;
}

rv_status cli_second_look_trained(const rv_model *m, const cli_learning *l, int since, rvi_buf *out,
                                  rv_error *err)
{
    rvi_arena arena = {0};
    const rvi_json *s = NULL;
    cli_looks k = {0};
    int n = 0, said = 0, wordings = 0, wordings_said = 0;
    rv_status st = cli_learning_status(l, &arena, &s, err);
    const rvi_json *learned = st ? NULL : rvi_json_get(s, "learned"),
                   *made = st ? NULL : rvi_json_get(s, "generations");
    for (size_t i = 0; i < rvi_json_count(learned); i++)
        n += is_seen(made, number(rvi_json_at(learned, i), "generation"), since);
    for (size_t i = 0; i < rvi_json_count(made); i++) {
        const rvi_json *g = rvi_json_at(made, i);
        if (!is_seen(made, number(g, "number"), since)) continue;
        said += number(g, "said");
        wordings += number(g, "wordings");
        wordings_said += number(g, "wordings_said");
    }
    if (!st && n) st = count_neighbours(m, l, s, since, &k, err);
    if (!st && n) {
        rvi_buf_printf(out, "asked again: weights alone answer %d of %d", said, n);
        if (wordings) rvi_buf_printf(out, ", and %d of %d other wordings", wordings_said, wordings);
        if (k.n_others)
            rvi_buf_printf(out, "; %zu of %zu neighbours unchanged", k.n_others - k.changed,
                           k.n_others);
        rvi_buf_putc(out, '\n');
    }
    rvi_arena_deinit(&arena);
    return st;
}

/* ---- before and after a judgement ---- */

enum { GLANCES = 3, GLANCE_TOKENS = 16, GLANCE_CONTEXT = 512, GLANCE_BYTES = 600 };

struct cli_glance {
    rv_session *s;
    rvi_buf texts[GLANCES]; /* other wordings, then the neighbour, which may be missing */
    rv_answer *before[GLANCES];
    int n_wordings, n;
};

static rv_status answer(const cli_glance *g, int i, rv_answer **out, rv_error *err)
{
    rv_sampling greedy = {.size = sizeof greedy, .greedy = 1, .repetition_penalty = 1};
    rv_generate_options o = {.size = sizeof o, .sampling = &greedy, .max_tokens = GLANCE_TOKENS};
    rv_message user = {.role = "user", .content = g->texts[i].data};
    rv_chat chat = {.size = sizeof chat, .messages = &user, .n_messages = 1};
    return rv_session_chat(g->s, &chat, &o, out, err);
}

rv_status cli_glance_new(cli_glance **out, const rv_model *m, rv_learner *l, int n_context,
                         const char *question, rv_error *err)
{
    *out = NULL;
    if (strlen(question) > GLANCE_BYTES) return RV_OK;
    cli_glance *g = rvi_zalloc(sizeof *g);
    if (!g) return rvi_nomem(err, "answers");
    void (*const frames[])(const char *, rvi_buf *) = {rvi_frame_plain, rvi_frame_addressed};
    for (size_t i = 0; i < RVI_COUNT(frames); i++) {
        frames[i](question, &g->texts[g->n]);
        g->n += g->texts[g->n].len > 0;
    }
    g->n_wordings = g->n;
    rv_session_options so = {.size = sizeof so, .learner = l};
    so.n_context = RVI_MIN(n_context, GLANCE_CONTEXT);
    rv_status st = g->n ? rv_session_new(&g->s, m, &so, err) : RV_OK;
    if (!st && g->n)
        st = find_neighbour(m, rv_session_engine(g->s), question, &g->texts[g->n], err);
    g->n += !st && g->texts[g->n].len > 0;
    for (int i = 0; !st && i < g->n; i++)
        st = rvi_buf_puts(&g->texts[i], "") ? answer(g, i, &g->before[i], err)
                                            : rvi_nomem(err, "question");
    if (st || !g->n)
        cli_glance_free(g);
    else
        *out = g;
    return st;
}

rv_status cli_glance_compare(cli_glance *g, rvi_buf *out, rv_error *err)
{
    int changed[GLANCES] = {0}, n_changed = 0;
    rv_status st = RV_OK;
    for (int i = 0; !st && i < g->n; i++) {
        rv_answer *now = NULL;
        st = answer(g, i, &now, err);
        changed[i] = !st && strcmp(now->text, g->before[i]->text) != 0;
        n_changed += i < g->n_wordings && changed[i];
        rv_free(now);
    }
    if (st) return st;
    if (n_changed)
        rvi_buf_printf(out, "answered otherwise in %d of %d other wordings", n_changed,
                       g->n_wordings);
    else if (g->n_wordings)
        rvi_buf_puts(out, "other wordings are answered as before");
    if (g->n > g->n_wordings) {
        if (g->n_wordings) rvi_buf_puts(out, "; ");
        quote(out, g->texts[g->n - 1].data);
        rvi_buf_puts(out, changed[g->n - 1] ? " changed too" : " unchanged");
    }
    return RV_OK;
}

void cli_glance_free(cli_glance *g)
{
    if (!g) return;
    for (int i = 0; i < GLANCES; i++) {
        rv_free(g->before[i]);
        rvi_buf_deinit(&g->texts[i]);
    }
    rv_session_free(&g->s);
    rvi_free(g);
}
