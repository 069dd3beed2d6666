#include "mma_f64.cuh"
#include "product_launch.cuh"
#include "products.h"

namespace packedtri::cuda {

void product_f64(const Product& p, const Config& config, cudaStream_t stream) {
    using Large = MmaF64<128, 128, 16, 32, 64>;
    using Small = MmaF64<64, 64, 16, 32, 32>;
    if (config.tile == TileSize::Large) launch_tile<double, Large, 4, 1>(p, config, stream);
    else launch_tile<double, Small, 4, 2>(p, config, stream);
}

}  // namespace packedtri::cuda
