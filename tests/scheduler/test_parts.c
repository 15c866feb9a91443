/* The parts of the scheduler by themselves: whose turn it is, how many rows a step may have, what
 * is counted, what is told. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/compat.h"
#include "base/rng.h"
#include "harness/assert_ok.h"
#include "decode/budget.h"
#include "scheduler/events.h"
#include "scheduler/figures.h"
#include "scheduler/pace.h"
#include "scheduler/tenants.h"

/* ---- tenants ---- */

static bool has_waiting(void *ctx, const rvi_tenant *x)
{
    (void)ctx;
    return x->first != NULL;
}

/* Two tenants that always want more get the same number of rows, whatever the sizes of their
 * requests; a third that comes late and wants little gets that at once. */
static void turns_are_fair(void **state)
{
    (void)state;
    rvi_tenants t = {.quantum = 64};
    rvi_tenant *of[3];
    rvi_waiting wants[3] = {{0}};
    int64_t rows[3] = {0};
    static const int size[] = {1000, 10, 30};
    assert_ok(rvi_tenants_join(&t, "large", &of[0], err));
    assert_ok(rvi_tenants_join(&t, "small", &of[1], err));
    for (int i = 0; i < 2; i++) rvi_tenant_wait(of[i], &wants[i]);
    for (int n = 0; n < 5000; n++) {
        rvi_tenant *x = rvi_tenants_next(&t, has_waiting, NULL);
        int i = x == of[1];
        rvi_tenants_pay(&t, x, size[i]);
        rows[i] += size[i];
    }
    assert_true(labs((long)(rows[0] - rows[1])) <= 2 * 1000 + 64);
    assert_ok(rvi_tenants_join(&t, "late", &of[2], err));
    rvi_tenant_wait(of[2], &wants[2]);
    int waited = 0;
    while (rvi_tenants_next(&t, has_waiting, NULL) != of[2]) {
        rvi_tenant *x = rvi_tenants_next(&t, has_waiting, NULL);
        rvi_tenants_pay(&t, x, size[x == of[1]]);
        waited += size[x == of[1]];
    }
    assert_true(waited <= 1000 + 64);
    for (int i = 0; i < 3; i++) {
        rvi_tenant_unwait(of[i], &wants[i]);
        rvi_tenants_leave(&t, of[i]);
    }
    assert_null(t.turn);
    assert_null(rvi_tenants_next(&t, has_waiting, NULL));
}

/* What a tenant used while it was alone is soon forgotten; and while it passed somebody who waited
 * for nothing but the preparation of an answer. */
static void debts_have_a_limit(void **state)
{
    (void)state;
    rvi_tenants t = {.quantum = 64};
    rvi_tenant *a, *b;
    rvi_waiting wants[2] = {{0}};
    assert_ok(rvi_tenants_join(&t, "a", &a, err));
    rvi_tenants_pay(&t, a, 1000000);
    assert_ok(rvi_tenants_join(&t, "b", &b, err));
    t.begins = &wants[1];
    rvi_tenant_wait(b, &wants[1]);
    rvi_tenants_pay(&t, a, 1000000);
    t.begins = NULL;
    rvi_tenant_wait(a, &wants[0]);
    int rows = 0;
    for (; rvi_tenants_next(&t, has_waiting, NULL) != a; rows += 16) rvi_tenants_pay(&t, b, 16);
    assert_in_range(rows, 64, 64 * 10);
    rvi_tenant_unwait(a, &wants[0]);
    rvi_tenant_unwait(b, &wants[1]);
    rvi_tenants_leave(&t, a);
    rvi_tenants_leave(&t, b);
}

static void ranks_decide_within_a_tenant(void **state)
{
    (void)state;
    rvi_tenants t = {.quantum = 64};
    rvi_tenant *x;
    rvi_waiting w[4] = {{.rank = 3}, {.rank = 1}, {.rank = 2}, {.rank = 1}};
    assert_ok(rvi_tenants_join(&t, "x", &x, err));
    for (int i = 0; i < 4; i++) rvi_tenant_wait(x, &w[i]);
    static const int order[] = {1, 3, 2, 0}; /* of equals the first to wait */
    for (int i = 0; i < 4; i++) {
        assert_ptr_equal(x->first, &w[order[i]]);
        rvi_tenant_unwait(x, x->first);
    }
    rvi_tenant_unwait(x, &w[0]); /* not there */
    rvi_tenants_leave(&t, x);
}

/* ---- budget ---- */

/* On a machine whose steps cost a + b n, it settles where a step takes what it should; when rows
 * grow dearer or cheaper it follows. */
