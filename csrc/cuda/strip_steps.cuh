// What the warps of the kernel for strips of 16-bit elements (strips_16bit.cuh) share: the steps of their block, and its
// shared memory.
#pragma once

#include "image.h"
#include "packed_rows.cuh"
#include "strip_shape.cuh"

namespace packedtri::cuda {

template <class T>
struct StripStepArgs : StripArgs<T> {
    using StripArgs<T>::StripArgs;
    CUtensorMap x_map;
    bool one_x;  // All matrices of a batch are multiplied by the same vectors.
};

// What a block is made of: two warpgroups for the sums over rows, two for those over columns, and one that loads. The vectors
// come by the copy engine, as image blocks of 64 of them.
template <class T, int VECTORS_, bool X_ALONG_>
struct StripStepShape {
    static constexpr int VECTORS = VECTORS_, TILE = STRIP_WIDTH;
    static constexpr bool X_ALONG = X_ALONG_;
    static constexpr int GROUP = 128, TEAM = 2 * GROUP, CONSUMERS = 2 * TEAM, PRODUCERS = GROUP,
                         THREADS = CONSUMERS + PRODUCERS;
    static constexpr int PRODUCER_REGISTERS = 40, ROW_REGISTERS = 88, COLUMN_REGISTERS = 128;
    static_assert(PRODUCERS * PRODUCER_REGISTERS + TEAM * (ROW_REGISTERS + COLUMN_REGISTERS) <=
                  THREADS * (65536 / THREADS / 8 * 8));

    // Bands of a step, and its rows, as many as a product of a warpgroup has.
    static constexpr int BANDS = 2, SIDE = BANDS * STRIP_BAND;
    static_assert(SIDE == Image::SIDE);
    using Rows = PackedRows<T, STRIP_WIDTH>;
    static constexpr int STAGES = 4, ROWS_BYTES = Rows::bytes(SIDE),
                         BAND_BYTES = Image::BLOCK_BYTES,
                         STRIP_BYTES = STRIP_WIDTH / Image::SIDE * Image::BLOCK_BYTES;
    static constexpr int BANDS_AT = STRIP_BYTES, ROWS_AT = BANDS_AT + STAGES * BAND_BYTES,
                         BARRIERS = ROWS_AT + STAGES * ROWS_BYTES,
                         SHARED_BYTES = BARRIERS + 8 * (2 * STAGES + 2);
    static_assert(SHARED_BYTES <= 227 * 1024, "");
};

// The shared memory of a block: the vectors at the columns of a strip, and for each step the rows as they lie in memory
// and the vectors at them.
template <class Shape>
class StripStages {
  public:
    __device__ explicit StripStages(char* shared) : shared_(shared) {}

    __device__ void init() const {
        for (int s = 0; s < Shape::STAGES; ++s) {
            ptx::mbarrier_init(full(s), Shape::PRODUCERS);
            // The groups that add up rows take steps in turn.
            ptx::mbarrier_init(empty(s), Shape::GROUP + Shape::TEAM);
        }
        ptx::mbarrier_init(strip_full(), 1);
        ptx::mbarrier_init(strip_empty(), Shape::TEAM);
        ptx::mbarrier_init_fence();
    }

    __device__ uint32_t full(int step) const { return barrier(step % Shape::STAGES); }
    __device__ uint32_t empty(int step) const {
        return barrier(Shape::STAGES + step % Shape::STAGES);
    }
    __device__ void wait_full(int step) const {
        ptx::mbarrier_wait(full(step), step / Shape::STAGES & 1);
    }
    __device__ void wait_empty(int step) const {
        if (step >= Shape::STAGES) ptx::mbarrier_wait(empty(step), (step / Shape::STAGES & 1) ^ 1);
    }
    // The vectors at the columns of a strip have come; all have been multiplied by them.
    __device__ uint32_t strip_full() const { return barrier(2 * Shape::STAGES); }
    __device__ uint32_t strip_empty() const { return barrier(2 * Shape::STAGES + 1); }

    __device__ char* rows(int step) const {
        return shared_ + Shape::ROWS_AT + step % Shape::STAGES * Shape::ROWS_BYTES;
    }
    __device__ uint32_t strip_vectors() const { return ptx::shared_address(shared_); }
    __device__ uint32_t band_vectors(int step) const {
        return ptx::shared_address(shared_) + Shape::BANDS_AT +
               step % Shape::STAGES * Shape::BAND_BYTES;
    }

  private:
    __device__ uint32_t barrier(int index) const {
        return ptx::shared_address(shared_) + Shape::BARRIERS + 8 * index;
    }
    char* const shared_;
};

// Where a warp stands in the steps of its block: bands of a strip that follow one another.
template <class T, class Shape>
class StripStepWalk : public StripWalk<T, Shape> {
    using Base = StripWalk<T, Shape>;

  public:
    using Base::args, Base::band, Base::column, Base::first, Base::row, Base::units;
    int step = 0;
    int done = 0, bands = 0;  // Of the steps before, and of this one, which has none at the end.
    int strips = 1;           // That have begun.
    bool begins = true;       // Whether the step is the first one of a strip.

    __device__ explicit StripStepWalk(const StripArgs<T>& args) : Base(args) { measure(); }

    __device__ void next_step() {
        ++step;
        done += bands;
        band += bands - 1;
        begins = Base::next();
        strips += begins;
        measure();
    }
    // Whether the step is the last one of its strip that the block has.
    __device__ bool ends() const {
        return band + bands == args.units.bands || done + bands == units;
    }
    __device__ int rows() const { return min(bands * STRIP_BAND, args.n - row()); }
    // Whether the step is below the diagonal as a whole.
    __device__ bool is_below() const { return column(0) + STRIP_WIDTH <= row(); }
    // How many elements of row 0 of the step are stored, were there more of them; row r has r more.
    __device__ int stored() const { return row() + 1 - column(0); }
    // Copies the vectors from step k of the sums on, as blocks of 64 steps that follow one another.
    template <int K>
    __device__ __forceinline__ void copy_vectors(const StripStepArgs<T>& all, int k, uint32_t to,
                                                 uint32_t barrier) const {
        const int matrix = all.one_x ? 0 : static_cast<int>(Base::matrix / args.groups);
#pragma unroll
        for (int x = 0; x < K; x += Image::SIDE)
            ptx::tensor_load(to + x / Image::SIDE * Image::BLOCK_BYTES, &all.x_map, matrix,
                             Shape::X_ALONG ? Base::vector : k + x,
                             Shape::X_ALONG ? k + x : Base::vector, barrier);
    }

  private:
    __device__ void measure() {
        bands = min(min(Shape::BANDS, args.units.bands - band), units - done);
    }
};

}  // namespace packedtri::cuda
