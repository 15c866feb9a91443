#include "model/arch.h"

#include <string.h>

static const rvi_arch *const archs[] = {
#define X(name) &rvi_arch_##name,
    RVI_ARCH_LIST(X)
#undef X
};

static const rvi_role_name role_names[] = {
#define X(role, gguf, hf) {RVI_ROLE_##role, gguf, hf},
    RVI_ROLES(X)
#undef X
};

static bool listed(const char *const *names, const char *name, size_t len)
{
    for (; *names; names++)
        if (strlen(*names) == len && !memcmp(*names, name, len)) return true;
    return false;
}

const rvi_arch *rvi_arch_by_gguf(const char *name, size_t len)
{
    for (size_t i = 0; i < RVI_COUNT(archs); i++)
        if (listed(archs[i]->gguf_names, name, len)) return archs[i];
    return NULL;
}

const rvi_arch *rvi_arch_by_hf(const char *model_type)
{
    for (size_t i = 0; i < RVI_COUNT(archs); i++)
        if (listed(archs[i]->hf_types, model_type, strlen(model_type))) return archs[i];
    return NULL;
}

const char *rvi_arch_name(const rvi_arch *a, rvi_role role, bool gguf)
{
    for (const rvi_role_name *r = a->renamed; r && (r->gguf || r->hf); r++)
        if (r->role == role) return gguf ? r->gguf : r->hf;
    return gguf ? role_names[role].gguf : role_names[role].hf;
}
