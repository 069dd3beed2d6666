// What the main loops have in common.
#pragma once

#include "panel.cuh"
#include "ptx.cuh"
#include "scalar.cuh"

namespace packedtri::cuda {

// The part of one tile's sum that a block computes: `steps` steps of BK each from k0 on.
struct TilePart {
    int i0, j0;
    int k0, steps;
};

// Which part of a sum a block has, of those that blocks of its cluster share, and which of them has the first. There are
// one, two, three, four or eight.
struct SharedSum {
    int part = 0, parts = 1, first_rank = 0;

    // By a constant or a shift, which is quick.
    __device__ __forceinline__ int divide(int x) const {
        return parts == 3 ? x / 3 : x >> (__ffs(parts) - 1);
    }
    // Each block stores rows of the tile, of which there are `side`: from this one on block `part`, to which row
    // first_row(part + 1) does not belong.
    __device__ __forceinline__ int first_row(int part, int side) const {
        return divide(side * part + parts - 1);
    }
};

template <class T>
__device__ Panel<T> at_batch(Panel<T> panel, int64_t offset) {
    panel.data += offset;
    return panel;
}

// Near a diagonal, or at the edge of the result, the part of the tile that a warp computes may need
// none of a step.
template <class Mma, class T>
__device__ bool warp_needs(const ProductArgs<T>& args, const Mma& mma, const TilePart& part,
                           int k) {
    const int i = part.i0 + mma.warp_row(), j = part.j0 + mma.warp_col();
    if (i >= args.m || j >= args.n) return false;
    const KRange range = k_range(args.a_kind, args.b_kind, i, i + Mma::WM, j, j + Mma::WN, args.k);
    return k < range.end && k + Mma::BK > range.begin;
}

// Whether element (r, k) of an operand is stored. r is a row of A, or a column of B, whose kind is then that of its
// transpose.
__device__ __forceinline__ bool is_stored(Kind kind, bool strict, int r, int k) {
    if (kind == Kind::Lower) return k < r + !strict;
    return kind != Kind::Upper || k > r - !strict;
}

// One step, element by element and stored elements only. The zeros that pad an operand past its
// diagonal would turn an infinite or nan element of the other into a nan that is no part of the
// product, so a step that has both is multiplied here.
template <class LayoutA, class LayoutB, class Mma, class T>
__device__ void multiply_stored(const ProductArgs<T>& args, Mma& mma, const TilePart& part,
                                const T* a, const T* b, int k0) {
    const Kind a_kind = args.a_kind, b_kind = transposed(args.b_kind);
    const bool a_strict = args.a_strict, b_strict = args.b_strict;
    const int steps = min(Mma::BK, args.k - k0);
#pragma unroll 1
    for (int k = 0; k < steps; ++k) {
#pragma unroll
        for (int e = 0; e < Mma::ACCS; ++e) {
            const int r = mma.row0 + Mma::row_of_acc(e), c = mma.col0 + Mma::col_of_acc(e);
            if (is_stored(a_kind, a_strict, part.i0 + r, k0 + k) &&
                is_stored(b_kind, b_strict, part.j0 + c, k0 + k))
                fma_into(mma.acc[e], Accumulator<T>::widen(a[LayoutA::at(r, k)]),
                         conjugate_if(Accumulator<T>::widen(b[LayoutB::at(c, k)]), args.conj_b));
        }
    }
}

}  // namespace packedtri::cuda
