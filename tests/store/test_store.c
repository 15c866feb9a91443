/* The store interface, the same for memory, file and, where RUVLLM_TEST_POSTGRES names one,
 * database; then what only some do: lasting, being shared, being damaged, being foreign. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <sqlite3.h>

#include "base/os.h"
#include "harness/assert_ok.h"
#include "stores.h"

typedef struct seen {
    uint64_t n, stop_after;
    char text[512];
} seen;

static int see_record(void *ctx, uint64_t seq, rvi_bytes r)
{
    seen *s = ctx;
    size_t at = strlen(s->text);
    snprintf(s->text + at, sizeof s->text - at, "%llu=%.*s ", (unsigned long long)seq, (int)r.len,
             r.len ? (const char *)r.data : "");
    return ++s->n == s->stop_after;
}

static int see_item(void *ctx, rvi_bytes key, rvi_bytes r)
{
    seen *s = ctx;
    size_t at = strlen(s->text);
    snprintf(s->text + at, sizeof s->text - at, "%.*s=%.*s ", (int)key.len, (const char *)key.data,
             (int)r.len, r.len ? (const char *)r.data : "");
    return ++s->n == s->stop_after;
}

static void put(rvi_store *s, const char *table, const char *key, const char *value)
{
    assert_ok(rvi_store_put(s, table, key, strlen(key), value, strlen(value), err));
}

static void expect_items(rvi_store *s, const char *table, const char *from, const char *wanted)
{
    seen all = {0};
    assert_ok(rvi_store_scan(s, table, from, strlen(from), see_item, &all, err));
    assert_string_equal(all.text, wanted);
}

static void expect_records(rvi_store *s, const char *stream, uint64_t from, const char *wanted)
{
    seen all = {0};
    assert_ok(rvi_store_read(s, stream, from, see_record, &all, err));
    assert_string_equal(all.text, wanted);
}

static void expect_get(rvi_store *s, const char *table, const char *key, const char *wanted)
{
    rvi_buf b = {0};
    bool found;
    assert_ok(rvi_store_get(s, table, key, strlen(key), &b, &found, err));
    assert_int_equal(found, wanted != NULL);
    if (wanted) assert_string_equal(b.len ? b.data : "", wanted);
    rvi_buf_deinit(&b);
}

static void append(rvi_store *s, const char *stream, const char *text, uint64_t wanted)
{
    uint64_t seq;
    assert_ok(rvi_store_append(s, stream, text, strlen(text), &seq, err));
    assert_int_equal(seq, wanted);
}

static void test_interface(void **state)
{
    (void)state;
    for (int which = 0; which < N_STORES; which++) {
        rvi_store s;
        assert_ok(store_new(&s, which, err));
        append(&s, "a", "one", 1);
        append(&s, "b", "other", 1);
        append(&s, "a", "", 2);
        append(&s, "a", "three", 3);
        expect_records(&s, "a", 0, "1=one 2= 3=three ");
        expect_records(&s, "a", 3, "3=three ");
        expect_records(&s, "a", UINT64_MAX, "");
        expect_records(&s, "nothing", 1, "");
        seen first = {.stop_after = 1};
        assert_ok(rvi_store_read(&s, "a", 1, see_record, &first, err));
        assert_string_equal(first.text, "1=one ");

        put(&s, "t", "b", "2");
        put(&s, "t", "a", "1");
        put(&s, "t", "bb", "");
        put(&s, "u", "a", "other");
        put(&s, "t", "b", "3");
        expect_items(&s, "t", "", "a=1 b=3 bb= ");
        expect_items(&s, "t", "b", "b=3 bb= ");
        expect_items(&s, "t", "ba", "bb= ");
        expect_get(&s, "t", "b", "3");
        expect_get(&s, "t", "bb", "");
        expect_get(&s, "t", "c", NULL);
        expect_get(&s, "nothing", "c", NULL);
        assert_ok(rvi_store_remove(&s, "t", "b", 1, err));
        assert_ok(rvi_store_remove(&s, "t", "never", 5, err));
        expect_items(&s, "t", "", "a=1 bb= ");
        /* keys are bytes: NUL and 0xFF are nothing special */
        assert_ok(rvi_store_put(&s, "bytes", "\xff\0x", 3, "v", 1, err));
        assert_ok(rvi_store_put(&s, "bytes", "\xff", 1, "w", 1, err));
        seen bytes = {.stop_after = 1};
        assert_ok(rvi_store_scan(&s, "bytes", "\xff\0", 2, see_item, &bytes, err));
        assert_memory_equal(bytes.text, "\xff", 1);
        assert_int_equal(bytes.n, 1);
        rvi_store_close(&s);
        rvi_store_close(&s);
    }
}

