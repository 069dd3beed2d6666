#include <atomic>
#include <complex>

#include "../index.h"
#include "../krange.h"
#include "kernels.h"

namespace packedtri::cpu {
namespace {

template <class T>
T load(const Operand& x, int64_t batch, int64_t i, int64_t j) {
    const T* p = static_cast<const T*>(x.data) + batch * x.batch_stride;
    if (x.kind == Kind::Lower) return p[offset(i, j)];
    if (x.kind == Kind::Upper) return p[offset(j, i)];
    return p[i * x.row_stride + j * x.col_stride];
}

template <class T>
void product(const Product& p) {
    for (int64_t b = 0; b < p.batch; ++b)
        for (int64_t i = 0; i < p.m; ++i)
            for (int64_t j = 0; j < (p.c.kind == Kind::Lower ? i + 1 : p.n); ++j) {
                T sum{};
                const KRange r = k_range(p.a.kind, p.b.kind, i, i + 1, j, j + 1, p.k);
                for (int64_t k = r.begin; k < r.end; ++k)
                    sum += load<T>(p.a, b, i, k) * load<T>(p.b, b, k, j);
                T* c = static_cast<T*>(p.c.data) + b * p.c.batch_stride;
                c[p.c.kind == Kind::Lower ? offset(i, j) : i * p.c.row_stride + j] = sum;
            }
}

}  // namespace

void mm(const Product& p, const Threads&) {
    switch (p.dtype) {
        case DType::f32: return product<float>(p);
        case DType::f64: return product<double>(p);
        case DType::c64: return product<std::complex<float>>(p);
        case DType::c128: return product<std::complex<double>>(p);
        default: return;
    }
}

const char* isa() { return "portable"; }

}  // namespace packedtri::cpu
