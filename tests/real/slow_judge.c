/* The judge of requests with its embedder, all-MiniLM-L6-v2: what it says must be what the network
 * said where it was trained (tests/real/data/judge.json, written by tools/train_judge.py, and
 * compare.json, the odds of pairs where tools/train_compare.py had trained the adapter). Skipped
 * where the embedder is not in the cache folder. */
#include "model/golden.h"

#include <math.h>
#include <stdlib.h>

#include "base/json.h"
#include "base/os.h"
#include "learn/recognise/follow.h"
#include "learn/recognise/judge.h"
#include "learn/recognise/recogniser.h"
#include "real/cached_model.h"

static char path[1024]; /* empty: not on this machine */

static int find_model(void **state)
{
    (void)state;
    find_cached("minilm", path, sizeof path);
    return 0;
}

static rvi_reading *read_member(rvi_embedder *e, const rvi_json *row, const char *key)
{
    rvi_reading *r = NULL;
    const rvi_json *text = rvi_json_get(row, key);
    assert_ok(rvi_reading_new(&r, e, text->as.string.data, text->as.string.len, false, err));
    return r;
}

/* How far the judge is from what it said where it was trained. */
static double difference(rvi_embedder *e, const rvi_json *row, const char *key)
{
    rvi_reading *q = read_member(e, row, "question"), *a = read_member(e, row, "answer"),
                *r = read_member(e, row, "request");
    double got = (double)rvi_judge(q, a, r), want = rvi_json_number(rvi_json_get(row, key), NAN);
    rvi_reading_free(q);
    rvi_reading_free(a);
    rvi_reading_free(r);
    return fabs(got - want);
}

typedef struct opened {
    golden g;
    rvi_tokenizer *t;
    rvi_embedder *e;
    rvi_arena arena;
    rvi_blob blob;
    const rvi_json *cases;
} opened;

static void open_with(opened *o, const char *cases)
{
    *o = (opened){0};
    golden_open(&o->g, path, NULL, false, 2, NULL);
    o->t = open_cached_tokenizer(path);
    assert_ok(rvi_embedder_new(&o->e, o->g.m, o->t, o->g.m->be, err));
    assert_ok(rvi_blob_open(&o->blob, cases, err));
    assert_ok(
        rvi_json_parse(&o->cases, (const char *)o->blob.data, o->blob.len, &o->arena, cases, err));
    assert_true(rvi_json_count(o->cases) >= 17);
}

static void close_all(opened *o)
{
    rvi_arena_deinit(&o->arena);
    rvi_blob_close(&o->blob);
    rvi_embedder_free(o->e);
    rvi_tokenizer_free(o->t);
    golden_close(&o->g);
}

/* Observed in 69 pairs: 0.016 with the embedder (states rounded to bytes, features to halves where
 * it was trained) and 0.010 by spelling, but for one pair each, 0.22 and 0.035: which word is the
 * nearest is a matter of the last bits there, and the judge sees another pair of words. */
static void judges_as_it_was_trained(void **state)
{
    (void)state;
    if (!path[0]) skip();
    opened o;
    open_with(&o, "tests/real/data/judge.json");
    int embedded = 0, spelled = 0;
    for (size_t i = 0; i < rvi_json_count(o.cases); i++) {
        embedded += !(difference(o.e, rvi_json_at(o.cases, i), "embedded") <= 0.03);
        spelled += !(difference(NULL, rvi_json_at(o.cases, i), "spelled") <= 0.02);
    }
    if (embedded > 1 || spelled > 1)
        fail_msg("%d and %d of %zu pairs are judged otherwise", embedded, spelled,
                 rvi_json_count(o.cases));
    close_all(&o);
}

/* The odds in the file are those of tools/train_compare.py with an encoder in floats. Observed:
 * 0.0011 or less; 0.077 with those of an encoder that was rounded to 8 bits. */
