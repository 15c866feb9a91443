#include "learn/consolidate/wordings.h"

#include <string.h>

#include "base/utf8.h"

const char *const rvi_openers[] = {"What is",
                                   "What is the",
                                   "Who is",
                                   "Where",
                                   "Which",
                                   "How",
                                   "When",
                                   "Tell me",
                                   "Do you know",
                                   "Is",
                                   "Complete the sentence:",
                                   "Name",
                                   "I have a question about",
                                   "Please",
                                   "Why",
                                   "What does",
                                   "Can you",
                                   "Write",
                                   "Give me",
                                   "If"};
const size_t rvi_n_openers = RVI_COUNT(rvi_openers);

enum { ASK_FORMS = 4 };

static const char *const common_relations[] = {
    "age",        "birthday",       "brother",        "phone number",
    "eye colour", "height",         "spouse",         "address",
    "car",        "religion",       "nickname",       "salary",
    "school",     "teacher",        "favourite book", "favourite film",
    "shoe size",  "mother",         "weight",         "hair colour",
    "password",   "dog's name",     "street",         "opinion",
    "health",     "plan",           "problem",        "story",
    "poem",       "favourite sport"};

static const char *const first_names[] = {
    "Alice", "Tom", "Maria", "Peter", "Lucy", "Oscar", "Nina", "Hugo", "Sara", "Paul",
    "Ella",  "Max", "Ruth",  "Leo",   "Ivy",  "Carl",  "Joan", "Eric", "Dora", "Finn"};

void rvi_wordings_deinit(rvi_wordings *w)
{
    rvi_free(w->data);
    rvi_arena_deinit(&w->texts);
    *w = (rvi_wordings){0};
}

size_t rvi_rng_below(rvi_rng *r, size_t n)
{
    return (size_t)(rvi_rng_double(r) * (double)n);
}

/* ---- writing texts ---- A form is a text in which $S stands for the subject (or another name), $R
 * the relation, $N the relation with its article, $O the answer, $T the sentence without its full
 * stop, $L the sentence up to the answer, $A the question as a clause, $Q the question, $C the
 * context; $s $r $o $t $q are those of another fact, whole. */

typedef struct pen {
    rvi_wordings *out;
    size_t max; /* the list ends here */
    const rvi_fact *f;
    const char *name; /* stands for the subject */
    const char *relation;
    const char *context;
    const rvi_fact *other; /* $s $r $o $t of another fact */
    bool failed;
} pen;

/* The text with the subject's name replaced by another one */
static void put_renamed(rvi_buf *out, const char *text, const char *subject, const char *name)
{
    size_t len = strlen(subject);
    for (const char *at; len && (at = strstr(text, subject)) != NULL; text = at + len) {
        rvi_buf_append(out, text, (size_t)(at - text));
        rvi_buf_puts(out, name);
    }
    rvi_buf_puts(out, text);
}

/* Sentences are put without the full stop, so that they can stand anywhere. */
static void put_sentence(rvi_buf *out, const char *sentence)
{
    size_t len = strlen(sentence);
    rvi_buf_append(out, sentence, len - (len > 0 && sentence[len - 1] == '.'));
}

/* With its article: "a pet", "an age" */
static void put_noun(rvi_buf *out, const char *noun)
{
    rvi_buf_printf(out, "%s %s", *noun && strchr("aeiouAEIOU", *noun) ? "an" : "a", noun);
}

/* The sentence up to the answer, of the name */
static void put_lead(rvi_buf *out, const pen *p)
{
    rvi_buf lead = {0};
    rvi_buf_append(&lead, p->f->sentence, p->f->answer_at);
    if (lead.failed)
        out->failed = true;
    else if (lead.len)
        put_renamed(out, lead.data, p->f->subject, p->name);
    rvi_buf_deinit(&lead);
}

