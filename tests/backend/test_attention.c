/* test_attention.c - KV pages and attention of the CPU backend: however rows are batched and
 * threads share the work, a row gets the bits that it gets alone from the reference kernels on one
 * thread. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "backend/backend.h"
#include "base/mem.h"
#include "harness/amount.h"
#include "kernels/kernels.h"

enum { MAX_ROWS = 130, MAX_LEN = 1200, MAX_PAGES = 64 };

typedef struct shape {
    int n_heads, n_kv_heads, head_size, window;
    float soft_cap;
} shape;

typedef struct machine {
    rvi_backend *be;
    rvi_kv_store *kv;
    rvi_tensor *q, *k, *v, *out;
} machine;

static float value(int a, int b, int c)
{
    uint32_t x = (uint32_t)a * 2654435761u + (uint32_t)b * 40503u + (uint32_t)c * 9176u + 12345u;
    x ^= x >> 15;
    x *= 2246822519u;
    x ^= x >> 13;
    return (float)(x & 0xffff) / 16384.0f - 2.0f;
}

static void open_machine(machine *m, const shape *s, rv_kv_type type, int threads, const char *isa)
{
    rvi_cpu_options o = {.n_threads = threads, .isa = isa};
    rvi_kv_spec spec = {2, s->n_kv_heads, s->head_size, MAX_PAGES, type, 5};
    assert_int_equal(rvi_backend_cpu_new(&m->be, &o, NULL, NULL), RV_OK);
    assert_int_equal(m->be->ops->kv_new(m->be, &m->kv, &spec, NULL), RV_OK);
    bool tiered = type == RV_KV_WARM || type == RV_KV_TIERED;
    for (int32_t p = 0; tiered && p < MAX_PAGES; p++) m->be->ops->kv_hold(m->be, m->kv, p, 7);
    assert_int_equal(m->be->ops->rows_new(m->be, &m->q, MAX_ROWS, s->n_heads * s->head_size, NULL),
                     RV_OK);
    assert_int_equal(
        m->be->ops->rows_new(m->be, &m->out, MAX_ROWS, s->n_heads * s->head_size, NULL), RV_OK);
    assert_int_equal(
        m->be->ops->rows_new(m->be, &m->k, MAX_ROWS, s->n_kv_heads * s->head_size, NULL), RV_OK);
    assert_int_equal(
        m->be->ops->rows_new(m->be, &m->v, MAX_ROWS, s->n_kv_heads * s->head_size, NULL), RV_OK);
}

static void close_machine(machine *m)
{
    m->be->ops->kv_free(m->be, m->kv);
    m->be->ops->tensor_free(m->be, m->q);
    m->be->ops->tensor_free(m->be, m->k);
    m->be->ops->tensor_free(m->be, m->v);
    m->be->ops->tensor_free(m->be, m->out);
    m->be->ops->free(m->be);
}

static rvi_cols all(const machine *m, rvi_tensor *t)
{
    return rvi_cols_of(t, 0, m->be->ops->n_cols(t));
}

static void fill_row(const machine *m, rvi_tensor *t, int r, int a, int b)
{
    float x[4096];
    int n = m->be->ops->n_cols(t);
    assert_true(n <= 4096);
    for (int i = 0; i < n; i++) x[i] = value(a, b, i);
    m->be->ops->rows_write(m->be, all(m, t), r, x);
}

/* Writes positions first .. end - 1 of sequence `name` in layer 1, n at a time. */
static void write_keys(const machine *m, const int32_t *pages, int name, int first, int end, int n)
{
    rvi_kv_row rows[MAX_ROWS];
    for (int at = first; at < end; at += n) {
        int count = RVI_MIN(n, end - at);
        for (int r = 0; r < count; r++) {
            rows[r] = (rvi_kv_row){.pages = pages, .pos = at + r};
            fill_row(m, m->k, r, name, at + r);
            fill_row(m, m->v, r, name + 100, at + r);
        }
        m->be->ops->kv_write(m->be, m->kv, 1, all(m, m->k), all(m, m->v), rows, count);
    }
}

/* Pages out of order, apart for each sequence. */
static void number_pages(int32_t *pages, int sequence)
{
    for (int i = 0; i < MAX_PAGES / 2; i++) pages[i] = (int32_t)((i * 7 + 3) % 32 * 2 + sequence);
}

