/* /v1/embeddings */
#include <math.h>
#include <string.h>

#include "server/openai.h"
#include "server/prompts.h"

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

/* Fewer dimensions: the first ones, scaled to length 1 again. */
static size_t shorten(float *v, size_t n, int dimensions)
{
    double sum = 0;
    if (!dimensions || (size_t)dimensions >= n) return n;
    for (int i = 0; i < dimensions; i++) sum += (double)v[i] * (double)v[i];
    for (int i = 0; sum > 0 && i < dimensions; i++) v[i] = (float)((double)v[i] / sqrt(sum));
    return (size_t)dimensions;
}

static void end(rvi_call *k)
{
    rvi_buf out = {0};
    rvi_usage u = rvi_call_usage(k);
    rvi_buf_puts(&out, "{\"object\":\"list\",\"data\":[");
    for (int i = 0; i < k->n_parts; i++) {
        rvi_part *p = &k->parts[i];
        size_t n = shorten(p->values, p->n_values, k->wish.dimensions);
        rvi_buf_printf(&out,
                       "%s{\"object\":\"embedding\",\"index\":%d,\"embedding\":", i ? "," : "", i);
        if (k->wish.base64)
            put_base64(&out, p->values, n);
        else
            rvi_put_floats(&out, p->values, n);
        rvi_buf_putc(&out, '}');
    }
    rvi_buf_puts(&out, "],\"model\":");
    rvi_json_write_string(&out, k->s->name, strlen(k->s->name));
    rvi_buf_printf(&out, ",\"usage\":{\"prompt_tokens\":%ld,\"total_tokens\":%ld}}", u.prompt,
                   u.prompt);
    rvi_reply_json(&rvi_openai, k->conn, &out);
}

static const rvi_writer writer = {.dialect = &rvi_openai, .end = end};

static bool read_format(rvi_call *k)
{
    const rvi_json *format = rvi_json_get(k->body, "encoding_format");
    int n_embd = k->s->info->n_embd;
    k->wish.base64 = rvi_json_is_string(format, "base64");
    if (format && !k->wish.base64 && !rvi_json_is_string(format, "float") &&
        !rvi_json_is(format, RVI_JSON_NULL))
        return rvi_problem_set(&k->problem, 400, "invalid_value", "encoding_format",
                               "encoding_format must be float or base64");
    if (k->wish.dimensions <= n_embd) return true;
    return rvi_problem_set(&k->problem, 400, "value_out_of_range", "dimensions",
                           "dimensions must be 1 to %d (got %d)", n_embd, k->wish.dimensions);
}

void rvi_openai_embeddings(rvi_serving *s, rvi_conn *c)
{
    rvi_prompt *inputs;
    int n;
    rvi_call *k = rvi_call_new(s, c, &writer, RVI_FOR_EMBEDDING, "embd-");
    if (!k) return;
    bool ok = read_format(k) &&
              rvi_prompts_read(s->model, rvi_json_get(k->body, "input"), "input", RV_TOKENIZE_WRAP,
                               &k->arena, &inputs, &n, &k->problem) &&
              rvi_call_parts(k, n, 0);
    rv_embed_options o = {.size = sizeof o, .refuse_long = 1};
    for (int i = 0; ok && i < n; i++) {
        rv_request r = {
            .kind = RV_REQUEST_EMBED, .ids = inputs[i].ids, .n_ids = inputs[i].n, .embed = &o};
        ok = rvi_call_submit(k, i, &r);
    }
    rvi_call_start(k);
}
