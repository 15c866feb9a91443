#include "cli/learning.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/os.h"
#include "base/sha256.h"
#include "base/thread.h"
#include "base/utf8.h"
#include "cli/generation.h"
#include "hub/hub.h"

/* ---- opening ---- */

static void warn_of_spelling(const rv_error *why)
{
    fprintf(stderr,
            "ruvllm: warning: lessons are recognised by spelling alone: %s ('ruvllm pull minilm' "
            "fetches it again)\n",
            why->text);
}

/* Where it is not on this machine, or cannot be opened, lessons are recognised by spelling. */
static void open_embedder(cli_learning *l, const cli *c, const cli_model *m)
{
    const rvi_hub_model *known = rvi_hub_find("minilm");
    rv_open_options o = {.size = sizeof o, .quantize = 1};
    rvi_buf path = {0};
    rv_error why = {0};
    if (!c->cache_dir) return;
    rv_status st = rvi_hub_path(&path, c->cache_dir, known, &why);
    if (!st && rvi_hub_present(c->cache_dir, known))
        st = rv_model_open(&l->embedder, m->rt, path.data, &o, &why);
    else if (!st && rvi_os_stat(path.data, NULL) != RVI_OS_NONE)
        st = rvi_error(&why, RV_E_MODEL, "%s is not whole", path.data);
    if (st) warn_of_spelling(&why);
    rvi_buf_deinit(&path);
}

const char *cli_learning_hint(const cli_learning *l)
{
    return l->embedder
               ? NULL
               : "other wordings are recognised by their spelling alone; after 'ruvllm pull "
                 "minilm' (91 MB) by their meaning";
}

/* beside: a store whose connection to the same database it uses; NULL: one of its own. */
static rv_status open_store(const cli_learning *l, const rv_store *beside, rv_store *out,
                            rv_error *err)
{
    rv_store_options o = {.size = sizeof o, .beside = beside, .shared = 1};
    if (l->url) o.space = l->place.data;
    return rv_store_open(out, l->url ? l->url : l->place.data, &o, err);
}

/* A file said so before the store did. */
static rv_status adopt_paused(cli_learning *l, rv_error *err)
{
    rvi_buf path = {0};
    size_t len = l->place.len - strlen("feedback.db");
    if (l->url) return RV_OK;
    rv_status st = rvi_buf_append(&path, l->place.data, len) && rvi_buf_puts(&path, "paused")
                       ? RV_OK
                       : rvi_nomem(err, "path");
    if (!st && rvi_os_stat(path.data, NULL) != RVI_OS_NONE) {
        st = rv_learner_set_paused(l->l, 1, err);
        if (!st && remove(path.data))
            st = rvi_error(err, RV_E_IO, "%s cannot be removed", path.data);
    }
    rvi_buf_deinit(&path);
    return st;
}

/* ---- the learner ---- */

static rv_status open_learner(cli_learning *l, const cli *c, const cli_model *m,
                              const rv_model *embedder, rv_error *err)
{
    rv_learner_options o;
    rv_status st = open_store(l, l->beside, &l->store, err);
    if (st) return st;
    o = (rv_learner_options){.size = sizeof o};
    o.store = &l->store;
    o.dir = l->dir.data;
    o.user = l->name;
    if (!embedder) open_embedder(l, c, m);
    o.embedder = l->embedder ? l->embedder : embedder;
    st = rv_learner_new(&l->l, m->m, &o, err);
    if (st == RV_E_MODEL && l->embedder) {
        const rv_error why = *err;
        rv_model_close(&l->embedder);
        o.embedder = NULL;
        st = rv_learner_new(&l->l, m->m, &o, err);
        if (!st) warn_of_spelling(&why);
    }
    return st ? st : adopt_paused(l, err);
}

/* ---- folders ---- */

static rv_status make_folder(const char *path, rv_error *err)
{
    rv_status st = rvi_os_make_private_dirs(path, err);
    if (!st) rvi_os_make_private(path); /* earlier versions left it open to all */
    return st;
}

