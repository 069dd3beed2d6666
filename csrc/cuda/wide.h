// A packed matrix of 16-bit elements times a hundred vectors or so, on Hopper's tensor cores: bound by reading
// the triangle, as with few vectors (thin.h), but with as much to multiply as they can.
#pragma once

#include "kernels.h"

namespace packedtri::cuda {

// For products that have Method::Wide. Returns whether the scratch memory was to be had that it needs; otherwise nothing is
// launched.
bool mm_wide(const Product& p, Scratch& scratch, cudaStream_t stream);

}  // namespace packedtri::cuda
