/* gguf.c - the GGUF parser.
 *
 * A file is: "GGUF", version, number of tensors, number of values; the values; the tensor
 * descriptions; then, from the next multiple of general.alignment on, the tensor data. Versions 2
 * and 3 have the same layout (little-endian); each part of a split model is a whole file of this
 * form, and only the first one's values matter.
 *
 * Invariants: nothing is allocated for a count before the file is known to be long enough for it;
 * after open every tensor view lies inside its part's bytes and every name and key is valid UTF-8.
 * All memory but the mappings is in one arena. */
#include "formats/gguf.h"

#include <inttypes.h>
#include <string.h>

#include "base/cursor.h"
#include "base/mem.h"
#include "formats/names.h"

enum {
    DEFAULT_ALIGNMENT = 32,
    MOST_ALIGNMENT = 1 << 24,
    MOST_NAME = 65535,      /* bytes of a key or a tensor name */
    LEAST_VALUE_BYTES = 13, /* empty key, kind, one byte */
    LEAST_TENSOR_BYTES = 32 /* empty name, one dimension */
};

typedef struct part {
    rvi_blob blob;
    const char *name; /* in errors */
    uint32_t version;
    rvi_gguf_value *values;
    size_t n_values;
    rvi_name_table keys;
    rvi_tensor_view *tensors;
    size_t n_tensors;
} part;

struct rvi_gguf {
    rvi_arena arena;
    part *parts;
    size_t n_parts;
    rvi_tensor_view *tensors; /* of all parts */
    size_t n_tensors;
    rvi_name_table names;
};

typedef struct reader {
    rvi_cursor c;
    rvi_arena *arena;
    part *part;
    rv_error *err;
} reader;

/* Fills the reader's error: the file's name, then the text. */
#define BAD(r, fmt, ...) rvi_error((r)->err, RV_E_MODEL, "%s: " fmt, (r)->part->name, __VA_ARGS__)

/* ---- values ---- */

static const uint8_t kind_bytes[] = {1, 1, 2, 2, 4, 4, 4,
                                     1, 0, 0, 8, 8, 8}; /* 0: not of fixed size */

static bool is_float(rvi_gguf_kind kind)
{
    return kind == RVI_GGUF_F32 || kind == RVI_GGUF_F64;
}

static void read_number(rvi_cursor *c, rvi_gguf_kind kind, rvi_gguf_value *v)
{
    switch (kind) {
    case RVI_GGUF_F32: v->number.f = (double)rvi_cursor_f32(c); break;
    case RVI_GGUF_F64: v->number.f = rvi_cursor_f64(c); break;
    case RVI_GGUF_I8: v->number.i = (int8_t)rvi_cursor_u8(c); break;
    case RVI_GGUF_I16: v->number.i = (int16_t)rvi_cursor_u16(c); break;
    case RVI_GGUF_I32: v->number.i = (int32_t)rvi_cursor_u32(c); break;
    case RVI_GGUF_BOOL: v->number.u = rvi_cursor_u8(c) != 0; break;
    default: v->number.u = rvi_cursor_uint(c, kind_bytes[kind]); break;
    }
}

static rvi_str read_str(rvi_cursor *c)
{
    uint64_t len = rvi_cursor_u64(c);
    const uint8_t *p = rvi_cursor_take(c, len);
    return p ? (rvi_str){(const char *)p, (size_t)len} : (rvi_str){0};
}

/* A key or the name of a tensor, copied and terminated. what: "key", "tensor name". */
static rv_status read_name(reader *r, const char *what, const char **out)
{
    size_t at = r->c.pos;
    rvi_str s = read_str(&r->c);
    if (r->c.failed)
        return BAD(r, "the %s at offset %zu runs past the end of the file (%zu bytes)", what, at,
                   r->c.len);
    if (s.len > MOST_NAME) return BAD(r, "the %s at offset %zu is %zu bytes long", what, at, s.len);
    if (!rvi_name_is_valid(s.data, s.len))
        return BAD(r, "the %s at offset %zu is not UTF-8 text", what, at);
    *out = rvi_arena_strndup(r->arena, s.data, s.len);
    return *out ? RV_OK : rvi_nomem(r->err, what);
}

