#include "learn/journal/text.h"

#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "text/unicode.h"

rvi_text rvi_text_of(const char *s)
{
    return (rvi_text){s, s ? strlen(s) : 0};
}

bool rvi_text_is(rvi_text t, const char *s)
{
    return t.len == strlen(s) && (!t.len || !memcmp(t.data, s, t.len));
}

rvi_text rvi_text_trim(rvi_text t)
{
    while (t.len && strchr(" \t\r\n", t.data[t.len - 1])) t.len--;
    while (t.len && strchr(" \t\r\n", *t.data)) t.data++, t.len--;
    return t;
}

char *rvi_text_copy(rvi_text t)
{
    char *p = rvi_alloc_array(t.len + 1, 1);
    if (!p) return NULL;
    if (t.len) memcpy(p, t.data, t.len);
    p[t.len] = 0;
    return p;
}

size_t rvi_text_invalid(rvi_text t)
{
    for (size_t i = 0; i < t.len;) {
        uint32_t cp;
        bool valid;
        size_t n = rvi_utf8_decode(t.data + i, t.len - i, &cp, &valid);
        if (!valid) return i;
        i += n;
    }
    return t.len;
}

bool rvi_text_blank(rvi_text t)
{
    for (size_t i = 0; i < t.len;) {
        uint32_t cp;
        i += rvi_utf8_decode(t.data + i, t.len - i, &cp, NULL);
        if (!rvi_unicode_is_space(cp)) return false;
    }
    return true;
}
