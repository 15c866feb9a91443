/* lost.h - what the folder of a learned state tells of logs that are no longer in use: damaged
 * databases that the store set aside, and adapters that were trained by a log that is empty now. */
#ifndef RVI_CLI_LOST_H
#define RVI_CLI_LOST_H

#include "cli/learning.h"

/* Appends a line for each, or as JSON the members ,"damaged":[...] and ,"log_lost":true, of which
 * the second is there only where it is so. Nothing is appended of a store in a database. */
void cli_lost_write(const cli_learning *l, bool json, rvi_buf *out);

#endif
