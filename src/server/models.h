/* models.h - the models of a server: by their names, and as they come and go. */
#ifndef RVI_SERVER_MODELS_H
#define RVI_SERVER_MODELS_H

#include "server/serving.h"

/* The model of that name, alias, preset or adapter ("MODEL:ADAPTER"); NULL: there is none. */
rvi_serving *rvi_serving_find(const rvi_server *v, const char *name);
/* Calls handle as soon as the model is loaded, unless the client leaves before or the request's
 * timeout is over; where it cannot be loaded, the client is told. */
void rvi_serving_await(rvi_serving *s, rvi_conn *c, rvi_handler *handle, const rvi_dialect *d);

/* ---- the server's own ---- */

/* The list of models: what the server was told of them is in s->served. */
rv_status rvi_servings_open(rvi_server *v, rv_runtime *rt, rv_error *err) RVI_MUST_CHECK;
/* Begins to load the first; told is called when that has succeeded or failed. */
bool rvi_servings_begin(rvi_server *v, void (*told)(void *ctx, rv_status st, const rv_error *err),
                        void *ctx);
/* Once a second: ends requests whose timeout is over while they wait for a model. */
void rvi_servings_tick(rvi_server *v);
/* At the end, when no thread but this one works for the server any more. */
void rvi_servings_close(rvi_server *v);

#endif
