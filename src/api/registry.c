/* Adapters by name: ready, open, or on disk alone.
 *
 * Two locks. `lock` is held for moments and protects everything; `loading` is held while an adapter
 * is opened, made and others make room for it, so that many requests for one adapter load it once.
 * An adapter that is ready never waits for `loading`. Whoever holds both took `loading` first. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "base/os.h"
#include "base/thread.h"
#include "lora/file.h"
#include "model/digest.h"
#include "ruvllm_service.h"
#include "scheduler/figures.h"

enum { N_SCALES = 4, MAX_NAME = 256, MAX_ENTRIES = 1 << 20 };

/* Sets of one generation and scale have one serial, so that they share cached keys and values. */
typedef struct scaled {
    float scale;
    uint64_t serial; /* 0: none */
} scaled;

typedef struct entry {
    int users; /* the list, and threads that load it */
    char *name, *path;
    uint64_t generation, n_uses, last_use;
    rvi_os_version versions[2]; /* of its files when it got its name */
    rvi_adapter_file *file;     /* NULL: not open */
    rv_adapter *ready;          /* NULL: not ready */
    scaled scales[N_SCALES];
    int next_scale;
} entry;

struct rv_registry {
    rv_model *m;
    char digest[RVI_SHA256_HEX]; /* the model's */
    rvi_lock *lock, *loading;
    uint64_t most_ready;
    int most_open;
    entry **entries; /* by name */
    size_t n, room;
    int n_open, n_ready;
    uint64_t ready_bytes, clock, last_generation;
    rvi_tally tallies[RV_READY + 1];
    rvi_quota_member member; /* of the runtime's budget */
};

/* ---- entries ---- */

/* Under the lock. Returns the entry if nobody else has it, to be freed without the lock. */
static entry *let_go(entry *e)
{
    return e && !--e->users ? e : NULL;
}

static void free_entry(entry *e) /* accepts NULL */
{
    if (!e) return;
    rvi_adapter_file_close(e->file);
    rv_adapter_free(&e->ready);
    rvi_free(e->name);
    rvi_free(e->path);
    rvi_free(e);
}

static char *copy(const char *text)
{
    size_t size = strlen(text) + 1;
    char *out = rvi_alloc_array(size, 1);
    if (out) memcpy(out, text, size);
    return out;
}

/* A PEFT directory's two files, or a GGUF file twice. */
static bool read_versions(const char *path, rvi_os_version out[2])
{
    static const char *const names[2] = {"adapter_config.json", "adapter_model.safetensors"};
    bool is_dir = rvi_os_stat(path, NULL) == RVI_OS_DIR, done = true;
    for (int i = 0; i < 2 && done; i++) {
        rvi_buf b = {0};
        done = is_dir ? rvi_buf_printf(&b, "%s/%s", path, names[i]) : rvi_buf_puts(&b, path);
        if (done) out[i] = rvi_os_version_of(b.data);
        rvi_buf_deinit(&b);
    }
    return done;
}

static rv_status new_entry(entry **out, const char *name, const char *path, rv_error *err)
{
    entry *e = rvi_zalloc(sizeof *e);
    *out = NULL;
    if (!e) return rvi_nomem(err, "adapter");
    e->users = 1;
    e->name = copy(name);
    e->path = copy(path);
    if (e->name && e->path && read_versions(path, e->versions)) {
        *out = e;
        return RV_OK;
    }
    free_entry(e);
    return rvi_nomem(err, "adapter");
}