static void compares_as_it_was_trained(void **state)
{
    (void)state;
    if (!path[0]) skip();
    opened o;
    double worst = 0;
    open_with(&o, "tests/real/data/compare.json");
    for (size_t i = 0; i < rvi_json_count(o.cases); i++) {
        const rvi_json *row = rvi_json_at(o.cases, i);
        rvi_reading *q = read_member(o.e, row, "question"), *r = read_member(o.e, row, "request");
        rvi_embedder_pair pair = {q->ids, r->ids, (size_t)q->n_ids, (size_t)r->n_ids, 0};
        rvi_embedder_pair pairs[] = {pair, {r->ids, r->ids, pair.n_b, pair.n_b, 0}, pair};
        assert_ok(rvi_embedder_compare(o.e, &pair, 1, err));
        assert_ok(rvi_embedder_compare(o.e, pairs, RVI_COUNT(pairs), err)); /* in few passes */
        assert_float_equal(pairs[0].odds, pair.odds, 0);
        assert_float_equal(pairs[2].odds, pair.odds, 0);
        worst =
            fmax(worst, fabs((double)pair.odds - rvi_json_number(rvi_json_get(row, "odds"), NAN)));
        rvi_reading_free(q);
        rvi_reading_free(r);
    }
    if (!(worst <= 0.15)) fail_msg("odds differ by %.4f", worst);
    close_all(&o);
}

/* Which of the requests of a kind open their lesson, after the turn before them and alone. */
typedef struct follow_ups {
    int n, open, wrong; /* wrong: another lesson opens */
    int alone;          /* open without the turn before */
    bool wants;         /* they should open it */
} follow_ups;

static void ask_follow_ups(rvi_recogniser *r, const rvi_json *pairs, uint64_t lesson,
                           follow_ups *out)
{
    for (size_t i = 0; i < rvi_json_count(pairs); i++) {
        const char *earlier = rvi_json_string(rvi_json_at(rvi_json_at(pairs, i), 0), NULL);
        const char *request = rvi_json_string(rvi_json_at(rvi_json_at(pairs, i), 1), NULL);
        rvi_recognised found = {0};
        size_t n;
        bool last;
        assert_ok(rvi_recogniser_ask(r, request, &found, 1, &n, err));
        out->alone += n && found.sure;
        assert_ok(rvi_recogniser_follow(r, earlier, request, &found, 1, &n, &last, err));
        bool open = n && found.sure;
        out->n++;
        out->open += open;
        out->wrong += open && found.lesson != lesson;
        if (open != (out->wants) || (open && found.lesson != lesson))
            print_message("%s | %s: %s\n", earlier, request, open ? "opens" : "does not");
    }
}

/* tests/real/data/follow.json: "dev" was looked at when this was made, "test" was not. */
static void requests_are_taken_with_the_turn_before(void **state)
{
    (void)state;
    if (!path[0]) skip();
    opened o;
    follow_ups follow = {.wants = true}, other = {.wants = false};
    rvi_recogniser *r = NULL;
    open_with(&o, "tests/real/data/follow.json");
    assert_ok(rvi_recogniser_new(&r, o.e, NULL, err));
    size_t n = rvi_json_count(o.cases);
    for (size_t i = 0; i < n; i++) {
        const rvi_json *x = rvi_json_at(o.cases, i);
        assert_ok(rvi_recogniser_add(r, i + 1, rvi_json_string(rvi_json_get(x, "question"), NULL),
                                     rvi_json_string(rvi_json_get(x, "answer"), NULL), err));
    }
    for (size_t i = 0; i < n; i++) {
        const rvi_json *x = rvi_json_at(o.cases, i);
        ask_follow_ups(r, rvi_json_get(x, "follow"), i + 1, &follow);
        ask_follow_ups(r, rvi_json_get(x, "other"), i + 1, &other);
    }
    print_message("%d of %d follow-ups open their lesson (%d alone), %d of %d others (%d alone)\n",
                  follow.open - follow.wrong, follow.n, follow.alone, other.open, other.n,
                  other.alone);
    assert_true(follow.open - follow.wrong >= 20);
    assert_true(follow.wrong == 0);
    assert_true(other.open <= 2); /* observed: 1 */
    rvi_recogniser_free(r);
    close_all(&o);
}

