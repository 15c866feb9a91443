/* /v1/embeddings */
#include <string.h>

#include "server/openai.h"
#include "server/vectors.h"

/* Little-endian 32-bit floats in base64. */
static void put_base64(rvi_buf *out, const float *v, size_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    unsigned char three[3];
    size_t total = n * 4;
    rvi_buf_putc(out, '"');
    for (size_t at = 0; at < total; at += 3) {
        size_t have = RVI_MIN(total - at, (size_t)3);
        for (size_t i = 0; i < 3; i++) {
            uint32_t bits = 0;
            if (i < have) memcpy(&bits, &v[(at + i) / 4], sizeof bits);
            three[i] = (unsigned char)(bits >> ((at + i) % 4 * 8));
        }
        uint32_t group = (uint32_t)three[0] << 16 | (uint32_t)three[1] << 8 | three[2];
        for (size_t i = 0; i < 4; i++)
            rvi_buf_putc(out, i <= have ? digits[group >> (18 - 6 * i) & 63] : '=');
    }
    rvi_buf_putc(out, '"');
}

static void end(rvi_call *k)
{
    rvi_buf out = {0};
    rvi_usage u = rvi_call_usage(k);
    rvi_buf_puts(&out, "{\"object\":\"list\",\"data\":[");
    for (int i = 0; i < k->n_parts; i++) {
        rvi_part *p = &k->parts[i];
        size_t n = rvi_vectors_size(k, i);
        rvi_buf_printf(&out,
                       "%s{\"object\":\"embedding\",\"index\":%d,\"embedding\":", i ? "," : "", i);
        if (k->wish.base64)
            put_base64(&out, p->values, n);
        else
            rvi_put_floats(&out, p->values, n);
        rvi_buf_putc(&out, '}');
    }
    rvi_buf_puts(&out, "],\"model\":");
    rvi_put_text(&out, k->model);
    rvi_buf_printf(&out, ",\"usage\":{\"prompt_tokens\":%ld,\"total_tokens\":%ld}}", u.prompt,
                   u.prompt);
    rvi_reply_json(&rvi_openai, k->conn, &out);
}

static const rvi_writer writer = {.dialect = &rvi_openai, .end = end};

static bool read_format(rvi_call *k)
{
    const rvi_json *format = rvi_json_get(k->body, "encoding_format");
    k->wish.base64 = rvi_json_is_string(format, "base64");
    return !format || k->wish.base64 || rvi_json_is_string(format, "float") ||
           rvi_json_is(format, RVI_JSON_NULL) ||
           rvi_problem_set(&k->problem, 400, "invalid_value", "encoding_format",
                           "encoding_format must be float or base64");
}

void rvi_openai_embeddings(rvi_serving *s, rvi_conn *c)
{
    rvi_call *k = rvi_call_new(s, c, &writer, RVI_FOR_EMBEDDING, "embd-");
    if (!k) return;
    if (read_format(k)) (void)rvi_vectors_submit(k, "input", false);
    rvi_call_start(k);
}
