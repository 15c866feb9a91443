/* library.h - a shared library that is looked for when the program runs. */
#ifndef RVI_BASE_LIBRARY_H
#define RVI_BASE_LIBRARY_H

typedef struct rvi_library rvi_library;

rvi_library *rvi_library_open(const char *name); /* a file name, or a path; NULL: there is none */
/* A function of it, as a pointer to cast to the function's type; NULL: it has none. */
void (*rvi_library_function(rvi_library *l, const char *name))(void);
void rvi_library_close(rvi_library *l); /* accepts NULL */

#endif
