// Multiplies tiles on the ordinary floating-point units: float32 and complex numbers.
#pragma once

#include "ptx.cuh"
#include "scalar.cuh"
#include "tile.cuh"

namespace packedtri::cuda {

// A BM x BN tile by WARPS_M x WARPS_N warps. Lanes form a 4 x 8 grid, and each computes TM x TN
// elements in groups of V neighbours, one 16-byte read of shared memory a group.
template <class T, int BM_, int BN_, int BK_, int TM, int TN>
struct MmaSimt {
    using Acc = T;
    static constexpr int BM = BM_, BN = BN_, BK = BK_;
    static constexpr int V = 16 / sizeof(T);
    static constexpr int WM = 4 * TM, WN = 8 * TN;
    using Grid = WarpGrid<BM / WM, BN / WN>;
    static constexpr int THREADS = 32 * (BM / WM) * (BN / WN);
    static constexpr int ACCS = TM * TN;
    static constexpr int RUN = V;  // Runs of accumulators that are neighbours in a row.

    // Tiles lie with r contiguous, whatever the source, so that the groups can be read at once. A
    // pitch of 4 words modulo 32 banks keeps the transposing copies of 4 x 8 lanes apart.
    template <int R, bool>
    using Layout = TileLayout<R, BK, false, V>;
    static constexpr int LANES_K = 8;

    T acc[ACCS] = {};
    int row0, col0;  // This lane's first element in the tile.
    bool conj_b = false;

    __device__ MmaSimt() {
        const int lane = threadIdx.x % 32;
        row0 = warp_row() + lane / 8 * V;
        col0 = warp_col() + lane % 8 * V;
    }
    __device__ int warp_row() const { return Grid::row(ptx::thread_of<THREADS>() / 32) * WM; }
    __device__ int warp_col() const { return Grid::col(ptx::thread_of<THREADS>() / 32) * WN; }

    __device__ static int row_of_acc(int e) { return e / TN / V * 4 * V + e / TN % V; }
    __device__ static int col_of_acc(int e) { return e % TN / V * 8 * V + e % TN % V; }

    // Multiplies one pair of tiles, and calls between(x) for x in [0, PARTS) on the way.
    static constexpr int PARTS = BK;
    template <class LayoutA, class LayoutB, class Between>
    __device__ void step(const T* a_tile, const T* b_tile, Between between) {
        Group a[TM / V], b[TN / V];
#pragma unroll
        for (int k = 0; k < BK; ++k) {
#pragma unroll
            for (int g = 0; g < TM / V; ++g) a[g] = read(a_tile + LayoutA::at(row0 + g * 4 * V, k));
#pragma unroll
            for (int g = 0; g < TN / V; ++g)
                b[g] = read(b_tile + LayoutB::at(col0 + g * 8 * V, k), conj_b);
            // In blocks of 2 x 2, back and forth through the rows of blocks, so that neighbouring
            // instructions share operand registers; 3% faster than row by row.
#pragma unroll
            for (int x = 0; x < ACCS; ++x) {
                const int row = x / (2 * TN), col = x / 4 % (TN / 2), corner = x % 4;
                const int m = 2 * row + (corner == 1 || corner == 2);
                const int n = 2 * (row % 2 ? TN / 2 - 1 - col : col) + corner / 2;
                fma_into(acc[m * TN + n], a[m / V].x[m % V], b[n / V].x[n % V]);
            }
            between(k);
        }
    }

  private:
    struct alignas(16) Group {
        T x[V];
    };
    __device__ static Group read(const T* from, bool conj = false) {
        Group group = *reinterpret_cast<const Group*>(from);
#pragma unroll
        for (T& x : group.x) x = conjugate_if(x, conj);
        return group;
    }
};

}  // namespace packedtri::cuda
