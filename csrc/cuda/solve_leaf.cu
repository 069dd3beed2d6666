#include <algorithm>

#include "solve_small.cuh"

namespace packedtri::cuda {
namespace {

// The threads of a block load two rows of a triangle at a time, and of the largest ones one.
constexpr int LEAST_THREADS = 128, MOST_THREADS = 256;

// At least so many blocks have room; else the compiler spares registers for more. Those of complex128 take all.
template <class T>
constexpr int BLOCKS = sizeof(T) < 16 ? 2 : 1;

template <class T, int LINES>
__global__ void __launch_bounds__(MOST_THREADS, BLOCKS<T>)
    solve_kernel(const __grid_constant__ SolveArgs<T> args) {
    extern __shared__ __align__(16) char shared[];
    start_leaf();
    LineSolver<T, LINES>(args, blockIdx.x / args.tiles, blockIdx.x % args.tiles,
                         reinterpret_cast<T*>(shared))
        .run();
}

template <class T, int LINES>
void launch(SolveArgs<T> args, int64_t batch, cudaStream_t stream) {
    using Solver = LineSolver<T, LINES>;
    args.tiles = (args.last_line - args.first_line + LINES - 1) / LINES;
    const int threads = std::clamp(2 * row_threads(args.order), LEAST_THREADS, MOST_THREADS);
    launch_leaf(solve_kernel<T, LINES>, args.tiles * batch, threads,
                Solver::shared_bytes(args.order), args, stream);
}

// The fewer lines a block has the sooner it has solved for them, as long as all blocks run at once; otherwise blocks have as
// many as there are, or as fit (measured on an H200).
template <class T>
int lines_of_block(int order, int64_t lines, int64_t batch) {
    const Device& device = current_device();
    int found = 8;
    for (int more : {8, 16, 32, 64}) {
        const int64_t bytes = LineSolver<T, 8>::shared_bytes(order, more);
        if (more > 8 && bytes > int64_t{device.shared_kib} * 1024) break;
        found = more;
        if (lines <= more || ceil_div(lines, more) * batch <= device.multiprocessors) break;
    }
    return found;
}

}  // namespace

void solve_leaf(const Solve& p, Span block, Span lines, bool conj, cudaStream_t stream) {
    if (lines.length() <= 0) return;
    with_solved_type(p.dtype, [&](auto element) {
        using T = decltype(element);
        SolveArgs<T> args = solve_args<T>(p, block);
        args.conj = conj;
        args.first_line = static_cast<int>(lines.begin);
        args.last_line = static_cast<int>(lines.end);
        if constexpr (!is_complex<T>) {
            // With a right-hand side a lane more triangles have room at once, but each takes twice as long (measured on an H200).
            const int64_t tiles = ceil_div(lines.length(), 32) * p.batch,
                          many = current_device().multiprocessors * (args.order <= 16 ? 5 : 8);
            if (args.order <= 16 && tiles > many)
                return launch_small_solve<T, 16>(args, p.batch, stream);
            if (args.order <= 32 && tiles > many)
                return launch_small_solve<T, 32>(args, p.batch, stream);
        }
        switch (lines_of_block<T>(args.order, lines.length(), p.batch)) {
            case 8: return launch<T, 8>(args, p.batch, stream);
            case 16: return launch<T, 16>(args, p.batch, stream);
            case 32: return launch<T, 32>(args, p.batch, stream);
            default: launch<T, 64>(args, p.batch, stream);
        }
    });
}

}  // namespace packedtri::cuda
