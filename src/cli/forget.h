/* forget.h - removing what was taught by a piece of its text. */
#ifndef RVI_CLI_FORGET_H
#define RVI_CLI_FORGET_H

#include "cli/learning.h"

/* Forgets the corrections and preferences that have `text` anywhere in them, whatever its case, and
 * appends to out what was forgotten. If there are several and a person is there to ask, asks first,
 * unless yes is set. RV_E_NOT_FOUND: there is none; RV_E_CANCELLED: the person said no. */
rv_status cli_forget(cli_learning *l, const char *text, bool yes, bool json, rvi_buf *out,
                     rv_error *err) RVI_MUST_CHECK;

#endif
