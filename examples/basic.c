/* basic.c - asks a model one question and prints the answer.
 *
 *   basic MODEL [QUESTION]
 *
 * The four steps of every program: a runtime (the machine), a model (the file), a session (what was
 * said so far), an answer. Every function that can fail returns 0 or a status and says in an
 * rv_error what went wrong. */
#include <ruvllm.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    rv_error err = {0};
    rv_runtime *runtime = NULL;
    rv_model *model = NULL;
    rv_session *session = NULL;
    rv_answer *answer = NULL;

    if (argc < 2) {
        fprintf(stderr, "usage: basic MODEL [QUESTION]\n");
        return 2;
    }
    rv_message ask = {.role = "user",
                      .content = argc > 2 ? argv[2] : "Name the capital city of France."};
    rv_chat chat = {.size = sizeof chat, .messages = &ask, .n_messages = 1};

    /* At most 100 tokens, the most likely one each time. NULL would take the defaults. */
    rv_sampling greedy = {.size = sizeof greedy, .greedy = 1};
    rv_generate_options options = {.size = sizeof options, .sampling = &greedy, .max_tokens = 100};

    rv_status st = rv_runtime_new(&runtime, NULL, &err);
    if (!st) st = rv_model_open(&model, runtime, argv[1], NULL, &err);
    if (!st) st = rv_session_new(&session, model, NULL, &err);
    if (!st) st = rv_session_chat(session, &chat, &options, &answer, &err);
    if (st) {
        fprintf(stderr, "basic: %s\n", err.text);
    } else {
        printf("%s\n", answer->text);
        fprintf(stderr, "%d prompt tokens, %zu of answer, ended by %s\n", answer->n_prompt,
                answer->n_ids, rv_finish_name(answer->finish));
    }

    /* All of these accept what was never made, and may come in any order. */
    rv_free(answer);
    rv_session_free(&session);
    rv_model_close(&model);
    rv_runtime_free(&runtime);
    return st != RV_OK;
}
