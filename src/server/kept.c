#include "server/kept.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "base/json.h"

enum { MOST = 1 << 20, KEY = 64, CLEAN_EVERY = 64, CLEAN_MOST = 256 };
static const long long day = 24LL * 3600 * 1000;
static const char answers[] = "answers", times[] = "answers.time";
static const char forgotten[] = "answers.forgotten"; /* a stream: whose answers were */

static rv_bytes bytes_of(const char *text)
{
    return (rv_bytes){text, strlen(text)};
}

static void key_of(const char *id, int choice, char key[KEY])
{
    snprintf(key, KEY, "%.40s.%d", id, choice);
}

static long long now_ms(void)
{
    struct timespec t;
    return timespec_get(&t, TIME_UTC) ? (long long)t.tv_sec * 1000 + t.tv_nsec / 1000000 : 0;
}

/* That a store fails is said once, until it works again. Returns whether it worked. */
static bool note(bool *fails, rv_status st, const char *what, const rv_error *err)
{
    if (st && !*fails) fprintf(stderr, "ruvllm: warning: answers %s: %s\n", what, err->text);
    *fails = st != RV_OK;
    return !st;
}

/* ---- as a text ---- */

static void put_text(rvi_buf *out, const char *name, const char *text)
{
    if (!text) return;
    rvi_buf_printf(out, ",\"%s\":", name);
    rvi_json_write_string(out, text, strlen(text));
}

static bool write_said(const rvi_said *s, const char *model, rvi_buf *out)
{
    rvi_buf_printf(out,
                   "{\"choice\":%d,\"instructed\":%s,\"learned\":%llu,\"temperature\":", s->choice,
                   s->instructed ? "true" : "false", (unsigned long long)s->learned);
    rvi_json_write_number(out, (double)s->temperature);
    put_text(out, "model", model);
    put_text(out, "id", s->id);
    put_text(out, "tenant", s->tenant);
    put_text(out, "chat", s->chat);
    put_text(out, "question", s->question);
    put_text(out, "text", s->text);
    put_text(out, "calls", s->calls);
    put_text(out, "response", s->response);
    rvi_buf_puts(out, ",\"ids\":[");
    for (size_t i = 0; i < s->n_ids; i++) rvi_buf_printf(out, i ? ",%d" : "%d", s->ids[i]);
    rvi_buf_puts(out, "]}");
    return !out->failed && out->len <= MOST;
}

static char *text_at(const rvi_json *v, const char *name)
{
    return (char *)(uintptr_t)rvi_json_string(rvi_json_get(v, name), NULL);
}

/* Texts are the arena's. */
static bool read_said(const rvi_json *v, rvi_arena *arena, rvi_said *s)
{
    const rvi_json *ids = rvi_json_get(v, "ids");
    *s = (rvi_said){.choice = (int)rvi_json_int(rvi_json_get(v, "choice"), 0),
                    .chat = text_at(v, "chat"),
                    .question = text_at(v, "question"),
                    .text = text_at(v, "text"),
                    .calls = text_at(v, "calls"),
                    .response = text_at(v, "response"),
                    .n_ids = rvi_json_count(ids),
                    .instructed = rvi_json_bool(rvi_json_get(v, "instructed"), false),
                    .learned = (uint64_t)rvi_json_int(rvi_json_get(v, "learned"), 0)};
    s->temperature = (float)rvi_json_number(rvi_json_get(v, "temperature"), 0);
    const char *id = text_at(v, "id"), *tenant = text_at(v, "tenant");
    s->ids = rvi_arena_alloc(arena, s->n_ids + 1, sizeof *s->ids);
    if (!id || !tenant || !s->chat || !s->question || !s->text || !s->ids) return false;
    snprintf(s->id, sizeof s->id, "%s", id);
    snprintf(s->tenant, sizeof s->tenant, "%s", tenant);
    for (size_t i = 0; i < s->n_ids; i++) {
        int64_t one = rvi_json_int(rvi_json_at(ids, i), -1);
        if (one < 0 || one > INT32_MAX) return false;
        s->ids[i] = (int32_t)one;
    }
    return true;
}

/* ---- writing, on the worker's thread ---- */

typedef struct rvi_kept_writing {
    rvi_work work;
    rvi_kept *k;
    rvi_said *said; /* NULL: id is to be removed */
    const char *model;
    char id[40];
    bool has_run;
    struct rvi_kept_writing *next; /* that removes */
} writing;

typedef struct old_ones {
    rvi_buf keys; /* each ended */
    int n;
    long long before;
    long long n_over, bytes_over; /* that are too many, or too large together */
} old_ones;

