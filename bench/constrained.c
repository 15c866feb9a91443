/* constrained.c - what a schema costs an answer: tokens a second of CPU time, free and under a
 * schema, by turns.
 *
 *   build/bench/constrained MODEL [TOKENS [ROUNDS]]
 *
 * The answer is a list of three or more objects with strings, numbers and choices, brought to its
 * end before TOKENS run out.
 * "held": every token is sampled, none is forced, and no end is looked for; "forced": as answers
 * are made. Guesses are off. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ruvllm_grammar.h"

enum { FREE, HELD, FORCED, N_WAYS };

static const char schema[] =
    "{\"type\":\"array\",\"minItems\":3,\"items\":{\"type\":\"object\",\"properties\":{"
    "\"name\":{\"type\":\"string\",\"maxLength\":60},\"description\":{\"type\":\"string\"},"
    "\"quantity\":{\"type\":\"integer\",\"minimum\":0},\"price\":{\"type\":\"number\"},"
    "\"category\":{\"enum\":[\"food\",\"clothing\",\"electronics\",\"other\"]}},"
    "\"required\":[\"name\",\"description\",\"quantity\",\"price\",\"category\"],"
    "\"additionalProperties\":false}}";

static int change_nothing(void *ctx, const int32_t *ids, size_t n_ids, float *logits, size_t n)
{
    (void)ctx, (void)ids, (void)n_ids, (void)logits, (void)n;
    return 0;
}

static clock_t begun;

static int on_event(void *ctx, const rv_event *event)
{
    (void)ctx;
    if (event->kind == RV_EVENT_TOKEN && event->n_generated == 1) begun = clock();
    return 0;
}

/* Tokens behind the first a second of CPU time; below 0: failed. */
static double rate(rv_session *s, rv_grammar *g, int way, int n, uint64_t seed, rv_error *err)
{
    rv_message ask = {.role = "user", .content = "List many products of a shop as JSON."};
    rv_chat chat = {.size = sizeof chat, .messages = &ask, .n_messages = 1};
    rv_sampling how = {
        .size = sizeof how, .seed = seed, .temperature = 1, .top_p = 1, .repetition_penalty = 1};
    rv_generate_options o = {.size = sizeof o,
                             .sampling = &how,
                             .max_tokens = n,
                             .ignore_eos = 1,
                             .draft = RV_DRAFT_OFF,
                             .on_event = on_event,
                             .grammar = way == FREE ? NULL : g,
                             .mask = way == HELD ? change_nothing : NULL};
    rv_answer *a = NULL;
    if (rv_session_chat(s, &chat, &o, &a, err)) return -1;
    double seconds = (double)(clock() - begun) / CLOCKS_PER_SEC;
    double tokens = (double)a->n_ids - 1;
    rv_free(a);
    return seconds > 0 ? tokens / seconds : 0;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

int main(int argc, char **argv)
{
    enum { MOST = 99 };
    static const char *const names[N_WAYS] = {"free", "held", "forced"};
    int n = argc > 2 ? atoi(argv[2]) : 200, rounds = argc > 3 ? atoi(argv[3]) : 5;
    double rates[N_WAYS][MOST];
    rv_error err = {0};
    rv_runtime *rt = NULL;
    rv_model *m = NULL;
    rv_session *s = NULL;
    rv_grammar *g = NULL;
    if (argc < 2 || n < 2 || rounds < 1 || rounds > MOST)
        return fprintf(stderr, "usage: constrained MODEL [TOKENS [ROUNDS]]\n"), 2;
    rv_grammar_options form = {.size = sizeof form, .max_blanks = 8, .canonical = 1};
    rv_session_options so = {.size = sizeof so, .n_context = n + 256};
    bool ok = !rv_runtime_new(&rt, NULL, &err) && !rv_model_open(&m, rt, argv[1], NULL, &err) &&
              !rv_session_new(&s, m, &so, &err) &&
              !rv_grammar_new(&g, m, RV_GRAMMAR_SCHEMA, schema, strlen(schema), &form, &err);
    for (int r = -1; r < rounds && ok; r++) /* the first round warms up */
        for (int way = 0; way < N_WAYS && ok; way++) {
            double x = rate(s, g, way, n, (uint64_t)r + 10, &err);
            ok = x >= 0;
            if (r >= 0) rates[way][r] = x;
        }
    for (int way = 0; way < N_WAYS && ok; way++) {
        qsort(rates[way], (size_t)rounds, sizeof **rates, by_value);
        printf("%-7s %8.2f tokens a second of CPU, %.3f of free\n", names[way],
               rates[way][rounds / 2], rates[way][rounds / 2] / rates[FREE][rounds / 2]);
    }
    if (!ok) fprintf(stderr, "constrained: %s\n", err.text);
    rv_grammar_free(&g);
    rv_session_free(&s);
    rv_model_close(&m);
    rv_runtime_free(&rt);
    return !ok;
}
