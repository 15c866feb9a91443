#include "backend/cuda/probe.h"

#include <string.h>

#include "backend/cuda/cuda.h"
#include "base/mem.h"
#include "base/os.h"

void rvi_cuda_card_read(rvi_cuda_card *out, rvi_backend *be)
{
    rvi_cuda *c = rvi_cuda_of(be);
    int l2 = 0;
    *out = (rvi_cuda_card){.cuda = c->cu.version};
    if (c->cu.device_name(out->name, sizeof out->name - 1, c->device)) out->name[0] = 0;
    const struct {
        int id, *to;
    } wanted[] = {{RVI_CU_PROCESSORS, &out->processors},
                  {RVI_CU_CLOCK_KHZ, &out->clock_khz},
                  {RVI_CU_L2_BYTES, &l2},
                  {RVI_CU_MAJOR, &out->major},
                  {RVI_CU_MINOR, &out->minor}};
    for (size_t i = 0; i < RVI_COUNT(wanted); i++)
        if (c->cu.device_attribute(wanted[i].to, wanted[i].id, c->device)) *wanted[i].to = 0;
    out->l2 = l2 > 0 ? (size_t)l2 : 0;
    rvi_backend_cuda_memory(be, &out->left, &out->total);
}

/* ---- the measuring ---- */

enum { MOST_MATRICES = 64 };

typedef struct probe {
    rvi_cuda *c;
    rvi_backend *be;
    bool quick;
    int n_in, n_out, n_rows, n_launches;
    size_t set;          /* bytes of weights that one turn reads: more than the cache keeps */
    uint8_t *bytes;      /* of a matrix of any type */
    rvi_tensor *x, *out; /* rows */
    rvi_tensor *w[MOST_MATRICES];
    int n_matrices;
    rvi_pack *pack;
    double least; /* seconds that a figure is taken over */
    double until; /* when no further type is measured */
} probe;

static bool is_late(const probe *p)
{
    return rvi_os_seconds() > p->until;
}

static void wait(probe *p)
{
    float one;
    p->be->ops->rows_read(p->be, rvi_cols_of(p->out, 0, 1), 0, &one);
}

/* Seconds of one turn. The first two are not counted: kernels are loaded and lists become graphs
 * then. */
static double seconds_of(probe *p, void (*turn)(probe *p))
{
    double took = 0;
    for (int n = p->quick ? 1 : 2; n > 0; n--) turn(p);
    wait(p);
    for (int n = 1;; n *= 2) {
        double begin = rvi_os_seconds();
        for (int i = 0; i < n; i++) turn(p);
        wait(p);
        took = (rvi_os_seconds() - begin) / n;
        if (p->quick || took * n >= p->least || n >= 1 << 20 || is_late(p)) return took;
    }
}

static void products(probe *p, int n_rows)
{
    for (int i = 0; i < p->n_matrices; i++)
        p->be->ops->matmul(
            p->be, &(rvi_matmul){.x = rvi_cols_of(p->x, 0, p->n_in),
                                 .part = {{p->w[i], NULL, rvi_cols_of(p->out, 0, p->n_out)}},
                                 .n_parts = 1,
                                 .n_rows = n_rows});
    p->be->ops->submit(p->be);
}

static void one_row(probe *p)
{
    products(p, 1);
}

static void many_rows(probe *p)
{
    products(p, p->n_rows);
}

static void free_matrices(probe *p)
{
    for (int i = 0; i < p->n_matrices; i++) p->be->ops->tensor_free(p->be, p->w[i]);
    p->be->ops->pack_free(p->be, p->pack);
    p->pack = NULL;
    p->n_matrices = 0;
}

