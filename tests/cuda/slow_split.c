/* A model on both sides of the bus, on the driver of fake_driver.cpp: goldens and the law across
 * the boundary, adapters, pages as bytes, a device that is lost; how many layers are placed, what
 * is said where memory is missing, and the options of the API. */
#include "cuda/fake_runtime.h"

#include "api/service.h"
#include "model/law.h"
#include "model/placement.h"

/* golden_close frees the backend of the model, not what it borrows. */
static rvi_backend *device;

static void open_split(golden *g, const char *path, const char *expected, bool exact, int n_host)
{
    rvi_source *source;
    rvi_backend *host;
    *g = (golden){0};
    assert_ok(open_fake(&device, exact, NULL, err));
    assert_ok(
        rvi_backend_cpu_new(&host, &(rvi_cpu_options){.n_threads = 2, .exact = exact}, NULL, err));
    assert_ok(rvi_backend_split_new(&g->be, device, host, n_host, err));
    assert_ok(rvi_source_open(&source, path, err));
    assert_ok(rvi_model_new(&g->m, g->be, source, NULL, err));
    if (expected) assert_ok(rvi_safetensors_open(&g->expected, expected, err));
}

static void close_split(golden *g)
{
    golden_close(g);
    /* what the host's side reserved is not counted any more */
    assert_int_equal(atomic_load(&device->memory->scratch), rvi_cuda_of(device)->counted_scratch);
    device->ops->free(device);
}

/* In chunks, beside strangers and forked: the bits of the whole. */
static void check_law(const golden *g, const subject *s, const float *whole, float *got)
{
    feed f;
    size_t total = (size_t)s->n * (size_t)g->m->hp.n_vocab;
    feed_init(&f, g->m, s->n, 1, s->kv);
    feed_ids(&f, s->ids, s->n, 1, NULL, got, NULL);
    same_bits(got, whole, total, s->path, "one by one");
    feed_deinit(&f);
    run_with_strangers(g, s, got);
    same_bits(got, whole, total, s->path, "beside strangers");
    run_forked(g, s, got);
    same_bits(got, whole, total, s->path, "forked");
}

/* The law with the model whose heads have norms: all that a layer can have but norms behind it. */
static void goldens_and_law(void **state)
{
    (void)state;
    enum { N = 6 };
    for (size_t i = 0; i < RVI_COUNT(golden_names); i++) {
        golden g;
        feed f;
        int n;
        char dir[96], expected[128];
        snprintf(dir, sizeof dir, "tests/golden/%s", golden_names[i]);
        snprintf(expected, sizeof expected, "%s/expected.safetensors", dir);
        open_split(&g, dir, expected, true, 1);
        assert_int_equal(g.m->hp.n_layers, 2);
        subject s = {.path = dir,
                     .ids = golden_ids(g.expected, "tokens", &n),
                     .n = N,
                     .kv = RV_KV_F32,
                     .exact = true};
        const float *want = golden_floats(g.expected, "logits");
        size_t total = N * (size_t)g.m->hp.n_vocab;
        float *whole = rvi_alloc_array(total, sizeof *whole),
              *got = rvi_alloc_array(total, sizeof *got);
        feed_init(&f, g.m, N, N, RV_KV_F32);
        long launches = fake()->launches;
        feed_ids(&f, s.ids, N, N, NULL, whole, NULL);
        assert_true(fake()->launches > launches);
        feed_deinit(&f);
        for (size_t k = 0; k < total; k++)
            if (!(fabsf(whole[k] - want[k]) < 2e-4f))
                fail_msg("%s: value %zu is %.7g, not %.7g", dir, k, (double)whole[k],
                         (double)want[k]);
        if (g.m->layers[0].q_norm) check_law(&g, &s, whole, got);
        rvi_free(whole);
        rvi_free(got);
        close_split(&g);
    }
}

