/* The identity of a model: the same for the same bytes, another for whatever changes what it
 * says. */
#include "base/os.h"
#include "model/digest.h"
#include "twin.h"

static void take_digest(rvi_source *s, char out[RVI_SHA256_HEX])
{
    static int n_threads; /* any number gives the same */
    char again[RVI_SHA256_HEX];
    rvi_backend *be;
    assert_ok(
        rvi_backend_cpu_new(&be, &(rvi_cpu_options){.n_threads = 1 + n_threads++ % 3}, NULL, err));
    assert_ok(rvi_model_digest(s, be, out, err));
    assert_ok(rvi_model_digest(s, be, again, err));
    assert_string_equal(out, again);
    be->ops->free(be);
}

static void digest_gguf(const rvi_buf *file, char out[RVI_SHA256_HEX])
{
    rvi_source *s;
    rvi_blob blob;
    rvi_blob_from_memory(&blob, file->data, file->len);
    assert_ok(rvi_source_open_gguf_blob(&s, &blob, "digest", err));
    take_digest(s, out);
    rvi_source_close(s);
}

static void digest_path(const char *path, char out[RVI_SHA256_HEX])
{
    rvi_source *s;
    assert_ok(rvi_source_open(&s, path, err));
    take_digest(s, out);
    rvi_source_close(s);
}

/* Every model of ours has its own, also where only a value or the form of the file differs; and it
 * stays what it is. */
static void one_for_each(void **state)
{
    (void)state;
    char all[2 * RVI_COUNT(twins)][RVI_SHA256_HEX], again[RVI_SHA256_HEX], dir[64];
    size_t n = 0;
    for (size_t i = 0; i < RVI_COUNT(twins); i++) {
        rvi_buf file = {0};
        snprintf(dir, sizeof dir, "tests/golden/%s", twins[i].name);
        digest_path(dir, all[n]);
        digest_path(dir, again);
        assert_string_equal(all[n++], again);
        twin_build(&file, &twins[i]);
        digest_gguf(&file, all[n]);
        digest_gguf(&file, again);
        assert_string_equal(all[n++], again);
        rvi_buf_deinit(&file);
    }
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(strlen(all[i]), 64);
        for (size_t k = 0; k < i; k++) assert_string_not_equal(all[i], all[k]);
    }
    /* learned state is kept under it: a recipe that changes needs a new version in its mark */
    digest_path("tests/golden/llama", again);
    assert_string_equal(again, "87a6c3cf35b9fdc9a18ea1f683221ae6c6cef0ec54585ed96d39cb5702d45f0b");
}

static void copy_file(const char *from, const char *to)
{
    rvi_blob b;
    assert_ok(rvi_blob_open(&b, from, err));
    FILE *f = fopen(to, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(b.data, 1, b.len, f), b.len);
    assert_int_equal(fclose(f), 0);
    rvi_blob_close(&b);
}

static void at_any_path(void **state)
{
    (void)state;
    rvi_buf dir = {0};
    char path[256], here[RVI_SHA256_HEX], there[RVI_SHA256_HEX];
    assert_int_equal(rvi_os_temp_dir(&dir, "/tmp", NULL), RV_OK);
    static const char *const names[] = {"config.json", "model.safetensors"};
    for (size_t i = 0; i < RVI_COUNT(names); i++) {
        char from[128];
        snprintf(from, sizeof from, "tests/golden/qwen2/%s", names[i]);
        snprintf(path, sizeof path, "%s/%s", dir.data, names[i]);
        copy_file(from, path);
    }
    digest_path("tests/golden/qwen2", here);
    digest_path(dir.data, there);
    assert_string_equal(here, there);
    rvi_os_remove_tree(dir.data);
    rvi_buf_deinit(&dir);
}

