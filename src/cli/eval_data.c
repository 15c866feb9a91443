/* Sets of facts, and the figures of an evaluation. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/utf8.h"
#include "cli/eval.h"

enum { MAX_FILE = 64 << 20, MAX_TREE = 512 << 20 };

/* ---- the file ---- */

const char *eval_member(const rvi_json *object, const char *key)
{
    return rvi_json_string(rvi_json_get(object, key), NULL);
}

static rv_status load_texts(eval_file *f, const rvi_json *list, const char *what, eval_texts *out,
                            rv_error *err)
{
    size_t n = rvi_json_count(list);
    *out = (eval_texts){0};
    if (!n) return RV_OK;
    if (!(out->items = rvi_arena_alloc(&f->arena, n, sizeof *out->items)))
        return rvi_nomem(err, what);
    for (size_t i = 0; i < n; i++)
        if (!(out->items[i] = rvi_json_string(rvi_json_at(list, i), NULL)))
            return rvi_error(err, RV_E_CONFIG, "%s: entry %zu is not a string", what, i);
    out->n = n;
    return RV_OK;
}

static rv_status load_fact(eval_file *f, const rvi_json *v, size_t i, eval_fact *out, rv_error *err)
{
    *out = (eval_fact){.subject = eval_member(v, "subject"),
                       .relation = eval_member(v, "relation"),
                       .answer = eval_member(v, "answer"),
                       .prompt = eval_member(v, "prompt"),
                       .reverse = eval_member(v, "reverse")};
    if (!out->subject || !out->relation || !out->answer || !out->prompt)
        return rvi_error(
            err, RV_E_CONFIG,
            "fact %zu: \"subject\", \"relation\", \"answer\" and \"prompt\" are needed", i + 1);
    out->taught = out->answer;
    rv_status st =
        load_texts(f, rvi_json_get(v, "heldout"), "a fact's \"heldout\"", &out->heldout, err);
    if (!st)
        st = load_texts(f, rvi_json_get(v, "neighbours"), "a fact's \"neighbours\"",
                        &out->neighbours, err);
    if (!st)
        st = load_texts(f, rvi_json_get(v, "same_subject"), "a fact's \"same_subject\"", &out->same,
                        err);
    return st;
}

/* The control: no fact is taught its own answer. */
static void shuffle_answers(eval_set *s, rvi_rng *rng)
{
    for (int attempt = 0; attempt < 100; attempt++) {
        bool own = false;
        for (size_t i = s->n; i-- > 1;) {
            size_t k = (size_t)(rvi_rng_u64(rng) % i); /* below i: one cycle, no fixed point */
            const char *t = s->facts[i].taught;
            s->facts[i].taught = s->facts[k].taught;
            s->facts[k].taught = t;
        }
        for (size_t i = 0; i < s->n; i++) own |= !strcmp(s->facts[i].taught, s->facts[i].answer);
        if (!own) return;
    }
}

static rv_status load_set(eval_file *f, const rvi_json *v, int number, const eval_options *o,
                          rv_error *err)
{
    eval_set *s = &f->sets[f->n_sets];
    const rvi_json *list = rvi_json_get(v, "facts");
    size_t n = rvi_json_count(list);
    rv_status st = RV_OK;
    if (!rvi_json_is(list, RVI_JSON_ARRAY) || !n)
        return rvi_error(err, RV_E_CONFIG, "set %d: a list \"facts\" is expected", number);
    if (o->limit) n = RVI_MIN(n, (size_t)o->limit);
    *s = (eval_set){
        .n = n, .number = number, .seed = (int)rvi_json_int(rvi_json_get(v, "seed"), number)};
    s->facts = rvi_arena_alloc(&f->arena, n, sizeof *s->facts);
    if (!s->facts) return rvi_nomem(err, "facts");
    for (size_t i = 0; !st && i < n; i++)
        st = load_fact(f, rvi_json_at(list, i), i, &s->facts[i], err);
    if (!st && o->control && !strcmp(o->control, "shuffled")) {
        rvi_rng rng = {o->seed * 1000 + (uint64_t)number};
        shuffle_answers(s, &rng);
    }
    if (!st) f->n_sets++;
    return st;
}

