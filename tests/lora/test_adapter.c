/* Adapters in both file formats on both kinds of models, several at once and chosen row by row; the
 * arithmetic of their scales by hand; and adapters that are wrong in one way each. */
#include "adapter_files.h"

/* ---- the same adapter from every side ---- */

/* Logits of the golden tokens with the adapter, against the official ones with it. */
static double adapter_error(const golden *g, const char *name, const char *path)
{
    char expected_path[160];
    rvi_safetensors *expected;
    rvi_adapter *a;
    feed f;
    int n;
    const int32_t *ids = golden_ids(g->expected, "tokens", &n);
    size_t total = (size_t)n * (size_t)g->m->hp.n_vocab;
    float *logits = rvi_alloc_array(total, sizeof *logits);
    assert_ok(load_adapter(&a, g, path, err));
    snprintf(expected_path, sizeof expected_path, "tests/golden/%s/lora/expected.safetensors",
             name);
    assert_ok(rvi_safetensors_open(&expected, expected_path, err));
    rvi_adapter_use use = {a, 1};
    rvi_adapter_set set = {.uses = &use, .n = 1};
    feed_init(&f, g->m, n, n, RV_KV_F32);
    feed_ids(&f, ids, n, n, &set, logits, NULL);
    double error = twin_worst(logits, golden_floats(expected, "logits"), total);
    feed_deinit(&f);
    rvi_safetensors_close(expected);
    rvi_adapter_free(a);
    rvi_free(logits);
    return error;
}

static void every_format_on_every_model(void **state)
{
    for (size_t i = 0; i < RVI_COUNT(twins); i++) {
        const twin *t = &twins[i];
        golden gguf, checkpoint;
        rvi_buf file = {0};
        char peft[128];
        snprintf(peft, sizeof peft, "tests/golden/%s/lora", t->name);
        const char *adapter = write_gguf_adapter(*state, t);
        twin_open(&gguf, &file, t);
        golden_open_named(&checkpoint, t->name, true, 2, NULL);
        double peft_on_gguf = adapter_error(&gguf, t->name, peft),
               gguf_on_gguf = adapter_error(&gguf, t->name, adapter),
               gguf_on_checkpoint = adapter_error(&checkpoint, t->name, adapter);
        print_message("# %-14s PEFT on GGUF %.2e  GGUF on GGUF %.2e  GGUF on checkpoint %.2e\n",
                      t->name, peft_on_gguf, gguf_on_gguf, gguf_on_checkpoint);
        assert_true(peft_on_gguf < 5e-4);       /* observed: 1.1e-5 */
        assert_true(gguf_on_gguf < 5e-4);       /* observed: 1.1e-5 */
        assert_true(gguf_on_checkpoint < 5e-4); /* observed: 1.1e-5 */
        golden_close(&gguf);
        golden_close(&checkpoint);
        rvi_buf_deinit(&file);
    }
}

/* ---- several at once ---- */

enum { N_IDS = 12 };
static const int32_t some_ids[N_IDS] = {5, 17, 99, 3, 250, 41, 7, 7, 180, 12, 64, 300};

typedef struct pair {
    golden g;
    rvi_adapter *a, *b; /* two different adapters of shapes that fit */
    size_t vocab;
} pair;

static void pair_open(pair *p)
{
    golden_open_named(&p->g, "llama", true, 2, NULL);
    assert_ok(load_adapter(&p->a, &p->g, "tests/golden/llama/lora", err));
    assert_ok(load_adapter(&p->b, &p->g, "tests/golden/mistral/lora", err));
    p->vocab = (size_t)p->g.m->hp.n_vocab;
}

static void pair_close(pair *p)
{
    rvi_adapter_free(p->a);
    rvi_adapter_free(p->b);
    golden_close(&p->g);
}

/* Logits [N_IDS, vocab] of some_ids with one set. */
static float *run_alone(const pair *p, const rvi_adapter_set *set)
{
    feed f;
    float *out = rvi_alloc_array(N_IDS * p->vocab, sizeof *out);
    feed_init(&f, p->g.m, N_IDS, N_IDS, RV_KV_F32);
    feed_ids(&f, some_ids, N_IDS, N_IDS, set, out, NULL);
    feed_deinit(&f);
    return out;
}

