/* Builds a model from its files: finds every tensor by its role, checks its shape against the
 * hyperparameters and passes it to the backend. A missing or misshapen required tensor is an error
 * that names it; tensors that were not used are reported by name. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/thread.h"
#include "model/model.h"
#include "model/placement.h"

typedef struct binder {
    rvi_model *m;
    rv_error *err;
    bool quantize;
    bool sizes_only; /* no weight is read, vectors are only counted */
    size_t vectors;  /* their bytes */
    char name[128];
} binder;

/* The tensor of a role, NULL if absent; b->name is its full name. suffix: "weight" or "bias". */
static rvi_tensor_view *find(binder *b, rvi_role role, int il, const char *suffix)
{
    const char *fmt = rvi_arch_name(b->m->arch, role, rvi_source_is_gguf(b->m->source));
    b->name[0] = 0;
    if (!fmt) return NULL;
    const char *layer = strstr(fmt, "%d");
    if (layer)
        snprintf(b->name, sizeof b->name, "%.*s%d%s.%s", (int)(layer - fmt), fmt, il, layer + 2,
                 suffix);
    else
        snprintf(b->name, sizeof b->name, "%s.%s", fmt, suffix);
    rvi_tensor_view *v = rvi_source_tensor(b->m->source, b->name);
    if (v) v->layer = layer ? il + 1 : 0;
    return v;
}

static rv_status missing(binder *b)
{
    return rvi_error(b->err, RV_E_MODEL, "%s: tensor '%s' is missing", b->m->source->name, b->name);
}

static rv_status misshapen(binder *b, const rvi_tensor_view *v, int n_out, int n_in)
{
    char shape[96] = "";
    for (int i = 0, at = 0; i < v->n_dims; i++)
        at += snprintf(shape + at, sizeof shape - (size_t)at, i ? " x %llu" : "%llu",
                       (unsigned long long)v->shape[i]);
    if (n_in)
        return rvi_error(b->err, RV_E_MODEL,
                         "%s: tensor '%s' is %s, but the metadata asks for %d x %d",
                         b->m->source->name, v->name, shape, n_out, n_in);
    return rvi_error(b->err, RV_E_MODEL, "%s: tensor '%s' is %s, but the metadata asks for %d",
                     b->m->source->name, v->name, shape, n_out);
}

static rv_status bind_weight(binder *b, rvi_tensor **out, rvi_tensor_view *v)
{
    v->used = 1;
    b->m->types |= 1u << v->type;
    return b->m->be->ops->weight_new(b->m->be, out, v, b->err);
}

/* A copy of float weights in blocks of 8 bit; rows of a length that blocks do not divide stay. */
static rv_status bind_quantized(binder *b, rvi_tensor **out, rvi_tensor_view *v)
{
    rvi_model *m = b->m;
    size_t n_in = (size_t)v->shape[1], n = (size_t)v->shape[0] * n_in;
    bool is_float = v->type == RVI_F32 || v->type == RVI_F16 || v->type == RVI_BF16;
    if (!b->quantize || !is_float || n_in % rvi_qtypes[RVI_Q8_0].block_weights)
        return bind_weight(b, out, v);
    size_t to = rvi_qtype_row_bytes(RVI_Q8_0, n_in), from = rvi_qtype_row_bytes(v->type, n_in);
    if (b->sizes_only) {
        rvi_tensor_view as = *v;
        as.type = RVI_Q8_0;
        return m->be->ops->weight_new(m->be, out, &as, b->err);
    }
    uint8_t *blocks = rvi_alloc_array((size_t)v->shape[0], to);
    float *row = rvi_alloc_array(n_in, sizeof *row);
    if (!blocks || !row) {
        rvi_free(blocks);
        rvi_free(row);
        return rvi_nomem(b->err, "weights");
    }
    for (size_t r = 0; r < n / n_in; r++) {
        rvi_dequantize(v->type, v->data + r * from, row, n_in);
        (void)rvi_quantize(RVI_Q8_0, row, blocks + r * to, n_in);
    }
    rvi_free(row);
    m->quantized[m->n_quantized++] = blocks;
    v->used = 1;
    m->types |= 1u << RVI_Q8_0;
    rvi_tensor_view copy = *v;
    copy.type = RVI_Q8_0;
    copy.data = blocks;
    copy.n_bytes = v->shape[0] * to;
    copy.mapped = 0;
    return m->be->ops->weight_new(m->be, out, &copy, b->err);
}

