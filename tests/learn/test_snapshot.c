/* Snapshots: round trip, removing, and every kind of damage. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/os.h"
#include "harness/assert_ok.h"
#include "learn/journal/snapshot.h"

static const uint8_t model[32] = "a model", other_model[32] = "another";
static rvi_buf dir;

static int set_up(void **state)
{
    (void)state;
    dir = (rvi_buf){0};
    return rvi_os_temp_dir(&dir, "/tmp", NULL) ? -1 : 0;
}

static int tear_down(void **state)
{
    (void)state;
    rvi_os_remove_tree(dir.data);
    rvi_buf_deinit(&dir);
    return 0;
}

static const char *file_of(char path[256], const char *name, int number)
{
    snprintf(path, 256, "%s/%s.%020d.snap", dir.data, name, number);
    return path;
}

static void save(const char *name, uint64_t number, const char *text)
{
    assert_ok(rvi_snapshot_save(dir.data, name, number, model, text, strlen(text), err));
}

static void expect_loaded(const char *name, uint64_t number, const char *text)
{
    rvi_snapshot s;
    assert_ok(rvi_snapshot_load(&s, dir.data, name, number, model, err));
    assert_int_equal(s.len, strlen(text));
    assert_memory_equal(s.data, text, s.len);
    rvi_snapshot_close(&s);
}

static void expect_none(const char *name, uint64_t number, rv_status why)
{
    rvi_snapshot s;
    assert_int_equal(rvi_snapshot_load(&s, dir.data, name, number, model, NULL), why);
    assert_null(s.data);
}

static void test_round_trip(void **state)
{
    (void)state;
    static float floats[100001];
    rvi_snapshot s;
    rv_error why = {0};
    expect_none("a", 1, RV_E_NOT_FOUND);
    for (size_t i = 0; i < RVI_COUNT(floats); i++) floats[i] = (float)i * 0.37f;
    assert_ok(rvi_snapshot_save(dir.data, "a", 1, model, floats, sizeof floats, err));
    assert_ok(rvi_snapshot_load(&s, dir.data, "a", 1, model, err));
    assert_int_equal(s.len, sizeof floats);
    assert_int_equal((uintptr_t)s.data % 64, 0);
    assert_memory_equal(s.data, floats, sizeof floats);
    assert_ok(rvi_snapshot_save(dir.data, "a", 1, model, NULL, 0, err)); /* in its place */
    assert_memory_equal(s.data, floats, sizeof floats);                  /* which is still read */
    rvi_snapshot_close(&s);
    rvi_snapshot_close(&s);
    expect_loaded("a", 1, "");
    /* neither names nor numbers mix */
    save("a-b", 1, "other");
    save("a", 2, "second");
    expect_loaded("a-b", 1, "other");
    expect_loaded("a", 1, "");
    expect_loaded("a", 2, "second");
    assert_int_equal(rvi_snapshot_load(&s, dir.data, "a", 1, other_model, &why), RV_E_ADAPTER);
    assert_non_null(strstr(why.text, "something else"));
    assert_int_equal(rvi_snapshot_save("/nowhere/at/all", "a", 1, model, "", 0, &why), RV_E_IO);
}

static void test_drop(void **state)
{
    (void)state;
    char path[256];
    for (uint64_t i = 1; i <= 4; i++) save("r", i, "text");
    save("r-s", 1, "other");
    snprintf(path, sizeof path, "%s/r.part", dir.data); /* of a writer that was killed */
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fclose(f), 0);
    rvi_snapshot_drop(dir.data, "r", 3);
    assert_int_equal(access(path, F_OK), -1);
    for (uint64_t i = 1; i <= 2; i++) expect_none("r", i, RV_E_NOT_FOUND);
    for (uint64_t i = 3; i <= 4; i++) expect_loaded("r", i, "text");
    snprintf(path, sizeof path, "%s/r.99.snap", dir.data); /* not a name that we write */
    f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fclose(f), 0);
    rvi_snapshot_drop(dir.data, "r", UINT64_MAX);
    for (uint64_t i = 3; i <= 4; i++) expect_none("r", i, RV_E_NOT_FOUND);
    assert_int_equal(access(path, F_OK), 0);
    expect_loaded("r-s", 1, "other");
}

static void flip(const char *path, long at)
{
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    int c = fgetc(f);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    assert_true(c >= 0 && fputc(c ^ 0x20, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

/* A flipped bit anywhere, any cut, another number or name: it is not loaded. */
static void test_damage(void **state)
{
    (void)state;
    char path[256], wrong[256];
    save("d", 2, "the newer one");
    file_of(path, "d", 2);
    for (long at = 0; at < 128 + 13; at++) {
        flip(path, at);
        expect_none("d", 2, RV_E_STORAGE);
        flip(path, at);
    }
    expect_loaded("d", 2, "the newer one");
    assert_int_equal(rename(path, file_of(wrong, "d", 3)), 0);
    expect_none("d", 3, RV_E_STORAGE);
    assert_int_equal(rename(wrong, file_of(path, "e", 2)), 0);
    expect_none("e", 2, RV_E_STORAGE);
    for (long len = 128 + 12; len > 0; len -= 7) {
        assert_int_equal(truncate(path, len), 0);
        expect_none("e", 2, RV_E_STORAGE);
    }
    save("e", 2, "after all"); /* and it goes on */
    expect_loaded("e", 2, "after all");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_round_trip, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_drop, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_damage, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("snapshots", tests, NULL, NULL);
}
