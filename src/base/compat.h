/* compat.h - the compiler extensions that the portable code uses, each with a plain fallback. */
#ifndef RVI_BASE_COMPAT_H
#define RVI_BASE_COMPAT_H

#if defined(__GNUC__)
#define RVI_MUST_CHECK        __attribute__((warn_unused_result))
#define RVI_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define RVI_MUST_CHECK
#define RVI_PRINTF(fmt, args)
#endif

#define RVI_COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define RVI_MIN(a, b)    ((a) < (b) ? (a) : (b))
#define RVI_MAX(a, b)    ((a) > (b) ? (a) : (b))

#endif