/* Does it open the lesson, alone or behind an earlier text (NULL: none)? */
static bool opens(rvi_recogniser *r, const char *earlier, const char *request)
{
    rvi_recognised found;
    size_t n;
    bool last;
    assert_ok(rvi_recogniser_ask(r, request, &found, 1, &n, err));
    if (earlier && !(n && found.sure))
        assert_ok(rvi_recogniser_follow(r, earlier, request, &found, 1, &n, &last, err));
    return n && found.sure;
}

/* The same requests as lessons of their own: corrections of "And its population?". */
static void follow_ups_are_taught_with_their_context(void **state)
{
    (void)state;
    if (!path[0]) skip();
    opened o;
    int n = 0, resolved = 0, alone = 0, other = 0, n_same = 0, same = 0;
    open_with(&o, "tests/real/data/follow.json");
    size_t n_cases = rvi_json_count(o.cases);
    rvi_recogniser *r = NULL;
    assert_ok(rvi_recogniser_new(&r, o.e, NULL, err));
    for (size_t i = 0; i < n_cases; i++) {
        const rvi_json *x = rvi_json_at(o.cases, i), *own = rvi_json_get(x, "follow");
        for (size_t k = 0; k < rvi_json_count(own); k++, n++) {
            rvi_buf taught = {0};
            const char *pair[2] = {rvi_json_string(rvi_json_at(rvi_json_at(own, k), 0), NULL),
                                   rvi_json_string(rvi_json_at(rvi_json_at(own, k), 1), NULL)};
            assert_ok(rvi_follow_resolve(pair, 1, pair[1], &taught, err));
            rvi_recogniser_clear(r);
            assert_ok(rvi_recogniser_add(r, 1, taught.len ? taught.data : pair[1],
                                         rvi_json_string(rvi_json_get(x, "answer"), NULL), err));
            resolved += taught.len > 0;
            int before = alone + other;
            for (size_t m = 0; m < rvi_json_count(own); m++, n_same++)
                same +=
                    opens(r, rvi_json_string(rvi_json_at(rvi_json_at(own, m), 0), NULL), pair[1]);
            const rvi_json *them = rvi_json_get(rvi_json_at(o.cases, (i + 1) % n_cases), "follow");
            other += taught.len &&
                     opens(r, rvi_json_string(rvi_json_at(rvi_json_at(them, 0), 0), NULL), pair[1]);
            alone += taught.len && opens(r, NULL, pair[1]);
            if (!taught.len || alone + other > before)
                print_message("%s | %s: %s\n", pair[0], pair[1], taught.len ? taught.data : "-");
            rvi_buf_deinit(&taught);
        }
    }
    print_message("%d of %d follow-ups are taught with their context; behind it, or another turn "
                  "about the same, %d of %d open; of those alone %d, behind something else %d\n",
                  resolved, n, same, n_same, alone, other);
    assert_true(resolved >= 19); /* observed: 20 */
    assert_int_equal(same, n_same);
    assert_int_equal(alone, 0);
    assert_int_equal(other, 0);
    rvi_recogniser_free(r);
    close_all(&o);
}

static int count_open(rvi_recogniser *r, const rvi_json *texts)
{
    int n = 0;
    for (size_t i = 0; i < rvi_json_count(texts); i++)
        n += opens(r, NULL, rvi_json_string(rvi_json_at(texts, i), NULL));
    return n;
}

/* tests/real/data/behind.json: what was taught behind a turn is spoken there, and neither behind
 * one about something else, nor for that turn itself, nor for others about the same. */
