// Blocks of a matrix, to and from one packed triangle. Squares lie on a grid of the whole matrix, so that the
// diagonal crosses none but by its own, and only what the block has of a square is read or written.
#include "isa.h"
#include "square.h"

namespace packedtri::cpu::PACKEDTRI_ISA {
namespace {

// The part of the square from (i, j) on that a block has: its rows [r0, r1) and columns [c0, c1).
template <class E>
struct Part {
    int64_t r0, r1, c0, c1;
    E* dense;  // Where the block has the first of them.

    Part(const BlockConversion& b, int64_t batch, int64_t i, int64_t j) {
        constexpr int64_t order = Square<E>::order;
        r0 = std::clamp<int64_t>(b.top - i, 0, order);
        r1 = std::clamp<int64_t>(b.top + b.rows - i, r0, order);
        c0 = std::clamp<int64_t>(b.left - j, 0, order);
        c1 = std::clamp<int64_t>(b.left + b.cols - j, c0, order);
        dense = static_cast<E*>(b.whole.dense) + batch * b.whole.dense_batch_stride +
                (i + r0 - b.top) * b.whole.row_stride + (j + c0 - b.left);
    }

    void read(const BlockConversion& b, Square<E>& x) const {
        x.clear_unless_full(r1 - r0, c1 - c0);
        const E* from = dense;
        for (int64_t r = r0; r < r1; ++r, from += b.whole.row_stride)
            std::copy_n(from, c1 - c0, x.x[r] + c0);
    }

    void write(const BlockConversion& b, const Square<E>& x) const {
        E* to = dense;
        for (int64_t r = r0; r < r1; ++r, to += b.whole.row_stride)
            if (c1 - c0 == Square<E>::order) store_elements(to, x.row(static_cast<int>(r)), c1);
            else std::copy_n(x.x[r] + c0, c1 - c0, to);
    }
};

// The square of an Upper or Symmetric matrix from (i, j) on.
template <class E>
void read_matrix(const Conversion& c, const E* packed, int64_t i, int64_t j, Square<E>& x) {
    if (i > j && c.kind == Kind::Upper) {
        std::memset(static_cast<void*>(&x), 0, sizeof x);
        return;
    }
    x.read_stored(packed, c.n, j, i);
    if (i < j || c.kind == Kind::Upper) x.transpose();
    if (i == j && c.kind == Kind::Symmetric) x.mirror();
    if (c.hermitian && i < j) x.conjugate();
    if (c.hermitian && i == j) x.make_hermitian();
}

// Calls f(i, j) for the squares with elements of rows [i0, i1), columns [j0, j1), in larger squares that fit the
// first cache.
template <int order, class F>
void for_each_square(int64_t i0, int64_t i1, int64_t j0, int64_t j1, const F& f) {
    constexpr int64_t side = 64;
    for (int64_t i = i0 / side * side; i < i1; i += side)
        for (int64_t j = j0 / side * side; j < j1; j += side)
            for (int64_t y = std::max(i, i0 / order * order); y < std::min(i + side, i1);
                 y += order)
                for (int64_t x = std::max(j, j0 / order * order); x < std::min(j + side, j1);
                     x += order)
                    f(y, x);
}

// The rows of a block as far as the triangle has them; of a Lower zeros after that.
template <class E>
void copy_stored_rows(const BlockConversion& b, int64_t batch, const E* packed) {
    E* to = static_cast<E*>(b.whole.dense) + batch * b.whole.dense_batch_stride;
    for (int64_t i = b.top; i < b.top + b.rows; ++i, to += b.whole.row_stride) {
        const int64_t stored = std::clamp<int64_t>(i + 1 - b.left, 0, b.cols);
        std::copy_n(packed + offset(i, b.left), stored, to);
        if (b.whole.kind == Kind::Lower) std::fill_n(to + stored, b.cols - stored, E{});
    }
}

template <class E>
void unpack_block_as(const BlockConversion& b, int64_t batch, int64_t begin, int64_t end) {
    const E* packed = static_cast<const E*>(b.whole.packed) + batch * b.whole.packed_batch_stride;
    begin = std::max(begin, b.top);
    end = std::min(end, b.top + b.rows);
    BlockConversion strip = b;
    strip.top = begin;
    strip.rows = end - begin;
    strip.whole.dense = static_cast<E*>(b.whole.dense) + (begin - b.top) * b.whole.row_stride;
    const bool rows_stored = b.whole.kind != Kind::Upper;
    if (rows_stored) copy_stored_rows(strip, batch, packed);
    if (b.whole.kind == Kind::Lower) return;
    for_each_square<Square<E>::order>(begin, end, b.left, b.left + b.cols,
                                      [&](int64_t i, int64_t j) {
                                          if (rows_stored && j < i) return;
                                          Square<E> x;
                                          read_matrix(b.whole, packed, i, j, x);
                                          Part<E>(strip, batch, i, j).write(strip, x);
                                      });
}

template <class E>
void pack_block_as(const BlockConversion& b, int64_t batch, int64_t begin, int64_t end) {
    E* packed = static_cast<E*>(b.whole.packed) + batch * b.whole.packed_batch_stride;
    const Kind kind = b.whole.kind;
    const bool hermitian = b.whole.hermitian;
    for_each_square<Square<E>::order>(begin, end, 0, end, [&](int64_t i, int64_t j) {
        if (j > i) return;
        Square<E> x, mirrored;
        Part<E>(b, batch, i, j).read(b, x);
        if (kind != Kind::Lower) {
            Part<E>(b, batch, j, i).read(b, mirrored);
            mirrored.transpose();
            if (hermitian) mirrored.conjugate();
            if (kind == Kind::Upper) x = mirrored;
            else x.add(mirrored, i, j);
        }
        if (hermitian && i == j) x.make_hermitian();
        x.write_stored(packed, b.whole.n, i, j);
    });
}

}  // namespace

void unpack_block(const BlockConversion& b, int64_t batch, int64_t begin, int64_t end) {
    with_element(b.whole.dtype,
                 [&](auto e) { unpack_block_as<decltype(e)>(b, batch, begin, end); });
}

void pack_block(const BlockConversion& b, int64_t batch, int64_t begin, int64_t end) {
    with_element(b.whole.dtype, [&](auto e) { pack_block_as<decltype(e)>(b, batch, begin, end); });
}

}  // namespace packedtri::cpu::PACKEDTRI_ISA
