#include "strips.cuh"

namespace packedtri::cuda {

bool mm_strips_f32(const Product& p, Scratch& scratch, cudaStream_t stream) {
    return run_strips<float>(p, scratch, stream);
}

}  // namespace packedtri::cuda
