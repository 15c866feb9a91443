/* eval_store.c - the store of an evaluation's learner, where a folder for it is named (--work).
 *
 * What a learner makes once for a model takes most of a minute. It is kept in the folder, in a
 * store of its own that no evaluation writes to; an evaluation learns in a copy, which goes with
 * it. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/os.h"
#include "eval/eval.h"
#include "store/store.h"

static rv_status calibrate(eval *e, const char *path, rv_error *err)
{
    rv_learner_options o;
    rv_status st = rvi_store_open(&e->store, path, 0, err);
    eval_learner_options(e, &o);
    if (!st) st = eval_learner_new(e, &o, err);
    rv_learner_free(&e->l);
    rvi_store_shut(&e->store);
    return st;
}

static rv_status copy_file(const char *from, const char *to, rv_error *err)
{
    rvi_buf data = {0};
    rv_status st = cli_read_file(from, &data, err);
    FILE *f = st ? NULL : fopen(to, "wb");
    if (!st && !f) st = rvi_error(err, RV_E_IO, "%s: cannot be written", to);
    if (!st) st = rvi_os_write(f, data.data, data.len, to, err);
    if (f && fclose(f) && !st) st = rvi_error(err, RV_E_IO, "%s: cannot be written", to);
    rvi_buf_deinit(&data);
    return st;
}

rv_status eval_store_open(eval *e, rv_error *err)
{
    const char *dir = e->o.work;
    rvi_buf made = {0}, own = {0};
    char digest[65];
    rv_status st = rv_model_digest(e->model.m, digest, err);
    if (!st) st = rvi_os_make_dirs(dir, err);
    if (!st) st = rvi_os_temp_dir(&e->work, dir, err);
    if (!st && (!rvi_buf_printf(&made, "%s/%s.db", dir, digest) ||
                !rvi_buf_printf(&own, "%s/eval.db", e->work.data)))
        st = rvi_nomem(err, "path");
    if (!st && rvi_os_stat(made.data, NULL) == RVI_OS_NONE) {
        /* whole or not at all */
        st = calibrate(e, own.data, err);
        if (!st) st = rvi_os_replace(own.data, made.data, err);
    }
    if (!st) st = copy_file(made.data, own.data, err);
    if (!st) st = rvi_store_open(&e->store, own.data, 0, err);
    rvi_buf_deinit(&made);
    rvi_buf_deinit(&own);
    return st;
}

void eval_store_shut(eval *e)
{
    rvi_store_shut(&e->store);
    if (e->work.len) rvi_os_remove_tree(e->work.data);
    rvi_buf_deinit(&e->work);
}
