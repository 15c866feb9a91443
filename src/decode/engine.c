#include "decode/engine.h"

#include <string.h>

#include "base/mem.h"

/* ---- engines ---- */

static size_t longest_piece(const rvi_tokenizer *t)
{
    size_t longest = 0, len;
    for (int32_t id = 0; t && id < rvi_tokenizer_size(t); id++)
        if (rvi_tokenizer_text(t, id, &len)) longest = RVI_MAX(longest, len);
    return longest;
}

static rv_status check_options(const rvi_engine_options *o, rv_error *err)
{
    if (o->n_tokens < 1 || o->n_tokens > RVI_MAX_CONTEXT)
        return rvi_error(err, RV_E_CONFIG, "the context must be 1..%d tokens (got %d)",
                         RVI_MAX_CONTEXT, o->n_tokens);
    if (o->max_rows < 1 || o->max_rows > 1 << 20)
        return rvi_error(err, RV_E_CONFIG, "the rows of a step must be 1..%d (got %d)", 1 << 20,
                         o->max_rows);
    if (o->max_logits < 1 || o->max_logits > 1 << 16)
        return rvi_error(err, RV_E_CONFIG, "the rows with logits of a step must be 1..%d (got %d)",
                         1 << 16, o->max_logits);
    return RV_OK;
}

rv_status rvi_engine_new(rvi_engine **out, const rvi_model *m, const rvi_tokenizer *t,
                         const rvi_ids *eos, const rvi_engine_options *o, rv_error *err)
{
    *out = NULL;
    rv_status st = check_options(o, err);
    if (st) return st;
    rvi_engine *e = rvi_zalloc(sizeof *e);
    if (!e) return rvi_nomem(err, "engine");
    e->m = m;
    e->t = t;
    e->eos = eos;
    e->o = *o;
    e->o.max_rows = RVI_MIN(o->max_rows, o->n_tokens);
    e->o.max_logits = RVI_MIN(o->max_logits, e->o.max_rows);
    atomic_init(&e->stop, false);
    e->event_gap = 0.1;
    e->longest_piece = longest_piece(t);
    rvi_kv_spec spec =
        rvi_model_kv_spec(m, o->kv_type, (o->n_tokens + RVI_PAGE_TOKENS - 1) / RVI_PAGE_TOKENS);
    if (o->warm_pages) spec.warm_pages = o->warm_pages;
    e->o.warm_pages = o->kv_type == RV_KV_TIERED ? spec.warm_pages : 0;
    rvi_backend *be = o->be ? o->be : m->be;
    st = rvi_pages_new(&e->pool, be, &spec, err);
    if (!st) st = rvi_workspace_new_on(&e->ws, m, be, e->o.max_rows, e->o.max_logits, err);
    e->rows = rvi_alloc_array((size_t)e->o.max_rows, sizeof *e->rows);
    e->which = rvi_alloc_array((size_t)e->o.max_logits, sizeof *e->which);
    e->best = rvi_alloc_array((size_t)e->o.max_logits, sizeof *e->best);
    e->has_row = rvi_zalloc_array((size_t)e->o.max_logits, sizeof *e->has_row);
    e->asks = rvi_alloc_array((size_t)e->o.max_logits, sizeof *e->asks);
    e->owners = rvi_alloc_array((size_t)e->o.max_rows, sizeof(rvi_session *));
    bool reserved = e->rows && e->which && e->best && e->has_row && e->asks && e->owners;
    if (!st && !reserved) st = rvi_nomem(err, "engine");
    if (st)
        rvi_engine_free(e);
    else
        *out = e;
    return st;
}

void rvi_engine_free(rvi_engine *e)
{
    if (!e) return;
    rvi_pages_free(e->pool);
    rvi_workspace_free(e->ws);
    rvi_free(e->rows);
    rvi_free(e->which);
    rvi_free(e->best);
    rvi_free(e->has_row);
    rvi_free(e->asks);
    rvi_free(e->owners);
    rvi_free(e);
}

uint32_t rvi_engine_kv_format(const rvi_engine *e)
{
    return (uint32_t)e->o.kv_type | (uint32_t)e->o.warm_pages << 8;
}

