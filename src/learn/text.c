#include "learn/text.h"

#include <string.h>

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

bool rvi_text_fold(rvi_buf *out, rvi_text t)
{
    size_t start = out->len;
    bool space = false;
    for (size_t i = 0; i < t.len;) {
        uint32_t cp;
        char bytes[4];
        i += rvi_utf8_decode(t.data + i, t.len - i, &cp, NULL);
        if (rvi_unicode_is_space(cp)) {
            space = out->len > start;
            continue;
        }
        if (space) rvi_buf_putc(out, ' ');
        space = false;
        rvi_buf_append(out, bytes, rvi_utf8_encode(rvi_unicode_to_lower(cp), bytes));
    }
    while (out->len > start && strchr(".!? ", out->data[out->len - 1]) && out->data[out->len - 1])
        out->len--;
    return !out->failed;
}

/* ASCII letters and digits, and everything beyond ASCII. */
static bool in_word(char c)
{
    unsigned char u = (unsigned char)c;
    return (u >= '0' && u <= '9') || (u >= 'a' && u <= 'z') || u >= 0x80;
}

static bool occurs(const char *whole, size_t len, const char *part, size_t part_len)
{
    if (!part_len || part_len > len) return false;
    for (size_t i = 0; i + part_len <= len; i++) {
        if (whole[i] != part[0] || memcmp(whole + i, part, part_len)) continue;
        size_t end = i + part_len;
        if (i > 0 && in_word(whole[i - 1]) && in_word(part[0])) continue;
        if (end < len && in_word(whole[end]) && in_word(part[part_len - 1])) continue;
        return true;
    }
    return false;
}

rv_status rvi_text_has_words(bool *yes, rvi_text whole, rvi_text part, rv_error *err)
{
    rvi_buf a = {0}, b = {0};
    bool folded = rvi_text_fold(&a, whole) && rvi_text_fold(&b, part);
    *yes = folded && occurs(a.data, a.len, b.data, b.len);
    rvi_buf_deinit(&a);
    rvi_buf_deinit(&b);
    return folded ? RV_OK : rvi_nomem(err, "text");
}
