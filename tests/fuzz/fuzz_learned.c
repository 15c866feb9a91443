/* Any change to what a learner finds on the disk: the feedback log, the rows of its store (what is
 * made once for the model, scores, how lessons read), snapshots (the shared
 * adapter, a deep run that was stopped) and the files of generations. A learner of a tiny model is
 * taught a little, once; an input is a list of edits of the state it leaves, and a learner opened
 * on that must either say why it cannot, or work, and be opened again. Checksums are made right
 * again after the edits: what has a good one may have been written by anybody.
 *
 * Input: a byte of what to do with the learner, then edits (see edit()). */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "base/blob.h"
#include "base/json.h"
#include "base/os.h"
#include "learn/journal/snapshot.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_ITEMS = 256, MAX_ITEM = 1 << 19, N_TOKENS = 4 };

static const char model_path[] = "tests/gguf/llama.gguf";
static const int32_t prompt[] = {5, 9, 17, 33, 6, 40};
static const char *const tables[] = {"feedback.head", "model", "instant", "gist.spelled",
                                     "reading.spelled"};

/* ---- the state, as items ---- */

typedef enum kind { EVENT, ROW, SNAPSHOT, ADAPTER } kind;

typedef struct item {
    kind kind;
    const char *table;             /* ROW */
    rvi_buf key, data;             /* ROW: its key; else the name of a file or snapshot */
    uint64_t number;               /* SNAPSHOT */
    uint8_t model[RVI_SHA256_LEN]; /* SNAPSHOT: of what it is */
} item;

typedef struct state {
    item items[MAX_ITEMS];
    size_t n;
} state;

static state learned; /* by the learner that was taught */
static rv_runtime *rt;
static rv_model *m;
static char root[256], dir[300];

static void expect(bool ok)
{
    if (!ok) abort();
}

static void put_bytes(rvi_buf *b, const void *data, size_t len)
{
    expect(rvi_buf_append(b, len ? data : "", len));
}

static item *new_item(state *s, kind k)
{
    expect(s->n < MAX_ITEMS);
    s->items[s->n] = (item){.kind = k};
    return &s->items[s->n++];
}

static void clear_item(item *x)
{
    rvi_buf_deinit(&x->key);
    rvi_buf_deinit(&x->data);
}

static void clear_state(state *s)
{
    for (size_t i = 0; i < s->n; i++) clear_item(&s->items[i]);
    s->n = 0;
}

static item copy_of(const item *x)
{
    item y = *x;
    y.key = y.data = (rvi_buf){0};
    put_bytes(&y.key, x->key.data, x->key.len);
    put_bytes(&y.data, x->data.data, x->data.len);
    return y;
}

/* ---- reading it ---- */

static int read_event(void *ctx, uint64_t seq, rvi_bytes record)
{
    (void)seq;
    expect(record.len > RVI_SHA256_LEN);
    put_bytes(&new_item(ctx, EVENT)->data, (const char *)record.data + RVI_SHA256_LEN,
              record.len - RVI_SHA256_LEN);
    return 0;
}

static const char *scanned;

static int read_row(void *ctx, rvi_bytes key, rvi_bytes record)
{
    item *x = new_item(ctx, ROW);
    x->table = scanned;
    put_bytes(&x->key, key.data, key.len);
    put_bytes(&x->data, record.data, record.len);
    return 0;
}

static int read_file(void *ctx, const char *name)
{
    enum { NUMBER_AT = 16, MODEL_AT = 40, HEADER = 128 }; /* of a snapshot */
    char path[600];
    rvi_blob b;
    size_t len = strlen(name);
    bool snap = len > 5 && !strcmp(name + len - 5, ".snap");
    if (!strcmp(name, "lock")) return 0; /* empty */
    snprintf(path, sizeof path, "%s/%s", dir, name);
    expect(!rvi_blob_open(&b, path, NULL));
    item *x = new_item(ctx, snap ? SNAPSHOT : ADAPTER);
    put_bytes(&x->key, name, snap ? (size_t)(strchr(name, '.') - name) : len);
    put_bytes(&x->key, "", 1);
    put_bytes(&x->data, b.data + (snap ? HEADER : 0), b.len - (snap ? HEADER : 0));
    if (snap) {
        memcpy(&x->number, b.data + NUMBER_AT, sizeof x->number);
        memcpy(x->model, b.data + MODEL_AT, sizeof x->model);
    }
    rvi_blob_close(&b);
    return 0;
}

