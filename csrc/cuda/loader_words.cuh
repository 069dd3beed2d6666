// Loads operand tiles of 16-bit elements. Rows of a packed triangle start at any even address, which
// neither wide copies nor ldmatrix accept: the aligned 16-byte words that hold a row are copied in the
// background as they are, and threads pick what they multiply out of them, 4 bytes at a time.
#pragma once

#include "panel.cuh"
#include "ptx.cuh"

namespace packedtri::cuda {

// A tile of R rows of A (or columns of B), its lines, by BK steps of k. A warp multiplies SIDE lines by
// CHUNK steps of k at a time. Of a chunk, lane l has the steps 8t ... 8t + 7, where t is l % 4; both
// operands agree in that, so that the order of the sum within a chunk is free to be the one in which
// a line along k is read by neighbours. What is multiplied at once are the steps 8t + 4q ... + 3.
template <class T, int R, int BK, int THREADS, bool K_MAJOR>
class WordLoader {
    static_assert(sizeof(T) == 2, "");
    static constexpr int ROWS = K_MAJOR ? R : BK, COLS = K_MAJOR ? BK : R;
    static constexpr int WORD = 8;  // Elements.
    static constexpr int WORDS = COLS / WORD;
    // A row that starts within a word has one more. Along k, eight lanes read in eight rows, and four
    // in every row, 16 bytes apart. The places of eight rows, modulo 16 bytes, are each in four bytes
    // that they share with one other row: rows of such a pair go to different halves of the banks.
    static constexpr int PITCH = COLS + (K_MAJOR ? 32 : WORD);
    static_assert(!K_MAJOR || PITCH % 64 == 32, "");
    static constexpr int ROWS_PER_PASS = THREADS / WORDS, PASSES = ROWS / ROWS_PER_PASS;
    static_assert(PASSES * ROWS_PER_PASS == ROWS && ROWS_PER_PASS % 4 == 0, "");
    static constexpr int LAST_PASSES = (ROWS + THREADS - 1) / THREADS;
    static_assert(LAST_PASSES == 1, "");

  public:
    static constexpr int SIZE = ROWS * PITCH;
    static constexpr int SIDE = 64, CHUNK = 32;

    // `line`: the first of this warp's lines.
    __device__ WordLoader(const Panel<T>& panel, int r0, int k0, int line)
        : panel_(panel), r0_(r0), k0_(k0) {
        const int R0 = memory_row(0), c0 = memory_col();
        from_ = panel.data + panel.row_offset(R0 + first_row()) + c0;
        last_from_ = panel.data + panel.row_offset(R0 + last_row()) + c0 + COLS;
        bend_ = panel.packed ? 1 : 0;
        step_ = panel.row_offset(R0 + first_row() + 1) - panel.row_offset(R0 + first_row());
        last_step_ = step_ + bend_ * (last_row() - first_row());
        const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
        line_ = line;
        if constexpr (K_MAJOR) {
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const int shift = row_shift(r0 + line + g + 8 * h, c0);
                at_[h] = place(line + g + 8 * h) * PITCH * 2 + shift / 2 * 4 + t * 16;
                odd_ = shift & 1;
            }
        } else {
#pragma unroll
            for (int x = 0; x < 8; ++x) {
                const int shift = row_shift(k0 + 8 * t + x, c0);
                at_[x] = (8 * t + x) * PITCH * 2 + shift / 2 * 4 + line * 2 + g * 16;
                odd_ |= static_cast<uint32_t>(shift & 1) << x;
            }
        }
    }

    // The k0 for which the tile's words lie inside the matrix.
    __device__ KRange plain_range() const {
        const int last = panel_.rows - 1;
        const auto reaches_end = [&](int col) { return col + WORD > panel_.length(last); };
        if (K_MAJOR) {
            if (r0_ + R > panel_.rows) return {0, 0};
            const int end = panel_.length(r0_) - BK + 1,
                      before_last = r0_ + R > last ? panel_.length(last) - BK - WORD + 1 : end;
            return {r0_ == 0 ? BK : 0, min(end, before_last)};
        }
        if (r0_ + R > panel_.cols) return {0, 0};
        const int begin = panel_.packed ? r0_ + R - panel_.reach : 0;
        return {max(begin, r0_ == 0 ? 1 : 0), panel_.rows - BK + (reaches_end(r0_ + R) ? 0 : 1)};
    }

