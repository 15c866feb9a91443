/* Where the adapters of generations are: files in the learner's own directory, and, in a store that
 * is shared, the bytes of these files in the table "adapter", under the generation's number, in
 * pieces that fit into a record, and in front of them their length and SHA-256. They are written in
 * the transaction that logs the generation: whoever reads the log finds them.
 *
 * A generation is read when it is first used, and compared then with what the log says of it: an
 * old state may have many that are out of use. What was forgotten is erased with every generation
 * that learned it, from the store and from the directory; the table "erased" says so to those who
 * find no file. Each process erases its own copies when it learns of the forgetting. */
#include <stdio.h>
#include <string.h>

#include "base/blob.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/os.h"
#include "learn/journal/pieces.h"
#include "learn/journal/snapshot.h"
#include "learn/journal/text.h"
#include "learn/learner/learner_internal.h"
#include "learn/journal/list.h"

enum { KEY = RVI_STORE_MAX_KEY, NUMBER = 10, DIGITS = 6, HEAD = 8 + RVI_SHA256_LEN };
static const char table[] = "adapter", erased[] = "erased";
static const uint64_t most = (uint64_t)4 << 30; /* bytes of a file */

/* Of its head; with a piece's number behind it, of a piece. */
static const char *key_of(int number, char key[KEY])
{
    snprintf(key, KEY, "%010d", number);
    return key;
}

static size_t erased_key(const rvi_learner *l, int number, char key[KEY])
{
    return (size_t)snprintf(key, KEY, "%010d.%.200s", number, l->user);
}

static void make_head(const void *data, size_t len, uint8_t head[HEAD])
{
    rvi_sha256 h;
    for (size_t i = 0; i < 8; i++) head[i] = (uint8_t)((uint64_t)len >> (8 * i));
    rvi_sha256_init(&h);
    rvi_sha256_add(&h, data, len);
    rvi_sha256_end(&h, head + 8);
}

static rv_status get_head(rvi_learner *l, int number, uint8_t head[HEAD], uint64_t *len,
                          bool *found, rv_error *err)
{
    char key[KEY];
    rvi_buf data = {0};
    rv_status st = rvi_store_get(&l->store, table, key_of(number, key), NUMBER, &data, found, err);
    *len = 0;
    *found = *found && data.len == HEAD;
    for (size_t i = 0; i < 8 && *found; i++) *len |= (uint64_t)(uint8_t)data.data[i] << (8 * i);
    if (*found) memcpy(head, data.data, HEAD);
    rvi_buf_deinit(&data);
    return st;
}

/* ---- publishing ---- */

static rv_status put_file(rvi_learner *l, int number, const rvi_blob *b, rv_error *err)
{
    char key[KEY];
    uint8_t head[HEAD];
    make_head(b->data, b->len, head);
    key_of(number, key);
    rv_status st = rvi_store_put(&l->store, table, key, NUMBER, head, sizeof head, err);
    return st ? st : rvi_pieces_put(&l->store, table, key, DIGITS, b->data, b->len, err);
}

rv_status rvi_learner_log_generation(rvi_learner *l, const rvi_generation *g, rvi_feedback *f,
                                     rv_error *err)
{
    rvi_buf path = {0};
    rvi_blob b = {0};
    bool shares = rvi_learner_shares(l);
    rv_status st = rvi_learner_own(l, err);
    if (!st && shares) st = rvi_learner_generation_file(l, g->number, &path, err);
    if (!st && shares) st = rvi_blob_open(&b, path.data, err);
    if (!st) st = rvi_store_begin(&l->store, true, err);
    if (!st) {
        if (shares) st = put_file(l, g->number, &b, err);
        if (!st) st = rvi_feedback_append(&l->store, f, err);
        st = rvi_store_end(&l->store, st, err);
    }
    if (!st) rvi_learner_logged(l, f);
    rvi_blob_close(&b);
    rvi_buf_deinit(&path);
    return st;
}

/* ---- finding ---- */

typedef struct named {
    rvi_learner *l;
    uint64_t last;
    bool failed;
} named;

