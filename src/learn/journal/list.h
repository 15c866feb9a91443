/* list.h - lists that grow. */
#ifndef RVI_LEARN_JOURNAL_LIST_H
#define RVI_LEARN_JOURNAL_LIST_H

#include <stddef.h>

/* Room for one more behind n, zeroed; NULL: there is no memory. */
void *rvi_list_room(void **list, size_t n, size_t *cap, size_t size);
/* Takes the item at this place out of a list of n. */
void rvi_list_cut(void *list, size_t *n, size_t at, size_t size);

#endif
