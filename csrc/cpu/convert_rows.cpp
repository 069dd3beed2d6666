// Rows of one packed triangle, to and from dense storage.
//
// Element (i, j) of the triangle belongs to element (i, j) of a dense matrix, seen transposed for
// Upper. Where the rows of that view are contiguous they are copied; where its columns are, square
// blocks are transposed on the way.
#include "isa.h"
#include "square.h"

namespace packedtri::cpu::PACKEDTRI_ISA {
namespace {

// Calls f(i, j, rows, cols) for the blocks of rows [begin, end) left of the diagonal and on it, and
// before those of some rows [i0, i1) begin_rows(i0, i1). Blocks follow each other in squares that
// fit the first cache, down the columns first, because those are contiguous where blocks are
// transposed; begin is a multiple of 32.
template <int order, class B, class F>
void for_each_block(int64_t begin, int64_t end, const B& begin_rows, const F& f) {
    constexpr int64_t square = 64;
    for (int64_t i0 = begin; i0 < end; i0 += square) {
        const int64_t i1 = std::min(i0 + square, end);
        begin_rows(i0, i1);
        for (int64_t j0 = 0; j0 < i1; j0 += square)
            for (int64_t j = j0; j < std::min(j0 + square, i1); j += order)
                for (int64_t i = std::max(i0, j); i < i1; i += order)
                    f(i, j, std::min<int64_t>(order, end - i), std::min<int64_t>(order, end - j));
    }
}

template <class E>
void pack_transposed(const View<E>& d, const Conversion& p, E* packed, int64_t begin, int64_t end) {
    constexpr int order = Square<E>::order;
    const auto pack_block = [&](int64_t i, int64_t j, int64_t rows, int64_t cols) {
        Square<E> block;
        block.read(d, i, j, rows, cols);
        block.write_stored(packed, p.n, i, j);
    };
    for_each_block<order>(begin, end, [](int64_t, int64_t) {}, pack_block);
}

// Not under masks: masked stores to rows that share a cache line are slower than a call.
template <class E>
void pack_rows(const View<E>& d, E* packed, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) std::copy_n(&d.at(i, 0), i + 1, packed + row_start(i));
}

// To read both halves in turns, block by block, takes twice as long where they come from afar, and
// less where they are near. `rows_first` is for the first.
template <bool rows_first, class E>
void pack_symmetric(const View<E>& d, const Conversion& p, E* packed, int64_t begin, int64_t end) {
    constexpr int order = Square<E>::order;
    const auto copy_rows = [&](int64_t i0, int64_t i1) {
        if constexpr (rows_first) pack_rows(d, packed, i0, i1);
    };
    const auto add_halves = [&](int64_t i, int64_t j, int64_t rows, int64_t cols) {
        Square<E> block, mirrored;
        if constexpr (rows_first) block.read_stored(packed, p.n, i, j);
        else block.read(d, i, j, rows, cols);
        mirrored.read(d.transposed(), i, j, rows, cols);
        if (p.hermitian) mirrored.conjugate();
        block.add(mirrored, i, j);
        if (p.hermitian && i == j) block.make_hermitian();
        block.write_stored(packed, p.n, i, j);
    };
    for_each_block<order>(begin, end, copy_rows, add_halves);
}

// Zeros in the first `count` elements of a column.
template <class E>
void clear_column(const View<E>& d, int64_t column, int64_t count) {
    if (d.row_stride == 1) std::fill_n(&d.at(0, column), count, E{});
    else
        for (int64_t i = 0; i < count; ++i) d.at(i, column) = E{};
}

// Rows of an Upper as columns of the matrix, zeros before them. A few columns at a time are written from end to end, so that
// threads write far from each other. Columns are as long as rows that are counted from the other end, and belong to the strip
// of these.
template <class E>
void unpack_transposed(const View<E>& d, const Conversion& p, const E* packed, int64_t begin,
                       int64_t end) {
    constexpr int order = Square<E>::order, ahead = 4 * order;
    const auto column = [&](int64_t row) { return row == 0 ? p.n : aligned(p.n - row); };
    for (int64_t j = column(end); j < column(begin); j += order) {
        const int64_t cols = std::min<int64_t>(order, p.n - j);
        for (int64_t l = j; l < j + cols; ++l) clear_column(d, l, j);
        for (int64_t i = j; i < p.n; i += order) {
            const int64_t next = i + ahead;
            if (next + order <= p.n)
                for (int r = 0; r < order; ++r) __builtin_prefetch(packed + offset(next + r, j));
            Square<E> block;
            block.read_stored(packed, p.n, i, j);
            block.write(d, i, j, std::min<int64_t>(order, p.n - i), cols);
        }
    }
}

// Rows go where they belong as a whole, and then blocks of them to the other half alone: both in
// turns, block by block, take up to two and a half times as long, but less time for small matrices.
template <bool rows_first, class E>
void unpack_symmetric(const View<E>& d, const Conversion& p, const E* packed, int64_t begin,
                      int64_t end) {
    constexpr int order = Square<E>::order;
    const auto copy_rows = [&](int64_t i0, int64_t i1) {
        if constexpr (rows_first)
            for (int64_t i = i0; i < i1; ++i)
                std::copy_n(packed + row_start(i), i + 1, &d.at(i, 0));
    };
    const auto mirror_block = [&](int64_t i, int64_t j, int64_t rows, int64_t cols) {
        Square<E> block;
        block.read_stored(packed, p.n, i, j);
        if (i == j) block.mirror();
        if (p.hermitian && i == j) block.make_hermitian();
        if (!rows_first || i == j) block.write(d, i, j, rows, cols);
        if (p.hermitian && i != j) block.conjugate();
        if (i != j) block.write(d.transposed(), i, j, rows, cols);
    };
    for_each_block<order>(begin, end, copy_rows, mirror_block);
}

// dst[p] = src[p] for p < stored, and zero from there to count.
template <class E>
void copy_row(const E* src, int64_t stored, E* dst, int64_t count) {
    constexpr int order = block_order<E>;
    int64_t p = 0;
    for (; p + order <= stored; p += order)
        store_elements(dst + p, load_elements(src + p, order), order);
    store_elements(dst + p, load_elements(src + p, stored - p), count - p);
    for (p += order; p < count; p += order) store_elements(dst + p, Elements<E>{}, count - p);
}

template <class E>
View<E> view(const Conversion& c, int64_t batch) {
    const View<E> d{static_cast<E*>(c.dense) + batch * c.dense_batch_stride, c.row_stride,
                    c.col_stride};
    // A symmetric matrix is its own transpose, so its view may take contiguous rows.
    const bool symmetric = c.kind == Kind::Symmetric && !c.hermitian;
    const bool flip = c.kind == Kind::Upper || (symmetric && c.col_stride != 1);
    return flip ? d.transposed() : d;
}

// The size of one dense matrix.
template <class E>
int64_t bytes(const Conversion& c) {
    return c.n * c.n * static_cast<int64_t>(sizeof(E));
}

template <class E>
void pack_as(const Conversion& c, int64_t batch, int64_t begin, int64_t end) {
    E* packed = static_cast<E*>(c.packed) + batch * c.packed_batch_stride;
    const View<E> d = view<E>(c, batch);
    if (c.kind == Kind::Symmetric)
        return d.col_stride == 1 && bytes<E>(c) > 1 << 21
                   ? pack_symmetric<true>(d, c, packed, begin, end)
                   : pack_symmetric<false>(d, c, packed, begin, end);
    if (d.col_stride == 1) return pack_rows(d, packed, begin, end);
    pack_transposed(d, c, packed, begin, end);
}

template <class E>
void unpack_as(const Conversion& c, int64_t batch, int64_t begin, int64_t end) {
    const E* packed = static_cast<const E*>(c.packed) + batch * c.packed_batch_stride;
    const View<E> d = view<E>(c, batch);
    if (c.kind == Kind::Symmetric)
        return bytes<E>(c) > 1 << 16 ? unpack_symmetric<true>(d, c, packed, begin, end)
                                     : unpack_symmetric<false>(d, c, packed, begin, end);
    if (d.col_stride == 1) {
        for (int64_t i = begin; i < end; ++i)
            copy_row(packed + row_start(i), i + 1, &d.at(i, 0), c.n);
        return;
    }
    unpack_transposed(d, c, packed, begin, end);
}

}  // namespace

void pack(const Conversion& c, int64_t batch, int64_t begin, int64_t end) {
    with_element(c.dtype, [&](auto e) { pack_as<decltype(e)>(c, batch, begin, end); });
}

void unpack(const Conversion& c, int64_t batch, int64_t begin, int64_t end) {
    with_element(c.dtype, [&](auto e) { unpack_as<decltype(e)>(c, batch, begin, end); });
}

}  // namespace packedtri::cpu::PACKEDTRI_ISA
