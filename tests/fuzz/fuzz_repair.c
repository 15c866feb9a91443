/* Any bytes as JSON to mend: no crash, pieces give the same text, and what comes out of UTF-8 is
 * JSON, which is mended no more. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/utf8.h"
#include "text/repair.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(bool ok)
{
    if (!ok) abort();
}

static void count(void *ctx, const char *what, size_t offset)
{
    (void)what;
    (void)offset;
    ++*(size_t *)ctx;
}

static rv_status mend(const char *text, size_t len, size_t piece, rvi_buf *out, size_t *n)
{
    rvi_mender *m;
    *n = 0;
    expect(!rvi_mender_new(&m, count, n, NULL));
    rv_status st = RV_OK;
    for (size_t at = 0; at < len && !st; at += piece)
        st = rvi_mender_push(m, text + at, RVI_MIN(piece, len - at), out, NULL);
    if (!st) st = rvi_mender_end(m, out, NULL);
    rvi_mender_free(m);
    return st;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    rvi_buf whole = {0}, pieces = {0}, again = {0};
    rvi_arena arena = {0};
    const rvi_json *v;
    size_t n, n_pieces;
    rv_status st = mend(text, size, size + 1, &whole, &n);
    expect(mend(text, size, 3, &pieces, &n_pieces) == st && n == n_pieces);
    expect(whole.len == pieces.len && (!n || !memcmp(whole.data, pieces.data, whole.len)));
    if (!st && !rvi_json_parse(&v, whole.data, whole.len, &arena, "mended", NULL)) {
        expect(!mend(whole.data, whole.len, 5, &again, &n) && !n);
        expect(again.len == whole.len && !memcmp(again.data, whole.data, again.len));
    } else if (!st) {
        bool utf8 = true; /* bytes that are none are not mended */
        for (size_t i = 0; i < size; i++) utf8 = utf8 && data[i] < 0x80;
        expect(!utf8);
    }
    rvi_arena_deinit(&arena);
    rvi_buf_deinit(&whole);
    rvi_buf_deinit(&pieces);
    rvi_buf_deinit(&again);
    return 0;
}
