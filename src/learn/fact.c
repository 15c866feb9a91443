#include "learn/fact.h"

#include <string.h>

#include "base/utf8.h"
#include "learn/fact_internal.h"
#include "template/jinja_case.h"
#include "tokenizer/unicode.h"

enum { MAX_TEXT = 1 << 20, MAX_QUESTION_WORDS = 128 };

/* Valid UTF-8 without control characters, trimmed; white space becomes single spaces, or where lines
 * are kept a single newline if there was one in it. */
static rv_status clean(rvi_buf *out, const char *text, size_t len, bool lines, rv_error *err)
{
    bool space = false, newline = false;
    for (size_t i = 0; i < len;) {
        uint32_t cp;
        char bytes[4];
        i += rvi_utf8_decode(text + i, len - i, &cp, NULL);
        if (rvi_unicode_is_space(cp) || cp < 0x20 || cp == 0x7F) {
            space = true;
            newline = newline || cp == '\n';
            continue;
        }
        if (space && out->len) rvi_buf_putc(out, lines && newline ? '\n' : ' ');
        space = newline = false;
        rvi_buf_append(out, bytes, rvi_utf8_encode(cp, bytes));
    }
    if (!out->data) rvi_buf_puts(out, "");
    return out->failed ? rvi_nomem(err, "text of a correction") : RV_OK;
}

bool rvi_question_slice(rvi_buf *out, const char *text, const rvi_word *words, size_t from,
                        size_t to)
{
    if (from >= to) return true;
    size_t end = words[to - 1].at + words[to - 1].len;
    return rvi_buf_append(out, text + words[from].at, end - words[from].at);
}

bool rvi_question_ends_sentence(const char *text, const rvi_word *w, const rvi_word *next)
{
    size_t end = next ? next->at : strlen(text);
    for (size_t i = w->end; i < end; i++) {
        if (text[i] == '?' || text[i] == '!' || text[i] == '\n') return true;
        if (text[i] != '.' || (i + 1 < end && text[i + 1] != ' ')) continue;
        if (i + 1 == end && next) continue; /* "3.14", "example.com" */
        if (next && (w->len == 1 || rvi_english_among(w->key, " dr mr mrs ms st prof jr sr no ")))
            continue;
        return true;
    }
    return false;
}

/* ---- the subject ---- */

/* Has a meaning of its own, and is no mere number */
static bool is_content(const rvi_word *w)
{
    return w->key[strspn(w->key, "0123456789")] && !rvi_english_is(w->key, RVI_EN_FUNCTION);
}

/* Joins two words of a name: only white space between them, the first without a possessive. */
static bool name_goes_on(const rvi_words *w, size_t i)
{
    return i + 1 < w->n && w->data[i + 1].joined && !w->data[i].possessive;
}

/* A name of several words: the neighbours that begin with capitals, across a small "van" or "de". */
static void extend(rvi_question *q)
{
    static const char particles[] = " van von der den de da di del la le el al bin ibn ";
    const rvi_words *w = &q->words;
    if (!w->data[q->first].capital) return;
    for (size_t i = q->first; i > 0 && name_goes_on(w, i - 1); i--) {
        const rvi_word *x = &w->data[i - 1];
        if (x->capital && is_content(x))
            q->first = i - 1;
        else if (!rvi_english_among(x->key, particles))
            break;
    }
    for (size_t i = q->behind; i < w->n && name_goes_on(w, i - 1); i++) {
        const rvi_word *x = &w->data[i];
        if (x->capital && is_content(x))
            q->behind = i + 1;
        else if (!rvi_english_among(x->key, particles))
            break;
    }
}

static bool starts_sentence(const rvi_question *q, size_t i)
{
    return !i || rvi_question_ends_sentence(q->text, &q->words.data[i - 1], &q->words.data[i]);
}

/* The rarest word; one with a capital or a possessive goes before all that have neither. A capital
 * at the beginning of a sentence says nothing. */
