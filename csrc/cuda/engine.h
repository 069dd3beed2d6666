// Products by tile images on Hopper's tensor cores: float16, bfloat16, and float32 in TF32 or in
// three parts.
#pragma once

#include <cuda_runtime_api.h>

#include "config.h"

namespace packedtri::cuda {

struct EngineTask {
    Product product;
    Config config;
};
// No more of them are computed at once. Their batches, element types and configurations are the same.
constexpr int MOST_ENGINE_TASKS = 2;

// Bytes of scratch memory that `engine` needs.
int64_t engine_scratch(const EngineTask* tasks, int count);

// Computes products, as many matrices of the batch together as there is scratch memory for, with one
// image of each operand that several read.
void engine(const EngineTask* tasks, int count, void* scratch, cudaStream_t stream);

}  // namespace packedtri::cuda
