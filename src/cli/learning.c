#include "cli/learning.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "base/os.h"
#include "base/utf8.h"
#include "cli/generation.h"

/* ---- opening ---- */

static bool file_of(const cli_learning *l, const char *name, rvi_buf *out)
{
    return rvi_buf_printf(out, "%s/%s", l->dir.data, name);
}

static rv_status open_learner(cli_learning *l, const rv_model *m, const char *name, rv_error *err)
{
    rvi_buf path = {0};
    rv_learner_options o;
    rv_status st = file_of(l, "feedback.db", &path) ? RV_OK : rvi_nomem(err, "path");
    if (!st) st = rv_store_open(&l->store, path.data, NULL, err);
    path.len = 0;
    if (!st && file_of(l, "paused", &path)) l->paused = rvi_os_stat(path.data, NULL) != RVI_OS_NONE;
    rvi_buf_deinit(&path);
    if (st) return st;
    o = (rv_learner_options){.size = sizeof o};
    o.store = &l->store;
    o.dir = l->dir.data;
    o.user = name;
    return rv_learner_new(&l->l, m, &o, err);
}

rv_status cli_learning_open(cli_learning *out, const cli *c, const rv_model *m, const char *name,
                            bool create, rv_error *err)
{
    char digest[65];
    *out = (cli_learning){0};
    if (!name) name = "default";
    if (!create && !c->state_dir) return RV_OK;
    const char *state;
    rv_status st = cli_state(c, &state, err);
    if (!st && !create && rvi_os_stat(state, NULL) != RVI_OS_DIR) return RV_OK;
    if (!st) st = rv_model_digest(m, digest, err);
    if (!st && !rvi_buf_printf(&out->dir, "%s/%s/%s", state, digest, name))
        st = rvi_nomem(err, "path");
    if (!st && !create && rvi_os_stat(out->dir.data, NULL) != RVI_OS_DIR) return RV_OK;
    rvi_os_private_files(true);
    if (!st) st = rvi_os_make_private_dirs(out->dir.data, err);
    if (!st) rvi_os_make_private(out->dir.data); /* earlier versions left it open to all */
    if (!st) st = open_learner(out, m, name, err);
    return st;
}

void cli_learning_close(cli_learning *l)
{
    rv_learner_free(&l->l); /* does not wait for what is computed in the background */
    rv_store_close(&l->store);
    rvi_buf_deinit(&l->dir);
    *l = (cli_learning){0};
}

rv_status cli_learning_set_paused(cli_learning *l, bool paused, rv_error *err)
{
    rvi_buf path = {0};
    rv_status st = file_of(l, "paused", &path) ? RV_OK : rvi_nomem(err, "path");
    if (!st && paused) {
        FILE *f = fopen(path.data, "wb");
        if (!f) st = rvi_error(err, RV_E_IO, "%s: %s", path.data, strerror(errno));
        if (f && fclose(f)) st = rvi_error(err, RV_E_IO, "%s: %s", path.data, strerror(errno));
    } else if (!st && l->paused && remove(path.data)) {
        st = rvi_error(err, RV_E_IO, "%s: %s", path.data, strerror(errno));
    }
    if (!st) l->paused = paused;
    rvi_buf_deinit(&path);
    return st;
}

/* ---- messages ---- */

static void put_time(rvi_buf *out, double us)
{
    if (us < 1000)
        rvi_buf_printf(out, "%.0f \xc2\xb5s", us);
    else if (us < 1e6)
        rvi_buf_printf(out, "%.1f ms", us / 1000);
    else
        rvi_buf_printf(out, "%.1f s", us / 1e6);
}

