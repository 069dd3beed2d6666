// A packed matrix times one vector: bound by reading the matrix, so it has kernels of its own.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels.h"

namespace packedtri::cuda {

void mv(const Product& p, cudaStream_t stream);

// For symmetric matrices, which `mv` reads twice: this reads them once, where mv_symmetric_can. Large ones
// need scratch memory.
void mv_symmetric(const Product& p, Scratch& scratch, cudaStream_t stream);

}  // namespace packedtri::cuda
