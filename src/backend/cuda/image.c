#include "backend/cuda/image.h"

#include <stddef.h>

#ifdef RVI_CUDA_IMAGE
__asm__(".pushsection .rodata\n"
        ".balign 64\n"
        "rvi_cuda_image_data: .incbin \"" RVI_CUDA_IMAGE "\"\n"
        ".byte 0\n"
        ".popsection\n");
extern const unsigned char rvi_cuda_image_data[] __attribute__((visibility("hidden")));

rvi_cuda_image rvi_cuda_embedded(void)
{
    return (rvi_cuda_image){rvi_cuda_image_data, RVI_CUDA_VERSION};
}
#else
rvi_cuda_image rvi_cuda_embedded(void)
{
    return (rvi_cuda_image){NULL, 0};
}
#endif
