#include "mma_simt.cuh"
#include "product_launch.cuh"
#include "products.h"

namespace packedtri::cuda {

void product_f32(const Product& p, const Config& config, cudaStream_t stream) {
    using Large = MmaSimt<float, 128, 128, 16, 8, 8>;
    using Small = MmaSimt<float, 64, 64, 16, 8, 4>;
    if (config.tile == TileSize::Large) launch_tile<float, Large, 4, 2>(p, config, stream);
    else launch_tile<float, Small, 4, 4>(p, config, stream);
}

}  // namespace packedtri::cuda