rv_status rvi_engine_check_ids(const rvi_engine *e, const int32_t *ids, size_t n, rv_error *err)
{
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= e->m->hp.n_vocab)
            return rvi_error(err, RV_E_INVALID, "token id %d is not in the vocabulary of %d",
                             ids[i], e->m->hp.n_vocab);
    return RV_OK;
}

rv_status rvi_engine_explain(const rvi_engine *e, rv_status st, rv_error *err)
{
    const char *broken = rvi_model_find_broken_tensor(e->m);
    if (!broken) return st;
    return rvi_error(err, st,
                     "the model file is damaged: tensor '%s' holds a value that is not a number",
                     broken);
}

/* ---- sessions ---- */

rv_status rvi_session_new(rvi_session **out, rvi_engine *e, int n_context,
                          const rvi_adapter_set *adapters, void *owner, rv_error *err)
{
    *out = NULL;
    if (n_context < 1 || n_context > RVI_MAX_CONTEXT)
        return rvi_error(err, RV_E_CONFIG, "the context must be 1..%d tokens (got %d)",
                         RVI_MAX_CONTEXT, n_context);
    rvi_session *s = rvi_zalloc(sizeof *s);
    if (!s) return rvi_nomem(err, "session");
    s->e = e;
    s->n_context = n_context;
    s->allowed = INT32_MAX;
    s->adapters = adapters;
    s->owner = owner;
    atomic_init(&s->cancelled, false);
    atomic_init(&s->in_step, false);
    rv_status st = rvi_seq_init(&s->seq, e->pool, n_context, err);
    size_t n = (size_t)n_context;
    s->past = (rvi_ids){.data = rvi_alloc_array(n, sizeof *s->past.data), .cap = n};
    s->sets = rvi_alloc_array(n, sizeof *s->sets);
    if (!st && (!s->past.data || !s->sets)) st = rvi_nomem(err, "session");
    if (st)
        rvi_session_free(s);
    else
        *out = s;
    return st;
}

rv_status rvi_session_fork(rvi_session **out, const rvi_session *from, void *owner, rv_error *err)
{
    rv_status st = rvi_session_new(out, from->e, from->n_context, from->adapters, owner, err);
    if (st) return st;
    rvi_session *s = *out;
    rvi_seq own;
    if ((st = rvi_seq_fork(&own, &from->seq, err))) {
        rvi_session_free(s);
        *out = NULL;
        return st;
    }
    rvi_seq_deinit(&s->seq);
    s->seq = own;
    s->rope_set = from->rope_set;
    s->past.len = (size_t)from->seq.len;
    memcpy(s->past.data, from->past.data, s->past.len * sizeof *s->past.data);
    memcpy(s->sets, from->sets, s->past.len * sizeof *s->sets);
    return RV_OK;
}

void rvi_session_free(rvi_session *s)
{
    if (!s) return;
    if (s->answer) s->drop_answer(s);
    rvi_seq_deinit(&s->seq);
    rvi_ids_deinit(&s->past);
    rvi_free(s->sets);
    rvi_free(s);
}

static uint64_t serial(const rvi_adapter_set *set)
{
    return set ? set->serial : 0;
}

int rvi_session_reuse(rvi_session *s, const int32_t *ids, size_t n, int rope_set, bool want_logits)
{
    size_t same = 0, have = (size_t)s->seq.len, most = want_logits ? n - 1 : n;
    if (s->rope_set == rope_set)
        while (same < have && same < most && s->past.data[same] == ids[same] &&
               s->sets[same] == serial(s->adapters))
            same++;
    size_t able = (size_t)rvi_pages_reusable(s->e->pool, s->seq.pages, (int)same);
    s->e->n_dropped += same - able;
    same = able;
    s->rope_set = rope_set;
    rvi_seq_truncate(&s->seq, (int)same);
    s->past.len = same;
    return (int)same;
}

void rvi_session_suspend(rvi_session *s)
{
    rvi_seq_truncate(&s->seq, 0);
}

