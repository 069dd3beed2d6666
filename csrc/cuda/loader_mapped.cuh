// How tiles of dense operands with 16-bit elements reach shared memory on Hopper where their rows are aligned: by the
// copy engine, as image blocks.
#pragma once

#include "hopper.cuh"
#include "image.h"

namespace packedtri::cuda {

// The same of a mapped matrix as RowLoader of rows, AHEAD steps before they are multiplied, in a ring of stages of its
// own. Each has BLOCKS image blocks, of 64 rows or columns that follow one another.
template <int BLOCKS>
class MappedLoader {
    static constexpr int STAGES = BLOCKS == 1 ? 4 : 3, BYTES = BLOCKS * Image::BLOCK_BYTES;

  public:
    static constexpr bool MAPPED = true;
    static constexpr int STAGE_BYTES = 0;
    static constexpr int AHEAD = STAGES - 1;
    // Of which a barrier for each stage takes some; what follows is aligned to 32 bytes.
    static constexpr int RING_BYTES = STAGES * BYTES + 32;

    struct Words {};

    // `ring`: RING_BYTES of shared memory at a multiple of 1024.
    __device__ MappedLoader(const CUtensorMap& map, int matrix, bool k_major, int r0, int k0,
                            int steps, uint32_t ring)
        : map_(map), matrix_(matrix), along_(k_major), r0_(r0), k0_(k0), steps_(steps),
          ring_(ring) {}

    // By one thread, before any step begins.
    __device__ void start() const {
        for (int s = 0; s < STAGES; ++s) ptx::mbarrier_init(come(s), 1);
        ptx::mbarrier_init_fence();
    }
    // Starts loading a step, by one thread of the first warp, when all threads are through with the one STAGES before it.
    __device__ void begin(int step) const {
        if (threadIdx.x >= 32 || step >= steps_ || !ptx::elect()) return;
        const int k = k0_ + step * Image::SIDE;
        ptx::mbarrier_arrive_expect(come(step), BYTES);
#pragma unroll
        for (int x = 0; x < BLOCKS; ++x) {
            const int r = r0_ + x * Image::SIDE;
            ptx::tensor_load(block(0, step) + x * Image::BLOCK_BYTES, &map_, matrix_,
                             along_ ? r : k, along_ ? k : r, come(step));
        }
    }
    __device__ void wait(int step) const { ptx::mbarrier_wait(come(step), step / STAGES & 1); }
    __device__ uint32_t block(uint32_t, int step) const { return ring_ + step % STAGES * BYTES; }
    __device__ bool k_major(int) const { return along_; }

    // As RowLoader has them.
    __device__ void load(Words&) const {}
    __device__ bool full(int) const { return true; }
    template <bool FULL>
    __device__ void store(const Words&, uint32_t, int, int) const {}
    __device__ void store_last(uint32_t, int) const {}
    __device__ void mirror(uint32_t, int) const {}

  private:
    __device__ uint32_t come(int step) const { return ring_ + STAGES * BYTES + step % STAGES * 8; }

    const CUtensorMap& map_;
    const int matrix_;
    const bool along_;
    const int r0_, k0_, steps_;
    const uint32_t ring_;
};

}  // namespace packedtri::cuda
