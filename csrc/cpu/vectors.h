// The vector registers of the instruction set that this file is compiled for.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

namespace packedtri::cpu::PACKEDTRI_ISA {

#if defined(__AVX512F__)
constexpr int vector_bytes = 64;
constexpr int vector_count = 32;
#elif defined(__AVX2__)
constexpr int vector_bytes = 32;
constexpr int vector_count = 16;
#elif defined(__aarch64__)
constexpr int vector_bytes = 16;
constexpr int vector_count = 32;
#else
constexpr int vector_bytes = 16;
constexpr int vector_count = 16;
#endif

template <class R>
struct Vector {
    typedef R type __attribute__((vector_size(vector_bytes), may_alias));
    static constexpr int lanes = vector_bytes / static_cast<int>(sizeof(R));
};

template <class R>
inline typename Vector<R>::type load(const R* p) {
    typename Vector<R>::type v;
    std::memcpy(&v, p, sizeof v);
    return v;
}

// The first `count` lanes of a vector, in [0, lanes): the others read as zero, and no memory
// beyond the first `count` is touched.
#if defined(__AVX512F__)
template <class R>
inline typename Vector<R>::type load_first(const R* p, int64_t count) {
    const unsigned mask = (1u << count) - 1;
    if constexpr (sizeof(R) == 4) {
        return (typename Vector<R>::type)_mm512_maskz_loadu_epi32(static_cast<__mmask16>(mask), p);
    } else {
        return (typename Vector<R>::type)_mm512_maskz_loadu_epi64(static_cast<__mmask8>(mask), p);
    }
}

template <class R>
inline void store_first(R* p, typename Vector<R>::type v, int64_t count) {
    const unsigned mask = (1u << count) - 1;
    if constexpr (sizeof(R) == 4) {
        _mm512_mask_storeu_epi32(p, static_cast<__mmask16>(mask), (__m512i)v);
    } else {
        _mm512_mask_storeu_epi64(p, static_cast<__mmask8>(mask), (__m512i)v);
    }
}
#else
template <class R>
inline typename Vector<R>::type load_first(const R* p, int64_t count) {
    typename Vector<R>::type v = {};
    for (int l = 0; l < Vector<R>::lanes; ++l)
        if (l < count) v[l] = p[l];
    return v;
}

template <class R>
inline void store_first(R* p, typename Vector<R>::type v, int64_t count) {
    for (int l = 0; l < Vector<R>::lanes; ++l)
        if (l < count) p[l] = v[l];
}
#endif

}  // namespace packedtri::cpu::PACKEDTRI_ISA
