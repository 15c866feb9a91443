/* Any bytes as what the stores of learning hold. The first byte says which: 'e', the text of an
 * event; 'l', a whole log, its records separated by "\n\n". What is accepted must read back equal
 * after writing it. */
#include <stdlib.h>
#include <string.h>

#include "learn/journal/log.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(bool ok)
{
    if (!ok) abort();
}

static void event(const char *text, size_t len)
{
    rvi_arena first = {.max = 16 << 20}, second = {.max = 16 << 20};
    rvi_buf written = {0}, again = {0};
    rvi_feedback f, g;
    rv_error err = {0};
    rv_status st = rvi_feedback_parse(&f, text, len, &first, &err);
    expect(st ? err.code == st && err.text[0] : rvi_feedback_check(&f, NULL) == RV_OK);
    if (!st) {
        expect(rvi_feedback_write(&written, &f, NULL) == RV_OK);
        expect(rvi_feedback_parse(&g, written.data, written.len, &second, NULL) == RV_OK);
        expect(rvi_feedback_write(&again, &g, NULL) == RV_OK);
        expect(written.len == again.len && !memcmp(written.data, again.data, again.len));
    }
    rvi_buf_deinit(&written);
    rvi_buf_deinit(&again);
    rvi_arena_deinit(&first);
    rvi_arena_deinit(&second);
}

static int ignore_event(void *ctx, const rvi_feedback *f)
{
    (void)ctx;
    return f->kind >= RVI_FEEDBACK_N_KINDS;
}

static void log_of(const uint8_t *data, size_t size)
{
    rvi_store s;
    rvi_feedback_report report;
    uint64_t n = 0;
    expect(rvi_store_memory(&s, NULL) == RV_OK);
    for (size_t from = 0, i = 0; i <= size; i++)
        if (i == size || (i + 1 < size && data[i] == '\n' && data[i + 1] == '\n')) {
            expect(rvi_store_append(&s, "feedback", data + from, i - from, &n, NULL) == RV_OK);
            from = ++i + 1;
        }
    expect(rvi_feedback_verify(&s, &report, NULL) == RV_OK);
    expect(report.broken && report.why[0]); /* nobody guesses a hash */
    (void)!rvi_feedback_read(&s, 1, ignore_event, NULL, NULL);
    rvi_store_close(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size) return 0;
    switch (data[0]) {
    case 'e': event((const char *)data + 1, size - 1); break;
    case 'l': log_of(data + 1, size - 1); break;
    default: break;
    }
    return 0;
}
