// The products of 16-bit elements: one function for the files of both types, which compile side by
// side.
#pragma once

#include "engine_layout.h"
#include "large_tile.cuh"
#include "main_loop_wgmma.cuh"
#include "product_launch.cuh"
#include "products.h"
#include "tensor_map.h"

namespace packedtri::cuda {

template <class T>
struct Products16Bit {
    template <bool A_K_MAJOR, bool B_K_MAJOR>
    using Large = typename LargeTile<T, A_K_MAJOR, B_K_MAJOR>::MainLoop;
    template <bool A_K_MAJOR, bool B_K_MAJOR>
    using Small = MainLoopWords<T, 64, 64, 4, 2, A_K_MAJOR, B_K_MAJOR>;

    template <bool A_K_MAJOR, bool B_K_MAJOR>
    using Hopper = MainLoopWgmma<T, A_K_MAJOR, B_K_MAJOR>;
    using Mirrored = MainLoopWgmma<T, true, true, true>;
    template <Mapped MAPPED, bool WIDE>
    using OneMapped = MainLoopWgmma<T, true, true, true, MAPPED, WIDE>;

    static_assert(shared_bytes<Large<true, true>>() <=
                  1024 * tile_shared_kib(DType::bf16, TileSize::Large));
    static_assert(shared_bytes<Small<true, true>>() <=
                  1024 * tile_shared_kib(DType::bf16, TileSize::Small));

    template <Mapped MAPPED, bool WIDE>
    static void run_mapped(const Product& p, const Config& config, cudaStream_t stream) {
        using MainLoop = OneMapped<MAPPED, WIDE>;
        const auto args = arguments<typename MainLoop::Mma>(p, config, orient<T>(p.a, true),
                                                            orient<T>(p.b, false));
        const Operand& x = MAPPED == Mapped::A ? p.a : p.b;
        launch<MainLoop, 2>({args, map_of(x, p.dtype, p.batch)}, stream);
    }

    template <bool WIDE>
    static void run_mapped(const Product& p, const Config& config, cudaStream_t stream) {
        return mappable(p, p.b) ? run_mapped<Mapped::B, WIDE>(p, config, stream)
                                : run_mapped<Mapped::A, WIDE>(p, config, stream);
    }

    static void run(const Product& p, const Config& config, cudaStream_t stream) {
        if (config.method == Method::Mapped)
            return config.tile == TileSize::Large ? run_mapped<true>(p, config, stream)
                                                  : run_mapped<false>(p, config, stream);
        if (config.method == Method::Hopper) launch_product<Hopper, 2, Mirrored>(p, config, stream);
        else if (config.tile == TileSize::Large) launch_product<Large, 1>(p, config, stream);
        else launch_product<Small, 2>(p, config, stream);
    }
};

}  // namespace packedtri::cuda
