// The kernel of the engine: sets up the barriers and gives the warpgroups their roles.
#pragma once

#include "engine_checker.cuh"
#include "engine_consumer.cuh"
#include "engine_drawer.cuh"
#include "engine_packer.cuh"
#include "engine_producer.cuh"
#include "engine_stored.cuh"

namespace packedtri::cuda {

template <class Shape, int PRODUCTS, class Across>
__global__ void __launch_bounds__(Shape::THREADS, 1)
    engine_kernel(const __grid_constant__ EngineArgsOf<Shape, PRODUCTS> args) {
#if PACKEDTRI_HOPPER
    extern __shared__ __align__(1024) char memory[];
    const EngineShared<Shape> shared{memory};
    const int rank = Shape::CLUSTER > 1 ? static_cast<int>(ptx::cluster_rank()) : 0;
    const int split = Shape::CLUSTER > 1 ? 1 : args.split;
    const int group = __shfl_sync(~0u, static_cast<int>(threadIdx.x / 128), 0);
    // Kernels behind this one start when it has ended: where they wait on multiprocessors that have nothing more to do,
    // those that make images are slower.
    if (threadIdx.x == 0) {
        *shared.left() = 0;
        for (int s = 0; s < Shape::STAGES; ++s) {
            ptx::mbarrier_init(shared.full(s), Shape::LOADERS);
            ptx::mbarrier_init(shared.empty(s), Shape::RELEASES);
        }
        ptx::mbarrier_init(shared.wanted(), 1);
        for (int d = 0; d < Shape::DRAWS; ++d) {
            ptx::mbarrier_init(shared.drawn(d), 1);
            if (rank > 0) ptx::mbarrier_arrive_expect(shared.drawn(d), sizeof(int64_t));
        }
        if (split > 1) {
            ptx::mbarrier_init(shared.ready(), Shape::WARPS * (split - 1));
            ptx::mbarrier_init(shared.parted(), Shape::meeting_warps(split));
            ptx::mbarrier_init(shared.met(), 1);
            ptx::mbarrier_arrive_expect(shared.met(), Shape::met_bytes(split));
        }
        ptx::mbarrier_init_fence();
    }
    if (Shape::CLUSTER > 1 || split > 1) ptx::cluster_sync();
    else __syncthreads();

    if (group == 0) {
        ptx::keep_registers<Shape::PRODUCER_REGISTERS>();
        const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x / 32), 0);
        if (warp == 0) {
            if (ptx::elect())
                EngineProducer<Shape, PRODUCTS, Across::TURNS, true, !Shape::LOADS_APART>(
                    args, shared, rank)
                    .run();
        } else if (Shape::LOADS_APART && warp == 3) {
            if (ptx::elect())
                EngineProducer<Shape, PRODUCTS, Across::TURNS, false, true>(args, shared, rank)
                    .run();
        } else if constexpr (Shape::PACKS) {
            EnginePacker<typename Shape::T>(args.packing).run();
        } else if (warp == 1) {
            using Drawer = EngineDrawer<Shape, PRODUCTS>;
            if (Drawer::APART && rank == 0 && ptx::elect()) Drawer(args, shared).run();
        } else if constexpr (Shape::SCALED) {
            if (warp == 2) {
                EngineChecker<Shape, PRODUCTS>::run(args, shared);
                EngineStored<Shape, PRODUCTS>::checked();
            }
        }
    } else {
        ptx::take_registers<Shape::CONSUMER_REGISTERS>();
        EngineConsumer<Shape, PRODUCTS, Across>(args, shared, rank, group - 1).run();
        if constexpr (!Shape::PACKS) EngineStored<Shape, PRODUCTS>::run(args, shared);
    }
    // A block's barriers must outlive its peers' arrivals. Where sums meet in the stages, all of these are waited for.
    __syncwarp();
    if (Shape::CLUSTER > 1 || (Shape::MEETS_APART && split > 1)) ptx::cluster_sync();
#endif
}

}  // namespace packedtri::cuda
