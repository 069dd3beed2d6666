// Small tiles of products by the tensor cores for float64, whatever the type: warps load what these take of both operands
// straight from memory to registers.
#pragma once

#include "fragment_loader.cuh"
#include "fragment_math.cuh"
#include "main_loop.cuh"
#include "product_launch.cuh"

namespace packedtri::cuda {

// A tile of 16 x 16 sums, of which each warp of a block adds up a share of the terms.
template <class T>
class FragmentTile {
    using Math = DoubleMath<T>;
    using Sum = typename Math::Sum;
    using Loader = FragmentLoader<T>;
    using Fragments = typename Loader::Fragments;
    static constexpr int SIDE = FRAGMENT_SIDE, STEPS = Loader::STEPS, NT = SIDE / 8, ACCS = NT * 4;
    // The rows that a quarter of a warp writes at once lie in different banks.
    static constexpr int PITCH = SIDE + (is_complex<T> ? 4 : 8);

  public:
    static constexpr int BM = SIDE, BN = SIDE;

    static constexpr int shared_bytes(int warps) {
        return warps * SIDE * PITCH * static_cast<int>(sizeof(Sum));
    }

    __device__ static void run(const ProductArgs<T>& args, int i0, int j0, int64_t matrix,
                               char* shared) {
        const int warps = static_cast<int>(blockDim.x) / 32,
                  warp = static_cast<int>(threadIdx.x) / 32;
        auto* sums = reinterpret_cast<Sum*>(shared);
        const auto range =
            k_range<int>(args.a_kind, args.b_kind, i0, i0 + SIDE, j0, j0 + SIDE, args.k);
        const int first = range.begin + warp * STEPS;
        FragmentTile tile(args, i0, j0, matrix);
        bool padded = false;
        ptx::wait_for_dependency();
#pragma unroll 1
        for (int k = first; k < range.end; k += warps * STEPS) padded |= tile.multiply(k);
        ptx::launch_dependents();
        // The zeros past a diagonal, times an infinite or nan element, are nan: such an element leaves its mark on every
        // sum that it enters.
        if (__any_sync(~0u, padded && !tile.is_finite())) {
            typename Math::Sums again[NT];
            multiply_stored(args, i0, j0, matrix, first, range.end, again);
#pragma unroll
            for (int n = 0; n < NT; ++n) tile.sums_[n] = again[n];
        }
        tile.put(sums + warp * SIDE * PITCH);
        __syncthreads();
        store(args, args.c + matrix * args.c_batch_stride, sums, warps, i0, j0);
    }

  private:
    __device__ FragmentTile(const ProductArgs<T>& args, int i0, int j0, int64_t matrix)
        : conj_b_(args.conj_b), load_a_(loader_a(args, i0, matrix)),
          load_b_(loader_b(args, j0, matrix)) {}
    __device__ static Loader loader_a(const ProductArgs<T>& args, int i0, int64_t matrix) {
        const int64_t offset = matrix * args.a_batch_stride;
        return {args.a, offset, args.a_kind, args.a_hermitian, args.a_k_major, true, i0};
    }
    __device__ static Loader loader_b(const ProductArgs<T>& args, int j0, int64_t matrix) {
        const int64_t offset = matrix * args.b_batch_stride;
        return {args.b, offset, args.b_kind, args.b_hermitian, args.b_k_major, false, j0};
    }

    // Adds the terms of steps [k, k + 16). Returns whether structural zeros took part.
    __device__ __forceinline__ bool multiply(int k) {
        Fragments a, b;
        load_a_.load(a, k);
        load_b_.load(b, k);
        if (is_complex<T> && conj_b_) Loader::conjugate(b);
        typename Math::B y[NT];
#pragma unroll
        for (int n = 0; n < NT; ++n) y[n] = Math::right(b.x[n]);
        Math::add_products(sums_, Math::left(a.x), y);
        return load_a_.crosses_diagonal(k) || load_b_.crosses_diagonal(k);
    }

