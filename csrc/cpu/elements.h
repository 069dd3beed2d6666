// Element types: how they lie in memory, and what is computed with in their place.
#pragma once

#include <cstdint>
#include <cstring>

#include "../problem.h"
#include "complex.h"

namespace packedtri::cpu::PACKEDTRI_ISA {

struct Half {
    uint16_t bits;
};
struct BFloat16 {
    uint16_t bits;
};

// Compute is the type of panels and accumulators; Real is what its vectors are made of, and a
// Compute consists of `reals` of them.
template <class E>
struct Element {
    using Compute = E;
    using Real = E;
    static constexpr int reals = 1;
};
template <>
struct Element<Half> {
    using Compute = float;
    using Real = float;
    static constexpr int reals = 1;
};
template <>
struct Element<BFloat16> : Element<Half> {};
template <class R>
struct Element<Complex<R>> {
    using Compute = Complex<R>;
    using Real = R;
    static constexpr int reals = 2;
};
template <class E>
using Compute = typename Element<E>::Compute;
template <class E>
using Real = typename Element<E>::Real;

template <class E>
inline E from_real(Real<E> x) {
    if constexpr (Element<E>::reals == 2) {
        return {x, 0};
    } else {
        return x;
    }
}

template <class To, class From>
inline To bit_cast(From x) {
    static_assert(sizeof(To) == sizeof(From));
    To y;
    std::memcpy(&y, &x, sizeof y);
    return y;
}

template <class E>
inline E to_compute(E x) {
    return x;
}
inline float to_compute(BFloat16 x) { return bit_cast<float>(uint32_t{x.bits} << 16); }

// A half has 5 exponent bits of bias 15, a float 8 of bias 127: shifting the bits into place
// leaves the exponent 112 too small, or 224 for infinities and nans. Subnormal halves become
// normal by a subtraction. Written without branches, so that loops over it are vectorised.
inline float to_compute(Half x) {
    const uint32_t magnitude = uint32_t{x.bits & 0x7fffu} << 13;
    const uint32_t sign = uint32_t{x.bits & 0x8000u} << 16;
    const uint32_t special = magnitude >= 0x0f800000u ? 0xffffffffu : 0u;
    const uint32_t normal = magnitude + 0x38000000u + (special & 0x38000000u);
    const float small = bit_cast<float>(magnitude + 0x38800000u) - bit_cast<float>(0x38800000u);
    const uint32_t is_small = magnitude < 0x00800000u ? 0xffffffffu : 0u;
    return bit_cast<float>(sign | (is_small & bit_cast<uint32_t>(small)) | (~is_small & normal));
}

template <class E>
inline void from_compute(E x, E& y) {
    y = x;
}

// The bits of the 16-bit element that is nearest to x, ties to even; a nan stays a nan. F is a float, or a
// vector of them, and W as many words of 32 bits.
template <class W, class F>
inline W rounded_bits(F x, BFloat16) {
    const W bits = bit_cast<W>(x);
    const W rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    return x != x ? W{} + 0x7fc0u : rounded;
}
template <class W, class F>
inline W rounded_bits(F x, Half) {
    const W bits = bit_cast<W>(x), magnitude = bits & 0x7fffffffu, sign = (bits >> 16) & 0x8000u;
    // Adding 0.5 leaves a float whose last bit is worth 2^-24, the spacing of subnormal halves.
    const W small = bit_cast<W>(bit_cast<F>(magnitude) + 0.5f) - bit_cast<uint32_t>(0.5f);
    const W normal = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    W half = magnitude < 0x38800000u ? small : normal;
    half = magnitude >= 0x477ff000u ? W{} + 0x7c00u : half;
    half = magnitude > 0x7f800000u ? W{} + 0x7e00u : half;
    return sign | half;
}

inline void from_compute(float x, BFloat16& y) {
    y.bits = static_cast<uint16_t>(rounded_bits<uint32_t>(x, y));
}
inline void from_compute(float x, Half& y) {
    y.bits = static_cast<uint16_t>(rounded_bits<uint32_t>(x, y));
}

// Calls f with a value of the element type that t names.
template <class F>
inline void with_element(DType t, F f) {
    switch (t) {
        case DType::f16: return f(Half{});
        case DType::bf16: return f(BFloat16{});
        case DType::f32: return f(float{});
        case DType::f64: return f(double{});
        case DType::c64: return f(Complex<float>{});
        case DType::c128: return f(Complex<double>{});
    }
}

// Calls f with a value of the element type that t names; the 16-bit ones have no solves.
template <class F>
inline void with_solvable(DType t, F f) {
    with_element(t, [&](auto e) {
        if constexpr (sizeof(e) >= sizeof(float)) f(e);
    });
}

}  // namespace packedtri::cpu::PACKEDTRI_ISA
