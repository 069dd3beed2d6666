#include "kernels.h"
#include "launch.h"
#include "mv.h"
#include "products.h"

namespace packedtri::cuda {

void mm(const Product& p, cudaStream_t stream) {
    if (is_mv(p)) return mv(p, stream);
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
