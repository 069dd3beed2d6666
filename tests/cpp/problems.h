// Problems and devices for the tests of the choice of a CUDA kernel, and that choice, which needs no GPU.
#pragma once

#include "check.h"
#include "cuda/choose_beside_dense.cpp"
#include "cuda/choose_direct.cpp"
#include "cuda/choose_engine.cpp"
#include "cuda/choose_f64.cpp"
#include "cuda/choose_fragments.cpp"
#include "cuda/choose_mirrored.cpp"
#include "cuda/choose_mv.cpp"
#include "cuda/choose_parts.cpp"
#include "cuda/choose_resident.cpp"
#include "cuda/choose_rounding.cpp"
#include "cuda/choose_shared_images.cpp"
#include "cuda/choose_sharing.cpp"
#include "cuda/choose_small.cpp"
#include "cuda/choose_split.cpp"
#include "cuda/choose_tf32.cpp"
#include "cuda/choose_vectors.cpp"
#include "cuda/config.cpp"
#include "cuda/engine_layout.cpp"
#include "cuda/explain.cpp"
#include "cuda/left_to_dense.cpp"
#include "cuda/remembered.cpp"

using namespace packedtri;
using cuda::Config;
using cuda::Method;
using cuda::TileSize;

// The Hopper chip is one whose float64 is slow, as an H20: on an H100 most small products have kernels that multiply in
// float64 whatever the type (choose_fragments.cpp), before all others.
inline const cuda::Device hopper{132, true}, ampere{108, false, 163}, ada{128, false, 99};
inline const cuda::Device h100 = cuda::describe(132, 9, 227, int64_t{80} << 30);

// Two triangles, whose product is packed.
inline Product lower_product(DType dtype, int64_t n, int64_t batch = 1) {
    Product p{};
    p.dtype = dtype;
    p.m = p.n = p.k = n;
    p.batch = batch;
    alignas(16) static const char a = 0;
    alignas(16) static const char b = 0;
    p.a = {&a, Kind::Lower, n, n, 0, 0, row_start(n)};
    p.b = {&b, Kind::Lower, n, n, 0, 0, row_start(n)};
    return p;
}

// A lower and an upper triangle, whose product is dense.
inline Product dense_product(DType dtype, int64_t n) {
    Product p = lower_product(dtype, n);
    p.b.kind = Kind::Upper;
    p.c = {nullptr, Kind::Dense, n, n * n};
    return p;
}

// A triangle times a dense matrix.
inline Product times_dense(DType dtype, int64_t n, int64_t batch) {
    alignas(16) static const char dense[16] = {};
    Product p = lower_product(dtype, n, batch);
    p.b = {dense, Kind::Dense, n, n, n, 1, n * n};
    p.c = {nullptr, Kind::Dense, n, n * n};
    return p;
}

// A triangle times m columns.
inline Product times_columns(DType dtype, int64_t n, int64_t m) {
    Product p = times_dense(dtype, n, 1);
    p.n = p.b.cols = p.b.row_stride = p.c.row_stride = m;
    return p;
}

// A packed product of dense matrices.
inline Product gram(DType dtype, int64_t n, int64_t batch) {
    Product p = lower_product(dtype, n, batch);
    p.a = times_dense(dtype, n, batch).b;
    p.b = p.a;
    std::swap(p.b.row_stride, p.b.col_stride);
    return p;
}