/* Default mode: quantized weights and pages of f16 on both sides. */
static void default_mode(void **state)
{
    (void)state;
    enum { N = 6 };
    golden g;
    feed f;
    int32_t ids[N];
    for (int i = 0; i < N; i++) ids[i] = (i * 37 + 11) % 300;
    open_split(&g, "tests/gguf/q-q4_k.gguf", NULL, false, 1);
    subject s = {.path = "tests/gguf/q-q4_k.gguf", .ids = ids, .n = N, .kv = RV_KV_F16};
    size_t total = N * (size_t)g.m->hp.n_vocab;
    float *whole = rvi_alloc_array(total, sizeof *whole),
          *got = rvi_alloc_array(total, sizeof *got);
    feed_init(&f, g.m, N, N, RV_KV_F16);
    feed_ids(&f, ids, N, N, NULL, whole, NULL);
    feed_deinit(&f);
    check_law(&g, &s, whole, got);
    close_split(&g);

    golden_open(&g, s.path, NULL, true, 2, NULL);
    feed_init(&f, g.m, N, N, RV_KV_F32);
    feed_ids(&f, ids, N, N, NULL, got, NULL);
    double apart = 0, size = 0;
    for (size_t i = 0; i < total; i++) {
        apart += ((double)got[i] - (double)whole[i]) * ((double)got[i] - (double)whole[i]);
        size += (double)got[i] * (double)got[i];
    }
    assert_true(apart < 1e-3 * size);
    feed_deinit(&f);
    golden_close(&g);
    rvi_free(whole);
    rvi_free(got);
}

/* On every linear layer; the values of a slot depend on its number. */
static rvi_adapter *some_adapter(const rvi_model *m, int rank)
{
    rvi_adapter *a;
    assert_ok(rvi_adapter_new(&a, m->be, m->n_targets, err));
    for (int i = 0; i < m->n_targets; i++) {
        const rvi_lora_target *t = &m->targets[i];
        size_t n_a = (size_t)(rank * t->n_in), n_b = (size_t)(t->n_out * rank);
        float *ma = rvi_alloc_array(n_a, sizeof *ma), *mb = rvi_alloc_array(n_b, sizeof *mb);
        for (size_t k = 0; k < n_a; k++) ma[k] = (float)((int)((k * 7 + (size_t)i) % 19) - 9) / 90;
        for (size_t k = 0; k < n_b; k++) mb[k] = (float)((int)((k * 5 + (size_t)i) % 17) - 8) / 80;
        assert_ok(rvi_adapter_put(a, i, t, rank, 0.5f, ma, mb, err));
        rvi_free(ma);
        rvi_free(mb);
    }
    assert_ok(rvi_adapter_seal(a, err));
    return a;
}

static void fed_with(const rvi_model *m, const rvi_adapter *a, const int32_t *ids, int n,
                     float *out)
{
    feed f;
    rvi_adapter_use use = {a, 1};
    rvi_adapter_set set = {.uses = &use, .n = 1, .serial = 1};
    feed_init(&f, m, n, n, RV_KV_F32);
    feed_ids(&f, ids, n, n, &set, out, NULL);
    feed_deinit(&f);
}

/* An adapter on both sides says what it says on the CPU; its copy too, and it can be read back. */
static void adapters(void **state)
{
    (void)state;
    enum { N = 3, RANK = 3 };
    golden cpu, g;
    int n;
    golden_open(&cpu, "tests/golden/llama", "tests/golden/llama/expected.safetensors", true, 1,
                NULL);
    const int32_t *ids = golden_ids(cpu.expected, "tokens", &n);
    size_t total = N * (size_t)cpu.m->hp.n_vocab;
    float *want = rvi_alloc_array(total, sizeof *want), *got = rvi_alloc_array(total, sizeof *got),
          *plain = rvi_alloc_array(total, sizeof *plain);
    rvi_adapter *a = some_adapter(cpu.m, RANK), *copy;
    char digest[2][RVI_SHA256_HEX];
    feed f;
    feed_init(&f, cpu.m, N, N, RV_KV_F32);
    feed_ids(&f, ids, N, N, NULL, plain, NULL);
    feed_deinit(&f);
    fed_with(cpu.m, a, ids, N, want);
    assert_ok(rvi_adapter_digest(a, digest[0], err));
    rvi_adapter_free(a);

    open_split(&g, "tests/golden/llama", NULL, true, 1);
    a = some_adapter(g.m, RANK);
    assert_ok(rvi_adapter_digest(a, digest[1], err));
    assert_string_equal(digest[0], digest[1]);
    assert_ok(rvi_adapter_copy(&copy, a, err));
    double changed = 0;
    for (int which = 0; which < 2; which++) {
        fed_with(g.m, which ? copy : a, ids, N, got);
        for (size_t k = 0; k < total; k++) {
            assert_true(fabsf(got[k] - want[k]) < 2e-4f * (1 + fabsf(want[k])));
            changed = fmax(changed, (double)fabsf(want[k] - plain[k]));
        }
    }
    assert_true(changed > 0.01);
    rvi_adapter_free(a);
    rvi_adapter_free(copy);
    close_split(&g);
    golden_close(&cpu);
    rvi_free(want);
    rvi_free(got);
    rvi_free(plain);
}

