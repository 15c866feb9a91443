/* multi_turn.c - a conversation of two turns in one session.
 *
 *   multi_turn MODEL [FIRST SECOND]
 *
 * Each turn passes the whole conversation. The session compares it with what it has computed and
 * computes only what is new: n_reused says how much of the prompt was still there. */
#include <ruvllm.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    rv_error err = {0};
    rv_runtime *runtime = NULL;
    rv_model *model = NULL;
    rv_session *session = NULL;
    rv_answer *answers[2] = {0};

    if (argc != 2 && argc != 4) {
        fprintf(stderr, "usage: multi_turn MODEL [FIRST SECOND]\n");
        return 2;
    }
    rv_message messages[] = {{"user", argc > 2 ? argv[2] : "Name a colour of the rainbow.", NULL},
                             {"assistant", NULL, NULL},
                             {"user", argc > 2 ? argv[3] : "And another one?", NULL}};
    rv_sampling greedy = {.size = sizeof greedy, .greedy = 1};
    rv_generate_options options = {.size = sizeof options, .sampling = &greedy, .max_tokens = 60};

    rv_status st = rv_runtime_new(&runtime, NULL, &err);
    if (!st) st = rv_model_open(&model, runtime, argv[1], NULL, &err);
    if (!st) st = rv_session_new(&session, model, NULL, &err);
    for (size_t turn = 0; !st && turn < 2; turn++) {
        rv_chat chat = {.size = sizeof chat, .messages = messages, .n_messages = 2 * turn + 1};
        st = rv_session_chat(session, &chat, &options, &answers[turn], &err);
        if (st) break;
        printf("user: %s\nassistant: %s\nturn %zu: %d prompt tokens, %d reused\n",
               messages[2 * turn].content, answers[turn]->text, turn + 1, answers[turn]->n_prompt,
               answers[turn]->n_reused);
        messages[1].content = answers[0]->text;
    }
    if (st) fprintf(stderr, "multi_turn: %s\n", err.text);
    rv_free(answers[0]);
    rv_free(answers[1]);
    rv_session_free(&session);
    rv_model_close(&model);
    rv_runtime_free(&runtime);
    return st != RV_OK;
}
