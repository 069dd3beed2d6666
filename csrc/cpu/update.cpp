// Changes of low rank of a Cholesky factor: [L x] is turned by rotations into [L' 0], so that
// L' L'^H = L L^H + x x^H, and by hyperbolic ones for a difference. A rotation belongs to a column of
// L and one of x, and rows meet them one after another, as they lie in memory.
//
// The hyperbolic ones are applied in the mixed form of Bojanczyk, Brent, van Dooren and de Hoog
// (SIAM Journal on Scientific and Statistical Computing 8, 1987), which is stable.
#include <cmath>

#include "isa.h"
#include "lines.h"
#include "scale.h"
#include "workspace.h"

namespace packedtri::cpu::PACKEDTRI_ISA {
namespace {

template <class E>
class RankUpdate {
    using R = Real<E>;
    // Rows that meet a rotation together: their chains of operations do not wait for each other.
    static constexpr int group = 4;

    struct Rotation {
        R c;
        E s;
    };

  public:
    RankUpdate(const FactorUpdate& p, int64_t batch)
        : p_(p),
          rows_{static_cast<const E*>(p.packed) + batch * p.batch_stride, 0, true, true, true},
          x_(static_cast<E*>(p.x) + batch * p.n * p.k),
          phases_(static_cast<E*>(workspace(p.n * (sizeof(E) + p.k * sizeof(Rotation))))),
          rotations_(reinterpret_cast<Rotation*>(phases_ + p.n)) {}

    // The order of the first leading minor that is not positive definite, 0 where all are.
    int64_t run() {
        int64_t i = 0;
        for (; i + group <= p_.n; i += group)
            if (const int64_t failed = advance<group>(i)) return failed;
        for (; i < p_.n; ++i)
            if (const int64_t failed = advance<1>(i)) return failed;
        return 0;
    }

  private:
    E* row(int64_t i) const { return const_cast<E*>(rows_.line(i)); }

    template <int count>
    int64_t advance(int64_t i0) {
        E* rows[count];
        for (int q = 0; q < count; ++q) rows[q] = row(i0 + q);
        for (int64_t j = 0; j < i0; ++j) rotate<count>(rows, i0, j);
        for (int q = 0; q < count; ++q) {
            for (int64_t j = i0; j < i0 + q; ++j) rotate<1>(rows + q, i0 + q, j);
            if (!make_rotations(i0 + q)) return i0 + q + 1;
        }
        return 0;
    }

    // Applies the rotations of column j to some rows from row i on.
    template <int count>
    void rotate(E* const* rows, int64_t i, int64_t j) {
        E l[count];
        for (int q = 0; q < count; ++q) l[q] = rows[q][j] * phases_[j];
        for (int64_t r = 0; r < p_.k; ++r) {
            const Rotation t = rotations_[j * p_.k + r];
            const E conj_s = conjugate(t.s);
            for (int q = 0; q < count; ++q) {
                E& x = x_[(i + q) * p_.k + r];
                if (p_.downdate) {
                    l[q] = over_real(l[q] - conj_s * x, t.c);
                    x = from_real<E>(t.c) * x - t.s * l[q];
                } else {
                    const E before = l[q];
                    l[q] = from_real<E>(t.c) * before + conj_s * x;
                    x = from_real<E>(t.c) * x - t.s * before;
                }
            }
        }
        for (int q = 0; q < count; ++q) rows[q][j] = l[q];
    }

    // Turns the diagonal element real and positive, and finds the rotations that clear row i of x.
    bool make_rotations(int64_t i) {
        E& diagonal = row(i)[i];
        R l = magnitude(diagonal);
        phases_[i] = l > 0 ? over_real(conjugate(diagonal), l) : from_real<E>(1);
        for (int64_t r = 0; r < p_.k; ++r) {
            const E x = x_[i * p_.k + r];
            const R size = magnitude(x);
            const R turned =
                p_.downdate ? std::sqrt(l - size) * std::sqrt(l + size) : std::hypot(l, size);
            if (p_.downdate && !(turned > 0)) return false;
            // Of two zeros nothing is to be turned; another column may come that is none.
            Rotation& rotation = rotations_[i * p_.k + r];
            if (turned == 0) rotation = {1, {}};
            else if (p_.downdate) rotation = {turned / l, over_real(x, l)};
            else rotation = {l / turned, over_real(x, turned)};
            l = turned;
        }
        diagonal = from_real<E>(l);
        return l > 0;
    }

    const FactorUpdate& p_;
    const Lines<E> rows_;
    E *const x_, *const phases_;
    Rotation* const rotations_;
};

}  // namespace

int64_t update_cholesky(const FactorUpdate& p, int64_t batch) {
    int64_t failed = 0;
    with_solvable(p.dtype, [&](auto e) { failed = RankUpdate<decltype(e)>(p, batch).run(); });
    return failed;
}

}  // namespace packedtri::cpu::PACKEDTRI_ISA
