// One tile of C = A B: blocks over k, packing, micro-kernel, masked store.
//
// Structural zeros. A panel that crosses a diagonal holds zeros past it, and those meet elements of
// the other operand that the exact sum leaves out. As long as these are finite nothing changes.
// An infinity or a nan among them makes a nan, so a block that crosses a diagonal is looked
// through for nans, and summed again element by element over exact ranges if there is one.
#include "isa.h"
#include "mm_dots.h"
#include "mm_small.h"
#include "pair_panels.h"
#include "panels.h"
#include "workspace.h"

#if defined(PACKEDTRI_PAIRS)
namespace packedtri::cpu::avx512 {
void mm_tile(const Product& p, int64_t batch, const Tile& tile);
}
#endif

namespace packedtri::cpu::PACKEDTRI_ISA {
namespace {

KRange clip(KRange r, KRange to) { return {std::max(r.begin, to.begin), std::min(r.end, to.end)}; }

// The micro-blocks of one tile, while k runs over one depth-block `ks`.
template <class E, class P>
class TileProduct {
    using Item = typename P::Item;
    using T = Compute<E>;
    using R = Real<E>;
    static constexpr int reals = Element<E>::reals;
    static constexpr bool rounds = sizeof(E) < sizeof(T);
    // Rows of A that are packed at a time: their panels stay in the second cache beside those of B.
    static constexpr int64_t rows_at_once = 384;
    static_assert(rows_at_once % P::rows == 0);

  public:
    TileProduct(const Product& p, int64_t batch, const Tile& t)
        : p_(p), t_(t), panels_(p, batch),
          c_(static_cast<E*>(p.c.data) + batch * p.c.batch_stride) {
        const int64_t down = ceil_div(t.i1 - t.i0, P::rows),
                      across = ceil_div(t.j1 - t.j0, P::cols);
        const int64_t a_size = std::min<int64_t>(down, rows_at_once / P::rows) * P::a_panel,
                      b_size = across * P::b_panel, c_size = rounds ? down * across * P::sums : 0;
        b_panels_ =
            static_cast<Item*>(workspace((a_size + b_size) * sizeof(Item) + c_size * sizeof(R)));
        a_panels_ = b_panels_ + b_size;
        unrounded_ = reinterpret_cast<R*>(a_panels_ + a_size);
    }

    void run() {
        [[maybe_unused]] const typename P::Session session;
        const KRange all = range(t_);
        const int64_t blocks = std::max<int64_t>(ceil_div(all.length(), P::depth), 1);
        const int64_t depth = ceil_div(ceil_div(all.length(), blocks), P::unit) * P::unit;
        for (int64_t b = 0; b < blocks; ++b) {
            ks_ = clip({all.begin + b * depth, all.begin + (b + 1) * depth}, all);
            first_ = b == 0;
            depth_block();
        }
    }

  private:
    KRange range(const Tile& t) const {
        return k_range(p_.a.kind, p_.b.kind, t.i0, t.i1, t.j0, t.j1, p_.k);
    }

    void depth_block() {
        const int64_t step = panels_.steps_at_once();
        for (int64_t k = ks_.begin; k < ks_.end; k += step)
            for (int64_t j = t_.j0; j < t_.j1; j += P::cols) pack_b(j, {k, k + step});
        for (first_row_ = t_.i0; first_row_ < t_.i1; first_row_ += rows_at_once) {
            const int64_t end = std::min(first_row_ + rows_at_once, t_.i1);
            for (int64_t i = first_row_; i < end; i += P::rows) pack_a(i);
            // The panel of A stays in the first cache, and the rows of C are passed through in one go.
            for (int64_t i = first_row_; i < end; i += P::rows)
                for (int64_t j = t_.j0; j < t_.j1; j += P::cols)
                    micro_block({i, std::min(i + P::rows, end), j, std::min(j + P::cols, t_.j1)});
        }
    }