void cli_learning_describe(const rv_adaptation *a, rvi_buf *out)
{
    rvi_buf_puts(out, a->notes[0] ? a->notes : a->applied ? "Learned" : "Nothing changed");
    rvi_buf_puts(out, " (");
    put_time(out, a->latency_us);
    if (a->forward_us > 0) {
        rvi_buf_puts(out, ", forward passes ");
        put_time(out, a->forward_us);
    }
    if (a->event) rvi_buf_printf(out, "; event %llu", (unsigned long long)a->event);
    if (a->generation) rvi_buf_printf(out, "; generation %d", a->generation);
    if (isfinite(a->quality_delta) && a->applied)
        rvi_buf_printf(out, "; quality %+.3f", a->quality_delta);
    rvi_buf_puts(out, ")");
}

void cli_learning_write(const rv_adaptation *a, rvi_buf *out)
{
    static const char *const loops[] = {"instant", "background", "deep"};
    rvi_buf_printf(out,
                   "{\"applied\":%s,\"loop\":\"%s\",\"latency_us\":%.3f,\"forward_us\":%.3f,"
                   "\"quality_delta\":",
                   a->applied ? "true" : "false", loops[a->loop], a->latency_us, a->forward_us);
    rvi_json_write_number(out, a->quality_delta);
    rvi_buf_printf(out,
                   ",\"samples\":%d,\"event\":%llu,\"generation\":%d,\"notes\":", a->samples_used,
                   (unsigned long long)a->event, a->generation);
    rvi_json_write_string(out, a->notes, strlen(a->notes));
    rvi_buf_putc(out, '}');
}

static void print_lessons(const rvi_json *lessons, rvi_arena *a, rvi_buf *out)
{
    for (size_t i = 0; i < rvi_json_count(lessons); i++) {
        const rvi_json *x = rvi_json_at(lessons, i);
        int generation = (int)rvi_json_int(rvi_json_get(x, "generation"), 0);
        rvi_buf_printf(out, "  %s\n    %s  ",
                       cli_one_line(a, rvi_json_string(rvi_json_get(x, "question"), "")),
                       cli_one_line(a, rvi_json_string(rvi_json_get(x, "sentence"), "")));
        if (generation)
            rvi_buf_printf(out, "(generation %d)\n", generation);
        else
            rvi_buf_puts(out, "(waits for training)\n");
    }
}

static void print_preferences(const rvi_json *list, rvi_arena *a, rvi_buf *out)
{
    for (size_t i = 0; i < rvi_json_count(list); i++) {
        const rvi_json *x = rvi_json_at(list, i);
        rvi_buf_printf(out, "  %s\n    rather: %s\n    than:   %s  %s\n",
                       cli_one_line(a, rvi_json_string(rvi_json_get(x, "question"), "")),
                       cli_one_line(a, rvi_json_string(rvi_json_get(x, "chosen"), "")),
                       cli_one_line(a, rvi_json_string(rvi_json_get(x, "rejected"), "")),
                       rvi_json_bool(rvi_json_get(x, "trained"), false)
                           ? "(trained)"
                           : "(waits for 'learn run --deep')");
    }
}

static void print_generations(const rvi_json *list, rvi_buf *out)
{
    for (size_t i = 0; i < rvi_json_count(list); i++) {
        const rvi_json *g = rvi_json_at(list, i);
        rvi_buf_printf(
            out, "generation %-4d %s, %s", (int)rvi_json_int(rvi_json_get(g, "number"), 0),
            rvi_json_bool(rvi_json_get(g, "active"), false) ? "active" : "not active",
            rvi_json_bool(rvi_json_get(g, "gated"), false) ? "where a taught subject is named"
                                                           : "in every answer");
        if (rvi_json_get(g, "steps"))
            rvi_buf_printf(out, "; %d steps in %.0f s, loss %.3f, probe KL %.4f",
                           (int)rvi_json_int(rvi_json_get(g, "steps"), 0),
                           rvi_json_number(rvi_json_get(g, "seconds"), 0),
                           rvi_json_number(rvi_json_get(g, "loss"), 0),
                           rvi_json_number(rvi_json_get(g, "probe_kl"), 0));
        rvi_buf_putc(out, '\n');
    }
}

