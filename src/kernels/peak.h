/* peak.h - loops that show what the arithmetic units and the memory can do at best.
 *
 * A product loop keeps its operands in registers and has enough independent accumulators to fill the
 * units, so its rate is the ceiling of every product that uses the instruction. A read loop loads
 * every byte once. Neither takes part in the model's arithmetic. */
#ifndef RVI_KERNELS_PEAK_H
#define RVI_KERNELS_PEAK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum rvi_peak_kind {
    RVI_PEAK_INT8, /* int8 x int8, summed in int32 */
    RVI_PEAK_BF16, /* bf16 x bf16, summed in f32; f32 where the machine has no bf16 product */
} rvi_peak_kind;

typedef struct rvi_peak {
    const char *name;                  /* of the instruction set and the instruction: "avx512-vnni vpdpbusd" */
    uint64_t ops_per_round;            /* a multiplication and an addition are two */
    int32_t (*run)(uint64_t n_rounds); /* a value that depends on all of it */
} rvi_peak;

/* The i-th product of a kind that the machine and its operating system support, or NULL past the last; there is always
 * at least one. Which one is fastest has to be measured. */
const rvi_peak *rvi_peak_at(rvi_peak_kind kind, size_t i);

/* Reads n bytes (a multiple of 256, 64-byte aligned) by the widest loads there are. Asking for it
 * once and keeping it matters: on a virtual machine the questions to the CPU are slow. */
typedef uint64_t (*rvi_peak_read_fn)(const void *data, size_t n);
rvi_peak_read_fn rvi_peak_reader(void);

#endif
