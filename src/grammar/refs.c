#include "grammar/refs.h"

#include <stdlib.h>
#include <string.h>

enum { URI_MAX = 1024 };

/* ---- paths ---- */

/* Writes the steps down to `at` behind the n bytes of out; 0: it is not below v. */
static size_t path_below(const rvi_json *v, const rvi_json *at, char *out, size_t n)
{
    if (v == at) return n;
    for (size_t i = 0; i < rvi_json_count(v); i++) {
        const rvi_json *item = rvi_json_at(v, i);
        size_t end = n;
        char number[24];
        const char *step = item->key;
        size_t len = item->key_len;
        if (!step) {
            len = 0;
            for (size_t k = i; !len || k; k /= 10) number[len++] = (char)('0' + k % 10);
            for (size_t k = 0; k < len / 2; k++) {
                char c = number[k];
                number[k] = number[len - 1 - k];
                number[len - 1 - k] = c;
            }
            step = number;
        }
        if (end < 255) out[end++] = '/';
        for (size_t k = 0; k < len; k++) {
            const char *esc = step[k] == '~' ? "~0" : step[k] == '/' ? "~1" : NULL;
            if (esc && end + 2 < 255) {
                out[end++] = esc[0];
                out[end++] = esc[1];
            } else if (!esc && end < 255) {
                out[end++] = step[k];
            }
        }
        if ((end = path_below(item, at, out, end))) return end;
    }
    return 0;
}

const char *rvi_json_path(const rvi_json *root, const rvi_json *at, char out[256])
{
    out[0] = '#';
    size_t n = path_below(root, at, out, 1);
    out[n ? n : 1] = 0;
    return out;
}

/* ---- where schemas are ---- */

/* What a value in a schema document is: an identifier counts only in a schema. */
typedef enum role { SCHEMA, SCHEMAS, DATA } role;

static role role_in(role around, const rvi_json *item)
{
    static const char *const one[] = {"items",
                                      "additionalItems",
                                      "unevaluatedItems",
                                      "contains",
                                      "additionalProperties",
                                      "unevaluatedProperties",
                                      "propertyNames",
                                      "not",
                                      "if",
                                      "then",
                                      "else",
                                      "contentSchema",
                                      "extends"},
                             *const many[] = {"properties",
                                              "patternProperties",
                                              "$defs",
                                              "definitions",
                                              "dependentSchemas",
                                              "dependencies",
                                              "allOf",
                                              "anyOf",
                                              "oneOf",
                                              "prefixItems"};
    if (around != SCHEMA) return around == SCHEMAS ? SCHEMA : DATA;
    for (size_t i = 0; item->key && i < RVI_COUNT(one); i++)
        if (!strcmp(item->key, one[i])) return rvi_json_is(item, RVI_JSON_ARRAY) ? SCHEMAS : SCHEMA;
    for (size_t i = 0; item->key && i < RVI_COUNT(many); i++)
        if (!strcmp(item->key, many[i])) return SCHEMAS;
    return DATA;
}

/* "$id": "#name" is an anchor, in draft 7 and before. */
static bool has_id(const rvi_json *v, role r)
{
    const rvi_json *id = rvi_json_get(v, "$id");
    return r == SCHEMA && rvi_json_is(id, RVI_JSON_STRING) && id->as.string.data[0] != '#';
}

/* ---- addresses ---- */

