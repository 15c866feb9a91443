/* toy_tokenizer.h - a byte-level BPE tokenizer that knows some ordinary words as single pieces, in
 * the order of the list, so that everything else falls into letters and is rare. */
#ifndef TESTS_LEARN_TOY_TOKENIZER_H
#define TESTS_LEARN_TOY_TOKENIZER_H

#include <stdio.h>
#include <string.h>

#include "tokenizer/tokenizer.h"

static const char *const toy_words[] = {
    "the",       "is",        "of",         "what",    "in",      "a",      "who",     "where",
    "dog",       "job",       "name",       "live",    "play",    "colour", "film",    "age",
    "city",      "capital",   "tea",        "make",    "good",    "water",  "key",     "brother",
    "car",       "tree",      "instrument", "musical", "banjo",   "violin", "blue",    "Anna",
    "Oslo",      "Denver",    "Monday",     "mother",  "bicycle", "work",   "animal",  "ship",
    "breakfast", "favourite", "hobby",      "chess",   "plumber", "street", "password"};

/* Letters of a piece in the file: a space is written as the mark that byte-level BPE gives it. */
static inline void toy_piece(rvi_buf *b, const char *word, size_t len)
{
    rvi_buf_puts(b, "\xC4\xA0");
    rvi_buf_append(b, word, len);
}

static inline rvi_tokenizer *toy_tokenizer(void)
{
    rvi_buf b = {0}, merges = {0};
    rvi_tokenizer *t = NULL;
    rv_error err = {0};
    int id = 0;
    rvi_buf_puts(&b,
                 "{\"version\":\"1.0\",\"added_tokens\":[],\"normalizer\":null,"
                 "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
                 "\"trim_offsets\":true,\"use_regex\":true},\"post_processor\":null,"
                 "\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\",\"vocab\":{");
    for (int c = 33; c < 127; c++)
        rvi_buf_printf(&b, "%s\"%s%c\":%d", id ? "," : "", c == '"' || c == '\\' ? "\\" : "", c,
                       id),
            id++;
    for (int c = 0x100; c < 0x144; c++) /* the other bytes */
        rvi_buf_printf(&b, ",\"\\u%04X\":%d", (unsigned)c, id++);
    for (int c = 0xA1; c < 0x100; c++)
        if (c != 0xAD) rvi_buf_printf(&b, ",\"\\u%04X\":%d", (unsigned)c, id++);
    for (size_t i = 0; i < RVI_COUNT(toy_words); i++) {
        const char *w = toy_words[i];
        for (size_t n = 1; n <= strlen(w); n++) {
            bool known = false; /* as the beginning of an earlier word */
            for (size_t k = 0; k < i && !known; k++) known = !strncmp(toy_words[k], w, n);
            if (known) continue;
            rvi_buf_puts(&b, ",\"");
            toy_piece(&b, w, n);
            rvi_buf_printf(&b, "\":%d", id++);
            rvi_buf_puts(&merges, merges.len ? ",\"" : "\"");
            if (n == 1)
                rvi_buf_puts(&merges, "\xC4\xA0");
            else
                toy_piece(&merges, w, n - 1);
            rvi_buf_printf(&merges, " %c\"", w[n - 1]);
        }
    }
    rvi_buf_printf(&b, "},\"merges\":[%s]}}", merges.data);
    rvi_tokenizer_files files = {.tokenizer = b.data, .tokenizer_len = b.len};
    if (rvi_tokenizer_from_json(&t, &files, NULL, &err))
        fprintf(stderr, "toy tokenizer: %s\n", err.text);
    rvi_buf_deinit(&b);
    rvi_buf_deinit(&merges);
    return t;
}

#endif
