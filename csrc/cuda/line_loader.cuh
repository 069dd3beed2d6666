// Loads operand tiles a line of memory at a time, with cp.async, one element a copy: for warps that do nothing
// else. Rows of a packed triangle have no alignment beyond the element's own.
#pragma once

#include "panel.cuh"
#include "ptx.cuh"

namespace packedtri::cuda {

// Of R rows of A (or columns of B) by BK steps of k, K-major when K_MAJOR (see Panel). The tile keeps the lines of
// memory as they are, in Layout.
template <class T, int R, int BK, bool K_MAJOR, class Layout, int THREADS>
struct LineLoader {
    static constexpr int LINES = K_MAJOR ? R : BK, LENGTH = K_MAJOR ? BK : R;
    static constexpr int WARPS = THREADS / 32;
    static_assert(LINES % WARPS == 0 && LENGTH % 32 == 0, "every lane copies as much");

    // Starts copying what comes from row r0 and step k0 on, by thread `thread` of THREADS; places where nothing is
    // stored become zero. Where a line begins follows from the one before: in a packed triangle each is one
    // element longer than the last.
    __device__ static void begin(const Panel<T>& panel, T* tile, int r0, int k0, int thread) {
        const int warp = thread / 32, col = (K_MAJOR ? k0 : r0) + thread % 32;
        int row = (K_MAJOR ? r0 : k0) + warp;
        const int64_t start = panel.row_offset(row);
        const T* from = panel.data + start + col;
        int64_t gap = panel.row_offset(row + WARPS) - start;
        const int bend = panel.packed ? WARPS * WARPS : 0;
        uint32_t to = ptx::shared_address(tile + warp * Layout::pitch + thread % 32);
#pragma unroll UNROLL
        for (int line = 0; line < LINES; line += WARPS) {
            const int length = row < panel.rows ? panel.length(row) : 0;
#pragma unroll
            for (int x = 0; x < LENGTH; x += 32) {
                const bool valid = col + x < length;
                ptx::cp_async<sizeof(T)>(to + x * static_cast<int>(sizeof(T)),
                                         valid ? from + x : panel.data, valid);
            }
            row += WARPS;
            from += gap;
            gap += bend;
            to += WARPS * Layout::pitch * static_cast<int>(sizeof(T));
        }
    }

  private:
    static constexpr int UNROLL = LENGTH > 32 ? 2 : 8;
};

}  // namespace packedtri::cuda
