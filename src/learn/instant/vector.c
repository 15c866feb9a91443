#include "learn/instant/vector.h"

#include <stdint.h>

#include "base/mem.h"

float *rvi_floats_new(size_t count)
{
    return count <= SIZE_MAX / sizeof(float) ? rvi_alloc_aligned(count * sizeof(float), 64) : NULL;
}
