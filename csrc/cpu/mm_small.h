// C = A B for small matrices, straight on their rows: packing panels would cost more than the
// arithmetic.
#pragma once

#include <type_traits>

#include "../krange.h"
#include "elements.h"
#include "lines.h"
#include "vectors.h"
#include "workspace.h"

namespace packedtri::cpu::PACKEDTRI_ISA {

// Rows of a matrix, `stride` apart.
template <class T>
struct SmallRows {
    const T* data;
    int64_t stride;
};

// With `triangle`, A is a packed lower triangle that is read as it lies.
template <class E, bool triangle>
class SmallProduct {
    using T = Compute<E>;
    using V = typename Vector<T>::type;
    static constexpr int lanes = Vector<T>::lanes;
    static constexpr int group = 8;

  public:
    // Rows of B may be read to the end of their last vector.
    SmallProduct(const Product& p, SmallRows<T> a, SmallRows<T> b, E* c)
        : p_(p), a_(a), b_(b), c_(c) {}

    // False if a nan appeared. A structural zero of one operand times an infinity of the other makes
    // one that the exact sum does not have.
    bool run() {
        const bool lower = p_.c.kind == Kind::Lower;
        for (int64_t j = 0; j < p_.n; j += lanes)
            for (int64_t i = lower ? j / group * group : 0; i < p_.m; i += group) rows(i, j);
        return !any(unordered_);
    }

  private:
    // Elements j ... j + lanes - 1 of the rows i ... i + group - 1 of C. Rows past the last one
    // repeat it and are not stored.
    void rows(int64_t i, int64_t j) {
        const T* a[group];
        V sums[group] = {};
        for (int r = 0; r < group; ++r) a[r] = row(std::min(i + r, p_.m - 1));
        const int64_t i1 = std::min(i + group, p_.m), j1 = std::min(j + lanes, p_.n);
        const KRange ks = k_range(p_.a.kind, p_.b.kind, i, i1, j, j1, p_.k);
        const int64_t end = triangle ? std::min(i, ks.end) : ks.end;
        const T* b = b_.data + ks.begin * b_.stride + j;
        for (int64_t k = ks.begin; k < end; ++k, b += b_.stride) add<0>(a, k, b, sums);
        if (triangle && ks.length() > 0)
            add_triangle(a, i, b_.data + i * b_.stride + j, ks.end, sums,
                         std::make_integer_sequence<int, group>{});
#pragma GCC unroll 8
        for (int r = 0; r < group; ++r) {
            if (i + r >= i1) break;
            unordered_ |= sums[r] != sums[r];
            store(i + r, j, sums[r]);
        }
    }

    const T* row(int64_t i) const { return a_.data + (triangle ? row_start(i) : i * a_.stride); }

    // The terms of one k for the rows of a group from `first` on; b is the row k of B. All this is
    // inlined and unrolled, or the sums would live in memory.
    template <int first>
    [[gnu::always_inline]] void add(const T* const* a, int64_t k, const T* b, V* sums) const {
        const V bv = load(b);
#pragma GCC unroll 8
        for (int r = first; r < group; ++r) sums[r] += a[r][k] * bv;
    }

    // The terms of k = i ... i + group - 1, each for the packed rows that reach so far.
    template <int... t>
    [[gnu::always_inline]] void add_triangle(const T* const* a, int64_t i, const T* b, int64_t end,
                                             V* sums, std::integer_sequence<int, t...>) const {
        ((i + t < end ? add<t>(a, i + t, b + t * b_.stride, sums) : void()), ...);
    }

    void store(int64_t i, int64_t j, V sums) const {
        const bool lower = p_.c.kind == Kind::Lower;
        E* c = c_ + (lower ? row_start(i) : i * p_.c.row_stride) + j;
        const int64_t count = lower ? i + 1 - j : p_.n - j;
        store_rounded(c, sums, count);
    }

