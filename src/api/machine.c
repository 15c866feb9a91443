/* The machine as JSON: what the operating system says about it, and what was measured. A value that
 * is not known has no key. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "backend/cpu/probe.h"
#include "backend/cpu/profile.h"
#include "backend/cuda/probe.h"
#include "base/json.h"
#include "base/machine.h"
#include "base/number.h"
#include "base/os.h"
#include "kernels/kernels.h"

/* Opens a list or object, or goes on to the next member: *first says which. */
static void key(rvi_buf *b, bool *first, const char *name)
{
    rvi_buf_printf(b, "%s\"%s\":", *first ? "" : ",", name);
    *first = false;
}

static void put_text(rvi_buf *b, bool *first, const char *name, const char *value)
{
    if (!value[0]) return;
    key(b, first, name);
    rvi_json_write_string(b, value, strlen(value));
}

static void put_count(rvi_buf *b, bool *first, const char *name, uint64_t value)
{
    if (!value) return;
    key(b, first, name);
    rvi_buf_printf(b, "%llu", (unsigned long long)value);
}

/* Four digits: no measurement has more. */
static void put_number(rvi_buf *b, bool *first, const char *name, double value)
{
    char text[40];
    if (!(value > 0)) return;
    (void)rvi_snprintf(text, sizeof text, "%.4g", value);
    key(b, first, name);
    rvi_json_write_number(b, rvi_number_parse(text, NULL));
}

/* ---- what the system says ---- */

static void describe_cpu(const rvi_machine_info *m, rvi_buf *b)
{
    bool first = true;
    rvi_buf_puts(b, "\"cpu\":{");
    put_text(b, &first, "name", m->cpu_name);
    put_text(b, &first, "vendor", m->cpu_vendor);
    put_count(b, &first, "logical", (uint64_t)m->n_logical);
    put_count(b, &first, "physical", (uint64_t)m->n_physical);
    put_count(b, &first, "smt", (uint64_t)m->smt);
    put_number(b, &first, "quota", m->cpu_quota);
    rvi_buf_puts(b, "}");
}

static void describe_isa(const rv_runtime *rt, rvi_buf *b)
{
    const char *const *names = rvi_kernels_available();
    rvi_buf_printf(b, ",\"isa\":{\"in_use\":\"%s\",\"available\":[", rv_runtime_isa(rt));
    for (size_t i = 0; names[i]; i++) rvi_buf_printf(b, "%s\"%s\"", i ? "," : "", names[i]);
    rvi_buf_printf(b, "]},\"threads\":%d", rt->n_threads);
}

static void describe_caches(const rvi_machine_info *m, rvi_buf *b)
{
    rvi_buf_puts(b, ",\"caches\":[");
    for (size_t i = 0; i < m->n_caches; i++) {
        bool first = true;
        rvi_buf_puts(b, i ? ",{" : "{");
        put_count(b, &first, "level", (uint64_t)m->caches[i].level);
        put_text(b, &first, "type", m->caches[i].type);
        put_count(b, &first, "bytes", m->caches[i].bytes);
        put_count(b, &first, "shared_by", (uint64_t)m->caches[i].shared_by);
        rvi_buf_puts(b, "}");
    }
    rvi_buf_puts(b, "]");
}

static void describe_memory(const rvi_machine_info *m, rvi_buf *b)
{
    bool first = true;
    rvi_buf_puts(b, ",\"memory\":{");
    put_count(b, &first, "total", m->memory_total);
    put_count(b, &first, "available", m->memory_available);
    put_count(b, &first, "limit", m->memory_limit);
    put_count(b, &first, "page", m->page_bytes);
    put_count(b, &first, "huge_page", m->huge_page_bytes);
    put_text(b, &first, "transparent_huge_pages", m->huge_pages);
    rvi_buf_puts(b, "}");
}

/* ---- what was measured ---- */

static void put_pair(rvi_buf *b, const char *one, const char *all, rvi_cpu_probe_pair v)
{
    bool first = true;
    put_number(b, &first, one, v.one / 1e9);
    put_number(b, &first, all, v.all / 1e9);
}

static void describe_reads(const rvi_cpu_probe *p, rvi_buf *b)
{
    size_t last = p->n_sets - 1;
    rvi_buf_puts(b, "\"read_gbps\":{");
    put_pair(b, "one_thread", "all_threads", p->read[last]);
    rvi_buf_printf(b, ",\"working_set\":%zu,\"sets\":[", p->set_bytes[last]);
    for (size_t i = 0; i < p->n_sets; i++) {
        rvi_buf_printf(b, "%s{\"bytes\":%zu,", i ? "," : "", p->set_bytes[i]);
        put_pair(b, "one_thread", "all_threads", p->read[i]);
        rvi_buf_puts(b, "}");
    }
    rvi_buf_puts(b, "]}");
}

static void describe_peak(rvi_buf *b, const char *name, const char *instruction,
                          rvi_cpu_probe_pair v)
{
    rvi_buf_printf(b, ",\"%s\":{\"instruction\":\"%s\",", name, instruction);
    put_pair(b, "gops_one", "gops_all", v);
    rvi_buf_puts(b, "}");
}

