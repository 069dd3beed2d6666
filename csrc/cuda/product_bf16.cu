#include "product_16bit.cuh"

namespace packedtri::cuda {

void product_bf16(const Product& p, const Config& config, cudaStream_t stream) {
    Products16Bit<__nv_bfloat16>::run(p, config, stream);
}

}  // namespace packedtri::cuda