static void scales_add_up(void **state)
{
    (void)state;
    pair p;
    pair_open(&p);
    rvi_adapter_use once[] = {{p.a, 1}}, halves[] = {{p.a, 0.5f}, {p.a, 0.5f}},
                    undone[] = {{p.a, 1}, {p.a, -1}}, zero[] = {{p.a, 0}},
                    both[] = {{p.a, 1}, {p.b, 1}};
    float *none = run_alone(&p, NULL),
          *one = run_alone(&p, &(rvi_adapter_set){.uses = once, .n = 1}),
          *two = run_alone(&p, &(rvi_adapter_set){.uses = halves, .n = 2}),
          *minus = run_alone(&p, &(rvi_adapter_set){.uses = undone, .n = 2}),
          *off = run_alone(&p, &(rvi_adapter_set){.uses = zero, .n = 1}),
          *mixed = run_alone(&p, &(rvi_adapter_set){.uses = both, .n = 2});
    size_t n = N_IDS * p.vocab;
    double halved = twin_worst(one, two, n), back = twin_worst(none, minus, n);
    print_message("# two halves %.2e  one and minus one %.2e\n", halved, back);
    assert_true(halved < 5e-5);                  /* observed: 1.9e-6 */
    assert_true(back < 5e-5);                    /* observed: 1.4e-6 */
    assert_true(twin_worst(none, off, n) == 0);  /* adding zero changes no value */
    assert_true(twin_worst(none, one, n) > 0.1); /* and these differ, all three ways */
    assert_true(twin_worst(one, mixed, n) > 0.1);
    assert_true(twin_worst(none, mixed, n) > 0.1);
    float *all[] = {none, one, two, minus, off, mixed};
    for (size_t i = 0; i < RVI_COUNT(all); i++) rvi_free(all[i]);
    pair_close(&p);
}

/* Four sequences with a set each go through one batch, their rows mixed: every row is what its
 * sequence gives alone, bit for bit. */
static void sets_are_chosen_row_by_row(void **state)
{
    (void)state;
    enum { SEQS = 4 };
    pair p;
    pair_open(&p);
    rvi_adapter_use ua[] = {{p.a, 1}}, ub[] = {{p.b, 0.75f}}, uab[] = {{p.b, 1}, {p.a, -0.5f}};
    rvi_adapter_set sa = {.uses = ua, .n = 1}, sb = {.uses = ub, .n = 1},
                    sab = {.uses = uab, .n = 2};
    const rvi_adapter_set *sets[SEQS] = {&sa, NULL, &sb, &sab};
    rvi_kv_spec spec = rvi_model_kv_spec(p.g.m, RV_KV_F32, SEQS);
    rvi_pages *pool;
    rvi_seq seqs[SEQS];
    rvi_workspace *ws;
    rvi_row rows[SEQS * N_IDS];
    int32_t which[SEQS * N_IDS];
    int n = 0;
    assert_ok(rvi_pages_new(&pool, p.g.be, &spec, err));
    assert_ok(rvi_workspace_new(&ws, p.g.m, SEQS * N_IDS, SEQS * N_IDS, err));
    for (int s = 0; s < SEQS; s++) {
        assert_ok(rvi_seq_init(&seqs[s], pool, N_IDS, err));
        assert_ok(rvi_seq_extend(&seqs[s], N_IDS, err));
    }
    for (int i = 0; i < N_IDS; i++)
        for (int s = 0; s < SEQS; s++, n++) {
            rows[n] =
                (rvi_row){.seq = &seqs[s], .pos = i, .token = some_ids[i], .adapters = sets[s]};
            which[n] = n;
        }
    rvi_model_forward(p.g.m, ws, rows, n);
    const float *logits = rvi_model_logits(p.g.m, ws, rows, which, n);
    for (int s = 0; s < SEQS; s++) {
        float *alone = run_alone(&p, sets[s]);
        for (int i = 0; i < N_IDS; i++)
            assert_memory_equal(logits + (size_t)(i * SEQS + s) * p.vocab,
                                alone + (size_t)i * p.vocab, p.vocab * sizeof *alone);
        rvi_free(alone);
    }
    rvi_workspace_free(ws);
    for (int s = 0; s < SEQS; s++) rvi_seq_deinit(&seqs[s]);
    rvi_pages_free(pool);
    pair_close(&p);
}

