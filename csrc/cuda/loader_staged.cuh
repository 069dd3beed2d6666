// Loads operand tiles of 16-bit elements through registers. Rows of a packed triangle start at any
// even address, which neither cp.async nor a wide load accepts, so each chunk of 8 elements is cut
// out of the two aligned 16-byte words that hold it.
#pragma once

#include "panel.cuh"
#include "ptx.cuh"
#include "scalar.cuh"
#include "tile.cuh"

namespace packedtri::cuda {

// Tiles keep the order of memory: Layout is K-major exactly when the source is.
template <class T, int R, int BK, int THREADS, class Layout>
class StagedLoader {
    static_assert(sizeof(T) == 2, "");
    static constexpr bool K_MAJOR = Layout::k_major;
    static constexpr int ROWS = K_MAJOR ? R : BK, COLS = K_MAJOR ? BK : R;
    static constexpr int CHUNKS_PER_ROW = COLS / 8;
    static constexpr int CHUNKS = ROWS * CHUNKS_PER_ROW / THREADS;
    static constexpr int ROWS_PER_PASS = THREADS / CHUNKS_PER_ROW;
    static_assert(CHUNKS > 0 && THREADS % CHUNKS_PER_ROW == 0, "");

  public:
    __device__ StagedLoader(const Panel<T>& panel, int r0, int k0, int thread)
        : panel_(panel), r0_(r0), k0_(k0) {
        row_ = thread / CHUNKS_PER_ROW;
        col_ = thread % CHUNKS_PER_ROW * 8;
#pragma unroll
        for (int p = 0; p < CHUNKS; ++p)
            from_[p] = panel.data + panel.row_offset(memory_row(p, k0)) + memory_col(k0);
        stride_ = panel.row_offset(memory_row(0, k0) + BK) - panel.row_offset(memory_row(0, k0));
        bend_ = panel.packed ? BK : 0;
    }

    // Starts loading the next tile into registers.
    __device__ void begin() {
        const int R0 = K_MAJOR ? r0_ : k0_, c0 = K_MAJOR ? k0_ : r0_;
        masked_ = !panel_.full(R0, c0, ROWS, COLS);
        // The aligned words of the first and of the last chunk may reach into memory that is not
        // ours.
        edge_ = (R0 == 0 && c0 == 0) ||
                (R0 + ROWS >= panel_.rows && c0 + COLS + 8 > panel_.length(panel_.rows - 1));
#pragma unroll
        for (int p = 0; p < CHUNKS; ++p)
            load(chunk_[p], from_[p], edge_ ? 0 : masked_ ? valid(p, k0_) : 8);
        advance();
    }

    // Writes what begin loaded to `tile`, zeros past the stored elements.
    __device__ void finish(T* tile) {
        if (edge_) {
            for (int p = 0; p < CHUNKS; ++p) copy_elements(tile, p);
        } else if (masked_) {
#pragma unroll
            for (int p = 0; p < CHUNKS; ++p)
                *at(tile, p) = clipped(cut(chunk_[p]), valid(p, k0_ - BK));
        } else {
#pragma unroll
            for (int p = 0; p < CHUNKS; ++p) *at(tile, p) = cut(chunk_[p]);
        }
    }

    // Whether an element that this thread wrote is infinite or nan.
    __device__ bool any_nonfinite(T* tile) const {
        bool found = false;
#pragma unroll 1
        for (int p = 0; p < CHUNKS; ++p)
#pragma unroll
            for (int e = 0; e < 8; ++e) found |= !finite(reinterpret_cast<T*>(at(tile, p))[e]);
        return found;
    }

    __device__ bool crosses_diagonal(int k0) const {
        return K_MAJOR ? panel_.crosses_diagonal(r0_, k0, BK) : panel_.crosses_diagonal(k0, r0_, R);
    }

  private:
    // 8 elements, from `shift` on among the 16 in `words`.
    struct Chunk {
        uint4 words[2];
        int shift;
    };

