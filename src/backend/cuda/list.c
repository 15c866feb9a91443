/* The list of commands: collected, started at once, as a graph when it comes again. */
#include <string.h>

#include "backend/cuda/cuda.h"
#include "base/mem.h"
#include "base/os.h"

/* ---- failure ---- */

bool rvi_cuda_fails(rvi_cuda *c, rvi_cu_result r, const char *doing)
{
    int none = 0;
    if (!r) return false;
    if (atomic_compare_exchange_strong(&c->failed, &none, r)) {
        atomic_store(&c->failed_in, doing);
        rv_error err;
        (void)rvi_cu_error(&c->cu, r, doing, &err);
        rvi_log_write(c->be.log, RVI_LOG_ERROR, "%s", err.text);
    }
    return true;
}

bool rvi_cuda_is_idle(rvi_cuda *c)
{
    return atomic_load(&c->failed) || rvi_backend_is_stopped(&c->be);
}

rv_status rvi_cuda_check(rvi_backend *be, rv_error *err)
{
    rvi_cuda *c = rvi_cuda_of(be);
    rvi_cu_result r = atomic_load(&c->failed);
    if (!r) return RV_OK;
    const char *doing = atomic_load(&c->failed_in); /* NULL: not written yet */
    rv_error why;
    (void)rvi_cu_error(&c->cu, r, doing ? doing : "computing", &why);
    return rvi_error(err, RV_E_STATE,
                     "the CUDA device failed and is not used any more: %s; start the program again",
                     why.text);
}

/* ---- memory ---- */

rv_status rvi_cuda_alloc(rvi_cuda *c, rvi_cuda_at *out, size_t bytes, const char *what,
                         rv_error *err)
{
    *out = 0;
    size_t left = 0, total = 0;
    rvi_cu_result r = c->cu.context_use(c->context);
    if (!r) r = c->cu.alloc(out, bytes);
    if (!r) return RV_OK;
    *out = 0;
    if (r != RVI_CU_OUT_OF_MEMORY) return rvi_cu_error(&c->cu, r, what, err);
    if (c->cu.memory(&left, &total) || left >= bytes) /* it does not say, or is in pieces */
        return rvi_error(err, RV_E_NOMEM,
                         "%s: %.1f MiB of device memory are needed and cannot be had", what,
                         (double)bytes / 0x1p20);
    return rvi_error(
        err, RV_E_NOMEM,
        "%s: %.1f MiB of device memory are needed, %.1f of %.1f MiB are free: %.1f MiB "
        "are missing",
        what, (double)bytes / 0x1p20, (double)left / 0x1p20, (double)total / 0x1p20,
        (double)(bytes - left) / 0x1p20);
}

void rvi_cuda_release(rvi_cuda *c, rvi_cuda_at at)
{
    if (at && !c->cu.context_use(c->context)) (void)c->cu.release(at);
}

static void forget_graphs(rvi_cuda *c)
{
    for (int i = 0; i < RVI_CUDA_GRAPHS; i++) {
        if (c->graphs[i].exec) (void)c->cu.exec_free(c->graphs[i].exec);
        c->graphs[i] = (rvi_cuda_graph){0};
    }
    rvi_free(c->kept);
    c->kept = NULL;
    c->kept_each = 0;
    c->newest = NULL;
}

static void free_staging(rvi_cuda *c)
{
    for (int i = 0; i < 2; i++) {
        if (c->staged[i]) (void)c->cu.host_release(c->staged[i]);
        c->staged[i] = NULL;
    }
    rvi_cuda_release(c, c->staging);
    rvi_cuda_release(c, c->low);
    rvi_cuda_release(c, c->acts);
    rvi_cuda_release(c, c->sums);
    rvi_cuda_release(c, c->pieces);
    if (c->bests) (void)c->cu.host_release(c->bests);
    if (c->signal) (void)c->cu.host_release((void *)c->signal);
    c->bests = NULL;
    c->signal = NULL;
    c->staging = c->low = c->acts = c->sums = c->pieces = 0;
    c->max_staged = c->n_staged = 0;
    c->max_rows = 0;
    atomic_fetch_sub(&c->be.memory->scratch, c->counted_scratch);
    c->counted_scratch = 0;
}

