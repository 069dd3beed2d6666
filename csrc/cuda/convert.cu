// Packing and unpacking at the speed of memory: square tiles, transposed through shared memory
// where the packed order and the dense order differ.
#include <utility>

#include "../index.h"
#include "elements.cuh"
#include "hopper.cuh"
#include "kernels.h"
#include "launch.h"

namespace packedtri::cuda {
namespace {

constexpr int THREADS = 256, WARPS = THREADS / 32;

template <class T>
struct ConvertArgs {
    T* packed;
    T* dense;
    int64_t packed_batch_stride, dense_batch_stride, row_stride, col_stride;
    Kind kind;
    int n, batch;
    bool hermitian;
};

// An element on the diagonal of a matrix.
template <class T>
__device__ T on_diagonal(const ConvertArgs<T>& args, T x) {
    if constexpr (is_complex<T>)
        if (args.hermitian) x.im = 0;
    return x;
}

// Small tiles give a small matrix to more multiprocessors; the rows of large ones are better for
// memory.
constexpr int SMALL = 32;
template <class T>
constexpr int LARGE = sizeof(T) <= 8 ? 64 : 32;

// Calls f(r, c) for the elements of a tile; lanes run along c.
template <int TILE, class F>
__device__ void for_tile(F f) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int r = 0; r < TILE; r += WARPS)
#pragma unroll
        for (int c = 0; c < TILE; c += 32) f(r + warp, c + lane);
}

// The tile (i0, j0), j0 <= i0, and the matrix of the batch that a block works on.
template <class T, int TILE>
struct Place {
    T* packed;
    T* dense;
    int i0, j0;

    __device__ explicit Place(const ConvertArgs<T>& args) {
        const auto matrices = static_cast<unsigned>(args.batch);
        const unsigned batch = blockIdx.x % matrices, tile = blockIdx.x / matrices;
        const int64_t i = row_of(tile);
        packed = args.packed + batch * args.packed_batch_stride;
        dense = args.dense + batch * args.dense_batch_stride;
        i0 = static_cast<int>(i) * TILE;
        j0 = static_cast<int>(tile - row_start(i)) * TILE;
    }
};

template <int TILE, class T>
__global__ void __launch_bounds__(THREADS) pack_kernel(const ConvertArgs<T> args) {
    __shared__ T mirror[TILE][TILE + 1];
    ptx::wait_for_dependency();
    ptx::launch_dependents();
    const Place<T, TILE> at(args);
    const auto dense = [&](int i, int j) -> const T& {
        return at.dense[i * args.row_stride + j * args.col_stride];
    };
    if (args.kind != Kind::Lower) {
        for_tile<TILE>([&](int r, int c) {
            if (at.j0 + r < args.n && at.i0 + c < args.n)
                mirror[r][c] = dense(at.j0 + r, at.i0 + c);
        });
        __syncthreads();
    }
    for_tile<TILE>([&](int r, int c) {
        const int i = at.i0 + r, j = at.j0 + c;
        if (i >= args.n || j > i) return;
        T value = args.kind == Kind::Upper ? mirror[c][r] : dense(i, j);
        if (i == j) value = on_diagonal(args, value);
        else if (args.kind == Kind::Symmetric)
            value = add(value, conjugate_if(mirror[c][r], args.hermitian));
        at.packed[offset(i, j)] = value;
    });
}

template <int TILE, class T>
__global__ void __launch_bounds__(THREADS) unpack_kernel(const ConvertArgs<T> args) {
    __shared__ T tile[TILE][TILE + 1];
    ptx::wait_for_dependency();
    ptx::launch_dependents();
    const Place<T, TILE> at(args);
    for_tile<TILE>([&](int r, int c) {
        const int i = at.i0 + r, j = at.j0 + c;
        if (i < args.n && j <= i) tile[r][c] = at.packed[offset(i, j)];
    });
    __syncthreads();
    const auto put = [&](int i, int j, T value) {
        if (i < args.n && j < args.n) at.dense[i * args.row_stride + j * args.col_stride] = value;
    };
    const bool lower = args.kind != Kind::Upper, upper = args.kind != Kind::Lower;
    const bool diagonal = at.i0 == at.j0;
    for_tile<TILE>([&](int r, int c) {
        if (diagonal && c > r)
            put(at.i0 + r, at.j0 + c, upper ? conjugate_if(tile[c][r], args.hermitian) : T{});
        else if (diagonal && c == r) put(at.i0 + r, at.j0 + c, on_diagonal(args, tile[r][c]));
        else put(at.i0 + r, at.j0 + c, lower ? tile[r][c] : T{});
    });
    if (diagonal) return;
    for_tile<TILE>([&](int r, int c) {
        put(at.j0 + r, at.i0 + c, upper ? conjugate_if(tile[c][r], args.hermitian) : T{});
    });
}

template <class T>
ConvertArgs<T> arguments(const Conversion& c) {
    ConvertArgs<T> args{static_cast<T*>(c.packed),
                        static_cast<T*>(c.dense),
                        c.packed_batch_stride,
                        c.dense_batch_stride,
                        c.row_stride,
                        c.col_stride,
                        c.kind,
                        static_cast<int>(c.n),
                        static_cast<int>(c.batch),
                        c.hermitian};
    // The kernels read along the columns of a row; a matrix that lies by columns is the transpose
    // of one that lies by rows. That of a Hermitian one is its conjugate, which they do not store.
    if (args.col_stride != 1 && args.row_stride == 1 && !c.hermitian) {
        std::swap(args.row_stride, args.col_stride);
        if (c.kind == Kind::Lower) args.kind = Kind::Upper;
        if (c.kind == Kind::Upper) args.kind = Kind::Lower;
    }
    return args;
}

template <class T>
void launch(void (*small)(ConvertArgs<T>), void (*large)(ConvertArgs<T>), const Conversion& c,
            cudaStream_t stream) {
    const ConvertArgs<T> args = arguments<T>(c);
    const bool few = row_start(ceil_div(args.n, LARGE<T>)) * args.batch <
                     8 * int64_t{current_device().multiprocessors};
    const int64_t count = row_start(ceil_div(args.n, few ? SMALL : LARGE<T>)) * args.batch;
    if (count > INT32_MAX)
        throw std::runtime_error("[packedtri] the batch is too large for one launch");
    launch_overlapping(few ? small : large, dim3(static_cast<unsigned>(count)), THREADS, args,
                       stream, "cannot launch a conversion");
}

}  // namespace

void pack(const Conversion& c, cudaStream_t stream) {
    with_element_type(c.dtype, [&](auto element) {
        using T = decltype(element);
        launch<T>(pack_kernel<SMALL, T>, pack_kernel<LARGE<T>, T>, c, stream);
    });
}

void unpack(const Conversion& c, cudaStream_t stream) {
    with_element_type(c.dtype, [&](auto element) {
        using T = decltype(element);
        launch<T>(unpack_kernel<SMALL, T>, unpack_kernel<LARGE<T>, T>, c, stream);
    });
}

}  // namespace packedtri::cuda
