#include "mma_16bit.cuh"
#include "product_launch.cuh"
#include "products.h"

namespace packedtri::cuda {

void product_bf16(const Product& p, const Config& config, cudaStream_t stream) {
    using Large = Mma16Bit<__nv_bfloat16, 128, 128, 32, 64, 32>;
    using Small = Mma16Bit<__nv_bfloat16, 64, 64, 64, 32, 32>;
    if (config.tile == TileSize::Large) launch_tile<__nv_bfloat16, Large, 2, 1>(p, config, stream);
    else launch_tile<__nv_bfloat16, Small, 2, 3>(p, config, stream);
}

}  // namespace packedtri::cuda
