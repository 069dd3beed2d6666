// Adds up the parts of a tile's sum and stores the tile, packed or dense.
#pragma once

#include "main_loop.cuh"
#include "panel.cuh"
#include "ptx.cuh"
#include "scalar.cuh"

namespace packedtri::cuda {

// The accumulators go through shared memory, because the lanes of a product hold scattered elements
// and a row of a packed triangle is best written by neighbouring lanes, and because the blocks of a
// cluster, each with a part of the sum over k, read each other's there.
template <class Mma>
struct Staging {
    using Acc = typename Mma::Acc;
    static constexpr int pitch = Mma::BN + 32 / static_cast<int>(sizeof(Acc));
    static constexpr int bytes = Mma::BM * pitch * static_cast<int>(sizeof(Acc));

    __device__ static void put(const Mma& mma, Acc* staging) {
        struct alignas(Mma::RUN * sizeof(Acc)) Run {
            Acc x[Mma::RUN];
        };
        Acc* origin = staging + mma.row0 * pitch + mma.col0;
#pragma unroll
        for (int e = 0; e < Mma::ACCS; e += Mma::RUN) {
            Run run;
#pragma unroll
            for (int x = 0; x < Mma::RUN; ++x) run.x[x] = mma.acc[e + x];
            *reinterpret_cast<Run*>(origin + Mma::row_of_acc(e) * pitch + Mma::col_of_acc(e)) = run;
        }
    }
};

// Rows of a tile, WARPS apart, each summed over the staging areas of all parts in the order of their ranks, so
// that the result does not depend on timing. Lane l has every 32nd element from l on. Reading another
// block's memory takes long, so that it is done for several rows and parts at once.
template <class Mma, int ROWS, int WARPS>
__device__ __forceinline__ void sum_rows(typename Mma::Acc (&sum)[ROWS][Mma::BN / 32],
                                         const typename Mma::Acc* first, int rows,
                                         const SharedSum& shared) {
    constexpr int PER_LANE = Mma::BN / 32;
    const auto part = [&](const typename Mma::Acc* origin, bool add_to) {
#pragma unroll
        for (int u = 0; u < ROWS; ++u)
#pragma unroll
            for (int x = 0; x < PER_LANE; ++x) {
                if (u >= rows) continue;
                const auto value = origin[u * WARPS * Staging<Mma>::pitch + x * 32];
                sum[u][x] = add_to ? add(sum[u][x], value) : value;
            }
    };
    if (shared.parts == 1) return part(first, false);
    part(ptx::cluster_peer(first, shared.first_rank), false);
#pragma unroll 3
    for (int p = 1; p < shared.parts; ++p)
        part(ptx::cluster_peer(first, shared.first_rank + p), true);
}

// Stores alpha times rows [first, last) of the tile at (i0, j0), plus beta times what is there. What
// several rows hold is read before the first of them is stored, for reading takes long.
template <class Mma, int THREADS, class T>
__device__ void store_rows(const ProductArgs<T>& args, T* c, const typename Mma::Acc* staging,
                           const SharedSum& shared, int i0, int j0, int first, int last) {
    using Acc = typename Mma::Acc;
    constexpr int WARPS = THREADS / 32, PER_LANE = Mma::BN / 32, ROWS = 4;
    const int lane = threadIdx.x % 32;
    last = min(last, args.m - i0);
#pragma unroll 1
    for (int r0 = first + ptx::thread_of<THREADS>() / 32; r0 < last; r0 += ROWS * WARPS) {
        // Where this lane's elements of a row go, and how many are left in the row.
        const int rows = min(ROWS, (last - r0 + WARPS - 1) / WARPS);
        T* out[ROWS];
        int limit[ROWS];
#pragma unroll
        for (int u = 0; u < ROWS; ++u) {
            const int i = i0 + r0 + u * WARPS;
            out[u] = c + row_offset(i, args.c_ld, args.c_packed) + j0 + lane;
            limit[u] = u < rows ? (args.c_lower ? min(i + 1, args.n) : args.n) - j0 - lane : 0;
        }
        Acc there[ROWS][PER_LANE];
        if (args.beta != 0) {
#pragma unroll
            for (int u = 0; u < ROWS; ++u)
#pragma unroll
                for (int x = 0; x < PER_LANE; ++x)
                    if (x * 32 < limit[u]) there[u][x] = Accumulator<T>::widen(out[u][x * 32]);
        }
        Acc sum[ROWS][PER_LANE];
        sum_rows<Mma, ROWS, WARPS>(sum, staging + r0 * Staging<Mma>::pitch + lane, rows, shared);
#pragma unroll
        for (int u = 0; u < ROWS; ++u)
#pragma unroll
            for (int x = 0; x < PER_LANE; ++x) {
                if (x * 32 >= limit[u]) continue;
                Acc value = scale(sum[u][x], args.alpha);
                if (args.beta != 0) value = add(value, scale(there[u][x], args.beta));
                out[u][x * 32] = Accumulator<T>::round(value);
            }
    }
}

}  // namespace packedtri::cuda