static void test_transactions(void **state)
{
    (void)state;
    for (int which = 0; which < N_STORES; which++) {
        rvi_store s;
        assert_ok(store_new(&s, which, err));
        append(&s, "a", "one", 1);
        for (int i = 0; i < 40; i++) { /* enough to make every list grow */
            char key[16];
            snprintf(key, sizeof key, "k%02d", i);
            put(&s, "t", key, "old");
        }
        assert_ok(rvi_store_begin(&s, true, err));
        append(&s, "a", "two", 2);
        append(&s, "new", "n", 1);
        put(&s, "t", "k07", "new");
        put(&s, "t", "k07", "newer");
        put(&s, "t", "x", "inserted");
        put(&s, "u", "x", "inserted");
        for (int i = 10; i < 38; i++) {
            char key[16];
            snprintf(key, sizeof key, "k%02d", i);
            assert_ok(rvi_store_remove(&s, "t", key, 3, err));
        }
        assert_int_equal(rvi_store_begin(&s, true, NULL), RV_E_INVALID);
        rv_error why = {0};
        rvi_error(&why, RV_E_LEARNING, "mine");
        assert_int_equal(rvi_store_end(&s, RV_E_LEARNING, &why), RV_E_LEARNING);
        assert_string_equal(why.text, "mine");
        expect_records(&s, "a", 1, "1=one ");
        expect_records(&s, "new", 1, "");
        expect_items(&s, "u", "", "");
        expect_get(&s, "t", "x", NULL);
        seen all = {0};
        assert_ok(rvi_store_scan(&s, "t", NULL, 0, see_item, &all, err));
        assert_int_equal(all.n, 40);
        for (int i = 0; i < 40; i++) {
            char key[16];
            snprintf(key, sizeof key, "k%02d", i);
            expect_get(&s, "t", key, "old");
        }
        assert_ok(rvi_store_begin(&s, false, err));
        append(&s, "a", "two", 2);
        put(&s, "t", "k07", "new");
        assert_ok(rvi_store_remove(&s, "t", "k08", 3, err));
        assert_ok(rvi_store_end(&s, RV_OK, err));
        expect_records(&s, "a", 1, "1=one 2=two ");
        expect_get(&s, "t", "k07", "new");
        expect_get(&s, "t", "k08", NULL);
        assert_int_equal(rvi_store_end(&s, RV_OK, NULL), RV_E_INVALID);
        assert_ok(rvi_store_begin(&s, true, err)); /* closing rolls back */
        put(&s, "t", "z", "z");
        rvi_store_close(&s);
    }
}

static int use_store(void *ctx, uint64_t seq, rvi_bytes r)
{
    (void)seq;
    (void)r;
    assert_int_equal(rvi_store_append(ctx, "a", "x", 1, NULL, NULL), RV_E_INVALID);
    assert_int_equal(rvi_store_begin(ctx, true, NULL), RV_E_INVALID);
    return 0;
}