static void rows_follow_the_time(void **state)
{
    (void)state;
    rvi_budget b = {0};
    rvi_rng rng = {1};
    double row = 1e-3;
    for (int phase = 0; phase < 3; phase++) {
        static const double costs[] = {1e-3, 4e-3, 0.5e-3};
        row = costs[phase];
        int n = 0;
        for (int step = 0; step < 400; step++) {
            n = rvi_budget_rows(&b, 24, 512, NULL, 0.05);
            double noise = 0.95 + 0.1 * rvi_rng_double(&rng);
            rvi_budget_note(&b, n, 0, (4e-3 + row * n) * noise);
            rvi_budget_note(&b, 8, 0, (4e-3 + row * 8) * noise);
        }
        double want = (0.05 - 4e-3) / row, seconds = 4e-3 + row * n;
        if (want < 24) {
            assert_int_equal(n, 24); /* the least */
        } else {
            assert_true(n > 0.7 * want);
            assert_true(seconds < 0.05 * 1.3);
        }
    }
    assert_int_equal(rvi_budget_rows(&b, 24, 30, NULL, 1e9), 30);
    assert_int_equal(rvi_budget_rows(&b, 24, 24, NULL, 0), 24);
}

/* Beside streams that are to have a token every 50 ms an engine's steps take no longer, whatever a
 * row costs, if one row does not; few rows at a time are more than half as long only where more
 * would be longer than all of it. */
static void turns_beside_streams_are_short(void **state)
{
    (void)state;
    static const struct {
        double base, row;
        int least, most;                /* rows that are right */
    } models[] = {{3e-3, 4e-4, 50, 56}, /* SmolLM2, two threads */
                  {0.02, 1.5e-3, 8, 9}, /* eight take more than half of the time */
                  {0.03, 6.5e-3, 2, 3}, /* a 1B model; nine rows took 88 ms */
                  {0.2, 1e-2, 2, 2}};   /* one row of the prompt, and a token */
    for (size_t i = 0; i < RVI_COUNT(models); i++) {
        rvi_budget b = {0};
        for (int turn = 0; turn < 20; turn++) {
            int n = rvi_budget_beside(&b, 1, 512, 0.05);
            double seconds = models[i].base + models[i].row * n;
            if (turn > 8 && (n < models[i].least || n > models[i].most))
                fail_msg("%g s a row: %d rows", models[i].row, n);
            assert_true(seconds <= 0.05 || n == 2);
            rvi_budget_note(&b, n, 0, seconds);
        }
    }
    rvi_budget b = {0};
    assert_int_equal(rvi_budget_beside(&b, 4, 3, 0.05), 3);
}

/* ---- pace ---- */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Seconds of a step, of each row, of a token that one of many rows reads; of one that the first row
 * of a text reads, and more for each of a few rows. */
typedef struct machine {
    double base, row, read, first, few;
    double token;    /* and more for each of the first eight tokens of streams */
    double mid, far; /* each row behind 32, and behind 96; 0: as those before */
    double tiles;    /* whole groups of 16 rows: seconds of each besides those of all; 0: as rows */
    double beside;   /* and of other rows beside such groups */
    double cliff;    /* and of CLIFF rows of a prompt, or more; 0: none */
    double rate;     /* with many requests, as a part of the engine's; 0: 0.85 will do */
    double noise;
    double drift; /* seconds for which it keeps its speed, in the mean; 0: it has but one */
    double slower, now, until;
    double hiccups; /* the part of its steps that take HICCUP times as long */
    rvi_rng rng;
    rvi_pace pace;
    int most_read; /* rows of the prompt that a step had, at most */
} machine;

enum { CLIFF = 24, HICCUP = 10 };

static double wobble(machine *m)
{
    double noise = 1 - m->noise / 2 + m->noise * rvi_rng_double(&m->rng);
    if (m->hiccups > 0 && rvi_rng_double(&m->rng) < m->hiccups) noise *= HICCUP;
    if (m->drift <= 0) return noise;
    if (m->now >= m->until) {
        double slower = 2 * rvi_rng_double(&m->rng) - 1;
        m->slower = RVI_MAX(slower, 0);
        m->until = m->now - m->drift * log(1 - rvi_rng_double(&m->rng));
    }
    return noise * (1 + m->slower);
}

/* Of n_tokens streams with `own` tokens each, and of n_read rows of one prompt behind n_before. */
static double step_of(const machine *m, int n_tokens, int own, int n_read, int n_before)
{
    int n = n_tokens + n_read;
    double seconds = m->base + m->row * n;
    if (m->tiles > 0 && n >= 16) {
        seconds = 2 * m->base + m->tiles * (n / 16);
        if (n % 16) seconds += m->beside + m->row * (n % 16);
    }
    if (n_read >= CLIFF) seconds += m->cliff;
    seconds += (m->few + m->first) * own * n_tokens;
    if (n_read) seconds += RVI_MAX(m->few * n_read + m->first, m->read * n_read) * n_before;
    return seconds;
}

/* SmolLM2 Q4_1 on a Xeon with AMX, half of what one thread takes: 1, 8 and 32 rows behind 100
 * tokens 6.5, 12.5 and 31 ms, behind 6,000 tokens 22, 52 and 184 ms, and 4 rows 9.7 and 31. */
static const machine smollm2 = {.base = 3e-3,
                                .row = 4e-4,
                                .read = 4.1e-7,
                                .first = 1.15e-6,
                                .few = 1.6e-7,
                                .noise = 0.1,
                                .rng = {3}};

