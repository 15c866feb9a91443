#include "base/error.h"

#include <string.h>

#include "base/number.h"
#include "base/utf8.h"

static const struct {
    rv_status status;
    const char *name, *text;
} statuses[] = {
#define X(name, value, text) {RV_##name, "RV_" #name, text},
    RV_STATUS_MAP(X)
#undef X
};

const char *rv_status_name(rv_status status)
{
    for (size_t i = 0; i < RVI_COUNT(statuses); i++)
        if (statuses[i].status == status) return statuses[i].name;
    return "RV_E_UNKNOWN";
}

const char *rv_status_text(rv_status status)
{
    for (size_t i = 0; i < RVI_COUNT(statuses); i++)
        if (statuses[i].status == status) return statuses[i].text;
    return "unknown status";
}

/* Bytes that are not UTF-8 and control characters (C0 but newline and tab, DEL, C1) become '?', in
 * place. */
static void clean(char *text, size_t len)
{
    size_t n = 0;
    for (size_t i = 0; i < len;) {
        uint32_t cp;
        bool valid;
        size_t used = rvi_utf8_decode(text + i, len - i, &cp, &valid);
        if (!valid || (cp < 0x20 && cp != '\n' && cp != '\t') || (cp >= 0x7F && cp < 0xA0)) {
            text[n++] = '?';
        } else {
            memmove(text + n, text + i, used);
            n += used;
        }
        i += used;
    }
    text[n] = 0;
}

rv_status rvi_errorv(rv_error *err, rv_status code, const char *fmt, va_list args)
{
    static const char ellipsis[] = "...";
    if (!err) return code;
    err->code = code;
    int len = rvi_vsnprintf(err->text, sizeof err->text, fmt, args);
    if (len < 0) err->text[0] = 0;
    size_t kept = strlen(err->text);
    bool cut = len >= (int)sizeof err->text;
    if (cut) { /* between characters */
        kept -= sizeof ellipsis - 1;
        kept -= rvi_utf8_incomplete(err->text, kept);
    }
    clean(err->text, kept);
    if (cut) memcpy(err->text + strlen(err->text), ellipsis, sizeof ellipsis);
    return code;
}

rv_status rvi_error(rv_error *err, rv_status code, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    rvi_errorv(err, code, fmt, args);
    va_end(args);
    return code;
}

rv_status rvi_nomem(rv_error *err, const char *what)
{
    return rvi_error(err, RV_E_NOMEM, "out of memory: %s", what);
}
