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
} probe;

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
        if (p->quick || took * n >= p->least || n >= 1 << 20) return took;
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

static rv_status measure_type(probe *p, rvi_qtype type, rvi_cuda_probe *out, rv_error *err)
{
    size_t bytes = (size_t)p->n_out * rvi_qtype_row_bytes(type, (size_t)p->n_in);
    int n = (int)RVI_MIN(RVI_MAX(p->set / bytes, 1), (size_t)MOST_MATRICES);
    rv_status st = make_matrices(p, type, n, err);
    if (!st) {
        out->weight[type].row = (double)n * (double)bytes / seconds_of(p, one_row);
        out->weight[type].many =
            2.0 * n * p->n_in * p->n_out * p->n_rows / seconds_of(p, many_rows);
        st = p->be->ops->check(p->be, err);
    }
    free_matrices(p);
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
    rv_status st = make_matrices(p, RVI_Q8_0, 1, err);
    if (!st) out->call = seconds_of(p, small_products) / p->n_launches;
    free_matrices(p);
    p->n_in = n_in;
    p->n_out = n_out;
    return st ? st : p->be->ops->check(p->be, err);
}

/* Copies of n bytes: within the device, to it, from it. */
static rv_status measure_copies(probe *p, rvi_cuda_probe *out, rv_error *err)
{
    rvi_cuda *c = p->c;
    size_t n = p->set / 2;
    rvi_cuda_at a = 0, b = 0;
    void *host = p->be->ops->host_new(p->be, n);
    double *rates[] = {&out->copy, &out->to_device, &out->to_host};
    rv_status st = host ? RV_OK : rvi_nomem(err, "pinned memory");
    if (!st) st = rvi_cuda_alloc(c, &a, n, "a copy", err);
    if (!st) st = rvi_cuda_alloc(c, &b, n, "a copy", err);
    for (size_t kind = 0; !st && kind < RVI_COUNT(rates); kind++) {
        enum { TURNS = 8 };
        rvi_cu_result r = 0;
        double begin = 0;
        for (int i = 0; !r && i <= TURNS; i++) { /* the first is not counted */
            r = kind == 0   ? c->cu.copy_within(a, b, n, c->stream)
                : kind == 1 ? c->cu.copy_in(a, host, n, c->stream)
                            : c->cu.copy_out(host, a, n, c->stream);
            if (!r && i % TURNS == 0) r = c->cu.stream_wait(c->stream);
            if (i == 0) begin = rvi_os_seconds();
        }
        double took = RVI_MAX(rvi_os_seconds() - begin, 1e-9);
        *rates[kind] = (kind ? 1 : 2) * (double)TURNS * (double)n / took;
        if (r) st = rvi_cu_error(&c->cu, r, "measuring copies", err);
    }
    rvi_cuda_release(c, a);
    rvi_cuda_release(c, b);
    p->be->ops->host_free(p->be, host);
    return st;
}

rv_status rvi_cuda_probe_run(rvi_cuda_probe *out, rvi_backend *be, const rvi_cuda_probe_options *o,
                             rv_error *err)
{
    rvi_cuda_card card;
    rvi_cuda_card_read(&card, be);
    probe p = {.c = rvi_cuda_of(be), .be = be, .quick = o->quick, .least = 0.02};
    p.n_in = o->quick ? 256 : 4096;
    p.n_out = o->quick ? 256 : 8192;
    p.n_launches = o->quick ? 4 : 256;
    p.n_rows = o->quick ? 9 : RVI_CUDA_PROBE_ROWS;
    p.set = o->quick ? 1 << 17 : RVI_MIN(RVI_MAX(4 * card.l2, (size_t)256 << 20), card.left / 8);
    *out = (rvi_cuda_probe){0};
    int widest = RVI_MAX(p.n_in, p.n_out);
    size_t largest = (size_t)p.n_out * (size_t)p.n_in * sizeof(float);
    p.bytes = rvi_alloc_array(largest, 1);
    rv_status st = p.bytes ? RV_OK : rvi_nomem(err, "weights to measure with");
    for (size_t i = 0; !st && i < largest; i++) p.bytes[i] = (uint8_t)((i * 167) >> 3 & 0x3B);
    if (!st) st = be->ops->rows_new(be, &p.x, p.n_rows, widest, err);
    if (!st) st = be->ops->rows_new(be, &p.out, p.n_rows, widest, err);
    if (!st) st = be->ops->reserve(be, p.n_rows, widest, ~0u, err);
    if (!st) st = measure_copies(&p, out, err);
    if (!st) st = measure_calls(&p, out, err);
    for (int t = 0; !st && t < RVI_QTYPE_COUNT; t++) st = measure_type(&p, (rvi_qtype)t, out, err);
    be->ops->tensor_free(be, p.x);
    be->ops->tensor_free(be, p.out);
    rvi_free(p.bytes);
    return st;
}