/* Where the name is, or would be. */
static size_t find(const rv_registry *r, const char *name, bool *found)
{
    size_t low = 0, high = r->n;
    *found = false;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        int order = strcmp(r->entries[mid]->name, name);
        if (!order) *found = true;
        if (order < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static void count_in(rv_registry *r, const entry *e, int sign)
{
    if (e->file) r->n_open += sign;
    if (!e->ready) return;
    r->n_ready += sign;
    r->ready_bytes = sign > 0 ? r->ready_bytes + e->ready->bytes : r->ready_bytes - e->ready->bytes;
}

static rv_status make_room(rv_registry *r, rv_error *err)
{
    if (r->n < r->room) return RV_OK;
    if (r->n >= MAX_ENTRIES)
        return rvi_error(err, RV_E_UNSUPPORTED, "%d adapters are known already", MAX_ENTRIES);
    size_t room = r->room ? 2 * r->room : 64;
    entry **more = rvi_realloc_array(r->entries, room, sizeof *more);
    if (!more) return rvi_nomem(err, "adapters");
    r->entries = more;
    r->room = room;
    return RV_OK;
}

static rv_status unexpected(const char *name, uint64_t expected, const entry *old, rv_error *err)
{
    if (!old && expected && expected != RV_ANY_GENERATION)
        return rvi_error(err, RV_E_STATE, "adapter '%.64s' is gone, not at generation %llu", name,
                         (unsigned long long)expected);
    if (!old) return rvi_error(err, RV_E_NOT_FOUND, "no adapter is called '%.64s'", name);
    if (!expected)
        return rvi_error(err, RV_E_STATE, "an adapter is called '%.64s' already (generation %llu)",
                         name, (unsigned long long)old->generation);
    return rvi_error(err, RV_E_STATE, "adapter '%.64s' is at generation %llu, not %llu", name,
                     (unsigned long long)old->generation, (unsigned long long)expected);
}

static bool is_expected(uint64_t expected, const entry *old)
{
    return expected == RV_ANY_GENERATION || expected == (old ? old->generation : 0);
}

/* Under the lock. *old: what it replaced, to be released without the lock. */
static rv_status insert(rv_registry *r, entry *e, uint64_t expected, entry **old, rv_error *err)
{
    bool found;
    rv_status st = make_room(r, err);
    if (st) return st;
    size_t at = find(r, e->name, &found);
    *old = found ? r->entries[at] : NULL;
    if (!is_expected(expected, *old)) {
        st = unexpected(e->name, expected, *old, err);
        *old = NULL;
        return st;
    }
    if (found) {
        count_in(r, *old, -1);
    } else {
        memmove(r->entries + at + 1, r->entries + at, (r->n - at) * sizeof *r->entries);
        r->n++;
    }
    e->generation = ++r->last_generation;
    e->last_use = ++r->clock;
    r->entries[at] = e;
    count_in(r, e, +1);
    return RV_OK;
}

/* ---- loading ---- */

static rv_status open_file(const rv_registry *r, const char *path, rvi_adapter_file **out,
                           rv_error *err)
{
    const rvi_model *m = r->m->model;
    return rvi_adapter_file_open(out, path, m->targets, m->n_targets, m->arch->gguf_names,
                                 r->digest, r->m->rt->be->log, err);
}

/* The entry used least recently that has an open file, or is ready; not `but`. */
static entry *oldest(const rv_registry *r, bool ready, const entry *but)
{
    entry *best = NULL;
    for (size_t i = 0; i < r->n; i++) {
        entry *e = r->entries[i];
        if (e == but || (ready ? !e->ready : !e->file)) continue;
        if (!best || e->last_use < best->last_use) best = e;
    }
    return best;
}

/* Takes from entries, oldest first, what exceeds the limits; the newest one stays. `loading` is
 * held; what is given up is freed without the lock. */
static void evict(rv_registry *r, const entry *newest)
{
    for (bool done = false; !done;) {
        rv_adapter *adapter = NULL;
        rvi_adapter_file *file = NULL;
        entry *e;
        rvi_lock_take(r->lock);
        if (r->ready_bytes > r->most_ready && (e = oldest(r, true, newest))) {
            count_in(r, e, -1);
            adapter = e->ready;
            e->ready = NULL;
            count_in(r, e, +1);
        } else if (r->n_open > r->most_open && (e = oldest(r, false, newest))) {
            count_in(r, e, -1);
            file = e->file;
            e->file = NULL;
            count_in(r, e, +1);
        } else {
            done = true;
        }
        rvi_lock_give(r->lock);
        rv_adapter_free(&adapter);
        rvi_adapter_file_close(file);
    }
}

/* For the budget: takes what nobody uses, oldest first. Called by any thread, for moments. */
static uint64_t give_room(void *ctx, uint64_t bytes)
{
    rv_registry *r = ctx;
    uint64_t n = 0;
    for (bool done = false; !done;) {
        rv_adapter *adapter = NULL;
        entry *best = NULL;
        rvi_lock_take(r->lock);
        for (size_t i = 0; i < r->n; i++) {
            entry *e = r->entries[i];
            if (!e->ready || atomic_load(&e->ready->users) > 1) continue;
            if (!bytes) n += e->ready->bytes;
            if (!best || e->last_use < best->last_use) best = e;
        }
        if (best && n < bytes) {
            count_in(r, best, -1);
            adapter = best->ready;
            best->ready = NULL;
            count_in(r, best, +1);
            n += adapter->bytes;
        }
        done = !adapter;
        rvi_lock_give(r->lock);
        rv_adapter_free(&adapter);
    }
    return n;
}

/* Is this entry what its name stands for? Under the lock. */
static bool is_current(const rv_registry *r, const entry *e)
{
    bool found;
    size_t at = find(r, e->name, &found);
    return found && r->entries[at] == e;
}

/* Its file says about what it will take, with a copy in fewer bits; others make room for that
 * first. */
static rv_status make_ready(const rv_registry *r, const entry *e, const rvi_adapter_file *file,
                            rv_adapter **out, rv_error *err)
{
    rvi_quota *q = &r->m->rt->quota;
    uint64_t size = RVI_MAX(e->versions[0].size, e->versions[1].size), bytes = size + size / 2;
    rvi_adapter *a = NULL;
    rv_status st = rvi_quota_await(q, RVI_QUOTA_ADAPTERS, bytes, NULL, e->name, err);
    if (st) return st;
    st = rvi_adapter_file_load(file, &a, r->m->model->be, err);
    if (!st) st = rvi_api_wrap_adapter(out, r->m, a, err);
    rvi_quota_return(q, RVI_QUOTA_ADAPTERS, bytes);
    if (!st) st = rvi_api_check_budget(r->m->rt, RVI_QUOTA_ADAPTERS, e->name, err);
    if (st) rv_adapter_free(out);
    return st;
}

/* Makes an adapter ready; e is held by the caller. */
static rv_status load(rv_registry *r, entry *e, rv_residency *was, rv_error *err)
{
    rvi_lock_take(r->loading);
    rvi_lock_take(r->lock);
    bool ready = e->ready;
    rvi_adapter_file *file = e->file; /* only who holds `loading` closes it */
    rvi_lock_give(r->lock);
    *was = ready ? RV_READY : file ? RV_OPEN : RV_ON_DISK;
    rv_status st = RV_OK;
    rv_adapter *made = NULL;
    rvi_os_version now[2];
    if (*was == RV_ON_DISK) {
        if (!read_versions(e->path, now)) st = rvi_nomem(err, "path");
        if (!st && memcmp(now, e->versions, sizeof now))
            st = rvi_error(err, RV_E_STATE,
                           "%s: changed since it was given the name '%.64s'; give it again",
                           e->path, e->name);
        if (!st) st = open_file(r, e->path, &file, err);
    }
    if (!st && !ready) st = make_ready(r, e, file, &made, err);
    rvi_lock_take(r->lock);
    bool listed = is_current(r, e);
    if (listed) count_in(r, e, -1);
    if (!st && !ready) e->ready = made;
    if (!st || e->file) e->file = file;
    if (listed) count_in(r, e, +1);
    rvi_lock_give(r->lock);
    if (st && *was == RV_ON_DISK) rvi_adapter_file_close(file);
    evict(r, e);
    rvi_lock_give(r->loading);
    return st;
}

rv_status rv_registry_where(rv_registry *r, const char *name, rv_residency *out, rv_error *err)
{
    bool found;
    if (!r || !name || !out)
        return rvi_error(err, RV_E_INVALID, "rv_registry_where: NULL argument");
    rvi_lock_take(r->lock);
    size_t at = find(r, name, &found);
    if (found)
        *out = r->entries[at]->ready ? RV_READY : r->entries[at]->file ? RV_OPEN : RV_ON_DISK;
    rvi_lock_give(r->lock);
    return found ? RV_OK : rvi_error(err, RV_E_NOT_FOUND, "no adapter is called '%.64s'", name);
}

static uint64_t serial_of(rv_registry *r, entry *e, float scale)
{
    for (int i = 0; i < N_SCALES; i++)
        if (e->scales[i].serial && e->scales[i].scale == scale) return e->scales[i].serial;
    scaled *s = &e->scales[e->next_scale];
    e->next_scale = (e->next_scale + 1) % N_SCALES;
    *s = (scaled){scale, atomic_fetch_add(&r->m->rt->n_sets, 1) + 1};
    return s->serial;
}

static rv_status get(rv_registry *r, const char *name, float scale, rv_adapter_set **out,
                     uint64_t *generation, rv_residency *was, rv_error *err)
{
    bool found;
    rv_adapter *a = NULL;
    uint64_t serial = 0;
    rv_status st = RV_OK;
    rvi_lock_take(r->lock);
    size_t at = find(r, name, &found);
    entry *e = found ? r->entries[at] : NULL;
    if (e) {
        e->users++;
        e->n_uses++;
        e->last_use = ++r->clock;
    }
    /* Between loading and taking it another thread may make room: then it is loaded again. */
    while (e && !st && !a) {
        if (e->ready) {
            a = rvi_api_retain_adapter(e->ready);
            serial = serial_of(r, e, scale);
            *generation = e->generation;
        } else {
            rvi_lock_give(r->lock);
            st = load(r, e, was, err);
            rvi_lock_take(r->lock);
        }
    }
    entry *gone = let_go(e); /* its name was taken from it meanwhile */
    rvi_lock_give(r->lock);
    free_entry(gone);
    if (!found) return rvi_error(err, RV_E_NOT_FOUND, "no adapter is called '%.64s'", name);
    if (!st) st = rv_adapter_set_new(out, r->m, &(rv_adapter_use){a, scale}, 1, err);
    if (!st) (*out)->set.serial = serial;
    rv_adapter_free(&a);
    return st;
}

rv_status rv_registry_get(rv_registry *r, const char *name, float scale, rv_adapter_set **out,
                          uint64_t *generation, rv_error *err)
{
    if (!r || !name || !out) return rvi_error(err, RV_E_INVALID, "rv_registry_get: NULL argument");
    *out = NULL;
    if (!isfinite(scale))
        return rvi_error(err, RV_E_ADAPTER, "the scale of '%.64s' is no number", name);
    uint64_t number = 0;
    rv_residency was = RV_READY;
    double begun = rvi_os_seconds();
    const rv_allocator *heap = rvi_api_use_heap(r->m->rt);
    rv_status st = get(r, name, scale, out, &number, &was, err);
    rvi_api_leave_heap(heap);
    if (st) return st;
    rvi_lock_take(r->lock);
    rvi_tally_add(&r->tallies[was], rvi_os_seconds() - begun);
    rvi_lock_give(r->lock);
    if (generation) *generation = number;
    return RV_OK;
}

/* ---- names ---- */

static rv_status check_name(const char *name, rv_error *err)
{
    size_t len = strlen(name);
    if (len < 1 || len > MAX_NAME)
        return rvi_error(err, RV_E_INVALID,
                         "the name of an adapter must have 1..%d bytes (got %zu)", MAX_NAME, len);
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)name[i] < ' ' || name[i] == 127)
            return rvi_error(err, RV_E_INVALID, "the name of an adapter has a control character");
    return RV_OK;
}

