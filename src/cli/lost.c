#include "cli/lost.h"

#include <string.h>

#include "base/os.h"

typedef struct folder {
    const cli_learning *l;
    bool json;
    rvi_buf *out;
    size_t n_damaged, n_adapters;
} folder;

/* "PREFIX" and digits, and behind them "suffix". */
static bool is_numbered(const char *name, const char *prefix, const char *suffix)
{
    size_t len = strlen(prefix);
    if (strncmp(name, prefix, len)) return false;
    size_t digits = strspn(name + len, "0123456789");
    return digits && !strcmp(name + len + digits, suffix);
}

static int note_file(void *ctx, const char *name)
{
    folder *f = ctx;
    f->n_adapters += is_numbered(name, "generation-", ".gguf");
    if (!is_numbered(name, "feedback.db.damaged-", "")) return 0;
    rvi_buf path = {0};
    rvi_buf_append(&path, f->l->place.data, f->l->place.len - strlen("feedback.db"));
    rvi_buf_puts(&path, name);
    if (path.failed) {
        f->out->failed = true;
    } else if (f->json) {
        rvi_buf_puts(f->out, f->n_damaged ? "," : "");
        rvi_json_write_string(f->out, path.data, path.len);
    } else {
        rvi_buf_printf(f->out,
                       "a damaged database was set aside, and the log went on with what could be "
                       "read of it: %s (move or delete it to end this notice)\n",
                       path.data);
    }
    f->n_damaged++;
    rvi_buf_deinit(&path);
    return 0;
}

void cli_lost_write(const cli_learning *l, bool json, rvi_buf *out)
{
    folder f = {.l = l, .json = json, .out = out};
    rvi_buf dir = {0};
    uint64_t n = 1;
    if (l->url) return;
    if (json) rvi_buf_puts(out, ",\"damaged\":[");
    if (rvi_buf_append(&dir, l->place.data, l->place.len - strlen("/feedback.db")) &&
        rvi_buf_puts(&dir, ""))
        (void)!rvi_os_list(dir.data, note_file, &f, NULL);
    if (json) rvi_buf_puts(out, "]");
    bool lost = f.n_adapters && !rv_learner_verify_log(l->l, &n, NULL) && !n;
    if (lost && json)
        rvi_buf_puts(out, ",\"log_lost\":true");
    else if (lost)
        rvi_buf_printf(out,
                       "the log is empty, though %zu adapter%s in %s: what was taught is lost "
                       "unless a copy of feedback.db is put back there\n",
                       f.n_adapters,
                       f.n_adapters == 1 ? " that it trained is" : "s that it trained are",
                       dir.data);
    rvi_buf_deinit(&dir);
}
