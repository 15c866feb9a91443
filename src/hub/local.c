/* Models that a user put into CACHE/models: a .gguf file (the first one of a split model), or a
 * directory with a config.json. Their names are their file names without ".gguf". */
#include <string.h>

#include "base/os.h"
#include "hub/hub.h"

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static bool same(const char *a, size_t len, const char *b)
{
    for (size_t i = 0; i < len; i++)
        if (lower(a[i]) != lower(b[i])) return false; /* b's end differs from any letter of a */
    return !b[len];
}

static bool is_catalogued(const char *file)
{
    size_t n;
    const rvi_hub_model *m = rvi_hub_catalog(&n);
    for (size_t i = 0; i < n; i++)
        if (!strcmp(m[i].place, file)) return true;
    return false;
}

static bool ends_with(const char *text, size_t len, const char *end)
{
    size_t n = strlen(end);
    return len > n && same(text + len - n, n, end);
}

/* The length of "-00001-of-00003" at the end of the name, 0: it is no part of a split file. *first:
 * it is the part to open. */
static size_t part_suffix(const char *name, size_t len, bool *first)
{
    static const char shape[] = "-00000-of-00000";
    enum { LEN = sizeof shape - 1 };
    *first = true;
    if (len <= LEN) return 0;
    const char *end = name + len - LEN;
    for (size_t i = 0; i < LEN; i++) {
        bool digit = end[i] >= '0' && end[i] <= '9';
        if (shape[i] == '0' ? !digit : end[i] != shape[i]) return 0;
    }
    *first = !memcmp(end, "-00001", 6);
    return LEN;
}

typedef struct search {
    const char *models_dir;
    rvi_hub_local_fn each;
    void *ctx;
    rv_status st;
} search;

static int add_size(void *ctx, const char *name)
{
    const char *dir = ((void **)ctx)[0];
    uint64_t *sum = ((void **)ctx)[1], size = 0;
    rvi_buf path = {0};
    if (rvi_buf_printf(&path, "%s/%s", dir, name) && rvi_os_stat(path.data, &size) == RVI_OS_FILE)
        *sum += size;
    rvi_buf_deinit(&path);
    return 0;
}

/* Tells each of an entry that is a model. */
static int look_at(void *ctx, const char *file)
{
    search *s = ctx;
    rvi_hub_local local = {.file = file, .name_len = strlen(file)};
    rvi_buf path = {0}, config = {0};
    bool first = true, is_model = false;
    int stop = 0;
    if (file[0] == '.' || is_catalogued(file)) return 0;
    if (!rvi_buf_printf(&path, "%s/%s", s->models_dir, file) ||
        !rvi_buf_printf(&config, "%s/config.json", path.data)) {
        s->st = RV_E_NOMEM;
        stop = 1;
    } else if (rvi_os_stat(path.data, &local.size) == RVI_OS_DIR) {
        is_model = strncmp(file, "tmp-", 4) && rvi_os_stat(config.data, NULL) == RVI_OS_FILE;
        void *sum[2] = {path.data, &local.size};
        local.size = 0;
        if (is_model && rvi_os_list(path.data, add_size, sum, NULL)) is_model = false;
    } else if (ends_with(file, local.name_len, ".gguf")) {
        local.name_len -= 5;
        local.name_len -= part_suffix(file, local.name_len, &first);
        is_model = first && rvi_os_stat(path.data, NULL) == RVI_OS_FILE;
    }
    local.path = path.data;
    if (is_model && !stop) stop = s->each(s->ctx, &local);
    rvi_buf_deinit(&config);
    rvi_buf_deinit(&path);
    return stop;
}

rv_status rvi_hub_local_list(const char *cache_dir, rvi_hub_local_fn each, void *ctx, rv_error *err)
{
    rvi_buf dir = {0};
    search s = {NULL, each, ctx, RV_OK};
    rv_status st = RV_OK;
    if (!rvi_buf_printf(&dir, "%s/models", cache_dir)) return rvi_nomem(err, "path");
    s.models_dir = dir.data;
    if (rvi_os_stat(dir.data, NULL) == RVI_OS_DIR) st = rvi_os_list(dir.data, look_at, &s, err);
    if (!st && s.st) st = rvi_nomem(err, "path");
    rvi_buf_deinit(&dir);
    return st;
}

typedef struct wanted {
    const char *name;
    rvi_buf *path;
    bool found, failed;
} wanted;

static int take(void *ctx, const rvi_hub_local *local)
{
    wanted *w = ctx;
    if (!same(local->file, local->name_len, w->name) &&
        !same(local->file, strlen(local->file), w->name))
        return 0;
    w->found = true;
    w->failed = !rvi_buf_puts(w->path, local->path);
    return 1;
}

rv_status rvi_hub_local_find(const char *cache_dir, const char *name, rvi_buf *path, rv_error *err)
{
    wanted w = {name, path, false, false};
    rv_status st = rvi_hub_local_list(cache_dir, take, &w, err);
    if (!st && w.failed) st = rvi_nomem(err, "path");
    if (!st && !w.found) st = rvi_error(err, RV_E_NOT_FOUND, "no model '%s' in the cache", name);
    return st;
}
