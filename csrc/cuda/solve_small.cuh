// Solves with triangles of at most 32 rows: each lane solves for one line, which it has in registers,
// while all lanes read the same element of the triangle.
#pragma once

#include "line_solver.cuh"

namespace packedtri::cuda {

// SIDE lanes share a triangle of at most SIDE rows.
template <class T, int SIDE>
class SmallSolver {
    static constexpr int V = 16 / sizeof(T);
    static constexpr int SIZE = SIDE * (SIDE + 1) / 2;
    static_assert(SIZE % V == 0, "");

  public:
    using Args = SolveArgs<T>;
    static constexpr int THREADS = 128, TEAMS = THREADS / SIDE;  // In a block.

    static __device__ void run(const SolveArgs<T>& args, char* memory) {
        const int team = threadIdx.x / SIDE;
        const int64_t number = int64_t{blockIdx.x} * TEAMS + team;
        // A team without work of its own repeats another's and stores nothing.
        const bool busy = number < args.work;
        SmallSolver solver(args, busy ? number : 0,
                           reinterpret_cast<T*>(memory) + team * (SIZE + V));
        solver.load_triangle();
        solver.load_line();
        ptx::cp_async_wait<0>();
        __syncwarp();
        solver.invert_diagonal();
        __syncwarp();
        solver.solve();
        if (busy) solver.store_line();
    }

    static constexpr int SHARED_BYTES = TEAMS * (SIZE + V) * static_cast<int>(sizeof(T));

  private:
    // `work`: a tile of lines of one matrix.
    __device__ SmallSolver(const SolveArgs<T>& args, int64_t work, T* triangle)
        : args_(args), lane_(threadIdx.x % SIDE),
          line_(args.first_line + static_cast<int>(work % args.tiles) * SIDE + lane_),
          triangle_(triangle),
          from_(args.triangle + work / args.tiles * args.triangle_batch_stride),
          memory_(args.x + work / args.tiles * args.x_batch_stride) {}

    // In the order in which elements are solved for: backward, the triangle is transposed about its
    // other diagonal.
    __device__ void load_triangle() const {
#pragma unroll 4
        for (int r = 0; r < args_.order; ++r) {
            if (lane_ > r) continue;
            const int row = args_.forward ? r : args_.order - 1 - lane_,
                      col = args_.forward ? lane_ : args_.order - 1 - r;
            ptx::cp_async<sizeof(T)>(ptx::shared_address(triangle_ + row_start<int>(row) + col),
                                     from_ + (r * args_.begin + row_start<int>(r) + lane_));
        }
        ptx::cp_async_commit();
    }

    // Then a step is a product, without a division to wait for.
    __device__ void invert_diagonal() {
        const bool divides = lane_ < args_.order && !args_.unit;
        T* const row = triangle_ + lane_ * (lane_ + 1) / 2;
        const T factor = divides ? pivot_scale(row[lane_]) : 1;
        if (__any_sync(~0u, factor != 1)) {
            for (int c = 0; c <= lane_; ++c) row[c] *= factor;
#pragma unroll
            for (int e = 0; e < SIDE; ++e) x_[e] *= __shfl_sync(~0u, factor, e, SIDE);
        }
        if (lane_ < args_.order) row[lane_] = divides ? 1 / row[lane_] : 1;
    }

    __device__ void load_line() {
#pragma unroll
        for (int e = 0; e < SIDE; ++e) {
            const T* from = place(e);
            x_[e] = from ? *from : T{};
        }
    }
    __device__ void store_line() const {
#pragma unroll
        for (int e = 0; e < SIDE; ++e)
            if (T* to = place(e)) *to = x_[e];
    }

    // Where element e of this lane's line is; null where there is none.
    __device__ T* place(int e) const {
        if (e >= args_.order || line_ >= args_.last_line) return nullptr;
        const int number = args_.begin + (args_.forward ? e : args_.order - 1 - e);
        const int row = args_.left ? number : line_, col = args_.left ? line_ : number;
        if (args_.x_packed && col > row) return nullptr;
        return memory_ + row_offset(row, args_.x_row_stride, args_.x_packed) + col;
    }

    __device__ void solve() {
        struct alignas(16) Word {
            T x[V];
        };
        int row = 0, col = 0;
#pragma unroll
        for (int w = 0; w < SIZE / V; ++w) {
            const Word word = reinterpret_cast<const Word*>(triangle_)[w];
#pragma unroll
            for (int v = 0; v < V; ++v) {
                if (col < row) {
                    subtract(x_[row], word.x[v], x_[col]);
                    ++col;
                } else {
                    x_[row] *= word.x[v];
                    ++row;
                    col = 0;
                }
            }
        }
    }

    const SolveArgs<T>& args_;
    const int lane_, line_;
    T* const triangle_;  // Element (r, c) at r (r + 1) / 2 + c.
    const T* const from_;
    T* const memory_;
    T x_[SIDE];
};

template <class T, int SIDE>
void launch_small_solve(SolveArgs<T> args, int64_t batch, cudaStream_t stream) {
    args.tiles = (args.last_line - args.first_line + SIDE - 1) / SIDE;
    args.work = args.tiles * batch;
    launch_team_leaf<SmallSolver<T, SIDE>>(args, args.work, stream);
}

}  // namespace packedtri::cuda
