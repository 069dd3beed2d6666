// The main loop for float64 on Hopper: one warpgroup feeds the copy engine, the others only
// multiply.
#pragma once

#include "loader_bulk.cuh"
#include "main_loop.cuh"
#include "ring.cuh"
#include "tile.cuh"

namespace packedtri::cuda {

// A BM x BN tile by warps of WM x WN each, in 16 x 8 x 16 products of rows and columns whose order
// the tiles' layouts change.
template <int BM_, int BN_, int BK_, int WM_, int WN_, bool A_K_MAJOR, bool B_K_MAJOR>
struct MmaBulkF64 {
    using Acc = double;
    static constexpr int BM = BM_, BN = BN_, BK = BK_;
    static constexpr int WM = WM_, WN = WN_;
    static constexpr int THREADS = 32 * (BM / WM_) * (BN / WN_);
    using Grid = WarpGrid<BM / WM_, BN / WN_>;
    using TileA = BulkTile<BM, BK, A_K_MAJOR>;
    using TileB = BulkTile<BN, BK, B_K_MAJOR>;
    static constexpr int MT = WM / 16, NT = WN / 8;
    static constexpr int ACCS = MT * NT * 4;
    static constexpr int COL_STEP = B_K_MAJOR ? 4 : 1;  // From an even place to the next.
    static constexpr int RUN = B_K_MAJOR ? 1 : 2;  // Runs of accumulators, neighbours in a row.

    double acc[ACCS] = {};
    int row0, col0;  // This lane's first element in the tile.

    __device__ MmaBulkF64() {
        const int lane = threadIdx.x % 32;
        row0 = warp_row() + BulkFragment<TileA>::row(lane / 4);
        col0 = warp_col() + BulkFragment<TileB>::row(lane % 4 * 2);
    }
    __device__ int warp_row() const { return Grid::row(threadIdx.x / 32) * WM; }
    __device__ int warp_col() const { return Grid::col(threadIdx.x / 32) * WN; }

    __device__ static int row_of_acc(int e) { return e / 4 / NT * 16 + e % 4 / 2 * 8; }
    __device__ static int col_of_acc(int e) { return e / 4 % NT * 8 + e % 2 * COL_STEP; }
};

template <class Mma_, int STAGES>
class MainLoopBulk {
  public:
    using T = double;
    using Mma = Mma_;

  private:
    static constexpr int BK = Mma::BK, MT = Mma::MT, NT = Mma::NT;
    using TileA = typename Mma::TileA;
    using TileB = typename Mma::TileB;
    static constexpr int STAGE = TileA::size + TileB::size;
    static constexpr int TILE_BYTES = STAGES * STAGE * 8;
    static constexpr int PRODUCERS = 128;
    // Per thread; the first is what the kernel starts with, for one block on a multiprocessor.
    static constexpr int REGISTERS = 168, PRODUCER_REGISTERS = 40, CONSUMER_REGISTERS = 232;
    static_assert(Mma::THREADS == 256, "registers are counted for two warpgroups that multiply");

  public:
    using Index = int64_t;  // See product_kernel.
    static constexpr int THREADS = Mma::THREADS + PRODUCERS;
    static constexpr bool STORES = false;  // See compute_tile.
    static constexpr int SHARED_BYTES = TILE_BYTES + static_cast<int>(sizeof(Ring<STAGES>));

    // Computes `part` and gives it to `finish`, in the threads that have it, when the shared memory
    // is free again.
    template <class Finish>
    __device__ static void run(const ProductArgs<T>& args, int64_t batch, const TilePart& part,
                               char* shared, Finish finish) {
#if __CUDA_ARCH__ >= 900
        MainLoopBulk loop(args, batch, part, shared);
        if (threadIdx.x == 0) loop.ring_.start(PRODUCERS, Mma::THREADS);
        __syncthreads();
        Mma mma;
        const bool producer = threadIdx.x >= Mma::THREADS;
        // The meeting lies between giving back and taking, or the producers of a short sum could
        // take their registers back before the others have come for them. It has two places in the
        // code, which a barrier of the whole block must not have.
        const auto meet = [] { ptx::barrier_sync(1, THREADS); };
        if (producer) {
            ptx::keep_registers<PRODUCER_REGISTERS>();
            loop.produce();
            meet();
            ptx::take_registers<REGISTERS>();
        } else {
            ptx::take_registers<CONSUMER_REGISTERS>();
            loop.consume(mma);
            ptx::keep_registers<REGISTERS>();
            meet();
        }
        if (!producer) finish(mma);
#endif
    }

  private:
    __device__ MainLoopBulk(const ProductArgs<T>& args, int64_t batch, const TilePart& part,
                            char* shared)
        : args_(args), part_(part), tiles_(reinterpret_cast<T*>(shared)),
          ring_(*reinterpret_cast<Ring<STAGES>*>(shared + TILE_BYTES)),
          a_(at_batch(args.a, batch * args.a_batch_stride), part.i0),
          b_(at_batch(args.b, batch * args.b_batch_stride), part.j0) {}

    __device__ T* a_tile(int step) { return tiles_ + step % STAGES * STAGE; }
    __device__ T* b_tile(int step) { return a_tile(step) + TileA::size; }
    __device__ int k_of(int step) const { return part_.k0 + step * BK; }

