// The main loop for 16-bit elements. Some warps only load, and cut chunks out of aligned words,
// which takes many instructions; the others only multiply.
#pragma once

#include "loader_staged.cuh"
#include "main_loop.cuh"
#include "ring.cuh"

namespace packedtri::cuda {

template <class T_, class Mma_, int STAGES, int PRODUCERS, bool A_K_MAJOR, bool B_K_MAJOR>
class MainLoopStaged {
  public:
    using T = T_;
    using Mma = Mma_;

  private:
    static constexpr int BK = Mma::BK;
    using LayoutA = typename Mma::template Layout<Mma::BM, A_K_MAJOR>;
    using LayoutB = typename Mma::template Layout<Mma::BN, B_K_MAJOR>;
    using LoadA = StagedLoader<T, Mma::BM, BK, PRODUCERS, LayoutA>;
    using LoadB = StagedLoader<T, Mma::BN, BK, PRODUCERS, LayoutB>;
    static constexpr int STAGE = LayoutA::size + LayoutB::size;

  public:
    static constexpr int THREADS = Mma::THREADS + PRODUCERS;
    static constexpr int TILE_BYTES = STAGES * STAGE * static_cast<int>(sizeof(T));
    static constexpr int SHARED_BYTES =
        TILE_BYTES + static_cast<int>(sizeof(Ring<STAGES>) + STAGES * sizeof(int));

    // Computes `part` and gives it to `finish`, in the threads that have it, when the shared memory
    // is free again.
    template <class Finish>
    __device__ static void run(const ProductArgs<T>& args, int64_t batch, const TilePart& part,
                               char* shared, Finish finish) {
        MainLoopStaged loop(args, part, shared);
        if (threadIdx.x < STAGES) loop.nonfinite_step_[threadIdx.x] = -1;
        if (threadIdx.x == 0) loop.ring_.start(PRODUCERS / 32, Mma::THREADS / 32);
        __syncthreads();
        Mma mma;
        const bool producer = threadIdx.x >= Mma::THREADS;
        if (producer) loop.produce(batch);
        else loop.consume(mma);
        __syncthreads();
        if (!producer) finish(mma);
    }

  private:
    __device__ MainLoopStaged(const ProductArgs<T>& args, const TilePart& part, char* shared)
        : args_(args), part_(part), shared_(reinterpret_cast<T*>(shared)),
          ring_(*reinterpret_cast<Ring<STAGES>*>(shared + TILE_BYTES)),
          nonfinite_step_(reinterpret_cast<int*>(shared + TILE_BYTES + sizeof(Ring<STAGES>))) {}

    __device__ T* a_tile(int step) { return shared_ + step % STAGES * STAGE; }
    __device__ T* b_tile(int step) { return a_tile(step) + LayoutA::size; }
    __device__ int k_of(int step) const { return part_.k0 + step * BK; }

    // While one operand's chunks are written to shared memory, the other's are on their way.
    __device__ void produce(int64_t batch) {
        const int thread = threadIdx.x - Mma::THREADS;
        LoadA a(at_batch(args_.a, batch * args_.a_batch_stride), part_.i0, part_.k0, thread);
        LoadB b(at_batch(args_.b, batch * args_.b_batch_stride), part_.j0, part_.k0, thread);
        if (part_.steps > 0) a.begin();
        for (int s = 0; s < part_.steps; ++s) {
            b.begin();
            ring_.wait_empty(s);
            a.finish(a_tile(s));
            if (s + 1 < part_.steps) a.begin();
            b.finish(b_tile(s));
            if ((a.crosses_diagonal(k_of(s)) || b.crosses_diagonal(k_of(s))) &&
                (a.any_nonfinite(a_tile(s)) || b.any_nonfinite(b_tile(s))))
                atomicExch(const_cast<int*>(nonfinite_step_) + s % STAGES, s);
            ring_.arrive_warp(ring_.full(s));
        }
    }

    __device__ void consume(Mma& mma) {
        for (int s = 0; s < part_.steps; ++s) {
            ring_.wait_full(s);
            if (nonfinite_step_[s % STAGES] == s)
                multiply_stored<LayoutA, LayoutB>(args_, mma, part_, a_tile(s), b_tile(s), k_of(s));
            else if (warp_needs(args_, mma, part_, k_of(s)))
                mma.template step<LayoutA, LayoutB>(a_tile(s), b_tile(s));
            ring_.arrive_warp(ring_.empty(s));
        }
    }

    const ProductArgs<T>& args_;
    const TilePart part_;
    T* shared_;
    Ring<STAGES>& ring_;
    // For each stage, the last step in it that needs multiply_stored.
    volatile int* nonfinite_step_;
};

}  // namespace packedtri::cuda
