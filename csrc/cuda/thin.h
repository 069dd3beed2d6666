// A packed triangle times a few vectors at once, the columns of a dense matrix or its rows on the other
// side: bound by reading the triangle. See mv.h for a single vector.
#pragma once

#include <cuda_runtime_api.h>

#include "../problem.h"

namespace packedtri::cuda {

// For products that have Method::Thin (config.h), and for the two halves of a symmetric matrix.
void mm_thin(const Product& p, cudaStream_t stream);

// The same for elements of 2 bytes, on the tensor cores.
void mm_thin_16bit(const Product& p, cudaStream_t stream);

}  // namespace packedtri::cuda
