// A square block of a triangle on its way between dense and packed storage.
#pragma once

#include "lines.h"
#include "transpose.h"

namespace packedtri::cpu::PACKEDTRI_ISA {

template <class E>
struct View {
    E* data;
    int64_t row_stride, col_stride;

    E& at(int64_t i, int64_t j) const { return data[i * row_stride + j * col_stride]; }
    View transposed() const { return {data, col_stride, row_stride}; }
};

// A vector full of elements: load and store the first `count` of them, as in vectors.h. Most are
// whole, and a masked store is slower and keeps its data from an early load.
template <class E>
using Elements = typename Vector<Bits<E>>::type;

template <class E>
inline Elements<E> load_elements(const E* src, int64_t count) {
    constexpr int parts = sizeof(E) / sizeof(Bits<E>);
    const auto* bits = reinterpret_cast<const Bits<E>*>(src);
    return count >= block_order<E> ? load(bits) : load_first(bits, count * parts);
}

template <class E>
inline void store_elements(E* dst, Elements<E> v, int64_t count) {
    constexpr int parts = sizeof(E) / sizeof(Bits<E>);
    if (count >= block_order<E>) {
        std::memcpy(dst, &v, sizeof v);
    } else {
        store_first(reinterpret_cast<Bits<E>*>(dst), v, count * parts);
    }
}

// A row is one vector. Squares that the end of the matrix cuts short have fewer rows or columns that
// count, and zeros in the others. What is called for every square is flattened, since compilers else
// call its parts one by one: half as long again for small matrices.
template <class E>
struct Square {
    static constexpr int order = block_order<E>;
    alignas(64) E x[order][order];

    // Elements (i, j) ... (i + rows - 1, j + cols - 1) of the view.
    [[gnu::flatten]] void read(const View<E>& d, int64_t i, int64_t j, int64_t rows, int64_t cols) {
        clear_unless_full(rows, cols);
        if (d.col_stride == 1) {
            for (int r = 0; r < rows; ++r) set_row(r, load_elements(&d.at(i + r, j), cols));
        } else if (d.row_stride != 1) {
            for (int r = 0; r < rows; ++r)
                for (int c = 0; c < cols; ++c) x[r][c] = d.at(i + r, j + c);
        } else if (rows == order && cols == order) {
            transpose_block(&d.at(i, j), d.col_stride, x[0], order);
        } else {
            Square mirrored;
            mirrored.read(d.transposed(), j, i, cols, rows);
            transpose_block(mirrored.x[0], order, x[0], order);
        }
    }

    [[gnu::flatten]] void write(const View<E>& d, int64_t i, int64_t j, int64_t rows,
                                int64_t cols) const {
        if (d.col_stride == 1) {
            for (int r = 0; r < rows; ++r) store_elements(&d.at(i + r, j), row(r), cols);
        } else if (d.row_stride != 1) {
            for (int r = 0; r < rows; ++r)
                for (int c = 0; c < cols; ++c) d.at(i + r, j + c) = x[r][c];
        } else if (rows == order && cols == order) {
            transpose_block(x[0], order, &d.at(i, j), d.col_stride);
        } else {
            Square mirrored;
            transpose_block(x[0], order, mirrored.x[0], order);
            mirrored.write(d.transposed(), j, i, cols, rows);
        }
    }

    // Those from (i, j) on, i >= j, of a packed triangle of order n; where i = j, the lower half of them.
    [[gnu::flatten]] void read_stored(const E* packed, int64_t n, int64_t i, int64_t j) {
        const int64_t rows = std::min<int64_t>(order, n - i);
        clear_unless_full(rows, order);
        const E* row = packed + offset(i, j);
        for (int r = 0; r < rows; ++r, row += i + r) set_row(r, load_elements(row, i + r + 1 - j));
    }

    [[gnu::flatten]] void write_stored(E* packed, int64_t n, int64_t i, int64_t j) const {
        const int64_t rows = std::min<int64_t>(order, n - i);
        E* to = packed + offset(i, j);
        for (int r = 0; r < rows; ++r, to += i + r) store_elements(to, row(r), i + r + 1 - j);
    }

    void transpose() {
        Square y;
        transpose_block(x[0], order, y.x[0], order);
        *this = y;
    }

    void clear_unless_full(int64_t rows, int64_t cols) {
        if (rows < order || cols < order) std::memset(static_cast<void*>(x), 0, sizeof x);
    }

    Elements<E> row(int r) const { return load_elements(x[r], order); }
    void set_row(int r, Elements<E> v) { store_elements(x[r], v, order); }

    // x + y, but x on the diagonal of the matrix.
    void add(const Square& y, int64_t i, int64_t j) {
        E diagonal[order];
        for (int r = 0; r < order; ++r) diagonal[r] = x[r][r];
        for (int r = 0; r < order; ++r) add_row(y.x[r], x[r]);
        if (i == j)
            for (int r = 0; r < order; ++r) x[r][r] = diagonal[r];
    }

    static void add_row(const E* __restrict from, E* __restrict to) {
        for (int c = 0; c < order; ++c)
            from_compute(to_compute(to[c]) + to_compute(from[c]), to[c]);
    }

    void conjugate() {
        if constexpr (Element<E>::reals == 2)
            for (int r = 0; r < order; ++r) set_row(r, row(r) ^ imaginary_signs(E{}));
    }

    // Makes a symmetric block on the diagonal Hermitian.
    void make_hermitian() {
        if constexpr (Element<E>::reals == 2)
            for (int r = 0; r < order; ++r) {
                x[r][r].im = 0;
                for (int c = r + 1; c < order; ++c) x[r][c].im *= -1;
            }
    }

    // Fills the half right of the diagonal, which holds zeros, by the half left of it.
    void mirror() {
        Square y = *this;
        y.transpose();
        for (int r = 0; r < order; ++r) set_row(r, row(r) | y.row(r));
    }
};

}  // namespace packedtri::cpu::PACKEDTRI_ISA
