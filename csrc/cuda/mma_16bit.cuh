// Multiplies float16 and bfloat16 tiles on the tensor cores, sums in float32.
#pragma once

#include "ptx.cuh"
#include "tile.cuh"

namespace packedtri::cuda {

// A BM x BN tile by warps of WM x WN each, in 16 x 8 x 16 products.
template <class T, int BM_, int BN_, int BK_, int WM_, int WN_>
struct Mma16Bit {
    using Acc = float;
    static constexpr int BM = BM_, BN = BN_, BK = BK_;
    static constexpr int THREADS = 32 * (BM / WM_) * (BN / WN_);
    static constexpr int WM = WM_, WN = WN_;
    using Grid = WarpGrid<BM / WM_, BN / WN_>;
    static constexpr int MT = WM / 16, NT = WN / 8;
    static constexpr int ACCS = MT * NT * 4;
    static constexpr int RUN = 2;  // Runs of accumulators that are neighbours in a row.
    static_assert(NT % 2 == 0, "columns are read in pairs of 8");

    // ldmatrix reads 8 rows of 16 bytes; 16 bytes of padding put them in different banks.
    template <int R, bool K_MAJOR>
    using Layout = TileLayout<R, BK, K_MAJOR, 8>;

    float acc[ACCS] = {};
    int row0, col0;  // This lane's first element in the tile.

    __device__ Mma16Bit() {
        const int lane = threadIdx.x % 32;
        row0 = warp_row() + lane / 4;
        col0 = warp_col() + lane % 4 * 2;
    }
    __device__ int warp_row() const { return Grid::row(threadIdx.x / 32) * WM; }
    __device__ int warp_col() const { return Grid::col(threadIdx.x / 32) * WN; }

    __device__ static int row_of_acc(int e) { return e / 4 / NT * 16 + e % 4 / 2 * 8; }
    __device__ static int col_of_acc(int e) { return e / 4 % NT * 8 + e % 2; }

    template <class LayoutA, class LayoutB>
    __device__ void step(const T* a_tile, const T* b_tile) {
        // Each group of 8 lanes names the rows of one 8 x 8 matrix. For A these go down r first,
        // for B along k first, which is the order the product wants its registers in.
        const int lane = threadIdx.x % 32, within = lane % 8, first = lane / 8 % 2 * 8,
                  second = lane / 16 * 8;
        const uint32_t pa = ptx::shared_address(
            a_tile + (LayoutA::k_major ? LayoutA::at(warp_row() + first + within, second)
                                       : LayoutA::at(warp_row() + first, second + within)));
        const uint32_t pb = ptx::shared_address(
            b_tile + (LayoutB::k_major ? LayoutB::at(warp_col() + second + within, first)
                                       : LayoutB::at(warp_col() + second, first + within)));
#pragma unroll
        for (int k = 0; k < BK; k += 16) {
            uint32_t a[MT][4], b[NT / 2][4];
#pragma unroll
            for (int m = 0; m < MT; ++m) load<LayoutA>(a[m], pa + 2 * LayoutA::at(m * 16, k));
#pragma unroll
            for (int n = 0; n < NT / 2; ++n) load<LayoutB>(b[n], pb + 2 * LayoutB::at(n * 16, k));
#pragma unroll
            for (int m = 0; m < MT; ++m)
#pragma unroll
                for (int n = 0; n < NT; ++n)
                    ptx::mma_16816(acc + (m * NT + n) * 4, a[m], b[n / 2] + n % 2 * 2, T{});
        }
    }

  private:
    template <class Layout>
    __device__ static void load(uint32_t (&r)[4], uint32_t address) {
        if constexpr (Layout::k_major) ptx::ldmatrix_x4(r, address);
        else ptx::ldmatrix_x4_trans(r, address);
    }
};

}  // namespace packedtri::cuda