rv_status eval_file_load(eval_file *f, const char *path, const eval_options *o, rv_error *err)
{
    const rvi_json *tree, *sets;
    *f = (eval_file){.arena = {.max = MAX_TREE}, .text = {.max = MAX_FILE}};
    rv_status st = cli_read_file(path, &f->text, err);
    if (!st) st = rvi_json_parse(&tree, f->text.data, f->text.len, &f->arena, path, err);
    if (st) return st;
    sets = rvi_json_get(tree, "sets");
    size_t n = rvi_json_count(sets);
    if (!rvi_json_is(sets, RVI_JSON_ARRAY) || !n)
        return rvi_error(err, RV_E_CONFIG, "%s: a list \"sets\" is expected", path);
    if ((size_t)o->set > n)
        return rvi_error(err, RV_E_CONFIG, "%s: there is no set %d, only %zu", path, o->set, n);
    if (!(f->sets = rvi_arena_alloc(&f->arena, n, sizeof *f->sets))) return rvi_nomem(err, "sets");
    st = load_texts(f, rvi_json_get(tree, "unrelated"), "\"unrelated\"", &f->unrelated, err);
    for (size_t i = 0; !st && i < n; i++)
        if (!o->set || (size_t)o->set == i + 1)
            st = load_set(f, rvi_json_at(sets, i), (int)i + 1, o, err);
    return st;
}

void eval_file_deinit(eval_file *f)
{
    rvi_arena_deinit(&f->arena);
    rvi_buf_deinit(&f->text);
    *f = (eval_file){0};
}

/* ---- styles ---- */

static rv_status load_requests(eval_styles *f, const rvi_json *list, const eval_options *o,
                               const char *what, eval_request **out, size_t *n, rv_error *err)
{
    *n = rvi_json_count(list);
    if (!rvi_json_is(list, RVI_JSON_ARRAY) || !*n)
        return rvi_error(err, RV_E_CONFIG, "a style's \"%s\" is not a list of requests", what);
    if (o->limit) *n = RVI_MIN(*n, (size_t)o->limit);
    if (!(*out = rvi_arena_alloc(&f->arena, *n, sizeof **out))) return rvi_nomem(err, what);
    for (size_t i = 0; i < *n; i++) {
        const rvi_json *r = rvi_json_at(list, i);
        (*out)[i] =
            (eval_request){eval_member(r, "prompt"), rvi_json_string(rvi_json_get(r, "name"), "")};
        if (!(*out)[i].prompt)
            return rvi_error(err, RV_E_CONFIG, "\"%s\", entry %zu: there is no \"prompt\"", what,
                             i + 1);
    }
    return RV_OK;
}

static rv_status load_style(eval_styles *f, const rvi_json *v, const eval_options *o, rv_error *err)
{
    const char *name = eval_member(v, "style");
    eval_style *s = &f->items[f->n];
    if (!name) return rvi_error(err, RV_E_CONFIG, "an entry has no \"style\"");
    if (!cli_style_find(name, &s->style)) {
        rvi_buf known = {0};
        for (int i = 0; i < N_STYLES; i++)
            rvi_buf_printf(&known, i ? ", %s" : "%s", cli_style_names[i]);
        rv_status st = rvi_error(err, RV_E_CONFIG, "style '%s' is none that can be judged here: %s",
                                 name, known.data ? known.data : "");
        rvi_buf_deinit(&known);
        return st;
    }
    rv_status st =
        load_requests(f, rvi_json_get(v, "teach"), o, "teach", &s->teach, &s->n_teach, err);
    if (!st)
        st = load_requests(f, rvi_json_get(v, "heldout"), o, "heldout", &s->heldout, &s->n_heldout,
                           err);
    if (!st) f->n++;
    return st;
}

rv_status eval_styles_load(eval_styles *f, const char *path, const char *name,
                           const eval_options *o, rv_error *err)
{
    const rvi_json *tree;
    *f = (eval_styles){.arena = {.max = MAX_TREE}, .text = {.max = MAX_FILE}};
    rv_status st = cli_read_file(path, &f->text, err);
    if (!st) st = rvi_json_parse(&tree, f->text.data, f->text.len, &f->arena, path, err);
    if (st) return st;
    size_t n = rvi_json_count(tree);
    if (!rvi_json_is(tree, RVI_JSON_ARRAY) || !n)
        return rvi_error(err, RV_E_CONFIG, "%s: a list of styles is expected", path);
    if (!(f->items = rvi_arena_alloc(&f->arena, n, sizeof *f->items)))
        return rvi_nomem(err, "styles");
    for (size_t i = 0; !st && i < n; i++) {
        const rvi_json *v = rvi_json_at(tree, i);
        if (!name || rvi_json_is_string(rvi_json_get(v, "style"), name))
            st = load_style(f, v, o, err);
    }
    if (!st && !f->n) st = rvi_error(err, RV_E_CONFIG, "%s: there is no style '%s'", path, name);
    return st;
}

void eval_styles_deinit(eval_styles *f)
{
    rvi_arena_deinit(&f->arena);
    rvi_buf_deinit(&f->text);
    *f = (eval_styles){0};
}

/* ---- teaching ---- */