/* A folder that no other process has, until this one ends: RV_E_STORAGE where one has it. */
static rv_status claim(const char *dir, int *lock, rv_error *err)
{
    rvi_buf path = {0};
    rv_status st = rvi_buf_printf(&path, "%s/%s", dir, "claimed.lock")
                       ? rvi_os_lock(path.data, lock, NULL)
                       : rvi_nomem(err, "path");
    rvi_buf_deinit(&path);
    return st;
}

/* Tells addresses of databases apart, whatever their password. */
static uint32_t number_of(const char *url)
{
    rvi_sha256 h;
    uint8_t hash[RVI_SHA256_LEN];
    const char *host = strrchr(url, '@');
    rvi_sha256_init(&h);
    rvi_sha256_add(&h, host ? host : url, strlen(host ? host : url));
    rvi_sha256_end(&h, hash);
    return (uint32_t)hash[0] << 24 | (uint32_t)hash[1] << 16 | (uint32_t)hash[2] << 8 | hash[3];
}

static unsigned prefix_of(const cli_learning *l)
{
    return l->url ? (unsigned)number_of(l->url) : 0;
}

/* Where the store is, and the first free folder: that of the state itself, or one beside it. */
static rv_status take_folder(cli_learning *l, const char *state, const char *digest, rv_error *err)
{
    enum { MOST = 1024 };
    rvi_buf base = {0};
    rv_status st = RV_E_STORAGE;
    bool ok = rvi_buf_printf(&l->shared, "%s/%s/.shared-%s", state, digest, l->name) &&
              rvi_buf_printf(&base, "%s/%s/%s", state, digest, l->name) &&
              (l->url ? rvi_buf_printf(&l->place, "%s/%s", digest, l->name)
                      : rvi_buf_printf(&l->place, "%s/feedback.db", base.data));
    for (int i = l->url ? 1 : 0; ok && st == RV_E_STORAGE && i <= MOST; i++) {
        l->dir.len = 0;
        ok = i ? rvi_buf_printf(&l->dir, "%s/%08x-%d", l->shared.data, prefix_of(l), i)
               : rvi_buf_puts(&l->dir, base.data);
        if (ok) st = make_folder(l->dir.data, err);
        if (ok && !st) st = claim(l->dir.data, &l->claim, err);
        l->claimed = ok && !st;
        if (ok && st == RV_E_IO) st = RV_OK; /* where nothing can be locked the learner says so */
    }
    rvi_buf_deinit(&base);
    if (!ok) return rvi_nomem(err, "path");
    return st == RV_E_STORAGE
               ? rvi_error(err, st, "%d processes learn in %s already", (int)MOST, state)
               : st;
}

static void clean_folder(cli_learning *l, const char *dir)
{
    int lock = -1;
    rv_error why = {0};
    if (!strcmp(dir, l->dir.data) || rvi_os_stat(dir, NULL) != RVI_OS_DIR ||
        claim(dir, &lock, NULL))
        return; /* whoever has it follows what was forgotten */
    if (rv_learner_clean(l->l, dir, &why)) cli_warn("adapters of what was forgotten: %s", why.text);
    rvi_os_unlock(lock);
}

static int clean_shared(void *ctx, const char *name)
{
    cli_learning *l = ctx;
    rvi_buf dir = {0};
    char prefix[16];
    snprintf(prefix, sizeof prefix, "%08x-", prefix_of(l));
    if (!strncmp(name, prefix, strlen(prefix)) &&
        rvi_buf_printf(&dir, "%s/%s", l->shared.data, name))
        clean_folder(l, dir.data);
    rvi_buf_deinit(&dir);
    return 0;
}

/* Processes that were killed have left copies of adapters behind. */
void cli_learning_clean(cli_learning *l)
{
    rvi_buf base = {0};
    size_t len = strlen("/feedback.db");
    if (!l->url && rvi_buf_append(&base, l->place.data, l->place.len - len))
        clean_folder(l, base.data);
    rvi_buf_deinit(&base);
    if (rvi_os_stat(l->shared.data, NULL) == RVI_OS_DIR)
        (void)!rvi_os_list(l->shared.data, clean_shared, l, NULL);
}

