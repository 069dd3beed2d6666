#include "product_16bit.cuh"

namespace packedtri::cuda {

void product_f16(const Product& p, const Config& config, cudaStream_t stream) {
    Products16Bit<__half>::run(p, config, stream);
}

}  // namespace packedtri::cuda
