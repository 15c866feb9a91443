#include "learn/consolidate/fact.h"

#include <string.h>

#include "base/utf8.h"
#include "learn/consolidate/fact_internal.h"
#include "text/chars.h"
#include "text/unicode.h"

enum { MAX_TEXT = 1 << 20, MAX_QUESTION_WORDS = 128 };

/* Valid UTF-8 without control characters, trimmed; white space becomes single spaces, or where
 * lines are kept a single newline if there was one in it. */
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

/* Joins two words of a name: nothing much between them, the first without a possessive. */
static bool name_goes_on(const rvi_words *w, size_t i)
{
    return i + 1 < w->n && w->data[i + 1].joined && !w->data[i].possessive;
}

static bool any_capital(const rvi_words *w, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++)
        if (w->data[i].capital) return true;
    return false;
}

/* A name of several words: the neighbours that begin with capitals, across a small "van" or "de",
 * whatever a hyphen joins to them, and a number behind ("Vorto 200"). */
static void extend(rvi_question *q)
{
    static const char particles[] = " van von der den de da di del la le el al bin ibn ";
    const rvi_words *w = &q->words;
    if (!any_capital(w, q->first, q->behind)) return;
    for (size_t i = q->first; i > 0 && name_goes_on(w, i - 1); i--) {
        const rvi_word *x = &w->data[i - 1];
        if ((x->capital && is_content(x)) || (w->data[i].hyphen && i == q->first))
            q->first = i - 1;
        else if (!rvi_english_among(x->key, particles) && !w->data[i].hyphen)
            break;
    }
    for (size_t i = q->behind; i < w->n && name_goes_on(w, i - 1); i++) {
        const rvi_word *x = &w->data[i];
        bool number = x->key[0] >= '0' && x->key[0] <= '9' && i == q->behind;
        if ((x->capital && is_content(x)) || x->hyphen || number)
            q->behind = i + 1;
        else if (!rvi_english_among(x->key, particles))
            break;
    }
}

/* Behind the first verb that we know among words from..to; 0: there is none */
static size_t behind_known_verb(const rvi_words *w, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++)
        if (rvi_english_verb(w->data[i].key)) return i + 1;
    return 0;
}

/* Small words belong to the name before them where something else shows its end: a possessive
 * ("plonkit mini's price"), or for a small name the end of the question ("the price of plonkit
 * mini") or its verb ("does plonkit mini cost"). */
static void extend_small(rvi_question *q)
{
    enum { MOST = 4 };
    const rvi_words *w = &q->words;
    size_t end = q->behind, before = q->first, verb;
    while (end < q->end && end - q->first < MOST && name_goes_on(w, end - 1) &&
           !rvi_english_is(w->data[end].key, RVI_EN_FUNCTION))
        end++;
    if (end > q->behind && w->data[end - 1].possessive) q->behind = end;
    if (end < q->end || any_capital(w, q->first, q->behind) || !before) return;
    before -= rvi_english_is(w->data[before - 1].key, RVI_EN_ARTICLE);
    const char *key = before > q->begin ? w->data[before - 1].key : "";
    bool how = !strcmp(w->data[q->begin].key, "how");
    if (rvi_english_among(key, " of for ") || (how && rvi_english_is(key, RVI_EN_BE)))
        q->behind = end;
    else if (rvi_english_is(key, RVI_EN_DO) && (verb = behind_known_verb(w, q->behind, end)) != 0)
        q->behind = verb - 1;
}

/* Rare small words before a small owner are its name too: "plonkit mini's". */
static rv_status extend_owner(rvi_question *q, const rvi_tokenizer *t, rv_error *err)
{
    const rvi_word *w = q->words.data;
    double rarity = RVI_WORDS_RARE;
    rv_status st = RV_OK;
    if (!w[q->behind - 1].possessive || any_capital(&q->words, q->first, q->behind)) return RV_OK;
    while (!st && q->first > q->begin && name_goes_on(&q->words, q->first - 1)) {
        const rvi_word *x = &w[q->first - 1];
        if (x->capital || !is_content(x)) break;
        st = rvi_words_rarity(t, x->key, strlen(x->key), &rarity, err);
        if (rarity < RVI_WORDS_RARE) break;
        q->first--;
    }
    return st;
}

/* ---- possessive or part of a name ---- */

/* A word that is an ordinary one when it is written small: "Fisher", but not "Anna" */
static rv_status is_ordinary(const rvi_question *q, const rvi_tokenizer *t, const rvi_word *w,
                             bool *out, rv_error *err)
{
    double small = 0, large = 0;
    rv_status st = rvi_words_weigh(t, w->key, strlen(w->key), &small, err);
    if (!st) st = rvi_words_weigh(t, q->text + w->at, w->len, &large, err);
    *out = small < RVI_WORDS_RARE && small <= large;
    return st;
}

