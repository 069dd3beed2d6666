#include <complex>

#include "../index.h"
#include "kernels.h"

namespace packedtri::cpu {
namespace {

template <class T>
void pack_as(const Conversion& c) {
    for (int64_t b = 0; b < c.batch; ++b) {
        T* packed = static_cast<T*>(c.packed) + b * c.packed_batch_stride;
        const T* dense = static_cast<const T*>(c.dense) + b * c.dense_batch_stride;
        for (int64_t i = 0; i < c.n; ++i)
            for (int64_t j = 0; j <= i; ++j) {
                const T low = dense[i * c.row_stride + j * c.col_stride];
                const T up = dense[j * c.row_stride + i * c.col_stride];
                T v = c.kind == Kind::Upper ? up : low;
                if (c.kind == Kind::Symmetric && i != j) v = low + up;
                packed[offset(i, j)] = v;
            }
    }
}

template <class T>
void unpack_as(const Conversion& c) {
    for (int64_t b = 0; b < c.batch; ++b) {
        const T* packed = static_cast<const T*>(c.packed) + b * c.packed_batch_stride;
        T* dense = static_cast<T*>(c.dense) + b * c.dense_batch_stride;
        for (int64_t i = 0; i < c.n; ++i)
            for (int64_t j = 0; j <= i; ++j) {
                const T v = packed[offset(i, j)];
                T& low = dense[i * c.row_stride + j * c.col_stride];
                T& up = dense[j * c.row_stride + i * c.col_stride];
                low = c.kind == Kind::Upper ? T{} : v;
                up = c.kind == Kind::Lower ? T{} : v;
                if (i == j) low = v;
            }
    }
}

template <class F>
void for_type(DType t, F f) {
    switch (t) {
        case DType::f32: return f(float{});
        case DType::f64: return f(double{});
        case DType::c64: return f(std::complex<float>{});
        case DType::c128: return f(std::complex<double>{});
        default: return;
    }
}

}  // namespace

void pack(const Conversion& c, const Threads&) {
    for_type(c.dtype, [&](auto t) { pack_as<decltype(t)>(c); });
}

void unpack(const Conversion& c, const Threads&) {
    for_type(c.dtype, [&](auto t) { unpack_as<decltype(t)>(c); });
}

}  // namespace packedtri::cpu
