#include "server/quick.h"

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

bool rvi_quick_count(const rvi_serving *s, const rvi_buf *chat, size_t *n, rvi_problem *p)
{
    rv_chat rendered = {.size = sizeof rendered, .variables = chat->data};
    int32_t *ids = NULL;
    rv_error err = {0};
    rv_status st = rv_chat_tokenize(s->model, &rendered, &ids, n, &err);
    rv_free(ids);
    return !st || rvi_problem_from(p, st, &err);
}
