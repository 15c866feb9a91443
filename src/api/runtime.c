/* Runtimes: threads, log, heap; the turn that lets one thread compute; option structs by size. */
#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "base/os.h"
#include "base/resident.h"
#include "base/thread.h"
#include "kernels/kernels.h"

static uint64_t now_ns(void)
{
    return (uint64_t)(rvi_os_seconds() * 1e9);
}

#define TEXT(x)    #x
#define VERSION(x) TEXT(x)

const char *rv_version(void)
{
    return VERSION(RV_VERSION_MAJOR) "." VERSION(RV_VERSION_MINOR) "." VERSION(RV_VERSION_PATCH);
}

void rv_free(void *p)
{
    rvi_free(p);
}

enum { FREE, CALL, ASIDE }; /* who holds busy */

/* ---- options ---- */

rv_status rvi_api_read_struct(void *full, size_t full_size, const void *given, const char *what,
                              rv_error *err)
{
    size_t size;
    memset(full, 0, full_size);
    if (given) {
        memcpy(&size, given, sizeof size);
        /* Every version of a struct ends aligned: any other size would cut a pointer in two. */
        if (size < sizeof size || size > 65536 || size % sizeof(void *))
            return rvi_error(err, RV_E_CONFIG, "%s.size must be sizeof(%s) (got %zu)", what, what,
                             size);
        memcpy(full, given, RVI_MIN(size, full_size));
    }
    memcpy(full, &full_size, sizeof full_size);
    return RV_OK;
}

/* ---- runtimes ---- */

static void pass_log(void *ctx, rvi_log_level level, const char *line)
{
    const rv_runtime *rt = ctx;
    rt->o.log(rt->o.log_ctx, (rv_log_level)(level + RV_LOG_ERROR), line);
}

static rv_status check_runtime_options(const rv_runtime_options *o, rv_error *err)
{
    const rv_allocator *a = o->allocator;
    if (a && (!a->alloc || !a->resize || !a->release))
        return rvi_error(err, RV_E_CONFIG, "allocator: alloc, resize and release must be set");
    if (o->n_threads < 0 || o->n_threads > 4096)
        return rvi_error(err, RV_E_CONFIG, "n_threads must be 0..4096 (got %d)", o->n_threads);
    if ((unsigned)o->log_level > RV_LOG_DEBUG)
        return rvi_error(err, RV_E_CONFIG, "log_level must be 0..%d (got %d)", RV_LOG_DEBUG,
                         (int)o->log_level);
    if (o->wait < RV_WAIT_NEVER)
        return rvi_error(err, RV_E_CONFIG, "wait must be -1 or more milliseconds (got %d)",
                         o->wait);
    return RV_OK;
}

static void destroy_runtime(rv_runtime *rt)
{
    if (rt->be) rt->be->ops->free(rt->be);
    const rv_allocator *heap = rvi_api_use_heap(rt);
    rvi_quota_deinit(&rt->quota);
    rvi_api_leave_heap(heap);
    if (rt->allocator.alloc) {
        rv_allocator own = rt->allocator;
        own.release(own.ctx, rt);
    } else {
        rvi_free(rt);
    }
}

/* The one block that cannot remember an allocator kept in itself. */
static rv_runtime *take_runtime(const rv_allocator *a)
{
    rv_runtime *rt;
    if (a) {
        rt = a->alloc(a->ctx, sizeof *rt);
        if (rt) memset(rt, 0, sizeof *rt);
    } else { /* a callback of another runtime, whose heap this thread uses, may be asking */
        const rv_allocator *before = rvi_mem_use(NULL);
        rt = rvi_zalloc(sizeof *rt);
        rvi_mem_use(before);
    }
    return rt;
}

static rv_status open_cpu(rv_runtime *rt, const rv_runtime_options *o, rv_error *err)
{
    rvi_cpu_options cpu = {.n_threads = rt->n_threads,
                           .exact = o->exact != 0,
                           .no_pack = o->no_pack != 0,
                           .isa = o->isa};
    return rvi_backend_cpu_new(&rt->be, &cpu, &rt->log, err);
}

/* "cuda" or "cuda:N" */
static bool read_cuda(const char *device, int *number)
{
    *number = 0;
    if (strncmp(device, "cuda", 4)) return false;
    if (!device[4]) return true;
    size_t digits = device[4] == ':' ? strspn(device + 5, "0123456789") : 0;
    if (digits < 1 || digits > 3 || device[5 + digits]) return false;
    for (const char *d = device + 5; *d; d++) *number = *number * 10 + (*d - '0');
    return true;
}

static void choose_threads(rv_runtime *rt, int asked)
{
    rt->n_threads = asked ? asked : rvi_os_cpu_count();
    rt->threads_why = asked ? "asked for" : "one for each CPU that this process may use";
}