static rv_status make_matrices(probe *p, rvi_qtype type, int n, rv_error *err)
{
    size_t sum = 0;
    rv_status st = RV_OK;
    rvi_tensor_view v = {.name = "probe",
                         .type = type,
                         .n_dims = 2,
                         .shape = {(uint64_t)p->n_out, (uint64_t)p->n_in},
                         .data = p->bytes,
                         .n_bytes =
                             (uint64_t)p->n_out * rvi_qtype_row_bytes(type, (size_t)p->n_in)};
    for (; !st && p->n_matrices < n; p->n_matrices += !st)
        st = p->be->ops->weight_new(p->be, &p->w[p->n_matrices], &v, err);
    for (int i = 0; i < p->n_matrices; i++) sum += p->be->ops->pack_bytes(p->be, p->w[i]);
    if (!st) st = p->be->ops->pack_new(p->be, &p->pack, sum, err);
    for (int i = 0; !st && i < p->n_matrices; i++) p->be->ops->pack(p->be, p->pack, p->w[i]);
    return st;
}

/* So many bytes of matrices. */
static rv_status make_set(probe *p, rvi_qtype type, size_t set, rv_error *err)
{
    size_t bytes = (size_t)p->n_out * rvi_qtype_row_bytes(type, (size_t)p->n_in);
    return make_matrices(p, type, (int)RVI_MIN(RVI_MAX(set / bytes, 1), (size_t)MOST_MATRICES),
                         err);
}

static double many_seconds(probe *p)
{
    return seconds_of(p, many_rows) / p->n_matrices;
}

/* large: seconds of a product of many rows with a matrix of the usual size. */
static rv_status measure_smaller(probe *p, rvi_qtype type, double large, rvi_cuda_probe *out,
                                 rv_error *err)
{
    enum { OF_INPUTS = 2, OF_OUTPUTS = 4, OF_ALL = OF_INPUTS * OF_OUTPUTS };
    double ops = 2.0 * p->n_in * p->n_out * p->n_rows;
    int n_in = p->n_in, n_out = p->n_out;
    p->n_in /= OF_INPUTS;
    p->n_out /= OF_OUTPUTS;
    rv_status st = make_set(p, type, p->set / 4, err); /* not bound by memory: packed sooner */
    if (!st) {
        double small = many_seconds(p), even = large / OF_ALL;
        /* noise must neither give time back nor leave none to the operations */
        double call = RVI_MIN(RVI_MAX((small - even) * OF_ALL / (OF_ALL - 1), 0), large / 2);
        out->weight[type].many_call = call;
        out->weight[type].many_more = ops / (large - call);
        st = p->be->ops->check(p->be, err);
    }
    free_matrices(p);
    p->n_in = n_in;
    p->n_out = n_out;
    return st;
}

static rv_status measure_type(probe *p, rvi_qtype type, rvi_cuda_probe *out, rv_error *err)
{
    double bytes = (double)p->n_out * (double)rvi_qtype_row_bytes(type, (size_t)p->n_in);
    double large = 0;
    rv_status st = make_set(p, type, p->set, err);
    if (!st) {
        out->weight[type].row = p->n_matrices * bytes / seconds_of(p, one_row);
        if (p->n_rows > 1) {
            large = many_seconds(p);
            out->weight[type].many = 2.0 * p->n_in * p->n_out * p->n_rows / large;
        }
        st = p->be->ops->check(p->be, err);
    }
    free_matrices(p);
    if (!st && p->n_rows > 1) st = measure_smaller(p, type, large, out, err);
    return st;
}

static void launches(probe *p)
{
    rvi_cols x = rvi_cols_of(p->x, 0, 1), y = rvi_cols_of(p->out, 0, 1);
    for (int i = 0; i < p->n_launches; i++) p->be->ops->add(p->be, i % 2 ? x : y, i % 2 ? y : x, 1);
    p->be->ops->submit(p->be);
}

/* Each waits for the one before: as long as in a layer, where matrices are small. */
static void small_products(probe *p)
{
    for (int i = 0; i < p->n_launches; i++)
        p->be->ops->matmul(
            p->be, &(rvi_matmul){
                       .x = rvi_cols_of(i % 2 ? p->out : p->x, 0, p->n_in),
                       .part = {{p->w[0], NULL, rvi_cols_of(i % 2 ? p->x : p->out, 0, p->n_out)}},
                       .n_parts = 1,
                       .n_rows = 1});
    p->be->ops->submit(p->be);
}