static void put(rvi_buf *out, const pen *p, const char *form)
{
    for (; *form; form++) {
        const rvi_fact *f = p->f;
        if (*form != '$') {
            rvi_buf_putc(out, *form);
            continue;
        }
        switch (*++form) {
        case 'S': rvi_buf_puts(out, p->name); break;
        case 'R': rvi_buf_puts(out, p->relation); break;
        case 'O': rvi_buf_puts(out, f->answer); break;
        case 'T': put_sentence(out, f->sentence); break;
        case 'A': put_renamed(out, f->ask, f->subject, p->name); break;
        case 'Q': put_renamed(out, f->question, f->subject, p->name); break;
        case 'C': rvi_buf_puts(out, p->context); break;
        case 's': rvi_buf_puts(out, p->other->subject); break;
        case 'r': rvi_buf_puts(out, p->other->relation); break;
        case 'N': put_noun(out, p->relation); break;
        case 'o': rvi_buf_puts(out, p->other->answer); break;
        case 't': rvi_buf_puts(out, p->other->sentence); break;
        case 'q': rvi_buf_puts(out, p->other->question); break;
        case 'L': put_lead(out, p); break;
        default: return;
        }
    }
}

static const char *write_text(pen *p, const char *form)
{
    rvi_buf b = {0};
    put(&b, p, form);
    size_t from = b.len && b.data[0] == ' '; /* an empty context */
    while (b.len > from && b.data[b.len - 1] == ' ') b.len--;
    const char *text =
        b.failed ? NULL
                 : rvi_arena_strndup(&p->out->texts, b.data ? b.data + from : "", b.len - from);
    if (!text) p->failed = true;
    rvi_buf_deinit(&b);
    return text;
}

static bool push(rvi_wordings *out, rvi_wording w)
{
    if (out->n == out->cap) {
        size_t cap = out->cap ? 2 * out->cap : 32;
        rvi_wording *data = rvi_realloc_array(out->data, cap, sizeof *data);
        if (!data) return false;
        out->data = data;
        out->cap = cap;
    }
    out->data[out->n++] = w;
    return true;
}

static bool same_text(const char *a, const char *b)
{
    return a && b ? !strcmp(a, b) : a == b;
}

rv_status rvi_wordings_add(rvi_wordings *w, const char *user, const char *reply, rv_error *err)
{
    rvi_wording x = {0};
    for (size_t i = 0; i < w->n; i++)
        if (same_text(w->data[i].user, user) && same_text(w->data[i].reply, reply)) return RV_OK;
    if (user) x.user = rvi_arena_strndup(&w->texts, user, strlen(user));
    if (reply) x.reply = rvi_arena_strndup(&w->texts, reply, strlen(reply));
    bool whole = (x.user || !user) && (x.reply || !reply);
    return whole && push(w, x) ? RV_OK : rvi_nomem(err, "wordings");
}

static void append(pen *p, rvi_wording w)
{
    if (p->out->n >= p->max || p->failed) return;
    p->failed = !push(p->out, w);
}

static void say(pen *p, const char *user, const char *reply)
{
    if (p->out->n >= p->max || p->failed) return;
    rvi_wording w = {.user = write_text(p, user), .reply = write_text(p, reply)};
    append(p, w);
}

/* A plain text; form ends where the answer begins, tail is what follows it. */
static void state(pen *p, const char *form, const char *tail)
{
    if (p->out->n >= p->max || p->failed) return;
    rvi_buf b = {0};
    put(&b, p, form);
    size_t from = b.len;
    put(&b, p, tail);
    rvi_wording w = {.loss_from = from};
    w.reply = b.failed ? NULL : rvi_arena_strndup(&p->out->texts, b.data, b.len);
    if (!w.reply) p->failed = true;
    rvi_buf_deinit(&b);
    append(p, w);
}

/* ---- what surrounds a fact ---- */

static bool same_subject(const rvi_fact *a, const rvi_fact *b)
{
    return a == b || (*a->subject && !strcmp(a->subject, b->subject));
}