static rv_status past_end(reader *r, const rvi_gguf_value *v, size_t at)
{
    return BAD(r, "key '%s': its value at offset %zu runs past the end of the file (%zu bytes)",
               v->key, at, r->c.len);
}

static rv_status read_array(reader *r, rvi_gguf_value *v)
{
    size_t at = r->c.pos;
    uint32_t kind = rvi_cursor_u32(&r->c);
    v->count = rvi_cursor_u64(&r->c);
    if (r->c.failed) return past_end(r, v, at);
    if (kind == RVI_GGUF_ARRAY)
        return BAD(r, "key '%s': an array of arrays (offset %zu) is not supported", v->key, at);
    if (kind >= RVI_COUNT(kind_bytes))
        return BAD(r, "key '%s': unknown kind %" PRIu32 " of array items at offset %zu", v->key,
                   kind, at);
    v->item_kind = (rvi_gguf_kind)kind;
    uint64_t least = kind == RVI_GGUF_STRING ? 8 : kind_bytes[kind];
    if (v->count > (r->c.len - r->c.pos) / least)
        return BAD(r,
                   "key '%s': an array of %" PRIu64
                   " items at offset %zu runs past the end of the file (%zu bytes)",
                   v->key, v->count, at, r->c.len);
    if (kind != RVI_GGUF_STRING) {
        v->items = rvi_cursor_take(&r->c, v->count * least);
        return RV_OK; /* cannot fail: the count was checked */
    }
    if (!v->count) return RV_OK;
    rvi_str *strings = rvi_arena_alloc(r->arena, (size_t)v->count, sizeof *strings);
    if (!strings) return rvi_nomem(r->err, v->key);
    for (uint64_t i = 0; i < v->count; i++) {
        size_t start = r->c.pos;
        strings[i] = read_str(&r->c);
        if (r->c.failed)
            return BAD(r,
                       "key '%s': string %" PRIu64
                       " at offset %zu runs past the end of the file (%zu bytes)",
                       v->key, i, start, r->c.len);
    }
    v->strings = strings;
    return RV_OK;
}

static rv_status read_value(reader *r, rvi_gguf_value *v)
{
    rv_status st = read_name(r, "key", &v->key);
    if (st) return st;
    size_t at = r->c.pos;
    uint32_t kind = rvi_cursor_u32(&r->c);
    if (r->c.failed) return past_end(r, v, at);
    if (kind >= RVI_COUNT(kind_bytes))
        return BAD(r, "key '%s': unknown kind %" PRIu32 " at offset %zu", v->key, kind, at);
    v->kind = (rvi_gguf_kind)kind;
    if (kind == RVI_GGUF_ARRAY) return read_array(r, v);
    if (kind == RVI_GGUF_STRING)
        v->string = read_str(&r->c);
    else
        read_number(&r->c, v->kind, v);
    return r->c.failed ? past_end(r, v, at) : RV_OK;
}

static rv_status add_name(rvi_name_table *names, const char *name, size_t index, const part *p,
                          const char *what, rv_error *err)
{
    rvi_names_result result = rvi_names_add(names, name, (uint32_t)index);
    if (result == RVI_NAMES_ADDED) return RV_OK;
    const char *why =
        result == RVI_NAMES_REPEATED ? "occurs twice" : "has the same hash as too many others";
    return rvi_error(err, RV_E_MODEL, "%s: %s '%s' %s", p->name, what, name, why);
}

