#include "kernels.h"
#include "launch.h"
#include "mv.h"
#include "products.h"
#include "small.h"

namespace packedtri::cuda {
namespace {

void small(const Product& p, int side, cudaStream_t stream) {
    switch (p.dtype) {
        case DType::f16: return small_f16(p, side, stream);
        case DType::bf16: return small_bf16(p, side, stream);
        case DType::f32: return small_f32(p, side, stream);
        case DType::f64: return small_f64(p, side, stream);
        case DType::c64: return small_c64(p, side, stream);
        case DType::c128: return small_c128(p, side, stream);
    }
}

}  // namespace

void mm(const Product& p, cudaStream_t stream) {
    if (is_mv(p)) return mv(p, stream);
    if (const int side = small_side(p, current_device())) return small(p, side, stream);
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
