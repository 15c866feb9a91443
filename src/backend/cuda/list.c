/* The list of commands: collected, started at once, as a graph when it comes again. */
#include <string.h>

#include "backend/cuda/cuda.h"
#include "base/mem.h"

/* ---- failure ---- */

bool rvi_cuda_fails(rvi_cuda *c, rvi_cu_result r, const char *doing)
{
    int none = 0;
    if (!r) return false;
    if (atomic_compare_exchange_strong(&c->failed, &none, r)) {
        c->failed_in = doing;
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
    rv_error why;
    (void)rvi_cu_error(&c->cu, r, c->failed_in ? c->failed_in : "computing", &why);
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
    if (c->cu.memory(&left, &total)) left = total = 0;
    return rvi_error(err, RV_E_NOMEM,
                     "%s: %.1f MiB of device memory are needed, %.1f of %.1f MiB are free", what,
                     (double)bytes / 0x1p20, (double)left / 0x1p20, (double)total / 0x1p20);
}

void rvi_cuda_release(rvi_cuda *c, rvi_cuda_at at)
{
    if (at && !c->cu.context_use(c->context)) (void)c->cu.release(at);
}

static void forget_graphs(rvi_cuda *c)
{
    for (int i = 0; i < RVI_CUDA_GRAPHS; i++) {
        if (c->graphs[i].exec) (void)c->cu.exec_free(c->graphs[i].exec);
        rvi_free(c->graphs[i].commands);
        c->graphs[i] = (rvi_cuda_graph){0};
    }
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
    rvi_cuda_release(c, c->bests);
    c->staging = c->low = c->acts = c->sums = c->bests = 0;
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

size_t rvi_backend_cuda_scratch(const rvi_backend *be, int n_rows, int n_cols, int head_size)
{
    return 2 * staged_bytes(n_rows, n_cols) + low_bytes(n_rows) + sums_bytes((const rvi_cuda *)be) +
           rvi_cuda_parts_bytes(head_size);
}

void rvi_backend_cuda_memory(rvi_backend *be, size_t *left, size_t *total)
{
    rvi_cuda *c = rvi_cuda_of(be);
    if (c->cu.context_use(c->context) || c->cu.memory(left, total)) *left = *total = 0;
}

rv_status rvi_cuda_reserve(rvi_backend *be, int n_rows, int n_cols, unsigned types, rv_error *err)
{
    rvi_cuda *c = rvi_cuda_of(be);
    size_t staged = staged_bytes(n_rows, n_cols);
    (void)types;
    if (staged <= c->max_staged && n_rows <= c->max_rows) return RV_OK;
    staged = RVI_MAX(staged, c->max_staged);
    n_rows = RVI_MAX(n_rows, c->max_rows);
    size_t low = low_bytes(n_rows), acts = staged; /* 4 bytes a column at most */
    rvi_cuda_submit(be);
    rvi_cu_result r = c->cu.context_use(c->context);
    if (!r) r = c->cu.stream_wait(c->stream);
    if (r) return rvi_cu_error(&c->cu, r, "waiting for the device", err);
    forget_graphs(c); /* they have the addresses */
    free_staging(c);
    for (int i = 0; !r && i < 2; i++) r = c->cu.host_alloc((void **)&c->staged[i], staged);
    rv_status st = r ? rvi_cu_error(&c->cu, r, "pinned memory for staging", err) : RV_OK;
    if (!st) st = rvi_cuda_alloc(c, &c->staging, staged, "staging", err);
    if (!st) st = rvi_cuda_alloc(c, &c->low, low, "adapter scratch", err);
    if (!st) st = rvi_cuda_alloc(c, &c->acts, acts, "prepared activations", err);
    size_t sums = sums_bytes(c);
    if (!st && sums) st = rvi_cuda_alloc(c, &c->sums, sums, "sums of segments", err);
    size_t bests = (size_t)n_rows * sizeof(int32_t);
    if (!st) st = rvi_cuda_alloc(c, &c->bests, bests, "chosen tokens", err);
    if (st) {
        free_staging(c);
        return st;
    }
    c->max_staged = staged;
    c->max_rows = n_rows;
    c->counted_scratch = staged + low + acts + sums + bests;
    atomic_fetch_add(&be->memory->scratch, c->counted_scratch);
    return RV_OK;
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
    to->threads = threads;
    memcpy(to->args, args, size);
    return to;
}

/* ---- starting ---- */

static rvi_cu_result launch_all(rvi_cuda *c)
{
    rvi_cu_result r = 0;
    for (int i = 0; !r && i < c->n_commands; i++) {
        rvi_cuda_command *k = &c->commands[i];
        void *args[] = {k->args};
        rvi_cu_attribute early = {.id = RVI_CU_EARLY, .value = 1};
        rvi_cu_launch l = {.grid = {k->grid[0], k->grid[1], k->grid[2]},
                           .threads = {k->threads, 1, 1},
                           .shared = k->shared,
                           .stream = c->stream,
                           .attributes = &early,
                           .n_attributes = i > 0 && c->early};
        r = c->cu.launch(&l, c->functions[k->kernel], args, NULL);
    }
    return r;
}

static size_t list_bytes(const rvi_cuda *c)
{
    return (size_t)c->n_commands * sizeof *c->commands;
}

/* Four at a time, so that the processor need not wait for each product: lists are long. */
static uint64_t hash_of(const rvi_cuda *c)
{
    enum { LANES = 4 };
    _Static_assert(sizeof *c->commands % (LANES * sizeof(uint64_t)) == 0, "no word is left over");
    uint64_t h[LANES] = {(uint64_t)c->n_commands}, word, all = 0;
    const uint8_t *at = (const uint8_t *)c->commands;
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
    return g && g->exec && g->n == c->n_commands &&
           !memcmp(g->commands, c->commands, list_bytes(c));
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

/* NULL: none could be made; the list can still be launched. */
static rvi_cuda_graph *make_graph(rvi_cuda *c, uint64_t hash)
{
    rvi_cuda_graph *g = &c->graphs[0];
    for (int i = 1; i < RVI_CUDA_GRAPHS; i++)
        if (c->graphs[i].used < g->used) g = &c->graphs[i];
    rvi_cuda_command *copy = rvi_alloc_array((size_t)c->n_commands, sizeof *copy);
    if (!copy) return NULL;
    memcpy(copy, c->commands, list_bytes(c));
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
    if (r) {
        rvi_free(copy);
        return NULL;
    }
    if (g->exec) (void)c->cu.exec_free(g->exec);
    rvi_free(g->commands);
    *g = (rvi_cuda_graph){.commands = copy, .n = c->n_commands, .hash = hash, .exec = exec};
    return g;
}

static void start(rvi_cuda *c)
{
    enum { LEAST = 3 }; /* launches that a graph is worth */
    rvi_cuda_graph *g = is_list(c, c->newest) ? c->newest : NULL; /* the next token */
    if (!g && c->n_commands >= LEAST) {
        uint64_t hash = hash_of(c);
        g = find_graph(c, hash);
        if (!g && was_seen(c, hash)) g = make_graph(c, hash);
    }
    c->n_lists++;
    if (g) g->used = c->n_lists, c->newest = g;
    rvi_cuda_fails(c, g ? c->cu.graph_launch(g->exec, c->stream) : launch_all(c),
                   "starting kernels");
}

static void stage_to_device(rvi_cuda *c)
{
    if (!c->n_staged) return;
    rvi_cu_result r = c->cu.copy_in(c->staging, c->staged[c->filling], c->n_staged, c->stream);
    if (!r) r = c->cu.event_record(c->copied[c->filling], c->stream);
    c->filling ^= 1;
    if (!r) r = c->cu.event_wait(c->copied[c->filling]); /* its last copy, long done */
    rvi_cuda_fails(c, r, "copying to the device");
}

void rvi_cuda_submit(rvi_backend *be)
{
    rvi_cuda *c = rvi_cuda_of(be);
    if (c->n_commands && c->pause) c->pause(c->pause_ctx);
    if (c->n_commands && !rvi_cuda_is_idle(c) &&
        !rvi_cuda_fails(c, c->cu.context_use(c->context), "using the device")) {
        stage_to_device(c);
        if (!atomic_load(&c->failed)) start(c);
    }
    c->n_commands = c->n_placed = 0;
    c->n_staged = 0;
}
