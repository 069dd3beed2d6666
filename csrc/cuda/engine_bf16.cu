#include "engine_launch.cuh"

namespace packedtri::cuda {

void engine_bf16(const EnginePlan& plan, cudaStream_t stream) {
    if (plan.config.tile == TileSize::Large)
        launch_engine<EngineShape<__nv_bfloat16, __nv_bfloat16, 1, 256, 4, 2>>(plan, stream);
    else launch_engine<EngineShape<__nv_bfloat16, __nv_bfloat16, 1, 128, 6, 1>>(plan, stream);
}

}  // namespace packedtri::cuda
