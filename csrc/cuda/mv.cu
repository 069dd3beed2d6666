#include "mv.h"

#include "../index.h"
#include "elements.cuh"
#include "launch.h"

namespace packedtri::cuda {
namespace {

// y = T x, or its transpose y = Tᵀ x, for a packed triangle T.
template <class T>
struct MvArgs {
    const T* triangle;
    const T* x;
    T* y;
    int64_t triangle_batch_stride, x_batch_stride, y_batch_stride, x_stride;
    int n, batch;
};

constexpr int DOT_THREADS = 256, DOT_UNROLL = 8;
constexpr int SUM_WARPS = 32;

// y_i is the dot product of memory row i and x: one warp a row, long rows first.
template <class T>
__global__ void __launch_bounds__(DOT_THREADS) dot_rows(const MvArgs<T> args) {
    using Acc = typename Accumulator<T>::type;
    const int lane = threadIdx.x % 32;
    const int64_t batch = blockIdx.x % args.batch;
    const int i = args.n - 1 -
                  static_cast<int>(blockIdx.x / args.batch * (DOT_THREADS / 32) + threadIdx.x / 32);
    if (i < 0) return;
    const T* row = args.triangle + batch * args.triangle_batch_stride + row_start(i);
    const T* x = args.x + batch * args.x_batch_stride;
    const auto term = [&](Acc& sum, int j) {
        fma_into(sum, Accumulator<T>::widen(row[j]), Accumulator<T>::widen(x[j * args.x_stride]));
    };
    Acc sum[DOT_UNROLL] = {};
    int j = lane;
    for (; j + 32 * (DOT_UNROLL - 1) <= i; j += 32 * DOT_UNROLL)
#pragma unroll
        for (int u = 0; u < DOT_UNROLL; ++u) term(sum[u], j + 32 * u);
    for (; j <= i; j += 32) term(sum[0], j);
#pragma unroll
    for (int u = 1; u < DOT_UNROLL; ++u) sum[0] = add(sum[0], sum[u]);
    for (int distance = 16; distance > 0; distance /= 2)
        sum[0] = add(sum[0], shuffle_down(sum[0], distance));
    if (lane == 0) args.y[batch * args.y_batch_stride + i] = Accumulator<T>::round(sum[0]);
}

// y_j sums memory rows i >= j, each times x_i: one block for 32 columns, its warps share the rows.
template <class T>
__global__ void __launch_bounds__(32 * SUM_WARPS) sum_rows(const MvArgs<T> args) {
    using Acc = typename Accumulator<T>::type;
    __shared__ Acc partial[SUM_WARPS][32];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int64_t batch = blockIdx.x % args.batch;
    const int j0 = static_cast<int>(blockIdx.x / args.batch) * 32, j = j0 + lane;
    const T* triangle = args.triangle + batch * args.triangle_batch_stride;
    const T* x = args.x + batch * args.x_batch_stride;
    Acc sum{};
#pragma unroll 8
    for (int i = j0 + warp; i < args.n; i += SUM_WARPS)
        if (j <= i)
            fma_into(sum, Accumulator<T>::widen(triangle[offset(i, j)]),
                     Accumulator<T>::widen(x[i * args.x_stride]));
    partial[warp][lane] = sum;
    __syncthreads();
    if (warp != 0 || j >= args.n) return;
    for (int w = 1; w < SUM_WARPS; ++w) sum = add(sum, partial[w][lane]);
    args.y[batch * args.y_batch_stride + j] = Accumulator<T>::round(sum);
}

unsigned grid(int64_t blocks) {
    if (blocks > INT32_MAX)
        throw std::runtime_error("[packedtri] the batch is too large for one launch");
    return static_cast<unsigned>(blocks);
}

}  // namespace

void mv(const Product& p, cudaStream_t stream) {
    const bool left = p.a.kind != Kind::Dense;
    const Operand& triangle = left ? p.a : p.b;
    const Operand& x = left ? p.b : p.a;
    // A row times T is Tᵀ times a column.
    const bool rows = left == (triangle.kind == Kind::Lower);
    with_element_type(p.dtype, [&](auto element) {
        using T = decltype(element);
        const MvArgs<T> args{static_cast<const T*>(triangle.data),
                             static_cast<const T*>(x.data),
                             static_cast<T*>(p.c.data),
                             triangle.batch_stride,
                             x.batch_stride,
                             p.c.batch_stride,
                             left ? x.row_stride : x.col_stride,
                             static_cast<int>(p.k),
                             static_cast<int>(p.batch)};
        if (rows)
            dot_rows<<<grid(ceil_div(p.k, DOT_THREADS / 32) * p.batch), DOT_THREADS, 0, stream>>>(
                args);
        else sum_rows<<<grid(ceil_div(p.k, 32) * p.batch), 32 * SUM_WARPS, 0, stream>>>(args);
    });
    check(cudaGetLastError(), "cannot launch a matrix-vector product");
}

}  // namespace packedtri::cuda
