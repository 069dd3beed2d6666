// Makes tile images of the operands of a product.
#pragma once

#include <cuda_runtime_api.h>

#include "../problem.h"
#include "image.h"
#include "pack_order.h"

namespace packedtri::cuda {

// Images to be made of matrices of the operand's batch. part_bytes is the distance between the images of
// elements that take several, `bytes` that between the images of matrices.
struct ImageRequest {
    Operand operand;
    Grid blocks;
    char* to;
    int64_t part_bytes, bytes;
    int matrices;
};

// Grants up to MOST_IMAGES requests in one launch, and zeroes `words` words at `control`. float32 is rounded
// to the precision of TF32, or split into three bfloat16, whose sum it is.
void pack_images(DType dtype, bool tf32, const ImageRequest* requests, int count, int* control,
                 int words, cudaStream_t stream);

// Zeroes the words alone.
void clear_words(int* control, int words, cudaStream_t stream);

}  // namespace packedtri::cuda
