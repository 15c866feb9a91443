#include "learn/gate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "learn/english.h"
#include "learn/wordings.h"

enum {
    KEY_WORDS = 6, /* of a subject's name; a longer one is known by its first */
    NEED_WORDS = 8,
    TYPO_LETTERS = 5, /* shorter words must be right */
    LAST_WORDS = 512,
};

typedef struct key {
    const char *words[KEY_WORDS]; /* folded */
    const char *single;           /* one word: without doubled letters; otherwise NULL */
    size_t n;
    int subject;
    bool needs_capital; /* the small word is an ordinary one: "Rose" */
} key;

typedef struct subject {
    const char *name; /* folded words with single spaces */
    /* An ordinary word is not enough to know a question by: one of these words must be there too,
     * and the first person if the question had it. */
    const char *need[NEED_WORDS];
    size_t n_need;
    bool first_person;
} subject;

typedef struct relation {
    rvi_fact_kind kind;
    const char *text;
    float *prototype; /* of length 1; NULL: not calibrated */
} relation;

struct rvi_gate {
    const rvi_tokenizer *t;
    const rvi_calibration *calibration; /* NULL: words only */
    const rvi_fact *const *facts;
    size_t n_facts;
    int *subject_of, *relation_of; /* per fact; -1: none */
    const char **questions;        /* per fact: its words, folded */
    subject *subjects;
    size_t n_subjects;
    key *keys;       /* by first word, then longest first */
    key **by_single; /* keys of one word, by `single` */
    size_t n_keys, n_single;
    relation *relations;
    size_t n_relations;
    bool *common; /* which common relations stand against the stored ones */
    rvi_arena texts;
};

/* ---- vectors ---- */

static float dot(const float *a, const float *b, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) sum += (double)a[i] * (double)b[i];
    return (float)sum;
}

static void make_unit(float *x, int n)
{
    float scale = 1.0f / (sqrtf(dot(x, x, n)) + 1e-9f);
    for (int i = 0; i < n; i++) x[i] *= scale;
}

/* Features to a vector of length 1 */
static void standardise(const rvi_calibration *c, const float *x, float *out)
{
    for (int i = 0; i < c->dim; i++) out[i] = (x[i] - c->mean[i]) * c->scale[i];
    make_unit(out, c->dim);
}

/* ---- calibration ---- */

static const char *const prototype_names[] = {"Zorimel", "Tavo", "Peter"};
enum { PROTOTYPE_TEXTS = 3 * RVI_WORDINGS_ASK };

/* The features of texts that ask for one relation: a question each, with a name that is left out.
 * fact: NULL where only the noun is known. */
static rv_status read_asked(const rvi_gate_reader *reader, const rvi_fact *fact, const char *noun,
                            float *out, rv_error *err)
{
    rvi_buf texts[PROTOTYPE_TEXTS] = {{0}};
    rvi_gate_text asked[PROTOTYPE_TEXTS];
    rvi_gate_mask masks[PROTOTYPE_TEXTS];
    rv_status st = RV_OK;
    for (unsigned i = 0; i < PROTOTYPE_TEXTS && !st; i++) {
        const char *name = prototype_names[i / RVI_WORDINGS_ASK];
        if (fact && !fact->is_name) name = fact->subject;
        st = rvi_wordings_ask(&texts[i], fact, noun, name, i % RVI_WORDINGS_ASK, err);
        const char *at = st ? NULL : strstr(texts[i].data, name);
        masks[i] = (rvi_gate_mask){at ? (size_t)(at - texts[i].data) : 0, at ? strlen(name) : 0};
        asked[i] = (rvi_gate_text){texts[i].data, texts[i].len, &masks[i], at != NULL};
    }
    if (!st) st = reader->read(reader->ctx, asked, PROTOTYPE_TEXTS, out, err);
    for (size_t i = 0; i < PROTOTYPE_TEXTS; i++) rvi_buf_deinit(&texts[i]);
    return st;
}

/* The mean direction of n vectors of features */
static void mean_direction(const rvi_calibration *c, const float *x, size_t n, float *out)
{
    float *z = out + c->dim; /* room for two */
    memset(out, 0, (size_t)c->dim * sizeof *out);
    for (size_t i = 0; i < n; i++) {
        standardise(c, x + i * (size_t)c->dim, z);
        for (int k = 0; k < c->dim; k++) out[k] += z[k];
    }
    make_unit(out, c->dim);
}

