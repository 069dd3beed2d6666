#include "mma_16bit.cuh"
#include "small.cuh"
#include "small.h"

namespace packedtri::cuda {
namespace {

template <int SIDE, int BK>
using Mma = Mma16Bit<__half, SIDE, SIDE, BK, 32, 32>;

}  // namespace

void small_f16(const Product& p, int side, cudaStream_t stream) {
    launch_small<__half, Mma, 16>(p, side, stream);
}

}  // namespace packedtri::cuda
