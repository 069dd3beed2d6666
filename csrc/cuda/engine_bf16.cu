#include "engine_launch.cuh"

namespace packedtri::cuda {

void engine_bf16(const EnginePlan* plans, int count, const EngineUnmade& unmade,
                 cudaStream_t stream) {
    if (plans[0].config.tile == TileSize::Large)
        launch_engine<EngineShape<__nv_bfloat16, __nv_bfloat16, 1, 256, 4, 2>>(plans, count, unmade,
                                                                               stream);
    else
        launch_engine<EngineShape<__nv_bfloat16, __nv_bfloat16, 1, 128, 6, 1>>(plans, count, unmade,
                                                                               stream);
}

}  // namespace packedtri::cuda
