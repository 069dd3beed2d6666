// C = A B for dense matrices and results of at most four rows and columns: dot products of lines that lie along the sum.
// Blocks of registers, and panels for them, would be empty but for a few places.
#pragma once

#include <type_traits>

#include "lines.h"

namespace packedtri::cpu::PACKEDTRI_ISA {

template <class E>
class DotProducts {
    using T = Compute<E>;
    using V = typename Vector<T>::type;
    static constexpr int lanes = Vector<T>::lanes, order = dots_order, block = 512;

  public:
    DotProducts(const Product& p, int64_t batch)
        : p_(p), a_(lines_of<E>(p.a, batch)), b_(lines_of<E>(p.b, batch)),
          c_(static_cast<E*>(p.c.data) + batch * p.c.batch_stride) {}

    void run() {
        alignas(64) T a_buffer[order * block], b_buffer[order * block];
        // A single column without gaps is a line as well.
        const bool b_along = !b_.are_rows || (p_.n == 1 && p_.b.row_stride == 1);
        const bool same = a_.data == b_.data && p_.m == p_.n && a_.are_rows == b_along &&
                          (p_.n == 1 || a_.stride == b_.stride);
        V sums[order][order] = {};
        for (int64_t k = 0; k < p_.k; k += block) {
            const int64_t count = std::min<int64_t>(block, p_.k - k);
            const T *a[order], *b[order];
            point(a_, a_.are_rows, p_.m, k, count, a_buffer, a);
            if (same) std::copy_n(a, order, b);
            else point(b_, b_along, p_.n, k, count, b_buffer, b);
            add(a, b, count, sums);
        }
        store(sums);
    }

  private:
    // Where the terms from k on of each row of A, or column of B, lie side by side: in its line, or else in the buffer. Those
    // past the last one repeat it.
    static void point(const Lines<E>& x, bool along, int64_t size, int64_t k, int64_t count,
                      T* buffer, const T** at) {
        const bool copied = !along || !std::is_same_v<E, T>;
        if (!along) {
            for (int64_t t = 0; t < count; ++t) {
                const E* line = x.line(k + t);
                for (int64_t r = 0; r < size; ++r) buffer[r * block + t] = to_compute(line[r]);
            }
        } else if (copied) {
            for (int64_t r = 0; r < size; ++r)
                for (int64_t t = 0; t < count; t += lanes)
                    copy_vector(x.line(r) + k + t, count - t, buffer + r * block + t);
        }
        for (int64_t r = 0; r < order; ++r) {
            const int64_t row = std::min(r, size - 1);
            if constexpr (std::is_same_v<E, T>)
                at[r] = copied ? buffer + row * block : x.line(row) + k;
            else at[r] = buffer + row * block;
        }
    }

    static void add(const T* const* a, const T* const* b, int64_t count, V (&sums)[order][order]) {
        const int64_t whole = count / lanes * lanes;
        for (int64_t t = 0; t < whole; t += lanes)
            add_vectors(a, b, sums, [&](const T* x) { return load(x + t); });
        if (whole < count)
            add_vectors(a, b, sums,
                        [&](const T* x) { return load_first(x + whole, count - whole); });
    }
    template <class Load>
    [[gnu::always_inline]] static void add_vectors(const T* const* a, const T* const* b,
                                                   V (&sums)[order][order], const Load& vector) {
        V right[order];
#pragma GCC unroll 4
        for (int j = 0; j < order; ++j) right[j] = vector(b[j]);
#pragma GCC unroll 4
        for (int i = 0; i < order; ++i) {
            const V left = vector(a[i]);
#pragma GCC unroll 4
            for (int j = 0; j < order; ++j) sums[i][j] += left * right[j];
        }
    }

    void store(const V (&sums)[order][order]) const {
        const bool lower = p_.c.kind == Kind::Lower;
        for (int64_t i = 0; i < p_.m; ++i) {
            E* row = c_ + (lower ? row_start(i) : i * p_.c.row_stride);
            for (int64_t j = 0; j < (lower ? i + 1 : p_.n); ++j)
                store_rounded(row + j, V{sum_of_lanes<T>(sums[i][j])}, 1);
        }
    }

    const Product& p_;
    const Lines<E> a_, b_;
    E* const c_;
};

inline bool has_dots(const Product& p) {
    return is_plain(p) && p.a.kind == Kind::Dense && p.b.kind == Kind::Dense && p.m <= dots_order &&
           p.n <= dots_order && p.k >= 32;
}

}  // namespace packedtri::cpu::PACKEDTRI_ISA
