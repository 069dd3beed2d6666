// Adds up the parts of a tile's sum and stores the tile, packed or dense.
#pragma once

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

// Stores rows [first, last) of the tile at (i0, j0), summed over `parts` staging areas in the order
// of their ranks, so that the result does not depend on timing; times alpha, plus beta times what is
// there.
template <class Mma, int THREADS, class T>
__device__ void store_rows(const ProductArgs<T>& args, T* c, const typename Mma::Acc* staging,
                           int parts, int i0, int j0, int first, int last) {
    using Acc = typename Mma::Acc;
    constexpr int WARPS = THREADS / 32, PER_LANE = Mma::BN / 32;
    const int lane = threadIdx.x % 32;
    last = min(last, args.m - i0);
    for (int r = first + threadIdx.x / 32; r < last; r += WARPS) {
        Acc sum[PER_LANE];
        const Acc* row = staging + r * Staging<Mma>::pitch + lane;
#pragma unroll
        for (int x = 0; x < PER_LANE; ++x)
            sum[x] = (parts > 1 ? ptx::cluster_peer(row, 0) : row)[x * 32];
        for (int p = 1; p < parts; ++p) {
            const Acc* peer = ptx::cluster_peer(row, p);
#pragma unroll
            for (int x = 0; x < PER_LANE; ++x) sum[x] += peer[x * 32];
        }
        const int i = i0 + r;
        T* out = c + row_offset(i, args.c_ld, args.c_packed) + j0 + lane;
        const int limit = (args.c_lower ? min(i + 1, args.n) : args.n) - j0 - lane;
#pragma unroll
        for (int x = 0; x < PER_LANE; ++x) {
            if (x * 32 >= limit) continue;
            sum[x] = scale(sum[x], args.alpha);
            if (args.beta != 0)
                sum[x] = add(sum[x], scale(Accumulator<T>::widen(out[x * 32]), args.beta));
            out[x * 32] = Accumulator<T>::round(sum[x]);
        }
    }
}

}  // namespace packedtri::cuda