static rv_status bind_vector(binder *b, rvi_tensor **out, rvi_tensor_view *v, int n, float offset)
{
    if (v->n_dims != 1 || v->shape[0] != (uint64_t)n) return misshapen(b, v, n, 0);
    v->used = 1;
    b->vectors += (size_t)n * sizeof(float);
    if (b->sizes_only) return RV_OK;
    return b->m->be->ops->floats_new(b->m->be, out, v, offset, b->err);
}

static rv_status bind_norm(binder *b, rvi_tensor **out, rvi_role role, int il, int n)
{
    rvi_tensor_view *v = find(b, role, il, "weight");
    if (!v) return missing(b);
    bool plus_one = b->m->arch->hf_norm_plus_one && !rvi_source_is_gguf(b->m->source);
    return bind_vector(b, out, v, n, plus_one ? 1.0f : 0.0f);
}

/* LayerNorm: both parameters are needed. */
static rv_status bind_layer_norm(binder *b, rvi_layer_norm *out, rvi_role role, int il)
{
    int n = b->m->hp.n_embd;
    rv_status st = bind_norm(b, &out->w, role, il, n);
    if (st) return st;
    rvi_tensor_view *v = find(b, role, il, "bias");
    return v ? bind_vector(b, &out->b, v, n, 0) : missing(b);
}

/* Adapter slots are numbered as the layers are bound. n_paired_heads: see rvi_lora_target. */
static rv_status add_target(binder *b, rvi_linear *l, rvi_role role, int il, int n_out, int n_in,
                            int n_paired_heads)
{
    rvi_model *m = b->m;
    rvi_lora_target *t = &m->targets[m->n_targets];
    for (int gguf = 0; gguf < 2; gguf++) {
        const char *fmt = rvi_arch_name(m->arch, role, gguf);
        const char *layer = fmt ? strstr(fmt, "%d") : NULL;
        char name[128];
        if (layer)
            snprintf(name, sizeof name, "%.*s%d%s", (int)(layer - fmt), fmt, il, layer + 2);
        else
            snprintf(name, sizeof name, "%s", fmt ? fmt : "");
        char *copy = rvi_arena_strndup(&m->arena, name, strlen(name));
        if (!copy) return rvi_nomem(b->err, "adapter targets");
        *(gguf ? &t->gguf_name : &t->hf_name) = copy;
        if (layer) t->layer = il + 1;
    }
    t->n_in = n_in;
    t->n_out = n_out;
    t->n_paired_heads = m->arch->gguf_paired_rope ? n_paired_heads : 0;
    t->paired = rvi_source_is_gguf(m->source);
    l->slot = m->n_targets++;
    return RV_OK;
}

typedef enum bias_rule { BIAS_NONE, BIAS_IF_THERE, BIAS_NEEDED } bias_rule;

static rv_status bind_linear(binder *b, rvi_linear *l, rvi_role role, int il, int n_out, int n_in,
                             int n_paired_heads, bias_rule bias)
{
    rvi_tensor_view *v = find(b, role, il, "weight");
    rv_status st;
    if (!v) return missing(b);
    if (v->n_dims != 2 || v->shape[0] != (uint64_t)n_out || v->shape[1] != (uint64_t)n_in)
        return misshapen(b, v, n_out, n_in);
    if ((st = bind_quantized(b, &l->w, v))) return st;
    v = bias == BIAS_NONE ? NULL : find(b, role, il, "bias");
    if (v && (st = bind_vector(b, &l->bias, v, n_out, 0))) return st;
    if (!v && bias == BIAS_NEEDED) return missing(b);
    return add_target(b, l, role, il, n_out, n_in, n_paired_heads);
}