void rvi_session_cut(rvi_session *s, int from, int n)
{
    size_t at = (size_t)from, end = at + (size_t)n, behind = s->past.len - end;
    if (s->seq.len > from) /* what lay far behind may be too cold for rows that come to be near */
        rvi_seq_truncate(&s->seq, rvi_pages_reusable(s->e->pool, s->seq.pages, from));
    memmove(s->past.data + at, s->past.data + end, behind * sizeof *s->past.data);
    memmove(s->sets + at, s->sets + end, behind * sizeof *s->sets);
    s->past.len -= (size_t)n;
}

void rvi_session_adopt(rvi_session *s, const int32_t *pages, int len)
{
    rvi_seq_adopt(&s->seq, pages, len);
    for (int i = 0; i < len; i++) s->sets[i] = serial(s->adapters);
}

rv_status rvi_session_sync(rvi_session *s, const int32_t *ids, size_t n, size_t *n_reused,
                           float **logits, rv_error *err)
{
    rvi_engine *e = s->e;
    if (logits) *logits = NULL;
    if (n > (size_t)s->n_context)
        return rvi_error(err, RV_E_TOO_LONG, "%zu tokens do not fit the session's context of %d", n,
                         s->n_context);
    if (logits && !n)
        return rvi_error(err, RV_E_INVALID, "there are no tokens, so there are no logits");
    rv_status st = rvi_engine_check_ids(e, ids, n, err);
    if (st) return st;
    atomic_store(&s->cancelled, false);
    int kept =
        rvi_session_reuse(s, ids, n, rvi_rope_set(&e->m->rope, s->n_context), logits != NULL);
    if (n_reused) *n_reused = (size_t)kept;
    for (size_t i = (size_t)kept; i < n; i++) s->past.data[i] = ids[i];
    s->past.len = n;
    while (!st && (size_t)s->seq.len < n) {
        int rows = (int)RVI_MIN(n - (size_t)s->seq.len, (size_t)e->o.max_rows);
        bool last = (size_t)s->seq.len + (size_t)rows == n;
        rvi_engine_begin(e);
        st = rvi_engine_add(e, s, rows, s->adapters, last && logits, err);
        if (!st) st = rvi_engine_compute(e, err);
    }
    if (st)
        s->past.len = (size_t)s->seq.len;
    else if (logits)
        *logits = rvi_engine_logits(e, 0);
    return st;
}

/* ---- steps ---- */

static void release_owners(rvi_engine *e)
{
    for (int i = 0; i < e->n_owners; i++) atomic_store(&e->owners[i]->in_step, false);
    e->n_owners = 0;
}

static void forget_results(rvi_engine *e)
{
    e->logits = NULL;
    e->drawn = NULL;
    e->has_best = false;
}

void rvi_engine_begin(rvi_engine *e)
{
    release_owners(e);
    e->n_rows = e->n_logits = 0;
    forget_results(e);
    e->then = RVI_THEN_LOGITS;
}

int rvi_engine_room(const rvi_engine *e)
{
    int most = e->most_rows ? RVI_MIN(e->most_rows, e->o.max_rows) : e->o.max_rows;
    return RVI_MAX(most - e->n_rows, 0);
}

int rvi_engine_logits_room(const rvi_engine *e)
{
    return e->o.max_logits - e->n_logits;
}

rv_status rvi_engine_add(rvi_engine *e, rvi_session *s, int n, const rvi_adapter_set *set,
                         int n_logits, rv_error *err)
{
    int first = s->seq.len;
    rv_status st = rvi_seq_extend(&s->seq, n, err);
    if (st) return st;
    for (int i = 0; i < n; i++) {
        s->sets[first + i] = serial(set);
        e->owners[e->n_rows] = s;
        e->rows[e->n_rows++] = (rvi_row){.seq = &s->seq,
                                         .pos = first + i,
                                         .token = s->past.data[first + i],
                                         .rope_set = s->rope_set,
                                         .adapters = set && set->n ? set : NULL};
    }
    for (int i = n_logits; i > 0; i--) e->which[e->n_logits++] = e->n_rows - i;
    (void)atomic_exchange(&s->in_step, true);
    e->n_owners = e->n_rows;
    return RV_OK;
}

