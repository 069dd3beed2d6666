// Arithmetic on the element types: complex numbers, finiteness, and what sums are kept in.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace packedtri::cuda {

// A float32 that enters products with 11 significant bits.
struct Tf32 {
    float value;
};

template <class R>
struct alignas(2 * sizeof(R)) Complex {
    R re, im;
    __device__ Complex& operator+=(Complex o) {
        re += o.re;
        im += o.im;
        return *this;
    }
};

template <class T>
struct RealPart {
    using type = T;
};
template <class R>
struct RealPart<Complex<R>> {
    using type = R;
};

template <class T>
constexpr bool is_complex = sizeof(typename RealPart<T>::type) < sizeof(T);

__device__ __forceinline__ void fma_into(float& c, float a, float b) { c = fmaf(a, b, c); }
__device__ __forceinline__ void fma_into(double& c, double a, double b) { c = fma(a, b, c); }
template <class R>
__device__ __forceinline__ void fma_into(Complex<R>& c, Complex<R> a, Complex<R> b) {
    c.re = fma(a.re, b.re, c.re);
    c.re = fma(-a.im, b.im, c.re);
    c.im = fma(a.re, b.im, c.im);
    c.im = fma(a.im, b.re, c.im);
}

// Whether all of COUNT sums are finite, which registers hold. `sum` gives each.
template <int COUNT, class Sum>
__device__ __forceinline__ bool all_finite(Sum sum) {
    float zero[4] = {};
#pragma unroll
    for (int e = 0; e < COUNT; ++e) zero[e % 4] = fmaf(sum(e), 0.f, zero[e % 4]);
    return zero[0] + zero[1] + zero[2] + zero[3] == 0;
}

// The compiler has x here, and does not compute it later.
__device__ __forceinline__ void keep(float x) { asm volatile("" ::"f"(x)); }
__device__ __forceinline__ void keep(double x) { asm volatile("" ::"d"(x)); }
template <class R>
__device__ __forceinline__ void keep(Complex<R> x) {
    keep(x.re);
    keep(x.im);
}

__device__ __forceinline__ float scale(float x, float s) { return x * s; }
__device__ __forceinline__ double scale(double x, double s) { return x * s; }
template <class R>
__device__ __forceinline__ Complex<R> scale(Complex<R> x, R s) {
    return {x.re * s, x.im * s};
}

template <class T>
__device__ __forceinline__ T multiply(T a, T b) {
    T c{};
    fma_into(c, a, b);
    return c;
}

// c -= a b
__device__ __forceinline__ void subtract(float& c, float a, float b) { c = fmaf(-a, b, c); }
__device__ __forceinline__ void subtract(double& c, double a, double b) { c = fma(-a, b, c); }
template <class R>
__device__ __forceinline__ void subtract(Complex<R>& c, Complex<R> a, Complex<R> b) {
    fma_into(c, {-a.re, -a.im}, b);
}

// c -= |a|^2
__device__ __forceinline__ void subtract_square(float& c, float a) { subtract(c, a, a); }
__device__ __forceinline__ void subtract_square(double& c, double a) { subtract(c, a, a); }
template <class R>
__device__ __forceinline__ void subtract_square(R& c, Complex<R> a) {
    subtract(c, a.re, a.re);
    subtract(c, a.im, a.im);
}

__device__ __forceinline__ float divide(float a, float b) { return a / b; }
__device__ __forceinline__ double divide(double a, double b) { return a / b; }
// Smith's formula, which does not overflow where the quotient does not.
template <class R>
__device__ __forceinline__ Complex<R> divide(Complex<R> a, Complex<R> b) {
    if (fabs(b.re) >= fabs(b.im)) {
        const R ratio = b.im / b.re, denominator = fma(b.im, ratio, b.re);
        return {fma(a.im, ratio, a.re) / denominator, fma(-a.re, ratio, a.im) / denominator};
    }
    const R ratio = b.re / b.im, denominator = fma(b.re, ratio, b.im);
    return {fma(a.re, ratio, a.im) / denominator, fma(a.im, ratio, -a.re) / denominator};
}

