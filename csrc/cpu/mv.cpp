// A packed matrix times a vector, at the speed of memory: every stored element is read once, in the
// order of storage, and structural zeros are never met.
#include <type_traits>

#include "isa.h"
#include "lines.h"
#include "mv_tiny.h"
#include "vectors.h"
#include "workspace.h"

namespace packedtri::cpu::PACKEDTRI_ISA {
namespace {

// Partial sums of a row: four vectors hide the latency of an addition.
constexpr int partial_sums = 4;

template <class E>
using RealVector = typename Vector<Real<E>>::type;

// The sum over p < count of row[p] * x[p].
template <class E>
Compute<E> dot(const E* row, const Compute<E>* x, int64_t count) {
    constexpr int lanes = Vector<Real<E>>::lanes;
    RealVector<E> sums[partial_sums] = {};
    int64_t p = 0;
    for (; p + partial_sums * lanes <= count; p += partial_sums * lanes)
#pragma GCC unroll 4
        for (int s = 0; s < partial_sums; ++s)
            sums[s] += load_row(row + p + s * lanes, lanes) * load(x + p + s * lanes);
    // x past the end of the row may be infinite, so it is masked like the row.
    for (; p < count; p += lanes)
        sums[0] += load_row(row + p, count - p) * load_first(x + p, count - p);
    return sum_of_lanes<Real<E>>((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

template <class R>
Complex<R> dot(const Complex<R>* row, const Complex<R>* x, int64_t count) {
    constexpr int lanes = partial_sums * Vector<R>::lanes / 2;
    Complex<R> sums[lanes] = {};
    int64_t p = 0;
    for (; p + lanes <= count; p += lanes)
        for (int l = 0; l < lanes; ++l) sums[l] += row[p + l] * x[p + l];
    for (int l = 0; p < count; ++p, ++l) sums[l] += row[p] * x[p];
    for (int half = lanes / 2; half > 0; half /= 2)
        for (int l = 0; l < half; ++l) sums[l] += sums[l + half];
    return sums[0];
}

template <bool conj, class E>
Compute<E> element(E x) {
    return conjugate_if(to_compute(x), conj);
}

template <class E>
void store(const MatrixVector& p, int64_t i, Compute<E> value) {
    from_compute(conjugate_if(value, p.conj), static_cast<E*>(p.y)[i * p.y_stride]);
}

// y = T x: one dot product a row. Rows follow each other in memory, so one at a time they are a
// single stream; several at a time would share the loads of x, and are slower from n = 1024 on.
template <class E>
void rows(const MatrixVector& p, const Lines<E>& lines, const Compute<E>* x, int64_t begin,
          int64_t end) {
    for (int64_t i = begin; i < end; ++i) store<E>(p, i, dot(lines.line(i), x, i + 1));
}

// y[j] += the sum over lines l ... l + 3 of x[line] * line[begin + j], or its conjugate.
template <bool conj = false, class E>
void add_lines(const Lines<E>& lines, const Compute<E>* x, int64_t l, int64_t begin, int64_t count,
               Compute<E>* y) {
    const E* r0 = lines.line(l) + begin;
    const E* r1 = lines.line(l + 1) + begin;
    const E* r2 = lines.line(l + 2) + begin;
    const E* r3 = lines.line(l + 3) + begin;
    const Compute<E> x0 = x[l], x1 = x[l + 1], x2 = x[l + 2], x3 = x[l + 3];
    for (int64_t j = 0; j < count; ++j)
        y[j] += (element<conj>(r0[j]) * x0 + element<conj>(r1[j]) * x1) +
                (element<conj>(r2[j]) * x2 + element<conj>(r3[j]) * x3);
}

// y = T' x for a strip of columns that stays in the first cache, while the rows pass by.
template <class E>
void columns(const MatrixVector& p, const Lines<E>& lines, const Compute<E>* x, int64_t begin,
             int64_t end, Compute<E>* y) {
    std::fill_n(y, end - begin, Compute<E>{});
    const auto add_line = [&](int64_t l) {
        const E* row = lines.line(l) + begin;
        const int64_t count = lines.stored(l, begin, end);
        for (int64_t j = 0; j < count; ++j) y[j] += to_compute(row[j]) * x[l];
    };
    int64_t l = std::max(begin, p.first);
    for (; l < end; ++l) add_line(l);
    for (; l + 4 <= p.n; l += 4) add_lines(lines, x, l, begin, end - begin, y);
    for (; l < p.n; ++l) add_line(l);
    for (int64_t j = begin; j < end; ++j) store<E>(p, j, y[j - begin]);
}

// Rows of a symmetric product that are read together, so that what they add to y is loaded and
// stored once for all of them. Eight took a seventh longer at n = 1024, in float32.
constexpr int rows_together = 4;

template <bool hermitian, class T>
T diagonal_element(T x) {
    return hermitian ? without_imaginary(x) : x;
}

// What row i from column `begin` to its diagonal adds to y = S x: to its own element the dot
// product with x and, for the half that mirrors it, itself times x[i] to the elements before. In a
// hermitian matrix that half is conjugated, and the diagonal real.
template <bool hermitian, class E>
void add_row(const Lines<E>& lines, const Compute<E>* x, int64_t i, int64_t begin, Compute<E>* y) {
    const E* row = lines.line(i);
    y[i] += dot(row + begin, x + begin, i - begin) +
            diagonal_element<hermitian>(to_compute(row[i])) * x[i];
    for (int64_t j = begin; j < i; ++j) y[j] += element<hermitian>(row[j]) * x[i];
}

// What rows i ... i + 3 add. Hardware does not foresee so many streams well, hence the prefetches.
template <bool hermitian, class E>
void add_rows(const Lines<E>& lines, const Compute<E>* x, int64_t i, Compute<E>* y) {
    using V = RealVector<E>;
    constexpr int lanes = Vector<Real<E>>::lanes;
    constexpr int64_t ahead = 2048 / static_cast<int64_t>(sizeof(E));
    const E* row[rows_together];
    Compute<E> factor[rows_together];
    for (int r = 0; r < rows_together; ++r) {
        row[r] = lines.line(i + r);
        factor[r] = x[i + r];
    }
    V sums[rows_together] = {};
    int64_t j = 0;
    for (; j + lanes <= i; j += lanes) {
        const V v = load(x + j);
        V mirrored = load(y + j);
#pragma GCC unroll 4
        for (int r = 0; r < rows_together; ++r) {
            __builtin_prefetch(row[r] + j + ahead);
            const V elements = load_row(row[r] + j, lanes);
            sums[r] += elements * v;
            mirrored += elements * factor[r];
        }
        std::memcpy(y + j, &mirrored, sizeof mirrored);
    }
    // The vectors that a diagonal crosses; nothing mirrors the diagonal itself. What lies past the
    // end of a row must not meet an infinite element of x.
    for (const int64_t end = i + rows_together; j < end; j += lanes) {
        V mirrored = {};
        for (int r = 0; r < rows_together; ++r) {
            const int64_t count = i + r - j;
            sums[r] += load_row(row[r] + j, count + 1) * load_first(x + j, count + 1);
            mirrored += keep_first<Real<E>>(load_row(row[r] + j, count) * factor[r], count);
        }
        // One by one, since elements that have just been stored by themselves are slow to load together.
        alignas(64) Compute<E> added[lanes];
        std::memcpy(added, &mirrored, sizeof mirrored);
        for (int64_t e = j; e < std::min(j + lanes, end); ++e) y[e] += added[e - j];
    }
    for (int r = 0; r < rows_together; ++r) y[i + r] += sum_of_lanes<Real<E>>(sums[r]);
}

template <bool hermitian, class R>
void add_rows(const Lines<Complex<R>>& lines, const Complex<R>* x, int64_t i, Complex<R>* y) {
    for (int r = 0; r < rows_together; ++r) y[i + r] += dot(lines.line(i + r), x, i);
    add_lines<hermitian>(lines, x, i, 0, i, y);
    for (int r = 0; r < rows_together; ++r) add_row<hermitian>(lines, x, i + r, i, y);
}

// y = what the rows [begin, end) of a triangle add to S x.
template <bool hermitian, class E>
void mirrored_rows(const MatrixVector& p, const Compute<E>* x, int64_t begin, int64_t end,
                   Compute<E>* y) {
    const Lines<E> lines{static_cast<const E*>(p.triangle), 0, true, true, true};
    std::fill_n(y, p.n, Compute<E>{});
    int64_t i = begin;
    for (; i + rows_together <= end; i += rows_together) add_rows<hermitian>(lines, x, i, y);
    for (; i < end; ++i) add_row<hermitian>(lines, x, i, 0, y);
}

template <class E>
void symmetric_rows(const MatrixVector& p, const Compute<E>* x, int64_t begin, int64_t end,
                    Compute<E>* y) {
    if constexpr (Element<E>::reals == 2)
        if (p.hermitian) return mirrored_rows<true, E>(p, x, begin, end, y);
    mirrored_rows<false, E>(p, x, begin, end, y);
}

// x from element `begin` to `end`, conjugated where the product is: x itself where it can be read as
// it lies, else a copy in the same places of the buffer.
template <class E>
const Compute<E>* elements_of_x(const MatrixVector& p, int64_t begin, int64_t end,
                                Compute<E>* buffer) {
    const E* x = static_cast<const E*>(p.x);
    if constexpr (std::is_same_v<E, Compute<E>>)
        if (p.x_stride == 1 && !p.conj) return x;
    for (int64_t k = begin; k < end; ++k)
        buffer[k] = conjugate_if(to_compute(x[k * p.x_stride]), p.conj);
    return buffer;
}

template <class E>
void symv_part_as(const MatrixVector& p, int64_t begin, int64_t end, Compute<E>* part) {
    auto* buffer = static_cast<Compute<E>*>(workspace(p.n * sizeof(Compute<E>)));
    symmetric_rows<E>(p, elements_of_x<E>(p, 0, end, buffer), begin, end, part);
}

template <class E>
void symv_sum_as(const MatrixVector& p, Compute<E>* parts, int64_t count) {
    for (int64_t s = 1; s < count; ++s) {
        const Compute<E>* part = parts + s * part_stride(p.n);
        for (int64_t i = 0; i < p.n; ++i) parts[i] += part[i];
    }
    for (int64_t i = 0; i < p.n; ++i) store<E>(p, i, parts[i]);
}

template <class E>
void mv_as(const MatrixVector& p, int64_t begin, int64_t end) {
    using T = Compute<E>;
    const Lines<E> lines{static_cast<const E*>(p.triangle), 0, true, true, true};
    T* buffer = static_cast<T*>(workspace((part_stride(p.n) + end - begin) * sizeof(T)));
    T* y = buffer + part_stride(p.n);
    if (p.kind == Kind::Upper) {
        columns(p, lines, elements_of_x<E>(p, begin, p.n, buffer), begin, end, y);
        return;
    }
    const T* x = elements_of_x<E>(p, 0, end, buffer);
    if (p.kind == Kind::Lower) return rows(p, lines, x, begin, end);
    symmetric_rows<E>(p, x, 0, p.n, y);
    symv_sum_as<E>(p, y, 1);
}

}  // namespace

void mv(const MatrixVector& p, int64_t begin, int64_t end) {
    with_element(p.dtype, [&](auto e) { mv_as<decltype(e)>(p, begin, end); });
}

void mv_each(const MatrixVectors& p) {
    with_element(p.first.dtype, [&](auto e) {
        using E = decltype(e);
        MatrixVector one = p.first;
        for (int64_t m = 0; m < p.count; ++m) {
            one.triangle = static_cast<const E*>(p.first.triangle) + m * p.triangle_step;
            one.x = static_cast<const E*>(p.first.x) + m * p.x_step;
            one.y = static_cast<E*>(p.first.y) + m * p.y_step;
            if constexpr (Element<E>::reals == 1)
                if (TinyMatrixVector<E>::can(one)) {
                    TinyMatrixVector<E>::run(one);
                    continue;
                }
            mv_as<E>(one, 0, one.n);
        }
    });
}

void symv_part(const MatrixVector& p, int64_t begin, int64_t end, void* part) {
    with_element(p.dtype, [&](auto e) {
        using E = decltype(e);
        symv_part_as<E>(p, begin, end, static_cast<Compute<E>*>(part));
    });
}

void symv_sum(const MatrixVector& p, void* parts, int64_t count) {
    with_element(p.dtype, [&](auto e) {
        using E = decltype(e);
        symv_sum_as<E>(p, static_cast<Compute<E>*>(parts), count);
    });
}

}  // namespace packedtri::cpu::PACKEDTRI_ISA
