// The products of 16-bit elements: one function for the files of both types, which compile side by
// side.
#pragma once

#include "main_loop_cut.cuh"
#include "mma_16bit.cuh"
#include "mma_warpgroup.cuh"
#include "product_launch.cuh"
#include "products.h"

namespace packedtri::cuda {

template <class T>
struct Products16Bit {
    template <bool A_K_MAJOR, bool B_K_MAJOR>
    using Large = MainLoopCut<T, Mma16Bit<T, 128, 128, 64, 64, 32>, 3, A_K_MAJOR, B_K_MAJOR>;
    template <bool A_K_MAJOR, bool B_K_MAJOR>
    using Small = MainLoopCut<T, Mma16Bit<T, 64, 64, 64, 32, 32>, 3, A_K_MAJOR, B_K_MAJOR>;
    template <bool A_K_MAJOR, bool B_K_MAJOR>
    using HopperLarge = MainLoopCut<T, MmaWarpgroup<T, 128, 128>, 4, A_K_MAJOR, B_K_MAJOR>;
    template <bool A_K_MAJOR, bool B_K_MAJOR>
    using HopperSmall = MainLoopCut<T, MmaWarpgroup<T, 64, 64>, 4, A_K_MAJOR, B_K_MAJOR>;

    static_assert(shared_bytes<Large<true, true>>() <=
                  1024 * tile_shared_kib(DType::bf16, TileSize::Large));
    static_assert(shared_bytes<HopperLarge<true, true>>() <= 1024 * Device{}.shared_kib);

    static void run(const Product& p, const Config& config, cudaStream_t stream) {
        const bool large = config.tile == TileSize::Large;
        if (config.method == Method::Hopper) {
            if (large) launch_product<HopperLarge, 1>(p, config, stream);
            else launch_product<HopperSmall, 2>(p, config, stream);
        } else {
            if (large) launch_product<Large, 1, true>(p, config, stream);
            else launch_product<Small, 2>(p, config, stream);
        }
    }
};

}  // namespace packedtri::cuda