rv_status rv_registry_put(rv_registry *r, const char *name, const char *path, uint64_t expected,
                          uint64_t *generation, rv_error *err)
{
    if (!r || !name || !path) return rvi_error(err, RV_E_INVALID, "rv_registry_put: NULL argument");
    rv_status st = check_name(name, err);
    if (st) return st;
    entry *e, *old = NULL;
    const rv_allocator *heap = rvi_api_use_heap(r->m->rt);
    st = new_entry(&e, name, path, err);
    if (!st) st = open_file(r, path, &e->file, err);
    if (!st) {
        rvi_lock_take(r->lock);
        st = insert(r, e, expected, &old, err);
        if (!st && generation) *generation = e->generation;
        old = let_go(old);
        rvi_lock_give(r->lock);
        free_entry(old);
    }
    if (st) free_entry(e);
    rvi_lock_take(r->loading);
    evict(r, NULL);
    rvi_lock_give(r->loading);
    rvi_api_leave_heap(heap);
    return st;
}

typedef struct scan {
    rv_registry *r;
    const char *folder;
    size_t n;
    rv_status st;
    rv_error *err;
} scan;

/* NAME.gguf, or a directory NAME with a configuration of PEFT. */
static int add_one(void *ctx, const char *file)
{
    static const char ending[] = ".gguf";
    scan *s = ctx;
    rvi_buf path = {0}, config = {0}, name = {0};
    size_t len = strlen(file), end = strlen(ending);
    bool is_gguf = len > end && !strcmp(file + len - end, ending), found = true;
    entry *e = NULL, *old = NULL;
    if (file[0] == '.') return 0;
    if (!rvi_buf_printf(&path, "%s/%s", s->folder, file) ||
        !rvi_buf_printf(&config, "%s/adapter_config.json", path.data) ||
        !rvi_buf_printf(&name, "%.*s", (int)(is_gguf ? len - end : len), file))
        s->st = rvi_nomem(s->err, "path");
    if (!s->st && rvi_os_stat(is_gguf ? path.data : config.data, NULL) == RVI_OS_FILE &&
        !check_name(name.data, NULL)) {
        s->st = new_entry(&e, name.data, path.data, s->err);
        rvi_lock_take(s->r->lock);
        if (!s->st) (void)find(s->r, name.data, &found);
        if (!found) s->st = insert(s->r, e, 0, &old, s->err);
        rvi_lock_give(s->r->lock);
        if (found || s->st)
            free_entry(e);
        else
            s->n++;
    }
    rvi_buf_deinit(&path);
    rvi_buf_deinit(&config);
    rvi_buf_deinit(&name);
    return s->st != RV_OK;
}

