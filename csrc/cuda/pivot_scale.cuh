// What a row of a triangle is multiplied by before the reciprocal of its diagonal element is taken.
#pragma once

#include "scalar.cuh"

namespace packedtri::cuda {

// A power of two: 1 unless the reciprocal of the pivot is infinite, or may be subnormal. Elements that are 2^230 times as large
// as a small pivot (float64: 2^1990) are infinite with it, also where what they meet is zero.
template <class T>
__device__ typename RealPart<T>::type pivot_scale(T pivot) {
    using R = typename RealPart<T>::type;
    constexpr bool SINGLE = sizeof(R) == sizeof(float);
    // Up to INFINITE reciprocals are infinite, and from SMALL on those of complex numbers may have subnormal parts.
    constexpr R INFINITE = SINGLE ? R(0x1p-128) : R(0x1p-1024),
                SMALL = SINGLE ? R(0x1p125) : R(0x1p1021), UP = SINGLE ? R(0x1p24) : R(0x1p53);
    R size;
    if constexpr (is_complex<T>) size = fmax(fabs(pivot.re), fabs(pivot.im));
    else size = fabs(pivot);
    return size <= INFINITE ? UP : size > SMALL ? R(0.125) : 1;
}

// The first `count` elements x(i) times that. It is rare, and code that is longer takes longer to be fetched.
template <class R, class F>
__device__ void scale_elements(int count, R factor, F x) {
#pragma unroll 1
    for (int i = 0; i < count; ++i) x(i) = scale(x(i), factor);
}

}  // namespace packedtri::cuda
