// Batches of products with a packed operand that shared memory holds as a whole.
#pragma once

#include <cuda_runtime_api.h>

#include "config.h"

namespace packedtri::cuda {

// For products that have Method::Resident (config.h).
void mm_resident(const Product& p, const Config& config, cudaStream_t stream);

}  // namespace packedtri::cuda