static rv_status bind_qkv(binder *b, int il, bias_rule bias)
{
    rvi_model *m = b->m;
    const rvi_hparams *h = &m->hp;
    rvi_layer *l = &m->layers[il];
    int nq = h->n_heads * h->head_size, nk = h->n_kv_heads * h->head_size;
    rv_status st;
    if (m->arch->fused_qkv ||
        (rvi_source_is_gguf(m->source) && find(b, RVI_ROLE_QKV, il, "weight")))
        return bind_linear(b, &l->qkv, RVI_ROLE_QKV, il, nq + 2 * nk, h->n_embd, 0, bias);
    if ((st = bind_linear(b, &l->q, RVI_ROLE_Q, il, nq, h->n_embd, h->n_heads, bias))) return st;
    if ((st = bind_linear(b, &l->k, RVI_ROLE_K, il, nk, h->n_embd, h->n_kv_heads, bias))) return st;
    return bind_linear(b, &l->v, RVI_ROLE_V, il, nk, h->n_embd, 0, bias);
}

static rv_status bind_layer(binder *b, int il)
{
    rvi_model *m = b->m;
    const rvi_hparams *h = &m->hp;
    rvi_layer *l = &m->layers[il];
    int nq = h->n_heads * h->head_size;
    bias_rule attn = h->attn_bias ? BIAS_IF_THERE : BIAS_NONE;
    bias_rule ffn = h->mlp_bias ? BIAS_IF_THERE : BIAS_NONE;
    bias_rule qkv = m->arch->qkv_bias ? BIAS_NEEDED : attn;
    rv_status st;
    if ((st = bind_norm(b, &l->attn_norm, RVI_ROLE_ATTN_NORM, il, h->n_embd))) return st;
    if ((st = bind_qkv(b, il, qkv))) return st;
    if (m->arch->qk_norm) {
        if ((st = bind_norm(b, &l->q_norm, RVI_ROLE_Q_NORM, il, h->head_size))) return st;
        if ((st = bind_norm(b, &l->k_norm, RVI_ROLE_K_NORM, il, h->head_size))) return st;
    }
    if ((st = bind_linear(b, &l->o, RVI_ROLE_O, il, h->n_embd, nq, 0, attn))) return st;
    if ((st = bind_norm(b, &l->ffn_norm, RVI_ROLE_FFN_NORM, il, h->n_embd))) return st;
    if (m->arch->post_norms) {
        if ((st = bind_norm(b, &l->post_attn_norm, RVI_ROLE_POST_ATTN_NORM, il, h->n_embd)))
            return st;
        if ((st = bind_norm(b, &l->post_ffn_norm, RVI_ROLE_POST_FFN_NORM, il, h->n_embd)))
            return st;
    }
    if (m->arch->fused_ffn) {
        if ((st =
                 bind_linear(b, &l->gate_up, RVI_ROLE_GATE_UP, il, 2 * h->n_ff, h->n_embd, 0, ffn)))
            return st;
    } else {
        if ((st = bind_linear(b, &l->gate, RVI_ROLE_GATE, il, h->n_ff, h->n_embd, 0, ffn)))
            return st;
        if ((st = bind_linear(b, &l->up, RVI_ROLE_UP, il, h->n_ff, h->n_embd, 0, ffn))) return st;
    }
    return bind_linear(b, &l->down, RVI_ROLE_DOWN, il, h->n_embd, h->n_ff, 0, ffn);
}

static rv_status bind_encoder_layer(binder *b, int il)
{
    const rvi_hparams *h = &b->m->hp;
    rvi_layer *l = &b->m->layers[il];
    int nq = h->n_heads * h->head_size;
    bias_rule bias = rvi_source_is_gguf(b->m->source) ? BIAS_IF_THERE : BIAS_NEEDED;
    rv_status st;
    if ((st = bind_qkv(b, il, bias))) return st;
    if ((st = bind_linear(b, &l->o, RVI_ROLE_O, il, h->n_embd, nq, 0, bias))) return st;
    if ((st = bind_layer_norm(b, &l->attn_out_norm, RVI_ROLE_POST_ATTN_NORM, il))) return st;
    if ((st = bind_linear(b, &l->up, RVI_ROLE_UP, il, h->n_ff, h->n_embd, 0, bias))) return st;
    if ((st = bind_linear(b, &l->down, RVI_ROLE_DOWN, il, h->n_embd, h->n_ff, 0, bias))) return st;
    return bind_layer_norm(b, &l->out_norm, RVI_ROLE_POST_FFN_NORM, il);
}

