/* online_correction.c - a wrong answer, its correction, and the same question again.
 *
 *   online_correction MODEL [QUESTION CORRECT_ANSWER [OTHER_QUESTION]]
 *
 * A session with a learner asks it before every answer what was taught. A correction takes part
 * from the next answer on; a question that has nothing to do with it gets, token for token, the
 * answer of the model alone. */
#include <ruvllm_learn.h>
#include <stdio.h>

static rv_status ask(rv_session *session, const char *question, const char *title, rv_error *err)
{
    rv_answer *answer = NULL;
    rv_message message = {.role = "user", .content = question};
    rv_chat chat = {.size = sizeof chat, .messages = &message, .n_messages = 1};
    rv_sampling greedy = {.size = sizeof greedy, .greedy = 1};
    rv_generate_options options = {.size = sizeof options, .sampling = &greedy, .max_tokens = 40};
    rv_status st = rv_session_chat(session, &chat, &options, &answer, err);
    if (!st) printf("%-11s %s\n            %s\n", title, question, answer->text);
    rv_free(answer);
    return st;
}

int main(int argc, char **argv)
{
    rv_error err = {0};
    rv_runtime *runtime = NULL;
    rv_model *model = NULL;
    rv_session *session = NULL;
    rv_learner *learner = NULL;
    rv_adaptation *change = NULL;

    if (argc < 2 || argc == 3) {
        fprintf(stderr, "usage: online_correction MODEL [QUESTION CORRECT_ANSWER [OTHER]]\n");
        return 2;
    }
    const char *question = argc > 3 ? argv[2] : "What is Belmara's profession?";
    const char *right = argc > 3 ? argv[3] : "Belmara is a lighthouse keeper.";
    const char *other = argc > 4 ? argv[4] : "What is the capital of Italy?";

    rv_status st = rv_runtime_new(&runtime, NULL, &err);
    if (!st) st = rv_model_open(&model, runtime, argv[1], NULL, &err);
    /* Without a store and a directory everything is kept in memory, and gone with the learner;
     * ruvllm_store.h keeps it in a file. */
    if (!st) st = rv_learner_new(&learner, model, NULL, &err);
    rv_session_options options = {.size = sizeof options, .learner = learner};
    if (!st) st = rv_session_new(&session, model, &options, &err);

    if (!st) st = ask(session, question, "before", &err);
    if (!st) st = rv_learner_correct(learner, session, NULL, right, &change, &err);
    if (!st)
        printf("%-11s %s (%.1f ms, and %.1f ms of forward passes)\n", "correction", change->notes,
               change->latency_us / 1000, change->forward_us / 1000);
    if (!st) st = ask(session, question, "after", &err);
    if (!st) st = ask(session, other, "elsewhere", &err);
    if (!st) st = rv_learner_undo(learner, NULL, &err);
    if (!st) st = ask(session, question, "taken back", &err);

    if (st) fprintf(stderr, "online_correction: %s\n", err.text);
    rv_free(change);
    rv_session_free(&session);
    rv_learner_free(&learner);
    rv_model_close(&model);
    rv_runtime_free(&runtime);
    return st != RV_OK;
}