    Item* a_panel(int64_t i, int64_t k) const {
        return panels_.a_from(a_panels_ + (i - first_row_) / P::rows * P::a_panel, k - ks_.begin);
    }
    Item* b_panel(int64_t j, int64_t k) const {
        return panels_.b_from(b_panels_ + (j - t_.j0) / P::cols * P::b_panel, k - ks_.begin);
    }

    void pack_a(int64_t i) const {
        const int64_t i1 = std::min(i + P::rows, t_.i1);
        const KRange ks = clip(range({i, i1, t_.j0, t_.j1}), ks_);
        if (ks.length() > 0) panels_.pack_a(i, i1, ks, a_panel(i, ks.begin));
    }

    void pack_b(int64_t j, KRange part) const {
        const int64_t j1 = std::min(j + P::cols, t_.j1);
        const KRange ks = clip(clip(range({t_.i0, t_.i1, j, j1}), ks_), part);
        if (ks.length() > 0) panels_.pack_b(j, j1, ks, b_panel(j, ks.begin));
    }

    void micro_block(const Tile& t) {
        if (p_.c.kind == Kind::Lower && t.j0 >= t.i1) return;
        const KRange needed = range(t), ks = clip(needed, ks_);
        const bool empty = needed.length() == 0;
        if (empty ? !first_ : ks.length() == 0) return;
        const bool first = p_.beta == 0 && (empty || needed.begin >= ks_.begin);
        alignas(64) R sums[P::sums];
        if constexpr (rounds) {
            const bool last = empty || needed.end <= ks_.end;
            R* all = first && last ? sums : unrounded(t);
            if (P::adds && !empty && !crosses_diagonal(t, ks)) {
                product(t, ks, first, all);
            } else {
                exact_sums(t, ks, sums);
                if (all != sums) add(sums, first, all);
            }
            if (last) round(t, all);
        } else {
            exact_sums(t, ks, sums);
            store(t, sums, first);
        }
    }

    [[gnu::always_inline]] void product(const Tile& t, KRange ks, bool first, R* sums) const {
        panels_.product(a_panel(t.i0, ks.begin), b_panel(t.j0, ks.begin), ks.length(), t.i1 - t.i0,
                        t.j1 - t.j0, first, sums);
    }

    void exact_sums(const Tile& t, KRange ks, R* sums) const {
        if (ks.length() == 0) {
            std::fill_n(sums, P::sums, R{});
            return;
        }
        product(t, ks, true, sums);
        if (crosses_diagonal(t, ks) && has_nan(sums, t))
            exact_product(a_panel(t.i0, ks.begin), b_panel(t.j0, ks.begin), t, ks,
                          reinterpret_cast<T*>(sums));
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
        for (int64_t i = t.i0; i < t.i1; ++i, sums += P::sum_cols)
            for (int64_t c = 0; c < (t.j1 - t.j0) * reals; c += lanes) {
                const auto v = load(sums + c);
                unordered |= v != v;
            }
        return any(unordered);
    }

