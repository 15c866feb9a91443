/* streaming.c - prints an answer as it is made, and stops it after N tokens from inside.
 *
 *   streaming MODEL [N [PROMPT]]
 *
 * A callback gets an event for every token and one when the answer is done. The text of a token
 * comes as soon as it is certain: a character that takes several tokens arrives with its last one.
 * Answering anything but 0 cancels; what was made until then is still handed over. */
#include <ruvllm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct watch {
    int n_tokens, limit;
} watch;

static int on_event(void *ctx, const rv_event *event)
{
    watch *w = ctx;
    switch (event->kind) {
    case RV_EVENT_TOKEN:
        if (fwrite(event->text, 1, event->text_len, stdout) != event->text_len || fflush(stdout))
            return 1;                      /* nobody listens any more */
        if (event->id >= 0) w->n_tokens++; /* -1: only text that was held back */
        return w->n_tokens >= w->limit;
    case RV_EVENT_DONE:
        fprintf(stderr, "\ndone: %s after %d tokens, prompt of %d in %.3f s, answer in %.3f s\n",
                rv_finish_name(event->finish), event->n_generated, event->n_prompt,
                event->prompt_seconds, event->seconds);
        return 0;
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
    int code = 1;

    if (argc < 2) {
        fprintf(stderr, "usage: streaming MODEL [N [PROMPT]]\n");
        return 2;
    }
    watch w = {.limit = argc > 2 ? (int)strtol(argv[2], NULL, 10) : 20};
    const char *prompt = argc > 3 ? argv[3] : "Once upon a time";

    rv_runtime_options runtime_options;
    runtime_options = (rv_runtime_options){.size = sizeof runtime_options};
    if (rv_runtime_new(&runtime, &runtime_options, &err)) goto done;
    if (rv_model_open(&model, runtime, argv[1], 0, &err)) goto done;
    rv_session_options session_options;
    session_options = (rv_session_options){.size = sizeof session_options};
    if (rv_session_new(&session, model, &session_options, &err)) goto done;

    /* A text to go on with, no question: it begins with the model's own beginning-of-text token. */
    if (rv_tokenize(model, prompt, strlen(prompt), RV_TOKENIZE_BOS, &ids, &n_ids, &err)) goto done;

    /* The default sampling: temperature 0.7, top-p 0.9. The same seed gives the same text. */
    rv_sampling sampling;
    sampling = (rv_sampling){.size = sizeof sampling};
    sampling.seed = 7;
    rv_generate_options generate;
    generate = (rv_generate_options){.size = sizeof generate};
    generate.sampling = &sampling;
    generate.on_event = on_event;
    generate.ctx = &w;
    printf("%s", prompt);
    if (rv_session_generate(session, ids, n_ids, &generate, &answer, &err)) goto done;

    printf("\nfinish: %s, tokens: %zu\n", rv_finish_name(answer.finish), answer.n_ids);
    code = 0;

done:
    if (code) fprintf(stderr, "streaming: %s\n", err.text);
    rv_free(answer);
    rv_free(ids);
    rv_session_free(&session);
    rv_model_close(&model);
    rv_runtime_free(&runtime);
    return code;
}