static rv_status measure_calls(probe *p, rvi_cuda_probe *out, rv_error *err)
{
    enum { SMALL = 512 };
    int n_in = p->n_in, n_out = p->n_out;
    out->launch = seconds_of(p, launches) / p->n_launches;
    p->n_in = p->n_out = RVI_MIN(SMALL, RVI_MIN(n_in, n_out));
    rv_status st = p->be->ops->check(p->be, err);
    if (!st) st = make_matrices(p, RVI_Q8_0, 1, err);
    if (!st) out->call = seconds_of(p, small_products) / p->n_launches;
    free_matrices(p);
    p->n_in = n_in;
    p->n_out = n_out;
    return st ? st : p->be->ops->check(p->be, err);
}

/* Types one after the other, those that models have most first. */
static rv_status measure_types(probe *p, rvi_cuda_probe *out, rv_error *err)
{
    static const rvi_qtype often[] = {RVI_Q4_K, RVI_Q6_K, RVI_Q8_0, RVI_F16, RVI_BF16, RVI_Q4_0};
    rv_status st = RV_OK;
    for (size_t i = 0; !st && !is_late(p) && i < RVI_COUNT(often); i++)
        st = measure_type(p, often[i], out, err);
    for (int t = 0; !st && !is_late(p) && t < RVI_QTYPE_COUNT; t++)
        if (out->weight[t].row <= 0) st = measure_type(p, (rvi_qtype)t, out, err);
    return st;
}

static void cross(probe *p)
{
    float one = 1;
    rvi_cols x = rvi_cols_of(p->x, 0, 1), y = rvi_cols_of(p->out, 0, 1);
    p->be->ops->rows_write(p->be, x, 0, &one);
    p->be->ops->add(p->be, y, x, 1);
    p->be->ops->submit(p->be);
    p->be->ops->rows_read(p->be, y, 0, &one);
}

static rv_status measure_crossing(probe *p, rvi_cuda_probe *out, rv_error *err)
{
    out->crossing = seconds_of(p, cross);
    return p->be->ops->check(p->be, err);
}

/* kind: within the device, to it, from it. */
static rvi_cu_result copies(rvi_cuda *c, size_t kind, rvi_cuda_at a, rvi_cuda_at b, void *host,
                            size_t n, int turns)
{
    rvi_cu_result r = 0;
    for (int i = 0; !r && i < turns; i++)
        r = kind == 0   ? c->cu.copy_within(a, b, n, c->stream)
            : kind == 1 ? c->cu.copy_in(a, host, n, c->stream)
                        : c->cu.copy_out(host, a, n, c->stream);
    return r ? r : c->cu.stream_wait(c->stream);
}

/* Copies of n bytes each. */
static rv_status measure_copies(probe *p, size_t n, rvi_cuda_probe *out, rv_error *err)
{
    enum { TURNS = 8 };
    rvi_cuda *c = p->c;
    rvi_cuda_at a = 0, b = 0;
    void *host = p->be->ops->host_new(p->be, n);
    double *rates[] = {&out->copy, &out->to_device, &out->to_host};
    rv_status st = host ? RV_OK : rvi_nomem(err, "pinned memory");
    if (!st) st = rvi_cuda_alloc(c, &a, n, "a copy", err);
    if (!st) st = rvi_cuda_alloc(c, &b, n, "a copy", err);
    for (size_t kind = 0; !st && kind < RVI_COUNT(rates); kind++) {
        double begin = rvi_os_seconds(); /* the first is not counted */
        rvi_cu_result r = copies(c, kind, a, b, host, n, 1);
        double first = RVI_MAX(rvi_os_seconds() - begin, 1e-9);
        int turns = (int)RVI_MIN(RVI_MAX(p->least / first, 1.0), (double)TURNS);
        begin = rvi_os_seconds();
        if (!r) r = copies(c, kind, a, b, host, n, turns);
        double took = RVI_MAX(rvi_os_seconds() - begin, 1e-9);
        *rates[kind] = (kind ? 1 : 2) * (double)turns * (double)n / took;
        if (r) st = rvi_cu_error(&c->cu, r, "measuring copies", err);
    }
    rvi_cuda_release(c, a);
    rvi_cuda_release(c, b);
    p->be->ops->host_free(p->be, host);
    return st;
}