static void read_state(state *s, rvi_store *store)
{
    expect(!rvi_store_read(store, "feedback", 1, read_event, s, NULL));
    for (size_t i = 0; i < RVI_COUNT(tables); i++) {
        scanned = tables[i];
        expect(!rvi_store_scan(store, scanned, NULL, 0, read_row, s, NULL));
    }
    expect(!rvi_os_list(dir, read_file, s, NULL));
}

/* ---- writing it ---- */

static void link_event(uint8_t hash[RVI_SHA256_LEN], const rvi_buf *text)
{
    rvi_sha256 h;
    rvi_sha256_init(&h);
    rvi_sha256_add(&h, hash, RVI_SHA256_LEN);
    rvi_sha256_add(&h, text->data ? text->data : "", text->len);
    rvi_sha256_end(&h, hash);
}

/* As event number n: edits may have moved it. */
static void put_event(rvi_store *store, const rvi_buf *text, uint64_t n,
                      uint8_t hash[RVI_SHA256_LEN])
{
    rvi_arena arena = {.max = 16 << 20};
    rvi_feedback f;
    rvi_buf record = {0}, fresh = {0};
    const rvi_buf *used = text;
    if (!rvi_feedback_parse(&f, text->data ? text->data : "", text->len, &arena, NULL)) {
        f.seq = n;
        expect(!rvi_feedback_write(&fresh, &f, NULL));
        used = &fresh;
    }
    link_event(hash, used);
    put_bytes(&record, hash, RVI_SHA256_LEN);
    put_bytes(&record, used->data, used->len);
    expect(!rvi_store_append(store, "feedback", record.data, record.len, NULL, NULL));
    rvi_buf_deinit(&record);
    rvi_buf_deinit(&fresh);
    rvi_arena_deinit(&arena);
}

static void write_file(const char *name, const rvi_buf *data)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    expect(f && fwrite(data->data ? data->data : "", 1, data->len, f) == data->len && !fclose(f));
}

static void write_state(const state *s, rvi_store *store)
{
    uint8_t hash[RVI_SHA256_LEN] = {0}, head[8 + RVI_SHA256_LEN] = {0};
    uint64_t n = 0;
    rvi_os_remove_tree(dir);
    expect(!rvi_os_make_dirs(dir, NULL));
    for (size_t i = 0; i < s->n; i++) {
        const item *x = &s->items[i];
        if (x->kind == EVENT) {
            put_event(store, &x->data, ++n, hash);
        } else if (x->kind == ROW) {
            if (x->key.len && x->key.len <= RVI_STORE_MAX_KEY)
                expect(!rvi_store_put(store, x->table, x->key.data, x->key.len,
                                      x->data.data ? x->data.data : "", x->data.len, NULL));
        } else if (x->kind == SNAPSHOT) {
            expect(!rvi_snapshot_save(dir, x->key.data, x->number, x->model, x->data.data,
                                      x->data.len, NULL));
        } else {
            write_file(x->key.data, &x->data);
        }
    }
    for (size_t i = 0; i < 8; i++) head[i] = (uint8_t)(n >> (8 * i));
    memcpy(head + 8, hash, sizeof hash);
    expect(!rvi_store_put(store, "feedback.head", "head", 4, head, sizeof head, NULL));
}

/* ---- edits ---- */

typedef struct input {
    const uint8_t *at, *end;
} input;

static unsigned byte(input *in)
{
    return in->at < in->end ? *in->at++ : 0;
}

static uint64_t number(input *in)
{
    static const uint64_t special[] = {0,         1,          2,          127,
                                       INT32_MAX, UINT32_MAX, INT64_MAX,  UINT64_MAX,
                                       1u << 31,  1u << 24,   0x7F800000, 0x7FC00000,
                                       65535,     0xFFFFFFFE, 1u << 20,   INT64_MAX - 1};
    unsigned b = byte(in);
    if (b < RVI_COUNT(special)) return special[b];
    uint64_t v = 0;
    for (unsigned i = 0; i < b % 9; i++) v = v << 8 | byte(in);
    return v;
}

/* A place in something of that length: near its beginning, near its end, or anywhere. */
static size_t place(input *in, size_t len)
{
    unsigned how = byte(in), a = byte(in);
    if (!len) return 0;
    if (how < 160) return (4 * (how % 32) + a % 4) % len;
    if (how < 200) return len - 1 - a % len;
    return (how * 65536u + a * 256u + byte(in)) % len;
}

