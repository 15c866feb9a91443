/* Saved sessions by the nearest context: the one whose text it is comes first, however the session
 * went on and whoever asks after a restart; nobody else's, no damaged one, none that was forgotten.
 * (real/slow_nearest.c: sessions that are about something.) */
#include <dirent.h>
#include <stdlib.h>

#include "api/service.h"
#include "base/os.h"
#include "scheduler/served.h"
#include "scheduler/vectors.h"

enum { SESSIONS = 6, ASKED = 30, NEW = 4 };

static opened o;
static rv_model *embedder;
static char folder[64];
static char texts[SESSIONS][4096]; /* of each session as it was saved last */

static int open_it(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/ruvllm-nearest-XXXXXX");
    assert_non_null(mkdtemp(folder));
    open_all(&o, "tests/gguf/llama-spm.gguf", 1, 256);
    assert_ok(rv_model_open(&embedder, o.rt, "tests/gguf/bert.gguf", NULL, err));
    return 0;
}

static int close_it(void **state)
{
    (void)state;
    rv_model_close(&embedder);
    close_all(&o);
    rvi_os_remove_tree(folder);
    return 0;
}

static rv_service *service(void)
{
    rv_service *svc;
    rv_service_options so = {.size = sizeof so,
                             .n_tokens = 1024,
                             .n_context = 256,
                             .no_thread = 1,
                             .sessions = folder,
                             .embedder = embedder};
    assert_ok(rv_service_new(&svc, o.m, &so, err));
    return svc;
}

/* The next turn of session k, whose text grows by what was asked and answered. */
static void turn(rv_service *svc, int k, int t)
{
    char name[32], *text;
    int32_t ids[ASKED + NEW];
    served s = {0};
    enum { BYTE = 3 }; /* words of letters, and an answer that is one, too */
    static const rv_logit_bias z = {BYTE + 'z', 1000};
    rv_sampling sampling = {
        .size = sizeof sampling, .greedy = 1, .logit_bias = &z, .n_logit_bias = 1};
    rv_generate_options go = {
        .size = sizeof go, .sampling = &sampling, .max_tokens = NEW, .ignore_eos = 1};
    for (int i = 0; i < ASKED; i++)
        ids[i] = BYTE + (i % 4 == 3 ? ' ' : 'a' + (i * (7 + k) + k * 31 + t * 17) % 26);
    snprintf(name, sizeof name, "session %d", k);
    rv_request r = {.size = sizeof r,
                    .ids = ids,
                    .n_ids = ASKED,
                    .generate = &go,
                    .tenant = k % 2 ? "ann" : "bob",
                    .session = name};
    assert_ok(rv_service_submit(svc, &r, &s.request, err));
    served_run(svc, &s, 1);
    assert_true(s.last.saved);
    memcpy(ids + ASKED, s.ids, (size_t)s.n * sizeof *ids);
    assert_ok(rv_detokenize(o.m, ids, ASKED + (size_t)s.n, 1, &text, NULL, err));
    size_t at = t ? strlen(texts[k]) : 0;
    snprintf(texts[k] + at, sizeof texts[k] - at, "%s", text);
    rv_free(text);
}

/* Session k is the nearest to its own text; returns how many there are. */
static size_t expect_nearest(rv_service *svc, int k)
{
    char name[32];
    rv_found_session *found;
    size_t n;
    snprintf(name, sizeof name, "session %d", k);
    assert_ok(rv_service_find(svc, k % 2 ? "ann" : "bob", texts[k], 10, &found, &n, err));
    assert_true(n > 0);
    assert_string_equal(found[0].name, name);
    assert_true(found[0].similarity > 0.95f && found[0].similarity < 1.01f);
    assert_true(found[0].saved > 1600000000);
    for (size_t i = 1; i < n; i++) {
        assert_true(found[i].similarity <= found[i - 1].similarity);
        assert_true((found[i].name[8] - '0') % 2 == k % 2);
    }
    rv_free(found);
    return n;
}

static int count_files(const char *ending)
{
    int n = 0;
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (struct dirent *x; (x = readdir(d));) {
        size_t len = strlen(x->d_name), end = strlen(ending);
        n += len > end && !strcmp(x->d_name + len - end, ending);
    }
    closedir(d);
    return n;
}

/* Changes the last byte of one file. */
static void damage(const char *ending)
{
    char path[400] = "";
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (struct dirent *x; (x = readdir(d));)
        if (strstr(x->d_name, ending)) snprintf(path, sizeof path, "%s/%s", folder, x->d_name);
    closedir(d);
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, -40, SEEK_END), 0);
    int c = fgetc(f);
    assert_int_equal(fseek(f, -40, SEEK_END), 0);
    fputc(c ^ 4, f);
    assert_int_equal(fclose(f), 0);
}

static void remove_all(const char *ending)
{
    char path[400];
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (struct dirent *x; (x = readdir(d));) {
        snprintf(path, sizeof path, "%s/%s", folder, x->d_name);
        if (strstr(x->d_name, ending)) assert_int_equal(remove(path), 0);
    }
    closedir(d);
}

static void touch(const char *name)
{
    char path[400];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fclose(f), 0);
}