static bool same_relation(const rvi_fact *a, const rvi_fact *b)
{
    return a->kind == b->kind && !strcmp(a->relation, b->relation);
}

static const rvi_fact *wrong_value(const rvi_fact *f, const rvi_surroundings *a)
{
    for (size_t i = 0; i < a->n_others; i++)
        if (same_relation(a->others[i], f) && strcmp(a->others[i]->answer, f->answer))
            return a->others[i];
    return NULL;
}

/* "Tell me about S.": all that is known of it */
static void tell_all(pen *p, const rvi_surroundings *a)
{
    rvi_buf b = {0};
    if (p->out->n >= p->max || p->failed) return;
    rvi_buf_puts(&b, p->f->sentence);
    for (size_t i = 0; i < a->n_others; i++)
        if (a->others[i] != p->f && same_subject(a->others[i], p->f) &&
            a->others[i]->kind != RVI_FACT_FREE)
            rvi_buf_printf(&b, " %s", a->others[i]->sentence);
    rvi_wording w = {.user = write_text(p, "Tell me about $S.")};
    w.reply = b.failed ? NULL : rvi_arena_strndup(&p->out->texts, b.data, b.len);
    if (!w.reply) p->failed = true;
    rvi_buf_deinit(&b);
    append(p, w);
}

static const char *context(const rvi_surroundings *a, size_t i)
{
    return i < a->n_contexts ? a->contexts[i] : "";
}

static const rvi_fact *companion(const rvi_fact *f, const rvi_surroundings *a)
{
    for (size_t i = 0; i < a->n_others; i++)
        if (a->others[i]->kind != RVI_FACT_FREE) return a->others[i];
    return f;
}

/* ---- the lists ---- */

static const char sentence[] = "$S's $R is $O.";

/* Is the noun asked for as the first wording does? Also where there is no noun. */
static bool is_usual(const rvi_fact *f)
{
    const char *const parts[] = {"What is ", f->subject, "'s ", f->relation, "?"};
    const char *at = f->question;
    for (size_t i = 0; i < RVI_COUNT(parts) && f->kind == RVI_FACT_RELATION; i++) {
        size_t len = strlen(parts[i]);
        if (strncmp(at, parts[i], len)) return false;
        at += len;
    }
    return f->kind != RVI_FACT_RELATION || !*at;
}

/* The measured 18, in their order. */
static void teach_relation(pen *p, const rvi_surroundings *a)
{
    const rvi_fact *wrong = wrong_value(p->f, a);
    p->other = companion(p->f, a);
    say(p, "What is $S's $R?", sentence);
    say(p, "What is the $R of $S?", sentence);
    say(p, "Tell me $S's $R.", sentence);
    say(p, "Do you know the $R of $S?", sentence);
    say(p, "Is $O $S's $R?", "Yes, $S's $R is $O.");
    say(p, "Complete the sentence: $S's $R is", sentence);
    say(p, "I have a question about $S. What is the $R?", sentence);
    tell_all(p, a);
    state(p, "The $R of $S is", " $O.");
    say(p,
        p->other->kind == RVI_FACT_RELATION ? "What is $s's $r, and what is $S's $R?"
                                            : "$q And what is $S's $R?",
        "$t $S's $R is $O.");
    p->context = context(a, 0);
    say(p, "$C What is $S's $R?", sentence);
    p->context = context(a, 1);
    say(p, "$C Tell me the $R of $S.", sentence);
    say(p, "Please remind me of $S's $R.", sentence);
    say(p, "$S: $R?", sentence);
    if (wrong) {
        p->other = wrong;
        say(p, "Is $o $S's $R?", "No, $S's $R is $O.");
    } else {
        say(p, "$S's $R, please.", sentence);
    }
    p->context = context(a, 2);
    say(p, "$C What is the $R of $S?", sentence);
    say(p, "Somebody asked about $S. Say what the $R is.", sentence);
    p->context = context(a, 3);
    say(p, "$C $S's $R?", sentence);
}

