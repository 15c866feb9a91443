/* Cancelling in the middle of a step, and the events that tell how far a prompt is: the cancelled
 * session is as before the step, the others get the bits they get alone. */
#include "model/golden.h"

#include "decode/answer.h"
#include "decode/sampler.h"

enum { N_LONG = 90, N_SHORT = 12, N_NEW = 6, ROWS = 64, CONTEXT = 128 };

static int32_t long_prompt[N_LONG], short_prompt[N_SHORT];

/* What an answer's events said, and when to cancel whom. */
typedef struct listener {
    int n_events;  /* of progress */
    int last_done; /* of the last of them */
    int n_mid;     /* that were not at the end of a step */
    int n_after;   /* after the cancel */
    int n_tokens;
    int cancel_at;       /* tokens of the prompt; 0: never */
    bool by_return;      /* by the callback's answer, not by rvi_session_cancel */
    rvi_session *cancel; /* NULL: the session of the event */
    rvi_session *own;
    bool cancelled;
    rv_finish finish;
} listener;

static int listen(void *ctx, const rv_event *ev)
{
    listener *l = ctx;
    if (ev->kind == RV_EVENT_TOKEN) l->n_tokens++;
    if (ev->kind == RV_EVENT_DONE) l->finish = ev->finish;
    if (ev->kind != RV_EVENT_PROMPT) return 0;
    assert_true(ev->n_done >= l->last_done);
    assert_true(ev->n_done <= ev->n_prompt);
    l->last_done = ev->n_done;
    l->n_events++;
    l->n_mid += ev->n_done != ROWS && ev->n_done != ev->n_prompt;
    l->n_after += l->cancelled;
    if (!l->cancel_at || l->cancelled || ev->n_done < l->cancel_at) return 0;
    l->cancelled = true;
    if (l->by_return) return 1;
    rvi_session_cancel(l->cancel ? l->cancel : l->own);
    return 0;
}

typedef struct fixture {
    golden g;
    rvi_engine *e;
    rvi_ids eos;
} fixture;

static void open_engine(fixture *f)
{
    *f = (fixture){0};
    golden_open(&f->g, "tests/gguf/gemma2.gguf", NULL, false, 2, NULL);
    assert_ok(rvi_engine_new(
        &f->e, f->g.m, NULL, &f->eos,
        &(rvi_engine_options){
            .n_tokens = 4 * CONTEXT, .max_rows = ROWS, .max_logits = 4, .kv_type = RV_KV_F16},
        err));
    f->e->event_gap = 0;
    for (int i = 0; i < N_LONG; i++) long_prompt[i] = 3 + i * 5 % 200;
    for (int i = 0; i < N_SHORT; i++) short_prompt[i] = 7 + i * 3 % 200;
}

static void close_engine(fixture *f)
{
    rvi_engine_free(f->e);
    golden_close(&f->g);
}

static rvi_session *session_of(fixture *f)
{
    rvi_session *s;
    assert_ok(rvi_session_new(&s, f->e, CONTEXT, NULL, NULL, err));
    return s;
}

static void start(rvi_session *s, const int32_t *prompt, int n, listener *l)
{
    rv_sampling greedy;
    rvi_sampling_init(&greedy, sizeof greedy, true);
    l->own = s;
    assert_ok(rvi_answer_start(s, prompt, (size_t)n,
                               &(rv_generate_options){.size = sizeof(rv_generate_options),
                                                      .sampling = &greedy,
                                                      .max_tokens = N_NEW,
                                                      .top_logprobs = 0,
                                                      .ignore_eos = 1,
                                                      .on_event = listen,
                                                      .ctx = l},
                               err));
}

/* Ids and probabilities of an answer, and the session's past. */
typedef struct outcome {
    int32_t ids[N_NEW];
    float logprobs[N_NEW];
    size_t n;
} outcome;

static outcome take(rvi_session *s)
{
    rvi_generated g;
    outcome o = {0};
    assert_ok(rvi_answer_take(s, &g, err));
    o.n = g.ids.len;
    for (size_t i = 0; i < o.n; i++) {
        o.ids[i] = g.ids.data[i];
        o.logprobs[i] = g.chosen[i].logprob;
    }
    rvi_generated_deinit(&g);
    return o;
}

static outcome alone(fixture *f, const int32_t *prompt, int n)
{
    rvi_session *s = session_of(f);
    listener l = {0};
    start(s, prompt, n, &l);
    while (rvi_answer_advance(f->e, NULL)) {
    }
    outcome o = take(s);
    assert_int_equal(o.n, N_NEW);
    assert_int_equal(l.last_done, n);
    assert_int_equal(l.n_tokens, N_NEW);
    rvi_session_free(s);
    return o;
}

static void progress_of_a_prompt(void **state)
{
    (void)state;
    fixture f;
    open_engine(&f);
    rvi_session *s = session_of(&f);
    listener l = {0};
    start(s, long_prompt, N_LONG, &l);
    (void)rvi_answer_advance(f.e, NULL);
    assert_int_equal(l.last_done, ROWS); /* the end of a step is always told */
    assert_true(l.n_mid >= f.g.m->hp.n_layers);
    while (rvi_answer_advance(f.e, NULL)) {
    }
    assert_int_equal(l.last_done, N_LONG);
    int n = l.n_events;
    (void)take(s);
    /* almost all of it is in the cache: one row, told once */
    l = (listener){0};
    f.e->event_gap = 1e9;
    start(s, long_prompt, N_LONG, &l);
    while (rvi_answer_advance(f.e, NULL)) {
    }
    assert_int_equal(l.n_events, 1);
    assert_int_equal(l.last_done, N_LONG);
    assert_true(n > 2);
    rvi_session_free(s);
    close_engine(&f);
}