static void what_is_taught_behind_a_turn_stays_there(void **state)
{
    (void)state;
    if (!path[0]) skip();
    opened o;
    rvi_recogniser *r = NULL;
    size_t n_whole = 0;
    int same = 0, other = 0, turn = 0, whole = 0, near = 0;
    open_with(&o, "tests/real/data/behind.json");
    assert_ok(rvi_recogniser_new(&r, o.e, NULL, err));
    size_t n = rvi_json_count(o.cases);
    for (size_t i = 0; i < n; i++) {
        const rvi_json *x = rvi_json_at(o.cases, i);
        const char *earlier = rvi_json_string(rvi_json_get(x, "turn"), NULL),
                   *request = rvi_json_string(rvi_json_get(x, "request"), NULL);
        rvi_buf taught = {0};
        assert_ok(rvi_follow_resolve(&earlier, 1, request, &taught, err));
        rvi_recogniser_clear(r);
        assert_ok(rvi_recogniser_add(r, 1, taught.len ? taught.data : request,
                                     rvi_json_string(rvi_json_get(x, "answer"), NULL), err));
        rvi_buf_deinit(&taught);
        same += opens(r, earlier, request);
        other += opens(r, rvi_json_string(rvi_json_get(x, "other"), NULL), request);
        turn += opens(r, NULL, earlier);
        whole += count_open(r, rvi_json_get(x, "whole"));
        n_whole += rvi_json_count(rvi_json_get(x, "whole"));
        near += count_open(r, rvi_json_get(x, "near"));
    }
    print_message("of %zu taught behind a turn %d open there, %d behind another, %d for the turn, "
                  "%d for others about the same; %d of %zu whole questions open theirs\n",
                  n, same, other, turn, near, whole, n_whole);
    assert_int_equal(same, n);
    assert_int_equal(other + near, 0);
    assert_true(turn <= 2);  /* observed: 2, of which one has the words of the request in it */
    assert_true(whole >= 6); /* observed: 6 */
    rvi_recogniser_free(r);
    close_all(&o);
}

/* Words so alike that one opinion of the judge is certain: the other must be heard. */
static void other_persons_ask_for_something_else(void **state)
{
    static const char *const others[] = {"Who am I?", "Who is she?", "How are you?",
                                         "Who made you?"};
    (void)state;
    if (!path[0]) skip();
    opened o;
    rvi_recogniser *r = NULL;
    open_with(&o, "tests/real/data/follow.json");
    assert_ok(rvi_recogniser_new(&r, o.e, NULL, err));
    assert_ok(rvi_recogniser_add(r, 1, "Who are you?",
                                 "I am Pico, the assistant of the Rossi bakery.", err));
    assert_true(opens(r, NULL, "Tell me who you are."));
    for (size_t i = 0; i < RVI_COUNT(others); i++)
        if (opens(r, NULL, others[i])) fail_msg("%s opens the lesson", others[i]);
    rvi_recogniser_free(r);
    close_all(&o);
}

static const rvi_backend_ops *real;
static rvi_backend_ops counting;
static const rvi_tensor *words;
static int rows_now; /* rows of passes */

static void count_rows(rvi_backend *be, rvi_cols out, const rvi_tensor *table, const int32_t *ids,
                       int n_rows, float scale)
{
    rows_now += table == words ? n_rows : 0;
    real->embed(be, out, table, ids, n_rows, scale);
}

/* What was recognised, asked alone and then after the turn before; whether that was held. */
static rv_status ask_both(rvi_recogniser *r, rvi_embedder *by, const char *earlier,
                          const char *request, rvi_recognised found[2], bool *held)
{
    size_t n[2] = {0};
    bool last;
    rv_error e;
    rv_status st = rvi_recogniser_ask(r, request, &found[0], 1, &n[0], &e);
    if (!st) st = rvi_recogniser_follow(r, earlier, request, &found[1], 1, &n[1], &last, &e);
    *held = rvi_embedder_was_held(by);
    if (!st) assert_true(n[0] == 1 && n[1] <= 1);
    return st;
}

