/* batch.c - several answers at once in one engine.
 *
 *   batch MODEL [PROMPT...]
 *
 * Sessions of one engine share its memory, and one step computes a token for each of them: reading
 * the weights once for all is what makes a batch cheaper than its answers one by one. What a
 * session gets does not depend on its neighbours, bit for bit; the example checks that. */
#include <ruvllm.h>
#include <stdio.h>
#include <string.h>

enum { MAX_PROMPTS = 16, MAX_TOKENS = 32 };

/* Prints the answer; RV_E_STATE if it is not what the prompt gets alone. */
static rv_status compare(const rv_model *model, const char *prompt, const int32_t *ids,
                         size_t n_ids, const rv_generate_options *options, const rv_answer *batched,
                         rv_error *err)
{
    rv_session *session = NULL;
    rv_answer *alone = NULL;
    rv_status st = rv_session_new(&session, model, NULL, err);
    if (!st) st = rv_session_generate(session, ids, n_ids, options, &alone, err);
    if (!st) {
        int equal = batched->n_ids == alone->n_ids &&
                    !memcmp(batched->ids, alone->ids, alone->n_ids * sizeof *alone->ids);
        printf("%s%s\n%zu tokens, %s\n", prompt, batched->text, batched->n_ids,
               equal ? "equal to alone" : "DIFFERENT from alone");
        if (!equal) {
            snprintf(err->text, sizeof err->text, "an answer depends on the batch");
            st = RV_E_STATE;
        }
    }
    rv_free(alone);
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
    size_t n_ids[MAX_PROMPTS], total = 0, n_running = 0, n_steps = 0, n_tokens = 0;

    if (argc < 2 || n > MAX_PROMPTS) {
        fprintf(stderr, "usage: batch MODEL [PROMPT...]   (at most %d prompts)\n", MAX_PROMPTS);
        return 2;
    }
    rv_sampling greedy = {.size = sizeof greedy, .greedy = 1};
    rv_generate_options options = {
        .size = sizeof options, .sampling = &greedy, .max_tokens = MAX_TOKENS};

    rv_status st = rv_runtime_new(&runtime, NULL, &err);
    if (!st) st = rv_model_open(&model, runtime, argv[1], NULL, &err);
    for (int i = 0; !st && i < n; i++) {
        st = rv_tokenize(model, prompts[i], strlen(prompts[i]), RV_TOKENIZE_BOS, &ids[i], &n_ids[i],
                         &err);
        total += n_ids[i] + MAX_TOKENS;
    }

    /* One engine with room for all of them. Each session may waste a part of a page. */
    rv_engine_options engine_options = {.size = sizeof engine_options,
                                        .n_tokens = (int)total + 64 * n};
    if (!st) st = rv_engine_new(&engine, model, &engine_options, &err);

    /* Start an answer on each session: nothing is computed yet. Then each advance is one step for
     * all that are running. */
    for (int i = 0; !st && i < n; i++) {
        rv_session_options session_options = {.size = sizeof session_options, .engine = engine};
        st = rv_session_new(&sessions[i], model, &session_options, &err);
        if (!st) st = rv_session_start(sessions[i], ids[i], n_ids[i], &options, &err);
    }
    if (!st) do {
            st = rv_engine_advance(engine, &n_running, &err);
            n_steps++;
        } while (!st && n_running);

    for (int i = 0; !st && i < n; i++) {
        rv_answer *answer = NULL;
        st = rv_session_finish(sessions[i], &answer, &err);
        if (!st) st = compare(model, prompts[i], ids[i], n_ids[i], &options, answer, &err);
        n_tokens += answer ? answer->n_ids : 0;
        rv_free(answer);
    }
    if (st)
        fprintf(stderr, "batch: %s\n", err.text);
    else
        printf("%d answers, %zu tokens, %zu steps\n", n, n_tokens, n_steps);
    for (int i = 0; i < n; i++) {
        rv_session_free(&sessions[i]);
        rv_free(ids[i]);
    }
    rv_engine_free(&engine);
    rv_model_close(&model);
    rv_runtime_free(&runtime);
    return st != RV_OK;
}
