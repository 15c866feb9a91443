/* safetensors.c - reading and writing safetensors files.
 *
 * A file is: the length of a JSON header (u64, little-endian), the header, the data. The header
 * maps each tensor's name to its dtype, shape and place in the data; a directory may hold several
 * such files and an index that says which tensor is where.
 *
 * Invariants: after open every view lies inside its file's bytes, and its length is what shape and
 * type say. The JSON lives only while a header is read; names are copied. All memory but the
 * mappings is in one arena. */
#include "formats/safetensors.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/os.h"
#include "formats/names.h"

enum {
    MOST_HEADER = 100 << 20,
    JSON_GROWTH =
        12, /* bytes of JSON tree allowed for each byte of text; honest headers need up to 7 */
    JSON_SPARE = 1 << 16
};

/* Tensors that are no float views keep an odd number in the name table. */
struct rvi_safetensors {
    rvi_arena arena;
    rvi_blob *shards;
    size_t n_shards;
    rvi_tensor_view *tensors;
    size_t n_tensors;
    rvi_raw_tensor *raws;
    size_t n_raws;
    rvi_name_table names;
    rvi_st_meta *meta;
    size_t n_meta;
};

/* While a file is read: its name for errors, and, with an index, which of its tensors to take. */
typedef struct reader {
    rvi_safetensors *s;
    const char *file;
    const uint8_t *data; /* behind the header */
    uint64_t data_len;
    bool mapped;
    const rvi_name_table *listed; /* NULL: take all; otherwise the names of the index, */
    const uint32_t *shard_of;     /* and for each the shard it is in */
    uint32_t shard;
    rv_error *err;
} reader;

#define BAD(r, fmt, ...) rvi_error((r)->err, RV_E_MODEL, "%s: " fmt, (r)->file, __VA_ARGS__)

static const struct dtype {
    const char *name;
    unsigned bits;
    rvi_qtype type; /* RVI_QTYPE_COUNT: kept aside as raw bytes */
} dtypes[] = {
    {"F32", 32, RVI_F32},
    {"F16", 16, RVI_F16},
    {"BF16", 16, RVI_BF16},
    {"F64", 64, RVI_QTYPE_COUNT},
    {"I64", 64, RVI_QTYPE_COUNT},
    {"U64", 64, RVI_QTYPE_COUNT},
    {"C64", 64, RVI_QTYPE_COUNT},
    {"I32", 32, RVI_QTYPE_COUNT},
    {"U32", 32, RVI_QTYPE_COUNT},
    {"I16", 16, RVI_QTYPE_COUNT},
    {"U16", 16, RVI_QTYPE_COUNT},
    {"I8", 8, RVI_QTYPE_COUNT},
    {"U8", 8, RVI_QTYPE_COUNT},
    {"BOOL", 8, RVI_QTYPE_COUNT},
    {"F8_E4M3", 8, RVI_QTYPE_COUNT},
    {"F8_E5M2", 8, RVI_QTYPE_COUNT},
    {"F8_E8M0", 8, RVI_QTYPE_COUNT},
    {"F6_E2M3", 6, RVI_QTYPE_COUNT},
    {"F6_E3M2", 6, RVI_QTYPE_COUNT},
    {"F4", 4, RVI_QTYPE_COUNT},
};

static const struct dtype *find_dtype(const rvi_json *name)
{
    for (size_t i = 0; i < RVI_COUNT(dtypes); i++)
        if (rvi_json_is_string(name, dtypes[i].name)) return &dtypes[i];
    return NULL;
}

static bool multiply(uint64_t *a, uint64_t b)
{
    if (b && *a > UINT64_MAX / b) return false;
    *a *= b;
    return true;
}

static bool as_unsigned(const rvi_json *v, uint64_t *out)
{
    if (!rvi_json_is(v, RVI_JSON_INT) || v->as.integer < 0) return false;
    *out = (uint64_t)v->as.integer;
    return true;
}

/* ---- one tensor of a header ---- */