static rv_status read_values(reader *r, uint64_t n)
{
    part *p = r->part;
    if (!n) return RV_OK;
    p->values = rvi_arena_alloc(r->arena, (size_t)n, sizeof *p->values);
    if (!p->values || !rvi_names_init(&p->keys, r->arena, (size_t)n))
        return rvi_nomem(r->err, "metadata");
    for (; p->n_values < n; p->n_values++) {
        rvi_gguf_value *v = &p->values[p->n_values];
        rv_status st = read_value(r, v);
        if (!st) st = add_name(&p->keys, v->key, p->n_values, p, "key", r->err);
        if (st) return st;
    }
    return RV_OK;
}

static const rvi_gguf_value *find_value(const part *p, const char *key)
{
    uint32_t index;
    return rvi_names_find(&p->keys, key, &index) ? &p->values[index] : NULL;
}

/* An integer of any width that lies within 0..most. */
static bool as_unsigned(const rvi_gguf_value *v, uint64_t most, uint64_t *out)
{
    switch (v->kind) {
    case RVI_GGUF_I8:
    case RVI_GGUF_I16:
    case RVI_GGUF_I32:
    case RVI_GGUF_I64:
        if (v->number.i < 0) return false;
        break;
    case RVI_GGUF_U8:
    case RVI_GGUF_U16:
    case RVI_GGUF_U32:
    case RVI_GGUF_U64: break;
    default: return false;
    }
    if (v->number.u > most) return false;
    *out = v->number.u;
    return true;
}

/* ---- tensors ---- */

static bool multiply(uint64_t *a, uint64_t b)
{
    if (b && *a > UINT64_MAX / b) return false;
    *a *= b;
    return true;
}

static rv_status read_tensor(reader *r, rvi_tensor_view *t, uint64_t *offset)
{
    size_t at = r->c.pos;
    rv_status st = read_name(r, "tensor name", &t->name);
    if (st) return st;
    uint32_t n_dims = rvi_cursor_u32(&r->c);
    if (!r->c.failed && (n_dims < 1 || n_dims > RVI_MAX_DIMS))
        return BAD(r,
                   "tensor '%s' (described at offset %zu) has %" PRIu32
                   " dimensions; 1 to %d are possible",
                   t->name, at, n_dims, RVI_MAX_DIMS);
    t->n_dims = r->c.failed ? 0 : (int)n_dims;
    /* the file has the row length first */
    for (int i = t->n_dims - 1; i >= 0; i--) t->shape[i] = rvi_cursor_u64(&r->c);
    uint32_t type = rvi_cursor_u32(&r->c);
    *offset = rvi_cursor_u64(&r->c);
    if (r->c.failed)
        return BAD(
            r,
            "tensor '%s': its description at offset %zu runs past the end of the file (%zu bytes)",
            t->name, at, r->c.len);
    t->type = rvi_qtype_from_gguf(type);
    if (t->type == RVI_QTYPE_COUNT)
        return BAD(r, "tensor '%s': type %" PRIu32 " is unknown or not supported", t->name, type);

    const rvi_qtype_info *info = &rvi_qtypes[t->type];
    uint64_t row = t->shape[t->n_dims - 1];
    if (row % info->block_weights)
        return BAD(r,
                   "tensor '%s': rows of %" PRIu64
                   " weights are no whole number of %s blocks (of %" PRIu32 ")",
                   t->name, row, info->name, info->block_weights);
    t->n_bytes = row / info->block_weights;
    bool fits = multiply(&t->n_bytes, info->block_bytes);
    for (int i = 0; i < t->n_dims; i++) {
        if (!t->shape[i])
            return BAD(r, "tensor '%s': dimension %d is zero", t->name, t->n_dims - 1 - i);
        if (i < t->n_dims - 1) fits = fits && multiply(&t->n_bytes, t->shape[i]);
    }
    if (!fits) return BAD(r, "tensor '%s': its dimensions overflow", t->name);
    return RV_OK;
}

