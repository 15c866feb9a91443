/* doctor: what this machine is, what it can do, and what to run on it.
 *
 * Everything follows from rv_runtime_describe and, with a model, from the list of its tensors: the
 * model itself is not run. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "base/os.h"
#include "cli/cli.h"
#include "cli/doctor_gpu.h"
#include "cli/expect.h"

enum {
    PROMPT = 512, /* tokens of the prompt, and */
    ANSWER = 128, /* of the answer, that figures are given for: the defaults of bench */
    LEAST = 2048, /* tokens of context that a model must have room for, to count as fitting */
    DEEP = 4096,  /* where decoding deep in a context is looked at */
    PAGE = 32,    /* tokens; contexts come in whole pages */
};
static const double usable_part = 0.95; /* of the memory that is available */

typedef struct outlook {
    double bytes, decode, deep, prompt; /* of weights; tokens a second */
    int deep_at;                        /* tokens of context that deep is for */
    double context;                     /* tokens that fit; -1: unknown */
    bool fits;
} outlook;

typedef struct doctor {
    const rvi_json *machine, *measured;
    double available; /* bytes, 0: unknown */
    double load;      /* of the system before measuring began; -1: unknown */
    int threads, best_threads;
    rv_kv_type kv; /* F32, F16 or Q8 */
    cli_gpu gpu;
} doctor;

static double number(const rvi_json *object, const char *name)
{
    return rvi_json_number(rvi_json_get(object, name), 0);
}

/* ---- thinking ---- */

static outlook look_at(const doctor *d, const cli_load *l)
{
    outlook o = {.bytes = l->model_bytes,
                 .decode = cli_expect_decode(l, d->measured, ANSWER / 2.0),
                 .prompt = cli_expect_prompt(l, d->measured, PROMPT),
                 .deep_at = l->n_context ? RVI_MIN(l->n_context, DEEP) : DEEP,
                 .context = -1,
                 .fits = true};
    o.deep = cli_expect_decode(l, d->measured, o.deep_at);
    if (d->available > 0) {
        double left = d->available * usable_part - l->model_bytes - cli_load_scratch_bytes(l);
        double kv = cli_load_kv_bytes(l, d->kv);
        o.context = left > 0 && kv > 0 ? floor(left / kv / PAGE) * PAGE : 0;
        o.fits = o.context >= (l->n_context ? RVI_MIN(l->n_context, LEAST) : LEAST);
        if (l->n_context) o.context = RVI_MIN(o.context, (double)l->n_context);
    }
    return o;
}

/* The fewest threads within 3 % of the best decoding rate. */
static int choose_threads(const rvi_json *counts)
{
    double best = 0;
    for (size_t i = 0; i < rvi_json_count(counts); i++)
        best = RVI_MAX(best, number(rvi_json_at(counts, i), "gbps_memory"));
    for (size_t i = 0; i < rvi_json_count(counts); i++) {
        const rvi_json *c = rvi_json_at(counts, i);
        if (number(c, "gbps_memory") >= 0.97 * best)
            return (int)rvi_json_int(rvi_json_get(c, "threads"), 0);
    }
    return 0;
}

static const char *const typical_types[] = {"q4_k", "q8_0", "f16"};

/* ---- for people ---- */

static void put_bytes(rvi_buf *out, double bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    size_t u = 0;
    while (bytes >= 1024 && u + 1 < RVI_COUNT(units)) {
        bytes /= 1024;
        u++;
    }
    rvi_buf_printf(out, bytes < 10 && bytes != floor(bytes) ? "%.1f %s" : "%.0f %s", bytes,
                   units[u]);
}

