// A packed matrix times vectors, or vectors times it, as the kernels for them see both.
#pragma once

#include "../problem.h"

namespace packedtri::cuda {

// The product as one of the matrix and columns: a row times T is Tᵀ times a column.
struct VectorProduct {
    bool left;  // Whether the packed matrix is the left operand.
    const Operand &packed, &vectors;
    Kind kind;  // Of the matrix that columns are multiplied by.
    // From one element of a vector to the next, and from vector to vector, in the dense operand and in the result.
    int64_t x_step, x_next, y_step, y_next;

    explicit VectorProduct(const Product& p)
        : left(p.a.kind != Kind::Dense), packed(left ? p.a : p.b), vectors(left ? p.b : p.a),
          kind(left ? packed.kind : transposed(packed.kind)),
          x_step(left ? vectors.row_stride : vectors.col_stride),
          x_next(left ? vectors.col_stride : vectors.row_stride), y_step(left ? p.c.row_stride : 1),
          y_next(left ? 1 : p.c.row_stride) {}
};

}  // namespace packedtri::cuda
