#include "engine_16bit.cuh"

namespace packedtri::cuda {

// By float16, which has as many significant bits (ImageScale).
void engine_tf32(const EnginePlan* plans, int count, const EngineUnmade& unmade,
                 cudaStream_t stream) {
    launch_engine_16bit<float, __half>(plans, count, unmade, stream);
}

}  // namespace packedtri::cuda
