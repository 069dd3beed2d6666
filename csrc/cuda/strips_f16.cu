#include "strips_16bit.cuh"

namespace packedtri::cuda {

bool mm_strips_f16(const Product& p, Scratch& scratch, cudaStream_t stream) {
    return run_strips_16bit<__half>(p, scratch, stream);
}

}  // namespace packedtri::cuda