static rv_status read_shape(const reader *r, const char *name, const rvi_json *shape,
                            rvi_raw_tensor *t)
{
    size_t n = rvi_json_count(shape);
    if (!rvi_json_is(shape, RVI_JSON_ARRAY)) return BAD(r, "tensor '%s': no shape", name);
    if (n > RVI_MAX_DIMS)
        return BAD(r, "tensor '%s': %zu dimensions; up to %d are possible", name, n, RVI_MAX_DIMS);
    for (size_t i = 0; i < n; i++)
        if (!as_unsigned(rvi_json_at(shape, i), &t->shape[i]))
            return BAD(r, "tensor '%s': dimension %zu is not a whole number", name, i);
    if (!n) t->shape[0] = 1; /* a scalar */
    t->n_dims = n ? (int)n : 1;
    return RV_OK;
}

/* Sets t's data and n_bytes from data_offsets; the shape is known. */
static rv_status read_place(const reader *r, const char *name, const rvi_json *offsets,
                            unsigned bits, rvi_raw_tensor *t)
{
    uint64_t begin, end, n_bits = bits;
    if (!rvi_json_is(offsets, RVI_JSON_ARRAY) || rvi_json_count(offsets) != 2 ||
        !as_unsigned(rvi_json_at(offsets, 0), &begin) ||
        !as_unsigned(rvi_json_at(offsets, 1), &end))
        return BAD(r, "tensor '%s': data_offsets are not two whole numbers", name);
    if (begin > end || end > r->data_len)
        return BAD(r,
                   "tensor '%s': data_offsets %" PRIu64 "..%" PRIu64
                   " do not lie within the data (%" PRIu64 " bytes): truncated?",
                   name, begin, end, r->data_len);
    for (int i = 0; i < t->n_dims; i++)
        if (!multiply(&n_bits, t->shape[i]))
            return BAD(r, "tensor '%s': its dimensions overflow", name);
    if (n_bits % 8 || n_bits / 8 != end - begin)
        return BAD(r,
                   "tensor '%s': data_offsets span %" PRIu64
                   " bytes, but shape and dtype need %" PRIu64,
                   name, end - begin, n_bits / 8 + (n_bits % 8 != 0));
    t->data = r->data + begin;
    t->n_bytes = end - begin;
    return RV_OK;
}

static rv_status add_name(const reader *r, rvi_name_table *names, const char *name, size_t index)
{
    rvi_names_result result = rvi_names_add(names, name, (uint32_t)index);
    if (result == RVI_NAMES_ADDED) return RV_OK;
    return BAD(r, "tensor '%s' %s", name,
               result == RVI_NAMES_REPEATED ? "occurs twice"
                                            : "has the same hash as too many others");
}

static rv_status read_tensor(const reader *r, const rvi_json *member)
{
    rvi_safetensors *s = r->s;
    rvi_raw_tensor t = {0};
    if (!rvi_json_is(member, RVI_JSON_OBJECT))
        return BAD(r, "tensor '%s': its description is no object", member->key);
    const rvi_json *text = rvi_json_get(member, "dtype");
    const struct dtype *dtype = find_dtype(text);
    if (!dtype)
        return BAD(r, "tensor '%s': dtype '%s' is unknown", member->key,
                   rvi_json_string(text, "(none)"));
    rv_status st = read_shape(r, member->key, rvi_json_get(member, "shape"), &t);
    if (!st) st = read_place(r, member->key, rvi_json_get(member, "data_offsets"), dtype->bits, &t);
    if (st) return st;
    t.dtype = dtype->name;
    t.name = rvi_arena_strndup(&s->arena, member->key, member->key_len);
    if (!t.name) return rvi_nomem(r->err, "tensor name");
    if (dtype->type == RVI_QTYPE_COUNT) {
        if ((st = add_name(r, &s->names, t.name, 2 * s->n_raws + 1))) return st;
        s->raws[s->n_raws++] = t;
        return RV_OK;
    }
    if ((st = add_name(r, &s->names, t.name, 2 * s->n_tensors))) return st;
    rvi_tensor_view *v = &s->tensors[s->n_tensors++];
    *v = (rvi_tensor_view){.name = t.name, .type = dtype->type, .n_dims = t.n_dims};
    v->data = t.data;
    v->mapped = r->mapped;
    v->n_bytes = t.n_bytes;
    memcpy(v->shape, t.shape, sizeof v->shape);
    return RV_OK;
}

