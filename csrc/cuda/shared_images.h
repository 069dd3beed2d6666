// Batches of products of 16-bit elements whose packed operands are small enough for a block to have their tile images
// (image.h) in its shared memory.
#pragma once

#include <cuda_runtime_api.h>

#include "config.h"

namespace packedtri::cuda {

// For products that have Method::SharedImages (config.h).
void mm_shared_images(const Product& p, const Config& config, cudaStream_t stream);

}  // namespace packedtri::cuda
