// A packed matrix of real elements times some vectors, the columns of a dense matrix or its rows on the other side,
// by the tensor cores. What is stored is read once, of a symmetric matrix too.
#pragma once

#include "kernels.h"

namespace packedtri::cuda {

// For products that have Method::Strips (config.h). They return whether the scratch memory was to be had that they
// need; otherwise nothing is launched.
bool mm_strips_f16(const Product& p, Scratch& scratch, cudaStream_t stream);
bool mm_strips_bf16(const Product& p, Scratch& scratch, cudaStream_t stream);
bool mm_strips_f32(const Product& p, Scratch& scratch, cudaStream_t stream);
bool mm_strips_f64(const Product& p, Scratch& scratch, cudaStream_t stream);

}  // namespace packedtri::cuda
