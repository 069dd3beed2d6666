// Loads operand tiles with cp.async, one element a copy: rows of a packed triangle have no
// alignment beyond the element's own. Copies may transpose on the way for free, since each lane
// names its own destination. For elements of 4 bytes and more.
#pragma once

#include "panel.cuh"
#include "ptx.cuh"
#include "scalar.cuh"
#include "tile.cuh"

namespace packedtri::cuda {

// The source is K-major when K_MAJOR (see Panel); the destination is Layout, whatever the source.
// LANES_K lanes of a warp run along k when the source is K-major.
template <class T, int R, int BK, int THREADS, bool K_MAJOR, class Layout, int LANES_K>
class AsyncLoader {
    static constexpr int WARPS = THREADS / 32;
    static constexpr int LANES_R = 32 / LANES_K;
    static constexpr int R_PASSES = K_MAJOR ? R / (WARPS * LANES_R) : R / 32;
    static constexpr int K_PASSES = K_MAJOR ? BK / LANES_K : BK / WARPS;
    static_assert(R_PASSES > 0 && K_PASSES > 0, "the tile is too small for this many threads");

  public:
    static constexpr bool asynchronous = true;

    __device__ AsyncLoader(const Panel<T>& panel, int r0) : panel_(panel), r0_(r0) {
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        r_ = K_MAJOR ? warp * LANES_R + lane / LANES_K : lane;
        k_ = K_MAJOR ? lane % LANES_K : warp;
        if (K_MAJOR) {
#pragma unroll
            for (int p = 0; p < R_PASSES; ++p)
                row_[p] = panel.data + panel.row_offset(r0 + r(p)) + k_;
        }
    }

    // Starts copying steps [k0, k0 + BK) into `tile`; places past the stored elements become zero.
    __device__ void begin(T* tile, int k0) {
        const bool full = K_MAJOR ? panel_.full(r0_, k0, R, BK) : panel_.full(k0, r0_, BK, R);
        if (full) copy<false>(tile, k0);
        else copy<true>(tile, k0);
    }

    // Whether steps [k0, k0 + BK) hold structural zeros.
    __device__ bool crosses_diagonal(int k0) const {
        return K_MAJOR ? panel_.crosses_diagonal(r0_, k0, BK) : panel_.crosses_diagonal(k0, r0_, R);
    }

    // Whether an element that this thread copied is infinite or nan; to be asked after its copies
    // have landed.
    __device__ bool any_nonfinite(const T* tile) const {
        bool found = false;
#pragma unroll
        for (int kp = 0; kp < K_PASSES; ++kp)
#pragma unroll
            for (int rp = 0; rp < R_PASSES; ++rp) found |= !finite(tile[Layout::at(r(rp), k(kp))]);
        return found;
    }

  private:
    __device__ int r(int pass) const { return r_ + pass * (K_MAJOR ? WARPS * LANES_R : 32); }
    __device__ int k(int pass) const { return k_ + pass * (K_MAJOR ? LANES_K : WARPS); }

    template <bool MASKED>
    __device__ void copy(T* tile, int k0) {
        const uint32_t to = ptx::shared_address(tile + Layout::at(r_, k_));
#pragma unroll
        for (int kp = 0; kp < K_PASSES; ++kp) {
            const T* row = nullptr;
            if (!K_MAJOR) row = panel_.data + panel_.row_offset(k0 + k(kp)) + r0_ + r_;
#pragma unroll
            for (int rp = 0; rp < R_PASSES; ++rp) {
                const T* from = K_MAJOR ? row_[rp] + k0 + (k(kp) - k_) : row + (r(rp) - r_);
                const uint32_t there =
                    to + Layout::at(r(rp) - r_, k(kp) - k_) * static_cast<int>(sizeof(T));
                if (MASKED) {
                    const int memory_row = K_MAJOR ? r0_ + r(rp) : k0 + k(kp);
                    const int memory_col = K_MAJOR ? k0 + k(kp) : r0_ + r(rp);
                    const bool valid =
                        memory_row < panel_.rows && memory_col < panel_.length(memory_row);
                    ptx::cp_async<sizeof(T)>(there, valid ? from : panel_.data, valid);
                } else {
                    ptx::cp_async<sizeof(T)>(there, from);
                }
            }
        }
    }

    Panel<T> panel_;
    int r0_, r_, k_;
    const T* row_[K_MAJOR ? R_PASSES : 1];
};

}  // namespace packedtri::cuda
