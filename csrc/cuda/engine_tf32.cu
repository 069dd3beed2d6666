#include "engine_launch.cuh"

namespace packedtri::cuda {

// By float16, which has as many significant bits (ImageScale).
void engine_tf32(const EnginePlan* plans, int count, const EngineUnmade& unmade,
                 cudaStream_t stream) {
    using Small = EngineShape<float, __half, 1, 128, 6, 1>;
    using Half = EngineShape<float, __half, 1, 128, 7, 1, false, false, true>;
    using Large = EngineShape<float, __half, 1, 256, 4, 2>;
    using Cutting = EngineShape<float, __half, 1, 256, 4, 2, false, true>;
    if (plans[0].config.part > 0) launch_engine<Cutting>(plans, count, unmade, stream);
    else if (plans[0].config.tile == TileSize::Large)
        launch_engine<Large>(plans, count, unmade, stream);
    else if (plans[0].config.tile == TileSize::Half)
        launch_engine<Half>(plans, count, unmade, stream);
    else launch_engine<Small>(plans, count, unmade, stream);
}

}  // namespace packedtri::cuda
