// Panels of bfloat16 for AMX, which multiplies pairs of neighbours along k. Subnormal numbers are zero to it.
#pragma once

#if defined(__AMX_BF16__)

#include <immintrin.h>

#include <utility>

#include "../krange.h"
#include "lines.h"

namespace packedtri::cpu::PACKEDTRI_ISA {

// Shape of a micro-block: four tiles of AMX, each 16 x 16 sums. A row of A lies along k; of B, rows k and k + 1
// lie element by element in turn.
struct PairMicro {
    static constexpr int rows = 32, cols = 32, depth = 256, unit = 32;
    // Not a multiple of a large power of two, so that the rows fall into different cache sets.
    static constexpr int row_stride = depth + 32;
};

// The products read memory that the compiler may not yet have written.
inline void finish_writing() { __asm__ volatile("" ::: "memory"); }

// While a thread has one, all tiles are 16 rows of 64 bytes.
class PairSession {
  public:
    PairSession() {
        struct alignas(64) {
            uint8_t palette = 1, start_row = 0, reserved[14] = {};
            uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
            uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
        } config;
        finish_writing();
        _tile_loadconfig(&config);
    }
    PairSession(const PairSession&) = delete;
    PairSession& operator=(const PairSession&) = delete;
    ~PairSession() { _tile_release(); }
};

// Sums in tiles 0 to 3, A in 4 and 5, B in 6 and 7.
template <int row_tiles, int col_tiles>
inline void pair_product(const uint16_t* a, const uint16_t* b, int64_t k, bool first, float* sums) {
    using M = PairMicro;
    constexpr bool lower = row_tiles > 1, right = col_tiles > 1;
    constexpr int a_stride = M::row_stride * 2, b_stride = M::cols * 4, c_stride = M::cols * 4;
    float* lower_sums = sums + 16 * M::cols;
    finish_writing();
    if (first) {
        _tile_zero(0);
        if (right) _tile_zero(1);
        if (lower) _tile_zero(2);
        if (lower && right) _tile_zero(3);
    } else {
        _tile_loadd(0, sums, c_stride);
        if (right) _tile_loadd(1, sums + 16, c_stride);
        if (lower) _tile_loadd(2, lower_sums, c_stride);
        if (lower && right) _tile_loadd(3, lower_sums + 16, c_stride);
    }
    for (int64_t p = 0; p < k; p += M::unit, a += M::unit, b += M::unit * M::cols) {
        _tile_loadd(6, b, b_stride);
        _tile_loadd(4, a, a_stride);
        _tile_dpbf16ps(0, 4, 6);
        if (right) {
            _tile_loadd(7, b + 32, b_stride);
            _tile_dpbf16ps(1, 4, 7);
        }
        if (lower) {
            _tile_loadd(5, a + 16 * M::row_stride, a_stride);
            _tile_dpbf16ps(2, 5, 6);
        }
        if (lower && right) _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, sums, c_stride);
    if (right) _tile_stored(1, sums + 16, c_stride);
    if (lower) _tile_stored(2, lower_sums, c_stride);
    if (lower && right) _tile_stored(3, lower_sums + 16, c_stride);
    finish_writing();
}

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
        if (rows > 16 && cols > 16) pair_product<2, 2>(a, b, k, first, sums);
        else if (rows > 16) pair_product<2, 1>(a, b, k, first, sums);
        else if (cols > 16) pair_product<1, 2>(a, b, k, first, sums);
        else pair_product<1, 1>(a, b, k, first, sums);
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
