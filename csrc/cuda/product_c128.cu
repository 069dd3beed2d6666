#include "mma_simt.cuh"
#include "product_launch.cuh"
#include "products.h"

namespace packedtri::cuda {
namespace {

template <bool A_K_MAJOR, bool B_K_MAJOR>
using Only = MainLoopAsync<Complex<double>, MmaSimt<Complex<double>, 64, 64, 8, 4, 4>, 3, A_K_MAJOR,
                           B_K_MAJOR>;
using Mirrored =
    MainLoopAsync<Complex<double>, MmaSimt<Complex<double>, 64, 64, 8, 4, 4>, 3, true, true, true>;

}  // namespace

void product_c128(const Product& p, const Config& config, cudaStream_t stream) {
    launch_product<Only, 1, Mirrored>(p, config, stream);
}

}  // namespace packedtri::cuda
