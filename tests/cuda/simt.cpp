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

enum { MOST = 1024, STACK = 64 << 10 };

static struct fiber {
    void *stack_pointer;
    char *stack;
    bool done;
    uint32_t shown;
} fibers[MOST];
static void *scheduler;
static unsigned n_fibers, n_live, n_arrived, generation;
static void (*kernel)(const void *);
static const void *kernel_args;

static void wait_a_turn()
{
    unsigned me = threadIdx.x;
    simt_switch(&fibers[me].stack_pointer, scheduler);
}

void simt_sync_block(void)
{
    unsigned mine = generation;
    n_arrived++;
    while (generation == mine) {
        if (n_arrived == n_live) {
            n_arrived = 0;
            generation++;
            break;
        }
        wait_a_turn();
    }
}

uint32_t simt_from(uint32_t v, int lane)
{
    unsigned me = threadIdx.x;
    fibers[me].shown = v;
    wait_a_turn();
    uint32_t got = fibers[me / 32 * 32 + (unsigned)lane].shown;
    wait_a_turn();
    return got;
}

static uint32_t shown[MOST][6];

const uint32_t (*simt_show(const uint32_t mine[6]))[6]
{
    unsigned me = threadIdx.x;
    memcpy(shown[me], mine, sizeof shown[me]);
    wait_a_turn();
    return shown + me / 32 * 32;
}

void simt_seen(void)
{
    wait_a_turn();
}

static void fiber_main()
{
    kernel(kernel_args);
    unsigned me = threadIdx.x;
    fibers[me].done = true;
    n_live--;
    simt_switch(&fibers[me].stack_pointer, scheduler);
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
    f->done = false;
}

static void run_block()
{
    n_live = n_fibers;
    n_arrived = 0;
    for (unsigned i = 0; i < n_fibers; i++) prepare(&fibers[i]);
    while (n_live) {
        for (unsigned i = 0; i < n_fibers; i++) {
            if (fibers[i].done) continue;
            threadIdx.x = i;
            simt_switch(&scheduler, fibers[i].stack_pointer);
        }
        if (n_live && n_arrived == n_live) { /* the last one left instead of waiting */
            n_arrived = 0;
            generation++;
        }
    }
}

void simt_run(void (*fn)(const void *args), const void *args, simt_index grid, unsigned threads)
{
    if (!threads || threads > MOST) abort();
    kernel = fn;
    kernel_args = args;
    gridDim = grid;
    blockDim = {threads, 1, 1};
    n_fibers = threads;
    for (blockIdx.z = 0; blockIdx.z < grid.z; blockIdx.z++)
        for (blockIdx.y = 0; blockIdx.y < grid.y; blockIdx.y++)
            for (blockIdx.x = 0; blockIdx.x < grid.x; blockIdx.x++) run_block();
}
