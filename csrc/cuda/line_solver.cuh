// Solves with a small triangle in shared memory.
#pragma once

#include "leaf.cuh"
#include "leaf.h"

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
};

// One block solves for LINES lines. Elements are numbered in the order in which they are solved for,
// so that forward and backward are the same from there on. SHARES neighbouring lanes work on a line;
// further warps, if there are any, only load and store.
template <class T, int LINES>
class LineSolver {
    static constexpr int PITCH = LINES + 1;

  public:
    static constexpr int SOLVING = SHARES * LINES;

    // For the lines from number tile * LINES on.
    __device__ LineSolver(const SolveArgs<T>& args, int64_t batch, int tile, T* shared)
        : args_(args), padded_((args.order + STEP - 1) / STEP * STEP),
          triangle_{shared, SharedTriangle<T>::pitch_of(padded_)},
          x_(shared + padded_ * triangle_.pitch), warps_(blockDim.x / 32), warp_(threadIdx.x / 32),
          lane_(threadIdx.x % 32), line_(threadIdx.x / SHARES), share_(threadIdx.x % SHARES) {
        first_line_ = args.first_line + tile * LINES;
        from_ = args.triangle + batch * args.triangle_batch_stride;
        memory_ = args.x + batch * args.x_batch_stride;
    }

    __device__ void run() {
        load();
        invert_steps();
        if (threadIdx.x < SOLVING)
            for (int s = 0; s < padded_; s += STEP) solve_step(s);
        __syncthreads();
        for_lines([&](int e, int line, T* place) {
            if (place) *place = x_[e * PITCH + line];
        });
    }

    static int64_t shared_bytes(int64_t order) {
        const int64_t padded = ceil_div(order, STEP) * STEP;
        return padded * (SharedTriangle<T>::pitch_of(static_cast<int>(padded)) + PITCH) *
               static_cast<int64_t>(sizeof(T));
    }

  private:
    // Everything is on its way at once. Places behind the block are those of an identity matrix.
    __device__ void load() {
        for_triangle([&](T& to, const T* place, bool) {
            ptx::cp_async<sizeof(T)>(ptx::shared_address(&to), place);
        });
        for_lines([&](int e, int line, T* place) {
            ptx::cp_async<sizeof(T)>(ptx::shared_address(x_ + e * PITCH + line),
                                     place ? place : memory_, place != nullptr);
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
        for (int r = warp_; r < args_.order; r += warps_) {
            const T* row = from_ + row_offset(r, args_.begin, true);
            for (int c = lane_; c <= r; c += 32)
                f(args_.forward ? triangle_.at(r, c) : triangle_.at(number(c), number(r)), row + c,
                  c == r);
        }
    }

    // Calls f(number of the element, line, its place or null) for the elements of the lines that
    // this thread loads and stores; neighbouring lanes have neighbours in memory.
    template <class F>
    __device__ void for_lines(F f) {
        const int outer = args_.left ? args_.order : LINES,
                  inner = args_.left ? LINES : args_.order;
        for (int r = warp_; r < outer; r += warps_) {
            const int row = r + (args_.left ? args_.begin : first_line_);
            T* from = memory_ + row_offset(row, args_.x_row_stride, args_.x_packed);
            for (int c = lane_; c < inner; c += 32) {
                const int col = c + (args_.left ? first_line_ : args_.begin);
                const bool stored =
                    (args_.left ? col : row) < args_.last_line && (!args_.x_packed || col <= row);
                f(number(args_.left ? r : c), args_.left ? c : r, stored ? from + col : nullptr);
            }
        }
    }

    __device__ int number(int e) const { return args_.forward ? e : args_.order - 1 - e; }

    // Puts the inverses of the triangles on the diagonal, of order STEP, in their places, one thread
    // a column: then a step is a product, without a division to wait for.
    __device__ void invert_steps() {
        for (int c0 = 0; c0 < padded_; c0 += blockDim.x) {
            const int c = c0 + threadIdx.x, s = min(c / STEP * STEP, padded_ - STEP);
            T column[STEP];
            invert_column(column, s, c % STEP);
            __syncthreads();
            if (c < padded_)
#pragma unroll
                for (int k = 0; k < STEP; ++k)
                    if (s + k >= c) triangle_.at(s + k, c) = column[k];
            __syncthreads();
        }
    }

    // All lanes of a warp run this; neighbours take the reciprocals from one another.
    __device__ void invert_column(T (&column)[STEP], int s, int c) const {
        const T reciprocal = divide(one<T>(), triangle_.at(s + c, s + c));
#pragma unroll
        for (int k = 0; k < STEP; ++k) column[k] = k == c ? one<T>() : T{};
#pragma unroll
        for (int k = 0; k < STEP; ++k) {
            const T y = multiply(column[k], shuffle(reciprocal, lane_ / STEP * STEP + k));
            column[k] = k < c ? T{} : y;
#pragma unroll
            for (int e = k + 1; e < STEP; ++e)
                subtract(column[e], triangle_.at(s + e, s + k), column[k]);
        }
    }

    // Solves for elements [s, s + STEP) of the line. Lanes of one warp alone share it.
    __device__ void solve_step(int s) {
        const int first = share_ * SHARE;
        T* const x = x_ + s * PITCH + line_;
        T rest[SHARE];
#pragma unroll
        for (int e = 0; e < SHARE; ++e) rest[e] = x[(first + e) * PITCH];
        subtract_columns(rest, triangle_, s + first, s,
                         [&](int k) { return x_[k * PITCH + line_]; });
#pragma unroll
        for (int e = 0; e < SHARE; ++e) x[(first + e) * PITCH] = rest[e];
        __syncwarp();
        T y[SHARE] = {};
#pragma unroll
        for (int k = 0; k < STEP; ++k) {
            const auto share = triangle_.share(s + first, s + k);
            const T right = x[k * PITCH];
#pragma unroll
            for (int e = 0; e < SHARE; ++e)
                if (k <= first + e) fma_into(y[e], share.x[e], right);
        }
        __syncwarp();
#pragma unroll
        for (int e = 0; e < SHARE; ++e) x[(first + e) * PITCH] = y[e];
        __syncwarp();
    }

    const SolveArgs<T>& args_;
    const int padded_;
    const SharedTriangle<T> triangle_;
    T* const x_;  // Element e of a line at e * PITCH + line.
    const int warps_, warp_, lane_, line_, share_;
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
