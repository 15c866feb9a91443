/* image.h - the kernels, compiled and embedded in the program (make CUDA=1). */
#ifndef RVI_BACKEND_CUDA_IMAGE_H
#define RVI_BACKEND_CUDA_IMAGE_H

typedef struct rvi_cuda_image {
    const void *data; /* NULL: built without kernels */
    int version;      /* of CUDA that its driver must know, as rvi_cu_driver has it */
} rvi_cuda_image;

rvi_cuda_image rvi_cuda_embedded(void);

#endif
