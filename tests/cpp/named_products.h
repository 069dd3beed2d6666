// Products by the names that benchmarks have for them.
#pragma once

#include <iostream>
#include <stdexcept>
#include <string>

#include "problems.h"

inline DType named_dtype(const std::string& name) {
    if (name == "bfloat16") return DType::bf16;
    if (name == "float32") return DType::f32;
    if (name == "float64") return DType::f64;
    if (name == "complex64") return DType::c64;
    if (name == "complex128") return DType::c128;
    throw std::invalid_argument(name);
}

Product batched_product(const std::string& op, DType dtype, int64_t n, int64_t m, int64_t batch);

inline Product named_product(const std::string& op, DType dtype, int64_t n, int64_t m) {
    if (op == "dense@L") return batched_product(op, dtype, n, m, 1);
    if (op == "L@L") return lower_product(dtype, n);
    if (op == "L@L.mT") {
        Product p = lower_product(dtype, n);
        p.b = p.a;
        p.b.kind = Kind::Upper;
        return p;
    }
    if (op == "syrk") return gram(dtype, n, 1);
    Product p = dense_product(dtype, n);
    if (op == "L@U") return p;
    if (op == "U@L") {
        std::swap(p.a.kind, p.b.kind);
        return p;
    }
    p = times_columns(dtype, n, m);
    if (op == "U@dense") p.a.kind = Kind::Upper;
    return p;
}

// A packed product of n x m matrices and their transposes.
inline Product gram_of_columns(DType dtype, int64_t n, int64_t m, int64_t batch) {
    Product p = gram(dtype, n, batch);
    p.k = p.a.cols = p.b.rows = p.a.row_stride = p.b.col_stride = m;
    p.a.batch_stride = p.b.batch_stride = n * m;
    return p;
}

// One of a batch, "S@dense" or "U@S-packed" for example.
inline Product batched_product(const std::string& op, DType dtype, int64_t n, int64_t m,
                               int64_t batch) {
    const auto at = op.find('@'), end = op.find("-packed");
    const bool packed = end != std::string::npos;
    const std::string left = op.substr(0, at), right = op.substr(at + 1, end - at - 1);
    Product p = lower_product(dtype, n, batch);
    const auto set = [&](Operand& x, const std::string& name, int64_t rows, int64_t cols) {
        if (name == "S") x.kind = Kind::Symmetric;
        if (name == "U") x.kind = Kind::Upper;
        if (name != "dense") return;
        x = times_columns(dtype, n, m).b;
        x.rows = rows;
        x.cols = x.row_stride = cols;
        x.batch_stride = rows * cols;
    };
    if (left == "dense") p.m = m;
    if (right == "dense") p.n = m;
    set(p.a, left, p.m, n);
    set(p.b, right, n, p.n);
    if (!packed) p.c = {nullptr, Kind::Dense, p.n, p.m * p.n};
    return p;
}

// Calls f(product) for those that the input names, one a line, as "float32 L@dense 16 100000 1" with the number of matrices.
template <class F>
void for_each_batched_product(F f) {
    std::string dtype, op;
    int64_t n, m, batch;
    while (std::cin >> dtype >> op >> n >> m >> batch)
        f(batched_product(op, named_dtype(dtype), n, m, batch));
}

// The same with the types of results that Python gives them, but for two symmetric matrices, which are not the same here.
inline Product typed_product(const std::string& op, DType dtype, int64_t n, int64_t m,
                             int64_t batch) {
    Product p = op == "syrk"  ? gram_of_columns(dtype, n, m, batch)
                : op == "L@L" ? lower_product(dtype, n, batch)
                              : batched_product(op, dtype, n, m, batch);
    // A triangle and its own transpose.
    if (op == "L@L.mT" || op == "L.mT@L") {
        p = lower_product(dtype, n, batch);
        p.b = p.a;
        (op == "L@L.mT" ? p.b : p.a).kind = Kind::Upper;
    }
    return p;
}

// One that may be rounded to TF32.
inline Product product_in_tf32(const std::string& op, int64_t n, int64_t m, int64_t batch) {
    Product p = typed_product(op, DType::f32, n, m, batch);
    p.tf32 = true;
    return p;
}