static void overwrite(rvi_buf *b, size_t at, const void *bytes, size_t n)
{
    if (at < b->len) memcpy(b->data + at, bytes, RVI_MIN(n, b->len - at));
}

static void add_event(state *s, input *in)
{
    static const char *const questions[] = {"What is Kakovin's dog?", "What is Zuzanna's city?",
                                            "Say it.", "How warm is the sea?"};
    static const char *const words[] = {"R7",    "shared",  "R1",         "preferences",
                                        "merge", "Kakovin", "preference", "import"};
    static const char digest[] = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
    rvi_feedback f = rvi_feedback_new((rvi_feedback_kind)(byte(in) % RVI_FEEDBACK_N_KINDS));
    const char *q = questions[byte(in) % RVI_COUNT(questions)];
    const char *w = words[byte(in) % RVI_COUNT(words)];
    const char *a = words[byte(in) % RVI_COUNT(words)];
    f.seq = 1;
    f.time = 1;
    f.user = (rvi_text){"default", 7};
    f.question = (rvi_text){q, strlen(q)};
    f.corrected = f.recipe = (rvi_text){a, strlen(a)};
    f.note = f.given = (rvi_text){w, strlen(w)};
    f.score = byte(in) % 2;
    f.target = number(in) & INT64_MAX;
    f.generation = number(in) & INT64_MAX;
    f.first = number(in) & INT64_MAX;
    f.last = number(in) & INT64_MAX;
    f.n_parents = byte(in) % (RVI_FEEDBACK_MAX_PARENTS + 1);
    for (size_t i = 0; i < f.n_parents; i++) f.parents[i] = number(in) & INT64_MAX;
    memcpy(f.digest, digest, sizeof digest);
    if (!rvi_feedback_check(&f, NULL))
        expect(!rvi_feedback_write(&new_item(s, EVENT)->data, &f, NULL));
}

static void edit(state *s, input *in)
{
    enum { SET_NUMBER, CUT, EXTEND, REMOVE, REPEAT, REPLACE, EDIT_KEY, NEW_EVENT, N };
    unsigned what = byte(in) % N;
    if (what == NEW_EVENT) {
        if (s->n < MAX_ITEMS) add_event(s, in);
        return;
    }
    item *x = &s->items[byte(in) % s->n];
    if (what == SET_NUMBER) {
        size_t at = place(in, x->data.len), width = (size_t)1 << byte(in) % 4;
        uint64_t v = number(in);
        overwrite(&x->data, at, &v, width);
    } else if (what == CUT) {
        x->data.len = place(in, x->data.len + 1);
    } else if (what == EXTEND && x->data.len < MAX_ITEM) {
        uint64_t v = number(in);
        put_bytes(&x->data, &v, 1 + byte(in) % 8);
    } else if (what == REMOVE && s->n > 1) {
        clear_item(x);
        *x = s->items[--s->n];
    } else if (what == REPEAT && s->n < MAX_ITEMS) {
        item y = copy_of(x);
        s->items[s->n++] = y;
        if (y.kind == ROW) {
            unsigned last = byte(in);
            if (y.key.len) y.key.data[y.key.len - 1] = (char)last;
        }
        s->items[s->n - 1].number += byte(in) % 2;
    } else if (what == REPLACE) {
        size_t want = byte(in), n = RVI_MIN(want, (size_t)(in->end - in->at));
        x->data.len = 0;
        put_bytes(&x->data, in->at, n);
        in->at += n;
    } else if (what == EDIT_KEY && x->kind == ROW) {
        uint64_t v = number(in);
        overwrite(&x->key, place(in, x->key.len), &v, 1 + byte(in) % 8);
    }
}

/* ---- a learner on it ---- */

static void check(rv_status st, const rv_error *err)
{
    expect(!st || (err->code == st && err->text[0]));
}

static int cancel(void *ctx, const char *stage, int done, int total, double loss)
{
    (void)total;
    (void)loss;
    return ctx && !strcmp(stage, "training") && done == 2;
}

static rv_status open_learner(rv_learner **l, rvi_store *state_store, bool shared, rv_error *err)
{
    rv_learner_options o;
    o = (rv_learner_options){.size = sizeof o};
    o.store = &state_store->by;
    o.dir = dir;
    o.seed = 5;
    o.experiments =
        shared ? "n_steps=5,rank=2,group_size=2,shared=1" : "n_steps=5,rank=2,group_size=2";
    return rv_learner_new(l, m, &o, err);
}