/* A 1B model in q4_k there: 8, 12, 14, 16, 17, 24, 32 and 64 rows take 82, 104, 120, 88, 116, 137,
 * 130 and 180 ms; behind 5,500 tokens 4, 8 and 24 rows beside 8 tokens 111, 117 and 226 ms. The
 * leap behind a group is made larger here than it was (25 ms). */
static const machine tiled = {.base = 0.03,
                              .row = 6.5e-3,
                              .tiles = 0.0285,
                              .beside = 0.045,
                              .read = 6.5e-7,
                              .few = 6.5e-7,
                              .noise = 0.1,
                              .rng = {3}};

/* And without AMX: 8, 9, 10 and 16 rows take 115, 135, 151 and 232 ms. */
static const machine dear = {
    .base = 2e-3, .row = 0.0144, .read = 6.5e-7, .few = 6.5e-7, .noise = 0.1, .rng = {3}};

static double step(machine *m, int n_tokens, int own, int n_read, int n_before)
{
    double seconds = step_of(m, n_tokens, own, n_read, n_before) * wobble(m);
    m->pace.alone = true;
    m->pace.n_given = n_read;
    rvi_pace_note(&m->pace, n_tokens, n_tokens + n_read, seconds);
    m->now += seconds;
    return seconds;
}

/* What 95 % of steps without a prompt take at most. */
static double alone_95(const machine *m, int n_tokens, int own)
{
    return step_of(m, n_tokens, own, 0, 0) * (1 + 0.45 * m->noise);
}

/* Reads a prompt beside so many streams of some tokens each; how long the streams wait, as 95 % of
 * steps do. */
static double read_beside(machine *m, int n_tokens, int own, int n_long, int n_prompt, int *n_steps)
{
    enum { MOST = 30000, MAX_ROWS = 512 };
    static double seconds[MOST];
    *n_steps = m->most_read = 0;
    for (int at = 0, n; at < n_prompt; at += n) {
        assert_true(*n_steps < MOST);
        m->pace.n_long = n_long;
        m->pace.depth = at;
        int now = n_tokens - (n_tokens > 4 && *n_steps % 37 == 36); /* one ends, another begins */
        double target = rvi_pace_target(&m->pace, now, n_long, 0, 0.05);
        n = rvi_pace_rows(&m->pace, now, MAX_ROWS, target);
        assert_in_range(n, 0, MAX_ROWS - now);
        m->most_read = RVI_MAX(m->most_read, n);
        seconds[(*n_steps)++] = step(m, now, own, n, at);
    }
    qsort(seconds, (size_t)*n_steps, sizeof *seconds, by_size);
    return seconds[*n_steps * 95 / 100];
}

/* A prompt of 6,000 tokens makes streams wait half as long again at most, and yet ends, whatever
 * reading costs; also when the machine becomes slower meanwhile, or there are other streams than
 * before. */
static void long_prompts_are_read_gently(void **state)
{
    (void)state;
    machine m = smollm2;
    int n_steps, slow;
    m.pace.n_long = 1;
    assert_int_equal(rvi_pace_rows(&m.pace, 8, 512, 0.05), 0); /* to be measured */
    static const double reads[] = {0.03, 0.3, 1, 3};
    for (size_t i = 0; i < RVI_COUNT(reads); i++) {
        m = smollm2;
        m.read *= reads[i];
        m.first *= reads[i];
        m.few *= reads[i];
        for (int k = 0; k < 50; k++) (void)step(&m, 8, 300, 0, 0);
        double alone = alone_95(&m, 8, 300);
        double got = read_beside(&m, 8, 300, 1, 6000, &n_steps);
        if (got >= 1.5 * alone) fail_msg("%g: %g s, and %g alone", reads[i], got, alone);
        assert_true(n_steps < 6000 * 3.5);
    }
    for (int n = 3; n <= 20; n++) { /* rows cost little where they fill a group, others much */
        m = tiled;
        for (int k = 0; k < 50; k++) (void)step(&m, n, 300, 0, 0);
        (void)read_beside(&m, n, 300, 8, 200, &n_steps);
        double alone = alone_95(&m, n, 300), got = read_beside(&m, n, 300, 1, 6000, &n_steps);
        if (got >= 1.5 * alone) fail_msg("%d beside tiles: %g s, and %g alone", n, got, alone);
        if (n == 8) /* eight rows fill a group and are tried at once: 1,383; later, 1,400 */
            assert_in_range(n_steps, 1, 1390);
    }
    m = smollm2;
    for (int k = 0; k < 50; k++) (void)step(&m, 8, 300, 0, 0);
    (void)read_beside(&m, 8, 300, 1, 2000, &n_steps);
    m.row *= 2;
    m.base *= 2;
    m.read *= 2;
    m.first *= 2;
    m.few *= 2;
    assert_true(read_beside(&m, 8, 300, 1, 6000, &slow) < 1.5 * alone_95(&m, 8, 300));
    assert_true(read_beside(&m, 30, 100, 1, 2000, &n_steps) < 1.5 * alone_95(&m, 30, 100));
    (void)read_beside(&m, 1, 100, 1, 2000, &n_steps);
    assert_true(read_beside(&m, 1, 100, 7, 2000, &slow) <= 0.05 * 1.1);
    assert_true(slow < n_steps); /* one listens and seven wait: they count for more */
    m.base = 0.2;
    (void)read_beside(&m, 8, 300, 1, 1000, &n_steps); /* beyond the target: it ends all the same */
    assert_true(n_steps <= 1000 + 50);
}

