// Loads float64 tiles with the copy engine of Hopper, and reads fragments of them. The engine wants
// an alignment of 16 bytes where rows of a packed triangle have 8: a row is copied from the element
// before its first where needed, and then lies one element further in its place.
#pragma once

#include "hopper.cuh"
#include "panel.cuh"

namespace packedtri::cuda {

// Which of 8 neighbours comes at place x, and its inverse. Rows i(i+1)/2 of a packed triangle have
// the alignment of 0, 1, 1, 0 elements, over and over. In this order four rows of one alignment
// come first and four of the other follow; and x and x + 1, x even, are always 4 apart.
__device__ constexpr int spread(int x) {
    return (x & ~7) | (x & 1) << 2 | (x & 2) | (x >> 1 & 1 ^ x >> 2 & 1);
}
__device__ constexpr int place(int i) {
    return (i & ~7) | ((i ^ i >> 1) & 1) << 2 | (i & 2) | (i >> 2 & 1);
}

// R rows of A (or columns of B) by BK steps of k: LINES rows of memory of LENGTH elements. Lines
// lie in the order of their places.
template <int R, int BK, bool K_MAJOR>
struct BulkTile {
    static constexpr bool k_major = K_MAJOR;
    static constexpr int LINES = K_MAJOR ? R : BK, LENGTH = K_MAJOR ? BK : R;
    // Half a warp reads 4 x 4 elements of 8 bytes: of four neighbouring places those at 0, 3, 4, 7
    // (or 1, 2, 5, 6) of a K-major tile, and four side by side otherwise. With these starts they
    // are in 16 different pairs of banks.
    static constexpr int PITCH = LENGTH + 4;
    static constexpr int size = PITCH * LINES;
    static_assert(LENGTH % 16 == 0 && LINES % 8 == 0, "");

    __device__ static constexpr int start(int at_place) {
        return at_place * PITCH - (K_MAJOR ? at_place % 2 * 2 : 0);
    }
};

// One operand of a tile: where its rows are in memory, and by how much they are shifted.
template <class Tile>
class BulkOperand {
  public:
    __device__ BulkOperand(const Panel<double>& panel, int r0) : panel_(panel), r0_(r0) {}

    // By `threads` threads: starts copying steps [k0, k0 + BK) to `tile`. Places past the diagonal get what
    // is in memory there, and those outside of the operand's memory keep what they had.
    __device__ void begin(double* tile, int k0, uint32_t barrier, int thread, int threads) const {
        for (int line = thread; line < Tile::LINES; line += threads)
            if (row0(k0) + line < panel_.rows)
                copy(tile + Tile::start(place(line)), first(line, k0), barrier);
    }

    // Whether steps [k0, k0 + steps) hold stored elements only.
    __device__ bool full(int k0, int steps) const {
        return Tile::k_major ? panel_.full(r0_, k0, Tile::LINES, steps)
                             : panel_.full(k0, r0_, steps, Tile::LENGTH);
    }
    // Whether (r, k), r within the tile, is a stored element.
    __device__ bool stored(int r, int k) const {
        const int row = Tile::k_major ? r0_ + r : k, col = Tile::k_major ? k : r0_ + r;
        return row < panel_.rows && col < panel_.length(row);
    }
    // 1 where the line's elements lie one further.
    __device__ int shift(int line, int k0) const { return odd(first(line, k0)); }
    // A stored element; k counts from the tile's first step, k0.
    __device__ double at(const double* tile, int r, int k, int k0) const {
        const int line = Tile::k_major ? r : k, x = Tile::k_major ? k : r;
        return tile[Tile::start(place(line)) + x + shift(line, k0)];
    }

  private:
    __device__ static int odd(const double* p) { return reinterpret_cast<uintptr_t>(p) / 8 % 2; }
    __device__ int row0(int k0) const { return Tile::k_major ? r0_ : k0; }
    __device__ const double* first(int line, int k0) const {
        return panel_.data + panel_.row_offset(row0(k0) + line) + (Tile::k_major ? k0 : r0_);
    }

    // Copies a line, and what it takes to align both ends. Only the first and the last element of
    // the operand's memory may have no neighbour of ours; they are copied by themselves.
    __device__ void copy(double* line, const double* from, uint32_t barrier) const {
        const int last = panel_.rows - 1;
        const double* memory_end = panel_.data + panel_.row_offset(last) + panel_.length(last);
        const double* to = from + Tile::LENGTH < memory_end ? from + Tile::LENGTH : memory_end;
        if (from >= to) return;
        const double *begin = from - odd(from), *end = to + odd(to);
        if (begin < panel_.data) {
            line[1] = *from;
            ptx::bulk_fence();
            begin += 2;
            line += 2;
        }
        if (end > memory_end) {
            end -= 2;
            line[end - begin] = *end;
            ptx::bulk_fence();
        }
        if (end <= begin) return;
        const auto bytes = static_cast<uint32_t>(end - begin) * 8;
        ptx::mbarrier_expect(barrier, bytes);
        ptx::bulk_load(ptx::shared_address(line), begin, bytes, barrier);
    }

    Panel<double> panel_;
    int r0_;
};

// What one lane of a 16 x 8 x 16 product reads of an operand: rows g + 8 h of the warp's part, and
// steps t + 4 y, by their places. The tile's lines change their order; so do the warp's rows when
// the tile is K-major, and the steps of k always, which both operands must agree on.
template <class Tile>
class BulkFragment {
  public:
    static_assert(Tile::LENGTH > 0, "");
    // warp_r: the warp's first row within the tile.
    __device__ BulkFragment(const BulkOperand<Tile>& operand, int warp_r, int k0)
        : operand_(operand) {
        const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
        r_ = warp_r + row(g);
#pragma unroll
        for (int odd = 0; odd < 2; ++odd)
            from_[odd] = Tile::k_major ? Tile::start(warp_r + g) + k(odd) + operand.shift(r_, k0)
                                       : Tile::start(t) + r_ + operand.shift(k(odd), k0);
    }

    // The row at place g of 8.
    __device__ static constexpr int row(int g) { return Tile::k_major ? spread(g) : g; }

    // Element (8 h, 4 y) from the lane's first on; k16 is a multiple of 16.
    __device__ double read(const double* tile, int k16, int h, int y) const {
        return tile[from_[y % 2] + offset(k16, h, y)];
    }
    // The same, zero where nothing is stored; k0 is the tile's first step.
    __device__ double read_stored(const double* tile, int k0, int k16, int h, int y) const {
        return operand_.stored(r_ + 8 * h, k0 + k16 + y / 2 * 8 + k(y % 2)) ? read(tile, k16, h, y)
                                                                            : 0.0;
    }

  private:
    __device__ static int k(int odd) { return spread(threadIdx.x % 4) ^ odd; }
    __device__ static constexpr int offset(int k16, int h, int y) {
        return Tile::k_major ? 8 * h * Tile::PITCH + k16 + y / 2 * 8
                             : (k16 + 4 * y) * Tile::PITCH + 8 * h;
    }

    const BulkOperand<Tile>& operand_;
    int r_, from_[2];
};

}  // namespace packedtri::cuda
