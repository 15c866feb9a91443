/* In the place of postgres.c where libpq's header was not there when the program was built. */
#include "store/store.h"

rv_status rvi_postgres_open(rv_store *out, const char *url, const rv_store_options *o,
                            rv_error *err)
{
    (void)url;
    (void)o;
    *out = (rv_store){0};
    return rvi_error(
        err, RV_E_UNSUPPORTED,
        "this program was built without PostgreSQL: install libpq-dev and build again");
}
