// Products of fragments, which are what a warp's registers hold of operands: 16 rows of A or 8 columns of B, by 16 steps of
// k. Which four of these a lane has, and which rows and columns stand in which place, does not matter to a sum, as long as
// both operands agree.
#pragma once

#include "ptx.cuh"
#include "scalar.cuh"

namespace packedtri::cuda {

// What elements are multiplied and summed in by the tensor cores for float64, and the conversions.
template <class T>
struct DoublePrecision {
    using type = double;
    __device__ static double widen(T x) { return Accumulator<T>::widen(x); }
    __device__ static T round(double x) { return static_cast<T>(x); }
};
template <>
struct DoublePrecision<__half> {
    using type = double;
    __device__ static double widen(__half x) { return __half2float(x); }
    __device__ static __half round(double x) { return __double2half(x); }
};
template <>
struct DoublePrecision<__nv_bfloat16> {
    using type = double;
    __device__ static double widen(__nv_bfloat16 x) { return __bfloat162float(x); }
    __device__ static __nv_bfloat16 round(double x) { return __double2bfloat16(x); }
};
template <class R>
struct DoublePrecision<Complex<R>> {
    using type = Complex<double>;
    __device__ static type widen(Complex<R> x) { return {x.re, x.im}; }
    __device__ static Complex<R> round(type x) {
        return {static_cast<R>(x.re), static_cast<R>(x.im)};
    }
};

// By the tensor cores for float64, whatever the type: lane l has places l / 4 and l / 4 + 8 of the rows of A and place l / 4
// of the columns of B, and of their product these rows in the columns at places 2 (l % 4) and the next one.
template <class T>
struct DoubleMath : DoublePrecision<T> {
    using Sum = typename DoublePrecision<T>::type;
    using Real = double;
    static constexpr int PARTS = is_complex<T> ? 2 : 1;  // Real and imaginary.
    struct A {
        Sum x[8];
    };
    struct B {
        Sum y[4];
    };
    struct Sums {
        double part[PARTS][4] = {};
        __device__ Sum operator[](int e) const {
            if constexpr (is_complex<T>) return {part[0][e], part[1][e]};
            else return part[0][e];
        }
        __device__ void set(int e, Sum x) {
            if constexpr (is_complex<T>) part[0][e] = x.re, part[1][e] = x.im;
            else part[0][e] = x;
        }
    };

    __device__ static A left(const T (&x)[2][4]) {
        A a;
#pragma unroll
        for (int e = 0; e < 8; ++e) a.x[e] = DoublePrecision<T>::widen(x[e % 2][e / 2]);
        return a;
    }
    __device__ static B right(const T (&y)[4]) {
        B b;
#pragma unroll
        for (int e = 0; e < 4; ++e) b.y[e] = DoublePrecision<T>::widen(y[e]);
        return b;
    }
    // To sums of as many columns as there are of B.
    template <int N>
    __device__ __forceinline__ static void add_products(Sums (&sums)[N], const A& a,
                                                        const B (&b)[N]) {
        if constexpr (is_complex<T>) {
            const auto re = [](Sum z) { return z.re; };
            const auto im = [](Sum z) { return z.im; };
            add_parts(sums, 0, a, b, re, re);
            add_parts(sums, 1, a, b, re, im);
            add_parts(sums, 1, a, b, im, re);
            add_parts(sums, 0, a, b, [](Sum z) { return negate_if(z.im, true); }, im);
        } else {
            const auto all = [](Sum z) { return z; };
            add_parts(sums, 0, a, b, all, all);
        }
    }

  private:
    // Of parts of the elements.
    template <int N, class OfA, class OfB>
    __device__ __forceinline__ static void add_parts(Sums (&sums)[N], int part, const A& a,
                                                     const B (&b)[N], OfA of_a, OfB of_b) {
        double x[8];
#pragma unroll
        for (int e = 0; e < 8; ++e) x[e] = of_a(a.x[e]);
#pragma unroll
        for (int n = 0; n < N; ++n) {
            double y[4];
#pragma unroll
            for (int e = 0; e < 4; ++e) y[e] = of_b(b[n].y[e]);
            ptx::mma_16816(sums[n].part[part], x, y);
        }
    }
};

// The same by the tensor cores for 16-bit elements, with sums in float32. They take pairs of a lane's steps for neighbours
// along k.
template <class T>
struct HalfMath : Accumulator<T> {
    using Sum = float;
    using Real = float;
    static constexpr int PARTS = 1;
    struct A {
        uint32_t x[4];
    };
    struct B {
        uint32_t y[2];
    };
    struct Sums {
        float part[1][4] = {};
        __device__ Sum operator[](int e) const { return part[0][e]; }
    };

    __device__ static A left(const T (&x)[2][4]) {
        A a;
#pragma unroll
        for (int e = 0; e < 4; ++e) a.x[e] = pair(x[e % 2] + e / 2 * 2);
        return a;
    }
    __device__ static B right(const T (&y)[4]) { return {{pair(y), pair(y + 2)}}; }
    template <int N>
    __device__ __forceinline__ static void add_products(Sums (&sums)[N], const A& a,
                                                        const B (&b)[N]) {
#pragma unroll
        for (int n = 0; n < N; ++n) ptx::mma_16816(sums[n].part[0], a.x, b[n].y, T{});
    }

  private:
    __device__ static uint32_t pair(const T* x) {
        uint16_t bits[2];
        memcpy(bits, x, sizeof bits);
        return bits[0] | uint32_t{bits[1]} << 16;
    }
};

template <class T>
struct FragmentMath : DoubleMath<T> {};
template <>
struct FragmentMath<__half> : HalfMath<__half> {};
template <>
struct FragmentMath<__nv_bfloat16> : HalfMath<__nv_bfloat16> {};

}  // namespace packedtri::cuda