static rv_status find_subject(rvi_question *q, const rvi_tokenizer *t, rv_error *err)
{
    double best = -1;
    bool best_marked = false;
    for (size_t i = 0; i < q->words.n; i++) {
        const rvi_word *w = &q->words.data[i];
        double rarity;
        if (!is_content(w) || rvi_english_among(w->key, " favourite favorite ")) continue;
        bool marked = w->possessive || (w->capital && !starts_sentence(q, i));
        if (best_marked && !marked) continue;
        rv_status st = rvi_words_rarity(t, w->key, strlen(w->key), &rarity, err);
        if (st) return st;
        /* An ordinary word that owns something ("my dog's name") stands back behind a rare one. */
        marked = marked && (w->capital || rarity >= RVI_WORDS_RARE);
        if (best >= 0 && marked == best_marked && rarity <= best) continue;
        if (best_marked && !marked) continue;
        best = rarity;
        best_marked = marked;
        q->first = i;
        q->behind = i + 1;
        q->strong = marked || rarity >= RVI_WORDS_RARE;
    }
    if (q->behind > q->first) extend(q);
    return RV_OK;
}

/* ---- the sentence that asks ---- */

/* Words that only introduce a question, a direct or an indirect one */
static const char *const fillers[] = {
    "please",    "hey",      "hi",        "hello",      "so",        "and",   "but",
    "well",      "ok",       "okay",      "now",        "then",      "sorry", "can you",
    "could you", "will you", "would you", "what about", "how about", "again"};
static const char *const indirect[] = {"tell me again",
                                       "tell me about",
                                       "tell me",
                                       "tell us",
                                       "remind me of",
                                       "remind me about",
                                       "remind me",
                                       "show me",
                                       "give me",
                                       "let me know",
                                       "do you happen to know",
                                       "do you know",
                                       "do you remember",
                                       "i want to know",
                                       "i would like to know",
                                       "i'd like to know",
                                       "i wonder",
                                       "i forgot",
                                       "i have forgotten",
                                       "i don't know",
                                       "i don't remember",
                                       "say",
                                       "name",
                                       "state",
                                       "guess",
                                       "what do you know about",
                                       "what can you tell me about",
                                       "explain",
                                       "describe"};

/* Words of the phrase that stand at i; 0: others do. */
static size_t phrase_at(const rvi_question *q, size_t i, const char *phrase)
{
    size_t n = 0;
    for (; *phrase; n++) {
        size_t len = strcspn(phrase, " ");
        if (i + n >= q->end) return 0;
        const char *key = q->words.data[i + n].key;
        if (strlen(key) != len || memcmp(key, phrase, len)) return 0;
        phrase += len + (phrase[len] == ' ');
    }
    return n;
}

static size_t any_phrase(const rvi_question *q, size_t i, const char *const *list, size_t n_list)
{
    size_t best = 0;
    for (size_t k = 0; k < n_list; k++) best = RVI_MAX(best, phrase_at(q, i, list[k]));
    return best;
}

static void find_sentence(rvi_question *q)
{
    const rvi_words *w = &q->words;
    q->end = w->n;
    q->begin = 0;
    /* The last sentence that is a question, or the last one. */
    for (size_t i = 0, from = 0; i < w->n; i++) {
        const rvi_word *next = i + 1 < w->n ? &w->data[i + 1] : NULL;
        if (next && !rvi_question_ends_sentence(q->text, &w->data[i], next)) continue;
        size_t mark = strcspn(q->text + w->data[i].end, "?.!");
        if (q->text[w->data[i].end + mark] == '?' || !next) {
            q->begin = from;
            q->end = i + 1;
        }
        from = i + 1;
    }
    for (size_t n = 1; n && q->begin < q->end;) {
        n = any_phrase(q, q->begin, fillers, RVI_COUNT(fillers));
        if (!n) n = any_phrase(q, q->begin, indirect, RVI_COUNT(indirect));
        q->begin += n;
    }
    while (q->end > q->begin + 1 && rvi_english_among(w->data[q->end - 1].key, " please again "))
        q->end--;
}

static void question_deinit(rvi_question *q)
{
    rvi_words_deinit(&q->words);
}

static rv_status read_question(rvi_question *q, const rvi_tokenizer *t, const char *text,
                               rv_error *err)
{
    *q = (rvi_question){.text = text};
    rv_status st = rvi_words_split(&q->words, text, strlen(text), err);
    if (!st && q->words.n <= MAX_QUESTION_WORDS) st = find_subject(q, t, err);
    if (!st) find_sentence(q);
    return st;
}

/* ---- putting a fact together ---- */

