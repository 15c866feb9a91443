/* table.c - which ISA rows this machine can run, and filling a table from them. */
#include <string.h>

#include "kernels/kernels.h"
#include "kernels/rows.h"

#if defined(__x86_64__)
#include <cpuid.h>

/* XCR0: which register files the operating system saves. Only valid where CPUID reports OSXSAVE. */
static uint32_t saved_registers(void)
{
    uint32_t lo, hi;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return lo;
}

static bool has_avx2(void)
{
    const unsigned fma = 1u << 12, osxsave = 1u << 27, avx = 1u << 28, f16c = 1u << 29; /* leaf 1, ecx */
    const unsigned need = fma | osxsave | avx | f16c;
    const unsigned avx2 = 1u << 5;          /* leaf 7, ebx */
    const uint32_t xmm_ymm = 1u << 1 | 1u << 2; /* XCR0 */
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & need) != need) return false;
    if ((saved_registers() & xmm_ymm) != xmm_ymm) return false;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & avx2) != 0;
}
#endif

/* The rows above the reference that exist in this build, from slow to fast. */
static const struct {
    const char *name;
    bool (*present)(void);
    void (*fill)(rvi_kernels *k);
} rows[] = {
#if defined(__x86_64__)
    {"avx2", has_avx2, rvi_kernels_fill_avx2},
#elif defined(__aarch64__)
    {"neon", NULL, rvi_kernels_fill_neon}, /* part of the base architecture */
#endif
    {NULL, NULL, NULL},
};

/* The rows in order up to the last one present. A machine that has a row has those before it. */
static const char *const names[][3] = {
    {"ref", NULL, NULL},
#if defined(__x86_64__)
    {"ref", "avx2", NULL},
#elif defined(__aarch64__)
    {"ref", "neon", NULL},
#endif
};

static size_t count_present(void)
{
    size_t n = 0;
    while (rows[n].name != NULL && (rows[n].present == NULL || rows[n].present())) n++;
    return n;
}

bool rvi_kernels_init(rvi_kernels *k, const char *isa)
{
    rvi_kernels_fill_ref(k);
    if (isa != NULL && strcmp(isa, "ref") == 0) return true;

    size_t n = count_present();
    if (isa != NULL) {
        size_t last = 0;
        while (last < n && strcmp(rows[last].name, isa) != 0) last++;
        if (last == n) return false;
        n = last + 1;
    }
    for (size_t i = 0; i < n; i++) {
        rows[i].fill(k);
        k->isa = rows[i].name;
    }
    return true;
}

const char *const *rvi_kernels_available(void)
{
    return names[count_present()];
}
