/* Requests as bytes: each is read whole, cut in two at every place, and byte by byte, with the same
 * result; what two readers could understand differently is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "server/http.h"

static const rvi_http_limits limits = {.head = 2000, .line = 300, .body = 1000};

/* What was read of a stream: one line a request. */
static void read_stream(const char *bytes, size_t n, size_t first, size_t step, rvi_buf *out)
{
    rvi_http h = rvi_http_init(&limits);
    size_t at = 0, piece = first;
    while (at < n) {
        piece = piece < n - at ? piece : n - at;
        char *copy = rvi_alloc_array(piece ? piece : 1, 1); /* a sanitizer sees its end */
        assert_non_null(copy);
        memcpy(copy, bytes + at, piece);
        size_t used = rvi_http_feed(&h, copy, piece);
        rvi_free(copy);
        at += used;
        if (h.state == RVI_HTTP_BAD) {
            rvi_buf_printf(out, "%d\n", h.status);
            assert_true(*h.why);
            break;
        }
        if (h.state == RVI_HTTP_WHOLE) {
            rvi_buf_printf(out, "%s %s [%s] %s %s '%s'", h.method, h.path, h.query, h.host,
                           h.keep_alive ? "keep" : "close",
                           h.body.data && h.body.len ? h.body.data : "");
            rvi_buf_printf(out, " %d%s\n", h.n_headers, h.expects_continue ? " continue" : "");
            rvi_http_next(&h);
            assert_false(rvi_http_begun(&h));
        } else {
            assert_true(used == piece);
        }
        piece = step;
    }
    if (h.state < RVI_HTTP_WHOLE && rvi_http_begun(&h)) rvi_buf_puts(out, "more\n");
    rvi_http_deinit(&h);
}

static void expect_n(const char *bytes, size_t n, const char *wanted)
{
    for (size_t cut = 0; cut <= n + 1; cut++) {
        rvi_buf out = {0};
        if (cut <= n)
            read_stream(bytes, n, cut, n, &out);
        else
            read_stream(bytes, n, 1, 1, &out);
        rvi_buf_puts(&out, "");
        if (strcmp(out.data ? out.data : "", wanted))
            fail_msg("%s\ncut at %zu: got %s, wanted %s", bytes, cut, out.data, wanted);
        rvi_buf_deinit(&out);
    }
}

static void expect(const char *bytes, const char *wanted)
{
    expect_n(bytes, strlen(bytes), wanted);
}

#define HOST "Host: a\r\n"

static void good_requests(void **state)
{
    (void)state;
    expect("GET / HTTP/1.1\r\n" HOST "\r\n", "GET / [] a keep '' 1\n");
    expect("GET /a/b?x=1&y HTTP/1.1\r\nhOsT: \t b:80 \r\n\r\n",
           "GET /a/b [x=1&y] b:80 keep '' 1\n");
    expect("GET / HTTP/1.0\r\n\r\n", "GET / []  close '' 0\n");
    expect("GET / HTTP/1.0\r\nConnection: foo, Keep-Alive\r\n\r\n", "GET / []  keep '' 1\n");
    expect("GET / HTTP/1.1\r\n" HOST "Connection: Close\r\n\r\n", "GET / [] a close '' 2\n");
    expect("POST / HTTP/1.1\r\n" HOST "Content-Length: 5\r\n\r\nhello",
           "POST / [] a keep 'hello' 2\n");
    expect("POST / HTTP/1.1\r\n" HOST "Content-Length: 0\r\n\r\n", "POST / [] a keep '' 2\n");
    expect("POST / HTTP/1.1\r\n" HOST "Expect: 100-Continue\r\nContent-Length: 1\r\n\r\nx",
           "POST / [] a keep 'x' 3 continue\n");
    expect("OPTIONS * HTTP/1.1\r\n" HOST "\r\n", "OPTIONS * [] a keep '' 1\n");
    expect("GET http://b:8/p?q HTTP/1.1\r\n" HOST "\r\n", "GET /p [q] b:8 keep '' 1\n");
    expect("\r\nGET / HTTP/1.1\r\n" HOST "\r\n", "GET / [] a keep '' 1\n");
    expect("GET / HTTP/1.1\r\n" HOST "X:\r\nY: caf\xc3\xa9 \"\r\n\r\n", "GET / [] a keep '' 3\n");
}

