#include "lane_grid.cuh"
#include "mma_simt.cuh"
#include "small.h"

namespace packedtri::cuda {
namespace {

template <int SIDE, int BK>
using Mma = MmaSimt<float, SIDE, SIDE, BK, 8, 4>;

}  // namespace

void small_f32(const Product& p, int side, cudaStream_t stream) {
    if (goes_by_lane_grid(p)) launch_lane_grid<float>(p, stream);
    else launch_small<float, Mma, 16>(p, side, stream);
}

}  // namespace packedtri::cuda
