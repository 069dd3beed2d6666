// Transposing square blocks in registers.
#pragma once

#include <utility>

#include "elements.h"
#include "vectors.h"

namespace packedtri::cpu::PACKEDTRI_ISA {

// The order of the blocks that are transposed at a time: a row of one fills a vector.
template <class E>
constexpr int block_order = vector_bytes / static_cast<int>(sizeof(E));

// Exchanges the off-diagonal quarters of every 2h x 2h block on the diagonal of x. Lane numbers of
// a shuffle run through x[r] first and then through x[r + h].
template <int h, class V, int... lane>
inline void exchange_quarters(V* x, std::integer_sequence<int, lane...>) {
    constexpr int order = sizeof...(lane);
#pragma GCC unroll 16
    for (int r = 0; r < order; ++r) {
        if (r & h) continue;
        const V upper = x[r], lower = x[r + h];
        x[r] = __builtin_shufflevector(upper, lower, (lane & h ? order + lane - h : lane)...);
        x[r + h] = __builtin_shufflevector(upper, lower, (lane & h ? order + lane : lane + h)...);
    }
}

// Transposes the square block whose rows are the vectors x.
template <class V>
inline void transpose_registers(V* x) {
    constexpr int order = sizeof(V) / sizeof((*x)[0]);
    static_assert(order <= 16);
    constexpr std::make_integer_sequence<int, order> lanes{};
    if constexpr (order >= 16) exchange_quarters<8>(x, lanes);
    if constexpr (order >= 8) exchange_quarters<4>(x, lanes);
    if constexpr (order >= 4) exchange_quarters<2>(x, lanes);
    exchange_quarters<1>(x, lanes);
}

// Two rows of 16-bit elements, joined element by element, are one row of 32-bit elements. The
// transpose of a block of such rows has rows of 16-bit elements again, so each half of the columns
// is one transposition of 32-bit elements.
template <class E>
inline void transpose_16bit(const E* src, int64_t src_stride, E* dst, int64_t dst_stride) {
    constexpr int half = block_order<E> / 2;
    for (int first = 0; first < 2 * half; first += half, src += half, dst += half * dst_stride) {
        Vector<uint32_t>::type x[half];
#pragma GCC unroll 16
        for (int r = 0; r < half; ++r) {
            const E* even = src + 2 * r * src_stride;
            x[r] = load_widened(even) | load_widened(even + src_stride) << 16;
        }
        transpose_registers(x);
#pragma GCC unroll 16
        for (int c = 0; c < half; ++c) std::memcpy(dst + c * dst_stride, &x[c], sizeof x[c]);
    }
}

// dst[c * dst_stride + r] = src[r * src_stride + c] for r, c < block_order<E>.
template <class E>
inline void transpose_block(const E* src, int64_t src_stride, E* dst, int64_t dst_stride) {
    constexpr int order = block_order<E>;
    if constexpr (sizeof(E) == 2) {
        transpose_16bit(src, src_stride, dst, dst_stride);
    } else if constexpr (sizeof(E) == 16) {
        for (int c = 0; c < order; ++c)
            for (int r = 0; r < order; ++r) dst[c * dst_stride + r] = src[r * src_stride + c];
    } else {
        typename Vector<Bits<E>>::type x[order];
#pragma GCC unroll 16
        for (int r = 0; r < order; ++r) std::memcpy(&x[r], src + r * src_stride, sizeof x[r]);
        transpose_registers(x);
#pragma GCC unroll 16
        for (int c = 0; c < order; ++c) std::memcpy(dst + c * dst_stride, &x[c], sizeof x[c]);
    }
}

}  // namespace packedtri::cpu::PACKEDTRI_ISA
