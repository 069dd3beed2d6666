// The kernels behind strips.h for symmetric matrices with elements of 2 bytes, for Hopper.
//
// Strips and bands are those of strips.cuh, but warpgroups multiply two bands at once, a step, and the copy engine brings
// the vectors, as image blocks. The rows of the triangle lie in shared memory as in memory, beginning anywhere in a word of
// 16 bytes. Tensor cores want only their right operand aligned there, and take the left one from registers: the triangle as
// it is, or transposed, so that what is loaded once is multiplied twice.
#pragma once

#include "add_parts.cuh"
#include "mapped_vectors.cuh"
#include "strip_groups.cuh"
#include "strips.h"

namespace packedtri::cuda {

template <class T, class Shape>
__global__ void __launch_bounds__(Shape::THREADS, 1)
    strip_steps_kernel(const __grid_constant__ StripStepArgs<T> args) {
#if PACKEDTRI_HOPPER
    extern __shared__ __align__(1024) char memory[];
    auto& shared = *reinterpret_cast<typename Shape::Shared*>(memory);
    if (threadIdx.x == 0) {
        ptx::prefetch_map(&args.placed);
        shared.start();
    }
    __syncthreads();
    ptx::launch_dependents();
    const StripStepWalk<T, Shape> at(args);
    ptx::wait_for_dependency();
    if (threadIdx.x >= Shape::CONSUMERS) {
        ptx::keep_registers<Shape::PRODUCER_REGISTERS>();
        StripStepProducer<T, Shape>(args, shared, at).run();
    } else if (threadIdx.x < Shape::TEAM) {
        ptx::keep_registers<Shape::ROW_REGISTERS>();
        StripStepRows<T, Shape>(args, shared, at).run();
    } else {
        ptx::take_registers<Shape::COLUMN_REGISTERS>();
        StripStepColumns<T, Shape>(args, shared, at).run();
    }
#endif
}

template <class T, int VECTORS, bool X_ALONG>
void launch_strip_steps(const StripStepArgs<T>& args, cudaStream_t stream) {
    using Shape = StripStepShape<T, VECTORS, X_ALONG>;
    launch_in_parts<T, Shape>(strip_steps_kernel<T, Shape>, args, stream);
}

template <bool X_ALONG, class T>
void launch_strip_steps(const StripStepArgs<T>& args, cudaStream_t stream) {
    if (args.at_once == 16) launch_strip_steps<T, 16, X_ALONG>(args, stream);
    else launch_strip_steps<T, 32, X_ALONG>(args, stream);
}

template <class T>
bool run_strips_16bit(const Product& p, Scratch& scratch, cudaStream_t stream) {
    const MappedVectors<T> vectors(p);
    StripStepArgs<T> args(p, current_device().multiprocessors);
    if (!place_vectors(vectors, args, scratch, stream)) return false;
    if (vectors.along()) launch_strip_steps<true>(args, stream);
    else launch_strip_steps<false>(args, stream);
    return true;
}

}  // namespace packedtri::cuda
