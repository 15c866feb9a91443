/* fact_shape.c - the shape of a question: which noun it asks for ("What is S's R?", "How old is
 * S?"), or else the statement that it asks to be completed ("Where does S live?": "S lives in
 * ..."). */
#include <string.h>

#include "learn/consolidate/fact_internal.h"

typedef struct view { /* the words of the sentence that asks, counted from its beginning */
    const rvi_question *q;
    const rvi_word *w;
    size_t n;
    size_t first, behind; /* the subject; equal: it stands in another sentence */
    const char *prep;     /* stood before what asks: "in which city"; NULL: none did */
} view;

static view look(const rvi_question *q)
{
    view v = {.q = q, .w = q->words.data + q->begin, .n = q->end - q->begin};
    size_t skip =
        v.n > 1 && rvi_english_is(v.w[0].key, RVI_EN_PREP) && rvi_english_is(v.w[1].key, RVI_EN_WH);
    if (skip) v.prep = v.w[0].key;
    v.w += skip;
    v.n -= skip;
    if (q->first >= q->begin && q->behind <= q->end) {
        v.first = q->first - q->begin - skip;
        v.behind = q->behind - q->begin - skip;
    }
    return v;
}

static bool is(const view *v, size_t i, rvi_english_class c)
{
    return i < v->n && rvi_english_is(v->w[i].key, c);
}

static bool among(const view *v, size_t i, const char *list)
{
    return i < v->n && rvi_english_among(v->w[i].key, list);
}

static bool slice(rvi_buf *out, const view *v, size_t from, size_t to)
{
    return rvi_question_slice(out, v->q->text, v->w, from, to);
}

/* May these words be a noun phrase? No verb that we know, nothing that asks, no preposition at
 * either end. */
static bool is_phrase(const view *v, size_t from, size_t to)
{
    if (from >= to || to > v->n) return false;
    if (is(v, from, RVI_EN_PREP) || is(v, to - 1, RVI_EN_PREP)) return false;
    for (size_t i = from; i < to; i++) {
        if (i > from && !v->w[i].joined) return false;
        /* two phrases: "what colour the door is" */
        if (i > from && is(v, i, RVI_EN_ARTICLE) && !v->w[i].capital && !is(v, i - 1, RVI_EN_PREP))
            return false;
        if (is(v, i, RVI_EN_WH) || is(v, i, RVI_EN_BE) || is(v, i, RVI_EN_DO) ||
            is(v, i, RVI_EN_MODAL))
            return false;
    }
    return true;
}

/* The same, short enough to name a relation, and nothing is said of it ("Ferry built") */
static bool is_noun(const view *v, size_t from, size_t to)
{
    if (!is_phrase(v, from, to) || to - from > 6) return false;
    bool noun_too = among(v, to - 1, " cut felt hit read run set shot spread "); /* "tea set" */
    return to - from == 1 || noun_too || !rvi_english_participle(v->w[to - 1].key);
}

/* Words at the beginning that ask for a thing: "what is", "who's", "which are"; n when they do not.
 * An indirect question has its verb at the end: *tail is 1 then. */
static size_t asks_thing(const view *v, size_t *tail)
{
    *tail = 0;
    if (!is(v, 0, RVI_EN_WH)) { /* "S's R is?" */
        *tail = v->n > 1 && is(v, v->n - 1, RVI_EN_BE);
        return 0;
    }
    if (!among(v, 0, " what who which when ")) return v->n;
    if (v->w[0].possessive) return 1;
    if (is(v, 1, RVI_EN_BE)) return 2;
    if (is(v, v->n - 1, RVI_EN_BE)) {
        *tail = 1;
        return 1;
    }
    return v->n;
}

/* "S's R" behind what asks for a thing */
static bool owned(rvi_shape *out, const view *v)
{
    size_t tail, at = asks_thing(v, &tail);
    if (v->behind == v->first || !v->w[v->behind - 1].possessive) return false;
    if (at < v->first && is(v, at, RVI_EN_ARTICLE)) at++;
    if (at != v->first || !is_noun(v, v->behind, v->n - tail)) return false;
    slice(&out->relation, v, v->behind, v->n - tail);
    return true;
}

/* "the R of S" */
static bool of_subject(rvi_shape *out, const view *v)
{
    size_t tail, at = asks_thing(v, &tail), end = v->first;
    bool owner = v->behind > v->first && v->w[v->behind - 1].possessive;
    if (v->behind == v->first || (v->behind + tail != v->n && !owner)) return false;
    if (owner && !is_noun(v, v->behind, v->n - tail)) return false;
    if (end > 0 && is(v, end - 1, RVI_EN_ARTICLE)) end--;
    if (end < 2 || !among(v, end - 1, " of for ")) return false;
    end--;
    if (at < end && is(v, at, RVI_EN_ARTICLE)) at++;
    if (at >= end || !is_noun(v, at, end)) return false;
    if (owner) { /* "the name of S's ship": S's ship's name */
        slice(&out->relation, v, v->behind, v->n - tail);
        rvi_buf_puts(&out->relation, "'s ");
    }
    slice(&out->relation, v, at, end);
    return true;
}

