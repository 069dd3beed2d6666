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
void store_lines(const Lines<E>& lines, const E* src, int64_t ld, const Rectangle& r) {
    for (int64_t l = r.l0; l < r.l1; ++l, src += ld)
        std::copy_n(src, lines.stored(l, r.p0, r.p1), const_cast<E*>(lines.line(l)) + r.p0);
}

// The rows of the triangle as the panels see it: read as its transpose where one, but not both, of
// "upper" and "right" turns it.
template <class E>
struct Rows {
    bool downward;  // the triangle is lower, and the first unknown comes first
    int64_t ld;
    E* data;

    explicit Rows(const SmallSolve& p)
        : downward(p.left != p.upper), ld(ceil_div(p.n, block_order<E>) * block_order<E>),
          data(static_cast<E*>(workspace(sizeof(E) * ld * (ld + 2 * widest)))) {
        const Rectangle all{0, p.n, 0, p.n};
        if (downward) {
            copy_lines(lines_of<E>(p.t, true), all, data, ld);
        } else {
            transpose_lines(lines_of<E>(p.t, true), all, data, ld);
        }
        if (p.conj)
            for (int64_t q = 0; q < p.n * ld; ++q) data[q] = conjugate(data[q]);
    }

    static constexpr int per_vector = vector_bytes / static_cast<int>(sizeof(E));
    static constexpr int widest = 4 * per_vector;
    E* panel() const { return data + ld * ld; }
};

template <class E, int vectors>
class Panel {
    using R = Real<E>;
    using V = typename Vector<R>::type;
    static constexpr int lanes = Vector<R>::lanes;
    static constexpr int width = vectors * Rows<E>::per_vector;

  public:
    // Right-hand sides [c, c + count), count <= width.
    Panel(const SmallSolve& p, const Rows<E>& t, int64_t c, int64_t count)
        : p_(p), t_(t), c_(c), count_(count), x_(lines_of<E>(p.x, p.lower)), panel_(t.panel()) {}

    void run() {
        load_panel();
        substitute();
        if (p_.lower && has_nan()) {
            load_panel();
            for (int64_t q = 0; q < count_; ++q) substitute_exactly(c_ + q, panel_ + q);
        }
        store_panel();
    }

  private:
    void load_panel() {
        if (p_.left) {
            copy_lines<width>(x_, {0, p_.n, c_, c_ + count_}, panel_, width);
        } else {
            transpose_lines(x_, {c_, c_ + count_, 0, p_.n}, panel_, width);
        }
    }

    void store_panel() {
        if (p_.left) return store_lines(x_, panel_, width, {0, p_.n, c_, c_ + count_});
        E* turned = panel_ + t_.ld * width;
        transpose_lines<E>({panel_, width, false, true, false}, {0, p_.n, 0, width}, turned, t_.ld);
        store_lines(x_, turned, t_.ld, {c_, c_ + count_, 0, p_.n});
    }

    void substitute() {
        for (int64_t s = 0; s < p_.n; ++s) {
            const int64_t i = t_.downward ? s : p_.n - 1 - s;
            const E* t = t_.data + i * t_.ld;
            R* x = reinterpret_cast<R*>(panel_ + i * width);
            V sums[vectors];
            for (int v = 0; v < vectors; ++v) sums[v] = load(x + v * lanes);
            const int64_t end = t_.downward ? i : p_.n;
            for (int64_t k = t_.downward ? 0 : i + 1; k < end; ++k) {
                const R* known = reinterpret_cast<const R*>(panel_ + k * width);
                const Scale<E> scale(t[k]);
                for (int v = 0; v < vectors; ++v) sums[v] -= scale.times(load(known + v * lanes));
            }
            const Divisor<E> divisor(p_.unit ? from_real<E>(1) : t[i]);
            for (int v = 0; v < vectors; ++v) sums[v] = divisor.divide(sums[v]);
            std::memcpy(x, sums, sizeof sums);
        }
    }

    // A triangle of right-hand sides has zeros, and they meet elements of T that the exact sum leaves
    // out. As in products, that is harmless until one of those is infinite or a nan.
    bool has_nan() const {
        for (int64_t q = 0; q < count_; ++q)
            for (int64_t i = first(c_ + q); i < last(c_ + q); ++i)
                if (is_nan(panel_[i * width + q])) return true;
        return false;
    }

    // The unknowns of right-hand side c.
    int64_t first(int64_t c) const { return p_.lower && p_.left ? c : 0; }
    int64_t last(int64_t c) const { return p_.lower && !p_.left ? c + 1 : p_.n; }

    void substitute_exactly(int64_t c, E* x) const {
        const int64_t begin = first(c), end = last(c);
        for (int64_t s = 0; s < end - begin; ++s) {
            const int64_t i = t_.downward ? begin + s : end - 1 - s;
            const E* t = t_.data + i * t_.ld;
            E sum = x[i * width];
            for (int64_t k = t_.downward ? begin : i + 1; k < (t_.downward ? i : end); ++k)
                sum = sum - t[k] * x[k * width];
            x[i * width] = Divisor<E>(p_.unit ? from_real<E>(1) : t[i]).divide(sum);
        }
    }

    const SmallSolve& p_;
    const Rows<E>& t_;
    const int64_t c_, count_;
    const Lines<E> x_;
    E* const panel_;
};

template <class E>
void substitute(const SmallSolve& p) {
    const Rows<E> t(p);
    for (int64_t c = 0; c < p.m; c += t.widest) {
        const int64_t count = std::min<int64_t>(t.widest, p.m - c);
        if (count <= t.per_vector) {
            Panel<E, 1>(p, t, c, count).run();
        } else if (count <= 2 * t.per_vector) {
            Panel<E, 2>(p, t, c, count).run();
        } else {
            Panel<E, 4>(p, t, c, count).run();
        }
    }
}

}  // namespace

void solve(const SmallSolve& p) {
    with_solvable(p.x.dtype, [&](auto e) { substitute<decltype(e)>(p); });
}

}  // namespace packedtri::cpu::PACKEDTRI_ISA