/* On a machine that has other work half of the time: steps are compared with those shortly before,
 * so that rows do not seem dear because the machine has become slow, nor cheap. */
static void a_machine_may_change_its_speed(void **state)
{
    (void)state;
    enum { ALONE = 20000 };
    static double alone[ALONE];
    static const double drifts[] = {1, 5, 30};
    for (size_t i = 0; i < RVI_COUNT(drifts); i++)
        for (uint64_t seed = 1; seed <= 10; seed++) {
            machine m = dear;
            int n_steps;
            m.rng = (rvi_rng){seed};
            m.drift = drifts[i];
            for (int k = 0; k < 50; k++) (void)step(&m, 8, 300, 0, 0);
            double got = read_beside(&m, 8, 300, 1, 6000, &n_steps);
            for (int k = 0; k < ALONE; k++) alone[k] = step(&m, 8, 300, 0, 0);
            qsort(alone, ALONE, sizeof *alone, by_size);
            double usual = alone[ALONE * 95 / 100]; /* of 30 seeds 1.27, 1.49, 1.43 at most */
            if (got >= 1.5 * usual) fail_msg("%g s: %g s, and %g alone", drifts[i], got, usual);
            assert_true(n_steps < 8000); /* 6,391 of 30 seeds; a steady machine: 3,100 */
        }
}

/* Where two rows fit and steps scatter by a tenth or a fifth, they do not become one because a few
 * steps in a row took long. */
static void few_rows_are_not_given_up_for_noise(void **state)
{
    (void)state;
    static const double noises[] = {0.2, 0.4};
    static const int most[] = {3560,
                               4160}; /* steps in the mean: 3,261 and 3,773; 3,887 and 4,555 */
    for (size_t i = 0; i < RVI_COUNT(noises); i++) {
        int all = 0;
        for (uint64_t seed = 1; seed <= 10; seed++) {
            machine m = dear;
            int n_steps;
            m.rng = (rvi_rng){seed};
            m.noise = noises[i];
            for (int k = 0; k < 50; k++) (void)step(&m, 8, 300, 0, 0);
            double alone = alone_95(&m, 8, 300), got = read_beside(&m, 8, 300, 1, 6000, &n_steps);
            if (got >= 1.5 * alone) fail_msg("%g: %g s, and %g alone", noises[i], got, alone);
            all += n_steps;
        }
        if (all / 10 > most[i]) fail_msg("%g: %d steps", noises[i], all / 10);
    }
}

/* Numbers of rows that were never measured are not tried where fewer were far too dear: of those
 * beyond a cliff the first is met, which ends all hope, and none that is much wider. */
static void far_more_rows_are_not_tried(void **state)
{
    (void)state;
    for (int n = 3; n <= 28; n++) {
        machine m = tiled;
        int n_steps;
        m.cliff = 1;
        for (int k = 0; k < 50; k++) (void)step(&m, n, 300, 0, 0);
        double got = read_beside(&m, n, 300, 1, 6000, &n_steps);
        assert_true(got < 1.5 * alone_95(&m, n, 300));
        if (m.most_read >= 2 * CLIFF) fail_msg("beside %d: %d rows", n, m.most_read);
    }
}

/* The process was stopped, or had to wait for a disk, in the first step that was measured. */
static void a_hiccup_is_soon_forgotten(void **state)
{
    (void)state;
    static const machine *const models[] = {&smollm2, &tiled};
    for (size_t i = 0; i < RVI_COUNT(models); i++) {
        machine m = *models[i];
        int n_steps;
        m.pace.alone = true;
        rvi_pace_note(&m.pace, 8, 8, 60 * alone_95(&m, 8, 300));
        double alone = alone_95(&m, 8, 300), got = read_beside(&m, 8, 300, 1, 2000, &n_steps);
        if (got >= 1.5 * alone) fail_msg("%g s, and %g alone", got, alone);
        assert_true(m.most_read < 100);
    }
}

/* One step in a hundred takes ten times as long: the rows of the steps behind it are not thought to
 * be free. */
static void hiccups_make_no_row_cheap(void **state)
{
    (void)state;
    static const machine *const models[] = {&smollm2, &tiled, &dear};
    for (size_t i = 0; i < RVI_COUNT(models); i++)
        for (uint64_t seed = 1; seed <= 10; seed++) {
            machine m = *models[i];
            int n_steps;
            m.rng = (rvi_rng){seed};
            m.hiccups = 0.01;
            for (int k = 0; k < 50; k++) (void)step(&m, 8, 300, 0, 0);
            double alone = alone_95(&m, 8, 300), got = read_beside(&m, 8, 300, 1, 6000, &n_steps);
            if (got >= 1.5 * alone) fail_msg("%zu: %g s, and %g alone", i, got, alone);
        }
}

