// The main loop for 16-bit elements: while the products of one step run, the rows of the next are cut
// out of the words that hold them, and words of later steps are on their way.
#pragma once

#include "hopper.cuh"
#include "loader_cut.cuh"
#include "main_loop.cuh"

namespace packedtri::cuda {

template <class T_, class Mma_, int STAGES, bool A_K_MAJOR, bool B_K_MAJOR>
class MainLoopCut {
  public:
    using T = T_;
    using Mma = Mma_;

  private:
    static constexpr int BK = Mma::BK, BUFFERS = Mma::TILE_BUFFERS;
    using LayoutA = typename Mma::template Layout<Mma::BM, A_K_MAJOR>;
    using LayoutB = typename Mma::template Layout<Mma::BN, B_K_MAJOR>;
    using LoadA = CutLoader<T, Mma::BM, BK, Mma::THREADS, LayoutA>;
    using LoadB = CutLoader<T, Mma::BN, BK, Mma::THREADS, LayoutB>;
    static constexpr int TILES = LayoutA::size + LayoutB::size,
                         RAW = LoadA::RAW_SIZE + LoadB::RAW_SIZE;

  public:
    using Index = int;  // See product_kernel.
    static constexpr int THREADS = Mma::THREADS;
    static constexpr int SHARED_BYTES =
        (BUFFERS * TILES + STAGES * RAW) * static_cast<int>(sizeof(T));

    // Computes `part` and gives it to `finish` when the shared memory is free again.
    template <class Finish>
    __device__ static void run(const ProductArgs<T>& args, int64_t batch, const TilePart& part,
                               char* shared, Finish finish) {
        MainLoopCut loop(args, batch, part, shared);
        Mma mma;
        const bool done = loop.multiply_all(mma);
        __syncthreads();
        if (done) return finish(mma);
        // Sums of their own, so that those above are of tensor cores only, which may then stay busy
        // from step to step.
        Mma exact;
        multiply_stored_elements(args, batch, part, shared, exact);
        finish(exact);
    }

  private:
    __device__ MainLoopCut(const ProductArgs<T>& args, int64_t batch, const TilePart& part,
                           char* shared)
        : args_(args), part_(part), shared_(reinterpret_cast<T*>(shared)),
          load_a_(at_batch(args.a, batch * args.a_batch_stride), part.i0, part.k0),
          load_b_(at_batch(args.b, batch * args.b_batch_stride), part.j0, part.k0) {
        const KRange a = load_a_.plain_range(), b = load_b_.plain_range();
        plain_ = {static_cast<int>(max(a.begin, b.begin)), static_cast<int>(min(a.end, b.end))};
    }

    __device__ T* a_tile(int step) { return shared_ + step % BUFFERS * TILES; }
    __device__ T* b_tile(int step) { return a_tile(step) + LayoutA::size; }
    __device__ T* a_raw(int step) { return shared_ + BUFFERS * TILES + step % STAGES * RAW; }
    __device__ T* b_raw(int step) { return a_raw(step) + LoadA::RAW_SIZE; }
    __device__ int k_of(int step) const { return part_.k0 + step * BK; }

    // Returns false as soon as a step needs multiply_stored. One loop also fills the pipeline before
    // the first step, so that its code, which short sums wait for, is there once.
    __device__ bool multiply_all(Mma& mma) {
        bool done = true;
#pragma unroll 1
        for (int s = 1 - STAGES; s < part_.steps; ++s) {
            if (s >= 0) {
                done = multiply(mma, s);
                if (!done) break;
            }
            // After the tiles are published, which would wait for these copies too.
            begin(s + STAGES - 1);
        }
        mma.template wait<0>();
        ptx::cp_async_wait<0>();
        return done;
    }

    __device__ __forceinline__ bool multiply(Mma& mma, int s) {
        ptx::cp_async_wait<STAGES - 2>();
        mma.template wait<BUFFERS - 1>();
        __syncthreads();
        const auto a = load_a_.read(a_raw(s));
        const auto b = load_b_.read(b_raw(s));
        if (plain(s)) {
            load_a_.template cut<true>(a, a_tile(s), k_of(s));
            load_b_.template cut<true>(b, b_tile(s), k_of(s));
            Mma::publish_tiles();
            __syncthreads();
        } else {
            // Zeros of one operand must not meet an infinite or nan element of the other.
            if (__syncthreads_or(cut(s, a, b))) return false;
        }
        // What runs in the background must not depend on a branch.
        if (BUFFERS > 1 || warp_needs(args_, mma, part_, k_of(s)))
            mma.template step<LayoutA, LayoutB>(a_tile(s), b_tile(s));
        return true;
    }

    __device__ static __noinline__ void multiply_stored_elements(const ProductArgs<T>& args,
                                                                 int64_t batch,
                                                                 const TilePart& part, char* shared,
                                                                 Mma& mma) {
        MainLoopCut loop(args, batch, part, shared);
        for (int s = 0; s < part.steps; ++s) {
            loop.begin(s);
            ptx::cp_async_wait<0>();
            __syncthreads();
            loop.cut(s, loop.load_a_.read(loop.a_raw(s)), loop.load_b_.read(loop.b_raw(s)));
            __syncthreads();
            multiply_stored<LayoutA, LayoutB>(args, mma, part, loop.a_tile(s), loop.b_tile(s),
                                              loop.k_of(s));
        }
        __syncthreads();
    }

    __device__ __forceinline__ void begin(int step) {
        if (step < part_.steps) {
            load_a_.begin(a_raw(step), plain(step));
            load_b_.begin(b_raw(step), plain(step));
        }
        ptx::cp_async_commit();
    }

    // Whether a step has stored elements of both operands only.
    __device__ bool plain(int step) const {
        const int k = k_of(step);
        return k >= plain_.begin && k < plain_.end;
    }

    // The tiles of any step. Returns whether an element is infinite or nan.
    __device__ bool cut(int step, const typename LoadA::Words& a, const typename LoadB::Words& b) {
        const bool found_a = load_a_.template cut<false>(a, a_tile(step), k_of(step)),
                   found_b = load_b_.template cut<false>(b, b_tile(step), k_of(step));
        Mma::publish_tiles();
        return found_a || found_b;
    }

    const ProductArgs<T>& args_;
    const TilePart part_;
    T* shared_;
    LoadA load_a_;
    LoadB load_b_;
    struct {
        int begin, end;
    } plain_;
};

}  // namespace packedtri::cuda
