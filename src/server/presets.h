/* presets.h - names for ways to ask: a system prompt, sampling and an adapter in a small file, the
 * same that --preset of `ruvllm run` reads. A request that calls the model by such a name has these
 * options, where it does not say otherwise. */
#ifndef RVI_SERVER_PRESETS_H
#define RVI_SERVER_PRESETS_H

#include "base/json.h"
#include "server/serving.h"

/* Reads NAME.toml of a folder, after the adapters of the first model are known. */
rv_status rvi_presets_open(rvi_server *v, const char *folder, rv_error *err) RVI_MUST_CHECK;
void rvi_presets_close(rvi_server *v);

/* The model of a preset; NULL: there is none of that name. */
rvi_serving *rvi_presets_find(const rvi_server *v, const char *name);
/* *body becomes a copy in the arena that has the options of the preset before its own, of which the
 * last count. *adapter: that it is answered with; NULL: none. */
bool rvi_presets_apply(const rvi_server *v, const char *name, unsigned what, const rvi_json **body,
                       rvi_arena *arena, const char **adapter, rvi_problem *p);
/* ,{...} for each of them, as /v1/models has them. */
void rvi_presets_put_models(const rvi_server *v, rvi_buf *out);

#endif