static rv_status spread(rvi_calibration *c, const float *x, size_t n, rv_error *err)
{
    double *sum = rvi_zalloc_array((size_t)c->dim * 2, sizeof *sum);
    if (!sum) return rvi_nomem(err, "calibration");
    double *square = sum + c->dim;
    for (size_t i = 0; i < n; i++)
        for (int k = 0; k < c->dim; k++) {
            double v = x[i * (size_t)c->dim + (size_t)k];
            sum[k] += v;
            square[k] += v * v;
        }
    for (int k = 0; k < c->dim; k++) {
        double mean = sum[k] / (double)n, var = square[k] / (double)n - mean * mean;
        c->mean[k] = (float)mean;
        c->scale[k] = (float)(1.0 / (sqrt(var > 0 ? var : 0) + 1e-6));
    }
    rvi_free(sum);
    return RV_OK;
}

rv_status rvi_calibration_new(rvi_calibration **out, const rvi_gate_reader *reader,
                              const char *const *questions, size_t n_questions, rv_error *err)
{
    size_t dim = (size_t)reader->dim, n_common = rvi_n_common_relations;
    size_t n_asked = n_common * PROTOTYPE_TEXTS, n = n_asked + n_questions;
    *out = NULL;
    rvi_calibration *c = rvi_zalloc(sizeof *c);
    float *x = rvi_alloc_array(n, dim * sizeof *x);
    rvi_gate_text *texts = rvi_zalloc_array(n_questions + 1, sizeof *texts);
    rv_status st = c && x && texts ? RV_OK : rvi_nomem(err, "calibration");
    if (!st) {
        c->dim = reader->dim;
        c->n_common = (int)n_common;
        c->mean = rvi_zalloc_array(dim, sizeof *c->mean);
        c->scale = rvi_zalloc_array(dim, sizeof *c->scale);
        c->common = rvi_zalloc_array((n_common + 1) * dim, sizeof *c->common); /* one to work in */
        if (!c->mean || !c->scale || !c->common) st = rvi_nomem(err, "calibration");
    }
    for (size_t i = 0; i < n_common && !st; i++)
        st = read_asked(reader, NULL, rvi_common_relations[i], x + i * PROTOTYPE_TEXTS * dim, err);
    for (size_t i = 0; i < n_questions && !st; i++)
        texts[i] = (rvi_gate_text){.text = questions[i], .len = strlen(questions[i])};
    if (!st && n_questions)
        st = reader->read(reader->ctx, texts, n_questions, x + n_asked * dim, err);
    if (!st)
        st = spread(c, n_questions ? x + n_asked * dim : x, n_questions ? n_questions : n_asked,
                    err);
    for (size_t i = 0; i < n_common && !st; i++)
        mean_direction(c, x + i * PROTOTYPE_TEXTS * dim, PROTOTYPE_TEXTS, c->common + i * dim);
    rvi_free(x);
    rvi_free(texts);
    if (st)
        rvi_calibration_free(c);
    else
        *out = c;
    return st;
}

void rvi_calibration_free(rvi_calibration *c)
{
    if (!c) return;
    rvi_free(c->mean);
    rvi_free(c->scale);
    rvi_free(c->common);
    rvi_free(c);
}

typedef struct calibration_header {
    char magic[8];
    int32_t dim, n_common;
    uint64_t relations; /* hash of their names */
} calibration_header;

/* Another one whenever calibrations or prototypes are made in another way. */
static const char calibration_magic[8] = "RVGATE2";

static uint64_t hash(uint64_t h, const void *data, size_t len) /* FNV-1a */
{
    for (size_t i = 0; i < len; i++) h = (h ^ ((const unsigned char *)data)[i]) * 1099511628211u;
    return h;
}

static const uint64_t hash_start = 14695981039346656037u;

static uint64_t hash_relations(void)
{
    uint64_t h = hash_start;
    for (size_t i = 0; i < rvi_n_common_relations; i++)
        h = hash(h, rvi_common_relations[i], strlen(rvi_common_relations[i]) + 1);
    return h;
}

