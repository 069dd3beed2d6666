// The main loop for elements of 4 bytes and more: every thread copies in the background and
// multiplies.
#pragma once

#include "loader_async.cuh"
#include "main_loop.cuh"

namespace packedtri::cuda {

template <class T_, class Mma_, int STAGES, bool A_K_MAJOR, bool B_K_MAJOR>
class MainLoopAsync {
  public:
    using T = T_;
    using Mma = Mma_;

  private:
    static constexpr int BK = Mma::BK;
    using LayoutA = typename Mma::template Layout<Mma::BM, A_K_MAJOR>;
    using LayoutB = typename Mma::template Layout<Mma::BN, B_K_MAJOR>;
    using LoadA = AsyncLoader<T, Mma::BM, BK, Mma::THREADS, A_K_MAJOR, LayoutA, Mma::LANES_K>;
    using LoadB = AsyncLoader<T, Mma::BN, BK, Mma::THREADS, B_K_MAJOR, LayoutB, Mma::LANES_K>;
    static constexpr int STAGE = LayoutA::size + LayoutB::size;

  public:
    using Index = int64_t;  // See product_kernel.
    static constexpr int THREADS = Mma::THREADS;
    static constexpr bool STORES = false;  // See compute_tile.
    static constexpr int SHARED_BYTES = STAGES * STAGE * static_cast<int>(sizeof(T));

    // Computes `part` and gives it to `finish` when the shared memory is free again.
    template <class Finish>
    __device__ static void run(const ProductArgs<T>& args, int64_t batch, const TilePart& part,
                               char* shared, Finish finish) {
        MainLoopAsync loop(args, batch, part, shared);
        loop.multiply_all();
        ptx::block_sync<THREADS>();
        finish(loop.mma_);
    }

  private:
    __device__ MainLoopAsync(const ProductArgs<T>& args, int64_t batch, const TilePart& part,
                             char* shared)
        : args_(args), part_(part), shared_(reinterpret_cast<T*>(shared)),
          load_a_(at_batch(args.a, batch * args.a_batch_stride), part.i0, part.k0),
          load_b_(at_batch(args.b, batch * args.b_batch_stride), part.j0, part.k0) {
        if constexpr (is_complex<T>) mma_.conj_b = args.conj_b;
        const KRange a = load_a_.full_range(), b = load_b_.full_range();
        plain_ = {max(a.begin, b.begin), min(a.end, b.end)};
        if (is_complex<T> && (args.a_hermitian || args.b_hermitian)) plain_ = {0, 0};
    }

    __device__ T* a_tile(int step) { return shared_ + step % STAGES * STAGE; }
    __device__ T* b_tile(int step) { return a_tile(step) + LayoutA::size; }
    __device__ int k_of(int step) const { return part_.k0 + step * BK; }

    // STAGES - 1 steps are on their way to shared memory while one is multiplied.
    __device__ void multiply_all() {
#pragma unroll
        for (int s = 0; s < STAGES - 1; ++s) {
            begin(s);
            ptx::cp_async_commit();
        }
        for (int s = 0; s < part_.steps; ++s) {
            ptx::cp_async_wait<STAGES - 2>();
            const int next = s + STAGES - 1;
            if (plain(s) && plain(next)) {
                ptx::block_sync<THREADS>();
                mma_.template step<LayoutA, LayoutB>(a_tile(s), b_tile(s), [&](int x) {
                    load_a_.begin_part(a_tile(next), x, Mma::PARTS);
                    load_b_.begin_part(b_tile(next), x, Mma::PARTS);
                });
            } else {
                const bool exact = ready(s);
                begin(next);
                multiply(s, exact);
            }
            ptx::cp_async_commit();
        }
        ptx::cp_async_wait<0>();
    }

    // Whether a step holds stored elements of both operands only, which need no change.
    __device__ bool plain(int step) const {
        const int k = k_of(step);
        return step < part_.steps && k >= plain_.begin && k < plain_.end;
    }

    __device__ void begin(int step) {
        if (step >= part_.steps) return;
        load_a_.begin(a_tile(step));
        load_b_.begin(b_tile(step));
    }

    // Waits for every thread's share of a step. Returns whether it needs multiply_stored.
    __device__ bool ready(int step) {
        if constexpr (is_complex<T>) {
            if (args_.a_hermitian)
                load_a_.make_hermitian(a_tile(step), k_of(step), args_.a_kind == Kind::Upper);
            if (args_.b_hermitian)
                load_b_.make_hermitian(b_tile(step), k_of(step), args_.b_kind == Kind::Upper);
        }
        if (load_a_.crosses_diagonal(k_of(step)) || load_b_.crosses_diagonal(k_of(step)))
            return ptx::block_or<THREADS>(load_a_.any_nonfinite(a_tile(step)) ||
                                          load_b_.any_nonfinite(b_tile(step)));
        ptx::block_sync<THREADS>();
        return false;
    }

    __device__ void multiply(int step, bool exact) {
        const T *a = a_tile(step), *b = b_tile(step);
        if (exact) multiply_stored<LayoutA, LayoutB>(args_, mma_, part_, a, b, k_of(step));
        else if (warp_needs(args_, mma_, part_, k_of(step)))
            mma_.template step<LayoutA, LayoutB>(a, b, [](int) {});
    }

    const ProductArgs<T>& args_;
    const TilePart part_;
    T* shared_;
    KRange plain_;
    LoadA load_a_;
    LoadB load_b_;
    Mma mma_;
};

}  // namespace packedtri::cuda
