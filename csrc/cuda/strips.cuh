// The kernels behind strips.h, for Hopper.
//
// The triangle is cut into strips of 256 columns, each of which is cut into bands of 32 rows. A block has bands of a
// strip that follow one another. Some of its warps bring them to shared memory, by tiles of 32 x 128, or 32 x 256 in 16-bit
// types; of each tile a
// team of others multiplies the rows with the vectors at the columns of the strip, and another team the columns with the
// vectors at the rows of the band: both where the matrix is symmetric. What the columns add up stays in registers as
// long as the strip does, what the rows add up as long as the band; then they go to scratch memory, and a second kernel
// adds up what belongs together, in an order that does not depend on timing.
#pragma once

#include "launch.h"
#include "strip_consumers.cuh"
#include "strip_producer.cuh"
#include "strips.h"
#include "vector_product.h"

namespace packedtri::cuda {

template <class T, class Shape>
__global__ void __launch_bounds__(Shape::THREADS, 1)
    strips_kernel(const __grid_constant__ StripArgs<T> args) {
#if PACKEDTRI_HOPPER
    extern __shared__ __align__(16) unsigned char memory[];
    auto& shared = *reinterpret_cast<typename Shape::Shared*>(memory);
    if (threadIdx.x == 0) {
        ptx::launch_dependents();
        shared.ring.start(Shape::PRODUCERS, Shape::CONSUMERS);
        shared.band_ring.start(Shape::PRODUCERS, Shape::TEAM);
        shared.bad_strip = shared.bad_bands[0] = shared.bad_bands[1] = -1;
    }
    __syncthreads();
    ptx::wait_for_dependency();
    if (threadIdx.x >= Shape::CONSUMERS) {
        ptx::keep_registers<Shape::PRODUCER_REGISTERS>();
        StripProducer<T, Shape>(args, shared).run();
    } else if (Shape::ROWS && threadIdx.x < Shape::TEAM) {
        if constexpr (Shape::BOTH) ptx::keep_registers<Shape::ROW_REGISTERS>();
        else ptx::take_registers<Shape::ROW_REGISTERS>();
        if constexpr (Shape::ROWS) StripRows<T, Shape>(args, shared).run();
    } else {
        ptx::take_registers<Shape::COLUMN_REGISTERS>();
        if constexpr (Shape::COLUMNS) StripColumns<T, Shape>(args, shared).run();
    }
#endif
}

constexpr int ADD_STRIPS_THREADS = 256;

// Adds up what the blocks have of each element of Y.
template <class T>
__global__ void __launch_bounds__(ADD_STRIPS_THREADS)
    add_strips_kernel(const __grid_constant__ StripArgs<T> args) {
    ptx::wait_for_dependency();
    ptx::launch_dependents();
    const int64_t element = int64_t{blockIdx.x} * ADD_STRIPS_THREADS + threadIdx.x,
                  vectors = element / args.at_once;
    const int c = static_cast<int>(element % args.at_once), i = static_cast<int>(vectors % args.n);
    const int64_t matrix = vectors / args.n;
    const int vector = static_cast<int>(matrix % args.groups) * args.at_once + c;
    if (matrix >= int64_t{args.batch} * args.groups || vector >= args.vectors) return;
    const StripUnits& units = args.units;
    const int strip = i / STRIP_WIDTH;
    typename StripArgs<T>::Acc sum = 0;
    if (args.rows) {
        const int band = i / STRIP_BAND;
        const auto* from =
            args.by_rows + (matrix * units.all() * STRIP_BAND + i % STRIP_BAND) * args.at_once + c;
#pragma unroll 8
        for (int s = 0; s <= strip; ++s)
            sum += from[int64_t{units.at(s, band)} * STRIP_BAND * args.at_once];
    }
    if (args.columns) {
        const int64_t first = matrix * units.all() + units.before(strip),
                      last = matrix * units.all() + units.before(strip + 1) - 1;
        const auto block_of = [&](int64_t unit) {
            return block_of_unit(unit, args.blocks, args.all);
        };
        const int64_t place = int64_t{i % STRIP_WIDTH} * args.at_once + c;
#pragma unroll 8
        for (int64_t b = block_of(first); b <= block_of(last); ++b)
            sum += args.column_sums(b, matrix, strip)[place];
    }
    args.y[matrix / args.groups * args.y_batch_stride + i * args.y_step + vector * args.y_next] =
        Accumulator<T>::round(sum);
}

template <class T>
StripArgs<T> strip_args(const Product& p) {
    const VectorProduct sides(p);
    StripArgs<T> args{};
    args.triangle = static_cast<const T*>(sides.packed.data);
    args.x = static_cast<const T*>(sides.vectors.data);
    args.y = static_cast<T*>(p.c.data);
    args.triangle_batch_stride = sides.packed.batch_stride;
    args.x_batch_stride = sides.vectors.batch_stride;
    args.y_batch_stride = p.c.batch_stride;
    args.x_step = sides.x_step;
    args.x_next = sides.x_next;
    args.y_step = sides.y_step;
    args.y_next = sides.y_next;
    args.n = static_cast<int>(p.k);
    args.vectors = static_cast<int>(vectors_of(p));
    args.batch = static_cast<int>(p.batch);
    args.at_once = strip_vectors(p);
    args.groups = static_cast<int>(ceil_div(args.vectors, args.at_once));
    args.units = strip_units(p.k);
    args.all = args.units.all() * args.batch * args.groups;
    args.rows = strips_sum_rows(p);
    args.columns = strips_sum_columns(p);
    return args;
}

template <class T, int VECTORS, bool ROWS, bool COLUMNS>
bool launch_strips(StripArgs<T> args, Scratch& scratch, cudaStream_t stream) {
    using Shape = StripShape<T, VECTORS, ROWS, COLUMNS>;
    constexpr const char* failure = "cannot launch a product";
    args.blocks = static_cast<int>(std::min<int64_t>(args.all, current_device().multiprocessors));
    const int64_t matrices = int64_t{args.batch} * args.groups;
    const StripSums sums = strip_sums(args.units, matrices, args.blocks, args.rows, args.columns);
    using Acc = typename Shape::Acc;
    args.by_rows = static_cast<Acc*>(
        scratch.reserve_if_free(sums.all() * VECTORS * static_cast<int64_t>(sizeof(Acc))));
    if (!args.by_rows) return false;
    args.by_columns = args.by_rows + sums.by_rows * VECTORS;
    const auto kernel = strips_kernel<T, Shape>;
    allow_shared(kernel);
    launch_overlapping(kernel, grid_of(args.blocks), Shape::THREADS, args, stream, failure, 1,
                       sizeof(typename Shape::Shared));
    launch_overlapping(add_strips_kernel<T>,
                       grid_of(ceil_div(matrices * args.n * VECTORS, ADD_STRIPS_THREADS)),
                       ADD_STRIPS_THREADS, args, stream, failure);
    return true;
}

template <int VECTORS, class T>
bool run_strips(const StripArgs<T>& args, Scratch& scratch, cudaStream_t stream) {
    if (!args.columns) return launch_strips<T, VECTORS, true, false>(args, scratch, stream);
    if (!args.rows) return launch_strips<T, VECTORS, false, true>(args, scratch, stream);
    return launch_strips<T, VECTORS, true, true>(args, scratch, stream);
}

template <class T>
bool run_strips(const Product& p, Scratch& scratch, cudaStream_t stream) {
    const StripArgs<T> args = strip_args<T>(p);
    if (args.at_once == 8) return run_strips<8>(args, scratch, stream);
    if (args.at_once == 16) return run_strips<16>(args, scratch, stream);
    if constexpr (sizeof(T) < 8)
        if (args.at_once == 64) return run_strips<64>(args, scratch, stream);
    return run_strips<32>(args, scratch, stream);
}

}  // namespace packedtri::cuda