static void by_their_texts(void **state)
{
    (void)state;
    rv_found_session *found;
    size_t n;
    rv_service *svc = service();
    assert_ok(rv_service_find(svc, "ann", "anything", 10, &found, &n, err));
    assert_int_equal(n, 0);
    rv_free(found);
    for (int k = 0; k < SESSIONS; k++) turn(svc, k, 0);
    for (int k = 0; k < SESSIONS; k++) assert_int_equal(expect_nearest(svc, k), SESSIONS / 2);
    assert_int_equal(count_files(".vectors"), SESSIONS);
    turn(svc, 3, 1); /* it is about something else now */
    for (int k = 0; k < SESSIONS; k++) (void)expect_nearest(svc, k);
    rv_service_free(&svc);
    touch("0123.vectors");
    touch("4567.vectors.part");
    svc = service();
    assert_int_equal(count_files(".vectors"), SESSIONS); /* what belongs to none is gone */
    assert_int_equal(count_files(".part"), 0);
    damage(".vectors"); /* made again */
    for (int k = 0; k < SESSIONS; k++) assert_int_equal(expect_nearest(svc, k), SESSIONS / 2);
    assert_ok(rv_service_find(svc, "ann", texts[1], 2, &found, &n, err));
    assert_int_equal(n, 2);
    rv_free(found);
    assert_ok(rv_service_find(svc, "nobody", texts[1], 2, &found, &n, err));
    assert_int_equal(n, 0);
    rv_free(found);
    assert_ok(rv_service_forget(svc, "ann", "session 1", err));
    assert_int_equal(count_files(".vectors"), SESSIONS - 1);
    assert_int_equal(expect_nearest(svc, 3), SESSIONS / 2 - 1);
    damage(".session"); /* whose vectors have to be made again */
    remove_all(".vectors");
    size_t n_left = 0;
    for (int i = 0; i < 2; i++) {
        assert_ok(rv_service_find(svc, i ? "ann" : "bob", "anything", 10, &found, &n, err));
        rv_free(found);
        n_left += n;
    }
    assert_int_equal(n_left, SESSIONS - 2);
    rv_service_free(&svc);
}

static void remove_session(rv_service *svc, int k, char path[400])
{
    char name[32];
    rvi_listed_session *list;
    size_t n, i = 0;
    snprintf(name, sizeof name, "session %d", k);
    assert_ok(rvi_sessions_list(svc->sessions, k % 2 ? "ann" : "bob", &list, &n, err));
    while (i < n && strcmp(list[i].name, name) != 0) i++;
    assert_true(i < n);
    snprintf(path, 400, "%s", list[i].path);
    assert_int_equal(remove(path), 0);
    rvi_free(list);
}

/* No vectors stay of a session whose file was removed behind the service's back, once somebody
 * looks for it, forgets it or uses its name again; none are kept of one that was forgotten while
 * they were made. */
static void nothing_stays_of_those_that_are_gone(void **state)
{
    (void)state;
    char path[400];
    rv_found_session *found;
    size_t n;
    remove_all(".session");
    rv_service *svc = service();
    assert_int_equal(count_files(".vectors"), 0);
    for (int k = 0; k < SESSIONS; k++) turn(svc, k, 0);
    for (int k = 0; k < SESSIONS; k++) (void)expect_nearest(svc, k);
    assert_int_equal(count_files(".vectors"), SESSIONS);
    remove_session(svc, 1, path);
    assert_ok(rv_service_find(svc, "ann", "anything", 10, &found, &n, err));
    rv_free(found);
    assert_int_equal(n, SESSIONS / 2 - 1);
    assert_int_equal(count_files(".vectors"), SESSIONS - 1);
    remove_session(svc, 2, path);
    assert_refused(RV_E_NOT_FOUND, rv_service_forget(svc, "bob", "session 2", err));
    assert_int_equal(count_files(".vectors"), SESSIONS - 2);
    float some[4] = {0};
    rvi_vectors v = {.size = 4, .n = 1, .values = some};
    assert_ok(rvi_vectors_write(&v, path, err));
    assert_int_equal(count_files(".vectors"), SESSIONS - 2);
    turn(svc, 2, 0); /* its name again */
    assert_ok(rvi_vectors_write(&v, path, err));
    assert_int_equal(count_files(".vectors"), SESSIONS - 2);
    remove_session(svc, 3, path);
    turn(svc, 3, 1);
    assert_int_equal(count_files(".vectors"), SESSIONS - 3);
    rv_service_free(&svc);
}

static void what_is_refused(void **state)
{
    (void)state;
    rv_found_session *found;
    size_t n;
    rv_service *svc;
    rv_service_options so = {
        .size = sizeof so, .n_tokens = 256, .no_thread = 1, .embedder = embedder};
    assert_refused(RV_E_CONFIG, rv_service_new(&svc, o.m, &so, err)); /* no sessions */
    so.sessions = folder;
    so.embedder = o.m;
    assert_refused(RV_E_CONFIG, rv_service_new(&svc, o.m, &so, err));
    so.embedder = NULL;
    assert_ok(rv_service_new(&svc, o.m, &so, err));
    assert_refused(RV_E_CONFIG, rv_service_find(svc, NULL, "x", 1, &found, &n, err));
    assert_refused(RV_E_INVALID, rv_service_find(svc, NULL, NULL, 1, &found, &n, err));
    rv_service_free(&svc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(by_their_texts),
                                       cmocka_unit_test(nothing_stays_of_those_that_are_gone),
                                       cmocka_unit_test(what_is_refused)};
    return cmocka_run_group_tests_name("nearest sessions", tests, open_it, close_it);
}
