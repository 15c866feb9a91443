/* byte_level.c - GPT-2's alphabet: each byte is one printable character. Printable bytes of Latin-1
 * are themselves; the other 68 are U+0100 upwards, in their order. */
#include "base/utf8.h"
#include "tokenizer/internal.h"

static bool is_itself(uint32_t b)
{
    return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF);
}

static uint32_t byte_char(uint8_t byte)
{
    if (is_itself(byte)) return byte;
    if (byte <= 0x20) return 0x100u + byte;
    return byte == 0xAD ? 0x143 : 0x121u + (byte - 0x7Fu); /* 0x7F..0xA0 */
}

int rvi_char_byte(uint32_t cp)
{
    if (cp < 0x100) return is_itself(cp) ? (int)cp : -1;
    if (cp <= 0x120) return (int)(cp - 0x100);
    if (cp <= 0x142) return (int)(cp - 0x121 + 0x7F);
    return cp == 0x143 ? 0xAD : -1;
}

bool rvi_byte_level_write(rvi_buf *out, const char *text, size_t len)
{
    if (!rvi_buf_reserve(out, len * 2)) return false;
    char *p = out->data + out->len;
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c >= 0x21 && c <= 0x7E)
            *p++ = (char)c;
        else
            p += rvi_utf8_encode(byte_char(c), p);
    }
    out->len = (size_t)(p - out->data);
    *p = 0;
    return true;
}