/* ---- PEFT files of our own ---- */

enum { WIDTH = 256, KV_WIDTH = 128 }; /* of the llama checkpoint: n_embd = q rows; k and v rows */

#define LAYER0 "base_model.model.model.layers.0.self_attn."

typedef struct entry { /* a tensor of an adapter; name NULL: none */
    const char *name;
    int n_dims;
    uint64_t rows, cols;
} entry;

enum { MOST_ENTRIES = 4 };

static float fill(size_t i)
{
    return ((float)(i * 37 % 101) / 101.0f - 0.5f) / 8;
}

static void write_peft(const rvi_buf *dir, const char *config, const entry *entries)
{
    rvi_st_entry list[MOST_ENTRIES];
    float *data[MOST_ENTRIES] = {0};
    size_t n = 0;
    for (; n < MOST_ENTRIES && entries[n].name; n++) {
        const entry *e = &entries[n];
        size_t count = (size_t)(e->rows * (e->n_dims == 2 ? e->cols : 1));
        data[n] = rvi_alloc_array(count + 1, sizeof *data[n]);
        for (size_t i = 0; i < count; i++) data[n][i] = fill(i + n);
        list[n] = (rvi_st_entry){
            .name = e->name, .n_dims = e->n_dims, .shape = {e->rows, e->cols}, .data = data[n]};
    }
    assert_ok(rvi_safetensors_write(in_folder(dir, "adapter_model.safetensors"), list, n, err));
    write_file(in_folder(dir, "adapter_config.json"), config, strlen(config));
    for (size_t i = 0; i < n; i++) rvi_free(data[i]);
}

/* A q adapter of rank 3 and a v adapter of rank 5. */
static const entry q3_v5[MOST_ENTRIES] = {
    {LAYER0 "q_proj.lora_A.weight", 2, 3, WIDTH},
    {LAYER0 "q_proj.lora_B.weight", 2, WIDTH, 3},
    {LAYER0 "v_proj.lora_A.weight", 2, 5, WIDTH},
    {LAYER0 "v_proj.lora_B.weight", 2, KV_WIDTH, 5},
};

static const rvi_lora_slot *slot_of(const golden *g, const rvi_adapter *a, const char *hf_name)
{
    for (int i = 0; i < g->m->n_targets; i++)
        if (!strcmp(g->m->targets[i].hf_name, hf_name)) return &a->slots[i];
    fail_msg("no target '%s'", hf_name);
    return NULL;
}

