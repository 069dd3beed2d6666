// Elements of 2 bytes: chunks of 8 go from memory to the registers in which the tensor cores want them. The
// order of the steps of a sum does not matter, so that each lane multiplies the chunks that it has
// loaded; only the vectors, in shared memory, are read to match.
#include "thin.cuh"
#include "thin.h"
#include "triangle_16bit.cuh"

namespace packedtri::cuda {
namespace {

constexpr int THREADS = THIN_THREADS, WARPS = THIN_WARPS;
constexpr int OUT = 64;     // Elements of each vector of the result that a block computes.
constexpr int STEPS = 128;  // Of a sum, at once.

// STEPS elements of C vectors, a row each. PAD bytes keep the lanes of a read in different banks.
template <class T, int C, int PAD>
struct VectorTile {
    alignas(16) T at[C][STEPS + PAD / sizeof(T)];

    // Lanes have neighbouring steps, which are neighbours here: 8 vectors at once where their elements lie
    // side by side and aligned. Called by all threads of the block at one place in the code.
    __device__ void load(const ThinArgs<T>& args, const T* x, int k0, int vector) {
        __syncthreads();  // The vectors before have been read.
        const T* from = x + k0 * args.x_step + vector * args.x_next;
        const bool words = args.x_next == 1 && vector + C <= args.vectors &&
                           (reinterpret_cast<uintptr_t>(from) | args.x_step * sizeof(T)) % 16 == 0;
        if (words) {
#pragma unroll
            for (int e = threadIdx.x; e < STEPS * C / 8; e += THREADS) {
                const int k = e % STEPS, c = e / STEPS * 8;
                uint4 word{};
                if (k0 + k < args.n)
                    word = *reinterpret_cast<const uint4*>(from + k * args.x_step + c);
                const T* elements = reinterpret_cast<const T*>(&word);
#pragma unroll
                for (int v = 0; v < 8; ++v) at[c + v][k] = elements[v];
            }
        } else {
#pragma unroll 4
            for (int e = threadIdx.x; e < STEPS * C; e += THREADS) {
                const int k = e % STEPS, c = e / STEPS;
                const bool exists = k0 + k < args.n && vector + c < args.vectors;
                at[c][k] = exists ? from[k * args.x_step + c * args.x_next] : T{};
            }
        }
        __syncthreads();
    }
};

// The zeros past the diagonal, times an infinite or nan element, are nan: such sums are made again.
template <class T, int C>
__device__ void store(const ThinArgs<T>& args, const ThinPart<OUT, C>& part,
                      const Triangle<T>& triangle, const T* x, float* sums, bool by_rows) {
    store_sums(args, part, sums, C, 1, [&](int i, int vector, float sum) {
        return isfinite(sum) ? sum
                             : triangle.sum(x + vector * args.x_next, args.x_step, i, by_rows);
    });
}

// Calls f(m, e) for all accumulators of N products.
template <int N, class F>
__device__ __forceinline__ void for_all(F f) {
#pragma unroll
    for (int m = 0; m < N; ++m)
#pragma unroll
        for (int e = 0; e < 4; ++e) f(m, e);
}

// T X: a warp multiplies 16 rows of T, a half of the warps the first half of the steps. A lane has 8
// neighbours of two rows for every 32 steps.
template <class T, int C>
__global__ void __launch_bounds__(THREADS, 2) thin_rows_kernel(const ThinArgs<T> args) {
    constexpr int ROW_WARPS = OUT / 16, HALF = STEPS / 2, U = HALF / 32, NT = C / 8;
    static_assert(ROW_WARPS * 2 == WARPS, "");
    __shared__ VectorTile<T, C, 64> vectors;
    __shared__ float sums[OUT][C];
    ptx::wait_for_dependency();
    ptx::launch_dependents();
    const ThinPart<OUT, C> part(args, true);
    const Triangle<T> triangle(args.triangle + part.batch * args.triangle_batch_stride, args.n,
                               args.reach);
    const T* x = args.x + part.batch * args.x_batch_stride;
    const int warp = threadIdx.x / 32, group = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const int half = warp / ROW_WARPS, row = warp % ROW_WARPS * 16, i0 = part.first + row;
    const int tiles =
        static_cast<int>(ceil_div(max(0, min(args.n, part.first + OUT) - 1 + args.reach), STEPS));
    float acc[NT][4] = {};
    for (int tile = tiles * part.rank / args.split; tile < tiles * (part.rank + 1) / args.split;
         ++tile) {
        const int first = tile * STEPS + half * HALF;
        const bool whole = first + HALF <= i0 + args.reach && i0 + 16 <= args.n;
        const auto multiply = [&](int u, const uint4& low, const uint4& high) {
            const uint32_t a[2][4] = {{low.x, high.x, low.y, high.y},
                                      {low.z, high.z, low.w, high.w}};
#pragma unroll
            for (int m = 0; m < NT; ++m) {
                const uint4 b = *reinterpret_cast<const uint4*>(
                    &vectors.at[m * 8 + group][half * HALF + u * 32 + t * 8]);
                const uint32_t words[4] = {b.x, b.y, b.z, b.w};
                ptx::mma_16816(acc[m], a[0], words, T{});
                ptx::mma_16816(acc[m], a[1], words + 2, T{});
            }
        };
        Chunk a[U][2] = {};
        if (whole) {
#pragma unroll
            for (int u = 0; u < U; ++u)
#pragma unroll
                for (int h = 0; h < 2; ++h)
                    a[u][h] = triangle.whole(i0 + group + 8 * h, first + u * 32 + t * 8);
        }
        vectors.load(args, x, tile * STEPS, part.vector);
        if (whole) {
#pragma unroll
            for (int u = 0; u < U; ++u) multiply(u, a[u][0].cut(), a[u][1].cut());
        } else {
#pragma unroll 1
            for (int u = 0; u < U; ++u) {
                const int k = first + u * 32 + t * 8;
                multiply(u, triangle.stored(i0 + group, k), triangle.stored(i0 + group + 8, k));
            }
        }
    }
    // The second half of the steps first.
    const auto place = [&](int m, int e) -> float& {
        return sums[row + group + e / 2 * 8][m * 8 + t * 2 + e % 2];
    };
    if (half == 1) for_all<NT>([&](int m, int e) { place(m, e) = acc[m][e]; });
    __syncthreads();
    if (half == 0) for_all<NT>([&](int m, int e) { place(m, e) += acc[m][e]; });
    store(args, part, triangle, x, &sums[0][0], true);
}

// Tᵀ X: a warp multiplies every WARPS-th 16 rows of T. A lane has the same 8 columns of four rows.
template <class T, int C>
__global__ void __launch_bounds__(THREADS, 2) thin_columns_kernel(const ThinArgs<T> args) {
    constexpr int MT = C / 16;
    static_assert(STEPS == 16 * WARPS, "");
    __shared__ VectorTile<T, C, 32> vectors;
    __shared__ float sums[WARPS / 2][OUT][C];
    ptx::wait_for_dependency();
    ptx::launch_dependents();
    const ThinPart<OUT, C> part(args, false);
    const Triangle<T> triangle(args.triangle + part.batch * args.triangle_batch_stride, args.n,
                               args.reach);
    const T* x = args.x + part.batch * args.x_batch_stride;
    const int warp = threadIdx.x / 32, group = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const int j0 = part.first;
    const int tiles = static_cast<int>(ceil_div(args.n - j0, STEPS));
    float acc[MT][8][4] = {};
    for (int tile = tiles * part.rank / args.split; tile < tiles * (part.rank + 1) / args.split;
         ++tile) {
        const int k0 = j0 + tile * STEPS, i = k0 + warp * 16 + t * 4, j = j0 + group * 8;
        const bool whole = tile > 0 && k0 + STEPS <= args.n;
        Chunk chunks[4] = {};
        if (whole) {
#pragma unroll
            for (int r = 0; r < 4; ++r) chunks[r] = triangle.whole(i + r, j);
        }
        vectors.load(args, x, k0, part.vector);
        uint4 rows[4];
#pragma unroll
        for (int r = 0; r < 4; ++r) rows[r] = whole ? chunks[r].cut() : triangle.stored(i + r, j);
        uint32_t a[MT][4];
#pragma unroll
        for (int m = 0; m < MT; ++m)
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const uint2 word = *reinterpret_cast<const uint2*>(
                    &vectors.at[m * 16 + h * 8 + group][warp * 16 + t * 4]);
                a[m][h] = word.x;
                a[m][2 + h] = word.y;
            }
        const uint32_t w[4][4] = {{rows[0].x, rows[0].y, rows[0].z, rows[0].w},
                                  {rows[1].x, rows[1].y, rows[1].z, rows[1].w},
                                  {rows[2].x, rows[2].y, rows[2].z, rows[2].w},
                                  {rows[3].x, rows[3].y, rows[3].z, rows[3].w}};
#pragma unroll
        for (int q = 0; q < 8; ++q) {
            // Element q of each row's chunk, two rows to a word.
            const int halves = q % 2 == 0 ? 0x5410 : 0x7632;
            const uint32_t b[2] = {__byte_perm(w[0][q / 2], w[1][q / 2], halves),
                                   __byte_perm(w[2][q / 2], w[3][q / 2], halves)};
#pragma unroll
            for (int m = 0; m < MT; ++m) ptx::mma_16816(acc[m][q], a[m], b, T{});
        }
    }
    const auto place = [&](int w, int m, int q, int e) -> float& {
        return sums[w][(t * 2 + e % 2) * 8 + q][m * 16 + e / 2 * 8 + group];
    };
    const auto for_sums = [&](auto f) {
#pragma unroll
        for (int m = 0; m < MT; ++m) for_all<8>([&](int q, int e) { f(m, q, e); });
    };
#pragma unroll
    for (int half = WARPS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (warp >= half && warp < 2 * half)
            for_sums([&](int m, int q, int e) { place(warp - half, m, q, e) = acc[m][q][e]; });
        __syncthreads();
        if (warp < half)
            for_sums([&](int m, int q, int e) { acc[m][q][e] += place(warp, m, q, e); });
    }
    if (warp == 0) for_sums([&](int m, int q, int e) { place(0, m, q, e) = acc[m][q][e]; });
    store(args, part, triangle, x, &sums[0][0][0], false);
}

template <class T>
void run(const Product& p, cudaStream_t stream) {
    const ThinArgs<T> args = thin_args<T>(p);
    if (sums_along_rows(p)) {
        if (args.vectors <= 8)
            return launch_thin<OUT, 8, STEPS>(thin_rows_kernel<T, 8>, args, stream);
        if (args.vectors <= 16)
            return launch_thin<OUT, 16, STEPS>(thin_rows_kernel<T, 16>, args, stream);
        return launch_thin<OUT, 32, STEPS>(thin_rows_kernel<T, 32>, args, stream);
    }
    if (args.vectors <= 16)
        return launch_thin<OUT, 16, STEPS>(thin_columns_kernel<T, 16>, args, stream);
    return launch_thin<OUT, 32, STEPS>(thin_columns_kernel<T, 32>, args, stream);
}

}  // namespace

void mm_thin_16bit(const Product& p, cudaStream_t stream) {
    if (p.dtype == DType::f16) run<__half>(p, stream);
    else run<__nv_bfloat16>(p, stream);
}

}  // namespace packedtri::cuda
