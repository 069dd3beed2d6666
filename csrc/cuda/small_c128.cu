#include "mma_simt.cuh"
#include "small.cuh"
#include "small.h"

namespace packedtri::cuda {
namespace {

template <int SIDE, int BK>
using Mma = MmaSimt<Complex<double>, SIDE, SIDE, BK, 4, 4>;

}  // namespace

void small_c128(const Product& p, int side, cudaStream_t stream) {
    launch_small<Complex<double>, Mma, 8>(p, side, stream);
}

}  // namespace packedtri::cuda