/* Pages leave as bytes and come back; they are as long as those of one side. */
static void pages(void **state)
{
    (void)state;
    enum { N = 35, LEFT = 2 };
    golden g;
    feed f;
    int32_t ids[N];
    for (int i = 0; i < N; i++) ids[i] = (i * 31 + 7) % 300;
    open_split(&g, "tests/golden/qwen2", NULL, true, 1);
    size_t vocab = (size_t)g.m->hp.n_vocab;
    float *want = rvi_alloc_array(vocab, sizeof *want), *got = rvi_alloc_array(vocab, sizeof *got);
    feed_init(&f, g.m, N, N, RV_KV_F32);
    feed_ids(&f, ids, N - LEFT, N, NULL, NULL, want);
    rvi_seq again;
    assert_ok(rvi_seq_init(&again, f.pool, N + 64, err));
    assert_ok(rvi_seq_extend(&again, N - LEFT, err));
    size_t bytes = rvi_pages_bytes(f.pool);
    assert_int_equal(bytes, (size_t)g.m->hp.n_layers * 2 * RVI_PAGE_TOKENS * sizeof(float) *
                                (size_t)(g.m->hp.n_kv_heads * g.m->hp.head_size));
    void *page = rvi_alloc_array(bytes, 1);
    for (int i = 0; i < again.n_pages; i++) {
        rvi_seq_read_page(&f.seq, i, page);
        rvi_seq_write_page(&again, i, page);
    }
    feed_ids(&f, ids + N - LEFT, LEFT, LEFT, NULL, NULL, want);
    rvi_seq first = f.seq;
    f.seq = again;
    feed_ids(&f, ids + N - LEFT, LEFT, 1, NULL, NULL, got);
    assert_memory_equal(got, want, vocab * sizeof *got);
    rvi_seq_deinit(&first);
    feed_deinit(&f);
    rvi_free(page);
    rvi_free(want);
    rvi_free(got);
    close_split(&g);
}

/* A value that the device computed last is read on the host, and the other way round; a part of the
 * columns that is written leaves the others as they were. */
static void rows_cross(void **state)
{
    (void)state;
    rvi_backend *host, *be;
    rvi_tensor *x, *y, *w, *v;
    static const float ones[] = {1, 1, 1, 1}, twos[] = {2, 2, 2, 2};
    static const float weights[2][4] = {{1, 2, 3, 4}, {5, 6, 7, 8}};
    float out[4];
    assert_ok(open_fake(&device, true, NULL, err));
    assert_ok(
        rvi_backend_cpu_new(&host, &(rvi_cpu_options){.n_threads = 1, .exact = true}, NULL, err));
    assert_ok(rvi_backend_split_new(&be, device, host, 1, err));
    rvi_tensor_view view = {.name = "w",
                            .type = RVI_F32,
                            .n_dims = 2,
                            .shape = {2, 4},
                            .data = (const uint8_t *)weights,
                            .n_bytes = sizeof weights,
                            .layer = 1};
    rvi_pack *pack;
    assert_ok(be->ops->weight_new(be, &w, &view, err));
    view.layer = 2;
    assert_ok(be->ops->weight_new(be, &v, &view, err));
    assert_ok(be->ops->pack_new(be, &pack, be->ops->pack_bytes(be, v), err));
    be->ops->pack(be, pack, w);
    be->ops->pack(be, pack, v);
    assert_ok(be->ops->rows_new(be, &x, 2, 4, err));
    assert_ok(be->ops->rows_new(be, &y, 2, 4, err));
    assert_ok(be->ops->reserve(be, 2, 4, 1u << RVI_F32, err));
    for (int r = 0; r < 2; r++) be->ops->rows_write(be, rvi_cols_of(x, 0, 4), r, r ? twos : ones);
    rvi_matmul first = {.x = rvi_cols_of(x, 0, 4),
                        .part = {{w, NULL, rvi_cols_of(y, 0, 2)}},
                        .n_parts = 1,
                        .n_rows = 2},
               second = first;
    second.part[0] = (rvi_product_part){v, NULL, rvi_cols_of(y, 2, 2)};
    for (int turn = 0; turn < 3; turn++) { /* either side finds the other's half */
        be->ops->matmul(be, &first);
        be->ops->add(be, first.x, first.x, 2);
        be->ops->matmul(be, &second);
        for (int r = 0; r < 2; r++) {
            float by = (float)((r + 1) << turn);
            be->ops->rows_read(be, rvi_cols_of(y, 0, 4), r, out);
            assert_true(out[0] == 10 * by && out[1] == 26 * by);
            assert_true(out[2] == 20 * by && out[3] == 52 * by);
        }
    }
    rvi_tensor *all[] = {x, y, w, v};
    for (size_t i = 0; i < RVI_COUNT(all); i++) be->ops->tensor_free(be, all[i]);
    be->ops->pack_free(be, pack);
    be->ops->free(be);
    device->ops->free(device);
}

