// What the kernels for few vectors share: which part of the result a block computes, and how the blocks of a
// cluster add up their sums.
#pragma once

#include "../index.h"
#include "cluster_sum.cuh"
#include "hopper.cuh"
#include "launch.h"
#include "scalar.cuh"
#include "vector_product.h"

namespace packedtri::cuda {

constexpr int THIN_THREADS = 256, THIN_WARPS = THIN_THREADS / 32;

// Y = alpha T X + beta Y or the same with Tᵀ, for a packed triangle T of order n.
template <class T>
struct ThinArgs {
    using Real = typename Accumulator<T>::real;
    const T* triangle;
    const T* x;
    T* y;
    int64_t triangle_batch_stride, x_batch_stride, y_batch_stride;
    // From one element of a vector to the next, and from vector to vector.
    int64_t x_step, x_next, y_step, y_next;
    int n, vectors, batch;
    int reach;  // Row i has the columns below i + reach.
    int split;  // Blocks of a cluster, which share the sums of the same elements of Y.
    Real alpha, beta;
};

// What a block computes: elements [first, first + OUT) of C vectors. Vectors that share elements of T
// are neighbours, and the longest sums come first.
template <int OUT, int C>
struct ThinPart {
    int rank, vector, first;
    int64_t batch;

    template <class T>
    __device__ ThinPart(const ThinArgs<T>& args, bool from_the_end) {
        const int vectors = static_cast<int>(ceil_div(args.vectors, C)),
                  groups = static_cast<int>(ceil_div(args.n, OUT));
        int64_t block = blockIdx.x;
        rank = static_cast<int>(block % args.split);
        block /= args.split;
        vector = static_cast<int>(block % vectors) * C;
        block /= vectors;
        batch = block % args.batch;
        const int group = static_cast<int>(block / args.batch);
        first = (from_the_end ? groups - 1 - group : group) * OUT;
    }
};

// Adds up the sums of all blocks of the cluster, in the order of their ranks, and stores them. Sum
// (r, c) of this block, element r of vector c, is sums[r * r_stride + c * c_stride]. What `change`(i, c, sum)
// makes of the sum of element i of vector c is stored.
template <int OUT, int C, class T, class Acc, class Change>
__device__ void store_sums(const ThinArgs<T>& args, const ThinPart<OUT, C>& part, Acc* sums,
                           int r_stride, int c_stride, Change change) {
    if (args.split > 1) ptx::cluster_sync();
    else __syncthreads();
    T* y = args.y + part.batch * args.y_batch_stride;
    const bool across = args.y_next == 1;
    const int share = OUT * C / args.split;
    for (int e = part.rank * share + threadIdx.x; e < (part.rank + 1) * share; e += THIN_THREADS) {
        const int r = across ? e / C : e % OUT, c = across ? e % C : e / OUT;
        const int i = part.first + r, vector = part.vector + c;
        if (i >= args.n || vector >= args.vectors) continue;
        Acc* const mine = sums + r * r_stride + c * c_stride;
        Acc sum = args.split > 1 ? cluster_sum(mine, args.split) : *mine;
        T& out = y[i * args.y_step + vector * args.y_next];
        sum = change(i, vector, sum) * args.alpha;
        if (args.beta != 0) sum += args.beta * Accumulator<T>::widen(out);
        out = Accumulator<T>::round(sum);
    }
    if (args.split > 1) leave_cluster();
}

// Launches `kernel`, whose blocks compute OUT elements of C vectors and advance by STEPS.
template <int OUT, int C, int STEPS, class T>
void launch_thin(void (*kernel)(ThinArgs<T>), ThinArgs<T> args, cudaStream_t stream) {
    const Device& device = current_device();
    const int64_t parts = ceil_div(args.n, OUT) * ceil_div(args.vectors, C) * args.batch;
    // Twice as many blocks as there are multiprocessors balance the lengths of sums. Clusters of eight find
    // room more slowly, and are for products that would leave some without a block.
    const auto few = [&] {
        return parts * args.split < device.multiprocessors * (args.split < 4 ? 2 : 1);
    };
    args.split = 1;
    while (device.clusters && args.split < 8 && few() && args.n > 2 * STEPS * args.split)
        args.split *= 2;
    launch_overlapping(kernel, grid_of(parts * args.split), THIN_THREADS, args, stream,
                       "cannot launch a product", args.split);
}

template <class T>
ThinArgs<T> thin_args(const Product& p) {
    const VectorProduct sides(p);
    const auto vectors = static_cast<int>(vectors_of(p));
    using Real = typename ThinArgs<T>::Real;
    return {static_cast<const T*>(sides.packed.data),
            static_cast<const T*>(sides.vectors.data),
            static_cast<T*>(p.c.data),
            sides.packed.batch_stride,
            sides.vectors.batch_stride,
            p.c.batch_stride,
            sides.x_step,
            sides.x_next,
            sides.y_step,
            sides.y_next,
            static_cast<int>(p.k),
            vectors,
            static_cast<int>(p.batch),
            sides.packed.strict ? 0 : 1,
            1,
            static_cast<Real>(p.alpha),
            static_cast<Real>(p.beta)};
}

}  // namespace packedtri::cuda
