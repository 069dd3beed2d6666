// The main loop for elements of 4 bytes and more: every thread copies in the background and
// multiplies.
#pragma once

#include "hopper.cuh"
#include "loader_async.cuh"
#include "loader_mirrored.cuh"
#include "main_loop.cuh"

namespace packedtri::cuda {

// MIRRORED: operands may be symmetric, and how they lie is known at run time only; whether they are K-major then tells how
// their tiles lie in shared memory.
template <class T_, class Mma_, int STAGES, bool A_K_MAJOR, bool B_K_MAJOR, bool MIRRORED = false>
class MainLoopAsync {
  public:
    using T = T_;
    using Mma = Mma_;
    using Acc = typename Mma::Acc;
    using Args = ProductArgs<T>;

  private:
    static constexpr int BK = Mma::BK;
    using LayoutA = typename Mma::template Layout<Mma::BM, A_K_MAJOR>;
    using LayoutB = typename Mma::template Layout<Mma::BN, B_K_MAJOR>;
    template <int R, bool K_MAJOR, class Layout>
    using Loader =
        std::conditional_t<MIRRORED, MirroredLoader<T, R, BK, Mma::THREADS, Layout, Mma::LANES_K>,
                           AsyncLoader<T, R, BK, Mma::THREADS, K_MAJOR, Layout, Mma::LANES_K>>;
    using LoadA = Loader<Mma::BM, A_K_MAJOR, LayoutA>;
    using LoadB = Loader<Mma::BN, B_K_MAJOR, LayoutB>;
    static constexpr int STAGE = LayoutA::size + LayoutB::size;

  public:
    using Index = int64_t;  // See product_kernel.
    static constexpr int THREADS = Mma::THREADS;
    static constexpr bool STORES = false;          // See compute_tile.
    static constexpr bool GRADED = Mma::BM == 64;  // See task_of.
    static constexpr int SHARED_BYTES = STAGES * STAGE * static_cast<int>(sizeof(T));

    // Computes `part` and gives it to `finish` when the shared memory is free again.
    template <class Finish>
    __device__ __forceinline__ static void run(const ProductArgs<T>& args, int64_t batch,
                                               const TilePart& part, char* shared, Finish finish) {
        MainLoopAsync loop(args, batch, part, shared);
        ptx::wait_for_dependency();
        // The zeros past a diagonal, times an infinite or nan element, are nan: such an element leaves its mark on
        // every sum that it enters.
        if (ptx::block_or<THREADS>(loop.template multiply_all<false>())) {
            Acc sums[Mma::ACCS];
            multiply_again(args, batch, part, shared, sums);
#pragma unroll
            for (int e = 0; e < Mma::ACCS; ++e) loop.mma_.acc[e] = sums[e];
        }
        finish(loop.mma_);
    }

  private:
    __device__ MainLoopAsync(const ProductArgs<T>& args, int64_t batch, const TilePart& part,
                             char* shared)
        : args_(args), part_(part), shared_(reinterpret_cast<T*>(shared)),
          load_a_(loader<LoadA>(at_batch(args.a, batch * args.a_batch_stride), args.a_kind, true,
                                args.a_k_major, part.i0, part.k0)),
          load_b_(loader<LoadB>(at_batch(args.b, batch * args.b_batch_stride), args.b_kind, false,
                                args.b_k_major, part.j0, part.k0)) {
        if constexpr (is_complex<T>) mma_.conj_b = args.conj_b;
        if constexpr (!MIRRORED) find_plain_steps();
    }

    template <class Load>
    __device__ static Load loader(const Panel<T>& panel, Kind kind, bool left, bool k_major, int r0,
                                  int k0) {
        if constexpr (MIRRORED) return {panel, kind, left, k_major, r0, k0};
        else return {panel, r0, k0};
    }

    __device__ __forceinline__ void find_plain_steps() {
        const BasicKRange<int> a = load_a_.full_range(), b = load_b_.full_range();
        const auto step_of = [&](int k) { return (k - part_.k0 + BK - 1) / BK; };
        plain_begin_ = max(0, step_of(max(a.begin, b.begin)));
        plain_steps_ = min(part_.steps, step_of(min(a.end, b.end))) - plain_begin_;
        if (plain_steps_ < 0) plain_steps_ = 0;
    }