static void chunked_bodies(void **state)
{
    (void)state;
#define CHUNKED "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: Chunked\r\n\r\n"
    expect(CHUNKED "0\r\n\r\n", "POST / [] a keep '' 2\n");
    expect(CHUNKED "3\r\nabc\r\n00A;x=\"y z\"\r\n0123456789\r\n0 ; e\r\nTrailer: t\r\n\r\n",
           "POST / [] a keep 'abc0123456789' 2\n");
    expect(CHUNKED "5\r\n\r\n\r\n\n\r\n0\r\n\r\n", "POST / [] a keep '\r\n\r\n\n' 2\n");
    expect(CHUNKED "3\r\nabcd\r\n", "400\n");
    expect(CHUNKED "3\r\nabc0\r\n", "400\n");
    expect(CHUNKED "\r\n", "400\n");
    expect(CHUNKED "x\r\n", "400\n");
    expect(CHUNKED "0x3\r\n", "400\n");
    expect(CHUNKED "-1\r\n", "400\n");
    expect(CHUNKED " 1\r\n", "400\n");
    expect(CHUNKED "1 \r\n", "400\n");
    expect(CHUNKED "1\n", "400\n");
    expect(CHUNKED "3e9\r\n", "413\n");
    expect(CHUNKED "10000000000000000\r\n", "413\n");
    expect(CHUNKED "ffffffffffffffff\r\n", "413\n");
    expect(CHUNKED "1\r\na\r\n3e8\r\n", "413\n");
    expect(CHUNKED "0\r\nbad trailer\r\n\r\n", "400\n");
    expect(CHUNKED "0\r\n folded: x\r\n\r\n", "400\n");
}

static void pipelined_requests(void **state)
{
    (void)state;
    expect("POST /1 HTTP/1.1\r\n" HOST "Content-Length: 2\r\n\r\nab"
           "GET /2 HTTP/1.1\r\n" HOST "\r\n"
           "POST /3 HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n"
           "GET /4 HTTP/1.1\r\n" HOST "\r\nGE",
           "POST /1 [] a keep 'ab' 2\nGET /2 [] a keep '' 1\nPOST /3 [] a keep 'x' 2\n"
           "GET /4 [] a keep '' 1\nmore\n");
    expect("GET /1 HTTP/1.1\r\n" HOST "\r\nnonsense\r\n", "GET /1 [] a keep '' 1\n400\n");
}

static void bad_lines(void **state)
{
    (void)state;
    static const char *const starts[] = {
        "GET / HTTP/1.1\n",
        "GET / HTTP/1.1\rX",
        "GET  / HTTP/1.1\r\n",
        "GET /  HTTP/1.1\r\n",
        " GET / HTTP/1.1\r\n",
        "GET / HTTP/1.1 \r\n",
        "GET /\r\n",
        "GET\r\n",
        "G(T / HTTP/1.1\r\n",
        "GET x HTTP/1.1\r\n",
        "GET /\x01 HTTP/1.1\r\n",
        "GET /\x7f HTTP/1.1\r\n",
        "GET /\xc3\xa9 HTTP/1.1\r\n",
        "GET /#f HTTP/1.1\r\n",
        "GET / http/1.1\r\n",
        "GET / HTTP/1.11\r\n",
        "GET / HTTP/11\r\n",
        "GET * HTTP/1.1\r\n",
        "GET http:///p HTTP/1.1\r\n",
        "GET http://h HTTP/1.1\r\n",
        "GET https://h/ HTTP/1.1\r\n",
        "\r\n\r\n",
        "\n",
        "\x16\x03\x01",
        "GET\t/ HTTP/1.1\r\n",
    };
    for (size_t i = 0; i < RVI_COUNT(starts); i++) expect(starts[i], "400\n");
    expect("GET / HTTP/2.0\r\n", "505\n");
    expect("GET / HTTP/1.2\r\n", "505\n");
    expect("GET / HTTP/0.9\r\n", "505\n");
    expect_n("GET /\0 HTTP/1.1\r\n", 18, "400\n");
}

