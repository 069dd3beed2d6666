#include "main_loop_bulk.cuh"
#include "mma_f64.cuh"
#include "product_launch.cuh"
#include "products.h"

namespace packedtri::cuda {
namespace {

template <bool A_K_MAJOR, bool B_K_MAJOR>
using Large = MainLoopAsync<double, MmaF64<128, 128, 32, 32, 64>, 3, A_K_MAJOR, B_K_MAJOR>;
template <bool A_K_MAJOR, bool B_K_MAJOR>
using Bulk = MainLoopBulk<MmaBulkF64<128, 128, 32, 32, 64, A_K_MAJOR, B_K_MAJOR>, 3>;
template <bool A_K_MAJOR, bool B_K_MAJOR>
using Small = MainLoopAsync<double, MmaF64<64, 64, 32, 32, 32>, 3, A_K_MAJOR, B_K_MAJOR>;
// For devices with 100 KiB of shared memory.
template <bool A_K_MAJOR, bool B_K_MAJOR>
using Short = MainLoopAsync<double, MmaF64<64, 64, 32, 32, 32>, 2, A_K_MAJOR, B_K_MAJOR>;

static_assert(shared_bytes<Large<true, true>>() <=
              1024 * tile_shared_kib(DType::f64, TileSize::Large));
static_assert(shared_bytes<Small<true, true>>() <=
              1024 * tile_shared_kib(DType::f64, TileSize::Small));

}  // namespace

void product_f64(const Product& p, const Config& config, cudaStream_t stream) {
    if (config.tile == TileSize::Large && config.method == Method::Hopper)
        launch_product<Bulk, 1>(p, config, stream);
    else if (config.tile == TileSize::Large) launch_product<Large, 1>(p, config, stream);
    else if (current_device().shared_kib < tile_shared_kib(DType::f64, TileSize::Small))
        launch_product<Short, 1>(p, config, stream);
    else launch_product<Small, 2>(p, config, stream);
}

}  // namespace packedtri::cuda
