#include "leaf.cuh"
#include "leaf.h"

namespace packedtri::cuda {
namespace {

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
// so that forward and backward are the same from there on.
template <class T, int LINES>
class LineSolver {
    static constexpr int THREADS = SHARES * LINES, WARPS = THREADS / 32, PITCH = LINES + 1;

  public:
    __device__ LineSolver(const SolveArgs<T>& args, T* shared)
        : args_(args), padded_((args.order + STEP - 1) / STEP * STEP),
          triangle_{shared, SharedTriangle<T>::pitch_of(padded_)},
          x_(shared + padded_ * triangle_.pitch), warp_(threadIdx.x / 32), lane_(threadIdx.x % 32),
          line_(threadIdx.x % LINES), share_(threadIdx.x / LINES) {
        const int64_t batch = blockIdx.x / args.tiles;
        first_line_ = args.first_line + static_cast<int>(blockIdx.x % args.tiles) * LINES;
        from_ = args.triangle + batch * args.triangle_batch_stride;
        memory_ = args.x + batch * args.x_batch_stride;
    }

    __device__ void run() {
        load();
        for (int s = 0; s < padded_; s += STEP) {
            if (s > 0) gather(s);
            eliminate(s);
        }
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
        for (int r = args_.order + warp_; r < padded_; r += WARPS) {
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
        for (int r = warp_; r < args_.order; r += WARPS) {
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
        for (int r = warp_; r < outer; r += WARPS) {
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

    // Subtracts what the elements before s contribute to elements [s, s + STEP).
    __device__ void gather(int s) {
        const int first = s + share_ * SHARE;
        T sum[SHARE];
#pragma unroll
        for (int e = 0; e < SHARE; ++e) sum[e] = x_[(first + e) * PITCH + line_];
#pragma unroll 4
        for (int k = 0; k < s; ++k) {
            const auto share = triangle_.share(first, k);
            const T x = x_[k * PITCH + line_];
#pragma unroll
            for (int e = 0; e < SHARE; ++e) subtract(sum[e], share.x[e], x);
        }
#pragma unroll
        for (int e = 0; e < SHARE; ++e) x_[(first + e) * PITCH + line_] = sum[e];
        __syncthreads();
    }

    // Solves for elements [s, s + STEP), one thread a line.
    __device__ void eliminate(int s) {
        if (share_ == 0) {
            T y[STEP];
#pragma unroll
            for (int e = 0; e < STEP; ++e) y[e] = x_[(s + e) * PITCH + line_];
#pragma unroll
            for (int k = 0; k < STEP; ++k) {
                y[k] = divide(y[k], triangle_.at(s + k, s + k));
#pragma unroll
                for (int e = k + 1; e < STEP; ++e) subtract(y[e], triangle_.at(s + e, s + k), y[k]);
            }
#pragma unroll
            for (int e = 0; e < STEP; ++e) x_[(s + e) * PITCH + line_] = y[e];
        }
        __syncthreads();
    }

    const SolveArgs<T>& args_;
    const int padded_;
    const SharedTriangle<T> triangle_;
    T* const x_;  // Element e of a line at e * PITCH + line.
    const int warp_, lane_, line_, share_;
    int first_line_;
    const T* from_;
    T* memory_;
};

template <class T, int LINES>
__global__ void __launch_bounds__(SHARES* LINES)
    solve_kernel(const __grid_constant__ SolveArgs<T> args) {
    extern __shared__ __align__(16) char shared[];
    LineSolver<T, LINES>(args, reinterpret_cast<T*>(shared)).run();
}

template <class T, int LINES>
void launch(SolveArgs<T> args, int64_t batch, cudaStream_t stream) {
    args.tiles = (args.last_line - args.first_line + LINES - 1) / LINES;
    launch_leaf(solve_kernel<T, LINES>, args.tiles * batch, SHARES * LINES,
                LineSolver<T, LINES>::shared_bytes(args.order), args, stream);
}

}  // namespace

void solve_leaf(const Solve& p, Span block, Span lines, bool conj, cudaStream_t stream) {
    if (lines.length() <= 0) return;
    with_solved_type(p.dtype, [&](auto element) {
        using T = decltype(element);
        const bool packed = p.x_kind == Kind::Lower;
        const SolveArgs<T> args{
            static_cast<const T*>(p.triangle) + offset(block.begin, block.begin),
            static_cast<T*>(p.x),
            p.triangle_batch_stride,
            p.x_batch_stride,
            packed ? 0 : p.row_stride,
            p.left == (p.kind == Kind::Lower),
            p.unit,
            conj,
            p.left,
            packed,
            static_cast<int>(block.begin),
            static_cast<int>(block.length()),
            static_cast<int>(lines.begin),
            static_cast<int>(lines.end),
            0};
        if (lines.length() > 32) launch<T, 64>(args, p.batch, stream);
        else launch<T, 32>(args, p.batch, stream);
    });
}

}  // namespace packedtri::cuda