static void lost_device(void **state)
{
    (void)state;
    golden g;
    feed f;
    int n;
    rv_error why = {0};
    open_split(&g, "tests/golden/llama", "tests/golden/llama/expected.safetensors", true, 1);
    const int32_t *ids = golden_ids(g.expected, "tokens", &n);
    float *last = rvi_alloc_array((size_t)g.m->hp.n_vocab, sizeof *last);
    feed_init(&f, g.m, n, 4, RV_KV_F32);
    fake()->fail_after = 5;
    feed_ids(&f, ids, 3, 3, NULL, NULL, last);
    assert_true(isnan(last[0]));
    assert_int_equal(rvi_model_check(g.m, f.ws, &why), RV_E_STATE);
    assert_non_null(strstr(why.text, "CUDA_ERROR_ILLEGAL_ADDRESS"));
    feed_deinit(&f);
    rvi_free(last);
    close_split(&g);
}

/* ---- placement ---- */

static char logged[1024];
static rvi_rates invented; /* that a card and a CPU have */
static int n_measured;

static bool measure(void *ctx, rvi_rates *out)
{
    n_measured++;
    *out = invented;
    return ctx != NULL;
}

static void keep_log(void *ctx, rvi_log_level level, const char *line)
{
    (void)ctx;
    if (level == RVI_LOG_WARN) snprintf(logged, sizeof logged, "%s", line);
}

static void says(const char *text, const char *what)
{
    if (!strstr(text, what)) fail_msg("'%s' does not say '%s'", text, what);
}

static rv_status place(int *n, const rvi_sizes *s, const rvi_room *room, rvi_placing how,
                       rv_error *why)
{
    return rvi_place(n, s, device, room, &how, "it", why);
}

/* What is measured decides where one of two layers fits. */
static void by_rates(const rvi_sizes *s, const rvi_room *room, size_t fits)
{
    static int known;
    rvi_placing how = {.rates = measure, .ctx = &known};
    int n = -1;
    n_measured = 0;
    fake()->memory = (fake()->used + fits) * 64 / 63 + 64;
    invented = (rvi_rates){.host = 1e9, .device = 1e11, .bus = 1e10}; /* the card is faster */
    for (int leave = 0; leave < 2; leave++) {
        how.may_leave = leave;
        assert_ok(place(&n, s, room, how, err));
        assert_int_equal(n, 1);
        says(logged, "the last 1 of 2 layers are computed on the GPU");
        says(logged, "tokens a second are expected");
        says(logged, "by the CPU alone");
    }
    invented.crossing = 4; /* the bus makes it slower, and the device was asked for by name */
    how.may_leave = false;
    assert_ok(place(&n, s, room, how, err));
    assert_int_equal(n, 1);
    says(logged, "about 0.25 tokens a second are expected");
    how.may_leave = true;
    assert_ok(place(&n, s, room, how, err));
    assert_int_equal(n, 0);
    says(logged, "it: all 2 layers are computed on the CPU: ");
    says(logged, "0.25 with 1 of them on the GPU");
    assert_int_equal(n_measured, 4);
    how.ctx = NULL; /* it could not be measured */
    assert_ok(place(&n, s, room, how, err));
    assert_int_equal(n, 1);
    if (strstr(logged, "expected")) fail_msg("'%s': of what?", logged);
    n_measured = 0;
    how.asked = 1;
    assert_ok(place(&n, s, room, how, err));
    assert_int_equal(n, 1);
    how.asked = 0;
    fake()->memory = (fake()->used + fits - 256) * 64 / 63;
    assert_ok(place(&n, s, room, how, err));
    assert_int_equal(n, 0); /* nothing fits */
    fake()->memory = (size_t)1 << 40;
    assert_ok(place(&n, s, room, how, err));
    assert_int_equal(n, s->n_layers);
    assert_int_equal(n_measured, 0);
}