static long long number_in(rv_bytes text)
{
    long long n = 0;
    const char *p = text.data;
    for (size_t i = 0; i < text.len && i < 15 && p[i] >= '0' && p[i] <= '9'; i++)
        n = 10 * n + (p[i] - '0');
    return n;
}

static int add_up(void *ctx, rv_bytes key, rv_bytes record)
{
    old_ones *o = ctx;
    (void)key;
    o->n_over++;
    o->bytes_over += number_in(record);
    return 0;
}

/* Keys begin with the time: the oldest come first. */
static int note_old(void *ctx, rv_bytes key, rv_bytes record)
{
    old_ones *o = ctx;
    char text[KEY + 16] = "";
    if (key.len < sizeof text) memcpy(text, key.data, key.len);
    bool is_old = number_in(key) < o->before || o->n_over > 0 || o->bytes_over > 0;
    if (!is_old || ++o->n > CLEAN_MOST) return 1;
    o->n_over--;
    o->bytes_over -= number_in(record);
    return !rvi_buf_append(&o->keys, text, strlen(text) + 1);
}

static rv_status remove_old(const rvi_kept *k, rv_error *err)
{
    const rv_store *s = &k->writes;
    const rv_bytes start = {NULL, 0};
    old_ones o = {.before = now_ms() - day};
    rv_status st = RV_OK;
    if (k->is_limited) {
        st = s->scan(s->ctx, times, start, add_up, &o, err);
        o.n_over -= RVI_KEPT_MOST;
        o.bytes_over -= RVI_KEPT_BYTES;
    }
    if (!st) st = s->scan(s->ctx, times, start, note_old, &o, err);
    for (size_t at = 0; !st && !o.keys.failed && at < o.keys.len;
         at += strlen(o.keys.data + at) + 1) {
        const char *key = o.keys.data + at, *id = strchr(key, '.');
        if (id) st = s->remove(s->ctx, answers, bytes_of(id + 1), err);
        if (!st) st = s->remove(s->ctx, times, bytes_of(key), err);
    }
    rvi_buf_deinit(&o.keys);
    return st;
}

typedef struct meant {
    rvi_buf keys;          /* each ended */
    char member[KEY + 16]; /* that says whose an answer is; "": any will do */
} meant;

/* Within a text of the record its quotes would be escaped. */
static int note_meant(void *ctx, rv_bytes key, rv_bytes record)
{
    meant *m = ctx;
    size_t n = strlen(m->member);
    const char *p = record.data;
    bool is = !n;
    for (size_t i = 0; !is && i + n <= record.len; i++) is = !memcmp(p + i, m->member, n);
    if (is && rvi_buf_append(&m->keys, key.data, key.len)) rvi_buf_putc(&m->keys, 0);
    return m->keys.failed;
}

rv_status rvi_kept_forget(const rv_store *s, const char *tenant, rv_error *err)
{
    meant m = {.member = ""};
    if (!s->append) return RV_OK;
    if (*tenant) snprintf(m.member, sizeof m.member, ",\"tenant\":\"%s\",", tenant);
    rv_status st = s->scan(s->ctx, answers, (rv_bytes){NULL, 0}, note_meant, &m, err);
    if (!st && m.keys.failed) st = rvi_nomem(err, "answers");
    if (!st) st = s->begin(s->ctx, 1, err);
    bool begun = !st;
    for (size_t at = 0; !st && at < m.keys.len; at += strlen(m.keys.data + at) + 1)
        st = s->remove(s->ctx, answers, bytes_of(m.keys.data + at), err);
    uint64_t number;
    if (!st) st = s->append(s->ctx, forgotten, bytes_of(*tenant ? tenant : "*"), &number, err);
    if (!st)
        st = s->commit(s->ctx, err);
    else if (begun)
        s->rollback(s->ctx);
    rvi_buf_deinit(&m.keys);
    return st;
}

/* The time goes first: one without its answer does no harm, and is removed one day. */
static rv_status write_one(rvi_kept *k, const writing *g, rv_error *err)
{
    const rv_store *s = &k->writes;
    char key[KEY], at[KEY + 16], size[24];
    rvi_buf text = {0};
    rv_status st = RV_OK;
    if (!g->said) {
        key_of(g->id, 0, key);
        return s->remove(s->ctx, answers, bytes_of(key), err);
    }
    key_of(g->said->id, g->said->choice, key);
    snprintf(at, sizeof at, "%014lld.%s", now_ms(), key);
    bool ok = write_said(g->said, g->model, &text);
    snprintf(size, sizeof size, "%zu", text.len);
    if (ok) st = s->put(s->ctx, times, bytes_of(at), bytes_of(size), err);
    if (ok && !st)
        st = s->put(s->ctx, answers, bytes_of(key), (rv_bytes){text.data, text.len}, err);
    if (ok && !st && k->n_put++ % CLEAN_EVERY == 0) st = remove_old(k, err);
    rvi_buf_deinit(&text);
    return st;
}

