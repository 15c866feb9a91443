#include "server/quick.h"

#include "server/reply.h"
#include "server/wish.h"

void rvi_quick_answer(const rvi_serving *s, rvi_conn *c, const rvi_dialect *d, rvi_quick_fn *fn)
{
    enum { MOST_ARENA = 256 << 20 };
    rvi_arena arena = {.max = MOST_ARENA};
    rvi_buf out = {0};
    rvi_problem p = {0};
    const rvi_json *body;
    bool ok = rvi_wish_body(&body, &c->in.body, &arena, &p) && fn(s, body, &arena, &out, &p);
    if (ok)
        rvi_reply_json(d, c, &out);
    else
        rvi_dialect_refuse(d, c, &p);
    if (!ok) rvi_buf_deinit(&out);
    rvi_arena_deinit(&arena);
}