static void test_limits(void **state)
{
    (void)state;
    static char big[RVI_STORE_MAX_RECORD + 1];
    for (int which = 0; which < N_STORES; which++) {
        rvi_store s;
        rv_error why = {0};
        rvi_buf b = {0};
        bool found;
        assert_ok(store_new(&s, which, err));
        memset(big, 'x', sizeof big);
        assert_int_equal(rvi_store_append(&s, "a", big, sizeof big, NULL, &why), RV_E_INVALID);
        assert_non_null(strstr(why.text, "1048577 bytes"));
        assert_ok(rvi_store_append(&s, "a", big, sizeof big - 1, NULL, err));
        assert_int_equal(rvi_store_put(&s, "t", "k", 1, big, sizeof big, &why), RV_E_INVALID);
        assert_ok(rvi_store_put(&s, "t", big, RVI_STORE_MAX_KEY, big, sizeof big - 1, err));
        assert_ok(rvi_store_get(&s, "t", big, RVI_STORE_MAX_KEY, &b, &found, err));
        assert_int_equal(b.len, sizeof big - 1);
        rvi_buf_deinit(&b);
        assert_int_equal(rvi_store_put(&s, "t", big, RVI_STORE_MAX_KEY + 1, "", 0, &why),
                         RV_E_INVALID);
        assert_int_equal(rvi_store_put(&s, "t", "", 0, "", 0, &why), RV_E_INVALID);
        assert_int_equal(rvi_store_get(&s, "t", "", 0, &b, &found, &why), RV_E_INVALID);
        assert_int_equal(rvi_store_append(&s, "", "x", 1, NULL, &why), RV_E_INVALID);
        assert_int_equal(rvi_store_append(&s, "Big", "x", 1, NULL, &why), RV_E_INVALID);
        assert_int_equal(rvi_store_put(&s, "a;b", "k", 1, "x", 1, &why), RV_E_INVALID);
        assert_ok(rvi_store_read(&s, "a", 1, use_store, &s, err));
        append(&s, "a", "after", 2);
        rvi_store_close(&s);
        assert_int_equal(rvi_store_append(&s, "a", "x", 1, NULL, &why), RV_E_INVALID);
        assert_int_equal(rvi_store_begin(&s, true, &why), RV_E_INVALID);
    }
    rvi_store m;
    assert_ok(rvi_store_memory(&m, err));
    rv_status st = RV_OK;
    for (int i = 0; !st && i < 1000; i++) {
        char name[16];
        snprintf(name, sizeof name, "s%d", i);
        st = rvi_store_append(&m, name, "", 0, NULL, NULL);
    }
    assert_int_equal(st, RV_E_STORAGE);
    rvi_store_close(&m);
}

static void test_lasts(void **state)
{
    (void)state;
    rvi_store s;
    for (int which = STORE_FILE; which < N_STORES; which++) {
        assert_ok(store_named(&s, which, "lasts.db", 0, err));
        append(&s, "a", "one", 1);
        put(&s, "t", "k", "v");
        rvi_store_close(&s);
        assert_ok(store_named(&s, which, "lasts.db", 0, err));
        expect_records(&s, "a", 1, "1=one ");
        expect_get(&s, "t", "k", "v");
        append(&s, "a", "two", 2);
        rvi_store_close(&s);
    }
    char path[256];
    assert_int_equal(access(in_folder(path, "lasts.db"), F_OK), 0);
}

/* Whatever the umask: what is kept is its owner's alone. */
static void test_private(void **state)
{
    (void)state;
    static const char *const suffixes[] = {"", "-wal", "-shm"};
    char path[] = "/tmp/ruvllm-private-XXXXXX", name[64];
    assert_non_null(mkdtemp(path));
    snprintf(name, sizeof name, "%s/kept.db", path);
    mode_t before = umask(0);
    rv_store s;
    assert_ok(rv_store_open(&s, name, NULL, err));
    assert_ok(s.append(s.ctx, "feedback", (rv_bytes){"x", 1}, &(uint64_t){0}, err));
    for (size_t i = 0; i < 3; i++) {
        struct stat info;
        snprintf(name, sizeof name, "%s/kept.db%s", path, suffixes[i]);
        assert_int_equal(stat(name, &info), 0);
        assert_int_equal(info.st_mode & 0777, 0600);
    }
    rv_store_close(&s);
    (void)umask(before);
    rvi_os_remove_tree(path);
}

