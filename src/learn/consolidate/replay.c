#include "learn/consolidate/replay.h"

#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "decode/sampler.h"
#include "learn/consolidate/prose.h"
#include "learn/journal/list.h"

enum {
    AT_ONCE = 64, /* texts that a portion begins with */
    TURN_TOKENS = 24,
    ANSWER_TOKENS = 28,
    TEXT_TOKENS = 64,
    N_PROBES = 24,
    MOST_TOKENS = 640, /* of a piece: it fits a portion of training */
};

/* The last portion is of texts, those before it of chats; seeds begin behind those of others. */
enum { N_CHATS = (RVI_REPLAY_PORTIONS - 1) * AT_ONCE };

typedef struct maker {
    rvi_replay *r;
    const rvi_base_model *v;
    uint64_t seed;
    rvi_progress_fn progress;
    void *ctx;
    size_t done, total; /* requests, over all portions */
    rvi_buf questions;  /* users' turns of a portion, each with a 0 byte behind it */
    size_t n_questions;
    uint64_t drawn; /* with which seeds, whatever was left out */
    rvi_request *requests;
    size_t n, cap;
    rv_error *err;
} maker;

void rvi_replay_deinit(rvi_replay *r)
{
    rvi_ids_deinit(&r->ids);
    rvi_free(r->pieces);
    rvi_buf_deinit(&r->contexts);
    *r = (rvi_replay){0};
}

static const char *nth(const rvi_buf *b, size_t i)
{
    const char *p = b->data;
    while (i--) p += strlen(p) + 1;
    return p;
}

const char *rvi_replay_context(const rvi_replay *r, size_t i)
{
    return nth(&r->contexts, i);
}

size_t rvi_replay_count(const rvi_replay *r, rvi_replay_kind kind)
{
    size_t n = 0;
    for (size_t i = 0; i < r->n_pieces; i++) n += r->pieces[i].kind == (uint32_t)kind;
    return n;
}

static rv_status add_piece(rvi_replay *r, const int32_t *a, size_t n_a, const int32_t *b,
                           size_t n_b, size_t loss, rvi_replay_kind kind, rv_error *err)
{
    size_t first = r->ids.len;
    rvi_replay_text *pieces = rvi_realloc_array(r->pieces, r->n_pieces + 1, sizeof *pieces);
    if (!pieces) return rvi_nomem(err, "replay");
    r->pieces = pieces;
    if (!rvi_ids_append(&r->ids, a, n_a) || !rvi_ids_append(&r->ids, b, n_b))
        return rvi_nomem(err, "replay");
    pieces[r->n_pieces++] =
        (rvi_replay_text){(uint32_t)first, (uint32_t)(n_a + n_b), (uint32_t)loss, (uint32_t)kind};
    return RV_OK;
}

/* ---- requests of a stage ---- */

static void clear(maker *k)
{
    rvi_requests_free(k->requests, k->n);
    k->requests = NULL;
    k->n = k->cap = 0;
}

static rvi_ids *new_prompt(maker *k)
{
    rvi_request *r = rvi_list_room((void **)&k->requests, k->n, &k->cap, sizeof *r);
    if (!r) return NULL;
    k->n++;
    return &r->prompt;
}

static int forward_progress(void *ctx, size_t done, size_t total)
{
    maker *k = ctx;
    (void)total;
    return k->progress ? k->progress(k->ctx, k->done + done, k->total) : 0;
}

static rv_status run(maker *k, float temperature, int n_tokens)
{
    rv_sampling s;
    rvi_sampling_init(&s, sizeof s, true);
    s.temperature = temperature;
    s.seed = k->seed + k->drawn;
    rv_status st = rvi_base_model_answer(k->v, k->requests, k->n, temperature > 0 ? &s : NULL,
                                         n_tokens, forward_progress, k, k->err);
    k->done += k->n;
    return st;
}

/* ---- stages ---- */

