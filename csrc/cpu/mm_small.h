// C = A B for small packed lower triangles, straight on their rows: packing panels would cost more
// than the arithmetic.
#pragma once

#include "elements.h"
#include "lines.h"
#include "vectors.h"
#include "workspace.h"

namespace packedtri::cpu::PACKEDTRI_ISA {

template <class T>
class SmallProduct {
    static constexpr int lanes = Vector<T>::lanes;
    static constexpr int group = 8;
    using V = typename Vector<T>::type;

  public:
    // a and c are packed; b holds the rows of B, zeros past the diagonal, `stride` apart.
    SmallProduct(int64_t n, const T* a, const T* b, int64_t stride, T* c)
        : n_(n), a_(a), b_(b), stride_(stride), c_(c) {}

    // False if a nan appeared. A structural zero of B times an infinity of A makes one that the
    // exact sum does not have.
    bool run() {
        for (int64_t j = 0; j < n_; j += lanes)
            for (int64_t i = j / group * group; i < n_; i += group) rows(i, j);
        return !any(unordered_);
    }

  private:
    // Elements j ... j + lanes - 1 of the rows i ... i + group - 1 of C. Rows past the last one
    // repeat it and are not stored.
    void rows(int64_t i, int64_t j) {
        const T* a[group];
        V sums[group] = {};
        for (int r = 0; r < group; ++r) a[r] = a_ + row_start(std::min(i + r, n_ - 1));
        for (int64_t k = j; k < i; ++k) add<0>(a, i, j, k - i, sums);
        add_triangle(a, i, j, sums, std::make_integer_sequence<int, group>{});
        for (int r = 0; r < group && i + r < n_; ++r) {
            unordered_ |= sums[r] != sums[r];
            store_first(c_ + offset(i + r, j), sums[r], i + r + 1 - j);
        }
    }

    // The terms of k = i + t for the rows from i + first on, those that reach so far.
    template <int first>
    void add(const T* const* a, int64_t i, int64_t j, int64_t t, V* sums) const {
        const V b = load(b_ + (i + t) * stride_ + j);
#pragma GCC unroll 8
        for (int r = first; r < group; ++r) sums[r] += a[r][i + t] * b;
    }

    template <int... t>
    void add_triangle(const T* const* a, int64_t i, int64_t j, V* sums,
                      std::integer_sequence<int, t...>) const {
        ((i + t < n_ ? add<t>(a, i, j, t, sums) : void()), ...);
    }

    const int64_t n_;
    const T *const a_, *const b_;
    const int64_t stride_;
    T* const c_;
    decltype(V{} != V{}) unordered_ = {};
};

// The product of one pair of triangles of the batch; false if it must be done with more care.
template <class E>
bool small_product(const Product& p, int64_t batch) {
    using T = Compute<E>;
    constexpr bool rounds = sizeof(E) < sizeof(T);
    constexpr int lanes = Vector<T>::lanes;
    const int64_t n = p.m, stride = ceil_div(n, lanes) * lanes, size = row_start(n);
    const Lines<E> a = lines_of<E>(p.a, batch), b = lines_of<E>(p.b, batch);
    E* c = static_cast<E*>(p.c.data) + batch * p.c.batch_stride;
    const int64_t flat = rounds ? ceil_div(size, lanes) * lanes : 0;
    T* rows = static_cast<T*>(workspace((n * stride + 2 * flat) * sizeof(T)));
    T *a_flat = rows + n * stride, *c_flat = a_flat + flat;
    copy_lines(b, {0, n, 0, n}, rows, stride);
    if constexpr (rounds) {
        for (int64_t q = 0; q < size; ++q) a_flat[q] = to_compute(a.data[q]);
        const bool good = SmallProduct<T>(n, a_flat, rows, stride, c_flat).run();
        for (int64_t q = 0; q < size; ++q) from_compute(c_flat[q], c[q]);
        return good;
    } else {
        return SmallProduct<T>(n, a.data, rows, stride, c).run();
    }
}

// The largest order for which skipping the panels pays.
constexpr int64_t small_order = 64;

inline bool is_small(const Product& p) {
    return p.a.kind == Kind::Lower && p.b.kind == Kind::Lower && p.c.kind == Kind::Lower &&
           p.m <= small_order;
}

}  // namespace packedtri::cpu::PACKEDTRI_ISA
