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
        last_from_ = panel.data + panel.row_offset(R0 + last_row()) + c0 + COLS;
        stride_ = panel.row_offset(R0 + pass_row(0) + BK) - panel.row_offset(R0 + pass_row(0));
        bend_ = panel.packed ? BK : 0;
    }

    // Starts copying the words of the next tile to `raw`.
    __device__ void begin(T* raw) {
        const int R0 = memory_row(0, k0_), c0 = memory_col(k0_);
        if (touches_the_ends(R0, c0)) copy_words(raw, R0, c0);
        else if (panel_.full(R0, c0, ROWS, COLS)) copy_words<false>(raw, R0, c0);
        else copy_words<true>(raw, R0, c0);
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

    // Writes the tile that starts at k0, zeros past the stored elements. Returns whether one of these
    // is infinite or nan, if that matters.
    __device__ bool cut(const Words& words, T* tile, int k0, bool matters) const {
        const int R0 = memory_row(0, k0), c0 = memory_col(k0);
        uint32_t w[4 * (RUN + 1)];
#pragma unroll
        for (int x = 0; x <= RUN; ++x) {
            w[4 * x] = words.x[x].x, w[4 * x + 1] = words.x[x].y;
            w[4 * x + 2] = words.x[x].z, w[4 * x + 3] = words.x[x].w;
        }
        const int shift = row_shift(R0 + row(), c0);
        const bool four = shift & 4, two = shift & 2;
#pragma unroll
        for (int x = 0; x < 4 * RUN + 2; ++x) w[x] = four ? w[x + 2] : w[x];
#pragma unroll
        for (int x = 0; x < 4 * RUN + 1; ++x) w[x] = two ? w[x + 1] : w[x];
#pragma unroll
        for (int x = 0; x < 4 * RUN; ++x) w[x] = __funnelshift_r(w[x], w[x + 1], (shift & 1) * 16);
        if (!panel_.full(R0, c0, ROWS, COLS)) {
            const int stored = valid(R0 + row(), c0) - col();
#pragma unroll
            for (int x = 0; x < 4 * RUN; ++x)
                w[x] = 2 * x + 1 < stored ? w[x] : 2 * x < stored ? w[x] & 0xffffu : 0;
        }
        uint32_t marks = 0;
        if (matters) {
#pragma unroll
            for (int x = 0; x < 4 * RUN; ++x) marks |= nonfinite_pair(w[x], T{});
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

    // Whether steps [k0, k0 + BK) hold structural zeros.
    __device__ bool crosses_diagonal(int k0) const {
        return panel_.crosses_diagonal(memory_row(0, k0), memory_col(k0), COLS);
    }

  private:
    // Of the tile that starts at k0, the first row in memory and where in it.
    __device__ int memory_row(int within, int k0) const { return (K_MAJOR ? r0_ : k0) + within; }
    __device__ int memory_col(int k0) const { return K_MAJOR ? k0 : r0_; }

    // What this thread cuts, RUN words of a row from `col` on: eight lanes have eight rows.
    __device__ static int row() { return threadIdx.x % ROWS; }
    __device__ static int col() { return threadIdx.x / ROWS * (RUN * WORD); }

    // The words that this thread copies, WORDS lanes a row, and then perhaps a row's last.
    __device__ static int word() { return threadIdx.x % WORDS; }
    __device__ static int pass_row(int pass) { return threadIdx.x / WORDS + pass * ROWS_PER_PASS; }
    __device__ static int last_row() { return threadIdx.x % ROWS; }
    __device__ static bool has_last() { return ROWS == THREADS || threadIdx.x < ROWS; }

    __device__ static int shift(const T* p) {
        return static_cast<int>(reinterpret_cast<uintptr_t>(p) % 16 / sizeof(T));
    }
    __device__ static const T* aligned(const T* p) { return p - shift(p); }

    // The same for element (row, c), where c is a multiple of WORD. The places of a triangle's rows
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

    // Whether words of the tile may reach out of the matrix, into memory that is not ours.
    __device__ bool touches_the_ends(int R0, int c0) const {
        return (R0 == 0 && c0 == 0) ||
               (R0 + ROWS >= panel_.rows && c0 + COLS + WORD > panel_.length(panel_.rows - 1));
    }

    // The words of a tile, if MASKED those that have stored elements.
    template <bool MASKED>
    __device__ __forceinline__ void copy_words(T* raw, int R0, int c0) const {
#pragma unroll
        for (int p = 0; p < PASSES; ++p)
            if (!MASKED || word() * WORD - shift(from_[p]) < valid(R0 + pass_row(p), c0))
                ptx::cp_async_16(ptx::shared_address(raw + pass_row(p) * PITCH + word() * WORD),
                                 aligned(from_[p]) + word() * WORD);
        if (has_last() && shift(last_from_) > 0 &&
            (!MASKED || COLS - shift(last_from_) < valid(R0 + last_row(), c0)))
            ptx::cp_async_16(ptx::shared_address(raw + last_row() * PITCH + COLS),
                             aligned(last_from_));
    }

    // The same for a tile whose words may reach out of the matrix.
    __device__ void copy_words(T* raw, int R0, int c0) const {
        const int last = panel_.rows - 1;
        const T* end = panel_.data + panel_.row_offset(last) + panel_.length(last);
#pragma unroll 1
        for (int p = 0; p <= PASSES; ++p) {
            if (p == PASSES && !has_last()) return;
            const int row = p < PASSES ? pass_row(p) : last_row(),
                      col = p < PASSES ? word() * WORD : COLS;
            const T* first = panel_.data + panel_.row_offset(R0 + row) + c0;
            const T* from = aligned(first) + col;
            T* to = raw + row * PITCH + col;
            const int place = col - shift(first), stored = valid(R0 + row, c0);
            if (place >= stored) continue;
            if (from >= panel_.data && from + WORD <= end) {
                ptx::cp_async_16(ptx::shared_address(to), from);
                continue;
            }
            for (int e = max(0, -place); e < min(WORD, stored - place); ++e) to[e] = from[e];
        }
    }

    // To the rows of the next tile; see AsyncLoader::advance.
    __device__ void advance() {
        k0_ += BK;
#pragma unroll
        for (int p = 0; p < PASSES; ++p)
            from_[p] += K_MAJOR ? BK : stride_ + bend_ * (p * ROWS_PER_PASS);
        last_from_ += K_MAJOR ? BK : stride_ + bend_ * (last_row() - pass_row(0));
        if (!K_MAJOR) stride_ += bend_ * BK;
    }

    Panel<T> panel_;
    const T* from_[PASSES];  // The row's first element in the next tile, not this thread's word.
    const T* last_from_;     // The element behind its row's last.
    int64_t stride_, bend_;
    int r0_, k0_;
};

}  // namespace packedtri::cuda
