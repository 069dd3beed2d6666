// The product kernel: schedule x loaders x k-range x main loop x epilogue.
#pragma once

#include "cluster_sum.cuh"
#include "epilogue.cuh"
#include "hopper.cuh"
#include "main_loop_async.cuh"
#include "panel.cuh"

namespace packedtri::cuda {

template <class MainLoop>
constexpr int shared_bytes(bool cluster = false) {
    if constexpr (MainLoop::STORES) {
        return MainLoop::shared_bytes(cluster);
    } else {
        constexpr int staging = Staging<typename MainLoop::Mma>::bytes;
        return MainLoop::SHARED_BYTES > staging ? MainLoop::SHARED_BYTES : staging;
    }
}

// The part of the sum over k that one of several blocks has. In 32 bits it is found sooner, for kernels that are short;
// see product_kernel.
template <class Mma, class T>
__device__ __forceinline__ TilePart part_of_sum(const ProductArgs<T>& args, int i0, int j0,
                                                const SharedSum& sum, int64_t) {
    const KRange range =
        k_range(args.a_kind, args.b_kind, i0, i0 + Mma::BM, j0, j0 + Mma::BN, args.k);
    const int64_t steps = ceil_div(range.length(), Mma::BK);
    const int first = static_cast<int>(steps * sum.part / sum.parts),
              last = static_cast<int>(steps * (sum.part + 1) / sum.parts);
    return {i0, j0, static_cast<int>(range.begin) + first * Mma::BK, last - first};
}
template <class Mma, class T>
__device__ __forceinline__ TilePart part_of_sum(const ProductArgs<T>& args, int i0, int j0,
                                                const SharedSum& sum, int) {
    const auto range =
        k_range<int>(args.a_kind, args.b_kind, i0, i0 + Mma::BM, j0, j0 + Mma::BN, args.k);
    const int steps = (range.length() + Mma::BK - 1) / Mma::BK;
    const int first = sum.divide(steps * sum.part), last = sum.divide(steps * (sum.part + 1));
    return {i0, j0, range.begin + first * Mma::BK, last - first};
}

// Computes the rows [first_row, end_row) of a tile, or with other blocks of a cluster its part of them.
template <class MainLoop>
__device__ __forceinline__ void compute_tile(const typename MainLoop::Args& args,
                                             const Schedule::Tile& tile, int64_t batch,
                                             const SharedSum& sum, int first_row, int end_row,
                                             char* shared) {
    using Mma = typename MainLoop::Mma;
    const int i0 = tile.i * Mma::BM, j0 = tile.j * Mma::BN;
    const TilePart part = part_of_sum<Mma>(args, i0, j0, sum, typename MainLoop::Index{});

    if constexpr (MainLoop::STORES) {
        MainLoop::run(args, batch, part, sum, first_row, end_row, shared);
    } else {
        auto* staging = reinterpret_cast<typename Mma::Acc*>(shared);
        MainLoop::run(args, batch, part, shared,
                      [&](const Mma& mma) { Staging<Mma>::put(mma, staging); });
        ptx::launch_dependents();

        auto* c = args.c + batch * args.c_batch_stride;
        if (sum.parts == 1) {
            ptx::block_sync<MainLoop::THREADS>();
            store_rows<Mma, MainLoop::THREADS, 1>(args, c, staging, 0, 1, i0, j0, first_row,
                                                  end_row);
            return;
        }
        ptx::cluster_sync();
        store_share<Mma, MainLoop::THREADS>(args, c, staging, sum, i0, j0);
        leave_cluster();
    }
}

// What block `rank` of a cluster has: part of the sum of a tile, or none where that is -1. GRADED: sums may be shared by
// three and by two.
template <class Index>
struct BlockTask {
    Index tile;
    SharedSum sum;
    bool beside;  // The others share a sum that is none of this block's.
};
template <bool GRADED, class Index, class T>
__device__ __forceinline__ BlockTask<Index> task_of(const ProductArgs<T>& args, Index cluster,
                                                    int rank) {
    const auto by_all = static_cast<Index>(args.shared.by_all),
               tiles = static_cast<Index>(args.items);
    if (cluster < by_all) return {cluster, {rank, args.split, 0}, false};
    cluster -= by_all;
    if (!GRADED) {
        const Index tile = by_all + cluster * args.split + rank;
        return {tile < tiles ? tile : -1, {0, 1, rank}, false};
    }
    const auto by_three = static_cast<Index>(args.shared.by_three),
               by_two = static_cast<Index>(args.shared.by_two);
    const Index threes = by_three - by_all, pairs = (by_two - by_three + 1) / 2;
    if (cluster < threes && rank < 3) return {by_all + cluster, {rank, 3, 0}, false};
    const Index after = cluster - threes;
    if (cluster >= threes && after < pairs) {
        const Index tile = by_three + after * 2 + rank / 2;
        return {tile < by_two ? tile : -1, {rank & 1, 2, rank & ~1}, false};
    }
    // Those beside three blocks come first.
    const bool beside = cluster < threes;
    const Index tile = by_two + (beside ? cluster : threes + (after - pairs) * args.split + rank);
    return {tile < tiles ? tile : -1, {0, 1, rank}, beside};
}

template <class MainLoop, int BLOCKS_PER_SM>
__global__ void __launch_bounds__(MainLoop::THREADS, BLOCKS_PER_SM)
    product_kernel(const __grid_constant__ typename MainLoop::Args args) {
    extern __shared__ __align__(1024) char shared[];
    // 32 bits are enough, and quick to divide, but in some main loops make the compiler spill.
    using Index = typename MainLoop::Index;
    constexpr bool narrow = sizeof(Index) == 4;
    const int block = static_cast<int>(blockIdx.x), rank = block & (args.split - 1);
    const int place = block >> (__ffs(args.split) - 1);
    const BlockTask<Index> task = task_of<MainLoop::GRADED, Index>(
        args, place < args.turned ? args.turned - 1 - place : place, rank);
    if (task.tile < 0) return;
    // Most products are alone, and divisions take long.
    const bool alone = narrow && args.batch == 1;
    const Schedule::Tile tile = args.schedule.at(alone ? task.tile : task.tile / args.batch);
    if (!tile.exists) return;
    // Where the others meet they need not wait for it; where they leave together, too, they do until it has ended.
    if (task.beside) ptx::cluster_arrive();
    compute_tile<MainLoop>(args, tile, alone ? 0 : task.tile % args.batch, task.sum, 0,
                           MainLoop::Mma::BM, shared);
    if (task.beside) ptx::cluster_wait();
}

}  // namespace packedtri::cuda