static void explain_device(rv_runtime *rt, const char *why)
{
    snprintf(rt->device_why, sizeof rt->device_why, "%s", why);
}

static rv_status open_backend(rv_runtime *rt, const rv_runtime_options *o, rv_error *err)
{
    const char *device = o->device ? o->device : "cpu";
    bool automatic = !strcmp(device, "auto");
    rvi_cuda_options cuda = {.n_threads = rt->n_threads, .exact = o->exact != 0};
    explain_device(rt, o->device ? "asked for"
                                 : "the default; device auto takes a GPU where one can be used");
    if (!strcmp(device, "cpu")) return open_cpu(rt, o, err);
    if (!automatic && !read_cuda(device, &cuda.device))
        return rvi_error(err, RV_E_CONFIG, "device must be auto, cpu, cuda or cuda:N (got '%.32s')",
                         device);
    rv_error why;
    rv_status st = rvi_backend_cuda_new(&rt->be, &cuda, &rt->log, automatic ? &why : err);
    rt->is_automatic = automatic && !st;
    if (!automatic) return st;
    explain_device(rt, st ? why.text : "device auto found a GPU that can be used");
    if (!st) return st;
    /* who installed a driver has a GPU, and may think that it computes */
    rvi_log_write(&rt->log, rvi_backend_cuda_has_driver() ? RVI_LOG_WARN : RVI_LOG_INFO,
                  "computing on the CPU, not on a GPU: %s", why.text);
    return open_cpu(rt, o, err);
}

/* Our own copy of the name; NULL: none was given. */
static const char *known_isa(const char *name)
{
    const char *const *list = rvi_kernels_available();
    while (name && *list && strcmp(*list, name)) list++;
    return name ? *list : NULL;
}

rv_status rv_runtime_new(rv_runtime **out, const rv_runtime_options *given, rv_error *err)
{
    if (!out) return rvi_error(err, RV_E_INVALID, "rv_runtime_new: NULL argument");
    *out = NULL;
    rv_runtime_options o;
    rv_status st = rvi_api_read_struct(&o, sizeof o, given, "rv_runtime_options", err);
    if (!st) st = check_runtime_options(&o, err);
    if (st) return st;
    if (o.log_level == RV_LOG_DEFAULT) o.log_level = RV_LOG_WARN;
    rv_runtime *rt = take_runtime(o.allocator);
    if (!rt) return rvi_nomem(err, "runtime");
    atomic_init(&rt->users, 1);
    atomic_init(&rt->freed, NULL);
    atomic_init(&rt->freed_sets, NULL);
    atomic_init(&rt->n_sets, 0);
    atomic_init(&rt->n_starving, 0);
    atomic_init(&rt->rest_ns, 0);
    atomic_init(&rt->n_rests, 0);
    atomic_init(&rt->mapped_bytes, 0);
    atomic_init(&rt->adapter_bytes, 0);
    atomic_init(&rt->busy, FREE);
    atomic_init(&rt->n_waiting, 0);
    atomic_init(&rt->owner, NULL);
    atomic_init(&rt->left_ns, 0);
    atomic_init(&rt->used_ns, now_ns());
    rt->o = o;
    if (o.allocator) rt->allocator = *o.allocator;
    rt->o.allocator = NULL; /* the caller's struct need not live on */
    if (o.log)
        rt->log = (rvi_log){
            .sink = pass_log, .ctx = rt, .level = (rvi_log_level)(o.log_level - RV_LOG_ERROR)};
    const rv_allocator *heap = rvi_api_use_heap(rt);
    choose_threads(rt, o.n_threads);
    st = open_backend(rt, &o, err);
    if (!st) st = rvi_quota_init(&rt->quota, rt->be->memory, &rt->adapter_bytes, err);
    rvi_api_leave_heap(heap);
    rt->o.isa = known_isa(o.isa);
    rt->o.device = NULL;
    if (st)
        destroy_runtime(rt);
    else
        *out = rt;
    return st;
}

rv_runtime *rvi_api_retain_runtime(const rv_runtime *rt)
{
    rv_runtime *own = (rv_runtime *)(uintptr_t)rt;
    atomic_fetch_add(&own->users, 1);
    return own;
}

void rvi_api_release_runtime(rv_runtime *rt)
{
    if (rt && atomic_fetch_sub(&rt->users, 1) == 1) destroy_runtime(rt);
}

void rv_runtime_free(rv_runtime **rt)
{
    if (!rt) return;
    rvi_api_release_runtime(*rt);
    *rt = NULL;
}

