// Makes good what a dense product does with structural zeros: times an infinite or nan element they are
// nan there, and no part of the product here.
#include "elements.cuh"
#include "hopper.cuh"
#include "kernels.h"
#include "product_launch.cuh"

namespace packedtri::cuda {
namespace {

constexpr int THREADS = 256;

template <class T>
struct MendArgs {
    OrientedPanel<T> a, b;
    int64_t a_batch_stride, b_batch_stride;
    T* c;
    int64_t count;  // Elements of all results.
    int m, n, k;
};

// One element by a warp.
template <class T>
__device__ void compute(const MendArgs<T>& args, int64_t index) {
    const int64_t size = int64_t{args.m} * args.n, batch = index / size, within = index % size;
    const int i = static_cast<int>(within / args.n), j = static_cast<int>(within % args.n);
    const Panel<T> a = at_batch(args.a.panel, batch * args.a_batch_stride),
                   b = at_batch(args.b.panel, batch * args.b_batch_stride);
    typename Accumulator<T>::type sum{};
    for (int k = threadIdx.x % 32; k < args.k; k += 32) {
        const T *x = a.stored(args.a.k_major, i, k), *y = b.stored(args.b.k_major, j, k);
        if (x && y) fma_into(sum, Accumulator<T>::widen(*x), Accumulator<T>::widen(*y));
    }
    for (int distance = 16; distance > 0; distance /= 2)
        sum = add(sum, shuffle_down(sum, distance));
    if (threadIdx.x % 32 == 0) args.c[index] = Accumulator<T>::round(sum);
}

// A word of 16 bytes of results a thread. What was written last comes first: the L2 cache may still have it.
template <class T>
__global__ void __launch_bounds__(THREADS) mend_kernel(const __grid_constant__ MendArgs<T> args) {
    constexpr int WORD = 16 / sizeof(T);
    ptx::wait_for_dependency();
    ptx::launch_dependents();
    const int64_t block = gridDim.x - 1 - blockIdx.x,
                  first = (block * THREADS + threadIdx.x) * WORD;
    unsigned bad = 0;
    if (first + WORD <= args.count) {
        const uint4 word = *reinterpret_cast<const uint4*>(args.c + first);
        const T* elements = reinterpret_cast<const T*>(&word);
#pragma unroll
        for (int e = 0; e < WORD; ++e) bad |= static_cast<unsigned>(!finite(elements[e])) << e;
    } else {
        for (int e = 0; first + e < args.count; ++e)
            bad |= static_cast<unsigned>(!finite(args.c[first + e])) << e;
    }
    for (unsigned lanes = __ballot_sync(~0u, bad != 0); lanes != 0; lanes &= lanes - 1) {
        const int lane = __ffs(static_cast<int>(lanes)) - 1;
        const int64_t theirs = first + (lane - static_cast<int>(threadIdx.x % 32)) * WORD;
        for (unsigned e = __shfl_sync(~0u, bad, lane); e != 0; e &= e - 1)
            compute(args, theirs + __ffs(static_cast<int>(e)) - 1);
    }
}

}  // namespace

void mend(const Product& p, cudaStream_t stream) {
    with_element_type(p.dtype, [&](auto element) {
        using T = decltype(element);
        const MendArgs<T> args{
            orient<T>(p.a, true),  orient<T>(p.b, false),     p.a.batch_stride,
            p.b.batch_stride,      static_cast<T*>(p.c.data), p.batch * p.m * p.n,
            static_cast<int>(p.m), static_cast<int>(p.n),     static_cast<int>(p.k)};
        const int64_t blocks = ceil_div(args.count, THREADS * 16 / sizeof(T));
        launch_overlapping(mend_kernel<T>, dim3(static_cast<unsigned>(blocks)), THREADS, args,
                           stream, "cannot launch a product");
    });
}

}  // namespace packedtri::cuda
