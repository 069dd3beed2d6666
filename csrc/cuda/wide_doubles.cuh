// What the warps of the kernel for a hundred vectors or so (wide_launch.cuh) do in float64: the triangle comes by lines of
// memory (line_tile.h), as for large tiles, the vectors in the order in which tensor cores take them (arranged_vectors.cuh).
#pragma once

#include "arranged_vectors.cuh"
#include "line_loader.cuh"
#include "line_mma_f64.cuh"
#include "panel.cuh"
#include "wide.cuh"

namespace packedtri::cuda {

// A step has some columns of a tile of 128 x 128 of sums along rows, or as many rows of those down columns.
template <int VECTORS_>
struct WideDoubleShape {
    static constexpr int VECTORS = VECTORS_, STEP = LineTile<true>::BK,
                         STEPS_A_TILE = WIDE_SIDE / STEP;
    static constexpr int CONSUMERS = 256, PRODUCERS = 128, THREADS = CONSUMERS + PRODUCERS,
                         COMPILED_THREADS = THREADS;
    static constexpr int PRODUCER_REGISTERS = 72, CONSUMER_REGISTERS = 216;
    static_assert(PRODUCERS * PRODUCER_REGISTERS + CONSUMERS * CONSUMER_REGISTERS <=
                  THREADS * (65536 / THREADS / 8 * 8));
    template <bool OF_ROWS>
    using Loader = LineLoader<PRODUCERS, LineTile<OF_ROWS>>;
    // Of a warp.
    static constexpr int ROWS = 32, COLS = VECTORS / 2, MT = ROWS / 16, NT = COLS / 8;
    static constexpr int X_SIZE = STEP * VECTORS,
                         TILE_SIZE = std::max(LineTile<true>::SIZE, LineTile<false>::SIZE);
    static constexpr int STAGES = 226 * 1024 / ((X_SIZE + TILE_SIZE) * 8);
    struct Shared {
        alignas(16) double x[STAGES][X_SIZE];
        alignas(16) double tile[STAGES][TILE_SIZE];
        Ring<STAGES> ring;
    };
    static_assert(sizeof(Shared) <= 227 * 1024, "");

    // The triangle as the sums of a walk see it: the diagonal of a symmetric matrix is added with the rows.
    template <class Walk>
    __device__ static Panel<double> panel(const Walk& at) {
        const int n = at.args.n;
        return {at.triangle,          0, n, n, true, at.of_rows || !at.args.rows ? 1 : 0,
                row_start<int64_t>(n)};
    }
};

template <class Shape>
class WideDoubleProducer {
  public:
    __device__ WideDoubleProducer(typename Shape::Shared& shared, const WideWalk<double, Shape>& at)
        : shared_(shared), at_(at) {}

    __device__ void run() {
        for (int step = 0; at_.left > 0;) {
            if (at_.of_rows) load<true>(step);
            else load<false>(step);
        }
    }

  private:
    // All units of a group that the block has.
    template <bool OF_ROWS>
    __device__ __forceinline__ void load(int& step) {
        const WideArgs<double>& args = at_.args;
        const int k0 = at_.k();
        typename Shape::template Loader<OF_ROWS> triangle(Shape::panel(at_),
                                                          OF_ROWS ? at_.row() : at_.column(), k0);
        const int64_t matrix = args.one_x ? at_.matrix % args.groups : at_.matrix;
        const double* x =
            args.placed + matrix * ArrangedVectors::elements(args) + int64_t{k0} * Shape::VECTORS;
#pragma unroll 1
        for (bool more = true; more;) {
#pragma unroll 1
            for (int part = 0; part < Shape::STEPS_A_TILE; ++part, ++step) {
                shared_.ring.wait_empty(step);
                const int stage = step % Shape::STAGES;
                const uint32_t full = shared_.ring.full(step);
                if (threadIdx.x < Shape::CONSUMERS + 32 && ptx::elect()) {
                    constexpr int BYTES = Shape::X_SIZE * static_cast<int>(sizeof(double));
                    ptx::mbarrier_expect(full, BYTES);
                    ptx::bulk_load(ptx::shared_address(shared_.x[stage]), x, BYTES, full);
                }
                triangle.next(shared_.tile[stage], full);
                ptx::cp_async_arrive(full);
                x += Shape::X_SIZE;
            }
            more = !at_.ends();
            at_.next();
        }
    }