const char *rv_runtime_isa(const rv_runtime *rt)
{
    if (!rt) return "";
    return rvi_backend_is_cpu(rt->be) ? rvi_backend_cpu_isa(rt->be) : rt->be->ops->name;
}

rv_status rv_runtime_check(const rv_runtime *rt, rv_error *err)
{
    if (!rt) return rvi_error(err, RV_E_INVALID, "rv_runtime_check: NULL argument");
    return rt->be->ops->check(rt->be, err);
}

const char *const *rv_isa_list(void)
{
    return rvi_kernels_available();
}

/* What of the process is in memory, and what of its blocks has no class of its own. */
static void count_resident(const rv_runtime *rt, rv_memory *out)
{
    const rvi_backend_memory *m = rt->be->memory;
    size_t room = atomic_load(&m->kv_room), heap = rvi_mem_in_use();
    size_t known = rvi_backend_memory_sum(m) + (size_t)out->training;
    rvi_resident now;
    if (!rvi_backend_is_cpu(rt->be) || rt->allocator.alloc || heap < known) return;
    out->heap = heap - known;
    if (!rvi_resident_read(&now)) return;
    size_t outside = room > out->kv ? room - (size_t)out->kv : 0; /* of tiers: counted nowhere */
    out->reserved = now.large_unused > outside ? now.large_unused - outside : 0;
    out->mapped_resident = now.models;
    out->program = now.files > now.models ? now.files - now.models : 0;
    out->resident = now.all;
}

rv_status rv_runtime_memory(const rv_runtime *rt, rv_memory *out, rv_error *err)
{
    if (!rt || !out) return rvi_error(err, RV_E_INVALID, "rv_runtime_memory: NULL argument");
    const rvi_backend_memory *m = rt->be->memory;
    size_t adapters = atomic_load(&rt->adapter_bytes), floats = atomic_load(&m->weights);
    rv_memory full = {.size = out->size,
                      .weights = floats > adapters ? floats - adapters : 0,
                      .mapped = atomic_load(&rt->mapped_bytes),
                      .kv = atomic_load(&m->kv),
                      .scratch = atomic_load(&m->scratch),
                      .adapters = adapters,
                      .training = rvi_quota_in_jobs(&rt->quota)};
    count_resident(rt, &full);
    if (out->size < sizeof out->size || out->size > 65536)
        return rvi_error(err, RV_E_CONFIG, "rv_memory.size must be sizeof(rv_memory) (got %zu)",
                         out->size);
    memcpy(out, &full, RVI_MIN(out->size, sizeof full));
    return RV_OK;
}

/* ---- heap and turn ---- */

const rv_allocator *rvi_api_use_heap(const rv_runtime *rt)
{
    return rvi_mem_use(rt->allocator.alloc ? &rt->allocator : NULL);
}

void rvi_api_leave_heap(const rv_allocator *before)
{
    rvi_mem_use(before);
}

/* Whoever has waited long goes first: calls that follow each other without a gap let it pass, for a
 * moment at most. */
static void make_way(rv_runtime *rt)
{
    enum { TRIES = 40 };
    for (int i = 0; i < TRIES && atomic_load(&rt->n_waiting) && atomic_load(&rt->busy) == FREE; i++)
        rvi_thread_sleep(50e-6);
}

/* Its address tells threads apart: a callback that computes on the runtime that called it would
 * wait for itself. */
static _Thread_local char this_thread;

/* Sleeps until busy may be tried again; false: the time is over. */
static bool wait_for_turn(rv_runtime *rt, int wait_ms, double start, int *n_tries)
{
    if (wait_ms == RV_WAIT_NEVER || atomic_load(&rt->owner) == &this_thread) return false;
    if (wait_ms > 0 && rvi_os_seconds() - start >= wait_ms * 1e-3) return false;
    if ((*n_tries)++ == 0) atomic_fetch_add(&rt->n_waiting, 1);
    rvi_thread_sleep(*n_tries < 20 ? 50e-6 : 500e-6);
    return true;
}

static rv_status enter(rvi_api_turn *turn, const rv_runtime *rt, int wait_ms, rv_error *err)
{
    rv_runtime *own = rvi_api_retain_runtime(rt);
    int n_tries = 0;
    double start = wait_ms > 0 ? rvi_os_seconds() : 0;
    bool mine = false, over = false;
    if (atomic_load(&own->n_waiting)) make_way(own);
    while (!mine && !over) {
        int holder = FREE;
        mine = atomic_compare_exchange_strong(&own->busy, &holder, CALL);
        if (!mine && holder == ASIDE) rvi_thread_sleep(50e-6);
        if (!mine && holder == CALL) over = !wait_for_turn(own, wait_ms, start, &n_tries);
    }
    if (n_tries) atomic_fetch_sub(&own->n_waiting, 1);
    if (!mine) {
        bool self = atomic_load(&own->owner) == &this_thread;
        rvi_api_release_runtime(own);
        return rvi_error(err, RV_E_BUSY, "%s",
                         self
                             ? "the runtime is computing for the call that this callback belongs to"
                             : "the runtime is computing for another thread");
    }
    atomic_store(&own->owner, &this_thread);
    *turn = (rvi_api_turn){own, rvi_api_use_heap(rt)};
    return RV_OK;
}