/* A step took next to nothing: it failed, or had none of the guesses of others. */
static void a_short_step_is_not_believed(void **state)
{
    (void)state;
    int n_steps[2] = {0};
    for (int i = 0; i < 20; i++) {
        bool is_short = i % 2;
        machine m = smollm2;
        int n;
        m.rng = (rvi_rng){(uint64_t)(1 + i / 2)};
        for (int k = 0; k < 50; k++) (void)step(&m, 8, 300, 0, 0);
        if (is_short) rvi_pace_note(&m.pace, 8, 8, 1e-5);
        (void)read_beside(&m, 8, 300, 1, 2000, &n);
        n_steps[is_short] += n;
    }
    assert_in_range(n_steps[1], n_steps[0] * 8 / 10, n_steps[0] * 12 / 10); /* 1.11 */
}

/* The streams' own texts grow until a step of theirs takes as long as it may, and longer: none
 * waits much longer than it would have, and the prompt goes on. */
static void streams_may_reach_the_target(void **state)
{
    (void)state;
    machine m = smollm2;
    int n_steps, at = 0, n_long_steps = 0;
    for (int k = 0; k < 50; k++) (void)step(&m, 8, 300, 0, 0);
    for (n_steps = 0; at < 6000; n_steps++) {
        assert_true(n_steps < 6000);
        int own = 300 + n_steps;
        m.pace.n_long = 1;
        m.pace.depth = at;
        int n = rvi_pace_rows(&m.pace, 8, 512, 0.05);
        n_long_steps += step(&m, 8, own, n, at) > 1.5 * alone_95(&m, 8, own);
        at += n;
    }
    assert_true(n_long_steps * 100 < n_steps * 5);
}

/* One stream, and somebody whose answers of one token come in every other step: no step is like the
 * one before it, and the prompt is read nevertheless. */
static void streams_may_come_and_go(void **state)
{
    (void)state;
    rvi_pace p = {.n_long = 1, .depth = 100, .alone = true};
    int n_rows = 0, n_between = 0, most_between = 0;
    for (int i = 0; i < 1000; i++) {
        int n_tokens = 1 + i % 2;
        p.n_given = rvi_pace_rows(&p, n_tokens, 512, 0.05);
        n_rows += p.n_given;
        n_between = p.n_given ? 0 : n_between + 1;
        most_between = RVI_MAX(most_between, n_between);
        rvi_pace_note(&p, n_tokens, n_tokens + p.n_given, 0.01 + 0.001 * p.n_given);
    }
    assert_true(n_rows >= 8 * 1000 / 40);
    assert_true(most_between < 40);
}

/* Beside others that read nothing can be measured: what was never measured is not chosen again and
 * again, and more rows than fit are not tried. */
static void nothing_is_tried_among_others(void **state)
{
    (void)state;
    rvi_pace p = {.n_long = 1, .depth = 100, .alone = true};
    for (int i = 0; i < 8; i++) rvi_pace_note(&p, 8, 8, 0.02);
    p.n_given = rvi_pace_rows(&p, 8, 512, 0.05);
    rvi_pace_note(&p, 8, 8 + p.n_given, 0.02 * 1.3); /* four rows are as many as fit */
    p.alone = false;
    for (int i = 0; i < 100; i++) assert_in_range(rvi_pace_rows(&p, 8, 512, 0.05), 1, 4);
    p.alone = true;
    assert_int_equal(rvi_pace_rows(&p, 8, 512, 0.05), 8);
}

/* Below the target it is the target; beyond it there is room for prompts all the same. */
static void slow_models_read_too(void **state)
{
    (void)state;
    rvi_pace p = {.plain = 0.01, .n_tokens = 1};
    assert_true(rvi_pace_target(&p, 1, 0, 0.01, 0.05) == 0.05);
    p.plain = 0.0199;
    assert_true(rvi_pace_target(&p, 1, 0, 0.0199, 0.05) == 0.05);
    double before = 0.05;
    for (p.plain = 0.021; p.plain < 0.2; p.plain += 0.001) { /* without a leap */
        double now = rvi_pace_target(&p, 1, 0, p.plain, 0.05);
        assert_true(now > before && now < before + 0.02);
        before = now;
    }
    assert_true(fabs(rvi_pace_target(&p, 1, 0, p.plain, 0.05) - 4 * p.plain) < 1e-9);
    p.n_tokens = 8;
    assert_true(rvi_pace_target(&p, 1, 0, 0.019, 0.05) == 0.05); /* there were more streams then */
    assert_true(rvi_pace_target(&p, 9, 0, 0.3, 0.05) == 4 * 0.3);
    assert_true(rvi_pace_target(&p, 0, 1, 0.3, 0.05) == 16 * p.plain); /* nobody listens, */
    assert_true(rvi_pace_target(&p, 0, 1, 0.1, 0.05) == 16 * 0.1);   /* and there were more then */
    assert_true(rvi_pace_target(&p, 1, 7, 0.3, 0.05) > 7 * p.plain); /* hardly anybody */
    p.plain = 0.014; /* one that comes keeps the target, and a crowd is read in longer steps */
    assert_true(rvi_pace_target(&p, 1, 1, p.plain, 0.05) == 0.05);
    assert_true(rvi_pace_target(&p, 8, 24, p.plain, 0.05) == 3 * 0.05);
    assert_true(rvi_pace_target(&p, 31, 1, p.plain, 0.05) == 0.05);
    p.plain = 0.005;
    assert_true(fabs(rvi_pace_target(&p, 8, 24, p.plain, 0.05) - 12 * p.plain) < 1e-9);
    p.n_long = 24; /* who have long prompts are not the crowd */
    assert_true(rvi_pace_target(&p, 8, 24, p.plain, 0.05) == 0.05);
    p = (rvi_pace){0}; /* stopped for an hour in the one step that was measured */
    rvi_pace_note(&p, 8, 8, 3600);
    assert_true(rvi_pace_target(&p, 9, 1, 0.1, 0.05) < 1);
    p = (rvi_pace){.n_long = 24}; /* nothing was measured */
    assert_true(rvi_pace_target(&p, 1, 0, 0, 0.05) == 0.05);
    assert_true(rvi_pace_target(&p, 1, 0, 10, 0.05) == 0.2);
}