static void write_caches(const rvi_json *caches, rvi_buf *out)
{
    const char *before = "caches        ";
    for (size_t i = 0; i < rvi_json_count(caches); i++) {
        const rvi_json *c = rvi_json_at(caches, i);
        int64_t shared = rvi_json_int(rvi_json_get(c, "shared_by"), 0);
        if (rvi_json_is_string(rvi_json_get(c, "type"), "instruction")) continue;
        rvi_buf_printf(out, "%sL%lld ", before,
                       (long long)rvi_json_int(rvi_json_get(c, "level"), 0));
        put_bytes(out, number(c, "bytes"));
        if (shared > 1) rvi_buf_printf(out, " for %lld CPUs", (long long)shared);
        before = ", ";
    }
    if (before[0] == ',') rvi_buf_putc(out, '\n');
}

static void write_machine(const doctor *d, rvi_buf *out)
{
    const rvi_json *cpu = rvi_json_get(d->machine, "cpu"), *isa = rvi_json_get(d->machine, "isa"),
                   *memory = rvi_json_get(d->machine, "memory");
    long long physical = rvi_json_int(rvi_json_get(cpu, "physical"), 0);
    rvi_buf_printf(out, "cpu           %s\n",
                   rvi_json_string(rvi_json_get(cpu, "name"), "unknown"));
    rvi_buf_printf(out, "usable        %lld CPUs",
                   (long long)rvi_json_int(rvi_json_get(cpu, "logical"), 0));
    if (physical) rvi_buf_printf(out, " on %lld core%s", physical, physical == 1 ? "" : "s");
    if (number(cpu, "quota") > 0)
        rvi_buf_printf(out, ", time for %.1f of them", number(cpu, "quota"));
    rvi_buf_printf(out, "\ninstructions  %s\n",
                   rvi_json_string(rvi_json_get(isa, "in_use"), "unknown"));
    write_caches(rvi_json_get(d->machine, "caches"), out);
    if (number(memory, "total") > 0) {
        rvi_buf_puts(out, "memory        ");
        put_bytes(out, number(memory, "total"));
        if (number(memory, "limit") > 0) {
            rvi_buf_puts(out, ", limited to ");
            put_bytes(out, number(memory, "limit"));
        }
        if (d->available > 0) {
            rvi_buf_puts(out, ", available ");
            put_bytes(out, d->available);
        }
        rvi_buf_putc(out, '\n');
    }
    const char *huge = rvi_json_string(rvi_json_get(memory, "transparent_huge_pages"), "");
    if (number(memory, "page") > 0) {
        rvi_buf_puts(out, "pages         ");
        put_bytes(out, number(memory, "page"));
        rvi_buf_printf(out, huge[0] ? ", huge ones: %s\n" : "%s\n", huge);
    }
}

/* Figures of a busy machine say little. */
static bool is_busy(const doctor *d)
{
    return d->load > 0.3 * number(rvi_json_get(d->machine, "cpu"), "logical");
}

static void write_peak(const rvi_json *peak, const char *name, rvi_buf *out)
{
    rvi_buf_printf(out, "%-13s %.0f GOP/s, one thread %.0f (%s)\n", name, number(peak, "gops_all"),
                   number(peak, "gops_one"),
                   rvi_json_string(rvi_json_get(peak, "instruction"), ""));
}

static void write_measured(const doctor *d, rvi_buf *out)
{
    const rvi_json *read = rvi_json_get(d->measured, "read_gbps"),
                   *weights = rvi_json_get(d->measured, "weights"),
                   *sets = rvi_json_get(read, "sets");
    rvi_buf_printf(out, "\nmeasured with %d thread%s\n", d->threads, d->threads == 1 ? "" : "s");
    if (is_busy(d))
        rvi_buf_printf(out,
                       "busy          other programs were running (load %.1f): figures of an idle "
                       "machine are better\n",
                       d->load);
    for (size_t i = rvi_json_count(sets); i-- > 0;) {
        const rvi_json *s = rvi_json_at(sets, i);
        rvi_buf_printf(out, "%-13s ", i + 1 == rvi_json_count(sets) ? "reading" : "");
        rvi_buf_printf(out, "%.1f GB/s, one thread %.1f, over ", number(s, "all_threads"),
                       number(s, "one_thread"));
        put_bytes(out, number(s, "bytes"));
        rvi_buf_putc(out, '\n');
    }
    write_peak(rvi_json_get(d->measured, "int8"), "int8 peak", out);
    write_peak(rvi_json_get(d->measured, "bf16"), "bf16 peak", out);
    rvi_buf_puts(out, "\n              one row            one row            prompt\n"
                      "weights       from memory        from cache         256 rows\n");
    for (size_t i = 0; i < rvi_json_count(weights); i++) {
        const rvi_json *w = rvi_json_at(weights, i);
        rvi_buf_printf(out, "%-12s %7.1f GB/s       %7.1f GB/s     %8.0f GOP/s\n", w->key,
                       number(w, "gbps_memory"), number(w, "gbps_cache"), number(w, "gops_prompt"));
    }
}

