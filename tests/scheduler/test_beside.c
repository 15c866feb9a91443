/* Feedback beside streams: what judging an answer takes of the model (its text read again, the rows
 * of the head, texts that are probed) is computed in turns of a few rows, between which a service
 * has its steps; what is learned is the same as without a service. */
#include "scheduler/served.h"

#include "api/memory_store.h"
#include "base/thread.h"
#include "learn/tiny_model.h"

enum {
    STREAMS = 8,
    N_NEW = 60,
    PROMPT = 150,
    ANSWER = 12,
    JUDGED = 6,   /* the fourth step is followed by a probe of several texts */
    MOST_ROWS = 2 /* of a turn: one of a prompt or a text, and a token of the answer */
};

static const rv_message request = {.role = "user", .content = "Tell me about tea."};
static const rv_chat asked = {.size = sizeof asked, .messages = &request, .n_messages = 1};
static tiny t;

static int open_tiny(void **state)
{
    (void)state;
    tiny_open(&t);
    return 0;
}

static int close_tiny(void **state)
{
    (void)state;
    tiny_close(&t);
    return 0;
}

/* ---- rows of a turn ---- */

static const rvi_backend_ops *real;
static rvi_backend_ops counting;
static _Thread_local bool is_feedback;
static uint_fast64_t turn; /* when the turn before this one ended */
static int rows_now, most_rows;
static long all_rows;

static void count_rows(rvi_backend *be, rvi_cols out, rvi_cols q, const rvi_kv_store *kv, int il,
                       const rvi_attention *a, const rvi_kv_row *rows, int n_rows)
{
    if (is_feedback && !il) {
        uint_fast64_t before = atomic_load(&t.m->rt->left_ns);
        rows_now = before == turn ? rows_now + n_rows : n_rows;
        turn = before;
        most_rows = RVI_MAX(most_rows, rows_now);
        all_rows += n_rows;
    }
    real->attention(be, out, q, kv, il, a, rows, n_rows);
}

static void begin_counting(void)
{
    rvi_backend *be = t.m->rt->be;
    real = be->ops;
    counting = *real;
    counting.attention = count_rows;
    be->ops = &counting;
    rows_now = most_rows = 0;
    all_rows = 0;
}

/* ---- feedback, as a server gives it ---- */

typedef struct teacher {
    rvi_store kept;
    rv_store store;
    rv_learner *l;
    atomic_bool done;
    bool failed;
} teacher;

static void judge(teacher *who, int i)
{
    rv_error e;
    rv_session *s = NULL;
    rv_answer *a = NULL;
    int32_t prompt[PROMPT];
    size_t running = 1;
    rv_session_options so = {.size = sizeof so, .n_context = 256};
    rv_generate_options go = greedy(ANSWER);
    go.draft = RV_DRAFT_OFF;
    for (int k = 0; k < PROMPT; k++) prompt[k] = (k * 7 + i * 31) % 200;
    rv_status st = rv_session_new(&s, t.m, &so, &e);
    if (!st) st = rv_learner_begin(who->l, s, &asked, NULL, &e);
    if (!st) st = rv_session_start(s, prompt, PROMPT, &go, &e);
    while (!st && running) st = rv_engine_advance(rv_session_engine(s), &running, &e);
    if (!st) st = rv_session_finish(s, &a, &e);
    if (!st) st = rv_learner_score(who->l, s, i % 2 ? 0.9 : 0.2, NULL, &e);
    if (!st && i == 2) st = rv_learner_teach(who->l, s, NULL, "green", RV_SCOPE_TOPIC, NULL, &e);
    rv_free(a);
    rv_session_free(&s);
    who->failed = who->failed || st;
}

static void teach(void *ctx)
{
    teacher *who = ctx;
    is_feedback = true;
    for (int i = 0; i < JUDGED; i++) judge(who, i);
    is_feedback = false;
    atomic_store(&who->done, true);
}

static void open_teacher(teacher *who)
{
    *who = (teacher){0};
    assert_ok(rvi_store_memory(&who->kept, err));
    who->store = memory_store(&who->kept);
    rv_learner_options o = {.size = sizeof o, .store = &who->store, .seed = 5};
    assert_ok(rv_learner_new(&who->l, t.m, &o, err));
}

