// How warpgroups read packed rows of float32 as left operands of products of bfloat16, of which each element is three
// (bfloat16_parts.cuh). The order of the steps of a sum does not matter, so lanes read what lies in different banks, and the
// right operand has its steps in the same order (FloatSteps).
#pragma once

#include "packed_rows.cuh"

namespace packedtri::cuda {

// In which place of 16 steps of a product a row of the right operand stands: lane t of each four has, as the elements 2 t,
// 2 t + 1, 2 t + 8 and 2 t + 9 of a step, slots 0 to 3.
struct FloatSteps {
    __device__ static int place(int t, int slot) { return 2 * t + slot % 2 + slot / 2 * 8; }
    // Beside rows a lane has column t of each four.
    __device__ static int beside_rows(int k) { return place(k % 4, k / 4); }
    // Beside columns a slot has the four rows that begin at the same place of a word: r, 7 - r, 8 + r and 15 - r.
    __device__ static int beside_columns(int k) {
        const int r = k % 8, down = r > 3;
        return place(k / 8 * 2 + down, down ? 7 - r : r);
    }
    __device__ static int row(int t, int slot) { return t / 2 * 8 + (t % 2 ? 7 - slot : slot); }
};

// What lanes have of 64 rows, as left operands of 16 columns each. The lanes of a warp have such as begin at the same place
// of a word, that is rows r and 7 - r of each eight.
class LeftFloatRows {
    using Rows = PackedRows<float, 64>;

  public:
    // Of the 64 rows from `first` on, of which row r of all has `stored` + r elements.
    __device__ LeftFloatRows(const Rows& rows, int first, int stored) {
        const int t = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const int r = first + row_of(h);
            line_[h] = reinterpret_cast<const float*>(rows.row(r)) + rows.place_of(r) + t;
            stored_[h] = stored + r - t;
        }
    }
    // The row of the 64 whose sums a lane has in half `h` of a product.
    __device__ static int row_of(int h) {
        const int r = static_cast<int>(threadIdx.x) / 32 % 4;
        return static_cast<int>(threadIdx.x) % 32 / 4 * 8 + (h ? 7 - r : r);
    }
    // The two elements of word `e` of the 16 columns from k on, zeros where nothing is stored; PARTLY: if that may be.
    template <bool PARTLY>
    __device__ __forceinline__ void load(float (&x)[2], int e, int k) const {
#pragma unroll
        for (int y = 0; y < 2; ++y) {
            const int col = k + e / 2 * 8 + y * 4;
            x[y] = line_[e % 2][col];
            if (PARTLY && col >= stored_[e % 2]) x[y] = 0;
        }
    }

  private:
    const float* line_[2];
    int stored_[2];
};

// What lanes have of 64 columns, as left operands of 16 rows each.
class LeftFloatColumns {
    using Rows = PackedRows<float, 128>;

  public:
    // Of the columns from `first` on. There are `count` rows, and column j of row r is stored if j < `stored` + r.
    __device__ LeftFloatColumns(const Rows& rows, int first, int count, int stored)
        : t_(static_cast<int>(threadIdx.x) % 4), count_(count),
          past_(first + column_of(0) - stored) {
#pragma unroll
        for (int slot = 0; slot < 4; ++slot) {
            const int r = FloatSteps::row(t_, slot);
            line_[slot] = reinterpret_cast<const float*>(rows.row(r)) + rows.place_of(r) + first +
                          column_of(0);
        }
    }
    // The column of 64 whose sums a lane has in half `h` of a product.
    __device__ static int column_of(int h) {
        return static_cast<int>(threadIdx.x) / 32 % 4 * 16 +
               static_cast<int>(threadIdx.x) % 32 / 4 + 8 * h;
    }
    // As of rows, of the 16 rows from k on.
    template <bool PARTLY>
    __device__ __forceinline__ void load(float (&x)[2], int e, int k) const {
#pragma unroll
        for (int y = 0; y < 2; ++y) {
            const int slot = e / 2 * 2 + y, col = e % 2 * 8;
            x[y] = line_[slot][k / 16 * (Rows::PITCH_16 / 4) + col];
            const int row = k + FloatSteps::row(t_, slot);
            if (PARTLY && (row >= count_ || past_ + col >= row)) x[y] = 0;
        }
    }

  private:
    const float* line_[4];
    const int t_, count_, past_;
};

}  // namespace packedtri::cuda
