// A packed matrix times a hundred vectors or so: who computes what, and what a block has in shared memory.
#pragma once

#include <algorithm>

#include "hopper.cuh"
#include "image.h"
#include "thin.cuh"
#include "triangle_16bit.cuh"

namespace packedtri::cuda {

// Warps that load, and two warpgroups that multiply, each a half of the elements of the result.
constexpr int WIDE_MULTIPLIERS = 256, WIDE_LOADERS = 128,
              WIDE_THREADS = WIDE_MULTIPLIERS + WIDE_LOADERS;
static_assert(WIDE_OUT == 2 * Image::SIDE && WIDE_STEPS == Image::SIDE, "");

// What a block with C vectors has in shared memory: stages of rows of the triangle as they lie in memory, of a few
// tiles each, so that pieces of rows are long; behind them tiles in line and tiles of vectors, in whose place sums
// are put, and barriers.
template <int C>
struct WideTile {
    static constexpr int TILES = C > 128 ? 2 : 4;  // Of a stage of rows.
    // Pieces of rows of a stage, and a word for what they begin and end in.
    static constexpr int ROWS_PITCH = TILES * WIDE_STEPS * 2 + 16,
                         COLUMNS_PITCH = WIDE_OUT * 2 + 16;
    static constexpr int RAW_STAGES = 2, RAW_BYTES = std::max(WIDE_OUT * ROWS_PITCH,
                                                              TILES * WIDE_STEPS * COLUMNS_PITCH);
    static constexpr int T_STAGES = 2, T_BYTES = WIDE_OUT * WIDE_STEPS * 2;
    static constexpr int X_STAGES = 3, X_BYTES = C * WIDE_STEPS * 2;
    static constexpr int T_AT = (RAW_STAGES * RAW_BYTES + 1023) / 1024 * 1024,
                         X_AT = T_AT + T_STAGES * T_BYTES, X_END = X_AT + X_STAGES * X_BYTES;
    // Of sums, whose neighbours are those of the result in memory: rows begin in different banks.
    static constexpr int ACROSS_PITCH = C + 8, ALONG_PITCH = WIDE_OUT + 4;
    static constexpr int BARRIERS =
        std::max(X_END, T_AT + std::max(WIDE_OUT * ACROSS_PITCH, C* ALONG_PITCH) * 4);
    static constexpr int SHARED_BYTES = BARRIERS + 8 * (2 * RAW_STAGES + X_STAGES + 2);
    static_assert(SHARED_BYTES <= 227 * 1024, "");
};

template <class T>
struct WideArgs {
    ThinArgs<T> thin;
    CUtensorMap x;
    bool one_x;  // All matrices of a batch are multiplied by the same vectors.
    // Whether the rows of the triangle enter, and its columns; of a symmetric matrix both do, the diagonal
    // with the rows.
    bool by_rows, by_columns;
};

// A part of the result: elements [first, first + WIDE_OUT) of C vectors from `vector` on.
struct WideItem {
    int vector, first;
    int64_t batch;
};

// Parts that share rows of a triangle are neighbours, and the longest sums come first. Clusters take them in turn,
// there and back, so that who begins with the longest gets shorter ones afterwards.
template <class T>
class WideItems {
  public:
    __device__ WideItems(const WideArgs<T>& args, int vectors_at_once)
        : args_(args), at_once_(vectors_at_once),
          vectors_(static_cast<int>(ceil_div(args.thin.vectors, vectors_at_once))),
          groups_(static_cast<int>(ceil_div(args.thin.n, WIDE_OUT))),
          cluster_(static_cast<int>(blockIdx.x) / args.thin.split),
          clusters_(static_cast<int>(gridDim.x) / args.thin.split) {}

    // The item of a turn of this block's cluster; false if there is none any more.
    __device__ bool get(int turn, WideItem& item) const {
        const int64_t start = int64_t{turn} * clusters_,
                      index = start + (turn % 2 == 0 ? cluster_ : clusters_ - 1 - cluster_);
        const int64_t of_group = int64_t{vectors_} * args_.thin.batch;
        if (index >= of_group * groups_) return false;
        const int group = static_cast<int>(index / of_group);
        const auto within = static_cast<int>(index % of_group);
        item = {within % vectors_ * at_once_,
                (args_.by_rows ? groups_ - 1 - group : group) * WIDE_OUT, within / vectors_};
        return true;
    }