/* Is the word what the question asks for ("What is S's R?", "S's R, please"), not a part of it, nor
 * something that is done to it ("When was S's R built?")? */
static bool asked_directly(const rvi_question *q, size_t i)
{
    const rvi_word *w = q->words.data;
    if (i <= q->begin) return i == q->begin;
    if (rvi_english_participle(w[q->end - 1].key)) return false;
    if (!rvi_english_among(w[q->begin].key, " what who which when ")) return false;
    return i == q->begin + 1 || (i == q->begin + 2 && rvi_english_is(w[i - 1].key, RVI_EN_BE));
}

/* Small words with a meaning of their own that follow the capitals behind i */
static size_t small_words_behind(const rvi_words *w, size_t i)
{
    size_t n = 0;
    for (i++; i < w->n && w->data[i].capital && name_goes_on(w, i - 1);) i++;
    for (; i < w->n && name_goes_on(w, i - 1) && is_content(&w->data[i]); i++)
        n += !rvi_english_adverb(w->data[i].key);
    return n;
}

/* "The Tinker's Almanac" and "at Fisher's Loft" are names; "What is Anna's Spanish grade?" is about
 * Anna. Sets `possessive` where one owns. */
static rv_status settle_owners(rvi_question *q, const rvi_tokenizer *t, rv_error *err)
{
    rv_status st = RV_OK;
    rvi_word *w = q->words.data;
    for (size_t i = 0; i < q->words.n && !st; i++) {
        size_t first = i, small = small_words_behind(&q->words, i);
        bool ordinary;
        if (!w[i].may_own) continue;
        while (first > 0 && name_goes_on(&q->words, first - 1) && w[first - 1].capital &&
               is_content(&w[first - 1]))
            first--;
        if (first > 0 && rvi_english_is(w[first - 1].key, RVI_EN_ARTICLE)) continue;
        if (rvi_english_among(w[first].key, " st saint ")) continue;
        st = is_ordinary(q, t, &w[i], &ordinary, err);
        bool direct = asked_directly(q, first);
        w[i].possessive = direct ? !ordinary || small > 0 : small > 1;
    }
    return st;
}

static bool starts_sentence(const rvi_question *q, size_t i)
{
    return !i || rvi_question_ends_sentence(q->text, &q->words.data[i - 1], &q->words.data[i]);
}

typedef struct candidate { /* for the subject: a word, or several that hyphens join */
    size_t first, behind;
    bool capital, possessive;
    double rarity; /* of the rarest of them */
    double rank;   /* the same, or of a rare one the sum: "vorto-cam" is rarer than "vorto" */
} candidate;

/* "the CEO of Brindle": what it is called there is no name. */
static bool is_office(const rvi_words *w, size_t i)
{
    size_t next = i + 2;
    if (next < w->n && rvi_english_is(w->data[next].key, RVI_EN_ARTICLE)) next++;
    return next < w->n && !strcmp(w->data[i + 1].key, "of") && w->data[next].capital;
}

/* "Mark's Spanish grade": capitals behind an owner's name are what is owned. */
static bool is_owned(const rvi_words *w, size_t i)
{
    while (i > 0 && w->data[i].joined && w->data[i - 1].capital && !w->data[i - 1].possessive) i--;
    const rvi_word *before = i > 0 && w->data[i].joined ? &w->data[i - 1] : NULL;
    return before && before->possessive && before->capital && is_content(before); /* not "What's" */
}

/* *some: something in it can be a subject. */
static rv_status weigh_candidate(candidate *c, const rvi_question *q, const rvi_tokenizer *t,
                                 bool *some, rv_error *err)
{
    double sum = 0;
    *some = false;
    for (size_t i = c->first; i < c->behind; i++) {
        const rvi_word *w = &q->words.data[i];
        double rarity;
        if (!is_content(w) || rvi_english_among(w->key, " favourite favorite ")) continue;
        rv_status st = rvi_words_rarity(t, w->key, strlen(w->key), &rarity, err);
        if (st) return st;
        *some = true;
        sum += rarity;
        c->rarity = RVI_MAX(c->rarity, rarity);
        /* A capital at the beginning of a sentence says nothing. */
        c->capital = c->capital || (w->capital && !starts_sentence(q, i));
    }
    c->possessive = q->words.data[c->behind - 1].possessive;
    c->rank = c->rarity >= RVI_WORDS_RARE ? sum : c->rarity;
    return RV_OK;
}