/* Three answers share a step; one is cancelled in the middle of it. */
static void others_are_not_affected(void **state)
{
    (void)state;
    fixture f;
    open_engine(&f);
    outcome want_long = alone(&f, long_prompt, N_LONG),
            want_short = alone(&f, short_prompt, N_SHORT);
    for (int by_return = 0; by_return < 2; by_return++)
        for (int at = 1; at < N_LONG; at += 9) {
            rvi_session *s[3] = {session_of(&f), session_of(&f), session_of(&f)};
            listener l[3] = {{0}, {.cancel_at = at, .by_return = by_return}, {0}};
            start(s[0], short_prompt, N_SHORT, &l[0]);
            start(s[1], long_prompt, N_LONG, &l[1]);
            start(s[2], long_prompt, N_LONG, &l[2]);
            while (rvi_answer_advance(f.e, NULL)) {
            }
            assert_true(l[1].cancelled);
            assert_int_equal(l[1].n_after, 0); /* nothing of it is computed after that */
            assert_int_equal(l[1].finish, RV_FINISH_CANCELLED);
            assert_int_equal(take(s[1]).n, 0);
            /* whole steps alone count as past: the rest of the first one beside the short prompt */
            int len = s[1]->seq.len;
            assert_true(len == 0 || len == ROWS - N_SHORT);
            assert_true(len <= l[1].last_done);
            assert_int_equal(s[1]->past.len, len);
            outcome got = take(s[0]);
            assert_memory_equal(&got, &want_short, sizeof got);
            got = take(s[2]);
            assert_memory_equal(&got, &want_long, sizeof got);
            /* and the cancelled session can go on */
            listener again = {0};
            start(s[1], long_prompt, N_LONG, &again);
            while (rvi_answer_advance(f.e, NULL)) {
            }
            got = take(s[1]);
            assert_memory_equal(&got, &want_long, sizeof got);
            for (int i = 0; i < 3; i++) rvi_session_free(s[i]);
        }
    close_engine(&f);
}

/* A cancel of a session without rows in the step does not touch the step. */
static void idle_sessions(void **state)
{
    (void)state;
    fixture f;
    open_engine(&f);
    outcome want = alone(&f, long_prompt, N_LONG);
    rvi_session *s = session_of(&f), *idle = session_of(&f);
    listener l = {.cancel_at = 1, .cancel = idle};
    start(s, long_prompt, N_LONG, &l);
    while (rvi_answer_advance(f.e, NULL)) {
    }
    assert_true(l.n_after > 0);
    outcome got = take(s);
    assert_memory_equal(&got, &want, sizeof got);
    /* what begins after a cancel is not meant by it */
    assert_ok(rvi_session_sync(idle, short_prompt, N_SHORT, NULL, NULL, err));
    rvi_session_cancel(idle);
    rvi_step_row row = {.s = idle, .token = 5, .want_logits = true};
    assert_ok(rvi_engine_step(f.e, &row, 1, err));
    assert_int_equal(idle->seq.len, N_SHORT + 1);
    rvi_session_free(s);
    rvi_session_free(idle);
    close_engine(&f);
}

/* Sync and steps of the caller: nothing of a cancelled one stays. The tap runs in the middle. */
typedef struct tap {
    rvi_session *s;
    int n_seen;
} tap;

static void cancel_in_tap(void *ctx, const char *name, rvi_cols values, int n_rows)
{
    tap *t = ctx;
    (void)values;
    (void)n_rows;
    t->n_seen++;
    if (!strcmp(name, "attn_mix.1")) rvi_session_cancel(t->s);
}

static void sync_and_step(void **state)
{
    (void)state;
    fixture f;
    open_engine(&f);
    rvi_session *s = session_of(&f), *other = session_of(&f);
    float *logits;
    size_t n_vocab = (size_t)f.g.m->hp.n_vocab, n_reused;
    assert_ok(rvi_session_sync(other, short_prompt, N_SHORT, NULL, &logits, err));
    float *want = rvi_alloc_array(n_vocab, sizeof *want);
    memcpy(want, logits, n_vocab * sizeof *want);

    tap t = {.s = s};
    rvi_workspace_set_tap(f.e->ws, cancel_in_tap, &t);
    assert_int_equal(rvi_session_sync(s, short_prompt, N_SHORT, NULL, &logits, NULL),
                     RV_E_CANCELLED);
    assert_null(logits);
    assert_int_equal(s->seq.len, 0);
    assert_int_equal(s->past.len, 0);
    assert_true(t.n_seen < 2 * 20); /* layer 1 was the last to be begun */

    rvi_step_row rows[2] = {{.s = other, .token = 5, .want_logits = true},
                            {.s = s, .token = 5, .want_logits = true}};
    assert_int_equal(rvi_engine_step(f.e, rows, 2, NULL), RV_E_CANCELLED);
    assert_int_equal(s->seq.len, 0);
    assert_int_equal(s->past.len, 0);
    assert_int_equal(other->seq.len, N_SHORT);
    assert_int_equal(other->past.len, N_SHORT);

    rvi_workspace_set_tap(f.e->ws, NULL, NULL);
    assert_ok(rvi_session_sync(s, short_prompt, N_SHORT, &n_reused, &logits, err));
    assert_int_equal(n_reused, 0);
    assert_memory_equal(logits, want, n_vocab * sizeof *want);
    rvi_free(want);
    rvi_session_free(s);
    rvi_session_free(other);
    close_engine(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(progress_of_a_prompt), cmocka_unit_test(others_are_not_affected),
        cmocka_unit_test(idle_sessions), cmocka_unit_test(sync_and_step)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
