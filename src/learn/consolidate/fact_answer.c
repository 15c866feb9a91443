/* fact_answer.c - what is new in a corrected answer: "No, Kakovin's instrument is the banjo." says
 * "the banjo"; the rest repeats the question or contradicts. */
#include <string.h>

#include "learn/consolidate/fact_internal.h"

typedef struct reading {
    const rvi_question *q;
    const char *text;
    const rvi_word *w;
    size_t from, to; /* the words that may still be the answer */
} reading;

static bool is_subject(const reading *r, const char *key)
{
    for (size_t i = r->q->first; i < r->q->behind; i++)
        if (!strcmp(r->q->words.data[i].key, key)) return true;
    return false;
}

/* Repeats a word of the question */
static bool repeats(const reading *r, const char *key)
{
    for (size_t i = 0; i < r->q->words.n; i++)
        if (rvi_english_same(r->q->words.data[i].key, key)) return true;
    return false;
}

/* Says nothing new */
static bool is_echo(const reading *r, const char *key)
{
    return rvi_english_is(key, RVI_EN_FUNCTION) || repeats(r, key);
}

/* ---- contradiction ---- */

static size_t words_at(const reading *r, size_t i, const char *phrase)
{
    size_t n = 0;
    for (; *phrase; n++) {
        size_t len = strcspn(phrase, " ");
        if (i + n >= r->to) return 0;
        const char *key = r->w[i + n].key;
        if (strlen(key) != len || memcmp(key, phrase, len)) return 0;
        phrase += len + (phrase[len] == ' ');
    }
    return n;
}

/* "No, that is wrong. Actually ..." and "The answer is ..." */
static void skip_denial(reading *r)
{
    static const char *const denials[] = {"no",
                                          "nope",
                                          "wrong",
                                          "incorrect",
                                          "false",
                                          "sorry",
                                          "actually",
                                          "well",
                                          "yes",
                                          "oh",
                                          "hmm",
                                          "not quite",
                                          "not really",
                                          "not true",
                                          "in fact",
                                          "of course",
                                          "that is wrong",
                                          "that's wrong",
                                          "that is not right",
                                          "that's not right",
                                          "that isn't right",
                                          "that is incorrect",
                                          "that is not correct",
                                          "you are wrong",
                                          "you're wrong",
                                          "you are mistaken",
                                          "i meant",
                                          "i mean",
                                          "the answer is",
                                          "the correct answer is",
                                          "the right answer is",
                                          "correct answer",
                                          "answer",
                                          "it should be",
                                          "should be",
                                          "that should be",
                                          "it must be",
                                          "it has to be",
                                          "i think it is",
                                          "remember"};
    /* A possessive hides the verb: "it's" is the word "it", "that's wrong" is "that wrong". */
    static const char *const hidden[] = {"that wrong", "that not right", "that incorrect"};
    for (size_t n = 1; n && r->from < r->to; r->from += n) {
        n = 0;
        for (size_t i = 0; i < RVI_COUNT(denials); i++)
            n = RVI_MAX(n, words_at(r, r->from, denials[i]));
        for (size_t i = 0; i < RVI_COUNT(hidden); i++)
            n = RVI_MAX(n, words_at(r, r->from, hidden[i]));
        if (n && r->from + n == r->to) break;     /* "Wrong" alone is the answer itself */
        if (n == 1 && r->w[r->from + 1].joined && /* "no sugar", "answer machines" */
            !rvi_english_is(r->w[r->from + 1].key, RVI_EN_FUNCTION) &&
            !rvi_english_among(r->w[r->from].key, " actually sorry "))
            break;
    }
}

/* "not the violin but the banjo", "the banjo, not the violin" */
static void skip_contrast(reading *r)
{
    if (r->from < r->to && !strcmp(r->w[r->from].key, "not"))
        for (size_t i = r->from + 1; i < r->to; i++) {
            bool but = !strcmp(r->w[i].key, "but");
            if (!but && r->w[i].joined) continue;
            r->from = i + but;
            break;
        }
    for (size_t i = r->from + 1; i < r->to; i++)
        if (!strcmp(r->w[i].key, "not") && !r->w[i].joined) r->to = i;
}

/* ---- repetition ---- */

static bool all_echo(const reading *r, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++)
        if (!is_echo(r, r->w[i].key)) return false;
    return true;
}

static bool all_repeat(const reading *r, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++)
        if (!repeats(r, r->w[i].key) && !rvi_english_is(r->w[i].key, RVI_EN_ARTICLE)) return false;
    return true;
}

/* The "on" of "Kettle-on-Brae" does not name it. */
static bool any_subject(const reading *r, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++)
        if (is_subject(r, r->w[i].key) && !rvi_english_is(r->w[i].key, RVI_EN_FUNCTION))
            return true;
    return false;
}

/* "She was born in Oslo": a form of the question's verb, and a preposition behind it; any verb
 * before "by" ("was published by") */
static void skip_participle(reading *r)
{
    if (r->from + 2 >= r->to) return;
    const char *verb = r->w[r->from].key, *prep = r->w[r->from + 1].key;
    if ((repeats(r, verb) && rvi_english_is(prep, RVI_EN_PREP)) ||
        (rvi_english_participle(verb) && !strcmp(prep, "by")))
        r->from += 2;
}