/* A table of rows of the model's width; n_rows 0: one or more. */
static rv_status bind_table(binder *b, rvi_tensor **out, rvi_role role, int n_rows)
{
    rvi_tensor_view *v = find(b, role, 0, "weight");
    int width = b->m->hp.n_embd;
    if (!v) return missing(b);
    if (v->n_dims != 2 || v->shape[1] != (uint64_t)width || !v->shape[0] ||
        (n_rows && v->shape[0] != (uint64_t)n_rows))
        return misshapen(b, v, n_rows, width);
    return bind_weight(b, out, v);
}

static rv_status bind_embeddings(binder *b)
{
    rvi_model *m = b->m;
    rvi_hparams *h = &m->hp;
    rvi_tensor_view *v = find(b, RVI_ROLE_EMBED, 0, "weight");
    if (!v) return missing(b);
    if (v->n_dims != 2 || v->shape[1] != (uint64_t)h->n_embd || !v->shape[0] ||
        v->shape[0] > 1 << 24 || (h->n_vocab && v->shape[0] != (uint64_t)h->n_vocab))
        return misshapen(b, v, h->n_vocab, h->n_embd);
    h->n_vocab = (int)v->shape[0];
    return bind_weight(b, &m->embed, v);
}

/* Words, positions and kinds of text (GGUF files may leave the kinds out), and their norm. */
static rv_status bind_encoder_ends(binder *b)
{
    rvi_model *m = b->m;
    rv_status st;
    if ((st = bind_embeddings(b))) return st;
    if ((st = bind_table(b, &m->pos_embed, RVI_ROLE_POS_EMBED, m->hp.n_context))) return st;
    if ((!rvi_source_is_gguf(m->source) || find(b, RVI_ROLE_TYPE_EMBED, 0, "weight")) &&
        (st = bind_table(b, &m->type_embed, RVI_ROLE_TYPE_EMBED, 0)))
        return st;
    return bind_layer_norm(b, &m->embed_norm, RVI_ROLE_EMBED_NORM, 0);
}

static rv_status bind_ends(binder *b)
{
    rvi_model *m = b->m;
    rvi_hparams *h = &m->hp;
    rv_status st;
    if ((st = bind_embeddings(b))) return st;
    if ((st = bind_norm(b, &m->out_norm, RVI_ROLE_OUT_NORM, 0, h->n_embd))) return st;

    /* A checkpoint's own head counts even where the configuration calls it tied (if the two differ,
     * the official implementation believes the file); a GGUF file without one is a tied model. */
    bool gguf = rvi_source_is_gguf(m->source);
    rvi_tensor_view *head = find(b, RVI_ROLE_HEAD, 0, "weight");
    if (gguf ? head && !h->tied : head || !h->tied) {
        h->tied = false;
        return bind_linear(b, &m->head, RVI_ROLE_HEAD, 0, h->n_vocab, h->n_embd, 0,
                           gguf ? BIAS_IF_THERE : BIAS_NONE);
    }
    if (head) head->used = 1; /* a copy in a file of a family that is always tied */
    h->tied = true;
    m->head.w = m->embed;
    return add_target(b, &m->head, RVI_ROLE_HEAD, 0, h->n_vocab, h->n_embd, 0);
}

static rv_status factor_tensor(binder *b, const char *name, const float **out, int *n)
{
    rvi_tensor_view *v = rvi_source_tensor(b->m->source, name);
    if (!v) return RV_OK;
    if (v->n_dims != 1 || v->shape[0] > RVI_MAX_WIDTH)
        return rvi_error(b->err, RV_E_MODEL, "%s: tensor '%s' is misshapen", b->m->source->name,
                         name);
    float *f = rvi_arena_alloc(&b->m->arena, (size_t)v->shape[0], sizeof *f);
    if (!f) return rvi_nomem(b->err, name);
    rvi_dequantize(v->type, v->data, f, (size_t)v->shape[0]);
    v->used = 1;
    *out = f;
    *n = (int)v->shape[0];
    return RV_OK;
}

