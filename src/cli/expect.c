#include "cli/expect.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- what a model makes the machine do ---- */

static cli_load_part *part_of(cli_load *l, const char *type)
{
    for (size_t i = 0; i < l->n_parts; i++)
        if (!strcmp(l->parts[i].type, type)) return &l->parts[i];
    if (l->n_parts == CLI_LOAD_TYPES) return NULL;
    cli_load_part *p = &l->parts[l->n_parts++];
    snprintf(p->type, sizeof p->type, "%s", type);
    return p;
}

static void add_matrix(cli_load_part *p, double bytes, double weights)
{
    if (!p) return;
    p->bytes += bytes;
    p->weights += weights;
    p->n_matrices++;
}

static double number(const rvi_json *object, const char *name)
{
    return rvi_json_number(rvi_json_get(object, name), 0);
}

static int int_of(const rvi_json *d, const char *name)
{
    int64_t v = rvi_json_int(rvi_json_get(d, name), 0);
    return v > 0 && v < INT32_MAX ? (int)v : 0;
}

static bool is_one_of(const char *name, const char *a, const char *b)
{
    return !strcmp(name, a) || !strcmp(name, b);
}

bool cli_load_of_model(cli_load *out, const rvi_json *d)
{
    const rvi_json *tensors = rvi_json_get(d, "tensors");
    *out = (cli_load){.n_layers = int_of(d, "layers"),
                      .n_embd = int_of(d, "embedding"),
                      .n_ff = int_of(d, "feed_forward"),
                      .n_heads = int_of(d, "heads"),
                      .n_kv_heads = int_of(d, "kv_heads"),
                      .head_size = int_of(d, "head_size"),
                      .n_vocab = int_of(d, "vocabulary"),
                      .n_context = int_of(d, "context"),
                      .n_params = rvi_json_number(rvi_json_get(d, "parameters"), 0)};
    cli_load_part embedding = {0};
    for (size_t i = 0; i < rvi_json_count(tensors); i++) {
        const rvi_json *t = rvi_json_at(tensors, i), *shape = rvi_json_get(t, "shape");
        const char *name = rvi_json_string(rvi_json_get(t, "name"), "");
        const char *type = rvi_json_string(rvi_json_get(t, "type"), "");
        double bytes = number(t, "bytes"), weights = 1;
        for (size_t k = 0; k < rvi_json_count(shape); k++)
            weights *= rvi_json_number(rvi_json_at(shape, k), 0);
        out->model_bytes += bytes;
        if (rvi_json_count(shape) < 2) {
            out->token_bytes += bytes;
            continue;
        }
        bool is_head = is_one_of(name, "output.weight", "lm_head.weight");
        bool is_embedding = is_one_of(name, "token_embd.weight", "model.embed_tokens.weight");
        cli_load_part *p = is_head ? &out->head : is_embedding ? &embedding : part_of(out, type);
        if (is_head || is_embedding) snprintf(p->type, sizeof p->type, "%s", type);
        add_matrix(p, bytes, weights);
    }
    if (!out->head.n_matrices) out->head = embedding; /* tied */
    out->token_bytes += out->head.bytes;
    for (size_t i = 0; i < out->n_parts; i++) out->token_bytes += out->parts[i].bytes;
    return out->n_layers > 0 && out->head.n_matrices > 0;
}

/* Bytes of one weight; 0 for a type that is not in the table. */
static double weight_bytes(const char *type)
{
    static const struct {
        const char *type;
        double bytes;
    } rows[] = {{"f16", 2},
                {"q8_0", 34.0 / 32},
                {"q4_k", 144.0 / 256},
                {"q6_k", 210.0 / 256},
                {"q5_0", 22.0 / 32}};
    for (size_t i = 0; i < RVI_COUNT(rows); i++)
        if (!strcmp(rows[i].type, type)) return rows[i].bytes;
    return 0;
}

/* What files of a type really hold: rows that are no multiple of 256 fall back to blocks of 32. */
static const char *stored_type(const char *type, int n_in)
{
    if (n_in % 256 == 0) return type;
    return !strcmp(type, "q4_k") ? "q5_0" : !strcmp(type, "q6_k") ? "q8_0" : type;
}

static void add_typical(cli_load *l, const char *type, int n_in, int n_out)
{
    const char *stored = stored_type(type, n_in);
    double weights = (double)n_in * n_out;
    add_matrix(part_of(l, stored), weights * weight_bytes(stored), weights);
}

const cli_typical cli_typical_models[] = {
    {"0.5B", 24, 896, 4864, 14, 2, 64, 151936, 32768, true},
    {"1B", 16, 2048, 8192, 32, 8, 64, 128256, 131072, true},
    {"3B", 28, 3072, 8192, 24, 8, 128, 128256, 131072, true},
    {"8B", 32, 4096, 14336, 32, 8, 128, 128256, 131072, false},
    {0},
};

