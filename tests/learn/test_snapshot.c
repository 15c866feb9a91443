/* Snapshots: round trip, the ring, and every kind of damage. */
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

static void save(const char *name, uint64_t generation, const char *text)
{
    assert_ok(rvi_snapshot_save(dir.data, name, model, generation, text, strlen(text), NULL, err));
}

static void expect_loaded(const char *name, uint64_t number, const char *text, size_t n_damaged)
{
    rvi_snapshot s;
    assert_ok(rvi_snapshot_load(&s, dir.data, name, model, 0, err));
    assert_int_equal(s.number, number);
    assert_int_equal(s.len, strlen(text));
    assert_memory_equal(s.data, text, s.len);
    assert_int_equal(s.n_damaged, n_damaged);
    rvi_snapshot_close(&s);
}

static void test_round_trip(void **state)
{
    (void)state;
    static float floats[100001];
    uint64_t number;
    rvi_snapshot s;
    rv_error why = {0};
    assert_int_equal(rvi_snapshot_load(&s, dir.data, "a", model, 0, &why), RV_E_NOT_FOUND);
    for (size_t i = 0; i < RVI_COUNT(floats); i++) floats[i] = (float)i * 0.37f;
    assert_ok(rvi_snapshot_save(dir.data, "a", model, 42, floats, sizeof floats, &number, err));
    assert_int_equal(number, 1);
    assert_ok(rvi_snapshot_load(&s, dir.data, "a", model, 0, err));
    assert_int_equal(s.len, sizeof floats);
    assert_int_equal((uintptr_t)s.data % 64, 0);
    assert_memory_equal(s.data, floats, sizeof floats);
    assert_int_equal(s.generation, 42);
    rvi_snapshot_close(&s);
    rvi_snapshot_close(&s);
    assert_ok(rvi_snapshot_save(dir.data, "a", model, 43, NULL, 0, &number, err));
    assert_int_equal(number, 2);
    expect_loaded("a", 2, "", 0);
    /* names do not mix */
    save("a-b", 1, "other");
    expect_loaded("a-b", 1, "other", 0);
    expect_loaded("a", 2, "", 0);
    assert_int_equal(rvi_snapshot_load(&s, dir.data, "a", other_model, 0, &why), RV_E_ADAPTER);
    assert_non_null(strstr(why.text, "another model"));
    assert_int_equal(rvi_snapshot_save(dir.data, "../a", model, 0, "", 0, NULL, &why),
                     RV_E_INVALID);
    assert_int_equal(rvi_snapshot_save(dir.data, "", model, 0, "", 0, NULL, &why), RV_E_INVALID);
    assert_int_equal(rvi_snapshot_save("/nowhere/at/all", "a", model, 0, "", 0, NULL, &why),
                     RV_E_NOT_FOUND);
}

static void test_ring(void **state)
{
    (void)state;
    rvi_snapshot s;
    char text[32], path[256];
    for (int i = 1; i <= 12; i++) {
        snprintf(text, sizeof text, "contents %d", i);
        save("r", (uint64_t)i, text);
        expect_loaded("r", (uint64_t)i, text, 0);
    }
    for (int i = 1; i <= 12; i++)
        assert_int_equal(access(file_of(path, "r", i), F_OK), i > 12 - RVI_SNAPSHOT_RING ? 0 : -1);
    assert_ok(rvi_snapshot_load(&s, dir.data, "r", model, 7, err)); /* a chosen one */
    assert_memory_equal(s.data, "contents 7", 10);
    assert_int_equal(s.generation, 7);
    rvi_snapshot_close(&s);
    assert_int_equal(rvi_snapshot_load(&s, dir.data, "r", model, 4, NULL), RV_E_NOT_FOUND);
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

/* A flipped bit anywhere, or any cut, and the older one is loaded. */
static void test_damage(void **state)
{
    (void)state;
    char path[256];
    rvi_snapshot s;
    rv_error why = {0};
    save("d", 1, "the older one");
    save("d", 2, "the newer one");
    file_of(path, "d", 2);
    for (long at = 0; at < 128 + 13; at++) {
        flip(path, at);
        expect_loaded("d", 1, "the older one", 1);
        flip(path, at);
    }
    expect_loaded("d", 2, "the newer one", 0);
    for (long len = 128 + 12; len >= 0; len -= 7) {
        assert_int_equal(truncate(path, len), 0);
        expect_loaded("d", 1, "the older one", 1);
    }
    assert_int_equal(rvi_snapshot_load(&s, dir.data, "d", model, 2, &why), RV_E_STORAGE);
    char wrong[256]; /* a good one under another number or name */
    assert_int_equal(rename(file_of(path, "d", 1), file_of(wrong, "d", 3)), 0);
    assert_int_equal(rvi_snapshot_load(&s, dir.data, "d", model, 0, &why), RV_E_STORAGE);
    assert_non_null(strstr(why.text, "all snapshots are damaged"));
    assert_int_equal(rename(wrong, file_of(path, "e", 1)), 0);
    assert_int_equal(rvi_snapshot_load(&s, dir.data, "e", model, 0, &why), RV_E_STORAGE);
    save("d", 3, "after all"); /* and it goes on */
    expect_loaded("d", 3, "after all", 0);
}

static void test_leftovers(void **state)
{
    (void)state;
    char path[256];
    snprintf(path, sizeof path, "%s/l.part", dir.data);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fclose(f), 0);
    snprintf(path, sizeof path, "%s/l.99.snap", dir.data); /* not a name that we write */
    f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fclose(f), 0);
    save("l", 1, "text");
    expect_loaded("l", 1, "text", 0);
    assert_int_equal(access(path, F_OK), 0);
    snprintf(path, sizeof path, "%s/l.part", dir.data);
    assert_int_equal(access(path, F_OK), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_round_trip, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_ring, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_damage, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_leftovers, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("snapshots", tests, NULL, NULL);
}
