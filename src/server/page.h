/* page.h - the page for browsers: one document with its style sheet and its script, all of them in
 * the program. */
#ifndef RVI_SERVER_PAGE_H
#define RVI_SERVER_PAGE_H

#include "server/serving.h"

void rvi_page_document(rvi_serving *s, rvi_conn *c);
void rvi_page_style(rvi_serving *s, rvi_conn *c);
void rvi_page_script(rvi_serving *s, rvi_conn *c);

#endif
