/* Profiling: while a profile is on, the backend's op table holds wrappers that add up the seconds,
 * the bytes read and the operations of each kind of call. While it is off, it costs nothing. */
#include "backend/cpu/profile.h"

#include <stdio.h>
#include <string.h>

#include "backend/cpu/cpu.h"
#include "base/mem.h"
#include "base/number.h"
#include "base/os.h"

enum { MAX_KINDS = 96 };

struct rvi_profile {
    const rvi_backend_ops *ops; /* the backend's own */
    rvi_backend_ops wrappers;
    rvi_profile_row rows[MAX_KINDS];
    int n;
};

static void add(rvi_backend *be, double begun, const char *name, double bytes, double operations)
{
    double seconds = rvi_os_seconds() - begun;
    rvi_profile *p = rvi_cpu_of(be)->profile;
    int i = 0;
    while (i < p->n && strcmp(p->rows[i].name, name) != 0) i++;
    if (i == MAX_KINDS) return;
    rvi_profile_row *r = &p->rows[i];
    if (i == p->n) {
        snprintf(r->name, sizeof r->name, "%s", name);
        p->n++;
    }
    r->calls++;
    r->seconds += seconds;
    r->bytes += bytes;
    r->operations += operations;
}

static const rvi_backend_ops *own(rvi_backend *be)
{
    return rvi_cpu_of(be)->profile->ops;
}

static void matmul(rvi_backend *be, const rvi_matmul *m)
{
    double begun = rvi_os_seconds(), bytes = 0, operations = 0;
    own(be)->matmul(be, m);
    char name[sizeof((rvi_profile_row *)0)->name];
    int n_out = 0;
    for (int i = 0; i < m->n_parts; i++) {
        const rvi_tensor *w = m->part[i].w;
        n_out += w->n_rows;
        bytes += (double)w->n_rows * (double)w->row_bytes;
        operations += 2.0 * w->n_rows * w->n_cols * m->n_rows;
    }
    snprintf(name, sizeof name, "product %s %d -> %d%s%s, %s", rvi_qtypes[m->part[0].w->type].name,
             m->x.n, n_out, m->norm ? ", norm" : "",
             m->gated.t    ? ", gate"
             : m->add_to.t ? ", add"
                           : "",
             m->n_rows == 1 ? "1 row" : "rows");
    add(be, begun, name, bytes, operations);
}

static void attention(rvi_backend *be, rvi_cols out, rvi_cols q, const rvi_kv_store *kv, int il,
                      const rvi_attention *a, const rvi_kv_row *rows, int n_rows)
{
    double begun = rvi_os_seconds(), keys = 0, seen = 0;
    own(be)->attention(be, out, q, kv, il, a, rows, n_rows);
    for (int r = 0; r < n_rows; r++) {
        double n = a->window && rows[r].pos >= a->window ? a->window : rows[r].pos + 1;
        keys += n;
        /* neighbouring rows of a sequence read the same keys: the longest counts */
        if (r + 1 == n_rows || rows[r + 1].pages != rows[r].pages) seen += n;
    }
    add(be, begun, n_rows == 1 ? "attention, 1 row" : "attention, rows",
        seen * rvi_cpu_kv_row_bytes(kv), 4.0 * keys * a->n_heads * a->head_size);
}

static void kv_write(rvi_backend *be, rvi_kv_store *kv, int il, rvi_cols k, rvi_cols v,
                     const rvi_kv_row *rows, int n_rows)
{
    double begun = rvi_os_seconds();
    own(be)->kv_write(be, kv, il, k, v, rows, n_rows);
    add(be, begun, "KV write", 0, 0);
}

static void rope(rvi_backend *be, rvi_cols x, int head_size, rvi_cols angles, bool interleaved,
                 int n_rows)
{
    double begun = rvi_os_seconds();
    own(be)->rope(be, x, head_size, angles, interleaved, n_rows);
    add(be, begun, "rope", 0, 0);
}

static void rms_norm(rvi_backend *be, rvi_cols out, rvi_cols x, const rvi_tensor *w, int n_rows,
                     float eps)
{
    double begun = rvi_os_seconds();
    own(be)->rms_norm(be, out, x, w, n_rows, eps);
    add(be, begun, "norm", 0, 0);
}

static void embed(rvi_backend *be, rvi_cols out, const rvi_tensor *table, const int32_t *ids,
                  int n_rows, float scale)
{
    double begun = rvi_os_seconds();
    own(be)->embed(be, out, table, ids, n_rows, scale);
    add(be, begun, "embed", (double)n_rows * (double)table->row_bytes, 0);
}

static void glu(rvi_backend *be, rvi_cols out, rvi_cols gate, rvi_cols up, rvi_glu kind, int n_rows)
{
    double begun = rvi_os_seconds();
    own(be)->glu(be, out, gate, up, kind, n_rows);
    add(be, begun, "gate", 0, 0);
}

static void add_rows(rvi_backend *be, rvi_cols x, rvi_cols y, int n_rows)
{
    double begun = rvi_os_seconds();
    own(be)->add(be, x, y, n_rows);
    add(be, begun, "add", 0, 0);
}

static void gather(rvi_backend *be, rvi_cols out, rvi_cols x, const int32_t *from, int n_rows)
{
    double begun = rvi_os_seconds();
    own(be)->gather(be, out, x, from, n_rows);
    add(be, begun, "gather", 0, 0);
}

static void fetch(rvi_backend *be, rvi_cols src, int n_rows, float *dst)
{
    double begun = rvi_os_seconds();
    own(be)->fetch(be, src, n_rows, dst);
    add(be, begun, "logits out", 0, 0);
}

