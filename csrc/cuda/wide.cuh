// What the warps of the kernel for a hundred vectors or so (wide.cu) share: the work of their block, and its shared memory.
#pragma once

#include <algorithm>

#include "hopper.cuh"
#include "image.h"
#include "packed_rows.cuh"
#include "ring.cuh"
#include "unit_shares.h"
#include "vector_args.cuh"
#include "wgmma_left.cuh"
#include "wide_units.h"

namespace packedtri::cuda {

template <class T>
struct WideArgs : VectorArgs<T> {
    static constexpr bool MEETS_ZEROS = true;  // See add_parts_kernel.
    using Acc = typename Accumulator<T>::type;
    PlacedVectors<T> placed;
    bool one_x;  // All matrices of a batch are multiplied by the same vectors.
    WideUnits units;
    int64_t all;  // Units of all matrices.
    int blocks;
    // WIDE_SIDE elements of a group of vectors for each group of units that a block has some of. It comes from group to
    // group, so block + group is another number for each pair of them.
    Acc* sums;

    WideArgs(const Product& p, int multiprocessors)
        : VectorArgs<T>(p, wide_vectors(p)),
          units{static_cast<int>(ceil_div(p.k, WIDE_SIDE)), this->rows, this->columns},
          all(units.all() * this->matrices()),
          blocks(static_cast<int>(std::min<int64_t>(all, multiprocessors))) {}

    // How many bytes of scratch memory the sums take.
    int64_t bytes() const {
        return wide_sums(units, this->matrices(), blocks) * this->at_once *
               static_cast<int64_t>(sizeof(Acc));
    }
    void put_sums(void* memory) { sums = static_cast<Acc*>(memory); }
    __device__ Acc* sums_of(int64_t block, int64_t matrix, int group) const {
        return sums + (block + matrix * units.all_groups() + group) * WIDE_SIDE * this->at_once;
    }

    // What blocks have of element i: sums along rows, then those down columns.
    struct Parts {
        const Acc* from[2];
        int first, count;  // Parts of the first kind, and all.
        int apart;
        __device__ const Acc* at(int s) const {
            return s < first ? from[0] + int64_t{s} * apart : from[1] + int64_t{s - first} * apart;
        }
    };
    __device__ Parts parts(int64_t matrix, int i) const {
        Parts parts{{nullptr, nullptr}, 0, 0, WIDE_SIDE * this->at_once};
        const auto add = [&](int group, int kind) {
            const int64_t unit = matrix * units.all() + units.before(group);
            const auto block = block_of_unit(unit, blocks, all),
                       last = block_of_unit(unit + units.tiles(group) - 1, blocks, all);
            parts.from[kind] = sums_of(block, matrix, group) + i % WIDE_SIDE * this->at_once;
            parts.count += static_cast<int>(last - block) + 1;
        };
        if (units.rows) add(units.row_group(i), 0);
        parts.first = parts.count;
        if (units.columns) add(units.column_group(i), 1);
        return parts;
    }
};

// What a block is made of: two warpgroups that multiply, each 64 rows or columns of a tile, and one that loads.
template <class T, int VECTORS_, bool X_ALONG_>
struct WideShape {
    static constexpr int VECTORS = VECTORS_;
    static constexpr bool X_ALONG = X_ALONG_;
    static constexpr int GROUP = 128, CONSUMERS = 2 * GROUP,
                         PRODUCERS = VECTORS <= 128 ? 2 * GROUP : GROUP,
                         THREADS = CONSUMERS + PRODUCERS;
    // With fewer registers there is room for blocks of the kernel that follows.
    static constexpr int COMPILED_THREADS = VECTORS <= 64 ? 640 : THREADS,
                         COMPILED_REGISTERS = 65536 / COMPILED_THREADS / 8 * 8,
                         PRODUCER_REGISTERS = 40,
                         CONSUMER_REGISTERS =
                             (THREADS * COMPILED_REGISTERS - PRODUCERS * PRODUCER_REGISTERS) /
                             CONSUMERS / 8 * 8;
    using Rows = PackedRows<T, WIDE_SIDE>;
    // Image blocks of the vectors, 64 of them by 64 steps.
    static constexpr int X_BLOCKS = std::max(VECTORS / Image::SIDE, 1),
                         X_BYTES = WIDE_SIDE / Image::SIDE * X_BLOCKS * Image::BLOCK_BYTES;
    static constexpr int STAGES = VECTORS <= 64 ? 4 : VECTORS <= 128 ? 3 : 2;
    struct Shared {
        alignas(1024) char x[STAGES][X_BYTES];
        char rows[STAGES][Rows::bytes(WIDE_SIDE)];
        Ring<STAGES> ring;
    };
    static_assert(sizeof(Shared) <= 227 * 1024, "");
};

// Where a warp stands in the units of its block.
template <class T, class Shape>
class WideWalk {
  public:
    const WideArgs<T>& args;
    int64_t matrix;  // Which of all groups of vectors of all matrices.
    int group;       // Of the matrix.
    int left;        // Units from this one on.
    int step = 0;
    bool begins = true;  // Whether the unit is the first one of its group that the block has.
    bool of_rows;        // Whether the sums are those along rows.
    const T* triangle;
    int vector;

