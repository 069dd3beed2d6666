// The square tiles by which elements are packed and unpacked one by one.
#pragma once

#include "scalar.cuh"

namespace packedtri::cuda::conversion {

constexpr int THREADS = 256, WARPS = THREADS / 32;

// Small tiles give a small matrix to more multiprocessors; the rows of large ones are better for
// memory.
constexpr int SMALL = 32;
template <class T>
constexpr int LARGE = sizeof(T) <= 8 ? 64 : 32;

// Calls f(r, c, k) for the elements of a tile, k of which a thread has had before; lanes run along c.
template <int TILE, class F>
__device__ void for_tile(F f) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int r = 0; r < TILE; r += WARPS)
#pragma unroll
        for (int c = 0; c < TILE; c += 32) f(r + warp, c + lane, r / WARPS * (TILE / 32) + c / 32);
}

// An element on the diagonal of a matrix.
template <class T>
__device__ T on_diagonal(T x, bool hermitian) {
    if constexpr (is_complex<T>)
        if (hermitian) x.im = 0;
    return x;
}

}  // namespace packedtri::cuda::conversion
