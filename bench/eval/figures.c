/* How answers are compared, and the figures of an evaluation: over sets, as JSON and as a table. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/utf8.h"
#include "eval/eval.h"
#include "text/unicode.h"

/* ---- words ---- */

/* A text as answers are compared: runs of a-z and 0-9 in lower case with one space between, one
 * before the first and one behind the last. */
static void reduce(const char *text, size_t len, rvi_buf *out)
{
    bool gap = true;
    for (size_t i = 0; i < len;) {
        uint32_t cp;
        i += rvi_utf8_decode(text + i, len - i, &cp, NULL);
        if (cp >= 'A' && cp <= 'Z') cp += 'a' - 'A';
        if (cp == 0x212A) cp = 'k'; /* the two letters beyond ASCII whose lower case is in it */
        if (cp == 0x130) cp = 'i';
        bool part = (cp >= 'a' && cp <= 'z') || (cp >= '0' && cp <= '9');
        if (part && gap) rvi_buf_putc(out, ' ');
        if (part) rvi_buf_putc(out, (char)cp);
        gap = !part;
    }
    rvi_buf_puts(out, " ");
}

bool eval_hit(const char *text, const char *answer)
{
    char here[1024], there[256];
    rvi_buf a = rvi_buf_over(here, sizeof here), b = rvi_buf_over(there, sizeof there);
    reduce(text, strlen(text), &a);
    reduce(answer, strlen(answer), &b);
    bool found = !a.failed && !b.failed && b.len > 1 && strstr(a.data, b.data);
    rvi_buf_deinit(&a);
    rvi_buf_deinit(&b);
    return found;
}

static void lower(const char *text, rvi_buf *out)
{
    for (size_t i = 0, len = strlen(text); i < len;) {
        char bytes[4];
        uint32_t cp;
        i += rvi_utf8_decode(text + i, len - i, &cp, NULL);
        rvi_buf_append(out, bytes, rvi_utf8_encode(rvi_unicode_to_lower(cp), bytes));
    }
}

bool eval_contains_any(const char *text, const eval_texts *any)
{
    char here[1024], there[256];
    bool found = false;
    rvi_buf a = rvi_buf_over(here, sizeof here);
    lower(text, &a);
    for (size_t i = 0; !found && i < any->n; i++) {
        rvi_buf b = rvi_buf_over(there, sizeof there);
        lower(any->items[i], &b);
        found = !a.failed && !b.failed && b.len && strstr(a.data, b.data);
        rvi_buf_deinit(&b);
    }
    rvi_buf_deinit(&a);
    return found;
}

/* Bytes of the first n words, as white space parts them; 0: all. */
static size_t first_words(const char *text, size_t n)
{
    static const char white[] = " \t\n\r\v\f";
    const char *at = text;
    if (!n) return strlen(text);
    for (size_t i = 0; i < n; i++) {
        at += strspn(at, white);
        at += strcspn(at, white);
    }
    return (size_t)(at - text);
}

bool eval_same_words(const char *a, const char *b, size_t n_words)
{
    char here[1024], there[1024];
    rvi_buf x = rvi_buf_over(here, sizeof here), y = rvi_buf_over(there, sizeof there);
    reduce(a, first_words(a, n_words), &x);
    reduce(b, first_words(b, n_words), &y);
    bool same = !x.failed && !y.failed && x.len == y.len && !memcmp(x.data, y.data, x.len);
    rvi_buf_deinit(&x);
    rvi_buf_deinit(&y);
    return same;
}

/* ---- figures ---- */

rv_status eval_results_init(eval_results *r, const eval_row *rows, size_t n_rows, size_t n_sets,
                            rv_error *err)
{
    *r = (eval_results){.rows = rows, .n_rows = n_rows, .n_sets = n_sets};
    r->figures = rvi_zalloc_array(n_sets * n_rows, sizeof *r->figures);
    r->numbers = rvi_zalloc_array(n_sets, sizeof *r->numbers);
    if (!r->figures || !r->numbers) return rvi_nomem(err, "figures");
    for (size_t i = 0; i < n_sets * n_rows; i++) r->figures[i].value = NAN;
    for (size_t i = 0; i < n_sets; i++) r->numbers[i] = (int)i + 1;
    return RV_OK;
}

void eval_results_deinit(eval_results *r)
{
    rvi_free(r->figures);
    rvi_free(r->numbers);
    *r = (eval_results){0};
}

eval_figure *eval_results_of(const eval_results *r, size_t set)
{
    return r->figures + set * r->n_rows;
}

