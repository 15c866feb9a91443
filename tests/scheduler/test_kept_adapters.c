/* Sessions on disk whose keys and values adapters computed: they are read again where the same
 * adapters come back under whatever name, and computed again where others do, or none. */
#include <dirent.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/os.h"
#include "scheduler/in_folder.h"
#include "scheduler/kept_head.h"

enum { ASKED = 40, NEW = 8, TURNS = 3, PAGE = 32 };

static rv_adapter *one, *other;

/* The adapter's folder again, with one bit of one value changed. */
static void copy_changed(const char *to)
{
    static const char *const names[] = {"adapter_config.json", "adapter_model.safetensors"};
    assert_ok(rvi_os_make_private_dirs(to, err));
    for (int i = 0; i < 2; i++) {
        char path[256];
        static char bytes[1 << 20];
        snprintf(path, sizeof path, "tests/golden/llama/lora/%s", names[i]);
        FILE *f = fopen(path, "rb");
        assert_non_null(f);
        size_t n = fread(bytes, 1, sizeof bytes, f);
        assert_true(n > 0 && n < sizeof bytes);
        fclose(f);
        if (i) bytes[n - 2] ^= 4;
        snprintf(path, sizeof path, "%s/%s", to, names[i]);
        f = fopen(path, "wb");
        assert_non_null(f);
        assert_int_equal(fwrite(bytes, 1, n, f), n);
        assert_int_equal(fclose(f), 0);
    }
}

static int open_adapters(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/ruvllm-sessions-XXXXXX");
    assert_non_null(mkdtemp(folder));
    open_all(&o, "tests/golden/llama", 1, 256);
    assert_ok(rv_adapter_load(&one, o.m, "tests/golden/llama/lora", err));
    copy_changed(in_folder("changed"));
    assert_ok(rv_adapter_load(&other, o.m, dir, err));
    return 0;
}

static int close_adapters(void **state)
{
    rv_adapter_free(&one);
    rv_adapter_free(&other);
    return close_it(state);
}

static rv_service *service_in(const char *where)
{
    rv_service *svc;
    rv_service_options so = {
        .size = sizeof so, .n_tokens = 1024, .n_context = 256, .no_thread = 1, .sessions = where};
    assert_ok(rv_service_new(&svc, o.m, &so, err));
    return svc;
}

/* n times the adapter, with other factors each. NULL: none */
static rv_adapter_set *set_of(const rv_adapter *a, int n, float scale)
{
    rv_adapter_set *set;
    const rv_adapter_use uses[] = {{a, scale}, {a, scale / 2}};
    if (!a) return NULL;
    assert_ok(rv_adapter_set_new(&set, o.m, uses, (size_t)n, err));
    return set;
}

/* What is asked is the same in every turn. name NULL: the whole text again, without a session */
static served answer(rv_service *svc, const char *name, const int32_t *ids, int n,
                     const rv_adapter_set *set)
{
    served s = {0};
    const rv_sampling greedy = {.size = sizeof greedy, .greedy = 1};
    rv_generate_options go = {.size = sizeof go,
                              .max_tokens = NEW,
                              .ignore_eos = 1,
                              .draft = RV_DRAFT_OFF,
                              .sampling = &greedy};
    rv_request r = {.size = sizeof r,
                    .ids = ids,
                    .n_ids = (size_t)n,
                    .generate = &go,
                    .adapters = set,
                    .session = name};
    assert_ok(rv_service_submit(svc, &r, &s.request, err));
    served_run(svc, &s, 1);
    assert_int_equal(s.last.status, RV_OK);
    if (name && !s.last.saved) fail_msg("not saved: %s", s.error);
    return s;
}

/* A text that grows by what was asked and answered. */
typedef struct talk {
    int32_t ids[256];
    int n;
} talk;

static int32_t asked[ASKED];

static void note(talk *t, const served *s)
{
    memcpy(t->ids + t->n, asked, sizeof asked);
    memcpy(t->ids + t->n + ASKED, s->ids, (size_t)s->n * sizeof *s->ids);
    t->n += ASKED + s->n - 1; /* the last token was picked, and not read any more */
}

/* The next turn in a service that was just made; the set is made again too. It brings what the
 * whole text brings a service that knows nothing. Returns how many tokens were found. */
static int turn(talk *t, const rv_adapter *a, int n_uses, float scale)
{
    rv_adapter_set *set = set_of(a, n_uses, scale);
    rv_service *svc = service_in(dir), *fresh = service_in(NULL);
    served s = answer(svc, "talk", asked, ASKED, set);
    int32_t ids[256];
    memcpy(ids, t->ids, (size_t)t->n * sizeof *ids);
    memcpy(ids + t->n, asked, sizeof asked);
    served whole = answer(fresh, NULL, ids, t->n + ASKED, set);
    assert_int_equal(whole.last.n_reused, 0);
    assert_int_equal(s.last.n_prompt, t->n + ASKED);
    assert_int_equal(s.n, whole.n);
    assert_memory_equal(s.ids, whole.ids, (size_t)s.n * sizeof *s.ids);
    note(t, &s);
    rv_service_free(&fresh);
    rv_service_free(&svc);
    rv_adapter_set_free(&set);
    return s.last.n_reused;
}

static void find_file(char path[400])
{
    DIR *d = opendir(dir);
    path[0] = 0;
    assert_non_null(d);
    for (struct dirent *x; (x = readdir(d));)
        if (strstr(x->d_name, ".session")) snprintf(path, 400, "%s/%s", dir, x->d_name);
    closedir(d);
    assert_true(path[0]);
}

