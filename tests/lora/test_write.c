/* Adapters written and read again: the same bits in both formats on both kinds of models, the bytes
 * that others write for the same adapter, the origin they carry, and nothing half-written when a
 * write fails or the process dies in it. */
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "adapter_files.h"
#include "base/rng.h"
#include "lora/file.h"
#include "lora/write.h"
#include "model/digest.h"

static const char provenance[] =
    "{\"generation\": 3, \"events\": [17, 42], \"parents\": [\"a\"], \"recipe\": \"R1\"}";

/* An adapter on every third target, of ranks 1 to 4 or all 2, small values. */
static rvi_adapter *random_adapter(const golden *g, uint64_t seed, float scale, bool same_rank)
{
    rvi_adapter *a;
    rvi_rng rng = {seed};
    assert_ok(rvi_adapter_new(&a, g->be, g->m->n_targets, err));
    for (int i = 1; i < g->m->n_targets; i += 3) {
        const rvi_lora_target *t = &g->m->targets[i];
        int rank = same_rank ? 2 : 1 + i % 4;
        size_t n_a = (size_t)(rank * t->n_in), n_b = (size_t)(rank * t->n_out);
        float *v = rvi_alloc_array(n_a + n_b, sizeof *v);
        assert_non_null(v);
        for (size_t k = 0; k < n_a + n_b; k++) v[k] = (float)(rvi_rng_double(&rng) - 0.5) / 4;
        v[0] = -0.0f;
        assert_ok(rvi_adapter_put(a, i, t, rank, scale, v, v + n_a, err));
        rvi_free(v);
    }
    return a;
}

typedef struct matrices {
    float *a, *b;
    size_t n_a, n_b;
} matrices;

static matrices read_slot(const golden *g, const rvi_adapter *a, int slot)
{
    size_t rank = (size_t)rvi_adapter_rank(a, slot);
    matrices m = {.n_a = rank * (size_t)g->m->targets[slot].n_in,
                  .n_b = rank * (size_t)g->m->targets[slot].n_out};
    m.a = rvi_alloc_array(m.n_a + m.n_b, sizeof *m.a);
    assert_non_null(m.a);
    m.b = m.a + m.n_a;
    rvi_adapter_read(a, slot, m.a, m.b);
    return m;
}

static void assert_same(const golden *g, const rvi_adapter *x, const rvi_adapter *y, rvi_qtype type)
{
    assert_int_equal(x->n_used, y->n_used);
    for (int i = 0; i < g->m->n_targets; i++) {
        assert_int_equal(rvi_adapter_rank(x, i), rvi_adapter_rank(y, i));
        if (!rvi_adapter_rank(x, i)) continue;
        matrices p = read_slot(g, x, i), q = read_slot(g, y, i);
        for (size_t k = 0; type == RVI_F16 && k < p.n_a + p.n_b; k++)
            p.a[k] = rvi_f16_to_f32(rvi_f32_to_f16(p.a[k]));
        assert_memory_equal(p.a, q.a, (p.n_a + p.n_b) * sizeof *p.a);
        assert_memory_equal(&x->slots[i].scale, &y->slots[i].scale, sizeof(float));
        rvi_free(p.a);
        rvi_free(q.a);
    }
}

static rv_status load_with(rvi_adapter **out, const golden *g, const char *path, const char *digest,
                           rv_error *err)
{
    return rvi_adapter_load(out, g->be, path, g->m->targets, g->m->n_targets,
                            g->m->arch->gguf_names, digest, err);
}

static rv_status write_to(const golden *g, const rvi_adapter *a, const char *path, bool gguf,
                          rvi_qtype type, const rvi_adapter_note *note, rv_error *err)
{
    return gguf ? rvi_adapter_write_gguf(a, g->m->targets, rvi_source_gguf_arch(g->m->source), path,
                                         type, note, err)
                : rvi_adapter_write_peft(a, g->m->targets, path, type, note, err);
}

/* ---- the same bits again ---- */

