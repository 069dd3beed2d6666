// The warps that make the images of operands, piece by piece, while others multiply what is made.
#pragma once

#include "engine.cuh"

namespace packedtri::cuda {

// One warp's part. It never waits for another, so that pieces are made however few blocks of the launch
// run at once.
template <class T, int SIDE>
class EnginePacker {
  public:
    __device__ explicit EnginePacker(const EnginePacking<T>& packing) : packing_(packing) {}

    __device__ void run() const {
        if (packing_.order.units == 0) return;
        ptx::wait_for_dependency();
        // While a unit is made, the next one is on its way to the cache, and the number behind it to be drawn.
        int phase = 0;
        int unit = find(broadcast(draw()), phase), next = broadcast(draw());
        while (unit != END) {
            const int drawn = draw(), following = find(next, phase);
            if (following >= 0) prefetch(PackOrder::Unit::of(following));
            if (unit >= 0) make(PackOrder::Unit::of(unit));
            unit = following;
            next = broadcast(drawn);
        }
        if (is_first()) ptx::release_add(packing_.done, 1);
    }

  private:
    __device__ static bool is_first() { return threadIdx.x % 32 == 0; }
    __device__ int draw() const { return is_first() ? atomicAdd(packing_.drawn, 1) : 0; }
    __device__ static int broadcast(int x) { return __shfl_sync(~0u, x, 0); }

    // The unit of a number as a word; otherwise, whether it is behind the last.
    static constexpr int GAP = -1, END = -2;
    __device__ int find(int number, int& phase) const {
        if (number >= packing_.order.units) return END;
        bool exists;
        const PackOrder::Unit unit = packing_.order.at(number, phase, exists);
        return exists ? unit.word() : GAP;
    }

    __device__ void prefetch(const PackOrder::Unit& unit) const {
        prefetch_unit<T, SIDE>(packing_.of[unit.image], unit.row, unit.col, unit.part);
    }

    __device__ void make(const PackOrder::Unit& unit) const {
        const PackArgs<T>& image = packing_.of[unit.image];
        UnitPacker<T, SIDE>::run(image, unit.row, unit.col, unit.part);
        const int cols = packing_.order.cols[unit.image];
        int* ready = packing_.ready[unit.image] +
                     PackOrder::index(image.image.packed, cols, unit.row, unit.col);
        ptx::bulk_fence_global();
        __syncwarp();
        if (is_first()) ptx::release_add(ready, 1);
    }

    const EnginePacking<T>& packing_;
};

}  // namespace packedtri::cuda
