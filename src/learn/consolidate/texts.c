#include "learn/consolidate/texts.h"

#include <string.h>

#include "base/mem.h"
#include "decode/sampler.h"
#include "text/frames.h"

enum {
    CONTEXTS = 2, /* forms of a question behind an unrelated sentence */
    SAMPLES = 16, /* that the model writes about a lesson, */
    SAMPLE_TOKENS = 24,
    OWN = 12,      /* and that are taught of them, at most */
    FENCE = 8,     /* of a lesson */
    LONGEST = 512, /* bytes of a question that is written about */
};
#define NOT_ASKED 0.1f /* a question this unlikely to ask for the lesson asks for something else */

/* ---- replies ---- */

static size_t count_words(const char *text)
{
    size_t n = 0;
    for (const char *p = text; *p;) {
        p += strspn(p, " \t\r\n");
        size_t len = strcspn(p, " \t\r\n");
        n += len > 0;
        p += len;
    }
    return n;
}

/* What is taught as the answer: the user's own words, but for a bare answer of which a sentence
 * could be made. */
static const char *reply_of(const rvi_fact *f)
{
    if (!f->given || f->kind == RVI_FACT_FREE) return f->sentence;
    return count_words(f->given) > count_words(f->answer) ? f->given : f->sentence;
}

/* ---- the conversation, and forms of its question ---- */

static rv_status write_conversation(rvi_text_writer *w, rvi_texts *out, rv_error *err)
{
    rv_status st = RV_OK;
    for (size_t i = 0; !st && i < w->n; i++) {
        const rvi_fact *f = w->group[i];
        const char *user = *f->question ? f->question : NULL;
        st = rvi_wordings_add(&out[i].teach, user, reply_of(f), err);
    }
    return st;
}

/* Behind a sentence of the model's own that has nothing to do with it. */
static void put_behind_context(rvi_text_writer *w, const char *question, rvi_buf *out)
{
    const rvi_replay *r = w->replay;
    if (!r->n_contexts) return;
    rvi_buf_printf(out, "%s %s", rvi_replay_context(r, rvi_rng_below(&w->rng, r->n_contexts)),
                   question);
}

static rv_status add_frame(rvi_wordings *out, const rvi_buf *form, const rvi_fact *f, rv_error *err)
{
    if (form->failed) return rvi_nomem(err, "frame");
    return form->len ? rvi_wordings_add(out, form->data, reply_of(f), err) : RV_OK;
}

static rv_status frame_lesson(rvi_text_writer *w, const rvi_fact *f, rvi_texts *out, rv_error *err)
{
    rvi_buf plain = {0}, forms[3 + CONTEXTS] = {{0}}, neighbour = {0};
    rvi_frame_plain(f->question, &plain);
    rvi_frame_addressed(f->question, &forms[0]);
    rvi_frame_addressed(plain.len ? plain.data : f->question, &forms[1]);
    rvi_buf_printf(&forms[2], "\"%s\"", f->question);
    for (int i = 0; i < CONTEXTS; i++) put_behind_context(w, f->question, &forms[3 + i]);
    (void)rvi_frame_neighbour(f->question, 0, &neighbour);
    rv_status st = add_frame(&out->teach, &plain, f, err);
    for (size_t i = 0; !st && i < RVI_COUNT(forms); i++)
        st = add_frame(&out->teach, &forms[i], f, err);
    if (!st && neighbour.failed) st = rvi_nomem(err, "neighbour");
    if (!st && neighbour.len) st = rvi_wordings_add(&out->fence, neighbour.data, NULL, err);
    for (size_t i = 0; i < RVI_COUNT(forms); i++) rvi_buf_deinit(&forms[i]);
    rvi_buf_deinit(&plain);
    rvi_buf_deinit(&neighbour);
    return st;
}

static bool is_asked(const rvi_fact *f)
{
    return *f->question && strlen(f->question) <= LONGEST;
}