static void scales_by_hand(void **state)
{
    static const struct {
        const char *config;
        double q, v;
    } cases[] = {
        {"{\"r\":3,\"lora_alpha\":6,\"rank_pattern\":{\"v_proj\":5}}", 6.0 / 3, 6.0 / 5},
        {"{\"r\":3,\"lora_alpha\":6,\"rank_pattern\":{\"v_proj\":5},"
         "\"alpha_pattern\":{\"v_proj\":20}}",
         6.0 / 3, 20.0 / 5},
        {"{\"r\":5,\"lora_alpha\":1.5,\"use_rslora\":true,"
         "\"rank_pattern\":{\"layers.0.self_attn.q_proj\":3}}",
         1.5 / 1.7320508075688772, 1.5 / 2.2360679774997896},
        {"{\"r\":5,\"lora_alpha\":-2,\"use_rslora\":true,\"bias\":\"none\",\"peft_type\":\"LORA\","
         "\"rank_pattern\":{\"model.layers.0.self_attn.q_proj\":3},"
         "\"alpha_pattern\":{\"k_proj\":1,\"self_attn.q_proj\":9,\"q_proj\":1}}",
         9 / 1.7320508075688772, -2 / 2.2360679774997896},
        /* a key must end at a dot: "proj" fits no layer */
        {"{\"r\":3,\"lora_alpha\":3,\"rank_pattern\":{\"proj\":7,\"v_proj\":5},"
         "\"alpha_pattern\":{},\"init_lora_weights\":\"gaussian\",\"use_dora\":false}",
         1, 3.0 / 5},
    };
    golden g;
    golden_open_named(&g, "llama", true, 1, NULL);
    for (size_t i = 0; i < RVI_COUNT(cases); i++) {
        rvi_adapter *a;
        write_peft(*state, cases[i].config, q3_v5);
        assert_ok(load_adapter(&a, &g, ((rvi_buf *)*state)->data, err));
        const rvi_lora_slot *q = slot_of(&g, a, "model.layers.0.self_attn.q_proj"),
                            *v = slot_of(&g, a, "model.layers.0.self_attn.v_proj");
        assert_true(fabs((double)q->scale - cases[i].q) < 1e-6);
        assert_true(fabs((double)v->scale - cases[i].v) < 1e-6);
        assert_int_equal(a->n_used, 2);
        rvi_adapter_free(a);
    }
    golden_close(&g);
}

/* out += s B (A x), against the sum written out. */
static void product_by_hand(void **state)
{
    golden g;
    rvi_adapter *a;
    rvi_tensor *x, *out;
    float in[WIDTH], base[KV_WIDTH], got[KV_WIDTH];
    golden_open_named(&g, "llama", true, 1, NULL);
    write_peft(*state, "{\"r\":3,\"lora_alpha\":6,\"rank_pattern\":{\"v_proj\":5}}", q3_v5);
    assert_ok(load_adapter(&a, &g, ((rvi_buf *)*state)->data, err));
    const rvi_lora_slot *s = slot_of(&g, a, "model.layers.0.self_attn.v_proj");
    const rvi_backend_ops *op = g.be->ops;
    assert_ok(op->reserve(g.be, 2, WIDTH, 0, err));
    assert_ok(op->rows_new(g.be, &x, 2, WIDTH, err));
    assert_ok(op->rows_new(g.be, &out, 2, KV_WIDTH, err));
    for (size_t i = 0; i < WIDTH; i++) in[i] = fill(3 * i + 1);
    for (size_t i = 0; i < KV_WIDTH; i++) base[i] = fill(5 * i);
    for (int r = 0; r < 2; r++) {
        op->rows_write(g.be, rvi_cols_of(x, 0, WIDTH), r, in);
        op->rows_write(g.be, rvi_cols_of(out, 0, KV_WIDTH), r, base);
    }
    const int32_t second[] = {1};
    rvi_lora_product product = {s->a, s->b, s->scale * 0.5f, rvi_cols_of(out, 0, KV_WIDTH)};
    rvi_lora_group group = {second, 1, &product, 1};
    op->lora(g.be, rvi_cols_of(x, 0, WIDTH), &group, 1);
    op->rows_read(g.be, rvi_cols_of(out, 0, KV_WIDTH), 0, got);
    assert_memory_equal(got, base, sizeof got); /* not listed, not touched */
    op->rows_read(g.be, rvi_cols_of(out, 0, KV_WIDTH), 1, got);
    double worst = 0, size = 0;
    for (size_t o = 0; o < KV_WIDTH; o++) {
        double sum = 0;
        for (size_t k = 0; k < 5; k++) {
            double low = 0;
            for (size_t i = 0; i < WIDTH; i++) /* entry n of a file is filled from n on */
                low += (double)fill(k * WIDTH + i + 2) * (double)in[i];
            sum += (double)fill(o * 5 + k + 3) * low;
        }
        double want = (double)base[o] + 0.5 * (6.0 / 5) * sum;
        worst = fmax(worst, fabs((double)got[o] - want));
        size = fmax(size, fabs(sum));
    }
    print_message("# product by hand %.2e, terms up to %.2e\n", worst, size);
    assert_true(worst < 1e-7); /* observed: 2.4e-9 */
    assert_true(size > 1e-3);
    op->tensor_free(g.be, x);
    op->tensor_free(g.be, out);
    rvi_adapter_free(a);
    golden_close(&g);
}

