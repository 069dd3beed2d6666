// Plain descriptions of solves and factorizations for the kernels, as problem.h has them of
// products. Both work in place: the bindings copy what must be kept. Elements are f32, f64, c64 or
// c128; 16-bit ones are computed in float32 by the caller.
#pragma once

#include "problem.h"

namespace packedtri {

// X becomes the solution Y of T Y = X where `left`, else of Y T = X, for every matrix of the batch.
// T has order n and is stored as a packed triangle: kind Lower reads it as it is, Upper as its
// transpose (without conjugation). With `unit` its diagonal is not read and taken for ones. A zero
// on the diagonal is no error: the solution then has infinities and nans.
//
// x_kind says what X is:
//   Dense: n x m where left, else m x n, rows contiguous and row_stride >= columns apart.
//   Lower: a packed lower triangle of order m = n, which becomes the lower triangle of the
//          solution. For kind Lower that is all of it. For Upper the rest is left out, and is not
//          needed on the way: column j of T' Y = X needs rows >= j only to find those rows. The
//          gradients of typed solves are of this form. row_stride is ignored.
//
// With T Y = 1, x_kind Lower, the solution is the inverse of T.
struct Solve {
    DType dtype;
    Kind kind;
    bool left, unit;
    int64_t n, m, batch;
    const void* triangle;
    int64_t triangle_batch_stride;  // 0 where one triangle serves the whole batch
    Kind x_kind;
    void* x;
    int64_t row_stride;
    int64_t x_batch_stride;
};

// A = L L^H. `packed` holds the lower triangle of the symmetric (complex: Hermitian) A and becomes
// L, with a real positive diagonal. The imaginary part of A's diagonal is not read. info[b] becomes
// 0, or the order of the first leading minor of matrix b that is not positive definite (a nan makes
// one); the elements of that matrix are undefined then, and the others are not concerned.
struct Factor {
    DType dtype;
    int64_t n, batch;
    void* packed;
    int64_t batch_stride;
    int32_t* info;
};

// L becomes the Cholesky factor of L L^H + x x^H, with `downdate` of the difference, for every
// matrix of the batch. x is n x k, contiguous, and is destroyed. info is as in Factor.
struct FactorUpdate {
    DType dtype;
    bool downdate;
    int64_t n, k, batch;
    void* packed;
    int64_t batch_stride;
    void* x;
    int32_t* info;
};

// info[b] becomes the position, counted from 1, of the first zero on the diagonal of packed triangle b,
// or 0.
struct FirstZero {
    DType dtype;
    int64_t n, batch;
    const void* packed;
    int64_t batch_stride;
    int32_t* info;
};

}  // namespace packedtri
