#include "large_tile.cuh"
#include "product_launch.cuh"
#include "products.h"

namespace packedtri::cuda {
namespace {

template <bool A_K_MAJOR, bool B_K_MAJOR>
using Large = typename LargeTile<float, A_K_MAJOR, B_K_MAJOR>::MainLoop;
template <bool A_K_MAJOR, bool B_K_MAJOR>
using Small = MainLoopAsync<float, MmaSimt<float, 64, 64, 16, 8, 4>, 4, A_K_MAJOR, B_K_MAJOR>;
using Mirrored = MainLoopAsync<float, MmaSimt<float, 64, 64, 16, 8, 4>, 4, true, true, true>;

}  // namespace

void product_f32(const Product& p, const Config& config, cudaStream_t stream) {
    if (config.tile == TileSize::Large) launch_product<Large, 2>(p, config, stream);
    else launch_product<Small, 4, Mirrored>(p, config, stream);
}

}  // namespace packedtri::cuda