uint64_t rvi_calibration_prototype(const rvi_calibration *c, const rvi_fact *f)
{
    size_t dim = (size_t)c->dim * sizeof(float);
    uint64_t h = hash(hash_start, calibration_magic, sizeof calibration_magic);
    h = hash(h, c->mean, dim);
    h = hash(h, c->scale, dim);
    h = hash(h, &f->kind, sizeof f->kind);
    h = hash(h, f->relation, strlen(f->relation) + 1);
    h = hash(h, f->subject, strlen(f->subject) + 1);
    return hash(h, f->question, strlen(f->question) + 1);
}

bool rvi_calibration_save(const rvi_calibration *c, rvi_buf *out)
{
    size_t dim = (size_t)c->dim * sizeof(float);
    calibration_header h = {.dim = c->dim, .n_common = c->n_common, .relations = hash_relations()};
    memcpy(h.magic, calibration_magic, sizeof h.magic);
    (void)rvi_buf_append(out, &h, sizeof h);
    (void)rvi_buf_append(out, c->mean, dim);
    (void)rvi_buf_append(out, c->scale, dim);
    (void)rvi_buf_append(out, c->common, (size_t)c->n_common * dim);
    return !out->failed;
}

rv_status rvi_calibration_load(rvi_calibration **out, int dim, const void *data, size_t len,
                               rv_error *err)
{
    calibration_header h = {0};
    size_t n = (size_t)dim, n_common = rvi_n_common_relations;
    *out = NULL;
    if (len >= sizeof h) memcpy(&h, data, sizeof h);
    if (memcmp(h.magic, calibration_magic, sizeof h.magic) || h.dim != dim ||
        h.n_common != (int)n_common || h.relations != hash_relations() ||
        len != sizeof h + (2 + n_common) * n * sizeof(float))
        return rvi_error(err, RV_E_STORAGE, "the stored statistics of questions do not fit");
    rvi_calibration *c = rvi_zalloc(sizeof *c);
    if (!c) return rvi_nomem(err, "calibration");
    c->dim = dim;
    c->n_common = (int)n_common;
    c->mean = rvi_alloc_array(n, sizeof *c->mean);
    c->scale = rvi_alloc_array(n, sizeof *c->scale);
    c->common = rvi_alloc_array(n_common * n, sizeof *c->common);
    rv_status st = c->mean && c->scale && c->common ? RV_OK : rvi_nomem(err, "calibration");
    if (!st) {
        const char *at = (const char *)data + sizeof h;
        float *parts[] = {c->mean, c->scale, c->common};
        size_t sizes[] = {n, n, n_common * n};
        for (size_t i = 0; i < 3; at += sizes[i++] * sizeof(float)) {
            memcpy(parts[i], at, sizes[i] * sizeof(float));
            for (size_t k = 0; k < sizes[i] && !st; k++)
                if (!isfinite(parts[i][k]))
                    st = rvi_error(err, RV_E_STORAGE,
                                   "the stored statistics of questions are damaged");
        }
    }
    if (st)
        rvi_calibration_free(c);
    else
        *out = c;
    return st;
}

/* ---- making a gate ---- */

/* The words of a text, folded, with single spaces between them */
static rv_status fold_words(rvi_gate *g, const char *text, const char **out, rv_error *err)
{
    rvi_words w = {0};
    rvi_buf b = {0};
    rv_status st = rvi_words_split(&w, text, strlen(text), err);
    for (size_t i = 0; i < w.n; i++) rvi_buf_printf(&b, "%s%s", i ? " " : "", w.data[i].key);
    if (!st) {
        *out = b.failed ? NULL : rvi_arena_strndup(&g->texts, b.data ? b.data : "", b.len);
        if (!*out) st = rvi_nomem(err, "gate");
    }
    rvi_buf_deinit(&b);
    rvi_words_deinit(&w);
    return st;
}

static int find_subject(const rvi_gate *g, const char *name)
{
    for (size_t i = 0; i < g->n_subjects; i++)
        if (!strcmp(g->subjects[i].name, name)) return (int)i;
    return -1;
}

