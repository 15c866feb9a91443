#include "server/probs.h"

#include "server/reply.h"

static void put_prob(const rvi_serving *s, rv_token_prob t, rvi_buf *out)
{
    rvi_buf text = {0};
    (void)rvi_call_token_text(s, t.id, &text);
    rvi_buf_putc(out, '{');
    if (s->server->llama.on) rvi_buf_printf(out, "\"id\":%d,", t.id);
    rvi_buf_puts(out, "\"token\":");
    rvi_put_buf(out, &text);
    rvi_buf_puts(out, ",\"logprob\":");
    rvi_json_write_number(out, (double)RVI_MAX(t.logprob, -9999.0F));
    rvi_buf_puts(out, ",\"bytes\":[");
    for (size_t i = 0; i < text.len; i++)
        rvi_buf_printf(out, "%s%d", i ? "," : "", (unsigned char)text.data[i]);
    rvi_buf_putc(out, ']');
    rvi_buf_deinit(&text);
}

void rvi_probs_add(rvi_call *k, int choice, const rv_service_event *e)
{
    rvi_choice *c = &k->choices[choice];
    if (!k->wish.generate.logprobs || !e->chosen || e->id < 0) return;
    if (c->n_probs++) rvi_buf_putc(&c->probs, ',');
    put_prob(k->s, *e->chosen, &c->probs);
    rvi_buf_puts(&c->probs, ",\"top_logprobs\":[");
    for (size_t i = 0; i < e->n_top; i++) {
        if (i) rvi_buf_putc(&c->probs, ',');
        put_prob(k->s, e->top[i], &c->probs);
        rvi_buf_putc(&c->probs, '}');
    }
    rvi_buf_puts(&c->probs, "]}");
}

void rvi_probs_take(rvi_choice *c, rvi_buf *out)
{
    rvi_buf_putc(out, '[');
    rvi_buf_append(out, c->probs.data, c->probs.len);
    rvi_buf_putc(out, ']');
    if (c->probs.failed) out->failed = true;
    c->probs.len = 0;
    c->n_probs = 0;
}
