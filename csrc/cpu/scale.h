// Vectors of elements times and divided by one element. Complex elements lie interleaved in a vector
// of reals.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "elements.h"
#include "vectors.h"

namespace packedtri::cpu::PACKEDTRI_ISA {

template <class E>
struct Scale {
    E s;
    Scale() = default;
    explicit Scale(E s) : s(s) {}

    template <class V>
    V times(V x) const {
        return s * x;
    }
};

template <class V, int... lane>
inline V swap_pairs(V x, std::integer_sequence<int, lane...>) {
    return __builtin_shufflevector(x, x, (lane ^ 1)...);
}

// Exchanges the real and the imaginary parts.
template <class R>
inline typename Vector<R>::type swap_pairs(typename Vector<R>::type x) {
    return swap_pairs(x, std::make_integer_sequence<int, Vector<R>::lanes>{});
}

template <class R>
struct Scale<Complex<R>> {
    using V = typename Vector<R>::type;
    static constexpr int lanes = Vector<R>::lanes;
    R re;
    V im;  // -im, im, -im, ...

    Scale() = default;
    explicit Scale(Complex<R> s) : re(s.re) {
        for (int l = 0; l < lanes; ++l) im[l] = l % 2 ? s.im : -s.im;
    }

    V times(V x) const { return re * x + im * swap_pairs<R>(x); }
};

template <class E>
struct Divisor {
    E d;
    explicit Divisor(E d) : d(d) {}

    // Of a vector or of one element.
    template <class V>
    V divide(V x) const {
        return x / d;
    }
};

// Times the reciprocal, which Smith's formula (Communications of the ACM 5, 1962) finds without
// squares that would overflow. Where the reciprocal itself would, or the sum of two parts, the divisor is taken
// without a power of two, of which x gets one half before and one half after it is multiplied.
template <class R>
struct Divisor<Complex<R>> {
    Complex<R> reciprocal;
    R before = 1, after = 1;

    explicit Divisor(Complex<R> d) {
        using Limits = std::numeric_limits<R>;
        R re = d.re < 0 ? -d.re : d.re, im = d.im < 0 ? -d.im : d.im;
        const R size = std::max(re, im);
        if (size > 0 && size <= Limits::max() &&
            !(size > 4 * Limits::min() && size < Limits::max() / 4)) {
            int exponent = 0;
            std::frexp(size, &exponent);
            const int half = -exponent / 2;
            before = std::ldexp(R{1}, half);
            after = std::ldexp(R{1}, -exponent - half);
            d = {d.re * before * after, d.im * before * after};
            re = re * before * after;
            im = im * before * after;
        }
        if (re >= im) {
            const R ratio = d.im / d.re, scale = R{1} / (d.re + d.im * ratio);
            reciprocal = {scale, -ratio * scale};
        } else {
            const R ratio = d.re / d.im, scale = R{1} / (d.im + d.re * ratio);
            reciprocal = {ratio * scale, -scale};
        }
    }

    typename Vector<R>::type divide(typename Vector<R>::type x) const {
        return Scale<Complex<R>>(reciprocal).times(x * before) * after;
    }
    Complex<R> divide(Complex<R> x) const {
        const Complex<R> y = Complex<R>{x.re * before, x.im * before} * reciprocal;
        return {y.re * after, y.im * after};
    }
};

}  // namespace packedtri::cpu::PACKEDTRI_ISA