/* What else must be said where the subject is an ordinary word */
static rv_status find_needs(rvi_gate *g, subject *s, const rvi_fact *f, rv_error *err)
{
    rvi_words w = {0};
    rv_status st = rvi_words_split(&w, f->question, strlen(f->question), err);
    for (size_t i = 0; i < w.n && !st; i++) {
        const char *k = w.data[i].key;
        if (rvi_english_among(k, " i me my mine we us our ours ")) s->first_person = true;
        if (rvi_english_is(k, RVI_EN_FUNCTION) || !strcmp(k, s->name)) continue;
        if (s->n_need == NEED_WORDS) break;
        const char *copy = rvi_arena_strndup(&g->texts, k, strlen(k));
        if (!copy) st = rvi_nomem(err, "gate");
        s->need[s->n_need++] = copy;
    }
    rvi_words_deinit(&w);
    return st;
}

/* Letters that follow each other twice count once. */
static const char *without_doubles(rvi_gate *g, const char *word)
{
    char *out = rvi_arena_strndup(&g->texts, word, strlen(word));
    size_t n = 0;
    for (size_t i = 0; out && word[i]; i++)
        if (!i || word[i] != word[i - 1]) out[n++] = word[i];
    if (out) out[n] = 0;
    return out;
}

/* A name that is an ordinary word when it is written small */
static rv_status is_ordinary(const rvi_gate *g, const rvi_words *w, const char *text, bool *out,
                             rv_error *err)
{
    double small, large;
    const rvi_word *x = &w->data[0];
    *out = false;
    if (w->n != 1 || !x->capital) return RV_OK;
    rv_status st = rvi_words_weigh(g->t, x->key, strlen(x->key), &small, err);
    if (!st) st = rvi_words_weigh(g->t, text + x->at, x->len, &large, err);
    if (!st) *out = small < RVI_WORDS_RARE && small <= large;
    return st;
}

static rv_status add_key(rvi_gate *g, const char *name, int of, rv_error *err)
{
    rvi_words w = {0};
    key *k = &g->keys[g->n_keys];
    rv_status st = rvi_words_split(&w, name, strlen(name), err);
    *k = (key){.subject = of, .n = RVI_MIN(w.n, (size_t)KEY_WORDS)};
    for (size_t i = 0; i < k->n && !st; i++) {
        k->words[i] = rvi_arena_strndup(&g->texts, w.data[i].key, strlen(w.data[i].key));
        if (!k->words[i]) st = rvi_nomem(err, "gate");
    }
    if (!st && k->n) st = is_ordinary(g, &w, name, &k->needs_capital, err);
    if (!st && k->n == 1 && !k->needs_capital) {
        k->single = without_doubles(g, k->words[0]);
        if (!k->single) st = rvi_nomem(err, "gate");
    }
    if (!st && k->n) g->n_keys++;
    rvi_words_deinit(&w);
    return st;
}

static int by_words(const void *a, const void *b)
{
    const key *x = a, *y = b;
    int order = strcmp(x->words[0], y->words[0]);
    if (order) return order;
    if (x->n != y->n) return x->n > y->n ? -1 : 1;
    for (size_t i = 1; i < x->n; i++)
        if ((order = strcmp(x->words[i], y->words[i])) != 0) return order;
    return (x->subject > y->subject) - (x->subject < y->subject);
}

static int by_single(const void *a, const void *b)
{
    const key *const *x = a, *const *y = b;
    return strcmp((*x)->single, (*y)->single);
}

/* Subjects, their facts, and the keys that they are known by. A nickname is one more key. */
static rv_status make_keys(rvi_gate *g, rv_error *err)
{
    rv_status st = RV_OK;
    for (size_t i = 0; i < g->n_facts && !st; i++) {
        const rvi_fact *f = g->facts[i];
        const char *name;
        if (!*f->subject) continue;
        st = fold_words(g, f->subject, &name, err);
        if (st || !*name) continue;
        int at = find_subject(g, name);
        if (at < 0) {
            subject *s = &g->subjects[g->n_subjects];
            *s = (subject){.name = name};
            at = (int)g->n_subjects++;
            if (!f->is_name) st = find_needs(g, s, f, err);
            if (!st) st = add_key(g, f->subject, at, err);
        }
        if (!st && rvi_fact_is_alias(f)) st = add_key(g, f->answer, at, err);
        if (!st) st = fold_words(g, f->question, &g->questions[i], err);
        g->subject_of[i] = at;
    }
    if (st) return st;
    if (g->n_keys) qsort(g->keys, g->n_keys, sizeof *g->keys, by_words);
    for (size_t i = 0; i < g->n_keys; i++)
        if (g->keys[i].single) g->by_single[g->n_single++] = &g->keys[i];
    if (g->n_single) qsort(g->by_single, g->n_single, sizeof *g->by_single, by_single);
    return RV_OK;
}

