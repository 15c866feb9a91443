#include "server/reply.h"

#include <string.h>
#include <time.h>

void rvi_put_text(rvi_buf *out, const char *text)
{
    rvi_json_write_string(out, text, strlen(text));
}

void rvi_put_buf(rvi_buf *out, const rvi_buf *text)
{
    rvi_json_write_string(out, text->len ? text->data : "", text->len);
    if (text->failed) out->failed = true;
}

void rvi_put_member(rvi_buf *out, const char *name, const char *text)
{
    rvi_buf_printf(out, ",\"%s\":", name);
    if (text)
        rvi_put_text(out, text);
    else
        rvi_buf_puts(out, "null");
}

void rvi_put_number(rvi_buf *out, const char *name, double v)
{
    rvi_buf_printf(out, ",\"%s\":", name);
    rvi_json_write_number(out, v);
}

void rvi_put_floats(rvi_buf *out, const float *v, size_t n)
{
    rvi_buf_putc(out, '[');
    for (size_t i = 0; i < n; i++) {
        if (i) rvi_buf_putc(out, ',');
        rvi_json_write_number(out, (double)v[i]);
    }
    rvi_buf_putc(out, ']');
}

void rvi_put_time(rvi_buf *out, double seconds)
{
    time_t whole = (time_t)seconds;
    struct tm t = {0};
    (void)gmtime_r(&whole, &t);
    rvi_buf_printf(out, "\"%04d-%02d-%02dT%02d:%02d:%02d.%06dZ\"", t.tm_year + 1900, t.tm_mon + 1,
                   t.tm_mday, t.tm_hour, t.tm_min, t.tm_sec,
                   (int)((seconds - (double)whole) * 1e6));
}

void rvi_put_model(rvi_buf *out, const char *name, long created)
{
    rvi_buf_puts(out, "{\"id\":");
    rvi_put_text(out, name);
    rvi_buf_printf(out, ",\"object\":\"model\",\"created\":%ld,\"owned_by\":\"ruvllm\"", created);
    rvi_put_member(out, "type", "model");
    rvi_put_member(out, "display_name", name);
    rvi_buf_puts(out, ",\"created_at\":");
    rvi_put_time(out, (double)created);
}

void rvi_reply_json(const rvi_dialect *d, rvi_conn *c, rvi_buf *json)
{
    rvi_problem p;
    if (json->failed) {
        (void)rvi_problem_set(&p, 503, NULL, NULL, "out of memory");
        rvi_dialect_refuse(d, c, &p);
    } else {
        rvi_conn_reply(c, 200, "application/json", json->data, json->len);
    }
    rvi_buf_deinit(json);
}

static void send_between(rvi_conn *c, rvi_buf *json, const char *before, const char *name,
                         const char *after)
{
    rvi_buf line = {0};
    if (name) rvi_buf_printf(&line, "event: %s\n", name);
    rvi_buf_puts(&line, before);
    rvi_buf_append(&line, json->data, json->len);
    rvi_buf_puts(&line, after);
    if (!json->failed && !line.failed) rvi_conn_send(c, line.data, line.len);
    rvi_buf_deinit(&line);
    rvi_buf_deinit(json);
    *json = (rvi_buf){0};
}

void rvi_reply_event(rvi_conn *c, const char *name, rvi_buf *json)
{
    send_between(c, json, "data: ", name, "\n\n");
}

void rvi_reply_line(rvi_conn *c, rvi_buf *json)
{
    send_between(c, json, "", NULL, "\n");
}