static void round_trips(const golden *g, const rvi_buf *dir)
{
    char digest[RVI_SHA256_HEX];
    assert_ok(rvi_model_digest(g->m->source, g->be, digest, err));
    rvi_adapter_note note = {"base", digest, provenance};
    for (int way = 0; way < 8; way++) {
        bool gguf = way & 1, same_rank = way & 4;
        rvi_qtype type = way & 2 ? RVI_F16 : RVI_F32;
        /* GGUF has one alpha: ranks that differ need scales that do */
        if (gguf && !same_rank) continue;
        rvi_adapter *a = random_adapter(g, (uint64_t)way, 0.7f, same_rank), *b;
        const char *path = in_folder(dir, gguf ? "round.gguf" : "round");
        assert_ok(write_to(g, a, path, gguf, type, &note, err));
        assert_ok(load_with(&b, g, path, digest, err));
        assert_same(g, a, b, type);
        assert_string_equal(b->base_digest, digest);
        assert_string_equal(b->provenance, provenance);
        rvi_adapter_free(a);
        rvi_adapter_free(b);
    }
}

static void every_model_both_formats(void **state)
{
    for (size_t i = 0; i < RVI_COUNT(twins); i++) {
        golden gguf, checkpoint;
        rvi_buf file = {0};
        twin_open(&gguf, &file, &twins[i]);
        golden_open_named(&checkpoint, twins[i].name, true, 1, NULL);
        round_trips(&gguf, *state);
        round_trips(&checkpoint, *state);
        golden_close(&gguf);
        golden_close(&checkpoint);
        rvi_buf_deinit(&file);
    }
}

/* In GGUF one alpha for all: what the scales differ by goes into B. */
static void scales_that_differ_in_gguf(void **state)
{
    golden g;
    rvi_adapter *b;
    golden_open_named(&g, "llama", true, 1, NULL);
    rvi_adapter *a = random_adapter(&g, 5, 0.7f, false);
    a->slots[4].scale = 0;
    const char *path = in_folder(*state, "scales.gguf");
    double worst = 0;
    assert_ok(write_to(&g, a, path, true, RVI_F32, NULL, err));
    assert_ok(load_with(&b, &g, path, NULL, err));
    for (int i = 0; i < g.m->n_targets; i++) {
        if (!rvi_adapter_rank(a, i)) continue;
        matrices p = read_slot(&g, a, i), q = read_slot(&g, b, i);
        for (size_t k = 0; k < p.n_b; k++) {
            double want = (double)p.b[k] * (double)a->slots[i].scale,
                   got = (double)q.b[k] * (double)b->slots[i].scale;
            worst = fmax(worst, fabs(want - got));
        }
        assert_memory_equal(p.a, q.a, p.n_a * sizeof *p.a);
        rvi_free(p.a);
        rvi_free(q.a);
    }
    print_message("# scales that differ: worst error %.1e\n", worst);
    assert_true(worst < 1e-7); /* observed: 5.3e-9 */
    rvi_adapter_free(a);
    rvi_adapter_free(b);
    golden_close(&g);
}

/* A scale that is no short number and ranks that are no powers of two. */
static void scales_come_back(void **state)
{
    golden g;
    golden_open_named(&g, "llama", true, 1, NULL);
    rvi_rng rng = {11};
    for (int n = 0; n < 50; n++) {
        float scale = (float)(rvi_rng_double(&rng) * 4 - 2);
        rvi_adapter *a = random_adapter(&g, 3, scale, false), *b;
        assert_ok(write_to(&g, a, in_folder(*state, "scale"), false, RVI_F32, NULL, err));
        assert_ok(load_with(&b, &g, in_folder(*state, "scale"), NULL, err));
        assert_same(&g, a, b, RVI_F32);
        rvi_adapter_free(a);
        rvi_adapter_free(b);
    }
    golden_close(&g);
}

/* ---- the bytes others write ---- */

