/* A CUDA driver without a device: the functions that src/backend/cuda calls, with host memory as
 * device memory, and the kernels of kernels.cu computed on the host (simt.h). Tests tell it through
 * fake_* what is to go wrong. */
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "simt.h"

#include "../../src/backend/cuda/kernels.cu"

extern "C" {
float rvi_f16_to_f32(uint16_t h);
uint16_t rvi_f32_to_f16(float f);
}

float from_half(uint16_t h)
{
    return rvi_f16_to_f32(h);
}

uint16_t to_half(float f)
{
    return rvi_f32_to_f16(f);
}


struct function {
    const char *name;
    void (*run)(const void *args);
    size_t size, size2; /* of its arguments; size2: of a second one, which lies behind the first */
};

#define ROW(name, args)                                                                            \
    {#name, [](const void *a) { name(*(const rvi_cuda_##args##_args *)a); },                       \
     sizeof(rvi_cuda_##args##_args)},
static const function functions[] = {
    ROW(rows_copy, copy) ROW(bring, bring) ROW(signal, signal) ROW(gather, gather) ROW(rms_norm, norm) ROW(layer_norm, norm)
        ROW(rope, rope) ROW(glu, pair) ROW(act, pair) ROW(add, pair) ROW(soft_cap, pair) ROW(best, best) ROW(draw_look, draw) ROW(draw_weigh, draw)
            ROW(lora_down, lora) ROW(lora_up, lora) ROW(kv_write, kv_write) ROW(rope_kv, rope_kv)
                ROW(attention, attention) ROW(attention_merge, attention)
                    ROW(attention_tiles, attention) ROW(attention_tiles_q8, attention) ROW(attention_tiles_large, attention) ROW(attention_row_q8, attention) ROW(rope_keys, rope_kv) ROW(attention_wide_64, attention) ROW(attention_wide_80, attention) ROW(attention_wide_96, attention) ROW(attention_wide_112, attention) ROW(attention_wide_128, attention) ROW(attention_wide_256, attention) ROW(attention_row, attention) ROW(attention_row_large, attention) ROW(attention_join, attention)
                    {"heads_row", [](const void *a) { heads_row(*(const rvi_cuda_product_args *)a, *(const rvi_cuda_attention_args *)((const rvi_cuda_product_args *)a + 1)); },
                     sizeof(rvi_cuda_product_args), sizeof(rvi_cuda_attention_args)},
                    ROW(prepare, product) ROW(product_row, product) ROW(product_ring, product) ROW(product_few, product) ROW(add_segments, product)
                        ROW(product_tiles_32, product) ROW(product_tiles_128, product)
                            ROW(product_tiles_64, product) ROW(prepare_tiles, product) ROW(prepare_parts, product) ROW(prepare_parts_tiles, product)
#define X(name, bits, offset, scales, d_units, has_m) ROW(product_row_##name, product) ROW(product_ring_##name, product) ROW(product_wide_##name, product)
                    RVI_CUDA_QUANTS(X) ROW(product_row_F16, product) ROW(product_wide_F16, product) ROW(product_wide_F16_64, product) ROW(product_wide_F16_32, product) ROW(product_wide_F16_128, product)
#undef X
#define X(name, bits, offset, scales, d_units, has_m) ROW(product_short_##name, product)
                    ROW(product_short, product) ROW(product_twice, product) ROW(product_long, product) ROW(product_panel, product) RVI_CUDA_QUANTS(X) ROW(product_short_F16, product)
#undef X
    ROW(operands, operand) ROW(gemm_f32, gemm) ROW(gemm_bf16, gemm) ROW(span_attention, span)
        ROW(span_queries_back, span) ROW(span_keys_back, span) ROW(norm_back, norm_back)
            ROW(glu_back, glu_back) ROW(move_rows, move) ROW(scatter_add, move) ROW(loss, loss)
#define X(name, weights, before, main, after) ROW(matmul_##name##_1, matmul) ROW(matmul_##name##_4, matmul)
                    RVI_CUDA_TYPES(X)
#undef X
};

/* ---- what goes wrong ---- */

enum { MOST_SHARED = 227 << 10 };

struct fake_state {
    int version, n_devices;
    size_t memory, used;      /* bytes of the device */
    long launches, fail_after; /* the launch that fails, counted from now; -1: none */
    int sticky;                /* what every call returns since then */
    long graphs;               /* launched */
    size_t fetched, sent;      /* bytes copied to the host, and from it */
    bool is_silent;            /* of its memory */
    int major, minor, shared;  /* compute capability; shared memory of a block, in bytes */
    bool compiles;             /* what is for 8.0, as CUDA_FORCE_PTX_JIT makes drivers do */
    int opening, loading;      /* what opening the device and loading kernels return */
    int processors;
    long allocations;          /* of device memory and pinned memory */
    size_t left_then;          /* bytes that others leave once they were asked for; 0: what there is */
    long gradients;            /* launches of kernels that only a backward pass has */
};
/* Programs that cannot reach fake_driver say in variables what is to go wrong. */
static long long number_of(const char *variable, long long otherwise)
{
    const char *text = getenv(variable);
    return text ? strtoll(text, nullptr, 10) : otherwise;
}
static fake_state state = {(int)number_of("FAKE_VERSION", 13000), 1, (size_t)number_of("FAKE_DEVICE_MEMORY", 1ll << 40), 0, 0,
                           (long)number_of("FAKE_FAIL_AFTER", -1), 0, 0, 0, 0, false, 9, 0, MOST_SHARED, false,
                           (int)number_of("FAKE_OPENING", 0), (int)number_of("FAKE_LOADING", 0), 64, 0,
                           (size_t)number_of("FAKE_LEFT_THEN", 0), 0};
/* FAKE_DEVICE: "8.6 101376": another card, for whole programs. */
static const bool is_another = [] {
    const char *card = getenv("FAKE_DEVICE");
    return card && sscanf(card, "%d.%d %d", &state.major, &state.minor, &state.shared) == 3;
}();
static int allowed[sizeof functions / sizeof *functions]; /* dynamic shared memory of functions */

extern "C" __attribute__((visibility("default"))) fake_state *fake_driver(void)
{
    return &state;
}

enum { ANY_SHARED = 48 << 10 }; /* that functions may have unasked */

struct launch {
    const function *f;
    simt_index grid;
    unsigned threads, cluster;
    std::vector<char> args;
};
typedef std::vector<launch> graph;
static graph *capturing;

/* The code of 9.0, where some kernels are not empty. */
static bool is_for_9()
{
    return state.major == 9 && !state.compiles;
}
static bool is_empty(const function *f)
{
    return !is_for_9() && (strstr(f->name, "_wide_") || strstr(f->name, "_ring"));
}

static int run(const launch &l)
{
    if (state.sticky) return state.sticky;
    state.launches++;
    state.gradients += strstr(l.f->name, "_back") != nullptr;
    if (is_empty(l.f)) return 0;
    if (state.fail_after >= 0 && state.fail_after-- == 0) return state.sticky = 700;
    simt_run(l.f->run, l.args.data(), l.grid, l.threads, l.cluster);
    return 0;
}

struct block {
    size_t size;
    size_t pad[7]; /* device memory is aligned to more than 16 */
};

#define API extern "C" __attribute__((visibility("default"))) int
#define ALIVE                                                                                      \
    if (state.sticky) return state.sticky

API cuInit(unsigned)
{
    return state.n_devices ? 0 : 100;
}
API cuDriverGetVersion(int *v)
{
    *v = state.version;
    return 0;
}
API cuGetErrorName(int r, const char **name)
{
    *name = r == 2     ? "CUDA_ERROR_OUT_OF_MEMORY"
            : r == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS"
            : r == 46  ? "CUDA_ERROR_DEVICE_UNAVAILABLE"
            : r == 100 ? "CUDA_ERROR_NO_DEVICE"
            : r == 222 ? "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"
                       : "CUDA_ERROR_UNKNOWN";
    return 0;
}
API cuGetErrorString(int r, const char **text)
{
    *text = r == 700 ? "an illegal memory access was encountered" : "";
    return 0;
}
API cuDeviceGetCount(int *n)
{
    *n = state.n_devices;
    return 0;
}
API cuDeviceGet(int *d, int i)
{
    *d = i;
    return 0;
}
API cuDeviceGetName(char *name, int size, int)
{
    strncpy(name, "fake device", (size_t)size);
    return 0;
}
API cuDeviceGetAttribute(int *v, int attribute, int)
{
    switch (attribute) {
    case 75: *v = state.major; break;
    case 76: *v = state.minor; break;
    case 97: *v = state.shared; break;
    case 16: *v = state.processors; break;
    default: *v = 8;
    }
    return 0;
}
API cuDevicePrimaryCtxRetain(void **c, int)
{
    if (state.opening) return state.opening;
    *c = &state;
    return 0;
}
API cuDevicePrimaryCtxRelease_v2(int)
{
    return 0;
}
API cuCtxSetCurrent(void *)
{
    return 0;
}
API cuMemGetInfo_v2(size_t *left, size_t *total)
{
    if (state.is_silent) return 1;
    *left = state.memory - state.used;
    *total = state.memory;
    if (state.left_then) state.memory = state.used + state.left_then;
    state.left_then = 0;
    return 0;
}
API cuModuleLoadData(void **m, const void *)
{
    *m = &state;
    return state.loading ? state.loading : state.major < 8 ? 209 : 0;
}
API cuModuleUnload(void *)
{
    return 0;
}
API cuModuleGetFunction(const function **out, void *, const char *name)
{
    for (const function &f : functions)
        if (!strcmp(f.name, name)) return *out = &f, 0;
    return 500;
}
API cuFuncGetAttribute(int *v, int attribute, const function *)
{
    *v = is_for_9() ? 90 : 80;
    return attribute != 5;
}
API cuFuncSetAttribute(const function *f, int attribute, int value)
{
    if (attribute == 14) return state.major < 9; /* large clusters */
    if (attribute == 9) return value > 100;      /* what part of a processor's memory is shared */
    if (value > state.shared) return 1;
    allowed[f - functions] = value;
    return 0;
}
API cuOccupancyMaxActiveClusters(int *n, const function *, const void *)
{
    *n = state.major >= 9;
    return 0;
}
API cuMemAlloc_v2(uint64_t *out, size_t size)
{
    state.allocations++;
    ALIVE;
    if (!size) return 1;
    if (size > state.memory - state.used) return 2;
    block *b = (block *)aligned_alloc(64, (sizeof(block) + size + 63) / 64 * 64);
    if (!b) return 2;
    b->size = size;
    state.used += size;
    memset((void *)(b + 1), 0xFF, size); /* not a number, until it is written */
    *out = (uint64_t)(b + 1);
    return 0;
}
API cuMemFree_v2(uint64_t at)
{
    block *b = (block *)at - 1;
    state.used -= b->size;
    free(b);
    return state.sticky;
}
API cuMemAllocHost_v2(void **out, size_t size)
{
    state.allocations++;
    ALIVE;
    *out = malloc(size);
    return *out ? 0 : 2;
}
API cuMemFreeHost(void *p)
{
    free(p);
    return state.sticky;
}
API cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t size, void *)
{
    ALIVE;
    memcpy((void *)to, from, size);
    state.sent += size;
    return 0;
}
API cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t size, void *)
{
    ALIVE;
    memcpy(to, (void *)from, size);
    state.fetched += size;
    return 0;
}
API cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t size, void *)
{
    ALIVE;
    memmove((void *)to, (void *)from, size);
    return 0;
}
API cuMemsetD8Async(uint64_t at, unsigned char v, size_t size, void *)
{
    ALIVE;
    memset((void *)at, v, size);
    return 0;
}
API cuStreamCreate(void **s, unsigned)
{
    *s = &state;
    return 0;
}
API cuStreamDestroy_v2(void *)
{
    return 0;
}
API cuStreamSynchronize(void *)
{
    return state.sticky;
}
API cuEventCreate(void **e, unsigned)
{
    *e = &state;
    return 0;
}
API cuEventDestroy_v2(void *)
{
    return 0;
}
API cuEventRecord(void *, void *)
{
    return state.sticky;
}
API cuEventSynchronize(void *)
{
    return state.sticky;
}
struct launch_attribute {
    int id, zero;
    unsigned value[16];
};
struct launch_config {
    unsigned grid[3], threads[3], shared;
    void *stream;
    const launch_attribute *attributes;
    unsigned n_attributes;
};
API cuLaunchKernelEx(const launch_config *c, const function *f, void **args, void **)
{
    const unsigned *grid = c->grid;
    if (!grid[0] || !grid[1] || !grid[2] || grid[1] > 65535 || grid[2] > 65535) return 1;
    const char *bytes = (const char *)args[0], *more = (const char *)args[1];
    launch l = {f, {grid[0], grid[1], grid[2]}, c->threads[0], 1, std::vector<char>(bytes, bytes + f->size)};
    if (f->size2) l.args.insert(l.args.end(), more, more + f->size2);
    for (unsigned i = 0; i < c->n_attributes; i++) {
        if (state.major < 9) return 1; /* launches that overlap, clusters */
        if (c->attributes[i].id == 4) l.cluster = c->attributes[i].value[0];
    }
    if (grid[0] % l.cluster) return 1;
    if (c->shared > ANY_SHARED && (int)c->shared > allowed[f - functions]) return 1;
    if (!capturing) return run(l);
    capturing->push_back(l);
    return 0;
}
API cuStreamBeginCapture_v2(void *, int)
{
    ALIVE;
    capturing = new graph;
    return 0;
}
API cuStreamEndCapture(void *, graph **out)
{
    *out = capturing;
    capturing = nullptr;
    return 0;
}
API cuGraphInstantiateWithFlags(graph **out, graph *g, unsigned long long)
{
    *out = new graph(*g);
    return 0;
}
API cuGraphLaunch(graph *g, void *)
{
    state.graphs++;
    for (const launch &l : *g)
        if (int r = run(l)) return r;
    return 0;
}
API cuGraphDestroy(graph *g)
{
    delete g;
    return 0;
}
API cuGraphExecDestroy(graph *g)
{
    delete g;
    return 0;
}