static int find_relation(const rvi_gate *g, const rvi_fact *f)
{
    for (size_t i = 0; i < g->n_relations; i++)
        if (g->relations[i].kind == f->kind && !strcmp(g->relations[i].text, f->relation))
            return (int)i;
    return -1;
}

static rv_status make_prototype(rvi_gate *g, relation *r, const rvi_fact *f,
                                const rvi_gate_reader *reader, const rvi_gate *before,
                                rv_error *err)
{
    size_t dim = (size_t)g->calibration->dim;
    int known = before && before->calibration == g->calibration ? find_relation(before, f) : -1;
    r->prototype = rvi_arena_alloc(&g->texts, 2 * dim, sizeof *r->prototype);
    if (!r->prototype) return rvi_nomem(err, "gate");
    if (known >= 0) {
        memcpy(r->prototype, before->relations[known].prototype, dim * sizeof(float));
        return RV_OK;
    }
    if (reader->recall && reader->recall(reader->memory, f, r->prototype)) return RV_OK;
    float *x = rvi_alloc_array(PROTOTYPE_TEXTS * dim, sizeof *x);
    if (!x) return rvi_nomem(err, "gate");
    rv_status st = read_asked(reader, f, f->relation, x, err);
    if (!st) mean_direction(g->calibration, x, PROTOTYPE_TEXTS, r->prototype);
    if (!st && reader->keep) reader->keep(reader->memory, f, r->prototype);
    rvi_free(x);
    return st;
}

const float *rvi_gate_prototype(const rvi_gate *g, const rvi_fact *f)
{
    int at = g->calibration ? find_relation(g, f) : -1;
    return at >= 0 ? g->relations[at].prototype : NULL;
}

/* Common relations that are nearly a stored one say nothing against it. */
static void choose_common(rvi_gate *g)
{
    const rvi_calibration *c = g->calibration;
    for (int i = 0; i < c->n_common; i++) {
        g->common[i] = true;
        for (size_t k = 0; k < g->n_relations; k++)
            if (dot(c->common + (size_t)i * (size_t)c->dim, g->relations[k].prototype, c->dim) >
                0.8f)
                g->common[i] = false;
    }
}

static rv_status make_relations(rvi_gate *g, const rvi_gate_reader *reader, const rvi_gate *before,
                                rv_error *err)
{
    for (size_t i = 0; i < g->n_facts; i++) {
        const rvi_fact *f = g->facts[i];
        if (f->kind == RVI_FACT_FREE || g->subject_of[i] < 0) continue;
        int at = find_relation(g, f);
        if (at < 0) {
            relation *r = &g->relations[g->n_relations];
            *r = (relation){.kind = f->kind, .text = f->relation};
            rv_status st = g->calibration ? make_prototype(g, r, f, reader, before, err) : RV_OK;
            if (st) return st;
            at = (int)g->n_relations++;
        }
        g->relation_of[i] = at;
    }
    if (g->calibration) choose_common(g);
    return RV_OK;
}