static void lora(rvi_backend *be, rvi_cols x, const rvi_lora_group *groups, int n_groups)
{
    double begun = rvi_os_seconds();
    own(be)->lora(be, x, groups, n_groups);
    add(be, begun, "adapter", 0, 0);
}

static void count_linear(rvi_backend *be, double begun, const rvi_float_linear *l, int n_layers,
                         const char *what, double times)
{
    char name[sizeof((rvi_profile_row *)0)->name];
    double bytes = 0, n_out = 0;
    bool adapted = false;
    for (int i = 0; i < n_layers; i++) {
        n_out += l[i].w->n_rows;
        bytes += (double)l[i].w->n_rows * (double)l[i].w->row_bytes;
        adapted = adapted || l[i].a;
    }
    (void)rvi_snprintf(name, sizeof name, "%s %s %d -> %.0f%s", what, rvi_qtypes[l->w->type].name,
                       l->w->n_cols, n_out, adapted ? ", adapter" : "");
    add(be, begun, name, bytes, times * n_out * l->w->n_cols);
}

static void linear(rvi_backend *be, const rvi_float_linear *l, int n_layers, rvi_cols y, rvi_cols x,
                   int n_rows)
{
    double begun = rvi_os_seconds();
    own(be)->linear(be, l, n_layers, y, x, n_rows);
    count_linear(be, begun, l, n_layers, "linear", 2.0 * n_rows);
}

static void linear_back(rvi_backend *be, const rvi_float_linear *l, int n_layers, rvi_cols dx,
                        bool fresh, rvi_cols dy, rvi_cols x, int n_rows)
{
    double begun = rvi_os_seconds();
    own(be)->linear_back(be, l, n_layers, dx, fresh, dy, x, n_rows);
    count_linear(be, begun, l, n_layers, "linear, backward", dx.t ? 2.0 * n_rows : 0);
}

static void span_attention(rvi_backend *be, rvi_cols out, rvi_cols q, rvi_cols k, rvi_cols v,
                           const rvi_attention *a, const rvi_span *spans, int n_spans)
{
    double begun = rvi_os_seconds();
    own(be)->span_attention(be, out, q, k, v, a, spans, n_spans);
    add(be, begun, "attention of spans", 0, 0);
}

static void span_attention_back(rvi_backend *be, rvi_cols dq, rvi_cols dk, rvi_cols dv,
                                rvi_cols dout, rvi_cols q, rvi_cols k, rvi_cols v,
                                const rvi_attention *a, const rvi_span *spans, int n_spans)
{
    double begun = rvi_os_seconds();
    own(be)->span_attention_back(be, dq, dk, dv, dout, q, k, v, a, spans, n_spans);
    add(be, begun, "attention of spans, backward", 0, 0);
}

static void rms_norm_back(rvi_backend *be, rvi_cols dx, rvi_cols dy, rvi_cols x,
                          const rvi_tensor *w, int n_rows, float eps)
{
    double begun = rvi_os_seconds();
    own(be)->rms_norm_back(be, dx, dy, x, w, n_rows, eps);
    add(be, begun, "norm, backward", 0, 0);
}

static void glu_back(rvi_backend *be, rvi_cols dgate, rvi_cols dup, rvi_cols dact, rvi_cols gate,
                     rvi_cols up, rvi_glu kind, int n_rows)
{
    double begun = rvi_os_seconds();
    own(be)->glu_back(be, dgate, dup, dact, gate, up, kind, n_rows);
    add(be, begun, "gate, backward", 0, 0);
}

static void loss(rvi_backend *be, rvi_cols logits, rvi_target *targets, float soft_cap, bool grad,
                 int n_rows)
{
    double begun = rvi_os_seconds();
    own(be)->loss(be, logits, targets, soft_cap, grad, n_rows);
    add(be, begun, "loss", 0, 0);
}

rv_status rvi_profile_begin(rvi_backend *be, rv_error *err)
{
    rvi_cpu *cpu = rvi_cpu_of(be);
    if (cpu->profile) rvi_profile_end(be);
    rvi_profile *p = rvi_zalloc(sizeof *p);
    if (!p) return rvi_nomem(err, "profile");
    p->ops = be->ops;
    p->wrappers = *be->ops;
    p->wrappers.matmul = matmul;
    p->wrappers.attention = attention;
    p->wrappers.kv_write = kv_write;
    p->wrappers.rope = rope;
    p->wrappers.rms_norm = rms_norm;
    p->wrappers.embed = embed;
    p->wrappers.glu = glu;
    p->wrappers.add = add_rows;
    p->wrappers.gather = gather;
    p->wrappers.fetch = fetch;
    p->wrappers.lora = lora;
    p->wrappers.linear = linear;
    p->wrappers.linear_back = linear_back;
    p->wrappers.span_attention = span_attention;
    p->wrappers.span_attention_back = span_attention_back;
    p->wrappers.rms_norm_back = rms_norm_back;
    p->wrappers.glu_back = glu_back;
    p->wrappers.loss = loss;
    cpu->profile = p;
    be->ops = &p->wrappers;
    return RV_OK;
}

int rvi_profile_rows(const rvi_backend *be, const rvi_profile_row **rows)
{
    const rvi_profile *p = ((const rvi_cpu *)be)->profile;
    *rows = p ? p->rows : NULL;
    return p ? p->n : 0;
}

void rvi_profile_end(rvi_backend *be)
{
    rvi_cpu *cpu = rvi_cpu_of(be);
    if (!cpu->profile) return;
    be->ops = cpu->profile->ops;
    rvi_free(cpu->profile);
    cpu->profile = NULL;
}
