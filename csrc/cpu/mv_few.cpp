// A packed matrix times a few vectors, whose elements lie side by side in a panel: every stored element is read once
// and multiplies a vector register or two, which cost no more than reading it.
#include <algorithm>
#include <cstring>

#include "isa.h"
#include "lines.h"
#include "scale.h"
#include "vectors.h"
#include "workspace.h"

namespace packedtri::cpu::PACKEDTRI_ISA {
namespace {

template <class R>
using RealVector = typename Vector<R>::type;

// Rows that are read together, so that what they add to y is loaded and stored once for all of them.
constexpr int rows_together = 4;
// Columns that they go on at a time, and rows whose sums down the columns are added up before others. Sums of sums
// round less than a long one does, as those of dense torch, which go by blocks too.
constexpr int64_t step = 64, rows_a_block = 256;
// Vector registers that a row of a panel may fill. Sums of a symmetric product take twice as many for each.
constexpr int most_registers(Kind kind) {
    return vector_count >= 32 && vector_bytes >= 32 && kind != Kind::Symmetric ? 2 : 1;
}

// Elements [j, j + step) of a row as numbers: where they lie, or converted in a buffer.
template <class E>
inline const Compute<E>* numbers(const E* row, int64_t j, int64_t count, Compute<E>* buffer) {
    if constexpr (sizeof(E) == sizeof(Compute<E>)) {
        return row + j;
    } else {
        for (int64_t c = 0; c < count; c += Vector<Real<E>>::lanes)
            copy_vector(row + j + c, count - c, buffer + c);
        return buffer;
    }
}

// A register of elements of vectors, which numbers of the matrix multiply. Complex ones are kept turned by i as well,
// or by -i where the numbers are to be conjugated.
template <class R>
struct Factors {
    using V = RealVector<R>;
    V straight;
    Factors() = default;
    Factors(V v, bool) : straight(v) {}
    void add_to(V& sum, R number) const { sum += number * straight; }
};

template <class R>
struct Factors<Complex<R>> {
    using V = RealVector<R>;
    V straight, turned;
    Factors() = default;
    Factors(V v, bool conj) : straight(v), turned(swap_pairs<R>(v) * (conj ? -by_i() : by_i())) {}
    void add_to(V& sum, Complex<R> number) const {
        sum += number.re * straight;
        sum += number.im * turned;
    }

  private:
    // The signs of what changes places: i (re + i im) is -im + i re.
    static V by_i() {
        V signs = {};
        for (int l = 0; l < Vector<R>::lanes; ++l) signs[l] = l % 2 ? 1 : -1;
        return signs;
    }
};

// Rows of M x for `registers` vector registers a row of a panel: T for lower, its transpose for upper, both for
// symmetric, of which each element then is used twice.
template <class E, int registers>
class FewColumns {
    using R = Real<E>;
    using V = RealVector<R>;
    using Number = Compute<E>;
    static constexpr int lanes = Vector<R>::lanes;
    static constexpr int64_t width = registers * lanes;

  public:
    FewColumns(const FewVectors& p, const void* x, void* y)
        : triangle_(static_cast<const E*>(p.triangle)), x_(static_cast<const R*>(x)),
          y_(static_cast<R*>(y)), conj_(p.conj), hermitian_(p.hermitian) {}

    // What rows [begin, end) of the triangle, from column `left` on and before `right`, add to y.
    template <bool along, bool across>
    void add(int64_t begin, int64_t end, int64_t left, int64_t right) const {
        int64_t i = begin;
        for (; i + rows_together <= end; i += rows_together)
            add_rows<rows_together, along, across>(i, left, right);
        for (; i < end; ++i) add_rows<1, along, across>(i, left, right);
    }