/* A folder that the user named and that is not there: nothing was learned in it, unless it is one
 * that could not be made either. */
static rv_status check_missing(const char *state, rv_error *err)
{
    rvi_buf above = {0}, probe = {0};
    rv_error why = {0};
    rv_status st = rvi_buf_puts(&above, state) ? RV_OK : rvi_nomem(err, "path");
    while (!st && above.len && rvi_os_stat(above.data, NULL) == RVI_OS_NONE) {
        while (above.len && above.data[above.len - 1] != '/') above.len--;
        while (above.len > 1 && above.data[above.len - 1] == '/') above.len--;
        above.data[above.len] = 0;
    }
    if (!st) st = rvi_os_temp_dir(&probe, above.len ? above.data : ".", &why);
    if (!st && remove(probe.data))
        cli_warn("%s cannot be removed: %s", probe.data, strerror(errno));
    if (why.text[0])
        st = rvi_error(err, why.code, "%s is not there and cannot be made: %s", state, why.text);
    rvi_buf_deinit(&above);
    rvi_buf_deinit(&probe);
    return st;
}

/* Is there learned state? A folder that cannot be looked into is an error. */
static rv_status find_state(const char *dir, bool *there, rv_error *err)
{
    errno = 0;
    *there = rvi_os_stat(dir, NULL) == RVI_OS_DIR;
    return *there || !errno || errno == ENOENT
               ? RV_OK
               : rvi_error(err, RV_E_IO, "%s: %s", dir, strerror(errno));
}

static rv_status open_state(cli_learning *out, const cli *c, const cli_model *m, bool create,
                            const rv_model *embedder, rv_error *err)
{
    char digest[65];
    rvi_buf dir = {0};
    if (!create && !c->store && !c->state_dir) return RV_OK;
    const char *state;
    rv_status st = cli_state(c, &state, err);
    rvi_os_kind kind = st ? RVI_OS_NONE : rvi_os_stat(state, NULL);
    if (!st && kind != RVI_OS_DIR && kind != RVI_OS_NONE)
        st = rvi_error(err, RV_E_CONFIG, "%s: not a directory", state);
    if (!st && !create && !c->store && kind == RVI_OS_NONE)
        return c->state_dir == c->default_state ? RV_OK : check_missing(state, err);
    if (!st) st = rv_model_digest(m->m, digest, err);
    if (!st && !rvi_buf_printf(&dir, "%s/%s/%s", state, digest, out->name))
        st = rvi_nomem(err, "path");
    bool there = false;
    if (!st) st = find_state(dir.data, &there, err);
    rvi_buf_deinit(&dir);
    if (st || (!create && !c->store && !there)) return st;
    rvi_os_private_files(true);
    out->url = c->store;
    st = take_folder(out, state, digest, err);
    if (!st) st = open_learner(out, c, m, embedder, err);
    if (!st) cli_learning_clean(out);
    return st;
}

rv_status cli_learning_open(cli_learning *out, const cli *c, const cli_model *m, const char *name,
                            bool create, rv_error *err)
{
    *out = (cli_learning){.name = name ? name : "default"};
    return open_state(out, c, m, create, NULL, err);
}

rv_status cli_learning_use(cli_learning *out, const cli *c, const cli_model *m, const char *name,
                           const char *alone, rv_error *err)
{
    rv_error own = {0};
    *out = (cli_learning){0};
    rv_status st = alone ? RV_OK : cli_learning_open(out, c, m, name, false, &own);
    if (out->l) return RV_OK;
    if (alone)
        snprintf(out->none, sizeof out->none, "%s", alone);
    else if (st)
        snprintf(out->none, sizeof out->none, "it cannot be read: %s", own.text);
    else
        snprintf(out->none, sizeof out->none, "nothing was taught to this model as '%s'",
                 name ? name : "default");
    if (!alone && !st && name) return rvi_error(err, RV_E_NOT_FOUND, "%s", out->none);
    if (st) cli_warn("what was learned takes no part: %s", own.text);
    return RV_OK;
}