/* "S's R is O": behind the last form of "be" that follows nothing but repetition. "it's" and
 * "that's" hide one. */
static bool behind_verb(reading *r)
{
    bool found = false;
    for (size_t i = r->from; i + 1 < r->to; i++) {
        bool verb = rvi_english_is(r->w[i].key, RVI_EN_BE);
        bool hides =
            r->w[i].possessive && rvi_english_among(r->w[i].key, " it that he she there what who ");
        if (i < r->from || (!verb && !hides) || (verb && i == r->from)) continue;
        if (!all_echo(r, r->from, i)) break;
        r->from = i + 1;
        found = true;
        skip_contrast(r); /* "is not the violin but the banjo" */
    }
    if (found) skip_participle(r);
    return found;
}

/* "O is S's R" */
static bool before_verb(reading *r)
{
    for (size_t i = r->from + 1; i + 1 < r->to; i++) {
        if (!rvi_english_is(r->w[i].key, RVI_EN_BE) || !all_echo(r, i + 1, r->to)) continue;
        if (!any_subject(r, i + 1, r->to) || all_echo(r, r->from, i)) continue;
        r->to = i;
        return true;
    }
    return false;
}

/* "O wrote S", "O wrote it" */
static bool before_echo(reading *r)
{
    for (size_t i = r->from + 1; i + 1 < r->to; i++)
        if (all_echo(r, i, r->to) && !all_echo(r, r->from, i) &&
            (any_subject(r, i, r->to) ||
             (repeats(r, r->w[i].key) && rvi_english_is(r->w[r->to - 1].key, RVI_EN_THIRD)))) {
            r->to = i;
            return true;
        }
    return false;
}

/* "S plays the banjo", "She lives in Oslo": behind the subject, its verb and a preposition. A verb
 * that the question has not is taken for one by its ending. */
static bool behind_subject(reading *r)
{
    size_t i = r->from, had = i;
    if (rvi_english_is(r->w[i].key, RVI_EN_PRONOUN)) i++;
    if (i == had && rvi_english_is(r->w[i].key, RVI_EN_ARTICLE)) i++;
    if (i == r->from || rvi_english_is(r->w[r->from].key, RVI_EN_ARTICLE))
        while (i < r->to && is_subject(r, r->w[i].key)) i++;
    if (i == had || (i == had + 1 && rvi_english_is(r->w[had].key, RVI_EN_ARTICLE))) return false;
    size_t verb = i;
    for (; i + 1 < r->to; i++) {
        const char *key = r->w[i].key;
        size_t len = strlen(key);
        bool unknown =
            i == verb && len > 2 && (key[len - 1] == 's' || !strcmp(key + len - 2, "ed"));
        if (rvi_english_is(key, RVI_EN_ARTICLE) || rvi_english_is(key, RVI_EN_OWNER)) break;
        if (!is_echo(r, key) && !unknown) break;
    }
    if (i == verb) return false;
    r->from = i;
    return true;
}

static bool one_sentence(const reading *r)
{
    for (size_t i = r->from; i + 1 < r->to; i++)
        if (rvi_question_ends_sentence(r->text, &r->w[i], &r->w[i + 1])) return false;
    return true;
}

static void read_answer(reading *r, rvi_buf *o, rvi_buf *sentence)
{
    skip_denial(r);
    size_t first = r->from, end = r->to, all = r->to;
    if (!one_sentence(r)) { /* more than one: only what the first says of a name */
        if (!r->q->strong) return;
        for (size_t i = r->from; i + 1 < r->to; i++)
            if (rvi_question_ends_sentence(r->text, &r->w[i], &r->w[i + 1])) r->to = i + 1;
        end = r->to;
    }
    skip_contrast(r);
    bool said = r->from < r->to &&
                (behind_verb(r) || before_verb(r) || behind_subject(r) || before_echo(r));
    if (r->from >= r->to || all_repeat(r, r->from, r->to)) return;
    if (!said && end < all && end - first > 3) return;
    size_t at = r->w[r->from].at, to = r->w[r->to - 1].end;
    if (r->to - r->from > RVI_FACT_MAX_WORDS || to - at > RVI_FACT_MAX_ANSWER) return;
    rvi_buf_append(o, r->text + at, to - at);
    /* A whole sentence about the subject, not about "it", and no contradiction in it */
    for (size_t i = first; i < end; i++)
        if (!strcmp(r->w[i].key, "not")) return;
    if (said && any_subject(r, first, end)) rvi_question_slice(sentence, r->text, r->w, first, end);
}

rv_status rvi_fact_answer(const rvi_question *q, const char *answer, rvi_buf *o, rvi_buf *sentence,
                          rv_error *err)
{
    rvi_words words = {0};
    if (strlen(answer) > 4 * RVI_FACT_MAX_QUESTION || strchr(answer, '\n')) return RV_OK;
    rv_status st = rvi_words_split(&words, answer, strlen(answer), err);
    reading r = {.q = q, .text = answer, .w = words.data, .to = words.n};
    if (!st && words.n) read_answer(&r, o, sentence);
    if (!st && (o->failed || sentence->failed)) st = rvi_nomem(err, "answer");
    rvi_words_deinit(&words);
    return st;
}
