/* Any bytes as what the stores of learning hold. The first byte says which: 'e', the text of an
 * event; 'p', a pattern; 'l', a whole log, its records separated by "\n\n"; 'f', a feedback text to
 * fold. What is accepted must read back equal after writing it. */
#include <stdlib.h>
#include <string.h>

#include "learn/bank.h"
#include "learn/text.h"

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

static void pattern(const uint8_t *data, size_t size)
{
    static float vector[RVI_PATTERN_MAX_DIM];
    rvi_pattern p;
    rvi_buf written = {0};
    rv_error err = {0};
    rvi_pattern_keys keys;
    rv_status st = rvi_pattern_parse(&p, (rvi_bytes){data, size}, vector, &err);
    expect(st ? err.code == st && err.text[0] : true);
    if (!st) {
        expect(rvi_pattern_write(&written, &p, NULL) == RV_OK);
        expect(written.len == size && !memcmp(written.data, data, size));
        expect(rvi_pattern_keys_of(&keys, &p, NULL) == RV_OK);
        rvi_pattern *copy = rvi_pattern_copy(&p, false);
        expect(copy && rvi_pattern_check(copy, NULL) == RV_OK);
        rvi_free(copy);
    }
    rvi_buf_deinit(&written);
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
    rvi_text text = {(const char *)data + 1, size - 1};
    switch (data[0]) {
    case 'e': event(text.data, text.len); break;
    case 'p': pattern(data + 1, size - 1); break;
    case 'l': log_of(data + 1, size - 1); break;
    case 'f': {
        rvi_buf once = {0}, twice = {0};
        bool yes;
        expect(rvi_text_fold(&once, text));
        expect(rvi_text_fold(&twice, (rvi_text){once.data, once.len}));
        expect(twice.len <= once.len);
        expect(rvi_text_has_words(&yes, text, text, NULL) == RV_OK);
        expect(yes == (once.len > 0));
        rvi_buf_deinit(&once);
        rvi_buf_deinit(&twice);
        break;
    }
    default: break;
    }
    return 0;
}