    // The sums of a block with every structural zero left out, from the same panels.
    void exact_product(const Item* a, const Item* b, const Tile& t, KRange ks, T* sums) const {
        std::fill_n(sums, (t.i1 - t.i0) * P::cols, T{});
        for (int64_t k = ks.begin; k < ks.end; ++k) {
            const int64_t i0 = p_.a.kind == Kind::Lower ? std::max(t.i0, k) : t.i0;
            const int64_t i1 = p_.a.kind == Kind::Upper ? std::min(t.i1, k + 1) : t.i1;
            const int64_t j0 = p_.b.kind == Kind::Upper ? std::max(t.j0, k) : t.j0;
            const int64_t j1 = p_.b.kind == Kind::Lower ? std::min(t.j1, k + 1) : t.j1;
            for (int64_t i = i0; i < i1; ++i)
                for (int64_t j = j0; j < j1; ++j)
                    sums[(i - t.i0) * P::cols + j - t.j0] +=
                        panels_.a_at(a, i - t.i0, k - ks.begin) *
                        panels_.b_at(b, k - ks.begin, j - t.j0);
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

    void store(const Tile& t, const R* sums, bool first) const {
        for (int64_t i = t.i0; i < t.i1; ++i, sums += P::sum_cols) {
            R* c = reinterpret_cast<R*>(c_row(i) + t.j0);
            const int64_t count = stored(i, t.j0, t.j1) * reals;
            for (int j = 0; j < P::sum_cols; j += Vector<R>::lanes) {
                const auto v = p_.beta != 0 ? -load(sums + j) : load(sums + j);
                store_first(c + j, first ? v : v + load_first(c + j, count - j), count - j);
            }
        }
    }

    // 16-bit elements have their sums over some of k beside C, a block after another.
    R* unrounded(const Tile& t) const {
        const int64_t across = ceil_div(t_.j1 - t_.j0, P::cols);
        const int64_t block = (t.i0 - t_.i0) / P::rows * across + (t.j0 - t_.j0) / P::cols;
        return unrounded_ + block * P::sums;
    }

    static void add(const R* sums, bool first, R* all) {
        for (int e = 0; e < P::sums; e += Vector<R>::lanes) {
            const auto v = first ? load(sums + e) : load(all + e) + load(sums + e);
            std::memcpy(all + e, &v, sizeof v);
        }
    }

    void round(const Tile& t, const R* sums) const {
        constexpr int lanes = Vector<R>::lanes;
        for (int64_t i = t.i0; i < t.i1; ++i, sums += P::sum_cols) {
            E* c = c_row(i) + t.j0;
            const int64_t count = stored(i, t.j0, t.j1);
            for (int j = 0; j < P::sum_cols; j += lanes)
                store_rounded(c + j, load(sums + j), count - j);
        }
    }

    const Product& p_;
    const Tile t_;
    const P panels_;
    E* const c_;
    Item *a_panels_, *b_panels_;
    R* unrounded_;
    // The part of the sum that is computed, whether it is the first, and the first of the rows of A in panels.
    KRange ks_{};
    bool first_ = false;
    int64_t first_row_ = 0;
};

template <class E, class P>
void multiply(const Product& p, int64_t batch, const Tile& t, int64_t small) {
    if constexpr (Element<E>::reals == 1) {
        if (has_dots(p)) return DotProducts<E>(p, batch).run();
        if (is_small(p, small) && small_product<E>(p, batch)) return;
    }
    TileProduct<E, P>(p, batch, t).run();
}

}  // namespace

#if defined(PACKEDTRI_PAIRS)

// Elements without instructions for pairs are left to AVX-512. Those with them pay for panels sooner.
void mm_tile(const Product& p, int64_t batch, const Tile& t) {
    if (p.dtype != DType::bf16) return avx512::mm_tile(p, batch, t);
    multiply<BFloat16, PairPanels>(p, batch, t, 16);
}

#else

void mm_tile(const Product& p, int64_t batch, const Tile& t) {
    with_element(p.dtype, [&](auto e) {
        using E = decltype(e);
        multiply<E, Panels<E>>(p, batch, t, small_order);
    });
}

void mm_slim(const Product& p, int64_t batch, int64_t begin, int64_t end) {
    Product piece = p;
    if (p.n >= p.m) {
        piece.n = piece.b.cols = end - begin;
        piece.b.data = at_element(p.b.data, p.dtype, begin * p.b.col_stride);
        piece.c.data = at_element(p.c.data, p.dtype, begin);
    } else {
        piece.m = piece.a.rows = end - begin;
        piece.a.data = at_element(p.a.data, p.dtype, begin * p.a.row_stride);
        piece.c.data = at_element(p.c.data, p.dtype, begin * p.c.row_stride);
    }
    with_element(p.dtype, [&](auto e) {
        using E = decltype(e);
        if constexpr (Element<E>::reals == 1)
            if (small_product<E>(piece, batch)) return;
        TileProduct<E, Panels<E>>(piece, batch, {0, piece.m, 0, piece.n}).run();
    });
}

#endif

}  // namespace packedtri::cpu::PACKEDTRI_ISA