static void write_threads(const doctor *d, rvi_buf *out)
{
    const rvi_json *counts = rvi_json_get(d->measured, "thread_counts");
    if (!rvi_json_count(counts)) return; /* there was no time for that */
    rvi_buf_puts(out, "\nthreads       decoding (q4_k)    prompts\n");
    for (size_t i = 0; i < rvi_json_count(counts); i++) {
        const rvi_json *c = rvi_json_at(counts, i);
        rvi_buf_printf(out, "%-12lld %7.1f GB/s     %8.0f GOP/s\n",
                       (long long)rvi_json_int(rvi_json_get(c, "threads"), 0),
                       number(c, "gbps_memory"), number(c, "gops_prompt"));
    }
}

/* Tokens a second: slow ones with a digit that tells them from none. */
static void put_rate(rvi_buf *out, int width, double rate)
{
    rvi_buf_printf(out, rate >= 100 ? "%*.0f" : rate >= 1 ? "%*.1f" : "%*.2g", width, rate);
}

static void write_outlook(const outlook *o, const char *name, const char *type, rvi_buf *out)
{
    size_t at = out->len;
    rvi_buf_printf(out, "%-6s %-6s ", name, type);
    put_bytes(out, o->bytes);
    while (!out->failed && out->len - at < 24) rvi_buf_putc(out, ' ');
    if (!o->fits) rvi_buf_puts(out, "does not fit the memory\n");
    if (!o->fits) return;
    put_rate(out, 8, o->decode);
    put_rate(out, 15, o->prompt);
    if (o->context < 0)
        rvi_buf_puts(out, "        unknown\n");
    else
        rvi_buf_printf(out, " %14.0f\n", o->context);
}

static void write_typical(const doctor *d, rvi_buf *out)
{
    rvi_buf_puts(out, "\nexpected                  tok/s         tok/s      context\n"
                      "model                  decoding     prompt 512      to fit\n");
    for (const cli_typical *t = cli_typical_models; t->name; t++)
        for (size_t i = 0; i < RVI_COUNT(typical_types); i++) {
            cli_load load;
            cli_load_of_typical(&load, t, typical_types[i]);
            outlook o = look_at(d, &load);
            write_outlook(&o, t->name, typical_types[i], out);
        }
}

static void write_model(const doctor *d, const cli_load *l, const char *name, rvi_buf *out)
{
    outlook o = look_at(d, l);
    rvi_buf_printf(out, "\nmodel         %s, ", name);
    put_bytes(out, o.bytes);
    rvi_buf_printf(out, " of weights, %.0f MB read for a token\n", l->token_bytes / 1e6);
    if (o.decode > 0) {
        rvi_buf_puts(out, "expected      ");
        put_rate(out, 0, o.decode);
        rvi_buf_puts(out, " tok/s decoding (");
        put_rate(out, 0, o.deep);
        rvi_buf_printf(out, " at %d tokens of context), ", o.deep_at);
        put_rate(out, 0, o.prompt);
        rvi_buf_printf(out, " tok/s for a prompt of %d\n", PROMPT);
    }
    if (!o.fits)
        rvi_buf_puts(out, "memory        the model does not fit\n");
    else if (o.context >= 0)
        rvi_buf_printf(out,
                       "context       --ctx %.0f fits the memory (made for %d), %.0f KiB a token\n",
                       o.context, l->n_context, cli_load_kv_bytes(l, d->kv) / 1024);
}

