#include "learn/recognise/recogniser.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "learn/journal/text.h"
#include "learn/recognise/follow.h"
#include "learn/recognise/identity.h"
#include "learn/recognise/judge.h"
#include "learn/recognise/rest.h"
#include "learn/recognise/sentences.h"
#include "learn/recognise/signs.h"

enum {
    HALF = 6,
    SHORT_LIST = 2 * HALF, /* lessons that the judge looks at */
    COMPARED = 3,          /* of them, those that the embedder compares with the request */
    RESOLVED = 2,          /* ways in which a request is taken that an earlier text explains */
    ANSWER_BYTES = 600,    /* of an answer that are read */
    MANNERS_BYTES = 12,    /* of words around a question that are hardly a part of it */
    CLAUSE_BYTES = 24      /* and of those that may be one */
};

_Static_assert((int)COMPARED <= RVI_EMBEDDER_PAIRS, "they go in one pass");

/* To compare takes longer than all the rest. The embedder's odds are seldom higher than MOST_ODDS:
 * lessons that even they would not make sure are not compared, nor are those whose odds are this
 * many times worse than the best one's. A sure one that is CLEAR of the next ends the search. */
#define MOST_ODDS     3.0f
#define FAR_BEHIND    4.5f
#define CLEAR         2.7f
#define NEARLY        0.02f /* probabilities that differ by less are alike */
#define SPELLED_ALIKE 0.4f
#define IDENTITY      0.9f /* less than of the very question, by more than NEARLY */
/* Of many lessons one is more often like a request by chance: what its odds must rise by, as a
 * logarithm, with the logarithm of their number beyond a FEW. */
#define CHANCE 0.25f
#define FEW    30.0f
/* From here on a lesson that is not sure is likely: below, there are more questions near lessons
 * than other wordings of them (bench/natural/README.md). */
#define LIKELY             0.2f
#define LIKELY_BY_SPELLING 0.45f
/* Of the words that tell what a lesson is about ("Australia. And its capital?"), as much must stand
 * in a request, the rare ones counting most: without them it asks for the same of anything. */
#define ABOUT 0.55f
/* A request that explains itself is not taken behind the turn before: with words of a turn that was
 * near a lesson, one in ten other questions near it asked for the lesson. It must be likely enough
 * to need that turn. */
#define FOLLOWS 0.3f

/* Judge and embedder learned from short texts, and find long ones alike that have nothing to do
 * with each other: on the whole they must be this alike. */
#define LONG_LIKENESS 0.82f

/* A gist that is looked at often: in steps of 1 / STEPS, whose products compilers make vectors of
 * and whose sums, since the vectors have length 1, are no larger than their square. */
enum { STEPS = 2047 };
typedef struct outline {
    int16_t spelled[RVI_SPELLING], meaning[RVI_EMBEDDER_WIDTH];
} outline;

typedef struct lesson {
    uint64_t number;
    char *question, *answer;
    bool begins_apart;             /* with a few words before a comma: "Which is older, ..." */
    int identity;                  /* the language of a question who one is; 0: it asks for more */
    bool outlined;                 /* its outline was made */
    rvi_reading *about;            /* what stands before a question that needs it; NULL: none */
    const char *own;               /* and that question */
    rvi_reading *asked, *answered; /* NULL: not needed yet */
} lesson;

struct rvi_recogniser {
    rvi_embedder *embedder; /* NULL: none */
    rvi_recogniser_memory memory;
    uint64_t version;  /* of its readings; 0: not known yet */
    lesson *lessons;   /* in the order of their numbers */
    outline *outlines; /* of their questions, one behind the other: all are looked at every time */
    size_t n, cap;
};

rv_status rvi_recogniser_new(rvi_recogniser **out, rvi_embedder *embedder,
                             const rvi_recogniser_memory *memory, rv_error *err)
{
    rvi_recogniser *r = *out = rvi_zalloc(sizeof *r);
    if (!r) return rvi_nomem(err, "recogniser");
    r->embedder = embedder;
    if (memory) r->memory = *memory;
    return RV_OK;
}

static void free_lesson(lesson *x)
{
    rvi_free(x->question);
    rvi_free(x->answer);
    rvi_reading_free(x->about);
    rvi_reading_free(x->asked);
    rvi_reading_free(x->answered);
}

void rvi_recogniser_clear(rvi_recogniser *r)
{
    for (size_t i = 0; i < r->n; i++) free_lesson(&r->lessons[i]);
    r->n = 0;
}