static double short_step(const machine *m, int n_rows, int n_tokens)
{
    int n_mid = m->mid > 0 ? RVI_MIN(RVI_MAX(n_rows - 32, 0), 64) : 0;
    int n_far = m->far > 0 ? RVI_MAX(n_rows - 96, 0) : 0;
    return m->base + m->row * (n_rows - n_mid - n_far) + m->mid * n_mid + m->far * n_far +
           m->token * RVI_MIN(n_tokens, 8);
}

/* Seconds until eight requests of 200 + 64 tokens have ended that come at once: each step has a row
 * of those that decode, then rows of prompts, half of what is left to the oldest. */
static double serve_at_once(const machine *m, int n_requests, rvi_budget *b, rvi_pace *p)
{
    enum { MOST = 64, PROMPT = 200, NEW = 64, MAX_ROWS = 512 };
    int left[MOST], n_new[MOST] = {0}, n_ended = 0;
    double total = 0;
    assert_true(n_requests <= MOST);
    for (int i = 0; i < n_requests; i++) left[i] = PROMPT;
    while (n_ended < n_requests) {
        int n_tokens = 0, n_reading = 0, waiting = 0;
        for (int i = 0; i < n_requests; i++) {
            n_tokens += !left[i] && n_new[i] < NEW;
            n_reading += left[i] > 0;
            waiting += left[i];
        }
        double seconds = rvi_pace_target(p, n_tokens, n_reading,
                                         rvi_budget_seconds(b, RVI_MAX(n_tokens, 1)), 0.05);
        int most = RVI_MIN(MAX_ROWS, n_tokens + waiting),
            least = RVI_MIN((n_tokens + 8 + 15) / 16 * 16, most), rows = n_tokens;
        if (waiting) rows = rvi_budget_rows(b, least, most, NULL, seconds);
        rows = rvi_pace_whole(rows, least, most);
        for (int i = 0; i < n_requests; i++) {
            if (left[i] || n_new[i] == NEW) continue;
            n_ended += ++n_new[i] == NEW;
        }
        for (int i = 0, give = rows - n_tokens; i < n_requests; i++) {
            if (!left[i]) continue;
            int n = RVI_MIN(left[i], --n_reading > 0 ? (give + 1) / 2 : give);
            left[i] -= n;
            give -= n;
        }
        double took = short_step(m, rows, n_tokens);
        total += took;
        rvi_budget_note(b, rows, 0, took);
        rvi_pace_note(p, n_tokens, rows, took);
    }
    return total;
}

/* At 85 % or more of the rate that reading all prompts first and then decoding together has,
 * whether a step takes less than the target or more. */
static void slow_models_are_as_fast(void **state)
{
    (void)state;
    static const machine models[] = {{.base = 6.6e-3, .row = 4.6e-4}, /* SmolLM2, 2 threads */
                                     {.base = 0.02, .row = 1e-3},
                                     /* a 1B model, 16 threads: 8, 32, 83, 512 rows take 14, 20, 48
                                      * and 226 ms */
                                     {.base = 0.012, .row = 2.5e-4, .mid = 5.8e-4, .far = 4.05e-4},
                                     {.base = 0.03, .row = 1.8e-3, .token = 4.5e-3}, /* 1B */
                                     {.base = 0.028, .row = 2.2e-3},  /* a 1B model, 2 threads, */
                                     {.base = 0.056, .row = 2.25e-3}, /* and beside others; */
                                     /* without matrix units; 0.921 in steps of 16 rows */
                                     {.base = 0.028, .row = 0.0112, .rate = 0.94},
                                     {.base = 0.2, .row = 0.012}};
    for (size_t i = 0; i < RVI_COUNT(models); i++)
        for (int n = 8; n <= 32; n *= 4) {
            const machine *m = &models[i];
            rvi_budget b = {0};
            rvi_pace p = {0};
            double alone = 64 * short_step(m, n, 8), seconds;
            for (int left = 200 * n; left > 0; left -= 512)
                alone += short_step(m, RVI_MIN(left, 512), 0);
            (void)serve_at_once(m, 1, &b, &p);
            seconds = serve_at_once(m, n, &b, &p);
            if (alone < (m->rate > 0 ? m->rate : 0.85) * seconds)
                fail_msg("a step of %g s, %d requests: %g s, alone %g", m->base, n, seconds, alone);
        }
}

