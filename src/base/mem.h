/* mem.h - all heap memory comes from here: checked allocation, arenas, growing buffers with a
 * maximum.
 *
 * All sizes that come from a file go through rvi_alloc_array, which refuses overflow.
 *
 * A block remembers the allocator it came from, so it may be freed anywhere. New blocks come from
 * the allocator that the calling thread uses at that moment: every public function that allocates
 * selects its runtime's allocator on entry and restores the previous one on return. */
#ifndef RVI_BASE_MEM_H
#define RVI_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>

#include "base/compat.h"
#include "ruvllm.h"

/* Makes this thread take new blocks from a (NULL: malloc); returns what it used before. a must
 * outlive its blocks. */
const rv_allocator *rvi_mem_use(const rv_allocator *a);

/* NULL on failure and for size 0. Zeroed. */
void *rvi_zalloc(size_t size);
void *rvi_alloc_array(size_t count, size_t size);              /* not zeroed; NULL on overflow */
void *rvi_zalloc_array(size_t count, size_t size);             /* zeroed; NULL on overflow */
void *rvi_realloc_array(void *old, size_t count, size_t size); /* old stays valid on failure */
void *rvi_alloc_aligned(size_t size, size_t align);            /* align: power of two; rvi_free */
void rvi_free(void *p);                                        /* accepts NULL */
/* Bytes of all blocks that malloc gave and that are not freed; 0 where it does not say. */
size_t rvi_mem_in_use(void);
/* Calls each(ctx, from, len) for the large ones of them, which may never have been written to. */
void rvi_mem_each_large(void (*each)(void *ctx, const void *from, size_t len), void *ctx);

/* Arena: many small objects with one lifetime. The caller provides the struct: {0} is an empty
 * arena. */
typedef struct rvi_arena_block rvi_arena_block;
typedef struct rvi_arena {
    rvi_arena_block *blocks;
    size_t used, total, max; /* max 0: no limit */
} rvi_arena;

void *rvi_arena_alloc(rvi_arena *a, size_t count,
                      size_t size); /* 16-byte aligned, zeroed; or NULL */
char *rvi_arena_strndup(rvi_arena *a, const char *s, size_t len); /* terminated */
void rvi_arena_deinit(rvi_arena *a);

/* Growing byte buffer. A failed append (no memory, beyond max) sets `failed`, and every later
 * append is refused too, so a writer checks once at its end; `full` tells which of the two it was.
 * data is NULL until something is appended; from then on a 0 byte follows the len bytes. {.max = n}
 * is an empty buffer; max 0 means 1 GiB. */
typedef struct rvi_buf {
    char *data;
    size_t len, cap, max;
    bool failed, full; /* full: an append would have gone beyond max */
    bool borrowed;     /* data is the caller's storage */
} rvi_buf;

/* An empty buffer that starts in the caller's storage and moves to the heap only when that is
 * full. */
rvi_buf rvi_buf_over(char *storage, size_t size);

bool rvi_buf_reserve(rvi_buf *b, size_t more);
bool rvi_buf_append(rvi_buf *b, const void *bytes, size_t len);
bool rvi_buf_puts(rvi_buf *b, const char *text);
bool rvi_buf_putc(rvi_buf *b, char c);
bool rvi_buf_printf(rvi_buf *b, const char *fmt, ...) RVI_PRINTF(2, 3);
void rvi_buf_deinit(rvi_buf *b);

#endif