    typename Shape::Shared& shared_;
    WideWalk<double, Shape> at_;
};

template <class Shape>
class WideDoubleConsumer {
  public:
    __device__ WideDoubleConsumer(typename Shape::Shared& shared, const WideWalk<double, Shape>& at)
        : shared_(shared), at_(at) {
        const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32, 0);
        row_ = warp / 2 * Shape::ROWS;
        col_ = warp % 2 * Shape::COLS;
    }

    __device__ void run() {
        for (int step = 0; at_.left > 0;) {
            if (at_.of_rows) add<true>(step);
            else add<false>(step);
        }
    }

  private:
    __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }

    // All units of a group that the block has.
    template <bool OF_ROWS>
    __device__ __forceinline__ void add(int& step) {
        using Tile = LineTile<OF_ROWS>;
        const typename Tile::Lane in_tile(
            lane(), row_, Shape::template Loader<OF_ROWS>::flips(Shape::panel(at_)));
        double acc[Shape::MT][Shape::NT][4] = {};
        double* const to = at_.args.sums_of(blockIdx.x, at_.matrix, at_.group);
#pragma unroll 1
        for (bool more = true; more;) {
#pragma unroll 1
            for (int part = 0; part < Shape::STEPS_A_TILE; ++part, ++step) {
                shared_.ring.wait_full(step);
                const int stage = step % Shape::STAGES;
                multiply(acc, shared_.tile[stage], in_tile, shared_.x[stage]);
                shared_.ring.leave(step);
            }
            more = !at_.ends();
            at_.next();
        }
        store<Tile>(acc, to);
    }

    template <class Lane>
    __device__ __forceinline__ void multiply(double (&acc)[Shape::MT][Shape::NT][4],
                                             const double* tile, const Lane& in_tile,
                                             const double* x) const {
        const auto* pairs = reinterpret_cast<const double2*>(x) + col_ / 8 * 64 + lane();
#pragma unroll
        for (int s = 0; s < Shape::STEP / 16; ++s) {
            double a[Shape::MT][8];
#pragma unroll
            for (int m = 0; m < Shape::MT; ++m) load_left(a[m], tile, in_tile, m, s);
#pragma unroll
            for (int c = 0; c < Shape::NT; ++c) {
                const double2* const from = pairs + (s * (Shape::VECTORS / 8) + c) * 64;
                const double2 first = from[0], second = from[32];
                const double b[4] = {first.x, first.y, second.x, second.y};
#pragma unroll
                for (int m = 0; m < Shape::MT; ++m) ptx::mma_16816(acc[m][c], a[m], b);
            }
        }
    }

    template <class Tile>
    __device__ __forceinline__ void store(const double (&acc)[Shape::MT][Shape::NT][4],
                                          double* to) const {
        to += (row_ + Tile::taken(lane() / 4)) * Shape::VECTORS + col_ + lane() % 4 * 2;
#pragma unroll
        for (int m = 0; m < Shape::MT; ++m)
#pragma unroll
            for (int h = 0; h < 2; ++h)
#pragma unroll
                for (int c = 0; c < Shape::NT; ++c)
                    *reinterpret_cast<double2*>(to + (m * 16 + h * 8) * Shape::VECTORS + c * 8) = {
                        acc[m][c][2 * h], acc[m][c][2 * h + 1]};
    }

    typename Shape::Shared& shared_;
    WideWalk<double, Shape> at_;
    int row_, col_;  // Of the warp, in a tile of the result.
};

}  // namespace packedtri::cuda
