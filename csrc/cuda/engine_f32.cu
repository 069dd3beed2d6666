#include "engine_launch.cuh"

namespace packedtri::cuda {

void engine_f32(const EnginePlan* plans, int count, const EngineUnmade& unmade,
                cudaStream_t stream) {
    launch_engine<EngineShape<float, __nv_bfloat16, 3, 128, 2, 1>>(plans, count, unmade, stream);
}

}  // namespace packedtri::cuda
