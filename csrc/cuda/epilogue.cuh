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

// One row of a tile, summed over `parts` staging areas in the order of their ranks, so that the
// result does not depend on timing. Lane l has every 32nd element from l on.
template <class Mma>
__device__ void sum_row(typename Mma::Acc (&sum)[Mma::BN / 32], const typename Mma::Acc* row,
                        int parts) {
#pragma unroll
    for (int x = 0; x < Mma::BN / 32; ++x)
        sum[x] = (parts > 1 ? ptx::cluster_peer(row, 0) : row)[x * 32];
    for (int p = 1; p < parts; ++p) {
        const typename Mma::Acc* peer = ptx::cluster_peer(row, p);
#pragma unroll
        for (int x = 0; x < Mma::BN / 32; ++x) sum[x] += peer[x * 32];
    }
}

// Where this lane's elements of row r of the tile at (i0, j0) go, and how many are left in the row.
template <class T>
struct RowPlace {
    T* out;
    int limit;
    __device__ RowPlace(const ProductArgs<T>& args, T* c, int i0, int j0, int r) {
        const int lane = threadIdx.x % 32;
        out = c + row_offset(i0 + r, args.c_ld, args.c_packed) + j0 + lane;
        limit = (args.c_lower ? min(i0 + r + 1, args.n) : args.n) - j0 - lane;
    }
};

// Adds alpha times rows [first, last) of a tile to beta times what is there. What several rows hold
// is read before the first of them is stored, for reading takes long. A call, so that the registers
// that this takes are not the main loop's.
template <class Mma, int THREADS, class T>
__device__ __noinline__ void add_rows(const ProductArgs<T>& args, T* c,
                                      const typename Mma::Acc* staging, int parts, int i0, int j0,
                                      int first, int last) {
    using Acc = typename Mma::Acc;
    constexpr int WARPS = THREADS / 32, PER_LANE = Mma::BN / 32, ROWS = 4;
#pragma unroll 1
    for (int r0 = first + threadIdx.x / 32; r0 < last; r0 += ROWS * WARPS) {
        Acc there[ROWS][PER_LANE];
#pragma unroll
        for (int u = 0; u < ROWS; ++u) {
            const int r = r0 + u * WARPS;
            const RowPlace<T> place(args, c, i0, j0, r);
#pragma unroll
            for (int x = 0; x < PER_LANE; ++x)
                if (r < last && x * 32 < place.limit)
                    there[u][x] = Accumulator<T>::widen(place.out[x * 32]);
        }
#pragma unroll
        for (int u = 0; u < ROWS; ++u) {
            const int r = r0 + u * WARPS;
            if (r >= last) break;
            const RowPlace<T> place(args, c, i0, j0, r);
            Acc sum[PER_LANE];
            sum_row<Mma>(sum, staging + r * Staging<Mma>::pitch + threadIdx.x % 32, parts);
#pragma unroll
            for (int x = 0; x < PER_LANE; ++x)
                if (x * 32 < place.limit)
                    place.out[x * 32] = Accumulator<T>::round(
                        add(scale(sum[x], args.alpha), scale(there[u][x], args.beta)));
        }
    }
}

// Stores alpha times rows [first, last) of the tile at (i0, j0), plus beta times what is there.
template <class Mma, int THREADS, class T>
__device__ void store_rows(const ProductArgs<T>& args, T* c, const typename Mma::Acc* staging,
                           int parts, int i0, int j0, int first, int last) {
    using Acc = typename Mma::Acc;
    constexpr int WARPS = THREADS / 32, PER_LANE = Mma::BN / 32;
    last = min(last, args.m - i0);
    if (args.beta != 0) return add_rows<Mma, THREADS>(args, c, staging, parts, i0, j0, first, last);
    for (int r = first + threadIdx.x / 32; r < last; r += WARPS) {
        const RowPlace<T> place(args, c, i0, j0, r);
        Acc sum[PER_LANE];
        sum_row<Mma>(sum, staging + r * Staging<Mma>::pitch + threadIdx.x % 32, parts);
#pragma unroll
        for (int x = 0; x < PER_LANE; ++x)
            if (x * 32 < place.limit)
                place.out[x * 32] = Accumulator<T>::round(scale(sum[x], args.alpha));
    }
}

}  // namespace packedtri::cuda
