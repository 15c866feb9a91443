/* Answers whose rows the caller doles out: whatever rows a step takes, however often an answer
 * loses its pages and from whom it gets them, its tokens and probabilities are those it gets alone.
 * Rows that are read (embeddings, scores) go through the same steps, with the same bits as by
 * themselves. */
#include "model/golden.h"

#include "base/rng.h"
#include "decode/answer.h"
#include "decode/embed.h"
#include "decode/sampler.h"
#include "decode/score.h"

enum { N_ANSWERS = 3, N_PROMPT = 77, N_NEW = 24, ROWS = 48, CONTEXT = 128 };

typedef struct fixture {
    golden g;
    rvi_engine *e;
    rvi_ids eos;
    int32_t prompts[N_ANSWERS][N_PROMPT];
} fixture;

static void open_engine(fixture *f, const char *path)
{
    *f = (fixture){0};
    golden_open(&f->g, path, NULL, false, 2, NULL);
    assert_ok(rvi_engine_new(
        &f->e, f->g.m, NULL, &f->eos,
        &(rvi_engine_options){
            .n_tokens = 8 * CONTEXT, .max_rows = ROWS, .max_logits = 4, .kv_type = RV_KV_F16},
        err));
    for (int k = 0; k < N_ANSWERS; k++)
        for (int i = 0; i < N_PROMPT; i++)
            f->prompts[k][i] = 3 + (i < 40 ? i * 7 : i * 5 + k * 11) % 200; /* 40 in common */
}

static void close_engine(fixture *f)
{
    assert_int_equal(rvi_pages_in_use(f->e->pool), 0);
    rvi_engine_free(f->e);
    golden_close(&f->g);
}

static rvi_session *start(fixture *f, int k)
{
    rvi_session *s;
    rv_sampling sampling;
    rvi_sampling_init(&sampling, sizeof sampling, false);
    sampling.seed = 5 + (uint64_t)k;
    assert_ok(rvi_session_new(&s, f->e, CONTEXT, NULL, NULL, err));
    assert_ok(rvi_answer_start(s, f->prompts[k], N_PROMPT,
                               &(rv_generate_options){.size = sizeof(rv_generate_options),
                                                      .sampling = &sampling,
                                                      .max_tokens = N_NEW,
                                                      .ignore_eos = 1},
                               err));
    return s;
}

typedef struct outcome {
    int32_t ids[N_NEW];
    float logprobs[N_NEW];
} outcome;

static outcome take(rvi_session *s)
{
    rvi_generated g;
    outcome o = {0};
    assert_ok(rvi_answer_take(s, &g, err));
    assert_int_equal(g.ids.len, N_NEW);
    for (size_t i = 0; i < N_NEW; i++) {
        o.ids[i] = g.ids.data[i];
        o.logprobs[i] = g.chosen[i].logprob;
    }
    rvi_generated_deinit(&g);
    rvi_session_free(s);
    return o;
}

static outcome alone(fixture *f, int k)
{
    rvi_session *s = start(f, k);
    while (rvi_answer_advance(f->e, s)) {
    }
    return take(s);
}

/* Rows in random portions; now and then an answer loses its pages, or gets those of another with
 * the same beginning. */
static void any_rows_any_pages(void **state)
{
    static const char *const paths[] = {"tests/gguf/llama.gguf", "tests/gguf/gemma2.gguf"};
    (void)state;
    for (size_t p = 0; p < RVI_COUNT(paths); p++) {
        fixture f;
        rvi_session *s[N_ANSWERS];
        rvi_rng rng = {11};
        int n_suspended = 0, n_adopted = 0;
        open_engine(&f, paths[p]);
        for (int round = 0; round < 4; round++) {
            for (int k = 0; k < N_ANSWERS; k++) s[k] = start(&f, k);
            do {
                for (int k = 0; k < N_ANSWERS; k++) {
                    const rvi_session *other = s[(k + 1) % N_ANSWERS];
                    s[k]->allowed = (int)(rvi_rng_u64(&rng) % 30);
                    if (rvi_answer_ended(s[k]) || rvi_rng_u64(&rng) % 12) continue;
                    rvi_session_suspend(s[k]);
                    assert_int_equal(rvi_answer_waiting(s[k]), s[k]->past.len);
                    n_suspended++;
                    int common = RVI_MIN(other->seq.len, 40);
                    if (common && rvi_rng_u64(&rng) % 2) {
                        rvi_session_adopt(s[k], other->seq.pages, common);
                        n_adopted++;
                    }
                }
            } while (rvi_answer_advance(f.e, NULL));
            for (int k = 0; k < N_ANSWERS; k++) {
                outcome got = take(s[k]), want = alone(&f, k);
                assert_memory_equal(&got, &want, sizeof got);
            }
        }
        assert_true(n_suspended > 20 && n_adopted > 5);
        close_engine(&f);
    }
}

/* An answer that is allowed no row rests. */
static void rests(void **state)
{
    fixture f;
    (void)state;
    open_engine(&f, "tests/gguf/llama.gguf");
    rvi_session *a = start(&f, 0), *b = start(&f, 1);
    a->allowed = 0;
    b->allowed = 1;
    for (int i = 0; i < 5; i++) assert_int_equal(rvi_answer_advance(f.e, NULL), 2);
    assert_int_equal(a->seq.len, 0);
    assert_int_equal(b->seq.len, 5);
    rvi_session_free(a);
    rvi_session_free(b);
    close_engine(&f);
}

