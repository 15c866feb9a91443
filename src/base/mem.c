#include "base/mem.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "base/number.h"

/* Blocks of MAPPED bytes and more are mapped one by one, so that they go back to the system when
 * they are freed: malloc keeps what it was given back, and maps larger blocks alone the more of
 * them it has seen. Sanitizers want to see every block. */
#if defined(__linux__) && !defined(__SANITIZE_ADDRESS__)
#define MAPS 1
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(memory_sanitizer)
#undef MAPS
#endif
#endif
#endif

#ifdef MAPS
#include <sys/mman.h>
#endif

static bool product(size_t count, size_t size, size_t *out)
{
    if (size && count > SIZE_MAX / size) return false;
    *out = count * size;
    return *out > 0 && *out <= PTRDIFF_MAX;
}

/* ---- blocks ---- */

/* In front of every block: where it came from, and where its allocation begins. */
typedef struct head {
    const rv_allocator *from; /* NULL: malloc; &large_blocks: malloc, and it is in the table;
                                 &mapped_blocks: mapped, and in the table */
    void *base;
} head;

enum { HEAD = 16 }; /* room for it that keeps blocks aligned for any object */
_Static_assert(sizeof(head) <= HEAD, "the head fits its room");

static _Thread_local const rv_allocator *current;

const rv_allocator *rvi_mem_use(const rv_allocator *a)
{
    const rv_allocator *before = current;
    current = a;
    return before;
}

static head *head_of(void *p)
{
    return (head *)(void *)((char *)p - HEAD);
}

static void *place(void *base, char *at, const rv_allocator *from)
{
    *head_of(at) = (head){from, base};
    return at;
}

static atomic_size_t in_use;

/* Large blocks, of which the system may not have given all yet. Their own size counts, not the room
 * for their alignment. */
enum { MOST_LARGE = 1024, LARGE = 128 << 10, MAPPED = 1 << 20 };
static const rv_allocator large_blocks, mapped_blocks;
static struct {
    atomic_uintptr_t from; /* 0: nothing here */
    atomic_size_t len;
} large[MOST_LARGE];

static bool add_large(void *p, size_t len)
{
    for (int i = 0; i < MOST_LARGE; i++) {
        uintptr_t none = 0;
        if (!atomic_compare_exchange_strong(&large[i].from, &none, (uintptr_t)p)) continue;
        atomic_store(&large[i].len, len);
        return true;
    }
    return false;
}

static size_t remove_large(const void *p)
{
    size_t len = 0;
    for (int i = 0; i < MOST_LARGE && !len; i++) {
        if (atomic_load(&large[i].from) != (uintptr_t)p) continue;
        len = atomic_exchange(&large[i].len, 0);
        atomic_store(&large[i].from, 0);
    }
    return len;
}

static size_t large_size(const void *p)
{
    for (int i = 0; i < MOST_LARGE; i++)
        if (atomic_load(&large[i].from) == (uintptr_t)p) return atomic_load(&large[i].len);
    return 0;
}

void rvi_mem_each_large(void (*each)(void *ctx, const void *from, size_t len), void *ctx)
{
    for (int i = 0; i < MOST_LARGE; i++) {
        uintptr_t from = atomic_load(&large[i].from);
        if (from) each(ctx, (const void *)from, atomic_load(&large[i].len));
    }
}

static size_t usable(void *base)
{
#ifdef __GLIBC__
    return malloc_usable_size(base);
#else
    (void)base;
    return 0;
#endif
}

static void *counted(void *base)
{
    if (base) atomic_fetch_add_explicit(&in_use, usable(base), memory_order_relaxed);
    return base;
}

static void uncount(size_t bytes)
{
    atomic_fetch_sub_explicit(&in_use, bytes, memory_order_relaxed);
}

size_t rvi_mem_in_use(void)
{
    return atomic_load_explicit(&in_use, memory_order_relaxed);
}

/* Room for a block of size bytes and up to `slack` bytes of shifting. */
static void *take(size_t size, size_t slack, bool zeroed)
{
    if (size > (size_t)PTRDIFF_MAX - HEAD - slack) return NULL;
    size_t total = HEAD + size + slack;
    if (!current) return counted(zeroed ? calloc(1, total) : malloc(total));
    void *base = current->alloc(current->ctx, total);
    if (base && zeroed) memset(base, 0, total);
    return base;
}

/* A block of `size` bytes at p of a fresh allocation. */
static void *finish(char *base, char *p, size_t size)
{
    if (current || size < LARGE || !add_large(p, size)) return place(base, p, current);
    uncount(usable(base));
    atomic_fetch_add_explicit(&in_use, size, memory_order_relaxed);
    return place(base, p, &large_blocks);
}