static void placement(void **state)
{
    (void)state;
    const rvi_log log = {.sink = keep_log, .level = RVI_LOG_WARN};
    rvi_source *source;
    rvi_sizes *s;
    rv_error why = {0};
    int n = -1;
    assert_ok(open_fake(&device, true, &log, err));
    assert_ok(rvi_source_open(&source, "tests/golden/llama", err));
    assert_ok(rvi_sizes_new(&s, device, source, false, err));
    const rvi_room room = {.n_tokens = 100, .kv = RV_KV_F32, .max_rows = 64, .max_logits = 4};
    size_t need[3];
    for (int i = 1; i <= 2; i++) need[i] = rvi_sizes_need(s, device, &room, i);
    /* a layer more is its weights and its planes of 4 pages */
    assert_int_equal(need[2] - need[1],
                     s->layers[s->n_layers - 2] +
                         4 * 2 * RVI_PAGE_TOKENS * (size_t)(s->n_kv_heads * s->head_size) * 4);
    for (int fits = 0; fits <= 2; fits++) {
        logged[0] = 0;
        size_t bytes = fits ? need[fits] : need[1] - 256;
        fake()->memory = (fake()->used + bytes) * 64 / 63 + 64;
        assert_int_equal(rvi_sizes_fit(s, device, &room, rvi_device_room(device)), fits);
        rv_status st = place(&n, s, &room, (rvi_placing){.asked = 0}, &why);
        assert_int_equal(st, fits ? RV_OK : RV_E_NOMEM);
        if (fits) assert_int_equal(n, fits);
        if (!fits) says(why.text, "not one layer fits; device cpu");
        if (fits == 2) assert_string_equal(logged, "");
        if (fits == 1) {
            says(logged, "it: the last 1 of 2 layers are computed on the GPU, the others on the");
            assert_int_equal(place(&n, s, &room, (rvi_placing){.asked = 2}, &why), RV_E_NOMEM);
            says(why.text, "it: 2 of ");
            says(why.text, "MiB are missing; gpu-layers 1 would fit");
        }
    }
    by_rates(s, &room, need[1]);
    logged[0] = 0;
    fake()->memory = (size_t)1 << 40;
    assert_ok(place(&n, s, &room, (rvi_placing){.asked = 0}, err));
    assert_int_equal(n, s->n_layers);
    assert_ok(place(&n, s, &room, (rvi_placing){.asked = 1000}, err)); /* no more than there are */
    assert_int_equal(n, s->n_layers);
    assert_ok(place(&n, s, &room, (rvi_placing){.asked = 1}, err));
    assert_int_equal(n, 1);
    assert_string_equal(logged, ""); /* that was asked for */
    fake()->memory = fake()->used + 256;
    fake()->is_silent = true; /* nothing is known to be missing */
    assert_ok(place(&n, s, &room, (rvi_placing){.asked = 0}, err));
    assert_int_equal(n, s->n_layers);
    rvi_free(s);
    rvi_source_close(source);
    device->ops->free(device);
}

/* ---- the API ---- */

static void keep_line(void *ctx, rv_log_level level, const char *line)
{
    (void)ctx;
    (void)level;
    snprintf(logged, sizeof logged, "%s", line);
}

static rv_runtime *fake_runtime(void)
{
    return fake_runtime_with(&(rv_runtime_options){
        .size = sizeof(rv_runtime_options), .n_threads = 1, .exact = 1, .log = keep_line});
}

static void greedy(rv_model *m, int32_t *out, int n)
{
    rv_engine *e;
    rv_session *s;
    rv_engine_options o = {.size = sizeof o, .n_tokens = 64, .max_rows = 8};
    assert_ok(rv_engine_new(&e, m, &o, err));
    rv_session_options so = {.size = sizeof so, .engine = e};
    assert_ok(rv_session_new(&s, m, &so, err));
    rv_row row = {.session = s, .token = 5, .want_logits = 1};
    for (int i = 0; i < n; i++) {
        assert_ok(rv_engine_step(e, &row, 1, err));
        const float *logits = rv_engine_logits(e, 0);
        for (int k = row.token = 0; k < rv_model_get_info(m)->n_vocab; k++)
            if (logits[k] > logits[row.token]) row.token = k;
        out[i] = row.token;
    }
    rv_session_free(&s);
    rv_engine_free(&e);
}

/* n tokens of an answer. penalty: too small to change one, but it asks for all logits. */
static void answer(rv_model *m, int n, int n_logprobs, float penalty, int32_t *out)
{
    const rv_sampling sampling = {
        .size = sizeof sampling, .greedy = 1, .frequency_penalty = penalty};
    static const int32_t prompt[] = {3, 5, 7};
    rv_session *s;
    rv_answer *a;
    rv_session_options so = {.size = sizeof so, .n_context = 64};
    rv_generate_options o = {.size = sizeof o,
                             .sampling = &sampling,
                             .max_tokens = n,
                             .ignore_eos = 1,
                             .logprobs = n_logprobs};
    assert_ok(rv_session_new(&s, m, &so, err));
    assert_ok(rv_session_generate(s, prompt, RVI_COUNT(prompt), &o, &a, err));
    assert_int_equal(a->n_ids, n);
    memcpy(out, a->ids, (size_t)n * sizeof *out);
    rv_free(a);
    rv_session_free(&s);
}