static void describe_weights(const rvi_cpu_probe *p, rvi_buf *b)
{
    rvi_buf_puts(b, ",\"weights\":{");
    for (size_t t = 0; t < RVI_QTYPE_COUNT; t++) {
        bool first = true;
        rvi_buf_printf(b, "%s\"%s\":{", t ? "," : "", rvi_qtypes[t].name);
        put_number(b, &first, "gbps_memory", p->weight[t].memory / 1e9);
        put_number(b, &first, "gbps_large", p->weight[t].large / 1e9);
        put_number(b, &first, "gbps_cache", p->weight[t].cache / 1e9);
        put_number(b, &first, "call_us", p->weight[t].call * 1e6);
        put_number(b, &first, "gops_prompt", p->weight[t].many / 1e9);
        rvi_buf_puts(b, "}");
    }
    rvi_buf_puts(b, "}");
}

static void describe_ops(rvi_buf *b, const char *name, const rvi_cpu_probe_ops *ops)
{
    bool first = true;
    rvi_buf_printf(b, ",\"%s\":{", name);
    put_number(b, &first, "norm_ns", ops->norm * 1e9);
    put_number(b, &first, "rope_ns", ops->rope * 1e9);
    put_number(b, &first, "glu_ns", ops->glu * 1e9);
    put_number(b, &first, "attention_ns_per_key", ops->attention * 1e9);
    rvi_buf_puts(b, "}");
}

static void describe_counts(const rvi_cpu_probe *p, rvi_buf *b)
{
    rvi_buf_puts(b, ",\"thread_counts\":[");
    for (size_t i = 0; i < p->n_counts; i++) {
        bool first = true;
        rvi_buf_puts(b, i ? ",{" : "{");
        put_count(b, &first, "threads", (uint64_t)p->count[i].n);
        put_number(b, &first, "gbps_memory", p->count[i].memory / 1e9);
        put_number(b, &first, "gops_prompt", p->count[i].many / 1e9);
        rvi_buf_puts(b, "}");
    }
    rvi_buf_puts(b, "]");
}

static void describe_measured(const rvi_cpu_probe *p, rvi_buf *b)
{
    bool first = false;
    rvi_buf_printf(b, ",\"measured\":{\"threads\":%d,", p->n_threads);
    describe_reads(p, b);
    describe_peak(b, "int8", p->int8_name, p->int8);
    describe_peak(b, "bf16", p->bf16_name, p->bf16);
    describe_weights(p, b);
    put_number(b, &first, "call_us", p->call * 1e6);
    put_number(b, &first, "logit_ns", p->logit * 1e9);
    rvi_buf_printf(b, ",\"large_from\":%zu", p->large_from);
    rvi_buf_printf(b, ",\"attention_heads\":%d", RVI_CPU_PROBE_HEADS);
    describe_ops(b, "one_row", &p->one);
    describe_ops(b, "many_rows", &p->many);
    describe_counts(p, b);
    rvi_buf_puts(b, "}");
}

/* ---- a GPU ---- */

/* The fastest product of many rows. */
static void describe_tensor_peak(const rvi_cuda_probe *p, rvi_buf *b)
{
    size_t best = 0;
    for (size_t t = 1; t < RVI_QTYPE_COUNT; t++)
        if (p->weight[t].many > p->weight[best].many) best = t;
    if (p->weight[best].many <= 0) return;
    rvi_buf_printf(b,
                   ",\"tensor\":{\"gops\":%.0f,\"type\":\"%s\",\"rows\":%d,\"inputs\":%d,"
                   "\"outputs\":%d}",
                   p->weight[best].many / 1e9, rvi_qtypes[best].name, RVI_CUDA_PROBE_ROWS,
                   RVI_CUDA_PROBE_IN, RVI_CUDA_PROBE_OUT);
}

static void describe_rates(const rvi_cuda_probe *p, rvi_buf *b)
{
    bool first = true;
    rvi_buf_puts(b, ",\"measured\":{");
    put_number(b, &first, "copy_gbps", p->copy / 1e9);
    put_number(b, &first, "to_device_gbps", p->to_device / 1e9);
    put_number(b, &first, "to_host_gbps", p->to_host / 1e9);
    put_number(b, &first, "launch_us", p->launch * 1e6);
    put_number(b, &first, "call_us", p->call * 1e6);
    put_number(b, &first, "crossing_us", p->crossing * 1e6);
    describe_tensor_peak(p, b);
    key(b, &first, "weights");
    rvi_buf_puts(b, "{");
    for (size_t t = 0; t < RVI_QTYPE_COUNT; t++) {
        bool none = true;
        rvi_buf_printf(b, "%s\"%s\":{", t ? "," : "", rvi_qtypes[t].name);
        put_number(b, &none, "gbps", p->weight[t].row / 1e9);
        put_number(b, &none, "gops_prompt", p->weight[t].many / 1e9);
        put_number(b, &none, "gops_prompt_more", p->weight[t].many_more / 1e9);
        put_number(b, &none, "prompt_call_us", p->weight[t].many_call * 1e6);
        rvi_buf_puts(b, "}");
    }
    rvi_buf_puts(b, "}}");
}

