// The main loops of large direct tiles, 128 x 128, which the engine has too for what images do not give.
#pragma once

#include "main_loop_async.cuh"
#include "main_loop_words.cuh"
#include "mma_simt.cuh"

namespace packedtri::cuda {

template <class T, bool A_K_MAJOR, bool B_K_MAJOR>
struct LargeTile {
    static_assert(sizeof(T) == 2);
    using MainLoop = MainLoopWords<T, 128, 128, 2, 3, A_K_MAJOR, B_K_MAJOR>;
};
template <bool A_K_MAJOR, bool B_K_MAJOR>
struct LargeTile<float, A_K_MAJOR, B_K_MAJOR> {
    using MainLoop =
        MainLoopAsync<float, MmaSimt<float, 128, 128, 32, 8, 8>, 2, A_K_MAJOR, B_K_MAJOR>;
};

}  // namespace packedtri::cuda
