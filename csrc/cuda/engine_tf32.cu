#include "engine_launch.cuh"

namespace packedtri::cuda {

// By float16, which has as many significant bits (ImageScale).
void engine_tf32(const EnginePlan* plans, int count, const EngineUnmade& unmade,
                 cudaStream_t stream) {
    if (plans[0].config.tile == TileSize::Large)
        launch_engine<EngineShape<float, __half, 1, 256, 4, 2>>(plans, count, unmade, stream);
    else launch_engine<EngineShape<float, __half, 1, 128, 6, 1>>(plans, count, unmade, stream);
}

}  // namespace packedtri::cuda
