// Solves with triangles of a small order: substitution, on panels of right-hand sides whose rows are
// unknowns, so that a step works on whole vectors.
//
// In a panel a right-hand side is a column. Y T = X becomes T' Y' = X', a panel of the rows of X.
#include "isa.h"
#include "lines.h"
#include "scale.h"
#include "workspace.h"

namespace packedtri::cpu::PACKEDTRI_ISA {
namespace {

template <class E>
Lines<E> lines_of(const Block& b, bool triangular) {
    return {reinterpret_cast<const E*>(b.data), b.stride, triangular, true, b.staggered};
}

template <class E>
class Substitution {
    using R = Real<E>;
    using V = typename Vector<R>::type;
    static constexpr int lanes = Vector<R>::lanes;
    static constexpr int reals = Element<E>::reals;
    // Columns of a panel: four vectors.
    static constexpr int width = 4 * lanes / reals;

  public:
    explicit Substitution(const SmallSolve& p)
        : p_(p), downward_(p.left != p.upper), ld_(ceil_div(p.n, block_order<E>) * block_order<E>),
          t_(static_cast<E*>(workspace(sizeof(E) * ld_ * (ld_ + 2 * width)))),
          panel_(t_ + ld_ * ld_), turned_(panel_ + ld_ * width) {}

    void run() {
        load_triangle();
        for (int64_t c = 0; c < p_.m; c += width) {
            const int64_t count = std::min<int64_t>(width, p_.m - c);
            load_panel(c, count);
            if (count * reals <= lanes) {
                substitute<1>();
            } else if (count * reals <= 2 * lanes) {
                substitute<2>();
            } else {
                substitute<4>();
            }
            if (p_.lower && has_nan(c, count)) {
                load_panel(c, count);
                for (int64_t q = 0; q < count; ++q) substitute_exactly(c + q, panel_ + q);
            }
            store_panel(c, count);
        }
    }

  private:
    // The rows of the triangle as the panels see it: read as its transpose where one, but not both,
    // of "upper" and "right" turns it.
    void load_triangle() {
        const Lines<E> lines = lines_of<E>(p_.t, true);
        const Rectangle all{0, p_.n, 0, p_.n};
        if (downward_) {
            copy_lines(lines, all, t_, ld_);
        } else {
            transpose_lines(lines, all, t_, ld_);
        }
        if (p_.conj)
            for (int64_t q = 0; q < p_.n * ld_; ++q) t_[q] = conjugate(t_[q]);
    }

    void load_panel(int64_t c, int64_t count) {
        const Lines<E> lines = lines_of<E>(p_.x, p_.lower);
        if (p_.left) {
            copy_lines<width>(lines, {0, p_.n, c, c + count}, panel_, width);
        } else {
            transpose_lines(lines, {c, c + count, 0, p_.n}, panel_, width);
        }
    }

    void store_panel(int64_t c, int64_t count) {
        const Lines<E> lines = lines_of<E>(p_.x, p_.lower);
        if (p_.left) return store_lines(lines, panel_, width, {0, p_.n, c, c + count});
        const Lines<E> rows{panel_, width, false, true, false};
        transpose_lines(rows, {0, p_.n, 0, width}, turned_, ld_);
        store_lines(lines, turned_, ld_, {c, c + count, 0, p_.n});
    }

    static void store_lines(const Lines<E>& lines, const E* src, int64_t ld, const Rectangle& r) {
        for (int64_t l = r.l0; l < r.l1; ++l, src += ld)
            std::copy_n(src, lines.stored(l, r.p0, r.p1), const_cast<E*>(lines.line(l)) + r.p0);
    }

    // The first `vectors` vectors of every row of the panel.
    template <int vectors>
    void substitute() {
        for (int64_t s = 0; s < p_.n; ++s) {
            const int64_t i = downward_ ? s : p_.n - 1 - s;
            const E* t = t_ + i * ld_;
            R* x = reinterpret_cast<R*>(panel_ + i * width);
            V sums[vectors];
            for (int v = 0; v < vectors; ++v) sums[v] = load(x + v * lanes);
            const int64_t end = downward_ ? i : p_.n;
            for (int64_t k = downward_ ? 0 : i + 1; k < end; ++k) {
                const R* known = reinterpret_cast<const R*>(panel_ + k * width);
                const Scale<E> scale(t[k]);
                for (int v = 0; v < vectors; ++v) sums[v] -= scale.times(load(known + v * lanes));
            }
            const Divisor<E> divisor(p_.unit ? from_real<E>(1) : t[i]);
            for (int v = 0; v < vectors; ++v) {
                const V y = divisor.divide(sums[v]);
                std::memcpy(x + v * lanes, &y, sizeof y);
            }
        }
    }

    // A triangle of right-hand sides has zeros, and they meet elements of T that the exact sum leaves
    // out. As in products, that is harmless until one of those is infinite or a nan.
    bool has_nan(int64_t c, int64_t count) const {
        for (int64_t q = 0; q < count; ++q)
            for (int64_t i = first(c + q); i < last(c + q); ++i)
                if (is_nan(panel_[i * width + q])) return true;
        return false;
    }

    // The unknowns of right-hand side c.
    int64_t first(int64_t c) const { return p_.lower && p_.left ? c : 0; }
    int64_t last(int64_t c) const { return p_.lower && !p_.left ? c + 1 : p_.n; }

    void substitute_exactly(int64_t c, E* x) const {
        const int64_t begin = first(c), end = last(c);
        for (int64_t s = 0; s < end - begin; ++s) {
            const int64_t i = downward_ ? begin + s : end - 1 - s;
            const E* t = t_ + i * ld_;
            E sum = x[i * width];
            for (int64_t k = downward_ ? begin : i + 1; k < (downward_ ? i : end); ++k)
                sum = sum - t[k] * x[k * width];
            x[i * width] = Divisor<E>(p_.unit ? from_real<E>(1) : t[i]).divide(sum);
        }
    }

    const SmallSolve& p_;
    const bool downward_;
    const int64_t ld_;
    E *const t_, *const panel_, *const turned_;
};

}  // namespace

void solve(const SmallSolve& p) {
    with_solvable(p.x.dtype, [&](auto e) { Substitution<decltype(e)>(p).run(); });
}

}  // namespace packedtri::cpu::PACKEDTRI_ISA
