// Products by tile images on Hopper's tensor cores: float16, bfloat16, and float32 in three parts.
#pragma once

#include <cuda_runtime_api.h>

#include "config.h"

namespace packedtri::cuda {

// Bytes of scratch memory, aligned to 1024, that `engine` needs for the product.
int64_t engine_workspace(const Product& p, const Config& config);

// Computes the product. Where it finds a result that is not finite it sets the word that it returns,
// in the workspace: then the result is to be computed again by a kernel that reads stored elements
// only.
const int* engine(const Product& p, const Config& config, void* workspace, cudaStream_t stream);

// One function an element type, in files of their own.
struct EnginePlan;
void engine_f16(const EnginePlan& plan, cudaStream_t stream);
void engine_bf16(const EnginePlan& plan, cudaStream_t stream);
void engine_f32(const EnginePlan& plan, cudaStream_t stream);

}  // namespace packedtri::cuda
