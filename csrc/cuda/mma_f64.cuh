// Multiplies float64 tiles on the tensor cores.
#pragma once

#include "ptx.cuh"
#include "tile.cuh"

namespace packedtri::cuda {

// A BM x BN tile by warps of WM x WN each, in products of 16 x 8 x KI: 16, or 8 where registers are scarce.
template <int BM_, int BN_, int BK_, int WM_, int WN_, int KI = 16>
struct MmaF64 {
    using T = double;
    using Acc = double;
    static constexpr int BM = BM_, BN = BN_, BK = BK_;
    static constexpr int THREADS = 32 * (BM / WM_) * (BN / WN_);
    static constexpr int WM = WM_, WN = WN_;
    using Grid = WarpGrid<BM / WM_, BN / WN_>;
    static constexpr int MT = WM / 16, NT = WN / 8;
    static constexpr int ACCS = MT * NT * 4;
    static constexpr int RUN = 2;  // Runs of accumulators that are neighbours in a row.

    // Half a warp reads 4 x 4 elements of 8 bytes; a pitch of 4 modulo 16 puts them in 16 different
    // pairs of banks in either order.
    template <int R, bool K_MAJOR>
    using Layout = TileLayout<R, BK, K_MAJOR, 4>;
    static constexpr int LANES_K = 16;

    double acc[ACCS] = {};
    int row0, col0;  // This lane's first element in the tile.

    __device__ MmaF64() {
        const int lane = threadIdx.x % 32;
        row0 = warp_row() + lane / 4;
        col0 = warp_col() + lane % 4 * 2;
    }
    __device__ int warp_row() const { return Grid::row(threadIdx.x / 32) * WM; }
    __device__ int warp_col() const { return Grid::col(threadIdx.x / 32) * WN; }

    __device__ static int row_of_acc(int e) { return e / 4 / NT * 16 + e % 4 / 2 * 8; }
    __device__ static int col_of_acc(int e) { return e / 4 % NT * 8 + e % 2; }
    // Which row of 8, and which column, the tensor cores' number is.
    __device__ static constexpr int row_of(int x) { return x; }
    __device__ static constexpr int col_of(int x) { return x; }

    // Multiplies one pair of tiles, and calls between(x) for x in [0, PARTS) on the way.
    static constexpr int PARTS = BK / KI * NT;
    template <class LayoutA, class LayoutB, class Between>
    __device__ void step(const double* a_tile, const double* b_tile, Between between) {
        const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
        const double* pa = a_tile + LayoutA::at(warp_row() + g, t);
        const double* pb = b_tile + LayoutB::at(warp_col() + g, t);
#pragma unroll
        for (int k = 0; k < BK; k += KI) {
            double a[MT][KI / 2];
#pragma unroll
            for (int m = 0; m < MT; ++m)
#pragma unroll
                for (int x = 0; x < KI / 2; ++x)
                    a[m][x] = pa[LayoutA::at(m * 16 + x % 2 * 8, k + x / 2 * 4)];
#pragma unroll
            for (int n = 0; n < NT; ++n) {
                double b[KI / 4];
#pragma unroll
                for (int x = 0; x < KI / 4; ++x) b[x] = pb[LayoutB::at(n * 8, k + x * 4)];
#pragma unroll
                for (int m = 0; m < MT; ++m) {
                    double* sums = acc + (m * NT + n) * 4;
                    if constexpr (KI == 16) ptx::mma_16816(sums, a[m], b);
                    else ptx::mma_1688(sums, a[m], b);
                }
                between(k / KI * NT + n);
            }
        }
    }
};

}  // namespace packedtri::cuda
