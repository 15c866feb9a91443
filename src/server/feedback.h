/* feedback.h - learning by HTTP: what users say of answers, and what became of it. */
#ifndef RVI_SERVER_FEEDBACK_H
#define RVI_SERVER_FEEDBACK_H

#include "server/serving.h"

void rvi_server_feedback(rvi_serving *s, rvi_conn *c);
void rvi_server_learning(rvi_serving *s, rvi_conn *c);
void rvi_server_undo(rvi_serving *s, rvi_conn *c);
void rvi_server_rollback(rvi_serving *s, rvi_conn *c); /* to {"generation"} */
void rvi_server_forget(rvi_serving *s, rvi_conn *c);   /* {"text"} */
void rvi_server_export(rvi_serving *s, rvi_conn *c);   /* of {"generation"}, as GGUF */
#endif