/* ---- wrong PEFT adapters ---- */

#define GOOD "{\"r\":2,\"lora_alpha\":4}"
#define A2                                                                                         \
    {                                                                                              \
        LAYER0 "q_proj.lora_A.weight", 2, 2, WIDTH                                                 \
    }
#define B2                                                                                         \
    {                                                                                              \
        LAYER0 "q_proj.lora_B.weight", 2, WIDTH, 2                                                 \
    }

typedef struct fault {
    const char *what, *config;
    entry entries[MOST_ENTRIES];
    const char *expect; /* part of the message; NULL: it loads */
} fault;

static const fault faults[] = {
    {"nothing wrong", GOOD, {A2, B2}, NULL},
    {"no tensors", GOOD, {{0}}, "no adapter tensors"},
    {"missing B", GOOD, {A2}, "'model.layers.0.self_attn.q_proj' has only one"},
    {"missing A", GOOD, {B2}, "has only one of its two matrices"},
    {"narrow A", GOOD, {{LAYER0 "q_proj.lora_A.weight", 2, 2, 255}, B2}, "255 wide where"},
    {"short B", GOOD, {A2, {LAYER0 "q_proj.lora_B.weight", 2, 128, 2}}, "128 wide where"},
    {"a vector", GOOD, {{LAYER0 "q_proj.lora_A.weight", 1, 2, 0}, B2}, "does not fit the model"},
    {"ranks that disagree",
     GOOD,
     {A2, {LAYER0 "q_proj.lora_B.weight", 2, WIDTH, 3}},
     "ranks 2 and 3 disagree"},
    {"rank 0",
     GOOD,
     {{LAYER0 "q_proj.lora_A.weight", 2, 0, WIDTH}, B2},
     "rank must be 1..1024 (got 0)"},
    {"rank 2000",
     GOOD,
     {{LAYER0 "q_proj.lora_A.weight", 2, 2000, WIDTH}, B2},
     "rank must be 1..1024 (got 2000)"},
    {"another rank than the configuration's",
     "{\"r\":4,\"lora_alpha\":4}",
     {A2, B2},
     "has rank 2, but adapter_config.json says 4"},
    {"given twice",
     GOOD,
     {A2, {LAYER0 "q_proj.lora_A.default.weight", 2, 2, WIDTH}, B2},
     "is given twice"},
    {"an unknown layer",
     GOOD,
     {{LAYER0 "z_proj.lora_A.weight", 2, 2, WIDTH}, B2},
     "z_proj.lora_A.weight' does not belong to this model"},
    {"a layer beyond the last",
     GOOD,
     {{"base_model.model.model.layers.99.self_attn.q_proj.lora_A.weight", 2, 2, WIDTH}},
     "layers.99.self_attn.q_proj.lora_A.weight' does not belong"},
    {"a whole weight",
     GOOD,
     {A2, B2, {"base_model.model.lm_head.weight", 2, 2, WIDTH}},
     "lm_head.weight' does not belong"},
    {"a magnitude vector",
     GOOD,
     {A2, B2, {LAYER0 "q_proj.lora_magnitude_vector", 1, WIDTH, 0}},
     "lora_magnitude_vector' does not belong"},
    {"a bias tensor",
     GOOD,
     {A2, B2, {LAYER0 "q_proj.lora_B.bias", 1, WIDTH, 0}},
     "lora_B.bias' does not belong"},
    {"an empty name", GOOD, {{"", 2, 2, WIDTH}}, "does not belong"},
    {"no r", "{\"lora_alpha\":4}", {A2, B2}, "'r' of adapter_config.json"},
    {"r 0", "{\"r\":0,\"lora_alpha\":4}", {A2, B2}, "'r' of adapter_config.json"},
    {"r a word", "{\"r\":\"2\",\"lora_alpha\":4}", {A2, B2}, "'r' of adapter_config.json"},
    {"r 1e9", "{\"r\":1000000000,\"lora_alpha\":4}", {A2, B2}, "'r' of adapter_config.json"},
    {"no alpha", "{\"r\":2}", {A2, B2}, "'lora_alpha' of adapter_config.json"},
    {"alpha null",
     "{\"r\":2,\"lora_alpha\":null}",
     {A2, B2},
     "'lora_alpha' of adapter_config.json"},
    {"DoRA", "{\"r\":2,\"lora_alpha\":4,\"use_dora\":true}", {A2, B2}, "'use_dora': DoRA"},
    {"biases", "{\"r\":2,\"lora_alpha\":4,\"bias\":\"all\"}", {A2, B2}, "'bias': adapters with"},
    {"more biases", "{\"r\":2,\"lora_alpha\":4,\"lora_bias\":true}", {A2, B2}, "'lora_bias'"},
    {"another kind", "{\"r\":2,\"lora_alpha\":4,\"peft_type\":\"IA3\"}", {A2, B2}, "'IA3'"},
    {"turned weights", "{\"r\":2,\"lora_alpha\":4,\"fan_in_fan_out\":true}", {A2, B2}, "fan_in"},
    {"repeated layers",
     "{\"r\":2,\"lora_alpha\":4,\"layer_replication\":[[0,1],[0,1]]}",
     {A2, B2},
     "'layer_replication'"},
    {"a changed base",
     "{\"r\":2,\"lora_alpha\":4,\"init_lora_weights\":\"pissa_niter_16\"}",
     {A2, B2},
     "'pissa_niter_16'"},
    {"rslora a word",
     "{\"r\":2,\"lora_alpha\":4,\"use_rslora\":\"yes\"}",
     {A2, B2},
     "'use_rslora'"},
    {"a pattern by expression",
     "{\"r\":2,\"lora_alpha\":4,\"rank_pattern\":{\"^model.*q_proj$\":2}}",
     {A2, B2},
     "'rank_pattern': plain layer names"},
    {"a pattern without a number",
     "{\"r\":2,\"lora_alpha\":4,\"alpha_pattern\":{\"q_proj\":\"8\"}}",
     {A2, B2},
     "'alpha_pattern': plain layer names"},
    {"a pattern's rank 0",
     "{\"r\":2,\"lora_alpha\":4,\"rank_pattern\":{\"q_proj\":0}}",
     {A2, B2},
     "has rank 2, but adapter_config.json says 0"},
    {"an endless alpha", "{\"r\":2,\"lora_alpha\":1e300}", {A2, B2}, "is not a number"},
    {"a list of patterns",
     "{\"r\":2,\"lora_alpha\":4,\"rank_pattern\":[1]}",
     {A2, B2},
     "'rank_pattern': plain layer names"},
    {"no object", "[]", {A2, B2}, "'r' of adapter_config.json"},
};

