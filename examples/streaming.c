/* streaming.c - prints an answer as it is generated, and cancels it after N tokens from inside.
 *
 *   streaming MODEL [N [PROMPT]]
 *
 * A callback gets an event while the prompt is read, one for every token and one when the answer is
 * done. The text of a token comes as soon as it is certain: a character that takes several tokens
 * arrives with its last one. */
#include <ruvllm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct watch {
    int n_tokens, limit;
} watch;

/* Returns anything but 0 to cancel. */
static int on_event(void *ctx, const rv_event *event)
{
    watch *w = ctx;
    switch (event->kind) {
    case RV_EVENT_PROMPT: fprintf(stderr, "read %d of %d\n", event->n_done, event->n_prompt); break;
    case RV_EVENT_TOKEN:
        if (fwrite(event->text, 1, event->text_len, stdout) != event->text_len || fflush(stdout))
            return 1;                      /* nobody is listening any more */
        if (event->id >= 0) w->n_tokens++; /* -1: only text that was held back */
        return w->n_tokens >= w->limit;
    case RV_EVENT_DONE:
        fprintf(stderr, "\ndone: %s after %d tokens, prompt of %d in %.3f s, answer in %.3f s\n",
                rv_finish_name(event->finish), event->n_generated, event->n_prompt,
                event->prompt_seconds, event->seconds);
        break;
    }
    return 0;
}

int main(int argc, char **argv)
{
    rv_error err = {0};
    rv_runtime *runtime = NULL;
    rv_model *model = NULL;
    rv_session *session = NULL;
    rv_answer *answer = NULL;
    int32_t *ids = NULL;
    size_t n_ids;

    if (argc < 2) {
        fprintf(stderr, "usage: streaming MODEL [N [PROMPT]]\n");
        return 2;
    }
    watch w = {.limit = argc > 2 ? (int)strtol(argv[2], NULL, 10) : 20};
    const char *prompt = argc > 3 ? argv[3] : "Once upon a time";

    /* The default sampling: temperature 0.7, top-p 0.9. The same seed gives the same text. */
    rv_sampling sampling = {.size = sizeof sampling, .seed = 7};
    rv_generate_options options = {
        .size = sizeof options, .sampling = &sampling, .on_event = on_event, .ctx = &w};

    rv_status st = rv_runtime_new(&runtime, NULL, &err);
    if (!st) st = rv_model_open(&model, runtime, argv[1], NULL, &err);
    if (!st) st = rv_session_new(&session, model, NULL, &err);
    /* A text to continue, not a question: it begins with the model's beginning-of-text token. */
    if (!st) st = rv_tokenize(model, prompt, strlen(prompt), RV_TOKENIZE_BOS, &ids, &n_ids, &err);
    if (!st) {
        printf("%s", prompt);
        st = rv_session_generate(session, ids, n_ids, &options, &answer, &err);
    }
    if (st)
        fprintf(stderr, "streaming: %s\n", err.text);
    else
        printf("\nfinish: %s, tokens: %zu\n", rv_finish_name(answer->finish), answer->n_ids);
    rv_free(answer);
    rv_free(ids);
    rv_session_free(&session);
    rv_model_close(&model);
    rv_runtime_free(&runtime);
    return st != RV_OK;
}
