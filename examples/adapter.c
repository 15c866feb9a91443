/* adapter.c - the same prompt without and with a LoRA adapter.
 *
 *   adapter MODEL ADAPTER [SCALE [PROMPT]]
 *
 * ADAPTER is a PEFT directory or a GGUF adapter file made for MODEL. The model's weights do not
 * change: sessions name the adapters they want, so both answers come from one model in memory, and
 * a session without adapters gives exactly what it would give had none been loaded. */
#include <ruvllm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Continues the prompt in a session of its own; adapters may be NULL. */
static rv_status answer(const rv_model *model, const rv_adapter_set *adapters, const char *prompt,
                        const char *title, rv_error *err)
{
    rv_session *session = NULL;
    rv_answer *a = NULL;
    int32_t *ids = NULL;
    size_t n_ids;
    rv_session_options with = {.size = sizeof with, .adapters = adapters};
    rv_sampling greedy = {.size = sizeof greedy, .greedy = 1};
    rv_generate_options options = {.size = sizeof options, .sampling = &greedy, .max_tokens = 24};

    rv_status st = rv_tokenize(model, prompt, strlen(prompt), RV_TOKENIZE_BOS, &ids, &n_ids, err);
    if (!st) st = rv_session_new(&session, model, &with, err);
    if (!st) st = rv_session_generate(session, ids, n_ids, &options, &a, err);
    if (!st) {
        printf("%s:", title);
        for (size_t i = 0; i < a->n_ids; i++) printf(" %d", (int)a->ids[i]);
        printf("\n%s\n", a->text);
    }
    rv_free(a);
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

    if (argc < 3) {
        fprintf(stderr, "usage: adapter MODEL ADAPTER [SCALE [PROMPT]]\n");
        return 2;
    }
    float scale = argc > 3 ? strtof(argv[3], NULL) : 1;
    const char *prompt = argc > 4 ? argv[4] : "Once upon a time";

    rv_status st = rv_runtime_new(&runtime, NULL, &err);
    if (!st) st = rv_model_open(&model, runtime, argv[1], NULL, &err);
    /* A set may hold several adapters, each with its scale; their changes add up. */
    if (!st) st = rv_adapter_load(&adapter, model, argv[2], &err);
    rv_adapter_use use = {.adapter = adapter, .scale = scale};
    if (!st) st = rv_adapter_set_new(&set, model, &use, 1, &err);

    if (!st) st = answer(model, NULL, prompt, "without", &err);
    if (!st) st = answer(model, set, prompt, "with", &err);
    if (!st) st = answer(model, NULL, prompt, "without again", &err);

    if (st) fprintf(stderr, "adapter: %s\n", err.text);
    rv_adapter_set_free(&set);
    rv_adapter_free(&adapter);
    rv_model_close(&model);
    rv_runtime_free(&runtime);
    return st != RV_OK;
}
