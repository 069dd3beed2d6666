// One function an element type; each lives in a file of its own, so that they compile side by side.
#pragma once

#include <cuda_runtime_api.h>

#include "config.h"
#include "kernels.h"

namespace packedtri::cuda {

void product_f16(const Product& p, const Config& config, cudaStream_t stream);
void product_bf16(const Product& p, const Config& config, cudaStream_t stream);
void product_f32(const Product& p, const Config& config, cudaStream_t stream);
// Of float32 that may be rounded, by Hopper's tensor cores.
void product_tf32(const Product& p, const Config& config, cudaStream_t stream);
// Needs scratch memory for large tiles on Hopper.
void product_f64(const Product& p, const Config& config, Scratch* scratch, cudaStream_t stream);
void product_c64(const Product& p, const Config& config, cudaStream_t stream);
void product_c128(const Product& p, const Config& config, cudaStream_t stream);

}  // namespace packedtri::cuda
