// Multiplies float16 and bfloat16 tiles by Hopper's warpgroup products, sums in float32.
#pragma once

#include "image.h"
#include "wgmma.cuh"

namespace packedtri::cuda {

// A tile of R rows of A (or columns of B) by 64 steps of k in blocks as those of an image, one after
// another.
template <int R, bool K_MAJOR>
struct BlockLayout {
    static constexpr int size = R * Image::SIDE;
    static constexpr bool k_major = K_MAJOR;

    __device__ static constexpr int at(int r, int k) {
        const int row = K_MAJOR ? r % Image::SIDE : k, col = K_MAJOR ? k : r % Image::SIDE;
        return r / Image::SIDE * Image::SIDE * Image::SIDE + Image::chunk_offset(row, col / 8) / 2 +
               col % 8;
    }
};

// A BM x BN tile by warpgroups of 64 rows each.
template <class T, int BM_, int BN_>
struct MmaWarpgroup {
    using Acc = float;
    static constexpr int BM = BM_, BN = BN_, BK = Image::SIDE;
    static constexpr int WM = 64, WN = BN_;  // Of a warpgroup, not of a warp.
    static constexpr int THREADS = 128 * (BM / WM);
    static constexpr int ACCS = BN / 2;
    // Products of one step still read their tiles while those of the next are written.
    static constexpr int TILE_BUFFERS = 2;
    static constexpr int RUN = 2;  // Runs of accumulators that are neighbours in a row.

    template <int R, bool K_MAJOR>
    using Layout = BlockLayout<R, K_MAJOR>;

    float acc[ACCS] = {};
    int row0, col0;  // This lane's first element in the tile.

    __device__ MmaWarpgroup() {
        const int warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;
        row0 = warp_row() + warp * 16 + lane / 4;
        col0 = lane % 4 * 2;
    }
    // The same in all lanes, and known to be: a warpgroup's products must not diverge.
    __device__ int warp_row() const {
        return __shfl_sync(~0u, static_cast<int>(threadIdx.x / 128), 0) * WM;
    }
    __device__ int warp_col() const { return 0; }

    __device__ static int row_of_acc(int e) { return e % 4 / 2 * 8; }
    __device__ static int col_of_acc(int e) { return e / 4 * 8 + e % 2; }

    // Makes what this thread has written to tiles visible to the products.
    __device__ static void publish_tiles() { ptx::bulk_fence(); }

    // Starts the products of one pair of tiles.
    template <class LayoutA, class LayoutB>
    __device__ void step(const T* a_tile, const T* b_tile) {
        const uint64_t a =
            tile_descriptor(ptx::shared_address(a_tile + LayoutA::at(warp_row(), 0)));
        const uint64_t b = tile_descriptor(ptx::shared_address(b_tile));
        constexpr int A_STEP = LayoutA::k_major ? STEP_ALONG : STEP_ACROSS,
                      B_STEP = LayoutB::k_major ? STEP_ALONG : STEP_ACROSS;
        ptx::wgmma_fence();
#pragma unroll
        for (int x = 0; x < BK / 16; ++x)
            ptx::wgmma<BN, !LayoutA::k_major, !LayoutB::k_major>(acc, a + x * A_STEP,
                                                                 b + x * B_STEP, true, T{});
        ptx::wgmma_commit();
    }

    // Waits until only the products of the last `PENDING` steps may be under way.
    template <int PENDING>
    __device__ void wait() {
        ptx::wgmma_wait<PENDING>();
    }
};

}  // namespace packedtri::cuda