static void test_two_at_once(void **state)
{
    (void)state;
    rvi_store a, b;
    rv_error why = {0};
    for (int which = STORE_FILE; which < N_STORES; which++) {
        assert_ok(store_named(&a, which, "shared.db", 50, err));
        assert_ok(store_named(&b, which, "shared.db", 50, err));
        append(&a, "s", "a", 1);
        append(&b, "s", "b", 2);
        append(&a, "s", "a", 3);
        expect_records(&b, "s", 1, "1=a 2=b 3=a ");
        assert_ok(rvi_store_begin(&a, true, err));
        append(&a, "s", "held", 4);
        assert_int_equal(rvi_store_append(&b, "s", "b", 1, NULL, &why), RV_E_STORAGE);
        assert_non_null(strstr(why.text, "another process was writing for more than 50 ms"));
        assert_int_equal(rvi_store_begin(&b, true, &why), RV_E_STORAGE);
        expect_records(&b, "s", 1, "1=a 2=b 3=a "); /* readers do not wait */
        assert_ok(rvi_store_end(&a, RV_OK, err));
        append(&b, "s", "b", 5);
        rvi_store_close(&a);
        rvi_store_close(&b);
    }
}

/* Four processes open something new at the same moment and write to it in turns. */
static void write_in_turns(int which)
{
    enum { N = 4, EACH = 25 };
    pid_t pids[N];
    int gate[2];
    assert_int_equal(pipe(gate), 0);
    for (int i = 0; i < N; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (!pids[i]) {
            rvi_store s;
            char byte;
            close(gate[1]);
            rv_status st = read(gate[0], &byte, 1) ? RV_E_IO : RV_OK; /* until the parent closes */
            if (!st) st = store_named(&s, which, "processes.db", 20000, NULL);
            for (int k = 0; !st && k < EACH; k++)
                st = rvi_store_append(&s, "s", "x", 1, NULL, NULL);
            if (!st) rvi_store_close(&s);
            _exit((int)st);
        }
    }
    close(gate[0]);
    close(gate[1]);
    for (int i = 0; i < N; i++) {
        int status = -1;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_int_equal(status, 0);
    }
    rvi_store s;
    seen all = {0};
    assert_ok(store_named(&s, which, "processes.db", 0, err));
    assert_ok(rvi_store_read(&s, "s", 1, see_record, &all, err));
    assert_int_equal(all.n, N * EACH);
    append(&s, "s", "x", N * EACH + 1); /* numbered without gaps */
    rvi_store_close(&s);
}

static void test_processes(void **state)
{
    (void)state;
    for (int which = STORE_FILE; which < N_STORES; which++) write_in_turns(which);
}

/* ---- what only a database does ---- */

static bool changes(const rv_store *s)
{
    for (int i = 0; i < 500; i++) {
        if (s->changed(s->ctx)) return true;
        usleep(10000);
    }
    return false;
}

static void test_database(void **state)
{
    (void)state;
    rvi_store a, b;
    rv_error why = {0};
    const char *url = getenv("RUVLLM_TEST_POSTGRES");
    if (!url) skip();
    assert_ok(store_named(&a, STORE_DATABASE, "locks", 0, err));
    assert_ok(store_named(&b, STORE_DATABASE, "locks", 0, err));
    rv_store_options o = {.size = sizeof o, .space = "beside", .beside = &a.by};
    rv_store beside, again;
    assert_ok(rv_store_open(&beside, url, &o, err));
    assert_ok(rv_store_open(&again, url, &o, err));

    /* a lock has one holder, on other connections and on the same */
    assert_ok(a.by.lock(a.by.ctx, "x", 0, err));
    assert_int_equal(b.by.lock(b.by.ctx, "x", 20, &why), RV_E_STORAGE);
    assert_ok(b.by.lock(b.by.ctx, "y", 0, err));
    assert_ok(beside.lock(beside.ctx, "x", 0, err)); /* another space */
    assert_int_equal(again.lock(again.ctx, "x", 20, &why), RV_E_STORAGE);
    a.by.unlock(a.by.ctx, "x");
    assert_ok(b.by.lock(b.by.ctx, "x", 0, err));
    rv_store_close(&beside);
    assert_ok(again.lock(again.ctx, "x", 0, err));

    /* others are told of appends in their space, and nobody of his own */
    (void)a.by.changed(a.by.ctx);
    (void)b.by.changed(b.by.ctx);
    append(&a, "s", "one", 1);
    assert_true(changes(&b.by));
    assert_false(a.by.changed(a.by.ctx));
    expect_records(&b, "s", 1, "1=one ");
    rv_store_close(&again);
    rvi_store_close(&b);
    assert_ok(a.by.lock(a.by.ctx, "x", 0, err)); /* closing gives locks back */
    rvi_store_close(&a);

    assert_int_equal(rv_store_open(&beside, "postgres://", &(rv_store_options){.size = 1}, &why),
                     RV_E_CONFIG);
    assert_int_equal(rv_store_open(&beside, "postgres://127.0.0.1:1/x", NULL, &why), RV_E_STORAGE);
    o = (rv_store_options){.size = sizeof o, .space = "x"};
    assert_int_equal(rv_store_open(&beside, "file.db", &o, &why), RV_E_CONFIG);
}