void cli_load_of_typical(cli_load *out, const cli_typical *t, const char *type)
{
    int nq = t->n_heads * t->head_size, nk = t->n_kv_heads * t->head_size;
    *out = (cli_load){.n_layers = t->n_layers,
                      .n_embd = t->n_embd,
                      .n_ff = t->n_ff,
                      .n_heads = t->n_heads,
                      .n_kv_heads = t->n_kv_heads,
                      .head_size = t->head_size,
                      .n_vocab = t->n_vocab,
                      .n_context = t->n_context};
    for (int il = 0; il < t->n_layers; il++) {
        add_typical(out, type, t->n_embd, nq);
        add_typical(out, type, t->n_embd, nk);
        add_typical(out, type, t->n_embd, nk);
        add_typical(out, type, nq, t->n_embd);
        add_typical(out, type, t->n_embd, t->n_ff);
        add_typical(out, type, t->n_embd, t->n_ff);
        add_typical(out, type, t->n_ff, t->n_embd);
    }
    /* the head of a q4_k file is q6_k */
    const char *head = stored_type(!strcmp(type, "q4_k") ? "q6_k" : type, t->n_embd);
    double weights = (double)t->n_embd * t->n_vocab;
    snprintf(out->head.type, sizeof out->head.type, "%s", head);
    add_matrix(&out->head, weights * weight_bytes(head), weights);
    out->token_bytes = out->head.bytes;
    out->n_params = weights * (t->tied ? 1 : 2);
    for (size_t i = 0; i < out->n_parts; i++) {
        out->token_bytes += out->parts[i].bytes;
        out->n_params += out->parts[i].weights;
    }
    const char *table = stored_type(type, t->n_embd);
    out->model_bytes = out->token_bytes + (t->tied ? 0 : weights * weight_bytes(table));
}

double cli_load_kv_bytes(const cli_load *l, rv_kv_type type)
{
    /* with a scale; the newest page of WARM and TIERED has more, the oldest of TIERED have less */
    double head =
        type >= RV_KV_Q8 ? l->head_size + 4.0 : l->head_size * (type == RV_KV_F32 ? 4.0 : 2.0);
    return 2.0 * l->n_layers * l->n_kv_heads * head;
}

double cli_load_scratch_bytes(const cli_load *l)
{
    double rows = 256, columns = 4.0 * l->n_embd + 3.0 * l->n_ff +
                                 (2.0 * l->n_heads + 2.0 * l->n_kv_heads) * l->head_size;
    return 4 * (rows * columns + 2.0 * 16 * l->n_vocab);
}

/* ---- what it costs ---- */

/* Seconds to read a byte of a working set, by the curve that was measured. */
static double read_seconds(const rvi_json *sets, double bytes)
{
    double before_bytes = 0, before = 0;
    for (size_t i = 0; i < rvi_json_count(sets); i++) {
        const rvi_json *s = rvi_json_at(sets, i);
        double at = number(s, "bytes"), gbps = number(s, "all_threads");
        double now = gbps > 0 ? 1e-9 / gbps : 0;
        if (bytes <= at)
            return i ? before + (now - before) * (bytes - before_bytes) / (at - before_bytes) : now;
        before_bytes = at;
        before = now;
    }
    return before;
}

/* How much of memory's cost a working set shows: 0 in the nearest cache, 1 beyond all of them. */
static double memory_part(const rvi_json *measured, double bytes)
{
    const rvi_json *sets = rvi_json_get(rvi_json_get(measured, "read_gbps"), "sets");
    double nearest = read_seconds(sets, 0), farthest = read_seconds(sets, 1e18);
    if (farthest <= nearest) return 1;
    double part = (read_seconds(sets, bytes) - nearest) / (farthest - nearest);
    return part < 0 ? 0 : part > 1 ? 1 : part;
}

/* Seconds of one-row products over a part's matrices, calls included; below 0: no rate. */
static double row_seconds(const cli_load_part *p, const rvi_json *measured, double memory)
{
    const rvi_json *w = rvi_json_get(rvi_json_get(measured, "weights"), p->type);
    double far = number(w, "gbps_memory"), large = number(w, "gbps_large");
    double near = number(w, "gbps_cache"), call = number(measured, "call_us");
    if (far <= 0 || large <= 0 || near <= 0) return -1;
    /* matrices are taken to be of one size; the bytes beyond large_from cost less */
    double first = RVI_MIN(p->bytes, p->n_matrices * number(measured, "large_from"));
    double from_memory = first / far + (p->bytes - first) / large, from_cache = p->bytes / near;
    call += memory * (RVI_MAX(number(w, "call_us"), call) - call);
    return 1e-9 * (from_cache + memory * (from_memory - from_cache)) + p->n_matrices * call * 1e-6;
}

/* Seconds of the row ops and the attention of one token in one layer, seeing so many keys. */
static double layer_seconds(const cli_load *l, const rvi_json *ops, double keys)
{
    double q = (double)l->n_heads * l->head_size, k = (double)l->n_kv_heads * l->head_size;
    return 1e-9 *
           (2.0 * l->n_embd * number(ops, "norm_ns") + (q + k) * number(ops, "rope_ns") +
            l->n_ff * number(ops, "glu_ns") + keys * q * number(ops, "attention_ns_per_key"));
}

