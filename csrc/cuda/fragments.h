// Products of small matrices by the tensor cores for float64, whatever the type, to whose registers elements go straight
// from memory.
#pragma once

#include <cuda_runtime_api.h>

#include "config.h"

namespace packedtri::cuda {

// For products that have Method::Fragments (config.h).
void mm_fragments(const Product& p, const Config& config, cudaStream_t stream);

}  // namespace packedtri::cuda