/* GGUF keeps rope factors as tensors: one set of divisors, or a short and a long one. */
static rv_status bind_rope(binder *b)
{
    rvi_model *m = b->m;
    rvi_rope_params *p = &m->hp.rope;
    rv_status st;
    if (rvi_source_is_gguf(m->source)) {
        if ((st =
                 factor_tensor(b, "rope_factors_short.weight", &p->divisors[0], &p->n_divisors[0])))
            return st;
        if ((st = factor_tensor(b, "rope_factors_long.weight", &p->divisors[1], &p->n_divisors[1])))
            return st;
        if (p->divisors[0] || p->divisors[1]) {
            p->kind = RVI_ROPE_LONG;
            p->attention_factor = 1; /* the file's attn_factor is the whole of it */
        } else if ((st = factor_tensor(b, "rope_freqs.weight", &p->divisors[0],
                                       &p->n_divisors[0]))) {
            return st;
        }
    }
    bool interleaved = m->arch->gguf_paired_rope && rvi_source_is_gguf(m->source);
    return rvi_rope_init(&m->rope, p, interleaved, &m->arena, b->err);
}

static bool is_needed(const rvi_model *m, const char *name)
{
    for (const char *const *n = m->arch->not_needed; n && *n; n++)
        if (!strncmp(name, *n, strlen(*n))) return false;
    return true;
}

static void report_tensors(rvi_model *m)
{
    for (size_t i = 0; i < rvi_source_n_tensors(m->source); i++) {
        const rvi_tensor_view *v = rvi_source_tensor_at(m->source, i);
        uint64_t n = 1;
        for (int d = 0; d < v->n_dims; d++) n *= v->shape[d];
        m->n_params += n;
        m->weight_bytes += v->n_bytes;
        if (!v->used && is_needed(m, v->name))
            rvi_log_write(m->be->log, RVI_LOG_WARN,
                          "%s: tensor '%s' is not used by this architecture", m->source->name,
                          v->name);
    }
    for (size_t i = 0; m->source->tensors && i < rvi_safetensors_n_raw(m->source->tensors); i++) {
        const char *name = rvi_safetensors_raw_at(m->source->tensors, i)->name;
        if (is_needed(m, name))
            rvi_log_write(m->be->log, RVI_LOG_WARN,
                          "%s: tensor '%s' is not used by this architecture", m->source->name,
                          name);
    }
}

/* ---- packing ---- */

/* Calls fn with the weight of every product of a layer. */
static void each_of_layer(rvi_model *m, int il, void (*fn)(rvi_model *m, rvi_tensor *w, void *ctx),
                          void *ctx)
{
    rvi_layer *l = &m->layers[il];
    rvi_linear *linears[] = {&l->q,    &l->k,  &l->v,       &l->qkv, &l->o,
                             &l->gate, &l->up, &l->gate_up, &l->down};
    for (size_t i = 0; i < RVI_COUNT(linears); i++)
        if (linears[i]->w) fn(m, linears[i]->w, ctx);
}

/* Of every product. Encoders embed from their tables alone; a tied head is a product too. */
static void each_product(rvi_model *m, void (*fn)(rvi_model *m, rvi_tensor *w, void *ctx),
                         void *ctx)
{
    for (int il = 0; il < m->hp.n_layers; il++) each_of_layer(m, il, fn, ctx);
    if (m->head.w) fn(m, m->head.w, ctx);
}

static void add_bytes(rvi_model *m, rvi_tensor *w, void *ctx)
{
    *(size_t *)ctx += m->be->ops->pack_bytes(m->be, w);
}

typedef struct packing {
    const rvi_model_options *options;
    size_t done, total; /* bytes */
    bool cancelled;
} packing;

static void pack_weight(rvi_model *m, rvi_tensor *w, void *ctx)
{
    packing *p = ctx;
    if (p->cancelled) return;
    m->be->ops->pack(m->be, m->pack, w);
    p->done += m->be->ops->pack_bytes(m->be, w);
    const rvi_model_options *o = p->options;
    if (o->progress && o->progress(o->progress_ctx, (double)p->done / (double)p->total))
        p->cancelled = true;
}

