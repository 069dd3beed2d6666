// Blocks of packed triangles and of dense matrices, as solves and factorizations cut them.
#pragma once

#include <algorithm>

#include "../index.h"
#include "../problem.h"

namespace packedtri::cuda {

// Triangles up to this order are solved and factored in shared memory, by kernels of their own
// (leaf.h); larger ones are cut in two, and products do the work between the halves.
constexpr int64_t LEAF = 64;

// Where a range is cut: near its middle, so that the products are as large as can be.
constexpr int64_t first_half(int64_t length) { return ceil_div(ceil_div(length, LEAF), 2) * LEAF; }

// Indices [begin, end) of rows or columns.
struct Span {
    int64_t begin, end;
    constexpr int64_t length() const { return end - begin; }
};

// A matrix whose blocks are operands and results of products: the packed triangle at `data`, or a
// dense matrix by rows.
struct Blocked {
    const void* data;
    DType dtype;
    bool packed;
    int64_t row_stride, batch_stride;

    // The block as it lies in memory; one of a packed triangle is on its diagonal, or holds stored
    // elements only.
    Operand operand(Span rows, Span cols) const {
        Operand x{};
        x.data = packed ? data : element(rows.begin, cols.begin);
        x.kind = packed ? Kind::Lower : Kind::Dense;
        x.rows = rows.length();
        x.cols = cols.length();
        x.row_stride = row_stride;
        x.col_stride = 1;
        x.batch_stride = batch_stride;
        if (packed) {
            x.row0 = rows.begin;
            x.col0 = cols.begin;
        }
        return x;
    }

    Result result(Span rows, Span cols) const {
        const Operand x = operand(rows, cols);
        return {const_cast<void*>(x.data), x.kind, x.row_stride, x.batch_stride, x.row0, x.col0};
    }

  private:
    const void* element(int64_t i, int64_t j) const {
        return static_cast<const char*>(data) + (i * row_stride + j) * element_size(dtype);
    }
};

// The transpose of a packed block.
inline Operand transposed(Operand x) {
    x.kind = Kind::Upper;
    std::swap(x.rows, x.cols);
    return x;
}

// C -= A B
inline Product subtraction(DType dtype, int64_t batch, const Operand& a, const Operand& b,
                           const Result& c) {
    return {dtype, a.rows, b.cols, a.cols, batch, a, b, c, -1, 1};
}

}  // namespace packedtri::cuda
