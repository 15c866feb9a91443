/* ollama.h - Ollama's dialect: lines of JSON, options in an object of their own, times in
 * nanoseconds. */
#ifndef RVI_SERVER_OLLAMA_H
#define RVI_SERVER_OLLAMA_H

#include "server/call.h"

extern const rvi_dialect rvi_ollama;

void rvi_ollama_chat(rvi_serving *s, rvi_conn *c);
void rvi_ollama_generate(rvi_serving *s, rvi_conn *c);
void rvi_ollama_embed(rvi_serving *s, rvi_conn *c);
void rvi_ollama_embeddings(rvi_serving *s, rvi_conn *c); /* the older one */

void rvi_ollama_tags(rvi_serving *s, rvi_conn *c);
void rvi_ollama_show(rvi_serving *s, rvi_conn *c);
void rvi_ollama_ps(rvi_serving *s, rvi_conn *c);
void rvi_ollama_version(rvi_serving *s, rvi_conn *c);
void rvi_ollama_not_here(rvi_serving *s, rvi_conn *c); /* what changes which models there are */

#endif
