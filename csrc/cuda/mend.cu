// Makes good what a dense product does with structural zeros: times an infinite or nan element they are
// nan there, and no part of the product here.
#include "elements.cuh"
#include "hopper.cuh"
#include "kernels.h"
#include "product_launch.cuh"

namespace packedtri::cuda {
namespace {

constexpr int WARPS = 8, THREADS = 32 * WARPS;

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
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) args.c[index] = Accumulator<T>::round(sum);
}

// Columns of a triangle times a dense matrix, or rows of a dense matrix times a triangle.
template <class T>
struct LinesArgs {
    MendArgs<T> product;
    bool columns;
    int64_t count;
    int length, step;
    int witness;  // An element of each that is not finite if a structural zero has spoiled any.

    __device__ int64_t start(int64_t line) const {
        const int64_t n = product.n;
        return columns ? line / n * product.m * n + line % n : line * n;
    }
};

// An element of B spoils those of its column of T B in whose rows T has a zero at its place. One row of T has
// zeros wherever any other has, the first of a lower triangle, the last of an upper one: its elements of the
// product are witnesses. Likewise of A T. In the lower triangles of L U and of U L zeros of L meet zeros of U alone, so
// that rows or columns of L spoil what they spoil of a dense matrix. A block has 32 lines, a witness a lane, and computes
// what is bad in them again, an element a warp; where there are many lines, APART, each warp has so many for itself, since
// mostly there is nothing to do but to read witnesses.
template <class T, bool APART>
__global__ void __launch_bounds__(THREADS) lines_kernel(const __grid_constant__ LinesArgs<T> args) {
    ptx::wait_for_dependency();
    ptx::launch_dependents();
    const T* c = args.product.c;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int64_t group = APART ? int64_t{blockIdx.x} * WARPS + warp : blockIdx.x,
                  first = 32 * group, line = first + threadIdx.x % 32;
    const bool bad =
        line < args.count && !finite(c[args.start(line) + int64_t{args.witness} * args.step]);
    unsigned lines = __ballot_sync(~0u, bad);
    if (lines == 0) return;
    // Until every warp has seen the witnesses, which are computed again as well.
    if constexpr (!APART) __syncthreads();
    for (; lines != 0; lines &= lines - 1) {
        const int64_t start = args.start(first + __ffs(static_cast<int>(lines)) - 1);
        for (int e = APART ? 0 : warp; e < args.length; e += APART ? 1 : WARPS)
            if (const int64_t at = start + int64_t{e} * args.step; !finite(c[at]))
                compute(args.product, at);
    }
}

// Any element of other products of two triangles, a word of 16 bytes a thread. What was written last comes first:
// the L2 cache may still have it.
template <class T>
__global__ void __launch_bounds__(THREADS)
    elements_kernel(const __grid_constant__ MendArgs<T> args) {
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

template <class Args>
void launch(void (*kernel)(Args), const Args& args, int64_t blocks, cudaStream_t stream) {
    launch_overlapping(kernel, dim3(static_cast<unsigned>(blocks)), THREADS, args, stream,
                       "cannot launch a product");
}

}  // namespace

void mend(const Product& p, Kind part, cudaStream_t stream) {
    check_reach({p.m, p.n, p.k, p.batch});
    const bool left = is_triangular(p.a.kind), right = is_triangular(p.b.kind);
    with_element_type(p.dtype, [&](auto element) {
        using T = decltype(element);
        const MendArgs<T> args{
            orient<T>(p.a, true),  orient<T>(p.b, false),     p.a.batch_stride,
            p.b.batch_stride,      static_cast<T*>(p.c.data), p.batch * p.m * p.n,
            static_cast<int>(p.m), static_cast<int>(p.n),     static_cast<int>(p.k)};
        const bool crossed = left && right && p.a.kind != p.b.kind && part == Kind::Lower;
        if (left && right && !crossed)
            return launch(elements_kernel<T>, args, ceil_div(args.count, THREADS * 16 / sizeof(T)),
                          stream);
        // Of A T the last column is that with most zeros if T is lower, and the first one otherwise.
        const bool columns = crossed ? p.a.kind == Kind::Upper : left;
        const int64_t count = p.batch * (columns ? p.n : p.m);
        const int length = columns ? args.m : args.n;
        const bool at_start = columns == ((columns ? p.a : p.b).kind == Kind::Lower);
        const LinesArgs<T> of_lines{
            args, columns, count, length, columns ? args.n : 1, at_start ? 0 : length - 1};
        // Blocks that only look at 32 witnesses each would take longer to come and go; but where something is wrong with
        // long lines, more warps than one had better mend each.
        const int64_t many = length <= 64 ? 1 << 14 : 1 << 17;
        if (count < many) launch(lines_kernel<T, false>, of_lines, ceil_div(count, 32), stream);
        else launch(lines_kernel<T, true>, of_lines, ceil_div(count, 32 * WARPS), stream);
    });
}

}  // namespace packedtri::cuda
