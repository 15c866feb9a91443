#include "scheduler/kept_head.h"

#include <stdlib.h>
#include <string.h>

static const uint8_t magic[8] = {'r', 'v', 'k', 'e', 'p', 't', '3', '\n'};

bool rvi_kept_head_read(rvi_cursor *c, rvi_kept_head *h)
{
    const uint8_t *start = rvi_cursor_take(c, sizeof magic);
    if (!start || memcmp(start, magic, sizeof magic)) return false;
    uint32_t *small[] = {&h->kv_type, &h->exact, &h->page_tokens, &h->rope_set, &h->has_set};
    uint64_t *large[] = {&h->page_bytes, &h->began, &h->saved,   &h->random,
                         &h->surprise,   &h->n_ids, &h->n_pages, &h->number};
    for (size_t i = 0; i < RVI_COUNT(small); i++) *small[i] = rvi_cursor_u32(c);
    for (size_t i = 0; i < RVI_COUNT(large); i++) *large[i] = rvi_cursor_u64(c);
    const uint8_t *model = rvi_cursor_take(c, RVI_SHA256_HEX - 1);
    const uint8_t *set = rvi_cursor_take(c, sizeof h->set);
    h->tenant_len = rvi_cursor_u32(c);
    h->name_len = rvi_cursor_u32(c);
    if (c->failed || h->tenant_len > RVI_KEPT_NAME || h->name_len > RVI_KEPT_NAME) return false;
    const uint8_t *tenant = rvi_cursor_take(c, h->tenant_len),
                  *name = rvi_cursor_take(c, h->name_len);
    if (c->failed) return false;
    memcpy(h->model, model, RVI_SHA256_HEX - 1);
    memcpy(h->set, set, sizeof h->set);
    memcpy(h->tenant, tenant, h->tenant_len);
    memcpy(h->name, name, h->name_len);
    h->model[RVI_SHA256_HEX - 1] = h->tenant[h->tenant_len] = h->name[h->name_len] = 0;
    return strlen(h->tenant) == h->tenant_len && strlen(h->name) == h->name_len;
}

static bool put(rvi_buf *b, uint64_t v, int n_bytes)
{
    uint8_t bytes[8];
    for (int i = 0; i < n_bytes; i++) bytes[i] = (uint8_t)(v >> (8 * i));
    return rvi_buf_append(b, bytes, (size_t)n_bytes);
}

bool rvi_kept_head_put(rvi_buf *b, const rvi_kept_head *h)
{
    const uint32_t small[] = {h->kv_type, h->exact, h->page_tokens, h->rope_set, h->has_set};
    const uint64_t large[] = {h->page_bytes, h->began, h->saved,   h->random,
                              h->surprise,   h->n_ids, h->n_pages, h->number};
    bool ok = rvi_buf_append(b, magic, sizeof magic);
    for (size_t i = 0; i < RVI_COUNT(small); i++) ok = ok && put(b, small[i], 4);
    for (size_t i = 0; i < RVI_COUNT(large); i++) ok = ok && put(b, large[i], 8);
    return ok && rvi_buf_append(b, h->model, RVI_SHA256_HEX - 1) &&
           rvi_buf_append(b, h->set, sizeof h->set) && put(b, h->tenant_len, 4) &&
           put(b, h->name_len, 4) && rvi_buf_append(b, h->tenant, h->tenant_len) &&
           rvi_buf_append(b, h->name, h->name_len);
}

bool rvi_kept_pages_path(const char *path, uint64_t number, rvi_buf *out)
{
    size_t len = strlen(path) - (sizeof RVI_KEPT_HEAD - 1);
    return rvi_buf_printf(out, "%.*s.%llu" RVI_KEPT_PAGES, (int)len, path,
                          (unsigned long long)number);
}

bool rvi_kept_is_pages(const char *name, size_t *stem, uint64_t *number, bool *is_part)
{
    const char *at = strchr(name, '.');
    char *end;
    if (!at || at[1] < '0' || at[1] > '9') return false;
    *stem = (size_t)(at - name);
    *number = strtoull(at + 1, &end, 10);
    size_t len = sizeof RVI_KEPT_PAGES - 1;
    if (strncmp(end, RVI_KEPT_PAGES, len)) return false;
    *is_part = end[len] != 0;
    return true;
}
