// Panels of bfloat16 for instructions that multiply pairs of neighbours along k. Subnormal numbers are zero to them.
#pragma once

#if defined(PACKEDTRI_PAIRS_AMX)
#include "pair_amx.h"
#elif defined(PACKEDTRI_PAIRS_AVX512)
#include "pair_avx512.h"
#endif

// Said by the build and not by what the compiler may use, which flags of the user's can widen: the table of kernels that is
// chosen at run time has to agree.
#if defined(PACKEDTRI_PAIRS_AMX) || defined(PACKEDTRI_PAIRS_AVX512)
#define PACKEDTRI_PAIRS

#include <utility>

#include "../krange.h"
#include "lines.h"

namespace packedtri::cpu::PACKEDTRI_ISA {

class PairPanels {
    using M = PairMicro;
    using Pairs = Vector<uint16_t>::type;
    static constexpr int order = block_order<uint16_t>;
    static_assert(order == M::rows && order == M::cols && order == M::unit);

  public:
    using Item = uint16_t;
    using Session = PairSession;
    static constexpr bool adds = true;
    static constexpr int rows = M::rows, cols = M::cols, depth = M::depth, unit = M::unit;
    static constexpr int a_panel = rows * M::row_stride, b_panel = depth * cols, sums = rows * cols,
                         sum_cols = cols;

    PairPanels(const Product& p, int64_t batch)
        : a_(lines_of<uint16_t>(p.a, batch)), b_(lines_of<uint16_t>(p.b, batch)) {}

    int64_t steps_at_once() const { return b_.are_rows ? unit : depth; }

    void pack_a(int64_t i, int64_t i1, KRange ks, Item* panel) const {
        if (a_.are_rows) return copy_lines(a_, {i, i1, ks.begin, ks.end}, panel, M::row_stride);
        for (int64_t k = ks.begin; k < ks.end; k += order, panel += order)
            transpose_stored(a_, {k, std::min(k + order, ks.end), i, i1}, panel, M::row_stride);
    }

    void pack_b(int64_t j, int64_t j1, KRange ks, Item* panel) const {
        for (int64_t k = ks.begin; k < ks.end; k += order, panel += order * cols) {
            const int64_t k1 = std::min(k + order, ks.end);
            if (!b_.are_rows) {
                for (int half = 0; half < 2; ++half)
                    pair_columns({j + half * 16, j1, k, k1}, panel + half * 32);
            } else if (b_.mirrored) {
                alignas(64) Item block[order * order] = {};
                copy_lines(b_, {k, k1, j, j1}, block, order);
                pair_rows([&](int64_t l) { return load(block + l * order); }, panel);
            } else {
                const auto row = [&](int64_t l) {
                    return k + l < k1 ? load_first(b_.line(k + l) + j, b_.stored(k + l, j, j1))
                                      : Pairs{};
                };
                pair_rows(row, panel);
            }
        }
    }

    Item* a_from(Item* panel, int64_t k) const { return panel + k; }
    Item* b_from(Item* panel, int64_t k) const { return panel + k * cols; }
    float a_at(const Item* a, int64_t row, int64_t k) const {
        return to_compute(BFloat16{a[row * M::row_stride + k]});
    }
    float b_at(const Item* b, int64_t k, int64_t col) const {
        return to_compute(BFloat16{b[(k / 2 * cols + col) * 2 + k % 2]});
    }

    void product(const Item* a, const Item* b, int64_t k, int64_t rows, int64_t cols, bool first,
                 float* sums) const {
        pair_product(a, b, k, rows, cols, first, sums);
    }

  private:
    // From a block of rows, row l of which is row(l): element by element of two in turn.
    template <class Row>
    static void pair_rows(const Row& row, Item* panel) {
        constexpr std::make_integer_sequence<int, order> lanes{};
        for (int l = 0; l < order; l += 2, panel += 2 * order) {
            const Pairs even = row(l), odd = row(l + 1), first = join<0>(even, odd, lanes),
                        second = join<16>(even, odd, lanes);
            std::memcpy(panel, &first, sizeof first);
            std::memcpy(panel + order, &second, sizeof second);
        }
    }
    template <int from, int... lane>
    static Pairs join(Pairs even, Pairs odd, std::integer_sequence<int, lane...>) {
        return __builtin_shufflevector(even, odd, (from + lane / 2 + lane % 2 * order)...);
    }

    // From 16 columns that lie along k.
    void pair_columns(const Rectangle& r, Item* panel) const {
        Vector<uint32_t>::type x[16];
        for (int l = 0; l < 16; ++l) {
            const int64_t line = r.l0 + l;
            const Pairs elements =
                line < r.l1 ? load_first(b_.line(line) + r.p0, b_.stored(line, r.p0, r.p1))
                            : Pairs{};
            std::memcpy(&x[l], &elements, sizeof elements);
        }
        transpose_registers(x);
        for (int pair = 0; pair < 16; ++pair, panel += 2 * order)
            std::memcpy(panel, &x[pair], sizeof x[pair]);
    }

    const Lines<uint16_t> a_, b_;
};

}  // namespace packedtri::cpu::PACKEDTRI_ISA

#endif