/* ---- headers and the index ---- */

/* Room for n tensors of any kind. */
static rv_status reserve(rvi_safetensors *s, size_t n, const char *file, rv_error *err)
{
    if (!n) return RV_OK;
    if (n > RVI_NAMES_MAX / 2)
        return rvi_error(err, RV_E_MODEL, "%s: %zu tensors are too many", file, n);
    s->tensors = rvi_arena_alloc(&s->arena, n, sizeof *s->tensors);
    s->raws = rvi_arena_alloc(&s->arena, n, sizeof *s->raws);
    if (!s->tensors || !s->raws || !rvi_names_init(&s->names, &s->arena, n))
        return rvi_nomem(err, "tensor table");
    return RV_OK;
}

/* The tree of a header or an index, limited to a multiple of the text; its root must be an
 * object. */
static rv_status parse_object(const rvi_json **out, const void *text, size_t len, rvi_arena *arena,
                              const char *file, rv_error *err)
{
    arena->max = len * JSON_GROWTH + JSON_SPARE;
    rv_status st = rvi_json_parse(out, text, len, arena, file, err);
    if (!st && !rvi_json_is(*out, RVI_JSON_OBJECT))
        st = rvi_error(err, RV_E_CONFIG, "%s: no JSON object", file);
    if (st == RV_E_CONFIG) { /* for the caller it is a bad model file */
        st = RV_E_MODEL;
        if (err) err->code = st;
    }
    return st;
}

/* The texts of __metadata__; what is no text is left out. */
static rv_status read_meta(const reader *r, const rvi_json *meta)
{
    rvi_safetensors *s = r->s;
    size_t n = rvi_json_count(meta);
    if (!n || !rvi_json_is(meta, RVI_JSON_OBJECT) || r->shard) return RV_OK;
    s->meta = rvi_arena_alloc(&s->arena, n, sizeof *s->meta);
    if (!s->meta) return rvi_nomem(r->err, "metadata");
    s->n_meta = 0;
    for (size_t i = 0; i < n; i++) {
        const rvi_json *m = rvi_json_at(meta, i);
        if (m->kind != RVI_JSON_STRING) continue;
        rvi_st_meta *to = &s->meta[s->n_meta++];
        to->key = rvi_arena_strndup(&s->arena, m->key, m->key_len);
        to->value = rvi_arena_strndup(&s->arena, m->as.string.data, m->as.string.len);
        if (!to->key || !to->value) return rvi_nomem(r->err, "metadata");
    }
    return RV_OK;
}

static rv_status read_members(const reader *r, const rvi_json *header)
{
    for (size_t i = 0; i < rvi_json_count(header); i++) {
        const rvi_json *m = rvi_json_at(header, i);
        if (!rvi_name_is_valid(m->key, m->key_len))
            return BAD(r, "the name of tensor %zu holds a NUL", i);
        uint32_t index;
        rv_status st = RV_OK;
        if (!strcmp(m->key, "__metadata__"))
            st = read_meta(r, m);
        else if (!r->listed ||
                 (rvi_names_find(r->listed, m->key, &index) && r->shard_of[index] == r->shard))
            st = read_tensor(r, m);
        if (st) return st;
    }
    return RV_OK;
}

