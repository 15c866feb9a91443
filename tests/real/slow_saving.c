/* A session of a real model, large enough to be saved in several pieces while other requests go on,
 * is read back page by page as it was. Skipped where the model is not there. */
#include "scheduler/served.h"

#include <stdlib.h>

#include "base/os.h"
#include "real/cached_model.h"

enum { ASKED = 800, NEW = 8, TOKENS = 60 };

static rv_service *service_in(const rv_model *m, const char *folder)
{
    rv_service *svc;
    rv_service_options so = {.size = sizeof so, .n_tokens = 4096, .sessions = folder};
    assert_ok(rv_service_new(&svc, m, &so, err));
    return svc;
}

static void ask(rv_service *svc, const char *session, int n_ids, int n, served *s)
{
    static int32_t ids[ASKED];
    rv_generate_options go = greedy(n);
    go.ignore_eos = 1;
    go.draft = RV_DRAFT_OFF;
    for (int i = 0; i < ASKED; i++) ids[i] = 100 + (i * 37 + i / 7) % 4000;
    rv_request r = {
        .size = sizeof r, .ids = ids, .n_ids = (size_t)n_ids, .generate = &go, .session = session};
    *s = (served){0};
    assert_ok(rv_service_submit(svc, &r, &s->request, err));
}

static void in_pieces(void **state)
{
    (void)state;
    char model[1024], folder[] = "/tmp/ruvllm-saving-XXXXXX";
    rv_runtime *rt;
    rv_model *m;
    served turns[2][2], other;
    find_cached("smollm2", model, sizeof model);
    if (!model[0]) skip();
    assert_non_null(mkdtemp(folder));
    assert_ok(rv_runtime_new(&rt, NULL, err));
    assert_ok(rv_model_open(&m, rt, model, NULL, err));
    for (int how = 0; how < 2; how++) { /* one service, or one for each turn */
        rv_service *svc = service_in(m, folder);
        const char *name = how ? "two" : "one";
        ask(svc, name, ASKED, NEW, &turns[how][0]);
        while (!turns[how][0].n) served_drain(svc, 0.05, &turns[how][0], 1);
        ask(svc, NULL, 9, TOKENS, &other); /* a stream beside the saving */
        while (!turns[how][0].ended || !other.ended) {
            served both[2] = {turns[how][0], other};
            served_drain(svc, 0.05, both, 2);
            turns[how][0] = both[0];
            other = both[1];
        }
        assert_true(turns[how][0].last.saved);
        assert_int_equal(other.n, TOKENS);
        if (how) {
            rv_service_free(&svc);
            svc = service_in(m, folder);
        }
        ask(svc, name, 5, NEW, &turns[how][1]);
        while (!turns[how][1].ended) served_drain(svc, 0.05, &turns[how][1], 1);
        assert_true(turns[how][1].last.saved);
        assert_true(turns[how][1].last.n_reused >= ASKED); /* its pages are in the file */
        rv_service_free(&svc);
    }
    for (int t = 0; t < 2; t++) {
        assert_int_equal(turns[1][t].last.n_prompt, turns[0][t].last.n_prompt);
        assert_int_equal(turns[1][t].n, NEW);
        assert_memory_equal(turns[1][t].ids, turns[0][t].ids, NEW * sizeof(int32_t));
    }
    rv_model_close(&m);
    rv_runtime_free(&rt);
    rvi_os_remove_tree(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(in_pieces)};
    return cmocka_run_group_tests_name("saving, real", tests, NULL, NULL);
}