static bool wants(const rvi_cuda_probe_options *o, rvi_qtype type)
{
    return o->what == RVI_CUDA_PROBE_ALL || (o->what == RVI_CUDA_PROBE_TYPE && o->type == type);
}

/* Bytes of the largest matrix. */
static size_t largest(const probe *p, const rvi_cuda_probe_options *o)
{
    size_t most = 0;
    for (int t = 0; t < RVI_QTYPE_COUNT; t++)
        if (wants(o, (rvi_qtype)t) || t == RVI_Q8_0) /* Q8_0: of the small products */
            most = RVI_MAX(most,
                           (size_t)p->n_out * rvi_qtype_row_bytes((rvi_qtype)t, (size_t)p->n_in));
    return most;
}

static void choose_sizes(probe *p, const rvi_cuda_probe_options *o)
{
    rvi_cuda_card card;
    rvi_cuda_card_read(&card, p->be);
    bool brief = o->what == RVI_CUDA_PROBE_TYPE;
    size_t wanted =
        brief ? RVI_MAX(2 * card.l2, (size_t)32 << 20) : RVI_MAX(4 * card.l2, (size_t)256 << 20);
    p->quick = o->quick;
    p->least = brief ? 0.002 : 0.02;
    p->until = rvi_os_seconds() + (o->limit > 0 ? o->limit : 10);
    p->n_in = o->quick ? 512 : RVI_CUDA_PROBE_IN; /* half of it: whole blocks of every type */
    p->n_out = o->quick ? 128 : brief ? 4096 : RVI_CUDA_PROBE_OUT;
    p->n_launches = o->quick ? 4 : brief ? 64 : 256;
    p->n_rows = brief ? 1 : o->quick ? 9 : RVI_CUDA_PROBE_ROWS;
    p->set = o->quick ? 1 << 17 : card.total ? RVI_MIN(wanted, card.left / 8) : wanted;
    for (int i = 0; brief && i < 8 && largest(p, o) > p->set; i++) /* to 256 by 256 */
        *(i % 2 ? &p->n_in : &p->n_out) /= 2;
}

rv_status rvi_cuda_probe_run(rvi_cuda_probe *out, rvi_backend *be, const rvi_cuda_probe_options *o,
                             rv_error *err)
{
    enum { FEW = 8 << 20 };
    probe p = {.c = rvi_cuda_of(be), .be = be};
    choose_sizes(&p, o);
    *out = (rvi_cuda_probe){0};
    size_t n = o->what == RVI_CUDA_PROBE_TYPE ? RVI_MIN(p.set / 2, (size_t)FEW) : p.set / 2;
    if (o->what == RVI_CUDA_PROBE_COPIES) return measure_copies(&p, n, out, err);
    int widest = RVI_MAX(p.n_in, p.n_out);
    size_t most = largest(&p, o);
    p.bytes = rvi_alloc_array(most, 1);
    rv_status st = p.bytes ? RV_OK : rvi_nomem(err, "weights to measure with");
    for (size_t i = 0; !st && i < most; i++) p.bytes[i] = (uint8_t)((i * 167) >> 3 & 0x3B);
    if (!st) st = be->ops->rows_new(be, &p.x, p.n_rows, widest, err);
    if (!st) st = be->ops->rows_new(be, &p.out, p.n_rows, widest, err);
    if (!st) st = be->ops->reserve(be, p.n_rows, widest, ~0u, err);
    if (!st) st = measure_copies(&p, n, out, err);
    if (!st) st = measure_crossing(&p, out, err);
    if (!st) st = measure_calls(&p, out, err);
    if (!st)
        st = o->what == RVI_CUDA_PROBE_TYPE ? measure_type(&p, o->type, out, err)
                                            : measure_types(&p, out, err);
    be->ops->tensor_free(be, p.x);
    be->ops->tensor_free(be, p.out);
    rvi_free(p.bytes);
    return st;
}
