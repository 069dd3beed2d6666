// Complex numbers, and what they and real ones have in common.
#pragma once

#include <cmath>

namespace packedtri::cpu::PACKEDTRI_ISA {

// std::complex multiplies with a library call that repairs infinities; BLAS does not.
template <class R>
struct Complex {
    R re, im;
};

template <class R>
inline Complex<R> operator*(Complex<R> x, Complex<R> y) {
    return {x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re};
}
template <class R>
inline Complex<R> operator*(Complex<R> x, R factor) {
    return {x.re * factor, x.im * factor};
}

template <class R>
inline Complex<R> operator+(Complex<R> x, Complex<R> y) {
    return {x.re + y.re, x.im + y.im};
}
template <class R>
inline Complex<R>& operator+=(Complex<R>& x, Complex<R> y) {
    return x = x + y;
}

template <class R>
inline Complex<R> operator-(Complex<R> x, Complex<R> y) {
    return {x.re - y.re, x.im - y.im};
}

// Real numbers are their own conjugates.
template <class T>
inline T conjugate_if(T x, bool) {
    return x;
}
template <class R>
inline Complex<R> conjugate_if(Complex<R> x, bool conj) {
    return {x.re, conj ? -x.im : x.im};
}

inline float conjugate(float x) { return x; }
inline double conjugate(double x) { return x; }
template <class R>
inline Complex<R> conjugate(Complex<R> x) {
    return {x.re, -x.im};
}

inline float real_part(float x) { return x; }
inline double real_part(double x) { return x; }
template <class R>
inline R real_part(Complex<R> x) {
    return x.re;
}

inline float over_real(float x, float d) { return x / d; }
inline double over_real(double x, double d) { return x / d; }
template <class R>
inline Complex<R> over_real(Complex<R> x, R d) {
    return {x.re / d, x.im / d};
}

template <class R>
inline R without_imaginary(R x) {
    return x;
}
template <class R>
inline Complex<R> without_imaginary(Complex<R> x) {
    return {x.re, 0};
}

template <class R>
inline R magnitude(R x) {
    return std::abs(x);
}
template <class R>
inline R magnitude(Complex<R> x) {
    return std::hypot(x.re, x.im);
}

template <class R>
inline bool is_nan(R x) {
    return x != x;
}
template <class R>
inline bool is_nan(Complex<R> x) {
    return x.re != x.re || x.im != x.im;
}

}  // namespace packedtri::cpu::PACKEDTRI_ISA
