#include "mma_16bit.cuh"
#include "product_launch.cuh"
#include "products.h"

namespace packedtri::cuda {
namespace {

template <bool A_K_MAJOR, bool B_K_MAJOR>
using Large =
    MainLoopStaged<__half, Mma16Bit<__half, 128, 128, 64, 64, 64>, 4, 128, A_K_MAJOR, B_K_MAJOR>;
template <bool A_K_MAJOR, bool B_K_MAJOR>
using Small =
    MainLoopStaged<__half, Mma16Bit<__half, 64, 64, 64, 32, 32>, 4, 128, A_K_MAJOR, B_K_MAJOR>;

static_assert(shared_bytes<Large<true, true>>() <=
              1024 * tile_shared_kib(DType::f16, TileSize::Large));

}  // namespace

void product_f16(const Product& p, const Config& config, cudaStream_t stream) {
    if (config.tile == TileSize::Large) launch_product<Large, 1>(p, config, stream);
    else launch_product<Small, 2>(p, config, stream);
}

}  // namespace packedtri::cuda
