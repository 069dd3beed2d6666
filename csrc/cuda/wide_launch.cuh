// The kernel for a hundred vectors or so, in which some warps load what warpgroups multiply, and the one behind it, which adds
// up what its blocks have of each sum.
#pragma once

#include "add_parts.cuh"
#include "wide.cuh"

namespace packedtri::cuda {

// A Producer and a Consumer know the shared memory, and where their block begins.
template <class T, class Shape, class Producer, class Consumer>
__global__ void __launch_bounds__(Shape::COMPILED_THREADS, 1)
    wide_kernel(const __grid_constant__ WideArgs<T> args) {
#if PACKEDTRI_HOPPER
    extern __shared__ __align__(1024) char memory[];
    auto& shared = *reinterpret_cast<typename Shape::Shared*>(memory);
    if (threadIdx.x == 0) {
        if constexpr (!std::is_same_v<T, double>) ptx::prefetch_map(&args.placed);
        shared.ring.start(Shape::PRODUCERS, Shape::CONSUMERS);
    }
    __syncthreads();
    ptx::launch_dependents();
    const WideWalk<T, Shape> at(args);
    ptx::wait_for_dependency();
    if (threadIdx.x >= Shape::CONSUMERS) {
        ptx::keep_registers<Shape::PRODUCER_REGISTERS>();
        Producer(shared, at).run();
    } else {
        ptx::take_registers<Shape::CONSUMER_REGISTERS>();
        Consumer(shared, at).run();
    }
#endif
}

template <class T, class Shape, class Producer, class Consumer>
void launch_wide(const WideArgs<T>& args, cudaStream_t stream) {
    launch_in_parts<T, Shape>(wide_kernel<T, Shape, Producer, Consumer>, args, stream);
}

}  // namespace packedtri::cuda
