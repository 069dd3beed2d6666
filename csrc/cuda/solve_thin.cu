// Solves with few right-hand sides, which are bound by reading the triangle once and by the chain of
// its diagonal blocks: one launch a block takes what it contributes from all elements that are not
// solved for yet, and solves for the next.
#include "line_solver.cuh"

namespace packedtri::cuda {
namespace {

constexpr int THREADS = 256, WARPS = THREADS / 32;

template <class T>
struct ThinSolveArgs {
    SolveArgs<T> next;  // The block to be solved for; the others follow at the same distance.
    const T* triangle;
    Span solved;
    int64_t n;
    int blocks, length;  // Not solved for yet, and elements of each.
};

// Work on one block of at most ORDER elements, of M lines at most.
template <class T, int M, int ORDER>
class ThinStep {
    static constexpr int PER_LANE = ORDER / 32, GROUPS = THREADS / ORDER;

  public:
    __device__ ThinStep(const ThinSolveArgs<T>& args, int64_t batch, int block, T* shared)
        : args_(args), triangle_(args.triangle + batch * args.next.triangle_batch_stride),
          x_(args.next.x + batch * args.next.x_batch_stride), solved_(shared),
          partial_(shared + ORDER * M) {
        begin_ = args.next.begin + (args.next.forward ? block : -block) * args.length;
        order_ = min(static_cast<int>(args.n - begin_), args.length);
    }

    __device__ void run() {
        const int count = static_cast<int>(args_.solved.length());
        for (int k = threadIdx.x; k < ORDER; k += THREADS)
#pragma unroll
            for (int line = 0; line < M; ++line)
                solved_[k * M + line] = k < count && line < args_.next.last_line
                                            ? *place(args_.solved.begin + k, line)
                                            : T{};
        __syncthreads();
        if (args_.next.forward) subtract_rows(count);
        else subtract_cols(count);
        __syncthreads();
    }

    static constexpr int64_t shared_bytes() {
        return (ORDER + THREADS) * M * static_cast<int64_t>(sizeof(T));
    }

  private:
    __device__ T* place(int64_t e, int line) const {
        return x_ + (args_.next.left ? e * args_.next.x_row_stride + line
                                     : line * args_.next.x_row_stride + e);
    }

    __device__ void subtract_from(int e, int line, T sum) const {
        if (line >= args_.next.last_line) return;
        T* const to = place(begin_ + e, line);
        T rest = *to;
        subtract(rest, one<T>(), sum);
        *to = rest;
    }

    // x_e -= sum over k of T(e, k) x_k, one warp a row of the triangle.
    __device__ void subtract_rows(int count) const {
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll 4
        for (int e = warp; e < order_; e += WARPS) {
            const T* row = triangle_ + offset(begin_ + e, args_.solved.begin);
            T sum[M] = {};
#pragma unroll
            for (int q = 0; q < PER_LANE; ++q) {
                const int k = q * 32 + lane;
                const T t = k < count ? row[k] : T{};
#pragma unroll
                for (int line = 0; line < M; ++line) fma_into(sum[line], t, solved_[k * M + line]);
            }
#pragma unroll
            for (int line = 0; line < M; ++line) {
                sum[line] = warp_sum(sum[line]);
                if (lane == 0) subtract_from(e, line, sum[line]);
            }
        }
    }

    // x_e -= sum over k of T(k, e) x_k, GROUPS threads a column of the triangle.
    __device__ void subtract_cols(int count) const {
        const int e = threadIdx.x % ORDER, group = threadIdx.x / ORDER;
        T sum[M] = {};
        if (e < order_) {
#pragma unroll 8
            for (int k = group; k < count; k += GROUPS) {
                const T t = triangle_[offset(args_.solved.begin + k, begin_ + e)];
#pragma unroll
                for (int line = 0; line < M; ++line) fma_into(sum[line], t, solved_[k * M + line]);
            }
        }
#pragma unroll
        for (int line = 0; line < M; ++line) partial_[threadIdx.x * M + line] = sum[line];
        __syncthreads();
        if (group > 0 || e >= order_) return;
#pragma unroll
        for (int line = 0; line < M; ++line) {
            for (int g = 1; g < GROUPS; ++g)
                sum[line] = add(sum[line], partial_[(g * ORDER + e) * M + line]);
            subtract_from(e, line, sum[line]);
        }
    }

    const ThinSolveArgs<T>& args_;
    const T* const triangle_;
    T* const x_;
    T *const solved_, *const partial_;
    int64_t begin_;
    int order_;
};

// A least number of blocks, since without one the compiler spares registers for more than there are.
template <class T, int M, int ORDER>
__global__ void __launch_bounds__(THREADS, 2)
    thin_kernel(const __grid_constant__ ThinSolveArgs<T> args) {
    extern __shared__ __align__(16) char shared[];
    start_leaf();
    const int64_t batch = blockIdx.x / args.blocks;
    const int block = blockIdx.x % args.blocks;
    ThinStep<T, M, ORDER>(args, batch, block, reinterpret_cast<T*>(shared)).run();
    if (block == 0) LineSolver<T, 8>(args.next, batch, 0, reinterpret_cast<T*>(shared)).run();
}

template <class T, int M>
void launch(const ThinSolveArgs<T>& args, int64_t batch, cudaStream_t stream) {
    constexpr int ORDER = sizeof(T) == sizeof(float) ? 128 : 64;
    using Step = ThinStep<T, M, ORDER>;
    const int64_t shared =
        std::max(Step::shared_bytes(), LineSolver<T, 8>::shared_bytes(args.next.order));
    launch_leaf(thin_kernel<T, M, ORDER>, args.blocks * batch, THREADS, shared, args, stream);
}

template <class T>
void step(const Solve& p, Span solved, int64_t length, cudaStream_t stream) {
    const bool forward = p.left == (p.kind == Kind::Lower);
    const int64_t begin = forward ? solved.end : solved.begin - length;
    ThinSolveArgs<T> args{
        solve_args<T>(p, {begin, std::min(begin + length, p.n)}),
        static_cast<const T*>(p.triangle),
        solved,
        p.n,
        static_cast<int>(forward ? ceil_div(p.n - begin, length) : solved.begin / length),
        static_cast<int>(length)};
    args.next.last_line = static_cast<int>(p.m);
    if (p.m == 1) launch<T, 1>(args, p.batch, stream);
    else launch<T, THIN>(args, p.batch, stream);
}

}  // namespace

void solve_thin(const Solve& p, cudaStream_t stream) {
    const bool forward = p.left == (p.kind == Kind::Lower);
    const int64_t length = leaf_order(p.dtype), blocks = ceil_div(p.n, length);
    const auto block = [&](int64_t index) {
        const int64_t begin = (forward ? index : blocks - 1 - index) * length;
        return Span{begin, std::min(begin + length, p.n)};
    };
    solve_leaf(p, block(0), {0, p.m}, false, stream);
    with_solved_type(p.dtype, [&](auto element) {
        for (int64_t b = 0; b + 1 < blocks; ++b)
            step<decltype(element)>(p, block(b), length, stream);
    });
}

}  // namespace packedtri::cuda
