// Elements of 4 and 8 bytes: the triangle goes to registers and from there nowhere.
#include "thin.cuh"
#include "thin.h"

namespace packedtri::cuda {
namespace {

constexpr int THREADS = THIN_THREADS, WARPS = THIN_WARPS;

// STEPS elements of C vectors. Rows are a whole number of words of 16 bytes long, an odd one, so that
// 8 lanes with a word of 8 rows meet all banks once.
template <class Acc, int STEPS, int C>
struct VectorTile {
    static constexpr int WORD = 16 / sizeof(Acc), PITCH = (C / WORD | 1) * WORD;
    alignas(16) Acc at[STEPS][PITCH];

    // Called by all threads of the block at one place in the code.
    template <class T>
    __device__ void load(const ThinArgs<T>& args, const T* x, int k0, int vector) {
        __syncthreads();  // The vectors before have been read.
        const bool across = args.x_next == 1;
#pragma unroll 4
        for (int e = threadIdx.x; e < STEPS * C; e += THREADS) {
            const int k = across ? e / C : e % STEPS, c = across ? e % C : e / STEPS;
            const bool exists = k0 + k < args.n && vector + c < args.vectors;
            at[k][c] =
                exists
                    ? Accumulator<T>::widen(x[(k0 + k) * args.x_step + (vector + c) * args.x_next])
                    : Acc{};
        }
        __syncthreads();
    }
    __device__ void read(int k, Acc (&x)[C]) const {
        struct alignas(16) Word {
            Acc x[WORD];
        };
#pragma unroll
        for (int w = 0; w < C / WORD; ++w) {
            const Word word = *reinterpret_cast<const Word*>(at[k] + w * WORD);
#pragma unroll
            for (int e = 0; e < WORD; ++e) x[w * WORD + e] = word.x[e];
        }
    }
};

// The sums of all lanes, N / 32 of them to each lane: those from lane * N / 32 on.
template <int N, int DISTANCE = 16, class Acc>
__device__ void add_lanes(Acc* sum) {
    if constexpr (DISTANCE > 0) {
        constexpr int HALF = N * DISTANCE / 32;
        const bool upper = threadIdx.x & DISTANCE;
#pragma unroll
        for (int e = 0; e < HALF; ++e) {
            const Acc low = sum[e], high = sum[HALF + e];
            const Acc theirs = __shfl_xor_sync(~0u, upper ? low : high, DISTANCE);
            sum[e] = (upper ? high : low) + theirs;
        }
        add_lanes<N, DISTANCE / 2>(sum);
    }
}

// Steps of a sum whose elements a lane has loaded before it multiplies them: as many as registers allow.
template <class T>
constexpr int ROW_STEPS = sizeof(T) < 8 ? 128 : 64;
constexpr int COLUMN_STEPS = 64;

// T X: sums run along the rows of T. A warp has R of them, and a lane every 32nd element.
template <class T, int C, int R>
__global__ void __launch_bounds__(THREADS, 2) thin_rows_kernel(const ThinArgs<T> args) {
    using Acc = typename Accumulator<T>::type;
    constexpr int OUT = WARPS * R, STEPS = ROW_STEPS<T>, U = STEPS / 32;
    __shared__ VectorTile<Acc, STEPS, C> vectors;
    __shared__ Acc sums[OUT * C];
    ptx::wait_for_dependency();
    ptx::launch_dependents();
    const ThinPart<OUT, C> part(args, true);
    const T* triangle = args.triangle + part.batch * args.triangle_batch_stride;
    const T* x = args.x + part.batch * args.x_batch_stride;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, i0 = part.first + warp * R;
    const int tiles =
        static_cast<int>(ceil_div(max(0, min(args.n, part.first + OUT) - 1 + args.reach), STEPS));
    const T* rows = triangle + row_start(i0) + lane;
    Acc sum[R * C] = {};
    for (int t = tiles * part.rank / args.split; t < tiles * (part.rank + 1) / args.split; ++t) {
        const int k0 = t * STEPS;
        const bool whole = k0 + STEPS <= i0 + args.reach && i0 + R <= args.n;
        const auto stored = [&](int r, int u) {
            return i0 + r < args.n && k0 + u * 32 + lane < i0 + r + args.reach;
        };
        T a[U][R];
#pragma unroll
        for (int u = 0; u < U; ++u)
#pragma unroll
            for (int r = 0; r < R; ++r) {
                // Row i0 + r begins so many elements behind row i0.
                const T* from = rows + (r * i0 + r * (r + 1) / 2 + k0 + u * 32);
                a[u][r] = whole || stored(r, u) ? *from : T{};
            }
        vectors.load(args, x, k0, part.vector);
#pragma unroll
        for (int u = 0; u < U; ++u) {
            Acc b[C];
            vectors.read(u * 32 + lane, b);
#pragma unroll
            for (int r = 0; r < R; ++r) {
                // Zeros that are not stored take no part: times an infinite element they are nan.
                if (!whole && !stored(r, u)) continue;
#pragma unroll
                for (int c = 0; c < C; ++c)
                    fma_into(sum[r * C + c], Accumulator<T>::widen(a[u][r]), b[c]);
            }
        }
    }
    add_lanes<R * C>(sum);
#pragma unroll
    for (int e = 0; e < R * C / 32; ++e) sums[warp * R * C + lane * (R * C / 32) + e] = sum[e];
    store_sums(args, part, sums, C, 1, [](int, int, Acc sum) { return sum; });
}

// Tᵀ X: sums run down the columns of T, of which a lane has two. Warps share the rows.
template <class T, int C>
__global__ void __launch_bounds__(THREADS, 2) thin_columns_kernel(const ThinArgs<T> args) {
    using Acc = typename Accumulator<T>::type;
    constexpr int COLS = 2, OUT = 32 * COLS, STEPS = COLUMN_STEPS, U = STEPS / WARPS;
    __shared__ VectorTile<Acc, STEPS, C> vectors;
    __shared__ Acc sums[WARPS][C][OUT];
    ptx::wait_for_dependency();
    ptx::launch_dependents();
    const ThinPart<OUT, C> part(args, false);
    const T* triangle = args.triangle + part.batch * args.triangle_batch_stride;
    const T* x = args.x + part.batch * args.x_batch_stride;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, j0 = part.first;
    const int tiles = static_cast<int>(ceil_div(args.n - j0, STEPS));
    Acc sum[COLS][C] = {};
    for (int t = tiles * part.rank / args.split; t < tiles * (part.rank + 1) / args.split; ++t) {
        const int k0 = j0 + t * STEPS;
        const bool whole = t > 0 && k0 + STEPS <= args.n;
        const auto stored = [&](int u, int c) {
            const int i = k0 + u * WARPS + warp;
            return i < args.n && j0 + 32 * c + lane < i + args.reach;
        };
        T a[U][COLS];
#pragma unroll
        for (int u = 0; u < U; ++u)
#pragma unroll
            for (int c = 0; c < COLS; ++c)
                a[u][c] = whole || stored(u, c)
                              ? triangle[offset(k0 + u * WARPS + warp, j0 + 32 * c + lane)]
                              : T{};
        vectors.load(args, x, k0, part.vector);
#pragma unroll
        for (int u = 0; u < U; ++u) {
            Acc b[C];
            vectors.read(u * WARPS + warp, b);
#pragma unroll
            for (int c = 0; c < COLS; ++c) {
                if (!whole && !stored(u, c)) continue;
#pragma unroll
                for (int v = 0; v < C; ++v)
                    fma_into(sum[c][v], Accumulator<T>::widen(a[u][c]), b[v]);
            }
        }
    }
#pragma unroll
    for (int v = 0; v < C; ++v)
#pragma unroll
        for (int c = 0; c < COLS; ++c) sums[warp][v][32 * c + lane] = sum[c][v];
    __syncthreads();
    for (int e = threadIdx.x; e < C * OUT; e += THREADS) {
        Acc* all = &sums[0][0][e];
        for (int w = 1; w < WARPS; ++w) all[0] += all[w * C * OUT];
    }
    store_sums(args, part, &sums[0][0][0], 1, OUT, [](int, int, Acc sum) { return sum; });
}

template <int C, int R, class T>
void launch(const ThinArgs<T>& args, bool by_rows, cudaStream_t stream) {
    if (by_rows) launch_thin<WARPS * R, C, ROW_STEPS<T>>(thin_rows_kernel<T, C, R>, args, stream);
    else launch_thin<64, C, COLUMN_STEPS>(thin_columns_kernel<T, C>, args, stream);
}

template <class T>
void run(const Product& p, cudaStream_t stream) {
    const ThinArgs<T> args = thin_args<T>(p);
    const bool by_rows = sums_along_rows(p);
    if (args.vectors <= 4) return launch<4, 8>(args, by_rows, stream);
    if constexpr (sizeof(T) == 8) return launch<8, 4>(args, by_rows, stream);
    else if (args.vectors <= 8) return launch<8, 8>(args, by_rows, stream);
    else return launch<16, 4>(args, by_rows, stream);
}

}  // namespace

void mm_thin(const Product& p, cudaStream_t stream) {
    switch (p.dtype) {
        case DType::f16:
        case DType::bf16: return mm_thin_16bit(p, stream);
        case DType::f32: return run<float>(p, stream);
        case DType::f64: return run<double>(p, stream);
        default: throw std::logic_error("[packedtri] no thin products of complex numbers");
    }
}

}  // namespace packedtri::cuda
