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
    __device__ AsyncLoader(const Panel<T>& panel, int r0, int k0)
        : panel_(panel), r0_(r0), k0_(k0) {
        const int warp = ptx::thread_of<THREADS>() / 32, lane = threadIdx.x % 32;
        r_ = K_MAJOR ? warp * LANES_R + lane / LANES_K : lane;
        k_ = K_MAJOR ? lane % LANES_K : warp;
#pragma unroll
        for (int p = 0; p < ROWS; ++p)
            row_[p] = panel.data + (K_MAJOR ? panel.row_offset(r0 + r(p)) + k0 + k_
                                            : panel.row_offset(k0 + k(p)) + r0 + r_);
        stride_ = panel.row_offset(k0 + k_ + BK) - panel.row_offset(k0 + k_);
        bend_ = panel.packed ? BK : 0;
    }

    // The k0 for which steps [k0, k0 + BK) hold stored elements only.
    __device__ KRange full_range() const {
        if (K_MAJOR) return {0, r0_ + R <= panel_.rows ? panel_.length(r0_) - BK + 1 : 0};
        if (r0_ + R > panel_.cols) return {0, 0};
        return {r0_ + R - panel_.reach, panel_.rows - BK + 1};
    }

    // Starts copying the next BK steps into `tile`; places past the stored elements become zero.
    __device__ void begin(T* tile) {
        copy<true>(tile, 0, 1);
        advance();
    }

    // Starts part `part` of `parts` of the same, for a step in full_range. Parts spread over the
    // multiplications keep the queue to shared memory free for their reads.
    __device__ void begin_part(T* tile, int part, int parts) {
        copy<false>(tile, part, parts);
        if (part == parts - 1) advance();
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

    // Makes steps [k0, k0 + BK) of a triangle those of a Hermitian matrix: a conjugate half, where told
    // so, and a real diagonal. To be called after this thread's copies have landed.
    __device__ void make_hermitian(T* tile, int k0, bool conj) const {
        change(tile, r_, k_, k0 - r0_, conj);
    }

  private:
    __device__ int r(int pass) const { return r_ + pass * (K_MAJOR ? WARPS * LANES_R : 32); }
    __device__ int k(int pass) const { return k_ + pass * (K_MAJOR ? LANES_K : WARPS); }

    // A call, so that the registers that this takes are not the main loop's.
    __device__ __noinline__ static void change(T* tile, int r, int k, int diagonal, bool conj) {
        for (int kp = 0; kp < K_PASSES; ++kp)
            for (int rp = 0; rp < R_PASSES; ++rp) {
                const int row = r + rp * (K_MAJOR ? WARPS * LANES_R : 32),
                          step = k + kp * (K_MAJOR ? LANES_K : WARPS);
                T& x = tile[Layout::at(row, step)];
                x = {x.re, row == step + diagonal ? 0 : conj ? -x.im : x.im};
            }
    }

    // To the rows of the next step. In a packed triangle each row is one longer than the last, so
    // the distance grows by the same amount every time.
    __device__ void advance() {
        k0_ += BK;
#pragma unroll
        for (int p = 0; p < ROWS; ++p) row_[p] += K_MAJOR ? BK : stride_ + bend_ * (p * WARPS);
        if (!K_MAJOR) stride_ += bend_ * BK;
    }

    template <bool MASKED>
    __device__ void copy(T* tile, int part, int parts) {
        constexpr int PASSES = K_PASSES * R_PASSES;
        const uint32_t to = ptx::shared_address(tile + Layout::at(r_, k_));
#pragma unroll
        for (int pass = 0; pass < PASSES; ++pass) {
            if (pass < PASSES * part / parts || pass >= PASSES * (part + 1) / parts) continue;
            const int kp = pass / R_PASSES, rp = pass % R_PASSES;
            const T* from = K_MAJOR ? row_[rp] + (k(kp) - k_) : row_[kp] + (r(rp) - r_);
            const uint32_t there =
                to + Layout::at(r(rp) - r_, k(kp) - k_) * static_cast<int>(sizeof(T));
            if (MASKED) {
                const int memory_row = K_MAJOR ? r0_ + r(rp) : k0_ + k(kp);
                const int memory_col = K_MAJOR ? k0_ + k(kp) : r0_ + r(rp);
                const bool valid =
                    memory_row < panel_.rows && memory_col < panel_.length(memory_row);
                ptx::cp_async<sizeof(T)>(there, valid ? from : panel_.data, valid);
            } else {
                ptx::cp_async<sizeof(T)>(there, from);
            }
        }
    }

    Panel<T> panel_;
    int r0_, k0_, r_, k_;
    static constexpr int ROWS = K_MAJOR ? R_PASSES : K_PASSES;
    const T* row_[ROWS];     // This lane's first element of each memory row that it copies from.
    int64_t stride_, bend_;  // When rows run along r: to the row BK further, and how that grows.
};

}  // namespace packedtri::cuda