    // Starts copying the words of the next tile to `to`. PLAIN: k0 is in plain_range.
    template <bool PLAIN>
    __device__ __forceinline__ void begin(uint32_t to) {
        const T* from = from_;
        int64_t step = step_;
        const uint32_t last_to = to + (place(last_row()) * PITCH + COLS) * 2;
        to += (place(first_row()) * PITCH + word() * WORD) * 2;
#pragma unroll
        for (int p = 0; p < PASSES; ++p) {
            const T* w = aligned(from) + word() * WORD;
            if (PLAIN) ptx::cp_async_16(to, w);
            else
                copy_word(to, w, first_row() + p * ROWS_PER_PASS,
                          word() * WORD - ptx::past_word(from));
            to += ROWS_PER_PASS * PITCH * 2;
            // ROWS_PER_PASS rows on.
            from += step * ROWS_PER_PASS + bend_ * (ROWS_PER_PASS * (ROWS_PER_PASS - 1) / 2);
            step += bend_ * ROWS_PER_PASS;
        }
        if (has_last()) {
            const int past = ptx::past_word(last_from_);
            if (PLAIN) {
                if (past > 0) ptx::cp_async_16(last_to, last_from_ - past);
            } else {
                copy_word(last_to, last_from_ - past, last_row(), COLS - past);
            }
        }
        k0_ += BK;
        if (K_MAJOR) {
            from_ += BK;
            last_from_ += BK;
        } else {
            from_ = from;
            step_ = step;
            last_from_ += last_step_ * BK + bend_ * (BK * (BK - 1) / 2);
            last_step_ += bend_ * BK;
        }
    }

    // Whether all elements of this warp's lines in the chunk at k are stored.
    __device__ bool full(int k) const {
        return K_MAJOR ? panel_.full(r0_ + line_, k, SIDE, CHUNK)
                       : panel_.full(k, r0_ + line_, CHUNK, SIDE);
    }

