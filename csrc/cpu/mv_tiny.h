// A packed matrix times a vector, where both fit in registers: rows are loaded once, and their sums
// are taken together.
#pragma once

#include "elements.h"
#include "isa.h"
#include "lines.h"
#include "vectors.h"

namespace packedtri::cpu::PACKEDTRI_ISA {

template <class E>
class TinyMatrixVector {
    using R = Real<E>;
    using V = typename Vector<R>::type;
    static constexpr int lanes = Vector<R>::lanes;

  public:
    static bool can(const MatrixVector& p) { return p.n <= lanes; }

    static void run(const MatrixVector& p) {
        constexpr std::make_integer_sequence<int, lanes> sequence{};
        if (p.kind == Kind::Lower) return product<Kind::Lower>(p, sequence);
        if (p.kind == Kind::Upper) return product<Kind::Upper>(p, sequence);
        product<Kind::Symmetric>(p, sequence);
    }

  private:
    template <Kind kind, int... i>
    static void product(const MatrixVector& p, std::integer_sequence<int, i...>) {
        const E* rows = static_cast<const E*>(p.triangle);
        const E* x = static_cast<const E*>(p.x);
        alignas(64) R values[lanes] = {};
        for (int64_t k = 0; k < p.n; ++k) values[k] = to_compute(x[k * p.x_stride]);
        // Not from what has just been stored one by one, which is slow to load together.
        const V all = p.x_stride == 1 ? load_row(x, p.n) : load(values);
        // What rows say of the other half: each one times an element of x.
        V across = {};
        V along[lanes] = {(i < p.n ? row<kind, i>(rows, values, all, across) : V{})...};
        if constexpr (kind != Kind::Upper) across += sums<lanes / 2>(along);
        std::memcpy(values, &across, sizeof values);
        E* y = static_cast<E*>(p.y);
        for (int64_t k = 0; k < p.n; ++k) from_compute(values[k], y[k * p.y_stride]);
    }

    // The products of row i with x. An infinite element of x must not meet what is no part of the row.
    template <Kind kind, int i>
    [[gnu::always_inline]] static V row(const E* rows, const R* x, V all, V& across) {
        const V elements = load_row(rows + row_start(i), i + 1);
        if constexpr (kind != Kind::Lower)
            across += keep_first<R>(elements * x[i], kind == Kind::Upper ? i + 1 : i);
        if constexpr (kind == Kind::Upper) return V{};
        return elements * keep_first<R>(all, i + 1);
    }

    // Lane l of the result is the sum of the lanes of v[l]: vectors are added in pairs, h apart, of which each
    // keeps half of the lanes.
    template <int h>
    [[gnu::always_inline]] static V sums(V* v) {
        if constexpr (h == 0) {
            return v[0];
        } else {
#pragma GCC unroll 16
            for (int l = 0; l < h; ++l)
                v[l] = pair<h>(v[l], v[l + h], std::make_integer_sequence<int, lanes>{});
            return sums<h / 2>(v);
        }
    }
    template <int h, int... l>
    [[gnu::always_inline]] static V pair(V a, V b, std::integer_sequence<int, l...>) {
        return __builtin_shufflevector(a, b, (l & h ? lanes + l : l)...) +
               __builtin_shufflevector(a, b, (l & h ? lanes + (l ^ h) : l ^ h)...);
    }
};

}  // namespace packedtri::cpu::PACKEDTRI_ISA
