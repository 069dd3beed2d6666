#include "engine_16bit.cuh"

namespace packedtri::cuda {

void engine_bf16(const EnginePlan* plans, int count, const EngineUnmade& unmade,
                 cudaStream_t stream) {
    launch_engine_16bit<__nv_bfloat16>(plans, count, unmade, stream);
}

}  // namespace packedtri::cuda
