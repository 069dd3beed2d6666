// Solves with a small triangle in shared memory.
#pragma once

#include "leaf.h"
#include "line_steps.cuh"
#include "pivot_scale.cuh"

namespace packedtri::cuda {

template <class T>
struct SolveArgs {
    const T* triangle;  // The first element of the block.
    T* x;
    int64_t triangle_batch_stride, x_batch_stride, x_row_stride;
    // Forward solves T y = x, backward the transpose.
    bool forward, unit, conj, left, x_packed;
    int begin, order;
    int first_line, last_line, tiles;
    int64_t work;  // Tiles of all matrices.
};

// One block solves for LINES lines. Elements are numbered in the order in which they are solved for,
// so that forward and backward are the same from there on.
template <class T, int LINES>
class LineSolver {
    static constexpr int PITCH = SharedTriangle<T>::pitch_of(LINES);

  public:
    // For the lines from number tile * LINES on.
    __device__ LineSolver(const SolveArgs<T>& args, int64_t batch, int tile, T* shared)
        : args_(args), padded_(padded(args.order)),
          triangle_{shared, SharedTriangle<T>::pitch_of(padded_)},
          x_(shared + padded_ * triangle_.pitch), warps_(blockDim.x / 32), warp_(threadIdx.x / 32),
          lane_(threadIdx.x % 32) {
        first_line_ = args.first_line + tile * LINES;
        from_ = args.triangle + batch * args.triangle_batch_stride;
        memory_ = args.x + batch * args.x_batch_stride;
    }

    __device__ void run() {
        load();
        invert_diagonal();
        LineSteps<T, LINES, PITCH>(triangle_, x_).run(padded_);
        for_lines([&](const T* from, T* place) {
            if (place) *place = *from;
        });
    }

    static int64_t shared_bytes(int64_t order, int lines = LINES) {
        const int rows = padded(static_cast<int>(order));
        return int64_t{rows} *
               (SharedTriangle<T>::pitch_of(rows) + SharedTriangle<T>::pitch_of(lines)) *
               static_cast<int64_t>(sizeof(T));
    }

    // In whole steps.
    __host__ __device__ static constexpr int padded(int order) {
        return (order + STEP - 1) / STEP * STEP;
    }

  private:
    // Everything is on its way at once. Places behind the block are those of an identity matrix.
    __device__ void load() {
        for_triangle([&](T& to, const T* place, bool) {
            ptx::cp_async<sizeof(T)>(ptx::shared_address(&to), place);
        });
        for_lines([&](T* to, const T* place) {
            ptx::cp_async<sizeof(T)>(ptx::shared_address(to), place ? place : memory_,
                                     place != nullptr);
        });
        ptx::cp_async_commit();
        for (int r = args_.order + warp_; r < padded_; r += warps_) {
            for (int c = lane_; c <= r; c += 32) triangle_.at(r, c) = c == r ? one<T>() : T{};
            for (int line = lane_; line < LINES; line += 32) x_[r * PITCH + line] = T{};
        }
        ptx::cp_async_wait<0>();
        if (args_.unit || args_.conj)
            for_triangle([&](T& to, const T*, bool diagonal) {
                to = args_.unit && diagonal ? one<T>() : conjugate_if(to, args_.conj);
            });
        __syncthreads();
    }

    // Calls f(where it belongs in shared memory, where it is, whether on the diagonal) for the
    // elements of the triangle that this thread loads.
    template <class F>
    __device__ void for_triangle(F f) {
        const bool forward = args_.forward;
        for_rectangle(args_.order, args_.order, [&](int r, int c) {
            const int place = r * args_.begin + row_start<int>(r) + c;
            T& to = triangle_.at(forward ? r : number(c), forward ? c : number(r));
            if (c <= r) f(to, from_ + place, c == r);
        });
    }

    // Calls f(place in shared memory, place or null) for the elements of the lines that this thread
    // loads and stores.
    template <class F>
    __device__ void for_lines(F f) {
        const int row0 = args_.left ? args_.begin : first_line_,
                  col0 = args_.left ? first_line_ : args_.begin;
        const int last = args_.last_line - first_line_;
        for_rectangle(args_.left ? args_.order : LINES, args_.left ? LINES : args_.order,
                      [&](int r, int c) {
                          const int e = args_.left ? r : c, line = args_.left ? c : r;
                          const int row = row0 + r, col = col0 + c;
                          const bool stored = line < last && (!args_.x_packed || col <= row);
                          T* from = memory_ + row_offset(row, args_.x_row_stride, args_.x_packed);
                          f(x_ + number(e) * PITCH + line, stored ? from + col : nullptr);
                      });
    }

    __device__ int number(int e) const { return args_.forward ? e : args_.order - 1 - e; }

    // Then a step is a product, without a division to wait for.
    __device__ void invert_diagonal() {
        for (int r = threadIdx.x; r < padded_; r += blockDim.x) {
            T& pivot = triangle_.at(r, r);
            const auto factor = pivot_scale(pivot);
            if (factor != 1) {
                scale_elements(r + 1, factor, [&](int c) -> T& { return triangle_.at(r, c); });
                scale_elements(LINES, factor, [&](int line) -> T& { return x_[r * PITCH + line]; });
            }
            pivot = divide(one<T>(), pivot);
        }
        __syncthreads();
    }

    const SolveArgs<T>& args_;
    const int padded_;
    const SharedTriangle<T> triangle_;
    T* const x_;  // Element e of a line at e * PITCH + line.
    const int warps_, warp_, lane_;
    int first_line_;
    const T* from_;
    T* memory_;
};

// The arguments but for the block and the lines.
template <class T>
SolveArgs<T> solve_args(const Solve& p, Span block) {
    const bool packed = p.x_kind == Kind::Lower;
    SolveArgs<T> args{};
    args.triangle = static_cast<const T*>(p.triangle) + offset(block.begin, block.begin);
    args.x = static_cast<T*>(p.x);
    args.triangle_batch_stride = p.triangle_batch_stride;
    args.x_batch_stride = p.x_batch_stride;
    args.x_row_stride = packed ? 0 : p.row_stride;
    args.forward = p.left == (p.kind == Kind::Lower);
    args.unit = p.unit;
    args.left = p.left;
    args.x_packed = packed;
    args.begin = static_cast<int>(block.begin);
    args.order = static_cast<int>(block.length());
    return args;
}

}  // namespace packedtri::cuda