static int note_generation(void *ctx, const rvi_feedback *f)
{
    named *x = ctx;
    rvi_learner *l = x->l;
    x->last = f->seq;
    if ((f->kind != RVI_FEEDBACK_PUBLISH && f->kind != RVI_FEEDBACK_IMPORT &&
         f->kind != RVI_FEEDBACK_MERGE) ||
        !rvi_text_is(f->user, l->user) || f->generation >= INT32_MAX)
        return 0;
    rvi_absent *at = rvi_list_room((void **)&l->absent, l->n_absent, &l->cap_absent, sizeof *at);
    x->failed = !at;
    if (at) l->absent[l->n_absent++].number = (int)f->generation;
    return x->failed;
}

/* What is neither here nor in the store is erased, or it is gone. */
static rv_status find_file(rvi_learner *l, rvi_absent *x, bool *found, rv_error *err)
{
    char key[KEY];
    uint8_t head[HEAD];
    uint64_t len;
    rvi_buf path = {0}, mark = {0};
    rv_status st = rvi_learner_generation_file(l, x->number, &path, err);
    *found = !st && rvi_os_stat(path.data, NULL) == RVI_OS_FILE;
    if (!st && !*found && rvi_learner_shares(l))
        st = get_head(l, x->number, head, &len, found, err);
    if (!st && !*found)
        st = rvi_store_get(&l->store, erased, key, erased_key(l, x->number, key), &mark, &x->erased,
                           err);
    rvi_buf_deinit(&path);
    rvi_buf_deinit(&mark);
    return st;
}

rv_status rvi_learner_find_files(rvi_learner *l, uint64_t from, uint64_t *last, rv_error *err)
{
    named x = {.l = l, .last = from - 1};
    *last = UINT64_MAX;
    l->n_absent = 0;
    if (!l->dir) return RV_OK;
    rv_status st = rvi_feedback_read(&l->store, from, note_generation, &x, err);
    if (!st && x.failed) st = rvi_nomem(err, "generations");
    size_t n = 0;
    for (size_t i = 0; !st && i < l->n_absent; i++) {
        bool found;
        st = find_file(l, &l->absent[i], &found, err);
        if (!found) l->absent[n++] = l->absent[i];
    }
    l->n_absent = n;
    *last = x.last;
    return st;
}

/* Others may have those that the publisher of a generation had lost, and must not go on with them:
 * whatever waited for it waits for them, too. So the log is applied alike by all. */
void rvi_learner_lose_named(rvi_learner *l, const rvi_feedback *f)
{
    for (size_t i = 0; f->kind == RVI_FEEDBACK_PUBLISH && i < f->n_parents; i++) {
        rvi_generation *g = f->parents[i] && f->parents[i] < INT32_MAX
                                ? rvi_generations_find(&l->generations, (int)f->parents[i])
                                : NULL;
        if (!g) continue;
        g->told = true;
        if (g->lost) continue;
        rvi_adapter_sets_retire(&l->sets, g->adapter);
        g->adapter = NULL;
        rvi_shared_drop(g);
        rvi_generations_lose(&l->generations, g);
        rvi_learner_wait_again(l, g);
    }
}

/* An adapter whose file is gone is left out, and what it held waits again: nothing is lost. */
rv_status rvi_learner_apply_generation(rvi_learner *l, const rvi_feedback *f, rv_error *err)
{
    if (f->generation >= INT32_MAX) return RV_OK; /* nobody has made so many */
    rvi_learner_lose_named(l, f);
    l->generations.last_number = RVI_MAX(l->generations.last_number, (int)f->generation);
    if (!l->dir) return RV_OK;
    rvi_generation g = {.number = (int)f->generation,
                        .first = f->first,
                        .last = f->last,
                        .n_parents = RVI_MIN(f->n_parents, (size_t)RVI_GENERATION_PARENTS)};
    for (size_t i = 0; i < l->n_absent; i++)
        if (l->absent[i].number == g.number) {
            g.erased = g.wiped = l->absent[i].erased;
            g.lost = !g.erased;
            if (g.lost)
                rvi_log_write(l->parts.be->log, RVI_LOG_WARN,
                              "generation %d is left out: its file is gone", g.number);
        }
    for (size_t i = 0; i < g.n_parents; i++)
        g.parents[i] = (int)RVI_MIN(f->parents[i], (uint64_t)INT32_MAX);
    rvi_recipe_read(&g, f->recipe);
    if (g.origin == RVI_FROM_MERGE) g.gated = rvi_generations_gate_merged(&l->generations, &g);
    /* of imports and merges the log has another digest than the file */
    if (f->kind == RVI_FEEDBACK_PUBLISH) memcpy(g.digest, f->digest, sizeof g.digest);
    rv_status st = rvi_learner_add_generation(l, &g, err);
    if (st) rvi_generation_deinit(&g);
    return st;
}