/* Steps until a prompt of 6,000 tokens has been read beside 8 streams and short prompts, of which
 * so many are there at any time with so many rows each, in steps with `most` rows of prompts. */
static int read_among(int n_short, int rows_each, int most)
{
    machine m = smollm2;
    int n_steps = 0, at = 0;
    for (int k = 0; k < 50; k++) (void)step(&m, 8, 300, 0, 0);
    for (; at < 6000; n_steps++) {
        m.pace.n_long = 1;
        m.pace.depth = at;
        int n = rvi_pace_share(&m.pace, n_short, (double)n_short * rows_each, most);
        assert_in_range(n, 0, most / (n_short + 1));
        at += RVI_MAX(n, 8);
    }
    return n_steps;
}

/* Short prompts that never cease do not stop a long one: it has as much of the time as each of
 * them, which at its end, where a row costs eight times as much, is fewer rows. */
static void short_prompts_leave_room(void **state)
{
    (void)state;
    assert_in_range(read_among(1, 1, 300), 700, 750); /* next to none: 8 rows a step */
    assert_true(read_among(1, 200, 300) < 6000 / 150 * 8);
    assert_true(read_among(1, 100, 300) < 6000 / 100 * 8);
    assert_true(read_among(3, 100, 300) < 6000 / 75 * 8);
    rvi_pace p = {.n_long = 1};
    assert_int_equal(rvi_pace_share(&p, 1, 1e9, 300), 150);
    assert_int_equal(rvi_pace_share(&p, 1, 40, 300), 40);
    assert_int_equal(rvi_pace_share(&p, 9, 1e9, 300), 30);
    p.n_long = 9;
    assert_int_equal(rvi_pace_share(&p, 1, 1e9, 300), 270);
}

/* ---- budget and what is read ---- */

/* A step of 8 streams and n rows of a prompt behind n_before tokens, and what it reads. */
static double budget_step(machine *m, rvi_budget *b, int n, int n_before)
{
    double seconds = step_of(m, 8, 300, n, n_before) * wobble(m);
    double reads = 8 * 300 + n_before * (n ? 1 + (n - 1) * RVI_READ_TOGETHER : 0);
    rvi_budget_note(b, 8 + n, reads, seconds);
    return seconds;
}

/* Short prompts beside streams, some of them behind a long text that was known: no step takes much
 * longer than it should, also where for a long time there was none, and steps are used well. */
static void deep_rows_cost_more(void **state)
{
    (void)state;
    machine m = smollm2;
    rvi_budget b = {0};
    enum { TRIES = 60, N = 250, LEAST = 16 };
    for (int k = 0; k < TRIES; k++) {
        int n_before = k % 3 == 2 ? 3000 : k % 3 * 200, n_plain = k % 7 == 6 ? 1000 : 30;
        for (int i = 0; i < n_plain; i++) (void)budget_step(&m, &b, 0, 0);
        double worst = 0;
        int n_steps = 0;
        for (int left = N, n; left > 0; left -= n, n_steps++) {
            double each = RVI_READ_TOGETHER * n_before;
            rvi_budget_reads reads = {8 * 300 + n_before - 9 * each, each};
            int most = 8 + left;
            n = rvi_budget_rows(&b, most < LEAST ? most : LEAST, most, &reads, 0.05) - 8;
            double seconds = budget_step(&m, &b, n, n_before + N - left);
            worst = seconds > worst ? seconds : worst;
        }
        if (k < 12) continue; /* until then it learns */
        if (worst > 0.05 * 1.35) fail_msg("%d: %g s behind %d", k, worst, n_before);
        double row = m.row + m.read * n_before, room = 0.05 - step_of(&m, 8, 300, 1, n_before);
        assert_true(n_steps <= 2 + 2 * N * row / room);
    }
}

/* ---- figures ---- */

