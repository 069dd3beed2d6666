// Transposing square blocks in registers.
#pragma once

#include <utility>

#include "elements.h"
#include "vectors.h"

namespace packedtri::cpu::PACKEDTRI_ISA {

// An unsigned integer of the size of an element: a move does not look at the value.
template <int bytes>
struct Bits;
template <>
struct Bits<2> {
    using type = uint16_t;
};
template <>
struct Bits<4> {
    using type = uint32_t;
};
template <>
struct Bits<8> {
    using type = uint64_t;
};

// The order of the blocks that are transposed at a time: a vector full of elements, or 16.
template <class E>
constexpr int block_order =
    vector_bytes / sizeof(E) > 16 ? 16 : vector_bytes / static_cast<int>(sizeof(E));

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

// dst[c * dst_stride + r] = src[r * src_stride + c] for r, c < block_order<E>.
template <class E>
inline void transpose_block(const E* src, int64_t src_stride, E* dst, int64_t dst_stride) {
    constexpr int order = block_order<E>;
    if constexpr (sizeof(E) == 16) {
        for (int r = 0; r < order; ++r)
            for (int c = 0; c < order; ++c) dst[c * dst_stride + r] = src[r * src_stride + c];
    } else {
        using U = typename Bits<sizeof(E)>::type;
        typedef U V __attribute__((vector_size(order * sizeof(E))));
        constexpr std::make_integer_sequence<int, order> lanes{};
        V x[order];
#pragma GCC unroll 16
        for (int r = 0; r < order; ++r) std::memcpy(&x[r], src + r * src_stride, sizeof(V));
        if constexpr (order >= 16) exchange_quarters<8>(x, lanes);
        if constexpr (order >= 8) exchange_quarters<4>(x, lanes);
        if constexpr (order >= 4) exchange_quarters<2>(x, lanes);
        exchange_quarters<1>(x, lanes);
#pragma GCC unroll 16
        for (int c = 0; c < order; ++c) std::memcpy(dst + c * dst_stride, &x[c], sizeof(V));
    }
}

}  // namespace packedtri::cpu::PACKEDTRI_ISA
