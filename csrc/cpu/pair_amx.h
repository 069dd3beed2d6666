// Products of panels of pairs by the tiles of AMX (pair_panels.h).
#pragma once

#include <immintrin.h>

#include "pair_micro.h"

namespace packedtri::cpu::PACKEDTRI_ISA {

// The products read memory that the compiler may not yet have written.
inline void finish_writing() { __asm__ volatile("" ::: "memory"); }

// While a thread has one, all tiles are 16 rows of 64 bytes.
class PairSession {
  public:
    PairSession() {
        struct alignas(64) {
            uint8_t palette = 1, start_row = 0, reserved[14] = {};
            uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
            uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
        } config;
        finish_writing();
        _tile_loadconfig(&config);
    }
    PairSession(const PairSession&) = delete;
    PairSession& operator=(const PairSession&) = delete;
    ~PairSession() { _tile_release(); }
};

// Sums in tiles 0 to 3, A in 4 and 5, B in 6 and 7.
template <int row_tiles, int col_tiles>
inline void pair_product(const uint16_t* a, const uint16_t* b, int64_t k, bool first, float* sums) {
    using M = PairMicro;
    constexpr bool lower = row_tiles > 1, right = col_tiles > 1;
    constexpr int a_stride = M::row_stride * 2, b_stride = M::cols * 4, c_stride = M::cols * 4;
    float* lower_sums = sums + 16 * M::cols;
    finish_writing();
    if (first) {
        _tile_zero(0);
        if (right) _tile_zero(1);
        if (lower) _tile_zero(2);
        if (lower && right) _tile_zero(3);
    } else {
        _tile_loadd(0, sums, c_stride);
        if (right) _tile_loadd(1, sums + 16, c_stride);
        if (lower) _tile_loadd(2, lower_sums, c_stride);
        if (lower && right) _tile_loadd(3, lower_sums + 16, c_stride);
    }
    for (int64_t p = 0; p < k; p += M::unit, a += M::unit, b += M::unit * M::cols) {
        _tile_loadd(6, b, b_stride);
        _tile_loadd(4, a, a_stride);
        _tile_dpbf16ps(0, 4, 6);
        if (right) {
            _tile_loadd(7, b + 32, b_stride);
            _tile_dpbf16ps(1, 4, 7);
        }
        if (lower) {
            _tile_loadd(5, a + 16 * M::row_stride, a_stride);
            _tile_dpbf16ps(2, 5, 6);
        }
        if (lower && right) _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, sums, c_stride);
    if (right) _tile_stored(1, sums + 16, c_stride);
    if (lower) _tile_stored(2, lower_sums, c_stride);
    if (lower && right) _tile_stored(3, lower_sums + 16, c_stride);
    finish_writing();
}

inline void pair_product(const uint16_t* a, const uint16_t* b, int64_t k, int64_t rows,
                         int64_t cols, bool first, float* sums) {
    if (rows > 16 && cols > 16) pair_product<2, 2>(a, b, k, first, sums);
    else if (rows > 16) pair_product<2, 1>(a, b, k, first, sums);
    else if (cols > 16) pair_product<1, 2>(a, b, k, first, sums);
    else pair_product<1, 1>(a, b, k, first, sums);
}

}  // namespace packedtri::cpu::PACKEDTRI_ISA