static void close_teacher(teacher *who)
{
    rv_learner_free(&who->l);
    rvi_store_close(&who->kept);
}

static void take_digest(const teacher *who, char hex[RVI_SHA256_HEX])
{
    assert_non_null(who->l->l->instant.adapter);
    assert_non_null(who->l->l->instant.probe);
    assert_ok(rvi_adapter_digest(who->l->l->instant.adapter, hex, err));
}

/* ---- */

static void submit(rv_service *svc, int k)
{
    uint64_t id;
    int32_t ids[20];
    rv_generate_options go = greedy(N_NEW);
    for (int i = 0; i < 20; i++) ids[i] = (i * 3 + k * 17) % 200;
    rv_request r = {.size = sizeof r, .ids = ids, .n_ids = 20, .generate = &go};
    assert_ok(rv_service_submit(svc, &r, &id, err));
}

static void serve_until(rv_service *svc, const teacher *who)
{
    size_t live = 0;
    for (int k = 0; !atomic_load(&who->done); k++) {
        rv_batch *b;
        while (live < STREAMS) {
            submit(svc, k++);
            live++;
        }
        assert_ok(rv_service_step(svc, &live, err));
        assert_ok(rv_service_drain(svc, 0, &b, err));
        rv_free(b);
    }
}

static void a_few_rows_at_a_time(void **state)
{
    (void)state;
    char alone[RVI_SHA256_HEX], beside[RVI_SHA256_HEX];
    rv_service *svc;
    rvi_thread *thread;
    teacher who;
    open_teacher(&who);
    begin_counting();
    teach(&who); /* nobody waits: whole prompts and texts at once */
    assert_false(who.failed);
    assert_true(most_rows >= PROMPT);
    long n_alone = all_rows;
    take_digest(&who, alone);
    close_teacher(&who);

    open_teacher(&who);
    /* no time at all, so that every turn has as few rows as there may be */
    rv_service_options so = {
        .size = sizeof so, .n_tokens = 4096, .n_context = 256, .token_ms = 1e-3, .no_thread = 1};
    assert_ok(rv_service_new(&svc, t.m, &so, err));
    size_t live;
    submit(svc, 0);
    assert_ok(rv_service_step(svc, &live, err));
    assert_true(rvi_api_is_serving(t.m->rt));
    rows_now = most_rows = 0;
    all_rows = 0;
    assert_ok(rvi_thread_start(&thread, teach, &who, false, err));
    serve_until(svc, &who);
    rvi_thread_join(thread);
    assert_false(who.failed);
    assert_int_equal(all_rows, n_alone);
    print_message("# %ld rows of feedback, at most %d in a turn\n", all_rows, most_rows);
    assert_true(most_rows <= MOST_ROWS);
    take_digest(&who, beside);
    assert_string_equal(alone, beside);
    close_teacher(&who);
    rv_service_free(&svc);
    t.m->rt->be->ops = real;
}

/* Where a text of the probe ends there are fewer rows than a piece may have, and these are noted:
 * a short piece does not make long ones seem cheap. */
static void pieces_cost_what_they_read(void **state)
{
    (void)state;
    rv_service *svc;
    rvi_thread *thread;
    teacher who;
    size_t live;
    open_teacher(&who);
    rv_service_options so = {
        .size = sizeof so, .n_tokens = 4096, .n_context = 256, .token_ms = 1e5, .no_thread = 1};
    assert_ok(rv_service_new(&svc, t.m, &so, err));
    submit(svc, 0);
    assert_ok(rv_service_step(svc, &live, err));
    assert_ok(rvi_thread_start(&thread, teach, &who, false, err));
    serve_until(svc, &who);
    rvi_thread_join(thread);
    assert_false(who.failed);
    const rvi_budget *cost = &who.l->l->instant.piece_cost;
    assert_true(cost->at[3].rows == RVI_PIECE_ROWS);
    assert_true(cost->at[1].rows > 0 || cost->at[2].rows > 0); /* 2 to 7 rows */
    close_teacher(&who);
    rv_service_free(&svc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_few_rows_at_a_time),
                                       cmocka_unit_test(pieces_cost_what_they_read)};
    return cmocka_run_group_tests_name("beside", tests, open_tiny, close_tiny);
}
