/* lora.h - adapters listed, loaded and removed while the server runs, as clients of llama-server
 * and vLLM do it. */
#ifndef RVI_SERVER_LORA_H
#define RVI_SERVER_LORA_H

#include "server/serving.h"

void rvi_lora_load(rvi_serving *s, rvi_conn *c);   /* POST /v1/load_lora_adapter */
void rvi_lora_unload(rvi_serving *s, rvi_conn *c); /* POST /v1/unload_lora_adapter */
void rvi_lora_show(rvi_serving *s, rvi_conn *c);   /* GET /lora-adapters */

#endif
