/* What is asked of the operating system. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/os.h"

typedef struct fixture {
    rvi_buf dir, path, other;
} fixture;

static int set_up(void **state)
{
    static fixture f;
    f = (fixture){0};
    if (rvi_os_temp_dir(&f.dir, "/tmp", NULL)) return -1;
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    rvi_os_remove_tree(f->dir.data);
    bool gone = rvi_os_stat(f->dir.data, NULL) == RVI_OS_NONE;
    rvi_buf_deinit(&f->dir);
    rvi_buf_deinit(&f->path);
    rvi_buf_deinit(&f->other);
    return gone ? 0 : -1;
}

static const char *in(rvi_buf *b, fixture *f, const char *name)
{
    rvi_buf_deinit(b);
    assert_true(rvi_buf_printf(b, "%s/%s", f->dir.data, name));
    return b->data;
}

static void put(const char *path, const char *text)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(rvi_os_sync(file, path, NULL), RV_OK);
    assert_int_equal(fclose(file), 0);
}

static void test_machine(void **state)
{
    (void)state;
    double a = rvi_os_seconds();
    usleep(2000);
    double b = rvi_os_seconds();
    assert_true(b - a >= 0.002 && b - a < 60);
    assert_in_range(rvi_os_cpu_count(), 1, 100000);
    assert_true(rvi_os_peak_rss() > 100000);
    FILE *f = fopen("/dev/null", "w");
    assert_non_null(f);
    assert_false(rvi_os_is_terminal(f));
    assert_int_equal(rvi_os_terminal_width(f), 80);
    fclose(f);
}

static void test_stat(void **state)
{
    fixture *f = *state;
    uint64_t size = 77;
    const char *path = in(&f->path, f, "file");
    assert_int_equal(rvi_os_stat(path, &size), RVI_OS_NONE);
    put(path, "12345");
    assert_int_equal(rvi_os_stat(path, &size), RVI_OS_FILE);
    assert_int_equal(size, 5);
    assert_int_equal(rvi_os_stat(path, NULL), RVI_OS_FILE);
    assert_int_equal(rvi_os_stat(f->dir.data, NULL), RVI_OS_DIR);
    assert_int_equal(rvi_os_stat("/dev/null", NULL), RVI_OS_OTHER);
    assert_int_equal(symlink(path, in(&f->other, f, "link")), 0);
    assert_int_equal(rvi_os_stat(f->other.data, &size), RVI_OS_FILE); /* follows links */
}

static void test_make_dirs(void **state)
{
    fixture *f = *state;
    rv_error err = {0};
    static const char *const names[] = {"a", "a/b/c", "a/b/c", "d//e/", "f/g/h/i/j/k"};
    for (size_t i = 0; i < RVI_COUNT(names); i++) {
        assert_int_equal(rvi_os_make_dirs(in(&f->path, f, names[i]), &err), RV_OK);
        assert_int_equal(rvi_os_stat(f->path.data, NULL), RVI_OS_DIR);
    }
    put(in(&f->path, f, "file"), "x");
    assert_int_equal(rvi_os_make_dirs(f->path.data, &err), RV_E_IO); /* a file is in the way */
    assert_non_null(strstr(err.text, f->path.data));
    assert_int_not_equal(rvi_os_make_dirs(in(&f->path, f, "file/below"), &err), RV_OK);
    assert_int_equal(symlink(f->dir.data, in(&f->path, f, "link")), 0);
    assert_int_equal(rvi_os_make_dirs(in(&f->path, f, "link/x"), &err),
                     RV_OK); /* through a link to a directory */
    assert_int_equal(rvi_os_stat(in(&f->path, f, "x"), NULL), RVI_OS_DIR);
}

static void test_temp_dir(void **state)
{
    fixture *f = *state;
    rv_error err = {0};
    assert_int_equal(rvi_os_temp_dir(&f->path, f->dir.data, NULL), RV_OK);
    assert_int_equal(rvi_os_temp_dir(&f->other, f->dir.data, NULL), RV_OK);
    assert_string_not_equal(f->path.data, f->other.data);
    assert_int_equal(rvi_os_stat(f->path.data, NULL), RVI_OS_DIR);
    assert_int_equal(rvi_os_stat(f->other.data, NULL), RVI_OS_DIR);
    rvi_buf none = {0};
    assert_int_equal(rvi_os_temp_dir(&none, "/nowhere at all", &err), RV_E_NOT_FOUND);
    rvi_buf_deinit(&none);
}