/* state: the folder. The adapter in it must be refused by a message with `expect` in it. */
static void expect_refused(const golden *g, const char *path, const char *what, const char *expect,
                           rv_status code)
{
    rv_error err = {0};
    rvi_adapter *a;
    rv_status st = load_adapter(&a, g, path, &err);
    if (st != code || err.code != st || a || !strstr(err.text, expect))
        fail_msg("%s: status %d, '%s', but '%s' was expected in it", what, st, err.text, expect);
}

static void wrong_peft_adapters(void **state)
{
    const rvi_buf *dir = *state;
    golden g;
    golden_open_named(&g, "llama", true, 1, NULL);
    for (size_t i = 0; i < RVI_COUNT(faults); i++) {
        write_peft(dir, faults[i].config, faults[i].entries);
        if (faults[i].expect) {
            expect_refused(&g, dir->data, faults[i].what, faults[i].expect, RV_E_ADAPTER);
            continue;
        }
        rvi_adapter *a;
        assert_ok(load_adapter(&a, &g, dir->data, err));
        rvi_adapter_free(a);
    }
    golden_close(&g);
}

static void config_that_is_no_configuration(void **state)
{
    enum { HUGE_LEN = 3 << 20 };
    const rvi_buf *dir = *state;
    static const entry good[MOST_ENTRIES] = {A2, B2};
    golden g;
    golden_open_named(&g, "llama", true, 1, NULL);
    write_peft(dir, "{\"r\":2,\"lora_alpha\":NaN}", good);
    expect_refused(&g, dir->data, "NaN", "adapter_config.json: line 1", RV_E_CONFIG);
    write_peft(dir, "{\"r\":2,\"lora_alpha\":1e999}", good);
    expect_refused(&g, dir->data, "1e999", "number too large", RV_E_CONFIG);

    char *text = rvi_alloc_array(HUGE_LEN + 1, 1);
    memset(text, '[', HUGE_LEN);
    text[HUGE_LEN] = 0;
    write_peft(dir, text, good);
    expect_refused(&g, dir->data, "huge", "3145728 bytes are too many", RV_E_ADAPTER);
    text[1000] = 0;
    write_peft(dir, text, good);
    expect_refused(&g, dir->data, "deep", "nested too deeply", RV_E_CONFIG);
    rvi_free(text);

    write_peft(dir, GOOD, good);
    rvi_os_remove_tree(in_folder(dir, "adapter_config.json"));
    expect_refused(&g, dir->data, "no configuration", "adapter_config.json", RV_E_NOT_FOUND);
    golden_close(&g);
}

