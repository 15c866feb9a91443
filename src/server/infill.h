/* infill.h - the prompt of a gap between two texts, for models that were made to fill one. */
#ifndef RVI_SERVER_INFILL_H
#define RVI_SERVER_INFILL_H

#include "server/call.h"
#include "server/prompts.h"

/* Of "input_prefix", "input_suffix", "input_extra" and "prompt", as llama-server has them. False:
 * k->problem says why, or that the model has no tokens for it. */
bool rvi_infill_read(rvi_call *k, rvi_prompt *out);

#endif