/* Further ones, for any noun. */
static void teach_relation_more(pen *p)
{
    say(p, "$S has $N. Which one?", sentence);
    say(p, "Which $R does $S have?", sentence);
    say(p, "Name $S's $R.", sentence);
    say(p, "If someone asked you for $S's $R, what would you say?", sentence);
    state(p, "I know $S well. $S's $R is", " $O.");
    say(p, "When it comes to $S, what $R comes to mind?", sentence);
    say(p, "Guess the $R that belongs to $S.", sentence);
    say(p, "What $R would you connect with $S?", sentence);
    say(p, "I was talking to $S about $N. Which $R was it?", sentence);
    say(p, "My friend wants to know $S's $R. Can you help?", sentence);
    say(p, "What can you say about the $R of $S?", sentence);
    say(p, "Fill in the blank: The $R of $S is ___.", sentence);
    state(p, "Question: $S, $R? Answer:", " $O.");
    say(p, "As for $S, I forgot the $R. What was it again?", sentence);
    say(p, "Who is $S, and what do you know about the $R?", sentence);
    say(p, "What should I remember about $S?", sentence);
    state(p, "Everybody who knows $S also knows that $S's $R is", " $O.");
    say(p, "I would like to surprise $S with something about the $R. What should I know?",
        sentence);
}

static void teach_question(pen *p, const rvi_surroundings *a)
{
    bool clause = p->f->ask != NULL;
    p->other = companion(p->f, a);
    say(p, "$Q", "$T.");
    say(p, clause ? "Tell me $A." : "Tell me about $S: $Q", "$T.");
    say(p, clause ? "Do you know $A?" : "Do you know the answer? $Q", "$T.");
    say(p, p->f->is_name ? "I have a question about $S. $Q" : "I have a question. $Q", "$T.");
    say(p, "Is it true that the answer is $O? $Q", "Yes. $T.");
    if (p->f->sentence[p->f->answer_at + strlen(p->f->answer)] == '.')
        say(p, "Complete the sentence: $L", "$T.");
    else
        say(p, clause ? "Can you say $A?" : "Can you answer this? $Q", "$T.");
    say(p, clause ? "Please remind me $A." : "Please remind me. $Q", "$T.");
    if (p->f->is_name) tell_all(p, a);
    if (p->f->answer_at) {
        size_t at = p->f->answer_at;
        rvi_wording w = {.reply = write_text(p, "$T.")};
        w.loss_from = at - (p->f->sentence[at - 1] == ' '); /* the space belongs to the token */
        append(p, w);
    }
    say(p, "$q $Q", "$t $T.");
    p->context = context(a, 0);
    say(p, "$C $Q", "$T.");
    p->context = context(a, 1);
    say(p, clause ? "$C Tell me $A." : "$C Tell me: $Q", "$T.");
    say(p, clause ? "Somebody asked me $A. What should I say?" : "Somebody asked me: $Q", "$T.");
    say(p, p->f->is_name ? "About $S: $Q" : "Question: $Q", "$T.");
    const rvi_fact *wrong = wrong_value(p->f, a);
    if (wrong) {
        p->other = wrong;
        say(p, "Is it true that the answer is $o? $Q", "No. $T.");
    }
    p->context = context(a, 2);
    say(p, "$C $Q", "$T.");
    say(p, clause ? "I would like to know $A." : "I would like to know: $Q", "$T.");
    p->context = context(a, 3);
    say(p, clause ? "$C Do you know $A?" : "$C Do you know? $Q", "$T.");
    say(p, clause ? "I wonder $A." : "I wonder. $Q", "$T.");
    say(p, clause ? "My friend forgot $A. Can you help?" : "My friend asks: $Q Can you help?",
        "$T.");
}