/* Takes the tensors of one file; without an index it also makes room for them. */
static rv_status read_file(reader *r, const rvi_blob *blob)
{
    if (blob->len < 8) return BAD(r, "not a safetensors file: only %zu bytes", blob->len);
    uint64_t header_len = 0;
    for (unsigned i = 0; i < 8; i++) header_len |= (uint64_t)blob->data[i] << (8 * i);
    if (header_len > blob->len - 8 || header_len > MOST_HEADER)
        return BAD(
            r, "not a safetensors file: a header of %" PRIu64 " bytes, but the file has %zu bytes",
            header_len, blob->len);
    const char *text = (const char *)blob->data + 8;
    if (!header_len || text[0] != '{')
        return BAD(r, "%s", "not a safetensors file: the header is no JSON object");
    r->data = blob->data + 8 + header_len;
    r->mapped = blob->mapping != NULL;
    r->data_len = blob->len - 8 - header_len;

    rvi_arena tree = {0};
    const rvi_json *header;
    rv_status st = parse_object(&header, text, (size_t)header_len, &tree, r->file, r->err);
    if (!st && !r->listed) st = reserve(r->s, rvi_json_count(header), r->file, r->err);
    if (!st) st = read_members(r, header);
    rvi_arena_deinit(&tree);
    return st;
}

/* The index's weight_map: tensor names to file names, the files numbered in the order of their
 * first mention. */
typedef struct shard_map {
    rvi_arena arena;
    const rvi_json *map;
    rvi_name_table listed; /* tensor -> its place in the map */
    uint32_t *shard_of;    /* place in the map -> shard */
    rvi_name_table files;  /* file -> shard */
    const char **names;    /* shard -> file */
    size_t n_shards;
} shard_map;

/* A shard must be in the directory of its index: a plain file name. */
static bool is_plain_name(const rvi_json *v)
{
    if (!rvi_json_is(v, RVI_JSON_STRING) || !v->as.string.len) return false;
    const char *s = v->as.string.data;
    if (!rvi_name_is_valid(s, v->as.string.len)) return false;
    return !strpbrk(s, "/\\:") && !strstr(s, "..") && strcmp(s, ".");
}

static rv_status map_tensor(shard_map *m, const reader *r, size_t i)
{
    const rvi_json *v = rvi_json_at(m->map, i);
    if (!rvi_name_is_valid(v->key, v->key_len))
        return BAD(r, "the name of tensor %zu holds a NUL", i);
    if (!is_plain_name(v)) return BAD(r, "tensor '%s': its shard is no plain file name", v->key);
    rv_status st = add_name(r, &m->listed, v->key, i);
    if (st) return st;
    const char *file = v->as.string.data;
    if (rvi_names_find(&m->files, file, &m->shard_of[i])) return RV_OK;
    m->shard_of[i] = (uint32_t)m->n_shards;
    if (rvi_names_add(&m->files, file, (uint32_t)m->n_shards) != RVI_NAMES_ADDED)
        return BAD(r, "tensor '%s': its shard's name has the same hash as too many others", v->key);
    m->names[m->n_shards++] = file;
    return RV_OK;
}

static rv_status read_map(shard_map *m, const rvi_blob *blob, const reader *r)
{
    const rvi_json *root;
    if (blob->len > MOST_HEADER) return BAD(r, "%zu bytes are too many for an index", blob->len);
    rv_status st = parse_object(&root, blob->data, blob->len, &m->arena, r->file, r->err);
    if (st) return st;
    m->map = rvi_json_get(root, "weight_map");
    size_t n = rvi_json_count(m->map);
    if (!rvi_json_is(m->map, RVI_JSON_OBJECT) || !n)
        return BAD(r, "%s", "no weight_map, or an empty one");
    if ((st = reserve(r->s, n, r->file, r->err))) return st;
    m->arena.max = 0; /* what follows is proportional to n */
    m->shard_of = rvi_arena_alloc(&m->arena, n, sizeof *m->shard_of);
    m->names = rvi_arena_alloc(&m->arena, n, sizeof *m->names);
    if (!m->shard_of || !m->names || !rvi_names_init(&m->listed, &m->arena, n) ||
        !rvi_names_init(&m->files, &m->arena, n))
        return rvi_nomem(r->err, "weight_map");
    for (size_t i = 0; i < n && !st; i++) st = map_tensor(m, r, i);
    return st;
}