/* The answer's first line becomes a question, if it is long enough. */
static rv_status keep_question(maker *k, const rvi_ids *answer)
{
    enum { LEAST = 8 };
    rvi_buf text = {0};
    rv_status st = rvi_base_model_decode(k->v, answer->data, answer->len, &text, k->err);
    char *p = text.data;
    if (!st && p) {
        p[strcspn(p, "\n")] = 0;
        while (*p == ' ') p++;
        size_t len = strlen(p);
        while (len && p[len - 1] == ' ') p[--len] = 0;
        if (len > LEAST) {
            if (!rvi_buf_append(&k->questions, p, len + 1)) st = rvi_nomem(k->err, "questions");
            k->n_questions += !st;
        }
    }
    rvi_buf_deinit(&text);
    return st;
}

/* The questions become prompts. */
static rv_status ask_questions(maker *k)
{
    rv_status st = RV_OK;
    for (size_t i = 0; !st && i < k->n_questions; i++) {
        const char *q = nth(&k->questions, i);
        rvi_ids *p = new_prompt(k);
        st =
            p ? rvi_base_model_prompt(k->v, q, strlen(q), p, k->err) : rvi_nomem(k->err, "prompts");
    }
    return st;
}

static rv_status keep_answers(maker *k)
{
    rv_status st = RV_OK;
    for (size_t i = 0; !st && i < k->n; i++) {
        const rvi_ids *p = &k->requests[i].prompt, *a = &k->requests[i].answer;
        st = add_piece(k->r, p->data, p->len, a->data, a->len, p->len - 1, RVI_GENERAL, k->err);
    }
    return st;
}

static rv_status make_chats(maker *k, size_t portion)
{
    rv_status st = RV_OK;
    k->drawn = portion * AT_ONCE;
    for (int i = 0; !st && i < AT_ONCE; i++) {
        rvi_ids *p = new_prompt(k);
        if (!p || !rvi_ids_append(p, k->v->frame.data, k->v->frame.len))
            st = rvi_nomem(k->err, "prompts");
    }
    if (!st) st = run(k, 1, TURN_TOKENS);
    for (size_t i = 0; !st && i < k->n; i++) st = keep_question(k, &k->requests[i].answer);
    clear(k);
    k->drawn = N_CHATS + portion * AT_ONCE;
    if (!st) st = ask_questions(k);
    if (!st) st = run(k, 1, ANSWER_TOKENS);
    if (!st) st = keep_answers(k);
    clear(k);
    return st;
}

/* Some words from the inside of a text, as a sentence that has nothing to do with anything. */
static rv_status keep_context(maker *k, const rvi_ids *text, size_t number)
{
    enum { SKIP = 3, LEAST = 4, SPREAD = 5, NEED = 12 };
    rvi_buf words = {0}, out = {0};
    rvi_rng rng = {k->seed + number};
    size_t want = LEAST + (size_t)(rvi_rng_u64(&rng) % SPREAD), seen = 0, took = 0;
    rv_status st = rvi_base_model_decode(k->v, text->data, text->len, &words, k->err);
    for (char *p = words.data; !st && p && *p;) {
        p += strspn(p, " \t\r\n");
        size_t len = strcspn(p, " \t\r\n");
        if (len && seen++ >= SKIP && took < want) {
            if (took++) (void)rvi_buf_putc(&out, ' ');
            for (size_t i = 0; i < len; i++)
                if (p[i] != '<') (void)rvi_buf_putc(&out, p[i]);
        }
        p += len;
    }
    if (!st && seen > NEED && out.len) {
        (void)rvi_buf_putc(&out, '.');
        if (out.failed || !rvi_buf_append(&k->r->contexts, out.data, out.len + 1))
            st = rvi_nomem(k->err, "contexts");
        k->r->n_contexts += !st;
    }
    rvi_buf_deinit(&words);
    rvi_buf_deinit(&out);
    return st;
}