    // Words of a row along k: x[h][j] are the steps 8t + 2j and 8t + 2j + 1 in line g + 8h of the lines
    // from 16m on, where g is lane / 4. Unless the chunk is FULL, zeros take the places past the stored
    // elements; it starts at k of the operand.
    struct Along {
        uint32_t x[2][4];
    };
    template <bool FULL>
    __device__ __forceinline__ Along along(uint32_t tile, int chunk, int m, int k) const {
        Along words;
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            read_row(words.x[h], tile + at_[h] + m * 16 * PITCH * 2 + chunk * CHUNK * 2, odd_);
            if (!FULL) {
                const int lane = threadIdx.x % 32;
                clip(words.x[h], r0_ + line_ + m * 16 + h * 8 + lane / 4, k + lane % 4 * 8);
            }
        }
        return words;
    }

    // Across k: x[h][l] are the steps 8t + 4q + 2h and the next one in line 8g + l.
    struct Across {
        uint32_t x[2][8];
    };
    template <bool FULL>
    __device__ __forceinline__ Across across(uint32_t tile, int chunk, int q, int k) const {
        Across words;
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            uint32_t row[2][4];
#pragma unroll
            for (int y = 0; y < 2; ++y) {
                const int x = 4 * q + 2 * h + y;
                read_row(row[y], tile + at_[x] + chunk * CHUNK * PITCH * 2, odd_ >> x & 1);
                if (!FULL) clip(row[y], k + lane % 4 * 8 + x, r0_ + line_ + lane / 4 * 8);
            }
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                words.x[h][2 * j] = __byte_perm(row[0][j], row[1][j], 0x5410);
                words.x[h][2 * j + 1] = __byte_perm(row[0][j], row[1][j], 0x7632);
            }
        }
        return words;
    }

  private:
    // Of the next tile to copy, the first row in memory and where in it.
    __device__ int memory_row(int within) const { return (K_MAJOR ? r0_ : k0_) + within; }
    __device__ int memory_col() const { return K_MAJOR ? k0_ : r0_; }

    // Where a row of the tile lies: of four rows of a triangle, the first and the last start at
    // elements of one parity and the others of the other one, and the first of a pair (see PITCH) is
    // odd where the second is even.
    __device__ static constexpr int place(int row) { return K_MAJOR ? row ^ (row >> 1 & 1) : row; }

    // 8 elements of a row, whose first is the upper one in its 4 bytes where `odd`.
    __device__ static __forceinline__ void read_row(uint32_t (&x)[4], uint32_t from, uint32_t odd) {
        uint32_t w[5];
#pragma unroll
        for (int j = 0; j < 5; ++j) w[j] = ptx::load_shared(from + 4 * j);
        const uint32_t selector = odd ? 0x5432 : 0x3210;
#pragma unroll
        for (int j = 0; j < 4; ++j) x[j] = __byte_perm(w[j], w[j + 1], selector);
    }

    // Zeros for those of 8 elements from (row, col) on in memory that are not stored.
    __device__ __forceinline__ void clip(uint32_t (&x)[4], int row, int col) const {
        const int stored = row < panel_.rows ? panel_.length(row) - col : 0;
#pragma unroll
        for (int j = 0; j < 4; ++j)
            x[j] = 2 * j + 1 < stored ? x[j] : 2 * j < stored ? x[j] & 0xffffu : 0;
    }

    // The words that this thread copies, WORDS lanes a row, and then perhaps the last of last_row().
    __device__ static int word() { return threadIdx.x % WORDS; }
    __device__ static int first_row() { return threadIdx.x / WORDS; }
    __device__ static int last_row() { return threadIdx.x % ROWS; }
    __device__ static bool has_last() { return ROWS == THREADS || threadIdx.x < ROWS; }

    __device__ static const T* aligned(const T* p) { return p - ptx::past_word(p); }

    // past_word of element (row, c), where c is a multiple of WORD. The places of a triangle's rows
    // repeat every 16 rows modulo 8.
    __device__ int row_shift(int row, int c) const {
        const uint32_t base = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(panel_.data) / 2);
        const uint32_t bent = panel_.packed ? (row & 15) * ((row & 15) + 1) / 2 : 0;
        return static_cast<int>(
            (base + static_cast<uint32_t>(row) * static_cast<uint32_t>(panel_.ld) + bent + c) & 7);
    }

    // Copies the word at `from`, which begins with element `first` of the tile's row, if it has stored
    // elements. It may reach out of the matrix, into memory that is not ours.
    __device__ __forceinline__ void copy_word(uint32_t to, const T* from, int row,
                                              int first) const {
        const int in_memory = memory_row(row);
        const int stored =
            in_memory < panel_.rows ? min(COLS, panel_.length(in_memory) - memory_col()) : 0;
        if (stored <= 0 || first >= stored) return;
        const int last = panel_.rows - 1;
        const T* end = panel_.data + panel_.row_offset(last) + panel_.length(last);
        if (from >= panel_.data && from + WORD <= end) ptx::cp_async_16(to, from);
        else copy_elements(to, from, max(0, -first), min(WORD, stored - first));
    }
    __device__ static __noinline__ void copy_elements(uint32_t to, const T* from, int begin,
                                                      int end) {
        for (int e = begin; e < end; ++e)
            ptx::store_shared(to + e * 2, *reinterpret_cast<const uint16_t*>(from + e));
    }

    Panel<T> panel_;
    const T* from_;       // The start, in the next tile, of the first row that this thread copies.
    const T* last_from_;  // The element behind last_row().
    int64_t step_, last_step_,
        bend_;  // From one row to the next, and how much more that is each time.
    int r0_, k0_, line_;
    int at_[K_MAJOR ? 2 : 8];  // Where this lane's rows of a tile begin, in bytes.
    uint32_t odd_ = 0;         // Whether rows start in the upper half of 4 bytes, one bit for each.
};

}  // namespace packedtri::cuda
