// A packed matrix times one vector: bound by reading the matrix, or by latency, so it has kernels of its own.
#pragma once

#include <cuda_runtime_api.h>

#include "config.h"
#include "kernels.h"

namespace packedtri::cuda {

// As choose_mv says. `scratch` may be null.
void mv(const Product& p, Scratch* scratch, cudaStream_t stream);

// Of how many rows a warp holds 32 PER_LANE elements each: few enough that they stay in registers.
template <class T, int PER_LANE>
constexpr int mv_rows_at_once = sizeof(T) * PER_LANE <= 32 ? 4 : 2;

// For symmetric matrices, which are read once: MvChoice::Way::Block and Parts. The latter need scratch memory. Returns
// whether there was enough.
bool mv_symmetric(const Product& p, Scratch* scratch, cudaStream_t stream);

// For matrices that shared memory holds: MvChoice::Way::Held.
void mv_held(const Product& p, const MvChoice& choice, cudaStream_t stream);

}  // namespace packedtri::cuda