static void write_advice(const doctor *d, rvi_buf *out)
{
    const rvi_json *cpu = rvi_json_get(d->machine, "cpu");
    const char *best = NULL, *type = "";
    double rate = 0;
    rvi_buf_puts(out, "\nadvice\n");
    if (d->best_threads) {
        rvi_buf_printf(out, "- threads: -t %d decodes fastest here", d->best_threads);
        if (number(cpu, "smt") > 1)
            rvi_buf_puts(out, d->best_threads > (int)number(cpu, "physical")
                                  ? "; the second CPU of each core helps"
                                  : "; the second CPU of each core does not help");
        rvi_buf_puts(out, ".\n");
    }
    if (number(cpu, "quota") > 0 && number(cpu, "quota") < d->best_threads)
        rvi_buf_printf(out,
                       "- this process may use the time of %.1f CPUs: more threads than that "
                       "wait for each other.\n",
                       number(cpu, "quota"));
    /* the largest of the table that fits and answers at reading speed */
    for (const cli_typical *t = cli_typical_models; t->name; t++)
        for (size_t i = RVI_COUNT(typical_types); i-- > 0;) {
            cli_load load;
            cli_load_of_typical(&load, t, typical_types[i]);
            outlook o = look_at(d, &load);
            if (!o.fits || o.decode < 8) continue;
            best = t->name;
            type = typical_types[i];
            rate = o.decode;
        }
    if (best)
        rvi_buf_printf(out,
                       "- models: up to %s as %s answers faster than one reads (%.1f tok/s).\n",
                       best, type, rate);
    else
        rvi_buf_puts(out, "- models: even small ones will answer slowly here.\n");
    rvi_buf_puts(out, "- 'ruvllm bench MODEL' measures a model itself.\n");
}

/* ---- for programs ---- */

static void json_outlook(const outlook *o, rvi_buf *out)
{
    rvi_buf_printf(out, "\"bytes\":%.0f,\"fits\":%s,\"decode_tps\":%.3f,\"prompt_tps\":%.3f",
                   o->bytes, o->fits ? "true" : "false", o->decode, o->prompt);
    rvi_buf_printf(out, ",\"deep_tps\":%.3f,\"deep_at\":%d", o->deep, o->deep_at);
    if (o->context >= 0) rvi_buf_printf(out, ",\"context\":%.0f", o->context);
}

/* The description, with what follows from it as further members. */
static void write_json(const doctor *d, const char *described, const cli_load *l, const char *name,
                       rvi_buf *out)
{
    rvi_buf_append(out, described, strlen(described) - 1);
    if (d->load >= 0) rvi_buf_printf(out, ",\"load\":%.2f", d->load);
    rvi_buf_puts(out, ",\"advice\":{");
    if (d->best_threads) rvi_buf_printf(out, "\"threads\":%d", d->best_threads);
    rvi_buf_puts(out, "},\"expected\":[");
    bool first = true;
    for (const cli_typical *t = cli_typical_models; t->name; t++)
        for (size_t i = 0; i < RVI_COUNT(typical_types); i++) {
            cli_load load;
            cli_load_of_typical(&load, t, typical_types[i]);
            outlook o = look_at(d, &load);
            rvi_buf_printf(out, "%s{\"model\":\"%s\",\"type\":\"%s\",", first ? "" : ",", t->name,
                           typical_types[i]);
            json_outlook(&o, out);
            rvi_buf_puts(out, "}");
            first = false;
        }
    rvi_buf_puts(out, "]");
    if (l) {
        outlook o = look_at(d, l);
        rvi_buf_puts(out, ",\"model\":{\"name\":");
        rvi_json_write_string(out, name, strlen(name));
        rvi_buf_printf(out, ",\"token_bytes\":%.0f,", l->token_bytes);
        json_outlook(&o, out);
        rvi_buf_puts(out, "}");
    }
    cli_gpu_write_json(&d->gpu, l, d->kv, PROMPT, out);
    rvi_buf_puts(out, "}\n");
}