    const Product& p_;
    const SmallRows<T> a_, b_;
    E* const c_;
    decltype(V{} != V{}) unordered_ = {};
};

// The rows of an operand, with zeros or its mirror image past the diagonal: where it lies if a loop
// can read it there, else in the buffer.
template <class E>
inline SmallRows<Compute<E>> small_rows(const Operand& x, int64_t batch, bool whole_vectors,
                                        Compute<E>* buffer) {
    constexpr int lanes = Vector<Compute<E>>::lanes;
    const Lines<E> lines = lines_of<E>(x, batch);
    if constexpr (std::is_same_v<E, Compute<E>>)
        if (lines.are_rows && !lines.triangular && (!whole_vectors || x.cols % lanes == 0))
            return {lines.data, lines.stride};
    // Blocks of lines are not read in the order of memory, which hardware would foresee.
    if (lines.triangular)
        for (int64_t q = 0; q < row_start(x.rows); q += 64 / static_cast<int64_t>(sizeof(E)))
            __builtin_prefetch(lines.data + q);
    const int64_t stride = ceil_div(x.cols, lanes) * lanes;
    if (lines.are_rows) {
        copy_lines(lines, {0, x.rows, 0, x.cols}, buffer, stride);
    } else {
        transpose_lines(lines, {0, x.cols, 0, x.rows}, buffer, stride);
    }
    return {buffer, stride};
}

// The elements of an operand by rows that are padded to whole vectors.
template <class T>
inline int64_t elements_by_rows(const Operand& x) {
    constexpr int lanes = Vector<T>::lanes;
    return x.rows * ceil_div(x.cols, lanes) * lanes;
}

// Where TinyProduct has the rows of B from, as vectors of `cols` elements: from rows,
template <class E>
struct StoredRows {
    SmallRows<E> rows;

    typename Vector<E>::type row(int64_t k, int64_t cols) const {
        return load_first(rows.data + k * rows.stride, cols);
    }
};
// from such that are padded to whole vectors,
template <class E>
struct PaddedRows {
    SmallRows<E> rows;

    typename Vector<E>::type row(int64_t k, int64_t /*cols*/) const {
        return load(rows.data + k * rows.stride);
    }
};
// from those of a packed triangle,
template <class E>
struct TriangleRows {
    const E* data;

    typename Vector<E>::type row(int64_t k, int64_t /*cols*/) const {
        return load_first(data + row_start(k), k + 1);
    }
};
// or from registers that hold all elements of B, whose lines are its columns, or the rows of a symmetric matrix.
template <class E, Kind kind>
class PickedRows {
    using V = typename Vector<E>::type;
    using Places = typename Window<E>::Places;
    using Place = Bits<E>;
    static constexpr int lanes = Vector<E>::lanes;

  public:
    // From 8 rows on the mirror image of a symmetric matrix is copied as quickly.
    static bool can(const Product& p, const Lines<E>& lines) {
        return p.b.kind == kind && (kind != Kind::Symmetric || p.k < 8) &&
               count(p, lines) <= Window<E>::most;
    }
    PickedRows(const Product& p, const Lines<E>& lines)
        : window_(lines.data, count(p, lines)), cols_(p.n),
          starts_(lines.triangular ? numbers() * (numbers() + 1) / 2
                                   : numbers() * static_cast<Place>(lines.stride)) {}

    V row(int64_t k, int64_t /*cols*/) const {
        const auto at = static_cast<Place>(k);
        Places places = starts_ + at;
        if constexpr (kind == Kind::Symmetric)
            places = numbers() > at ? places : numbers() + static_cast<Place>(row_start(k));
        return window_.at(places, kind == Kind::Upper ? k : 0, cols_);
    }

  private:
    static int64_t count(const Product& p, const Lines<E>& lines) {
        return lines.triangular ? row_start(p.k) : (p.n - 1) * lines.stride + p.k;
    }
    static Places numbers() { return numbers(std::make_integer_sequence<int, lanes>{}); }
    template <int... lane>
    static Places numbers(std::integer_sequence<int, lane...>) {
        return Places{lane...};
    }

    const Window<E> window_;
    const int64_t cols_;
    const Places starts_;  // Of each lane's line.
};

// Products for which the rows of B, each no longer than a vector, stay in registers.
template <class E>
class TinyProduct {
    using V = typename Vector<E>::type;
    using Truth = decltype(V{} != V{});
    static constexpr int lanes = Vector<E>::lanes;
    static constexpr std::make_integer_sequence<int, lanes> all = {};