/* ---- blocks that are mapped: what they take as a whole stands where the mapping begins ---- */

static bool is_own(const head *h)
{
    return !h->from || h->from == &large_blocks || h->from == &mapped_blocks;
}

#ifdef MAPS

enum { can_map = 1 };

static char *after_head(char *base, size_t align)
{
    enum { ROOM = 2 * HEAD }; /* for the size and the head */
    uintptr_t p = (uintptr_t)base + ROOM;
    return base + ROOM + (align - (p & (align - 1))) % align;
}

/* True: out is such a block, or NULL where there is no memory for one; false: it is malloc's. */
static bool map_block(void **out, size_t size, size_t align)
{
    if (current || size < MAPPED || size > (size_t)PTRDIFF_MAX / 2) return false;
    size_t total = size + align + 2 * HEAD;
    char *base = mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *out = NULL;
    if (base == MAP_FAILED) return true;
    char *p = after_head(base, align);
    if (!add_large(p, size)) {
        munmap(base, total);
        return false;
    }
    memcpy(base, &total, sizeof total);
    atomic_fetch_add_explicit(&in_use, size, memory_order_relaxed);
    *out = place(base, p, &mapped_blocks);
    return true;
}

static void unmap_block(const head *h)
{
    size_t total;
    memcpy(&total, h->base, sizeof total);
    munmap(h->base, total);
}

#else

enum { can_map = 0 };

static bool map_block(void **out, size_t size, size_t align)
{
    (void)out;
    (void)size;
    (void)align;
    return false;
}

static void unmap_block(const head *h)
{
    (void)h;
}

#endif

static void *block(size_t size, bool zeroed)
{
    void *mapped;
    if (map_block(&mapped, size, HEAD)) return mapped;
    char *base = take(size, 0, zeroed);
    return base ? finish(base, base + HEAD, size) : NULL;
}

void *rvi_zalloc(size_t size)
{
    return size ? block(size, true) : NULL;
}

void *rvi_alloc_array(size_t count, size_t size)
{
    size_t total;
    return product(count, size, &total) ? block(total, false) : NULL;
}

void *rvi_zalloc_array(size_t count, size_t size)
{
    size_t total;
    return product(count, size, &total) ? block(total, true) : NULL;
}

/* A large block becomes one of another size; where it was mapped, or will be. */
static void *move_block(void *old, size_t size)
{
    const rv_allocator *own = current;
    current = NULL; /* it stays malloc's or mapped, whatever the thread uses now */
    void *p = block(size, false);
    current = own;
    if (!p) return NULL;
    memcpy(p, old, RVI_MIN(size, large_size(old)));
    rvi_free(old);
    return p;
}

void *rvi_realloc_array(void *old, size_t count, size_t size)
{
    size_t total;
    if (!product(count, size, &total) || total > PTRDIFF_MAX - HEAD) return NULL;
    if (!old) return block(total, false);
    head h = *head_of(old);
    if (!is_own(&h)) {
        char *base = h.from->resize(h.from->ctx, h.base, HEAD + total);
        return base ? place(base, base + HEAD, h.from) : NULL;
    }
    if (h.from == &mapped_blocks || (can_map && h.from && total >= MAPPED))
        return move_block(old, total);
    /* a block that begins where its allocation does, so it may be moved */
    size_t before = h.from ? remove_large(old) : usable(h.base);
    char *base = realloc(h.base, HEAD + total);
    if (!base) {
        if (h.from) (void)place(h.base, old, add_large(old, before) ? &large_blocks : NULL);
        return NULL;
    }
    uncount(before);
    (void)counted(base);
    const rv_allocator *own = current;
    current = NULL; /* it stays malloc's, whatever the thread uses now */
    void *p = finish(base, base + HEAD, total);
    current = own;
    return p;
}

void *rvi_alloc_aligned(size_t size, size_t align)
{
    if (!size || align > PTRDIFF_MAX / 4 || size > PTRDIFF_MAX / 2) return NULL;
    void *mapped;
    if (map_block(&mapped, size, RVI_MAX(align, (size_t)HEAD))) return mapped;
    char *base = take(size, align, false);
    if (!base) return NULL;
    size_t at = (size_t)((uintptr_t)(base + HEAD) & (align - 1));
    return finish(base, base + HEAD + (at ? align - at : 0), size);
}

