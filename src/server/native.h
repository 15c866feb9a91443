/* native.h - handlers that belong to no dialect: health, tokens, templates, metrics. */
#ifndef RVI_SERVER_NATIVE_H
#define RVI_SERVER_NATIVE_H

#include "server/serving.h"

void rvi_native_health(rvi_serving *s, rvi_conn *c);
void rvi_native_tokenize(rvi_serving *s, rvi_conn *c);
void rvi_native_detokenize(rvi_serving *s, rvi_conn *c);
void rvi_native_apply_template(rvi_serving *s, rvi_conn *c);
void rvi_native_sessions(rvi_serving *s, rvi_conn *c);       /* session.c */
void rvi_native_forget_session(rvi_serving *s, rvi_conn *c); /* session.c */
void rvi_native_metrics(rvi_serving *s, rvi_conn *c);        /* for Prometheus */

#endif