static rv_status write_frames(rvi_text_writer *w, rvi_texts *out, rv_error *err)
{
    rv_status st = RV_OK;
    for (size_t i = 0; !st && i < w->n; i++)
        if (is_asked(w->group[i])) st = frame_lesson(w, w->group[i], &out[i], err);
    return st;
}

/* ---- the model's own wordings ---- */

/* Shows what is wanted. A small model follows examples better than an instruction, and strays often
 * enough: to other questions about the same thing. */
static const char examples[] =
    "Question: Who wrote Hamlet?\n"
    "The same question in other words: Which author is Hamlet by?\n\n"
    "Question: How do I boil an egg?\n"
    "The same question in other words: what's the way to cook an egg in water\n\n"
    "Question: Where does my sister live?\n"
    "The same question in other words: In which place can I find my sister's home?\n\n"
    "Question: What does the red light on the heater mean?\n"
    "The same question in other words: The heater shows a red light, what is that telling me?\n\n";

static rv_status put_request(const rvi_text_writer *w, const rvi_fact *f, rvi_ids *out,
                             rv_error *err)
{
    rvi_buf text = {0};
    rvi_buf_printf(&text, "%sQuestion: %s\nThe same question in other words:", examples,
                   f->question);
    rv_status st = text.failed ? rvi_nomem(err, "examples") : RV_OK;
    if (!st && !rvi_ids_push(out, w->v->start)) st = rvi_nomem(err, "examples");
    if (!st) st = rvi_base_model_encode(w->v, text.data, text.len, out, err);
    rvi_buf_deinit(&text);
    return st;
}

/* The first line of what was written; "": none, or it was cut off in the middle. */
static rv_status read_line(const rvi_text_writer *w, const rvi_ids *written, rvi_buf *out,
                           rv_error *err)
{
    rv_status st = rvi_base_model_decode(w->v, written->data, written->len, out, err);
    if (st || !out->data) return st;
    size_t from = strspn(out->data, " \t\""), len = strcspn(out->data + from, "\n");
    bool ended = out->data[from + len] || (len && strchr("?!.", out->data[from + len - 1]));
    while (len && strchr(" \t\r\"", out->data[from + len - 1])) len--;
    memmove(out->data, out->data + from, len);
    out->len = ended ? len : 0;
    out->data[out->len] = 0;
    return RV_OK;
}

/* By the judge: taught, part of the fence, or neither. most: texts of the lesson. */
static rv_status sort_line(rvi_text_writer *w, size_t lesson, const char *line, size_t most,
                           rvi_texts *out, rv_error *err)
{
    rvi_recognised found[2];
    size_t n = 0;
    const rvi_fact *f = w->group[lesson];
    bool same = false;
    rv_status st = rvi_words_same(&same, line, strlen(line), f->question, strlen(f->question), err);
    if (st || same) return st;
    st = rvi_recogniser_ask(w->judge, line, found, RVI_COUNT(found), &n, err);
    if (st || !n) return st;
    if (found[0].sure && found[0].lesson == lesson + 1)
        return out->teach.n < most ? rvi_wordings_add(&out->teach, line, reply_of(f), err) : RV_OK;
    if (found[0].probability >= NOT_ASKED || out->fence.n >= FENCE) return RV_OK;
    return rvi_wordings_add(&out->fence, line, NULL, err);
}

static rv_status sort_lines(rvi_text_writer *w, const rvi_request *requests, const size_t *lessons,
                            size_t n, rvi_texts *out, rv_error *err)
{
    rv_status st = RV_OK;
    size_t most = 0;
    for (size_t i = 0; !st && i < n; i++) {
        rvi_buf line = {0};
        rvi_texts *to = &out[lessons[i]];
        if (!i || lessons[i] != lessons[i - 1]) most = to->teach.n + OWN;
        st = read_line(w, &requests[i].answer, &line, err);
        if (!st && line.len) st = sort_line(w, lessons[i], line.data, most, to, err);
        rvi_buf_deinit(&line);
        if (!st && w->progress && w->progress(w->ctx, n + i, 2 * n))
            st = rvi_error(err, RV_E_CANCELLED, "cancelled");
    }
    return st;
}