/* The interval of a rate k of n at 95 %, percent (Wilson). */
static void interval_of(double k, double n, double *low, double *high)
{
    const double z = 1.96;
    *low = 0;
    *high = 100;
    if (n <= 0) return;
    double p = RVI_MIN(1, RVI_MAX(0, k / n)), centre = p + z * z / (2 * n),
           half = z * sqrt((p * (1 - p) + z * z / (4 * n)) / n), all = 1 + z * z / n;
    *low = 100 * RVI_MAX(0, (centre - half) / all);
    *high = 100 * RVI_MIN(1, (centre + half) / all);
}

/* A figure over n_sets sets; all NaN where none was measured. */
typedef struct summary {
    double mean, worst, n;
} summary;

static summary summarize(const eval_results *r, size_t first, size_t n_sets, size_t row)
{
    summary all = {.mean = NAN, .worst = NAN};
    double sum = 0;
    size_t n = 0;
    for (size_t s = first; s < first + n_sets; s++) {
        const eval_figure *f = &eval_results_of(r, s)[row];
        all.n += f->n;
        if (isnan(f->value)) continue;
        sum += f->value;
        all.mean = sum / (double)++n;
        if (isnan(all.worst) ||
            (r->rows[row].low_is_good ? f->value > all.worst : f->value < all.worst))
            all.worst = f->value;
    }
    return all;
}

static void put_figure(rvi_buf *out, const eval_results *r, size_t row, double value)
{
    rvi_buf_printf(out, row ? ",\"%s\":" : "\"%s\":", r->rows[row].name);
    if (isnan(value))
        rvi_buf_puts(out, "null");
    else
        rvi_buf_printf(out, "%.6g", value);
}

void eval_write_sets(rvi_buf *out, const eval_results *r)
{
    for (size_t i = 0; i < r->n_rows; i++)
        put_figure(out, r, i, summarize(r, 0, r->n_sets, i).mean);
    rvi_buf_puts(out, ",\"worst\":{");
    for (size_t i = 0; i < r->n_rows; i++)
        put_figure(out, r, i, summarize(r, 0, r->n_sets, i).worst);
    rvi_buf_puts(out, "},\"sets\":[");
    for (size_t s = 0; s < r->n_sets; s++) {
        rvi_buf_printf(out, "%s{\"set\":%d,", s ? "," : "", r->numbers[s]);
        for (size_t i = 0; i < r->n_rows; i++)
            put_figure(out, r, i, eval_results_of(r, s)[i].value);
        rvi_buf_putc(out, '}');
    }
    rvi_buf_putc(out, ']');
}

void eval_print_sets(rvi_buf *out, const eval_results *r, size_t first, size_t n_sets)
{
    rvi_buf_printf(out, "%-14s %9s  %-17s %9s", "", "mean", n_sets ? "95 %" : "", "worst");
    rvi_buf_puts(out, n_sets > 1 ? "   sets\n" : "\n");
    for (size_t i = 0; i < r->n_rows; i++) {
        summary all = summarize(r, first, n_sets, i);
        double low, high;
        char interval[32] = "";
        rvi_buf_printf(out, "%-14s ", r->rows[i].name);
        if (isnan(all.mean)) {
            rvi_buf_puts(out, "not measured\n");
            continue;
        }
        interval_of(all.mean / 100 * all.n, all.n, &low, &high);
        if (all.n > 0) snprintf(interval, sizeof interval, "%.1f to %.1f", low, high);
        rvi_buf_printf(out, "%9.4g  %-17s %9.4g", all.mean, interval, all.worst);
        for (size_t s = 0; s < n_sets && n_sets > 1; s++)
            rvi_buf_printf(out, "%s%8.4g", s ? " " : "   ", eval_results_of(r, first + s)[i].value);
        rvi_buf_putc(out, '\n');
    }
}

void eval_write_head(rvi_buf *out, const char *kind, const eval *e)
{
    const eval_options *o = &e->o;
    rvi_buf_printf(out, "{\"eval\":\"%s\",\"model\":", kind);
    rvi_json_write_string(out, e->model_name, strlen(e->model_name));
    if (e->path) {
        rvi_buf_puts(out, ",\"file\":");
        rvi_json_write_string(out, e->path, strlen(e->path));
    }
    rvi_buf_printf(
        out, ",\"seed\":%llu,\"control\":%s%s%s,\"windows\":%d,\"isa\":\"%s\",\"commit\":\"%s\"",
        (unsigned long long)o->seed, o->control ? "\"" : "", o->control ? o->control : "null",
        o->control ? "\"" : "", e->n_windows, rv_runtime_isa(e->model.rt), cli_commit());
}