static void assert_same_tensors(const rvi_tensor_view *x, const rvi_tensor_view *y)
{
    assert_non_null(y);
    assert_int_equal(x->n_dims, y->n_dims);
    assert_memory_equal(x->shape, y->shape, sizeof x->shape[0] * (size_t)x->n_dims);
    size_t n = (size_t)(x->shape[0] * x->shape[1]);
    float *p = rvi_alloc_array(2 * n, sizeof *p);
    rvi_dequantize(x->type, x->data, p, n);
    rvi_dequantize(y->type, y->data, p + n, n);
    assert_memory_equal(p, p + n, n * sizeof *p);
    rvi_free(p);
}

/* The official adapter, loaded on the one kind of model and written in the format of the other. */
static void the_files_of_others(void **state)
{
    for (size_t i = 0; i < RVI_COUNT(twins); i++) {
        golden gguf, checkpoint;
        rvi_buf file = {0};
        rvi_adapter *a;
        rvi_safetensors *peft, *written_peft;
        rvi_gguf *other, *written_gguf;
        char path[128], tensors[160];
        twin_open(&gguf, &file, &twins[i]);
        golden_open_named(&checkpoint, twins[i].name, true, 1, NULL);

        snprintf(path, sizeof path, "tests/golden/%s/lora", twins[i].name);
        assert_ok(load_with(&a, &gguf, path, NULL, err)); /* rows in GGUF's order now */
        assert_ok(write_to(&gguf, a, in_folder(*state, "official"), false, RVI_F32, NULL, err));
        rvi_adapter_free(a);
        snprintf(tensors, sizeof tensors, "%s/adapter_model.safetensors", path);
        assert_ok(rvi_safetensors_open(&peft, tensors, err));
        assert_ok(rvi_safetensors_open(
            &written_peft, in_folder(*state, "official/adapter_model.safetensors"), err));
        assert_int_equal(rvi_safetensors_n_tensors(peft), rvi_safetensors_n_tensors(written_peft));
        for (size_t k = 0; k < rvi_safetensors_n_tensors(peft); k++) {
            const rvi_tensor_view *v = rvi_safetensors_tensor_at(peft, k);
            assert_same_tensors(v, rvi_safetensors_tensor(written_peft, v->name));
        }
        rvi_safetensors_close(peft);
        rvi_safetensors_close(written_peft);

        assert_ok(rvi_gguf_open(&other, write_gguf_adapter(*state, &twins[i]), err));
        assert_ok(load_with(&a, &checkpoint, path, NULL, err));
        assert_ok(
            write_to(&checkpoint, a, in_folder(*state, "official.gguf"), true, RVI_F32, NULL, err));
        rvi_adapter_free(a);
        assert_ok(rvi_gguf_open(&written_gguf, in_folder(*state, "official.gguf"), err));
        assert_int_equal(rvi_gguf_n_tensors(other), rvi_gguf_n_tensors(written_gguf));
        for (size_t k = 0; k < rvi_gguf_n_tensors(other); k++) {
            const rvi_tensor_view *v = rvi_gguf_tensor_at(other, k);
            assert_same_tensors(v, rvi_gguf_tensor(written_gguf, v->name));
        }
        float alpha = 0;
        rvi_str arch = {0};
        assert_true(rvi_gguf_get_f32(written_gguf, "adapter.lora.alpha", &alpha) && alpha == 4);
        assert_true(rvi_gguf_get_str(written_gguf, "general.architecture", &arch) &&
                    arch.len == strlen(twins[i].arch) &&
                    !memcmp(arch.data, twins[i].arch, arch.len));
        rvi_gguf_close(other);
        rvi_gguf_close(written_gguf);
        golden_close(&gguf);
        golden_close(&checkpoint);
        rvi_buf_deinit(&file);
    }
}

/* ---- adapter_config.json ---- */