  private:
    // `along`: sums of x along rows. `across`: sums down columns, which a symmetric matrix has but for its diagonal.
    template <int count, bool along, bool across>
    void add_rows(int64_t i, int64_t left, int64_t right) const {
        constexpr int64_t ahead = 2048 / static_cast<int64_t>(sizeof(E));
        const E* row[count];
        V totals[count][registers] = {};
        Factors<Number> own[count][registers];
        for (int r = 0; r < count; ++r) {
            row[r] = triangle_ + row_start(i + r);
            for (int v = 0; v < registers; ++v)
                own[r][v] = {load(x_ + (i + r) * width + v * lanes), conj_ != hermitian_};
        }
        const int64_t full = std::min(i, right);
        Number converted[count][sizeof(E) == sizeof(Number) ? 1 : step];
        for (int64_t j = left; j < full; j += step) {
            const int64_t columns = std::min(step, full - j);
            const Number* from[count];
            for (int r = 0; r < count; ++r) {
                for (int64_t line = 0; line < step; line += 64 / static_cast<int64_t>(sizeof(E)))
                    __builtin_prefetch(row[r] + j + ahead + line);
                from[r] = numbers(row[r], j, columns, converted[r]);
            }
            add_columns<count, along, across>(from, j, columns, own, totals);
        }
        // The triangle at the diagonal, as far as there is any.
        for (int r = 0; r < count; ++r)
            for (int64_t j = std::max(i, left); j < std::min(i + r + 1, right); ++j)
                for (int v = 0; v < registers; ++v) {
                    const bool on_diagonal = j == i + r;
                    const Number stored = to_compute(row[r][j]);
                    const Number element =
                        on_diagonal && hermitian_ ? without_imaginary(stored) : stored;
                    if (along) factors(j, v).add_to(totals[r][v], element);
                    if (across && !(along && on_diagonal)) {
                        V sum = load(y_ + j * width + v * lanes);
                        own[r][v].add_to(sum, element);
                        store(y_ + j * width + v * lanes, sum);
                    }
                }
        if constexpr (along)
            for (int r = 0; r < count; ++r)
                for (int v = 0; v < registers; ++v) {
                    R* y = y_ + (i + r) * width + v * lanes;
                    store(y, load(y) + totals[r][v]);
                }
    }

    // The columns from j on of these rows; `of_rows` are the elements of x that belong to the rows. Not inlined, so that
    // its loop has all registers.
    template <int count, bool along, bool across>
    [[gnu::noinline]] void add_columns(const Number* const (&rows)[count], int64_t j,
                                       int64_t columns,
                                       const Factors<Number> (&of_rows)[count][registers],
                                       V (&totals)[count][registers]) const {
        // Copies that y cannot overlap, so that they stay in registers.
        V sums[count][registers] = {};
        Factors<Number> own[count][registers];
        const Number* from[count];
        for (int r = 0; r < count; ++r) {
            from[r] = rows[r];
            for (int v = 0; v < registers; ++v) own[r][v] = of_rows[r][v];
        }
        for (int64_t c = 0; c < columns; ++c) {
            R* y = y_ + (j + c) * width;
            Factors<Number> x[registers];
            V mirrored[registers];
            for (int v = 0; v < registers; ++v) {
                if constexpr (along) x[v] = factors(j + c, v);
                if constexpr (across) mirrored[v] = load(y + v * lanes);
            }
#pragma GCC unroll 4
            for (int r = 0; r < count; ++r) {
                const Number element = from[r][c];
#pragma GCC unroll 2
                for (int v = 0; v < registers; ++v) {
                    if constexpr (along) x[v].add_to(sums[r][v], element);
                    if constexpr (across) own[r][v].add_to(mirrored[v], element);
                }
            }
            if constexpr (across)
                for (int v = 0; v < registers; ++v) store(y + v * lanes, mirrored[v]);
        }
        if constexpr (along)
            for (int r = 0; r < count; ++r)
                for (int v = 0; v < registers; ++v) totals[r][v] += sums[r][v];
    }

    // Elements j of the vectors, which those of rows multiply.
    Factors<Number> factors(int64_t j, int v) const {
        return {load(x_ + j * width + v * lanes), conj_};
    }

    static void store(R* y, V sum) { std::memcpy(static_cast<void*>(y), &sum, sizeof sum); }

