// Entry points of the CUDA kernels. They are free of torch: raw pointers, sizes and a stream. They
// only enqueue work; a failed launch throws std::runtime_error.
#pragma once

#include <cuda_runtime_api.h>

#include "../problem.h"

namespace packedtri::cuda {

// Whether mm reads operands of this kind; others must be unpacked first.
constexpr bool loads(Kind kind) { return kind != Kind::Symmetric; }

void mm(const Product& p, cudaStream_t stream);
void pack(const Conversion& c, cudaStream_t stream);
void unpack(const Conversion& c, cudaStream_t stream);

}  // namespace packedtri::cuda
