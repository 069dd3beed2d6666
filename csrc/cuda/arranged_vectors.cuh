// Vectors of float64 in the order in which tensor cores take them as a right operand.
#pragma once

#include "hopper.cuh"
#include "launch.h"
#include "line_tile.h"
#include "vector_args.cuh"
#include "wide_units.h"

namespace packedtri::cuda {

// Of 16 steps of 8 vectors a lane has two pairs: elements 0 and 1, and 2 and 3, of LineTile::step.
struct ArrangeArgs {
    const double* x;
    double2* to;
    int64_t x_batch_stride, x_step, x_next;
    int n, steps, vectors;  // Of the steps as many as whole tiles have: zeros behind the others.
    int groups, eights_at_once;  // Groups of vectors, and how many times 8 vectors each has.
    int64_t all;                 // Pairs of all matrices.
};

constexpr int ARRANGE_THREADS = 256;

inline __global__ void __launch_bounds__(ARRANGE_THREADS)
    arrange_vectors_kernel(const __grid_constant__ ArrangeArgs args) {
    ptx::wait_for_dependency();
    ptx::launch_dependents();
    const int64_t pair = blockIdx.x * int64_t{ARRANGE_THREADS} + threadIdx.x;
    if (pair >= args.all) return;
    const int lane = static_cast<int>(pair % 32), half = static_cast<int>(pair / 32 % 2);
    const int64_t eight = pair / 64, sixteen = eight / args.eights_at_once,
                  group = sixteen / (args.steps / 16), matrix = group / args.groups;
    const auto of = [](int64_t x, int64_t count) { return static_cast<int>(x % count); };
    const int k = of(sixteen, args.steps / 16) * 16 + LineTile<true>::step(lane % 4, 2 * half),
              c = (of(group, args.groups) * args.eights_at_once + of(eight, args.eights_at_once)) *
                      8 +
                  lane / 4;
    const double* from = args.x + matrix * args.x_batch_stride + k * args.x_step + c * args.x_next;
    const bool exists = c < args.vectors;
    args.to[pair] = {exists && k < args.n ? from[0] : 0.,
                     exists && k + 1 < args.n ? from[args.x_step] : 0.};
}

class ArrangedVectors {
  public:
    ArrangedVectors(const Product& p, const VectorArgs<double>& args)
        : one_(VectorProduct(p).vectors.batch_stride == 0), matrices_(one_ ? 1 : args.batch),
          elements_(matrices_ * args.groups * elements(args)) {}

    // Whether all matrices of a batch are multiplied by the same vectors.
    bool one() const { return one_; }
    int64_t bytes() const { return elements_ * static_cast<int64_t>(sizeof(double)); }
    // Of a group of vectors of a matrix.
    PACKEDTRI_HD static int64_t elements(const VectorArgs<double>& args) {
        return steps(args) * args.at_once;
    }

    const double* place(const VectorArgs<double>& args, void* to, cudaStream_t stream) const {
        launch_overlapping(
            arrange_vectors_kernel, grid_of(ceil_div(elements_ / 2, ARRANGE_THREADS)),
            ARRANGE_THREADS,
            ArrangeArgs{args.x, static_cast<double2*>(to), args.x_batch_stride, args.x_step,
                        args.x_next, args.n, static_cast<int>(steps(args)), args.vectors,
                        args.groups, args.at_once / 8, elements_ / 2},
            stream, "cannot launch a copy");
        return static_cast<const double*>(to);
    }

  private:
    PACKEDTRI_HD static int64_t steps(const VectorArgs<double>& args) {
        return ceil_div(args.n, WIDE_SIDE) * WIDE_SIDE;
    }
    const bool one_;
    const int64_t matrices_, elements_;
};

}  // namespace packedtri::cuda