/* Greedy answers: the CPU's tokens, chosen on the device, and no logits come back, also where their
 * probabilities are asked for; those that somebody has to look at do. */
static void chosen_there(void **state)
{
    (void)state;
    enum { N = 8 };
    int32_t want[N], got[N];
    rv_runtime_options ro = {.size = sizeof ro, .n_threads = 1, .exact = 1};
    rv_runtime *rt;
    rv_model *m;
    assert_ok(rv_runtime_new(&rt, &ro, err));
    assert_ok(rv_model_open(&m, rt, "tests/golden/llama", NULL, err));
    answer(m, N, 0, 0, want);
    rv_model_close(&m);
    rv_runtime_free(&rt);
    rt = fake_runtime();
    for (int layers = 1; layers <= 2; layers++) {
        rv_open_options o = {.size = sizeof o, .gpu_layers = layers};
        assert_ok(rv_model_open(&m, rt, "tests/golden/llama", &o, err));
        size_t row = (size_t)rv_model_get_info(m)->n_vocab * sizeof(float);
        for (int n_logprobs = 0; n_logprobs <= 2; n_logprobs += 2) {
            fake()->fetched = 0;
            answer(m, N, n_logprobs, 0, got);
            assert_memory_equal(got, want, sizeof got);
            assert_true(fake()->fetched < row);
        }
        fake()->fetched = 0;
        answer(m, N, 2, 1e-30f, got);
        assert_memory_equal(got, want, sizeof got);
        assert_true(fake()->fetched >= N * row);
        rv_model_close(&m);
    }
    rv_runtime_free(&rt);
}

/* A card as slow as this one gets no layer of what does not fit it, where any device will do. */
static void on_the_cpu_alone(rv_runtime *rt, const rv_open_options *o, const int32_t *want, int n)
{
    rv_model *m;
    char *json;
    rv_error why = {0};
    int32_t got[16];
    size_t used = fake()->used, memory = fake()->memory;
    logged[0] = 0;
    rt->is_automatic = true;
    assert_ok(rv_model_open(&m, rt, "tests/golden/llama", o, err));
    rt->is_automatic = false;
    assert_int_equal(rv_model_get_info(m)->gpu_layers, 0);
    says(logged, "all 2 layers are computed on the CPU: ");
    greedy(m, got, n);
    assert_memory_equal(got, want, (size_t)n * sizeof *got);
    assert_int_equal(fake()->used, used);
    assert_ok(rv_model_describe_placement(m, rt, o->gpu_tokens, &json, err));
    says(json, "{\"layers\":2,\"fit\":");
    says(json, "\"gpu_layers\":0,\"decode_tps\":");
    rv_free(json);
    rv_model_close(&m);
    assert_int_equal(fake()->used, used);

    rv_runtime_options ro = {.size = sizeof ro, .n_threads = 1};
    rv_runtime *cpu;
    assert_ok(rv_runtime_new(&cpu, &ro, err));
    assert_ok(rv_model_open(&m, cpu, "tests/golden/llama", NULL, err));
    assert_int_equal(rv_model_describe_placement(m, cpu, 0, &json, &why), RV_E_CONFIG);
    assert_int_equal(rv_model_describe_placement(m, rt, -2, &json, &why), RV_E_CONFIG);
    assert_int_equal(rv_model_describe_placement(m, rt, 0, NULL, &why), RV_E_INVALID);
    fake()->memory = (size_t)1 << 40; /* all of it fits: that is not asked */
    assert_ok(rv_model_describe_placement(m, rt, 0, &json, err));
    says(json, "{\"layers\":2,\"fit\":2,\"missing\":0,\"gpu_layers\":2,");
    rv_free(json);
    rv_model_close(&m);
    rv_runtime_free(&cpu);
    fake()->memory = memory;
}

