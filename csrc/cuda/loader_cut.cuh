// Loads operand tiles of 16-bit elements. Rows of a packed triangle start at any even address, which
// no wide copy accepts: the aligned 16-byte words that hold a row are copied in the background as
// they are, and the row is cut out of them from shared memory to shared memory.
#pragma once

#include "chunk.cuh"
#include "panel.cuh"
#include "scalar.cuh"

namespace packedtri::cuda {

// Tiles keep the order of memory: Layout is K-major exactly when the source is.
template <class T, int R, int BK, int THREADS, class Layout>
class CutLoader {
    static_assert(sizeof(T) == 2, "");
    static constexpr bool K_MAJOR = Layout::k_major;
    static constexpr int ROWS = K_MAJOR ? R : BK, COLS = K_MAJOR ? BK : R;
    static constexpr int WORD = 8;  // Elements.
    static constexpr int WORDS = COLS / WORD;
    // A row that starts within a word has a last one. The odd number of words keeps eight lanes that
    // read in eight rows in different banks.
    static constexpr int PITCH = (WORDS + 1) * WORD;
    static constexpr int ROWS_PER_PASS = THREADS / WORDS, PASSES = ROWS / ROWS_PER_PASS;
    // What a thread cuts at once: for each word it reads little more than it writes.
    static constexpr int RUN = 4;
    static_assert(THREADS * RUN == ROWS * WORDS && PASSES * ROWS_PER_PASS == ROWS, "");

  public:
    static constexpr int RAW_SIZE = ROWS * PITCH;

    __device__ CutLoader(const Panel<T>& panel, int r0, int k0) : panel_(panel), r0_(r0), k0_(k0) {
        const int R0 = memory_row(0, k0), c0 = memory_col(k0);
#pragma unroll
        for (int p = 0; p < PASSES; ++p)
            from_[p] = panel.data + panel.row_offset(R0 + pass_row(p)) + c0;
        last_from_ = panel.data + panel.row_offset(R0 + row()) + c0 + COLS;
        stride_ = panel.row_offset(R0 + pass_row(0) + BK) - panel.row_offset(R0 + pass_row(0));
        bend_ = panel.packed ? BK : 0;
    }

    // The k0 for which the tile's words lie inside the matrix and hold stored elements only.
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

    // Starts copying the words of the next tile, whose k0 is `plain`, to `raw`.
    __device__ __forceinline__ void begin(T* raw, bool plain) {
        const uint32_t to = ptx::shared_address(raw + pass_row(0) * PITCH + word() * WORD),
                       last_to = ptx::shared_address(raw + row() * PITCH + COLS);
        constexpr int STEP = ROWS_PER_PASS * PITCH * static_cast<int>(sizeof(T));
        if (plain) {
#pragma unroll
            for (int p = 0; p < PASSES; ++p)
                ptx::cp_async_16(to + p * STEP, aligned(from_[p]) + word() * WORD);
            if (has_last() && ptx::past_word(last_from_) > 0)
                ptx::cp_async_16(last_to, aligned(last_from_));
        } else {
#pragma unroll
            for (int p = 0; p < PASSES; ++p)
                copy_word(to + p * STEP, aligned(from_[p]) + word() * WORD, pass_row(p),
                          word() * WORD - ptx::past_word(from_[p]));
            if (has_last())
                copy_word(last_to, aligned(last_from_), row(), COLS - ptx::past_word(last_from_));
        }
        advance();
    }

    // What `cut` works on: a run of words of one row.
    struct Words {
        uint4 x[RUN + 1];
    };
    __device__ Words read(const T* raw) const {
        const T* from = raw + row() * PITCH + col();
        Words words;
#pragma unroll
        for (int x = 0; x <= RUN; ++x)
            words.x[x] = *reinterpret_cast<const uint4*>(from + x * WORD);
        return words;
    }

    // Writes the tile that starts at k0. Unless that is PLAIN, zeros take the places past the stored
    // elements, and the result is whether one of these is infinite or nan.
    template <bool PLAIN>
    __device__ __forceinline__ bool cut(const Words& words, T* tile, int k0) const {
        const int R0 = memory_row(0, k0), c0 = memory_col(k0);
        uint32_t w[4 * (RUN + 1)];
#pragma unroll
        for (int x = 0; x <= RUN; ++x) {
            w[4 * x] = words.x[x].x, w[4 * x + 1] = words.x[x].y;
            w[4 * x + 2] = words.x[x].z, w[4 * x + 3] = words.x[x].w;
        }
        shift_words(w, row_shift(R0 + row(), c0));
        uint32_t marks = 0;
        if (!PLAIN) {
            const int stored = valid(R0 + row(), c0) - col();
#pragma unroll
            for (int x = 0; x < 4 * RUN; ++x) {
                w[x] = 2 * x + 1 < stored ? w[x] : 2 * x < stored ? w[x] & 0xffffu : 0;
                marks |= nonfinite_pair(w[x], T{});
            }
        }
#pragma unroll
        for (int x = 0; x < RUN; ++x) {
            const int c = col() + x * WORD;
            *reinterpret_cast<uint4*>(tile +
                                      (K_MAJOR ? Layout::at(row(), c) : Layout::at(c, row()))) =
                make_uint4(w[4 * x], w[4 * x + 1], w[4 * x + 2], w[4 * x + 3]);
        }
        return marks != 0;
    }

  private:
    // Of the tile that starts at k0, the first row in memory and where in it.
    __device__ int memory_row(int within, int k0) const { return (K_MAJOR ? r0_ : k0) + within; }
    __device__ int memory_col(int k0) const { return K_MAJOR ? k0 : r0_; }

    // What this thread cuts, RUN words of a row from `col` on: eight lanes have eight rows.
    __device__ static int row() { return threadIdx.x % ROWS; }
    __device__ static int col() { return threadIdx.x / ROWS * (RUN * WORD); }

    // The words that this thread copies, WORDS lanes a row, and then perhaps the last of row().
    __device__ static int word() { return threadIdx.x % WORDS; }
    __device__ static int pass_row(int pass) { return threadIdx.x / WORDS + pass * ROWS_PER_PASS; }
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

    // How many of the tile's elements in a row are stored ones.
    __device__ int valid(int row, int c0) const {
        return row < panel_.rows ? max(0, min(COLS, panel_.length(row) - c0)) : 0;
    }

    // Copies the word at `from`, which begins with element `first` of the tile's row, if it has stored
    // elements. It may reach out of the matrix, into memory that is not ours.
    __device__ __forceinline__ void copy_word(uint32_t to, const T* from, int row,
                                              int first) const {
        const int stored = valid(memory_row(row, k0_), memory_col(k0_));
        if (stored == 0 || first >= stored) return;
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

    // To the rows of the next tile; see AsyncLoader::advance.
    __device__ void advance() {
        k0_ += BK;
#pragma unroll
        for (int p = 0; p < PASSES; ++p)
            from_[p] += K_MAJOR ? BK : stride_ + bend_ * (p * ROWS_PER_PASS);
        last_from_ += K_MAJOR ? BK : stride_ + bend_ * (row() - pass_row(0));
        if (!K_MAJOR) stride_ += bend_ * BK;
    }

    Panel<T> panel_;
    const T* from_[PASSES];  // The row's first element in the next tile, not this thread's word.
    const T* last_from_;     // The element behind its row's last.
    int64_t stride_, bend_;
    int r0_, k0_;
};

}  // namespace packedtri::cuda
