// Multiplies large tiles of float64 that lie by lines (line_tile.h), on the tensor cores.
#pragma once

#include "line_tile.h"
#include "mma_f64.cuh"

namespace packedtri::cuda {

// What a lane has of a left operand: 16 rows, number m of those from where `in` begins, and 16 steps of number k.
template <class Lane>
__device__ __forceinline__ void load_left(double (&a)[8], const double* tile, const Lane& in, int m,
                                          int k) {
#pragma unroll
    for (int x = 0; x < 8; ++x) a[x] = tile[in.at(2 * m + x % 2, k, x / 2)];
}

// A tile of 128 x 128 by warps of 32 x 64.
template <bool A_K_MAJOR, bool B_K_MAJOR>
struct LineMmaF64 : MmaF64<LineTile<true>::SIDE, LineTile<true>::SIDE, LineTile<true>::BK, 32, 64> {
    using Base = MmaF64<LineTile<true>::SIDE, LineTile<true>::SIDE, LineTile<true>::BK, 32, 64>;
    using TileA = LineTile<A_K_MAJOR>;
    using TileB = LineTile<B_K_MAJOR>;

    // Which row of 8, and which column, the tensor cores' number is.
    __device__ static constexpr int row_of(int x) { return TileA::taken(x); }
    __device__ static constexpr int col_of(int x) { return TileB::taken(x); }

    // Multiplies one pair of tiles.
    __device__ void step(const double* a_tile, const double* b_tile,
                         const typename TileA::Lane& in_a, const typename TileB::Lane& in_b) {
#pragma unroll
        for (int k = 0; k < Base::BK / 16; ++k) {
            double a[Base::MT][8];
#pragma unroll
            for (int m = 0; m < Base::MT; ++m) load_left(a[m], a_tile, in_a, m, k);
#pragma unroll
            for (int n = 0; n < Base::NT; ++n) {
                double b[4];
#pragma unroll
                for (int x = 0; x < 4; ++x) b[x] = b_tile[in_b.at(n, k, x)];
#pragma unroll
                for (int m = 0; m < Base::MT; ++m)
                    ptx::mma_16816(this->acc + (m * Base::NT + n) * 4, a[m], b);
            }
        }
    }
};

}  // namespace packedtri::cuda
