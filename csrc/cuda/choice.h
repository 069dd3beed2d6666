// What the files of the choice of kernels (config.h) have in common.
#pragma once

#include "config.h"

namespace packedtri::cuda {

// Whether a method is forced, so that none is chosen for its speed.
bool any_forced();

// How many operands are triangles.
inline int triangles(const Product& p) { return is_triangular(p.a.kind) + is_triangular(p.b.kind); }

// Whether a product has the kernel for few vectors, and is fastest with it.
bool goes_thin(const Product& p);

// Whether large tiles cover the result of a product with hardly more padding than small ones.
inline bool large_tiles_fit(const Product& p) {
    const auto area = [&](int64_t side) {
        return static_cast<double>(ceil_div(p.m, side) * ceil_div(p.n, side) * side * side);
    };
    return area(128) <= 1.2 * area(64);
}

}  // namespace packedtri::cuda
