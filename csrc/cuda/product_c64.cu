#include "mma_simt.cuh"
#include "product_launch.cuh"
#include "products.h"

namespace packedtri::cuda {

void product_c64(const Product& p, const Config& config, cudaStream_t stream) {
    launch_tile<Complex<float>, MmaSimt<Complex<float>, 64, 64, 8, 4, 4>, 4, 1>(p, config, stream);
}

}  // namespace packedtri::cuda