rv_status rv_registry_add_folder(rv_registry *r, const char *folder, size_t *n, rv_error *err)
{
    if (!r || !folder) return rvi_error(err, RV_E_INVALID, "rv_registry_add_folder: NULL argument");
    scan s = {.r = r, .folder = folder, .err = err};
    const rv_allocator *heap = rvi_api_use_heap(r->m->rt);
    rv_status st = rvi_os_list(folder, add_one, &s, err);
    rvi_api_leave_heap(heap);
    if (n) *n = s.n;
    return s.st ? s.st : st;
}

rv_status rv_registry_remove(rv_registry *r, const char *name, uint64_t expected, rv_error *err)
{
    if (!r || !name) return rvi_error(err, RV_E_INVALID, "rv_registry_remove: NULL argument");
    bool found;
    rv_status st = RV_OK;
    entry *e = NULL;
    const rv_allocator *heap = rvi_api_use_heap(r->m->rt);
    rvi_lock_take(r->lock);
    size_t at = find(r, name, &found);
    if (!found || !is_expected(expected, r->entries[at])) {
        st = unexpected(name, expected, found ? r->entries[at] : NULL, err);
    } else {
        e = r->entries[at];
        count_in(r, e, -1);
        r->n--;
        memmove(r->entries + at, r->entries + at + 1, (r->n - at) * sizeof *r->entries);
    }
    e = let_go(e);
    rvi_lock_give(r->lock);
    free_entry(e);
    rvi_api_leave_heap(heap);
    return st;
}

