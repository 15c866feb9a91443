#include "base/library.h"

#include <string.h>

#ifndef __wasi__
#include <dlfcn.h>

rvi_library *rvi_library_open(const char *name)
{
    return (rvi_library *)dlopen(name, RTLD_NOW | RTLD_LOCAL);
}

void (*rvi_library_function(rvi_library *l, const char *name))(void)
{
    void *found = dlsym(l, name);
    void (*fn)(void) = 0;
    memcpy(&fn, &found, sizeof fn); /* ISO C has no cast from one to the other */
    return fn;
}

void rvi_library_close(rvi_library *l)
{
    if (l) dlclose(l);
}
#else
rvi_library *rvi_library_open(const char *name)
{
    (void)name;
    return 0;
}

void (*rvi_library_function(rvi_library *l, const char *name))(void)
{
    (void)l;
    (void)name;
    return 0;
}

void rvi_library_close(rvi_library *l)
{
    (void)l;
}
#endif
