// The engine's kernels for 2-byte elements.
#pragma once

#include "engine_launch.cuh"

namespace packedtri::cuda {

template <class T>
void launch_engine_16bit(const EnginePlan* plans, int count, const EngineUnmade& unmade,
                         cudaStream_t stream) {
    using Small = EngineShape<T, T, 1, 128, 6, 1>;
    using Half = EngineShape<T, T, 1, 128, 7, 1, false, false, true>;
    using Large = EngineShape<T, T, 1, 256, 4, 2>;
    using Packing = EngineShape<T, T, 1, 256, 4, 2, true>;
    using Cutting = EngineShape<T, T, 1, 256, 4, 2, false, true>;
    if (unmade.count > 0) launch_engine<Packing>(plans, count, unmade, stream);
    else if (plans[0].config.part > 0) launch_engine<Cutting>(plans, count, unmade, stream);
    else if (plans[0].config.tile == TileSize::Large)
        launch_engine<Large>(plans, count, unmade, stream);
    else if (plans[0].config.tile == TileSize::Half)
        launch_engine<Half>(plans, count, unmade, stream);
    else launch_engine<Small>(plans, count, unmade, stream);
}

}  // namespace packedtri::cuda
