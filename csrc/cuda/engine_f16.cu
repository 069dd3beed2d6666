#include "engine_16bit.cuh"

namespace packedtri::cuda {

void engine_f16(const EnginePlan* plans, int count, const EngineUnmade& unmade,
                cudaStream_t stream) {
    launch_engine_16bit<__half>(plans, count, unmade, stream);
}

}  // namespace packedtri::cuda
