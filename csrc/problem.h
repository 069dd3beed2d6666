// Plain descriptions of what a kernel is asked to do. No torch, no CUDA: bindings fill these in
// after all checks, kernels read them.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "index.h"

namespace packedtri {

enum class DType : int32_t { f16, bf16, f32, f64, c64, c128 };

constexpr int64_t element_size(DType t) {
    switch (t) {
        case DType::f16:
        case DType::bf16: return 2;
        case DType::f32: return 4;
        case DType::f64:
        case DType::c64: return 8;
        case DType::c128: return 16;
    }
    return 0;
}

// As many rows, columns and matrices of a batch the CUDA kernels take, which count them in 32 bits and by whole tiles.
constexpr int64_t CUDA_REACH = INT32_MAX - 1024;

constexpr bool has_complex_elements(DType t) { return t == DType::c64 || t == DType::c128; }

// How a matrix is read from memory. Lower, Upper and Symmetric read one packed triangle T: as T, as
// its transpose, or as T with its strict half mirrored. The Python side (packedtri/layout.py) uses
// the same numbers.
enum class Kind : int32_t { Lower = 0, Upper = 1, Symmetric = 2, Dense = 3 };

// Where the lines of an operand begin. None: at equal distances, or, for packed kinds, as in a whole
// triangle. Otherwise the operand is a block of a packed triangle, whose rows lie along the rows or
// along the columns of the operand: line l begins l * stride + l(l+1)/2 elements after line 0, the
// stride being the number of the block's first row in the triangle.
enum class Stagger : int32_t { None, Rows, Columns };

// One matrix operand of a product, rows x cols as the product sees it. Strides are in elements. For
// Dense one of row_stride and col_stride is 1 (or its dimension is at most 1 long); packed kinds
// ignore both. Matrix b of a batch starts at data + b * batch_stride; a broadcast operand has 0.
// A strict Lower or Upper has zeros on its diagonal; the CUDA kernels alone know it. A hermitian
// Symmetric is complex: its mirrored half is conjugated, and the imaginary part of its diagonal is
// taken for zero.
struct Operand {
    const void* data;
    Kind kind;
    int64_t rows, cols;
    int64_t row_stride, col_stride;
    int64_t batch_stride;
    Stagger stagger = Stagger::None;
    bool strict = false;
    bool hermitian = false;
};

// Elements that one matrix of an operand keeps in memory, where it is no block of a triangle.
constexpr int64_t stored_elements(const Operand& x) {
    return x.kind == Kind::Dense ? x.rows * x.cols : row_start(x.rows);
}

// Where the product goes: Dense, rows contiguous (row_stride >= cols), or Lower, which keeps the
// lower triangle of the product as a packed triangle; of a product with more rows than columns also
// the rows below. A staggered one is a block of such a triangle.
struct Result {
    void* data;
    Kind kind;
    int64_t row_stride;
    int64_t batch_stride;
    bool staggered = false;
};

// C = alpha A B + beta C for every matrix of the batch: C is m x n and the sum runs over
// 0 <= p < k. With beta = 0 nothing is read from C. conj_b takes the conjugate of B. The CPU kernels
// know alpha = 1, beta = 0, and the updates of factorizations and solves, alpha = -1, beta = 1, in which alone
// conj_b may be set, for a dense B.
struct Product {
    DType dtype;
    int64_t m, n, k;
    int64_t batch;
    Operand a, b;
    Result c;
    double alpha = 1, beta = 0;
    bool conj_b = false;
    // Elements of float32 may be rounded to TF32, 11 bits, where a kernel is faster for that.
    bool tf32 = false;
};

// Whether a product is C = A B of whole matrices, which every kernel knows. The general kernels know
// blocks of triangles and sums into C as well.
inline bool is_plain(const Product& p) {
    const auto whole = [](const Operand& x) { return x.stagger == Stagger::None && !x.strict; };
    return whole(p.a) && whole(p.b) && !p.c.staggered && p.alpha == 1 && p.beta == 0 && !p.conj_b;
}

// Whether there are structural zeros.
PACKEDTRI_HD constexpr bool is_triangular(Kind kind) {
    return kind == Kind::Lower || kind == Kind::Upper;
}
// The kind of the transpose.
PACKEDTRI_HD constexpr Kind transposed(Kind kind) {
    return kind == Kind::Lower ? Kind::Upper : kind == Kind::Upper ? Kind::Lower : kind;
}
inline bool has_triangle(const Product& p) {
    return is_triangular(p.a.kind) || is_triangular(p.b.kind);
}

// One packed matrix times a batch of `count` dense ones of few columns. They may be turned into the rows of a single
// product with its transpose, which reads the matrix once: (A X)ᵀ is Xᵀ Aᵀ.
struct ColumnBatch {
    DType dtype;
    Kind kind;
    int64_t n, cols, count;
    bool tf32;
};

// How many bytes unpacked copies may take that are left to dense torch. Tests lower it.
inline std::atomic<int64_t> copies_limit{int64_t{4} << 30};

// The bytes of the copies of a product: for each matrix of a batch, and of operands that all of them have in common.
struct Copies {
    int64_t of_each, of_all;
    int64_t of_one() const { return of_each + of_all; }
    // How many matrices have theirs at once. One always has.
    int64_t at_once() const {
        return of_each == 0 ? INT64_MAX : std::max<int64_t>((copies_limit - of_all) / of_each, 1);
    }
};

// Of operands and of a result that are copied.
inline Copies copies_of(const Product& p, bool a, bool b, bool result) {
    Copies copies{result ? p.m * p.n : 0, 0};
    if (a) (p.a.batch_stride == 0 ? copies.of_all : copies.of_each) += p.m * p.k;
    if (b) (p.b.batch_stride == 0 ? copies.of_all : copies.of_each) += p.k * p.n;
    copies.of_each *= element_size(p.dtype);
    copies.of_all *= element_size(p.dtype);
    return copies;
}

inline bool has_symmetric(const Product& p) {
    return p.a.kind == Kind::Symmetric || p.b.kind == Kind::Symmetric;
}

// What rows [first, n) of packed triangles, of which nothing else is there, add to y = T x, with T read as Lower, Upper or
// Symmetric: the other rows are taken for zeros. `triangle` is where row 0 would begin. Vectors have n elements, which lie
// side by side; before the first row y = T x of a Lower T is zero.
struct RowsVector {
    DType dtype;
    Kind kind;
    int64_t first, n, batch;
    const void* triangle;
    int64_t triangle_batch_stride;
    const void* x;
    int64_t x_batch_stride;
    void* y;
    bool hermitian;
};

// Moving a triangle of order n between dense and packed storage. The packed side is contiguous,
// batch_stride apart; the dense side has arbitrary strides.
//   pack:   Lower takes the lower triangle of the dense matrix, Upper the upper one (transposed into
//           the packed order), Symmetric adds the two halves and counts the diagonal once.
//   unpack: Lower and Upper fill the other half with zeros, Symmetric mirrors.
// For each kind, pack is the transpose of unpack as a linear map. A hermitian Symmetric conjugates
// the half that it adds or mirrors, and makes the diagonal real.
struct Conversion {
    DType dtype;
    Kind kind;
    int64_t n, batch;
    void* packed;
    int64_t packed_batch_stride;
    void* dense;
    int64_t row_stride, col_stride, dense_batch_stride;
    bool hermitian = false;
};

// The same of one block of the matrices, which is all that the dense side has, by contiguous rows: rows
// [top, top + rows) and columns [left, left + cols). pack takes zeros for the rest of the matrix, so that it is the
// transpose of unpack here too.
struct BlockConversion {
    Conversion whole;
    int64_t top, left, rows, cols;
};

// The diagonal that lies `below` the main one of packed triangles, and as vectors of n - below elements, which
// lie one after another.
struct Diagonal {
    DType dtype;
    int64_t n, batch, below;
    void* packed;
    int64_t packed_batch_stride;
    void* elements;
};

// Packed triangles with factors: `inside` for what lies `nearest` to `farthest` below the diagonal, `outside` for
// the rest. A factor 0 gives zeros, whatever is there. Where hermitian, imaginary parts on the diagonal are taken
// for zero.
struct BandScale {
    DType dtype;
    int64_t n, batch;
    const void* packed;
    int64_t packed_batch_stride;
    void* scaled;  // Triangles one after another.
    int64_t nearest, farthest;
    double inside, outside;
    bool hermitian;
};

}  // namespace packedtri