/* ---- reading ---- */

static bool is_here(const char *path, const uint8_t head[HEAD])
{
    rvi_blob b = {0};
    uint8_t own[HEAD];
    bool same = false;
    if (rvi_os_stat(path, NULL) == RVI_OS_FILE && !rvi_blob_open(&b, path, NULL)) {
        make_head(b.data, b.len, own);
        same = !memcmp(own, head, sizeof own);
    }
    rvi_blob_close(&b);
    return same;
}

static rv_status write_file(const char *path, const rvi_buf *data, rv_error *err)
{
    rvi_buf name = {0};
    FILE *f = NULL;
    rv_status st = rvi_os_create_beside(path, &name, &f, err);
    if (!st) st = rvi_os_write(f, data->data, data->len, name.data, err);
    if (f && fclose(f) && !st) st = rvi_error(err, RV_E_IO, "%s cannot be written", path);
    if (!st) st = rvi_os_replace(name.data, path, err);
    if (st && name.len) (void)remove(name.data);
    rvi_buf_deinit(&name);
    return st;
}

/* The file as the store has it. What is not whole there is refused by whoever loads it. */
static rv_status fetch(rvi_learner *l, int number, const char *path, rv_error *err)
{
    char key[KEY];
    uint8_t head[HEAD], own[HEAD];
    bool found;
    uint64_t len;
    rvi_buf data = {.max = (size_t)most};
    rv_status st = get_head(l, number, head, &len, &found, err);
    if (!st && found && len <= most && !is_here(path, head)) {
        st = rvi_pieces_get(&l->store, table, key_of(number, key), DIGITS, &data, err);
        make_head(data.data, data.len, own);
        if (!st && !memcmp(own, head, sizeof own)) st = write_file(path, &data, err);
    }
    rvi_buf_deinit(&data);
    return st;
}

/* One that was made before the store was shared is only here. What fails is tried again when it is
 * opened again. */
static void give(rvi_learner *l, int number, const char *path)
{
    rvi_blob b = {0};
    uint8_t head[HEAD];
    uint64_t len;
    bool found;
    if (get_head(l, number, head, &len, &found, NULL) || found || rvi_blob_open(&b, path, NULL))
        return;
    rv_status st = rvi_store_begin(&l->store, false, NULL);
    if (!st) st = rvi_store_end(&l->store, put_file(l, number, &b, NULL), NULL);
    (void)st;
    rvi_blob_close(&b);
}

/* The adapter of the file, if that is the one the log names. */
static rv_status load(const rvi_learner *l, rvi_generation *g, const char *path, rv_error *err)
{
    char digest[RVI_SHA256_HEX] = "";
    rv_status st = rvi_learner_load_file(l, path, &g->adapter, err);
    if (!st && g->digest[0]) st = rvi_adapter_digest(g->adapter, digest, err);
    if (!st && g->digest[0] && strcmp(digest, g->digest))
        st = rvi_error(err, RV_E_STORAGE, "%s is not the adapter that was published", path);
    if (st) {
        rvi_adapter_free(g->adapter);
        g->adapter = NULL;
    }
    return st;
}

/* What its file tells of its training; one that tells nothing was not trained here. What was seen
 * here is more exact. */
static void read_provenance(rvi_generation *g)
{
    rvi_arena arena = {0};
    const rvi_json *root;
    if (g->figures.n_steps) return;
    const char *text = g->adapter->provenance;
    if (text && !rvi_json_parse(&root, text, strlen(text), &arena, "provenance", NULL)) {
        int64_t steps = rvi_json_int(rvi_json_get(root, "steps"), 0);
        double loss = rvi_json_number(rvi_json_get(root, "loss"), 0);
        double kl = rvi_json_number(rvi_json_get(root, "probe_kl"), 0);
        if (steps > 0 && steps < INT32_MAX && loss >= 0 && kl >= 0)
            g->figures = (rvi_study_result){.n_steps = (int)steps, .ce = loss, .probe_kl = kl};
    }
    rvi_arena_deinit(&arena);
}

