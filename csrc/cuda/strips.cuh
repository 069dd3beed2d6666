// The kernels behind strips.h for elements of 4 and 8 bytes, for Hopper.
//
// The triangle is cut into strips of 256 columns, each of which is cut into bands of 32 rows. A block has bands of a
// strip that follow one another. Some of its warps bring them to shared memory, by tiles of 32 x 128; of each tile a
// team of others multiplies the rows with the vectors at the columns of the strip, and another team the columns with the
// vectors at the rows of the band: both where the matrix is symmetric. What the columns add up stays in registers as
// long as the strip does, what the rows add up as long as the band; then they go to scratch memory, and a second kernel
// adds up what belongs together, in an order that does not depend on timing.
#pragma once

#include "add_parts.cuh"
#include "strip_consumers.cuh"
#include "strip_producer.cuh"
#include "strips.h"

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

template <class T, int VECTORS, bool ROWS, bool COLUMNS>
void launch_strips(const StripArgs<T>& args, cudaStream_t stream) {
    using Shape = StripShape<T, VECTORS, ROWS, COLUMNS>;
    launch_in_parts<T, Shape>(strips_kernel<T, Shape>, args, stream);
}

template <int VECTORS, class T>
void launch_strips(const StripArgs<T>& args, cudaStream_t stream) {
    if (!args.columns) return launch_strips<T, VECTORS, true, false>(args, stream);
    if (!args.rows) return launch_strips<T, VECTORS, false, true>(args, stream);
    return launch_strips<T, VECTORS, true, true>(args, stream);
}

template <class T>
bool run_strips(const Product& p, Scratch& scratch, cudaStream_t stream) {
    StripArgs<T> args(p, current_device().multiprocessors);
    void* const memory = scratch.reserve_if_free(args.bytes());
    if (!memory) return false;
    args.put_sums(memory);
    switch (args.at_once) {
        case 8: launch_strips<8>(args, stream); break;
        case 16: launch_strips<16>(args, stream); break;
        default: launch_strips<32>(args, stream);
    }
    return true;
}

}  // namespace packedtri::cuda