  private:
    const WideArgs<T>& args_;
    const int at_once_, vectors_, groups_, cluster_, clusters_;
};

// A block's share of the sum for an item: tiles [from, to), those along rows of the triangle before those down
// its columns, which begin at `first`.
struct WideShare {
    int rows, from, to;

    template <class T>
    __device__ WideShare(const WideArgs<T>& args, const WideItem& item) {
        const ThinArgs<T>& thin = args.thin;
        const int last = min(thin.n, item.first + WIDE_OUT),  // Sums along rows end here.
            rank = static_cast<int>(blockIdx.x) % thin.split;
        rows = args.by_rows ? static_cast<int>(ceil_div(last, WIDE_STEPS)) : 0;
        const int columns =
            args.by_columns ? static_cast<int>(ceil_div(thin.n - item.first, WIDE_STEPS)) : 0;
        from = (rows + columns) * rank / thin.split;
        to = (rows + columns) * (rank + 1) / thin.split;
    }
    // The step at which a tile begins.
    __device__ int step(const WideItem& item, int tile) const {
        return tile < rows ? tile * WIDE_STEPS : item.first + (tile - rows) * WIDE_STEPS;
    }
    // Calls f(along rows, tiles, step at which the first one begins) for stages of up to `most` tiles.
    template <class F>
    __device__ __forceinline__ void for_stages(const WideItem& item, int most, F f) const {
        for (int tile = from, count; tile < to; tile += count) {
            const bool by_rows = tile < rows;
            count = min(most, (by_rows ? min(rows, to) : to) - tile);
            f(by_rows, count, step(item, tile));
        }
    }
};

template <class T>
__device__ Triangle<T> triangle_of(const WideArgs<T>& args, const WideItem& item, bool by_rows) {
    const ThinArgs<T>& thin = args.thin;
    return {thin.triangle + item.batch * thin.triangle_batch_stride, thin.n,
            by_rows || !args.by_rows ? 1 : 0};
}

// The barriers of a block, by their addresses.
template <int C>
class WideBarriers {
    using Tile = WideTile<C>;

  public:
    __device__ explicit WideBarriers(char* shared)
        : at_(ptx::shared_address(shared) + Tile::BARRIERS) {}

    __device__ void init(int split) const {
        for (int s = 0; s < Tile::RAW_STAGES; ++s) {
            ptx::mbarrier_init(rows_come(s), WIDE_LOADERS);
            ptx::mbarrier_init(rows_used(s), WIDE_MULTIPLIERS);
        }
        for (int s = 0; s < Tile::X_STAGES; ++s) ptx::mbarrier_init(vectors_come(s), 1);
        ptx::mbarrier_init(summed(), split);
        ptx::mbarrier_init(stored(), split);
        ptx::mbarrier_init_fence();
    }
    // Of a stage of rows.
    __device__ uint32_t rows_come(int stage) const { return at_ + stage % Tile::RAW_STAGES * 8; }
    __device__ uint32_t rows_used(int stage) const {
        return rows_come(stage) + Tile::RAW_STAGES * 8;
    }
    __device__ static int rows_parity(int stage) { return stage / Tile::RAW_STAGES % 2; }
    // Of the vectors of a tile.
    __device__ uint32_t vectors_come(int tile) const {
        return at_ + (2 * Tile::RAW_STAGES + tile % Tile::X_STAGES) * 8;
    }
    __device__ static int vectors_parity(int tile) { return tile / Tile::X_STAGES % 2; }
    // All blocks of the cluster have put their sums where others read them; have read them.
    __device__ uint32_t summed() const { return at_ + (2 * Tile::RAW_STAGES + Tile::X_STAGES) * 8; }
    __device__ uint32_t stored() const { return summed() + 8; }

  private:
    const uint32_t at_;
};

}  // namespace packedtri::cuda