/* "S has a R. Which one?" */
static bool which_one(rvi_shape *out, const view *v)
{
    const rvi_question *q = v->q;
    view all = {q, q->words.data, q->words.n, q->first, q->behind, NULL};
    bool asks = v->n == 2 && among(v, 0, " which what ") && among(v, 1, " one ");
    if (v->behind != v->first || !asks || q->first || q->begin <= q->behind + 2) return false;
    if (!among(&all, q->behind, " has have owns had ")) return false;
    if (!is(&all, q->behind + 1, RVI_EN_ARTICLE) || !is_noun(&all, q->behind + 2, q->begin))
        return false;
    slice(&out->relation, &all, q->behind + 2, q->begin);
    return true;
}

/* "What is the R?" after a sentence that named S */
static bool named_before(rvi_shape *out, const view *v)
{
    size_t tail, at = asks_thing(v, &tail);
    if (v->behind != v->first || !at || at + tail >= v->n) return false;
    if (!among(v, at, " the ") && !is(v, at, RVI_EN_OWNER)) return false;
    if (!is_noun(v, at + 1, v->n - tail)) return false;
    slice(&out->relation, v, at + 1, v->n - tail);
    return true;
}

/* Without "kind of" and the like */
static size_t noun_begin(const view *v, size_t from)
{
    return among(v, from, " kind sort type ") && among(v, from + 1, " of ") ? from + 2 : from;
}

/* "Which R does S have?", "What colour is S?" */
static bool which_noun(rvi_shape *out, const view *v)
{
    static const char has[] =
        " have has own owns keep keeps possess play plays speak speaks drive drives ride rides "
        "wear "
        "wears use uses teach teaches study studies practise practice support supports ";
    static const char likes[] = " like likes love loves prefer prefers enjoy enjoys ";
    if (!among(v, 0, " what which ") || v->behind == v->first || v->first < 2) return false;
    size_t from = noun_begin(v, 1), verb = v->first - 1;
    if (is(v, verb, RVI_EN_ARTICLE) && verb > 1) verb--;
    if (is(v, verb, RVI_EN_BE) && from > 1) return false; /* "What kind of dog is S?" */
    if (is(v, verb, RVI_EN_BE) && v->behind == v->n && is_noun(v, from, verb)) {
        slice(&out->relation, v, from, verb);
        return true;
    }
    size_t end = is(v, verb, RVI_EN_DO) ? verb : verb + 1;
    if (!is_noun(v, from, end)) return false;
    size_t rest = v->n - v->behind;
    if (rest == 1 && among(v, v->behind, has)) {
        slice(&out->relation, v, from, end);
        return true;
    }
    if (!among(v, v->behind, likes) || rest > 2) return false;
    if (rest == 2 && !among(v, v->n - 1, " best most ")) return false;
    rvi_buf_puts(&out->relation, "favourite ");
    slice(&out->relation, v, from, end);
    return true;
}

/* "S: R", "S R?" */
static bool label(rvi_shape *out, const view *v)
{
    if (v->first || !v->behind || v->behind >= v->n || v->n - v->behind > 4) return false;
    const rvi_word *w = &v->w[v->behind];
    size_t len = strlen(w->key);
    if (v->w[v->behind - 1].possessive || (w->joined && len > 1 && w->key[len - 1] == 's'))
        return false;
    if (!is_noun(v, v->behind, v->n) || is(v, v->behind, RVI_EN_FUNCTION)) return false;
    slice(&out->relation, v, v->behind, v->n);
    return true;
}

/* Questions that have a noun of their own. "+": the subject. Rows with "+" at the end are matched
 * whole, so "What does S do for a living?" has its row. */
static const struct {
    const char *pattern, *noun;
} nouns[] = {
    {"how old B +", "age"},
    {"how tall B +", "height"},
    {"how high B +", "height"},
    {"how long B +", "length"},
    {"how heavy B +", "weight"},
    {"how big B +", "size"},
    {"how large B +", "size"},
    {"how deep B +", "depth"},
    {"how wide B +", "width"},
    {"how fast B +", "speed"},
    {"how expensive B +", "price"},
    {"how much B +", "price"},
    {"how much D + cost", "price"},
    {"what D + cost", "price"},
    {"how much D + weigh", "weight"},
    {"how much D + earn", "salary"},
    {"where D + live", "home"},
    {"where B + living", "home"},
    {"where B + from", "place of origin"},
    {"where D + come from", "place of origin"},
    {"where B + born", "birthplace"},
    {"when B + born", "date of birth"},
    {"where D + work", "workplace"},
    {"what D + do", "job"},
    {"what D + do for a living", "job"},
    {"what D + do for work", "job"},
    {"what D + work as", "job"},
    {"who D + work for", "employer"},
    {"who B + married to", "spouse"},
    {"what B + called", "name"},
    {"what D + mean", "meaning"},
    {"what D + stand for", "meaning"},
};

