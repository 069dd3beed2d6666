// Products of small matrices in batches: one block or one warp has a whole product.
#pragma once

#include <cuda_runtime_api.h>

#include "../problem.h"

namespace packedtri::cuda {

// `side` is what small_side (config.h) says.
void small_f16(const Product& p, int side, cudaStream_t stream);
void small_bf16(const Product& p, int side, cudaStream_t stream);
void small_f32(const Product& p, int side, cudaStream_t stream);
void small_f64(const Product& p, int side, cudaStream_t stream);
void small_c64(const Product& p, int side, cudaStream_t stream);
void small_c128(const Product& p, int side, cudaStream_t stream);

}  // namespace packedtri::cuda
