#include "learn/consolidate/texts.h"

#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "decode/sampler.h"
#include "learn/consolidate/words.h"
#include "learn/journal/list.h"
#include "text/frames.h"

enum {
    CONTEXTS = 2, /* forms of a question behind an unrelated sentence */
    NEIGHBOURS = 3,
    SAMPLES = 40, /* that the model writes about a lesson, */
    SAMPLE_TOKENS = 24,
    OWN = 16,      /* and that are taught of them, at most */
    PARTS = 8,     /* of a question that are taught, at most, */
    DRAWN = 24,    /* of so many */
    FENCE = 8,     /* of a lesson */
    LONGEST = 512, /* bytes of a question that is written about */
};
#define NOT_ASKED 0.1f /* a question this unlikely to ask for the lesson asks for something else */

/* ---- lists ---- */

size_t rvi_rng_below(rvi_rng *r, size_t n)
{
    return (size_t)(rvi_rng_double(r) * (double)n);
}

void rvi_questions_deinit(rvi_questions *q)
{
    rvi_free(q->data);
    rvi_arena_deinit(&q->texts);
    *q = (rvi_questions){0};
}

static bool has(const rvi_questions *q, const char *text)
{
    for (size_t i = 0; i < q->n; i++)
        if (!strcmp(q->data[i], text)) return true;
    return false;
}

rv_status rvi_questions_add(rvi_questions *q, const char *text, rv_error *err)
{
    if (has(q, text)) return RV_OK;
    const char *copy = rvi_arena_strndup(&q->texts, text, strlen(text));
    if (!copy || !rvi_list_room((void **)&q->data, q->n, &q->cap, sizeof *q->data))
        return rvi_nomem(err, "questions");
    q->data[q->n++] = copy;
    return RV_OK;
}

/* ---- the conversation, and forms of its question ---- */

