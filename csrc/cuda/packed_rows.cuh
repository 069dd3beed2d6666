// Rows of a packed matrix in shared memory as they lie in memory, beginning anywhere in a word of 16 bytes; and how
// warpgroups read those of 16-bit elements as left operands of their products, which tensor cores take from registers
// (those of float32: packed_floats.cuh).
#pragma once

#include "../index.h"
#include "hopper.cuh"

namespace packedtri::cuda {

// How far apart rows lie, and each 16 of them. What a warp reads at once lies in 32 different banks: of rows the same four
// words of two rows of each 16, of columns eight elements of every second of eight rows.
template <class T, int COLS>
struct PackedPitch {
    static constexpr int OF_ROW = COLS * 2 + 16, OF_8 = 8 * OF_ROW, OF_16 = 2 * OF_8 + 32;
};
// Of float32, of rows the same four words of one row of each eight; of columns eight elements of such four of 16 rows as
// begin at the same place of a word.
template <>
struct PackedPitch<float, 64> {
    static constexpr int OF_ROW = 64 * 4 + 16, OF_8 = 8 * OF_ROW + 16, OF_16 = 2 * OF_8;
};
template <>
struct PackedPitch<float, 128> {
    static constexpr int OF_ROW = 128 * 4 + 32, OF_8 = 8 * OF_ROW + 64, OF_16 = 2 * OF_8;
};

// Some rows of COLS elements each, counted from a multiple of 16 on.
template <class T, int COLS>
struct PackedRows {
    using Pitch = PackedPitch<T, COLS>;
    static constexpr int WORD = 16, ELEMENTS = WORD / static_cast<int>(sizeof(T)),
                         PITCH_16 = Pitch::OF_16;
    static constexpr int bytes(int rows) { return rows / 16 * PITCH_16; }

    char* first;
    int place;  // Of row 0 in its word.

    __device__ PackedRows(char* first, const T* triangle)
        : first(first), place(ptx::past_word(triangle)) {}

    __device__ int place_of(int row) const {
        const int r = row % 16;
        return (place + r * (r + 1) / 2) % ELEMENTS;
    }
    // Where the word of its first element lies.
    __device__ char* row(int row) const {
        return first + row / 16 * PITCH_16 + row % 16 / 8 * Pitch::OF_8 + row % 8 * Pitch::OF_ROW;
    }

    // Has the copy engine bring the words of `length` elements of a row, which begin at `from`; `end` is where the matrix
    // ends. They count at `barrier`, at which the caller arrives.
    __device__ void copy(int row, const T* from, int length, const T* end, uint32_t barrier) const {
        if (length <= 0) return;
        const int begin = place_of(row);
        int words = (begin + length + ELEMENTS - 1) / ELEMENTS;
        from -= begin;
        char* const to = this->row(row);
        // The word in which the matrix ends may reach out of its memory.
        if (from + words * ELEMENTS > end) {
            --words;
            for (int e = max(begin, words * ELEMENTS); e < begin + length; ++e)
                reinterpret_cast<T*>(to)[e] = from[e];
            ptx::bulk_fence();
        }
        if (words == 0) return;
        ptx::mbarrier_expect(barrier, words * WORD);
        ptx::bulk_load(ptx::shared_address(to), from, words * WORD, barrier);
    }
};

// What lanes have of 64 rows, as left operands of 16 columns each. Which row is which of a product does not matter: the
// lanes of a warp have such as begin at the same place of a word, that is rows r and 15 - r of each 16.
template <class T, int COLS>
class LeftRows {
  public:
    // Of the 64 rows from `first` on, of which row r of all has `stored` + r elements.
    __device__ LeftRows(const PackedRows<T, COLS>& rows, int first, int stored) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const int r = first + row_of(h), place = rows.place_of(r);
            line_[h] = rows.row(r) + place / 2 * 4 + t() * 4;
            order_[h] = place % 2 ? 0x5432 : 0x3210;
            stored_[h] = stored + r - 2 * t();
        }
    }
    // The row of the 64 whose sums a lane has in half `h` of a product.
    __device__ static int row_of(int h) {
        const int r = static_cast<int>(threadIdx.x) / 32 % 4 * 2 + h, g = lane() / 4;
        return g / 2 * 16 + (g % 2 ? 15 - r : r);
    }
    // The 16 columns from k on, zeros where nothing is stored; PARTLY: if that may be.
    template <bool PARTLY>
    __device__ __forceinline__ void load(uint32_t (&a)[4], int k) const {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            const int col = k + e / 2 * 8;
            const auto* words = reinterpret_cast<const uint32_t*>(line_[e % 2] + col * 2);
            a[e] = __byte_perm(words[0], words[1], order_[e % 2]);
            if (PARTLY) a[e] &= ptx::low_bits(16 * max(0, stored_[e % 2] - col));
        }
    }

  private:
    __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }
    __device__ static int t() { return lane() % 4; }
    const char* line_[2];
    uint32_t order_[2];
    int stored_[2];
};

// What lanes have of 64 columns, as left operands of 16 rows each.
template <class T, int COLS>
class LeftColumns {
    using Rows = PackedRows<T, COLS>;

  public:
    // Of the columns from `first` on. There are `count` rows, and column j of row r is stored if j < `stored` + r.
    __device__ LeftColumns(const Rows& rows, int first, int count, int stored) {
        const int t = static_cast<int>(threadIdx.x) % 4, column = first + column_of(0);
        // Of each 16 rows a lane reads 2 t, its neighbour, and these 8 further down.
#pragma unroll
        for (int y = 0; y < 4; ++y) {
            const int r = 2 * t + y / 2 * 8 + y % 2;
            line_[y] = rows.row(r) + (rows.place_of(r) + column) * 2;
        }
        count_ = count - 2 * t;
        past_ = column - stored - 2 * t + 1;
    }
    // The column of 64 whose sums a lane has in half `h` of a product.
    __device__ static int column_of(int h) {
        return static_cast<int>(threadIdx.x) / 32 % 4 * 16 +
               static_cast<int>(threadIdx.x) % 32 / 4 + 8 * h;
    }
    // The 16 rows from k on, `away` columns further, zeros where nothing is stored; PARTLY: if that may be.
    template <bool PARTLY>
    __device__ __forceinline__ void load(uint32_t (&a)[4], int k, int away = 0) const {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            const int row = k + e / 2 * 8, col = away + e % 2 * 8;
            const auto element = [&](int y) -> uint32_t {
                return *reinterpret_cast<const uint16_t*>(line_[e / 2 * 2 + y] +
                                                          k / 16 * Rows::PITCH_16 + col * 2);
            };
            a[e] = __byte_perm(element(0), element(1), 0x5410);
            // Of a pair of rows the lower one may be past the end, and the upper one above the diagonal.
            if (PARTLY)
                a[e] &= ptx::low_bits(16 * max(0, count_ - row)) &
                        ~ptx::low_bits(16 * max(0, past_ + col - row));
        }
    }

  private:
    const char* line_[4];
    int count_, past_;
};

}  // namespace packedtri::cuda
