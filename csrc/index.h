// The index formulas of a packed triangle: where its rows begin.
//
// A packed triangle of order n keeps its rows one after another: row i holds the i + 1 elements
// (i, 0) ... (i, i). That is torch.tril_indices order, and LAPACK's column-major packed order with
// uplo = 'U' of the transpose.
#pragma once

#include <cstdint>
#include <type_traits>

#if defined(__CUDACC__)
#define PACKEDTRI_HD __host__ __device__
#else
#define PACKEDTRI_HD
#endif

namespace packedtri {

// Offset of the first element of row i; also the number of elements in a triangle of order i. `Index` is
// what it is computed in.
template <class Index = int64_t>
PACKEDTRI_HD constexpr Index row_start(std::common_type_t<Index> i) {
    return i * (i + 1) / 2;
}

// Offset of element (i, j), i >= j.
PACKEDTRI_HD constexpr int64_t offset(int64_t i, int64_t j) { return row_start(i) + j; }

PACKEDTRI_HD constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// How much of `total` comes before part s of `count` equal ones.
constexpr int64_t share_before(int64_t total, int64_t s, int64_t count) {
    // total * s may be more than an integer holds.
    return total / count * s + total % count * s / count;
}

// The row i that holds linear position t, that is row_start(i) <= t < row_start(i + 1), for
// 0 <= t < 2^61. The bits of i are found from the top, in integers: a floating-point square root
// is wrong at rows where t passes its precision. On the GPU, where one thread may wait for it, small t
// start from such a root and are put right.
PACKEDTRI_HD constexpr int64_t row_of(int64_t t) {
#if defined(__CUDA_ARCH__)
    if (t < int64_t{1} << 29) {
        const int small = static_cast<int>(t);
        int i = static_cast<int>(__fsqrt_rn(2.f * static_cast<float>(small)));
        while (i * (i + 1) / 2 > small) --i;
        while ((i + 1) * (i + 2) / 2 <= small) ++i;
        return i;
    }
#endif
    int64_t i = 0;
#if defined(__CUDA_ARCH__)
    int bit = 30;
#else
    // The host has small t where it waits: from their own highest bit on.
    int bit = 0;
    while (bit < 30 && row_start(int64_t{2} << bit) <= t) ++bit;
#endif
    for (; bit >= 0; --bit) {
        const int64_t larger = i + (int64_t{1} << bit);
        if (row_start(larger) <= t) i = larger;
    }
    return i;
}

#if defined(__CUDA_ARCH__)
// The same for t < 2^29, in 32 bits. The row of the rounded root is at most one off.
__device__ inline int row_of_small(int t) {
    int i = static_cast<int>((__fsqrt_rn(8.f * static_cast<float>(t) + 1.f) - 1.f) * 0.5f);
    if (i * (i + 1) / 2 > t) --i;
    if ((i + 1) * (i + 2) / 2 <= t) ++i;
    return i;
}
#endif

}  // namespace packedtri