static void append_in(rv_store *s, const char *text)
{
    uint64_t seq;
    assert_ok(s->append(s->ctx, "s", (rv_bytes){text, strlen(text)}, &seq, err));
}

/* Learners of several processes, each with the file open. */
static void test_shared_file(void **state)
{
    (void)state;
    rv_store a, b, alone;
    rv_error why = {0};
    rv_store_options o = {.size = sizeof o, .shared = 1};
    char path[512];
    snprintf(path, sizeof path, "%s/together.db", folder.data);
    assert_ok(rv_store_open(&alone, path, NULL, err));
    assert_true(!alone.lock && !alone.unlock && !alone.changed);
    rv_store_close(&alone);
    assert_ok(rv_store_open(&a, path, &o, err));
    assert_ok(rv_store_open(&b, path, &o, err));

    assert_ok(a.lock(a.ctx, "x", 0, err));
    assert_int_equal(a.lock(a.ctx, "x", 0, &why), RV_E_INVALID);
    assert_int_equal(b.lock(b.ctx, "x", 20, &why), RV_E_STORAGE);
    assert_ok(b.lock(b.ctx, "y", 0, err));
    a.unlock(a.ctx, "x");
    a.unlock(a.ctx, "z");
    assert_ok(b.lock(b.ctx, "x", 0, err));

    /* others are told of what is appended and committed, and nobody of his own */
    assert_true(a.changed(a.ctx) && b.changed(b.ctx)); /* nobody has looked yet */
    assert_false(a.changed(a.ctx) || b.changed(b.ctx));
    append_in(&a, "one");
    assert_false(a.changed(a.ctx));
    assert_true(b.changed(b.ctx));
    assert_false(b.changed(b.ctx));
    assert_ok(a.begin(a.ctx, 1, err));
    append_in(&a, "two");
    append_in(&a, "three");
    assert_false(b.changed(b.ctx));
    assert_ok(a.commit(a.ctx, err));
    assert_true(b.changed(b.ctx));
    assert_ok(a.begin(a.ctx, 1, err));
    append_in(&a, "four");
    a.rollback(a.ctx);
    append_in(&b, "four");
    assert_true(a.changed(a.ctx));
    assert_false(a.changed(a.ctx) || b.changed(b.ctx));

    rv_store_close(&b); /* which gives its locks back */
    assert_ok(a.lock(a.ctx, "x", 0, err));
    rv_store_close(&a);
}

/* Writes len bytes over a file at offset; returns its size. */
static long overwrite(const char *path, long offset, const char *bytes, size_t len)
{
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, offset, SEEK_SET), 0);
    assert_int_equal(fwrite(bytes, 1, len, f), len);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    long size = ftell(f);
    assert_int_equal(fclose(f), 0);
    return size;
}

static void make_filled(const char *path)
{
    rvi_store s;
    char big[4000];
    memset(big, 'y', sizeof big);
    assert_ok(file_store(&s, path, 0, err));
    for (int i = 0; i < 20; i++) assert_ok(rvi_store_append(&s, "s", big, sizeof big, NULL, err));
    rvi_store_close(&s);
}