/* An indirect question has no verb before the subject: "how old S is", "where S lives". */
static bool matches(const view *v, const char *pattern)
{
    bool be_behind = false;
    size_t i = 0;
    while (*pattern) {
        size_t len = strcspn(pattern, " ");
        const char *key = i < v->n ? v->w[i].key : "";
        bool one = len == 1;
        if (one && *pattern == '+') {
            bool plural = i > 0 && among(v, i - 1, " are were do "); /* "the Smiths" */
            i += i + 1 == v->first && is(v, i, RVI_EN_ARTICLE) && !plural;
            if (i != v->first || v->behind == v->first || v->w[v->behind - 1].possessive)
                return false;
            i = v->behind;
            if (be_behind && !is(v, i++, RVI_EN_BE)) return false;
        } else if (one && *pattern == 'B') {
            if (is(v, i, RVI_EN_BE))
                i++;
            else
                be_behind = true;
        } else if (one && *pattern == 'D') {
            if (is(v, i, RVI_EN_DO)) i++;
        } else {
            char word[16];
            if (len >= sizeof word) return false;
            memcpy(word, pattern, len);
            word[len] = 0;
            if (i > v->first ? !rvi_english_same(word, key) : strcmp(word, key) != 0) return false;
            i++;
        }
        pattern += len + (pattern[len] == ' ');
    }
    return i == v->n;
}

static bool own_noun(rvi_shape *out, const view *v)
{
    for (size_t i = 0; i < RVI_COUNT(nouns); i++)
        if (matches(v, nouns[i].pattern)) {
            rvi_buf_puts(&out->relation, nouns[i].noun);
            return true;
        }
    return false;
}

/* ---- the statement that the question asks to be completed ---- */

/* The words with what stands between them. flip: the user's "my" is the model's "your". */
static void put_words(rvi_buf *out, const view *v, size_t from, size_t to, bool flip)
{
    static const char *const pairs[][2] = {{"i", "you"},  {"me", "you"},     {"my", "your"},
                                           {"am", "are"}, {"mine", "yours"}, {"your", "my"},
                                           {"you", "I"}};
    for (size_t i = from; i < to; i++) {
        const char *other = NULL;
        const rvi_word *w = &v->w[i];
        for (size_t k = 0; k < RVI_COUNT(pairs) && !other; k++)
            if (!strcmp(w->key, pairs[k][0])) other = pairs[k][1];
        if (other && flip)
            rvi_buf_puts(out, other);
        else
            rvi_buf_append(out, v->q->text + w->at, w->end - w->at);
        if (i + 1 < to)
            rvi_buf_append(out, v->q->text + w->end, w[1].at - w->end);
        else if (v->q->text[w->end] == '"')
            rvi_buf_putc(out, '"');
    }
}

typedef struct clause {
    const view *v;
    const char *answer;
    size_t wh;            /* words of what asks: "where", "which city", "how many dogs" */
    size_t first, behind; /* the subject with what belongs to it: "S", "the S", "S's mother" */
    rvi_buf verb;         /* as the statement has it: "lives", "is", "should go" */
    size_t rest;          /* words from here on stand behind the verb */
    bool doing;           /* "What is S doing?": O is a verb itself */
} clause;

/* Is O of the kind that "where" asks for already ("in Oslo", "there")? */
static bool begins_with_place(const char *answer)
{
    char word[16] = {0};
    size_t len = strcspn(answer, " ");
    if (len >= sizeof word) return false;
    for (size_t i = 0; i < len; i++)
        word[i] = (char)(answer[i] >= 'A' && answer[i] <= 'Z' ? answer[i] + 32 : answer[i]);
    return rvi_english_is(word, RVI_EN_PLACE);
}

static bool asks_time(const clause *c)
{
    const view *v = c->v;
    return among(v, 0, " when ") ||
           (c->wh > 1 && among(v, c->wh - 1, " time day date year month hour week season "));
}

/* A time of day: "8 am", "8am", "8:30", "noon" */
static bool is_hour(const rvi_words *w, const char *text)
{
    const char *first = w->data[0].key, *last = w->data[w->n - 1].key;
    const char *unit = first + strspn(first, "0123456789");
    if (rvi_english_among(first, " noon midnight dawn dusk sunrise sunset ")) return true;
    if (unit == first) return false;
    return strchr(text, ':') || rvi_english_among(unit, " am pm ") ||
           rvi_english_among(last, " am pm o'clock ");
}

