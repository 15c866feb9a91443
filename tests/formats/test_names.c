/* The name table: found, repeated, and refused when names are made to collide. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "formats/names.h"
#include "gguf_builder.h"

static void test_add_and_find(void **state)
{
    (void)state;
    enum { N = 1000 };
    static char names[N][16];
    rvi_arena arena = {0};
    rvi_name_table t;
    uint32_t index;
    assert_true(rvi_names_init(&t, &arena, 0));
    assert_false(rvi_names_find(&t, "x", &index));
    assert_true(rvi_names_init(&t, &arena, N));
    for (int i = 0; i < N; i++) {
        snprintf(names[i], sizeof names[i], "%d", i);
        assert_int_equal(rvi_names_add(&t, names[i], (uint32_t)i), RVI_NAMES_ADDED);
    }
    for (uint32_t i = 0; i < N; i++) {
        assert_true(rvi_names_find(&t, names[i], &index));
        assert_int_equal(index, i);
        assert_int_equal(rvi_names_add(&t, names[i], 7), RVI_NAMES_REPEATED);
    }
    assert_false(rvi_names_find(&t, "1000", &index));
    assert_false(rvi_names_find(&t, "", &index));
    rvi_arena_deinit(&arena);
}

static void test_validity(void **state)
{
    (void)state;
    assert_true(rvi_name_is_valid("", 0));
    assert_true(rvi_name_is_valid("a.b\xC3\xBC", 5));
    assert_false(rvi_name_is_valid("a\0b", 3));
    assert_false(rvi_name_is_valid("\xC3", 1));
    assert_false(rvi_name_is_valid("\xED\xA0\x80", 3)); /* a surrogate */
}

/* The hash of a name, as a table stores it. */
static uint32_t hash_of(const char *name)
{
    rvi_name_slot slots[4] = {{0}};
    rvi_name_table t = {slots, 4};
    assert_int_equal(rvi_names_add(&t, name, 0), RVI_NAMES_ADDED);
    for (int i = 0; i < 4; i++)
        if (slots[i].name) return slots[i].hash;
    fail();
    return 0;
}

/* Names sought so that all of them want one slot of the table. */
static void test_collisions(void **state)
{
    (void)state;
    enum { N = 300 };
    gguf_builder b = {.version = 3};
    rvi_buf bytes = {0};
    char name[32];
    for (unsigned i = 0; b.n_values < N; i++) {
        snprintf(name, sizeof name, "k%u", i);
        if ((hash_of(name) & 1023) == 5) gb_u8(&b, name, 1);
    }
    gb_finish(&b, &bytes);
    rvi_blob blob;
    rvi_gguf *g;
    rv_error err = {0};
    rvi_blob_from_memory(&blob, bytes.data, bytes.len);
    assert_int_equal(rvi_gguf_open_blob(&g, &blob, "test.gguf", &err), RV_E_MODEL);
    assert_non_null(strstr(err.text, "same hash"));
    rvi_buf_deinit(&bytes);
    gb_deinit(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_add_and_find),
        cmocka_unit_test(test_validity),
        cmocka_unit_test(test_collisions),
    };
    return cmocka_run_group_tests_name("names", tests, NULL, NULL);
}
