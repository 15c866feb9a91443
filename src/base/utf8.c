#include "base/utf8.h"

size_t rvi_utf8_decode(const char *s, size_t len, uint32_t *cp, bool *valid)
{
    const unsigned char *p = (const unsigned char *)s;
    unsigned char lead = p[0];
    if (valid) *valid = true;
    if (lead < 0x80) {
        *cp = lead;
        return 1;
    }
    size_t n = lead >= 0xC2 && lead <= 0xDF   ? 2
               : (lead & 0xF0) == 0xE0        ? 3
               : lead >= 0xF0 && lead <= 0xF4 ? 4
                                              : 0;
    size_t used = 1;
    if (n) {
        /* the second byte's range excludes overlong forms, surrogates and values above U+10FFFF */
        unsigned lo = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
        unsigned hi = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
        uint32_t v = lead & (0xFFu >> (n + 1));
        for (; used < n && used < len && p[used] >= lo && p[used] <= hi; used++) {
            v = v << 6 | (p[used] & 0x3F);
            lo = 0x80;
            hi = 0xBF;
        }
        if (used == n) {
            *cp = v;
            return n;
        }
    }
    *cp = 0xFFFD;
    if (valid) *valid = false;
    return used;
}

size_t rvi_utf8_encode(uint32_t cp, char out[4])
{
    if (cp > 0x10FFFF || (cp >= 0xD800 && cp <= 0xDFFF)) cp = 0xFFFD;
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (char)(0xC0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3F));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = (char)(0xE0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 0x3F));
        out[2] = (char)(0x80 | (cp & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | cp >> 18);
    out[1] = (char)(0x80 | (cp >> 12 & 0x3F));
    out[2] = (char)(0x80 | (cp >> 6 & 0x3F));
    out[3] = (char)(0x80 | (cp & 0x3F));
    return 4;
}

size_t rvi_utf8_incomplete(const char *s, size_t len)
{
    for (size_t back = 1; back <= 3 && back <= len; back++) {
        unsigned char c = (unsigned char)s[len - back];
        if ((c & 0xC0) == 0x80) continue;
        size_t need = c > 0xF4 ? 1 : c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : c >= 0xC2 ? 2 : 1;
        uint32_t cp;
        /* it is a beginning only if everything that is there fits */
        return need > back && rvi_utf8_decode(s + len - back, back, &cp, NULL) == back ? back : 0;
    }
    return 0;
}

size_t rvi_utf8_count(const char *s, size_t len)
{
    size_t n = 0;
    uint32_t cp;
    for (size_t i = 0; i < len; n++) i += rvi_utf8_decode(s + i, len - i, &cp, NULL);
    return n;
}