/* The preposition that a bare time wants: "on" Monday or May 3, "in" May or 1926, "at" 8 am. */
static const char *time_word(const char *answer)
{
    static const char days[] = " monday mondays tuesday tuesdays wednesday wednesdays thursday "
                               "thursdays friday fridays saturday saturdays sunday sundays ";
    static const char months[] = " january february march april may june july august september "
                                 "october november december ";
    static const char digits[] = "0123456789";
    const char *word = "";
    rvi_words w = {0};
    if (!rvi_words_split(&w, answer, strlen(answer), NULL) && w.n) {
        const char *first = w.data[0].key, *second = w.n > 1 ? w.data[1].key : "";
        size_t n = strspn(first, digits), day = strspn(second, digits);
        if (rvi_english_among(first, months))
            word = day && day < 3 ? "on" : "in";
        else if (rvi_english_among(first, days) || (n && rvi_english_among(second, months)))
            word = "on";
        else if (is_hour(&w, answer))
            word = "at";
        else if (w.n == 1 && ((n == 4 && !first[n]) ||
                              rvi_english_among(first, " spring summer autumn winter ")))
            word = "in";
    }
    rvi_words_deinit(&w);
    return word;
}

static const char *place_word(const clause *c)
{
    const view *v = c->v;
    if (begins_with_place(c->answer)) return "";
    if (v->prep) return v->prep;
    bool waits = v->n > c->rest && is(v, v->n - 1, RVI_EN_PREP); /* "What year is it from?" */
    if (asks_time(c)) return waits ? "" : time_word(c->answer);
    if (strcmp(v->w[0].key, "where")) return "";
    if (v->n > c->rest && among(v, v->n - 1, " from to at in on near ")) return "";
    for (size_t i = c->behind; i < v->n; i++)
        if (among(v, i,
                  " go going gone goes travel travels move moves fly flies walk walks run "
                  "runs drive drives come comes "))
            return "to";
    return "in";
}

/* Where O stands among the words behind the verb: an object directly behind it, unless a
 * preposition waits for it at the end; a place or a time at the end. "likes to eat O most of
 * all". */
static size_t object_place(const clause *c)
{
    const view *v = c->v;
    size_t at = c->rest;
    bool thing = among(v, 0, " what which who whom ") || (among(v, 0, " how ") && c->wh > 1);
    if (!thing || v->prep || asks_time(c)) return v->n;
    while (at + 1 < v->n && among(v, at, " to ") && !v->w[at + 1].capital &&
           !is(v, at + 1, RVI_EN_FUNCTION)) /* "likes to eat O", but "takes O to the sea" */
        at += 2;
    return is(v, v->n - 1, RVI_EN_PREP) ? v->n : at;
}

static void put_clause(rvi_shape *out, clause *c)
{
    const view *v = c->v;
    size_t at = object_place(c);
    put_words(&out->before, v, c->first, c->behind, true);
    rvi_buf_printf(&out->before, " %s", c->verb.data);
    if (at > c->rest) rvi_buf_putc(&out->before, ' ');
    put_words(&out->before, v, c->rest, at, true);
    const char *place = place_word(c);
    rvi_buf_printf(&out->before, " %s%s", place, *place ? " " : "");
    if (among(v, 0, " how ") && among(v, 1, " many much ") && c->wh > 2) {
        rvi_buf_putc(&out->after, ' ');
        slice(&out->after, v, 2, c->wh);
    }
    if (at < v->n) {
        rvi_buf_putc(&out->after, ' ');
        put_words(&out->after, v, at, v->n, true);
    }
    if (v->prep) rvi_buf_printf(&out->ask, "%s ", v->prep);
    slice(&out->ask, v, 0, c->wh);
    rvi_buf_putc(&out->ask, ' ');
    put_words(&out->ask, v, c->first, c->behind, false);
    rvi_buf_printf(&out->ask, " %s%s", c->verb.data, c->doing ? " doing" : "");
    if (c->rest < v->n) rvi_buf_putc(&out->ask, ' ');
    slice(&out->ask, v, c->rest, v->n);
}

/* The words that ask: up to the auxiliary, or up to the subject of an indirect question */
static size_t asking_words(const view *v)
{
    size_t i = 1;
    while (i < v->n && i < 6 && i != v->first && !is(v, i, RVI_EN_BE) && !is(v, i, RVI_EN_DO) &&
           !is(v, i, RVI_EN_MODAL) && !(is(v, i, RVI_EN_ARTICLE) && i + 1 == v->first))
        i++;
    return i;
}

/* The subject's phrase at i: S, the S, S's noun. Returns where it ends; 0: something else stands
 * there. */
