/* speculative.c - the same answer in fewer steps: the next tokens are guessed, and several checked
 * at once.
 *
 *   speculative MODEL [DRAFT]
 *
 * What followed the same words before is a good guess where a text is repeated with changes; a
 * smaller model with the same vocabulary (DRAFT) guesses new text too. Whatever is guessed, the
 * answer is the one without guesses, token for token, for greedy and for random answers alike. */
#include <ruvllm.h>
#include <stdio.h>
#include <string.h>

static const char text[] =
    "Repeat this text word for word, but write Anna instead of Tom: Tom went to the market in the "
    "morning. The market was full of people, and the people were full of joy. Tom bought three "
    "apples, two pears and a loaf of bread. Then he went home, put the apples, the pears and the "
    "loaf of bread on the table, and called his sister.";

/* Prints what it took; the answer is the caller's to free. */
static rv_status generate(rv_session *session, rv_session *draft, rv_draft how, rv_answer **answer,
                          rv_error *err)
{
    rv_message ask = {.role = "user", .content = text};
    rv_chat chat = {.size = sizeof chat, .messages = &ask, .n_messages = 1};
    rv_sampling greedy = {.size = sizeof greedy, .greedy = 1};
    rv_generate_options options = {.size = sizeof options,
                                   .sampling = &greedy,
                                   .max_tokens = 120,
                                   .draft = how,
                                   .draft_session = how == RV_DRAFT_OFF ? NULL : draft};
    rv_status st = rv_session_chat(session, &chat, &options, answer, err);
    if (!st)
        fprintf(stderr, "%s: %zu tokens in %.2f s, %d guessed, %d of them right\n",
                how == RV_DRAFT_OFF ? "plain" : "guessing", (*answer)->n_ids, (*answer)->seconds,
                (*answer)->n_guessed, (*answer)->n_right);
    return st;
}

int main(int argc, char **argv)
{
    rv_error err = {0};
    rv_runtime *runtime = NULL;
    rv_model *model = NULL, *small = NULL;
    rv_session *session = NULL, *draft = NULL;
    rv_answer *plain = NULL, *guessed = NULL;

    if (argc < 2) {
        fprintf(stderr, "usage: speculative MODEL [DRAFT]\n");
        return 2;
    }
    rv_status st = rv_runtime_new(&runtime, NULL, &err);
    if (!st) st = rv_model_open(&model, runtime, argv[1], NULL, &err);
    if (!st) st = rv_session_new(&session, model, NULL, &err);
    if (!st && argc > 2) st = rv_model_open(&small, runtime, argv[2], NULL, &err);
    if (!st && argc > 2) st = rv_session_new(&draft, small, NULL, &err);

    if (!st) st = generate(session, draft, RV_DRAFT_OFF, &plain, &err);
    if (!st) st = generate(session, draft, RV_DRAFT_NGRAM, &guessed, &err);
    if (st) {
        fprintf(stderr, "speculative: %s\n", err.text);
    } else {
        int same = plain->n_ids == guessed->n_ids &&
                   !memcmp(plain->ids, guessed->ids, plain->n_ids * sizeof *plain->ids);
        printf("%s\n", guessed->text);
        fprintf(stderr, "the answers are %s\n", same ? "equal" : "NOT equal");
        if (!same) st = RV_E_STATE;
    }

    rv_free(plain);
    rv_free(guessed);
    rv_session_free(&draft);
    rv_session_free(&session);
    rv_model_close(&small);
    rv_model_close(&model);
    rv_runtime_free(&runtime);
    return st != RV_OK;
}
