// A packed triangle times one vector: bound by reading the triangle once, so it has kernels of its
// own.
#pragma once

#include <cuda_runtime_api.h>

#include "../problem.h"

namespace packedtri::cuda {

// Whether a product is a packed triangle times one column, or one row times a packed triangle.
bool is_mv(const Product& p);
void mv(const Product& p, cudaStream_t stream);

}  // namespace packedtri::cuda
