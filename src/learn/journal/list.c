#include "learn/journal/list.h"

#include <string.h>

#include "base/mem.h"

void *rvi_list_room(void **list, size_t n, size_t *cap, size_t size)
{
    if (n == *cap) {
        size_t more = *cap ? 2 * *cap : 32;
        void *p = rvi_realloc_array(*list, more, size);
        if (!p) return NULL;
        *list = p;
        *cap = more;
    }
    return memset((char *)*list + n * size, 0, size);
}

void rvi_list_cut(void *list, size_t *n, size_t at, size_t size)
{
    char *item = (char *)list + at * size;
    memmove(item, item + size, (--*n - at) * size);
}
