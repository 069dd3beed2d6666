// The vector registers of the instruction set that this file is compiled for.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__AVX2__)
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

// Elements as unsigned integers, because a move does not look at their value; one of 16 bytes is
// two of them.
template <int bytes>
struct BitsOfSize {
    using type = uint64_t;
};
template <>
struct BitsOfSize<2> {
    using type = uint16_t;
};
template <>
struct BitsOfSize<4> {
    using type = uint32_t;
};
template <class E>
using Bits = typename BitsOfSize<sizeof(E)>::type;

// 16-bit integers, as many as a vector has 32-bit lanes, widened with zeros.
inline Vector<uint32_t>::type load_widened(const void* p) {
#if defined(__AVX512F__)
    return (Vector<uint32_t>::type)_mm512_maskz_cvtepu16_epi32(
        0xffff, _mm256_loadu_si256(static_cast<const __m256i*>(p)));
#else
    typedef uint16_t Narrow __attribute__((vector_size(vector_bytes / 2)));
    Narrow v;
    std::memcpy(&v, p, sizeof v);
    return __builtin_convertvector(v, Vector<uint32_t>::type);
#endif
}

// The lower halves of 32-bit lanes.
inline void store_narrow(Vector<uint32_t>::type x, void* p) {
    typedef uint16_t Narrow __attribute__((vector_size(vector_bytes / 2)));
    const Narrow v = __builtin_convertvector(x, Narrow);
    std::memcpy(p, &v, sizeof v);
}

// Whether any lane of the result of a comparison is true.
template <class V>
inline bool any(V truth) {
    uint64_t words[vector_bytes / 8], found = 0;
    std::memcpy(words, &truth, sizeof truth);
    for (uint64_t word : words) found |= word;
    return found != 0;
}

// load_first reads the first `count` lanes of a vector, the others as zero, and touches no other
// memory; store_first writes them. Any count is good: below 0 means none, above lanes means all.
// Lengths near a diagonal cannot be predicted, so with AVX-512 there is no branch on them, and none on those of loads with
// AVX2.
#if defined(__AVX512F__)
constexpr bool has_masks = true, has_windows = true;

inline uint64_t first_lanes(int64_t count, int lanes) {
    return (uint64_t{1} << std::clamp<int64_t>(count, 0, lanes)) - 1;
}

template <class R>
inline typename Vector<R>::type load_first(const R* p, int64_t count) {
    using V = typename Vector<R>::type;
    const uint64_t mask = first_lanes(count, Vector<R>::lanes);
    if constexpr (sizeof(R) == 2) {
        return (V)_mm512_maskz_loadu_epi16(static_cast<__mmask32>(mask), p);
    } else if constexpr (sizeof(R) == 4) {
        return (V)_mm512_maskz_loadu_epi32(static_cast<__mmask16>(mask), p);
    } else {
        return (V)_mm512_maskz_loadu_epi64(static_cast<__mmask8>(mask), p);
    }
}

template <class R>
inline void store_first(R* p, typename Vector<R>::type v, int64_t count) {
    const uint64_t mask = first_lanes(count, Vector<R>::lanes);
    if constexpr (sizeof(R) == 2) {
        _mm512_mask_storeu_epi16(p, static_cast<__mmask32>(mask), (__m512i)v);
    } else if constexpr (sizeof(R) == 4) {
        _mm512_mask_storeu_epi32(p, static_cast<__mmask16>(mask), (__m512i)v);
    } else {
        _mm512_mask_storeu_epi64(p, static_cast<__mmask8>(mask), (__m512i)v);
    }
}

// The first `count` lanes of v, and zeros.
template <class R>
inline typename Vector<R>::type keep_first(typename Vector<R>::type v, int64_t count) {
    using V = typename Vector<R>::type;
    const uint64_t mask = first_lanes(count, Vector<R>::lanes);
    if constexpr (sizeof(R) == 4) {
        return (V)_mm512_maskz_mov_epi32(static_cast<__mmask16>(mask), (__m512i)v);
    } else {
        return (V)_mm512_maskz_mov_epi64(static_cast<__mmask8>(mask), (__m512i)v);
    }
}

// Up to `most` elements that lie side by side in memory, in four registers, from which vectors are picked.
template <class R>
class Window {
    using V = typename Vector<R>::type;
    static constexpr int lanes = Vector<R>::lanes;

  public:
    using Places = typename Vector<Bits<R>>::type;
    static constexpr int64_t most = 4 * lanes;

    Window(const R* data, int64_t count) : wide_(count > 2 * lanes) {
        for (int x = 0; x < 4; ++x)
            parts_[x] = (__m512i)load_first(data + x * lanes, count - x * lanes);
    }

    // In the lanes from `first` to before `end` the elements at these places, which are below `most`; in the others zeros.
    V at(Places places, int64_t first, int64_t end) const {
        const uint64_t mask = first_lanes(end, lanes) & ~first_lanes(first, lanes);
        const auto from = (__m512i)places;
        if constexpr (sizeof(R) == 4) {
            const auto all = static_cast<__mmask16>(mask);
            if (!wide_) return (V)_mm512_maskz_permutex2var_epi32(all, parts_[0], from, parts_[1]);
            const __mmask16 high = _mm512_test_epi32_mask(from, _mm512_set1_epi32(2 * lanes));
            return (V)_mm512_or_si512(
                _mm512_maskz_permutex2var_epi32(all & ~high, parts_[0], from, parts_[1]),
                _mm512_maskz_permutex2var_epi32(all & high, parts_[2], from, parts_[3]));
        } else {
            const auto all = static_cast<__mmask8>(mask);
            if (!wide_) return (V)_mm512_maskz_permutex2var_epi64(all, parts_[0], from, parts_[1]);
            const __mmask8 high = _mm512_test_epi64_mask(from, _mm512_set1_epi64(2 * lanes));
            return (V)_mm512_or_si512(
                _mm512_maskz_permutex2var_epi64(all & ~high, parts_[0], from, parts_[1]),
                _mm512_maskz_permutex2var_epi64(all & high, parts_[2], from, parts_[3]));
        }
    }

