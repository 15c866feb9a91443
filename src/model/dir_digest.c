#include "model/dir_digest.h"

#include <string.h>

#include "base/blob.h"
#include "base/fingerprint.h"
#include "base/mem.h"
#include "base/os.h"

static const char *const names[] = {"tokenizer.json", "tokenizer_config.json",
                                    "special_tokens_map.json", "generation_config.json",
                                    "chat_template.jinja"};

static rv_status add_file(rvi_sha256 *h, const char *dir, const char *name, rv_error *err)
{
    rvi_buf path = {0};
    rvi_blob b = {0};
    rv_status st = RV_OK;
    if (!rvi_buf_printf(&path, "%s/%s", dir, name)) return rvi_nomem(err, "path");
    if (rvi_os_stat(path.data, NULL) == RVI_OS_FILE) st = rvi_blob_open(&b, path.data, err);
    if (!st && b.data) {
        rvi_sha256_add_u64(h, strlen(name));
        rvi_sha256_add(h, name, strlen(name));
        rvi_fingerprint_add(h, b.data, b.len);
        st = rvi_blob_check(&b, path.data, err);
    }
    rvi_blob_close(&b);
    rvi_buf_deinit(&path);
    return st;
}

rv_status rvi_dir_digest(const char *dir, uint8_t out[RVI_SHA256_LEN], rv_error *err)
{
    rvi_sha256 h;
    rv_status st = RV_OK;
    rvi_sha256_init(&h);
    for (size_t i = 0; !st && i < RVI_COUNT(names); i++) st = add_file(&h, dir, names[i], err);
    rvi_sha256_end(&h, out);
    return st;
}
