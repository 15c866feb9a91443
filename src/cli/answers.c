#include "cli/answers.h"

#include "base/error.h"
#include "base/os.h"
#include "server/kept.h"

static rv_store_options options(const cli *c)
{
    rv_store_options o = {.size = sizeof o, .busy_ms = 2000, .shared = 1};
    if (c->store) o.space = ".answers";
    return o;
}

static rv_status path_of(const cli *c, rvi_buf *out, const char **state, rv_error *err)
{
    rv_status st = cli_state(c, state, err);
    if (!st && !rvi_buf_printf(out, "%s/answers.db", *state)) st = rvi_nomem(err, "path");
    return st;
}

rv_status cli_answers_open(const cli *c, rv_store out[2], rv_error *err)
{
    rv_store_options o = options(c);
    rvi_buf path = {0};
    const char *state;
    rv_status st = RV_OK;
    if (!c->store) st = path_of(c, &path, &state, err);
    if (!st && !c->store) st = rvi_os_make_private_dirs(state, err);
    if (!st) st = rv_store_open(&out[0], c->store ? c->store : path.data, &o, err);
    if (c->store) o.beside = &out[0];
    if (!st) st = rv_store_open(&out[1], c->store ? c->store : path.data, &o, err);
    rvi_buf_deinit(&path);
    return st;
}

rv_status cli_answers_forget(const cli *c, rv_error *err)
{
    rv_store s = {0};
    rv_store_options o = options(c);
    rvi_buf path = {0};
    const char *state;
    rv_status st = c->store ? RV_OK : path_of(c, &path, &state, err);
    if (!st && (c->store || rvi_os_stat(path.data, NULL) == RVI_OS_FILE)) {
        st = rv_store_open(&s, c->store ? c->store : path.data, &o, err);
        if (!st) st = rvi_kept_forget(&s, "", err);
        rv_store_close(&s);
    }
    rvi_buf_deinit(&path);
    return st;
}
