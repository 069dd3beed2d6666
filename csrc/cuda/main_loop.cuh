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

// One step, element by element and stored elements only. The zeros that pad an operand past its
// diagonal would turn an infinite or nan element of the other into a nan that is no part of the
// product, so a step that has both is multiplied here.
template <class LayoutA, class LayoutB, class Mma, class T>
__device__ void multiply_stored(const ProductArgs<T>& args, Mma& mma, const TilePart& part,
                                const T* a, const T* b, int k0) {
    for (int k = 0; k < Mma::BK; ++k) {
#pragma unroll
        for (int e = 0; e < Mma::ACCS; ++e) {
            const int r = mma.row0 + Mma::row_of_acc(e), c = mma.col0 + Mma::col_of_acc(e);
            const int i = part.i0 + r, j = part.j0 + c;
            const KRange range = k_range(args.a_kind, args.b_kind, i, i + 1, j, j + 1, args.k);
            if ((args.a_strict && k0 + k == i) || (args.b_strict && k0 + k == j)) continue;
            if (k0 + k >= range.begin && k0 + k < range.end)
                fma_into(mma.acc[e], Accumulator<T>::widen(a[LayoutA::at(r, k)]),
                         conjugate_if(Accumulator<T>::widen(b[LayoutB::at(c, k)]), args.conj_b));
        }
    }
}

}  // namespace packedtri::cuda