static rv_status read_alignment(reader *r, uint64_t *alignment)
{
    const rvi_gguf_value *v = find_value(r->part, "general.alignment");
    *alignment = DEFAULT_ALIGNMENT;
    if (v && (!as_unsigned(v, MOST_ALIGNMENT, alignment) || !*alignment ||
              (*alignment & (*alignment - 1))))
        return BAD(r, "key 'general.alignment' is not a power of two up to %d", MOST_ALIGNMENT);
    return RV_OK;
}

/* Points t at its bytes; the tensor data begin at start. */
static rv_status place_tensor(const reader *r, rvi_tensor_view *t, uint64_t start, uint64_t offset,
                              uint64_t alignment)
{
    uint64_t room = r->c.len > start ? r->c.len - start : 0;
    if (offset % alignment)
        return BAD(
            r, "tensor '%s': its offset %" PRIu64 " is no multiple of the alignment (%" PRIu64 ")",
            t->name, offset, alignment);
    if (offset > room || t->n_bytes > room - offset)
        return BAD(r,
                   "tensor '%s': its %" PRIu64 " bytes at offset %" PRIu64
                   " of the data (which begin at %" PRIu64
                   ") run past the end of the file (%zu bytes): truncated?",
                   t->name, t->n_bytes, offset, start, r->c.len);
    t->data = r->c.data + start + offset;
    t->mapped = r->part->blob.mapping != NULL;
    return RV_OK;
}

static rv_status read_tensors(reader *r, uint64_t n)
{
    part *p = r->part;
    uint64_t alignment;
    rv_status st = read_alignment(r, &alignment);
    if (st || !n) return st;
    p->tensors = rvi_arena_alloc(r->arena, (size_t)n, sizeof *p->tensors);
    uint64_t *offsets = rvi_arena_alloc(r->arena, (size_t)n, sizeof *offsets);
    if (!p->tensors || !offsets) return rvi_nomem(r->err, "tensor table");
    for (; p->n_tensors < n; p->n_tensors++)
        if ((st = read_tensor(r, &p->tensors[p->n_tensors], &offsets[p->n_tensors]))) return st;
    uint64_t start = (r->c.pos + alignment - 1) / alignment * alignment;
    for (size_t i = 0; i < p->n_tensors; i++)
        if ((st = place_tensor(r, &p->tensors[i], start, offsets[i], alignment))) return st;
    return RV_OK;
}

/* ---- a part, and the parts together ---- */

static rv_status check_version(const part *p, rv_error *err)
{
    uint32_t v = p->version;
    if (v == 2 || v == 3) return RV_OK;
    if (v && !(v & 0xFFFF))
        return rvi_error(err, RV_E_MODEL,
                         "%s: a big-endian GGUF file; only little-endian ones can be read",
                         p->name);
    return rvi_error(err, RV_E_MODEL, "%s: GGUF version %" PRIu32 " is not supported (2 and 3 are)",
                     p->name, v);
}

static rv_status check_count(const reader *r, const char *what, uint64_t n, uint64_t least_bytes)
{
    if (n <= (r->c.len - r->c.pos) / least_bytes && n <= RVI_NAMES_MAX) return RV_OK;
    return BAD(r, "the header announces %" PRIu64 " %s, more than %zu bytes can hold", n, what,
               r->c.len);
}

static rv_status parse_part(rvi_gguf *g, part *p, rv_error *err)
{
    reader r = {
        .c = {.data = p->blob.data, .len = p->blob.len}, .arena = &g->arena, .part = p, .err = err};
    const uint8_t *magic = rvi_cursor_take(&r.c, 4);
    if (!magic || memcmp(magic, "GGUF", 4))
        return rvi_error(err, RV_E_MODEL, "%s: not a GGUF file", p->name);
    p->version = rvi_cursor_u32(&r.c);
    rv_status st = r.c.failed ? RV_OK : check_version(p, err);
    if (st) return st;
    uint64_t n_tensors = rvi_cursor_u64(&r.c), n_values = rvi_cursor_u64(&r.c);
    if (r.c.failed) return BAD(&r, "the file ends within its header (%zu bytes)", r.c.len);
    if ((st = check_count(&r, "values", n_values, LEAST_VALUE_BYTES))) return st;
    if ((st = check_count(&r, "tensors", n_tensors, LEAST_TENSOR_BYTES))) return st;
    if ((st = read_values(&r, n_values))) return st;
    return read_tensors(&r, n_tensors);
}

