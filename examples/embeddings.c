/* embeddings.c - how near three texts are to each other in meaning.
 *
 *   embeddings MODEL [TEXT TEXT TEXT]
 *
 * An embedding is a point for a text: the model's last hidden states, pooled as the model declares
 * (or their mean) and brought to length 1. The dot product of two is the cosine of the angle
 * between them: 1 for the same direction. Works with every model; those made for it do it best. */
#include <ruvllm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_TEXTS = 3 };

static rv_status embed(rv_engine *engine, const rv_model *model, const char *text, float *out,
                       rv_error *err)
{
    int32_t *ids = NULL;
    size_t n_ids;
    rv_embed_options options;
    options = (rv_embed_options){.size = sizeof options};
    /* WRAP: with the tokens the model's own rules put around a text */
    rv_status st = rv_tokenize(model, text, strlen(text), RV_TOKENIZE_WRAP, &ids, &n_ids, err);
    if (!st) st = rv_engine_embed(engine, ids, n_ids, &options, out, err);
    rv_free(ids);
    return st;
}

int main(int argc, char **argv)
{
    rv_error err = {0};
    rv_runtime *runtime = NULL;
    rv_model *model = NULL;
    rv_engine *engine = NULL;
    float *points[N_TEXTS] = {0};
    int code = 1;

    if (argc != 2 && argc != 2 + N_TEXTS) {
        fprintf(stderr, "usage: embeddings MODEL [TEXT TEXT TEXT]\n");
        return 2;
    }
    const char *texts[N_TEXTS] = {"The cat sleeps on the sofa.",
                                  "A kitten is napping on the couch.",
                                  "Interest rates rose by a quarter point."};
    for (int i = 0; i < N_TEXTS && argc > 2; i++) texts[i] = argv[2 + i];

    rv_runtime_options runtime_options;
    runtime_options = (rv_runtime_options){.size = sizeof runtime_options};
    if (rv_runtime_new(&runtime, &runtime_options, &err)) goto done;
    if (rv_model_open(&model, runtime, argv[1], 0, &err)) goto done;
    rv_model_info info;
    if (rv_model_get_info(model, &info)) {
        snprintf(err.text, sizeof err.text, "no model");
        goto done;
    }

    /* No session is needed: an embedding leaves no past behind. The engine has the room to
     * compute. */
    rv_engine_options engine_options;
    engine_options = (rv_engine_options){.size = sizeof engine_options};
    if (rv_engine_new(&engine, model, &engine_options, &err)) goto done;

    for (int i = 0; i < N_TEXTS; i++) {
        points[i] = malloc((size_t)info.n_embd * sizeof *points[i]);
        if (!points[i]) {
            snprintf(err.text, sizeof err.text, "out of memory");
            goto done;
        }
        if (embed(engine, model, texts[i], points[i], &err)) goto done;
        printf("%d: %s\n", i + 1, texts[i]);
    }
    for (int i = 0; i < N_TEXTS; i++) {
        for (int k = 0; k < N_TEXTS; k++) {
            double cosine = 0;
            for (int j = 0; j < info.n_embd; j++)
                cosine += (double)points[i][j] * (double)points[k][j];
            printf(k ? " %7.4f" : "%7.4f", cosine);
        }
        printf("\n");
    }
    code = 0;

done:
    if (code) fprintf(stderr, "embeddings: %s\n", err.text);
    for (int i = 0; i < N_TEXTS; i++) free(points[i]);
    rv_engine_free(&engine);
    rv_model_close(&model);
    rv_runtime_free(&runtime);
    return code;
}