static rv_status keep(rvi_fact *f, const char **out, const rvi_buf *text, rv_error *err)
{
    *out =
        text->failed ? NULL : rvi_arena_strndup(&f->texts, text->data ? text->data : "", text->len);
    return *out ? RV_OK : rvi_nomem(err, "fact");
}

static rv_status keep_text(rvi_fact *f, const char **out, const char *text, rv_error *err)
{
    *out = rvi_arena_strndup(&f->texts, text, strlen(text));
    return *out ? RV_OK : rvi_nomem(err, "fact");
}

static void put_capital(rvi_buf *out, const char *text)
{
    uint32_t cp, image[3];
    size_t len = strlen(text);
    if (!len) return;
    size_t used = rvi_utf8_decode(text, len, &cp, NULL), n = rvi_jchar_to_title(cp, image);
    for (size_t i = 0; i < n; i++) {
        char bytes[4];
        rvi_buf_append(out, bytes, rvi_utf8_encode(image[i], bytes));
    }
    rvi_buf_puts(out, text + used);
}

/* Everything but the kind and the subject is what was said. */
static rv_status make_free(rvi_fact *f, const char *question, const char *answer, rv_error *err)
{
    f->kind = RVI_FACT_FREE;
    f->relation = "";
    f->answer_at = 0;
    f->ask = NULL;
    rv_status st = keep_text(f, &f->question, question, err);
    if (!st) st = keep_text(f, &f->answer, answer, err);
    f->sentence = f->answer;
    return st;
}

static rv_status make_relation(rvi_fact *f, rv_error *err)
{
    rvi_buf s = {0};
    f->kind = RVI_FACT_RELATION;
    rvi_buf_printf(&s, "%s's %s is ", f->subject, f->relation);
    f->answer_at = s.len;
    rvi_buf_printf(&s, "%s.", f->answer);
    rv_status st = keep(f, &f->sentence, &s, err);
    rvi_buf_deinit(&s);
    return st;
}

/* The words of the question but the subject's, folded */
static void other_words(rvi_buf *out, const rvi_question *q)
{
    for (size_t i = q->begin; i < q->end; i++)
        if (i < q->first || i >= q->behind)
            rvi_buf_printf(out, "%s%s", out->len ? " " : "", q->words.data[i].key);
}

/* The user's own sentence if there is one, else the one that the shape gives, else one that quotes
 * the question. */
static rv_status make_question(rvi_fact *f, const rvi_question *q, const rvi_shape *shape,
                               const rvi_buf *own, rv_error *err)
{
    rvi_buf s = {0}, r = {0};
    const char *o = own->len ? strstr(own->data, f->answer) : NULL;
    f->kind = RVI_FACT_QUESTION;
    if (o) {
        put_capital(&s, own->data);
        f->answer_at = (size_t)(o - own->data) + s.len - own->len;
    } else if (shape->before.len || shape->after.len) {
        if (shape->before.len) put_capital(&s, shape->before.data);
        f->answer_at = s.len;
        if (shape->before.len)
            rvi_buf_puts(&s, f->answer);
        else
            put_capital(&s, f->answer);
        if (shape->after.len) rvi_buf_puts(&s, shape->after.data);
    } else {
        rvi_buf_printf(&s, "The answer to \"%s\" is ", f->question);
        f->answer_at = s.len;
        rvi_buf_puts(&s, f->answer);
    }
    if (s.len && !strchr(".!?", s.data[s.len - 1])) rvi_buf_putc(&s, '.');
    other_words(&r, q);
    rv_status st = keep(f, &f->sentence, &s, err);
    if (!st) st = keep(f, &f->relation, &r, err);
    if (!st && shape->ask.len) st = keep(f, &f->ask, &shape->ask, err);
    rvi_buf_deinit(&s);
    rvi_buf_deinit(&r);
    return st;
}

/* Does the question ask for a name or a title? */
static bool asks_name(const rvi_question *q)
{
    for (size_t i = 0; i < q->words.n; i++)
        if (rvi_english_among(q->words.data[i].key,
                              " who name nickname called film movie book song "
                              "title band album show series game "))
            return true;
    return false;
}

/* A bare answer begins with a capital as a sentence does. It is made small where the small word is
 * clearly the more frequent one. */