static int hex(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* One step of a JSON pointer: percent escapes and ~ escapes undone. */
static size_t unescape(const char *s, size_t len, char *out, size_t cap)
{
    size_t n = 0;
    for (size_t i = 0; i < len && n < cap; i++) {
        char c = s[i];
        if (c == '%' && i + 2 < len && hex(s[i + 1]) >= 0 && hex(s[i + 2]) >= 0) {
            c = (char)(hex(s[i + 1]) * 16 + hex(s[i + 2]));
            i += 2;
        } else if (c == '~' && i + 1 < len) {
            c = s[++i] == '1' ? '/' : '~';
        }
        out[n++] = c;
    }
    return n;
}

void rvi_ref_index_deinit(rvi_ref_index *x)
{
    rvi_free(x->members);
    *x = (rvi_ref_index){0};
}

static int compare_name(const rvi_json *member, const char *name, size_t len)
{
    int c = memcmp(member->key, name, RVI_MIN(member->key_len, len));
    return c ? c : member->key_len < len ? -1 : member->key_len > len;
}

/* Of equal names the last comes last. */
static int by_name(const void *a, const void *b)
{
    const rvi_json *x = *(const rvi_json *const *)a, *y = *(const rvi_json *const *)b;
    int c = compare_name(x, y->key, y->key_len);
    return c ? c : x < y ? -1 : x > y;
}

static bool make_index(const rvi_refs *r, const rvi_json *object)
{
    enum { WORK = 4 }; /* of a member */
    rvi_ref_index *x = r->index;
    size_t n = rvi_json_count(object);
    if (x->object == object) return true;
    if (!rvi_rxs_spend(r->work, WORK * n)) return false;
    const rvi_json **members = rvi_realloc_array(x->members, n, sizeof *members);
    if (!members) return rvi_rxs_fail(r->work, RV_E_NOMEM, ""), false;
    for (size_t i = 0; i < n; i++) members[i] = rvi_json_at(object, i);
    qsort(members, n, sizeof *members, by_name);
    *x = (rvi_ref_index){object, members, n};
    return true;
}

/* The last member of that name. */
static const rvi_json *find_member(const rvi_refs *r, const rvi_json *object, const char *name,
                                   size_t len)
{
    enum { MANY = 64 };
    size_t n = rvi_json_count(object), low = 0;
    if (!rvi_json_is(object, RVI_JSON_OBJECT)) return NULL;
    if (n <= MANY) {
        while (n-- > 0)
            if (!compare_name(rvi_json_at(object, n), name, len)) return rvi_json_at(object, n);
        return NULL;
    }
    if (!make_index(r, object)) return NULL;
    while (low < n) { /* the first behind that name */
        size_t mid = (low + n) / 2;
        if (compare_name(r->index->members[mid], name, len) <= 0)
            low = mid + 1;
        else
            n = mid;
    }
    const rvi_json *found = low ? r->index->members[low - 1] : NULL;
    return found && !compare_name(found, name, len) ? found : NULL;
}

static const rvi_json *step_into(const rvi_refs *r, const rvi_json *v, const char *step, size_t len)
{
    size_t index = 0;
    if (!rvi_json_is(v, RVI_JSON_ARRAY)) return find_member(r, v, step, len);
    if (!len || len > 6) return NULL;
    for (size_t i = 0; i < len; i++) {
        if (step[i] < '0' || step[i] > '9') return NULL;
        index = index * 10 + (size_t)(step[i] - '0');
    }
    return rvi_json_at(v, index);
}

/* Of a value that is looked at on the way through the schema, and its members. */
static bool spend(const rvi_refs *r, const rvi_json *v)
{
    enum { WORK = 8 };
    return rvi_rxs_spend(r->work, WORK + rvi_json_count(v) / 4);
}

static bool is_anchor(const rvi_json *v, const char *name)
{
    const rvi_json *id = rvi_json_get(v, "$id");
    if (!id) id = rvi_json_get(v, "id");
    return rvi_json_is_string(rvi_json_get(v, "$anchor"), name) ||
           rvi_json_is_string(rvi_json_get(v, "$dynamicAnchor"), name) ||
           (rvi_json_is(id, RVI_JSON_STRING) && id->as.string.data[0] == '#' &&
            !strcmp(id->as.string.data + 1, name));
}

static const rvi_json *find_anchor(const rvi_refs *refs, const rvi_json *v, role r,
                                   const char *name, const rvi_json *resource)
{
    if (!spend(refs, v)) return NULL;
    if (v != resource && has_id(v, r)) return NULL; /* another resource */
    if (r == SCHEMA && is_anchor(v, name)) return v;
    for (size_t i = 0; i < rvi_json_count(v); i++) {
        const rvi_json *item = rvi_json_at(v, i),
                       *found = find_anchor(refs, item, role_in(r, item), name, resource);
        if (found) return found;
    }
    return NULL;
}

/* What follows the # of a reference to a resource. */
static const rvi_json *find_fragment(const rvi_refs *r, const rvi_json *resource,
                                     const char *fragment)
{
    char step[URI_MAX];
    if (!*fragment) return resource;
    if (*fragment != '/') return find_anchor(r, resource, SCHEMA, fragment, resource);
    const rvi_json *v = resource;
    while (*fragment && v) {
        const char *end = strchr(++fragment, '/');
        size_t len = end ? (size_t)(end - fragment) : strlen(fragment);
        size_t n = unescape(fragment, len, step, sizeof step);
        v = step_into(r, v, step, n);
        fragment += len;
        /* a resource of its own on the way is not part of this one, but may be pointed into */
    }
    return v;
}

/* ---- URIs, as far as references in schemas need them ---- */

static bool absolute(const char *uri)
{
    const char *colon = strchr(uri, ':'), *slash = strchr(uri, '/');
    return colon && (!slash || colon < slash);
}

/* The address without its fragment, relative to base. False: too long. */
static bool resolve(const char *base, const char *ref, char out[URI_MAX])
{
    size_t len = strcspn(ref, "#"), keep = 0;
    if (!len) {
        keep = strlen(base);
    } else if (!absolute(ref)) {
        const char *scheme = strstr(base, "://"), *path = scheme ? strchr(scheme + 3, '/') : base;
        size_t authority = path ? (size_t)(path - base) : strlen(base);
        const char *last = strrchr(base, '/');
        keep = *ref == '/'                                  ? authority
               : last && (size_t)(last - base) >= authority ? (size_t)(last - base) + 1
               : scheme                                     ? authority
                                                            : 0;
    }
    if (keep + len + 2 > URI_MAX) return false;
    memcpy(out, base, keep);
    if (keep && len && *ref != '/' && out[keep - 1] != '/') out[keep++] = '/';
    memcpy(out + keep, ref, len);
    out[keep + len] = 0;
    return true;
}

static const char *id_of(const rvi_json *v)
{
    const rvi_json *id = rvi_json_get(v, "$id");
    if (!rvi_json_is(id, RVI_JSON_STRING)) id = rvi_json_get(v, "id");
    return rvi_json_is(id, RVI_JSON_STRING) && id->as.string.data[0] != '#' ? id->as.string.data
                                                                            : NULL;
}

/* The address of the resource that contains `at`. */
static bool base_of(const rvi_refs *refs, const rvi_json *v, role r, const rvi_json *at,
                    const char *base, bool root, char out[URI_MAX])
{
    char own[URI_MAX];
    if (!spend(refs, v)) return false;
    const char *id = root || has_id(v, r) ? id_of(v) : NULL;
    if (id && resolve(base, id, own)) base = own;
    if (v == at) {
        memcpy(out, base, strlen(base) + 1);
        return true;
    }
    for (size_t i = 0; i < rvi_json_count(v); i++) {
        const rvi_json *item = rvi_json_at(v, i);
        if (base_of(refs, item, role_in(r, item), at, base, false, out)) return true;
    }
    return false;
}

static const rvi_json *find_resource(const rvi_refs *refs, const rvi_json *v, role r,
                                     const char *uri, const char *base, bool root)
{
    char own[URI_MAX];
    if (!spend(refs, v)) return NULL;
    const char *id = root || has_id(v, r) ? id_of(v) : NULL;
    if (id && resolve(base, id, own)) base = own;
    if ((id || root) && !strcmp(base, uri)) return v;
    for (size_t i = 0; i < rvi_json_count(v); i++) {
        const rvi_json *item = rvi_json_at(v, i),
                       *found = find_resource(refs, item, role_in(r, item), uri, base, false);
        if (found) return found;
    }
    return NULL;
}

const rvi_json *rvi_ref_find(const rvi_refs *r, const rvi_json *ref)
{
    char base[URI_MAX], uri[URI_MAX];
    const char *text = ref->as.string.data, *hash = strchr(text, '#');
    if (strlen(text) != ref->as.string.len) return NULL;
    if (*text == '#' && !r->nested_ids) return find_fragment(r, r->root, text + 1);
    if (!base_of(r, r->root, SCHEMA, ref, "", true, base) || !resolve(base, text, uri)) return NULL;
    const rvi_json *resource = find_resource(r, r->root, SCHEMA, uri, "", true);
    return resource ? find_fragment(r, resource, hash ? hash + 1 : "") : NULL;
}

/* ---- dynamic references ---- */

static bool is_dynamic_anchor(const rvi_json *v, const char *name)
{
    return rvi_json_is_string(rvi_json_get(v, "$dynamicAnchor"), name);
}

/* One in the resource, or anywhere below v if that is NULL; *n: how many there are. */
static const rvi_json *find_dynamic(const rvi_refs *refs, const rvi_json *v, role r,
                                    const char *name, const rvi_json *resource, size_t *n)
{
    const rvi_json *first = NULL;
    if (!spend(refs, v)) return NULL;
    if (resource && v != resource && has_id(v, r)) return NULL;
    if (r == SCHEMA && is_dynamic_anchor(v, name)) {
        first = v;
        *n += 1;
    }
    for (size_t i = 0; i < rvi_json_count(v); i++) {
        const rvi_json *item = rvi_json_at(v, i),
                       *found = find_dynamic(refs, item, role_in(r, item), name, resource, n);
        if (!first) first = found;
    }
    return first;
}

const rvi_json *rvi_ref_find_dynamic(const rvi_refs *r, const rvi_json *ref, bool *depends)
{
    const rvi_json *target = rvi_ref_find(r, ref);
    const char *hash = strchr(ref->as.string.data, '#');
    size_t n = 0;
    *depends = false;
    if (!target || !hash || !is_dynamic_anchor(target, hash + 1)) return target;
    const rvi_json *outermost = find_dynamic(r, r->root, SCHEMA, hash + 1, r->root, &n);
    if (outermost) return outermost;
    (void)find_dynamic(r, r->root, SCHEMA, hash + 1, NULL, &n);
    *depends = n > 1;
    return target;
}
