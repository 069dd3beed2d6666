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

// The part of the sum over k that one of several blocks has. In 32 bits and by shifts it is found
// sooner, for kernels that are short; see product_kernel.
template <class Mma, class T>
__device__ __forceinline__ TilePart part_of_sum(const ProductArgs<T>& args, int i0, int j0,
                                                int index, int parts, int64_t) {
    const KRange range =
        k_range(args.a_kind, args.b_kind, i0, i0 + Mma::BM, j0, j0 + Mma::BN, args.k);
    const int64_t steps = ceil_div(range.length(), Mma::BK);
    const int first = static_cast<int>(steps * index / parts),
              last = static_cast<int>(steps * (index + 1) / parts);
    return {i0, j0, static_cast<int>(range.begin) + first * Mma::BK, last - first};
}
template <class Mma, class T>
__device__ __forceinline__ TilePart part_of_sum(const ProductArgs<T>& args, int i0, int j0,
                                                int index, int parts, int) {
    const auto range =
        k_range<int>(args.a_kind, args.b_kind, i0, i0 + Mma::BM, j0, j0 + Mma::BN, args.k);
    const int steps = (range.length() + Mma::BK - 1) / Mma::BK, log_parts = __ffs(parts) - 1;
    const int first = steps * index >> log_parts, last = steps * (index + 1) >> log_parts;
    return {i0, j0, range.begin + first * Mma::BK, last - first};
}

// Computes the rows [first_row, end_row) of a tile, or with other blocks of a cluster its part of them.
template <class MainLoop>
__device__ __forceinline__ void compute_tile(const ProductArgs<typename MainLoop::T>& args,
                                             const Schedule::Tile& tile, int64_t batch,
                                             const SharedSum& sum, int first_row, int end_row,
                                             char* shared) {
    using Mma = typename MainLoop::Mma;
    const int i0 = tile.i * Mma::BM, j0 = tile.j * Mma::BN;
    const TilePart part =
        part_of_sum<Mma>(args, i0, j0, sum.part, sum.parts, typename MainLoop::Index{});

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
            store_rows<Mma, MainLoop::THREADS, 1>(args, c, staging, 0, i0, j0, first_row, end_row);
            return;
        }
        ptx::cluster_sync();
        store_share<Mma, MainLoop::THREADS>(args, c, staging, sum, i0, j0);
        leave_cluster();
    }
}

template <class MainLoop, int BLOCKS_PER_SM>
__global__ void __launch_bounds__(MainLoop::THREADS, BLOCKS_PER_SM)
    product_kernel(const __grid_constant__ ProductArgs<typename MainLoop::T> args) {
    extern __shared__ __align__(1024) char shared[];
    // 32 bits are enough, and quick to divide, but in some main loops make the compiler spill.
    using Index = typename MainLoop::Index;
    constexpr bool narrow = sizeof(Index) == 4;
    const int block = static_cast<int>(blockIdx.x), log_split = __ffs(args.split) - 1;
    Index cluster = narrow ? block >> log_split : block / args.split, first = 0;
    const int rank = narrow ? block & (args.split - 1) : block % args.split;
    // How many blocks share the sum of this block's tile, which is one of 1 << level that its cluster has.
    int sharers = args.split, level = 0;
    auto end = static_cast<Index>(args.items);
#pragma unroll
    for (const int64_t shared_end : args.shared) {
        if (sharers == 1) break;
        const auto to = static_cast<Index>(shared_end);
        const Index clusters = (to - first + (1 << level) - 1) >> level;
        if (cluster < clusters) {
            end = to;
            break;
        }
        cluster -= clusters;
        first = to;
        sharers >>= 1;
        ++level;
    }
    const int part = rank & (sharers - 1);
    const Index item = first + (cluster << level) + (rank - part) / sharers;
    if (item >= end) return;
    // Most products are alone, and divisions take long.
    const bool alone = narrow && args.batch == 1;
    const Schedule::Tile tile = args.schedule.at(alone ? item : item / args.batch);
    if (!tile.exists) return;
    compute_tile<MainLoop>(args, tile, alone ? 0 : item % args.batch, {part, sharers, rank - part},
                           0, MainLoop::Mma::BM, shared);
}

}  // namespace packedtri::cuda
