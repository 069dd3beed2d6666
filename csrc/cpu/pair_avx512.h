// Products of panels of pairs by the dot products of AVX-512 (pair_panels.h).
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "pair_micro.h"

namespace packedtri::cpu::PACKEDTRI_ISA {

struct PairSession {};

// The sums of some rows and of one or two vectors of 16 columns, which are held in registers.
template <int row_count, int vectors>
[[gnu::noinline]] void pair_product(const uint16_t* a, const uint16_t* b, int64_t k, bool first,
                                    float* sums) {
    using M = PairMicro;
    __m512 acc[row_count][vectors];
#pragma GCC unroll 8
    for (int r = 0; r < row_count; ++r)
#pragma GCC unroll 2
        for (int v = 0; v < vectors; ++v)
            acc[r][v] = first ? _mm512_setzero_ps() : _mm512_loadu_ps(sums + r * M::cols + v * 16);
    for (int64_t p = 0; p < k; p += 2, a += 2, b += 2 * M::cols) {
        __m512bh columns[vectors];
#pragma GCC unroll 2
        for (int v = 0; v < vectors; ++v) columns[v] = (__m512bh)_mm512_loadu_si512(b + v * 32);
#pragma GCC unroll 8
        for (int r = 0; r < row_count; ++r) {
            int32_t pair;
            std::memcpy(&pair, a + r * M::row_stride, sizeof pair);
            const auto row = (__m512bh)_mm512_set1_epi32(pair);
#pragma GCC unroll 2
            for (int v = 0; v < vectors; ++v)
                acc[r][v] = _mm512_dpbf16_ps(acc[r][v], row, columns[v]);
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < row_count; ++r)
#pragma GCC unroll 2
        for (int v = 0; v < vectors; ++v) _mm512_storeu_ps(sums + r * M::cols + v * 16, acc[r][v]);
}

// Rows of A past the last one are whatever the panel holds, and their sums are not looked at.
inline void pair_product(const uint16_t* a, const uint16_t* b, int64_t k, int64_t rows,
                         int64_t cols, bool first, float* sums) {
    constexpr int group = 8;
    for (int64_t r = 0; r < rows; r += group) {
        const uint16_t* const from = a + r * PairMicro::row_stride;
        float* const to = sums + r * PairMicro::cols;
        const bool half = rows - r <= group / 2;
        if (cols > 16 && half) pair_product<group / 2, 2>(from, b, k, first, to);
        else if (cols > 16) pair_product<group, 2>(from, b, k, first, to);
        else if (half) pair_product<group / 2, 1>(from, b, k, first, to);
        else pair_product<group, 1>(from, b, k, first, to);
    }
}

}  // namespace packedtri::cpu::PACKEDTRI_ISA
