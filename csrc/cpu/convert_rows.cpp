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

// A block of the triangle on its way, rows contiguous.
template <class E>
struct Block {
    static constexpr int order = block_order<E>;
    alignas(64) E x[order][order];

    // Elements (i, j) ... (i + rows - 1, j + order - 1) of the view.
    void read(const View<E>& d, int64_t i, int64_t j, int rows) {
        if (rows == order && d.row_stride == 1)
            return transpose_block(&d.at(i, j), d.col_stride, x[0], order);
        for (int r = 0; r < rows; ++r)
            for (int c = 0; c < order; ++c) x[r][c] = d.at(i + r, j + c);
    }

    void write(const View<E>& d, int64_t i, int64_t j) const {
        if (d.row_stride == 1) return transpose_block(x[0], order, &d.at(i, j), d.col_stride);
        for (int r = 0; r < order; ++r)
            for (int c = 0; c < order; ++c) d.at(i + r, j + c) = x[r][c];
    }

    void add(const Block& y, int rows) {
        for (int r = 0; r < rows; ++r)
            for (int c = 0; c < order; ++c)
                from_compute(to_compute(x[r][c]) + to_compute(y.x[r][c]), x[r][c]);
    }
};

// Calls whole(i, j, rows) for the blocks of rows [begin, end) that lie left of the diagonal, at
// most `order` rows high, and at_diagonal(i, j) for each element in what is left. Blocks follow
// each other in squares that fit the first cache; begin is a multiple of 32.
template <int order, class Whole, class AtDiagonal>
void for_each_block(int64_t begin, int64_t end, const Whole& whole, const AtDiagonal& at_diagonal) {
    constexpr int64_t square = 64;
    for (int64_t i0 = begin; i0 < end; i0 += square) {
        const int64_t i1 = std::min(i0 + square, end);
        for (int64_t j0 = 0; j0 < i1; j0 += square)
            for (int64_t i = i0; i < i1; i += order)
                for (int64_t j = j0; j + order <= std::min(i, j0 + square); j += order)
                    whole(i, j, static_cast<int>(std::min<int64_t>(order, i1 - i)));
        for (int64_t i = i0; i < i1; ++i) {
            for (int64_t j = i / order * order; j <= i; ++j) at_diagonal(i, j);
        }
    }
}

template <class E>
void pack_blocks(const View<E>& d, bool symmetric, E* packed, int64_t begin, int64_t end) {
    constexpr int order = Block<E>::order;
    for_each_block<order>(
        begin, end,
        [&](int64_t i, int64_t j, int rows) {
            Block<E> block, mirrored;
            block.read(d, i, j, rows);
            if (symmetric) {
                mirrored.read(d.transposed(), i, j, rows);
                block.add(mirrored, rows);
            }
            for (int r = 0; r < rows; ++r)
                std::memcpy(packed + offset(i + r, j), block.x[r], sizeof block.x[r]);
        },
        [&](int64_t i, int64_t j) {
            E& v = packed[offset(i, j)] = d.at(i, j);
            if (symmetric && i != j) from_compute(to_compute(v) + to_compute(d.at(j, i)), v);
        });
}

template <class E>
void unpack_blocks(const View<E>& d, const E* packed, int64_t begin, int64_t end) {
    constexpr int order = Block<E>::order;
    for_each_block<order>(
        begin, end,
        [&](int64_t i, int64_t j, int rows) {
            if (rows < order) {
                for (int r = 0; r < rows; ++r)
                    for (int c = 0; c < order; ++c)
                        d.at(i + r, j + c) = packed[offset(i + r, j + c)];
                return;
            }
            Block<E> block;
            for (int r = 0; r < order; ++r)
                std::memcpy(block.x[r], packed + offset(i + r, j), sizeof block.x[r]);
            block.write(d, i, j);
        },
        [&](int64_t i, int64_t j) { d.at(i, j) = packed[offset(i, j)]; });
}

// Zeros right of the diagonal: in the columns [begin, end) of the view if those are contiguous,
// else in its rows [begin, end).
template <class E>
void clear_other_half(const View<E>& d, int64_t n, int64_t begin, int64_t end) {
    for (int64_t l = begin; l < end; ++l) {
        if (d.row_stride == 1) {
            std::fill_n(&d.at(0, l), l, E{});
        } else if (d.col_stride == 1) {
            std::fill_n(&d.at(l, 0) + l + 1, n - l - 1, E{});
        } else {
            for (int64_t j = l + 1; j < n; ++j) d.at(l, j) = E{};
        }
    }
}

template <class E>
View<E> view(const Conversion& c, int64_t batch) {
    const View<E> d{static_cast<E*>(c.dense) + batch * c.dense_batch_stride, c.row_stride,
                    c.col_stride};
    // A symmetric matrix is its own transpose, so its view may take contiguous rows.
    const bool flip = c.kind == Kind::Upper || (c.kind == Kind::Symmetric && c.col_stride != 1);
    return flip ? d.transposed() : d;
}

template <class E>
void pack_as(const Conversion& c, int64_t batch, int64_t begin, int64_t end) {
    E* packed = static_cast<E*>(c.packed) + batch * c.packed_batch_stride;
    const View<E> d = view<E>(c, batch);
    const bool symmetric = c.kind == Kind::Symmetric;
    if (symmetric || d.col_stride != 1) return pack_blocks(d, symmetric, packed, begin, end);
    for (int64_t i = begin; i < end; ++i) std::copy_n(&d.at(i, 0), i + 1, packed + row_start(i));
}

template <class E>
void unpack_as(const Conversion& c, int64_t batch, int64_t begin, int64_t end) {
    const E* packed = static_cast<const E*>(c.packed) + batch * c.packed_batch_stride;
    const View<E> d = view<E>(c, batch);
    if (d.col_stride == 1) {
        for (int64_t i = begin; i < end; ++i)
            std::copy_n(packed + row_start(i), i + 1, &d.at(i, 0));
    } else {
        unpack_blocks(d, packed, begin, end);
    }
    if (c.kind == Kind::Symmetric) {
        unpack_blocks(d.transposed(), packed, begin, end);
    } else {
        clear_other_half(d, c.n, begin, end);
    }
}

}  // namespace

void pack(const Conversion& c, int64_t batch, int64_t begin, int64_t end) {
    with_element(c.dtype, [&](auto e) { pack_as<decltype(e)>(c, batch, begin, end); });
}

void unpack(const Conversion& c, int64_t batch, int64_t begin, int64_t end) {
    with_element(c.dtype, [&](auto e) { unpack_as<decltype(e)>(c, batch, begin, end); });
}

}  // namespace packedtri::cpu::PACKEDTRI_ISA