static rv_status pack_weights(rvi_model *m, const rvi_model_options *options, rv_error *err)
{
    packing p = {.options = options};
    each_product(m, add_bytes, &p.total);
    m->pack_bytes = p.total;
    rv_status st = p.total ? m->be->ops->pack_new(m->be, &m->pack, p.total, err) : RV_OK;
    if (st) return st;
    rvi_thread *thread = NULL;
    const rvi_model_options *o = options;
    if (o->beside && (!p.total || rvi_thread_start(&thread, o->beside, o->beside_ctx, false, NULL)))
        o->beside(o->beside_ctx);
    if (p.total) each_product(m, pack_weight, &p);
    rvi_thread_join(thread);
    return p.cancelled ? rvi_error(err, RV_E_CANCELLED, "cancelled") : RV_OK;
}

enum { LINEARS_A_LAYER = 7 };

/* Hyperparameters and tensors, nothing packed. */
static rv_status bind_all(binder *b, rvi_backend *be, rvi_source *source)
{
    rvi_model *m = b->m;
    rv_error *err = b->err;
    m->be = be;
    m->source = source;
    m->arch = source->arch;
    m->arena.max = 256 << 20;
    rvi_meta meta = rvi_source_meta(source);
    rv_status st = rvi_hparams_read(&m->hp, m->arch, &meta, &m->arena, err);
    if (!st) {
        m->layers = rvi_arena_alloc(&m->arena, (size_t)m->hp.n_layers, sizeof *m->layers);
        m->targets = rvi_arena_alloc(&m->arena, (size_t)m->hp.n_layers * LINEARS_A_LAYER + 1,
                                     sizeof *m->targets);
        m->quantized = rvi_arena_alloc(&m->arena, (size_t)m->hp.n_layers * LINEARS_A_LAYER + 1,
                                       sizeof *m->quantized);
        if (!m->layers || !m->targets || !m->quantized) st = rvi_nomem(err, "model");
    }
    bool encoder = m->arch->is_encoder;
    if (!st) st = encoder ? bind_encoder_ends(b) : bind_ends(b);
    for (int il = 0; !st && il < m->hp.n_layers; il++)
        st = encoder ? bind_encoder_layer(b, il) : bind_layer(b, il);
    return !st && !encoder ? bind_rope(b) : st;
}

rv_status rvi_model_new(rvi_model **out, rvi_backend *be, rvi_source *take,
                        const rvi_model_options *options, rv_error *err)
{
    *out = NULL;
    const rvi_model_options none = {0}, *o = options ? options : &none;
    rvi_model *m = rvi_zalloc(sizeof *m);
    if (!m) {
        rvi_source_close(take);
        return rvi_nomem(err, "model");
    }
    binder b = {.m = m, .err = err, .quantize = o->quantize};
    rv_status st = bind_all(&b, be, take);
    if (!st) st = pack_weights(m, o, err);
    if (!st) st = be->ops->check(be, err);
    if (!st) st = rvi_source_check(take, err);
    if (st) {
        rvi_model_free(m);
        return st;
    }
    report_tensors(m);
    *out = m;
    return RV_OK;
}

static void free_linear(rvi_backend *be, rvi_linear *l)
{
    be->ops->tensor_free(be, l->w);
    be->ops->tensor_free(be, l->bias);
}

void rvi_model_free(rvi_model *m)
{
    if (!m) return;
    rvi_backend *be = m->be;
    for (int il = 0; m->layers && il < m->hp.n_layers; il++) {
        rvi_layer *l = &m->layers[il];
        rvi_tensor *norms[] = {l->attn_norm,       l->q_norm,          l->k_norm,
                               l->post_attn_norm,  l->ffn_norm,        l->post_ffn_norm,
                               l->attn_out_norm.w, l->attn_out_norm.b, l->out_norm.w,
                               l->out_norm.b};
        rvi_linear *linears[] = {&l->q,    &l->k,  &l->v,       &l->qkv, &l->o,
                                 &l->gate, &l->up, &l->gate_up, &l->down};
        for (size_t i = 0; i < RVI_COUNT(norms); i++) be->ops->tensor_free(be, norms[i]);
        for (size_t i = 0; i < RVI_COUNT(linears); i++) free_linear(be, linears[i]);
    }
    if (m->head.w == m->embed) m->head.w = NULL;
    free_linear(be, &m->head);
    be->ops->tensor_free(be, m->embed);
    be->ops->tensor_free(be, m->out_norm);
    be->ops->tensor_free(be, m->pos_embed);
    be->ops->tensor_free(be, m->type_embed);
    be->ops->tensor_free(be, m->embed_norm.w);
    be->ops->tensor_free(be, m->embed_norm.b);
    be->ops->pack_free(be, m->pack);
    for (int i = 0; i < m->n_quantized; i++) rvi_free(m->quantized[i]);
    rvi_source_close(m->source);
    rvi_arena_deinit(&m->arena);
    rvi_free(m);
}

