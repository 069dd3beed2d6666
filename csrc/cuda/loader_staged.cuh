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
    static constexpr int CHUNKS_PER_ROW = (K_MAJOR ? BK : R) / 8;
    static constexpr int CHUNKS = R * BK / 8 / THREADS;
    static constexpr int ROWS_PER_PASS = THREADS / CHUNKS_PER_ROW;
    static_assert(CHUNKS > 0 && THREADS % CHUNKS_PER_ROW == 0, "");

  public:
    static constexpr bool asynchronous = false;

    __device__ StagedLoader(const Panel<T>& panel, int r0) : panel_(panel), r0_(r0) {
        row_ = threadIdx.x / CHUNKS_PER_ROW;
        col_ = threadIdx.x % CHUNKS_PER_ROW * 8;
        end_ = panel.data + panel.row_offset(panel.rows - 1) + panel.length(panel.rows - 1);
    }

    // Starts loading steps [k0, k0 + BK) into registers.
    __device__ void begin(int k0) {
        const int R0 = K_MAJOR ? r0_ : k0, c0 = K_MAJOR ? k0 : r0_;
#pragma unroll
        for (int p = 0; p < CHUNKS; ++p) {
            const int row = R0 + row_ + p * ROWS_PER_PASS, col = c0 + col_;
            chunk_[p].valid = row < panel_.rows ? max(0, min(8, panel_.length(row) - col)) : 0;
            if (chunk_[p].valid > 0) load(chunk_[p], panel_.data + panel_.row_offset(row) + col);
        }
    }

    // Writes what begin loaded to `tile`, zeros past the stored elements.
    __device__ void finish(T* tile) {
#pragma unroll
        for (int p = 0; p < CHUNKS; ++p)
            *at(tile, p) = chunk_[p].valid > 0 ? aligned(chunk_[p]) : make_uint4(0, 0, 0, 0);
    }

    // Whether an element that this thread wrote is infinite or nan.
    __device__ bool any_nonfinite(T* tile) const {
        bool found = false;
#pragma unroll
        for (int p = 0; p < CHUNKS; ++p)
#pragma unroll
            for (int e = 0; e < 8; ++e) found |= !finite(reinterpret_cast<T*>(at(tile, p))[e]);
        return found;
    }

    __device__ bool crosses_diagonal(int k0) const {
        return K_MAJOR ? panel_.crosses_diagonal(r0_, k0, BK) : panel_.crosses_diagonal(k0, r0_, R);
    }

  private:
    // Elements shift ... shift + valid - 1 of the 16 in `words`.
    struct Chunk {
        uint4 words[2];
        int shift, valid;
    };

    __device__ void load(Chunk& chunk, const T* from) {
        const uintptr_t address = reinterpret_cast<uintptr_t>(from);
        const T* low = reinterpret_cast<const T*>(address & ~uintptr_t{15});
        chunk.shift = static_cast<int>(address & 15) / 2;
        const bool need_high = chunk.shift + chunk.valid > 8;
        if (low >= panel_.data && low + (need_high ? 16 : 8) <= end_) {
            chunk.words[0] = __ldg(reinterpret_cast<const uint4*>(low));
            if (need_high) chunk.words[1] = __ldg(reinterpret_cast<const uint4*>(low) + 1);
            return;
        }
        // At the ends of a matrix an aligned word may reach into memory that is not ours.
        const uint16_t* element = reinterpret_cast<const uint16_t*>(from);
        uint32_t w[4] = {};
#pragma unroll
        for (int e = 0; e < 8; ++e)
            if (e < chunk.valid) w[e / 2] |= uint32_t{element[e]} << (e % 2 * 16);
        chunk.words[0] = make_uint4(w[0], w[1], w[2], w[3]);
        chunk.shift = 0;
    }

    __device__ uint4* at(T* tile, int pass) const {
        return reinterpret_cast<uint4*>(tile + (row_ + pass * ROWS_PER_PASS) * Layout::pitch +
                                        col_);
    }

    // The chunk's elements moved to the front, zeros behind them.
    __device__ static uint4 aligned(const Chunk& chunk) {
        uint32_t w[8] = {chunk.words[0].x, chunk.words[0].y, chunk.words[0].z, chunk.words[0].w,
                         chunk.words[1].x, chunk.words[1].y, chunk.words[1].z, chunk.words[1].w};
        if (chunk.shift & 4) {
#pragma unroll
            for (int x = 0; x < 6; ++x) w[x] = w[x + 2];
        }
        if (chunk.shift & 2) {
#pragma unroll
            for (int x = 0; x < 5; ++x) w[x] = w[x + 1];
        }
        if (chunk.shift & 1) {
#pragma unroll
            for (int x = 0; x < 4; ++x) w[x] = __funnelshift_r(w[x], w[x + 1], 16);
        }
        if (chunk.valid < 8) {
#pragma unroll
            for (int x = 0; x < 4; ++x) {
                if (2 * x >= chunk.valid) w[x] = 0;
                else if (2 * x + 1 >= chunk.valid) w[x] &= 0xffffu;
            }
        }
        return make_uint4(w[0], w[1], w[2], w[3]);
    }

    Panel<T> panel_;
    const T* end_;
    int r0_, row_, col_;
    Chunk chunk_[CHUNKS];
};

}  // namespace packedtri::cuda
