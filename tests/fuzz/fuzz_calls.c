/* Any bytes as an answer of any family (the first byte says which): no crash, and pieces of any
 * size say the same as the whole. */
#include <stdlib.h>
#include <string.h>

#include "calls/reader.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char tools_text[] = "[{\"name\":\"f\",\"parameters\":{\"type\":\"object\","
                                 "\"properties\":{\"a\":{\"type\":\"string\"},"
                                 "\"b\":{\"type\":\"integer\"},\"c\":{}}}},{\"name\":\"g\"}]";

typedef struct heard {
    rvi_buf log;
    int last;
} heard;

static bool hear(void *ctx, const rvi_reader_event *said)
{
    heard *h = ctx;
    bool joins = said->kind != RVI_SAID_CALL && said->kind != RVI_SAID_CALL_END;
    if (!joins || h->last != (int)said->kind) rvi_buf_printf(&h->log, "\n%d:", (int)said->kind);
    h->last = (int)said->kind;
    if (joins)
        rvi_buf_append(&h->log, said->text, said->len);
    else
        rvi_buf_printf(&h->log, "%s %s %d", said->id, said->name, said->complete);
    return true;
}

static void expect(bool ok)
{
    if (!ok) abort();
}

static void listen(rvi_reader_setup setup, const uint8_t *data, size_t size, size_t piece, heard *h)
{
    rvi_reader *r;
    *h = (heard){.last = -1};
    setup.take = hear;
    setup.ctx = h;
    expect(!rvi_reader_new(&r, &setup, NULL));
    for (size_t at = 0; at < size; at += piece)
        expect(!rvi_reader_push(r, (const char *)data + at, RVI_MIN(piece, size - at), NULL));
    expect(!rvi_reader_end(r, NULL));
    rvi_reader_free(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const rvi_thinking think = {"<think>", "</think>"};
    static rvi_tools *tools;
    if (!tools) expect(!rvi_tools_new(&tools, tools_text, strlen(tools_text), NULL));
    if (size < 2) return 0;
    rvi_reader_setup setup = {.family = rvi_family_at(data[0] % rvi_family_count()),
                              .tools = tools,
                              .thinking = data[0] & 64 ? &think : NULL,
                              .opened = data[0] & 128};
    heard whole, pieces;
    listen(setup, data + 1, size - 1, size, &whole);
    for (size_t piece = 1; piece < 8; piece += 3) {
        listen(setup, data + 1, size - 1, piece, &pieces);
        expect(whole.log.len == pieces.log.len);
        expect(!whole.log.len || !memcmp(whole.log.data, pieces.log.data, whole.log.len));
        rvi_buf_deinit(&pieces.log);
    }
    rvi_buf_deinit(&whole.log);
    return 0;
}
