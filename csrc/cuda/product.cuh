// The product kernel: schedule x loaders x k-range x main loop x epilogue.
#pragma once

#include "epilogue.cuh"
#include "loader_async.cuh"
#include "loader_staged.cuh"
#include "panel.cuh"

namespace packedtri::cuda {

template <class T, class Mma, int R, bool K_MAJOR>
using LayoutFor = typename Mma::template Layout<R, K_MAJOR>;

// 16-bit elements cannot be copied one by one in the background.
template <class T, class Mma, int R, bool K_MAJOR, bool STAGED = sizeof(T) == 2>
struct LoaderFor {
    using Layout = LayoutFor<T, Mma, R, K_MAJOR>;
    using type = AsyncLoader<T, R, Mma::BK, Mma::THREADS, K_MAJOR, Layout, Mma::LANES_K>;
};
template <class T, class Mma, int R, bool K_MAJOR>
struct LoaderFor<T, Mma, R, K_MAJOR, true> {
    using Layout = LayoutFor<T, Mma, R, K_MAJOR>;
    using type = StagedLoader<T, R, Mma::BK, Mma::THREADS, Layout>;
};

// One instance of the kernel: element type, tile product, pipeline depth, and whether memory rows
// of A and of B run along k.
template <class T_, class Mma_, int STAGES_, int BLOCKS_PER_SM_, bool A_K_MAJOR, bool B_K_MAJOR>
struct ProductTraits {
    using T = T_;
    using Mma = Mma_;
    using LoadA = LoaderFor<T, Mma, Mma::BM, A_K_MAJOR>;
    using LoadB = LoaderFor<T, Mma, Mma::BN, B_K_MAJOR>;
    static constexpr int STAGES = STAGES_, BLOCKS_PER_SM = BLOCKS_PER_SM_;
    static constexpr int A_SIZE = LoadA::Layout::size, STAGE_SIZE = A_SIZE + LoadB::Layout::size;
    static constexpr int PIPELINE_BYTES = STAGES * STAGE_SIZE * static_cast<int>(sizeof(T));
    static constexpr int SHARED_BYTES =
        PIPELINE_BYTES > Staging<Mma>::bytes ? PIPELINE_BYTES : Staging<Mma>::bytes;
};

// The part of one tile's sum that a block computes.
template <class Traits>
class TileSum {
    using T = typename Traits::T;
    using Mma = typename Traits::Mma;
    using LayoutA = typename Traits::LoadA::Layout;
    using LayoutB = typename Traits::LoadB::Layout;
    static constexpr int BK = Mma::BK;

  public:
    Mma mma;

    __device__ TileSum(const ProductArgs<T>& args, int batch, int i0, int j0, T* shared)
        : args_(args), shared_(shared), i0_(i0), j0_(j0),
          load_a_(at_batch(args.a, batch * args.a_batch_stride), i0),
          load_b_(at_batch(args.b, batch * args.b_batch_stride), j0) {}

    // Adds steps [first, last) of BK each, the first of which begins at k0.
    __device__ void run(int k0, int steps) {
        if constexpr (Traits::LoadA::type::asynchronous) run_asynchronous(k0, steps);
        else run_staged(k0, steps);
        __syncthreads();
    }

  private:
    __device__ static Panel<T> at_batch(Panel<T> panel, int64_t offset) {
        panel.data += offset;
        return panel;
    }
    __device__ T* a_tile(int step) { return shared_ + step % Traits::STAGES * Traits::STAGE_SIZE; }
    __device__ T* b_tile(int step) { return a_tile(step) + Traits::A_SIZE; }

    // STAGES - 1 steps are on their way to shared memory while one is multiplied.
    __device__ void run_asynchronous(int k0, int steps) {
#pragma unroll
        for (int s = 0; s < Traits::STAGES - 1; ++s) begin(k0, s, steps);
        for (int s = 0; s < steps; ++s) {
            ptx::cp_async_wait<Traits::STAGES - 2>();
            const bool exact = ready(s, k0 + s * BK);
            begin(k0, s + Traits::STAGES - 1, steps);
            multiply(s, k0 + s * BK, exact);
        }
        ptx::cp_async_wait<0>();
    }
    __device__ void begin(int k0, int step, int steps) {
        if (step < steps) {
            load_a_.begin(a_tile(step), k0 + step * BK);
            load_b_.begin(b_tile(step), k0 + step * BK);
        }
        ptx::cp_async_commit();
    }