static void api(void **state)
{
    (void)state;
    enum { N = 6 };
    rv_model *m;
    rv_error why = {0};
    int32_t want[N], got[N];
    rv_open_options o = {.size = sizeof o, .gpu_layers = 1};
    rv_runtime_options ro = {.size = sizeof ro, .n_threads = 1, .exact = 1};
    rv_runtime *rt;
    assert_ok(rv_runtime_new(&rt, &ro, err));
    assert_int_equal(rv_model_open(&m, rt, "tests/golden/llama", &o, &why), RV_E_CONFIG);
    says(why.text, "gpu-layers 1: the device is the CPU");
    assert_ok(rv_model_open(&m, rt, "tests/golden/llama", NULL, err));
    assert_int_equal(rv_model_get_info(m)->gpu_layers, 0);
    greedy(m, want, N);
    rv_model_close(&m);
    rv_runtime_free(&rt);

    rt = fake_runtime();
    char *json;
    assert_ok(rv_runtime_describe(rt, 0, &json, err));
    says(json, "\"gpu\":{\"name\":\"fake device\",\"cuda\":\"13.0\"");
    rv_free(json);
    for (int layers = 0; layers <= 2; layers++) {
        o.gpu_layers = layers;
        assert_ok(rv_model_open(&m, rt, "tests/golden/llama", &o, err));
        assert_int_equal(rv_model_get_info(m)->gpu_layers, layers ? layers : 2);
        greedy(m, got, N);
        assert_memory_equal(got, want, sizeof got);
        rv_model_close(&m);
    }
    o.gpu_layers = -1;
    assert_int_equal(rv_model_open(&m, rt, "tests/golden/llama", &o, &why), RV_E_CONFIG);
    o = (rv_open_options){.size = sizeof o, .gpu_tokens = -2};
    assert_int_equal(rv_model_open(&m, rt, "tests/golden/llama", &o, &why), RV_E_CONFIG);

    /* not all of it fits: as many as do, and a warning */
    o = (rv_open_options){.size = sizeof o, .gpu_tokens = 64};
    rvi_source *source;
    rvi_sizes *s;
    assert_ok(rvi_source_open(&source, "tests/golden/llama", err));
    assert_ok(rvi_sizes_new(&s, rt->be, source, false, err));
    rvi_room room = rvi_api_room(rt, s, 64);
    logged[0] = 0;
    fake()->memory = (fake()->used + rvi_sizes_need(s, rt->be, &room, 1)) * 64 / 63 + 64;
    assert_ok(rv_model_open(&m, rt, "tests/golden/llama", &o, err));
    assert_int_equal(rv_model_get_info(m)->gpu_layers, 1);
    says(logged, "the last 1 of 2 layers are computed on the GPU");
    says(logged, "tokens a second are expected"); /* this card is slow, but was asked for */
    greedy(m, got, N);
    assert_memory_equal(got, want, sizeof got);
    on_the_cpu_alone(rt, &o, want, N);

    /* memory that others take between placing the layers and copying their weights */
    rv_model *late;
    rv_open_options both = {.size = sizeof both, .gpu_tokens = 64, .gpu_layers = 2};
    size_t used = fake()->used;
    fake()->memory = (size_t)1 << 40;
    fake()->left_then = 4096;
    assert_int_equal(rv_model_open(&late, rt, "tests/golden/llama", &both, &why), RV_E_NOMEM);
    says(why.text, "tests/golden/llama: 2 of 2 layers with 64 tokens need ");
    says(why.text, "MiB are missing; not one layer fits; device cpu does");
    assert_int_equal(fake()->used, used);
    fake()->memory = fake()->used + 4096;

    /* an engine that is too large for what is left */
    rv_engine *e;
    rv_engine_options eo = {.size = sizeof eo, .n_tokens = 1 << 20, .max_rows = 8};
    assert_int_equal(rv_engine_new(&e, m, &eo, &why), RV_E_NOMEM);
    says(why.text, "the KV cache: ");
    says(why.text, "even with gpu-layers 1, 1048576 tokens need");
    rv_model_close(&m);
    rvi_free(s);
    rvi_source_close(source);
    rv_runtime_free(&rt);
}