/* The rarest word; one with a capital or a possessive goes before all that have neither. */
static rv_status find_subject(rvi_question *q, const rvi_tokenizer *t, rv_error *err)
{
    const rvi_words *w = &q->words;
    double best = -1;
    bool best_marked = false, some;
    for (size_t i = 0; i < w->n;) {
        candidate c = {.first = i, .behind = i + 1};
        while (c.behind < w->n && w->data[c.behind].hyphen) c.behind++;
        i = c.behind;
        rv_status st = weigh_candidate(&c, q, t, &some, err);
        if (st) return st;
        if (!some) continue;
        /* An ordinary word that owns something ("my dog's name") stands back behind a rare one. */
        bool rare = c.rarity >= RVI_WORDS_RARE;
        bool owner = c.possessive && (any_capital(w, c.first, c.behind) || rare);
        bool marked = owner || (c.capital && !is_office(w, c.behind - 1));
        marked = marked && !is_owned(w, c.first);
        if (best_marked && !marked) continue;
        if (best >= 0 && marked == best_marked && c.rank <= best) continue;
        best = c.rank;
        best_marked = marked;
        q->first = c.first;
        q->behind = c.behind;
        q->strong = marked || rare;
    }
    if (q->behind == q->first) return RV_OK;
    extend(q);
    if (!q->strong) return RV_OK;
    extend_small(q);
    return extend_owner(q, t, err);
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
    if (st) return st;
    find_sentence(q);
    if (q->words.n > MAX_QUESTION_WORDS) return RV_OK;
    st = settle_owners(q, t, err);
    return st ? st : find_subject(q, t, err);
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
    size_t used = rvi_utf8_decode(text, len, &cp, NULL), n = rvi_char_to_title(cp, image);
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

/* Does it ask for a quality, which has no capital however rare its word is ("Lilac")? */
static bool asks_quality(const rvi_question *q)
{
    for (size_t i = 0; i < q->words.n; i++)
        if (rvi_english_among(q->words.data[i].key,
                              " colour color flavour flavor material shape size pattern texture "))
            return true;
    return false;
}

/* A bare answer begins with a capital as a sentence does. It is made small where the small word is
 * clearly the more frequent one, or names a quality. */
static rv_status small_capital(const rvi_question *q, const rvi_tokenizer *t, rvi_buf *o,
                               rv_error *err)
{
    rvi_words w = {0};
    double small = 0, large = 0;
    rv_status st = rvi_words_split(&w, o->data, o->len, err);
    const rvi_word *x = w.n ? &w.data[0] : NULL;
    bool plain = !st && x && x->capital && !x->at && x->len > 1 && x->len == strlen(x->key) &&
                 !memcmp(x->key + 1, o->data + 1, x->len - 1);          /* not "USA" */
    if (plain && (!strcmp(x->key, "may") || !strncmp(x->key, "i'", 2))) /* the month; "I'm" */
        plain = false;
    bool function = x && rvi_english_is(x->key, RVI_EN_FUNCTION);
    bool title = function && !rvi_english_is(x->key, RVI_EN_PREP) &&
                 !rvi_english_is(x->key, RVI_EN_PLACE) && !rvi_english_is(x->key, RVI_EN_OWNER);
    for (size_t i = 1; i < w.n; i++) /* "The Merry Otter", "Old Otter", but "in Oslo" */
        plain = plain && !(w.data[i].capital && (title || !function));
    if (plain && !function && (w.n > 2 || asks_name(q))) plain = false;
    if (plain) st = rvi_words_weigh(t, x->key, x->len, &small, err);
    if (plain && !st) st = rvi_words_weigh(t, o->data, x->len, &large, err);
    bool usual = small < RVI_WORDS_RARE && large - small >= 0.5;
    bool quality = w.n == 1 && asks_quality(q);
    if (plain && !st && (function || usual || quality)) o->data[0] = x->key[0];
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

/* "Anna's dog is Rex" and "Rex is Anna's dog" as a question and its answer; *question stays empty
 * if the text is nothing of the kind. */
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
    for (size_t i = 0; i < n && verb && !owner; i++) {
        const rvi_word *x = &w.data[i];
        bool owns = x->possessive || x->may_own;
        if ((owns && !rvi_english_is(x->key, RVI_EN_FUNCTION)) || !strcmp(x->key, "of"))
            owner = i + 1;
    }
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
    if (!st) st = keep_text(f, &f->given, a.data, err);
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

void rvi_fact_free(rvi_fact *f)
{
    if (!f) return;
    rvi_arena_deinit(&f->texts);
    rvi_free(f);
}