rv_status rvi_cuda_list_new(rvi_cuda *c, rv_error *err)
{
    c->commands = rvi_zalloc_array(RVI_CUDA_COMMANDS, sizeof *c->commands);
    if (!c->commands) return rvi_nomem(err, "list of commands");
    rvi_cu_result r = c->cu.stream_new(&c->stream, RVI_CU_STREAM_ALONE);
    if (!r) r = c->cu.stream_new(&c->copies, RVI_CU_STREAM_ALONE);
    for (int i = 0; !r && i < 2; i++) r = c->cu.event_new(&c->copied[i], RVI_CU_EVENT_NO_TIME);
    if (r) return rvi_cu_error(&c->cu, r, "making CUDA streams", err);
    return rvi_cuda_reserve(&c->be, 1, 1 << 16, 0, err); /* for what is done besides a step */
}

void rvi_cuda_list_free(rvi_cuda *c)
{
    if (c->stream) (void)c->cu.stream_wait(c->stream);
    forget_graphs(c);
    free_staging(c);
    for (int i = 0; i < 2; i++)
        if (c->copied[i]) (void)c->cu.event_free(c->copied[i]);
    if (c->stream) (void)c->cu.stream_free(c->stream);
    if (c->copies) (void)c->cu.stream_free(c->copies);
    rvi_free(c->commands);
}

static size_t staged_bytes(int n_rows, int n_cols)
{
    enum { BESIDES = 1 << 20 }; /* page tables of a step: rows are split where they do not fit */
    return (size_t)n_rows * ((size_t)n_cols + 1024) * sizeof(float) + BESIDES;
}

static size_t low_bytes(int n_rows)
{
    return (size_t)n_rows * RVI_CUDA_LOW * sizeof(float);
}

static size_t sums_bytes(const rvi_cuda *c)
{
    return c->exact ? 0 : RVI_CUDA_SUMS * sizeof(float);
}

/* Of prepared rows: two f16 a column at most, or three (see rvi_cuda_columns). */
static size_t acts_bytes(size_t staged, bool parts)
{
    return parts ? staged / 2 * 3 : staged;
}

size_t rvi_backend_cuda_scratch(const rvi_backend *be, int n_rows, int n_cols, int head_size)
{
    size_t staged = staged_bytes(n_rows, n_cols);
    return staged + acts_bytes(staged, true) /* of any types */ + low_bytes(n_rows) +
           sums_bytes((const rvi_cuda *)be) + rvi_cuda_parts_bytes(head_size);
}

void rvi_backend_cuda_memory(rvi_backend *be, size_t *left, size_t *total)
{
    rvi_cuda *c = rvi_cuda_of(be);
    if (c->cu.context_use(c->context) || c->cu.memory(left, total)) *left = *total = 0;
}

/* There is none. */
static rv_status new_staging(rvi_cuda *c, size_t staged, int n_rows, rv_error *err)
{
    size_t low = low_bytes(n_rows), acts = acts_bytes(staged, c->has_parts);
    rvi_cu_result r = 0;
    for (int i = 0; !r && i < 2; i++) r = c->cu.host_alloc((void **)&c->staged[i], staged);
    rv_status st = r ? rvi_cu_error(&c->cu, r, "pinned memory for staging", err) : RV_OK;
    if (!st) st = rvi_cuda_alloc(c, &c->staging, staged, "staging", err);
    if (!st) st = rvi_cuda_alloc(c, &c->low, low, "adapter scratch", err);
    if (!st) st = rvi_cuda_alloc(c, &c->acts, acts, "prepared activations", err);
    size_t sums = sums_bytes(c);
    if (!st && sums) st = rvi_cuda_alloc(c, &c->sums, sums, "sums of segments", err);
    enum { COUNTERS = 16 + RVI_CUDA_BEST_ROWS * sizeof(int32_t) };
    if (!st)
        st = rvi_cuda_alloc(c, &c->pieces, RVI_CUDA_BEST_BYTES + COUNTERS, "chosen tokens", err);
    if (!st) {
        r = c->cu.host_alloc((void **)&c->bests, (size_t)n_rows * sizeof *c->bests);
        if (!r) r = c->cu.host_alloc((void **)&c->signal, sizeof *c->signal);
        if (!r) r = c->cu.fill(c->pieces, 0, RVI_CUDA_BEST_BYTES + COUNTERS, c->stream);
        if (r) st = rvi_cu_error(&c->cu, r, "pinned memory for results", err);
    }
    if (st) {
        free_staging(c);
        return st;
    }
    c->max_staged = staged;
    c->max_rows = n_rows;
    c->n_signals = 0;
    atomic_store(c->signal, 0);
    c->filling = 0;
    c->is_drained = true;
    c->brought = false;
    c->counted_scratch = staged + low + acts + sums;
    atomic_fetch_add(&c->be.memory->scratch, c->counted_scratch);
    return RV_OK;
}