/* The files of a directory that make its tokenizer and template count too. */
static void files_of_a_directory(void **state)
{
    (void)state;
    static const char *const names[] = {"tokenizer.json", "tokenizer_config.json",
                                        "special_tokens_map.json", "generation_config.json",
                                        "chat_template.jinja"};
    rvi_buf dir = {0};
    char path[256], before[RVI_SHA256_HEX], after[RVI_SHA256_HEX];
    assert_int_equal(rvi_os_temp_dir(&dir, "/tmp", NULL), RV_OK);
    snprintf(path, sizeof path, "%s/config.json", dir.data);
    copy_file("tests/golden/qwen2/config.json", path);
    snprintf(path, sizeof path, "%s/model.safetensors", dir.data);
    copy_file("tests/golden/qwen2/model.safetensors", path);
    digest_path(dir.data, before);
    for (size_t i = 0; i < RVI_COUNT(names); i++)
        for (int round = 0; round < 2; round++) { /* a new file, then another content */
            snprintf(path, sizeof path, "%s/%s", dir.data, names[i]);
            FILE *f = fopen(path, "wb");
            assert_non_null(f);
            assert_true(fprintf(f, "{\"a\": %d}", round) > 0);
            assert_int_equal(fclose(f), 0);
            digest_path(dir.data, after);
            assert_string_not_equal(before, after);
            memcpy(before, after, sizeof before);
        }
    snprintf(path, sizeof path, "%s/README.md", dir.data); /* no part of the model */
    copy_file("README.md", path);
    digest_path(dir.data, after);
    assert_string_equal(before, after);
    rvi_os_remove_tree(dir.data);
    rvi_buf_deinit(&dir);
}

typedef struct change {
    const char *title, *template;
    float eps;
    const char *tensor;
    uint64_t rows;
    size_t at, n; /* bytes of the large tensor that differ */
} change;

enum { LARGE = 700000 }; /* floats: two whole pieces and a part */

static void digest_changed(const change *c, char out[RVI_SHA256_HEX])
{
    static uint8_t data[LARGE * 4];
    gguf_builder b = {.version = 3};
    rvi_buf file = {0};
    memset(data, 1, sizeof data);
    memset(data + c->at, 0, c->n);
    gb_str(&b, "general.architecture", "llama");
    gb_str(&b, "general.name", c->title);
    gb_f32(&b, "llama.attention.layer_norm_rms_epsilon", c->eps);
    gb_str_array(&b, "tokenizer.ggml.tokens", (const char *const[]){"a", c->template}, 2);
    gb_tensor(&b, c->tensor, RVI_F32, 2, (uint64_t[]){c->rows, LARGE / c->rows}, data);
    gb_finish(&b, &file);
    gb_deinit(&b);
    digest_gguf(&file, out);
    rvi_buf_deinit(&file);
}

static void what_counts(void **state)
{
    (void)state;
    const change base = {"title", "b", 1e-5f, "token_embd.weight", 100, 0, 0};
    change same = base, others[] = {base, base, base, base};
    char first[RVI_SHA256_HEX], other[RVI_SHA256_HEX];
    digest_changed(&base, first);
    same.title = "another title";
    digest_changed(&same, other);
    assert_string_equal(first, other);
    others[0].eps = 1e-6f;
    others[1].template = "c";
    others[2].tensor = "token_embd.weights";
    others[3].rows = 200;
    for (size_t i = 0; i < RVI_COUNT(others); i++) {
        digest_changed(&others[i], other);
        assert_string_not_equal(first, other);
    }
    /* every byte of the weights: one here and there, and long runs of zeros */
    static const size_t runs[][2] = {
        {0, 1},       {5000, 1},          {(1 << 20) - 1, 1}, {1 << 20, 1},
        {2000003, 1}, {4 * LARGE - 1, 1}, {4096, 40000},      {100000, 4 * LARGE - 200000}};
    char seen[RVI_COUNT(runs)][RVI_SHA256_HEX];
    for (size_t i = 0; i < RVI_COUNT(runs); i++) {
        change c = base;
        c.at = runs[i][0];
        c.n = runs[i][1];
        digest_changed(&c, seen[i]);
        assert_string_not_equal(first, seen[i]);
        for (size_t k = 0; k < i; k++) assert_string_not_equal(seen[i], seen[k]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_for_each),
        cmocka_unit_test(at_any_path),
        cmocka_unit_test(files_of_a_directory),
        cmocka_unit_test(what_counts),
    };
    return cmocka_run_group_tests_name("model digest", tests, NULL, NULL);
}
