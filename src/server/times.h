/* times.h - filling a histogram of the service's kind. */
#ifndef RVI_SERVER_TIMES_H
#define RVI_SERVER_TIMES_H

#include "ruvllm_service.h"

void rvi_times_add(rv_histogram *h, double seconds); /* one value more */

#endif