void rvi_free(void *p)
{
    if (!p) return;
    head h = *head_of(p);
    if (!is_own(&h)) {
        h.from->release(h.from->ctx, h.base);
        return;
    }
    uncount(h.from ? remove_large(p) : usable(h.base));
    if (h.from == &mapped_blocks)
        unmap_block(&h);
    else
        free(h.base);
}

/* ---- arena ---- */

enum { ARENA_FIRST = 2048, ARENA_MOST = 1 << 20, ARENA_ALIGN = 16 };

struct rvi_arena_block {
    rvi_arena_block *next;
    size_t cap, used;
};

static char *block_data(rvi_arena_block *b)
{
    return (char *)b + (sizeof *b + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
}

void *rvi_arena_alloc(rvi_arena *a, size_t count, size_t size)
{
    size_t need;
    if (!product(count, size, &need) || need > PTRDIFF_MAX / 2) return NULL;
    need = (need + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
    if (a->max && (need > a->max || a->used > a->max - need)) return NULL;

    rvi_arena_block *b = a->blocks;
    if (!b || b->cap - b->used < need) {
        size_t cap = b ? RVI_MIN(b->cap * 2, (size_t)ARENA_MOST) : ARENA_FIRST;
        cap = RVI_MAX(cap, need);
        rvi_arena_block *fresh = rvi_zalloc(sizeof *fresh + ARENA_ALIGN + cap);
        if (!fresh) return NULL;
        fresh->cap = cap;
        a->total += cap;
        /* A block made for one big object goes behind the current one, whose rest stays usable. */
        if (b && cap == need) {
            fresh->next = b->next;
            b->next = fresh;
        } else {
            fresh->next = b;
            a->blocks = fresh;
        }
        b = fresh;
    }
    void *p = block_data(b) + b->used;
    b->used += need;
    a->used += need;
    return p;
}

char *rvi_arena_strndup(rvi_arena *a, const char *s, size_t len)
{
    if (len == SIZE_MAX) return NULL;
    char *p = rvi_arena_alloc(a, len + 1, 1);
    if (p && len) memcpy(p, s, len);
    return p;
}

void rvi_arena_deinit(rvi_arena *a)
{
    for (rvi_arena_block *b = a->blocks, *next; b; b = next) {
        next = b->next;
        rvi_free(b);
    }
    *a = (rvi_arena){.max = a->max};
}

/* ---- buffer ---- */

rvi_buf rvi_buf_over(char *storage, size_t size)
{
    storage[0] = 0;
    return (rvi_buf){.data = storage, .cap = size, .borrowed = true};
}

bool rvi_buf_reserve(rvi_buf *b, size_t more)
{
    size_t max = RVI_MIN(b->max ? b->max : (size_t)1 << 30, (size_t)PTRDIFF_MAX - 1);
    if (b->failed) return false;
    if (b->len > max || more > max - b->len) {
        b->failed = b->full = true;
        return false;
    }
    if (b->data && b->cap - b->len > more) return true;
    size_t cap = RVI_MIN(RVI_MAX(b->cap * 2, (size_t)64), max + 1); /* cap is at most PTRDIFF_MAX */
    cap = RVI_MAX(cap, b->len + more + 1);
    char *data = rvi_realloc_array(b->borrowed ? NULL : b->data, cap, 1);
    if (!data) {
        b->failed = true;
        return false;
    }
    if (b->borrowed) memcpy(data, b->data, b->len);
    b->borrowed = false;
    b->data = data;
    b->cap = cap;
    b->data[b->len] = 0;
    return true;
}

bool rvi_buf_append(rvi_buf *b, const void *bytes, size_t len)
{
    if (!rvi_buf_reserve(b, len)) return false;
    if (len) memcpy(b->data + b->len, bytes, len);
    b->len += len;
    b->data[b->len] = 0;
    return true;
}

bool rvi_buf_puts(rvi_buf *b, const char *text)
{
    return rvi_buf_append(b, text, strlen(text));
}

bool rvi_buf_putc(rvi_buf *b, char c)
{
    return rvi_buf_append(b, &c, 1);
}

bool rvi_buf_printf(rvi_buf *b, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int len = rvi_vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (len < 0 || !rvi_buf_reserve(b, (size_t)len)) {
        b->failed = true;
        return false;
    }
    va_start(args, fmt);
    (void)rvi_vsnprintf(b->data + b->len, (size_t)len + 1, fmt, args);
    va_end(args);
    b->len += (size_t)len;
    return true;
}

void rvi_buf_deinit(rvi_buf *b)
{
    if (!b->borrowed) rvi_free(b->data);
    *b = (rvi_buf){.max = b->max};
}
