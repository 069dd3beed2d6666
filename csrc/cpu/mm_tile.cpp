// One tile of C = A B: blocks over k, packing, micro-kernel, masked store.
//
// Structural zeros. A panel that crosses a diagonal holds zeros past it, and those meet elements of
// the other operand that the exact sum leaves out. As long as these are finite nothing changes.
// An infinity or a nan among them makes a nan, so a block that crosses a diagonal is looked
// through for nans, and summed again element by element over exact ranges if there is one.
#include "../krange.h"
#include "isa.h"
#include "lines.h"
#include "microkernel.h"
#include "mm_small.h"
#include "workspace.h"

namespace packedtri::cpu::PACKEDTRI_ISA {
namespace {

KRange clip(KRange r, KRange to) { return {std::max(r.begin, to.begin), std::min(r.end, to.end)}; }

// The micro-blocks of one tile, while k runs over one depth-block `ks`.
template <class E>
class TileProduct {
    using T = Compute<E>;
    using R = Real<E>;
    using M = Micro<E>;
    static constexpr bool rounds = sizeof(E) < sizeof(T);

  public:
    TileProduct(const Product& p, int64_t batch, const Tile& t)
        : p_(p), t_(t), a_(lines_of<E>(p.a, batch)), b_(lines_of<E>(p.b, batch)),
          c_(static_cast<E*>(p.c.data) + batch * p.c.batch_stride) {
        const int64_t a_size = ceil_div(t.i1 - t.i0, M::rows) * M::a_panel;
        const int64_t b_size = ceil_div(t.j1 - t.j0, M::cols) * M::b_panel;
        const int64_t c_size = rounds ? (t.i1 - t.i0) * (t.j1 - t.j0) : 0;
        b_panels_ = static_cast<T*>(workspace((a_size + b_size + c_size) * sizeof(T)));
        a_panels_ = b_panels_ + b_size;
        unrounded_ = a_panels_ + a_size;
    }

    void run() {
        const KRange all = range(t_);
        const int64_t blocks = std::max<int64_t>(ceil_div(all.length(), M::depth), 1);
        const int64_t depth = ceil_div(all.length(), blocks);
        for (int64_t b = 0; b < blocks; ++b) {
            ks_ = clip({all.begin + b * depth, all.begin + (b + 1) * depth}, all);
            first_ = b == 0;
            if (a_.are_rows) {
                depth_block<true>();
            } else {
                depth_block<false>();
            }
        }
        if constexpr (rounds) round();
    }

  private:
    KRange range(const Tile& t) const {
        return k_range(p_.a.kind, p_.b.kind, t.i0, t.i1, t.j0, t.j1, p_.k);
    }

    template <bool row_major>
    void depth_block() {
        for (int64_t i = t_.i0; i < t_.i1; i += M::rows) pack_a<row_major>(i);
        pack_b();
        // The panel of A stays in the first cache, and the rows of C are passed through in one go.
        for (int64_t i = t_.i0; i < t_.i1; i += M::rows)
            for (int64_t j = t_.j0; j < t_.j1; j += M::cols)
                micro_block<row_major>(
                    {i, std::min(i + M::rows, t_.i1), j, std::min(j + M::cols, t_.j1)});
    }

    T* a_panel(int64_t i) const { return a_panels_ + (i - t_.i0) / M::rows * M::a_panel; }
    T* b_panel(int64_t j) const { return b_panels_ + (j - t_.j0) / M::cols * M::b_panel; }

    template <bool row_major>
    void pack_a(int64_t i) {
        const int64_t i1 = std::min(i + M::rows, t_.i1);
        const KRange ks = clip(range({i, i1, t_.j0, t_.j1}), ks_);
        if (ks.length() == 0) return;
        T* dst = a_panel(i) + (ks.begin - ks_.begin) * PanelA<E, row_major>::k_step;
        // Rows of the panel past i1 are left as they are: their sums are not looked at.
        if constexpr (row_major) {
            copy_lines(a_, {i, i1, ks.begin, ks.end}, dst, M::row_stride);
        } else {
            copy_lines<M::rows>(a_, {ks.begin, ks.end, i, i1}, dst, M::rows);
        }
    }

    // Rows of B are packed a few at a time, but all of their elements: what follows in memory is on its way
    // then, and few pages are touched at once.
    void pack_b() {
        const int64_t step = b_.are_rows ? 16 : M::depth;
        for (int64_t k = ks_.begin; k < ks_.end; k += step)
            for (int64_t j = t_.j0; j < t_.j1; j += M::cols)
                pack_b(j, std::min(j + M::cols, t_.j1), {k, k + step});
    }

    void pack_b(int64_t j, int64_t j1, KRange part) {
        const KRange ks = clip(clip(range({t_.i0, t_.i1, j, j1}), ks_), part);
        if (ks.length() == 0) return;
        T* dst = b_panel(j) + (ks.begin - ks_.begin) * M::cols;
        if (b_.are_rows) {
            copy_lines<M::cols>(b_, {ks.begin, ks.end, j, j1}, dst, M::cols);
        } else {
            transpose_lines(b_, {j, j1, ks.begin, ks.end}, dst, M::cols);
        }
    }

