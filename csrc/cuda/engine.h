// Products by tile images on Hopper's tensor cores: float16, bfloat16, and float32 in TF32 or in
// three parts.
#pragma once

#include <cuda_runtime_api.h>

#include "config.h"

namespace packedtri::cuda {

// Bytes of scratch memory that `engine` needs, aligned to 1024 as it must be.
int64_t engine_scratch(const Product& p, const Config& config);

// Computes the product, matrix by matrix of the batch. After each, `finish` gets the product of this
// one matrix with Product::marks set to the blocks that were not stored, because a result was not
// finite: it is to compute these from stored elements only.
void engine(const Product& p, const Config& config, void* scratch,
            void (*finish)(const Product&, cudaStream_t), cudaStream_t stream);

}  // namespace packedtri::cuda
