#include "engine_launch.cuh"

namespace packedtri::cuda {

void engine_tf32(const EnginePlan& plan, cudaStream_t stream) {
    if (plan.config.tile == TileSize::Large)
        launch_engine<EngineShape<float, Tf32, 1, 256, 4, 2>>(plan, stream);
    else launch_engine<EngineShape<float, Tf32, 1, 128, 6, 1>>(plan, stream);
}

}  // namespace packedtri::cuda