static size_t subject_phrase(const view *v, size_t i)
{
    size_t at = i + (is(v, i, RVI_EN_ARTICLE) || is(v, i, RVI_EN_OWNER));
    if (v->behind == v->first || at != v->first) return 0;
    bool owner = v->w[v->behind - 1].possessive;
    if (owner && (v->behind + 1 > v->n || v->n - v->behind > 3)) return 0;
    /* "the Quillby ferry leaves": a noun behind S, if two words follow and the second is no
     * preposition */
    bool noun = at > i && !owner && v->n - v->behind >= 2 && !is(v, v->behind + 1, RVI_EN_FUNCTION);
    return v->behind + (owner || noun);
}

/* "Anna's Spanish class start": where the first verb that we know is, if a noun of several words
 * may end there; otherwise `at` */
static size_t known_verb(const view *v, size_t at)
{
    for (size_t i = at; i < v->n && v->w[i].joined && !is(v, i, RVI_EN_FUNCTION); i++)
        if (rvi_english_verb(v->w[i].key)) return i;
    return at;
}

static bool put_verb(rvi_buf *out, const view *v, size_t aux, size_t verb)
{
    if (!strcmp(v->w[aux].key, "does")) return rvi_english_third(out, v->w[verb].key);
    if (!strcmp(v->w[aux].key, "did")) return rvi_english_past(out, v->w[verb].key);
    return rvi_buf_puts(out, v->w[verb].key);
}

/* "Where does S live?", "What is S playing?", "Where should S go?", and the indirect "where S
 * lives" */
static bool statement(rvi_shape *out, clause *c)
{
    const view *v = c->v;
    size_t aux = c->wh;
    bool has_aux = is(v, aux, RVI_EN_BE) || is(v, aux, RVI_EN_DO) || is(v, aux, RVI_EN_MODAL);
    bool hidden = aux == 1 && v->w[0].possessive; /* "where's" */
    c->first = aux + has_aux;
    c->behind = subject_phrase(v, c->first);
    if (!c->behind) return false;
    if (!has_aux && aux > 1 && among(v, 0, " who ")) return false; /* "Who made the S lamp?" */
    if (has_aux && is(v, aux, RVI_EN_DO)) {
        c->behind = known_verb(v, c->behind);
        if (c->behind >= v->n) return false;
        put_verb(&c->verb, v, aux, c->behind);
        c->rest = c->behind + 1;
    } else if (has_aux || hidden) {
        bool more = c->behind < v->n && !is(v, c->behind, RVI_EN_PREP);
        c->doing = more && among(v, 0, " what ") && among(v, c->behind, " doing ");
        rvi_buf_puts(&c->verb, hidden ? "is" : v->w[aux].key);
        if (more && !c->doing) rvi_buf_printf(&c->verb, " %s", v->w[c->behind].key);
        c->rest = c->behind + more;
    } else {
        if (c->behind >= v->n) return false;
        rvi_buf_puts(&c->verb, v->w[c->behind].key);
        c->rest = c->behind + 1;
    }
    if (!c->verb.data) return false;
    if (among(v, 0, " how ") && among(v, 1, " old ") && !is(v, aux, RVI_EN_DO)) return false;
    put_clause(out, c);
    return true;
}

/* May the verb or participle at i be said of the words before it? "the used car" is a thing. */
static bool ends_phrase(const view *v, size_t from, size_t i)
{
    if (i <= from || v->w[i].capital || is(v, i - 1, RVI_EN_PREP)) return false;
    if (is(v, i - 1, RVI_EN_ARTICLE) || is(v, i - 1, RVI_EN_OWNER)) return false;
    return i + 1 == v->n || is(v, i + 1, RVI_EN_FUNCTION) || among(v, i + 1, " place ");
}

/* "When is the rubbish collected at S?", "What is the gate of S made of?" */
static bool passive(rvi_shape *out, clause *c)
{
    const view *v = c->v;
    size_t from = c->wh + 1, at = from + 1;
    bool tail = is(v, v->n - 1, RVI_EN_PREP) || among(v, v->n - 1, " called named ");
    bool thing = c->wh == 1 && among(v, 0, " what who which ");
    if (among(v, 0, " why ") || !is(v, c->wh, RVI_EN_BE) || (thing && !tail)) return false;
    while (at < v->n && !(rvi_english_participle(v->w[at].key) && ends_phrase(v, from, at))) at++;
    c->first = from;
    c->behind = at;
    while (c->behind > from + 1 && rvi_english_adverb(v->w[c->behind - 1].key)) c->behind--;
    if (at >= v->n || among(v, from, " there ") || !is_phrase(v, from, c->behind)) return false;
    rvi_buf_printf(&c->verb, "%s ", v->w[c->wh].key);
    slice(&c->verb, v, c->behind, at + 1);
    c->rest = at + 1;
    if (c->verb.failed) return false;
    put_clause(out, c);
    return true;
}

