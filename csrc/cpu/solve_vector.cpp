// Solves with one right-hand side: every row of the packed triangle is read once, as it lies.
#include "isa.h"
#include "lines.h"
#include "scale.h"
#include "workspace.h"

namespace packedtri::cpu::PACKEDTRI_ISA {
namespace {

// A sum of products of elements, in vectors. A complex one keeps t x and t times x with its parts
// exchanged, whose lanes give the four real sums.
template <class E>
struct Dot {
    using R = Real<E>;
    using V = typename Vector<R>::type;
    static constexpr int lanes = Vector<R>::lanes;
    static constexpr bool is_complex = Element<E>::reals == 2;
    V straight = {}, crossed = {};

    void add(V t, V x) {
        straight += t * x;
        if constexpr (is_complex) crossed += t * swap_pairs<R>(x);
    }

    E total() const {
        R re = 0, im = 0;
        for (int l = 0; l < lanes; ++l) {
            re += is_complex && l % 2 ? -straight[l] : straight[l];
            im += crossed[l];
        }
        if constexpr (is_complex) {
            return {re, im};
        } else {
            return re;
        }
    }
};

template <class E>
class VectorSolve {
    using R = Real<E>;
    static constexpr int lanes = Vector<R>::lanes;
    static constexpr int reals = Element<E>::reals;
    // Rows that share the reading of x.
    static constexpr int group = 4;

  public:
    VectorSolve(const VectorSubstitution& p)
        : p_(p), rows_{static_cast<const E*>(p.triangle), 0, true, true, true},
          given_(static_cast<E*>(p.x)),
          x_(p.x_stride == 1 ? given_ : static_cast<E*>(workspace(p.n * sizeof(E)))) {}

    void run() {
        if (x_ == given_) return substitute();
        for (int64_t i = 0; i < p_.n; ++i) x_[i] = given_[i * p_.x_stride];
        substitute();
        for (int64_t i = 0; i < p_.n; ++i) given_[i * p_.x_stride] = x_[i];
    }

  private:
    void substitute() {
        if (p_.transposed) {
            int64_t i = p_.n;
            for (; i >= group; i -= group) upward<group>(i - group);
            for (; i > 0; --i) upward<1>(i - 1);
        } else {
            int64_t i = 0;
            for (; i + group <= p_.n; i += group) downward<group>(i);
            for (; i < p_.n; ++i) downward<1>(i);
        }
    }

    E divided(E x, int64_t i) const { return p_.unit ? x : Divisor<E>(rows_.line(i)[i]).divide(x); }

    // Unknowns i0 ... i0 + rows - 1 of T y = x.
    template <int rows>
    void downward(int64_t i0) {
        Dot<E> sums[rows];
        const R *t[rows], *x = reinterpret_cast<const R*>(x_);
        for (int r = 0; r < rows; ++r) t[r] = reinterpret_cast<const R*>(rows_.line(i0 + r));
        const int64_t count = i0 * reals;
        int64_t k = 0;
        for (; k + lanes <= count; k += lanes)
            for (int r = 0; r < rows; ++r) sums[r].add(load(t[r] + k), load(x + k));
        for (int r = 0; r < rows && k < count; ++r)
            sums[r].add(load_first(t[r] + k, count - k), load_first(x + k, count - k));
        for (int r = 0; r < rows; ++r) {
            const E* row = rows_.line(i0 + r);
            E y = x_[i0 + r] - sums[r].total();
            for (int64_t q = i0; q < i0 + r; ++q) y = y - row[q] * x_[q];
            x_[i0 + r] = divided(y, i0 + r);
        }
    }

    // The same of T' y = x; then what they contribute to the unknowns before them.
    template <int rows>
    void upward(int64_t i0) {
        for (int r = rows - 1; r >= 0; --r) {
            const E* row = rows_.line(i0 + r);
            const E y = x_[i0 + r] = divided(x_[i0 + r], i0 + r);
            for (int64_t q = i0; q < i0 + r; ++q) x_[q] = x_[q] - row[q] * y;
        }
        // Held apart from x, which is written meanwhile.
        Scale<E> scales[rows];
        const R* t[rows];
        for (int r = 0; r < rows; ++r) {
            scales[r] = Scale<E>(x_[i0 + r]);
            t[r] = reinterpret_cast<const R*>(rows_.line(i0 + r));
        }
        const int64_t count = i0 * reals;
        R* x = reinterpret_cast<R*>(x_);
        for (int64_t k = 0; k < count; k += lanes) {
            auto sum = load_first(x + k, count - k);
            for (int r = 0; r < rows; ++r) sum -= scales[r].times(load_first(t[r] + k, count - k));
            store_first(x + k, sum, count - k);
        }
    }

    const VectorSubstitution& p_;
    const Lines<E> rows_;
    E *const given_, *const x_;
};

}  // namespace

void solve_vector(const VectorSubstitution& p) {
    with_solvable(p.dtype, [&](auto e) { VectorSolve<decltype(e)>(p).run(); });
}

}  // namespace packedtri::cpu::PACKEDTRI_ISA
