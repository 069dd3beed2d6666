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
    // Memory rows that a lane copies from, and how far they are apart; and what it copies of each.
    static constexpr int ROWS = K_MAJOR ? R_PASSES : K_PASSES,
                         ROW_STEP = K_MAJOR ? WARPS * LANES_R : WARPS;
    static constexpr int COPIES = K_MAJOR ? K_PASSES : R_PASSES, ALONG = K_MAJOR ? LANES_K : 32;
    static constexpr int R_STEP = K_MAJOR ? ROW_STEP : ALONG, K_STEP = K_MAJOR ? ALONG : ROW_STEP;
    static constexpr int UNROLL = sizeof(T) == 8 ? 4 : 1;

  public:
    __device__ AsyncLoader(const Panel<T>& panel, int r0, int k0)
        : panel_(panel), r0_(r0), k0_(k0) {
        const int warp = ptx::thread_of<THREADS>() / 32, lane = threadIdx.x % 32;
        r_ = K_MAJOR ? warp * LANES_R + lane / LANES_K : lane;
        k_ = K_MAJOR ? lane % LANES_K : warp;
        const int row = memory_row();
        const int64_t start = panel.row_offset(row);
        from_ = panel.data + start + (K_MAJOR ? k0 + k_ : r0 + r_);
        gap_ = panel.row_offset(row + ROW_STEP) - start;
    }

    // The k0 for which steps [k0, k0 + BK) hold stored elements only.
    __device__ BasicKRange<int> full_range() const {
        if (K_MAJOR) return {0, r0_ + R <= panel_.rows ? panel_.length(r0_) - BK + 1 : 0};
        if (r0_ + R > panel_.cols) return {0, 0};
        return {r0_ + R - panel_.reach, panel_.rows - BK + 1};
    }

    // Starts copying the next BK steps into `tile`; places past the stored elements become zero.
    __device__ void begin(T* tile) {
        copy_rows<true>(tile);
        advance();
    }
    // The same without a question for each element where all are stored.
    __device__ void next(T* tile) {
        if (K_MAJOR ? panel_.full(r0_, k0_, R, BK) : panel_.full(k0_, r0_, BK, R))
            copy_rows<false>(tile);
        else copy_rows<true>(tile);
        advance();
    }

    // Starts part `part` of `parts` of the same, for a step in full_range. Parts spread over the
    // multiplications keep the queue to shared memory free for their reads.
    __device__ void begin_part(T* tile, int part, int parts) {
        constexpr int PASSES = K_PASSES * R_PASSES;
        const uint32_t to = ptx::shared_address(tile + Layout::at(r_, k_));
#pragma unroll
        for (int pass = 0; pass < PASSES; ++pass) {
            if (pass < PASSES * part / parts || pass >= PASSES * (part + 1) / parts) continue;
            const int kp = pass / R_PASSES, rp = pass % R_PASSES;
            const T* from =
                K_MAJOR ? further(from_, rp) + (k(kp) - k_) : further(from_, kp) + (r(rp) - r_);
            ptx::cp_async<sizeof(T)>(
                to + Layout::at(r(rp) - r_, k(kp) - k_) * static_cast<int>(sizeof(T)), from);
        }
        if (part == parts - 1) advance();
    }

    // Whether steps [k0, k0 + BK) hold structural zeros.
    __device__ bool crosses_diagonal(int k0) const {
        return K_MAJOR ? panel_.crosses_diagonal(r0_, k0, BK) : panel_.crosses_diagonal(k0, r0_, R);
    }

    // Conjugates what this thread has copied to a tile. To be called after that has landed.
    __device__ void conjugate(T* tile) const { conjugate(tile, r_, k_); }

  private:
    __device__ int r(int pass) const { return r_ + pass * R_STEP; }
    __device__ int k(int pass) const { return k_ + pass * K_STEP; }

    // A call, so that the registers that this takes are not the main loop's.
    __device__ __noinline__ static void conjugate(T* tile, int r, int k) {
        for (int kp = 0; kp < K_PASSES; ++kp)
            for (int rp = 0; rp < R_PASSES; ++rp) {
                T& x = tile[Layout::at(r + rp * R_STEP, k + kp * K_STEP)];
                x = {x.re, -x.im};
            }
    }

    // In a loop, whose code is short: it is what a tile starts with.
    template <bool MASKED>
    __device__ __forceinline__ void copy_rows(T* tile) {
        constexpr int NEXT = K_MAJOR ? Layout::at(ROW_STEP, 0) : Layout::at(0, ROW_STEP),
                      FURTHER = K_MAJOR ? Layout::at(0, ALONG) : Layout::at(ALONG, 0),
                      BYTES = static_cast<int>(sizeof(T));
        uint32_t to = ptx::shared_address(tile + Layout::at(r_, k_));
        int row = memory_row();
        const int col = K_MAJOR ? k0_ + k_ : r0_ + r_;
        const T* from = from_;
        int64_t gap = gap_;
#pragma unroll UNROLL
        for (int p = 0; p < ROWS; ++p) {
            const int length = row < panel_.rows ? panel_.length(row) : 0;
#pragma unroll
            for (int x = 0; x < COPIES; ++x) {
                const uint32_t there = to + x * FURTHER * BYTES;
                // Nothing is read at addresses where nothing is stored.
                if (MASKED)
                    ptx::cp_async<sizeof(T)>(there, from + x * ALONG, col + x * ALONG < length);
                else ptx::cp_async<sizeof(T)>(there, from + x * ALONG);
            }
            row += ROW_STEP;
            from += gap;
            gap += bend();
            to += NEXT * BYTES;
        }
    }

    // The first row of memory that this lane copies from.
    __device__ int memory_row() const { return K_MAJOR ? r0_ + r_ : k0_ + k_; }
    // By how much rows get further apart, which are one longer than the last in a packed triangle.
    __device__ int bend() const { return panel_.packed ? ROW_STEP * ROW_STEP : 0; }
    // From a place in the first row to the same one `p` of this lane's rows further.
    __device__ const T* further(const T* from, int p) const {
        return from + p * gap_ + p * (p - 1) / 2 * bend();
    }

    // To the rows of the next step.
    __device__ void advance() {
        k0_ += BK;
        if (K_MAJOR) {
            from_ += BK;
        } else {
            from_ = further(from_, ROWS);
            gap_ += ROWS * bend();
        }
    }

    Panel<T> panel_;
    int r0_, k0_, r_, k_;
    const T* from_;  // This lane's first element.
    int64_t gap_;    // To the next one of its rows.
};

}  // namespace packedtri::cuda