static rv_status write_conversation(rvi_text_writer *w, rvi_texts *out, rv_error *err)
{
    rv_status st = RV_OK;
    for (size_t i = 0; !st && i < w->n; i++)
        st = rvi_questions_add(&out[i].teach, w->group[i].question, err);
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

static rv_status add_form(rvi_questions *out, const rvi_buf *form, rv_error *err)
{
    if (form->failed) return rvi_nomem(err, "form of a question");
    return form->len ? rvi_questions_add(out, form->data, err) : RV_OK;
}

static rv_status frame_lesson(rvi_text_writer *w, const char *question, rvi_texts *out,
                              rv_error *err)
{
    rvi_buf forms[4 + CONTEXTS] = {{0}}, neighbours[NEIGHBOURS] = {{0}};
    rvi_frame_plain(question, &forms[0]);
    rvi_frame_addressed(question, &forms[1]);
    rvi_frame_addressed(forms[0].len ? forms[0].data : question, &forms[2]);
    rvi_buf_printf(&forms[3], "\"%s\"", question);
    for (int i = 0; i < CONTEXTS; i++) put_behind_context(w, question, &forms[4 + i]);
    for (size_t i = 0; i < NEIGHBOURS; i++) (void)rvi_frame_neighbour(question, i, &neighbours[i]);
    rv_status st = RV_OK;
    for (size_t i = 0; !st && i < RVI_COUNT(forms); i++) st = add_form(&out->teach, &forms[i], err);
    for (size_t i = 0; !st && i < NEIGHBOURS; i++) st = add_form(&out->fence, &neighbours[i], err);
    for (size_t i = 0; i < RVI_COUNT(forms); i++) rvi_buf_deinit(&forms[i]);
    for (size_t i = 0; i < NEIGHBOURS; i++) rvi_buf_deinit(&neighbours[i]);
    return st;
}

static bool is_written_about(const rvi_lesson_text *x)
{
    return strlen(x->question) <= LONGEST;
}

static rv_status write_frames(rvi_text_writer *w, rvi_texts *out, rv_error *err)
{
    rv_status st = RV_OK;
    for (size_t i = 0; !st && i < w->n; i++)
        if (is_written_about(&w->group[i]))
            st = frame_lesson(w, w->group[i].question, &out[i], err);
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
    "The same question in other words: The heater shows a red light, what is that telling me?\n\n"
    "Question: What is Rosa's favourite drink?\n"
    "The same question in other words: Rosa is thirsty. What should I bring her?\n\n";

static rv_status put_request(const rvi_text_writer *w, const char *question, rvi_ids *out,
                             rv_error *err)
{
    rvi_buf text = {0};
    rvi_buf_printf(&text, "%sQuestion: %s\nThe same question in other words:", examples, question);
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

/* Does the judge find that this lesson is asked for, and hardly any other? What is left of a
 * question may ask for several, and would teach each of them the answer of one. */
static bool is_for(const rvi_text_writer *w, size_t lesson, const rvi_recognised found[2], size_t n)
{
    if (!n || !found[0].sure || found[0].lesson != w->first + lesson) return false;
    return n < 2 || found[1].probability < found[0].probability / 2;
}

/* Is there a place for a line, whatever the judge says of it? To ask takes longer than to write. */
static bool is_wanted(const rvi_text_writer *w, const char *line, size_t most, const rvi_texts *out)
{
    bool full = out->teach.n >= most && (w->no_same || out->fence.n >= FENCE);
    return !full && !has(&out->teach, line) && !has(&out->fence, line);
}

/* By the judge: taught, part of the fence, or neither. most: texts of the lesson. */
static rv_status sort_line(rvi_text_writer *w, size_t lesson, const char *line, size_t most,
                           rvi_texts *out, rv_error *err)
{
    rvi_recognised found[2];
    size_t n = 0;
    const char *question = w->group[lesson].question;
    bool same = false;
    if (!is_wanted(w, line, most, out)) return RV_OK;
    rv_status st = rvi_words_same(&same, line, strlen(line), question, strlen(question), err);
    if (st || same) return st;
    st = rvi_recogniser_ask(w->judge, line, found, RVI_COUNT(found), &n, err);
    if (st || !n) return st;
    if (is_for(w, lesson, found, n))
        return out->teach.n < most ? rvi_questions_add(&out->teach, line, err) : RV_OK;
    if (w->no_same || found[0].probability >= NOT_ASKED || out->fence.n >= FENCE) return RV_OK;
    return rvi_questions_add(&out->fence, line, err);
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
        if (!is_written_about(&w->group[i])) continue;
        st = put_request(w, w->group[i].question, &prompts[i], err);
        for (int k = 0; k < SAMPLES; k++) {
            lessons[n] = i;
            requests[n++].prompt = prompts[i]; /* borrowed */
        }
    }
    rv_sampling s;
    rvi_sampling_init(&s, sizeof s, true);
    s.temperature = 0.9f;
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

/* ---- the question in part ---- */

/* Does a character of this script stand for a word, or part of one, without spaces around it? */
static bool is_word_alone(uint32_t cp)
{
    return (cp >= 0xE00 && cp < 0xE80) || (cp >= 0x2E80 && cp < 0xAC00) ||
           (cp >= 0xF900 && cp < 0xFB00) || cp >= 0x20000;
}

typedef struct word {
    size_t at, len;
    bool spaced; /* a space stands before it */
} word;

/* words: room for LONGEST. Returns how many there are. */
static size_t split(const char *text, word *words)
{
    size_t n = 0, len = strlen(text), step;
    bool open = false, spaced = false;
    for (size_t i = 0; i < len; i += step) {
        uint32_t cp = 0;
        step = rvi_utf8_decode(text + i, len - i, &cp, NULL);
        bool space = cp == ' ', alone = is_word_alone(cp);
        if (!space && (!open || alone)) words[n++] = (word){.at = i, .spaced = spaced};
        if (!space) words[n - 1].len = i + step - words[n - 1].at;
        open = !space && !alone;
        spaced = space;
    }
    return n;
}

/* Leaves out one word in three, by chance, and every other time lets the end stand first. */
static void put_part(const char *question, rvi_rng *rng, rvi_buf *out)
{
    word words[LONGEST];
    size_t n = split(question, words);
    size_t first = n && rvi_rng_below(rng, 2) ? rvi_rng_below(rng, n) : 0;
    for (size_t i = 0; i < n; i++) {
        const word *x = &words[(first + i) % n];
        if (!rvi_rng_below(rng, 3)) continue;
        bool alone = out->len && !x->spaced && x != words;
        if (out->len && !alone) rvi_buf_putc(out, ' ');
        rvi_buf_append(out, question + x->at, x->len);
    }
}

/* Short and broken questions are asked too; those that the judge would not open for never reach the
 * adapter. */
static rv_status write_parts(rvi_text_writer *w, rvi_texts *out, rv_error *err)
{
    rv_status st = RV_OK;
    for (size_t i = 0; !st && w->judge && i < w->n; i++) {
        const char *question = w->group[i].question;
        size_t most = out[i].teach.n + PARTS;
        for (int k = 0; !st && k < DRAWN && out[i].teach.n < most; k++) {
            rvi_buf part = {0};
            rvi_recognised found[2];
            size_t n = 0;
            if (is_written_about(&w->group[i])) put_part(question, &w->rng, &part);
            if (part.failed) st = rvi_nomem(err, "part of a question");
            if (!st && part.len && !has(&out[i].teach, part.data))
                st = rvi_recogniser_ask(w->judge, part.data, found, 2, &n, err);
            if (!st && is_for(w, i, found, n))
                st = rvi_questions_add(&out[i].teach, part.data, err);
            rvi_buf_deinit(&part);
        }
        if (!st && w->progress && w->progress(w->ctx, i + 1, w->n))
            st = rvi_error(err, RV_E_CANCELLED, "cancelled");
    }
    return st;
}

/* ---- all of them ---- */

static const struct {
    unsigned which; /* 0: always taken */
    /* Appends to the n texts of the group. */
    rv_status (*write)(rvi_text_writer *w, rvi_texts *out, rv_error *err);
} sources[] = {
    {0, write_conversation},
    {RVI_TEXTS_FRAMES, write_frames},
    {RVI_TEXTS_OWN, write_own},
    {RVI_TEXTS_PARTS, write_parts},
};

rv_status rvi_texts_write(rvi_text_writer *w, unsigned which, rvi_texts *out, rv_error *err)
{
    rv_status st = RV_OK;
    for (size_t i = 0; !st && i < RVI_COUNT(sources); i++)
        if (!sources[i].which || (sources[i].which & which)) st = sources[i].write(w, out, err);
    return st;
}

void rvi_texts_deinit(rvi_texts *t, size_t n)
{
    for (size_t i = 0; t && i < n; i++) {
        rvi_questions_deinit(&t[i].teach);
        rvi_questions_deinit(&t[i].fence);
    }
}
