#include "mma_16bit.cuh"
#include "product_launch.cuh"
#include "products.h"

namespace packedtri::cuda {

void product_f16(const Product& p, const Config& config, cudaStream_t stream) {
    using Large = Mma16Bit<__half, 128, 128, 32, 64, 32>;
    using Small = Mma16Bit<__half, 64, 64, 64, 32, 32>;
    if (config.tile == TileSize::Large) launch_tile<__half, Large, 2, 1>(p, config, stream);
    else launch_tile<__half, Small, 2, 3>(p, config, stream);
}

}  // namespace packedtri::cuda
