// Vectors of float32 as three of bfloat16 each, which the copy engine reads: in the order in which a left operand has its
// steps (packed_floats.cuh), of a symmetric matrix in both orders.
#pragma once

#include "bfloat16_parts.cuh"
#include "image.h"
#include "launch.h"
#include "packed_floats.cuh"
#include "tensor_map.h"
#include "vector_args.cuh"

namespace packedtri::cuda {

// What elements are multiplied by, for three parts to hold those that are subnormal too.
constexpr float SPLIT_UP = 0x1p40f;

// What so many vectors take of a row, side by side: their first parts, then the second and the third ones, up to the end of
// a block of an image.
PACKEDTRI_HD constexpr int split_width(int vectors) {
    return (3 * vectors + Image::SIDE - 1) / Image::SIDE * Image::SIDE;
}

struct SplitArgs {
    const float* x;
    __nv_bfloat16* to;
    int64_t x_batch_stride, x_step, x_next;
    bool rows, columns;  // For which sums.
    int n, steps;        // Of the latter as many as 16 fill up.
    int vectors, groups, at_once;
    unsigned blocks_along, blocks_across;  // For the steps, and for the vectors, of a matrix.
};

// A block has so many steps and vectors at a time. They are read along memory, and written along the result.
constexpr int SPLIT_THREADS = 256, SPLIT_SIDE = 32;

inline __global__ void __launch_bounds__(SPLIT_THREADS)
    split_vectors_kernel(const __grid_constant__ SplitArgs args) {
    __shared__ float read[SPLIT_SIDE][SPLIT_SIDE + 1];
    const unsigned across = blockIdx.x / args.blocks_along, matrix = across / args.blocks_across;
    const int k0 = static_cast<int>(blockIdx.x % args.blocks_along) * SPLIT_SIDE,
              c0 = static_cast<int>(across % args.blocks_across) * SPLIT_SIDE,
              first = static_cast<int>(threadIdx.x) / SPLIT_SIDE,
              lane = static_cast<int>(threadIdx.x) % SPLIT_SIDE;
    constexpr int ROWS = SPLIT_THREADS / SPLIT_SIDE;
    const bool along = args.x_step == 1;  // Whether the elements of a vector are neighbours.
    const float* const x = args.x + matrix * args.x_batch_stride;
    ptx::wait_for_dependency();
    ptx::launch_dependents();
#pragma unroll
    for (int line = first; line < SPLIT_SIDE; line += ROWS) {
        const int k = along ? lane : line, c = along ? line : lane;
        const bool exists = k0 + k < args.n && c0 + c < args.vectors;
        read[k][c] = exists ? x[(k0 + k) * args.x_step + (c0 + c) * args.x_next] : 0.f;
    }
    __syncthreads();
    const int c = c0 + lane, group = c / args.at_once, width = split_width(args.at_once);
    if (group >= args.groups) return;
    const int64_t pitch = int64_t{args.groups} * width, next = args.steps * pitch;
    __nv_bfloat16* const to =
        args.to + matrix * (args.rows + args.columns) * next + group * (width - args.at_once) + c;
#pragma unroll
    for (int k = first; k < SPLIT_SIDE; k += ROWS) {
        if (k0 + k >= args.steps) break;
        uint32_t lost = 0;
        const Bfloat16Parts parts(read[k][lane] * SPLIT_UP, lost);
        const auto put = [&](__nv_bfloat16* order, int step) {
#pragma unroll
            for (int p = 0; p < 3; ++p)
                order[(k0 + k / 16 * 16 + step) * pitch + p * args.at_once] =
                    __ushort_as_bfloat16(static_cast<unsigned short>(parts.bits[p] >> 16));
        };
        if (args.rows) put(to, FloatSteps::beside_rows(k % 16));
        if (args.columns) put(args.rows ? to + next : to, FloatSteps::beside_columns(k % 16));
    }
}

class SplitVectors {
  public:
    SplitVectors(const Product& p, const VectorArgs<float>& args)
        : one_(VectorProduct(p).vectors.batch_stride == 0), matrices_(one_ ? 1 : args.batch),
          steps_(ceil_div(args.n, 16) * 16),
          pitch_(int64_t{args.groups} * split_width(args.at_once)),
          orders_(args.rows + args.columns) {}

    // Whether all matrices of a batch are multiplied by the same vectors.
    bool one() const { return one_; }
    // Of all parts, which begin at a multiple of 16 bytes.
    int64_t bytes() const { return matrices_ * orders_ * steps_ * pitch_ * 2; }

    CUtensorMap place(const VectorArgs<float>& args, void* to, cudaStream_t stream) const {
        const int64_t along = ceil_div(steps_, SPLIT_SIDE),
                      across = ceil_div(int64_t{args.groups} * args.at_once, SPLIT_SIDE);
        launch_overlapping(
            split_vectors_kernel, grid_of(along * across * matrices_), SPLIT_THREADS,
            SplitArgs{args.x, static_cast<__nv_bfloat16*>(to), args.x_batch_stride, args.x_step,
                      args.x_next, args.rows, args.columns, args.n, static_cast<int>(steps_),
                      args.vectors, args.groups, args.at_once, static_cast<unsigned>(along),
                      static_cast<unsigned>(across)},
            stream, "cannot launch a copy");
        const Operand split{to, Kind::Dense, steps_, pitch_, pitch_, 1, steps_ * pitch_};
        return map_of(split, DType::bf16, matrices_ * orders_);
    }

  private:
    const bool one_;
    const int64_t matrices_, steps_, pitch_;
    const int orders_;
};

}  // namespace packedtri::cuda
