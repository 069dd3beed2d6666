// The warps that make the images of operands, piece by piece, while others multiply what is made.
#pragma once

#include "engine.cuh"

namespace packedtri::cuda {

// One warp's part. It never waits for another, so that pieces are made however few blocks of the launch
// run at once.
template <class Element, int SIDE>
class EnginePacker {
  public:
    __device__ explicit EnginePacker(const EnginePacking<Element>& packing) : packing_(packing) {}

    __device__ void run() const {
        const PackOrder& order = packing_.order;
        if (order.units == 0) return;
        ptx::wait_for_dependency();
        int phase = 0;
        for (int number = broadcast(draw()); number < order.units;) {
            const int next = draw();  // On its way while this one is made.
            const PackOrder::Unit unit = order.at(number, phase);
            if (unit.exists) make(unit);
            number = broadcast(next);
        }
        if (is_first()) ptx::release_add(packing_.done, 1);
    }

  private:
    __device__ static bool is_first() { return threadIdx.x % 32 == 0; }
    __device__ int draw() const { return is_first() ? atomicAdd(packing_.drawn, 1) : 0; }
    __device__ static int broadcast(int x) { return __shfl_sync(~0u, x, 0); }

    __device__ void make(const PackOrder::Unit& unit) const {
        const PackArgs<Element>& image = packing_.of[unit.image];
        UnitPacker<Element, SIDE>::run(image, unit.row, unit.col, unit.part);
        const int cols = packing_.order.cols[unit.image];
        int* ready = packing_.ready[unit.image] +
                     PackOrder::index(image.image.packed, cols, unit.row, unit.col);
        ptx::bulk_fence_global();
        __syncwarp();
        if (is_first()) ptx::release_add(ready, 1);
    }

    const EnginePacking<Element>& packing_;
};

}  // namespace packedtri::cuda
