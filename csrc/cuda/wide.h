// A packed matrix times a hundred vectors or so, on Hopper's tensor cores: bound by reading the triangle, as with few vectors
// (thin.h), but with as much to multiply as they can.
#pragma once

#include "kernels.h"

namespace packedtri::cuda {

// For products that have Method::Wide, the first one of 16-bit elements. They return whether the scratch memory was to be had
// that they need; otherwise nothing is launched.
bool mm_wide(const Product& p, Scratch& scratch, cudaStream_t stream);
bool mm_wide_f32(const Product& p, Scratch& scratch, cudaStream_t stream);
bool mm_wide_f64(const Product& p, Scratch& scratch, cudaStream_t stream);

}  // namespace packedtri::cuda
