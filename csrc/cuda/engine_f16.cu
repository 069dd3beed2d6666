#include "engine_launch.cuh"

namespace packedtri::cuda {

void engine_f16(const EnginePlan& plan, cudaStream_t stream) {
    if (plan.config.tile == TileSize::Large)
        launch_engine<EngineShape<__half, __half, 1, 256, 4, 2>>(plan, stream);
    else launch_engine<EngineShape<__half, __half, 1, 128, 6, 1>>(plan, stream);
}

}  // namespace packedtri::cuda