static rvi_adapter *adapter_on(const golden *g, bool (*wanted)(const char *name, int i))
{
    static const float zeros[4096];
    rvi_adapter *a;
    assert_ok(rvi_adapter_new(&a, g->be, g->m->n_targets, err));
    for (int i = 0; i < g->m->n_targets; i++) {
        const rvi_lora_target *t = &g->m->targets[i];
        assert_true(t->n_in <= 4096 && t->n_out <= 4096);
        if (wanted(t->hf_name, i)) assert_ok(rvi_adapter_put(a, i, t, 1, 2, zeros, zeros, err));
    }
    return a;
}

static bool want_q_and_down(const char *name, int i)
{
    (void)i;
    return strstr(name, "q_proj") || strstr(name, "down_proj");
}

static bool want_upper_q(const char *name, int i)
{
    (void)i;
    return strstr(name, "layers.1.") && strstr(name, "q_proj");
}

static bool want_mixed(const char *name, int i)
{
    (void)i;
    return !strcmp(name, "lm_head") || !strcmp(name, "model.layers.0.mlp.up_proj");
}

static void configurations(void **state)
{
    static const struct {
        bool (*wanted)(const char *name, int i);
        const char *text;
    } cases[] = {
        {want_q_and_down, "\"target_modules\": [\"q_proj\", \"down_proj\"],\n"
                          "  \"layers_to_transform\": null,\n"},
        {want_upper_q, "\"target_modules\": [\"q_proj\"],\n  \"layers_to_transform\": [1],\n"},
        {want_mixed, "\"target_modules\": [\"lm_head\", \"model.layers.0.mlp.up_proj\"],\n"
                     "  \"layers_to_transform\": null,\n"},
    };
    golden g;
    golden_open_named(&g, "llama", true, 1, NULL);
    for (size_t i = 0; i < RVI_COUNT(cases); i++) {
        rvi_adapter *a = adapter_on(&g, cases[i].wanted);
        rvi_blob blob;
        rvi_buf text = {0};
        assert_ok(write_to(&g, a, in_folder(*state, "config"), false, RVI_F32, NULL, err));
        assert_ok(rvi_blob_open(&blob, in_folder(*state, "config/adapter_config.json"), err));
        assert_true(rvi_buf_append(&text, blob.data, blob.len));
        if (!strstr(text.data, cases[i].text)) fail_msg("%s", text.data);
        rvi_buf_deinit(&text);
        rvi_blob_close(&blob);
        rvi_adapter_free(a);
    }
    golden_close(&g);
}

/* ---- origin ---- */

typedef struct heard {
    int n;
    char last[512];
} heard;

static void hear(void *ctx, rvi_log_level level, const char *line)
{
    heard *h = ctx;
    if (level != RVI_LOG_WARN) return;
    h->n++;
    snprintf(h->last, sizeof h->last, "%s", line);
}

static void digests(void **state)
{
    static const char other[] = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
    golden g;
    heard h = {0};
    rvi_log log = {hear, &h, RVI_LOG_WARN};
    char digest[RVI_SHA256_HEX];
    golden_open_named(&g, "llama", true, 1, NULL);
    g.be->log = &log;
    assert_ok(rvi_model_digest(g.m->source, g.be, digest, err));
    rvi_adapter *a = random_adapter(&g, 1, 2, true), *b;
    for (int gguf = 0; gguf < 2; gguf++) {
        rv_error bad = {0};
        const char *path = in_folder(*state, gguf ? "origin.gguf" : "origin");
        rvi_adapter_note note = {.base_digest = other};
        assert_ok(write_to(&g, a, path, gguf, RVI_F32, &note, err));
        assert_int_equal(load_with(&b, &g, path, digest, &bad), RV_E_ADAPTER);
        assert_null(b);
        assert_non_null(strstr(bad.text, other)); /* both are named */
        assert_non_null(strstr(bad.text, digest));
        assert_ok(load_with(&b, &g, path, NULL, err)); /* nobody asks */
        rvi_adapter_free(b);
        assert_int_equal(h.n, 0);

        assert_ok(write_to(&g, a, path, gguf, RVI_F32, NULL, err)); /* a foreign one says nothing */
        assert_ok(load_with(&b, &g, path, digest, err));
        assert_null(b->base_digest);
        assert_null(b->provenance);
        rvi_adapter_free(b);
        assert_int_equal(h.n, 1);
        assert_non_null(strstr(h.last, path));
        h.n = 0;
    }
    rvi_adapter_free(a);
    golden_close(&g);
}