/* No name that a user gives begins like it. */
rv_status cli_learning_open_tenant(cli_learning *out, const cli *c, const cli_model *m,
                                   const char *tenant, const cli_learning *all, rv_error *err)
{
    *out = (cli_learning){.beside = c->store && all ? &all->store : NULL};
    if (!rvi_buf_printf(&out->tenant, ".tenant-%s", tenant)) return rvi_nomem(err, "tenant");
    out->name = out->tenant.data;
    return open_state(out, c, m, all != NULL, all ? all->embedder : NULL, err);
}

void cli_learning_close(cli_learning *l)
{
    rv_learner_free(&l->l); /* does not wait for what is computed in the background */
    rv_model_close(&l->embedder);
    rv_store_close(&l->store);
    rvi_buf_deinit(&l->place);
    rvi_buf_deinit(&l->dir);
    rvi_buf_deinit(&l->shared);
    rvi_buf_deinit(&l->tenant);
    if (l->claimed) rvi_os_unlock(l->claim);
    *l = (cli_learning){0};
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

const char cli_learning_step[] = "Learned: a small step";

void cli_learning_said(rvi_buf *out, const char *what, const char *text)
{
    enum { MOST = 300 };
    size_t len = strlen(text), end = RVI_MIN(strcspn(text, "\n"), (size_t)MOST), n_lines = 1;
    while (end < len && ((unsigned char)text[end] & 0xC0) == 0x80) end--; /* whole characters */
    for (const char *c = text; (c = strchr(c, '\n')); c++) n_lines++;
    rvi_buf_printf(out, "%s: %.*s", what, (int)end, text);
    if (n_lines > 1)
        rvi_buf_printf(out, " ... (%zu lines)", n_lines);
    else if (end < len)
        rvi_buf_puts(out, " ...");
}

void cli_learning_describe(const rv_adaptation *a, const char *said, bool verbose, rvi_buf *out)
{
    size_t at = out->len;
    bool returned = !strncmp(a->notes, "rolled back", strlen("rolled back"));
    rvi_buf_puts(out, returned             ? "Not kept: other answers would have changed too much"
                      : a->applied && said ? said
                      : a->notes[0]        ? a->notes
                      : a->applied         ? "Learned"
                                           : "Nothing changed");
    if (!out->failed && out->data[at] >= 'a' && out->data[at] <= 'z')
        out->data[at] = (char)(out->data[at] - 'a' + 'A');
    double us = a->latency_us + a->forward_us;
    if ((a->applied && us >= 0.5) || a->generation || verbose) {
        rvi_buf_puts(out, " (");
        put_time(out, us);
        if (a->generation) rvi_buf_printf(out, "; generation %d", a->generation);
        if (verbose && a->event) rvi_buf_printf(out, "; event %llu", (unsigned long long)a->event);
        if (verbose && a->applied && said && a->notes[0]) rvi_buf_printf(out, "; %s", a->notes);
        rvi_buf_putc(out, ')');
    }
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

void cli_learning_report(const cli *c, rv_adaptation *a, const char *said, bool json, rvi_buf *out)
{
    if (json)
        cli_learning_write(a, out);
    else
        cli_learning_describe(a, said, c->verbose, out);
    rvi_buf_putc(out, '\n');
    rv_free(a);
}

/* Was this lesson, or pair, trained into a generation that is out of use since? */
static bool is_rolled_back(const rvi_json *x, const rvi_json *generations)
{
    long long number = rvi_json_int(rvi_json_get(x, "generation"), 0);
    for (size_t i = 0; number && i < rvi_json_count(generations); i++) {
        const rvi_json *g = rvi_json_at(generations, i);
        if (rvi_json_int(rvi_json_get(g, "number"), 0) == number)
            return rvi_json_bool(rvi_json_get(g, "rolled_back"), false);
    }
    return false;
}

/* How many there are, and how far they are in weights. */
static void print_counts(const rvi_json *status, rvi_buf *out)
{
    const rvi_json *list = rvi_json_get(status, "learned");
    long long n = rvi_json_int(rvi_json_get(status, "lessons"), 0), n_back = 0,
              waiting = rvi_json_int(rvi_json_get(status, "waiting"), 0);
    for (size_t i = 0; i < rvi_json_count(list); i++)
        n_back += is_rolled_back(rvi_json_at(list, i), rvi_json_get(status, "generations"));
    if (!n)
        rvi_buf_puts(out, "no corrections");
    else
        rvi_buf_printf(out, "%lld correction%s, ", n, n == 1 ? "" : "s");
    if (n && waiting == n)
        rvi_buf_puts(out, "not trained yet");
    else if (waiting)
        rvi_buf_printf(out, "%lld not trained yet", waiting);
    if (n_back && n_back == n)
        rvi_buf_puts(out, "training rolled back");
    else if (n_back)
        rvi_buf_printf(out, "%straining of %lld rolled back", waiting ? ", " : "", n_back);
    else if (n && !waiting)
        rvi_buf_puts(out, "trained");
}

static void print_lessons(const rvi_json *lessons, const rvi_json *generations, rvi_arena *a,
                          rvi_buf *out)
{
    for (size_t i = 0; i < rvi_json_count(lessons); i++) {
        const rvi_json *x = rvi_json_at(lessons, i);
        int generation = (int)rvi_json_int(rvi_json_get(x, "generation"), 0);
        rvi_buf_printf(out, "  %s\n    %s  ",
                       cli_one_line(a, rvi_json_string(rvi_json_get(x, "question"), "")),
                       cli_one_line(a, rvi_json_string(rvi_json_get(x, "answer"), "")));
        if (generation)
            rvi_buf_printf(out, "(generation %d%s", generation,
                           is_rolled_back(x, generations) ? ", rolled back" : "");
        else
            rvi_buf_puts(out, "(waits for training");
        if (!strcmp(rvi_json_string(rvi_json_get(x, "scope"), ""), "exact"))
            rvi_buf_puts(out, "; for this very question");
        if (rvi_json_bool(rvi_json_get(x, "silent"), false))
            rvi_buf_puts(out, "; silent since a thumb down");
        rvi_buf_puts(out, ")\n");
        const rvi_json *old = rvi_json_get(x, "instead_of");
        for (size_t k = 0; k < rvi_json_count(old); k++)
            rvi_buf_printf(
                out, "    before: %s\n",
                cli_one_line(a, rvi_json_string(rvi_json_get(rvi_json_at(old, k), "answer"), "")));
    }
}

static void print_instructions(const rvi_json *list, rvi_arena *a, rvi_buf *out)
{
    if (rvi_json_count(list)) rvi_buf_puts(out, "read before every chat:\n");
    for (size_t i = 0; i < rvi_json_count(list); i++)
        rvi_buf_printf(
            out, "  %s\n",
            cli_one_line(a, rvi_json_string(rvi_json_get(rvi_json_at(list, i), "text"), "")));
}

static void print_preferences(const rvi_json *list, const rvi_json *generations, rvi_arena *a,
                              rvi_buf *out)
{
    for (size_t i = 0; i < rvi_json_count(list); i++) {
        const rvi_json *x = rvi_json_at(list, i);
        rvi_buf_printf(out, "  %s\n    rather: %s\n    than:   %s  %s\n",
                       cli_one_line(a, rvi_json_string(rvi_json_get(x, "question"), "")),
                       cli_one_line(a, rvi_json_string(rvi_json_get(x, "chosen"), "")),
                       cli_one_line(a, rvi_json_string(rvi_json_get(x, "rejected"), "")),
                       is_rolled_back(x, generations) ? "(training rolled back)"
                       : rvi_json_bool(rvi_json_get(x, "trained"), false)
                           ? "(trained)"
                           : "(waits for 'learn run --deep')");
    }
}

/* Where a generation takes part, or why it does not. */
static const char *part_of(const rvi_json *g)
{
    if (rvi_json_bool(rvi_json_get(g, "erased"), false))
        return "erased, because something it was trained on was forgotten";
    if (rvi_json_bool(rvi_json_get(g, "rolled_back"), false))
        return "out of use, because it was rolled back or something it was trained on taken back";
    if (!rvi_json_bool(rvi_json_get(g, "active"), false)) return "replaced by a later one";
    return rvi_json_bool(rvi_json_get(g, "gated"), false)
               ? "active, where one of its lessons is asked for"
               : "active, in every answer";
}

static void print_generations(const rvi_json *list, rvi_buf *out)
{
    for (size_t i = 0; i < rvi_json_count(list); i++) {
        const rvi_json *g = rvi_json_at(list, i);
        rvi_buf_printf(out, "generation %-4d %s", (int)rvi_json_int(rvi_json_get(g, "number"), 0),
                       part_of(g));
        if (rvi_json_get(g, "steps"))
            rvi_buf_printf(out, "; %d steps of training",
                           (int)rvi_json_int(rvi_json_get(g, "steps"), 0));
        rvi_buf_putc(out, '\n');
    }
}

/* A stage of training in words that need no explanation. */
static const char *plain_stage(const char *stage)
{
    static const char *const words[][2] = {
        {"the model's own texts", "writing own texts"},
        {"ordinary text", "reading plain texts"},
        {"hidden states", "reading examples"},
        {"wordings", "finding wordings"},
        {"negatives", "finding others"},
    };
    for (size_t i = 0; i < RVI_COUNT(words); i++)
        if (!strcmp(words[i][0], stage)) return words[i][1];
    return stage;
}

/* What runs in the background, and how far it is. */
static void print_background(const rvi_json *status, rvi_buf *out)
{
    const rvi_json *p = rvi_json_get(status, "background_progress");
    const char *what = rvi_json_string(rvi_json_get(status, "background"), "off"),
               *stage = rvi_json_string(rvi_json_get(p, "stage"), ""),
               *trouble = rvi_json_string(rvi_json_get(status, "background_error"), NULL);
    long long n = rvi_json_int(rvi_json_get(p, "about"), 0),
              done = rvi_json_int(rvi_json_get(p, "done"), 0),
              total = rvi_json_int(rvi_json_get(p, "total"), 0);
    if (trouble) rvi_buf_printf(out, "the last training failed: %s\n", trouble);
    if (!strcmp(what, "off") || !strcmp(what, "resting") || !strcmp(what, "paused")) return;
    if (n)
        rvi_buf_printf(out, "now: training %lld %s%s", n,
                       strcmp(what, "training") ? "preference" : "correction", n == 1 ? "" : "s");
    else
        rvi_buf_printf(out, "now: %s", strcmp(what, "training") ? "preparing" : what);
    if (!strcmp(stage, "training"))
        rvi_buf_printf(out, ", step %lld of %lld", done, total);
    else if (p && total)
        rvi_buf_printf(out, " (%s, %lld %%)", plain_stage(stage), 100 * done / total);
    rvi_buf_putc(out, '\n');
}

/* Through a store of its own, since the background may be using the learner's. (Stores on one
 * connection to a database take turns.) */
rv_status cli_learning_judgements(const cli_learning *l, rvi_arena *arena, cli_judgements *out,
                                  rv_error *err)
{
    rv_store store = {0};
    *out = (cli_judgements){0};
    rv_status st = open_store(l, l->url ? &l->store : NULL, &store, err);
    if (!st) st = cli_judgements_read(out, &store, l->name, arena, err);
    rv_store_close(&store);
    return st;
}

static void print_judgements(const cli_learning *l, rvi_arena *a, rvi_buf *out)
{
    enum { SHOWN = 12 };
    cli_judgements j;
    rv_error why;
    if (cli_learning_judgements(l, a, &j, &why))
        rvi_buf_printf(out, "judgements cannot be read: %s\n", why.text);
    if (j.n) rvi_buf_printf(out, "%zu judgement%s", j.n, j.n == 1 ? "" : "s");
    if (j.n) rvi_buf_printf(out, j.n > SHOWN ? ", the last %d:\n" : "\n", SHOWN);
    for (size_t i = j.n > SHOWN ? j.n - SHOWN : 0; i < j.n; i++)
        cli_judgement_write(&j.list[i], a, out);
    rvi_free(j.list);
}

/* ---- the status ---- */

rv_status cli_learning_status(const cli_learning *l, rvi_arena *arena, const rvi_json **out,
                              rv_error *err)
{
    char *json = NULL;
    *out = NULL;
    rv_status st = rv_learner_status(l->l, &json, err);
    if (!st) st = rvi_json_parse(out, json, strlen(json), arena, "status", err);
    rv_free(json);
    return st;
}

rv_status cli_learning_print(cli_learning *l, rvi_buf *out, rv_error *err)
{
    rvi_arena arena = {0};
    const rvi_json *s = NULL;
    rv_status st = cli_learning_status(l, &arena, &s, err);
    if (!st) {
        const rvi_json *preferences = rvi_json_get(s, "preferences"),
                       *generations = rvi_json_get(s, "generations");
        size_t n = rvi_json_count(preferences);
        print_counts(s, out);
        bool paused = rvi_json_bool(rvi_json_get(s, "paused"), false);
        rvi_buf_puts(out, paused ? "; training is paused\n" : "\n");
        rvi_buf_puts(out, l->embedder ? "recognised by meaning, with all-MiniLM-L6-v2\n"
                                      : "recognised by spelling alone, which knows far fewer "
                                        "wordings; by meaning after 'ruvllm pull minilm'\n");
        const rvi_json *reads = rvi_json_get(s, "reads");
        if (rvi_json_is(reads, RVI_JSON_BOOL))
            rvi_buf_puts(out, rvi_json_bool(reads, false)
                                  ? "where a correction is only likely to be asked for, this model "
                                    "reads it and answers in its own words\n"
                                  : "a correction that is only likely to be asked for takes no "
                                    "part: reading it would not help this model\n");
        print_background(s, out);
        print_lessons(rvi_json_get(s, "learned"), generations, &arena, out);
        print_instructions(rvi_json_get(s, "instructions"), &arena, out);
        if (n) rvi_buf_printf(out, "%zu preference%s\n", n, n == 1 ? "" : "s");
        print_preferences(preferences, generations, &arena, out);
        print_judgements(l, &arena, out);
        print_generations(generations, out);
        if (out->data) cli_hush(out->data, out->len);
    }
    rvi_arena_deinit(&arena);
    return st;
}

static int show_progress(void *ctx, const char *stage, int done, int total, double loss)
{
    (void)loss;
    cli_progress_show(ctx, plain_stage(stage), (uint64_t)RVI_MAX(done, 0),
                      (uint64_t)RVI_MAX(total, 0), "");
    if (done >= total) cli_progress_end(ctx);
    return cli_interrupted();
}

rv_status cli_learning_train(cli_learning *l, rv_learn_loop loop, rv_preference_loss loss,
                             rv_adaptation **out, rv_error *err)
{
    static const double moment = 0.2;
    cli_progress bar = {0};
    rv_status st;
    for (bool told = false;; told = true) {
        st = rv_learner_consolidate(l->l, loop, loss, show_progress, &bar, out, err);
        if (st != RV_E_BUSY || cli_interrupted()) break;
        if (!told) fputs("ruvllm: another process is training this; waiting for it\n", stderr);
        rvi_thread_sleep(moment);
    }
    cli_progress_end(&bar);
    return st == RV_E_BUSY ? rvi_error(err, RV_E_CANCELLED, "interrupted") : st;
}

rv_status cli_learning_check(const char *what, const char *text, size_t len, rv_error *err)
{
    enum { MOST = 64 << 10 }; /* bytes, as the learner takes them */
    bool some = false;
    if (len > MOST)
        return rvi_error(err, RV_E_CONFIG, "%s must be at most %d bytes (got %zu)", what, MOST,
                         len);
    for (size_t i = 0, used; i < len; i += used) {
        uint32_t cp;
        bool valid = true;
        used = rvi_utf8_decode(text + i, len - i, &cp, &valid);
        if (!valid) return rvi_error(err, RV_E_CONFIG, "%s: byte %zu is not UTF-8 text", what, i);
        if (!cp) return rvi_error(err, RV_E_CONFIG, "%s holds a NUL character (byte %zu)", what, i);
        some |= cp > ' ';
    }
    return some ? RV_OK : rvi_error(err, RV_E_CONFIG, "%s is empty", what);
}
