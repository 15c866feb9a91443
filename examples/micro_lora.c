/* micro_lora.c - scores that change the model while it answers.
 *
 *   micro_lora MODEL [EVENTS [PROMPT]]
 *
 * Answers are sampled, a rule of this program's own scores each (the share of short words), and
 * every score is one gradient step of a small adapter at the last layer, made of what was captured
 * while generating. Printed: the mean score before and after, and what a step cost. */
#include <ruvllm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ANSWER = 48 };

typedef struct talk {
    rv_model *model;
    rv_session *session;
    rv_learner *learner;
    char conversation[2048];
    int32_t *ids;
    size_t n_ids;
} talk;

/* The share of words of at most four letters. */
static double score_of(const char *text)
{
    int n = 0, n_short = 0;
    while (*text) {
        text += strspn(text, " \n\t.,;:!?\"'()*-");
        size_t len = strcspn(text, " \n\t.,;:!?\"'()*-");
        n += len > 0;
        n_short += len > 0 && len <= 4;
        text += len;
    }
    return n ? (double)n_short / n : 0;
}

/* One sampled answer and its score. */
static rv_status sample(talk *t, uint64_t seed, double *score, rv_error *err)
{
    rv_answer *answer = NULL;
    rv_sampling sampling;
    rv_generate_options generate;
    sampling = (rv_sampling){.size = sizeof sampling, .greedy = 1};
    sampling.temperature = 0.8f;
    sampling.seed = seed;
    generate = (rv_generate_options){.size = sizeof generate};
    generate.sampling = &sampling;
    generate.max_tokens = MAX_ANSWER;
    rv_status st = rv_learner_begin(t->learner, t->session, t->conversation,
                                    strlen(t->conversation), NULL, err);
    if (!st) st = rv_session_generate(t->session, t->ids, t->n_ids, &generate, &answer, err);
    *score = st ? 0 : score_of(answer.text);
    rv_free(answer);
    return st;
}

static rv_status mean_score(talk *t, double *out, rv_error *err)
{
    enum { N = 16 };
    rv_status st = RV_OK;
    *out = 0;
    for (uint64_t i = 0; !st && i < N; i++) {
        double score;
        st = sample(t, 1000 + i, &score, err);
        *out += score / N;
    }
    return st;
}

int main(int argc, char **argv)
{
    rv_error err = {0};
    rv_runtime *runtime = NULL;
    talk t = {0};
    char *prompt = NULL;
    size_t prompt_len;
    double before, after, slowest = 0, sum = 0;
    int code = 1, n_events = argc > 2 ? (int)strtol(argv[2], NULL, 10) : 40, n_applied = 0;

    if (argc < 2) {
        fprintf(stderr, "usage: micro_lora MODEL [EVENTS [PROMPT]]\n");
        return 2;
    }
    const char *question = argc > 3 ? argv[3] : "What is a good hobby?";
    if (strpbrk(question, "\"\\\n") || strlen(question) > 1500) {
        fprintf(stderr, "micro_lora: the prompt goes into JSON as it is: no quotes, one line\n");
        return 2;
    }
    snprintf(t.conversation, sizeof t.conversation,
             "{\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}],"
             "\"add_generation_prompt\":true}",
             question);

    if (rv_runtime_new(&runtime, NULL, &err)) goto done;
    if (rv_model_open(&t.model, runtime, argv[1], 0, &err)) goto done;
    if (rv_session_new(&t.session, t.model, NULL, &err)) goto done;
    if (rv_learner_new(&t.learner, t.model, NULL, &err)) goto done;
    if (rv_render_chat(t.model, t.conversation, strlen(t.conversation), NULL, &prompt, &prompt_len,
                       &err))
        goto done;
    if (rv_tokenize(t.model, prompt, prompt_len, 0, &t.ids, &t.n_ids, &err)) goto done;

    if (mean_score(&t, &before, &err)) goto done;
    for (int i = 0; i < n_events; i++) {
        double score;
        rv_adaptation change;
        if (sample(&t, (uint64_t)i, &score, &err)) goto done;
        if (rv_learner_score(t.learner, t.session, score, &change, &err)) goto done;
        if (!change.applied) continue;
        n_applied++;
        sum += change.latency_us;
        if (change.latency_us > slowest) slowest = change.latency_us;
    }
    if (mean_score(&t, &after, &err)) goto done;
    printf("%d scores, %d of them changed the adapter; a step %.0f us on average, %.0f at most\n",
           n_events, n_applied, n_applied ? sum / n_applied : 0, slowest);
    printf("mean score of 16 sampled answers: %.3f before, %.3f after\n", before, after);
    code = 0;

done:
    if (code) fprintf(stderr, "micro_lora: %s\n", err.text);
    rv_free(prompt);
    rv_free(t.ids);
    rv_session_free(&t.session);
    rv_learner_free(&t.learner);
    rv_model_close(&t.model);
    rv_runtime_free(&runtime);
    return code;
}
