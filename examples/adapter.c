/* adapter.c - the same prompt without and with a LoRA adapter.
 *
 *   adapter MODEL ADAPTER [SCALE [PROMPT]]
 *
 * ADAPTER is a PEFT directory or a GGUF adapter file made for MODEL. The model's weights do not
 * change: an adapter is named by the sessions that want it, so both answers come from one model in
 * memory, and a session without adapters gives exactly what it would give had none been loaded. */
#include <ruvllm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Continues the prompt in a session of its own; adapters may be NULL. */
static rv_status answer(const rv_model *model, const rv_adapter_set *adapters, const char *prompt,
                        const char *title, rv_error *err)
{
    rv_session *session = NULL;
    rv_answer *g = NULL;
    int32_t *ids = NULL;
    size_t n_ids;
    rv_session_options session_options;
    rv_sampling greedy;
    rv_generate_options generate;

    session_options = (rv_session_options){.size = sizeof session_options};
    session_options.adapters = adapters;
    greedy = (rv_sampling){.size = sizeof greedy, .greedy = 1};
    generate = (rv_generate_options){.size = sizeof generate};
    generate.sampling = &greedy;
    generate.max_tokens = 24;

    rv_status st = rv_tokenize(model, prompt, strlen(prompt), RV_TOKENIZE_BOS, &ids, &n_ids, err);
    if (!st) st = rv_session_new(&session, model, &session_options, err);
    if (!st) st = rv_session_generate(session, ids, n_ids, &generate, &g, err);
    if (!st) {
        printf("%s:", title);
        for (size_t i = 0; i < g.n_ids; i++) printf(" %d", (int)g.ids[i]);
        printf("\n%s\n", g.text);
    }
    rv_free(g);
    rv_session_free(&session);
    rv_free(ids);
    return st;
}

int main(int argc, char **argv)
{
    rv_error err = {0};
    rv_runtime *runtime = NULL;
    rv_model *model = NULL;
    rv_adapter *adapter = NULL;
    rv_adapter_set *set = NULL;
    int code = 1;

    if (argc < 3) {
        fprintf(stderr, "usage: adapter MODEL ADAPTER [SCALE [PROMPT]]\n");
        return 2;
    }
    float scale = argc > 3 ? strtof(argv[3], NULL) : 1;
    const char *prompt = argc > 4 ? argv[4] : "Once upon a time";

    rv_runtime_options runtime_options;
    runtime_options = (rv_runtime_options){.size = sizeof runtime_options};
    if (rv_runtime_new(&runtime, &runtime_options, &err)) goto done;
    if (rv_model_open(&model, runtime, argv[1], 0, &err)) goto done;

    /* A set may hold several adapters, each with its scale; their changes add up. */
    if (rv_adapter_load(&adapter, model, argv[2], &err)) goto done;
    rv_adapter_use use = {.adapter = adapter, .scale = scale};
    if (rv_adapter_set_new(&set, model, &use, 1, &err)) goto done;

    if (answer(model, NULL, prompt, "without", &err)) goto done;
    if (answer(model, set, prompt, "with", &err)) goto done;
    if (answer(model, NULL, prompt, "without again", &err)) goto done;
    code = 0;

done:
    if (code) fprintf(stderr, "adapter: %s\n", err.text);
    rv_adapter_set_free(&set);
    rv_adapter_free(&adapter);
    rv_model_close(&model);
    rv_runtime_free(&runtime);
    return code;
}