    const E* triangle_;
    const R* x_;
    R* y_;
    // Sums along rows take conjugates where conj_ is set, those down columns where it differs from hermitian_.
    bool conj_, hermitian_;
};

// Vectors of which a register has one element each.
template <class E>
constexpr int64_t in_register = Vector<Real<E>>::lanes / Element<E>::reals;

template <class E>
int64_t width_of(Kind kind, int64_t count) {
    return std::min<int64_t>(ceil_div(count, in_register<E>), most_registers(kind)) *
           in_register<E>;
}

// Calls add(panel, i, i1) for blocks of rows [i, i1) of [begin, end), with a panel of zeros, whose rows [left, right)
// are then added to those of y.
template <class R, class Add>
void in_blocks(int64_t begin, int64_t end, int64_t left, int64_t right, int64_t width, R* y,
               const Add& add) {
    R* panel = static_cast<R*>(workspace(static_cast<size_t>(right * width) * sizeof(R)));
    for (int64_t i = begin; i < end; i += rows_a_block) {
        const int64_t i1 = std::min(i + rows_a_block, end), last = std::min(i1, right) * width;
        std::fill(panel + left * width, panel + last, R{});
        add(panel, i, i1);
        for (int64_t e = left * width; e < last; ++e) y[e] += panel[e];
    }
}

template <class E, int registers>
void few_part_as(const FewVectors& p, const void* x, int64_t begin, int64_t end, void* panel) {
    using Columns = FewColumns<E, registers>;
    using R = Real<E>;
    constexpr int64_t width = registers * Vector<R>::lanes;
    auto* y = static_cast<R*>(panel);
    if (p.kind == Kind::Lower) {
        Columns(p, x, y).template add<true, false>(begin, end, 0, end);
    } else if (p.kind == Kind::Upper) {
        in_blocks(begin, p.n, begin, end, width, y, [&](R* sums, int64_t i, int64_t i1) {
            Columns(p, x, sums).template add<false, true>(i, i1, begin, end);
        });
    } else if constexpr (registers <= most_registers(Kind::Symmetric)) {
        in_blocks(begin, end, 0, end, width, y, [&](R* sums, int64_t i, int64_t i1) {
            Columns(p, x, sums).template add<true, true>(i, i1, 0, end);
        });
    }
}

}  // namespace

int64_t few_width(DType dtype, Kind kind, int64_t count) {
    int64_t width = 0;
    with_element(dtype, [&](auto e) { width = width_of<decltype(e)>(kind, count); });
    return width;
}

void few_load(const FewVectors& p, void* panel) {
    with_element(p.dtype, [&](auto e) {
        using E = decltype(e);
        const int64_t width = width_of<E>(p.kind, p.count);
        auto* to = static_cast<Compute<E>*>(panel);
        const E* from = static_cast<const E*>(p.x);
        for (int64_t j = 0; j < p.n; ++j, to += width, from += p.x_next) {
            for (int64_t v = 0; v < p.count; ++v) to[v] = to_compute(from[v * p.x_vector]);
            std::fill(to + p.count, to + width, Compute<E>{});
        }
    });
}

void few_part(const FewVectors& p, const void* x, int64_t begin, int64_t end, void* y) {
    with_element(p.dtype, [&](auto e) {
        using E = decltype(e);
        if (width_of<E>(p.kind, p.count) == in_register<E>) few_part_as<E, 1>(p, x, begin, end, y);
        else few_part_as<E, most_registers(Kind::Lower)>(p, x, begin, end, y);
    });
}

void few_sum(const FewVectors& p, const void* parts, int64_t count, int64_t begin, int64_t end) {
    with_element(p.dtype, [&](auto e) {
        using E = decltype(e);
        const int64_t width = width_of<E>(p.kind, p.count);
        const auto* part = static_cast<const Compute<E>*>(parts);
        for (int64_t i = begin; i < end; ++i)
            for (int64_t v = 0; v < p.count; ++v) {
                Compute<E> sum = part[i * width + v];
                for (int64_t s = 1; s < count; ++s) sum += part[(s * p.n + i) * width + v];
                from_compute(sum, static_cast<E*>(p.y)[i * p.y_next + v * p.y_vector]);
            }
    });
}

}  // namespace packedtri::cpu::PACKEDTRI_ISA