rv_status rvi_cuda_reserve(rvi_backend *be, int n_rows, int n_cols, unsigned types, rv_error *err)
{
    rvi_cuda *c = rvi_cuda_of(be);
    size_t staged = staged_bytes(n_rows, n_cols), before = c->max_staged;
    int rows_before = c->max_rows;
    bool parts = c->has_parts || (!c->exact && types >> RVI_F32 & 1);
    if (staged <= before && n_rows <= rows_before && parts == c->has_parts) return RV_OK;
    rvi_cuda_submit(be);
    rvi_cu_result r = c->cu.context_use(c->context);
    if (!r) r = c->cu.stream_wait(c->stream);
    if (r) return rvi_cu_error(&c->cu, r, "waiting for the device", err);
    forget_graphs(c); /* they have the addresses */
    free_staging(c);
    bool parts_before = c->has_parts;
    c->has_parts = parts;
    rv_status st = new_staging(c, RVI_MAX(staged, before), RVI_MAX(n_rows, rows_before), err);
    rv_error again;
    if (st) c->has_parts = parts_before;
    if (st && before && new_staging(c, before, rows_before, &again)) /* others go on with it */
        rvi_log_write(be->log, RVI_LOG_ERROR, "%s", again.text);
    return st;
}

/* ---- collecting ---- */

/* No op adds so many commands: what it stages and what reads it stay in one list. */
bool rvi_cuda_is_nearly_full(const rvi_cuda *c)
{
    return c->n_commands > RVI_CUDA_COMMANDS - 16;
}

rvi_cuda_at rvi_cuda_stage(rvi_cuda *c, size_t bytes, void **host)
{
    size_t room = (bytes + 15) / 16 * 16;
    if (room > c->max_staged) {
        rvi_cuda_fails(c, RVI_CU_OUT_OF_MEMORY, "staging more than was reserved");
        return 0;
    }
    if (room > c->max_staged - c->n_staged || rvi_cuda_is_nearly_full(c)) rvi_cuda_submit(&c->be);
    rvi_cuda_at at = c->staging + c->n_staged;
    *host = c->staged[c->filling] + c->n_staged;
    c->n_staged += room;
    return at;
}

rvi_cuda_command *rvi_cuda_add(rvi_cuda *c, rvi_cuda_kernel k, const uint32_t grid[3],
                               uint32_t threads, const void *args, size_t size)
{
    if (rvi_cuda_is_idle(c)) return NULL;
    if (c->n_commands == RVI_CUDA_COMMANDS) rvi_cuda_submit(&c->be);
    rvi_cuda_command *to = &c->commands[c->n_commands++];
    memset(to, 0, sizeof *to); /* lists are compared byte by byte */
    to->kernel = k;
    memcpy(to->grid, grid, sizeof to->grid);
    to->threads = (uint16_t)threads;
    memcpy(to->args, args, size);
    return to;
}

rvi_cuda_command *rvi_cuda_last(rvi_cuda *c)
{
    return c->n_commands ? &c->commands[c->n_commands - 1] : NULL;
}

/* ---- starting ---- */

static rvi_cu_result launch_all(rvi_cuda *c)
{
    rvi_cu_result r = 0;
    for (int i = c->first; !r && i < c->n_commands; i++) {
        rvi_cuda_command *k = &c->commands[i];
        void *args[] = {k->args, k->joined ? k[1].args : NULL};
        rvi_cu_attribute more[2];
        unsigned n = 0;
        if (i > c->first && c->early)
            more[n++] = (rvi_cu_attribute){.id = RVI_CU_EARLY, .value = {1}};
        if (k->cluster)
            more[n++] = (rvi_cu_attribute){.id = RVI_CU_CLUSTER, .value = {k->cluster, 1, 1}};
        rvi_cu_launch l = {.grid = {k->grid[0], k->grid[1], k->grid[2]},
                           .threads = {k->threads, 1, 1},
                           .shared = k->shared,
                           .stream = c->stream,
                           .attributes = more,
                           .n_attributes = n};
        r = c->cu.launch(&l, c->functions[k->kernel], args, NULL);
        i += k->joined;
    }
    return r;
}

/* What is started begins at `first`. */
static int list_count(const rvi_cuda *c)
{
    return c->n_commands - c->first;
}