/* What runs in the background, and how far it is. */
static void print_background(const rvi_json *status, rvi_buf *out)
{
    const rvi_json *p = rvi_json_get(status, "background_progress");
    const char *what = rvi_json_string(rvi_json_get(status, "background"), "off");
    const char *stage = rvi_json_string(rvi_json_get(p, "stage"), ""),
               *trouble = rvi_json_string(rvi_json_get(status, "background_error"), NULL);
    long long n = rvi_json_int(rvi_json_get(p, "about"), 0),
              done = rvi_json_int(rvi_json_get(p, "done"), 0),
              total = rvi_json_int(rvi_json_get(p, "total"), 0);
    if (trouble) rvi_buf_printf(out, "the last training failed: %s\n", trouble);
    if (!p) {
        if (strcmp(what, "off") && strcmp(what, "resting"))
            rvi_buf_printf(out, "now: %s, begins\n", what);
        return;
    }
    rvi_buf_puts(out, "now: ");
    if (!strncmp(what, "training", strlen("training")))
        rvi_buf_printf(
            out, "%s %lld %s%s: ", strcmp(stage, "training") ? "preparing to train" : "training", n,
            strcmp(what, "training") ? "preference" : "correction", n == 1 ? "" : "s");
    else
        rvi_buf_printf(out, "%s: ", what);
    if (!strcmp(stage, "training"))
        rvi_buf_printf(out, "step %lld of %lld\n", done, total);
    else
        rvi_buf_printf(out, "%s, %lld of %lld\n", stage, done, total);
}

rv_status cli_learning_print(cli_learning *l, rvi_buf *out, rv_error *err)
{
    rvi_arena arena = {0};
    const rvi_json *s = NULL;
    char *json = NULL;
    rv_status st = rv_learner_status(l->l, &json, err);
    if (!st) st = rvi_json_parse(&s, json, strlen(json), &arena, "status", err);
    if (!st) {
        const rvi_json *preferences = rvi_json_get(s, "preferences");
        size_t n = rvi_json_count(preferences);
        rvi_buf_printf(out, "%lld correction%s, %lld of them not trained yet%s\n",
                       (long long)rvi_json_int(rvi_json_get(s, "lessons"), 0),
                       rvi_json_int(rvi_json_get(s, "lessons"), 0) == 1 ? "" : "s",
                       (long long)rvi_json_int(rvi_json_get(s, "waiting"), 0),
                       l->paused ? "; training is paused" : "");
        if (!rvi_json_bool(rvi_json_get(s, "calibrated"), true))
            rvi_buf_puts(out, "not calibrated yet: corrections are recognised by their subject "
                              "alone\n");
        print_background(s, out);
        print_lessons(rvi_json_get(s, "learned"), &arena, out);
        if (n) rvi_buf_printf(out, "%zu preference%s\n", n, n == 1 ? "" : "s");
        print_preferences(preferences, &arena, out);
        print_generations(rvi_json_get(s, "generations"), out);
        if (out->data) cli_hush(out->data, out->len);
    }
    rv_free(json);
    rvi_arena_deinit(&arena);
    return st;
}

int cli_learning_progress(void *ctx, const char *stage, int done, int total, double loss)
{
    char note[48] = "";
    if (!isnan(loss)) snprintf(note, sizeof note, "loss %.4f", loss);
    cli_progress_show(ctx, stage, (uint64_t)RVI_MAX(done, 0), (uint64_t)RVI_MAX(total, 0), note);
    if (done >= total) cli_progress_end(ctx);
    return cli_interrupted();
}

rv_status cli_learning_check(const char *what, const char *text, size_t len, rv_error *err)
{
    bool some = false;
    for (size_t i = 0, used; i < len; i += used) {
        uint32_t cp;
        bool valid = true;
        used = rvi_utf8_decode(text + i, len - i, &cp, &valid);
        if (!valid || !cp)
            return rvi_error(err, RV_E_CONFIG, "%s: byte %zu is not UTF-8 text", what, i);
        some |= cp > ' ';
    }
    return some ? RV_OK : rvi_error(err, RV_E_CONFIG, "%s: it is empty", what);
}