rv_status eval_teach(rv_learner *l, const eval_fact *facts, size_t n, double *slowest,
                     rv_error *err)
{
    rv_status st = RV_OK;
    double worst = 0;
    for (size_t i = 0; !st && i < n; i++) {
        rv_adaptation a = {0};
        st = rv_learner_correct(l, NULL, facts[i].prompt, facts[i].taught, &a, err);
        if (!st && !a.applied)
            st = rvi_error(err, RV_E_SONA, "'%s' was not learned: %s", facts[i].prompt, a.notes);
        worst = RVI_MAX(worst, (a.latency_us + a.forward_us) * 1e-6);
    }
    if (slowest) *slowest = worst;
    return st;
}

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

void eval_wilson(double k, double n, double *low, double *high)
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

void eval_summary(const eval_figure *figures, size_t n_figures, size_t n_sets, size_t i,
                  double *mean, double *worst)
{
    double sum = 0;
    size_t n = 0;
    *worst = NAN;
    for (size_t s = 0; s < n_sets; s++) {
        const eval_figure *f = &figures[s * n_figures + i];
        if (isnan(f->value)) continue;
        sum += f->value;
        n++;
        if (isnan(*worst) || (f->low_is_good ? f->value > *worst : f->value < *worst))
            *worst = f->value;
    }
    *mean = n ? sum / (double)n : (double)NAN;
}

void eval_write_figures(rvi_buf *out, const eval_figure *figures, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        rvi_buf_printf(out, "%s\"%s\":", i ? "," : "", figures[i].name);
        if (isnan(figures[i].value))
            rvi_buf_puts(out, "null");
        else
            rvi_buf_printf(out, "%.6g", figures[i].value);
    }
}

void eval_write_sets(rvi_buf *out, const eval_figure *figures, size_t n_figures, const int *numbers,
                     size_t n_sets)
{
    for (int worst = 0; worst < 2; worst++) {
        if (worst) rvi_buf_puts(out, ",\"worst\":{");
        for (size_t i = 0; i < n_figures; i++) {
            eval_figure f = figures[i];
            double mean, bad;
            eval_summary(figures, n_figures, n_sets, i, &mean, &bad);
            f.value = worst ? bad : mean;
            if (i) rvi_buf_putc(out, ',');
            eval_write_figures(out, &f, 1);
        }
        if (worst) rvi_buf_putc(out, '}');
    }
    rvi_buf_puts(out, ",\"sets\":[");
    for (size_t s = 0; s < n_sets; s++) {
        rvi_buf_printf(out, "%s{\"set\":%d,", s ? "," : "", numbers[s]);
        eval_write_figures(out, figures + s * n_figures, n_figures);
        rvi_buf_putc(out, '}');
    }
    rvi_buf_putc(out, ']');
}

void eval_print_sets(rvi_buf *out, const eval_figure *figures, size_t n_figures, size_t n_sets)
{
    rvi_buf_printf(out, "%-14s %9s  %-17s %9s", "", "mean", n_sets ? "95 %" : "", "worst");
    rvi_buf_puts(out, n_sets > 1 ? "   sets\n" : "\n");
    for (size_t i = 0; i < n_figures; i++) {
        double mean, worst, n = 0, low, high;
        char interval[32] = "";
        eval_summary(figures, n_figures, n_sets, i, &mean, &worst);
        rvi_buf_printf(out, "%-14s ", figures[i].name);
        if (isnan(mean)) {
            rvi_buf_puts(out, "not measured\n");
            continue;
        }
        for (size_t s = 0; s < n_sets; s++) n += figures[s * n_figures + i].n;
        eval_wilson(mean / 100 * n, n, &low, &high);
        if (n > 0) snprintf(interval, sizeof interval, "%.1f to %.1f", low, high);
        rvi_buf_printf(out, "%9.4g  %-17s %9.4g", mean, interval, worst);
        for (size_t s = 0; s < n_sets && n_sets > 1; s++)
            rvi_buf_printf(out, "%s%8.4g", s ? " " : "   ", figures[s * n_figures + i].value);
        rvi_buf_putc(out, '\n');
    }
}

void eval_write_head(rvi_buf *out, const char *kind, const eval *e, const char *path,
                     const eval_options *o)
{
    rvi_buf_printf(out, "{\"eval\":\"%s\",\"model\":", kind);
    rvi_json_write_string(out, e->model_name, strlen(e->model_name));
    if (path) {
        rvi_buf_puts(out, ",\"file\":");
        rvi_json_write_string(out, path, strlen(path));
    }
    rvi_buf_printf(out, ",\"seed\":%llu,\"control\":%s%s%s,\"windows\":%d,\"isa\":\"%s\"",
                   (unsigned long long)o->seed, o->control ? "\"" : "",
                   o->control ? o->control : "null", o->control ? "\"" : "", e->n_windows,
                   rv_runtime_isa(e->model.rt));
}