static rv_status small_capital(const rvi_question *q, const rvi_tokenizer *t, rvi_buf *o,
                               rv_error *err)
{
    rvi_words w = {0};
    double small = 0, large = 0;
    rv_status st = rvi_words_split(&w, o->data, o->len, err);
    const rvi_word *x = w.n ? &w.data[0] : NULL;
    bool plain = !st && x && x->capital && !x->at && x->len > 1 && x->len == strlen(x->key) &&
                 !memcmp(x->key + 1, o->data + 1, x->len - 1); /* not "USA" */
    bool function = x && rvi_english_is(x->key, RVI_EN_FUNCTION);
    bool title = function && rvi_english_is(x->key, RVI_EN_ARTICLE);
    for (size_t i = 1; i < w.n; i++) /* "The Merry Otter", but "in Oslo" */
        plain = plain && !(w.data[i].capital && (title || !function));
    if (plain && !function && (w.n > 2 || asks_name(q))) plain = false;
    if (plain) st = rvi_words_weigh(t, x->key, x->len, &small, err);
    if (plain && !st) st = rvi_words_weigh(t, o->data, x->len, &large, err);
    bool usual = small < RVI_WORDS_RARE && large - small >= 0.5;
    if (plain && !st && (function || usual)) o->data[0] = x->key[0];
    rvi_words_deinit(&w);
    return st;
}

/* A question that gives no sentence, or asks how and why, makes a fact only about a name; one that
 * asks yes or no makes none. */
static bool is_fact(const rvi_question *q, const rvi_shape *shape)
{
    if (q->begin >= q->end || (q->begin >= q->first && q->end <= q->behind))
        return false; /* nothing but the subject */
    const char *first = q->words.data[q->begin].key;
    if (rvi_english_is(first, RVI_EN_BE) || rvi_english_is(first, RVI_EN_DO) ||
        rvi_english_is(first, RVI_EN_MODAL))
        return false;
    bool reason = rvi_english_among(first, " how why ");
    return q->strong || ((shape->before.len || shape->after.len) && !reason);
}

static rv_status make(rvi_fact *f, const rvi_tokenizer *t, const char *question, const char *answer,
                      rv_error *err)
{
    rvi_question q;
    rvi_shape shape = {.relation = {0}};
    rvi_buf subject = {0}, o = {0}, own = {0};
    f->subject = "";
    rv_status st = read_question(&q, t, question, err);
    f->is_name = q.strong;
    bool some = q.behind > q.first && strlen(question) <= RVI_FACT_MAX_QUESTION;
    if (!st && some) {
        rvi_question_slice(&subject, question, q.words.data, q.first, q.behind);
        st = rvi_fact_answer(&q, answer, &o, &own, err);
    }
    bool begins = o.len && (!own.len || !strncmp(own.data, o.data, o.len));
    if (!st && begins) st = small_capital(&q, t, &o, err);
    if (!st && o.len) st = rvi_fact_shape(&shape, &q, &o, err);
    if (!st && o.len && !shape.relation.len && !is_fact(&q, &shape)) o.len = 0;
    if (!st && (o.len || (some && q.strong))) st = keep(f, &f->subject, &subject, err);
    if (!st && !o.len) st = make_free(f, question, answer, err);
    if (!st && o.len) {
        st = keep_text(f, &f->question, question, err);
        if (!st) st = keep(f, &f->answer, &o, err);
        if (!st && shape.relation.len) {
            st = keep(f, &f->relation, &shape.relation, err);
            if (!st) st = make_relation(f, err);
        } else if (!st) {
            st = make_question(f, &q, &shape, &own, err);
        }
    }
    rvi_shape_deinit(&shape);
    rvi_buf_deinit(&subject);
    rvi_buf_deinit(&o);
    rvi_buf_deinit(&own);
    question_deinit(&q);
    return st;
}

/* "Anna's dog is Rex" and "Rex is Anna's dog" as a question and its answer; *question stays empty if
 * the text is nothing of the kind. */