/* The first half of the source's work. */
static int report_writing(void *ctx, size_t done, size_t total)
{
    const rvi_text_writer *w = ctx;
    return w->progress ? w->progress(w->ctx, done, 2 * total) : 0;
}

static rv_status write_own(rvi_text_writer *w, rvi_texts *out, rv_error *err)
{
    if (!w->judge) return RV_OK;
    size_t most = w->n * SAMPLES, n = 0;
    rvi_request *requests = rvi_zalloc_array(most + 1, sizeof *requests);
    size_t *lessons = rvi_alloc_array(most + 1, sizeof *lessons);
    rvi_ids *prompts = rvi_zalloc_array(w->n + 1, sizeof *prompts);
    rv_status st = requests && lessons && prompts ? RV_OK : rvi_nomem(err, "wordings");
    for (size_t i = 0; !st && i < w->n; i++) {
        if (!is_asked(w->group[i])) continue;
        st = put_request(w, w->group[i], &prompts[i], err);
        for (int k = 0; k < SAMPLES; k++) {
            lessons[n] = i;
            requests[n++] = (rvi_request){.prompt = prompts[i].data, .n_prompt = prompts[i].len};
        }
    }
    rv_sampling s;
    rvi_sampling_init(&s, sizeof s, true);
    s.temperature = 0.8f;
    s.seed = rvi_rng_u64(&w->rng);
    if (!st)
        st = rvi_base_model_answer(w->v, requests, n, &s, SAMPLE_TOKENS, report_writing, w, err);
    if (!st) st = sort_lines(w, requests, lessons, n, out, err);
    for (size_t i = 0; requests && i < n; i++) rvi_ids_deinit(&requests[i].answer);
    for (size_t i = 0; prompts && i < w->n; i++) rvi_ids_deinit(&prompts[i]);
    rvi_free(requests);
    rvi_free(lessons);
    rvi_free(prompts);
    return st;
}

/* ---- rules ---- */

static rv_status write_rules(rvi_text_writer *w, rvi_texts *out, rv_error *err)
{
    const rvi_replay *r = w->replay;
    const char **contexts = rvi_alloc_array(r->n_contexts + 1, sizeof *contexts);
    rv_status st = contexts ? RV_OK : rvi_nomem(err, "contexts");
    for (size_t i = 0; !st && i < r->n_contexts; i++) contexts[i] = rvi_replay_context(r, i);
    for (size_t i = 0; !st && i < w->n; i++)
        if (w->group[i]->kind != RVI_FACT_FREE)
            st = rvi_wordings_teach_from(&out[i].teach, w->group[i], w->store, w->n_store, contexts,
                                         r->n_contexts, w->n_rules, &w->rng, err);
    rvi_free(contexts);
    return st;
}

/* ---- all of them ---- */

/* Rules come before others so that the surroundings they draw do not depend on who else writes. */
static const rvi_text_source sources[] = {
    {"rules", RVI_TEXTS_RULES, write_rules},
    {"conversation", 0, write_conversation},
    {"frames", RVI_TEXTS_FRAMES, write_frames},
    {"own", RVI_TEXTS_OWN, write_own},
};

rv_status rvi_texts_write(rvi_text_writer *w, unsigned which, rvi_texts *out, rv_error *err)
{
    rv_status st = RV_OK;
    for (size_t i = 0; !st && i < RVI_COUNT(sources); i++) {
        const rvi_text_source *s = &sources[i];
        if (!s->which || (s->which & which)) st = s->write(w, out, err);
    }
    return st;
}

void rvi_texts_deinit(rvi_texts *t, size_t n)
{
    for (size_t i = 0; t && i < n; i++) {
        rvi_wordings_deinit(&t[i].teach);
        rvi_wordings_deinit(&t[i].fence);
    }
}
