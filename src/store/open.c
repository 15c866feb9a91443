/* A store by its path: a file of SQLite, or the address of a PostgreSQL database. */
#include <stddef.h>
#include <string.h>

#include "base/mem.h"
#include "store/store.h"

/* Does the path name a database of PostgreSQL? */
static bool is_postgres(const char *path)
{
    return !strncmp(path, "postgres://", 11) || !strncmp(path, "postgresql://", 13);
}

void rv_store_close(rv_store *s)
{
    if (s->ctx) ((rvi_opened *)s->ctx)->close(s->ctx);
    *s = (rv_store){0};
}

rv_status rv_store_open(rv_store *out, const char *path, const rv_store_options *given,
                        rv_error *err)
{
    rv_store_options o = {.size = sizeof o};
    if (!out) return rvi_error(err, RV_E_INVALID, "rv_store_open: NULL argument");
    *out = (rv_store){0};
    if (!path || !path[0]) return rvi_error(err, RV_E_INVALID, "rv_store_open: the path is empty");
    if (given && (given->size < offsetof(rv_store_options, space) || given->size > 65536))
        return rvi_error(err, RV_E_CONFIG,
                         "rv_store_options.size must be sizeof(rv_store_options) (got %zu)",
                         given->size);
    if (given) memcpy(&o, given, RVI_MIN(given->size, sizeof o));
    if (o.busy_ms <= 0) o.busy_ms = RVI_STORE_BUSY_MS;
    if (is_postgres(path)) return rvi_postgres_open(out, path, &o, err);
    if (o.space || o.beside)
        return rvi_error(err, RV_E_CONFIG, "%s: a file has one space and no connection to share",
                         path);
    return rvi_sqlite_open(out, path, &o, err);
}