static void fill_sizes(rvi_sizes *s, rvi_model *m, size_t vectors)
{
    const rvi_hparams *h = &m->hp;
    *s = (rvi_sizes){.n_embd = h->n_embd,
                     .n_ff = h->n_ff,
                     .n_heads = h->n_heads,
                     .n_kv_heads = h->n_kv_heads,
                     .head_size = h->head_size,
                     .n_vocab = h->n_vocab,
                     .n_context = h->n_context,
                     .ends = vectors,
                     .n_layers = h->n_layers};
    for (int il = 0; il < h->n_layers; il++) {
        s->layers[il] = 0;
        each_of_layer(m, il, add_bytes, &s->layers[il]);
    }
    if (m->head.w) add_bytes(m, m->head.w, &s->ends);
}

rv_status rvi_sizes_new(rvi_sizes **out, rvi_backend *device, rvi_source *source, bool quantize,
                        rv_error *err)
{
    *out = NULL;
    rvi_model *m = rvi_zalloc(sizeof *m);
    if (!m) return rvi_nomem(err, "model");
    binder b = {.m = m, .err = err, .quantize = quantize, .sizes_only = true};
    rv_status st = bind_all(&b, device, source);
    if (!st) {
        size_t room = sizeof **out + (size_t)m->hp.n_layers * sizeof(size_t);
        if ((*out = rvi_zalloc(room)))
            fill_sizes(*out, m, b.vectors);
        else
            st = rvi_nomem(err, "model");
    }
    m->source = NULL; /* the caller's */
    rvi_model_free(m);
    return st;
}

rvi_kv_spec rvi_model_kv_spec(const rvi_model *m, rv_kv_type type, int n_pages)
{
    enum { WARM_TOKENS = 1024 };
    return (rvi_kv_spec){.n_layers = m->hp.n_layers,
                         .n_kv_heads = m->hp.n_kv_heads,
                         .head_size = m->hp.head_size,
                         .n_pages = n_pages,
                         .type = type,
                         .warm_pages = type == RV_KV_TIERED ? WARM_TOKENS / RVI_PAGE_TOKENS : 0,
                         .n_heads = m->hp.n_heads};
}

rv_pooling rvi_model_pooling(const rvi_model *m)
{
    rv_pooling p = m->source->embedding.pooling;
    return p == RV_POOLING_DEFAULT ? RV_POOLING_MEAN : p;
}

int rvi_model_max_text(const rvi_model *m)
{
    int declared = m->source->embedding.max_tokens;
    return declared && declared < m->hp.n_context ? declared : m->hp.n_context;
}

const char *rvi_model_find_broken_tensor(const rvi_model *m)
{
    enum { STEP = 256 }; /* a whole block of every type */
    float values[STEP];
    for (size_t i = 0; i < rvi_source_n_tensors(m->source); i++) {
        const rvi_tensor_view *v = rvi_source_tensor_at(m->source, i);
        size_t step = v->shape[v->n_dims - 1] % STEP ? rvi_qtypes[v->type].block_weights : STEP;
        for (uint64_t at = 0; at < v->n_bytes; at += rvi_qtype_row_bytes(v->type, step)) {
            rvi_dequantize(v->type, v->data + at, values, step);
            for (size_t j = 0; j < step; j++)
                if (!isfinite(values[j])) return v->name;
        }
    }
    return NULL;
}
