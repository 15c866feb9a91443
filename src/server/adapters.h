/* adapters.h - adapters by name. A request for the model "MODEL:NAME" is answered with the adapter
 * of that name; so is one for "NAME" alone, where it is one of the first model's. */
#ifndef RVI_SERVER_ADAPTERS_H
#define RVI_SERVER_ADAPTERS_H

#include "server/serving.h"

/* A model's adapters are those in the folder MODEL of the server's folder; where there is none,
 * those of the first model are in that itself. One that was unloaded knows again what it knew. */
rv_status rvi_adapters_open(rvi_serving *s, rv_error *err) RVI_MUST_CHECK;
void rvi_adapters_close(rvi_serving *s);

/* The name of the adapter that a request's model means; *ready: it need not be loaded. NULL: p says
 * why, a 404 if there is none. */
const char *rvi_adapters_find(const rvi_serving *s, const char *model, bool *ready, rvi_problem *p);
/* It, loaded on the calling thread if need be; free the set. */
rv_status rvi_adapters_load(const rvi_serving *s, const char *name, rv_adapter_set **out,
                            rv_error *err) RVI_MUST_CHECK;

/* Why it could not be loaded. One that is damaged, or was made for another model, is the request's
 * own fault: it named it. */
bool rvi_adapters_problem(rvi_problem *p, const char *name, rv_status st, const rv_error *err);

/* Calls fn with every adapter of a model, loaded or not. */
void rvi_adapters_each(rvi_serving *s, void (*fn)(void *ctx, const rv_registered *one), void *ctx);
/* Figures of them; of a model that is not loaded zeros. */
void rvi_adapters_count(rvi_serving *s, rv_registry_metrics *out);
/* ,{...} for each of them, as /v1/models has them. */
void rvi_adapters_put_models(rvi_serving *s, rvi_buf *out);

#endif
