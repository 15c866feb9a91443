/* The instant loop on the real model: garbage with top scores, and
 * what the probe says against what the model does. Skipped where the model is not there. */
#include "model/golden.h"

#include <math.h>
#include <stdlib.h>

#include "base/json.h"
#include "base/rng.h"
#include "decode/answer.h"
#include "decode/sampler.h"
#include "learn/capture_text.h"
#include "learn/instant/micro.h"
#include "real/cached_model.h"
#include "tokenizer/tokenizer.h"

enum { N_PROMPTS = 3, N_SELF = 8, SELF_TOKENS = 256 };

static char path[1024]; /* empty: not on this machine */

typedef struct bench {
    golden g;
    rvi_engine *e;
    rvi_session *s, *self[N_SELF];
    rvi_ids eos, prose;
    rvi_capturer *by;
    rvi_capture *ring;
    int32_t prompts[N_PROMPTS][256];
    int n_prompt[N_PROMPTS];
    int32_t self_ids[N_SELF][SELF_TOKENS];
    rvi_adapter *adapter;
    rvi_adapter_use use;
    rvi_adapter_set set;
} bench;

static bench b;

/* The set's serial is that of no adapter: the last down projection has no part in keys and
 * values. */
static void use(const rvi_delta *d)
{
    rvi_adapter_free(b.adapter);
    b.adapter = NULL;
    b.s->adapters = NULL;
    if (!d || !d->rank) return;
    assert_ok(rvi_delta_export(&b.adapter, b.g.m, d, err));
    b.use = (rvi_adapter_use){b.adapter, 1};
    b.set = (rvi_adapter_set){.uses = &b.use, .n = 1, .serial = 0};
    b.s->adapters = &b.set;
}

static void read_prompts(void)
{
    rvi_blob file;
    rvi_arena arena = {0};
    const rvi_json *root;
    assert_ok(rvi_blob_open(&file, "tests/golden/smollm2/reference.json", err));
    assert_ok(
        rvi_json_parse(&root, (const char *)file.data, file.len, &arena, "reference.json", err));
    const rvi_json *answers = rvi_json_get(root, "greedy");
    assert_true(rvi_json_count(answers) >= N_PROMPTS);
    for (size_t a = 0; a < N_PROMPTS; a++) {
        /* from the end: those are chats */
        const rvi_json *ids =
            rvi_json_get(rvi_json_at(answers, rvi_json_count(answers) - 1 - a), "prompt_ids");
        b.n_prompt[a] = (int)RVI_MIN(rvi_json_count(ids), (size_t)256);
        for (int i = 0; i < b.n_prompt[a]; i++)
            b.prompts[a][i] = (int32_t)rvi_json_int(rvi_json_at(ids, (size_t)i), -1);
    }
    rvi_arena_deinit(&arena);
    rvi_blob_close(&file);
}

static void read_prose(void)
{
    rvi_blob text;
    rvi_tokenizer *t;
    assert_ok(rvi_blob_open(&text, "tests/text/northanger-200k.txt", err));
    assert_ok(rvi_tokenizer_from_gguf(&t, b.g.m->source->gguf, NULL, err));
    assert_ok(rvi_tokenizer_encode(t, (const char *)text.data, text.len, 0, &b.prose, err));
    rvi_tokenizer_free(t);
    rvi_blob_close(&text);
}

/* Texts of the model's own, together. */
static void write_self(void)
{
    rv_sampling warm;
    rvi_sampling_init(&warm, sizeof warm, false);
    warm.temperature = 1;
    for (int i = 0; i < N_SELF; i++) {
        warm.seed = (uint64_t)i;
        rv_generate_options o = {.size = sizeof o,
                                 .sampling = &warm,
                                 .max_tokens = SELF_TOKENS,
                                 .top_logprobs = -1,
                                 .ignore_eos = 1};
        assert_ok(rvi_session_new(&b.self[i], b.e, 512, NULL, NULL, err));
        assert_ok(rvi_answer_start(b.self[i], (int32_t[]){1, 300 + 991 * i}, 2, &o, err));
    }
    while (rvi_answer_advance(b.e, NULL)) {
    }
    for (int i = 0; i < N_SELF; i++) {
        rvi_generated out;
        assert_ok(rvi_answer_take(b.self[i], &out, err));
        memcpy(b.self_ids[i], out.ids.data, sizeof b.self_ids[i]);
        rvi_generated_deinit(&out);
        rvi_session_free(b.self[i]);
    }
}

