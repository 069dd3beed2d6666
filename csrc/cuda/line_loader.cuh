// Loads operand tiles a line of memory at a time, with cp.async, one element a copy: for warps that do nothing
// else. Rows of a packed triangle have no alignment beyond the element's own.
#pragma once

#include "panel.cuh"
#include "ptx.cuh"

namespace packedtri::cuda {

// Of R rows of A (or columns of B) by BK steps of k, K-major when K_MAJOR (see Panel). The tile keeps the lines of
// memory as they are, in Layout.
template <class T, int R, int BK, int THREADS, bool K_MAJOR, class Layout>
class LineLoader {
    static constexpr int LINES = K_MAJOR ? R : BK, LENGTH = K_MAJOR ? BK : R;
    static constexpr int WARPS = THREADS / 32;
    static_assert(LINES % WARPS == 0 && LENGTH % 32 == 0, "every lane copies as much");
    static constexpr int UNROLL = LENGTH > 32 ? 2 : 8;

  public:
    __device__ LineLoader(const Panel<T>& panel, int r0, int k0)
        : panel_(panel), r0_(r0), k0_(k0) {}

    // Starts copying the next BK steps; places where nothing is stored become zero. Where a line begins follows from
    // the one before: in a packed triangle each is one element longer than the last.
    __device__ void next(T* tile) {
        const int thread = ptx::thread_of<THREADS>(), warp = thread / 32,
                  col = (K_MAJOR ? k0_ : r0_) + thread % 32;
        int row = (K_MAJOR ? r0_ : k0_) + warp;
        const int64_t start = panel_.row_offset(row);
        const T* from = panel_.data + start + col;
        int64_t gap = panel_.row_offset(row + WARPS) - start;
        const int bend = panel_.packed ? WARPS * WARPS : 0;
        uint32_t to = ptx::shared_address(tile + warp * Layout::pitch + thread % 32);
#pragma unroll UNROLL
        for (int line = 0; line < LINES; line += WARPS) {
            const int length = row < panel_.rows ? panel_.length(row) : 0;
#pragma unroll
            for (int x = 0; x < LENGTH; x += 32) {
                const bool valid = col + x < length;
                ptx::cp_async<sizeof(T)>(to + x * static_cast<int>(sizeof(T)),
                                         valid ? from + x : panel_.data, valid);
            }
            row += WARPS;
            from += gap;
            gap += bend;
            to += WARPS * Layout::pitch * static_cast<int>(sizeof(T));
        }
        k0_ += BK;
    }

  private:
    Panel<T> panel_;
    int r0_, k0_;
};

}  // namespace packedtri::cuda
