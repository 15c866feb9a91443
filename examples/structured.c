/* structured.c - reads facts out of a text as JSON of a given form.
 *
 *   structured MODEL [TEXT]
 *
 * A grammar is made once from a JSON Schema and can be used for any number of answers: none of them
 * can be anything but JSON that satisfies the schema. Only an answer that is cut short
 * (RV_FINISH_LENGTH) is not complete. */
#include <ruvllm.h>
#include <ruvllm_grammar.h>
#include <stdio.h>
#include <string.h>

static const char schema[] =
    "{\"type\": \"object\","
    " \"properties\": {"
    "   \"name\": {\"type\": \"string\", \"maxLength\": 40},"
    "   \"age\": {\"type\": \"integer\", \"minimum\": 0, \"maximum\": 150},"
    "   \"mood\": {\"enum\": [\"happy\", \"sad\", \"unknown\"]}},"
    " \"required\": [\"name\", \"age\", \"mood\"],"
    " \"additionalProperties\": false}";

int main(int argc, char **argv)
{
    rv_error err = {0};
    rv_runtime *runtime = NULL;
    rv_model *model = NULL;
    rv_session *session = NULL;
    rv_grammar *grammar = NULL;
    rv_answer *answer = NULL;
    char question[1024];

    if (argc < 2) {
        fprintf(stderr, "usage: structured MODEL [TEXT]\n");
        return 2;
    }
    snprintf(question, sizeof question,
             "Give name, age and mood of the person as a JSON object. Text: %s",
             argc > 2 ? argv[2] : "Ann turned 34 yesterday and could not stop smiling.");
    rv_message ask = {.role = "user", .content = question};
    rv_chat chat = {.size = sizeof chat, .messages = &ask, .n_messages = 1};

    /* White space in a row is limited, so that a model cannot go on with nothing else. */
    rv_grammar_options form = {.size = sizeof form, .max_blanks = 8, .canonical = 1};
    rv_sampling greedy = {.size = sizeof greedy, .greedy = 1};

    rv_status st = rv_runtime_new(&runtime, NULL, &err);
    if (!st) st = rv_model_open(&model, runtime, argv[1], NULL, &err);
    if (!st) st = rv_session_new(&session, model, NULL, &err);
    if (!st)
        st =
            rv_grammar_new(&grammar, model, RV_GRAMMAR_SCHEMA, schema, strlen(schema), &form, &err);
    rv_generate_options options = {
        .size = sizeof options, .sampling = &greedy, .max_tokens = 200, .grammar = grammar};
    if (!st) st = rv_session_chat(session, &chat, &options, &answer, &err);
    if (st)
        fprintf(stderr, "structured: %s\n", err.text);
    else
        printf("%s\n", answer->text);

    rv_free(answer);
    rv_grammar_free(&grammar);
    rv_session_free(&session);
    rv_model_close(&model);
    rv_runtime_free(&runtime);
    return st != RV_OK;
}