/* A split.* value, where the part has it, must be `want`. */
static rv_status check_split_value(const part *p, const char *key, uint64_t want, rv_error *err)
{
    const rvi_gguf_value *v = find_value(p, key);
    uint64_t have;
    if (!v) return RV_OK;
    if (!as_unsigned(v, UINT64_MAX, &have))
        return rvi_error(err, RV_E_MODEL, "%s: key '%s' is no count", p->name, key);
    if (have == want) return RV_OK;
    return rvi_error(err, RV_E_MODEL, "%s: key '%s' is %" PRIu64 ", but %" PRIu64 " was expected",
                     p->name, key, have, want);
}

static rv_status check_split(const rvi_gguf *g, rv_error *err)
{
    const rvi_gguf_value *count = find_value(&g->parts[0], "split.count");
    uint64_t n;
    if (g->n_parts == 1 && count && as_unsigned(count, UINT64_MAX, &n)) {
        if (n == 0)
            return RV_OK; /* what a split model says of itself after its parts were merged */
        if (n > 1)
            return rvi_error(err, RV_E_MODEL,
                             "%s: one of %" PRIu64
                             " files of a split model; open the first one by its path, "
                             "MODEL-00001-of-%05" PRIu64 ".gguf",
                             g->parts[0].name, n, n);
    }
    for (size_t i = 0; i < g->n_parts; i++) {
        rv_status st = check_split_value(&g->parts[i], "split.count", g->n_parts, err);
        if (!st) st = check_split_value(&g->parts[i], "split.no", i, err);
        if (!st) st = check_split_value(&g->parts[i], "split.tensors.count", g->n_tensors, err);
        if (st) return st;
    }
    return RV_OK;
}

/* One table and one index over the tensors of all parts. */
static rv_status merge_parts(rvi_gguf *g, rv_error *err)
{
    size_t n = 0;
    for (size_t i = 0; i < g->n_parts; i++) n += g->parts[i].n_tensors;
    if (n > RVI_NAMES_MAX)
        return rvi_error(err, RV_E_MODEL, "%s: %zu tensors are too many", g->parts[0].name, n);
    if (n) {
        g->tensors = rvi_arena_alloc(&g->arena, n, sizeof *g->tensors);
        if (!g->tensors || !rvi_names_init(&g->names, &g->arena, n))
            return rvi_nomem(err, "tensor table");
    }
    for (size_t i = 0; i < g->n_parts; i++) {
        const part *p = &g->parts[i];
        for (size_t k = 0; k < p->n_tensors; k++, g->n_tensors++) {
            g->tensors[g->n_tensors] = p->tensors[k];
            rv_status st = add_name(&g->names, p->tensors[k].name, g->n_tensors, p, "tensor", err);
            if (st) return st;
        }
    }
    return check_split(g, err);
}

/* NAME-00001-of-00003.gguf: the length of NAME, 1 and 3. False for any other name. */
static bool split_name(const char *path, int *stem_len, unsigned *no, unsigned *count)
{
    static const char form[] = "-00000-of-00000.gguf"; /* each 0 stands for a digit */
    size_t len = strlen(path), n = sizeof form - 1;
    if (len < n || len > INT32_MAX) return false;
    const char *tail = path + len - n;
    for (size_t i = 0; i < n; i++)
        if (form[i] == '0' ? tail[i] < '0' || tail[i] > '9' : tail[i] != form[i]) return false;
    *no = *count = 0;
    for (size_t i = 1; i <= 5; i++) {
        *no = *no * 10 + (unsigned)(tail[i] - '0');
        *count = *count * 10 + (unsigned)(tail[i + 9] - '0');
    }
    *stem_len = (int)(len - n);
    return *no >= 1 && *no <= *count;
}