static rv_status open_shard(reader *r, const char *path)
{
    rvi_safetensors *s = r->s;
    rvi_blob *blob = &s->shards[s->n_shards];
    rv_status st = rvi_blob_open(blob, path, r->err);
    if (st) return st;
    s->n_shards++;
    r->file = path;
    return read_file(r, blob);
}

static rv_status open_shards(reader *r, const shard_map *m, const char *dir)
{
    rv_status st = RV_OK;
    rvi_safetensors *s = r->s;
    s->shards = rvi_arena_alloc(&s->arena, m->n_shards, sizeof *s->shards);
    if (!s->shards) return rvi_nomem(r->err, dir);
    r->listed = &m->listed;
    r->shard_of = m->shard_of;
    for (size_t i = 0; !st && i < m->n_shards; i++) {
        rvi_buf path = {0};
        r->shard = (uint32_t)i;
        if (rvi_buf_printf(&path, "%s/%s", dir, m->names[i]))
            st = open_shard(r, path.data);
        else
            st = rvi_nomem(r->err, dir);
        rvi_buf_deinit(&path);
    }
    for (size_t i = 0; !st && i < rvi_json_count(m->map); i++) {
        const rvi_json *v = rvi_json_at(m->map, i);
        uint32_t index;
        if (!rvi_names_find(&s->names, v->key, &index))
            st = rvi_error(r->err, RV_E_MODEL,
                           "%s/%s: tensor '%s', which the index says is here, is missing", dir,
                           v->as.string.data, v->key);
    }
    return st;
}

static rv_status open_index(rvi_safetensors *s, const char *dir, const char *path, rv_error *err)
{
    reader r = {.s = s, .file = path, .err = err};
    shard_map m = {0};
    rvi_blob blob;
    rv_status st = rvi_blob_open(&blob, path, err);
    if (st) return st;
    st = read_map(&m, &blob, &r);
    if (!st) st = open_shards(&r, &m, dir);
    rvi_arena_deinit(&m.arena);
    rvi_blob_close(&blob);
    return st;
}

rv_status rvi_safetensors_open_blob(rvi_safetensors **out, rvi_blob *take, const char *name,
                                    rv_error *err)
{
    *out = NULL;
    rvi_safetensors *s = rvi_zalloc(sizeof *s);
    rv_status st;
    if (s && (s->shards = rvi_arena_alloc(&s->arena, 1, sizeof *s->shards))) {
        reader r = {.s = s, .file = name, .err = err};
        s->shards[0] = *take;
        s->n_shards = 1;
        *take = (rvi_blob){0};
        st = read_file(&r, &s->shards[0]);
    } else {
        st = rvi_nomem(err, name);
        rvi_blob_close(take);
    }
    if (st)
        rvi_safetensors_close(s);
    else
        *out = s;
    return st;
}

rv_status rvi_safetensors_open(rvi_safetensors **out, const char *path, rv_error *err)
{
    rvi_blob blob;
    *out = NULL;
    rv_status st = rvi_blob_open(&blob, path, err);
    return st ? st : rvi_safetensors_open_blob(out, &blob, path, err);
}

rv_status rvi_safetensors_open_dir(rvi_safetensors **out, const char *dir, rv_error *err)
{
    rvi_buf one = {0}, index = {0};
    rvi_safetensors *s = NULL;
    rv_status st;
    *out = NULL;
    if (!rvi_buf_printf(&one, "%s/model.safetensors", dir) ||
        !rvi_buf_printf(&index, "%s.index.json", one.data)) {
        st = rvi_nomem(err, dir);
    } else if (rvi_os_stat(one.data, NULL) != RVI_OS_NONE) {
        st = rvi_safetensors_open(out, one.data, err);
    } else if (rvi_os_stat(index.data, NULL) == RVI_OS_NONE) {
        st = rvi_error(err, RV_E_NOT_FOUND,
                       "%s: neither model.safetensors nor model.safetensors.index.json is there",
                       dir);
    } else if (!(s = rvi_zalloc(sizeof *s))) {
        st = rvi_nomem(err, dir);
    } else {
        st = open_index(s, dir, index.data, err);
        if (st)
            rvi_safetensors_close(s);
        else
            *out = s;
    }
    rvi_buf_deinit(&one);
    rvi_buf_deinit(&index);
    return st;
}