static rv_session *new_session(void)
{
    rv_session_options o;
    rv_session *s;
    o = (rv_session_options){.size = sizeof o};
    o.n_context = 64;
    expect(!rv_session_new(&s, m, &o, NULL));
    return s;
}

static bool answer(rv_learner *l, rv_session *s, const char *question)
{
    rv_sampling greedy;
    rv_generate_options g;
    rv_answer *got = NULL;
    rv_learn_plan *plan;
    rv_error err = {0};
    rv_message message = {"user", question, NULL};
    rv_chat chat = {.size = sizeof chat, .messages = &message, .n_messages = 1};
    rv_status st = rv_learner_begin(l, s, &chat, &plan, &err);
    check(st, &err);
    if (st) return false;
    rv_free(plan);
    greedy = (rv_sampling){.size = sizeof greedy, .greedy = 1};
    g = (rv_generate_options){.size = sizeof g};
    g.sampling = &greedy;
    g.max_tokens = N_TOKENS;
    g.ignore_eos = 1;
    st = rv_session_generate(s, prompt, RVI_COUNT(prompt), &g, &got, &err);
    check(st, &err);
    rv_free(got);
    return !st;
}

static void look(rv_learner *l)
{
    char *json;
    uint64_t n;
    rv_error err = {0};
    rvi_arena arena = {.max = 16 << 20};
    const rvi_json *tree;
    expect(!rv_learner_status(l, &json, &err));
    expect(!rvi_json_parse(&tree, json, strlen(json), &arena, "status", NULL));
    rvi_arena_deinit(&arena);
    rv_free(json);
    check(rv_learner_verify_log(l, &n, &err), &err);
}

enum { JUDGE = 1, CHANGE = 2, TRAIN = 4, DEEP = 8, SHARED = 16, GENERATIONS = 32 };

static void use(rv_learner *l, unsigned what)
{
    rv_error err = {0};
    rv_adaptation *a;
    rv_session *s = new_session();
    if (answer(l, s, "What is Kakovin's dog?") && what & JUDGE) {
        check(rv_learner_score(l, s, 0.9, &a, &err), &err);
        rv_free(a);
        check(rv_learner_thumb(l, s, 0, &a, &err), &err);
        rv_free(a);
        check(rv_learner_undo(l, &a, &err), &err);
        rv_free(a);
    }
    if (what & CHANGE) {
        check(rv_learner_correct(l, NULL, "What is Kakovin's dog?", "Bello", NULL, &err), &err);
        check(rv_learner_undo(l, NULL, &err), &err);
        check(rv_learner_undo(l, NULL, &err), &err);
        check(rv_learner_forget(l, "Zuzanna", NULL, &err), &err);
    }
    if (what & (TRAIN | DEEP))
        check(rv_learner_consolidate(l, what & DEEP ? RV_LOOP_DEEP : RV_LOOP_BACKGROUND,
                                     RV_LOSS_DPO, cancel, NULL, NULL, &err),
              &err);
    if (what & GENERATIONS) {
        check(rv_learner_rollback(l, 1, NULL, &err), &err);
        check(rv_learner_merge(l, 1, 2, RV_MERGE_AVERAGE, NULL, &err), &err);
    }
    (void)answer(l, s, "What is Zuzanna's city?");
    rv_session_free(&s);
}

/* ---- the state that is edited ---- */

/* A handful of texts: calibrating and training are quick then. */
static void put_replay(rvi_store *store, const char *digest)
{
    static const int32_t ids[] = {1, 7, 9, 4, 8, 12, 15, 3, 22, 40, 41, 42, 5, 6, 11, 2};
    static const char *const names[] = {"The sea is warm.", "Say it.", "Who was it?"};
    rvi_replay r = {0};
    rvi_buf out = {0};
    char key[128];
    rvi_replay_text pieces[8];
    for (uint32_t i = 0; i < RVI_COUNT(pieces); i++)
        pieces[i] = (rvi_replay_text){.first = i, .n = 8, .loss = 2, .kind = i % 3};
    r.ids = (rvi_ids){(int32_t *)(uintptr_t)ids, RVI_COUNT(ids), RVI_COUNT(ids)};
    r.pieces = pieces;
    r.n_pieces = RVI_COUNT(pieces);
    r.n_portions = RVI_REPLAY_PORTIONS;
    r.n_contexts = RVI_COUNT(names);
    for (size_t i = 0; i < RVI_COUNT(names); i++)
        put_bytes(&r.contexts, names[i], strlen(names[i]) + 1);
    expect(rvi_replay_save(&r, &out));
    int len = snprintf(key, sizeof key, "%s.replay.0", digest);
    expect(!rvi_store_put(store, "model", key, (size_t)len, out.data, out.len, NULL));
    rvi_buf_deinit(&r.contexts);
    rvi_buf_deinit(&out);
}

