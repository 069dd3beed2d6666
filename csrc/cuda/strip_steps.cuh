// What the warps of the kernel for strips of 16-bit elements (strips_16bit.cuh) share: the steps of their block, and its
// shared memory.
#pragma once

#include "image.h"
#include "packed_rows.cuh"
#include "ring.cuh"
#include "strip_shape.cuh"

namespace packedtri::cuda {

template <class T>
struct StripStepArgs : StripArgs<T> {
    using StripArgs<T>::StripArgs;
    PlacedVectors<T> placed;
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
    static constexpr int STAGES = 4, BAND_BYTES = Image::BLOCK_BYTES,
                         STRIP_BYTES = STRIP_WIDTH / Image::SIDE * Image::BLOCK_BYTES;
    struct Shared {
        // The vectors at the columns of a strip, and for each step those at its rows and the rows as they lie in memory.
        alignas(1024) char strip[STRIP_BYTES];
        alignas(1024) char bands[STAGES][BAND_BYTES];
        char rows[STAGES][Rows::bytes(SIDE)];
        Ring<STAGES> ring;
        Ring<1> strip_ring;

        // By one thread, before a __syncthreads.
        __device__ void start() {
            // The groups that add up rows take steps in turn.
            ring.start(PRODUCERS, GROUP + TEAM);
            strip_ring.start(1, TEAM);
        }
    };
    static_assert(sizeof(Shared) <= 227 * 1024, "");
};

// Where a warp stands in the steps of its block: bands of a strip that follow one another.
template <class T, class Shape>
class StripStepWalk : public StripWalk<T, Shape> {
    using Base = StripWalk<T, Shape>;

  public:
    using Base::args, Base::band, Base::column, Base::first, Base::row, Base::units;
    int step = 0;
    int done = 0, bands = 0;  // Of the steps before, and of this one, which has none at the end.
    int strips = 0;           // That have begun before this one.
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
    __device__ int stage() const { return step % Shape::STAGES; }
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
    __device__ __forceinline__ void copy_vectors(const StripStepArgs<T>& all, int k, char* to,
                                                 uint32_t barrier) const {
        const int matrix = all.one_x ? 0 : static_cast<int>(Base::matrix / args.groups);
#pragma unroll
        for (int x = 0; x < K; x += Image::SIDE)
            ptx::tensor_load(ptx::shared_address(to) + x / Image::SIDE * Image::BLOCK_BYTES,
                             &all.placed, matrix, Shape::X_ALONG ? Base::vector : k + x,
                             Shape::X_ALONG ? k + x : Base::vector, barrier);
    }

  private:
    __device__ void measure() {
        bands = min(min(Shape::BANDS, args.units.bands - band), units - done);
    }
};

}  // namespace packedtri::cuda