static void test_remove_tree(void **state)
{
    fixture *f = *state;
    assert_int_equal(rvi_os_make_dirs(in(&f->path, f, "keep"), NULL), RV_OK);
    put(in(&f->path, f, "keep/file"), "x");
    assert_int_equal(rvi_os_make_dirs(in(&f->path, f, "t/a/b"), NULL), RV_OK);
    put(in(&f->path, f, "t/a/b/file"), "x");
    put(in(&f->path, f, "t/.hidden"), "x");
    in(&f->path, f, "keep");
    assert_int_equal(symlink(f->path.data, in(&f->other, f, "t/link")), 0);
    assert_int_equal(symlink("/nowhere", in(&f->other, f, "t/dangling")), 0);
    rvi_os_remove_tree(in(&f->path, f, "t"));
    assert_int_equal(rvi_os_stat(f->path.data, NULL), RVI_OS_NONE);
    assert_int_equal(rvi_os_stat(in(&f->path, f, "keep/file"), NULL),
                     RVI_OS_FILE);    /* behind the link */
    rvi_os_remove_tree(f->path.data); /* a single file */
    assert_int_equal(rvi_os_stat(f->path.data, NULL), RVI_OS_NONE);
    rvi_os_remove_tree(f->path.data); /* nothing there */
}

static void test_replace(void **state)
{
    fixture *f = *state;
    char line[16] = "";
    put(in(&f->path, f, "from"), "new");
    put(in(&f->other, f, "to"), "old");
    assert_int_equal(rvi_os_replace(f->path.data, f->other.data, NULL), RV_OK);
    assert_int_equal(rvi_os_stat(f->path.data, NULL), RVI_OS_NONE);
    FILE *file = fopen(f->other.data, "r");
    assert_non_null(file);
    assert_non_null(fgets(line, sizeof line, file));
    fclose(file);
    assert_string_equal(line, "new");
    assert_int_equal(rvi_os_replace(f->path.data, f->other.data, NULL), RV_E_NOT_FOUND);
}

static void test_replace_dir(void **state)
{
    fixture *f = *state;
    for (int there = 0; there < 2; there++) { /* a directory in the place, or nothing */
        if (there) put(in(&f->other, f, "to/old"), "old");
        assert_int_equal(rvi_os_make_dirs(in(&f->path, f, "from"), NULL), RV_OK);
        put(in(&f->other, f, "from/new"), "new");
        in(&f->other, f, "to");
        assert_int_equal(rvi_os_replace_dir(f->path.data, f->other.data, NULL), RV_OK);
        assert_int_equal(rvi_os_sync_parent(f->other.data, NULL), RV_OK);
        assert_int_equal(rvi_os_stat(f->path.data, NULL), RVI_OS_NONE);
        assert_int_equal(rvi_os_stat(in(&f->other, f, "to/new"), NULL), RVI_OS_FILE);
        assert_int_equal(rvi_os_stat(in(&f->other, f, "to/old"), NULL), RVI_OS_NONE);
    }
    in(&f->other, f, "to");
    assert_int_equal(rvi_os_replace_dir(f->path.data, f->other.data, NULL), RV_E_NOT_FOUND);
    assert_int_equal(rvi_os_stat(in(&f->other, f, "to/new"), NULL), RVI_OS_FILE); /* still there */
    assert_int_equal(rvi_os_sync_parent("a file here", NULL), RV_OK);
    assert_int_equal(rvi_os_sync_parent("/a file there/", NULL), RV_OK);
    assert_int_equal(rvi_os_sync_parent(in(&f->other, f, "none/x"), NULL), RV_E_NOT_FOUND);
}

static void test_sync_reports_a_full_disk(void **state)
{
    (void)state;
    rv_error err = {0};
    FILE *file = fopen("/dev/full", "w");
    assert_non_null(file);
    assert_true(fputs("x", file) >= 0); /* still in the buffer */
    assert_int_equal(rvi_os_sync(file, "/dev/full", &err), RV_E_IO);
    assert_string_equal(err.text, "/dev/full: cannot write: No space left on device");
    fclose(file);
}

typedef struct listing {
    char names[200];
    int n, stop_after;
} listing;

static int note(void *ctx, const char *name)
{
    listing *l = ctx;
    size_t len = strlen(l->names);
    snprintf(l->names + len, sizeof l->names - len, "%s ", name);
    return ++l->n == l->stop_after;
}

