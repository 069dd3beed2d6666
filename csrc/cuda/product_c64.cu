#include "mma_simt.cuh"
#include "product_launch.cuh"
#include "products.h"

namespace packedtri::cuda {
namespace {

template <bool A_K_MAJOR, bool B_K_MAJOR>
using Only = MainLoopAsync<Complex<float>, MmaSimt<Complex<float>, 64, 64, 8, 4, 4>, 4, A_K_MAJOR,
                           B_K_MAJOR>;
using Mirrored =
    MainLoopAsync<Complex<float>, MmaSimt<Complex<float>, 64, 64, 8, 4, 4>, 4, true, true, true>;

}  // namespace

void product_c64(const Product& p, const Config& config, cudaStream_t stream) {
    launch_product<Only, 2, Mirrored>(p, config, stream);
}

}  // namespace packedtri::cuda
