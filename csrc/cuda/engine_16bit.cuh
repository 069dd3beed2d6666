// The engine's kernels for what the tensor cores multiply as one element of 2 bytes: such elements themselves, and float32
// in TF32.
#pragma once

#include <type_traits>

#include "engine_launch.cuh"

namespace packedtri::cuda {

template <class T, class Element = T>
void launch_engine_16bit(const EnginePlan* plans, int count, const EngineUnmade& unmade,
                         cudaStream_t stream) {
    using Small = EngineShape<T, Element, 1, 128, 6, 1>;
    using Half = EngineShape<T, Element, 1, 128, 7, 1, EngineForm::Halved>;
    using Large = EngineShape<T, Element, 1, 256, 4, 2>;
    using Packing = EngineShape<T, Element, 1, 256, 4, 2, EngineForm::Packing>;
    using Cutting = EngineShape<T, Element, 1, 256, 4, 2, EngineForm::Cutting>;
    // To make scaled images meanwhile takes longer than to make them before (docs/cuda_history.md).
    if constexpr (std::is_same_v<T, Element>)
        if (unmade.count > 0) return launch_engine<Packing>(plans, count, unmade, stream);
    if (plans[0].config.part > 0) launch_engine<Cutting>(plans, count, unmade, stream);
    else if (plans[0].config.tile == TileSize::Large)
        launch_engine<Large>(plans, count, unmade, stream);
    else if (plans[0].config.tile == TileSize::Half)
        launch_engine<Half>(plans, count, unmade, stream);
    else launch_engine<Small>(plans, count, unmade, stream);
}

}  // namespace packedtri::cuda
