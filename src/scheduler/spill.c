#include "scheduler/spill.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#include "base/os.h"

void rvi_spill_drop(rvi_spilled *x)
{
    if (x->f) fclose(x->f);
    if (x->name.len) (void)remove(x->name.data); /* where an open file keeps its name */
    rvi_buf_deinit(&x->name);
    rvi_free(x->sums);
    *x = (rvi_spilled){0};
}

static void note(double *average, double seconds, int n_pages)
{
    double now = seconds / n_pages;
    *average = *average > 0 ? 0.75 * *average + 0.25 * now : now;
}

static rv_status open_file(rvi_spilled *x, const char *dir, rv_error *err)
{
    rvi_buf beside = {0};
    rv_status st = rvi_buf_printf(&beside, "%s/spill", dir) ? RV_OK : rvi_nomem(err, "spill");
    FILE *f = NULL;
    if (!st) st = rvi_os_create_beside(beside.data, &x->name, &f, err);
    if (f) fclose(f);
    if (!st && !(x->f = fopen(x->name.data, "w+b")))
        st = rvi_error(err, RV_E_IO, "cannot write %s: %s", x->name.data, strerror(errno));
    if (!st) (void)remove(x->name.data);
    rvi_buf_deinit(&beside);
    return st;
}

rv_status rvi_spill_out(rvi_spilled *x, const char *dir, const rvi_seq *seq, rvi_spill_costs *costs,
                        rv_error *err)
{
    int n = seq->len / RVI_PAGE_TOKENS;
    size_t bytes = rvi_pages_bytes(seq->pool);
    rvi_spill_drop(x);
    if (!n) return RV_OK;
    double begun = rvi_os_seconds();
    void *page = rvi_alloc_array(bytes, 1);
    x->sums = rvi_alloc_array((size_t)n, sizeof *x->sums);
    rv_status st = page && x->sums ? open_file(x, dir, err) : rvi_nomem(err, "page");
    for (int i = 0; !st && i < n; i++) {
        rvi_seq_read_page(seq, i, page);
        rvi_fingerprint(page, bytes, x->sums[i]);
        st = rvi_os_write(x->f, page, bytes, dir, err);
    }
    if (!st && fflush(x->f))
        st = rvi_error(err, RV_E_IO, "cannot write to %s: %s", dir, strerror(errno));
    rvi_free(page);
    if (st) {
        rvi_spill_drop(x);
        return st;
    }
    x->n_pages = n;
    note(&costs->write, rvi_os_seconds() - begun, n);
    return RV_OK;
}

/* Pages `from` and on of the sequence, from the file. False: they are not what was written. */
static bool read_pages(const rvi_spilled *x, rvi_seq *seq, int from)
{
    size_t bytes = rvi_pages_bytes(seq->pool);
    void *page = rvi_alloc_array(bytes, 1);
    bool ok = page && (size_t)from <= LONG_MAX / bytes &&
              !fseek(x->f, (long)((size_t)from * bytes), SEEK_SET);
    for (int i = from; ok && i < x->n_pages; i++) {
        uint64_t sum[RVI_FINGERPRINT_WORDS];
        ok = fread(page, 1, bytes, x->f) == bytes;
        if (ok) rvi_fingerprint(page, bytes, sum);
        ok = ok && !memcmp(sum, x->sums[i], sizeof sum);
        if (ok) rvi_seq_write_page(seq, i, page);
    }
    rvi_free(page);
    return ok;
}

int rvi_spill_in(rvi_spilled *x, rvi_prefix *tree, const rvi_prefix_space *space, rvi_pages *pool,
                 const int32_t *ids, int32_t *pages, rvi_spill_costs *costs, bool *failed)
{
    int len = x->n_pages * RVI_PAGE_TOKENS, known = rvi_prefix_find(tree, space, ids, len, pages);
    double begun = rvi_os_seconds();
    bool ok = false;
    rvi_seq seq;
    *failed = false;
    known = rvi_pages_reusable(pool, pages, known) / RVI_PAGE_TOKENS * RVI_PAGE_TOKENS;
    if (known == len || rvi_seq_init(&seq, pool, len, NULL)) return 0;
    rvi_seq_adopt(&seq, pages, known); /* nobody takes these from now on */
    int n = (len - known) / RVI_PAGE_TOKENS;
    int lack = n - (rvi_pages_total(pool) - rvi_pages_in_use(pool));
    if ((lack <= 0 || rvi_prefix_evict(tree, lack) == lack) &&
        !rvi_seq_extend(&seq, len - known, NULL)) {
        ok = read_pages(x, &seq, known / RVI_PAGE_TOKENS);
        *failed = !ok;
    }
    if (ok) {
        rvi_prefix_insert(tree, space, ids, len, seq.pages);
        note(&costs->read, rvi_os_seconds() - begun, n);
    }
    rvi_seq_deinit(&seq);
    return ok ? len - known : 0;
}
