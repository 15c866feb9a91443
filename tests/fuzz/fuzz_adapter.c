/* Any bytes as an adapter: loading must return, and what loads must apply to a row. The first byte
 * says which kind: G, a GGUF file; else adapter_config.json, a NUL and adapter_model.safetensors.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/os.h"
#include "lora/file.h"

enum { WIDTH = 32 };

static const rvi_lora_target targets[] = {
    {"model.layers.0.self_attn.q_proj", "blk.0.attn_q", WIDTH, WIDTH, 2, true, 1},
    {"model.layers.0.self_attn.k_proj", "blk.0.attn_k", WIDTH, WIDTH / 2, 1, false, 1},
    {"model.layers.0.mlp.up_proj", "blk.0.ffn_up", WIDTH, WIDTH, 0, false, 1},
};

static rvi_buf dir; /* a folder for the files, removed at the end */

static void remove_dir(void)
{
    rvi_os_remove_tree(dir.data);
    rvi_buf_deinit(&dir);
}

static void put(const char *name, const void *data, size_t len)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", dir.data, name);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, len, f) != len || fclose(f)) abort();
}

static void apply(rvi_backend *be, const rvi_adapter *a)
{
    static const float zeros[WIDTH];
    static const int32_t row[] = {0};
    rvi_tensor *x, *out;
    if (be->ops->rows_new(be, &x, 1, WIDTH, NULL) || be->ops->rows_new(be, &out, 1, WIDTH, NULL))
        abort();
    be->ops->rows_write(be, rvi_cols_of(x, 0, WIDTH), 0, zeros);
    be->ops->rows_write(be, rvi_cols_of(out, 0, WIDTH), 0, zeros);
    for (size_t i = 0; i < RVI_COUNT(targets); i++) {
        const rvi_lora_slot *s = &a->slots[i];
        if (!s->a) continue;
        rvi_lora_product product = {s->a, s->b, s->scale, rvi_cols_of(out, 0, targets[i].n_out)};
        be->ops->lora(be, rvi_cols_of(x, 0, WIDTH), &(rvi_lora_group){row, 1, &product, 1}, 1);
    }
    be->ops->tensor_free(be, x);
    be->ops->tensor_free(be, out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const arch[] = {"llama", NULL};
    static rvi_backend *be;
    char path[256];
    rv_error err = {0};
    rvi_adapter *a;
    if (!size) return 0;
    if (!be && (rvi_backend_cpu_new(&be, &(rvi_cpu_options){.n_threads = 1}, NULL, NULL) ||
                be->ops->reserve(be, 1, WIDTH, 0, NULL) || rvi_os_temp_dir(&dir, "/tmp", NULL) ||
                atexit(remove_dir)))
        abort();
    bool gguf = data[0] == 'G';
    if (gguf) {
        put("adapter.gguf", data, size);
    } else {
        const uint8_t *end = memchr(data, 0, size);
        size_t len = end ? (size_t)(end - data) : size;
        put("adapter_config.json", data, len);
        put("adapter_model.safetensors", end ? end + 1 : data, end ? size - len - 1 : 0);
    }
    snprintf(path, sizeof path, "%s%s", dir.data, gguf ? "/adapter.gguf" : "");
    /* the model that the seeds were written for, or none */
    const char *digest = size % 2 ? NULL
                                  : "00112233445566778899aabbccddeeff"
                                    "00112233445566778899aabbccddeeff";
    rv_status st = rvi_adapter_load(&a, be, path, targets, RVI_COUNT(targets), arch, digest, &err);
    if (st && (err.code != st || !err.text[0] || a)) abort();
    if (!st) apply(be, a);
    rvi_adapter_free(a);
    return 0;
}
