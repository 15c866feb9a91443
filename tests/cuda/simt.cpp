/* The threads of a block: fibers, each with a stack of its own. A fiber runs until it waits for the
 * others; then the next one goes on. */
#include "simt.h"

#include <cstdio>
#include <cstdlib>

#ifdef __x86_64__
#define HAS_SWITCH 1
/* Saves what a call must preserve on the stack of the one and takes it from that of the other. */
extern "C" void simt_switch(void **save, void *load);
__asm__(".text\n"
        ".globl simt_switch\n"
        ".hidden simt_switch\n"
        ".type simt_switch, @function\n"
        "simt_switch:\n"
        "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
        "  movq %rsp, (%rdi)\n"
        "  movq %rsi, %rsp\n"
        "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n"
        "  ret\n");
#elif defined(__aarch64__)
extern "C" void simt_switch(void **save, void *load);
__asm__(".text\n"
        ".globl simt_switch\n"
        ".hidden simt_switch\n"
        "simt_switch:\n"
        "  stp x29, x30, [sp, #-160]!\n  stp x19, x20, [sp, #16]\n  stp x21, x22, [sp, #32]\n"
        "  stp x23, x24, [sp, #48]\n  stp x25, x26, [sp, #64]\n  stp x27, x28, [sp, #80]\n"
        "  stp d8, d9, [sp, #96]\n  stp d10, d11, [sp, #112]\n  stp d12, d13, [sp, #128]\n"
        "  stp d14, d15, [sp, #144]\n"
        "  mov x9, sp\n  str x9, [x0]\n  mov sp, x1\n"
        "  ldp x19, x20, [sp, #16]\n  ldp x21, x22, [sp, #32]\n"
        "  ldp x23, x24, [sp, #48]\n  ldp x25, x26, [sp, #64]\n  ldp x27, x28, [sp, #80]\n"
        "  ldp d8, d9, [sp, #96]\n  ldp d10, d11, [sp, #112]\n  ldp d12, d13, [sp, #128]\n"
        "  ldp d14, d15, [sp, #144]\n"
        "  ldp x29, x30, [sp], #160\n"
        "  ret\n");
#endif

simt_index threadIdx, blockIdx, blockDim, gridDim;

enum { MOST = 1024, STACK = 64 << 10, CLUSTER = 16, SHARED = 228 << 10 };

struct fiber {
    void *stack_pointer;
    char *stack;
    bool done, waits; /* for others */
    uint32_t shown;
};
static struct block {
    fiber *fibers;
    uint8_t *shared;
    unsigned live, arrived, met, generation;
} blocks[CLUSTER], *now;
static void *scheduler;
static unsigned n_fibers, cluster_arrived;
static unsigned long cluster_threads;
static void (*kernel)(const void *);
static const void *kernel_args;

static fiber *me()
{
    return &now->fibers[threadIdx.x];
}

static void wait_a_turn(bool for_others = false)
{
    me()->waits = for_others;
    simt_switch(&me()->stack_pointer, scheduler);
}

uint8_t *simt_shared(int b)
{
    return blocks[(unsigned)b % CLUSTER].shared;
}

void simt_arrive(void)
{
    cluster_arrived++;
}

bool simt_have_arrived(void)
{
    return cluster_arrived == cluster_threads;
}

void simt_let_others(void)
{
    wait_a_turn(true);
}

void simt_sync_block(void)
{
    unsigned mine = now->generation;
    now->arrived++;
    while (now->generation == mine) {
        if (now->arrived == now->live) {
            now->arrived = 0;
            now->generation++;
            break;
        }
        wait_a_turn(true);
    }
}

void simt_sync_first(unsigned n)
{
    unsigned until = (now->met++ / n + 1) * n;
    while (now->met < until) wait_a_turn();
}

uint32_t simt_from(uint32_t v, int lane)
{
    me()->shown = v;
    wait_a_turn();
    uint32_t got = now->fibers[threadIdx.x / 32 * 32 + (unsigned)lane].shown;
    wait_a_turn();
    return got;
}

static uint32_t shown[MOST][6];

const uint32_t (*simt_show(const uint32_t mine[6]))[6]
{
    memcpy(shown[threadIdx.x], mine, sizeof shown[threadIdx.x]);
    wait_a_turn();
    return shown + threadIdx.x / 32 * 32;
}

void simt_seen(void)
{
    wait_a_turn();
}

static void fiber_main()
{
    kernel(kernel_args);
    me()->done = true;
    now->live--;
    simt_switch(&me()->stack_pointer, scheduler);
    abort();
}

static void prepare(fiber *f)
{
    if (!f->stack) f->stack = (char *)aligned_alloc(64, STACK);
    void **top = (void **)(f->stack + STACK);
#ifdef __x86_64__
    *--top = NULL; /* where fiber_main would return to: keeps its stack aligned */
    *--top = (void *)fiber_main;
    for (int i = 0; i < 6; i++) *--top = NULL;
#else
    top -= 20;
    memset(top, 0, 160);
    top[1] = (void *)fiber_main;
#endif
    f->stack_pointer = top;
    f->done = f->waits = false;
}

/* Until all its threads wait for others or are done. */
static void run_block()
{
    for (bool go_on = true; now->live && go_on;) {
        unsigned before = now->generation;
        go_on = false;
        for (unsigned i = 0; i < n_fibers; i++) {
            if (now->fibers[i].done) continue;
            threadIdx.x = i;
            simt_switch(&scheduler, now->fibers[i].stack_pointer);
            if (!now->fibers[i].waits) go_on = true;
        }
        if (now->generation != before) go_on = true;
        if (now->live && now->arrived == now->live) { /* the last one left instead of waiting */
            now->arrived = 0;
            now->generation++;
            go_on = true;
        }
    }
}

static void run_cluster(unsigned n)
{
    enum { PATIENCE = 1 << 16 };
    cluster_arrived = 0;
    cluster_threads = (unsigned long)n * n_fibers;
    for (unsigned b = 0; b < n; b++) {
        block *k = &blocks[(blockIdx.x + b) % CLUSTER];
        if (!k->fibers) k->fibers = (fiber *)calloc(MOST, sizeof *k->fibers);
        if (!k->shared) k->shared = (uint8_t *)aligned_alloc(1024, SHARED);
        k->live = n_fibers;
        k->arrived = k->met = 0;
        for (unsigned i = 0; i < n_fibers; i++) prepare(&k->fibers[i]);
    }
    unsigned first = blockIdx.x, left = n;
    for (int turn = 0; left; turn++) {
        if (turn == PATIENCE) abort(); /* blocks that wait for each other for ever */
        for (unsigned b = 0; b < n; b++) {
            blockIdx.x = first + b;
            now = &blocks[blockIdx.x % CLUSTER];
            if (!now->live) continue;
            run_block();
            if (!now->live) left--;
        }
    }
    blockIdx.x = first;
}

void simt_run(void (*fn)(const void *args), const void *args, simt_index grid, unsigned threads,
              unsigned cluster)
{
    if (!threads || threads > MOST || !cluster || cluster > CLUSTER) abort();
    kernel = fn;
    kernel_args = args;
    gridDim = grid;
    blockDim = {threads, 1, 1};
    n_fibers = threads;
    for (blockIdx.z = 0; blockIdx.z < grid.z; blockIdx.z++)
        for (blockIdx.y = 0; blockIdx.y < grid.y; blockIdx.y++)
            for (blockIdx.x = 0; blockIdx.x < grid.x; blockIdx.x += cluster) run_cluster(cluster);
}
