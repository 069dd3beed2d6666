// Kernels that solve with, and factor, triangles of an order up to leaf_order in shared memory.
#pragma once

#include <cuda_runtime_api.h>

#include "../solve_problem.h"
#include "blocks.h"
#include "kernels.h"

namespace packedtri::cuda {

// Solves with the diagonal block of `p.triangle` that `block` names, or with its conjugate. A line
// is a right-hand side: where p.left a column of X, whose elements in the rows of the block are
// solved for; otherwise a row, and its elements in the columns.
void solve_leaf(const Solve& p, Span block, Span lines, bool conj, cudaStream_t stream);

// The same for a larger block, by one launch. False where the device has no room for that: then nothing has been done.
bool solve_panel(const Solve& p, Span block, Span lines, Scratch& scratch, cudaStream_t stream);

// Solves for all of a dense X of at most THIN right-hand sides. With more than one, in float32 steps of
// leaves and products are faster.
constexpr int64_t THIN = 4;
constexpr int64_t most_thin(DType dtype) { return dtype == DType::f32 ? 1 : THIN; }
void solve_thin(const Solve& p, cudaStream_t stream);

// Factors the diagonal block of `p.packed` that `block` names.
void factor_leaf(const Factor& p, Span block, cudaStream_t stream);

// Factors the columns `panel`, from their diagonal down, and sets `info` if they are the first ones. False where the
// device has no room for that: then nothing has been done.
bool factor_panel(const Factor& p, Span panel, Scratch& scratch, cudaStream_t stream);

}  // namespace packedtri::cuda
