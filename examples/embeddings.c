/* embeddings.c - how near three texts are to each other in meaning.
 *
 *   embeddings MODEL [TEXT TEXT TEXT]
 *
 * An embedding is a point for a text: the model's last hidden states, pooled as the model declares
 * (or their mean) and scaled to length 1. The dot product of two is the cosine of the angle between
 * them: 1 for the same direction. Works with every model; those made for it do it best. */
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
    /* WRAP: with the tokens the model's own rules put around a text */
    rv_status st = rv_tokenize(model, text, strlen(text), RV_TOKENIZE_WRAP, &ids, &n_ids, err);
    if (!st) st = rv_engine_embed(engine, ids, n_ids, NULL, out, err);
    rv_free(ids);
    return st;
}

int main(int argc, char **argv)
{
    rv_error err = {0};
    rv_runtime *runtime = NULL;
    rv_model *model = NULL;
    rv_engine *engine = NULL;
    float *points = NULL;
    size_t n = 0;

    if (argc != 2 && argc != 2 + N_TEXTS) {
        fprintf(stderr, "usage: embeddings MODEL [TEXT TEXT TEXT]\n");
        return 2;
    }
    const char *texts[N_TEXTS] = {"The cat sleeps on the sofa.",
                                  "A kitten is napping on the couch.",
                                  "Interest rates rose by a quarter point."};
    for (int i = 0; i < N_TEXTS && argc > 2; i++) texts[i] = argv[2 + i];

    rv_status st = rv_runtime_new(&runtime, NULL, &err);
    if (!st) st = rv_model_open(&model, runtime, argv[1], NULL, &err);
    /* No session is needed: an embedding leaves no past behind. The engine has the memory. */
    if (!st) st = rv_engine_new(&engine, model, NULL, &err);
    if (!st) {
        n = (size_t)rv_model_get_info(model)->n_embd;
        points = calloc(N_TEXTS * n, sizeof *points);
        if (!points) st = RV_E_NOMEM;
    }
    for (size_t i = 0; !st && i < N_TEXTS; i++) {
        st = embed(engine, model, texts[i], points + i * n, &err);
        printf("%zu: %s\n", i + 1, texts[i]);
    }
    for (size_t i = 0; !st && i < N_TEXTS; i++) {
        for (size_t k = 0; k < N_TEXTS; k++) {
            double cosine = 0;
            for (size_t j = 0; j < n; j++)
                cosine += (double)points[i * n + j] * (double)points[k * n + j];
            printf(k ? " %7.4f" : "%7.4f", cosine);
        }
        printf("\n");
    }
    if (st) fprintf(stderr, "embeddings: %s\n", err.text[0] ? err.text : rv_status_text(st));
    free(points);
    rv_engine_free(&engine);
    rv_model_close(&model);
    rv_runtime_free(&runtime);
    return st != RV_OK;
}