/* Whether adapters computed the pages of the only session. */
static void expect_set(bool has_set)
{
    char path[400];
    uint8_t bytes[RVI_KEPT_HEADER];
    rvi_kept_head h;
    find_file(path);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    rvi_cursor c = {.data = bytes, .len = fread(bytes, 1, sizeof bytes, f)};
    fclose(f);
    assert_true(rvi_kept_head_read(&c, &h));
    assert_int_equal(h.has_set, has_set);
}

static int whole_pages(const talk *t)
{
    return t->n / PAGE * PAGE;
}

static void same_adapters(void **state)
{
    (void)state;
    talk t = {0};
    in_folder("same");
    assert_int_equal(turn(&t, one, 1, 1), 0);
    expect_set(true);
    for (int i = 1; i < TURNS; i++) {
        int have = whole_pages(&t);
        assert_true(have >= PAGE);
        assert_int_equal(turn(&t, one, 1, 1), have);
    }
}

static void two_at_once(void **state)
{
    (void)state;
    talk t = {0};
    in_folder("two");
    assert_int_equal(turn(&t, one, 2, 0.5f), 0);
    int have = whole_pages(&t);
    assert_int_equal(turn(&t, one, 2, 0.5f), have);
    assert_int_equal(turn(&t, one, 1, 0.5f), 0); /* one of them is another set */
}

/* Whoever comes back with something else computes again; what it computed is kept then. */
static void other_adapters(void **state)
{
    (void)state;
    talk t = {0};
    in_folder("other");
    (void)turn(&t, one, 1, 1);
    assert_int_equal(turn(&t, other, 1, 1), 0);
    int have = whole_pages(&t);
    assert_int_equal(turn(&t, other, 1, 1), have);
}

static void other_factors(void **state)
{
    (void)state;
    talk t = {0};
    in_folder("factors");
    (void)turn(&t, one, 1, 1);
    assert_int_equal(turn(&t, one, 1, 0.5f), 0);
}

static void with_and_without(void **state)
{
    (void)state;
    talk t = {0};
    in_folder("without");
    (void)turn(&t, NULL, 0, 0);
    expect_set(false);
    int have = whole_pages(&t);
    assert_int_equal(turn(&t, NULL, 0, 0), have);
    assert_int_equal(turn(&t, one, 1, 1), 0);
    expect_set(true);
    assert_int_equal(turn(&t, NULL, 0, 0), 0);
    expect_set(false);
}

/* A name of a registry that gets another file, and then the first one again. */
static void another_under_the_name(void **state)
{
    (void)state;
    char changed[128];
    rv_registry *r;
    snprintf(changed, sizeof changed, "%s", in_folder("changed"));
    const char *const paths[] = {"tests/golden/llama/lora", "tests/golden/llama/lora", changed,
                                 "tests/golden/llama/lora"};
    in_folder("named");
    int before = 0;
    uint64_t generation = 0;
    assert_ok(rv_registry_new(&r, o.m, NULL, err));
    for (int i = 0; i < 4; i++) {
        rv_adapter_set *set;
        assert_ok(rv_registry_put(r, "x", paths[i], generation, &generation, err));
        assert_ok(rv_registry_get(r, "x", 1, &set, NULL, err));
        rv_service *svc = service_in(dir);
        served s = answer(svc, "talk", asked, ASKED, set);
        assert_int_equal(s.last.n_reused, i == 1 ? before : 0);
        before = (s.last.n_prompt + s.n - 1) / PAGE * PAGE;
        rv_service_free(&svc);
        rv_adapter_set_free(&set);
    }
    rv_registry_free(&r);
}

/* Whatever byte is changed, that of the adapters' digest too. */
static void damaged(void **state)
{
    (void)state;
    rv_adapter_set *set = set_of(one, 1, 1);
    for (long at = 0; at < 600; at += 7) {
        char path[400];
        talk t = {0};
        in_folder("damaged");
        if (!at) (void)turn(&t, one, 1, 1);
        find_file(path);
        FILE *f = fopen(path, "r+b");
        assert_non_null(f);
        int c = 0;
        for (int again = 0; again < 2; again++) {
            assert_int_equal(fseek(f, at, SEEK_SET), 0);
            if (!again) c = fgetc(f);
            assert_int_equal(fseek(f, at, SEEK_SET), 0);
            fputc(again ? c : c ^ 16, f);
            assert_int_equal(fflush(f), 0);
            if (again) break;
            rv_service *svc = service_in(dir);
            uint64_t id;
            rv_error why = {0};
            rv_request q = {
                .size = sizeof q, .ids = asked, .n_ids = ASKED, .adapters = set, .session = "talk"};
            assert_int_equal(rv_service_submit(svc, &q, &id, &why), RV_E_STORAGE);
            assert_non_null(strstr(why.text, "damaged"));
            rv_service_free(&svc);
        }
        fclose(f);
    }
    rv_adapter_set_free(&set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_adapters),    cmocka_unit_test(two_at_once),
        cmocka_unit_test(other_adapters),   cmocka_unit_test(other_factors),
        cmocka_unit_test(with_and_without), cmocka_unit_test(another_under_the_name),
        cmocka_unit_test(damaged),
    };
    for (int i = 0; i < ASKED; i++) asked[i] = 3 + i * 7 % 60;
    return cmocka_run_group_tests_name("kept_adapters", tests, open_adapters, close_adapters);
}
