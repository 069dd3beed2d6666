// Cholesky factors of a small order.
//
// The columns of L are the rows of a dense scratch matrix, so that a step works on whole vectors:
// column i of L is column i of A less the multiples of the columns before it, over its square root.
#include <cmath>

#include "isa.h"
#include "lines.h"
#include "scale.h"
#include "workspace.h"

namespace packedtri::cpu::PACKEDTRI_ISA {
namespace {

template <class E>
class SmallCholesky {
    using R = Real<E>;
    using V = typename Vector<R>::type;
    static constexpr int lanes = Vector<R>::lanes;
    static constexpr int reals = Element<E>::reals;
    static constexpr int64_t ld = small_triangle;

  public:
    SmallCholesky(const Block& a, int64_t n)
        : n_(n), rows_{reinterpret_cast<const E*>(a.data), a.stride, true, true, a.staggered},
          columns_(static_cast<E*>(workspace(2 * sizeof(E) * ld * ld))),
          turned_(columns_ + ld * ld) {}

    int64_t run() {
        transpose_lines(rows_, {0, n_, 0, n_}, columns_, width());
        for (int64_t i = 0; i < n_; ++i)
            if (!column(i)) return i + 1;
        const Lines<E> columns{columns_, width(), false, true, false};
        transpose_lines(columns, {0, n_, 0, n_}, turned_, width());
        for (int64_t i = 0; i < n_; ++i)
            std::copy_n(turned_ + i * width(), i + 1, const_cast<E*>(rows_.line(i)));
        return 0;
    }

  private:
    int64_t width() const { return ceil_div(n_, block_order<E>) * block_order<E>; }
    R* at(int64_t column, int64_t row) const {
        return reinterpret_cast<R*>(columns_ + column * width() + row);
    }

    // Rows i and below of column i; false if its minor is not positive definite.
    bool column(int64_t i) {
        constexpr int per_vector = lanes / reals;
        int64_t j = i / per_vector * per_vector;
        for (; j + 3 * per_vector < n_; j += 4 * per_vector) subtract_columns_before<4>(i, j);
        for (; j + per_vector < n_; j += 2 * per_vector) subtract_columns_before<2>(i, j);
        for (; j < n_; j += per_vector) subtract_columns_before<1>(i, j);
        const R pivot = real_part(columns_[i * width() + i]);
        if (!(pivot > 0)) return false;
        const R root = std::sqrt(pivot);
        for (R* x = at(i, i / per_vector * per_vector); x < at(i, n_); x += lanes) {
            const V y = load(x) / root;
            std::memcpy(x, &y, sizeof y);
        }
        columns_[i * width() + i] = from_real<E>(root);
        return true;
    }

    template <int vectors>
    void subtract_columns_before(int64_t i, int64_t j) {
        V sums[vectors];
        for (int v = 0; v < vectors; ++v) sums[v] = load(at(i, j) + v * lanes);
        for (int64_t k = 0; k < i; ++k) {
            const Scale<E> scale(conjugate(columns_[k * width() + i]));
            for (int v = 0; v < vectors; ++v) sums[v] -= scale.times(load(at(k, j) + v * lanes));
        }
        std::memcpy(at(i, j), sums, sizeof sums);
    }

    const int64_t n_;
    const Lines<E> rows_;
    E *const columns_, *const turned_;
};

// The largest order for which moving rows into vectors costs more than the arithmetic.
constexpr int64_t tiny_order = 8;

// Element by element, in place.
template <class E>
int64_t tiny_cholesky(const Block& a, int64_t n) {
    E* rows[tiny_order];
    for (int64_t i = 0; i < n; ++i) {
        rows[i] = reinterpret_cast<E*>(a.from(i, 0).data);
        for (int64_t j = 0; j <= i; ++j) {
            E sum = rows[i][j];
            for (int64_t k = 0; k < j; ++k) sum = sum - rows[i][k] * conjugate(rows[j][k]);
            if (j < i) {
                rows[i][j] = over_real(sum, real_part(rows[j][j]));
            } else if (const auto pivot = real_part(sum); pivot > 0) {
                rows[i][i] = from_real<E>(std::sqrt(pivot));
            } else {
                return i + 1;
            }
        }
    }
    return 0;
}

}  // namespace

int64_t cholesky(const Block& a, int64_t n) {
    int64_t failed = 0;
    with_solvable(a.dtype, [&](auto e) {
        using E = decltype(e);
        failed = n <= tiny_order ? tiny_cholesky<E>(a, n) : SmallCholesky<E>(a, n).run();
    });
    return failed;
}

}  // namespace packedtri::cpu::PACKEDTRI_ISA
