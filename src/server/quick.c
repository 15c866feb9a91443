#include "server/quick.h"

#include <time.h>

#include "server/keys.h"
#include "server/reply.h"
#include "server/wish.h"

void rvi_quick_answer(const rvi_serving *s, rvi_conn *c, const rvi_dialect *d, rvi_quick_fn *fn)
{
    enum { MOST_ARENA = 256 << 20 };
    rvi_arena arena = {.max = MOST_ARENA};
    rvi_buf out = {0};
    rvi_problem p = {0};
    rvi_quick q = {.s = s, .tenant = c->key->name, .arena = &arena};
    bool ok = rvi_wish_body(&q.body, &c->in.body, &arena, &p) && fn(&q, &out, &p);
    if (ok)
        rvi_reply_json(d, c, &out);
    else
        rvi_dialect_refuse(d, c, &p);
    if (!ok) rvi_buf_deinit(&out);
    rvi_arena_deinit(&arena);
}

void rvi_quick_today(rv_time *out)
{
    time_t now = time(NULL);
    struct tm t = {0};
    (void)localtime_r(&now, &t);
    *out = (rv_time){.year = t.tm_year + 1900, .month = t.tm_mon + 1, .day = t.tm_mday};
}

void rvi_quick_put_variables(rvi_buf *out, const rvi_json *tools)
{
    static const char *const months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                         "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    rvi_buf functions = {0};
    rv_time t;
    rvi_quick_today(&t);
    if (rvi_json_is(tools, RVI_JSON_ARRAY)) rvi_json_write(&functions, tools);
    const char *month = months[t.month - 1];
    rvi_buf_printf(out, ",\"date_string\":\"%02d %s %d\",\"datetime\":\"%s %02d %d\"", t.day, month,
                   t.year, month, t.day, t.year);
    rvi_put_member(out, "functions", functions.len ? functions.data : "[]");
    if (functions.failed) out->failed = true;
    rvi_buf_deinit(&functions);
}

bool rvi_quick_count(const rvi_serving *s, const rvi_buf *chat, size_t *n, rvi_problem *p)
{
    rv_time today;
    rvi_quick_today(&today);
    rv_chat rendered = {.size = sizeof rendered, .variables = chat->data, .now = &today};
    int32_t *ids = NULL;
    rv_error err = {0};
    rv_status st = rv_chat_tokenize(s->model, &rendered, &ids, n, &err);
    rv_free(ids);
    return !st || rvi_problem_from(p, st, &err);
}