static rv_status from_statement(const char *text, rvi_buf *question, rvi_buf *answer, rv_error *err)
{
    rvi_words w = {0};
    size_t verb = 0, owner = 0;
    rv_status st = rvi_words_split(&w, text, strlen(text), err);
    size_t n = w.n <= MAX_QUESTION_WORDS ? w.n : 0;
    for (size_t i = 0; i + 1 < n; i++)
        if (rvi_question_ends_sentence(text, &w.data[i], &w.data[i + 1])) n = 0;
    for (size_t i = 1; i + 1 < n && !verb; i++)
        if (rvi_english_is(w.data[i].key, RVI_EN_BE)) verb = i;
    for (size_t i = 0; i < n && verb && !owner; i++)
        if ((w.data[i].possessive && !rvi_english_is(w.data[i].key, RVI_EN_FUNCTION)) ||
            !strcmp(w.data[i].key, "of"))
            owner = i + 1;
    if (!st && owner) {
        bool right = owner - 1 > verb;
        rvi_buf_printf(question, "What %s ", w.data[verb].key);
        size_t at = question->len;
        rvi_question_slice(question, text, w.data, right ? verb + 1 : 0, right ? n : verb);
        if (!right && !question->failed && rvi_english_is(w.data[0].key, RVI_EN_FUNCTION))
            question->data[at] = w.data[0].key[0];
        rvi_buf_putc(question, '?');
        rvi_question_slice(answer, text, w.data, right ? 0 : verb + 1, right ? verb : n);
        if (question->failed || answer->failed) st = rvi_nomem(err, "statement");
    }
    rvi_words_deinit(&w);
    return st;
}

rv_status rvi_fact_read(rvi_fact **out, const rvi_tokenizer *t, const char *question,
                        size_t question_len, const char *answer, size_t answer_len, rv_error *err)
{
    rvi_buf q = {0}, a = {0}, made_q = {0}, made_a = {0};
    *out = NULL;
    rvi_fact *f = rvi_zalloc(sizeof *f);
    if (!f) return rvi_nomem(err, "fact");
    rv_status st = question_len > MAX_TEXT || answer_len > MAX_TEXT
                       ? rvi_error(err, RV_E_INVALID, "the correction is longer than 1 MiB")
                       : clean(&q, question, question_len, false, err);
    if (!st) st = clean(&a, answer, answer_len, true, err);
    if (!st && !a.len) st = rvi_error(err, RV_E_INVALID, "the corrected answer is empty");
    if (!st && !q.len) st = from_statement(a.data, &made_q, &made_a, err);
    if (!st && made_q.len) st = make(f, t, made_q.data, made_a.data, err);
    if (!st && f->kind == RVI_FACT_FREE) st = make(f, t, q.data, a.data, err);
    rvi_buf_deinit(&q);
    rvi_buf_deinit(&a);
    rvi_buf_deinit(&made_q);
    rvi_buf_deinit(&made_a);
    if (st)
        rvi_fact_free(f);
    else
        *out = f;
    return st;
}

rv_status rvi_fact_new(rvi_fact **out, const char *subject, const char *relation,
                       const char *answer, rv_error *err)
{
    rvi_buf q = {0};
    *out = NULL;
    rvi_fact *f = rvi_zalloc(sizeof *f);
    if (!f) return rvi_nomem(err, "fact");
    rvi_buf_printf(&q, "What is %s's %s?", subject, relation);
    rv_status st = keep(f, &f->question, &q, err);
    if (!st) st = keep_text(f, &f->subject, subject, err);
    if (!st) st = keep_text(f, &f->relation, relation, err);
    if (!st) st = keep_text(f, &f->answer, answer, err);
    if (!st) st = make_relation(f, err);
    f->is_name = true;
    rvi_buf_deinit(&q);
    if (st)
        rvi_fact_free(f);
    else
        *out = f;
    return st;
}

void rvi_fact_free(rvi_fact *f)
{
    if (!f) return;
    rvi_arena_deinit(&f->texts);
    rvi_free(f);
}

bool rvi_fact_is_alias(const rvi_fact *f)
{
    static const char *const names[] = {
        "nickname",   "alias",       "pen name",     "stage name", "pet name",   "short name",
        "other name", "second name", "full name",    "real name",  "first name", "last name",
        "surname",    "maiden name", "abbreviation", "username",   "handle"};
    for (size_t i = 0; i < RVI_COUNT(names) && f->kind == RVI_FACT_RELATION; i++)
        if (!strcmp(f->relation, names[i])) return true;
    return false;
}