/* ---- the registry ---- */

rv_status rv_registry_new(rv_registry **out, const rv_model *m, const rv_registry_options *given,
                          rv_error *err)
{
    if (!out) return rvi_error(err, RV_E_INVALID, "rv_registry_new: NULL argument");
    *out = NULL;
    rv_registry_options o;
    rv_status st = rvi_api_need_weights(m, err);
    if (!st) st = rvi_api_read_struct(&o, sizeof o, given, "rv_registry_options", err);
    if (!st && o.max_open < 0)
        st = rvi_error(err, RV_E_INVALID, "max_open must not be negative (got %d)", o.max_open);
    if (st) return st;
    const rv_allocator *heap = rvi_api_use_heap(m->rt);
    rv_registry *r = rvi_zalloc(sizeof *r);
    if (r) {
        r->m = rvi_api_retain_model(m);
        r->member = (rvi_quota_member){.class = RVI_QUOTA_ADAPTERS, .give = give_room, .ctx = r};
        r->most_ready = o.ready_bytes ? o.ready_bytes : UINT64_C(256) << 20;
        r->most_open = o.max_open ? o.max_open : 256;
        st = rvi_model_digest(m->model->source, m->rt->be, r->digest, err);
    } else {
        st = rvi_nomem(err, "registry");
    }
    if (!st) st = rvi_lock_new(&r->lock, err);
    if (!st) st = rvi_lock_new(&r->loading, err);
    rvi_api_leave_heap(heap);
    if (st) {
        rv_registry_free(&r);
    } else {
        rvi_quota_join(&m->rt->quota, &r->member);
        *out = r;
    }
    return st;
}

