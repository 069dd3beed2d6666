// Square roots of pivots.
#pragma once

#include <cstdint>

namespace packedtri::cuda {

__device__ inline float reciprocal_root(float x) { return rsqrtf(x); }
__device__ inline double reciprocal_root(double x) { return rsqrt(x); }

// Pivots between 2^-64 and 2^64, of float64 2^-512 and 2^512: their squares are far from over- and underflow. By the
// bits of the exponent, so that it is false for what is negative or not a number.
__device__ inline bool is_usual(float x) {
    constexpr uint32_t low = (127u - 64) << 23, high = (127u + 64) << 23;
    return __float_as_uint(x) - low < high - low;
}
__device__ inline bool is_usual(double x) {
    constexpr uint32_t low = (1023u - 512) << 20, high = (1023u + 512) << 20;
    return static_cast<uint32_t>(__double2hiint(x)) - low < high - low;
}

// The reciprocal roots of those, without the branches that others need.
__device__ inline float usual_reciprocal_root(float x) {
    float y;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
// The instruction knows 20 bits at least; a step of Halley's triples them.
__device__ inline double usual_reciprocal_root(double x) {
    double y;
    asm("rsqrt.approx.ftz.f64 %0, %1;" : "=d"(y) : "d"(x));
    const double e = fma(-x * y, y, 1.0);
    return fma(fma(e, 0.375, 0.5), y * e, y);
}

// The root of x, whose reciprocal is nearly `reciprocal`: one step of Newton's. That of infinity is infinite, without
// a branch: Newton's step makes nan of it, which fmax leaves out, and `small` times a finite x is less than its root.
template <class R>
__device__ R root(R x, R reciprocal) {
    constexpr R small = sizeof(R) == sizeof(float) ? R(0x1p-65) : R(0x1p-513);
    const R y = x * reciprocal;
    return fmax(fma(R(0.5) * reciprocal, fma(-y, y, x), y), x * small);
}

}  // namespace packedtri::cuda
