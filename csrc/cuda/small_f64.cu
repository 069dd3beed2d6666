#include "lane_grid.cuh"
#include "mma_f64.cuh"
#include "small.h"

namespace packedtri::cuda {
namespace {

template <int SIDE, int BK>
using Mma = MmaF64<SIDE, SIDE, BK, 32, 32>;

}  // namespace

void small_f64(const Product& p, int side, cudaStream_t stream) {
    if (goes_by_lane_grid(p)) launch_lane_grid<double>(p, stream);
    else launch_small<double, Mma, 16>(p, side, stream);
}

}  // namespace packedtri::cuda