static void quantiles_are_near(void **state)
{
    (void)state;
    enum { N = 20000 };
    static double values[N];
    static rvi_figures f;
    static rv_service_metrics m;
    rvi_rng rng = {5};
    double sum = 0;
    for (int i = 0; i < N; i++) {
        values[i] = 1e-5 * exp(9 * rvi_rng_double(&rng)); /* 10 us to 80 ms */
        rvi_tally_add(&f.step, values[i]);
        sum += values[i];
    }
    rvi_tally_add(&f.queue, 0);
    rvi_tally_add(&f.queue, 1e9);
    rvi_figures_add(&f.n_done, 7);
    rvi_figures_read(&f, &m);
    qsort(values, N, sizeof *values, by_size);
    assert_int_equal(m.step.n, N);
    assert_int_equal(m.n_done, 7);
    assert_true(fabs(m.step.sum - sum) < 1e-3 * sum);
    assert_true(fabs(m.step.max - values[N - 1]) < 1e-8);
    static const double shares[] = {0.01, 0.5, 0.95, 0.99, 1};
    for (size_t i = 0; i < RVI_COUNT(shares); i++) {
        double want = values[(int)(shares[i] * (N - 1))];
        double got = rv_histogram_quantile(&m.step, shares[i]);
        if (fabs(got - want) > 0.016 * want) fail_msg("%g: %g, not %g", shares[i], got, want);
    }
    assert_int_equal(m.queue.counts[0], 1);
    assert_int_equal(m.queue.counts[RV_HISTOGRAM_BUCKETS - 1], 1);
    assert_true(rv_histogram_quantile(&m.inter_token, 0.5) == 0);
    assert_true(rv_histogram_quantile(NULL, 0.5) == 0);
    for (int i = 1; i < RV_HISTOGRAM_BUCKETS; i++)
        assert_true(rv_histogram_bound(i) > rv_histogram_bound(i - 1));
}

/* ---- events ---- */

static void events_keep_what_they_point_to(void **state)
{
    (void)state;
    rvi_events e;
    rv_token_prob probs[3] = {{1, -0.5f}, {2, -1}, {3, -2}};
    float values[] = {1, 2, 3, 4, 5};
    assert_ok(rvi_events_init(&e, err));
    assert_false(rvi_events_hand_over(&e));
    assert_null(rvi_events_take(&e));
    for (uint64_t k = 1; k < 50; k++) {
        char text[64];
        int len = snprintf(text, sizeof text, "text %d of %d", (int)k, (int)(k * k));
        assert_ok(rvi_events_promise(&e, 1, err));
        rv_service_event ev = {.kind = RV_SERVICE_TOKEN,
                               .request = k,
                               .text = text,
                               .text_len = (size_t)len,
                               .chosen = &probs[0],
                               .top = probs,
                               .n_top = 3};
        assert_true(rvi_events_put(&e, &ev));
        ev = (rv_service_event){.kind = RV_SERVICE_DONE,
                                .request = k,
                                .values = values,
                                .n_values = 5,
                                .status = RV_E_NO_PAGES,
                                .error = text};
        rvi_events_put_last(&e, &ev);
        memset(text, 'x', sizeof text);
        if (k % 3 == 0) assert_true(rvi_events_hand_over(&e));
    }
    assert_true(rvi_events_hand_over(&e));
    assert_int_equal(atomic_load(&e.n_undrained), 98);
    uint64_t k = 0;
    for (rv_batch *b; (b = rvi_events_take(&e));) {
        for (size_t i = 0; i < b->n; i++) {
            const rv_service_event *ev = &b->events[i];
            char text[64];
            k += ev->kind == RV_SERVICE_TOKEN;
            snprintf(text, sizeof text, "text %d of %d", (int)k, (int)(k * k));
            assert_int_equal(ev->request, k);
            assert_string_equal(ev->kind == RV_SERVICE_TOKEN ? ev->text : ev->error, text);
            if (ev->kind == RV_SERVICE_TOKEN) {
                assert_memory_equal(ev->top, probs, sizeof probs);
                assert_int_equal(ev->chosen->id, 1);
                assert_null(ev->values);
            } else {
                assert_memory_equal(ev->values, values, sizeof values);
                assert_null(ev->top);
                assert_string_equal(ev->text, "");
            }
        }
        rv_free(b);
    }
    assert_int_equal(k, 49);
    assert_int_equal(atomic_load(&e.n_undrained), 0);
    assert_int_equal(e.n_promised, 0);
    rvi_events_deinit(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(turns_are_fair),
                                       cmocka_unit_test(debts_have_a_limit),
                                       cmocka_unit_test(ranks_decide_within_a_tenant),
                                       cmocka_unit_test(rows_follow_the_time),
                                       cmocka_unit_test(turns_beside_streams_are_short),
                                       cmocka_unit_test(deep_rows_cost_more),
                                       cmocka_unit_test(long_prompts_are_read_gently),
                                       cmocka_unit_test(few_rows_are_not_given_up_for_noise),
                                       cmocka_unit_test(a_machine_may_change_its_speed),
                                       cmocka_unit_test(far_more_rows_are_not_tried),
                                       cmocka_unit_test(a_hiccup_is_soon_forgotten),
                                       cmocka_unit_test(hiccups_make_no_row_cheap),
                                       cmocka_unit_test(a_short_step_is_not_believed),
                                       cmocka_unit_test(streams_may_reach_the_target),
                                       cmocka_unit_test(streams_may_come_and_go),
                                       cmocka_unit_test(nothing_is_tried_among_others),
                                       cmocka_unit_test(slow_models_read_too),
                                       cmocka_unit_test(slow_models_are_as_fast),
                                       cmocka_unit_test(short_prompts_leave_room),
                                       cmocka_unit_test(quantiles_are_near),
                                       cmocka_unit_test(events_keep_what_they_point_to)};
    return cmocka_run_group_tests_name("parts", tests, NULL, NULL);
}
