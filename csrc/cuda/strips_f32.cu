#include "strips.cuh"

namespace packedtri::cuda {

bool mm_strips_f32(const Product& p, Scratch& scratch, cudaStream_t stream) {
    switch (strip_vectors(p)) {
        case 8: return run_strips<float, 8>(p, scratch, stream);
        case 16: return run_strips<float, 16>(p, scratch, stream);
        case 32: return run_strips<float, 32>(p, scratch, stream);
        default: return run_strips<float, 64>(p, scratch, stream);
    }
}

}  // namespace packedtri::cuda
