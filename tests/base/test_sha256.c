/* SHA-256 against the published examples of FIPS 180 and of its validation system (SHA256
 * ShortMsg), in one piece and cut at every byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/compat.h"
#include "base/sha256.h"

static const struct {
    const char *message, *digest;
} vectors[] = {
    {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
    {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
    {"\xd3", "28969cdfa74a12c82f3bad960b0b000aca2ac329deea5c2328ebc6f2ba9802c1"},
    {"\x11\xaf", "5ca7133fa735326081558ac312c620eeca9970d1e70a4b95533d956f072d1f98"},
    {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
     "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
    {"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmn"
     "hijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu",
     "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"},
};

static void test_published(void **state)
{
    (void)state;
    for (size_t i = 0; i < RVI_COUNT(vectors); i++) {
        size_t len = strlen(vectors[i].message);
        for (size_t cut = 0; cut <= len; cut++) {
            rvi_sha256 h;
            char hex[RVI_SHA256_HEX];
            rvi_sha256_init(&h);
            rvi_sha256_add(&h, vectors[i].message, cut);
            rvi_sha256_add(&h, vectors[i].message + cut, len - cut);
            rvi_sha256_end_hex(&h, hex);
            assert_string_equal(hex, vectors[i].digest);
        }
    }
}

/* A million letters 'a', in pieces of every size from 0 to 150. */
static void test_million(void **state)
{
    (void)state;
    char letters[150];
    memset(letters, 'a', sizeof letters);
    rvi_sha256 h;
    char hex[RVI_SHA256_HEX];
    rvi_sha256_init(&h);
    for (size_t left = 1000000, piece = 0; left; piece = (piece + 1) % (sizeof letters + 1)) {
        size_t n = piece < left ? piece : left;
        rvi_sha256_add(&h, letters, n);
        left -= n;
    }
    rvi_sha256_end_hex(&h, hex);
    assert_string_equal(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

/* Zero bytes around the lengths at which the padding takes another block. */
static void test_padding(void **state)
{
    (void)state;
    static const struct {
        size_t n;
        const char *digest;
    } zeros[] = {
        {55, "02779466cdec163811d078815c633f21901413081449002f24aa3e80f0b88ef7"},
        {56, "d4817aa5497628e7c77e6b606107042bbba3130888c5f47a375e6179be789fbb"},
        {57, "65a16cb7861335d5ace3c60718b5052e44660726da4cd13bb745381b235a1785"},
        {64, "f5a5fd42d16a20302798ef6ed309979b43003d2320d9f0e8ea9831a92759fb4b"},
        {1000, "541b3e9daa09b20bf85fa273e5cbd3e80185aa4ec298e765db87742b70138a53"},
    };
    static const uint8_t bytes[1000];
    for (size_t i = 0; i < RVI_COUNT(zeros); i++) {
        rvi_sha256 h;
        char hex[RVI_SHA256_HEX];
        rvi_sha256_init(&h);
        rvi_sha256_add(&h, bytes, zeros[i].n);
        rvi_sha256_end_hex(&h, hex);
        assert_string_equal(hex, zeros[i].digest);
    }
}

/* A number is its eight bytes, lowest first; nothing at all may be added. */
static void test_numbers(void **state)
{
    (void)state;
    static const uint8_t bytes[8] = {0x08, 0x07, 0x06, 0x05, 0x04, 0x03, 0x02, 0x01};
    rvi_sha256 a, b;
    uint8_t x[RVI_SHA256_LEN], y[RVI_SHA256_LEN];
    rvi_sha256_init(&a);
    rvi_sha256_init(&b);
    rvi_sha256_add_u64(&a, 0x0102030405060708u);
    rvi_sha256_add(&b, bytes, sizeof bytes);
    rvi_sha256_add(&b, NULL, 0);
    rvi_sha256_end(&a, x);
    rvi_sha256_end(&b, y);
    assert_memory_equal(x, y, sizeof x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published),
        cmocka_unit_test(test_million),
        cmocka_unit_test(test_padding),
        cmocka_unit_test(test_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
