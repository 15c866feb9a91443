/* sampling.c - what sampling costs beside computing: build/bench/sampling MODEL [DEVICE [STREAMS
 * [TOKENS]]].
 *
 * Tokens a second of so many answers that advance together, greedy and by several kinds of
 * sampling. Where a device tells what is needed of logits (backend/draw.h), each is done once more
 * with a bias of 0 on one token, for which all logits come to the host: the tokens have to be the
 * same. By the clock, the best of three. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "program.h"

#include "base/os.h"
#include "ruvllm.h"

enum { PROMPT = 16, MOST_STREAMS = 64, ROUNDS = 3 };

static const struct {
    const char *name;
    float temperature, top_p, min_p;
    int greedy, top_k, logprobs;
} kinds[] = {
    {"greedy", 0, 1, 0, 1, 0, 0},
    {"greedy, 5 logprobs", 0, 1, 0, 1, 0, 5},
    {"temp 1", 1, 1, 0, 0, 0, 0},
    {"temp 0.8, top_k 40, top_p 0.95", 0.8f, 0.95f, 0, 0, 40, 0},
    {"temp 0.8, top_p 0.95", 0.8f, 0.95f, 0, 0, 0, 0},
    {"temp 0.8, min_p 0.05", 0.8f, 1, 0.05f, 0, 0, 0},
};

/* Tokens a second behind the prompts; ids: of all answers. */
static double generate(rv_model *m, int kind, int n_streams, int n, bool by_host, int32_t *ids)
{
    rv_engine *e;
    rv_session *s[MOST_STREAMS];
    size_t running = 1;
    const rv_logit_bias bias = {3, 0};
    rv_engine_options eo = {.size = sizeof eo,
                            .n_tokens = n_streams * ((PROMPT + n) / 32 * 32 + 64),
                            .max_logits = n_streams};
    must(rv_engine_new(&e, m, &eo, &err));
    for (int i = 0; i < n_streams; i++) {
        int32_t prompt[PROMPT];
        rv_session_options so = {.size = sizeof so, .engine = e, .n_context = PROMPT + n};
        rv_sampling sampling = {.size = sizeof sampling,
                                .greedy = kinds[kind].greedy,
                                .temperature = kinds[kind].temperature,
                                .top_p = kinds[kind].top_p,
                                .min_p = kinds[kind].min_p,
                                .top_k = kinds[kind].top_k,
                                .repetition_penalty = 1,
                                .seed = 1 + (uint64_t)i,
                                .logit_bias = &bias,
                                .n_logit_bias = by_host};
        rv_generate_options o = {.size = sizeof o,
                                 .sampling = &sampling,
                                 .max_tokens = n,
                                 .ignore_eos = 1,
                                 .logprobs = kinds[kind].logprobs > 0,
                                 .top_logprobs = kinds[kind].logprobs,
                                 .draft = RV_DRAFT_OFF};
        for (int k = 0; k < PROMPT; k++)
            prompt[k] = (100 + 37 * i + 11 * k) % rv_model_get_info(m)->n_vocab;
        must(rv_session_new(&s[i], m, &so, &err));
        must(rv_session_start(s[i], prompt, PROMPT, &o, &err));
    }
    must(rv_engine_advance(e, &running, &err)); /* the prompts, and the first tokens */
    double start = rvi_os_seconds();
    while (running) must(rv_engine_advance(e, &running, &err));
    double seconds = rvi_os_seconds() - start;
    for (int i = 0; i < n_streams; i++) {
        rv_answer *a;
        must(rv_session_finish(s[i], &a, &err));
        memcpy(ids + (size_t)i * (size_t)n, a->ids, (size_t)n * sizeof *ids);
        rv_free(a);
        rv_session_free(&s[i]);
    }
    rv_engine_free(&e);
    return n_streams * (n - 1) / seconds;
}

static double best_of(rv_model *m, int kind, int n_streams, int n, bool by_host, int32_t *ids)
{
    double best = 0;
    for (int i = 0; i < ROUNDS; i++) {
        double rate = generate(m, kind, n_streams, n, by_host, ids);
        best = rate > best ? rate : best;
    }
    return best;
}

int main(int argc, char **argv)
{
    int n_streams = argc > 3 ? atoi(argv[3]) : 1, n = argc > 4 ? atoi(argv[4]) : 128;
    rv_runtime_options ro = {.size = sizeof ro, .device = argc > 2 ? argv[2] : NULL};
    rv_runtime *rt;
    rv_model *m;
    if (argc < 2 || n_streams < 1 || n_streams > MOST_STREAMS || n < 2) {
        fprintf(stderr, "sampling MODEL [DEVICE [STREAMS (1..%d) [TOKENS]]]\n", MOST_STREAMS);
        return 2;
    }
    size_t bytes = (size_t)n_streams * (size_t)n * sizeof(int32_t);
    int32_t *ids[2] = {malloc(bytes), malloc(bytes)};
    int wrong = !ids[0] || !ids[1];
    must(rv_runtime_new(&rt, &ro, &err));
    must(rv_model_open(&m, rt, argv[1], NULL, &err));
    for (int k = 0; !wrong && k < (int)RVI_COUNT(kinds); k++) {
        double rate = best_of(m, k, n_streams, n, false, ids[0]);
        double by_host = best_of(m, k, n_streams, n, true, ids[1]);
        bool same = !memcmp(ids[0], ids[1], bytes);
        printf("%-32s %10.1f tok/s, from all logits %10.1f (%.2f times)%s\n", kinds[k].name, rate,
               by_host, rate / by_host, same ? "" : ", OTHER TOKENS");
        wrong |= !same;
    }
    rv_model_close(&m);
    rv_runtime_free(&rt);
    free(ids[0]);
    free(ids[1]);
    return wrong;
}