void rvi_safetensors_close(rvi_safetensors *s)
{
    if (!s) return;
    for (size_t i = 0; i < s->n_shards; i++) rvi_blob_close(&s->shards[i]);
    rvi_arena_deinit(&s->arena);
    rvi_free(s);
}

/* ---- access ---- */

rv_status rvi_safetensors_check(const rvi_safetensors *s, const char *name, rv_error *err)
{
    rv_status st = RV_OK;
    for (size_t i = 0; !st && i < s->n_shards; i++) st = rvi_blob_check(&s->shards[i], name, err);
    return st;
}

uint64_t rvi_safetensors_file_bytes(const rvi_safetensors *s)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < s->n_shards; i++) sum += s->shards[i].len;
    return sum;
}

size_t rvi_safetensors_n_tensors(const rvi_safetensors *s)
{
    return s->n_tensors;
}

rvi_tensor_view *rvi_safetensors_tensor_at(rvi_safetensors *s, size_t i)
{
    return i < s->n_tensors ? &s->tensors[i] : NULL;
}

rvi_tensor_view *rvi_safetensors_tensor(rvi_safetensors *s, const char *name)
{
    uint32_t index;
    return rvi_names_find(&s->names, name, &index) && index % 2 == 0 ? &s->tensors[index / 2]
                                                                     : NULL;
}

const char *rvi_safetensors_meta(const rvi_safetensors *s, const char *key)
{
    for (size_t i = 0; i < s->n_meta; i++)
        if (!strcmp(s->meta[i].key, key)) return s->meta[i].value;
    return NULL;
}

size_t rvi_safetensors_n_raw(const rvi_safetensors *s)
{
    return s->n_raws;
}

const rvi_raw_tensor *rvi_safetensors_raw_at(const rvi_safetensors *s, size_t i)
{
    return i < s->n_raws ? &s->raws[i] : NULL;
}

const rvi_raw_tensor *rvi_safetensors_raw(const rvi_safetensors *s, const char *name)
{
    uint32_t index;
    return rvi_names_find(&s->names, name, &index) && index % 2 == 1 ? &s->raws[index / 2] : NULL;
}

/* ---- writing ---- */

static const char *dtype_name(rvi_qtype type)
{
    for (size_t i = 0; i < RVI_COUNT(dtypes); i++)
        if (dtypes[i].type == type) return dtypes[i].name;
    return NULL;
}

/* Bytes of a tensor's data; false if it makes no sense. */
static bool view_bytes(const rvi_tensor_view *v, uint64_t *out)
{
    if (v->type >= RVI_QTYPE_COUNT || !dtype_name(v->type) || v->n_dims < 0 ||
        v->n_dims > RVI_MAX_DIMS)
        return false;
    *out = rvi_qtypes[v->type].block_bytes;
    for (int i = 0; i < v->n_dims; i++)
        if (!multiply(out, v->shape[i])) return false;
    return (v->data || !*out) && *out <= PTRDIFF_MAX;
}

