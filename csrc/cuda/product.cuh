// The product kernel: schedule x loaders x k-range x main loop x epilogue.
#pragma once

#include "epilogue.cuh"
#include "hopper.cuh"
#include "main_loop_async.cuh"
#include "main_loop_staged.cuh"
#include "panel.cuh"

namespace packedtri::cuda {

template <class MainLoop>
constexpr int shared_bytes() {
    constexpr int staging = Staging<typename MainLoop::Mma>::bytes;
    return MainLoop::SHARED_BYTES > staging ? MainLoop::SHARED_BYTES : staging;
}

// Waits for the marks. Returns whether one is set for the tile, and the rows to be computed.
template <int BM, int BN, class T>
__device__ bool marked_rows(const ProductArgs<T>& args, const Schedule::Tile& tile, int& first,
                            int& end) {
    ptx::wait_for_dependency();
    if constexpr (BM == 128 && BN == 128) {
        const int* mark = args.marks + 2 * tile.i * args.schedule.tiles_n + tile.j;
        const bool upper = mark[0] != 0, lower = mark[args.schedule.tiles_n] != 0;
        if (!upper) first = 64;
        if (!lower) end = 64;
    }
    return first < end;
}

template <class MainLoop, int BLOCKS_PER_SM>
__global__ void __launch_bounds__(MainLoop::THREADS, BLOCKS_PER_SM)
    product_kernel(const __grid_constant__ ProductArgs<typename MainLoop::T> args) {
    using T = typename MainLoop::T;
    using Mma = typename MainLoop::Mma;
    extern __shared__ __align__(1024) char shared[];
    // A cluster of blocks works on one tile, each on a part of its sum, or each block on its own.
    const int64_t cluster = blockIdx.x / args.split;
    const int rank = blockIdx.x % args.split;
    const bool shares = cluster < args.shared_items;
    const int64_t item =
        shares ? cluster : args.shared_items + (cluster - args.shared_items) * args.split + rank;
    if (item >= args.schedule.size() * args.batch) return;
    const Schedule::Tile tile = args.schedule.at(item / args.batch);
    if (!tile.exists) return;
    const int64_t batch = item % args.batch;
    const int i0 = tile.i * Mma::BM, j0 = tile.j * Mma::BN;
    int first_row = 0, end_row = Mma::BM;
    if (args.marks && !marked_rows<Mma::BM, Mma::BN>(args, tile, first_row, end_row)) return;
    const int part_index = shares ? rank : 0, parts = shares ? args.split : 1;

    const KRange range =
        k_range(args.a_kind, args.b_kind, i0, i0 + Mma::BM, j0, j0 + Mma::BN, args.k);
    const int64_t steps = ceil_div(range.length(), Mma::BK);
    const int first = static_cast<int>(steps * part_index / parts),
              last = static_cast<int>(steps * (part_index + 1) / parts);
    const TilePart part{i0, j0, static_cast<int>(range.begin) + first * Mma::BK, last - first};

    auto* staging = reinterpret_cast<typename Mma::Acc*>(shared);
    MainLoop::run(args, batch, part, shared,
                  [&](const Mma& mma) { Staging<Mma>::put(mma, staging); });

    T* c = args.c + batch * args.c_batch_stride;
    if (parts == 1) {
        __syncthreads();
        store_rows<Mma, MainLoop::THREADS>(args, c, staging, 1, i0, j0, first_row, end_row);
        return;
    }
    ptx::cluster_sync();
    store_rows<Mma, MainLoop::THREADS>(args, c, staging, parts, i0, j0,
                                       Mma::BM * part_index / parts,
                                       Mma::BM * (part_index + 1) / parts);
    ptx::cluster_sync();  // A block's shared memory must outlive its peers' reads.
}

}  // namespace packedtri::cuda