static rv_status open_part(rvi_gguf *g, size_t i, const char *path, rv_error *err)
{
    part *p = &g->parts[i];
    p->name = rvi_arena_strndup(&g->arena, path, strlen(path));
    if (!p->name) return rvi_nomem(err, "file name");
    rv_status st = rvi_blob_open(&p->blob, path, err);
    if (st == RV_E_NOT_FOUND && i > 0)
        return rvi_error(err, st, "%s: part %zu of %zu of the split model is missing", path, i + 1,
                         g->n_parts);
    return st ? st : parse_part(g, p, err);
}

static rv_status open_parts(rvi_gguf *g, const char *path, rv_error *err)
{
    int stem_len = 0;
    unsigned no = 1, count = 1;
    bool split = split_name(path, &stem_len, &no, &count);
    if (split && no > 1)
        return rvi_error(
            err, RV_E_MODEL,
            "%s: part %u of a split model; open its first part, %.*s-00001-of-%05u.gguf", path, no,
            stem_len, path, count);
    g->n_parts = split ? count : 1;
    g->parts = rvi_arena_alloc(&g->arena, g->n_parts, sizeof *g->parts);
    if (!g->parts) {
        g->n_parts = 0;
        return rvi_nomem(err, path);
    }
    rv_status st = open_part(g, 0, path, err);
    for (unsigned i = 1; !st && i < g->n_parts; i++) {
        rvi_buf name = {0};
        if (rvi_buf_printf(&name, "%.*s-%05u-of-%05u.gguf", stem_len, path, i + 1, count))
            st = open_part(g, i, name.data, err);
        else
            st = rvi_nomem(err, "file name");
        rvi_buf_deinit(&name);
    }
    return st ? st : merge_parts(g, err);
}

rv_status rvi_gguf_open(rvi_gguf **out, const char *path, rv_error *err)
{
    *out = NULL;
    rvi_gguf *g = rvi_zalloc(sizeof *g);
    if (!g) return rvi_nomem(err, path);
    rv_status st = open_parts(g, path, err);
    if (st)
        rvi_gguf_close(g);
    else
        *out = g;
    return st;
}

rv_status rvi_gguf_open_blob(rvi_gguf **out, rvi_blob *take, const char *name, rv_error *err)
{
    *out = NULL;
    rvi_gguf *g = rvi_zalloc(sizeof *g);
    part *p = g ? rvi_arena_alloc(&g->arena, 1, sizeof *p) : NULL;
    const char *copy = p ? rvi_arena_strndup(&g->arena, name, strlen(name)) : NULL;
    rv_status st;
    if (copy) {
        *p = (part){.blob = *take, .name = copy};
        *take = (rvi_blob){0};
        g->parts = p;
        g->n_parts = 1;
        st = parse_part(g, p, err);
        if (!st) st = merge_parts(g, err);
    } else {
        st = rvi_nomem(err, name);
        rvi_blob_close(take);
    }
    if (st)
        rvi_gguf_close(g);
    else
        *out = g;
    return st;
}

void rvi_gguf_close(rvi_gguf *g)
{
    if (!g) return;
    for (size_t i = 0; i < g->n_parts; i++) rvi_blob_close(&g->parts[i].blob);
    rvi_arena_deinit(&g->arena);
    rvi_free(g);
}

/* ---- access ---- */

rv_status rvi_gguf_check(const rvi_gguf *g, rv_error *err)
{
    rv_status st = RV_OK;
    for (size_t i = 0; !st && i < g->n_parts; i++)
        st = rvi_blob_check(&g->parts[i].blob, g->parts[i].name, err);
    return st;
}