    __device__ bool is_finite() const {
        bool all = true;
#pragma unroll
        for (int e = 0; e < ACCS; ++e) all &= finite(sums_[e / 4][e % 4]);
        return all;
    }

    // Where this lane's sum e is in the tile.
    __device__ static int row_of(int e) {
        return e % 4 / 2 * 8 + static_cast<int>(threadIdx.x) % 32 / 4;
    }
    __device__ static int col_of(int e) {
        return e / 4 * 8 + e % 2 + static_cast<int>(threadIdx.x) % 4 * 2;
    }

    // The sums of stored elements only, over this warp's steps from `first` on. A call, so that the registers that this
    // takes are not the main loop's.
    __device__ __noinline__ static void multiply_stored(const ProductArgs<T>& args, int i0, int j0,
                                                        int64_t matrix, int first, int end,
                                                        typename Math::Sums* sums) {
        const int apart = static_cast<int>(blockDim.x) / 32 * STEPS;
        const Loader load_a = loader_a(args, i0, matrix), load_b = loader_b(args, j0, matrix);
#pragma unroll 1
        for (int e = 0; e < ACCS; ++e) {
            Sum sum{};
#pragma unroll 1
            for (int k0 = first; k0 < end; k0 += apart)
#pragma unroll 4
                for (int k = k0; k < k0 + STEPS; ++k) {
                    T x, y;
                    const bool in_a = load_a.load_any(x, i0 + row_of(e), k),
                               in_b = load_b.load_any(y, j0 + col_of(e), k);
                    if (in_a && in_b)
                        fma_into(sum, Math::widen(x), Math::widen(conjugate_if(y, args.conj_b)));
                }
            sums[e / 4].set(e % 4, sum);
        }
    }

    __device__ void put(Sum* to) const {
#pragma unroll
        for (int e = 0; e < ACCS; e += 2) {
            Sum* place = to + row_of(e) * PITCH + col_of(e);
            const Sum first = sums_[e / 4][e % 4], second = sums_[e / 4][e % 4 + 1];
            if constexpr (is_complex<T>) {
                place[0] = first;
                place[1] = second;
            } else {
                *reinterpret_cast<double2*>(place) = make_double2(first, second);
            }
        }
    }

    // Adds up the warps' sums in their order, and stores alpha times the tile plus beta times what is there.
    __device__ static void store(const ProductArgs<T>& args, T* c, const Sum* sums, int warps,
                                 int i0, int j0) {
        const double alpha = args.alpha, beta = args.beta;
#pragma unroll 4
        for (int e = static_cast<int>(threadIdx.x); e < SIDE * SIDE;
             e += static_cast<int>(blockDim.x)) {
            const int row = e / SIDE, col = e % SIDE, i = i0 + row, j = j0 + col;
            if (i >= args.m || j >= (args.c_lower ? min(i + 1, args.n) : args.n)) continue;
            Sum sum = sums[row * PITCH + col];
            for (int w = 1; w < warps; ++w) sum = add(sum, sums[(w * SIDE + row) * PITCH + col]);
            T* to = c + row_offset(i, args.c_ld, args.c_packed) + j;
            Sum value = scale(sum, alpha);
            if (beta != 0) value = add(value, scale(Math::widen(*to), beta));
            *to = Math::round(value);
        }
    }

    const bool conj_b_;
    const Loader load_a_, load_b_;
    typename Math::Sums sums_[NT];
};

template <class T>
__global__ void __launch_bounds__(32 * FRAGMENT_WARPS, 1)
    fragments_kernel(const __grid_constant__ ProductArgs<T> args) {
    extern __shared__ __align__(1024) char shared[];
    const int tiles = static_cast<int>(args.schedule.size()), item = static_cast<int>(blockIdx.x),
              matrix = args.batch == 1 ? 0 : item / tiles;
    const Schedule::Tile tile = args.schedule.at(item - matrix * tiles);
    if (!tile.exists) return;
    using Tile = FragmentTile<T>;
    Tile::run(args, tile.i * Tile::BM, tile.j * Tile::BN, matrix, shared);
}

}  // namespace packedtri::cuda