/* "When does the kitchen close at S?": the thing is more than S, the verb one that we know. */
static bool active(rvi_shape *out, clause *c)
{
    const view *v = c->v;
    size_t from = c->wh + 1, at = from + 1;
    if (!is(v, c->wh, RVI_EN_DO) || from >= v->n) return false;
    if (!is(v, from, RVI_EN_ARTICLE) && !is(v, from, RVI_EN_OWNER) && !v->w[from].capital)
        return false;
    while (at < v->n && !(rvi_english_verb(v->w[at].key) && ends_phrase(v, from, at))) at++;
    if (at >= v->n || !is_phrase(v, from, at)) return false;
    c->first = from;
    c->behind = at;
    c->rest = at + 1;
    if (!put_verb(&c->verb, v, c->wh, at)) return false;
    put_clause(out, c);
    return true;
}

/* "How many rooms are there at S?", "How many pages are in S?" */
static bool there_are(rvi_shape *out, const view *v, size_t wh)
{
    if (!among(v, 0, " how ") || !among(v, 1, " many much ") || wh < 3) return false;
    bool there = among(v, wh + 1, " there ");
    if (!is(v, wh, RVI_EN_BE) || !(there || is(v, wh + 1, RVI_EN_PREP))) return false;
    size_t rest = wh + 1 + there;
    rvi_buf_printf(&out->before, "there %s ", v->w[wh].key);
    rvi_buf_putc(&out->after, ' ');
    slice(&out->after, v, 2, wh);
    if (rest < v->n) rvi_buf_putc(&out->after, ' ');
    put_words(&out->after, v, rest, v->n, true);
    slice(&out->ask, v, 0, wh);
    rvi_buf_printf(&out->ask, " there %s%s", v->w[wh].key, rest < v->n ? " " : "");
    slice(&out->ask, v, rest, v->n);
    return true;
}

/* "How many people live in S?": O takes the place of what asks. */
static bool how_many(rvi_shape *out, const view *v)
{
    if (!among(v, 0, " how ") || !among(v, 1, " many ") || v->prep) return false;
    if (v->behind == v->first || v->first < 4) return false;
    for (size_t i = 0; i < v->first; i++) /* somebody else does it */
        if (is(v, i, RVI_EN_DO) || is(v, i, RVI_EN_MODAL)) return false;
    rvi_buf_putc(&out->after, ' ');
    put_words(&out->after, v, 2, v->n, true);
    put_words(&out->ask, v, 0, v->n, false);
    return true;
}

/* "How old is S's son?": the noun of the adjective, of all that stands behind the verb */
static bool measure(rvi_shape *out, const view *v, size_t wh)
{
    const char *noun = NULL;
    if (wh != 2 || !is(v, wh, RVI_EN_BE) || !is_phrase(v, wh + 1, v->n) || v->first <= wh)
        return false;
    for (size_t i = 0; i < RVI_COUNT(nouns) && !noun; i++) {
        size_t len = strlen(v->w[1].key);
        const char *p = nouns[i].pattern;
        if (!strncmp(p, "how ", 4) && !strncmp(p + 4, v->w[1].key, len) &&
            !strcmp(p + 4 + len, " B +"))
            noun = nouns[i].noun;
    }
    if (!noun || !among(v, 0, " how ") || v->w[v->n - 1].possessive) return false;
    rvi_buf_printf(&out->before, "the %s of ", noun);
    put_words(&out->before, v, wh + 1, v->n, true);
    rvi_buf_printf(&out->before, " %s ", among(v, wh, " was were ") ? "was" : "is");
    slice(&out->ask, v, 0, wh);
    rvi_buf_putc(&out->ask, ' ');
    put_words(&out->ask, v, wh + 1, v->n, false);
    rvi_buf_printf(&out->ask, " %s", v->w[wh].key);
    return true;
}

/* "when the rubbish is collected at S": an indirect question, in the order of a statement */
static bool indirect_be(rvi_shape *out, clause *c)
{
    const view *v = c->v;
    size_t be = 2;
    if (!among(v, 0, " when where how ") || v->w[0].possessive) return false;
    if (!is(v, 1, RVI_EN_ARTICLE) && !is(v, 1, RVI_EN_OWNER)) return false;
    while (be < v->n && !is(v, be, RVI_EN_BE)) be++;
    if (be >= v->n || !is_phrase(v, 1, be)) return false;
    c->wh = c->first = 1;
    c->behind = be;
    c->rest = be + 1;
    rvi_buf_puts(&c->verb, v->w[be].key);
    if (c->verb.failed) return false;
    put_clause(out, c);
    return true;
}

/* Where the thing begins in "what colour the front door of S is"; 0: it is no such question. */
static size_t indirect_thing(const view *v)
{
    size_t at = 2;
    if (v->n < 4 || !is(v, v->n - 1, RVI_EN_BE)) return 0;
    while (at < v->n && at != v->first && !is(v, at, RVI_EN_ARTICLE) && !is(v, at, RVI_EN_OWNER))
        at++;
    return at + 1 < v->n ? at : 0;
}