/* *out_of_reach: the store is, so that it is not known whether the adapter can be read. */
static rv_status read_adapter(rvi_learner *l, rvi_generation *g, bool *out_of_reach, rv_error *err)
{
    rvi_buf path = {0};
    bool shares = rvi_learner_shares(l);
    rv_status st = rvi_learner_generation_file(l, g->number, &path, err);
    *out_of_reach = false;
    if (!st && g->digest[0]) st = load(l, g, path.data, err);
    if (st != RV_E_NOMEM && !g->adapter) {
        if (shares && (st = fetch(l, g->number, path.data, err))) *out_of_reach = true;
        if (!*out_of_reach && (shares || !g->digest[0])) st = load(l, g, path.data, err);
    }
    if (!st && shares) give(l, g->number, path.data);
    if (!st && g->origin != RVI_FROM_FILE) read_provenance(g);
    if (!st) st = rvi_shared_load(l, g, err);
    rvi_buf_deinit(&path);
    return st;
}

rv_status rvi_learner_need_adapter(rvi_learner *l, int number, const rvi_generation **out,
                                   rv_error *err)
{
    bool out_of_reach;
    rvi_generation *g = rvi_generations_find(&l->generations, number);
    *out = NULL;
    if (!g || g->lost)
        return rvi_error(err, RV_E_NOT_FOUND,
                         number ? "there is no generation %d" : "there is no generation", number);
    if (g->erased)
        return rvi_error(err, RV_E_NOT_FOUND,
                         "generation %d is erased: what it learned was forgotten", g->number);
    rv_status st = g->adapter ? RV_OK : rvi_learner_reserve(l, err);
    if (!st && !g->adapter) st = read_adapter(l, g, &out_of_reach, err);
    if (!st) *out = g;
    return st;
}

/* What it held waits again. A damaged file is kept under another name: whoever opens the state
 * later finds none, and sees who learned it next. One that only could not be read now, for want of
 * files or of a device, stays, and so does one that was brought here: nothing can be trained in its
 * place. */
static void lose(rvi_learner *l, rvi_generation *g, const rv_error *why)
{
    rvi_buf path = {0}, aside = {0};
    bool damaged = why->code != RV_E_IO && why->code != RV_E_UNSUPPORTED;
    rvi_log_write(l->parts.be->log, RVI_LOG_WARN, "generation %d is left out: %s", g->number,
                  why->text);
    if (damaged && g->origin != RVI_FROM_FILE &&
        !rvi_learner_generation_file(l, g->number, &path, NULL) &&
        rvi_buf_printf(&aside, "%s.damaged", path.data) &&
        rvi_os_stat(path.data, NULL) == RVI_OS_FILE && rvi_os_replace(path.data, aside.data, NULL))
        rvi_log_write(l->parts.be->log, RVI_LOG_WARN, "%s cannot be renamed", path.data);
    rvi_buf_deinit(&path);
    rvi_buf_deinit(&aside);
    rvi_generations_lose(&l->generations, g);
    rvi_learner_wait_again(l, g);
}

/* All its lessons were corrected since: its gate opens for none, and its file is there if one of
 * them stands again. */
static bool is_idle(const rvi_learner *l, const rvi_generation *g)
{
    if (!l->dir || g->origin != RVI_FROM_GROUP || !rvi_learner_is_gated(l, g)) return false;
    for (size_t i = 0; i < l->lessons.n; i++)
        if (l->lessons.list[i].in_force && rvi_generation_has_learned(g, l->lessons.list[i].event))
            return false;
    return true;
}

void rvi_learner_unload_idle(rvi_learner *l)
{
    if (rvi_learner_reserve(l, NULL)) return; /* the next time */
    for (size_t i = 0; i < l->generations.n; i++) {
        rvi_generation *g = &l->generations.list[i];
        if (!g->adapter || !is_idle(l, g)) continue;
        rvi_adapter_sets_retire(&l->sets, g->adapter);
        g->adapter = NULL;
    }
    rvi_adapter_sets_sweep(&l->sets);
}

rv_status rvi_learner_read_active(rvi_learner *l, bool idle_too, rv_error *err)
{
    for (size_t i = 0; i < l->generations.n && l->dir; i++) {
        rvi_generation *g = &l->generations.list[i];
        rv_error why = {0};
        bool out_of_reach;
        if (g->adapter || !rvi_generation_active(g) || (!idle_too && is_idle(l, g))) continue;
        rv_status st = rvi_learner_reserve(l, err);
        if (st) return st;
        st = read_adapter(l, g, &out_of_reach, &why);
        if (st == RV_E_NOMEM || (st && out_of_reach)) return rvi_error(err, st, "%s", why.text);
        if (!st) continue;
        lose(l, g, &why);
        i = (size_t)-1; /* others may be active in its place */
    }
    return RV_OK;
}

