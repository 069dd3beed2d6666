// Loads operand tiles of 16-bit elements through registers. Rows of a packed triangle start at any
// even address, which neither cp.async nor a wide load accepts, so each chunk of 8 elements is cut
// out of the two aligned 16-byte words that hold it.
#pragma once

#include "chunk.cuh"
#include "panel.cuh"
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
            chunk_[p].load(from_[p], edge_ ? 0 : masked_ ? valid(p, k0_) : 8);
        advance();
    }

    // Writes what begin loaded to `tile`, zeros past the stored elements.
    __device__ void finish(T* tile) {
        if (edge_) {
            for (int p = 0; p < CHUNKS; ++p) copy_elements(tile, p);
        } else if (masked_) {
#pragma unroll
            for (int p = 0; p < CHUNKS; ++p)
                *at(tile, p) = clipped(chunk_[p].cut(), valid(p, k0_ - BK));
        } else {
#pragma unroll
            for (int p = 0; p < CHUNKS; ++p) *at(tile, p) = chunk_[p].cut();
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

    Panel<T> panel_;
    const T* from_[CHUNKS];
    int64_t stride_, bend_;
    int r0_, k0_, row_, col_;
    bool masked_, edge_;
    Chunk chunk_[CHUNKS];
};

}  // namespace packedtri::cuda