  private:
    __m512i parts_[4];
    bool wide_;  // Some are in the other two.
};

// As many 16-bit elements as a vector has floats, the first `count` from src and zeros after.
template <class E>
inline void copy_first(const E* src, int64_t count, E* dst) {
    const auto mask = static_cast<__mmask16>(first_lanes(count, Vector<float>::lanes));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(dst), _mm256_maskz_loadu_epi16(mask, src));
}

// The first `count` of as many 16-bit elements as a vector has floats; no other memory is written.
template <class E>
inline void write_first(const E* src, int64_t count, E* dst) {
    const auto mask = static_cast<__mmask16>(first_lanes(count, Vector<float>::lanes));
    _mm256_mask_storeu_epi16(dst, mask, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(src)));
}
#else
constexpr bool has_windows = false;

template <class R>
class Window;

#if defined(__AVX2__)
constexpr bool has_masks = true;

// All bits of the first `count` lanes, of those of R.
template <class R>
inline __m256i first_lanes(int64_t count) {
    if constexpr (sizeof(R) == 4) {
        const auto end = static_cast<int>(std::clamp<int64_t>(count, 0, Vector<R>::lanes));
        return _mm256_cmpgt_epi32(_mm256_set1_epi32(end),
                                  _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    } else {
        return _mm256_cmpgt_epi64(_mm256_set1_epi64x(count), _mm256_setr_epi64x(0, 1, 2, 3));
    }
}
#else
constexpr bool has_masks = false;
#endif

template <class R>
inline typename Vector<R>::type load_first(const R* p, int64_t count) {
    using V = typename Vector<R>::type;
#if defined(__AVX2__)
    if constexpr (sizeof(R) == 4)
        return (V)_mm256_maskload_epi32(reinterpret_cast<const int*>(p), first_lanes<R>(count));
    if constexpr (sizeof(R) == 8)
        return (V)_mm256_maskload_epi64(reinterpret_cast<const long long*>(p),
                                        first_lanes<R>(count));
#endif
    if (count >= Vector<R>::lanes) return load(p);
    V v = {};
    for (int l = 0; l < Vector<R>::lanes; ++l) {
        if (l >= count) break;
        R x;
        std::memcpy(&x, p + l, sizeof x);  // Integers may stand for other elements.
        v[l] = x;
    }
    return v;
}

template <class R>
inline void store_first(R* p, typename Vector<R>::type v, int64_t count) {
    if (count >= Vector<R>::lanes) {
        std::memcpy(p, &v, sizeof v);
        return;
    }
#if defined(__AVX2__)
    // By halves, and halves of these: stores under masks take long on some chips.
    if constexpr (sizeof(R) >= 4) {
        auto part = _mm256_castsi256_si128((__m256i)v);
        if (constexpr int64_t half = 16 / sizeof(R); count >= half) {
            _mm_storeu_si128(reinterpret_cast<__m128i*>(p), part);
            part = _mm256_extracti128_si256((__m256i)v, 1);
            p += half, count -= half;
        }
        if (constexpr int64_t quarter = 8 / sizeof(R); count >= quarter) {
            _mm_storel_epi64(reinterpret_cast<__m128i*>(p), part);
            part = _mm_unpackhi_epi64(part, part);
            p += quarter, count -= quarter;
        }
        if (count > 0) _mm_storeu_si32(p, part);
        return;
    }
#endif
    for (int l = 0; l < Vector<R>::lanes; ++l)
        if (l < count) p[l] = v[l];
}

template <class R>
inline typename Vector<R>::type keep_first(typename Vector<R>::type v, int64_t count) {
#if defined(__AVX2__)
    if constexpr (sizeof(R) >= 4)
        return (typename Vector<R>::type)_mm256_and_si256((__m256i)v, first_lanes<R>(count));
#endif
    alignas(64) R lanes[Vector<R>::lanes];
    std::memcpy(lanes, &v, sizeof v);
    return load_first(lanes, count);
}

template <class E>
inline void copy_first(const E* src, int64_t count, E* dst) {
    for (int l = 0; l < Vector<float>::lanes; ++l) dst[l] = l < count ? src[l] : E{};
}

template <class E>
inline void write_first(const E* src, int64_t count, E* dst) {
    std::copy_n(src, std::clamp<int64_t>(count, 0, Vector<float>::lanes), dst);
}
#endif

// v + v rotated by h lanes, then by h / 2, and so on: in the end each lane has the sum of all.
template <int h, class V, int... lane>
inline V add_lanes(V v, std::integer_sequence<int, lane...> lanes) {
    if constexpr (h == 0) {
        return v;
    } else {
        v += __builtin_shufflevector(v, v, ((lane + h) % static_cast<int>(sizeof...(lane)))...);
        return add_lanes<h / 2>(v, lanes);
    }
}

template <class R>
inline R sum_of_lanes(typename Vector<R>::type v) {
    constexpr int lanes = Vector<R>::lanes;
    return add_lanes<lanes / 2>(v, std::make_integer_sequence<int, lanes>{})[0];
}

}  // namespace packedtri::cpu::PACKEDTRI_ISA