static void teach(void)
{
    rvi_store store;
    rv_learner *l;
    rv_session *s = new_session();
    expect(!rvi_store_memory(&store, NULL));
    expect(!open_learner(&l, &store, true, NULL));
    put_replay(&store, l->l->digest);
    rv_learner_free(&l);
    expect(!open_learner(&l, &store, true, NULL));
    expect(!rv_learner_calibrate(l, NULL, NULL, NULL));
    expect(!rv_learner_correct(l, NULL, "What is Kakovin's dog?", "Rex", NULL, NULL));
    expect(!rv_learner_consolidate(l, RV_LOOP_BACKGROUND, RV_LOSS_DPO, NULL, NULL, NULL, NULL));
    expect(!rv_learner_correct(l, NULL, "What is Zuzanna's city?", "Oslo", NULL, NULL));
    expect(!rv_learner_consolidate(l, RV_LOOP_BACKGROUND, RV_LOSS_DPO, NULL, NULL, NULL, NULL));
    for (int i = 0; i < 18; i++) {
        expect(answer(l, s, "How warm is the sea?"));
        expect(!rv_learner_score(l, s, i % 2 ? 0.9 : 0.1, NULL, NULL));
    }
    expect(answer(l, s, "How warm is the sea?"));
    expect(!rv_learner_thumb(l, s, 0, NULL, NULL));
    expect(!rv_learner_correct(l, NULL, "What is Orlandin's car?", "a Lada", NULL, NULL));
    expect(rv_learner_consolidate(l, RV_LOOP_DEEP, RV_LOSS_DPO, cancel, root, NULL, NULL) ==
           RV_E_CANCELLED); /* leaves where it stood */
    rv_session_free(&s);
    rv_learner_free(&l);
    read_state(&learned, &store);
    rvi_store_close(&store);
    size_t n[4] = {0};
    for (size_t i = 0; i < learned.n; i++) n[learned.items[i].kind]++;
    expect(n[EVENT] > 20 && n[ROW] > 5 && n[SNAPSHOT] >= 3 && n[ADAPTER] >= 2);
}

static void remove_root(void)
{
    rvi_os_remove_tree(root);
    clear_state(&learned);
    rv_model_close(&m);
    rv_runtime_free(&rt);
}

static void set_up(void)
{
    rv_runtime_options o;
    rvi_buf made = {0};
    if (rvi_os_temp_dir(&made, "/dev/shm", NULL)) {
        made.len = 0;
        expect(!rvi_os_temp_dir(&made, "/tmp", NULL));
    }
    snprintf(root, sizeof root, "%s", made.data);
    snprintf(dir, sizeof dir, "%s/state", root);
    rvi_buf_deinit(&made);
    o = (rv_runtime_options){.size = sizeof o};
    o.n_threads = 1;
    expect(!rv_runtime_new(&rt, &o, NULL));
    expect(!rv_model_open(&m, rt, model_path, NULL, NULL));
    expect(!atexit(remove_root));
    teach();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static state s;
    rvi_store store;
    rv_learner *l;
    rv_error err = {0};
    if (!rt) set_up();
    input in = {data, data + size};
    unsigned what = byte(&in);
    for (size_t i = 0; i < learned.n; i++) s.items[i] = copy_of(&learned.items[i]);
    s.n = learned.n;
    for (int i = 0; i < 16 && in.at < in.end; i++) edit(&s, &in);
    expect(!rvi_store_memory(&store, NULL));
    write_state(&s, &store);
    clear_state(&s);
    for (int twice = 0; twice < 2; twice++) {
        rv_status st = open_learner(&l, &store, what & SHARED, &err);
        check(st, &err);
        if (st) {
            expect(!twice && !l); /* what opened once does so again */
            break;
        }
        look(l);
        if (!twice) use(l, what);
        rv_learner_free(&l);
    }
    rvi_store_close(&store);
    return 0;
}
