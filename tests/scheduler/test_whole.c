/* Sessions of requests that say everything: the answers are those without a session, and what
 * agrees with the one on disk is not computed again. */
#include "scheduler/in_folder.h"

enum { ASKED = 60, NEW = 40, MOST = 2 * (ASKED + NEW) };

static rv_service *service_in(const char *where)
{
    rv_service *svc;
    rv_service_options so = {
        .size = sizeof so, .n_tokens = 1024, .n_context = 256, .no_thread = 1, .sessions = where};
    assert_ok(rv_service_new(&svc, o.m, &so, err));
    return svc;
}

static served answer(rv_service *svc, const int32_t *ids, int n, uint64_t seed, const char *session)
{
    served s = {0};
    rv_sampling sampling = {.size = sizeof sampling,
                            .seed = seed,
                            .temperature = 1,
                            .mirostat_tau = 5,
                            .mirostat_eta = 0.1F};
    rv_generate_options go = {.size = sizeof go,
                              .max_tokens = NEW,
                              .ignore_eos = 1,
                              .draft = RV_DRAFT_OFF,
                              .sampling = &sampling};
    rv_request r = {.size = sizeof r,
                    .ids = ids,
                    .n_ids = (size_t)n,
                    .generate = &go,
                    .session = session,
                    .whole = session != NULL};
    assert_ok(rv_service_submit(svc, &r, &s.request, err));
    served_run(svc, &s, 1);
    assert_int_equal(s.last.saved, session != NULL);
    assert_int_equal(s.last.n_prompt, n);
    return s;
}

/* By a service that was just opened, and by one that has no sessions. */
static served expect_same(const int32_t *ids, int n, uint64_t seed, int n_reused)
{
    rv_service *with = service_in(in_folder("whole")), *without = service_in(NULL);
    served s = answer(with, ids, n, seed, "talk"), want = answer(without, ids, n, seed, NULL);
    assert_int_equal(s.last.n_reused, n_reused);
    assert_int_equal(want.last.n_reused, 0);
    assert_int_equal(s.n, NEW);
    assert_memory_equal(s.ids, want.ids, NEW * sizeof *s.ids);
    rv_service_free(&with);
    rv_service_free(&without);
    return s;
}

static void says_everything(void **state)
{
    (void)state;
    int32_t ids[MOST];
    int n = ASKED;
    for (int i = 0; i < MOST; i++) ids[i] = 3 + i * 7 % 250;
    served s = expect_same(ids, n, 1, 0);
    memcpy(ids + n, s.ids, NEW * sizeof *ids);
    n += NEW + ASKED;
    (void)expect_same(ids, n, 2, (ASKED + NEW) / 32 * 32); /* goes on */
    (void)expect_same(ids, n, 3, n - 1);                   /* again, with another seed */
    ids[ASKED + 20] += 1;                                  /* the answer was changed */
    (void)expect_same(ids, n, 2, (ASKED + 20) / 32 * 32);
    (void)expect_same(ids, ASKED, 1, ASKED / 32 * 32); /* back to the first question */
    ids[0] += 1;                                       /* another one */
    (void)expect_same(ids, ASKED, 1, 0);
}

static void is_listed(void **state)
{
    (void)state;
    rv_listed_session *list;
    size_t n;
    rv_service *svc = service_in(NULL);
    assert_ok(rv_service_list_sessions(svc, NULL, &list, &n, err));
    assert_true(!list && !n);
    rv_service_free(&svc);
    svc = service_in(in_folder("listed"));
    int32_t ids[ASKED] = {0};
    (void)answer(svc, ids, ASKED, 1, "one");
    (void)answer(svc, ids, ASKED, 1, "another");
    assert_ok(rv_service_list_sessions(svc, "", &list, &n, err));
    assert_int_equal(n, 2);
    assert_string_equal(list[0].name, "another");
    assert_string_equal(list[1].name, "one");
    assert_true(list[0].saved >= list[1].saved && list[1].saved > 1700000000);
    rv_free(list);
    assert_ok(rv_service_list_sessions(svc, "somebody else", &list, &n, err));
    assert_int_equal(n, 0);
    rv_free(list);
    assert_refused(RV_E_INVALID, rv_service_list_sessions(svc, "", NULL, &n, err));
    rv_service_free(&svc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(says_everything),
                                       cmocka_unit_test(is_listed)};
    return cmocka_run_group_tests_name("whole", tests, open_it, close_it);
}