/* One more sequence for the keys and values of a row; false: it has as many as it can. */
static bool write_also(rvi_row *row, const rvi_seq *side)
{
    for (int i = 0; i < RVI_ROW_ALSO; i++)
        if (!row->also[i]) {
            row->also[i] = side;
            return true;
        }
    return false;
}

rv_status rvi_engine_add_side(rvi_engine *e, rvi_session *s, rvi_seq *side, int from, int to,
                              const int32_t *ids, int n, const rvi_adapter_set *set, rv_error *err)
{
    rvi_seq_adopt(side, s->seq.pages, from);
    rv_status st = rvi_seq_extend(side, to - from + n, err);
    for (int i = 0; i < e->n_rows && !st; i++) {
        rvi_row *row = &e->rows[i];
        bool shared = row->seq == &s->seq && row->pos >= from && row->pos < to;
        if (shared && !write_also(row, side)) /* nothing reads what others were given to write */
            st = rvi_error(err, RV_E_TOO_LONG, "more than %d branches", (int)RVI_ROW_ALSO);
    }
    if (st) {
        rvi_seq_truncate(side, 0);
        return st;
    }
    for (int i = 0; i < n; i++) {
        e->owners[e->n_rows] = s;
        e->which[e->n_logits++] = e->n_rows;
        e->rows[e->n_rows++] = (rvi_row){.seq = side,
                                         .pos = to + i,
                                         .token = ids[i],
                                         .rope_set = s->rope_set,
                                         .adapters = set && set->n ? set : NULL};
    }
    e->n_owners = e->n_rows;
    return RV_OK;
}

void rvi_session_turn(rvi_session *s, rvi_seq *side, int to)
{
    rvi_seq left = s->seq;
    for (int i = to; i < side->len; i++) s->sets[i] = s->sets[to - 1];
    s->seq = *side;
    *side = left;
}

/* rvi_session_cancel sets `cancelled` and then looks at in_step; the step sets in_step (when a row
 * is added) and then looks at `cancelled`: one of the two sees the other. They are exchanges for
 * the reason given in base/pool.c. */
void rvi_session_cancel(rvi_session *s)
{
    (void)atomic_exchange(&s->cancelled, true);
    if (atomic_load(&s->in_step)) atomic_store(&s->e->stop, true);
}

static bool is_cancelled(const rvi_engine *e)
{
    for (int i = 0; i < e->n_owners; i++)
        if (atomic_load(&e->owners[i]->cancelled)) return true;
    return false;
}

static void take_back_rows(rvi_engine *e)
{
    for (int i = e->n_rows; i-- > 0;) {
        rvi_seq *seq = &e->owners[i]->seq;
        if (e->rows[i].seq == seq) rvi_seq_truncate(seq, e->rows[i].pos);
    }
    e->n_rows = e->n_logits = 0;
}

/* What is asked for behind the pass, or all logits. */
static void take_results(rvi_engine *e)
{
    forget_results(e);
    if (e->then == RVI_THEN_BEST)
        e->has_best = rvi_model_best(e->m, e->ws, e->rows, e->which, e->n_logits, e->best);
    if (e->then == RVI_THEN_DRAWN)
        e->drawn = rvi_model_draw(e->m, e->ws, e->rows, e->which, e->n_logits, e->asks);
    for (int i = 0; i < e->n_logits; i++) e->has_row[i] = !e->has_best && !e->drawn;
    if (!e->has_best && !e->drawn) { /* the workspace's copy, ours to change until the next */
        e->logits =
            (float *)(uintptr_t)rvi_model_logits(e->m, e->ws, e->rows, e->which, e->n_logits);
        e->n_fetched += (uint64_t)e->n_logits;
    }
    for (int i = 0; e->drawn && i < e->n_logits; i++)
        if (e->asks[i].wants & RVI_DRAW_LOGITS) (void)rvi_engine_fetch(e, i);
}

/* A cancel of the previous step may set `stop` late. Then no session of this step is cancelled, and
 * the step is repeated. */