static void bad_headers(void **state)
{
    (void)state;
#define GET "GET / HTTP/1.1\r\n"
    static const char *const heads[] = {
        GET "\r\n",
        GET HOST "Host: a\r\n\r\n",
        GET "Host : a\r\n",
        GET ": a\r\n",
        GET HOST " folded\r\n",
        GET HOST "no colon\r\n",
        GET HOST "X: a\nY: b\r\n",
        GET HOST "X: a\rb\r\n",
        GET HOST "X: \x01\r\n",
        GET HOST "X: \x7f\r\n",
        GET HOST "X\xc3\xa9: a\r\n",
        GET HOST "Content-Length: 1\r\nContent-Length: 1\r\n\r\n",
        GET HOST "Content-Length: 1\r\nContent-Length: 2\r\n\r\n",
        GET HOST "Content-Length: 1, 1\r\n\r\n",
        GET HOST "Content-Length: +1\r\n\r\n",
        GET HOST "Content-Length: -1\r\n\r\n",
        GET HOST "Content-Length: 0x1\r\n\r\n",
        GET HOST "Content-Length:\r\n\r\n",
        GET HOST "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        GET HOST "Transfer-Encoding: xchunked\r\n\r\n",
        GET HOST "Transfer-Encoding: gzip, chunked\r\n\r\n",
        GET HOST "Transfer-Encoding: chunked, chunked\r\n\r\n",
        GET HOST "Transfer-Encoding: identity\r\n\r\n",
        GET HOST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
        "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
    };
    for (size_t i = 0; i < RVI_COUNT(heads); i++) expect(heads[i], "400\n");
    expect_n(GET "X: a\0b\r\n", strlen(GET) + 8, "400\n");
    expect(GET HOST "Expect: miracles\r\n\r\n", "417\n");
    expect(GET HOST "Content-Length: 1001\r\n\r\n", "413\n");
    expect(GET HOST "Content-Length: 99999999999999999999999\r\n\r\n", "413\n");
}

static void too_long(void **state)
{
    (void)state;
    char text[8000];
    int at = snprintf(text, sizeof text, "GET /%0400d HTTP/1.1\r\n" HOST "\r\n", 0);
    expect_n(text, (size_t)at, "414\n");
    at = snprintf(text, sizeof text, GET HOST "X: %02100d\r\n\r\n", 0);
    expect_n(text, (size_t)at, "431\n");
    at = snprintf(text, sizeof text, GET HOST);
    for (int i = 0; i < 110; i++) at += snprintf(text + at, sizeof text - (size_t)at, "a:b\r\n");
    expect_n(text, (size_t)at, "431\n");
    at = snprintf(text, sizeof text, CHUNKED "1;%0300d\r\n", 0);
    expect_n(text, (size_t)at, "400\n");
    at = snprintf(text, sizeof text, CHUNKED "0\r\nX: %02100d\r\n\r\n", 0);
    expect_n(text, (size_t)at, "431\n");
}

static void headers_by_name(void **state)
{
    (void)state;
    static const char text[] = GET HOST "X-Key:  one two \t\r\nx-key: second\r\n\r\n";
    rvi_http h = rvi_http_init(&limits);
    assert_int_equal(rvi_http_feed(&h, text, strlen(text)), strlen(text));
    assert_int_equal(h.state, RVI_HTTP_WHOLE);
    assert_string_equal(rvi_http_header_get(&h, "x-kEY"), "one two");
    assert_null(rvi_http_header_get(&h, "x-ke"));
    assert_null(rvi_http_header_get(&h, "x-key2"));
    /* what follows is not looked at before the next request is asked for */
    assert_int_equal(rvi_http_feed(&h, text, strlen(text)), 0);
    rvi_http_deinit(&h);
    assert_string_equal(rvi_http_reason(404), "Not Found");
}

static void escapes(void **state)
{
    static const char *const cases[][3] = {{"a%2Fb%2f%C3%A9", "a/b/\xC3\xA9", "a/b/\xC3\xA9"},
                                           {"1+1%2B", "1+1+", "1 1+"},
                                           {"%", "%", "%"},
                                           {"%2", "%2", "%2"},
                                           {"%zz%00%", "%zz%00%", "%zz%00%"},
                                           {"%2525", "%25", "%25"}};
    (void)state;
    for (size_t i = 0; i < RVI_COUNT(cases); i++)
        for (int plus = 0; plus < 2; plus++) {
            char text[32];
            snprintf(text, sizeof text, "%s", cases[i][0]);
            rvi_http_unescape(text, plus);
            assert_string_equal(text, cases[i][1 + plus]);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_requests),      cmocka_unit_test(chunked_bodies),
        cmocka_unit_test(pipelined_requests), cmocka_unit_test(bad_lines),
        cmocka_unit_test(bad_headers),        cmocka_unit_test(too_long),
        cmocka_unit_test(headers_by_name),    cmocka_unit_test(escapes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
