// A packed matrix of 16-bit elements times a hundred vectors or so, on Hopper's tensor cores: bound by reading
// the triangle, as with few vectors (thin.h), but with as much to multiply as they can.
#pragma once

#include <cuda_runtime_api.h>

#include "config.h"

namespace packedtri::cuda {

// For products that have Method::Wide.
void mm_wide(const Product& p, const Config& config, cudaStream_t stream);

}  // namespace packedtri::cuda
