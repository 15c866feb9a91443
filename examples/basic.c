/* basic.c - asks a model one question and prints the answer.
 *
 *   basic MODEL [QUESTION]
 *
 * The four steps of every program: a runtime (the machine), a model (the file), a session (a
 * timeline of tokens), an answer. Every function that can fail returns 0 or a status, and says in
 * an rv_error what went wrong. */
#include <ruvllm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Conversations are given as JSON, so a text must be written as a JSON string. */
static char *json_string(const char *text)
{
    char *out = malloc(6 * strlen(text) + 3), *p = out;
    if (!out) return NULL;
    *p++ = '"';
    for (; *text; text++) {
        if (*text == '"' || *text == '\\') *p++ = '\\';
        if ((unsigned char)*text < ' ')
            p += snprintf(p, 7, "\\u%04x", (unsigned)*text);
        else
            *p++ = *text;
    }
    *p++ = '"';
    *p = 0;
    return out;
}

int main(int argc, char **argv)
{
    rv_error err = {0};
    rv_runtime *runtime = NULL;
    rv_model *model = NULL;
    rv_session *session = NULL;
    rv_answer *answer = NULL;
    char *quoted = NULL, *conversation = NULL, *prompt = NULL;
    size_t prompt_len, n_ids;
    int32_t *ids = NULL;
    int code = 1;

    if (argc < 2) {
        fprintf(stderr, "usage: basic MODEL [QUESTION]\n");
        return 2;
    }

    /* The machine: its threads and instruction set. The defaults take all of it. */
    rv_runtime_options runtime_options;
    runtime_options = (rv_runtime_options){.size = sizeof runtime_options};
    if (rv_runtime_new(&runtime, &runtime_options, &err)) goto done;

    /* The model: a .gguf file or a directory with config.json, tokenizer.json, *.safetensors. */
    if (rv_model_open(&model, runtime, argv[1], 0, &err)) goto done;

    /* The question, laid out as this model was taught to see one: its chat template does that. */
    quoted = json_string(argc > 2 ? argv[2] : "Name the capital city of France.");
    size_t size = (quoted ? strlen(quoted) : 0) + 100;
    conversation = malloc(size);
    if (!quoted || !conversation) {
        snprintf(err.text, sizeof err.text, "out of memory");
        goto done;
    }
    snprintf(conversation, size,
             "{\"messages\": [{\"role\": \"user\", \"content\": %s}], "
             "\"add_generation_prompt\": true}",
             quoted);
    if (rv_render_chat(model, conversation, strlen(conversation), NULL, &prompt, &prompt_len, &err))
        goto done;

    /* Models read numbers, not letters. */
    if (rv_tokenize(model, prompt, prompt_len, 0, &ids, &n_ids, &err)) goto done;

    /* The session keeps what was computed, so that a next answer can build on it. */
    rv_session_options session_options;
    session_options = (rv_session_options){.size = sizeof session_options};
    if (rv_session_new(&session, model, &session_options, &err)) goto done;

    /* The answer: at most 100 tokens, the most likely one each time. */
    rv_sampling greedy;
    greedy = (rv_sampling){.size = sizeof greedy, .greedy = 1};
    rv_generate_options generate;
    generate = (rv_generate_options){.size = sizeof generate};
    generate.sampling = &greedy;
    generate.max_tokens = 100;
    if (rv_session_generate(session, ids, n_ids, &generate, &answer, &err)) goto done;

    printf("%s\n", answer.text);
    fprintf(stderr, "%d prompt tokens, %zu of answer, ended by %s\n", answer.n_prompt, answer.n_ids,
            rv_finish_name(answer.finish));
    code = 0;

done:
    if (code) fprintf(stderr, "basic: %s\n", err.text);
    /* All of these accept what was never made, and may come in any order. */
    rv_free(answer);
    rv_session_free(&session);
    rv_free(ids);
    rv_free(prompt);
    rv_model_close(&model);
    rv_runtime_free(&runtime);
    free(conversation);
    free(quoted);
    return code;
}
