/* Without memory a request is refused, wherever it runs out, and nothing leaks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "harness/fail_alloc.h"
#include "server/http.h"

static void sweep(void **state)
{
    (void)state;
    static const rvi_http_limits limits = {.head = 8192, .line = 4096, .body = 1 << 20};
    char text[6000];
    int len = snprintf(text, sizeof text,
                       "POST /%01000d HTTP/1.1\r\nHost: %01000d\r\n"
                       "Transfer-Encoding: chunked\r\n\r\nbb8\r\n%03000d\r\n0\r\n\r\n",
                       0, 0, 0);
    for (long n = 0;; n++) {
        rvi_http h = rvi_http_init(&limits);
        fail_alloc_after(n);
        (void)rvi_http_feed(&h, text, (size_t)len);
        bool done = !fail_alloc_off();
        assert_int_equal(h.state, done ? RVI_HTTP_WHOLE : RVI_HTTP_BAD);
        assert_int_equal(h.status, done ? 0 : 503);
        rvi_http_deinit(&h);
        if (done) break;
        assert_true(n < 100);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sweep)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
