/* llama_paths.h - llama-server's own paths. */
#ifndef RVI_SERVER_LLAMA_PATHS_H
#define RVI_SERVER_LLAMA_PATHS_H

#include "server/serving.h"

void rvi_llama_completion(rvi_serving *s, rvi_conn *c);
void rvi_llama_infill(rvi_serving *s, rvi_conn *c);
void rvi_llama_rerank(rvi_serving *s, rvi_conn *c);
void rvi_llama_embeddings(rvi_serving *s, rvi_conn *c);
void rvi_llama_props(rvi_serving *s, rvi_conn *c);
void rvi_llama_slots(rvi_serving *s, rvi_conn *c);
void rvi_llama_metrics(rvi_serving *s, rvi_conn *c);

#endif