    __device__ explicit WideWalk(const WideArgs<T>& args) : args(args) {
        const int64_t first = first_unit(blockIdx.x, args.blocks, args.all);
        left = static_cast<int>(first_unit(blockIdx.x + 1, args.blocks, args.all) - first);
        matrix = first / args.units.all();
        const int64_t within = first - matrix * args.units.all(),
                      side = within >= args.units.of_side(),
                      of_side = within - side * args.units.of_side(), row = row_of(of_side);
        group = static_cast<int>(side * args.units.groups + row);
        enter_matrix();
        enter_group();
        tile_ = static_cast<int>(of_side - row_start(row));
    }
    __device__ void next() {
        --left, ++step, ++tile_;
        begins = tile_ == tiles_;
        if (!begins) return;
        if (++group == args.units.all_groups()) {
            group = 0;
            ++matrix;
            enter_matrix();
        }
        enter_group();
    }
    // Whether the unit is the last one of its group that the block has.
    __device__ bool ends() const { return left == 1 || tile_ + 1 == tiles_; }
    __device__ int row() const { return of_rows ? first_ : first_ + tile_ * WIDE_SIDE; }
    __device__ int column() const { return of_rows ? tile_ * WIDE_SIDE : first_; }
    // The first step of the sums.
    __device__ int k() const { return of_rows ? column() : row(); }
    // How many elements of row 0 of the tile are stored, were there more of them; row r has r more.
    __device__ int stored() const { return row() + 1 - column(); }
    // Whether all of its elements are.
    __device__ bool is_whole() const { return row() > column() && row() + WIDE_SIDE <= args.n; }

    // Stores the sums that a lane has of 64 rows or columns of the group, from `first` on, of which it has those that left
    // operands of Rows or Columns give it.
    template <class Rows, class Columns>
    __device__ __forceinline__ void store(const float* sums, int first) const {
        float* const to = args.sums_of(blockIdx.x, matrix, group);
        const bool rows = of_rows;
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const int out = first + (rows ? Rows::row_of(h) : Columns::column_of(h));
            ptx::store_sums<Shape::VECTORS>(sums, h, to + out * Shape::VECTORS);
        }
    }

    // Starts the copies of what is stored of so many rows and columns of the triangle. A warp starts those of its lanes one
    // after the other, so all warps that load have some.
    template <class Rows>
    __device__ __forceinline__ void copy_rows(const Rows& to, int rows, int columns, int row,
                                              int column, int thread, uint32_t barrier) const {
        const int each = rows / (Shape::PRODUCERS / 32), lane = thread % 32,
                  r = thread / 32 * each + lane, i = row + r;
        if (lane < each && i < args.n)
            to.copy(r, triangle + row_start(i) + column, min(columns, i + 1 - column),
                    triangle + row_start(args.n), barrier);
    }

  private:
    __device__ void enter_matrix() {
        const int64_t of_batch = matrix / args.groups;
        vector = static_cast<int>(matrix - of_batch * args.groups) * Shape::VECTORS;
        triangle = args.triangle + of_batch * args.triangle_batch_stride;
    }
    __device__ void enter_group() {
        of_rows = args.units.is_of_rows(group);
        first_ = args.units.first(group);
        tiles_ = args.units.tiles(group);
        tile_ = 0;
    }
    int tile_, tiles_, first_;  // Of the group, and the first row or column of its sums.
};

}  // namespace packedtri::cuda