rv_status rvi_api_enter(rvi_api_turn *turn, const rv_runtime *rt, rv_error *err)
{
    return enter(turn, rt, rt->o.wait, err);
}

void rvi_api_collect(rv_runtime *rt)
{
    rvi_api_turn turn;
    if (enter(&turn, rt, RV_WAIT_NEVER, NULL) == RV_OK) rvi_api_leave(&turn);
}

/* Sequentially consistent on both sides: a session is put on the list before busy is tried, and
 * busy is given up before the list is looked at again, so none is left behind. (Who finds it held
 * by a background thread waits for that one, and empties the list itself.) */
void rvi_api_leave(rvi_api_turn *turn)
{
    rv_runtime *rt = turn->rt;
    rvi_api_leave_heap(turn->heap);
    int holder;
    do {
        atomic_store(&rt->owner, &this_thread); /* destroying a session may call the log */
        rv_session *s = atomic_exchange(&rt->freed, NULL);
        while (s) {
            rv_session *next = s->next_freed;
            rvi_api_destroy_session(s);
            s = next;
        }
        rv_adapter_set *set = atomic_exchange(&rt->freed_sets, NULL);
        while (set) {
            rv_adapter_set *next = set->next_freed;
            rvi_api_release_set(set);
            set = next;
        }
        atomic_store(&rt->left_ns, now_ns());
        atomic_store(&rt->owner, NULL);
        (void)atomic_exchange(&rt->busy, FREE); /* not a store: see base/pool.c */
        holder = FREE;
    } while ((atomic_load(&rt->freed) || atomic_load(&rt->freed_sets)) &&
             atomic_compare_exchange_strong(&rt->busy, &holder, CALL));
    rvi_api_release_runtime(rt);
}

bool rvi_api_is_serving(const rv_runtime *rt)
{
    return atomic_load(&rt->n_serving) > 0;
}

void rvi_api_make_way(rvi_api_turn *turn)
{
    rv_runtime *rt = rvi_api_retain_runtime(turn->rt);
    rvi_api_leave(turn);
    while (rvi_api_enter(turn, rt, NULL)) rvi_thread_sleep(2e-4);
    rvi_api_release_runtime(rt);
}

bool rvi_api_enter_aside(rvi_api_turn *turn, const rv_runtime *rt, const atomic_bool *stop)
{
    enum { PATIENCE = 50 }; /* milliseconds */
    rv_runtime *own = rvi_api_retain_runtime(rt);
    int holder = FREE, n = 0;
    bool mine = false;
    while (!mine && !atomic_load(stop)) {
        holder = FREE;
        mine = atomic_compare_exchange_strong(&own->busy, &holder, ASIDE);
        if (mine) break;
        if (n++ == PATIENCE) atomic_fetch_add(&own->n_waiting, 1);
        rvi_thread_sleep(n <= PATIENCE ? 1e-3 : 1e-4);
    }
    if (n > PATIENCE) atomic_fetch_sub(&own->n_waiting, 1);
    if (mine)
        *turn = (rvi_api_turn){own, rvi_api_use_heap(rt)};
    else
        rvi_api_release_runtime(own);
    return mine;
}

void rvi_api_leave_aside(rvi_api_turn *turn)
{
    rvi_api_leave_heap(turn->heap);
    atomic_store(&turn->rt->busy, FREE);
    rvi_api_release_runtime(turn->rt);
}

/* Asked before every little piece of background work: once the moment has passed it is forgotten,
 * and no clock is read. */
bool rvi_api_is_busy(rv_runtime *rt)
{
    enum { MOMENT_NS = 10000000 };
    if (atomic_load(&rt->busy) == CALL) return true;
    uint_fast64_t left = atomic_load(&rt->left_ns);
    if (!left) return false;
    if (now_ns() - left < MOMENT_NS) return true;
    (void)atomic_compare_exchange_strong(&rt->left_ns, &left, 0);
    return false;
}

void rvi_api_note_use(rv_runtime *rt)
{
    atomic_store(&rt->used_ns, now_ns());
}

double rvi_api_idle_seconds(const rv_runtime *rt)
{
    return (double)(now_ns() - atomic_load(&rt->used_ns)) * 1e-9;
}