    template <bool row_major>
    void micro_block(const Tile& t) {
        if (p_.c.kind == Kind::Lower && t.j0 >= t.i1) return;
        const KRange needed = range(t);
        const KRange ks = clip(needed, ks_);
        const bool overwrite =
            p_.beta == 0 && (needed.length() == 0 ? first_ : needed.begin >= ks_.begin);
        alignas(64) R sums[M::sums];
        if (ks.length() > 0) {
            const T* a = a_panel(t.i0) + (ks.begin - ks_.begin) * PanelA<E, row_major>::k_step;
            const T* b = b_panel(t.j0) + (ks.begin - ks_.begin) * M::cols;
            block_product<E, row_major>(a, b, ks.length(), t.i1 - t.i0, t.j1 - t.j0, sums);
            if constexpr (M::reals == 2) combine(sums, t.i1 - t.i0, p_.conj_b);
            if (crosses_diagonal(t, ks) && has_nan(sums, t))
                exact_product<row_major>(a, b, t, ks, reinterpret_cast<T*>(sums));
        } else if (overwrite) {
            std::fill_n(sums, M::sums, R{});
        } else {
            return;
        }
        store(t, sums, overwrite);
    }

    bool crosses_diagonal(const Tile& t, KRange ks) const {
        const Kind a = p_.a.kind, b = p_.b.kind;
        return (a == Kind::Lower && ks.end - 1 > t.i0) ||
               (a == Kind::Upper && ks.begin < t.i1 - 1) ||
               (b == Kind::Lower && ks.begin < t.j1 - 1) || (b == Kind::Upper && ks.end - 1 > t.j0);
    }

    static bool has_nan(const R* sums, const Tile& t) {
        constexpr int lanes = Vector<R>::lanes;
        decltype(load(sums) != load(sums)) unordered = {};
        for (int64_t i = t.i0; i < t.i1; ++i, sums += M::sum_cols)
            for (int64_t c = 0; c < (t.j1 - t.j0) * M::reals; c += lanes) {
                const auto v = load(sums + c);
                unordered |= v != v;
            }
        return any(unordered);
    }

    // The sums of a block with every structural zero left out, from the same panels.
    template <bool row_major>
    void exact_product(const T* a, const T* b, const Tile& t, KRange ks, T* sums) const {
        using A = PanelA<E, row_major>;
        std::fill_n(sums, (t.i1 - t.i0) * M::cols, T{});
        for (int64_t k = ks.begin; k < ks.end; ++k, a += A::k_step, b += M::cols) {
            const int64_t i0 = p_.a.kind == Kind::Lower ? std::max(t.i0, k) : t.i0;
            const int64_t i1 = p_.a.kind == Kind::Upper ? std::min(t.i1, k + 1) : t.i1;
            const int64_t j0 = p_.b.kind == Kind::Upper ? std::max(t.j0, k) : t.j0;
            const int64_t j1 = p_.b.kind == Kind::Lower ? std::min(t.j1, k + 1) : t.j1;
            for (int64_t i = i0; i < i1; ++i)
                for (int64_t j = j0; j < j1; ++j)
                    sums[(i - t.i0) * M::cols + j - t.j0] +=
                        a[(i - t.i0) * A::row_step] * b[j - t.j0];
        }
    }

    // How many columns of row i, from j0 on, belong to the result.
    int64_t stored(int64_t i, int64_t j0, int64_t j1) const {
        return p_.c.kind == Kind::Lower ? std::min(j1, i + 1) - j0 : j1 - j0;
    }

    E* c_row(int64_t i) const {
        const bool triangle = p_.c.kind == Kind::Lower;
        return c_ + (triangle && !p_.c.staggered ? 0 : i * p_.c.row_stride) +
               (triangle || p_.c.staggered ? row_start(i) : 0);
    }

    // Row i of the sums so far: C itself, or unrounded beside it for 16-bit elements.
    T* sums_row(int64_t i) const {
        if constexpr (rounds) {
            return unrounded_ + (i - t_.i0) * (t_.j1 - t_.j0) - t_.j0;
        } else {
            return c_row(i);
        }
    }

    void store(const Tile& t, const R* sums, bool overwrite) const {
        for (int64_t i = t.i0; i < t.i1; ++i, sums += M::sum_cols) {
            R* c = reinterpret_cast<R*>(sums_row(i) + t.j0);
            const int64_t count = stored(i, t.j0, t.j1) * M::reals;
            for (int j = 0; j < M::sum_cols; j += Vector<R>::lanes) {
                const auto v = p_.beta != 0 ? -load(sums + j) : load(sums + j);
                store_first(c + j, overwrite ? v : v + load_first(c + j, count - j), count - j);
            }
        }
    }

    void round() const {
        for (int64_t i = t_.i0; i < t_.i1; ++i) {
            const T* sums = sums_row(i) + t_.j0;
            E* c = c_row(i) + t_.j0;
            const int64_t count = stored(i, t_.j0, t_.j1);
            for (int64_t j = 0; j < count; ++j) from_compute(sums[j], c[j]);
        }
    }

    const Product& p_;
    const Tile t_;
    const Lines<E> a_, b_;
    E* const c_;
    T *a_panels_, *b_panels_, *unrounded_;
    KRange ks_{};
    bool first_ = false;
};

}  // namespace

void mm_tile(const Product& p, int64_t batch, const Tile& t) {
    with_element(p.dtype, [&](auto e) {
        using E = decltype(e);
        if constexpr (Element<E>::reals == 1)
            if (is_small(p) && small_product<E>(p, batch)) return;
        TileProduct<E>(p, batch, t).run();
    });
}

}  // namespace packedtri::cpu::PACKEDTRI_ISA