__device__ __forceinline__ float real(float x) { return x; }
__device__ __forceinline__ double real(double x) { return x; }
template <class R>
__device__ __forceinline__ R real(Complex<R> x) {
    return x.re;
}

template <class T>
__device__ __forceinline__ T from_real(typename RealPart<T>::type x) {
    if constexpr (is_complex<T>) return {x, 0};
    else return x;
}

// Real numbers are their own conjugates.
template <class T>
__device__ __forceinline__ T conjugate_if(T x, bool) {
    return x;
}
// By bits: a negation would be an operation of the floating-point units, which products keep busy.
__device__ __forceinline__ float negate_if(float x, bool negative) {
    return __int_as_float(__float_as_int(x) ^ (negative ? INT32_MIN : 0));
}
__device__ __forceinline__ double negate_if(double x, bool negative) {
    return __hiloint2double(__double2hiint(x) ^ (negative ? INT32_MIN : 0), __double2loint(x));
}
template <class R>
__device__ __forceinline__ Complex<R> conjugate_if(Complex<R> x, bool conj) {
    return {x.re, negate_if(x.im, conj)};
}

template <class T>
__device__ __forceinline__ T add(T a, T b) {
    return a + b;
}
template <class R>
__device__ __forceinline__ Complex<R> add(Complex<R> a, Complex<R> b) {
    return a += b;
}

template <class T>
__device__ __forceinline__ T difference(T a, T b) {
    return a - b;
}
template <class R>
__device__ __forceinline__ Complex<R> difference(Complex<R> a, Complex<R> b) {
    return {a.re - b.re, a.im - b.im};
}

__device__ __forceinline__ bool finite(float x) { return isfinite(x); }
__device__ __forceinline__ bool finite(double x) { return isfinite(x); }
__device__ __forceinline__ bool finite(__half x) { return isfinite(__half2float(x)); }
__device__ __forceinline__ bool finite(__nv_bfloat16 x) { return isfinite(__bfloat162float(x)); }
template <class R>
__device__ __forceinline__ bool finite(Complex<R> x) {
    return isfinite(x.re) && isfinite(x.im);
}

template <class T>
__device__ __forceinline__ T shuffle(T x, int lane) {
    return __shfl_sync(0xffffffffu, x, lane);
}
template <class R>
__device__ __forceinline__ Complex<R> shuffle(Complex<R> x, int lane) {
    return {shuffle(x.re, lane), shuffle(x.im, lane)};
}

template <class T>
__device__ __forceinline__ T shuffle_down(T x, int distance) {
    return __shfl_down_sync(0xffffffffu, x, distance);
}
template <class R>
__device__ __forceinline__ Complex<R> shuffle_down(Complex<R> x, int distance) {
    return {shuffle_down(x.re, distance), shuffle_down(x.im, distance)};
}
template <class T>
__device__ __forceinline__ T shuffle_xor(T x, int distance) {
    return __shfl_xor_sync(0xffffffffu, x, distance);
}
template <class R>
__device__ __forceinline__ Complex<R> shuffle_xor(Complex<R> x, int distance) {
    return {shuffle_xor(x.re, distance), shuffle_xor(x.im, distance)};
}
// The sum of all lanes' values, in lane 0.
template <class T>
__device__ __forceinline__ T warp_sum(T x) {
    for (int distance = 16; distance > 0; distance /= 2) x = add(x, shuffle_down(x, distance));
    return x;
}

// The type that sums of T are kept in and that of their parts, and the conversions.
template <class T>
struct Accumulator {
    using type = T;
    using real = typename RealPart<T>::type;
    __device__ static T widen(T x) { return x; }
    __device__ static T round(T x) { return x; }
};
template <>
struct Accumulator<__half> {
    using type = float;
    using real = float;
    __device__ static float widen(__half x) { return __half2float(x); }
    __device__ static __half round(float x) { return __float2half_rn(x); }
};
template <>
struct Accumulator<__nv_bfloat16> {
    using type = float;
    using real = float;
    __device__ static float widen(__nv_bfloat16 x) { return __bfloat162float(x); }
    __device__ static __nv_bfloat16 round(float x) { return __float2bfloat16_rn(x); }
};

}  // namespace packedtri::cuda