/* "What colour is the front door of S?", "What kind of dog is S?": said of all that stands behind
 * the verb. An answer that would not tell by itself what it measures is given the noun. */
static bool attribute(rvi_shape *out, const view *v, size_t wh)
{
    static const char measures[] =
        " age brand breed capacity class color colour currency date day depth diameter finish "
        "flavor flavour format gauge gender genre grade height hour language length make material "
        "model month nationality number pattern price rank rating season sex shade shape size "
        "species speed style temperature time type voltage weight width year ";
    size_t noun = noun_begin(v, 1), thing = indirect_thing(v), end = thing ? v->n - 1 : v->n;
    if (!among(v, 0, " what which ") || v->prep || (!thing && !is(v, wh, RVI_EN_BE))) return false;
    const char *be = v->w[thing ? end : wh].key;
    if (thing)
        wh = thing;
    else
        thing = wh + 1;
    if (!is_noun(v, noun, wh) || !is_phrase(v, thing, end)) return false;
    if (v->first < thing || v->behind == v->first || v->w[end - 1].possessive) return false;
    if (rvi_english_participle(v->w[thing].key)) return false; /* "What beer is sold at S?" */
    if (is(v, thing, RVI_EN_PRONOUN)) return false;            /* "What time is it in S?" */
    bool measured = noun == 1 && among(v, wh - 1, measures);
    bool past = rvi_english_among(be, " was were ");
    if (measured) {
        rvi_buf_puts(&out->before, "the ");
        slice(&out->before, v, noun, wh);
        rvi_buf_puts(&out->before, " of ");
    }
    put_words(&out->before, v, thing, end, true);
    rvi_buf_printf(&out->before, " %s ", !measured ? be : past ? "was" : "is");
    slice(&out->ask, v, 0, wh);
    rvi_buf_putc(&out->ask, ' ');
    put_words(&out->ask, v, thing, end, false);
    rvi_buf_printf(&out->ask, " %s", be);
    return true;
}

/* "What is the best thing about S?", "Who is S?", "What is my favourite colour?" */
static bool definition(rvi_shape *out, const view *v)
{
    size_t tail, at = asks_thing(v, &tail);
    if (!at || at + tail >= v->n || !is(v, 0, RVI_EN_WH)) return false;
    const char *be = tail ? v->w[v->n - 1].key : at == 2 ? v->w[1].key : "is";
    bool phrase = is(v, at, RVI_EN_ARTICLE) || is(v, at, RVI_EN_OWNER) ||
                  (v->behind == v->n - tail && v->first == at);
    if (!phrase) return false;
    put_words(&out->before, v, at, v->n - tail, true);
    rvi_buf_printf(&out->before, " %s ", strcmp(be, "am") ? be : "are");
    slice(&out->ask, v, 0, 1);
    rvi_buf_putc(&out->ask, ' ');
    slice(&out->ask, v, at, v->n - tail);
    rvi_buf_printf(&out->ask, " %s", be);
    return true;
}

/* "Where is the key to S?": all of it is the thing, unless a verb ends it. */
static bool place_of(rvi_shape *out, const view *v, const char *answer)
{
    size_t at = v->w[0].possessive ? 1 : 2;
    if (!among(v, 0, " where ") || (at == 2 && !is(v, 1, RVI_EN_BE)) || at >= v->n) return false;
    if (!is(v, at, RVI_EN_ARTICLE) && !is(v, at, RVI_EN_OWNER)) return false;
    const char *last = v->w[v->n - 1].key;
    size_t len = strlen(last);
    bool verb = len > 4 && (!strcmp(last + len - 3, "ing") || !strcmp(last + len - 2, "ed"));
    if (v->behind == v->first || v->first <= at || verb) return false;
    const char *be = at == 2 ? v->w[1].key : "is";
    put_words(&out->before, v, at, v->n, true);
    rvi_buf_printf(&out->before, " %s %s", be, begins_with_place(answer) ? "" : "in ");
    rvi_buf_puts(&out->ask, "where ");
    put_words(&out->ask, v, at, v->n, false);
    rvi_buf_printf(&out->ask, " %s", be);
    return true;
}

