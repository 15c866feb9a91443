/* Sessions of requests that say everything: the answers are those without a session, and what
 * agrees with the one on disk is not computed again. */
#include <dirent.h>

#include "scheduler/in_folder.h"
#include "scheduler/kept_head.h"

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

/* The pages of the only session: those that count, and those that its file has room for. */
static void count_pages(size_t *n, size_t *n_places)
{
    uint8_t bytes[RVI_KEPT_HEADER];
    rvi_kept_head h = {0};
    uint64_t size = 0;
    DIR *d = opendir(dir);
    assert_non_null(d);
    for (struct dirent *x; (x = readdir(d));) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s", dir, x->d_name);
        if (strstr(x->d_name, RVI_KEPT_PAGES))
            assert_int_equal(rvi_os_stat(path, &size), RVI_OS_FILE);
        if (!strstr(x->d_name, RVI_KEPT_HEAD)) continue;
        FILE *f = fopen(path, "rb");
        assert_non_null(f);
        rvi_cursor c = {.data = bytes, .len = fread(bytes, 1, sizeof bytes, f)};
        fclose(f);
        assert_true(rvi_kept_head_read(&c, &h));
    }
    closedir(d);
    assert_true(h.page_bytes > 0 && size % h.page_bytes == 0);
    *n = h.n_pages;
    *n_places = size / h.page_bytes;
}

/* However often a conversation is changed, its file has no more room than it had to have when a
 * change was saved: for the pages before and those after. */
static void room_is_used_again(void **state)
{
    (void)state;
    int32_t ids[MOST];
    size_t n, n_places;
    in_folder("changed");
    for (int i = 0; i < MOST; i++) ids[i] = 3 + i * 11 % 250;
    for (int round = 0; round < 8; round++) {
        ids[40 + round] += 1; /* in the second page */
        rv_service *svc = service_in(dir);
        served s = answer(svc, ids, ASKED + NEW, (uint64_t)round, "talk");
        assert_int_equal(s.last.n_reused, round ? 32 : 0);
        rv_service_free(&svc);
        count_pages(&n, &n_places);
        assert_int_equal(n, 4); /* of the last token nothing is computed */
        assert_true(n_places >= n && n_places <= 2 * n - 1);
    }
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
                                       cmocka_unit_test(room_is_used_again),
                                       cmocka_unit_test(is_listed)};
    return cmocka_run_group_tests_name("whole", tests, open_it, close_it);
}