static int count_record(void *ctx, uint64_t seq, rvi_bytes record)
{
    uint64_t *n = ctx;
    assert_int_equal(seq, *n + 1);
    assert_true(record.len > 0);
    *n = seq;
    return 0;
}

static void expect_damage(const char *path, int number)
{
    rvi_store s;
    rv_error why = {0};
    char kept[300];
    uint64_t before = 0, after = 1;
    assert_int_equal(rvi_os_stat(path, &before), RVI_OS_FILE);
    assert_int_equal(file_store(&s, path, 0, &why), RV_E_STORAGE);
    snprintf(kept, sizeof kept, "%s.damaged-%d", path, number);
    if (!strstr(why.text, kept)) fail_msg("%s", why.text);
    assert_int_equal(rvi_os_stat(kept, &after), RVI_OS_FILE);
    assert_int_equal(before, after);
    assert_null(s.by.append);
    assert_ok(file_store(&s, path, 0, err)); /* begins anew, with what could be read */
    uint64_t n = 0;
    assert_ok(rvi_store_read(&s, "s", 1, count_record, &n, err));
    assert_int_equal(n > 0, strstr(why.text, "records of its log") != NULL);
    assert_in_range(n, 0, 80);
    rvi_store_close(&s);
}

static void test_damaged(void **state)
{
    (void)state;
    char path[256], zeros[4096] = {0}, noise[4096];
    memset(noise, 0xA5, sizeof noise);
    in_folder(path, "damaged.db");
    make_filled(path);
    overwrite(path, 0, noise, 100); /* no database any more */
    expect_damage(path, 1);
    make_filled(path);
    overwrite(path, 4096, noise, sizeof noise); /* the root of a table */
    expect_damage(path, 2);
    make_filled(path);
    assert_int_equal(truncate(path, 4096 * 5), 0); /* cut off */
    expect_damage(path, 3);
    make_filled(path);
    overwrite(path, 4096 * 2, zeros, sizeof zeros);
    expect_damage(path, 4);
}

/* Not while another has it open, who may be writing. */
static void test_damaged_in_use(void **state)
{
    (void)state;
    char path[256], noise[4096], kept[300];
    rvi_store user, s;
    rv_error why = {0};
    memset(noise, 0xA5, sizeof noise);
    in_folder(path, "in-use.db");
    snprintf(kept, sizeof kept, "%s.damaged-1", path);
    make_filled(path);
    assert_ok(file_store(&user, path, 0, err));
    overwrite(path, 4096, noise, sizeof noise);
    assert_int_equal(file_store(&s, path, 0, &why), RV_E_STORAGE);
    assert_non_null(strstr(why.text, "another process has it open"));
    assert_int_equal(rvi_os_stat(path, NULL), RVI_OS_FILE);
    assert_int_equal(rvi_os_stat(kept, NULL), RVI_OS_NONE);
    rvi_store_close(&user);
    expect_damage(path, 1);
}

/* A record that is damaged is seen when it is read; the next to open the file sets it aside. */
static void test_damaged_record(void **state)
{
    (void)state;
    static char big[600000];
    char path[256], noise[4096];
    rvi_store s;
    rvi_buf got = {0};
    bool found;
    rv_error why = {0};
    memset(big, 'z', sizeof big);
    memset(noise, 0xA5, sizeof noise);
    in_folder(path, "record.db");
    make_filled(path);
    assert_ok(file_store(&s, path, 0, err));
    assert_ok(rvi_store_put(&s, "adapter", "k", 1, big, sizeof big, err));
    rvi_store_close(&s);
    overwrite(path, 4096 * 120, noise, sizeof noise); /* in the middle of it */
    assert_ok(file_store(&s, path, 0, err));          /* it is not read for that */
    assert_int_equal(rvi_store_get(&s, "adapter", "k", 1, &got, &found, &why), RV_E_STORAGE);
    rvi_store_close(&s);
    rvi_buf_deinit(&got);
    expect_damage(path, 1);
}