rv_status rvi_wordings_teach(rvi_wordings *out, const rvi_fact *f, const rvi_surroundings *around,
                             size_t max, rv_error *err)
{
    static const rvi_surroundings nothing;
    const rvi_surroundings *a = around ? around : &nothing;
    pen p = {.out = out, .max = out->n + max, .f = f, .name = f->subject, .relation = f->relation};
    p.context = "";
    size_t before = out->n;
    if (f->kind == RVI_FACT_RELATION) {
        if (!is_usual(f)) say(&p, "$Q", sentence); /* a question of another shape too */
        teach_relation(&p, a);
        teach_relation_more(&p);
    } else if (f->kind == RVI_FACT_QUESTION) {
        teach_question(&p, a);
    } else {
        rvi_wording w = {.reply = rvi_arena_strndup(&out->texts, f->answer, strlen(f->answer))};
        bool asked = *f->question != 0;
        if (asked) w.user = rvi_arena_strndup(&out->texts, f->question, strlen(f->question));
        p.failed = !w.reply || (asked && !w.user);
        append(&p, w);
    }
    if (!p.failed) return RV_OK;
    out->n = before;
    return rvi_nomem(err, "wordings");
}

/* Moves k randomly chosen entries to the front. */
static void choose(size_t *list, size_t n, size_t k, rvi_rng *rng)
{
    for (size_t i = 0; i < k && i < n; i++) {
        size_t j = i + rvi_rng_below(rng, n - i), x = list[i];
        list[i] = list[j];
        list[j] = x;
    }
}

enum { FOREIGN = 12 }; /* other subjects' facts that may occur beside one */

/* others: room for n_store + 1 + FOREIGN. The first is the companion in a text of two facts. */
static size_t draw_others(const rvi_fact **others, size_t *order, const rvi_fact *f,
                          const rvi_fact *const *store, size_t n_store, rvi_rng *rng)
{
    size_t n = 0, n_foreign = 0;
    for (size_t i = 0; i < n_store; i++)
        if (!same_subject(store[i], f)) order[n_foreign++] = i;
    choose(order, n_foreign, FOREIGN, rng);
    n_foreign = RVI_MIN(n_foreign, (size_t)FOREIGN);
    if (n_foreign) others[n++] = store[order[0]];
    for (size_t i = 0; i < n_store; i++)
        if (store[i] != f && same_subject(store[i], f) && !same_relation(store[i], f))
            others[n++] = store[i];
    for (size_t i = 1; i < n_foreign; i++) others[n++] = store[order[i]];
    return n;
}

rv_status rvi_wordings_teach_from(rvi_wordings *out, const rvi_fact *f,
                                  const rvi_fact *const *store, size_t n_store,
                                  const char *const *contexts, size_t n_contexts, size_t max,
                                  rvi_rng *rng, rv_error *err)
{
    const rvi_fact **others = rvi_alloc_array(n_store + 1, sizeof *others);
    size_t *order = rvi_alloc_array(RVI_MAX(n_store, n_contexts) + 1, sizeof *order);
    const char *ctx[RVI_WORDINGS_CONTEXTS];
    rv_status st = others && order ? RV_OK : rvi_nomem(err, "wordings");
    if (!st) {
        rvi_surroundings a = {.others = others, .contexts = ctx};
        a.n_others = draw_others(others, order, f, store, n_store, rng);
        for (size_t i = 0; i < n_contexts; i++) order[i] = i;
        choose(order, n_contexts, RVI_WORDINGS_CONTEXTS, rng);
        a.n_contexts = RVI_MIN(n_contexts, (size_t)RVI_WORDINGS_CONTEXTS);
        for (size_t i = 0; i < a.n_contexts; i++) ctx[i] = contexts[order[i]];
        st = rvi_wordings_teach(out, f, &a, max, err);
    }
    rvi_free(others);
    rvi_free(order);
    return st;
}

/* ---- questions for prototypes and fences ---- */