void rv_registry_free(rv_registry **registry)
{
    if (!registry || !*registry) return;
    rv_registry *r = *registry;
    *registry = NULL;
    rv_model *m = r->m;
    rvi_quota_leave(&m->rt->quota, &r->member);
    for (size_t i = 0; i < r->n; i++) free_entry(r->entries[i]);
    rvi_free(r->entries);
    rvi_lock_free(r->lock);
    rvi_lock_free(r->loading);
    rvi_free(r);
    rvi_api_release_model(m);
}

rv_status rv_registry_list(rv_registry *r, rv_registered **out, size_t *n, rv_error *err)
{
    if (!r || !out || !n) return rvi_error(err, RV_E_INVALID, "rv_registry_list: NULL argument");
    *out = NULL;
    *n = 0;
    const rv_allocator *heap = rvi_api_use_heap(r->m->rt);
    rvi_lock_take(r->lock);
    size_t size = RVI_MAX(r->n, 1) * sizeof **out, at = size;
    for (size_t i = 0; i < r->n; i++)
        size += strlen(r->entries[i]->name) + strlen(r->entries[i]->path) + 2;
    rv_registered *all = rvi_alloc_array(size, 1);
    char *texts = (char *)all;
    for (size_t i = 0; all && i < r->n; i++) {
        const entry *e = r->entries[i];
        size_t name = strlen(e->name) + 1, path = strlen(e->path) + 1;
        memcpy(texts + at, e->name, name);
        memcpy(texts + at + name, e->path, path);
        all[i] = (rv_registered){.name = texts + at,
                                 .path = texts + at + name,
                                 .generation = e->generation,
                                 .residency = e->ready  ? RV_READY
                                              : e->file ? RV_OPEN
                                                        : RV_ON_DISK,
                                 .bytes = e->ready ? e->ready->bytes : 0,
                                 .n_uses = e->n_uses};
        at += name + path;
    }
    if (all) *n = r->n;
    rvi_lock_give(r->lock);
    rvi_api_leave_heap(heap);
    *out = all;
    return all ? RV_OK : rvi_nomem(err, "adapters");
}

rv_status rv_registry_get_metrics(rv_registry *r, rv_registry_metrics *out, rv_error *err)
{
    if (!r || !out) return rvi_error(err, RV_E_INVALID, "rv_registry_get_metrics: NULL argument");
    size_t size = out->size;
    if (size < sizeof size || size > 1 << 20)
        return rvi_error(err, RV_E_CONFIG,
                         "rv_registry_metrics.size must be sizeof(rv_registry_metrics) (got %zu)",
                         size);
    const rv_allocator *heap = rvi_api_use_heap(r->m->rt);
    rv_registry_metrics *full = rvi_zalloc(sizeof *full); /* some pages: not on the stack */
    rvi_api_leave_heap(heap);
    if (!full) return rvi_nomem(err, "metrics");
    rvi_lock_take(r->lock);
    *full = (rv_registry_metrics){.size = size,
                                  .n = r->n,
                                  .n_open = (uint64_t)r->n_open,
                                  .n_ready = (uint64_t)r->n_ready,
                                  .ready_bytes = r->ready_bytes};
    rvi_tally_read(&r->tallies[RV_READY], &full->ready);
    rvi_tally_read(&r->tallies[RV_OPEN], &full->open);
    rvi_tally_read(&r->tallies[RV_ON_DISK], &full->on_disk);
    rvi_lock_give(r->lock);
    memcpy(out, full, RVI_MIN(size, sizeof *full));
    rvi_free(full);
    return RV_OK;
}
