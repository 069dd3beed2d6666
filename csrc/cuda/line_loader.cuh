// Loads operand tiles of large float64 products a line of memory at a time (line_tile.h): for warps that do nothing else.
#pragma once

#include "hopper.cuh"
#include "line_tile.h"
#include "panel.cuh"

namespace packedtri::cuda {

// Of a packed triangle by bulk copies of whole lines, where all of the tile is stored, since they take nothing from products
// that read shared memory; else by cp.async, an element a copy. Each warp has every so manieth line.
template <int THREADS, class Tile>
class LineLoader {
    static constexpr bool K_MAJOR = Tile::K_MAJOR;
    static constexpr int WARPS = THREADS / 32, LINES = Tile::LINES / WARPS, LENGTH = Tile::LENGTH;
    static constexpr int ELEMENT = sizeof(double), PAIR = 2 * ELEMENT;
    static_assert(WARPS == 4 && LENGTH % 32 == 0, "lines of a warp begin alike");
    static constexpr int UNROLL = LENGTH > 32 ? 2 : 8;

  public:
    __device__ LineLoader(const Panel<double>& panel, int r0, int k0)
        : panel_(panel), r0_(r0), k0_(k0), flip_(flips(panel)) {}

    // Whether lines are those that LineTile calls flipped.
    __device__ static bool flips(const Panel<double>& x) {
        return alternates(x) && reinterpret_cast<uintptr_t>(x.data) % PAIR != 0;
    }

    // Starts copying the next steps, which count at `full`; places where nothing is stored become zero. Where a line
    // begins follows from the one before: in a packed triangle each is one element longer than the last.
    __device__ void next(double* tile, uint32_t full) {
        const int thread = ptx::thread_of<THREADS>(), warp = __shfl_sync(~0u, thread / 32, 0);
        const int first = K_MAJOR ? r0_ : k0_, col = K_MAJOR ? k0_ : r0_, row = first + warp;
        const int64_t start = panel_.row_offset(row), gap = panel_.row_offset(row + WARPS) - start;
        const double* from = panel_.data + start + col;
        const int shift = Tile::shift(warp, flip_);
        const uint32_t to = ptx::shared_address(tile + Tile::place(warp));
        if (whole(first, col)) {
            if (ptx::elect()) copy_lines(to, from - shift, gap, shift, full);
            __syncwarp();
        } else {
            copy_elements(to + shift * ELEMENT, from, gap, row, col);
        }
        k0_ += Tile::BK;
    }

  private:
    // Whether lines begin at odd elements where those of a packed triangle do, or just where they do not.
    __device__ static bool alternates(const Panel<double>& x) { return x.packed && x.ld % 2 == 0; }
    // Whether words of 16 bytes hold the lines of the tile and nothing that is not there.
    __device__ bool whole(int row, int col) const {
        return alternates(panel_) && panel_.full(row, col, Tile::LINES, LENGTH) && row + col > 0 &&
               panel_.row_offset(row + Tile::LINES - 1) + col + LENGTH < panel_.end;
    }
    __device__ int bend() const { return panel_.packed ? WARPS * WARPS : 0; }
    // To the place of the warp's next line.
    __device__ static constexpr int advance(int line) {
        return Tile::place((line + 1) * WARPS) - Tile::place(line * WARPS);
    }

    __device__ __forceinline__ void copy_lines(uint32_t to, const double* from, int64_t gap,
                                               int shift, uint32_t full) const {
        const int bytes = LENGTH * ELEMENT + shift * PAIR;
        // What other copies have written to the stage before.
        ptx::bulk_fence();
        ptx::mbarrier_expect(full, LINES * bytes);
#pragma unroll 8
        for (int line = 0; line < LINES; ++line) {
            ptx::bulk_load(to, from, bytes, full);
            to += advance(line) * ELEMENT;
            from += gap;
            gap += bend();
        }
    }

    __device__ __forceinline__ void copy_elements(uint32_t to, const double* from, int64_t gap,
                                                  int row, int col) const {
        const int lane = static_cast<int>(threadIdx.x) % 32;
        to += lane * ELEMENT;
        from += lane;
        col += lane;
#pragma unroll UNROLL
        for (int line = 0; line < LINES; ++line) {
            const int length = row < panel_.rows ? panel_.length(row) : 0;
#pragma unroll
            for (int x = 0; x < LENGTH; x += 32) {
                const bool valid = col + x < length;
                ptx::cp_async<ELEMENT>(to + x * ELEMENT, valid ? from + x : panel_.data, valid);
            }
            row += WARPS;
            from += gap;
            gap += bend();
            to += advance(line) * ELEMENT;
        }
    }

    const Panel<double> panel_;
    const int r0_;
    int k0_;
    const bool flip_;
};

}  // namespace packedtri::cuda
