/* micro_lora.c - scores that change the model while it answers.
 *
 *   micro_lora MODEL [EVENTS [QUESTION]]
 *
 * Answers are sampled, a rule of this program's own scores each (the share of short words), and
 * every score is one gradient step of a small adapter at the last layer, made of what was captured
 * while generating. Printed: the mean score before and after, and what a step cost. */
#include <ruvllm_learn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
static rv_status sample(rv_session *session, const char *question, uint64_t seed, double *score,
                        rv_error *err)
{
    rv_answer *answer = NULL;
    rv_message ask = {.role = "user", .content = question};
    rv_chat chat = {.size = sizeof chat, .messages = &ask, .n_messages = 1};
    rv_sampling sampling = {.size = sizeof sampling,
                            .seed = seed,
                            .temperature = 0.8f,
                            .top_p = 1,
                            .repetition_penalty = 1};
    rv_generate_options options = {.size = sizeof options, .sampling = &sampling, .max_tokens = 48};
    rv_status st = rv_session_chat(session, &chat, &options, &answer, err);
    *score = st ? 0 : score_of(answer->text);
    rv_free(answer);
    return st;
}

static rv_status mean_score(rv_session *session, const char *question, double *out, rv_error *err)
{
    enum { N = 16 };
    rv_status st = RV_OK;
    *out = 0;
    for (uint64_t i = 0; !st && i < N; i++) {
        double score;
        st = sample(session, question, 1000 + i, &score, err);
        *out += score / N;
    }
    return st;
}

int main(int argc, char **argv)
{
    rv_error err = {0};
    rv_runtime *runtime = NULL;
    rv_model *model = NULL;
    rv_session *session = NULL;
    rv_learner *learner = NULL;
    double before = 0, after = 0, slowest = 0, sum = 0;
    int n_events = argc > 2 ? (int)strtol(argv[2], NULL, 10) : 40, n_applied = 0;

    if (argc < 2) {
        fprintf(stderr, "usage: micro_lora MODEL [EVENTS [QUESTION]]\n");
        return 2;
    }
    const char *question = argc > 3 ? argv[3] : "What is a good hobby?";

    rv_status st = rv_runtime_new(&runtime, NULL, &err);
    if (!st) st = rv_model_open(&model, runtime, argv[1], NULL, &err);
    if (!st) st = rv_learner_new(&learner, model, NULL, &err);
    rv_session_options options = {.size = sizeof options, .learner = learner};
    if (!st) st = rv_session_new(&session, model, &options, &err);

    if (!st) st = mean_score(session, question, &before, &err);
    for (int i = 0; !st && i < n_events; i++) {
        double score;
        rv_adaptation *change = NULL;
        st = sample(session, question, (uint64_t)i, &score, &err);
        if (!st) st = rv_learner_score(learner, session, score, &change, &err);
        if (!st && change->applied) {
            n_applied++;
            sum += change->latency_us;
            if (change->latency_us > slowest) slowest = change->latency_us;
        }
        rv_free(change);
    }
    if (!st) st = mean_score(session, question, &after, &err);
    if (st) {
        fprintf(stderr, "micro_lora: %s\n", err.text);
    } else {
        printf(
            "%d scores, %d of them changed the adapter; a step %.0f us on average, %.0f at most\n",
            n_events, n_applied, n_applied ? sum / n_applied : 0, slowest);
        printf("mean score of 16 sampled answers: %.3f before, %.3f after\n", before, after);
    }
    rv_session_free(&session);
    rv_learner_free(&learner);
    rv_model_close(&model);
    rv_runtime_free(&runtime);
    return st != RV_OK;
}