/* Rows with queries numbered from 0, in one call; their results in `out`. */
static void attend(const machine *m, const shape *s, const rvi_kv_row *rows, int first, int n,
                   float *out)
{
    rvi_attention a = {s->n_heads, s->n_kv_heads, s->head_size, 0.11f, s->soft_cap, s->window};
    for (int r = 0; r < n; r++) fill_row(m, m->q, r, 7, first + r);
    m->be->ops->attention(m->be, all(m, m->out), all(m, m->q), m->kv, 1, &a, rows + first, n);
    for (int r = 0; r < n; r++)
        m->be->ops->rows_read(m->be, all(m, m->out), r,
                              out + (size_t)(first + r) * (size_t)(s->n_heads * s->head_size));
}

static void check_shape(const shape *s, rv_kv_type type)
{
    int32_t pages[2][MAX_PAGES / 2];
    rvi_kv_row rows[MAX_ROWS];
    int n = 0;
    size_t width = (size_t)(s->n_heads * s->head_size);
    for (int q = 0; q < 2; q++) number_pages(pages[q], q);
    /* a prompt at a chunk's border, single rows of two sequences in turn, rows that see the same
     * (an encoder) */
    for (int i = 0; i < 40; i++) rows[n++] = (rvi_kv_row){.pages = pages[0], .pos = 240 + i};
    for (int i = 0; i < 12; i++)
        rows[n++] = (rvi_kv_row){.pages = pages[i % 2], .pos = i < 6 ? i : 800 - 60 * i};
    for (int i = 0; i < 18; i++) rows[n++] = (rvi_kv_row){.pages = pages[1], .pos = 511};
    rows[n++] = (rvi_kv_row){.pages = pages[0], .pos = 1023};
    assert_true(n <= MAX_ROWS);

    float *want = rvi_alloc_array((size_t)n * width, sizeof *want),
          *got = rvi_alloc_array((size_t)n * width, sizeof *got);
    machine m;
    assert_true(want && got);
    open_machine(&m, s, type, 1, "ref");
    for (int q = 0; q < 2; q++) write_keys(&m, pages[q], q, 0, 1024, 1);
    for (int r = 0; r < n; r++) attend(&m, s, rows, r, 1, want);
    close_machine(&m);

    for (int threads = 1; threads <= 5; threads += AMOUNT(2, 4)) {
        static const int batches[] = {1, 2, 33, MAX_ROWS};
        open_machine(&m, s, type, threads, NULL);
        for (int q = 0; q < 2; q++) {
            write_keys(&m, pages[q], q + 50, 0, 1024,
                       100); /* others first: positions are written again */
            write_keys(&m, pages[q], q, 0, 1024, 100);
        }
        for (size_t b = 0; b < RVI_COUNT(batches); b++) {
            for (int r = 0; r < n; r += batches[b])
                attend(&m, s, rows, r, RVI_MIN(batches[b], n - r), got);
            for (int r = 0; r < n; r++)
                if (memcmp(got + (size_t)r * width, want + (size_t)r * width, width * sizeof *got))
                    fail_msg(
                        "KV type %d, %d heads of %d, %d threads, %d rows at a time: row %d differs",
                        (int)type, s->n_heads, s->head_size, threads, batches[b], r);
        }
        close_machine(&m);
    }
    rvi_free(want);
    rvi_free(got);
}

static const rv_kv_type types[] = {RV_KV_F32, RV_KV_F16, RV_KV_Q8, RV_KV_WARM, RV_KV_TIERED};

static void same_bits_however_split(void **state)
{
    (void)state;
    static const shape shapes[] = {
        {9, 3, 64, 0, 0},       {4, 4, 48, 0, 30.0f}, {6, 2, 80, 100, 0},
        {8, 1, 32, 300, 50.0f}, {50, 1, 16, 0, 0}, /* more heads on a KV head than go together */
        {3, 1, 20, 7, 0},
    };
    for (size_t i = 0; i < RVI_COUNT(shapes); i++) {
        size_t n_types = OFTEN(3, 1);
        for (size_t t = i; t < i + n_types; t++)
            check_shape(&shapes[i], types[t % RVI_COUNT(types)]);
    }
}

