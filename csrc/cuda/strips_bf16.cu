#include "strips_16bit.cuh"

namespace packedtri::cuda {

bool mm_strips_bf16(const Product& p, Scratch& scratch, cudaStream_t stream) {
    return run_strips_16bit<__nv_bfloat16>(p, scratch, stream);
}

}  // namespace packedtri::cuda
