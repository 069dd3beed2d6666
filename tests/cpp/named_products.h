// Products by the names that benchmarks have for them.
#pragma once

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

inline Product named_product(const std::string& op, DType dtype, int64_t n, int64_t m) {
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
    if (op == "dense@L") std::swap(p.a, p.b);
    return p;
}
