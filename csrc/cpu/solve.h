// Solves with blocks of packed triangles, for the factorizations.
#pragma once

#include "block.h"
#include "kernels.h"

namespace packedtri::cpu {

// T Y = X (left) or Y T = X, in place, for X dense or, `lower`, itself a triangle. `upper` reads T
// as its transpose, `conj` conjugates it.
struct BlockSolve {
    bool upper, left, unit, conj, lower;
};

// t has order n and x is n x m (left) or m x n. Only solves from the right conjugate.
void solve_block(const BlockSolve& p, const Block& t, const Block& x, int64_t n, int64_t m,
                 const Threads& threads);

}  // namespace packedtri::cpu