/* "Who discovered S?": O takes the place of what asks. */
static bool asks_subject(rvi_shape *out, const view *v, size_t wh)
{
    bool aux = is(v, 1, RVI_EN_BE) || is(v, 1, RVI_EN_DO) || is(v, 1, RVI_EN_MODAL);
    if (among(v, 0, " who what ") && !aux && !is(v, wh, RVI_EN_BE)) wh = 1;
    bool verb = is(v, wh, RVI_EN_MODAL) || is(v, wh, RVI_EN_BE);
    if (verb && among(v, wh + 1, " i you we one he she it they ")) return false;
    if (v->prep || !among(v, 0, " who what which ")) return false;
    if (v->behind == v->first || v->first <= wh) return false;
    for (size_t i = 0; i < v->first; i++) /* somebody else does it */
        if (is(v, i, RVI_EN_DO)) return false;
    if (wh > 1 && !is(v, wh, RVI_EN_BE) && !is(v, wh, RVI_EN_MODAL)) return false;
    rvi_buf_putc(&out->after, ' ');
    put_words(&out->after, v, wh, v->n, true);
    put_words(&out->ask, v, 0, v->n, false);
    return true;
}

/* "which animal lives with S": the noun is one word, the verb behind it unknown to us */
static bool asks_kind(rvi_shape *out, const view *v)
{
    size_t noun = noun_begin(v, 1);
    if (v->prep || !among(v, 0, " what which ")) return false;
    if (noun + 2 > v->first || v->behind == v->first) return false;
    const char *verb = v->w[noun + 1].key;
    size_t len = strlen(verb);
    if (len < 3 || (verb[len - 1] != 's' && strcmp(verb + len - 2, "ed"))) return false;
    rvi_buf_putc(&out->after, ' ');
    put_words(&out->after, v, noun + 1, v->n, true);
    put_words(&out->ask, v, 0, v->n, false);
    return true;
}

static void drop_front(rvi_buf *b, size_t n)
{
    memmove(b->data, b->data + n, b->len - n + 1);
    b->len -= n;
}

/* "in Oslo" is where, but "Oslo" is a home town; "12 years old" is an age of 12 years. */
static void fit_noun(const view *v, rvi_buf *answer)
{
    size_t first = strcspn(answer->data, " ");
    if (among(v, 0, " where when ") && first < answer->len) {
        char word[8] = {0};
        if (first < sizeof word) memcpy(word, answer->data, first);
        if (rvi_english_among(word, " in at on from ")) drop_front(answer, first + 1);
    }
    size_t len = v->n > 1 ? strlen(v->w[1].key) : 0;
    if (among(v, 0, " how ") && len && answer->len > len + 1 &&
        answer->data[answer->len - len - 1] == ' ' &&
        !strcmp(answer->data + answer->len - len, v->w[1].key)) {
        answer->len -= len + 1;
        answer->data[answer->len] = 0;
    }
}

/* "Why is S closed?" with an answer that is no reason by its form: it completes no statement. */
static bool wants_reason(const view *v, const char *answer)
{
    size_t len = strcspn(answer, " ");
    char word[16] = {0};
    if (!among(v, 0, " why ")) return false;
    if (len < sizeof word) memcpy(word, answer, len);
    return !rvi_english_among(word, " because to for due so since ");
}

/* The first statement that the question can be turned into, if there is any */
static void complete(rvi_shape *out, clause *c)
{
    const view *v = c->v;
    bool made = indirect_be(out, c) || passive(out, c) || definition(out, v) ||
                place_of(out, v, c->answer) || attribute(out, v, c->wh) ||
                there_are(out, v, c->wh) || statement(out, c) || active(out, c) ||
                how_many(out, v) || asks_kind(out, v);
    if (!made) asks_subject(out, v, c->wh);
}

rv_status rvi_fact_shape(rvi_shape *out, const rvi_question *q, rvi_buf *answer, rv_error *err)
{
    view v = look(q);
    if (!v.n) return RV_OK;
    bool noun = owned(out, &v) || of_subject(out, &v) || named_before(out, &v) ||
                which_one(out, &v) || own_noun(out, &v) || which_noun(out, &v) || label(out, &v);
    if (noun) fit_noun(&v, answer);
    bool asks = is(&v, 0, RVI_EN_WH) && !among(&v, 1, " of ");
    if (!noun && asks && !wants_reason(&v, answer->data)) {
        clause c = {.v = &v, .answer = answer->data, .wh = asking_words(&v)};
        if (measure(out, &v, c.wh))
            fit_noun(&v, answer);
        else
            complete(out, &c);
        bool failed = c.verb.failed;
        rvi_buf_deinit(&c.verb);
        if (failed) return rvi_nomem(err, "shape of a question");
    }
    if (out->ask.len) out->ask.data[0] = v.prep ? v.prep[0] : v.w[0].key[0];
    if (out->relation.failed || out->before.failed || out->after.failed || out->ask.failed)
        return rvi_nomem(err, "shape of a question");
    return RV_OK;
}

void rvi_shape_deinit(rvi_shape *s)
{
    rvi_buf_deinit(&s->relation);
    rvi_buf_deinit(&s->before);
    rvi_buf_deinit(&s->after);
    rvi_buf_deinit(&s->ask);
}
