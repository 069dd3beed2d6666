// Operands of a tile as its micro-kernel reads them: panels, and the product of two.
#pragma once

#include "../krange.h"
#include "lines.h"
#include "microkernel.h"

namespace packedtri::cpu::PACKEDTRI_ISA {

// Panels of numbers as they are computed with.
template <class E>
class Panels {
    using M = Micro<E>;

  public:
    using Item = Compute<E>;
    static constexpr int rows = M::rows, cols = M::cols, depth = M::depth;
    static constexpr int a_panel = M::a_panel, b_panel = M::b_panel, sums = M::sums,
                         sum_cols = M::sum_cols;
    // Sums begin at a multiple of `unit` steps, and a panel is zero up to one.
    static constexpr int unit = 1;
    // Whether a product can be added to the sums of others.
    static constexpr bool adds = false;
    // What a thread has to hold while it multiplies.
    struct Session {};

    Panels(const Product& p, int64_t batch)
        : a_(lines_of<E>(p.a, batch)), b_(lines_of<E>(p.b, batch)), conj_b_(p.conj_b) {}

    // How many steps of B are packed for all of its columns before the next ones: what follows in memory is
    // on its way then, and few pages are touched at once.
    int64_t steps_at_once() const { return b_.are_rows ? 16 : depth; }

    // Rows past i1 are left as they are: their sums are not looked at. Compilers make slower loops of these two
    // where they are inlined.
    [[gnu::noinline]] void pack_a(int64_t i, int64_t i1, KRange ks, Item* panel) const {
        if (a_.are_rows) copy_lines(a_, {i, i1, ks.begin, ks.end}, panel, M::row_stride);
        else copy_lines<M::rows>(a_, {ks.begin, ks.end, i, i1}, panel, M::rows);
    }
    [[gnu::noinline]] void pack_b(int64_t j, int64_t j1, KRange ks, Item* panel) const {
        if (b_.are_rows) copy_lines<M::cols>(b_, {ks.begin, ks.end, j, j1}, panel, M::cols);
        else transpose_lines(b_, {j, j1, ks.begin, ks.end}, panel, M::cols);
    }

    // From where on a panel has what belongs to step k.
    Item* a_from(Item* panel, int64_t k) const { return panel + k * (a_.are_rows ? 1 : M::rows); }
    Item* b_from(Item* panel, int64_t k) const { return panel + k * M::cols; }

    Item a_at(const Item* a, int64_t row, int64_t k) const {
        return a_.are_rows ? a[row * M::row_stride + k] : a[k * M::rows + row];
    }
    Item b_at(const Item* b, int64_t k, int64_t col) const { return b[k * M::cols + col]; }

    // Always as if it were the first, since its micro-kernels do not add (`adds`).
    void product(const Item* a, const Item* b, int64_t k, int64_t rows, int64_t cols,
                 bool /*first*/, Real<E>* sums) const {
        if (a_.are_rows) block_product<E, true>(a, b, k, rows, cols, sums);
        else block_product<E, false>(a, b, k, rows, cols, sums);
        if constexpr (M::reals == 2) combine(sums, rows, conj_b_);
    }

  private:
    const Lines<E> a_, b_;
    const bool conj_b_;
};

}  // namespace packedtri::cpu::PACKEDTRI_ISA