    __device__ T* a_tile(int step) { return shared_ + step % STAGES * STAGE; }
    __device__ T* b_tile(int step) { return a_tile(step) + LayoutA::size; }
    __device__ int k_of(int step) const { return part_.k0 + step * BK; }

    // All of it once more, steps with structural zeros over stored elements only. A call, so that the registers that
    // this takes are not the main loop's.
    __device__ __noinline__ static void multiply_again(const ProductArgs<T>& args, int64_t batch,
                                                       const TilePart& part, char* shared,
                                                       Acc* sums) {
        MainLoopAsync loop(args, batch, part, shared);
        loop.template multiply_all<true>();
        ptx::block_sync<THREADS>();
        for (int e = 0; e < Mma::ACCS; ++e) sums[e] = loop.mma_.acc[e];
    }

    // STAGES - 1 steps are on their way to shared memory while one is multiplied. Returns whether zeros that are not
    // stored took part in sums that are not finite.
    template <bool EXACT>
    __device__ __forceinline__ bool multiply_all() {
        bool padded = false;
        // One loop also fills the pipeline before the first step, so that its code, which short sums wait for, is there
        // once.
#pragma unroll 1
        for (int s = 1 - STAGES; s < part_.steps; ++s) {
            const int next = s + STAGES - 1;
            const bool inner = plain(s);
            if (s >= 0) {
                ptx::cp_async_wait<STAGES - 2>();
                if (!inner) make_hermitian(s);
                ptx::block_sync<THREADS>();
            }
            const bool needed = inner || (s >= 0 && warp_needs(args_, mma_, part_, k_of(s))),
                       crosses = !inner && crosses_diagonal(s);
            if (needed && plain(next) && !(EXACT && crosses)) {
                mma_.template step<LayoutA, LayoutB>(a_tile(s), b_tile(s), [&](int x) {
                    load_a_.begin_part(a_tile(next), x, Mma::PARTS);
                    load_b_.begin_part(b_tile(next), x, Mma::PARTS);
                });
            } else {
                if (next < part_.steps) {
                    load_a_.begin(a_tile(next));
                    load_b_.begin(b_tile(next));
                }
                if (needed) multiply(s, EXACT && crosses);
            }
            padded |= needed && crosses;
            ptx::cp_async_commit();
        }
        ptx::cp_async_wait<0>();
        bool all_finite = true;
#pragma unroll
        for (int e = 0; e < Mma::ACCS; ++e) all_finite &= finite(mma_.acc[e]);
        return padded && !all_finite;
    }

    // Whether a step is known to hold stored elements of both operands only, which need no change.
    __device__ bool plain(int step) const {
        if (MIRRORED) return false;
        return static_cast<unsigned>(step - plain_begin_) < static_cast<unsigned>(plain_steps_);
    }

    // Whether it holds structural zeros.
    __device__ bool crosses_diagonal(int step) const {
        return load_a_.crosses_diagonal(k_of(step)) || load_b_.crosses_diagonal(k_of(step));
    }

    // Of tiles of Hermitian operands, when this thread's copies have landed.
    __device__ void make_hermitian(int step) {
        if constexpr (is_complex<T> && MIRRORED) {
            if (args_.a_hermitian) load_a_.make_hermitian(a_tile(step), k_of(step));
            if (args_.b_hermitian) load_b_.make_hermitian(b_tile(step), k_of(step));
        }
    }

    __device__ void multiply(int step, bool exact) {
        const T *a = a_tile(step), *b = b_tile(step);
        if (exact) multiply_stored<LayoutA, LayoutB>(args_, mma_, part_, a, b, k_of(step));
        else mma_.template step<LayoutA, LayoutB>(a, b, [](int) {});
    }

    const ProductArgs<T>& args_;
    const TilePart part_;
    T* shared_;
    int plain_begin_, plain_steps_;  // Those of plain().
    LoadA load_a_;
    LoadB load_b_;
    Mma mma_;
};

}  // namespace packedtri::cuda
