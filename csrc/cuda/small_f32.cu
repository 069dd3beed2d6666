#include "mma_simt.cuh"
#include "small.cuh"
#include "small.h"

namespace packedtri::cuda {
namespace {

template <int SIDE, int BK>
using Mma = MmaSimt<float, SIDE, SIDE, BK, 8, 4>;

}  // namespace

void small_f32(const Product& p, int side, cudaStream_t stream) {
    launch_small<float, Mma, 16>(p, side, stream);
}

}  // namespace packedtri::cuda
