/* bench --draft: what guessing is worth.
 *
 * edit: a text of -p tokens is written again with every 20th token changed. summary: phrases of the
 * text, 4 to 11 tokens each, and as many other tokens between them. free: tokens that occur all the
 * time, in no order, so that every guess is wrong. What is written is laid down by a mask, so that
 * any model can be measured. With a model that guesses: its own answer to the text, as far as -n.
 * Each is generated with and without guesses by turns; the medians of the times are compared, and
 * the answers must be equal. */
#include "cli/bench_draft.h"

#include <math.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "base/os.h"
#include "base/rng.h"

enum { CHANGE_EVERY = 20, FEW = 48, MOST = 1 << 20 };

typedef struct guessing {
    const bench_guesses *b;
    cli_model model;
    rv_model *draft;
    rv_session *s, *by;
    int32_t *text, *answer; /* n_prompt; n_gen + 1, NULL: whatever the model says */
    double *seconds[2], *cpu[2];
    int n_guessed, n_right, n_out;
} guessing;

static int only_this(void *ctx, const int32_t *ids, size_t n_ids, float *logits, size_t n_vocab)
{
    const int32_t *answer = ctx;
    (void)ids;
    for (size_t i = 0; i < n_vocab; i++) logits[i] = -INFINITY;
    logits[answer[n_ids]] = 0;
    return 0;
}

static rv_status run_once(guessing *g, bool guess, rv_answer **a, int run, rv_error *err)
{
    rv_sampling sampling = {.size = sizeof sampling, .greedy = 1, .repetition_penalty = 1};
    rv_generate_options o = {.size = sizeof o, .sampling = &sampling};
    o.max_tokens = g->b->n_gen;
    o.ignore_eos = 1;
    o.draft = guess ? RV_DRAFT_NGRAM : RV_DRAFT_OFF;
    o.draft_session = guess ? g->by : NULL;
    if (g->answer) {
        o.mask = only_this;
        o.ctx = g->answer;
    }
    clock_t start = clock();
    rv_status st = rv_session_generate(g->s, g->text, (size_t)g->b->n_prompt, &o, a, err);
    if (st || run < 0) return st;
    g->cpu[guess][run] = (double)(clock() - start) / CLOCKS_PER_SEC;
    g->seconds[guess][run] = (*a)->seconds;
    return RV_OK;
}

/* One run to warm up, which also puts the text into the cache, then those that count. */
static rv_status run_all(guessing *g, rv_error *err)
{
    rv_status st = RV_OK;
    for (int run = -1; !st && run < g->b->repeat; run++) {
        rv_answer *plain = NULL, *a = NULL;
        st = run_once(g, run % 2 != 0, run % 2 ? &a : &plain, run, err);
        if (!st) st = run_once(g, run % 2 == 0, run % 2 ? &plain : &a, run, err);
        if (!st && (a->n_ids != plain->n_ids ||
                    memcmp(a->ids, plain->ids, a->n_ids * sizeof *a->ids) != 0))
            st = rvi_error(err, RV_E_STATE, "guessing changed the answer");
        if (!st) {
            g->n_guessed = a->n_guessed;
            g->n_right = a->n_right;
            g->n_out = (int)a->n_ids;
        }
        rv_free(a);
        rv_free(plain);
    }
    return st;
}