/* A pass at a time, which comes to the same: of lessons that nobody has read yet, and of long
 * texts. */
static void passes_may_wait(void **state)
{
    enum { LESSONS = 6, MOST_ROWS = RVI_EMBEDDER_TOKENS + 2 };
    static const char *const lessons[LESSONS][2] = {
        {"What is the capital of Veltania?", "Orrin"},
        {"What is the population of Veltania?", "four million"},
        {"Who wrote The Glass Orchard?", "Mira Tolen"},
        {"Which river flows through Dunmore?", "the Asher"},
        {"How do I reset the printer on the third floor?", "Hold the green button."},
        {"When was the bridge of Karsk built?", "in 1887"}};
    static const char *const asked[][2] = {
        {"Tell me something about Veltania.", "And what is its capital?"},
        {"I read The Glass Orchard on the train, and I liked it.", "Who is its author?"},
        {"Tell me about trains.", "Good morning! I have walked all day through the old town and "
                                  "over the market, and now I stand at the water: which river is "
                                  "it that flows through Dunmore, please?"},
        {"The bridge of Karsk is old.", "And who painted it, and in which colours?"}};
    (void)state;
    if (!path[0]) skip();
    golden g;
    rvi_recogniser *r[2];
    rvi_embedder *by[2];
    golden_open(&g, path, NULL, false, 2, NULL);
    rvi_tokenizer *t = open_cached_tokenizer(path);
    for (int k = 0; k < 2; k++) {
        assert_ok(rvi_embedder_new(&by[k], g.m, t, g.m->be, err));
        assert_ok(rvi_recogniser_new(&r[k], by[k], NULL, err));
        for (int i = 0; i < LESSONS; i++)
            assert_ok(rvi_recogniser_add(r[k], (uint64_t)i + 1, lessons[i][0], lessons[i][1], err));
    }
    real = g.m->be->ops;
    counting = *real;
    counting.embed = count_rows;
    words = g.m->embed;
    g.m->be->ops = &counting;
    for (size_t i = 0; i < RVI_COUNT(asked); i++) {
        rvi_recognised once[2] = {{0}}, found[2] = {{0}};
        bool held = true;
        int n_pieces = 0;
        assert_int_equal(ask_both(r[0], by[0], asked[i][0], asked[i][1], once, &held), RV_OK);
        assert_false(held);
        for (held = true; held; n_pieces++) {
            rows_now = 0;
            assert_true(n_pieces < 40);
            memset(found, 0, sizeof found);
            rvi_embedder_hold(by[1], 0);
            rv_status st = ask_both(r[1], by[1], asked[i][0], asked[i][1], found, &held);
            assert_int_equal(st, held ? RV_E_BUSY : RV_OK);
            assert_true(rows_now <= MOST_ROWS);
        }
        rvi_embedder_hold(by[1], -1);
        rows_now = 0;
        assert_int_equal(ask_both(r[1], by[1], asked[i][0], asked[i][1], found, &held), RV_OK);
        assert_int_equal(rows_now, 0); /* all of it is remembered */
        rvi_embedder_forget(by[1]);
        for (int k = 0; k < 2; k++) {
            assert_int_equal(found[k].lesson, once[k].lesson);
            assert_float_equal(found[k].probability, once[k].probability, 0);
        }
        assert_true(n_pieces > 1);
    }
    g.m->be->ops = real;
    for (int k = 0; k < 2; k++) {
        rvi_recogniser_free(r[k]);
        rvi_embedder_free(by[k]);
    }
    rvi_tokenizer_free(t);
    golden_close(&g);
}

/* Names spelled nearly alike are nearly as likely: that of the request counts, whichever is newer.
 * Of lessons about the same thing the newest does, whatever words it has. */