/* One bit of the tensors differs. */
static void damage(void **state)
{
    golden g;
    golden_open_named(&g, "llama", true, 1, NULL);
    rvi_adapter *a = random_adapter(&g, 1, 2, true), *b;
    for (int gguf = 0; gguf < 2; gguf++) {
        rv_error bad = {0};
        rvi_blob blob;
        const char *path = in_folder(*state, gguf ? "damage.gguf" : "damage"),
                   *file = gguf ? path : in_folder(*state, "damage/adapter_model.safetensors");
        assert_ok(write_to(&g, a, path, gguf, RVI_F32, NULL, err));
        assert_ok(rvi_blob_open(&blob, file, err));
        rvi_buf bytes = {0};
        assert_true(rvi_buf_append(&bytes, blob.data, blob.len));
        rvi_blob_close(&blob);
        bytes.data[bytes.len - 100] ^= 1;
        write_file(file, bytes.data, bytes.len);
        assert_int_equal(load_with(&b, &g, path, NULL, &bad), RV_E_ADAPTER);
        assert_non_null(strstr(bad.text, "damaged"));
        rvi_buf_deinit(&bytes);
    }
    rvi_adapter_free(a);
    golden_close(&g);
}

/* ---- what cannot be written ---- */

static void refusals(void **state)
{
    golden g;
    golden_open_named(&g, "llama", true, 1, NULL);
    rvi_adapter *a = random_adapter(&g, 1, 2, true), *none, *large;
    assert_ok(rvi_adapter_new(&none, g.be, g.m->n_targets, err));
    assert_ok(rvi_adapter_new(&large, g.be, g.m->n_targets, err));
    float *v = rvi_zalloc_array(4096, sizeof *v);
    v[7] = 70000;
    assert_ok(rvi_adapter_put(large, 1, &g.m->targets[1], 1, 1, v, v, err));
    char good[256], file[256], home[256];
    snprintf(good, sizeof good, "%s", in_folder(*state, "good"));
    snprintf(file, sizeof file, "%s", in_folder(*state, "a file"));
    snprintf(home, sizeof home, "%s", in_folder(*state, "home"));
    write_file(file, "x", 1);
    assert_ok(rvi_os_make_dirs(home, err));
    write_file(in_folder(*state, "home/letter"), "x", 1);
    struct {
        const rvi_adapter *a;
        const char *path;
        bool gguf;
        rvi_qtype type;
        const char *provenance;
        rv_status st;
        const char *text;
    } cases[] = {
        {none, good, false, RVI_F32, NULL, RV_E_ADAPTER, "without matrices"},
        {large, good, false, RVI_F16, NULL, RV_E_ADAPTER, "70000 cannot be written as f16"},
        {large, good, true, RVI_F16, NULL, RV_E_ADAPTER, "70000 cannot be written as f16"},
        {a, good, false, RVI_Q8_0, NULL, RV_E_INVALID, "f32 or f16"},
        {a, good, false, RVI_F32, "{\"a\": ", RV_E_CONFIG, "provenance"},
        {a, good, true, RVI_F32, "[1]", RV_E_INVALID, "provenance"},
        {a, file, false, RVI_F32, NULL, RV_E_IO, "is not a directory"},
        {a, home, false, RVI_F32, NULL, RV_E_IO, "not an adapter's"},
        {a, "/nowhere at all/x.gguf", true, RVI_F32, NULL, RV_E_IO, "cannot open"},
    };
    for (size_t i = 0; i < RVI_COUNT(cases); i++) {
        rv_error err = {0};
        rvi_adapter_note note = {.provenance = cases[i].provenance};
        rv_status st =
            write_to(&g, cases[i].a, cases[i].path, cases[i].gguf, cases[i].type, &note, &err);
        if (st != cases[i].st || !strstr(err.text, cases[i].text))
            fail_msg("case %zu: %d: %s", i, st, err.text);
    }
    assert_int_equal(rvi_os_stat(good, NULL), RVI_OS_NONE);
    assert_int_equal(rvi_os_stat(in_folder(*state, "home/letter"), NULL), RVI_OS_FILE);
    rv_error err = {0};
    v[7] = NAN;
    assert_int_equal(rvi_adapter_put(none, 1, &g.m->targets[1], 1, 1, v, v, &err), RV_E_ADAPTER);
    assert_int_equal(rvi_adapter_put(none, 4, &g.m->targets[4], 0, 1, v, v, &err), RV_E_ADAPTER);
    assert_int_equal(rvi_adapter_put(none, 4, &g.m->targets[4], 1, NAN, v, v, &err), RV_E_ADAPTER);
    rvi_free(v);
    rvi_adapter_free(a);
    rvi_adapter_free(none);
    rvi_adapter_free(large);
    golden_close(&g);
}