static size_t list_bytes(const rvi_cuda *c)
{
    return (size_t)list_count(c) * sizeof *c->commands;
}

/* Four at a time, so that the processor need not wait for each product: lists are long. */
static uint64_t hash_of(const rvi_cuda *c)
{
    enum { LANES = 4 };
    _Static_assert(sizeof *c->commands % (LANES * sizeof(uint64_t)) == 0, "no word is left over");
    uint64_t h[LANES] = {(uint64_t)list_count(c)}, word, all = 0;
    const uint8_t *at = (const uint8_t *)(c->commands + c->first);
    for (size_t i = 0; i < list_bytes(c); i += sizeof h)
        for (int k = 0; k < LANES; k++) {
            memcpy(&word, at + i + (size_t)k * sizeof word, sizeof word);
            h[k] = (h[k] ^ word) * 0x9E3779B97F4A7C15u;
            h[k] ^= h[k] >> 29;
        }
    for (int k = 0; k < LANES; k++) {
        all = (all ^ h[k]) * 0x9E3779B97F4A7C15u;
        all ^= all >> 29;
    }
    return all ? all : 1;
}

static bool is_list(const rvi_cuda *c, const rvi_cuda_graph *g)
{
    return g && g->exec && g->n == list_count(c) &&
           !memcmp(g->commands, c->commands + c->first, list_bytes(c));
}

static rvi_cuda_graph *find_graph(rvi_cuda *c, uint64_t hash)
{
    for (int i = 0; i < RVI_CUDA_GRAPHS; i++)
        if (c->graphs[i].hash == hash && is_list(c, &c->graphs[i])) return &c->graphs[i];
    return NULL;
}

/* Is this list worth a graph? One that was seen lately is. */
static bool was_seen(rvi_cuda *c, uint64_t hash)
{
    for (int i = 0; i < RVI_CUDA_SEEN; i++)
        if (c->seen[i] == hash) return true;
    c->seen[c->n_lists % RVI_CUDA_SEEN] = hash;
    return false;
}

/* Room for the commands of any graph, n of each: taken for all of them at once with the first, and
 * with some to spare, so that later ones find it between two tokens. */
static bool keep_room(rvi_cuda *c, int n)
{
    enum { STEP = 64 };
    if (n <= c->kept_each) return true;
    int each = RVI_MIN((n + n / 4 + STEP - 1) / STEP * STEP, RVI_CUDA_COMMANDS);
    rvi_cuda_command *kept = rvi_alloc_array((size_t)RVI_CUDA_GRAPHS * (size_t)each, sizeof *kept);
    if (!kept) return false;
    for (int i = 0; i < RVI_CUDA_GRAPHS; i++) {
        rvi_cuda_graph *g = &c->graphs[i];
        rvi_cuda_command *to = kept + (size_t)i * (size_t)each;
        if (g->exec) memcpy(to, g->commands, (size_t)g->n * sizeof *to);
        g->commands = to;
    }
    rvi_free(c->kept);
    c->kept = kept;
    c->kept_each = each;
    return true;
}

/* NULL: none could be made; the list can still be launched. */
static rvi_cuda_graph *make_graph(rvi_cuda *c, uint64_t hash)
{
    rvi_cuda_graph *g = &c->graphs[0];
    for (int i = 1; i < RVI_CUDA_GRAPHS; i++)
        if (c->graphs[i].used < g->used) g = &c->graphs[i];
    if (!keep_room(c, list_count(c))) return NULL;
    rvi_cu_graph *captured = NULL;
    rvi_cu_exec *exec = NULL;
    rvi_cu_result r = c->cu.capture_begin(c->stream, RVI_CU_CAPTURE_THREAD);
    if (!r) {
        r = launch_all(c);
        rvi_cu_result end = c->cu.capture_end(c->stream, &captured);
        if (!r) r = end;
    }
    if (!r) r = c->cu.graph_make(&exec, captured, 0);
    if (captured) (void)c->cu.graph_free(captured);
    if (r) return NULL;
    if (g->exec) (void)c->cu.exec_free(g->exec);
    memcpy(g->commands, c->commands + c->first, list_bytes(c));
    *g = (rvi_cuda_graph){.commands = g->commands, .n = list_count(c), .hash = hash, .exec = exec};
    return g;
}