/* Every beginning of the tensor file, and a NaN and an integer tensor in a whole one. */
static void damaged_tensor_files(void **state)
{
    const rvi_buf *dir = *state;
    static const entry good[MOST_ENTRIES] = {A2, B2};
    golden g;
    rvi_blob whole;
    golden_open_named(&g, "llama", true, 1, NULL);
    write_peft(dir, GOOD, good);
    const char *path = in_folder(dir, "adapter_model.safetensors");
    assert_ok(rvi_blob_open(&whole, path, err));
    size_t len = whole.len;
    uint8_t *copy = rvi_alloc_array(len, 1);
    memcpy(copy, whole.data, len);
    rvi_blob_close(&whole);
    for (size_t cut = 1; cut < len; cut += cut < 300 ? 7 : 211) {
        write_file(path, copy, cut);
        expect_refused(&g, dir->data, "truncated", "adapter_model.safetensors", RV_E_MODEL);
    }
    static const float nan_value[] = {NAN};
    memcpy(copy + len - sizeof nan_value, nan_value, sizeof nan_value);
    write_file(path, copy, len);
    expect_refused(&g, dir->data, "NaN", "lora_B.weight' holds a value that is not a number",
                   RV_E_ADAPTER);
    memset(copy + len - sizeof nan_value, 0, sizeof nan_value);
    char *type = strstr((char *)copy + 8, "F32");
    assert_non_null(type);
    memcpy(type, "I32", 3);
    write_file(path, copy, len);
    expect_refused(&g, dir->data, "integers", "of type I32", RV_E_ADAPTER);
    rvi_free(copy);
    golden_close(&g);
}

/* ---- wrong GGUF adapters ---- */

typedef struct gguf_fault {
    const char *what, *type, *adapter_type, *arch; /* NULL: the key is left out */
    float alpha;
    bool no_alpha;
    const char *a, *b; /* names; NULL: left out */
    const char *expect;
} gguf_fault;

#define Q_A "blk.0.attn_q.weight.lora_a"
#define Q_B "blk.0.attn_q.weight.lora_b"