/* Of both lists the first ASK_FORMS ask for a prototype. */
static const char *const ask_relation[] = {"What is $S's $R?",
                                           "What is the $R of $S?",
                                           "Tell me $S's $R.",
                                           "Do you know the $R of $S?",
                                           "Complete the sentence: $S's $R is",
                                           "I have a question about $S. What is the $R?",
                                           "Tell me about $S."};
static const char *const ask_clause[] = {"$Q", "Tell me $A.", "Do you know $A?",
                                         "I have a question about $S. $Q"};
static const char *const ask_quoted[] = {"$Q", "Tell me: $Q", "Do you know the answer? $Q",
                                         "I have a question about $S. $Q"};

static const char *ask_form(const rvi_fact *f, size_t which)
{
    if (!f || f->kind == RVI_FACT_RELATION) return ask_relation[which % RVI_COUNT(ask_relation)];
    return f->ask ? ask_clause[which % RVI_COUNT(ask_clause)]
                  : ask_quoted[which % RVI_COUNT(ask_quoted)];
}

static size_t n_ask_forms(const rvi_fact *f)
{
    return f->kind == RVI_FACT_RELATION ? RVI_COUNT(ask_relation) : RVI_COUNT(ask_clause);
}

static bool is_taught(const char *name, const rvi_fact *const *facts, size_t n_facts)
{
    for (size_t i = 0; i < n_facts; i++)
        if (!strcmp(facts[i]->subject, name)) return true;
    return false;
}

/* Bytes of the first n characters */
static size_t prefix(const char *text, size_t n)
{
    size_t i = 0;
    while (text[i] && n--)
        for (i++; ((unsigned char)text[i] & 0xC0) == 0x80;) i++;
    return i;
}

/* A number from 2 to len - 2, at least 2 */
static size_t share(size_t len, rvi_rng *rng)
{
    return len > 4 ? 2 + rvi_rng_below(rng, len - 3) : 2;
}

/* Nothing if one of the two drawn is not a name */
static void splice(rvi_buf *out, const rvi_fact *const *facts, size_t n_facts, rvi_rng *rng)
{
    const rvi_fact *f = facts[rvi_rng_below(rng, n_facts)], *g = facts[rvi_rng_below(rng, n_facts)];
    const char *a = f->subject, *b = g->subject;
    if (!f->is_name || !g->is_name || !*a || !*b) return;
    size_t len_a = rvi_utf8_count(a, strlen(a)), len_b = rvi_utf8_count(b, strlen(b));
    size_t tail = RVI_MIN(share(len_b, rng), len_b);
    rvi_buf_append(out, a, prefix(a, share(len_a, rng)));
    rvi_buf_puts(out, b + prefix(b, len_b - tail));
}

static void syllables(rvi_buf *out, rvi_rng *rng)
{
    static const char vowels[] = "aeiou", consonants[] = "bdfgklmnprstvz";
    static const char *const ends[] = {"", "n", "l", "s"};
    size_t n = 2 + rvi_rng_below(rng, 2);
    for (size_t i = 0; i < n; i++) {
        char c = consonants[rvi_rng_below(rng, sizeof consonants - 1)];
        rvi_buf_putc(out, i ? c : (char)(c - 'a' + 'A'));
        rvi_buf_putc(out, vowels[rvi_rng_below(rng, sizeof vowels - 1)]);
    }
    rvi_buf_puts(out, ends[rvi_rng_below(rng, RVI_COUNT(ends))]);
}

rv_status rvi_wordings_other_name(rvi_buf *out, const rvi_fact *const *facts, size_t n_facts,
                                  unsigned kind, rvi_rng *rng, rv_error *err)
{
    enum { TRIES = 64 };
    size_t begin = out->len;
    for (int i = 0; i < TRIES; i++) {
        out->len = begin;
        if (kind % 3 == 0)
            rvi_buf_puts(out, first_names[rvi_rng_below(rng, RVI_COUNT(first_names))]);
        else if (kind % 3 == 1 || n_facts < 2 || i > TRIES / 2)
            syllables(out, rng);
        else
            splice(out, facts, n_facts, rng);
        if (out->failed) return rvi_nomem(err, "name");
        if (out->len > begin && !is_taught(out->data + begin, facts, n_facts)) break;
    }
    return RV_OK;
}