  public:
    // Parts of vectors are slow to read and write without masks; triangles have little else.
    static bool can(const Product& p) {
        return p.k > 0 && p.k <= lanes && p.n <= lanes && (has_masks || has_triangles(p));
    }
    // False if a nan appeared, as above.
    static bool run(const Product& p, int64_t batch) {
        const E* a = lines_of<E>(p.a, batch).data;
        E* c = static_cast<E*>(p.c.data) + batch * p.c.batch_stride;
        const Lines<E> b = lines_of<E>(p.b, batch);
        if (has_triangles(p)) return lower<true>(p, a, TriangleRows<E>{b.data}, c, all);
        if constexpr (has_masks) return with_matrix(p, batch, a, b, c);
        __builtin_unreachable();
    }

  private:
    static bool has_triangles(const Product& p) {
        return p.a.kind == Kind::Lower && p.b.kind == Kind::Lower && p.c.kind == Kind::Lower;
    }

    static bool with_matrix(const Product& p, int64_t batch, const E* a, const Lines<E>& b, E* c) {
        if (p.b.kind == Kind::Lower) return with_rows(p, a, TriangleRows<E>{b.data}, c);
        if (b.are_rows && !b.triangular)
            return with_rows(p, a, StoredRows<E>{{b.data, b.stride}}, c);
        if constexpr (has_windows) {
            if (PickedRows<E, Kind::Dense>::can(p, b)) return with_picked<Kind::Dense>(p, a, b, c);
            if (PickedRows<E, Kind::Upper>::can(p, b)) return with_picked<Kind::Upper>(p, a, b, c);
            if (PickedRows<E, Kind::Symmetric>::can(p, b))
                return with_picked<Kind::Symmetric>(p, a, b, c);
        }
        E* buffer = static_cast<E*>(workspace(elements_by_rows<E>(p.b) * sizeof(E)));
        return with_rows(p, a, PaddedRows<E>{small_rows<E>(p.b, batch, true, buffer)}, c);
    }

    // A function, or its registers would be saved for all.
    template <Kind kind>
    [[gnu::noinline]] static bool with_picked(const Product& p, const E* a, const Lines<E>& b,
                                              E* c) {
        const PickedRows<E, kind> rows(p, b);
        return with_rows<const PickedRows<E, kind>&>(p, a, rows, c);
    }

    template <class Rows>
    static bool with_rows(const Product& p, const E* a, Rows b, E* c) {
        switch (p.a.kind) {
            case Kind::Lower: return lower<false, Rows>(p, a, b, c, all);
            case Kind::Upper: return mirrored<false, Rows>(p, a, b, c, all);
            case Kind::Symmetric: return mirrored<true, Rows>(p, a, b, c, all);
            case Kind::Dense: break;
        }
        return p.a.col_stride == 1 ? dense<true, Rows>(p, a, b, c, all)
                                   : dense<false, Rows>(p, a, b, c, all);
    }

    // A lower triangle, times another or a matrix. This and those below are functions, or all would save registers for each
    // other.
    template <bool packed, class Rows, int... k>
    [[gnu::noinline]] static bool lower(const Product& p, const E* a, Rows b, E* c,
                                        std::integer_sequence<int, k...>) {
        const int64_t n = p.m;
        const V rows_of_b[lanes] = {(k < n ? b.row(k, p.n) : V{})...};
        Truth unordered = {};
        ((k < n ? store<packed>(
                      p, c, k,
                      dot(a + row_start(k), rows_of_b, std::make_integer_sequence<int, k + 1>{}),
                      unordered)
                : void()),
         ...);
        return !any(unordered);
    }
    // In two sums, so that one addition need not wait for the other.
    template <int... k>
    [[gnu::always_inline]] static V dot(const E* a, const V* b, std::integer_sequence<int, k...>) {
        V sums[2] = {};
        ((sums[k % 2] += a[k] * b[k]), ...);
        return sums[0] + sums[1];
    }