/* One row's heads are shared out whole: how much longer that takes than an even share would. */
static double unevenness(double heads, double threads)
{
    return heads > 0 && threads > 0 ? ceil(heads / threads) * threads / heads : 1;
}

double cli_expect_decode(const cli_load *l, const rvi_json *measured, double depth)
{
    double memory = memory_part(measured, l->token_bytes);
    double call = number(measured, "call_us") * 1e-6;
    double seconds = row_seconds(&l->head, measured, memory);
    if (seconds < 0) return 0;
    for (size_t i = 0; i < l->n_parts; i++) {
        double s = row_seconds(&l->parts[i], measured, memory);
        if (s < 0) return 0;
        seconds += s;
    }
    double threads = number(measured, "threads");
    double keys = (depth + 1) * unevenness(l->n_heads, threads) /
                  unevenness(number(measured, "attention_heads"), threads);
    seconds += l->n_layers * (layer_seconds(l, rvi_json_get(measured, "one_row"), keys) + call);
    seconds += l->n_vocab * number(measured, "logit_ns") * 1e-9;
    return seconds > 0 ? 1 / seconds : 0;
}

double cli_expect_prompt(const cli_load *l, const rvi_json *measured, int n_prompt)
{
    const rvi_json *weights = rvi_json_get(measured, "weights");
    double seconds = row_seconds(&l->head, measured, memory_part(measured, l->token_bytes));
    if (seconds < 0) return 0;
    for (size_t i = 0; i < l->n_parts; i++) {
        double gops = number(rvi_json_get(weights, l->parts[i].type), "gops_prompt");
        if (gops <= 0) return 0;
        seconds += 2 * l->parts[i].weights * n_prompt / (gops * 1e9);
    }
    seconds += (double)n_prompt * l->n_layers *
               layer_seconds(l, rvi_json_get(measured, "many_rows"), n_prompt / 2.0);
    return seconds > 0 ? n_prompt / seconds : 0;
}

/* Seconds of the weights of a part, read once; below 0: no rate. */
static double gpu_row_seconds(const cli_load_part *p, const rvi_json *measured)
{
    double gbps = number(rvi_json_get(rvi_json_get(measured, "weights"), p->type), "gbps");
    return gbps > 0 ? p->bytes / (gbps * 1e9) : -1;
}

double cli_expect_gpu_decode(const cli_load *l, const rvi_json *measured, rv_kv_type kv,
                             double depth)
{
    enum { KERNELS = 6, BESIDES = 3 }; /* of a layer; the last norm, the head, the way back */
    double seconds = gpu_row_seconds(&l->head, measured), copy = number(measured, "copy_gbps");
    if (seconds < 0 || copy <= 0) return 0;
    for (size_t i = 0; i < l->n_parts; i++) {
        double s = gpu_row_seconds(&l->parts[i], measured);
        if (s < 0) return 0;
        seconds += s;
    }
    seconds += (KERNELS * l->n_layers + BESIDES) * number(measured, "call_us") * 1e-6;
    seconds += depth * cli_load_kv_bytes(l, kv) / (copy * 1e9);
    return 1 / seconds;
}

/* Bytes of a row that a layer's kernels read and write beside weights: floats, and as products read
 * them, two bytes each. Both norms and both sums, queries and keys turned and written, what
 * attention and the gate give. */
static double gpu_row_bytes(const cli_load *l)
{
    double q = (double)l->n_heads * l->head_size, kv = 2.0 * l->n_kv_heads * l->head_size;
    return 28.0 * l->n_embd + 18 * q + 8 * kv + 10.0 * l->n_ff;
}

double cli_expect_gpu_prompt(const cli_load *l, const rvi_json *measured, int n_prompt)
{
    enum { MATRICES = 7, PRODUCTS = 4, KERNELS = 6 }; /* of a layer: products, and others */
    const rvi_json *weights = rvi_json_get(measured, "weights");
    double seconds = gpu_row_seconds(&l->head, measured), copy = number(measured, "copy_gbps");
    double fastest = number(rvi_json_get(measured, "tensor"), "gops");
    if (seconds < 0 || copy <= 0 || fastest <= 0) return 0;
    for (size_t i = 0; i < l->n_parts; i++) {
        const rvi_json *w = rvi_json_get(weights, l->parts[i].type);
        double gops = number(w, "gops_prompt_more");
        if (gops <= 0) return 0;
        seconds += 2 * l->parts[i].weights * n_prompt / (gops * 1e9);
        seconds +=
            1e-6 * number(w, "prompt_call_us") * l->parts[i].n_matrices * PRODUCTS / MATRICES;
    }
    double seen =
        2.0 * n_prompt * n_prompt * l->n_heads * l->head_size; /* two products, half of it */
    seconds += l->n_layers * (1e-6 * KERNELS * number(measured, "call_us") +
                              1e-9 * (n_prompt * gpu_row_bytes(l) / copy + seen / fastest));
    return n_prompt / seconds;
}