/* Where the store cannot be reached, only this instance knows the answer. */
static void run_writing(rvi_work *w)
{
    writing *g = (writing *)w;
    rv_error err = {0};
    g->has_run = true;
    rv_status st = write_one(g->k, g, &err);
    (void)note(&g->k->write_fails, st, "are kept in memory alone", &err);
}

/* What the worker had no time for before it ended is written now: a client has been told the id. */
static void writing_done(rvi_work *w)
{
    writing *g = (writing *)w;
    if (!g->has_run) run_writing(w);
    writing **at = &g->k->removals;
    while (*at && *at != g) at = &(*at)->next;
    if (*at) *at = g->next;
    rvi_said_free(g->said);
    rvi_free(g);
}

static void post(rvi_kept *k, const rvi_said *said, const char *model, const char *id)
{
    if (!k->writes.append) return;
    writing *g = rvi_zalloc(sizeof *g);
    if (!g) return;
    *g = (writing){.work = {.run = run_writing, .done = writing_done}, .k = k, .model = model};
    snprintf(g->id, sizeof g->id, "%s", id);
    if (said && !(g->said = rvi_said_copy(said))) {
        rvi_free(g);
        return;
    }
    if (!said) {
        g->next = k->removals;
        k->removals = g;
    }
    rvi_worker_post(*k->worker, &g->work);
}

void rvi_kept_put(rvi_kept *k, const rvi_said *said, const char *model)
{
    post(k, said, model, said->id);
}

void rvi_kept_remove(rvi_kept *k, const char *id)
{
    post(k, NULL, NULL, id);
}

/* ---- reading ---- */

static int take(void *ctx, rv_bytes key, rv_bytes record)
{
    (void)key;
    (void)rvi_buf_append(ctx, record.data, record.len);
    return 1;
}

/* It is still in the store, but nobody may have it. */
static bool is_to_go(const rvi_kept *k, const char *id)
{
    const writing *g = k->removals;
    while (g && strcmp(g->id, id) != 0) g = g->next;
    return g;
}

/* Reads it into the answers of this instance. */
static void fetch(rvi_kept *k, const char *tenant, const char *id, int choice)
{
    char key[KEY];
    rvi_buf text = {0};
    rvi_arena arena = {.max = 64 * MOST};
    const rvi_json *v = NULL;
    rvi_said said;
    rv_error err = {0};
    const rv_store *s = &k->reads;
    if (!s->append || !*id || strlen(id) >= sizeof said.id || is_to_go(k, id)) return;
    key_of(id, choice, key);
    rv_status st = s->get(s->ctx, answers, bytes_of(key), take, &text, &err);
    if (!st && text.len && !text.failed)
        st = rvi_json_parse(&v, text.data, text.len, &arena, "answer", &err);
    (void)note(&k->read_fails, st, "cannot be read", &err);
    if (!st && v && read_said(v, &arena, &said) && !strcmp(said.tenant, tenant)) {
        const char *model = text_at(v, "model");
        said.by = model ? k->find_model(k->ctx, model) : NULL;
        rvi_answers_add(k->answers, &said);
    }
    rvi_arena_deinit(&arena);
    rvi_buf_deinit(&text);
}

static int forget_one(void *ctx, uint64_t number, rv_bytes record)
{
    rvi_kept *k = ctx;
    char tenant[RVI_KEY_NAME + 1] = "";
    k->forgot = number;
    if (record.len >= sizeof tenant) return 0;
    memcpy(tenant, record.data, record.len);
    rvi_answers_forget_all(k->answers, strcmp(tenant, "*") != 0 ? tenant : "");
    return 0;
}

void rvi_kept_follow(rvi_kept *k)
{
    const rv_store *s = &k->reads;
    if (!s->append || !s->changed || (!s->changed(s->ctx) && !k->behind)) return;
    rv_error err = {0};
    rv_status st = s->read(s->ctx, forgotten, k->forgot + 1, forget_one, k, &err);
    k->behind = !note(&k->read_fails, st, "cannot be read", &err);
}

const rvi_said *rvi_kept_find(rvi_kept *k, const char *tenant, const char *id, int choice)
{
    rvi_kept_follow(k);
    const rvi_said *said = rvi_answers_find(k->answers, tenant, id, choice);
    if (said) return said;
    fetch(k, tenant, id, choice);
    return rvi_answers_find(k->answers, tenant, id, choice);
}
