/* two_runtimes.c - two threads, each with a runtime of its own, at the same time.
 *
 *   two_runtimes MODEL [PROMPT PROMPT]
 *
 * A runtime computes for one thread at a time; runtimes know nothing of each other. An answer does
 * not depend on how many threads compute or what runs beside them, bit for bit, so those of the two
 * threads are compared with answers made one after the other. */
#include <pthread.h>
#include <ruvllm.h>
#include <stdio.h>
#include <string.h>

typedef struct job {
    const char *path, *prompt;
    int n_threads;
    rv_answer *answer; /* filled by run */
    rv_status status;
    rv_error err;
} job;

/* A thread makes and frees everything it needs. */
static void *run(void *ctx)
{
    job *j = ctx;
    rv_runtime *runtime = NULL;
    rv_model *model = NULL;
    rv_session *session = NULL;
    int32_t *ids = NULL;
    size_t n_ids;
    rv_runtime_options machine = {.size = sizeof machine, .n_threads = j->n_threads};
    rv_sampling greedy = {.size = sizeof greedy, .greedy = 1};
    rv_generate_options options = {.size = sizeof options, .sampling = &greedy, .max_tokens = 32};

    rv_status st = rv_runtime_new(&runtime, &machine, &j->err);
    if (!st) st = rv_model_open(&model, runtime, j->path, NULL, &j->err);
    if (!st)
        st = rv_tokenize(model, j->prompt, strlen(j->prompt), RV_TOKENIZE_BOS, &ids, &n_ids,
                         &j->err);
    if (!st) st = rv_session_new(&session, model, NULL, &j->err);
    if (!st) st = rv_session_generate(session, ids, n_ids, &options, &j->answer, &j->err);
    j->status = st;
    rv_free(ids);
    rv_session_free(&session);
    rv_model_close(&model);
    rv_runtime_free(&runtime);
    return NULL;
}

static int same(const rv_answer *a, const rv_answer *b)
{
    return a->n_ids == b->n_ids && !memcmp(a->ids, b->ids, a->n_ids * sizeof *a->ids);
}

int main(int argc, char **argv)
{
    if (argc != 2 && argc != 4) {
        fprintf(stderr, "usage: two_runtimes MODEL [PROMPT PROMPT]\n");
        return 2;
    }
    const char *prompts[] = {argc > 2 ? argv[2] : "Once upon a time",
                             argc > 2 ? argv[3] : "The meaning of life"};
    job together[2], alone[2];
    pthread_t threads[2];
    int code = 0, n_started = 0;

    for (int i = 0; i < 2; i++) {
        together[i] = (job){.path = argv[1], .prompt = prompts[i], .n_threads = 2};
        alone[i] = (job){.path = argv[1], .prompt = prompts[i], .n_threads = 1};
    }
    while (n_started < 2 && !pthread_create(&threads[n_started], NULL, run, &together[n_started]))
        n_started++;
    for (int i = 0; i < n_started; i++) pthread_join(threads[i], NULL);
    if (n_started < 2) {
        fprintf(stderr, "two_runtimes: cannot start a thread\n");
        code = 1;
    }
    for (int i = 0; !code && i < 2; i++) {
        run(&alone[i]);
        const job *failed = together[i].status ? &together[i] : alone[i].status ? &alone[i] : NULL;
        if (failed) {
            fprintf(stderr, "two_runtimes: %s\n", failed->err.text);
            code = 1;
        } else {
            int equal = same(together[i].answer, alone[i].answer);
            printf("%s%s\n%zu tokens, %s\n", prompts[i], together[i].answer->text,
                   together[i].answer->n_ids, equal ? "equal to alone" : "DIFFERENT from alone");
            if (!equal) code = 1;
        }
    }
    for (int i = 0; i < 2; i++) {
        rv_free(together[i].answer);
        rv_free(alone[i].answer);
    }
    return code;
}
