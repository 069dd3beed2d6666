// Rows of one packed triangle, to and from dense storage.
//
// Element (i, j) of the triangle belongs to element (i, j) of a dense matrix, seen transposed for
// Upper. Where the rows of that view are contiguous they are copied; where its columns are, square
// blocks are transposed on the way.
#include "isa.h"
#include "lines.h"
#include "transpose.h"

namespace packedtri::cpu::PACKEDTRI_ISA {
namespace {

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

// A square block of the triangle on its way. A row is one vector. Blocks that the end of the
// matrix cuts short have fewer rows or columns that count, and zeros in the others.
template <class E>
struct Block {
    static constexpr int order = block_order<E>;
    alignas(64) E x[order][order];

    // Elements (i, j) ... (i + rows - 1, j + cols - 1) of the view.
    void read(const View<E>& d, int64_t i, int64_t j, int64_t rows, int64_t cols) {
        clear_unless_full(rows, cols);
        if (d.col_stride == 1) {
            for (int r = 0; r < rows; ++r) set_row(r, load_elements(&d.at(i + r, j), cols));
        } else if (d.row_stride != 1) {
            for (int r = 0; r < rows; ++r)
                for (int c = 0; c < cols; ++c) x[r][c] = d.at(i + r, j + c);
        } else if (rows == order && cols == order) {
            transpose_block(&d.at(i, j), d.col_stride, x[0], order);
        } else {
            Block mirrored;
            mirrored.read(d.transposed(), j, i, cols, rows);
            transpose_block(mirrored.x[0], order, x[0], order);
        }
    }

    void write(const View<E>& d, int64_t i, int64_t j, int64_t rows, int64_t cols) const {
        if (d.col_stride == 1) {
            for (int r = 0; r < rows; ++r) store_elements(&d.at(i + r, j), row(r), cols);
        } else if (d.row_stride != 1) {
            for (int r = 0; r < rows; ++r)
                for (int c = 0; c < cols; ++c) d.at(i + r, j + c) = x[r][c];
        } else if (rows == order && cols == order) {
            transpose_block(x[0], order, &d.at(i, j), d.col_stride);
        } else {
            Block mirrored;
            transpose_block(x[0], order, mirrored.x[0], order);
            mirrored.write(d.transposed(), j, i, cols, rows);
        }
    }

    void clear_unless_full(int64_t rows, int64_t cols) {
        if (rows < order || cols < order) std::memset(static_cast<void*>(x), 0, sizeof x);
    }

    Elements<E> row(int r) const { return load_elements(x[r], order); }
    void set_row(int r, Elements<E> v) { store_elements(x[r], v, order); }