static rv_status make_texts(maker *k)
{
    enum { FIRST_LOSS = 4, LEAST = 12 };
    rv_status st = RV_OK;
    k->drawn = 2 * N_CHATS;
    for (int i = 0; !st && i < AT_ONCE; i++) {
        rvi_ids *p = new_prompt(k);
        if (!p || !rvi_ids_push(p, k->v->start)) st = rvi_nomem(k->err, "prompts");
    }
    if (!st) st = run(k, 1, TEXT_TOKENS);
    for (size_t i = 0; !st && i < k->n; i++) {
        rvi_ids *a = &k->requests[i].answer;
        if (a->len < LEAST) continue;
        st = add_piece(k->r, &k->v->start, 1, a->data, a->len, FIRST_LOSS, RVI_GENERAL, k->err);
        if (!st) st = keep_context(k, a, i);
    }
    clear(k);
    return st;
}

/* Some of the general texts are set aside, evenly; and prose that no model here wrote. */
static rv_status make_probes(maker *k)
{
    enum { FIRST_LOSS = 8 };
    rvi_replay *r = k->r;
    size_t every = RVI_MAX(rvi_replay_count(r, RVI_GENERAL) / N_PROBES, 1), seen = 0;
    rv_status st = RV_OK;
    for (size_t i = 0, taken = 0; i < r->n_pieces && taken < N_PROBES; i++)
        if (r->pieces[i].kind == RVI_GENERAL && seen++ % every == 0) {
            r->pieces[i].kind = RVI_PROBE;
            taken++;
        }
    for (size_t i = 0; !st && i < rvi_n_prose; i++) {
        rvi_ids ids = {0};
        if (!rvi_ids_push(&ids, k->v->start)) st = rvi_nomem(k->err, "prose");
        if (!st) st = rvi_base_model_encode(k->v, rvi_prose[i], strlen(rvi_prose[i]), &ids, k->err);
        size_t n = RVI_MIN(ids.len, (size_t)TEXT_TOKENS);
        if (!st && n > FIRST_LOSS + 1)
            st = add_piece(r, ids.data, n, NULL, 0, FIRST_LOSS, RVI_PROSE, k->err);
        rvi_ids_deinit(&ids);
    }
    return st;
}

bool rvi_replay_is_whole(const rvi_replay *r)
{
    return r->n_portions == RVI_REPLAY_PORTIONS;
}

static rv_status copy(rvi_replay *out, const rvi_replay *r, rv_error *err)
{
    *out = *r;
    out->contexts = (rvi_buf){0};
    out->ids = (rvi_ids){0};
    out->pieces = rvi_alloc_array(r->n_pieces + 1, sizeof *out->pieces);
    bool ok = out->pieces && rvi_ids_append(&out->ids, r->ids.data, r->ids.len) &&
              rvi_buf_append(&out->contexts, r->contexts.data, r->contexts.len);
    if (ok && r->n_pieces) memcpy(out->pieces, r->pieces, r->n_pieces * sizeof *r->pieces);
    return ok ? RV_OK : rvi_nomem(err, "replay");
}

rv_status rvi_replay_next(rvi_replay *out, const rvi_replay *before, const rvi_base_model *v,
                          uint64_t seed, rvi_progress_fn progress, void *ctx, rv_error *err)
{
    size_t i = before->n_portions;
    bool last = i + 1 == RVI_REPLAY_PORTIONS;
    maker k = {.r = out, .v = v, .seed = seed, .progress = progress, .ctx = ctx, .err = err};
    /* no less than there will be: most turns are followed by an answer */
    k.total = 2 * N_CHATS + AT_ONCE;
    k.done = i * 2 * AT_ONCE;
    rv_status st = copy(out, before, err);
    if (!st && progress && progress(ctx, k.done, k.total))
        st = rvi_error(err, RV_E_CANCELLED, "cancelled");
    if (!st) st = last ? make_texts(&k) : make_chats(&k, i);
    if (!st && last) st = make_probes(&k);
    clear(&k);
    rvi_buf_deinit(&k.questions);
    out->n_portions++;
    if (st) rvi_replay_deinit(out);
    return st;
}

/* ---- on disk: counts, then the arrays as they are in memory, little-endian ---- */