    __device__ int memory_row(int pass, int k0) const {
        return (K_MAJOR ? r0_ : k0) + row_ + pass * ROWS_PER_PASS;
    }
    __device__ int memory_col(int k0) const { return (K_MAJOR ? k0 : r0_) + col_; }

    // How many elements of a chunk of the tile at k0 are stored ones.
    __device__ int valid(int pass, int k0) const {
        const int row = memory_row(pass, k0);
        return row < panel_.rows ? max(0, min(8, panel_.length(row) - memory_col(k0))) : 0;
    }

    // To the rows of the next tile; see AsyncLoader::advance.
    __device__ void advance() {
        k0_ += BK;
#pragma unroll
        for (int p = 0; p < CHUNKS; ++p)
            from_[p] += K_MAJOR ? BK : stride_ + bend_ * (p * ROWS_PER_PASS);
        if (!K_MAJOR) stride_ += bend_ * BK;
    }

    // The loads are predicated, not branched around: a register that two paths write makes the
    // processor wait for the load where they meet, instead of where the value is used.
    __device__ static void load(Chunk& chunk, const T* from, int valid) {
        const uintptr_t address = reinterpret_cast<uintptr_t>(from);
        const uint4* low = reinterpret_cast<const uint4*>(address & ~uintptr_t{15});
        chunk.shift = static_cast<int>(address & 15) / 2;
        ptx::load_if(chunk.words[0], low, valid > 0);
        ptx::load_if(chunk.words[1], low + 1, valid > 0 && chunk.shift + valid > 8);
    }

    __device__ void copy_elements(T* tile, int pass) const {
        const int row = memory_row(pass, k0_ - BK), n = valid(pass, k0_ - BK);
        const T* from = panel_.data + panel_.row_offset(row) + memory_col(k0_ - BK);
        T* to = reinterpret_cast<T*>(at(tile, pass));
        for (int e = 0; e < 8; ++e) to[e] = e < n ? from[e] : T{};
    }

    __device__ uint4* at(T* tile, int pass) const {
        const int row = row_ + pass * ROWS_PER_PASS;
        return reinterpret_cast<uint4*>(tile +
                                        (K_MAJOR ? Layout::at(row, col_) : Layout::at(col_, row)));
    }

    __device__ static uint4 cut(const Chunk& chunk) {
        uint32_t w[8] = {chunk.words[0].x, chunk.words[0].y, chunk.words[0].z, chunk.words[0].w,
                         chunk.words[1].x, chunk.words[1].y, chunk.words[1].z, chunk.words[1].w};
        const bool four = chunk.shift & 4, two = chunk.shift & 2;
#pragma unroll
        for (int x = 0; x < 6; ++x) w[x] = four ? w[x + 2] : w[x];
#pragma unroll
        for (int x = 0; x < 5; ++x) w[x] = two ? w[x + 1] : w[x];
        const int odd = (chunk.shift & 1) * 16;
#pragma unroll
        for (int x = 0; x < 4; ++x) w[x] = __funnelshift_r(w[x], w[x + 1], odd);
        return make_uint4(w[0], w[1], w[2], w[3]);
    }

    // The first `valid` of 8 elements, zeros behind them.
    __device__ static uint4 clipped(uint4 word, int valid) {
        uint32_t w[4] = {word.x, word.y, word.z, word.w};
#pragma unroll
        for (int x = 0; x < 4; ++x) {
            if (2 * x >= valid) w[x] = 0;
            else if (2 * x + 1 >= valid) w[x] &= 0xffffu;
        }
        return make_uint4(w[0], w[1], w[2], w[3]);
    }

    Panel<T> panel_;
    const T* from_[CHUNKS];
    int64_t stride_, bend_;
    int r0_, k0_, row_, col_;
    bool masked_, edge_;
    Chunk chunk_[CHUNKS];
};

}  // namespace packedtri::cuda
