/* online_correction.c - a wrong answer, its correction, and the same question again.
 *
 *   online_correction MODEL [QUESTION CORRECT_ANSWER [OTHER_QUESTION]]
 *
 * rv_learner_begin stands before every answer: it decides what of the things taught takes part in
 * it. A correction takes part from the next one on; a question that has to do with nothing taught
 * gets, token for token, the answer of the model alone. */
#include <ruvllm.h>
#include <stdio.h>
#include <string.h>

/* A conversation of one question, as JSON. 0: it fits. */
static int conversation_of(const char *question, char *out, size_t size)
{
    size_t at = (size_t)snprintf(out, size, "{\"messages\":[{\"role\":\"user\",\"content\":\"");
    for (; *question && at + 8 < size; question++) {
        if (*question == '"' || *question == '\\') out[at++] = '\\';
        out[at++] = (unsigned char)*question < ' ' ? ' ' : *question;
    }
    int n = snprintf(out + at, size - at, "\"}],\"add_generation_prompt\":true}");
    return *question || n < 0 || (size_t)n >= size - at;
}

/* learner NULL: the model alone. */
static rv_status ask(rv_session *session, rv_learner *learner, const rv_model *model,
                     const char *question, const char *title, rv_error *err)
{
    char conversation[4096];
    char *prompt = NULL;
    int32_t *ids = NULL;
    size_t prompt_len, n_ids;
    rv_answer *answer = NULL;
    rv_learn_plan plan = {0};
    rv_sampling greedy;
    rv_generate_options generate;

    greedy = (rv_sampling){.size = sizeof greedy, .greedy = 1};
    generate = (rv_generate_options){.size = sizeof generate};
    generate.sampling = &greedy;
    generate.max_tokens = 40;
    if (conversation_of(question, conversation, sizeof conversation)) return RV_E_CONFIG;

    rv_status st = RV_OK;
    if (learner)
        st = rv_learner_begin(learner, session, conversation, strlen(conversation), &plan, err);
    if (!st)
        st = rv_render_chat(model, conversation, strlen(conversation), NULL, &prompt, &prompt_len,
                            err);
    if (!st) st = rv_tokenize(model, prompt, prompt_len, 0, &ids, &n_ids, err);
    if (!st) st = rv_session_generate(session, ids, n_ids, &generate, &answer, err);
    if (!st)
        printf("%-11s %s\n            %s%s\n", title, question, answer.text,
               plan.slot ? "   [spoken from what was taught]" : "");
    rv_free(answer);
    rv_free(prompt);
    rv_free(ids);
    return st;
}

int main(int argc, char **argv)
{
    rv_error err = {0};
    rv_runtime *runtime = NULL;
    rv_model *model = NULL;
    rv_session *session = NULL;
    rv_learner *learner = NULL;
    rv_adaptation change;
    int code = 1;

    if (argc < 2 || argc == 3) {
        fprintf(stderr, "usage: online_correction MODEL [QUESTION CORRECT_ANSWER [OTHER]]\n");
        return 2;
    }
    const char *question = argc > 3 ? argv[2] : "What is Belmara's profession?";
    const char *right = argc > 3 ? argv[3] : "Belmara is a lighthouse keeper.";
    const char *other = argc > 4 ? argv[4] : "What is the capital of Italy?";

    if (rv_runtime_new(&runtime, NULL, &err)) goto done;
    if (rv_model_open(&model, runtime, argv[1], 0, &err)) goto done;
    if (rv_session_new(&session, model, NULL, &err)) goto done;
    /* Without a store and a directory everything is kept in memory, and gone with the learner. */
    if (rv_learner_new(&learner, model, NULL, &err)) goto done;

    if (ask(session, learner, model, question, "before", &err)) goto done;
    if (rv_learner_correct(learner, session, NULL, right, &change, &err)) goto done;
    printf("%-11s %s (%.1f ms, and %.1f ms of forward passes)\n", "correction", change.notes,
           change.latency_us / 1000, change.forward_us / 1000);
    if (ask(session, learner, model, question, "after", &err)) goto done;
    if (ask(session, learner, model, other, "elsewhere", &err)) goto done;
    if (rv_learner_undo(learner, &change, &err)) goto done;
    if (ask(session, learner, model, question, "taken back", &err)) goto done;
    code = 0;

done:
    if (code) fprintf(stderr, "online_correction: %s\n", err.text);
    rv_session_free(&session);
    rv_learner_free(&learner);
    rv_model_close(&model);
    rv_runtime_free(&runtime);
    return code;
}