rv_status rvi_gate_new(rvi_gate **out, const rvi_tokenizer *t, const rvi_fact *const *facts,
                       size_t n_facts, const rvi_calibration *calibration,
                       const rvi_gate_reader *reader, const rvi_gate *before, rv_error *err)
{
    *out = NULL;
    rvi_gate *g = rvi_zalloc(sizeof *g);
    if (!g) return rvi_nomem(err, "gate");
    g->t = t;
    g->calibration = calibration;
    g->facts = facts;
    g->n_facts = n_facts;
    size_t n = n_facts + 1;
    g->subject_of = rvi_alloc_array(n, sizeof *g->subject_of);
    g->relation_of = rvi_alloc_array(n, sizeof *g->relation_of);
    g->subjects = rvi_alloc_array(n, sizeof *g->subjects);
    g->questions = rvi_zalloc_array(n, sizeof *g->questions);
    g->relations = rvi_alloc_array(n, sizeof *g->relations);
    g->keys = rvi_alloc_array(n, 2 * sizeof *g->keys); /* a fact may bring a name and an alias */
    g->by_single = rvi_alloc_array(n, 2 * sizeof *g->by_single);
    g->common = rvi_zalloc_array(calibration ? (size_t)calibration->n_common + 1 : 1, sizeof(bool));
    bool ok = g->subject_of && g->relation_of && g->subjects && g->relations && g->keys &&
              g->by_single && g->common && g->questions;
    rv_status st = ok ? RV_OK : rvi_nomem(err, "gate");
    for (size_t i = 0; i < n && ok; i++) g->subject_of[i] = g->relation_of[i] = -1;
    if (!st) st = make_keys(g, err);
    if (!st) st = make_relations(g, reader, before, err);
    if (st)
        rvi_gate_free(g);
    else
        *out = g;
    return st;
}

void rvi_gate_free(rvi_gate *g)
{
    if (!g) return;
    rvi_free(g->subject_of);
    rvi_free(g->relation_of);
    rvi_free(g->subjects);
    rvi_free(g->questions);
    rvi_free(g->relations);
    rvi_free(g->keys);
    rvi_free(g->by_single);
    rvi_free(g->common);
    rvi_arena_deinit(&g->texts);
    rvi_free(g);
}

bool rvi_gate_calibrated(const rvi_gate *g)
{
    return g->calibration != NULL;
}

/* ---- asking it ---- */

