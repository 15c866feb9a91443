/* adapters.h - adapters by name. A request for the model "MODEL:NAME", or "NAME" alone, is answered
 * with the adapter of that name. */
#ifndef RVI_SERVER_ADAPTERS_H
#define RVI_SERVER_ADAPTERS_H

#include "server/dialect.h"
#include "server/serving.h"

/* Is it the model that is served? Ollama's clients may say NAME:latest. */
bool rvi_model_names(const rvi_serving *s, const char *name);

/* Knows the adapters in the folder from now on. */
rv_status rvi_adapters_open(rvi_serving *s, const rv_model *m, const char *folder,
                            rv_error *err) RVI_MUST_CHECK;
void rvi_adapters_close(rvi_serving *s);

/* The name of the adapter that a request's model means; *ready: it need not be loaded. NULL: p says
 * why, a 404 if there is none. */
const char *rvi_adapters_find(const rvi_serving *s, const char *model, bool *ready, rvi_problem *p);
/* It, loaded on the calling thread if need be; free the set. */
rv_status rvi_adapters_load(const rvi_serving *s, const char *name, rv_adapter_set **out,
                            rv_error *err) RVI_MUST_CHECK;
/* ,{...} for each of them, as /v1/models has them. */
void rvi_adapters_put_models(const rvi_serving *s, rvi_buf *out);

/* All of them; false: none, or no memory. Free the list. */
bool rvi_adapters_list(const rvi_serving *s, rv_registered **all, size_t *n);

#endif