void rvi_recogniser_free(rvi_recogniser *r)
{
    if (!r) return;
    rvi_recogniser_clear(r);
    rvi_free(r->lessons);
    rvi_free(r->outlines);
    rvi_free(r);
}

/* Where the lesson of this number lies; n: it is not there. */
static size_t find(const rvi_recogniser *r, uint64_t number)
{
    size_t low = 0, high = r->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (r->lessons[middle].number < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low < r->n && r->lessons[low].number == number ? low : r->n;
}

/* ---- lessons ---- */

/* Only rare words: otherwise it is a sentence that somebody wrote. */
static bool was_lent(const rvi_reading *about)
{
    bool lent = true;
    for (int i = 0; i < about->n; i++) lent &= about->words[i].rarity >= RVI_LENT_RARITY;
    return lent;
}

/* What a correction was taught with where only the turn before told what it is about (follow.h). */
static rv_status find_about(lesson *x, rv_error *err)
{
    const char *sentence;
    bool follows = false;
    (void)rvi_sentence_asking(x->question, strlen(x->question), &sentence);
    rv_status st = sentence > x->question ? rvi_follow_is_one(sentence, &follows, err) : RV_OK;
    if (!st && follows)
        st = rvi_reading_new(&x->about, NULL, x->question, (size_t)(sentence - x->question), true,
                             err);
    if (x->about && !was_lent(x->about)) {
        rvi_reading_free(x->about);
        x->about = NULL;
    }
    x->own = sentence;
    return st;
}

rv_status rvi_recogniser_add(rvi_recogniser *r, uint64_t number, const char *question,
                             const char *answer, rv_error *err)
{
    if (find(r, number) < r->n) return RV_OK;
    if (r->n == r->cap) {
        size_t cap = r->cap ? 2 * r->cap : 16;
        lesson *more = rvi_realloc_array(r->lessons, cap, sizeof *more);
        if (more) r->lessons = more;
        outline *outlines = more ? rvi_realloc_array(r->outlines, cap, sizeof *outlines) : NULL;
        if (!outlines) return rvi_nomem(err, "lessons");
        r->outlines = outlines;
        r->cap = cap;
    }
    lesson x = {
        .number = number,
        .question = rvi_text_copy(rvi_text_of(question)),
        .answer = rvi_text_copy((rvi_text){answer, RVI_MIN(strlen(answer), (size_t)ANSWER_BYTES)})};
    rv_status st = x.question && x.answer ? find_about(&x, err) : rvi_nomem(err, "lessons");
    if (!st) st = rvi_identity_asked(question, strlen(question), &x.identity, err);
    if (st) {
        free_lesson(&x);
        return st;
    }
    const char *bare = x.question;
    x.begins_apart =
        rvi_sentence_trim(&bare, strlen(x.question), CLAUSE_BYTES) && bare > x.question;
    size_t at = r->n++;
    for (; at > 0 && r->lessons[at - 1].number > number; at--) {
        r->lessons[at] = r->lessons[at - 1];
        r->outlines[at] = r->outlines[at - 1];
    }
    r->lessons[at] = x;
    return RV_OK;
}

void rvi_recogniser_remove(rvi_recogniser *r, uint64_t number)
{
    size_t at = find(r, number);
    if (at == r->n) return;
    free_lesson(&r->lessons[at]);
    r->n--;
    memmove(r->lessons + at, r->lessons + at + 1, (r->n - at) * sizeof *r->lessons);
    memmove(r->outlines + at, r->outlines + at + 1, (r->n - at) * sizeof *r->outlines);
}

/* ---- how lessons read ---- */

static void round_off(int16_t *to, const float *from, int n)
{
    for (int i = 0; i < n; i++) to[i] = (int16_t)lrintf(from[i] * STEPS);
}

static void outline_of(outline *to, const rvi_gist *g)
{
    round_off(to->spelled, g->spelled, RVI_SPELLING);
    round_off(to->meaning, g->meaning, RVI_EMBEDDER_WIDTH);
}

static void set_outline(rvi_recogniser *r, lesson *x, const rvi_gist *g)
{
    outline_of(&r->outlines[x - r->lessons], g);
    x->outlined = true;
}

/* What is kept: this and the gist; or this, the reading of the question and that of the answer. */
typedef struct kept {
    uint64_t version;
    uint64_t n_asked; /* bytes of the first part */
} kept;

static rv_status need_version(rvi_recogniser *r, rv_error *err)
{
    return r->version ? RV_OK : rvi_reading_version(r->embedder, &r->version, err);
}

/* Appends what was kept; *head tells of it. False: nothing that is of any use. */
static bool recall(const rvi_recogniser *r, rvi_kept what, const lesson *x, rvi_buf *data,
                   kept *head)
{
    if (!r->memory.recall || !r->memory.recall(r->memory.ctx, what, x->number, data) ||
        data->len < sizeof *head)
        return false;
    memcpy(head, data->data, sizeof *head);
    return head->version == r->version && head->n_asked <= data->len - sizeof *head;
}

static void recall_gist(rvi_recogniser *r, lesson *x)
{
    rvi_buf data = {0};
    kept head;
    rvi_gist g;
    if (recall(r, RVI_KEPT_GIST, x, &data, &head) && data.len == sizeof head + sizeof g) {
        memcpy(&g, data.data + sizeof head, sizeof g);
        if (rvi_gist_is_sound(&g)) set_outline(r, x, &g);
    }
    rvi_buf_deinit(&data);
}

static rv_status recall_reading(const rvi_recogniser *r, lesson *x, rv_error *err)
{
    rvi_buf data = {0};
    kept head;
    rv_error why = {0};
    if (recall(r, RVI_KEPT_READING, x, &data, &head)) {
        const char *at = data.data + sizeof head;
        size_t len = data.len - sizeof head;
        if (rvi_reading_load(&x->asked, at, (size_t)head.n_asked, &why) ||
            rvi_reading_load(&x->answered, at + head.n_asked, len - (size_t)head.n_asked, &why) ||
            x->asked->embedded != (r->embedder != NULL) || x->asked->brief ||
            x->answered->embedded != x->asked->embedded) {
            rvi_reading_free(x->asked); /* read anew */
            rvi_reading_free(x->answered);
            x->asked = x->answered = NULL;
        }
    }
    rvi_buf_deinit(&data);
    return why.code == RV_E_NOMEM ? rvi_nomem(err, "reading") : RV_OK;
}

static void keep(const rvi_recogniser *r, const lesson *x)
{
    rvi_buf data = {0};
    const rvi_gist *gist = &x->asked->gist;
    kept head = {.version = r->version, .n_asked = sizeof *gist};
    if (!r->memory.keep) return;
    if (rvi_buf_append(&data, &head, sizeof head) && rvi_buf_append(&data, gist, sizeof *gist))
        r->memory.keep(r->memory.ctx, RVI_KEPT_GIST, x->number, data.data, data.len);
    data.len = sizeof head;
    bool whole = rvi_reading_save(x->asked, &data);
    head.n_asked = data.len - sizeof head;
    if (whole && rvi_reading_save(x->answered, &data)) {
        memcpy(data.data, &head, sizeof head);
        r->memory.keep(r->memory.ctx, RVI_KEPT_READING, x->number, data.data, data.len);
    }
    rvi_buf_deinit(&data);
}

static rv_status read_lesson(rvi_recogniser *r, lesson *x, rv_error *err)
{
    rvi_reading *asked = NULL, *answered = NULL;
    rv_status st =
        rvi_reading_new(&asked, r->embedder, x->question, strlen(x->question), false, err);
    if (!st) st = rvi_reading_new(&answered, r->embedder, x->answer, strlen(x->answer), true, err);
    if (st) {
        rvi_reading_free(asked);
        return st;
    }
    set_outline(r, x, &asked->gist);
    x->asked = asked;
    x->answered = answered;
    keep(r, x);
    return RV_OK;
}

static rv_status need_gist(rvi_recogniser *r, lesson *x, rv_error *err)
{
    if (x->outlined) return RV_OK;
    rv_status st = need_version(r, err);
    if (!st) recall_gist(r, x);
    return st || x->outlined ? st : read_lesson(r, x, err);
}

static rv_status need_reading(rvi_recogniser *r, lesson *x, rv_error *err)
{
    if (x->asked) return RV_OK;
    rv_status st = need_version(r, err);
    if (!st) st = recall_reading(r, x, err);
    return st || x->asked ? st : read_lesson(r, x, err);
}

rv_status rvi_recogniser_read(rvi_recogniser *r, uint64_t number, rv_error *err)
{
    size_t at = find(r, number);
    return at < r->n ? need_gist(r, &r->lessons[at], err) : RV_OK;
}

typedef struct candidate {
    size_t at;
    float likeness, probability;
    bool same, compared;
} candidate;

/* Keeps the likest, at most HALF of them. */
static void put_candidate(candidate list[HALF], size_t *n, size_t at_lesson, float likeness)
{
    if (*n == HALF && likeness <= list[*n - 1].likeness) return;
    size_t at = *n < HALF ? (*n)++ : *n - 1;
    for (; at > 0 && list[at - 1].likeness < likeness; at--) list[at] = list[at - 1];
    list[at] = (candidate){.at = at_lesson, .likeness = likeness};
}

static float letters_of(const outline *a, const outline *b)
{
    return rvi_dot_16(a->spelled, b->spelled, RVI_SPELLING) / (STEPS * STEPS);
}

static float meaning_of(const outline *a, const outline *b)
{
    return rvi_dot_16(a->meaning, b->meaning, RVI_EMBEDDER_WIDTH) / (STEPS * STEPS);
}

/* The lessons most like the request on the whole, and those that are spelled most like it: of
 * scripts that the embedder hardly knows, meanings tell little. */
static size_t shorten(const rvi_recogniser *r, const rvi_gist *request, candidate list[SHORT_LIST])
{
    candidate spelled[HALF];
    size_t n = 0, n_spelled = 0;
    outline asked;
    outline_of(&asked, request);
    for (size_t i = 0; i < r->n; i++) {
        float letters = letters_of(&r->outlines[i], &asked);
        put_candidate(list, &n, i, meaning_of(&r->outlines[i], &asked) + 0.5f * letters);
        put_candidate(spelled, &n_spelled, i, letters);
    }
    for (size_t i = 0; i < n_spelled; i++) {
        candidate *c = &spelled[i];
        c->likeness = meaning_of(&r->outlines[c->at], &asked) + 0.5f * c->likeness;
    }
    for (size_t i = 0, n_likest = n; i < n_spelled; i++) {
        bool new = true;
        for (size_t k = 0; k < n_likest; k++) new &= list[k].at != spelled[i].at;
        if (new) list[n++] = spelled[i];
    }
    return n;
}

static bool signs_differ(const lesson *x, const char *text, size_t len)
{
    return rvi_signs_differ(rvi_text_of(x->question), (rvi_text){text, len});
}

/* The very question that was taught; where all of it was read, whatever its punctuation and
 * capitals. */
static bool is_same(const lesson *x, const rvi_reading *asked, const char *text, size_t len)
{
    const rvi_reading *a = x->asked;
    if (strlen(x->question) == len && !memcmp(x->question, text, len)) return true;
    if (signs_differ(x, text, len)) return false;
    bool same = a->n == asked->n && a->n && a->n < RVI_READING_WORDS;
    for (int i = 0; same && i < a->n; i++) same = a->words[i].key == asked->words[i].key;
    return same && !a->cut && !asked->cut;
}

/* Of a script that nobody learned, all words mean the same to the embedder: they must be spelled
 * alike too. */
static rv_status judge_spelling(const lesson *x, const char *text, size_t len, float *probability,
                                rv_error *err)
{
    rvi_reading *a = NULL, *b = NULL;
    rv_status st = rvi_reading_new(&a, NULL, x->question, strlen(x->question), false, err);
    if (!st) st = rvi_reading_new(&b, NULL, text, len, false, err);
    if (!st && rvi_judge(a, x->answered, b) < rvi_judge_sure(false)) *probability = 0;
    rvi_reading_free(a);
    rvi_reading_free(b);
    return st;
}

/* Texts that begin alike may ask for anything at an end that was not read, and of one that sets no
 * words apart nobody can tell which of them differ. */
static rv_status judge(const lesson *x, const rvi_reading *asked, const char *text, size_t len,
                       candidate *c, rv_error *err)
{
    const rvi_reading *taught = x->asked;
    rvi_script script = RVI_MAX(taught->script, asked->script);
    c->probability = 0;
    if (taught->cut || asked->cut || script == RVI_SCRIPT_RUNS) return RV_OK;
    if (signs_differ(x, text, len)) return RV_OK;
    if (asked->embedded && c->likeness < LONG_LIKENESS && (taught->is_long || asked->is_long))
        return RV_OK;
    c->probability = rvi_judge(taught, x->answered, asked);
    return script == RVI_SCRIPT_STRANGE && asked->embedded
               ? judge_spelling(x, text, len, &c->probability, err)
               : RV_OK;
}

/* Is the request about what the lesson is about? */
static bool is_about(const lesson *x, const rvi_reading *asked)
{
    float all = 0, shared = 0;
    for (int i = 0; x->about && i < x->about->n; i++) {
        const rvi_read_word *w = &x->about->words[i];
        float weight = w->rarity * w->rarity;
        all += weight;
        shared += rvi_reading_has(asked, w->key) ? weight : 0;
    }
    return shared >= ABOUT * all;
}

static float likeness_of_words(const rvi_reading *x, int i, const rvi_reading *y, int k)
{
    int32_t sum = 0;
    for (int j = 0; j < RVI_SPELLING; j++) sum += x->spelling[i][j] * y->spelling[k][j];
    return (float)sum * x->words[i].spelling_scale * y->words[k].spelling_scale;
}

_Static_assert(RVI_READING_WORDS <= 32, "a bit each");

/* Names that are spelled nearly alike are alike to judge and embedder. */
static void look_for_words(const lesson *x, const rvi_reading *asked, rvi_recognised *out)
{
    const rvi_reading *a = x->asked;
    for (int i = 0; i < asked->n; i++) {
        bool has = false, like = false;
        for (int k = 0; k < a->n && !has; k++) {
            has = a->words[k].key == asked->words[i].key;
            like |= likeness_of_words(asked, i, a, k) > SPELLED_ALIKE;
        }
        out->has |= (uint32_t)has << i;
        out->resembles |= (uint32_t)(like && !has) << i;
    }
}

static float raised_by_chance(const rvi_recogniser *r, float p)
{
    return 1 / (1 + (1 - p) / p * powf(fmaxf((float)r->n / FEW, 1), -CHANCE));
}

/* From this probability on a lesson's answer is spoken. */
static float sure_of(const rvi_recogniser *r)
{
    return raised_by_chance(r, rvi_judge_sure(r->embedder != NULL));
}

/* From this one on a model that reads is shown the lesson. */
static float likely_of(const rvi_recogniser *r)
{
    return raised_by_chance(r, r->embedder ? LIKELY : LIKELY_BY_SPELLING);
}

static bool is_worth_comparing(const rvi_recogniser *r, const candidate *c)
{
    return rvi_judge_compared(c->probability, MOST_ODDS) >= sure_of(r);
}

static float odds_of(const candidate *c)
{
    return c->probability / fmaxf(1 - c->probability, 1e-6f);
}

/* The likeliest of those worth comparing, the first one first. */
static size_t likeliest(const rvi_recogniser *r, candidate *list, size_t n,
                        candidate *out[COMPARED])
{
    size_t n_out = 0;
    for (size_t i = 0; i < n; i++) {
        candidate *c = &list[i];
        if (!is_worth_comparing(r, c)) continue;
        if (n_out == COMPARED && c->probability <= out[n_out - 1]->probability) continue;
        size_t at = n_out < COMPARED ? n_out++ : n_out - 1;
        for (; at > 0 && out[at - 1]->probability < c->probability; at--) out[at] = out[at - 1];
        out[at] = c;
    }
    while (n_out && odds_of(out[0]) > FAR_BEHIND * odds_of(out[n_out - 1])) n_out--;
    return n_out;
}

static rv_status compare_these(rvi_recogniser *r, candidate **these, size_t n,
                               const rvi_reading *asked, rv_error *err)
{
    rvi_embedder_pair pairs[COMPARED];
    for (size_t i = 0; i < n; i++) {
        const rvi_reading *x = r->lessons[these[i]->at].asked;
        pairs[i] =
            (rvi_embedder_pair){x->ids, asked->ids, (size_t)x->n_ids, (size_t)asked->n_ids, 0};
    }
    rv_status st = rvi_embedder_compare(r->embedder, pairs, n, err);
    for (size_t i = 0; !st && i < n; i++) {
        these[i]->compared = true;
        these[i]->probability = rvi_judge_compared(these[i]->probability, pairs[i].odds);
    }
    return st;
}

/* Lets the embedder compare the likeliest with the request: that takes as long as reading both. */
static rv_status compare(rvi_recogniser *r, candidate *list, size_t n, const rvi_reading *asked,
                         rv_error *err)
{
    candidate *best[COMPARED];
    for (size_t i = 0; i < n; i++)
        if (list[i].same) return RV_OK; /* nothing is left to compare */
    size_t n_best = likeliest(r, list, n, best);
    if (!n_best) return RV_OK;
    bool clear = n_best == 1 || odds_of(best[0]) > CLEAR * odds_of(best[1]);
    size_t n_first = clear ? 1 : n_best;
    rv_status st = compare_these(r, best, n_first, asked, err);
    if (st || n_first == n_best || best[0]->probability >= sure_of(r)) return st;
    return compare_these(r, best + n_first, n_best - n_first, asked, err);
}

static bool comes_first(const rvi_recognised *a, const rvi_recognised *b)
{
    float difference = a->probability - b->probability;
    if (difference > NEARLY || difference < -NEARLY || a->lesson == b->lesson)
        return difference > 0;
    bool named = a->has & b->resembles, other = b->has & a->resembles;
    return named != other ? named : a->lesson > b->lesson;
}

/* Keeps the likeliest, each lesson once. */
static void put_in(const rvi_recognised *found, rvi_recognised *out, size_t max, size_t *n)
{
    size_t at = 0;
    while (at < *n && out[at].lesson != found->lesson) at++;
    if (at < *n && !comes_first(found, &out[at])) return;
    if (at == *n && *n == max && !comes_first(found, &out[--at])) return;
    if (at == *n) (*n)++;
    for (; at > 0 && comes_first(found, &out[at - 1]); at--) out[at] = out[at - 1];
    out[at] = *found;
}

/* A request, and the part of it that is looked at. lacks_start: its first words were left out, so
 * it says nothing of lessons that have such words. own: what was said in a request that needs the
 * turn before, whether words of that were lent to it or not; empty: it needs none. */
typedef struct part {
    const char *request, *text;
    size_t n_request, len;
    bool lacks_start;
    rvi_text own;
} part;

/* Does the request only name what the lesson is about? */
static rv_status only_names(const lesson *x, const part *p, bool *out, rv_error *err)
{
    rvi_buf left = {0};
    rvi_reading *words = NULL;
    rv_status st = rvi_reading_without(p->text, p->len, x->about, &left, err);
    if (!st) st = rvi_reading_new(&words, NULL, left.data, left.len, true, err);
    *out = !st && !words->n;
    rvi_reading_free(words);
    rvi_buf_deinit(&left);
    return st;
}

/* Of a lesson whose question needed the turn before it, the whole is not enough. Where the request
 * stands behind words of a turn, too, the questions by themselves must be alike: "Lunch. And
 * dinner?" and "Lunch. And breakfast?" share all else. Any other must not ask for what was spoken
 * of, as the turn before did ("Tell me about lunch."). */
static rv_status judge_about(const rvi_recogniser *r, const lesson *x, const part *p, float *out,
                             rv_error *err)
{
    const rvi_text about = {x->question, (size_t)(x->own - x->question)}, text = {p->text, p->len};
    float alike = *out;
    bool names = false;
    if (p->own.len && p->own.len < p->len) {
        rv_status st =
            rvi_rest_compare(r->embedder, rvi_text_of(x->own), x->answered, p->own, &alike, err);
        *out = fminf(*out, alike);
        return st;
    }
    rv_status st = only_names(x, p, &names, err);
    if (!st && !names) st = rvi_rest_compare(r->embedder, about, x->answered, text, &alike, err);
    if (names || alike >= sure_of(r)) *out = 0;
    return st;
}

/* Long texts that share sentences are judged by the rest alone, for by all they say they are alike,
 * whatever they ask. */
static rv_status judge_rests(rvi_recogniser *r, candidate *list, size_t n, const part *p,
                             const rvi_reading *asked, rv_error *err)
{
    rv_status st = RV_OK;
    for (size_t i = 0; !st && i < n; i++) {
        candidate *c = &list[i];
        const lesson *x = &r->lessons[c->at];
        float rest = c->probability;
        if (c->same || (r->embedder && !c->compared) || rest <= 0) continue;
        if (x->asked->is_long || asked->is_long) {
            st = rvi_rest_judge(r->embedder, x->question, x->answered, p->request, p->n_request,
                                &rest, err);
        } else if (x->about && rest >= sure_of(r)) {
            st = judge_about(r, x, p, &rest, err);
        }
        c->probability = rest;
    }
    return st;
}

/* Who one is may be asked in words that have nothing in common. Of several such lessons the one
 * that the judge finds likeliest, though not likely enough. */
static rv_status ask_identity(const rvi_recogniser *r, const part *p, rvi_recognised *out,
                              size_t max, size_t *n, rv_error *err)
{
    int language = 0;
    rvi_recognised best = {0};
    if (*n && out[0].sure) return RV_OK;
    rv_status st = rvi_identity_asked(p->text, p->len, &language, err);
    for (size_t i = 0; language && i < r->n; i++) {
        if (r->lessons[i].identity != language) continue;
        rvi_recognised one = {.lesson = r->lessons[i].number};
        for (size_t k = 0; k < *n; k++)
            if (out[k].lesson == one.lesson) one.probability = out[k].probability;
        if (!best.lesson || comes_first(&one, &best)) best = one;
    }
    if (!best.lesson) return st;
    best.probability = IDENTITY;
    best.sure = best.listed = true;
    put_in(&best, out, max, n);
    return RV_OK;
}

/* Adds the lessons that this part of a request may ask for to the likeliest so far. */
static rv_status ask_part(rvi_recogniser *r, const part *p, rvi_recognised *out, size_t max,
                          size_t *n, rv_error *err)
{
    rvi_reading *asked = NULL;
    candidate list[SHORT_LIST];
    rv_status st = rvi_reading_new(&asked, r->embedder, p->text, p->len, false, err);
    size_t n_list = !st ? shorten(r, &asked->gist, list) : 0;
    for (size_t i = 0; !st && i < n_list; i++) {
        lesson *x = &r->lessons[list[i].at];
        if ((st = need_reading(r, x, err))) break;
        list[i].same = is_same(x, asked, p->text, p->len);
        if (list[i].same)
            list[i].probability = 1;
        else if ((!p->lacks_start || !x->begins_apart) && is_about(x, asked))
            st = judge(x, asked, p->text, p->len, &list[i], err);
    }
    if (!st && r->embedder) st = compare(r, list, n_list, asked, err);
    if (!st) st = judge_rests(r, list, n_list, p, asked, err);
    for (size_t i = 0; i < *n; i++) out[i].has = out[i].resembles = 0; /* words of another text */
    for (size_t i = 0; !st && i < n_list; i++) {
        const candidate *c = &list[i];
        if (r->embedder && !c->same && !c->compared && is_worth_comparing(r, c))
            continue; /* others are likelier */
        rvi_recognised found = {.lesson = r->lessons[c->at].number,
                                .probability = c->probability,
                                .sure = c->probability >= sure_of(r),
                                .likely = c->probability >= likely_of(r)};
        if (found.sure) look_for_words(&r->lessons[c->at], asked, &found);
        put_in(&found, out, max, n);
    }
    rvi_reading_free(asked);
    return st;
}

/* The lessons whose very question this is; nothing needs to be embedded for that. */
static rv_status ask_same(rvi_recogniser *r, const char *text, size_t len, rvi_recognised *out,
                          size_t max, size_t *n, rv_error *err)
{
    rvi_reading *asked = NULL;
    candidate list[SHORT_LIST];
    rv_status st = rvi_reading_new(&asked, NULL, text, len, true, err);
    size_t n_list = !st ? shorten(r, &asked->gist, list) : 0;
    for (size_t i = 0; !st && i < n_list; i++) {
        lesson *x = &r->lessons[list[i].at];
        if ((st = need_reading(r, x, err))) break;
        if (is_same(x, asked, text, len))
            put_in(&(rvi_recognised){.lesson = x->number, .probability = 1, .sure = true}, out, max,
                   n);
    }
    rvi_reading_free(asked);
    return st;
}

/* Manners around a request hide what it asks for, and what it does not: it counts without them.
 * Other words beside the sentence that asks may tell what is asked, so that counts alone only where
 * the whole opens nothing. */
rv_status rvi_recogniser_ask(rvi_recogniser *r, const char *request, rvi_recognised *out,
                             size_t max, size_t *n, rv_error *err)
{
    *n = 0;
    rv_status st = RV_OK;
    size_t end = strlen(request);
    const char *bare = request, *asking = NULL;
    while (end && strchr(" \t\r\n", request[end - 1])) end--;
    size_t n_bare = rvi_sentence_trim(&bare, end, MANNERS_BYTES);
    size_t n_asking = rvi_sentence_asking(bare, n_bare, &asking);
    const char *sentence = asking;
    n_asking = rvi_sentence_trim(&asking, n_asking, CLAUSE_BYTES);
    for (size_t i = 0; !st && i < r->n; i++) st = need_gist(r, &r->lessons[i], err);
    if (st || !r->n) return st;
    if (n_bare < end) st = ask_same(r, request, end, out, max, n, err);
    bool follows = false;
    if (!st) st = rvi_follow_is_one(request, &follows, err);
    part p = {request, bare, end, n_bare, false, {bare, follows ? n_bare : 0}};
    if (!st && !*n) st = ask_part(r, &p, out, max, n, err);
    if (!st) st = ask_identity(r, &p, out, max, n, err);
    bool sure = !st && *n && out[0].sure;
    p = (part){request, asking, end, n_asking, asking > sentence, {0}};
    if (!st && n_asking && n_asking < n_bare && !sure) st = ask_part(r, &p, out, max, n, err);
    return st;
}

/* The request as it may be meant: behind the words that the earlier text lends it. */
typedef struct resolved {
    rvi_buf texts[RESOLVED];
    size_t n;
} resolved;

static rv_status resolve(rvi_recogniser *r, const char *earlier, const char *request, size_t len,
                         resolved *out, rv_error *err)
{
    rvi_buf joined = {0};
    rvi_reading *both = NULL, *asked = NULL, *before = NULL;
    candidate list[SHORT_LIST];
    if (!rvi_buf_printf(&joined, "%s ", earlier) || !rvi_buf_append(&joined, request, len)) {
        rvi_buf_deinit(&joined);
        return rvi_nomem(err, "reading");
    }
    rv_status st = rvi_reading_new(&both, r->embedder, joined.data, joined.len, true, err);
    if (!st) st = rvi_reading_new(&asked, NULL, request, len, true, err);
    if (!st) st = rvi_reading_new(&before, NULL, earlier, strlen(earlier), true, err);
    size_t n_list = !st ? shorten(r, &both->gist, list) : 0;
    for (size_t i = 0; !st && i < n_list && out->n < RESOLVED; i++) {
        lesson *x = &r->lessons[list[i].at];
        rvi_buf *text = &out->texts[out->n];
        text->len = 0;
        st = need_reading(r, x, err);
        if (!st && is_same(x, before, earlier, strlen(earlier))) continue; /* it was asked then */
        if (!st) st = rvi_reading_lend(earlier, strlen(earlier), x->asked, asked, text, err);
        if (st || !text->len) continue;
        if (!rvi_buf_puts(text, ". ") || !rvi_buf_append(text, request, len))
            st = rvi_nomem(err, "reading");
        bool new = true;
        for (size_t k = 0; !st && k < out->n; k++)
            new &= out->texts[k].len != text->len ||
                   memcmp(out->texts[k].data, text->data, text->len) != 0;
        out->n += new;
    }
    rvi_reading_free(both);
    rvi_reading_free(asked);
    rvi_reading_free(before);
    rvi_buf_deinit(&joined);
    return st;
}

/* May texts before this one tell what a request behind it is about? Not where it has a name, nor in
 * scripts whose names look like other words. */
static bool tells_nothing(const char *text)
{
    for (const char *c = text; *c; c++)
        if ((unsigned char)*c >= 0x80) return false;
    return rvi_sentence_names_nothing(text, strlen(text), true);
}

/* Whole earlier texts would hide what is asked: a question about the capital is none about the
 * population. Only the words that some lesson's question has in common with them count. */
rv_status rvi_recogniser_follow(rvi_recogniser *r, const char *earlier, const char *request,
                                rvi_recognised *out, size_t max, size_t *n, bool *last,
                                rv_error *err)
{
    resolved meant = {0};
    const char *bare = request;
    size_t end = strlen(request);
    float follows = 0;
    *n = 0;
    *last = true;
    rv_status st = rvi_follow_probability(request, &follows, err);
    if (st || follows < FOLLOWS) return st;
    while (end && strchr(" \t\r\n", request[end - 1])) end--;
    end = rvi_sentence_trim(&bare, end, MANNERS_BYTES);
    for (size_t i = 0; !st && i < r->n; i++) st = need_gist(r, &r->lessons[i], err);
    if (!st && r->n) st = resolve(r, earlier, bare, end, &meant, err);
    for (size_t i = 0; !st && i < meant.n; i++) {
        const rvi_buf *text = &meant.texts[i];
        const part p = {text->data, text->data, text->len, text->len, false, {bare, end}};
        st = ask_part(r, &p, out, max, n, err);
    }
    *last = meant.n > 0 || !tells_nothing(earlier);
    for (size_t i = 0; i < RESOLVED; i++) rvi_buf_deinit(&meant.texts[i]);
    return st;
}
