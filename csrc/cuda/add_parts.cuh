// Adds up the parts of sums that blocks have written, of products of a packed matrix and vectors.
#pragma once

#include "hopper.cuh"
#include "launch.h"
#include "scalar.cuh"
#include "triangle_16bit.cuh"
#include "vector_args.cuh"

namespace packedtri::cuda {

constexpr int ADD_PARTS_THREADS = 256;
// How many lanes have the vectors of an element: at least a warp.
template <int VECTORS>
constexpr int ADD_PARTS_LANES = VECTORS < 4 * 32 ? 32 : VECTORS / 4;

// Element i of a vector of the result over stored elements only, by all lanes of a warp.
template <class T>
__device__ __noinline__ typename Accumulator<T>::type sum_of_stored(const VectorArgs<T>& args,
                                                                    int64_t batch, int i,
                                                                    int vector) {
    const T *x = args.x + batch * args.x_batch_stride + vector * args.x_next,
            *triangle = args.triangle + batch * args.triangle_batch_stride;
    const auto lane = static_cast<int>(threadIdx.x % 32);
    typename Accumulator<T>::type sum = 0;
    if (args.rows)
        sum += Triangle<T>(triangle, args.n, 1).template sum<32>(x, args.x_step, i, true, lane);
    // The diagonal of a symmetric matrix is in the sum along the row.
    if (args.columns)
        sum += Triangle<T>(triangle, args.n, args.rows ? 0 : 1)
                   .template sum<32>(x, args.x_step, i, false, lane);
#pragma unroll
    for (int lanes = 1; lanes < 32; lanes *= 2) sum += __shfl_xor_sync(~0u, sum, lanes);
    return sum;
}

// Four vectors of an element of the result have a lane, or some lanes, each of which adds up a share of the parts, all of
// them on their way at once. `args.parts(matrix, i)` says how many there are of element i, and where each one lies.
template <class T, int VECTORS, class Args>
__global__ void __launch_bounds__(ADD_PARTS_THREADS)
    add_parts_kernel(const __grid_constant__ Args args) {
    constexpr int FOURS = VECTORS / 4, LANES = ADD_PARTS_LANES<VECTORS>, SHARES = LANES / FOURS,
                  ROWS = ADD_PARTS_THREADS / LANES;
    const unsigned of_matrix = (static_cast<unsigned>(args.n) + ROWS - 1) / ROWS;
    const int64_t matrix = blockIdx.x / of_matrix, batch = matrix / args.groups;
    const auto i = static_cast<int>(blockIdx.x % of_matrix * ROWS + threadIdx.x / LANES);
    const int c = threadIdx.x % FOURS * 4, share = threadIdx.x % LANES / FOURS,
              vector = static_cast<int>(matrix - batch * args.groups) * VECTORS + c;
    const auto parts = args.parts(matrix, i);
    ptx::wait_for_dependency();
    ptx::launch_dependents();
    using Acc = typename Accumulator<T>::type;
    struct alignas(16) Four {
        Acc x[4];
    } sum{};
    // All of a warp have the same element, or none.
    if (i < args.n) {
#pragma unroll 8
        for (int s = share; s < parts.count; s += SHARES) {
            const Four part = *reinterpret_cast<const Four*>(parts.at(s) + c);
#pragma unroll
            for (int e = 0; e < 4; ++e) sum.x[e] += part.x[e];
        }
#pragma unroll
        for (int lanes = FOURS; lanes < LANES; lanes *= 2)
#pragma unroll
            for (Acc& x : sum.x) x += __shfl_xor_sync(~0u, x, lanes);
    }
    // Tensor cores multiply elements with zeros that are not stored, which makes nan of infinite ones.
    if constexpr (Args::MEETS_ZEROS) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            unsigned again =
                __ballot_sync(~0u, share == 0 && vector + e < args.vectors && !isfinite(sum.x[e]));
            for (; again != 0; again &= again - 1) {
                const int lane = __ffs(static_cast<int>(again)) - 1;
                const Acc stored =
                    sum_of_stored<T>(args, batch, i, __shfl_sync(~0u, vector + e, lane));
                if (static_cast<int>(threadIdx.x % 32) == lane) sum.x[e] = stored;
            }
        }
    }
    T* const y = args.y + batch * args.y_batch_stride;
    // Elements of one vector that are neighbours are stored side by side.
    if (args.y_step == 1) {
        __shared__ T staged[VECTORS][ROWS + 1];
        const int of_block = static_cast<int>(threadIdx.x) / LANES;
        if (share == 0)
#pragma unroll
            for (int e = 0; e < 4; ++e) staged[c + e][of_block] = Accumulator<T>::round(sum.x[e]);
        __syncthreads();
        for (int x = threadIdx.x; x < ROWS * VECTORS; x += ADD_PARTS_THREADS) {
            const int element = i - of_block + x % ROWS, of_all = vector - c + x / ROWS;
            if (element < args.n && of_all < args.vectors)
                y[element + of_all * args.y_next] = staged[x / ROWS][x % ROWS];
        }
        return;
    }
    if (share != 0 || i >= args.n) return;
#pragma unroll
    for (int e = 0; e < 4; ++e) {
        if (vector + e >= args.vectors) break;
        y[i * args.y_step + (vector + e) * args.y_next] = Accumulator<T>::round(sum.x[e]);
    }
}

// A kernel whose blocks write parts of sums, and then the one that adds them up.
template <class T, class Shape, class Args>
void launch_in_parts(void (*kernel)(Args), const Args& args, cudaStream_t stream) {
    allow_shared(kernel);
    launch_overlapping(kernel, grid_of(args.blocks), Shape::THREADS, args, stream,
                       "cannot launch a product", 1, sizeof(typename Shape::Shared));
    constexpr int ROWS = ADD_PARTS_THREADS / ADD_PARTS_LANES<Shape::VECTORS>;
    launch_overlapping(add_parts_kernel<T, Shape::VECTORS, Args>,
                       grid_of(args.matrices() * ceil_div(args.n, ROWS)), ADD_PARTS_THREADS, args,
                       stream, "cannot launch a sum");
}

}  // namespace packedtri::cuda