/* ---- rows that are read ---- */

typedef struct reading {
    rvi_pooler *pooler;
    const int32_t *ids;
    float log_p[N_PROMPT];
    double sum;
    int n_reads;
    bool fails;
} reading;

static rv_status pool(void *ctx, const rvi_engine *e, int first, int n, int pos, rv_error *err)
{
    reading *r = ctx;
    (void)err;
    for (int i = 0; i < n; i++) rvi_pooler_take(r->pooler, e->ws, first + i, (size_t)(pos + i));
    r->n_reads++;
    return RV_OK;
}

static rv_status score(void *ctx, const rvi_engine *e, int first, int n, int pos, rv_error *err)
{
    reading *r = ctx;
    if (r->fails) return rvi_error(err, RV_E_GENERATION, "asked to fail");
    rvi_scorer s = {.m = e->m, .ws = e->ws, .rows = e->rows, .max_logits = e->o.max_logits};
    int to = RVI_MIN(n, N_PROMPT - 1 - pos);
    rvi_score_rows(&s, r->ids + pos + 1 - first, first, first + to, r->log_p + pos, &r->sum);
    r->n_reads++;
    return RV_OK;
}

static rvi_session *read_by(fixture *f,
                            rv_status (*fn)(void *, const rvi_engine *, int, int, int, rv_error *),
                            reading *r)
{
    static const rv_generate_options none = {.size = sizeof none};
    rvi_session *s;
    assert_ok(rvi_session_new(&s, f->e, CONTEXT, NULL, NULL, err));
    assert_ok(rvi_answer_start_reading(s, r->ids, N_PROMPT, &(rvi_reader){fn, r}, &none, err));
    return s;
}

static void reads_beside_answers(void **state)
{
    fixture f;
    reading embed = {0}, scores = {0}, broken = {.fails = true};
    rvi_embed_options eo = {.normalize = true};
    float got[512], want[512], log_p[N_PROMPT];
    double sum = 0;
    rvi_seq seq;
    (void)state;
    open_engine(&f, "tests/gguf/llama.gguf");
    int width = f.g.m->hp.n_embd;
    assert_in_range(width, 1, 512);
    embed.ids = scores.ids = broken.ids = f.prompts[2];
    assert_ok(rvi_pooler_new(&embed.pooler, f.g.m, N_PROMPT, &eo, err));
    rvi_session *a = start(&f, 0), *b = start(&f, 1), *e = read_by(&f, pool, &embed),
                *s = read_by(&f, score, &scores), *x = read_by(&f, score, &broken);
    e->allowed = 9;
    s->allowed = 13;
    bool suspended = false;
    while (rvi_answer_advance(f.e, NULL)) {
        if (suspended || embed.n_reads < 4) continue;
        rvi_session_suspend(e); /* both read again from the beginning */
        rvi_session_suspend(s);
        suspended = true;
    }
    assert_true(suspended && embed.n_reads > 9 && scores.n_reads > 6);
    rvi_generated g;
    assert_ok(rvi_answer_take(e, &g, err));
    assert_int_equal(g.ids.len, 0);
    rvi_generated_deinit(&g);
    assert_ok(rvi_answer_take(s, &g, err));
    rvi_generated_deinit(&g);
    rv_error why = {0};
    assert_int_equal(rvi_answer_take(x, &g, &why), RV_E_GENERATION);
    assert_string_equal(why.text, "asked to fail");
    rvi_generated_deinit(&g);
    assert_ok(rvi_pooler_finish(embed.pooler, got, err));
    rvi_pooler_free(embed.pooler);
    rvi_session_free(e);
    rvi_session_free(s);
    rvi_session_free(x);
    outcome first = take(a), second = take(b), want_first = alone(&f, 0),
            want_second = alone(&f, 1);
    assert_memory_equal(&first, &want_first, sizeof first);
    assert_memory_equal(&second, &want_second, sizeof second);

    assert_ok(rvi_seq_init(&seq, f.e->pool, CONTEXT, err));
    assert_ok(rvi_embed(f.g.m, f.e->ws, &seq, ROWS, f.prompts[2], N_PROMPT, &eo, want, err));
    assert_memory_equal(got, want, (size_t)width * sizeof *got);
    rvi_scorer scorer = {.m = f.g.m,
                         .ws = f.e->ws,
                         .seq = &seq,
                         .rows = f.e->rows,
                         .max_rows = ROWS,
                         .max_logits = 4,
                         .rope_set = rvi_rope_set(&f.g.m->rope, N_PROMPT)};
    assert_ok(rvi_score(&scorer, f.prompts[2], N_PROMPT, 0, -1, log_p, &sum, err));
    assert_memory_equal(scores.log_p, log_p, (N_PROMPT - 1) * sizeof *log_p);
    rvi_seq_deinit(&seq);
    close_engine(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(any_rows_any_pages),
                                       cmocka_unit_test(rests),
                                       cmocka_unit_test(reads_beside_answers)};
    return cmocka_run_group_tests_name("steps", tests, NULL, NULL);
}