/* ---- failures in the middle ---- */

static int count_entry(void *ctx, const char *name)
{
    (void)name;
    (*(int *)ctx)++;
    return 0;
}

static int n_entries(const rvi_buf *dir, const char *inside)
{
    int n = 0;
    assert_ok(rvi_os_list(in_folder(dir, inside), count_entry, &n, err));
    return n;
}

static void limit_files(rlim_t bytes)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* The file system takes so many bytes a file and no more, from none to all of them: an error each
 * time, the old adapter as it was, and no rubbish. With kill the process dies at that byte instead;
 * a rest may stay, but under a name of its own. */
static void fail_at_every_write(const rvi_buf *dir, bool gguf, bool dies)
{
    golden g;
    golden_open_named(&g, "llama", true, 1, NULL);
    rvi_adapter *old = random_adapter(&g, 1, 2, true), *new = random_adapter(&g, 2, 1, true), *b;
    assert_ok(rvi_os_make_dirs(in_folder(dir, "fail"), err));
    const char *path = in_folder(dir, gguf ? "fail/x.gguf" : "fail/x");
    assert_ok(write_to(&g, old, path, gguf, RVI_F32, NULL, err));
    size_t size = 4 * rvi_adapter_n_params(new);
    int n_failed = 0, n_done = 0;
    for (size_t limit = 0; limit < size + 40000; limit += limit < 3000 ? 257 : 7919) {
        path = in_folder(dir, gguf ? "fail/x.gguf" : "fail/x");
        rv_status st;
        if (dies) {
            fflush(NULL);
            pid_t child = fork();
            assert_true(child >= 0);
            if (!child) {
                signal(SIGXFSZ, SIG_DFL);
                limit_files(limit);
                _exit(write_to(&g, new, path, gguf, RVI_F32, NULL, NULL) ? 1 : 0);
            }
            int status = 0;
            assert_int_equal(waitpid(child, &status, 0), child);
            st = WIFEXITED(status) && !WEXITSTATUS(status) ? RV_OK : RV_E_IO;
            if (st) assert_true(WIFSIGNALED(status));
        } else {
            rv_error err = {0};
            limit_files(limit);
            st = write_to(&g, new, path, gguf, RVI_F32, NULL, &err);
            limit_files(RLIM_INFINITY);
            assert_true(st == RV_OK || st == RV_E_IO);
            assert_int_equal(n_entries(dir, "fail"), 1);
        }
        assert_ok(load_with(&b, &g, path, NULL, err));
        assert_same(&g, st ? old : new, b, RVI_F32);
        rvi_adapter_free(b);
        n_failed += st != RV_OK;
        n_done += st == RV_OK;
        if (!st) break;
    }
    print_message("# %s, %s: %d failures, then done\n", gguf ? "GGUF" : "PEFT",
                  dies ? "killed" : "disk full", n_failed);
    assert_true(n_failed > 10 && n_done == 1);
    rvi_os_remove_tree(in_folder(dir, "fail"));
    rvi_adapter_free(old);
    rvi_adapter_free(new);
    golden_close(&g);
}