static int open_bench(void **state)
{
    (void)state;
    find_cached("smollm2", path, sizeof path);
    if (!path[0]) return 0;
    golden_open(&b.g, path, NULL, false, 1, NULL);
    assert_ok(rvi_engine_new(
        &b.e, b.g.m, NULL, &b.eos,
        &(rvi_engine_options){.n_tokens = 8192, .max_rows = 256, .max_logits = N_SELF}, err));
    assert_ok(rvi_session_new(&b.s, b.e, 1024, NULL, NULL, err));
    assert_ok(rvi_capturer_new(&b.by, b.g.m, err));
    assert_ok(rvi_capture_new(&b.ring, b.by, 1024, err));
    read_prompts();
    read_prose();
    write_self();
    return 0;
}

static int close_bench(void **state)
{
    (void)state;
    if (!path[0]) return 0;
    use(NULL);
    rvi_capture_free(b.ring);
    rvi_capturer_free(b.by);
    rvi_session_free(b.s);
    rvi_engine_free(b.e);
    rvi_ids_deinit(&b.prose);
    golden_close(&b.g);
    return 0;
}

/* The answer's tokens as captured; returns the sum of their log p. */
static double capture(const int32_t *ids, int n_prompt, int n, rvi_captured *tokens)
{
    double sum = 0;
    assert_ok(capture_text(b.ring, b.s, ids, (size_t)n_prompt, (size_t)n, 1, err));
    for (int i = 0; i < n - n_prompt; i++) {
        rvi_captured t = rvi_capture_get(b.ring, rvi_capture_answer(b.ring), i);
        if (tokens) tokens[i] = t;
        sum += (double)t.log_p;
    }
    return sum;
}

/* Mean surprise of prose that no probe has seen. */
static double prose_nll(void)
{
    enum { WINDOWS = 4, WINDOW = 256 };
    double sum = 0;
    for (int w = 0; w < WINDOWS; w++)
        sum -= capture(b.prose.data + 20000 + w * 5000, WINDOW / 2, WINDOW, NULL);
    return sum / (WINDOWS * WINDOW / 2);
}

static void garbage(void **state)
{
    (void)state;
    if (!path[0]) skip();
    enum { EVENTS = 200, N = 16 };
    rvi_probe *p;
    rvi_rng rng = {3};
    assert_ok(rvi_probe_new(&p, b.by, b.g.m, 8, err));
    for (int i = 0; i < 4; i++) {
        assert_ok(rvi_probe_add(p, b.self_ids[i], 64, err));
        assert_ok(rvi_probe_add(p, b.prose.data + 1000 * i, 64, err));
    }
    use(NULL);
    double nll = prose_nll();
    for (int hard = 0; hard < 2; hard++) { /* without rollback, and with */
        rvi_micro *m;
        rvi_probe_result r = {0, 0};
        double most = 0;
        assert_ok(rvi_micro_new(
            &m, b.g.m,
            &(rvi_micro_options){
                .seed = 1, .kl_soft = 0.01, .kl_hard = hard ? 0 : 100, .ppl_hard = hard ? 0 : 100},
            err));
        rvi_micro_set_probe(m, p);
        use(NULL);
        for (int i = 0; i < EVENTS; i++) {
            int32_t ids[256 + N];
            rvi_captured tokens[N];
            int at = i % N_PROMPTS, n = b.n_prompt[at];
            memcpy(ids, b.prompts[at], sizeof b.prompts[at]);
            for (int k = 0; k < N; k++) ids[n + k] = 100 + (int32_t)(rvi_rng_u64(&rng) % 48900);
            capture(ids, n, n + N, tokens);
            rvi_micro_event(m, tokens, N, 1, NULL);
            rvi_micro_probe(m, &r);
            rvi_delta d = rvi_micro_delta(m);
            use(&d);
            if (i % 20 == 19) most = fmax(most, exp(prose_nll() - nll) - 1);
        }
        rvi_micro_status s = rvi_micro_status_of(m);
        double now = exp(prose_nll() - nll) - 1;
        print_message(
            "# %d garbage events, rollback %s: perplexity %+.2f %% (at most %+.2f), the probe "
            "says %+.2f %% and KL %.4f; %d rollbacks\n",
            EVENTS, hard ? "on" : "off", 100 * now, 100 * most, 100 * s.probe.ppl, s.probe.kl,
            (int)s.n_rollbacks);
        assert_true(most < (hard ? 0.05 : 0.06));
        rvi_micro_free(m);
    }
    rvi_probe_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(garbage)};
    return cmocka_run_group_tests_name("instant loop of smollm2", tests, open_bench, close_bench);
}
