// The innermost loop of a product: a block of C in registers, a sum over k of outer products.
//
// It is written with the compiler's vector extension, so the one source serves every instruction
// set; the block is as large as the registers of each allow. A complex product runs through the
// same real kernel: B is left interleaved, each row of A becomes one row of real parts and one of
// imaginary parts, and combine() joins the two sums afterwards.
#pragma once

#include "elements.h"
#include "vectors.h"

namespace packedtri::cpu::PACKEDTRI_ISA {

// Shape of the micro-kernel for elements E. A block of C has `rows` rows and `cols` columns, and
// one packing covers at most `depth` values of k. Panels of A are either row-major, each row
// contiguous in k and `row_stride` long, or k-major, the `rows` values of one k side by side,
// whichever the operand's lines give without a transposition. Panels of B are k-major.
template <class E>
struct Micro {
    static constexpr int reals = Element<E>::reals;
    // With two vectors of columns the sums take three quarters of the registers.
    static constexpr int rows = vector_count * 3 / 8;
    static constexpr int cols = (reals == 2 ? 1 : 2) * Vector<Real<E>>::lanes / reals;
    static constexpr int depth = 256;
    // Not a multiple of a large power of two, so that the rows fall into different cache sets.
    static constexpr int row_stride = depth + 64 / static_cast<int>(sizeof(Compute<E>));
    static constexpr int a_panel = rows * row_stride;
    static constexpr int b_panel = depth * cols;
    // Sums of one block, in reals: a row of them is one row of C, or for complex one half of it.
    static constexpr int sum_cols = cols * reals;
    static constexpr int sums = rows * reals * sum_cols;
};

// Element (row, k) of a panel of A lies at row * row_step + k * k_step, in units of Compute.
template <class E, bool row_major>
struct PanelA {
    static constexpr int row_step = row_major ? Micro<E>::row_stride : 1;
    static constexpr int k_step = row_major ? 1 : Micro<E>::rows;
};

// sums[r][c] = sum over p < k of a[r][p] * b[p][c], in reals, for the first `row_count` rows and
// the first `vectors` vectors of columns.
template <class E, bool row_major, int row_count, int vectors>
__attribute__((noinline)) void block_product(const Real<E>* a, const Real<E>* b, int64_t k,
                                             Real<E>* sums) {
    using R = Real<E>;
    using V = typename Vector<R>::type;
    using M = Micro<E>;
    using A = PanelA<E, row_major>;
    constexpr int real_rows = row_count * M::reals;
    V acc[real_rows][vectors] = {};
    for (int64_t p = 0; p < k; ++p) {
        V bv[vectors];
#pragma GCC unroll 2
        for (int v = 0; v < vectors; ++v) bv[v] = reinterpret_cast<const V*>(b)[v];
#pragma GCC unroll 24
        for (int r = 0; r < real_rows; ++r) {
            const R x = a[r / M::reals * A::row_step * M::reals + r % M::reals];
#pragma GCC unroll 2
            for (int v = 0; v < vectors; ++v) acc[r][v] += x * bv[v];
        }
        a += A::k_step * M::reals;
        b += M::sum_cols;
    }
#pragma GCC unroll 24
    for (int r = 0; r < real_rows; ++r)
#pragma GCC unroll 2
        for (int v = 0; v < vectors; ++v)
            reinterpret_cast<V*>(sums + r * M::sum_cols)[v] = acc[r][v];
}

template <class E, bool row_major, int row_count>
inline void block_product(const Real<E>* a, const Real<E>* b, int64_t k, int64_t cols,
                          Real<E>* sums) {
    constexpr int lanes = Vector<Real<E>>::lanes;
    if constexpr (Micro<E>::sum_cols > lanes)
        if (cols * Micro<E>::reals > lanes)
            return block_product<E, row_major, row_count, 2>(a, b, k, sums);
    block_product<E, row_major, row_count, 1>(a, b, k, sums);
}

// The smallest kernel that covers rows x cols.
template <class E, bool row_major>
inline void block_product(const Compute<E>* a, const Compute<E>* b, int64_t k, int64_t rows,
                          int64_t cols, Real<E>* sums) {
    constexpr int third = Micro<E>::rows / 3;
    const auto* ra = reinterpret_cast<const Real<E>*>(a);
    const auto* rb = reinterpret_cast<const Real<E>*>(b);
    if (rows > 2 * third) return block_product<E, row_major, 3 * third>(ra, rb, k, cols, sums);
    if (rows > third) return block_product<E, row_major, 2 * third>(ra, rb, k, cols, sums);
    block_product<E, row_major, third>(ra, rb, k, cols, sums);
}

// Joins the sums of real and imaginary parts of A into `rows` complex rows, in place: those of A B,
// or of A times the conjugate of B.
template <class R>
inline void combine(R* sums, int64_t rows, bool conj_b) {
    constexpr int width = Micro<Complex<R>>::sum_cols;
    const R sign = conj_b ? R{-1} : R{1};
    for (int64_t r = 0; r < rows; ++r) {
        const R* re = sums + 2 * r * width;
        const R* im = re + width;
        R joined[width];
        for (int c = 0; c < width; c += 2) {
            joined[c] = re[c] - sign * im[c + 1];
            joined[c + 1] = sign * re[c + 1] + im[c];
        }
        std::memcpy(sums + r * width, joined, sizeof joined);
    }
}

}  // namespace packedtri::cpu::PACKEDTRI_ISA
