// A ring of shared-memory stages between warps that fill it and warps that empty it.
#pragma once

#include "hopper.cuh"

namespace packedtri::cuda {

// Step s of a pipeline uses stage s % STAGES. Warps that wait on each other's barriers may be whole
// steps apart, so that one warp's latencies hide behind another's work.
template <int STAGES>
struct Ring {
    uint64_t full_[STAGES], empty_[STAGES];

    // By one thread, before a __syncthreads: how many threads arrive when they have filled a stage, and when
    // they have used it. Each of them does, so that tools which look for races know whose accesses are done.
    __device__ void start(int fillers, int users) {
        for (int s = 0; s < STAGES; ++s) {
            ptx::mbarrier_init(full(s), fillers);
            ptx::mbarrier_init(empty(s), users);
        }
        ptx::mbarrier_init_fence();
    }

    __device__ uint32_t full(int step) { return ptx::shared_address(full_ + step % STAGES); }
    __device__ uint32_t empty(int step) { return ptx::shared_address(empty_ + step % STAGES); }

    // By each user that has loaded from its stage. Its last loads may still be under way then, and what the copy engine brings
    // next would not wait for them, as it does behind a fence. What wgmma read has been read when that ends.
    __device__ void leave(int step) {
        ptx::bulk_fence();
        ptx::mbarrier_arrive(empty(step));
    }

    // Until what was written for the step can be read.
    __device__ void wait_full(int step) { ptx::mbarrier_wait(full(step), step / STAGES & 1); }
    // Until what the stage held before can be overwritten.
    __device__ void wait_empty(int step) {
        if (step >= STAGES) ptx::mbarrier_wait(empty(step), (step / STAGES & 1) ^ 1);
    }
};

}  // namespace packedtri::cuda