    __device__ void produce() {
        const int thread = threadIdx.x - Mma::THREADS;
        for (int s = 0; s < part_.steps; ++s) {
            ring_.wait_empty(s);
            a_.begin(a_tile(s), k_of(s), ring_.full(s), thread, PRODUCERS);
            b_.begin(b_tile(s), k_of(s), ring_.full(s), thread, PRODUCERS);
            ptx::mbarrier_arrive(ring_.full(s));
        }
    }

    __device__ void consume(Mma& mma) {
        const BulkFragment<TileA> a(a_, mma.warp_row(), part_.k0);
        const BulkFragment<TileB> b(b_, mma.warp_col(), part_.k0);
        for (int s = 0; s < part_.steps; ++s) {
            ring_.wait_full(s);
            if (a_.full(k_of(s), BK) && b_.full(k_of(s), BK)) {
#pragma unroll
                for (int k = 0; k < BK; k += 16) multiply(mma, a, b, s, k);
            } else {
#pragma unroll 1
                for (int k = 0; k < BK; k += 16) multiply_edge(mma, a, b, s, k);
            }
            ptx::mbarrier_arrive(ring_.empty(s));
        }
    }

    // 16 steps from step k of pipeline step s on, all of stored elements.
    __device__ void multiply(Mma& mma, const BulkFragment<TileA>& a, const BulkFragment<TileB>& b,
                             int s, int k) {
        double x[MT][8];
#pragma unroll
        for (int e = 0; e < MT * 8; ++e)
            x[e / 8][e % 8] = a.read(a_tile(s), k, e / 8 * 2 + e % 2, e % 8 / 2);
#pragma unroll
        for (int n = 0; n < NT; ++n) {
            double y[4];
#pragma unroll
            for (int e = 0; e < 4; ++e) y[e] = b.read(b_tile(s), k, n, e);
#pragma unroll
            for (int m = 0; m < MT; ++m) ptx::mma_16816(mma.acc + (m * NT + n) * 4, x[m], y);
        }
    }

    // The same near a diagonal or an edge: only stored elements enter, and only products that the
    // warp's part of the tile needs are made.
    __device__ void multiply_edge(Mma& mma, const BulkFragment<TileA>& a,
                                  const BulkFragment<TileB>& b, int s, int k) {
        const int i = part_.i0 + mma.warp_row(), j = part_.j0 + mma.warp_col();
        if (i >= args_.m || j >= args_.n || !needs(i, j, Mma::WN, k_of(s) + k)) return;
        double x[MT][8];
        bool exact = false;
#pragma unroll
        for (int e = 0; e < MT * 8; ++e) {
            double& value = x[e / 8][e % 8];
            value = a.read_stored(a_tile(s), k_of(s), k, e / 8 * 2 + e % 2, e % 8 / 2);
            exact |= !finite(value);
        }
#pragma unroll
        for (int e = 0; e < NT * 4; ++e)
            exact |= !finite(b.read_stored(b_tile(s), k_of(s), k, e / 4, e % 4));
        if (__any_sync(0xffffffffu, exact)) return multiply_exact(mma, s, k);
#pragma unroll
        for (int n = 0; n < NT; ++n) {
            if (!needs(i, j + n * 8, 8, k_of(s) + k)) continue;
            double y[4];
#pragma unroll
            for (int e = 0; e < 4; ++e) y[e] = b.read_stored(b_tile(s), k_of(s), k, n, e);
#pragma unroll
            for (int m = 0; m < MT; ++m) ptx::mma_16816(mma.acc + (m * NT + n) * 4, x[m], y);
        }
    }

    // Whether the warp's rows, from i on, and `cols` columns from j on need steps [k, k + 16).
    __device__ bool needs(int i, int j, int cols, int k) const {
        const KRange range =
            k_range(args_.a_kind, args_.b_kind, i, i + Mma::WM, j, j + cols, args_.k);
        return k < range.end && k + 16 > range.begin;
    }

    // See multiply_stored. What follows from rows and columns is hidden from the compiler, which
    // would keep all of it in registers that the sums need.
    __device__ void multiply_exact(Mma& mma, int s, int k16) {
#pragma unroll 1
        for (int k = k16; k < k16 + 16; ++k)
#pragma unroll
            for (int h = 0; h < 2 * MT; ++h) {
                const int r = ptx::hidden(mma.row0 + 8 * h);
                if (!a_.stored(r, k_of(s) + k)) continue;
                const double x = a_.at(a_tile(s), r, k, k_of(s));
#pragma unroll
                for (int n = 0; n < 2 * NT; ++n) {
                    const int c = ptx::hidden(mma.col0 + n / 2 * 8 + n % 2 * Mma::COL_STEP);
                    if (b_.stored(c, k_of(s) + k))
                        fma_into(mma.acc[(h / 2 * NT + n / 2) * 4 + h % 2 * 2 + n % 2], x,
                                 b_.at(b_tile(s), c, k, k_of(s)));
                }
            }
    }

    const ProductArgs<T>& args_;
    const TilePart part_;
    T* tiles_;
    Ring<STAGES>& ring_;
    const BulkOperand<TileA> a_;
    const BulkOperand<TileB> b_;
};

}  // namespace packedtri::cuda