static void test_list(void **state)
{
    fixture *f = *state;
    listing l = {0};
    assert_int_equal(rvi_os_list(f->dir.data, note, &l, NULL), RV_OK);
    assert_string_equal(l.names, "");
    put(in(&f->path, f, "b"), "x");
    put(in(&f->path, f, "a"), "x");
    put(in(&f->path, f, ".h"), "x");
    assert_int_equal(rvi_os_make_dirs(in(&f->path, f, "c"), NULL), RV_OK);
    assert_int_equal(rvi_os_list(f->dir.data, note, &l, NULL), RV_OK);
    assert_string_equal(l.names, ".h a b c ");
    l = (listing){.stop_after = 2};
    assert_int_equal(rvi_os_list(f->dir.data, note, &l, NULL), RV_OK);
    assert_string_equal(l.names, ".h a ");
    assert_int_equal(rvi_os_list(in(&f->path, f, "none"), note, &l, NULL), RV_E_NOT_FOUND);
    assert_int_not_equal(rvi_os_list(in(&f->path, f, "a"), note, &l, NULL), RV_OK);
}

static void test_run(void **state)
{
    fixture *f = *state;
    int code = -1;
    rv_error err = {0};
    assert_int_equal(rvi_os_run((const char *const[]){"true", NULL}, NULL, &code, NULL), RV_OK);
    assert_int_equal(code, 0);
    assert_int_equal(
        rvi_os_run((const char *const[]){"sh", "-c", "exit 7", NULL}, NULL, &code, NULL), RV_OK);
    assert_int_equal(code, 7);
    assert_int_equal(
        rvi_os_run((const char *const[]){"sh", "-c", "kill -9 $$", NULL}, NULL, &code, NULL),
        RV_OK);
    assert_int_equal(code, 128 + 9);
    /* A missing program is a status. User-mode emulation (RUNNER, see tools/run_tests) cannot tell:
     * there the exit code alone says it. */
    rv_status st =
        rvi_os_run((const char *const[]){"no-such-program-here", NULL}, NULL, &code, &err);
    if (!getenv("RUNNER")) assert_int_equal(st, RV_E_NOT_FOUND);
    if (st) assert_non_null(strstr(err.text, "no-such-program-here"));
    assert_int_equal(code, 127);
    st = rvi_os_run((const char *const[]){"true", NULL}, "/no-such-dir", &code, &err);
    if (!getenv("RUNNER")) assert_int_equal(st, RV_E_NOT_FOUND);
    assert_int_equal(code, 127);
    assert_int_equal(rvi_os_run((const char *const[]){"sh", "-c", "test $PWD = /usr", NULL}, "/usr",
                                &code, NULL),
                     RV_OK);
    assert_int_equal(code, 0);
    /* arguments arrive as they are: no shell looks at them */
    in(&f->path, f, "x; $(touch y) 'z' \"");
    assert_int_equal(
        rvi_os_run((const char *const[]){"mkdir", f->path.data, NULL}, NULL, &code, NULL), RV_OK);
    assert_int_equal(code, 0);
    assert_int_equal(rvi_os_stat(f->path.data, NULL), RVI_OS_DIR);
}

/* The program's standard output becomes our standard error. */
static void test_run_output(void **state)
{
    fixture *f = *state;
    int code = -1;
    fflush(stdout);
    fflush(stderr);
    int saved = dup(STDERR_FILENO);
    assert_true(saved >= 0);
    FILE *file = fopen(in(&f->path, f, "err"), "w+");
    assert_non_null(file);
    assert_true(dup2(fileno(file), STDERR_FILENO) >= 0);
    rv_status st = rvi_os_run((const char *const[]){"echo", "said", NULL}, NULL, &code, NULL);
    dup2(saved, STDERR_FILENO);
    close(saved);
    assert_int_equal(st, RV_OK);
    char line[32] = "";
    rewind(file);
    assert_non_null(fgets(line, sizeof line, file));
    fclose(file);
    assert_string_equal(line, "said\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_machine),
        cmocka_unit_test_setup_teardown(test_stat, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_make_dirs, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_temp_dir, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_remove_tree, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_replace, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_replace_dir, set_up, tear_down),
        cmocka_unit_test(test_sync_reports_a_full_disk),
        cmocka_unit_test_setup_teardown(test_list, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_run, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_run_output, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("os", tests, NULL, NULL);
}