static rv_status write_view_header(rvi_buf *h, const rvi_tensor_view *v, uint64_t *end,
                                   rv_error *err)
{
    uint64_t n_bytes;
    if (!view_bytes(v, &n_bytes) || n_bytes > INT64_MAX - *end || !strcmp(v->name, "__metadata__"))
        return rvi_error(err, RV_E_INVALID,
                         "tensor '%s' cannot be written: its name, type, shape or data is bad",
                         v->name);
    rvi_json_write_string(h, v->name, strlen(v->name));
    rvi_buf_printf(h, ":{\"dtype\":\"%s\",\"shape\":[", dtype_name(v->type));
    for (int i = 0; i < v->n_dims; i++) rvi_buf_printf(h, "%s%" PRIu64, i ? "," : "", v->shape[i]);
    rvi_buf_printf(h, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", *end, *end + n_bytes);
    *end += n_bytes;
    return RV_OK;
}

static void write_meta(rvi_buf *h, const rvi_st_meta *meta, size_t n)
{
    rvi_buf_puts(h, "\"__metadata__\":{");
    for (size_t i = 0; i < n; i++) {
        if (i) rvi_buf_putc(h, ',');
        rvi_json_write_string(h, meta[i].key, strlen(meta[i].key));
        rvi_buf_putc(h, ':');
        rvi_json_write_string(h, meta[i].value, strlen(meta[i].value));
    }
    rvi_buf_putc(h, '}');
}

/* The length and the header, padded so that the data begin at a multiple of 8. */
static rv_status make_header(rvi_buf *h, const rvi_tensor_view *tensors, size_t n,
                             const rvi_st_meta *meta, size_t n_meta, rv_error *err)
{
    rvi_arena arena = {0};
    rvi_name_table names;
    uint64_t end = 0;
    rv_status st = RV_OK;
    if (n > RVI_NAMES_MAX / 2)
        return rvi_error(err, RV_E_INVALID, "%zu tensors are too many for one file", n);
    if (!rvi_names_init(&names, &arena, n)) return rvi_nomem(err, "safetensors header");
    rvi_buf_append(h, "\0\0\0\0\0\0\0\0{", 9);
    if (n_meta) write_meta(h, meta, n_meta);
    for (size_t i = 0; i < n && !st; i++) {
        if (i || n_meta) rvi_buf_putc(h, ',');
        st = write_view_header(h, &tensors[i], &end, err);
        if (!st && rvi_names_add(&names, tensors[i].name, (uint32_t)i) != RVI_NAMES_ADDED)
            st = rvi_error(err, RV_E_INVALID, "tensor '%s' is given twice", tensors[i].name);
    }
    rvi_arena_deinit(&arena);
    if (st) return st;
    rvi_buf_putc(h, '}');
    while (h->len % 8 && rvi_buf_putc(h, ' ')) {
    }
    if (h->failed || h->len - 8 > MOST_HEADER) return rvi_nomem(err, "safetensors header");
    for (unsigned i = 0; i < 8; i++) h->data[i] = (char)((uint64_t)(h->len - 8) >> (8 * i) & 0xFF);
    return RV_OK;
}

rv_status rvi_safetensors_write_views(const char *path, const rvi_tensor_view *tensors, size_t n,
                                      const rvi_st_meta *meta, size_t n_meta, rv_error *err)
{
    rvi_buf header = {0};
    FILE *f = NULL;
    rv_status st = make_header(&header, tensors, n, meta, n_meta, err);
    if (!st && !(f = fopen(path, "wb")))
        st = rvi_error(err, RV_E_IO, "%s: cannot open for writing: %s", path, strerror(errno));
    if (!st) st = rvi_os_write(f, header.data, header.len, path, err);
    for (size_t i = 0; i < n && !st; i++) {
        uint64_t n_bytes;
        if (view_bytes(&tensors[i], &n_bytes))
            st = rvi_os_write(f, tensors[i].data, (size_t)n_bytes, path, err);
    }
    if (!st) st = rvi_os_sync(f, path, err);
    if (f && fclose(f) && !st)
        st = rvi_error(err, RV_E_IO, "%s: cannot write: %s", path, strerror(errno));
    rvi_buf_deinit(&header);
    return st;
}

rv_status rvi_safetensors_write(const char *path, const rvi_st_entry *entries, size_t n,
                                rv_error *err)
{
    rvi_tensor_view *views = rvi_zalloc_array(n + 1, sizeof *views);
    if (!views) return rvi_nomem(err, "safetensors header");
    for (size_t i = 0; i < n; i++) {
        views[i] = (rvi_tensor_view){
            .name = entries[i].name, .type = RVI_F32, .n_dims = entries[i].n_dims};
        views[i].data = (const uint8_t *)entries[i].data;
        memcpy(views[i].shape, entries[i].shape, sizeof views[i].shape);
    }
    rv_status st = rvi_safetensors_write_views(path, views, n, NULL, 0, err);
    rvi_free(views);
    return st;
}
