#include "main_loop_wgmma.cuh"
#include "product_launch.cuh"
#include "products.h"

namespace packedtri::cuda {
namespace {

template <bool A_K_MAJOR, bool B_K_MAJOR>
using Small = MainLoopWgmma<float, A_K_MAJOR, B_K_MAJOR>;
using Mirrored = MainLoopWgmma<float, true, true, true>;

}  // namespace

void product_tf32(const Product& p, const Config& config, cudaStream_t stream) {
    launch_product<Small, 2, Mirrored>(p, config, stream);
}

}  // namespace packedtri::cuda
