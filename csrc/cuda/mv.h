// A packed triangle times one vector: bound by reading the triangle once, so it has kernels of its
// own.
#pragma once

#include <cuda_runtime_api.h>

#include "../problem.h"

namespace packedtri::cuda {

void mv(const Product& p, cudaStream_t stream);

}  // namespace packedtri::cuda