/* ---- erasing ---- */

static rv_status erase_in_store(rvi_learner *l, int number, rv_error *err)
{
    char key[KEY];
    uint8_t head[HEAD];
    uint64_t len = 0;
    bool found = false;
    rv_status st = rvi_store_put(&l->store, erased, key, erased_key(l, number, key), "1", 1, err);
    if (!st && rvi_learner_shares(l)) st = get_head(l, number, head, &len, &found, err);
    if (!found || st) return st;
    st = rvi_store_remove(&l->store, table, key_of(number, key), NUMBER, err);
    return st ? st : rvi_pieces_remove(&l->store, table, key, DIGITS, (size_t)len, err);
}

static bool unerased(const rvi_learner *l)
{
    for (size_t i = 0; i < l->generations.n; i++)
        if (l->generations.list[i].erased && !l->generations.list[i].wiped) return true;
    return false;
}

void rvi_learner_drop_run(const rvi_learner *l)
{
    if (l->dir) rvi_snapshot_drop(l->dir, "run", UINT64_MAX);
}

rv_status rvi_learner_clean(const rvi_learner *l, const char *dir, bool all, rv_error *err)
{
    rv_status st = RV_OK;
    bool any = false;
    rvi_buf path = {0};
    for (size_t i = 0; !st && i < l->generations.n; i++) {
        const rvi_generation *g = &l->generations.list[i];
        if (!g->erased) continue;
        any = true;
        path.len = 0;
        if (!rvi_buf_printf(&path, "%s/" RVI_GENERATION_FILE, dir, g->number))
            st = rvi_nomem(err, "path");
        else if (rvi_os_stat(path.data, NULL) != RVI_OS_NONE && remove(path.data))
            st = rvi_error(err, RV_E_IO, "%s cannot be removed", path.data);
    }
    rvi_buf_deinit(&path);
    if (!any) return st;
    rvi_snapshot_drop(dir, "run", UINT64_MAX); /* of training that was stopped: it may know it */
    rvi_snapshot_drop(dir, "shared", UINT64_MAX);
    if (all) rvi_learner_remove_early(dir);
    return st;
}

static rv_status erase(rvi_learner *l, rv_error *err)
{
    rv_status st = rvi_store_begin(&l->store, true, err);
    for (size_t i = 0; !st && i < l->generations.n; i++)
        if (l->generations.list[i].erased && !l->generations.list[i].wiped)
            st = erase_in_store(l, l->generations.list[i].number, err);
    if (l->store.in_transaction) st = rvi_store_end(&l->store, st, err);
    if (!st && l->dir) st = rvi_learner_clean(l, l->dir, false, err);
    for (size_t i = 0; !st && i < l->generations.n; i++)
        if (l->generations.list[i].erased) l->generations.list[i].wiped = true;
    return st;
}

/* What cannot be erased now is tried again after the next event, and by whoever opens the state. */
static rv_status erase_forgotten(rvi_learner *l, rv_error *err)
{
    rv_error why = {0};
    for (size_t i = 0; i < l->generations.n; i++) {
        rvi_generation *g = &l->generations.list[i];
        if (!g->erased || !g->adapter) continue;
        rvi_adapter_sets_retire(&l->sets, g->adapter);
        g->adapter = NULL;
        rvi_shared_drop(g);
    }
    rvi_adapter_sets_sweep(&l->sets);
    l->unerased[0] = 0;
    rv_status st = unerased(l) ? erase(l, &why) : RV_OK;
    if (!st) return RV_OK;
    snprintf(l->unerased, sizeof l->unerased, "%s", why.text);
    if (st == RV_E_NOMEM) return rvi_nomem(err, "erasing");
    rvi_log_write(l->parts.be->log, RVI_LOG_WARN, "adapters of what was forgotten: %s", why.text);
    return RV_OK;
}

rv_status rvi_learner_settle(rvi_learner *l, rv_error *err)
{
    rv_status st = rvi_learner_read_active(l, false, err);
    if (!st) st = erase_forgotten(l, err);
    if (!st) rvi_learner_unload_idle(l);
    return st ? st : rvi_shared_restore(l, err);
}