    // The transpose of packed rows, times a matrix; if symmetric, together with the rows themselves.
    template <bool symmetric, class Rows, int... i>
    [[gnu::noinline]] static bool mirrored(const Product& p, const E* a, Rows b, E* c,
                                           std::integer_sequence<int, i...>) {
        const int64_t n = p.m;
        const V rows_of_b[lanes] = {(i < n ? b.row(i, p.n) : V{})...};
        V sums[lanes] = {};
        ((i < n ? add_row<symmetric, i>(a + row_start(i), rows_of_b, sums,
                                        std::make_integer_sequence<int, i>{})
                : void()),
         ...);
        Truth unordered = {};
        ((i < n ? store<false>(p, c, i, sums[i], unordered) : void()), ...);
        return !any(unordered);
    }
    template <bool symmetric, int i, int... k>
    [[gnu::always_inline]] static void add_row(const E* a, const V* b, V* sums,
                                               std::integer_sequence<int, k...>) {
        ((sums[k] += a[k] * b[i]), ...);
        sums[i] += a[i] * b[i];
        if constexpr (symmetric) ((sums[i] += a[k] * b[k]), ...);
    }

    // `along`: the elements of its rows lie side by side.
    template <bool along, class Rows, int... k>
    [[gnu::noinline]] static bool dense(const Product& p, const E* a, Rows b, E* c,
                                        std::integer_sequence<int, k...>) {
        const int64_t m = p.m, n = p.k, step = along ? 1 : p.a.col_stride;
        const V rows_of_b[lanes] = {(k < n ? b.row(k, p.n) : V{})...};
        Truth unordered = {};
        for (int64_t i = 0; i < m; ++i, a += p.a.row_stride) {
            V sums[2] = {};
            ((k < n ? void(sums[k % 2] += a[k * step] * rows_of_b[k]) : void()), ...);
            store<false>(p, c, i, sums[0] + sums[1], unordered);
        }
        return !any(unordered);
    }

    // `packed`: the result is known to be.
    template <bool packed>
    [[gnu::always_inline]] static void store(const Product& p, E* c, int64_t i, V sum,
                                             Truth& unordered) {
        unordered |= sum != sum;
        const bool lower = packed || p.c.kind == Kind::Lower;
        store_first(c + (lower ? row_start(i) : i * p.c.row_stride), sum, lower ? i + 1 : p.n);
    }
};

// The product of one pair of matrices of the batch; false if it must be done with more care.
template <class E>
bool small_product(const Product& p, int64_t batch) {
    using T = Compute<E>;
    if constexpr (std::is_same_v<E, T>)
        if (TinyProduct<E>::can(p)) return TinyProduct<E>::run(p, batch);
    E* c = static_cast<E*>(p.c.data) + batch * p.c.batch_stride;
    const int64_t of_b = elements_by_rows<T>(p.b);
    T* buffer = static_cast<T*>(workspace((elements_by_rows<T>(p.a) + of_b) * sizeof(T)));
    const SmallRows<T> b = small_rows<E>(p.b, batch, true, buffer);
    if constexpr (std::is_same_v<E, T>)
        if (p.a.kind == Kind::Lower)
            return SmallProduct<E, true>(p, {lines_of<E>(p.a, batch).data, 0}, b, c).run();
    const SmallRows<T> a = small_rows<E>(p.a, batch, false, buffer + of_b);
    return SmallProduct<E, false>(p, a, b, c).run();
}

// The largest order for which skipping the panels pays; of tiny results also for longer sums. A product that is small has
// one tile: none is cut to less than 24 rows or columns (tile_size).
constexpr int64_t small_order = 64;

// `most`: of rows, columns and terms.
inline bool is_small(const Product& p, int64_t most) {
    const bool tiny =
        p.m <= tiny_order && p.n <= tiny_order && p.k <= tiny_terms && element_size(p.dtype) > 2;
    return is_plain(p) && (tiny || (p.m <= most && p.n <= most && p.k <= most));
}

}  // namespace packedtri::cpu::PACKEDTRI_ISA