    // One step is in registers while another is multiplied.
    __device__ void run_staged(int k0, int steps) {
        if (steps > 0) fetch(k0);
        if (steps > 0) stash(0);
        if (steps > 1) fetch(k0 + BK);
        for (int s = 0; s < steps; ++s) {
            const bool exact = ready(s, k0 + s * BK);
            multiply(s, k0 + s * BK, exact);
            if (s + 1 < steps) stash(s + 1);
            if (s + 2 < steps) fetch(k0 + (s + 2) * BK);
        }
    }
    __device__ void fetch(int k) {
        load_a_.begin(k);
        load_b_.begin(k);
    }
    __device__ void stash(int step) {
        load_a_.finish(a_tile(step));
        load_b_.finish(b_tile(step));
    }

    // Waits for every thread's share of a step. Returns whether the step must be multiplied
    // element by element: zeros that pad one operand past its diagonal would turn an infinite or
    // nan element of the other into a nan that is not part of the product.
    __device__ bool ready(int step, int k) {
        if (load_a_.crosses_diagonal(k) || load_b_.crosses_diagonal(k))
            return __syncthreads_or(load_a_.any_nonfinite(a_tile(step)) ||
                                    load_b_.any_nonfinite(b_tile(step)));
        __syncthreads();
        return false;
    }

    __device__ void multiply(int step, int k, bool exact) {
        if (exact) multiply_stored(a_tile(step), b_tile(step), k);
        else if (warp_needs(k)) mma.template step<LayoutA, LayoutB>(a_tile(step), b_tile(step));
    }

    // Near a diagonal, the part of the tile that a warp computes may need none of a step.
    __device__ bool warp_needs(int k) const {
        const int i = i0_ + mma.warp_row(), j = j0_ + mma.warp_col();
        const KRange range =
            k_range(args_.a_kind, args_.b_kind, i, i + Mma::WM, j, j + Mma::WN, args_.k);
        return k < range.end && k + BK > range.begin;
    }

    __device__ void multiply_stored(const T* a, const T* b, int k0) {
        for (int k = 0; k < BK; ++k) {
#pragma unroll
            for (int e = 0; e < Mma::ACCS; ++e) {
                const int r = mma.row0 + Mma::row_of_acc(e), c = mma.col0 + Mma::col_of_acc(e);
                const int i = i0_ + r, j = j0_ + c;
                const KRange range =
                    k_range(args_.a_kind, args_.b_kind, i, i + 1, j, j + 1, args_.k);
                if (k0 + k >= range.begin && k0 + k < range.end)
                    fma_into(mma.acc[e], Accumulator<T>::widen(a[LayoutA::at(r, k)]),
                             Accumulator<T>::widen(b[LayoutB::at(c, k)]));
            }
        }
    }

    const ProductArgs<T>& args_;
    T* shared_;
    int i0_, j0_;
    typename Traits::LoadA::type load_a_;
    typename Traits::LoadB::type load_b_;
};

template <class Traits>
__global__ void __launch_bounds__(Traits::Mma::THREADS, Traits::BLOCKS_PER_SM)
    product_kernel(const __grid_constant__ ProductArgs<typename Traits::T> args) {
    using T = typename Traits::T;
    using Mma = typename Traits::Mma;
    extern __shared__ __align__(16) char shared[];

    const int64_t work = blockIdx.x / args.split;
    const Schedule::Tile tile = args.schedule.at(work / args.batch);
    if (!tile.exists) return;
    const int batch = static_cast<int>(work % args.batch);
    const int i0 = tile.i * Mma::BM, j0 = tile.j * Mma::BN;
    const int rank = blockIdx.x % args.split;

    const KRange range =
        k_range(args.a_kind, args.b_kind, i0, i0 + Mma::BM, j0, j0 + Mma::BN, args.k);
    const int64_t steps = ceil_div(range.length(), Mma::BK);
    const int first = static_cast<int>(steps * rank / args.split),
              last = static_cast<int>(steps * (rank + 1) / args.split);

    TileSum<Traits> sum(args, batch, i0, j0, reinterpret_cast<T*>(shared));
    sum.run(static_cast<int>(range.begin) + first * Mma::BK, last - first);

    auto* staging = reinterpret_cast<typename Mma::Acc*>(shared);
    Staging<Mma>::put(sum.mma, staging);
    T* c = args.c + batch * args.c_batch_stride;
    if (args.split == 1) {
        __syncthreads();
        store_rows<Mma>(args, c, staging, 1, i0, j0, 0, Mma::BM);
        return;
    }
    ptx::cluster_sync();
    store_rows<Mma>(args, c, staging, args.split, i0, j0, Mma::BM * rank / args.split,
                    Mma::BM * (rank + 1) / args.split);
    ptx::cluster_sync();  // A block's shared memory must outlive its peers' reads.
}

}  // namespace packedtri::cuda