static void names_nearly_alike_are_told_apart(void **state)
{
    (void)state;
    if (!path[0]) skip();
    static const struct {
        const char *request;
        uint64_t lesson;
    } asked[] = {{"What does Negorvin like to eat most of all?", 1},
                 {"Which meal makes Negorvin happiest?", 1},
                 {"Negorvin is coming for dinner. What should I cook?", 1},
                 {"What does Negorn like to eat most of all?", 2},
                 {"Negorn is coming for dinner. What should I cook?", 2},
                 {"What does Pella do for a living?", 4}};
    golden g;
    golden_open(&g, path, NULL, false, 2, NULL);
    rvi_tokenizer *t = open_cached_tokenizer(path);
    rvi_embedder *e;
    rvi_recogniser *r = NULL;
    assert_ok(rvi_embedder_new(&e, g.m, t, g.m->be, err));
    assert_ok(rvi_recogniser_new(&r, e, NULL, err));
    assert_ok(rvi_recogniser_add(r, 1, "What is Negorvin's favourite dish?", "pizza", err));
    assert_ok(rvi_recogniser_add(r, 2, "What is Negorn's favourite dish?", "waffles", err));
    assert_ok(rvi_recogniser_add(r, 3, "What does Pella do all day?", "baker", err));
    assert_ok(rvi_recogniser_add(r, 4, "What is Pella's profession?", "pilot", err));
    for (size_t i = 0; i < RVI_COUNT(asked); i++) {
        rvi_recognised found = {0};
        size_t n = 0;
        assert_ok(rvi_recogniser_ask(r, asked[i].request, &found, 1, &n, err));
        if (!found.sure || found.lesson != asked[i].lesson)
            fail_msg("%s: lesson %d, %.3f", asked[i].request, (int)found.lesson,
                     (double)found.probability);
    }
    rvi_recogniser_free(r);
    rvi_embedder_free(e);
    rvi_tokenizer_free(t);
    golden_close(&g);
}

/* Long texts are alike by their many words, and by what both tell before they ask. */
static void long_requests_are_told_apart(void **state)
{
    (void)state;
    if (!path[0]) skip();
    static const char story[] =
        "I bought a Tarrow 300 coffee grinder at the flea market last month. ";
    static const struct {
        const char *told, *request;
        bool sure;
    } asked[] = {
        {story,
         "It starts, but after ten seconds a red lamp comes on and it stops. Hopper and "
         "burrs are clean. How do I get it going again?",
         true},
        {"",
         "My second-hand Tarrow 300 grinder stops after ten seconds with a red lamp, although "
         "the hopper is empty and the burrs are brushed. What now?",
         true},
        {story,
         "It runs, but the powder is far too coarse. I have emptied the bean hopper and "
         "brushed out the burrs. What should I do now?",
         false},
        {story, "It has no manual. How many beans fit into it?", false},
        {"",
         "I look after the greenhouse at our school while the caretaker is away. I water it twice "
         "a week. The tap has begun to drip. Who has the key to the water main?",
         false},
    };
    golden g;
    golden_open(&g, path, NULL, false, 2, NULL);
    rvi_tokenizer *t = open_cached_tokenizer(path);
    rvi_embedder *e;
    rvi_recogniser *r = NULL;
    assert_ok(rvi_embedder_new(&e, g.m, t, g.m->be, err));
    assert_ok(rvi_recogniser_new(&r, e, NULL, err));
    rvi_buf question = {0};
    assert_true(rvi_buf_printf(
        &question,
        "%sIt starts, but after ten seconds a red lamp comes on and it stops. I have "
        "emptied the bean hopper and brushed out the burrs. What should I do now?",
        story));
    assert_ok(rvi_recogniser_add(r, 1, question.data, "Hold both buttons.", err));
    static const char other[] = "I moved to Harnley in spring and I pay my council tax by standing "
                                "order. Yesterday I got a "
                                "letter that says I still owe two months, though my bank shows "
                                "both payments. The number on "
                                "the letter is always engaged. Who can sort this out for me?";
    assert_ok(rvi_recogniser_add(r, 2, other, "Mrs Odell.", err));
    for (size_t i = 0; i < RVI_COUNT(asked); i++) {
        rvi_recognised found = {0};
        size_t n = 0;
        question.len = 0;
        assert_true(rvi_buf_printf(&question, "%s%s", asked[i].told, asked[i].request));
        assert_ok(rvi_recogniser_ask(r, question.data, &found, 1, &n, err));
        if (found.sure != asked[i].sure)
            fail_msg("%s: %.3f", asked[i].request, (double)found.probability);
    }
    rvi_buf_deinit(&question);
    rvi_recogniser_free(r);
    rvi_embedder_free(e);
    rvi_tokenizer_free(t);
    golden_close(&g);
}