/* More chunks than can wait to be merged: rounds. 64 heads: 2048 / 64 = 32 chunks = 8192 keys. */
static void long_past_in_rounds(void **state)
{
    (void)state;
    enum { LONG = 33 * 256 + 5 };
    static const shape s = {64, 2, 4, 0, 0};
    int32_t pages[LONG / RVI_PAGE_TOKENS + 1]; /* the same pages again and again */
    for (int i = 0; i < (int)RVI_COUNT(pages); i++) pages[i] = i % MAX_PAGES;
    rvi_kv_row row = {.pages = pages, .pos = LONG};
    float want[64 * 4], got[64 * 4];
    for (size_t t = 0; t < RVI_COUNT(types); t++)
        for (int threads = 1; threads <= 2; threads++) {
            machine m;
            open_machine(&m, &s, types[t], threads, NULL);
            write_keys(&m, pages, 0, 0, MAX_PAGES * RVI_PAGE_TOKENS, 128);
            attend(&m, &s, &row, 0, 1, threads == 1 ? want : got);
            if (threads == 2) assert_memory_equal(got, want, sizeof got);
            close_machine(&m);
        }
}

static void copied_page(void **state)
{
    (void)state;
    static const shape s = {6, 2, 40, 0, 0};
    for (size_t t = 0; t < RVI_COUNT(types); t++) {
        machine m;
        int32_t a = 5, b = 9;
        rvi_kv_row rows[2] = {{.pages = &a, .pos = 30}, {.pages = &b, .pos = 30}};
        float out[2][6 * 40];
        open_machine(&m, &s, types[t], 2, NULL);
        write_keys(&m, &a, 3, 0, 31, 31);
        m.be->ops->kv_copy_page(m.be, m.kv, b, a);
        attend(&m, &s, rows, 0, 1, out[0]);
        rows[0] = rows[1];
        attend(&m, &s, rows, 0, 1, out[1]);
        assert_memory_equal(out[0], out[1], sizeof out[0]);
        write_keys(&m, &b, 4, 10, 31, 31); /* goes another way: the first is as it was */
        attend(&m, &s, rows, 0, 1, out[1]);
        assert_memory_not_equal(out[0], out[1], sizeof out[0]);
        rows[0] = (rvi_kv_row){.pages = &a, .pos = 30};
        attend(&m, &s, rows, 0, 1, out[1]);
        assert_memory_equal(out[0], out[1], sizeof out[0]);
        close_machine(&m);
    }
}

/* A row reads its own page hot, five before it warm and all others cold: with these forms alone it
 * gets the bits that it gets with all of them, and the memory of the others is returned. */
static void forms_that_are_read(void **state)
{
    (void)state;
    enum { LAST = 419, OWN = LAST / RVI_PAGE_TOKENS };
    static const shape s = {6, 2, 64, 0, 0};
    int32_t pages[MAX_PAGES / 2];
    float want[6 * 64], got[6 * 64];
    machine m;
    number_pages(pages, 0);
    open_machine(&m, &s, RV_KV_TIERED, 2, NULL);
    const rvi_backend_ops *op = m.be->ops;
    for (int32_t p = 0; p < MAX_PAGES; p++) op->kv_hold(m.be, m.kv, p, 0);
    op->kv_trim(m.be, m.kv, 0);
    assert_int_equal(atomic_load(&m.be->memory->kv), 0);
    for (int i = 0; i <= OWN; i++) op->kv_hold(m.be, m.kv, pages[i], 7);
    write_keys(&m, pages, 1, 0, LAST + 1, 64);
    rvi_kv_row row = {.pages = pages, .pos = LAST};
    attend(&m, &s, &row, 0, 1, want);
    size_t all = atomic_load(&m.be->memory->kv);
    for (int i = 0; i <= OWN; i++) {
        unsigned form = i == OWN ? RVI_KV_HOT : i + 5 >= OWN ? RVI_KV_WARM : RVI_KV_COLD;
        op->kv_hold(m.be, m.kv, pages[i], form);
        assert_int_equal(op->kv_forms(m.kv, pages[i]), form);
    }
    op->kv_trim(m.be, m.kv, 0);
    assert_true(atomic_load(&m.be->memory->kv) < all / 2);
    attend(&m, &s, &row, 0, 1, got);
    assert_memory_equal(got, want, sizeof got);
    /* the cold form again, of a page that is full */
    op->kv_hold(m.be, m.kv, pages[8], RVI_KV_WARM | RVI_KV_COLD);
    op->kv_chill(m.be, m.kv, pages[8]);
    attend(&m, &s, &row, 0, 1, got);
    assert_memory_equal(got, want, sizeof got);
    close_machine(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bits_however_split),
        cmocka_unit_test(long_past_in_rounds),
        cmocka_unit_test(copied_page),
        cmocka_unit_test(forms_that_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
