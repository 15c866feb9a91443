#include "cli/doctor_gpu.h"

#include <string.h>

#include "base/error.h"

static double number(const rvi_json *object, const char *name)
{
    return rvi_json_number(rvi_json_get(object, name), 0);
}

rv_status cli_gpu_look(const cli *c, const char *device, const rv_model *m, cli_gpu *out,
                       rvi_arena *arena, rv_error *err)
{
    *out = (cli_gpu){0};
    if (device && !strcmp(device, "cpu")) {
        snprintf(out->why, sizeof out->why, "not looked for (--device cpu)");
        return RV_OK;
    }
    bool asked = device && strcmp(device, "auto") != 0;
    rv_runtime *rt;
    rv_error why = {0};
    const rvi_json *d = NULL;
    rv_runtime_options o = {.size = sizeof o,
                            .n_threads = c->threads,
                            .exact = c->exact,
                            .device = asked ? device : "cuda"};
    rv_status st = rv_runtime_new(&rt, &o, &why);
    if (!st) st = rv_runtime_describe(rt, 1, &out->text, &why);
    if (!st) st = rvi_json_parse(&d, out->text, strlen(out->text), arena, "description", &why);
    if (!st && m) st = rv_model_describe_placement(m, rt, c->context, &out->placing, &why);
    if (!st && m)
        st = rvi_json_parse(&out->place, out->placing, strlen(out->placing), arena, "placement",
                            &why);
    rv_runtime_free(&rt);
    out->card = st ? NULL : rvi_json_get(d, "gpu");
    if (!st) return RV_OK;
    if (asked) {
        if (err) *err = why;
        return st;
    }
    snprintf(out->why, sizeof out->why, "none is used: %s", why.text);
    return RV_OK;
}

void cli_gpu_deinit(cli_gpu *g)
{
    rv_free(g->text);
    rv_free(g->placing);
}

void cli_gpu_write(const cli_gpu *g, rvi_buf *out)
{
    const rvi_json *m = rvi_json_get(g->card, "measured"), *weights = rvi_json_get(m, "weights");
    if (!g->card) {
        rvi_buf_printf(out, "\ngpu           %s\n", g->why);
        return;
    }
    rvi_buf_printf(out, "\ngpu           %s, %.0f processors, compute capability %s, CUDA %s\n",
                   rvi_json_string(rvi_json_get(g->card, "name"), "unknown"),
                   number(g->card, "processors"),
                   rvi_json_string(rvi_json_get(g->card, "compute"), "?"),
                   rvi_json_string(rvi_json_get(g->card, "cuda"), "?"));
    rvi_buf_printf(out,
                   "its memory    %.1f GiB, free %.1f GiB; copying reads and writes %.0f GB/s\n",
                   number(g->card, "total") / 0x1p30, number(g->card, "available") / 0x1p30,
                   number(m, "copy_gbps"));
    rvi_buf_printf(out, "bus           %.1f GB/s to it, %.1f GB/s back\n",
                   number(m, "to_device_gbps"), number(m, "to_host_gbps"));
    rvi_buf_printf(out, "kernels       %.1f us without work, %.1f us for a small product\n",
                   number(m, "launch_us"), number(m, "call_us"));
    const rvi_json *tensor = rvi_json_get(m, "tensor");
    if (tensor)
        rvi_buf_printf(out, "tensor peak   %.1f TOP/s, %s weights of %.0f x %.0f by %.0f rows\n",
                       number(tensor, "gops") / 1e3,
                       rvi_json_string(rvi_json_get(tensor, "type"), "?"),
                       number(tensor, "outputs"), number(tensor, "inputs"), number(tensor, "rows"));
    rvi_buf_puts(out, "\n              one row            prompt\n"
                      "weights       from its memory    512 rows\n");
    for (size_t i = 0; i < rvi_json_count(weights); i++) {
        const rvi_json *w = rvi_json_at(weights, i);
        if (number(w, "gbps") > 0)
            rvi_buf_printf(out, "%-12s %7.0f GB/s     %8.1f TOP/s\n", w->key, number(w, "gbps"),
                           number(w, "gops_prompt") / 1e3);
        else
            rvi_buf_printf(out, "%-12s there was no time to measure it\n", w->key);
    }
}

typedef struct outlook {
    double decode, prompt; /* tokens a second, all of it on the card; 0: unknown */
} outlook;

static outlook look_at(const cli_gpu *g, const cli_load *l, rv_kv_type kv, int n_prompt)
{
    const rvi_json *m = rvi_json_get(g->card, "measured");
    return (outlook){.decode = cli_expect_gpu_decode(l, m, kv, n_prompt / 2.0),
                     .prompt = cli_expect_gpu_prompt(l, m, n_prompt)};
}

static void write_place(const rvi_json *p, rvi_buf *out)
{
    double layers = number(p, "layers"), best = number(p, "gpu_layers"), fit = number(p, "fit");
    double rate = number(p, "decode_tps"), alone = number(p, "cpu_tps");
    if (fit < layers)
        rvi_buf_printf(out,
                       "              it does not fit: %.1f MiB are missing, %.0f of %.0f "
                       "layers fit\n",
                       number(p, "missing") / 0x1p20, fit, layers);
    if (best > 0)
        rvi_buf_printf(out, "best placed   %.0f of %.0f layers on the gpu: about %.3g tok/s, ",
                       best, layers, rate);
    else
        rvi_buf_puts(out, "best placed   no layer on the gpu: ");
    rvi_buf_printf(out, "%.3g by the CPU alone\n", alone);
    if (best > 0 && alone > rate)
        rvi_buf_puts(out, "              the CPU alone is faster: --device cpu\n");
}

void cli_gpu_write_model(const cli_gpu *g, const cli_load *l, rv_kv_type kv, int n_prompt,
                         rvi_buf *out)
{
    if (!g->card) return;
    outlook o = look_at(g, l, kv, n_prompt);
    if (o.decode > 0 && o.prompt > 0)
        rvi_buf_printf(
            out, "on the gpu    %.0f tok/s decoding, %.0f tok/s for a prompt of %d expected\n",
            o.decode, o.prompt, n_prompt);
    if (g->place) write_place(g->place, out);
}

void cli_gpu_write_json(const cli_gpu *g, const cli_load *l, rv_kv_type kv, int n_prompt,
                        rvi_buf *out)
{
    if (!g->card) {
        rvi_buf_puts(out, ",\"gpu\":null,\"gpu_why\":");
        rvi_json_write_string(out, g->why, strlen(g->why));
        return;
    }
    const char *from = strstr(g->text, "\"gpu\":"); /* its last member */
    rvi_buf_puts(out, ",");
    rvi_buf_append(out, from, strlen(from) - 1);
    if (!l) return;
    outlook o = look_at(g, l, kv, n_prompt);
    rvi_buf_printf(out, ",\"on_gpu\":{\"decode_tps\":%.3f,\"prompt_tps\":%.3f,\"fits\":%s}",
                   o.decode, o.prompt, number(g->place, "missing") > 0 ? "false" : "true");
    if (g->placing) rvi_buf_printf(out, ",\"placement\":%s", g->placing);
}
