#include "kernels/features.h"

#include "base/machine.h"

bool rvi_has_ref(void)
{
    return true;
}

#if defined(__x86_64__)
#include <cpuid.h>

typedef struct leaf {
    unsigned a, b, c, d;
} leaf;

static leaf ask(unsigned number, unsigned sub)
{
    leaf l = {0};
    if (!__get_cpuid_count(number, sub, &l.a, &l.b, &l.c, &l.d)) return (leaf){0};
    return l;
}

static bool bit(unsigned word, int n)
{
    return word >> n & 1;
}

/* Whether XCR0 has all bits of mask: the system saves these registers. */
static bool saves(uint32_t mask)
{
    uint32_t lo, hi;
    if (!bit(ask(1, 0).c, 27)) return false; /* OSXSAVE */
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return (lo & mask) == mask;
}

bool rvi_has_avx2(void)
{
    unsigned c = ask(1, 0).c;
    return saves(0x6) && bit(c, 12) && bit(c, 28) && bit(c, 29) && bit(ask(7, 0).b, 5);
}

bool rvi_has_avxvnni(void)
{
    return rvi_has_avx2() && bit(ask(7, 1).a, 4);
}

bool rvi_has_avx512(void)
{
    unsigned b = ask(7, 0).b;
    return rvi_has_avx2() && saves(0xE6) && bit(b, 16) && bit(b, 17) && bit(b, 30) && bit(b, 31);
}

bool rvi_has_avx512_vnni(void)
{
    return rvi_has_avx512() && bit(ask(7, 0).c, 11);
}

bool rvi_has_avx512_bf16(void)
{
    return rvi_has_avx512() && bit(ask(7, 1).a, 5);
}

static bool has_tiles(int feature)
{
    unsigned d = ask(7, 0).d;
    return saves(0x60000) && bit(d, 24) && bit(d, feature) && rvi_machine_permit_tiles();
}

bool rvi_has_amx_int8(void)
{
    return rvi_has_avx512_vnni() && has_tiles(25);
}

bool rvi_has_amx_bf16(void)
{
    return rvi_has_avx512() && has_tiles(22);
}

bool rvi_has_amx(void)
{
    return rvi_has_avxvnni() && rvi_has_amx_int8() && rvi_has_amx_bf16();
}

#elif defined(__aarch64__)

static bool feature(int word, int n)
{
    uint64_t words[2];
    rvi_machine_arm_features(&words[0], &words[1]);
    return words[word] >> n & 1;
}

bool rvi_has_neon(void)
{
    return true;
}

bool rvi_has_dotprod(void)
{
    return feature(0, 20); /* ASIMDDP */
}

bool rvi_has_i8mm(void)
{
    return feature(1, 13);
}

bool rvi_has_bf16(void)
{
    return feature(1, 14);
}

#endif