static void describe_gpu(const rv_runtime *rt, const rvi_cuda_probe *p, rvi_buf *b)
{
    rvi_cuda_card card;
    bool first = true;
    char text[32];
    if (rvi_backend_is_cpu(rt->be)) return;
    rvi_cuda_card_read(&card, rt->be);
    rvi_buf_puts(b, ",\"gpu\":{");
    put_text(b, &first, "name", card.name);
    snprintf(text, sizeof text, "%d.%d", card.cuda / 1000, card.cuda % 1000 / 10);
    put_text(b, &first, "cuda", text);
    snprintf(text, sizeof text, "%d.%d", card.major, card.minor);
    put_text(b, &first, "compute", text);
    put_count(b, &first, "processors", (uint64_t)card.processors);
    put_count(b, &first, "clock_mhz", (uint64_t)card.clock_khz / 1000);
    put_count(b, &first, "cache", card.l2);
    put_count(b, &first, "total", card.total);
    put_count(b, &first, "available", card.left);
    if (p) describe_rates(p, b);
    rvi_buf_puts(b, "}");
}

static rv_status measure(rv_runtime *rt, const rvi_machine_info *m, rvi_cpu_probe *out,
                         rv_error *err)
{
    uint64_t last = 0;
    for (int level = 1; level <= 9; level++)
        last = RVI_MAX(last, rvi_machine_cache_bytes(m, level));
    rvi_cpu_probe_options o = {.n_physical = m->n_physical,
                               .n_logical = m->n_logical,
                               .last_cache = (size_t)last,
                               .available =
                                   (size_t)RVI_MIN(m->memory_available, (uint64_t)SIZE_MAX)};
    return rvi_cpu_probe_run(out, rt->be, &o, err);
}

rv_status rv_runtime_describe(rv_runtime *rt, int with_measuring, char **json, rv_error *err)
{
    if (json) *json = NULL;
    if (!rt || !json) return rvi_error(err, RV_E_INVALID, "rv_runtime_describe: NULL argument");
    rvi_api_turn turn;
    rv_status st = rvi_api_enter(&turn, rt, err);
    if (st) return st;
    rvi_machine_info m;
    rvi_cpu_probe p;
    rvi_cuda_probe gpu;
    rvi_buf b = {0};
    bool on_cpu = rvi_backend_is_cpu(rt->be);
    const rvi_cuda_probe_options o = {.what = with_measuring == 2 ? RVI_CUDA_PROBE_COPIES
                                                                  : RVI_CUDA_PROBE_ALL};
    rvi_machine_read(&m, "");
    if (with_measuring)
        st = on_cpu ? measure(rt, &m, &p, err) : rvi_cuda_probe_run(&gpu, rt->be, &o, err);
    if (!st) {
        rvi_buf_puts(&b, "{");
        describe_cpu(&m, &b);
        describe_isa(rt, &b);
        describe_caches(&m, &b);
        describe_memory(&m, &b);
        if (with_measuring && on_cpu) describe_measured(&p, &b);
        describe_gpu(rt, with_measuring ? &gpu : NULL, &b);
        rvi_buf_puts(&b, "}");
        st = rvi_api_give_text(&b, json, NULL, err);
    }
    rvi_api_leave(&turn);
    return st;
}

rv_status rv_runtime_profile(rv_runtime *rt, char **json, rv_error *err)
{
    if (json) *json = NULL;
    if (!rt) return rvi_error(err, RV_E_INVALID, "rv_runtime_profile: NULL argument");
    rvi_api_turn turn;
    rv_status st = rvi_api_enter(&turn, rt, err);
    if (st) return st;
    if (!rvi_backend_is_cpu(rt->be)) {
        st = rvi_error(err, RV_E_UNSUPPORTED, "only a runtime on the CPU can be profiled");
    } else if (!json) {
        st = rvi_profile_begin(rt->be, err);
    } else {
        const rvi_profile_row *rows;
        int n = rvi_profile_rows(rt->be, &rows);
        rvi_buf b = {0};
        rvi_buf_puts(&b, "[");
        for (int i = 0; i < n; i++) {
            bool first = true;
            rvi_buf_puts(&b, i ? ",{" : "{");
            put_text(&b, &first, "op", rows[i].name);
            put_count(&b, &first, "calls", rows[i].calls);
            put_number(&b, &first, "seconds", rows[i].seconds);
            put_number(&b, &first, "bytes", rows[i].bytes);
            put_number(&b, &first, "operations", rows[i].operations);
            rvi_buf_puts(&b, "}");
        }
        rvi_buf_puts(&b, "]");
        rvi_profile_end(rt->be);
        st = rvi_api_give_text(&b, json, NULL, err);
    }
    rvi_api_leave(&turn);
    return st;
}