static bool run_step(rvi_engine *e)
{
    rvi_backend *be = e->o.be ? e->o.be : e->m->be;
    const atomic_bool *outer = be->stop; /* of a background thread that may be told to end */
    bool done = false;
    be->ops->set_stop(be, &e->stop);
    while (!done) {
        atomic_store(&e->stop, false);
        if (is_cancelled(e)) break;
        rvi_workspace_expect(e->ws, e->n_logits ? e->then : RVI_THEN_NOTHING);
        rvi_model_forward(e->m, e->ws, e->rows, e->n_rows);
        if (e->n_logits) take_results(e);
        done = !atomic_load(&e->stop);
    }
    be->ops->set_stop(be, outer);
    return done;
}

rv_status rvi_engine_compute(rvi_engine *e, rv_error *err)
{
    forget_results(e);
    rv_status st = run_step(e) ? rvi_model_check(e->m, e->ws, err)
                               : rvi_error(err, RV_E_CANCELLED, "cancelled");
    release_owners(e);
    if (st) {
        take_back_rows(e);
        forget_results(e);
    }
    return st;
}

float *rvi_engine_logits(const rvi_engine *e, int i)
{
    if (!e->logits || i < 0 || i >= e->n_logits || !e->has_row[i]) return NULL;
    return e->logits + (size_t)i * (size_t)e->m->hp.n_vocab;
}

float *rvi_engine_fetch(rvi_engine *e, int i)
{
    if (!e->has_row[i]) {
        e->logits = rvi_workspace_logits(e->ws, i);
        e->has_row[i] = true;
        e->n_fetched++;
    }
    return rvi_engine_logits(e, i);
}

static rv_status check_step(const rvi_engine *e, const rvi_step_row *rows, size_t n, rv_error *err)
{
    int n_logits = 0;
    if (!n || n > (size_t)e->o.max_rows)
        return rvi_error(err, RV_E_CONFIG, "a step must have 1..%d rows (got %zu)", e->o.max_rows,
                         n);
    for (size_t i = 0; i < n; i++) {
        rv_status st = rvi_engine_check_ids(e, &rows[i].token, 1, err);
        if (st) return st;
        if (rows[i].s->e != e)
            return rvi_error(err, RV_E_INVALID, "row %zu: the session belongs to another engine",
                             i);
        if (rows[i].s->answer)
            return rvi_error(err, RV_E_STATE,
                             "row %zu: its session has an answer that was not finished", i);
        n_logits += rows[i].want_logits;
    }
    if (n_logits > e->o.max_logits)
        return rvi_error(err, RV_E_CONFIG, "at most %d rows of a step can have logits (got %d)",
                         e->o.max_logits, n_logits);
    return RV_OK;
}

rv_status rvi_engine_step(rvi_engine *e, const rvi_step_row *rows, size_t n, rv_error *err)
{
    rv_status st = check_step(e, rows, n, err);
    if (st) return st;
    size_t done = 0;
    rvi_engine_begin(e);
    for (size_t i = 0; i < n; i++) atomic_store(&rows[i].s->cancelled, false);
    for (; !st && done < n; done++) {
        rvi_session *s = rows[done].s;
        if (!s->seq.len) s->rope_set = rvi_rope_set(&e->m->rope, s->n_context);
        if (s->seq.len == s->n_context) {
            st = rvi_error(err, RV_E_CONTEXT_FULL, "row %zu: its session's context of %d is full",
                           done, s->n_context);
            break;
        }
        s->past.data[s->seq.len] = rows[done].token;
        st = rvi_engine_add(e, s, 1, rows[done].set, rows[done].want_logits, err);
        if (st) break;
        s->past.len = (size_t)s->seq.len;
    }
    if (st) {
        while (done-- > 0) {
            rvi_session *s = rows[done].s;
            rvi_seq_truncate(&s->seq, s->seq.len - 1);
            s->past.len = (size_t)s->seq.len;
        }
        rvi_engine_begin(e);
        return st;
    }
    st = rvi_engine_compute(e, err);
    for (size_t i = 0; st && i < n; i++) rows[i].s->past.len = (size_t)rows[i].s->seq.len;
    return st;
}