uint64_t rvi_gguf_file_bytes(const rvi_gguf *g)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < g->n_parts; i++) sum += g->parts[i].blob.len;
    return sum;
}

size_t rvi_gguf_n_values(const rvi_gguf *g)
{
    return g->parts[0].n_values;
}

const rvi_gguf_value *rvi_gguf_value_at(const rvi_gguf *g, size_t i)
{
    return i < g->parts[0].n_values ? &g->parts[0].values[i] : NULL;
}

const rvi_gguf_value *rvi_gguf_find(const rvi_gguf *g, const char *key)
{
    return find_value(&g->parts[0], key);
}

size_t rvi_gguf_n_tensors(const rvi_gguf *g)
{
    return g->n_tensors;
}

rvi_tensor_view *rvi_gguf_tensor_at(rvi_gguf *g, size_t i)
{
    return i < g->n_tensors ? &g->tensors[i] : NULL;
}

rvi_tensor_view *rvi_gguf_tensor(rvi_gguf *g, const char *name)
{
    uint32_t index;
    return rvi_names_find(&g->names, name, &index) ? &g->tensors[index] : NULL;
}

bool rvi_gguf_get_u32(const rvi_gguf *g, const char *key, uint32_t *out)
{
    const rvi_gguf_value *v = rvi_gguf_find(g, key);
    uint64_t u;
    if (!v || !as_unsigned(v, UINT32_MAX, &u)) return false;
    *out = (uint32_t)u;
    return true;
}

/* Any number as a double; v is no string and no array. */
static double as_double(const rvi_gguf_value *v)
{
    if (is_float(v->kind)) return v->number.f;
    bool wide =
        v->kind == RVI_GGUF_U64; /* the only kind whose bits differ as signed and unsigned */
    return wide ? (double)v->number.u : (double)v->number.i;
}

bool rvi_gguf_get_f32(const rvi_gguf *g, const char *key, float *out)
{
    const rvi_gguf_value *v = rvi_gguf_find(g, key);
    if (!v || v->kind == RVI_GGUF_BOOL || v->kind == RVI_GGUF_STRING || v->kind == RVI_GGUF_ARRAY)
        return false;
    *out = (float)as_double(v);
    return true;
}

bool rvi_gguf_get_bool(const rvi_gguf *g, const char *key, bool *out)
{
    const rvi_gguf_value *v = rvi_gguf_find(g, key);
    if (!v || v->kind != RVI_GGUF_BOOL) return false;
    *out = v->number.u != 0;
    return true;
}

bool rvi_gguf_get_str(const rvi_gguf *g, const char *key, rvi_str *out)
{
    const rvi_gguf_value *v = rvi_gguf_find(g, key);
    if (!v || v->kind != RVI_GGUF_STRING) return false;
    *out = v->string;
    return true;
}

/* Item i as a value; the number 0 if there is no such item. */
static rvi_gguf_value item_at(const rvi_gguf_value *array, uint64_t i)
{
    rvi_gguf_value item = {.kind = RVI_GGUF_U64};
    if (array->kind != RVI_GGUF_ARRAY || array->item_kind == RVI_GGUF_STRING || i >= array->count)
        return item;
    size_t size = kind_bytes[array->item_kind];
    rvi_cursor c = {.data = array->items + i * size, .len = size};
    item.kind = array->item_kind;
    read_number(&c, item.kind, &item);
    return item;
}

double rvi_gguf_item_f64(const rvi_gguf_value *array, uint64_t i)
{
    rvi_gguf_value item = item_at(array, i);
    return as_double(&item);
}

int64_t rvi_gguf_item_i64(const rvi_gguf_value *array, uint64_t i)
{
    rvi_gguf_value item = item_at(array, i);
    if (!is_float(item.kind)) return item.number.i;
    double f = item.number.f;
    return f > -0x1p63 && f < 0x1p63 ? (int64_t)f : 0;
}