static double median(double *x, int n)
{
    for (int i = 1; i < n; i++)
        for (int k = i; k > 0 && x[k] < x[k - 1]; k--) {
            double t = x[k];
            x[k] = x[k - 1];
            x[k - 1] = t;
        }
    return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

static void report(guessing *g, const char *name, rvi_buf *out, bool first)
{
    int n = g->b->repeat;
    double wall[2], cpu[2];
    for (int k = 0; k < 2; k++) {
        wall[k] = median(g->seconds[k], n);
        cpu[k] = median(g->cpu[k], n);
    }
    if (g->b->json) {
        rvi_buf_printf(out,
                       "%s{\"test\":\"%s\",\"tokens\":%d,\"plain_seconds\":%.6f,\"seconds\":%.6f,"
                       "\"plain_cpu_seconds\":%.6f,\"cpu_seconds\":%.6f,\"guessed\":%d,"
                       "\"guessed_right\":%d}",
                       first ? "[" : ",\n", name, g->n_out, wall[0], wall[1], cpu[0], cpu[1],
                       g->n_guessed, g->n_right);
        return;
    }
    if (first)
        rvi_buf_printf(out, "%-8s %8s %12s %12s %8s %10s %9s %7s\n", "test", "tokens",
                       "plain tok/s", "tok/s", "times", "times, CPU", "guessed", "right");
    rvi_buf_printf(out, "%-8s %8d %12.2f %12.2f %8.2f %10.2f %9d %7d\n", name, g->n_out,
                   g->n_out / wall[0], g->n_out / wall[1], wall[0] / wall[1], cpu[0] / cpu[1],
                   g->n_guessed, g->n_right);
}

static rv_status set_up(cli *c, guessing *g, rv_error *err)
{
    const bench_guesses *b = g->b;
    rv_session_options o = {.size = sizeof o, .n_context = b->n_prompt + b->n_gen + 1};
    rvi_rng rng = {1};
    rv_status st = cli_kv_type(c, &o.kv_type, err);
    if (!st) st = cli_open(c, b->name, false, &g->model, err);
    if (!st) st = rv_session_new(&g->s, g->model.m, &o, err);
    if (!st && strcmp(b->draft, "ngram") != 0) {
        st = cli_open_beside(c, b->draft, g->model.rt, &g->draft, err);
        if (!st) st = rv_session_new(&g->by, g->draft, &o, err);
    }
    if (st) return st;
    g->text = rvi_alloc_array((size_t)b->n_prompt, sizeof *g->text);
    g->answer = rvi_alloc_array((size_t)b->n_gen + 1, sizeof *g->answer);
    for (int k = 0; k < 2; k++) {
        g->seconds[k] = rvi_zalloc_array((size_t)b->repeat, sizeof **g->seconds);
        g->cpu[k] = rvi_zalloc_array((size_t)b->repeat, sizeof **g->cpu);
        if (!g->seconds[k] || !g->cpu[k]) st = rvi_nomem(err, "samples");
    }
    if (!g->text || !g->answer) st = rvi_nomem(err, "token ids");
    uint64_t n_vocab = (uint64_t)rv_model_get_info(g->model.m)->n_vocab;
    for (int i = 0; !st && i < b->n_prompt; i++)
        g->text[i] = (int32_t)(rvi_rng_u64(&rng) % n_vocab);
    return st;
}

typedef enum task { EDIT, SUMMARY, FREE, N_TASKS } task;

/* Phrases of the text take turns with tokens from anywhere. */
static void lay_down_summary(guessing *g, rvi_rng *rng, uint64_t n_vocab)
{
    uint64_t n_text = (uint64_t)g->b->n_prompt;
    for (int i = 0, of_text = 1; i <= g->b->n_gen; of_text = !of_text) {
        uint64_t from = rvi_rng_u64(rng) % n_text, len = 4 + rvi_rng_u64(rng) % 8;
        for (uint64_t k = 0; k < len && i <= g->b->n_gen; k++)
            g->answer[i++] =
                of_text ? g->text[(from + k) % n_text] : (int32_t)(rvi_rng_u64(rng) % n_vocab);
    }
}

static void lay_down(guessing *g, task what)
{
    rvi_rng rng = {2};
    uint64_t n_vocab = (uint64_t)rv_model_get_info(g->model.m)->n_vocab;
    if (what == SUMMARY) {
        lay_down_summary(g, &rng, n_vocab);
        return;
    }
    for (int i = 0; i <= g->b->n_gen; i++) {
        uint64_t at = rvi_rng_u64(&rng);
        if (what == EDIT)
            g->answer[i] = i % CHANGE_EVERY == CHANGE_EVERY - 1 ? (int32_t)(at % n_vocab)
                                                                : g->text[i % g->b->n_prompt];
        else
            g->answer[i] = g->text[at % (uint64_t)RVI_MIN(FEW, g->b->n_prompt)];
    }
}

static rv_status measure(guessing *g, rvi_buf *out, rv_error *err)
{
    static const char *const names[N_TASKS] = {"edit", "summary", "free"};
    rv_status st = RV_OK;
    for (int what = 0; !st && !g->by && what < N_TASKS; what++) {
        lay_down(g, (task)what);
        st = run_all(g, err);
        if (!st) report(g, names[what], out, what == 0);
    }
    if (!g->by) return st;
    rvi_free(g->answer);
    g->answer = NULL;
    st = run_all(g, err);
    if (!st) report(g, "answer", out, true);
    return st;
}

int cli_bench_draft(cli *c, const bench_guesses *b)
{
    rv_error err = {0};
    rvi_buf out = {0};
    guessing g = {.b = b};
    int code = CLI_OK;
    if (b->n_prompt < 2 || b->n_gen < 1 || b->n_prompt > MOST || b->n_gen > MOST)
        return cli_usage(c, "--draft needs -p of 2..%d and -n of 1..%d", MOST, MOST);
    rv_status st = set_up(c, &g, &err);
    if (!st) st = measure(&g, &out, &err);
    if (!st && b->json) rvi_buf_puts(&out, "]\n");
    if (!st) code = cli_print(&out);
    rvi_buf_deinit(&out);
    for (int k = 0; k < 2; k++) {
        rvi_free(g.seconds[k]);
        rvi_free(g.cpu[k]);
    }
    rvi_free(g.text);
    rvi_free(g.answer);
    rv_session_free(&g.s);
    rv_session_free(&g.by);
    rv_model_close(&g.draft);
    cli_close(&g.model);
    return st ? cli_fail(&err) : code;
}