typedef struct header {
    char magic[8];
    uint64_t n_ids, n_pieces, contexts_len, n_contexts, n_portions;
} header;

static const char magic[8] = "RVREPL5";

bool rvi_replay_save(const rvi_replay *r, rvi_buf *out)
{
    header h = {.n_ids = r->ids.len,
                .n_pieces = r->n_pieces,
                .contexts_len = r->contexts.len,
                .n_contexts = r->n_contexts,
                .n_portions = r->n_portions};
    memcpy(h.magic, magic, sizeof magic);
    (void)rvi_buf_append(out, &h, sizeof h);
    (void)rvi_buf_append(out, r->ids.data, r->ids.len * sizeof *r->ids.data);
    (void)rvi_buf_append(out, r->pieces, r->n_pieces * sizeof *r->pieces);
    (void)rvi_buf_append(out, r->contexts.data, r->contexts.len);
    return !out->failed;
}

static bool take(const char **p, const char *end, void *to, size_t count, size_t size)
{
    if (count && (size_t)(end - *p) / size < count) return false;
    if (count) memcpy(to, *p, count * size);
    *p += count * size;
    return true;
}

static size_t count_strings(const rvi_buf *b)
{
    size_t n = 0;
    for (size_t i = 0; i < b->len; i++) n += !b->data[i];
    return b->len && b->data[b->len - 1] ? SIZE_MAX : n;
}

static bool read_all(rvi_replay *r, const header *h, const char *p, const char *end)
{
    enum { MOST = 1 << 24 };
    uint64_t len = (uint64_t)(end - p);
    if (h->n_portions > RVI_REPLAY_PORTIONS ||
        (h->n_portions == RVI_REPLAY_PORTIONS && !h->n_pieces) || h->contexts_len > MOST ||
        h->n_ids > len / sizeof *r->ids.data || h->n_pieces > len / sizeof *r->pieces)
        return false;
    size_t n = (size_t)h->n_ids;
    r->ids = (rvi_ids){rvi_alloc_array(n + 1, sizeof *r->ids.data), n, n + 1};
    r->n_pieces = (size_t)h->n_pieces;
    r->pieces = rvi_alloc_array(r->n_pieces + 1, sizeof *r->pieces);
    if (!r->ids.data || !r->pieces) return false;
    if (!take(&p, end, r->ids.data, n, sizeof *r->ids.data) ||
        !take(&p, end, r->pieces, r->n_pieces, sizeof *r->pieces))
        return false;
    if ((uint64_t)(end - p) != h->contexts_len) return false;
    (void)rvi_buf_append(&r->contexts, p, (size_t)h->contexts_len);
    r->n_contexts = (size_t)h->n_contexts;
    r->n_portions = (size_t)h->n_portions;
    return !r->contexts.failed && count_strings(&r->contexts) == r->n_contexts;
}

static bool is_sound(const rvi_replay *r, const rvi_base_model *v)
{
    for (size_t i = 0; i < r->ids.len; i++)
        if (r->ids.data[i] < 0 || r->ids.data[i] >= v->m->hp.n_vocab) return false;
    for (size_t i = 0; i < r->n_pieces; i++) {
        const rvi_replay_text *p = &r->pieces[i];
        if (p->kind > RVI_PROSE || p->first > r->ids.len || p->n > r->ids.len - p->first ||
            p->n < 2 || p->n > MOST_TOKENS || p->loss > p->n - 2)
            return false;
    }
    return true;
}

rv_status rvi_replay_load(rvi_replay *out, const rvi_base_model *v, const void *data, size_t len,
                          rv_error *err)
{
    header h;
    const char *p = data;
    *out = (rvi_replay){0};
    if (len >= sizeof h) memcpy(&h, p, sizeof h);
    if (len >= sizeof h && !memcmp(h.magic, magic, sizeof magic) &&
        read_all(out, &h, p + sizeof h, p + len) && is_sound(out, v))
        return RV_OK;
    rvi_replay_deinit(out);
    return rvi_error(err, RV_E_STORAGE, "the stored replay texts are damaged");
}
