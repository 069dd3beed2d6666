#include "strips.cuh"

namespace packedtri::cuda {

bool mm_strips_f64(const Product& p, Scratch& scratch, cudaStream_t stream) {
    return run_strips<double>(p, scratch, stream);
}

}  // namespace packedtri::cuda