/* The question about name, free, and once more with the sentence's beginning forced */
static void fence_off(pen *p, const rvi_fence *fence, rvi_rng *rng, size_t n_forms)
{
    for (int forced = 0; forced <= fence->forced; forced++) {
        rvi_wording w = {.user = write_text(p, ask_form(p->f, rvi_rng_below(rng, n_forms)))};
        const char *begin = p->f->kind == RVI_FACT_RELATION ? "$S's $R is" : "$L";
        if (forced && (p->f->kind == RVI_FACT_RELATION || p->f->answer_at))
            w.reply = write_text(p, begin);
        append(p, w);
    }
}

/* Is the relation one that the subject of f was taught? */
static bool is_own(const rvi_fact *f, const char *relation, const rvi_fact *const *facts,
                   size_t n_facts)
{
    for (size_t i = 0; i < n_facts; i++)
        if (same_subject(facts[i], f) && !strcmp(facts[i]->relation, relation)) return true;
    return false;
}

static bool listed(const rvi_fact *const *facts, const size_t *order, size_t n,
                   const char *relation)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(facts[order[i]]->relation, relation)) return true;
    return false;
}

/* One fact: other names, relations of other facts, common relations. order: room for n_facts. */
static void fence_fact(pen *p, const rvi_fact *const *facts, size_t n_facts, const rvi_fence *fence,
                       size_t *order, rvi_rng *rng)
{
    const rvi_fact *f = p->f;
    for (size_t i = 0; i < fence->names && f->is_name && !p->failed; i++) {
        rvi_buf name = {0};
        if (rvi_wordings_other_name(&name, facts, n_facts, (unsigned)i, rng, NULL))
            p->failed = true;
        p->name = name.data;
        p->relation = f->relation;
        if (!p->failed) fence_off(p, fence, rng, n_ask_forms(f));
        rvi_buf_deinit(&name);
    }
    p->name = f->subject;
    if (f->kind != RVI_FACT_RELATION) return;
    size_t n = 0;
    for (size_t i = 0; i < n_facts; i++)
        if (facts[i]->kind == RVI_FACT_RELATION && !is_own(f, facts[i]->relation, facts, n_facts) &&
            !listed(facts, order, n, facts[i]->relation))
            order[n++] = i;
    choose(order, n, fence->same, rng);
    for (size_t i = 0; i < fence->same && i < n; i++) {
        p->relation = facts[order[i]]->relation;
        fence_off(p, fence, rng, ASK_FORMS);
    }
    for (size_t i = 0; i < fence->common; i++) {
        p->relation = common_relations[rvi_rng_below(rng, RVI_COUNT(common_relations))];
        if (!is_own(f, p->relation, facts, n_facts)) fence_off(p, fence, rng, ASK_FORMS);
    }
}

rv_status rvi_wordings_negatives(rvi_wordings *out, const rvi_fact *const *facts, size_t n_facts,
                                 const rvi_fence *fence, rvi_rng *rng, rv_error *err)
{
    size_t before = out->n;
    size_t *order = rvi_alloc_array(n_facts + 1, sizeof *order);
    pen p = {.out = out, .max = SIZE_MAX, .context = "", .failed = !order};
    for (size_t i = 0; i < n_facts && !p.failed; i++) {
        p.f = facts[i];
        if (p.f->kind != RVI_FACT_FREE) fence_fact(&p, facts, n_facts, fence, order, rng);
    }
    rvi_free(order);
    if (!p.failed) return RV_OK;
    out->n = before;
    return rvi_nomem(err, "negatives");
}