/* ---- the command ---- */

static rv_status make_runtime(const cli *c, rv_runtime **out, rv_error *err)
{
    rv_runtime_options o;
    o = (rv_runtime_options){.size = sizeof o};
    o.n_threads = c->threads;
    o.exact = c->exact;
    o.no_pack = c->no_pack;
    o.isa = c->isa;
    return rv_runtime_new(out, &o, err);
}

/* The model's load, and the cache type it would run with. */
static rv_status read_model(cli *c, const char *name, cli_model *model, rvi_arena *arena,
                            cli_load *load, rv_kv_type *kv, rv_error *err)
{
    rv_kv_type asked = RV_KV_DEFAULT;
    const rvi_json *described;
    char *text = NULL;
    rv_status st = cli_open(c, name, false, model, err);
    if (!st) st = cli_kv_type(c, &asked, err);
    if (!st) st = rv_model_describe(model->m, 1, &text, err);
    if (!st) st = rvi_json_parse(&described, text, strlen(text), arena, "description", err);
    if (!st && !cli_load_of_model(load, described))
        st = rvi_error(err, RV_E_INVALID, "%s generates no text, so there is no speed to predict",
                       name);
    if (!st && asked != RV_KV_DEFAULT) *kv = asked;
    rv_free(text);
    return st;
}

int cli_doctor(cli *c, int argc, char **argv)
{
    bool json = false, done;
    const cli_option table[] = {{"json", 0, CLI_FLAG, &json, NULL}};
    const char *args[1];
    int n_args, code = cli_parse(c, table, RVI_COUNT(table), argc, argv, args, 1, &n_args, &done);
    if (code || done) return code;

    rv_error err = {0};
    cli_model model = {0};
    cli_load load;
    rvi_arena arena = {0};
    rvi_buf out = {0};
    char *text = NULL;
    doctor d = {.kv = c->exact ? RV_KV_F32 : RV_KV_F16, .load = rvi_os_load()};
    const char *device = c->device; /* the model is opened on the CPU */
    c->device = NULL;
    c->gpu_layers = 0;
    rv_status st = n_args ? read_model(c, args[0], &model, &arena, &load, &d.kv, &err)
                          : make_runtime(c, &model.rt, &err);
    if (!st) st = rv_runtime_describe(model.rt, 1, &text, &err);
    if (!st) st = cli_gpu_look(c, device, model.m, &d.gpu, &arena, &err);
    if (!st) st = rvi_json_parse(&d.machine, text, strlen(text), &arena, "description", &err);
    if (!st) {
        d.measured = rvi_json_get(d.machine, "measured");
        d.available = number(rvi_json_get(d.machine, "memory"), "available");
        d.threads = (int)rvi_json_int(rvi_json_get(d.machine, "threads"), 0);
        d.best_threads = choose_threads(rvi_json_get(d.measured, "thread_counts"));
        if (json) {
            write_json(&d, text, n_args ? &load : NULL, n_args ? args[0] : "", &out);
        } else {
            write_machine(&d, &out);
            write_measured(&d, &out);
            write_threads(&d, &out);
            write_typical(&d, &out);
            cli_gpu_write(&d.gpu, &out);
            if (n_args) write_model(&d, &load, args[0], &out);
            if (n_args) cli_gpu_write_model(&d.gpu, &load, d.kv, PROMPT, &out);
            write_advice(&d, &out);
            if (out.data) cli_hush(out.data, out.len);
        }
        code = cli_print(&out);
    }
    rv_free(text);
    cli_gpu_deinit(&d.gpu);
    rvi_arena_deinit(&arena);
    cli_close(&model);
    return st ? cli_fail(&err) : code;
}