/* g: the list's graph where it is known. Returns the one that was started, or NULL. */
static rvi_cuda_graph *start(rvi_cuda *c, rvi_cuda_graph *g)
{
    enum { LEAST = 3 };                             /* launches that a graph is worth */
    if (!g && is_list(c, c->newest)) g = c->newest; /* the next token */
    if (!g && list_count(c) >= LEAST) {
        uint64_t hash = hash_of(c);
        g = find_graph(c, hash);
        if (!g && was_seen(c, hash)) g = make_graph(c, hash);
    }
    c->n_lists++;
    if (g) g->used = c->n_lists, c->newest = g;
    rvi_cuda_fails(c, g ? c->cu.graph_launch(g->exec, c->stream) : launch_all(c),
                   "starting kernels");
    return g;
}

static rvi_cu_result swap_staged(rvi_cuda *c)
{
    c->filling ^= 1;
    if (c->filling == 0 && c->brought) { /* nobody has waited for the list that reads it */
        c->brought = false;
        return c->cu.stream_wait(c->stream);
    }
    return c->cu.event_wait(c->copied[c->filling]); /* its last copy, long done */
}

static void stage_to_device(rvi_cuda *c)
{
    if (!c->n_staged) return;
    rvi_cu_result r = c->cu.copy_in(c->staging, c->staged[c->filling], c->n_staged, c->stream);
    if (!r) r = c->cu.event_record(c->copied[c->filling], c->stream);
    if (!r) r = swap_staged(c);
    rvi_cuda_fails(c, r, "copying to the device");
}

/* One job of `bring`: rows of out.n floats from the pinned staging area. */
static uint32_t add_job(const rvi_cuda *c, rvi_cuda_bring_args *b, rvi_cuda_cols out, size_t from,
                        uint32_t rows, uint32_t first_block)
{
    uint32_t pieces = ((uint32_t)out.n + RVI_CUDA_BRING - 1) / RVI_CUDA_BRING;
    b->job[b->n_jobs++] = (rvi_cuda_bring_job){.out = out,
                                               .from = (rvi_cuda_at)(uintptr_t)c->staged[0] + from,
                                               .first_block = (int32_t)first_block,
                                               .pieces = (int32_t)pieces};
    return first_block + rows * pieces;
}

/* Do copies of n rows to out and of n2 to out2 write to the same place? */
static bool overlap(rvi_cuda_cols out, uint32_t n, rvi_cuda_cols out2, uint32_t n2)
{
    int64_t floats = (int64_t)(n - 1) * out.stride + out.n,
            floats2 = (int64_t)(n2 - 1) * out2.stride + out2.n;
    return out.at < out2.at + (rvi_cuda_at)floats2 * sizeof(float) &&
           out2.at < out.at + (rvi_cuda_at)floats * sizeof(float);
}

/* Where little is staged and the device has read all that was staged before, the list's first
 * kernel reads it from pinned memory, in place of the copies that the list begins with: a copy in
 * front of the list would be waited for. Returns how many commands it replaces, 0: it cannot. */
static int plan_bring(const rvi_cuda *c, rvi_cuda_command *out)
{
    enum { MOST = 64 << 10, LEAST = 1024 };
    rvi_cuda_bring_args b = {0};
    size_t at = 0;
    uint32_t blocks = 0;
    int n = 0;
    if (!c->n_staged || c->n_staged > MOST || c->filling || !c->is_drained) return 0;
    for (; n < c->n_commands && b.n_jobs < RVI_CUDA_BRING_JOBS - 1; n++) {
        const rvi_cuda_command *k = &c->commands[n];
        rvi_cuda_copy_args a;
        memcpy(&a, k->args, sizeof a);
        if (k->kernel != RVI_CUDA_rows_copy || a.from != c->staging + at) break;
        int before = 0; /* all jobs are done at once */
        while (before < n &&
               !overlap(b.job[before].out, c->commands[before].grid[0], a.out, k->grid[0]))
            before++;
        if (before < n) break;
        blocks = add_job(c, &b, a.out, at, k->grid[0], blocks);
        at += ((size_t)k->grid[0] * (size_t)a.out.n * sizeof(float) + 15) / 16 * 16;
    }
    if (n && c->n_staged > at) { /* the rest: a power of two, so that the next list is the same */
        uint32_t rows = 1;
        while (rows * LEAST < c->n_staged - at) rows *= 2;
        if (at + rows * LEAST > c->max_staged) return 0;
        rvi_cuda_cols rest = {c->staging + at, LEAST / sizeof(float), LEAST / sizeof(float)};
        blocks = add_job(c, &b, rest, at, rows, blocks);
    }
    memset(out, 0, sizeof *out); /* lists are compared byte by byte */
    out->kernel = RVI_CUDA_bring;
    out->grid[0] = blocks;
    out->grid[1] = out->grid[2] = 1;
    out->threads = RVI_CUDA_THREADS;
    memcpy(out->args, &b, sizeof b);
    return n;
}

