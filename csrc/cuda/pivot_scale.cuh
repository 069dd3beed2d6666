// What a row of a triangle is multiplied by before the reciprocal of its diagonal element is taken.
#pragma once

#include "scalar.cuh"

namespace packedtri::cuda {

// A power of two, and 1 unless the reciprocal of the pivot would be infinite or subnormal. What is multiplied by it overflows
// or underflows only where it is 2^200 times the pivot, or less than it by as much.
template <class T>
__device__ typename RealPart<T>::type pivot_scale(T pivot) {
    using R = typename RealPart<T>::type;
    constexpr bool SINGLE = sizeof(R) == sizeof(float);
    constexpr R LEAST = SINGLE ? R(0x1p-126) : R(0x1p-1022), SCALE = SINGLE ? R(0x1p24) : R(0x1p53);
    R size;
    if constexpr (is_complex<T>) size = fmax(fabs(pivot.re), fabs(pivot.im));
    else size = fabs(pivot);
    // The reciprocal of a complex number may be half of that of its larger part.
    return size < LEAST ? SCALE : size > 1 / (2 * LEAST) ? 1 / SCALE : 1;
}

// The first `count` elements x(i) times that. It is rare, and code that is longer takes longer to be fetched.
template <class R, class F>
__device__ void scale_elements(int count, R factor, F x) {
#pragma unroll 1
    for (int i = 0; i < count; ++i) x(i) = scale(x(i), factor);
}

}  // namespace packedtri::cuda
