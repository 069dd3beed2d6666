// The main loop for 16-bit elements. Some warps only load, and cut chunks out of aligned words,
// which takes many instructions; the others only multiply.
#pragma once

#include "loader_staged.cuh"
#include "main_loop.cuh"

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
    // Named barriers 1 ... STAGES say that a stage is full, the next STAGES that it is empty.
    // __syncthreads is barrier 0, and at DONE both kinds of warps meet when the sum is complete.
    static constexpr int DONE = 15;
    static_assert(2 * STAGES < DONE, "a block has 16 barriers");

  public:
    static constexpr int THREADS = Mma::THREADS + PRODUCERS;
    static constexpr int TILE_BYTES = STAGES * STAGE * static_cast<int>(sizeof(T));
    static constexpr int SHARED_BYTES = TILE_BYTES + STAGES * static_cast<int>(sizeof(int));

    // Computes `part` and gives it to `finish`, in the threads that have it, when the shared memory
    // is free again.
    template <class Finish>
    __device__ static void run(const ProductArgs<T>& args, int64_t batch, const TilePart& part,
                               char* shared, Finish finish) {
        MainLoopStaged loop(args, part, shared);
        if (threadIdx.x < STAGES) loop.nonfinite_step_[threadIdx.x] = -1;
        __syncthreads();
        if (threadIdx.x >= Mma::THREADS) {
            loop.produce(batch);
            ptx::barrier_sync(DONE, THREADS);
        } else {
            Mma mma;
            loop.consume(mma);
            ptx::barrier_sync(DONE, THREADS);
            finish(mma);
        }
    }

  private:
    __device__ MainLoopStaged(const ProductArgs<T>& args, const TilePart& part, char* shared)
        : args_(args), part_(part), shared_(reinterpret_cast<T*>(shared)),
          nonfinite_step_(reinterpret_cast<int*>(shared + TILE_BYTES)) {}

    __device__ T* a_tile(int step) { return shared_ + step % STAGES * STAGE; }
    __device__ T* b_tile(int step) { return a_tile(step) + LayoutA::size; }
    __device__ int k_of(int step) const { return part_.k0 + step * BK; }
    __device__ static int full(int step) { return 1 + step % STAGES; }
    __device__ static int empty(int step) { return 1 + STAGES + step % STAGES; }

    // While one operand's chunks are written to shared memory, the other's are on their way.
    __device__ void produce(int64_t batch) {
        const int thread = threadIdx.x - Mma::THREADS;
        LoadA a(at_batch(args_.a, batch * args_.a_batch_stride), part_.i0, part_.k0, thread);
        LoadB b(at_batch(args_.b, batch * args_.b_batch_stride), part_.j0, part_.k0, thread);
        if (part_.steps > 0) a.begin();
        for (int s = 0; s < part_.steps; ++s) {
            b.begin();
            if (s >= STAGES) ptx::barrier_sync(empty(s), THREADS);
            a.finish(a_tile(s));
            if (s + 1 < part_.steps) a.begin();
            b.finish(b_tile(s));
            if ((a.crosses_diagonal(k_of(s)) || b.crosses_diagonal(k_of(s))) &&
                (a.any_nonfinite(a_tile(s)) || b.any_nonfinite(b_tile(s))))
                atomicExch(const_cast<int*>(nonfinite_step_) + s % STAGES, s);
            __threadfence_block();
            ptx::barrier_arrive(full(s), THREADS);
        }
    }

    __device__ void consume(Mma& mma) {
        for (int s = 0; s < part_.steps; ++s) {
            ptx::barrier_sync(full(s), THREADS);
            if (nonfinite_step_[s % STAGES] == s)
                multiply_stored<LayoutA, LayoutB>(args_, mma, part_, a_tile(s), b_tile(s), k_of(s));
            else if (warp_needs(args_, mma, part_, k_of(s)))
                mma.template step<LayoutA, LayoutB>(a_tile(s), b_tile(s));
            if (s + STAGES < part_.steps) ptx::barrier_arrive(empty(s), THREADS);
        }
    }

    const ProductArgs<T>& args_;
    const TilePart part_;
    T* shared_;
    // For each stage, the last step in it that needs multiply_stored.
    volatile int* nonfinite_step_;
};

}  // namespace packedtri::cuda
