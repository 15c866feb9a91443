/* multi_turn.c - a conversation of two turns in one session.
 *
 *   multi_turn MODEL [FIRST SECOND]
 *
 * Each turn renders the whole conversation anew. The session compares the tokens with those it
 * holds and computes only what is new: n_reused says how much of the prompt was still there. */
#include <ruvllm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Appends {"role": ..., "content": ...} to the list of messages; 0 when there was room. */
static int add_message(char *messages, size_t size, const char *role, const char *text)
{
    size_t at = strlen(messages);
    int n = snprintf(messages + at, size - at, "%s{\"role\": \"%s\", \"content\": \"",
                     at ? ", " : "", role);
    if (n < 0 || (size_t)n >= size - at) return 1;
    for (at += (size_t)n; *text; text++) {
        if (size - at < 10) return 1; /* the longest escape and the end */
        if ((unsigned char)*text < ' ')
            at += (size_t)snprintf(messages + at, size - at, "\\u%04x", (unsigned)*text);
        else if (*text == '"' || *text == '\\')
            at += (size_t)snprintf(messages + at, size - at, "\\%c", *text);
        else
            messages[at++] = *text;
    }
    if (size - at < 3) return 1;
    memcpy(messages + at, "\"}", 3);
    return 0;
}

/* The conversation so far to the next answer. */
static rv_status take_turn(rv_session *session, const rv_model *model, const char *messages,
                           rv_generated *answer, rv_error *err)
{
    char conversation[16384 + 64];
    char *prompt = NULL;
    int32_t *ids = NULL;
    size_t prompt_len, n_ids;
    rv_sampling greedy;
    rv_generate_options generate;

    snprintf(conversation, sizeof conversation,
             "{\"messages\": [%s], \"add_generation_prompt\": true}", messages);
    greedy = (rv_sampling){.size = sizeof greedy, .greedy = 1};
    generate = (rv_generate_options){.size = sizeof generate};
    generate.sampling = &greedy;
    generate.max_tokens = 60;

    rv_status st =
        rv_render_chat(model, conversation, strlen(conversation), NULL, &prompt, &prompt_len, err);
    if (!st) st = rv_tokenize(model, prompt, prompt_len, 0, &ids, &n_ids, err);
    if (!st) st = rv_session_generate(session, ids, n_ids, &generate, answer, err);
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
    char messages[16384] = "";
    int code = 1;

    if (argc != 2 && argc != 4) {
        fprintf(stderr, "usage: multi_turn MODEL [FIRST SECOND]\n");
        return 2;
    }
    const char *questions[] = {argc > 2 ? argv[2] : "Name a colour of the rainbow.",
                               argc > 2 ? argv[3] : "And another one?"};

    rv_runtime_options runtime_options;
    runtime_options = (rv_runtime_options){.size = sizeof runtime_options};
    if (rv_runtime_new(&runtime, &runtime_options, &err)) goto done;
    if (rv_model_open(&model, runtime, argv[1], 0, &err)) goto done;
    rv_session_options session_options;
    session_options = (rv_session_options){.size = sizeof session_options};
    if (rv_session_new(&session, model, &session_options, &err)) goto done;

    for (int turn = 0; turn < 2; turn++) {
        rv_answer *answer = NULL;
        rv_status st = RV_OK;
        int full = add_message(messages, sizeof messages, "user", questions[turn]);
        if (!full) st = take_turn(session, model, messages, &answer, &err);
        if (!full && !st) {
            printf("user: %s\nassistant: %s\nturn %d: %d prompt tokens, %d reused\n",
                   questions[turn], answer.text, turn + 1, answer.n_prompt, answer.n_reused);
            full = add_message(messages, sizeof messages, "assistant", answer.text);
        }
        rv_free(answer);
        if (full) snprintf(err.text, sizeof err.text, "the conversation has grown too long");
        if (full || st) goto done;
    }
    code = 0;

done:
    if (code) fprintf(stderr, "multi_turn: %s\n", err.text);
    rv_session_free(&session);
    rv_model_close(&model);
    rv_runtime_free(&runtime);
    return code;
}
