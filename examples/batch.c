/* batch.c - several answers at once in one engine.
 *
 *   batch MODEL [PROMPT...]
 *
 * Sessions of one engine share its memory, and one step computes a token for each of them: reading
 * the weights once for all is what makes a batch cheaper than its answers one by one. What a
 * session gets does not depend on its neighbours, bit for bit; the example checks that. */
#include <ruvllm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PROMPTS = 16, MAX_TOKENS = 32 };

static rv_status solo(const rv_model *model, const int32_t *ids, size_t n_ids,
                      const rv_generate_options *generate, rv_generated *out, rv_error *err)
{
    rv_session *session = NULL;
    rv_session_options options;
    options = (rv_session_options){.size = sizeof options};
    rv_status st = rv_session_new(&session, model, &options, err);
    if (!st) st = rv_session_generate(session, ids, n_ids, generate, out, err);
    rv_session_free(&session);
    return st;
}

int main(int argc, char **argv)
{
    const char *some[] = {"Once upon a time", "The capital of France is", "Two and two make",
                          "In the beginning"};
    const char *const *prompts = argc > 2 ? (const char *const *)argv + 2 : some;
    int n = argc > 2 ? argc - 2 : (int)(sizeof some / sizeof some[0]);
    rv_error err = {0};
    rv_runtime *runtime = NULL;
    rv_model *model = NULL;
    rv_engine *engine = NULL;
    rv_session *sessions[MAX_PROMPTS] = {0};
    int32_t *ids[MAX_PROMPTS] = {0};
    size_t n_ids[MAX_PROMPTS], total = 0, n_running, n_steps = 0;
    int code = 1;

    if (argc < 2 || n > MAX_PROMPTS) {
        fprintf(stderr, "usage: batch MODEL [PROMPT...]   (at most %d prompts)\n", MAX_PROMPTS);
        return 2;
    }

    rv_runtime_options runtime_options;
    runtime_options = (rv_runtime_options){.size = sizeof runtime_options};
    if (rv_runtime_new(&runtime, &runtime_options, &err)) goto done;
    if (rv_model_open(&model, runtime, argv[1], 0, &err)) goto done;
    for (int i = 0; i < n; i++) {
        if (rv_tokenize(model, prompts[i], strlen(prompts[i]), RV_TOKENIZE_BOS, &ids[i], &n_ids[i],
                        &err))
            goto done;
        total += n_ids[i] + MAX_TOKENS;
    }

    /* One engine with room for all of them. The room is handed out in pages of some tokens, so each
     * session may waste a part of one; 64 more for each is plenty. */
    rv_engine_options engine_options;
    engine_options = (rv_engine_options){.size = sizeof engine_options};
    engine_options.n_tokens = (int)total + 64 * n;
    if (rv_engine_new(&engine, model, &engine_options, &err)) goto done;

    rv_sampling greedy;
    greedy = (rv_sampling){.size = sizeof greedy, .greedy = 1};
    rv_generate_options generate;
    generate = (rv_generate_options){.size = sizeof generate};
    generate.sampling = &greedy;
    generate.max_tokens = MAX_TOKENS;

    /* Start an answer on each session: nothing is computed yet. */
    for (int i = 0; i < n; i++) {
        rv_session_options session_options;
        session_options = (rv_session_options){.size = sizeof session_options};
        session_options.engine = engine;
        if (rv_session_new(&sessions[i], model, &session_options, &err)) goto done;
        if (rv_session_start(sessions[i], ids[i], n_ids[i], &generate, &err)) goto done;
    }

    /* Each advance is one step for all that are under way. */
    do {
        if (rv_engine_advance(engine, &n_running, &err)) goto done;
        n_steps++;
    } while (n_running);

    size_t n_tokens = 0;
    for (int i = 0; i < n; i++) {
        rv_generated batched = {0}, alone = {0};
        rv_status st = rv_session_finish(sessions[i], &batched, &err);
        if (!st) st = solo(model, ids[i], n_ids[i], &generate, &alone, &err);
        int equal = !st && batched.n_ids == alone.n_ids &&
                    !memcmp(batched.ids, alone.ids, alone.n_ids * sizeof *alone.ids);
        if (!st)
            printf("%s%s\n%zu tokens, %s\n", prompts[i], batched.text, batched.n_ids,
                   equal ? "equal to alone" : "DIFFERENT from alone");
        if (!st && !equal) snprintf(err.text, sizeof err.text, "an answer depends on the batch");
        n_tokens += batched.n_ids;
        rv_free(batched);
        rv_free(alone);
        if (!equal) goto done;
    }
    printf("%d answers, %zu tokens, %zu steps\n", n, n_tokens, n_steps);
    code = 0;

done:
    if (code) fprintf(stderr, "batch: %s\n", err.text);
    for (int i = 0; i < n; i++) {
        rv_session_free(&sessions[i]);
        rv_free(ids[i]);
    }
    rv_engine_free(&engine);
    rv_model_close(&model);
    rv_runtime_free(&runtime);
    return code;
}