static void disk_full(void **state)
{
    void (*before)(int) = signal(SIGXFSZ, SIG_IGN); /* then a write fails instead */
    fail_at_every_write(*state, false, false);
    fail_at_every_write(*state, true, false);
    signal(SIGXFSZ, before);
}

static void killed_in_a_write(void **state)
{
    fail_at_every_write(*state, false, true);
    fail_at_every_write(*state, true, true);
}

/* A process that writes two adapters in turn to one place is killed 50 times at any moment:
 * what is there is always the one or the other. */
static void killed_at_random(void **state)
{
    golden g;
    rvi_rng rng = {99};
    golden_open_named(&g, "llama", true, 1, NULL);
    rvi_adapter *both[2] = {random_adapter(&g, 1, 2, true), random_adapter(&g, 2, 1, true)}, *b;
    int seen[2] = {0};
    for (int n = 0; n < 50; n++) {
        bool gguf = n & 1;
        assert_ok(rvi_os_make_dirs(in_folder(*state, "kill"), err));
        const char *path = in_folder(*state, gguf ? "kill/x.gguf" : "kill/x");
        assert_ok(write_to(&g, both[0], path, gguf, RVI_F32, NULL, err));
        fflush(NULL);
        pid_t child = fork();
        assert_true(child >= 0);
        if (!child)
            for (int i = 1;; i++)
                if (write_to(&g, both[i & 1], path, gguf, RVI_F32, NULL, NULL)) _exit(1);
        usleep((useconds_t)(rvi_rng_u64(&rng) % 20000));
        int status = 0;
        assert_int_equal(kill(child, SIGKILL), 0);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
        assert_ok(load_with(&b, &g, path, NULL, err)); /* the checksum says it is whole */
        int which = b->slots[1].scale == both[1]->slots[1].scale;
        assert_same(&g, both[which], b, RVI_F32);
        seen[which]++;
        rvi_adapter_free(b);
        rvi_os_remove_tree(in_folder(*state, "kill"));
    }
    print_message("# killed 200 times: %d and %d\n", seen[0], seen[1]);
    assert_true(seen[0] > 0 && seen[1] > 0);
    rvi_adapter_free(both[0]);
    rvi_adapter_free(both[1]);
    golden_close(&g);
}

/* ---- in memory ---- */

static void copies(void **state)
{
    (void)state;
    golden g;
    rvi_adapter *copy;
    golden_open_named(&g, "phi3", true, 1, NULL);
    rvi_adapter *a = random_adapter(&g, 1, 0.3f, false);
    assert_ok(rvi_adapter_copy(&copy, a, err));
    assert_same(&g, a, copy, RVI_F32);
    size_t n = 0;
    for (int i = 0; i < g.m->n_targets; i++)
        n += (size_t)(rvi_adapter_rank(a, i) * (g.m->targets[i].n_in + g.m->targets[i].n_out));
    assert_int_equal(rvi_adapter_n_params(copy), n);
    rvi_adapter_free(a); /* the copy is its own */
    rvi_adapter_free(copy);
    golden_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_model_both_formats),
        cmocka_unit_test(scales_that_differ_in_gguf),
        cmocka_unit_test(scales_come_back),
        cmocka_unit_test(the_files_of_others),
        cmocka_unit_test(configurations),
        cmocka_unit_test(digests),
        cmocka_unit_test(damage),
        cmocka_unit_test(refusals),
        cmocka_unit_test(disk_full),
        cmocka_unit_test(killed_in_a_write),
        cmocka_unit_test(killed_at_random),
        cmocka_unit_test(copies),
    };
    return cmocka_run_group_tests_name("writing adapters", tests, folder_setup, folder_teardown);
}