static bool bring(rvi_cuda *c)
{
    rvi_cuda_command k;
    int n = plan_bring(c, &k);
    if (!n) return false;
    c->commands[n - 1] = k;
    c->first = n - 1;
    return true;
}

bool rvi_cuda_again(rvi_backend *be, const rvi_pass_key *key, const rvi_kv_row *rows, int n_rows)
{
    rvi_cuda *c = rvi_cuda_of(be);
    rvi_cuda_graph *g = NULL;
    rvi_cuda_command first;
    c->key = *key;
    for (int i = 0; i < RVI_CUDA_GRAPHS && !g; i++)
        if (c->graphs[i].exec && !memcmp(&c->graphs[i].key, key, sizeof *key)) g = &c->graphs[i];
    if (!g || rvi_cuda_is_idle(c) || !rvi_cuda_place_all(c, rows, n_rows)) return false;
    if (plan_bring(c, &first) != c->n_commands || !c->n_commands ||
        memcmp(&first, g->commands, sizeof first))
        return false; /* what else was collected would be lost */
    c->recalled = g;
    return true;
}

void rvi_cuda_forget(rvi_cuda *c)
{
    for (int i = 0; i < RVI_CUDA_GRAPHS; i++) c->graphs[i].key = (rvi_pass_key){0};
}

/* What was staged goes to the device, and the list behind it. */
static void hand_over(rvi_cuda *c)
{
    rvi_cuda_graph *g = c->recalled;
    bool brings = g || bring(c);
    if (g) c->signals = true; /* it ends with that command, whoever starts it */
    if (!brings) stage_to_device(c);
    if (atomic_load(&c->failed)) return;
    g = start(c, g);
    if (g && c->is_whole) g->key = c->key;
    c->is_drained = false;
    c->ends_signalled = c->signals;
    c->n_signals += c->signals;
    if (brings) c->brought = true, c->filling = 1;
}

void rvi_cuda_submit(rvi_backend *be)
{
    rvi_cuda *c = rvi_cuda_of(be);
    if (c->n_commands && c->pause) c->pause(c->pause_ctx);
    if (c->n_commands && !rvi_cuda_is_idle(c) &&
        !rvi_cuda_fails(c, c->cu.context_use(c->context), "using the device"))
        hand_over(c);
    c->n_commands = c->n_placed = c->first = 0;
    c->n_staged = 0;
    c->recalled = NULL;
    c->key = (rvi_pass_key){0};
    c->signals = c->is_whole = false;
}

/* ---- waiting ---- */

void rvi_cuda_finish(rvi_cuda *c)
{
    const size_t arrivals = RVI_CUDA_BEST_ROWS * sizeof(int32_t);
    rvi_cuda_signal_args a = {c->pieces + RVI_CUDA_BEST_BYTES + arrivals,
                              (rvi_cuda_at)(uintptr_t)c->signal};
    c->signals =
        c->recalled || rvi_cuda_add(c, RVI_CUDA_signal, (uint32_t[]){1, 1, 1}, 32, &a, sizeof a);
    c->is_whole = true;
    rvi_cuda_submit(&c->be);
}

static bool is_signalled(const rvi_cuda *c)
{
    return atomic_load_explicit(c->signal, memory_order_acquire) == c->n_signals;
}

rvi_cu_result rvi_cuda_wait(rvi_cuda *c, bool for_list)
{
    enum { LOOKS = 1000 };    /* between two looks at the clock */
    const double most = 0.02; /* seconds; a device that is lost does not signal, but says so */
    bool looks = for_list && c->ends_signalled, done = false;
    double end = looks ? rvi_os_seconds() + most : 0;
    while (looks && !done && rvi_os_seconds() < end)
        for (int i = 0; i < LOOKS && !done; i++) done = is_signalled(c);
    rvi_cu_result r = done ? 0 : c->cu.stream_wait(c->stream);
    if (r) return r;
    c->is_drained = true;
    c->brought = false;
    if (!c->n_staged) c->filling = 0;
    return 0;
}
