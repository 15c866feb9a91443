/* Any bytes as a stream of HTTP requests: no crash, the same requests whole and in pieces, no text
 * with a character that a header may not have, no body over the limit. The first byte is the size
 * of the pieces. */
#include <stdlib.h>
#include <string.h>

#include "server/http.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const rvi_http_limits limits = {.head = 4096, .line = 1024, .body = 8192};

static void expect(bool ok)
{
    if (!ok) abort();
}

static void check_text(const char *text)
{
    for (; *text; text++) expect(((unsigned char)*text >= ' ' && *text != 0x7F) || *text == '\t');
}

static void note(const rvi_http *h, rvi_buf *out)
{
    rvi_buf_printf(out, "%d %d %d", h->state, h->status, h->n_headers);
    if (h->state != RVI_HTTP_WHOLE) return;
    check_text(h->method);
    check_text(h->path);
    check_text(h->query);
    check_text(h->host);
    rvi_buf_printf(out, " %s %s %s %s ", h->method, h->path, h->query, h->host);
    for (int i = 0; i < h->n_headers; i++) {
        const char *value = h->head.data + h->headers[i].value;
        expect(strlen(value) == h->headers[i].value_len);
        check_text(value);
        rvi_buf_puts(out, value);
    }
    expect(h->body.len <= limits.body);
    rvi_buf_append(out, h->body.data, h->body.len);
}

static void read_all(const char *bytes, size_t n, size_t piece, rvi_buf *out)
{
    rvi_http h = rvi_http_init(&limits);
    for (size_t at = 0; at < n && h.state != RVI_HTTP_BAD;) {
        size_t len = RVI_MIN(piece, n - at), used = rvi_http_feed(&h, bytes + at, len);
        expect(used == len || h.state >= RVI_HTTP_WHOLE);
        at += used;
        if (h.state < RVI_HTTP_WHOLE) continue;
        note(&h, out);
        expect((h.state == RVI_HTTP_BAD) == (h.status != 0));
        if (h.state == RVI_HTTP_WHOLE) rvi_http_next(&h);
    }
    rvi_http_deinit(&h);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size) return 0;
    const char *bytes = (const char *)data + 1;
    rvi_buf whole = {0}, pieces = {0};
    read_all(bytes, size - 1, size, &whole);
    read_all(bytes, size - 1, (size_t)data[0] % 64 + 1, &pieces);
    expect(whole.len == pieces.len);
    expect(!whole.len || !memcmp(whole.data, pieces.data, whole.len));
    rvi_buf_deinit(&whole);
    rvi_buf_deinit(&pieces);
    return 0;
}
