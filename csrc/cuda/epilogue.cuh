// Adds up the parts of a tile's sum and stores the tile, packed or dense.
#pragma once

#include <type_traits>

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
// block's memory takes long, so that all reads are under way at once. Of PARTS there may be fewer, `parts`.
template <class Mma, int PARTS, int ROWS, int WARPS>
__device__ __forceinline__ void sum_rows(typename Mma::Acc (&sum)[ROWS][Mma::BN / 32],
                                         const typename Mma::Acc* first, int rows, int first_rank,
                                         int parts) {
    constexpr int PER_LANE = Mma::BN / 32;
    typename Mma::Acc values[PARTS][ROWS][PER_LANE];
#pragma unroll
    for (int p = 0; p < PARTS; ++p) {
        const auto* origin = PARTS == 1 ? first : ptx::cluster_peer(first, first_rank + p);
#pragma unroll
        for (int u = 0; u < ROWS; ++u)
#pragma unroll
            for (int x = 0; x < PER_LANE; ++x)
                if (u < rows && p < parts)
                    values[p][u][x] = origin[u * WARPS * Staging<Mma>::pitch + x * 32];
    }
#pragma unroll
    for (int u = 0; u < ROWS; ++u)
#pragma unroll
        for (int x = 0; x < PER_LANE; ++x) {
            if (u >= rows) continue;
            sum[u][x] = values[0][u][x];
#pragma unroll
            for (int p = 1; p < PARTS; ++p)
                if (p < parts) sum[u][x] = add(sum[u][x], values[p][u][x]);
            // What is read of others is here before this block says that it needs no more.
            if (PARTS > 1) keep(sum[u][x]);
        }
}

// Stores alpha times rows [first, last) of the tile at (i0, j0), plus beta times what is there. What
// several rows hold is read before the first of them is stored, for reading takes long.
template <class Mma, int THREADS, int PARTS, class T>
__device__ __forceinline__ void store_rows(const ProductArgs<T>& args, T* c,
                                           const typename Mma::Acc* staging, int first_rank,
                                           int parts, int i0, int j0, int first, int last) {
    using Acc = typename Mma::Acc;
    constexpr int WARPS = THREADS / 32, PER_LANE = Mma::BN / 32;
    // So many at once that what is read of them takes 64 registers.
    constexpr int ROWS_OF_64 = 256 / (PARTS * PER_LANE * static_cast<int>(sizeof(Acc))),
                  ROWS = ROWS_OF_64 > 4 ? 4 : ROWS_OF_64;
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
        sum_rows<Mma, PARTS, ROWS, WARPS>(sum, staging + r0 * Staging<Mma>::pitch + lane, rows,
                                          first_rank, parts);
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

// This block's share of the rows of a tile whose sum `shared` says who has.
template <class Mma, int THREADS, class T>
__device__ __forceinline__ void store_share(const ProductArgs<T>& args, T* c,
                                            const typename Mma::Acc* staging,
                                            const SharedSum& shared, int i0, int j0) {
    const int first = shared.first_row(shared.part, Mma::BM),
              last = shared.first_row(shared.part + 1, Mma::BM);
    const auto store = [&](auto most, int parts) {
        store_rows<Mma, THREADS, decltype(most)::value>(args, c, staging, shared.first_rank, parts,
                                                        i0, j0, first, last);
    };
    if (shared.parts == 8) store(std::integral_constant<int, 8>{}, 8);
    else if (shared.parts == 2) store(std::integral_constant<int, 2>{}, 2);
    else store(std::integral_constant<int, 4>{}, shared.parts);
}

}  // namespace packedtri::cuda