/* The first key that begins with the word; n_keys if there is none */
static size_t first_key(const rvi_gate *g, const char *word)
{
    size_t lo = 0, hi = g->n_keys;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (strcmp(g->keys[mid].words[0], word) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < g->n_keys && !strcmp(g->keys[lo].words[0], word) ? lo : g->n_keys;
}

/* The longest name that begins at word i, or NULL */
static const key *key_at(const rvi_gate *g, const rvi_words *w, size_t i)
{
    const char *word = w->data[i].key;
    for (size_t k = first_key(g, word); k < g->n_keys && !strcmp(g->keys[k].words[0], word); k++) {
        const key *x = &g->keys[k];
        size_t n = 1;
        while (n < x->n && i + n < w->n && w->data[i + n].joined &&
               !w->data[i + n - 1].possessive && !strcmp(w->data[i + n].key, x->words[n]))
            n++;
        if (n == x->n && (!x->needs_capital || w->data[i].capital)) return x;
    }
    return NULL;
}

static const key *find_single(const rvi_gate *g, const char *single)
{
    size_t lo = 0, hi = g->n_single;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (strcmp(g->by_single[mid]->single, single) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < g->n_single && !strcmp(g->by_single[lo]->single, single) ? g->by_single[lo] : NULL;
}

/* A slip of the keyboard: a letter doubled or not, or two neighbours exchanged. No more: names that
 * differ by a letter are different names. Only of rare words; NULL: none. */
static rv_status misspelt(const rvi_gate *g, const char *word, const key **out, rv_error *err)
{
    char try[RVI_WORD_MAX * 4], plain[RVI_WORD_MAX * 4];
    size_t len = strlen(word);
    double rarity;
    *out = NULL;
    if (len < TYPO_LETTERS || len >= sizeof try || !g->n_single) return RV_OK;
    for (size_t i = 0; i < len && !*out; i++) { /* round 0: as it is, without doubles */
        size_t n = 0;
        memcpy(try, word, len + 1);
        if (i && ((try[i] | try[i - 1]) & 0x80)) continue;
        if (i && try[i] == try[i - 1]) continue;
        if (i) {
            try[i] = word[i - 1];
            try[i - 1] = word[i];
        }
        for (size_t k = 0; try[k]; k++)
            if (!k || try[k] != try[k - 1]) plain[n++] = try[k];
        plain[n] = 0;
        const key *x = find_single(g, plain);
        size_t known = x ? strlen(x->words[0]) : 0;
        /* One slip: exchanged letters leave the rest as it was, one double comes or goes. */
        if (x && known >= TYPO_LETTERS &&
            (i ? !strcmp(x->words[0], try) : known + 1 == len || len + 1 == known))
            *out = x;
    }
    if (!*out) return RV_OK;
    rv_status st = rvi_words_rarity(g->t, word, len, &rarity, err);
    if (st || rarity < RVI_WORDS_RARE) *out = NULL;
    return st;
}

/* Among the last words of a text: a question stands at the end of what it is about. */
static bool has_word(const rvi_words *w, const char *word)
{
    for (size_t i = w->n > LAST_WORDS ? w->n - LAST_WORDS : 0; i < w->n; i++)
        if (rvi_english_same(w->data[i].key, word)) return true;
    return false;
}

static bool first_person(const rvi_words *w)
{
    for (size_t i = 0; i < w->n; i++)
        if (rvi_english_among(w->data[i].key, " i me my mine we us our ours i'm i've i'd "))
            return true;
    return false;
}

/* Is enough said besides a subject that is an ordinary word? */
static bool enough(const subject *s, const rvi_words *w, int *tries)
{
    bool some = !s->n_need;
    if (some && !s->first_person) return true;
    if ((*tries)-- <= 0) return false;
    if (s->first_person && !first_person(w)) return false;
    for (size_t i = 0; i < s->n_need && !some; i++) some = has_word(w, s->need[i]);
    return some;
}

static bool has_subject(const rvi_gate_hit *hit, int s)
{
    for (size_t i = 0; i < hit->n; i++)
        if (hit->subjects[i] == s) return true;
    return false;
}

static void note(rvi_gate_hit *hit, int found, const rvi_words *w, size_t from, size_t n)
{
    if (!has_subject(hit, found) && hit->n < RVI_GATE_SUBJECTS) hit->subjects[hit->n++] = found;
    if (hit->n_masks < RVI_GATE_MASKS) {
        const rvi_word *a = &w->data[from], *b = &w->data[from + n - 1];
        hit->masks[hit->n_masks++] = (rvi_gate_mask){a->at, b->at + b->len - a->at};
    }
}

/* The subjects that a text names */
static rv_status scan(const rvi_gate *g, const rvi_words *w, rvi_gate_hit *hit, rv_error *err)
{
    int tries = 32; /* ordinary words that are looked at closely: a text may be full of them */
    for (size_t i = 0; i < w->n;) {
        const key *k = key_at(g, w, i);
        if (k && (has_subject(hit, k->subject) || enough(&g->subjects[k->subject], w, &tries)))
            note(hit, k->subject, w, i, k->n);
        i += k ? k->n : 1;
    }
    for (size_t i = 0; i < w->n && !hit->n; i++) {
        const key *k;
        rv_status st = misspelt(g, w->data[i].key, &k, err);
        if (st) return st;
        if (k) note(hit, k->subject, w, i, 1);
    }
    return RV_OK;
}

static bool has_pronoun(const rvi_words *w)
{
    for (size_t i = 0; i < w->n; i++)
        if (rvi_english_is(w->data[i].key, RVI_EN_THIRD)) return true;
    return false;
}

/* How many words of the fact's relation stand in the text */
static size_t overlap(const rvi_fact *f, const rvi_words *w)
{
    size_t n = 0;
    char word[RVI_WORD_MAX + 1];
    for (const char *at = f->relation; *at; at += *at == ' ') {
        size_t len = strcspn(at, " "), i = RVI_MIN(len, (size_t)RVI_WORD_MAX);
        memcpy(word, at, i);
        word[i] = 0;
        at += len;
        n += !rvi_english_is(word, RVI_EN_FUNCTION) && has_word(w, word);
    }
    return n;
}

/* The fact that shares most words with the question, the newest of equals: without features there
 * is nothing better. */
static int most_alike(const rvi_gate *g, const rvi_gate_hit *hit, const rvi_words *w)
{
    int best = -1;
    size_t most = 0;
    for (size_t i = 0; i < g->n_facts; i++) {
        if (!rvi_gate_about(g, hit, i) || g->relation_of[i] < 0) continue;
        size_t n = overlap(g->facts[i], w);
        if (best >= 0 && n < most) continue;
        best = (int)i;
        most = n;
    }
    return best;
}

static bool same_words(const char *folded, const rvi_words *w)
{
    for (size_t i = 0; i < w->n; i++) {
        size_t len = strlen(w->data[i].key);
        if (i && *folded++ != ' ') return false;
        if (strncmp(folded, w->data[i].key, len)) return false;
        folded += len;
    }
    return !*folded;
}

/* The newest fact that was taught by these words */
static int same_question(const rvi_gate *g, const rvi_gate_hit *hit, const rvi_words *w)
{
    for (size_t i = g->n_facts; i-- > 0;)
        if (g->relation_of[i] >= 0 && rvi_gate_about(g, hit, i) && same_words(g->questions[i], w))
            return (int)i;
    return -1;
}

/* The last subject named before turn `last` */
static rv_status look_back(const rvi_gate *g, const rvi_turn *turns, size_t last, rvi_gate_hit *hit,
                           rv_error *err)
{
    rv_status st = RV_OK;
    for (size_t i = last; i-- > 0 && !hit->n && !st;) {
        rvi_words w = {0};
        rvi_gate_hit seen = {.n = 0};
        st = rvi_words_split(&w, turns[i].text, turns[i].len, err);
        if (!st) st = scan(g, &w, &seen, err);
        rvi_words_deinit(&w);
        if (st || !seen.n) continue;
        hit->subjects[0] = seen.subjects[seen.n - 1];
        hit->n = 1;
        hit->by_pronoun = true;
    }
    return st;
}

rv_status rvi_gate_words(const rvi_gate *g, const rvi_turn *turns, size_t n_turns,
                         rvi_gate_hit *out, rv_error *err)
{
    rvi_words w = {0};
    *out = (rvi_gate_hit){.nearest = -1, .same = -1};
    while (n_turns && !turns[n_turns - 1].user) n_turns--;
    if (!n_turns || !g->n_keys) return RV_OK;
    const rvi_turn *last = &turns[n_turns - 1];
    rv_status st = rvi_words_split(&w, last->text, last->len, err);
    if (!st) st = scan(g, &w, out, err);
    if (!st && !out->n && has_pronoun(&w)) st = look_back(g, turns, n_turns - 1, out, err);
    if (!st && out->n) {
        out->nearest = most_alike(g, out, &w);
        out->same = same_question(g, out, &w);
    }
    rvi_words_deinit(&w);
    return st;
}

bool rvi_gate_about(const rvi_gate *g, const rvi_gate_hit *hit, size_t fact)
{
    return fact < g->n_facts && has_subject(hit, g->subject_of[fact]);
}

/* How near the question is to each stored relation; returns how near to a common one. */
static float compare(const rvi_gate *g, const float *z, float *near)
{
    const rvi_calibration *c = g->calibration;
    float against = -2;
    for (size_t i = 0; i < g->n_relations; i++) near[i] = dot(g->relations[i].prototype, z, c->dim);
    for (int i = 0; i < c->n_common; i++)
        if (g->common[i])
            against = RVI_MAX(against, dot(c->common + (size_t)i * (size_t)c->dim, z, c->dim));
    return against;
}

int rvi_gate_pick(const rvi_gate *g, const rvi_gate_hit *hit, const float *features, float tau)
{
    const rvi_calibration *c = g->calibration;
    int fact = -1;
    float best = -2, rival = -2;
    if (!hit->n) return -1;
    if (hit->same >= 0) return hit->same;
    if (!c || !features) return hit->nearest;
    float *z = rvi_alloc_array((size_t)c->dim + g->n_relations, sizeof *z), *near = z + c->dim;
    if (!z) return -1;
    standardise(c, features, z);
    float against = compare(g, z, near);
    for (size_t i = 0; i < g->n_relations; i++) rival = RVI_MAX(rival, near[i]);
    for (size_t i = 0; i < g->n_facts; i++) { /* the nearest, and the newest of several */
        int r = g->relation_of[i];
        if (r < 0 || near[r] < best || !rvi_gate_about(g, hit, i)) continue;
        best = near[r];
        fact = (int)i;
    }
    rvi_free(z);
    return against - best < tau && rival - best <= RVI_GATE_RIVAL * tau ? fact : -1;
}