/* Layers are placed for the room that the service will have: a page more than its context. */
static void room_of_a_list(void **state)
{
    (void)state;
    enum { CONTEXT = 20000 };
    rv_runtime *rt = fake_runtime();
    rvi_source *source;
    rvi_sizes *s;
    rv_open_options o = {.size = sizeof o, .gpu_tokens = RV_GPU_WHOLE_CONTEXT};
    rv_service_options so = {.size = sizeof so, .n_tokens = RV_WHOLE_CONTEXT, .n_context = CONTEXT};
    assert_ok(rvi_source_open(&source, "tests/golden/llama", err));
    assert_ok(rvi_sizes_new(&s, rt->be, source, false, err));
    for (int pages = 0; pages < 2; pages++) {
        rv_models *list;
        rv_service *svc;
        rvi_room room = rvi_api_room(rt, s, CONTEXT + pages * RVI_PAGE_TOKENS);
        fake()->memory = (fake()->used + rvi_sizes_need(s, rt->be, &room, 2)) * 64 / 63 + 64;
        assert_ok(rv_models_new(&list, rt, NULL, err));
        assert_ok(rv_models_add(list, "llama", "tests/golden/llama", &o, &so, err));
        assert_ok(rv_models_hold(list, "llama", 600, &svc, err));
        assert_int_equal(rv_model_get_info(rv_service_model(svc))->gpu_layers, 1 + pages);
        rv_models_give_back(list, &svc);
        rv_models_free(&list);
    }
    rvi_free(s);
    rvi_source_close(source);
    rv_runtime_free(&rt);
}

/* ---- memory between two tokens ---- */

static long n_blocks; /* of the heap, asked for so far */

static void *count_alloc(void *ctx, size_t size)
{
    (void)ctx;
    n_blocks++;
    return malloc(size);
}

static void *count_resize(void *ctx, void *p, size_t size)
{
    (void)ctx;
    n_blocks++;
    return realloc(p, size);
}

static void count_release(void *ctx, void *p)
{
    (void)ctx;
    free(p);
}

/* Steps of a token for each of n sequences: those after the first WARM take no memory, also where a
 * page begins or more keys take other kernels, so that lists change and become other graphs. */
static void steps_take_nothing(rv_model *m, int n, int n_steps)
{
    enum { MOST = 8, WARM = 12 };
    rv_engine *e;
    rv_session *s[MOST];
    rv_row rows[MOST];
    long blocks = 0, allocations = 0, graphs = 0;
    rv_engine_options o = {.size = sizeof o, .n_tokens = MOST * 128, .max_rows = 8};
    assert_ok(rv_engine_new(&e, m, &o, err));
    rv_session_options so = {.size = sizeof so, .engine = e, .n_context = 128};
    for (int i = 0; i < n; i++) assert_ok(rv_session_new(&s[i], m, &so, err));
    for (int step = 0; step < n_steps; step++) {
        if (step == WARM) {
            blocks = n_blocks;
            allocations = fake()->allocations;
            graphs = fake()->graphs;
        }
        for (int i = 0; i < n; i++)
            rows[i] = (rv_row){.session = s[i], .token = (step * 37 + i) % 300, .want_logits = 1};
        assert_ok(rv_engine_step(e, rows, (size_t)n, err));
        assert_true(isfinite(rv_engine_logits(e, 0)[0]));
        if (step >= WARM && (n_blocks != blocks || fake()->allocations != allocations))
            fail_msg("%d rows, step %d: %ld blocks of the heap, %ld of the device", n, step,
                     n_blocks - blocks, fake()->allocations - allocations);
    }
    assert_true(fake()->graphs - graphs > (n_steps - WARM) / 2);
    for (int i = 0; i < n; i++) rv_session_free(&s[i]);
    rv_engine_free(&e);
}

static void nothing_between_tokens(void **state)
{
    (void)state;
    const rv_allocator counting = {count_alloc, count_resize, count_release, NULL};
    rv_model *m;
    rv_runtime_options o = {.size = sizeof o, .n_threads = 1, .allocator = &counting};
    rv_runtime *rt = fake_runtime_with(&o);
    assert_ok(rv_model_open(&m, rt, "tests/gguf/q-q4_k.gguf", NULL, err));
    steps_take_nothing(m, 1, 100);
    steps_take_nothing(m, 8, 40);
    rv_model_close(&m);
    rv_runtime_free(&rt);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(rows_cross, reset, reset),
        cmocka_unit_test_setup_teardown(goldens_and_law, reset, reset),
        cmocka_unit_test_setup_teardown(default_mode, reset, reset),
        cmocka_unit_test_setup_teardown(adapters, reset, reset),
        cmocka_unit_test_setup_teardown(pages, reset, reset),
        cmocka_unit_test_setup_teardown(lost_device, reset, reset),
        cmocka_unit_test_setup_teardown(placement, reset, reset),
        cmocka_unit_test_setup_teardown(api, reset, reset),
        cmocka_unit_test_setup_teardown(room_of_a_list, reset, reset),
        cmocka_unit_test_setup_teardown(chosen_there, reset, reset),
        cmocka_unit_test_setup_teardown(nothing_between_tokens, reset, reset),
    };
    return cmocka_run_group_tests_name("split", tests, NULL, NULL);
}
