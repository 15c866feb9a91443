/* wheel.h - extracts one member of a wheel (a zip file), which is not trusted.
 *
 * The central directory is the authority: sizes, CRC and place of a member come from there, so a
 * member written with a data descriptor (sizes behind the data, zeros in front of it) reads like
 * any other. Zip64 files and stored and deflated members are supported. Names are only compared,
 * never used as paths. */
#ifndef RVI_HUB_WHEEL_H
#define RVI_HUB_WHEEL_H

#include "base/blob.h"
#include "base/error.h"

typedef struct rvi_wheel_member {
    const uint8_t *data; /* packed bytes, inside the blob */
    uint64_t packed_len, len;
    uint32_t crc;    /* CRC-32 of the unpacked bytes */
    unsigned method; /* 0 stored, 8 deflated */
} rvi_wheel_member;

/* Finds the member called name. Its packed bytes are inside the blob, which must outlive it. A
 * wheel that is damaged, holds the name twice, or holds it encrypted or packed in another way is
 * RV_E_MODEL; without it, RV_E_NOT_FOUND. */
rv_status rvi_wheel_find(rvi_wheel_member *out, const rvi_blob *zip, const char *name,
                         rv_error *err) RVI_MUST_CHECK;

/* Receives the next unpacked bytes; any status but RV_OK stops and is returned. */
typedef rv_status (*rvi_wheel_sink)(void *ctx, const uint8_t *bytes, size_t n, rv_error *err);

/* Gives the unpacked bytes, never more than m->len of them, to sink. RV_OK only if length and CRC
 * were right, which is known after the last byte. */
rv_status rvi_wheel_unpack(const rvi_wheel_member *m, rvi_wheel_sink sink, void *ctx,
                           rv_error *err) RVI_MUST_CHECK;

#endif
