#include "kernels.h"
#include "launch.h"
#include "mv.h"
#include "products.h"

namespace packedtri::cuda {
namespace {

// C = alpha (L + U) B + beta C: the stored half of a symmetric A as it is, and its strict half
// transposed. Likewise for B; two symmetric operands make four products.
void mm_symmetric(Product p, Operand Product::* symmetric, cudaStream_t stream) {
    (p.*symmetric).kind = Kind::Lower;
    mm(p, stream);
    (p.*symmetric).kind = Kind::Upper;
    (p.*symmetric).strict = true;
    p.beta = 1;
    mm(p, stream);
}

}  // namespace

void mm(const Product& p, cudaStream_t stream) {
    if (is_mv(p)) return mv(p, stream);
    if (p.a.kind == Kind::Symmetric) return mm_symmetric(p, &Product::a, stream);
    if (p.b.kind == Kind::Symmetric) return mm_symmetric(p, &Product::b, stream);
    const Config config = choose(p, current_device());
    switch (p.dtype) {
        case DType::f16: return product_f16(p, config, stream);
        case DType::bf16: return product_bf16(p, config, stream);
        case DType::f32: return product_f32(p, config, stream);
        case DType::f64: return product_f64(p, config, stream);
        case DType::c64: return product_c64(p, config, stream);
        case DType::c128: return product_c128(p, config, stream);
    }
}

}  // namespace packedtri::cuda