/* The first page of a table. */
static long root_of(const char *path, const char *table)
{
    sqlite3 *db;
    sqlite3_stmt *s;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(
        sqlite3_prepare_v2(db, "SELECT rootpage FROM sqlite_schema WHERE name = ?1", -1, &s, NULL),
        SQLITE_OK);
    sqlite3_bind_text(s, 1, table, -1, SQLITE_STATIC);
    assert_int_equal(sqlite3_step(s), SQLITE_ROW);
    long page = sqlite3_column_int(s, 0);
    sqlite3_finalize(s);
    sqlite3_close(db);
    return page;
}

/* Streams outlive damage to the tables, which follow from them. */
static void test_recovered(void **state)
{
    (void)state;
    char path[256], noise[4096], kept[300];
    rvi_store s;
    rv_error why = {0};
    memset(noise, 0xA5, sizeof noise);
    in_folder(path, "recovered.db");
    assert_ok(file_store(&s, path, 0, err));
    assert_ok(rvi_store_append(&s, "a", "one", 3, NULL, err));
    assert_ok(rvi_store_append(&s, "b", "other", 5, NULL, err));
    assert_ok(rvi_store_append(&s, "a", "two", 3, NULL, err));
    assert_ok(rvi_store_put(&s, "table", "key", 3, "value", 5, err));
    rvi_store_close(&s);
    overwrite(path, 4096 * (root_of(path, "item") - 1), noise, sizeof noise);
    assert_int_equal(file_store(&s, path, 0, &why), RV_E_STORAGE);
    if (!strstr(why.text, "3 records of its log")) fail_msg("%s", why.text);
    snprintf(kept, sizeof kept, "%s.damaged-1", path);
    assert_int_equal(rvi_os_stat(kept, NULL), RVI_OS_FILE);
    assert_ok(file_store(&s, path, 0, err));
    expect_records(&s, "a", 1, "1=one 2=two ");
    expect_records(&s, "b", 1, "1=other ");
    assert_ok(rvi_store_append(&s, "a", "three", 5, NULL, err));
    rvi_store_close(&s);
}

static void test_foreign(void **state)
{
    (void)state;
    char path[256];
    sqlite3 *db;
    rvi_store s;
    rv_error why = {0};
    in_folder(path, "foreign.db");
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "CREATE TABLE x (y)", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    assert_int_equal(file_store(&s, path, 0, &why), RV_E_STORAGE);
    assert_non_null(strstr(why.text, "another program"));
    assert_int_equal(rvi_os_stat(path, NULL), RVI_OS_FILE);
    in_folder(path, "later.db");
    assert_ok(file_store(&s, path, 0, err));
    rvi_store_close(&s);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "PRAGMA user_version = 2", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    assert_int_equal(file_store(&s, path, 0, &why), RV_E_STORAGE);
    assert_non_null(strstr(why.text, "later version"));
    assert_int_equal(rvi_os_stat(path, NULL), RVI_OS_FILE);
}

static void test_bad_paths(void **state)
{
    (void)state;
    char path[256];
    rvi_store s;
    rv_error why = {0};
    assert_int_equal(file_store(&s, "", 0, &why), RV_E_INVALID);
    assert_int_equal(file_store(&s, NULL, 0, &why), RV_E_INVALID);
    assert_int_equal(file_store(&s, folder.data, 0, &why), RV_E_STORAGE);
    assert_int_equal(file_store(&s, in_folder(path, "no/such/file.db"), 0, &why), RV_E_STORAGE);
    assert_non_null(strstr(why.text, "No such file"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_interface),      cmocka_unit_test(test_transactions),
        cmocka_unit_test(test_limits),         cmocka_unit_test(test_lasts),
        cmocka_unit_test(test_private),        cmocka_unit_test(test_two_at_once),
        cmocka_unit_test(test_processes),      cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_damaged_in_use), cmocka_unit_test(test_damaged_record),
        cmocka_unit_test(test_recovered),      cmocka_unit_test(test_foreign),
        cmocka_unit_test(test_bad_paths),      cmocka_unit_test(test_database),
        cmocka_unit_test(test_shared_file),
    };
    return cmocka_run_group_tests_name("store", tests, folder_make, folder_remove);
}
