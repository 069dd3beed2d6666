// The warps that make the images of operands, piece by piece, while others multiply what is made.
#pragma once

#include "engine.cuh"

namespace packedtri::cuda {

// One warp's part. It never waits for another, so that pieces are made however few blocks of the launch
// run at once.
template <class T>
class EnginePacker {
  public:
    __device__ explicit EnginePacker(const EnginePacking<T, true>& packing)
        : images_(packing.of), work_(packing.work) {}

    __device__ void run() const {
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
        if (is_first()) ptx::release_increment(work_.done);
    }

  private:
    __device__ static bool is_first() { return threadIdx.x % 32 == 0; }
    __device__ int draw() const { return is_first() ? atomicAdd(work_.drawn, 1) : 0; }
    __device__ static int broadcast(int x) { return __shfl_sync(~0u, x, 0); }

    // The unit of a number as a word; otherwise, whether it is behind the last.
    static constexpr int GAP = -1, END = -2;
    __device__ int find(int number, int& phase) const {
        if (number >= work_.order.units) return END;
        bool exists;
        const PackOrder::Unit unit = work_.order.at(number, phase, exists);
        return exists ? unit.word() : GAP;
    }

    __device__ void prefetch(const PackOrder::Unit& unit) const {
        prefetch_unit(images_[unit.image], unit.row, unit.col, unit.part);
    }

    __device__ void make(const PackOrder::Unit& unit) const {
        using Rows = RowPacker<T>;
        const PackArgs<T>& args = images_[unit.image];
        const int first = unit.row * Rows::WIDTH + unit.part * PackOrder::UNIT_ROWS;
        // Not unrolled, which would take registers that the others would have.
#pragma unroll 1
        for (int row = first; row < first + PackOrder::UNIT_ROWS; row += Rows::ROWS)
            Rows::run(args, args.panel.data, args.to, row, unit.col * Rows::WIDTH);
        int* ready = work_.ready[unit.image] +
                     work_.order.pieces[unit.image].template index<int>(unit.row, unit.col);
        ptx::bulk_fence_global();
        __syncwarp();
        if (is_first()) ptx::release_increment(ready);
    }

    const PackArgs<T>* images_;
    const PackWork& work_;
};

}  // namespace packedtri::cuda