/* The encoder has hardly a word of some scripts: there a lesson must not open for anything that is
 * asked in them. */
static void strange_scripts_are_told_apart(void **state)
{
    (void)state;
    if (!path[0]) skip();
    static const struct {
        const char *question, *request;
        bool sure;
    } asked[] = {
        {"Πότε ανοίγει ο φούρνος της γιαγιάς;", "πότε ανοίγει ο φούρνος της γιαγιάς", true},
        {"Πότε ανοίγει ο φούρνος της γιαγιάς;", "Ποια είναι η πρωτεύουσα της Ελλάδας;", false},
        {"Πότε ανοίγει ο φούρνος της γιαγιάς;", "Ποιος έγραψε αυτό το βιβλίο;", false},
        {"Ե՞րբ է բացվում տատիկի հացատունը:", "Երբ է տատիկի հացատունը բացվում", true},
        {"Ե՞րբ է բացվում տատիկի հացատունը:", "Ո՞րն է Հայաստանի մայրաքաղաքը:", false},
        {"ร้านกาแฟของป้าหมวยเปิดกี่โมง", "ร้านกาแฟของป้าหมวยเปิดกี่โมง?", true},
        {"ร้านกาแฟของป้าหมวยเปิดกี่โมง", "ร้านกาแฟของป้าหมวยปิดกี่โมง", false},
        {"ร้านกาแฟของป้าหมวยเปิดกี่โมง", "เมืองหลวงของไทยคืออะไร", false},
        {"우리 동네 도서관은 몇 시에 닫아요?", "우리 동네 도서관 마감 시간", true},
    };
    golden g;
    golden_open(&g, path, NULL, false, 2, NULL);
    rvi_tokenizer *t = open_cached_tokenizer(path);
    rvi_embedder *e;
    assert_ok(rvi_embedder_new(&e, g.m, t, g.m->be, err));
    for (size_t i = 0; i < RVI_COUNT(asked); i++) {
        rvi_recogniser *r = NULL;
        rvi_recognised found = {0};
        size_t n = 0;
        assert_ok(rvi_recogniser_new(&r, e, NULL, err));
        assert_ok(rvi_recogniser_add(r, 1, asked[i].question, "6", err));
        assert_ok(rvi_recogniser_ask(r, asked[i].request, &found, 1, &n, err));
        if (found.sure != asked[i].sure)
            fail_msg("%s: %.3f", asked[i].request, (double)found.probability);
        rvi_recogniser_free(r);
    }
    rvi_embedder_free(e);
    rvi_tokenizer_free(t);
    golden_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(judges_as_it_was_trained),
                                       cmocka_unit_test(compares_as_it_was_trained),
                                       cmocka_unit_test(requests_are_taken_with_the_turn_before),
                                       cmocka_unit_test(follow_ups_are_taught_with_their_context),
                                       cmocka_unit_test(what_is_taught_behind_a_turn_stays_there),
                                       cmocka_unit_test(other_persons_ask_for_something_else),
                                       cmocka_unit_test(passes_may_wait),
                                       cmocka_unit_test(names_nearly_alike_are_told_apart),
                                       cmocka_unit_test(long_requests_are_told_apart),
                                       cmocka_unit_test(strange_scripts_are_told_apart)};
    return cmocka_run_group_tests_name("judge", tests, find_model, NULL);
}
