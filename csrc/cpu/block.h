// A block of a matrix where it lies: in a packed triangle, or in a dense matrix with contiguous rows.
#pragma once

#include "../index.h"
#include "../problem.h"

namespace packedtri::cpu {

// Row i begins i * stride elements after row 0, and i(i+1)/2 more where staggered, in a triangle.
// A whole triangle has stride 0.
struct Block {
    char* data;
    DType dtype;
    int64_t stride;
    bool staggered;

    // The block from element (i, j) on.
    Block from(int64_t i, int64_t j) const {
        const int64_t elements = i * stride + (staggered ? row_start(i) : 0) + j;
        return {data + elements * element_size(dtype), dtype, stride + (staggered ? i : 0),
                staggered};
    }
};

inline Block triangle(const void* data, DType dtype, int64_t batch, int64_t batch_stride) {
    char* first = static_cast<char*>(const_cast<void*>(data));
    return {first + batch * batch_stride * element_size(dtype), dtype, 0, true};
}

// A block as an operand of rows x cols, which has its rows or, transposed, its columns there.
inline Operand operand(const Block& b, Kind kind, bool transposed, int64_t rows, int64_t cols) {
    const Stagger lines = transposed ? Stagger::Columns : Stagger::Rows;
    return {b.data,
            kind,
            rows,
            cols,
            transposed ? 1 : b.stride,
            transposed ? b.stride : 1,
            0,
            b.staggered ? lines : Stagger::None};
}

// C -= A B; c_kind Lower touches the lower triangle of C only.
inline Product update(const Block& c, Kind c_kind, const Operand& a, const Operand& b,
                      bool conj_b) {
    return {c.dtype, a.rows, b.cols, a.cols, 1, a, b, {c.data, c_kind, c.stride, 0, c.staggered},
            -1,      1,      conj_b};
}

// Where a triangle is cut in two: in the middle, but so that the first part is made of whole small
// triangles.
inline int64_t half(int64_t n, int64_t small) { return ceil_div(n / 2, small) * small; }

}  // namespace packedtri::cpu