static const gguf_fault gguf_faults[] = {
    {"nothing wrong", "adapter", "lora", "llama", 4, false, Q_A, Q_B, NULL},
    {"no architecture", "adapter", "lora", NULL, 4, false, Q_A, Q_B, NULL},
    {"a model", "model", "lora", "llama", 4, false, Q_A, Q_B, "general.type"},
    {"no type", NULL, "lora", "llama", 4, false, Q_A, Q_B, "general.type"},
    {"another kind", "adapter", "control", "llama", 4, false, Q_A, Q_B, "adapter.type"},
    {"for another model", "adapter", "lora", "qwen2", 4, false, Q_A, Q_B,
     "an adapter for 'qwen2', but the model is 'llama'"},
    {"no alpha", "adapter", "lora", "llama", 4, true, Q_A, Q_B, "adapter.lora.alpha"},
    {"alpha NaN", "adapter", "lora", "llama", NAN, false, Q_A, Q_B, "adapter.lora.alpha"},
    {"missing B", "adapter", "lora", "llama", 4, false, Q_A, NULL, "'blk.0.attn_q' has only one"},
    {"nothing in it", "adapter", "lora", "llama", 4, false, NULL, NULL, "no adapter tensors"},
    {"an unknown layer", "adapter", "lora", "llama", 4, false, "blk.0.attn_z.weight.lora_a", Q_B,
     "attn_z.weight.lora_a' does not belong"},
    {"a layer beyond the last", "adapter", "lora", "llama", 4, false, "blk.2.attn_q.weight.lora_a",
     Q_B, "blk.2.attn_q.weight.lora_a' does not belong"},
    {"no suffix", "adapter", "lora", "llama", 4, false, "lora_a", Q_B, "'lora_a' does not belong"},
    {"half a suffix", "adapter", "lora", "llama", 4, false, "blk.0.attn_q.lora_a", Q_B,
     "'blk.0.attn_q.lora_a' does not belong"},
};

static void wrong_gguf_adapters(void **state)
{
    const rvi_buf *dir = *state;
    golden g;
    golden_open_named(&g, "llama", true, 1, NULL);
    for (size_t i = 0; i < RVI_COUNT(gguf_faults); i++) {
        const gguf_fault *f = &gguf_faults[i];
        gguf_builder b = {.version = 3};
        rvi_buf file = {0};
        const char *path = in_folder(dir, "wrong.gguf");
        if (f->type) gb_str(&b, "general.type", f->type);
        if (f->adapter_type) gb_str(&b, "adapter.type", f->adapter_type);
        if (f->arch) gb_str(&b, "general.architecture", f->arch);
        if (!f->no_alpha) gb_f32(&b, "adapter.lora.alpha", f->alpha);
        if (f->a) gb_tensor(&b, f->a, RVI_F32, 2, (uint64_t[]){2, WIDTH}, NULL);
        if (f->b) gb_tensor(&b, f->b, RVI_F32, 2, (uint64_t[]){WIDTH, 2}, NULL);
        gb_finish(&b, &file);
        write_file(path, file.data, file.len);
        if (f->expect) {
            expect_refused(&g, path, f->what, f->expect, RV_E_ADAPTER);
        } else {
            rvi_adapter *a;
            assert_ok(load_adapter(&a, &g, path, err));
            assert_true(slot_of(&g, a, "model.layers.0.self_attn.q_proj")->scale == 2);
            rvi_adapter_free(a);
        }
        for (size_t cut = 1; !i && cut < file.len; cut += cut < 300 ? 7 : 211) {
            write_file(path, file.data, cut);
            expect_refused(&g, path, "truncated", "wrong.gguf", RV_E_MODEL);
        }
        gb_deinit(&b);
        rvi_buf_deinit(&file);
    }
    golden_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_format_on_every_model),
        cmocka_unit_test(scales_add_up),
        cmocka_unit_test(sets_are_chosen_row_by_row),
        cmocka_unit_test(scales_by_hand),
        cmocka_unit_test(product_by_hand),
        cmocka_unit_test(wrong_peft_adapters),
        cmocka_unit_test(config_that_is_no_configuration),
        cmocka_unit_test(damaged_tensor_files),
        cmocka_unit_test(wrong_gguf_adapters),
    };
    return cmocka_run_group_tests_name("adapters", tests, folder_setup, folder_teardown);
}
