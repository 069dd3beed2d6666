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
    static_assert(ROWS <= THREADS, "");
    static constexpr int READS = K_MAJOR ? 2 : 8;  // Rows of a tile that a lane reads at a time.
    // Offsets within a tile have 32 bits where rows are less than FAR elements apart. It has less than
    // MOST words then.
    static constexpr int64_t FAR = 1 << 24;
    static constexpr uint32_t MOST = 1 << 29;

  public:
    static constexpr int SIZE = ROWS * PITCH;
    static constexpr int SIDE = 64, CHUNK = 32;

    // `line`: the first of this warp's lines.
    __device__ WordLoader(const Panel<T>& panel, int r0, int k0, int line)
        : panel_(panel), r0_(r0), line_(line), row_(K_MAJOR ? r0 : k0) {
        const T* from = panel.data + panel.row_offset(row_) + (K_MAJOR ? k0 : r0);
        past_ = ptx::past_word(from);
        tile_ = from - past_;
        bent_ = panel.packed ? 1 : 0;
        step_ = static_cast<uint32_t>(panel.ld) + bent_ * (row_ + 1);
        end_ = panel.data + panel.end;
    }

    // Starts copying the words of the next tile to `to`, as far as they lie inside the matrix. What
    // they hold besides the tile's stored elements does not matter: a chunk that is not full is clipped
    // when it is read. Of the tile, the first `depth` steps of k are needed.
    __device__ __forceinline__ void begin(uint32_t to, int depth) {
        const bool head = tile_ < panel_.data;
        const int64_t words = max((end_ - tile_) / WORD, int64_t{head});
        if (panel_.ld < FAR)
            copy_words(to, head, static_cast<uint32_t>(min(words, int64_t{MOST})), depth);
        if (head || words <= offset(ROWS - 1) / WORD + WORDS || panel_.ld >= FAR)
            copy_rest(to, head);
        if (K_MAJOR) {
            tile_ += BK;
        } else {
            tile_ += BK * panel_.ld + bent_ * (static_cast<int64_t>(BK) * row_ + BK * (BK + 1) / 2);
            row_ += BK;
            step_ += bent_ * BK;
        }
    }

    // Finds where this lane reads, which is the same in every tile.
    __device__ __forceinline__ void prepare_reading() {
        const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
        odd_ = 0;
#pragma unroll
        for (int x = 0; x < READS; ++x) {
            const int row = K_MAJOR ? line_ + g + 8 * x : 8 * t + x;
            const uint32_t shift = offset(row) % WORD;
            at_[x] =
                place(row) * PITCH * 2 + shift / 2 * 4 + (K_MAJOR ? t * 16 : line_ * 2 + g * 16);
            odd_ |= (shift & 1) << (K_MAJOR ? 0 : x);
        }
    }

    __device__ const Panel<T>& panel() const { return panel_; }
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

    // Where row x of the next tile starts, in elements from tile_ on.
    __device__ uint32_t offset(int x) const {
        return past_ + x * step_ + bent_ * (x * (x - 1) / 2);
    }

    // Copies the words that lie in the matrix as a whole, WORDS lanes a row, and then perhaps the one
    // more of a row for each thread. All sizes are in 32 bits and none is negative; `words` lie between
    // tile_ and the end of the matrix. Where there is a `head`, the first of them starts before it.
    __device__ __forceinline__ void copy_words(uint32_t to, bool head, uint32_t words,
                                               int depth) const {
        const uint32_t skip = head ? 1 : 0;
        const T* tile = tile_ + skip * WORD;
        words -= skip;
        const int x = ptx::thread_of<THREADS>(), row = x / WORDS, word = x % WORDS, last = x % ROWS;
        if (K_MAJOR && word * WORD >= depth + WORD) words = 0;
        // An element before `tile` gets an offset that is too large.
        const uint32_t last_at = offset(last) + (COLS - skip * WORD);
        uint32_t at = offset(row) + (word - skip) * WORD;
        uint32_t step = ROWS_PER_PASS * (step_ + bent_ * row) +
                        bent_ * (ROWS_PER_PASS * (ROWS_PER_PASS - 1) / 2);
        const uint32_t last_to = to + (place(last) * PITCH + COLS) * 2;
        to += (place(row) * PITCH + word * WORD) * 2;
#pragma unroll
        for (int p = 0; p < PASSES; ++p) {
            const uint32_t w = at / WORD;
            const bool needed = w < words && (K_MAJOR || row + p * ROWS_PER_PASS < depth);
            ptx::cp_async_16(to, tile + uint64_t{w} * WORD, needed);
            to += ROWS_PER_PASS * PITCH * 2;
            at += step;
            step += bent_ * (ROWS_PER_PASS * ROWS_PER_PASS);
        }
        const uint32_t w = last_at / WORD;
        const bool needed =
            last_at % WORD > 0 && w < words && (K_MAJOR ? COLS < depth + WORD : last < depth);
        if (ROWS == THREADS || x < ROWS)
            ptx::cp_async_16(last_to, tile + uint64_t{w} * WORD, needed);
    }

    // Copies the elements in the words that lie in the matrix in part, or all elements of rows too far
    // apart for 32 bits, one row a thread.
    __device__ __forceinline__ void copy_rest(uint32_t to, bool head) const {
        const T* end_word = end_ - ptx::past_word(end_);
        const bool all = panel_.ld >= FAR;
        if (!all && !head && end_word == end_) return;
        const int x = ptx::thread_of<THREADS>();
        if (ROWS < THREADS && x >= ROWS) return;
        const T* row = tile_ + past_ + x * (panel_.ld + bent_ * (row_ + int64_t{1})) +
                       bent_ * (x * (x - 1) / 2);
        row -= ptx::past_word(row);
        to += place(x) * PITCH * 2;
        if (head || all)
            copy_elements(to, row, panel_.data, all || tile_ + WORD > end_ ? end_ : tile_ + WORD);
        if (!all) copy_elements(to, row, end_word < panel_.data ? panel_.data : end_word, end_);
    }
    // What the words of a row have of the elements from `begin` to `end`.
    __device__ static __noinline__ void copy_elements(uint32_t to, const T* row, const T* begin,
                                                      const T* end) {
        if (end > row + COLS + WORD) end = row + COLS + WORD;
#pragma unroll 1
        for (const T* e = begin < row ? row : begin; e < end; ++e)
            ptx::store_shared(to + static_cast<uint32_t>(e - row) * 2,
                              *reinterpret_cast<const uint16_t*>(e));
    }

    Panel<T> panel_;
    const T* tile_;  // The word that holds the first element of the next tile.
    const T* end_;   // Of the matrix.
    int r0_, line_, row_;
    // How far the next tile's first element lies in its word, how far its second row from the first,
    // and how much longer that is for every row.
    uint32_t past_, step_, bent_;
    int at_[READS];  // Where this lane's rows of a tile begin, in bytes.
    uint32_t odd_;   // Whether rows start in the upper half of 4 bytes, one bit for each.
};

}  // namespace packedtri::cuda
