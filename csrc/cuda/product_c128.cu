#include "mma_simt.cuh"
#include "product_launch.cuh"
#include "products.h"

namespace packedtri::cuda {

void product_c128(const Product& p, const Config& config, cudaStream_t stream) {
    launch_tile<Complex<double>, MmaSimt<Complex<double>, 64, 64, 8, 4, 4>, 3, 1>(p, config,
                                                                                  stream);
}

}  // namespace packedtri::cuda