    // x + y, but x on the diagonal of the matrix.
    void add(const Block& y, int64_t i, int64_t j) {
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
        Block y;
        transpose_block(x[0], order, y.x[0], order);
        for (int r = 0; r < order; ++r) set_row(r, row(r) | y.row(r));
    }
};

// Calls f(i, j, rows, cols) for the blocks of rows [begin, end) left of the diagonal and on it.
// Blocks follow each other in squares that fit the first cache, down the columns first, because
// those are contiguous where blocks are transposed; begin is a multiple of 32.
template <int order, class F>
void for_each_block(int64_t begin, int64_t end, const F& f) {
    constexpr int64_t square = 64;
    for (int64_t i0 = begin; i0 < end; i0 += square) {
        const int64_t i1 = std::min(i0 + square, end);
        for (int64_t j0 = 0; j0 < i1; j0 += square)
            for (int64_t j = j0; j < std::min(j0 + square, i1); j += order)
                for (int64_t i = std::max(i0, j); i < i1; i += order)
                    f(i, j, std::min<int64_t>(order, end - i), std::min<int64_t>(order, end - j));
    }
}

template <class E>
void pack_blocks(const View<E>& d, const Conversion& p, E* packed, int64_t begin, int64_t end) {
    constexpr int order = Block<E>::order;
    for_each_block<order>(begin, end, [&](int64_t i, int64_t j, int64_t rows, int64_t cols) {
        Block<E> block, mirrored;
        block.read(d, i, j, rows, cols);
        if (p.kind == Kind::Symmetric) {
            mirrored.read(d.transposed(), i, j, rows, cols);
            if (p.hermitian) mirrored.conjugate();
            block.add(mirrored, i, j);
            if (p.hermitian && i == j) block.make_hermitian();
        }
        E* row = packed + offset(i, j);
        for (int r = 0; r < rows; ++r, row += i + r)
            store_elements(row, block.row(r), i + r + 1 - j);
    });
}

template <class E>
void unpack_blocks(const View<E>& d, const Conversion& p, const E* packed, int64_t begin,
                   int64_t end) {
    constexpr int order = Block<E>::order;
    const bool symmetric = p.kind == Kind::Symmetric;
    for_each_block<order>(begin, end, [&](int64_t i, int64_t j, int64_t rows, int64_t cols) {
        Block<E> block;
        block.clear_unless_full(rows, cols);
        const E* row = packed + offset(i, j);
        for (int r = 0; r < rows; ++r, row += i + r)
            block.set_row(r, load_elements(row, i + r + 1 - j));
        if (symmetric && i == j) block.mirror();
        if (p.hermitian && i == j) block.make_hermitian();
        block.write(d, i, j, rows, cols);
        if (p.hermitian && i != j) block.conjugate();
        if (symmetric && i != j) block.write(d.transposed(), i, j, rows, cols);
    });
}

// Zeros right of the blocks on the diagonal: in the columns [begin, end) of the view if those are
// contiguous, else in its rows [begin, end).
template <class E>
void clear_other_half(const View<E>& d, int64_t n, int64_t begin, int64_t end) {
    constexpr int order = Block<E>::order;
    for (int64_t l = begin; l < end; ++l) {
        if (d.row_stride == 1) {
            std::fill_n(&d.at(0, l), l / order * order, E{});
        } else {
            for (int64_t j = (l / order + 1) * order; j < n; ++j) d.at(l, j) = E{};
        }
    }
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

template <class E>
void pack_as(const Conversion& c, int64_t batch, int64_t begin, int64_t end) {
    E* packed = static_cast<E*>(c.packed) + batch * c.packed_batch_stride;
    const View<E> d = view<E>(c, batch);
    const bool symmetric = c.kind == Kind::Symmetric;
    if (symmetric || d.col_stride != 1) return pack_blocks(d, c, packed, begin, end);
    // Not under masks: masked stores to rows that share a cache line are slower than a call.
    for (int64_t i = begin; i < end; ++i) std::copy_n(&d.at(i, 0), i + 1, packed + row_start(i));
}

template <class E>
void unpack_as(const Conversion& c, int64_t batch, int64_t begin, int64_t end) {
    const E* packed = static_cast<const E*>(c.packed) + batch * c.packed_batch_stride;
    const View<E> d = view<E>(c, batch);
    const bool symmetric = c.kind == Kind::Symmetric;
    if (!symmetric && d.col_stride == 1) {
        for (int64_t i = begin; i < end; ++i)
            copy_row(packed + row_start(i), i + 1, &d.at(i, 0), c.n);
        return;
    }
    unpack_blocks(d, c, packed, begin, end);
    if (!symmetric) clear_other_half(d, c.n, begin, end);
}

}  // namespace

void pack(const Conversion& c, int64_t batch, int64_t begin, int64_t end) {
    with_element(c.dtype, [&](auto e) { pack_as<decltype(e)>(c, batch, begin, end); });
}

void unpack(const Conversion& c, int64_t batch, int64_t begin, int64_t end) {
    with_element(c.dtype, [&](auto e) { unpack_as<decltype(e)>(c, batch, begin, end); });
}

}  // namespace packedtri::cpu::PACKEDTRI_ISA
