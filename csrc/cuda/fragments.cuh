// Small tiles of products by the tensor cores for float64, whatever the type: warps load what these take of both operands
// straight from memory to registers.
#pragma once

#include "main_loop.cuh"
#include "product_launch.cuh"

namespace packedtri::cuda {

// What elements are multiplied and summed in here, and the conversions.
template <class T>
struct DoublePrecision {
    using type = double;
    __device__ static double widen(T x) { return Accumulator<T>::widen(x); }
    __device__ static T round(double x) { return static_cast<T>(x); }
};
template <>
struct DoublePrecision<__half> {
    using type = double;
    __device__ static double widen(__half x) { return __half2float(x); }
    __device__ static __half round(double x) { return __double2half(x); }
};
template <>
struct DoublePrecision<__nv_bfloat16> {
    using type = double;
    __device__ static double widen(__nv_bfloat16 x) { return __bfloat162float(x); }
    __device__ static __nv_bfloat16 round(double x) { return __double2bfloat16(x); }
};
template <class R>
struct DoublePrecision<Complex<R>> {
    using type = Complex<double>;
    __device__ static type widen(Complex<R> x) { return {x.re, x.im}; }
    __device__ static Complex<R> round(type x) {
        return {static_cast<R>(x.re), static_cast<R>(x.im)};
    }
};

// 16 rows of A, or columns of B, by 16 steps of k: lane l has lines l / 4 and l / 4 + 8, and every fourth step from l % 4
// on. A symmetric operand is read left of its diagonal by memory rows that run along k, right of it by such as run across,
// as the transpose.
template <class T>
class FragmentLoader {
    static constexpr int UNITS = 2, LINES = 8 * UNITS;

  public:
    static constexpr int STEPS = 16;
    struct Fragments {
        T x[UNITS][STEPS / 4];
    };

    // The matrix begins `matrix` elements after the panel, and its first line here is r0. `along`: whether memory rows run
    // along k, unless the operand is symmetric. `left`: whether it is A.
    __device__ FragmentLoader(const Panel<T>& panel, int64_t matrix, Kind kind, bool hermitian,
                              bool along, bool left, int r0)
        : panel_(panel), data_(panel.data + matrix), mirrored_(kind == Kind::Symmetric),
          hermitian_(is_complex<T> && hermitian), along_(along), left_(left), r0_(r0) {}

    // Steps [k0, k0 + 16), zeros past the stored elements.
    __device__ __forceinline__ void load(Fragments& f, int k0) const {
        const int lane = static_cast<int>(threadIdx.x) % 32, r = r0_ + lane / 4, k = k0 + lane % 4;
        if (on_diagonal(k0)) {
#pragma unroll
            for (int u = 0; u < UNITS; ++u)
#pragma unroll
                for (int v = 0; v < STEPS / 4; ++v) load_any(f.x[u][v], r + 8 * u, k + 4 * v);
        } else if (runs_along(k0)) {
#pragma unroll
            for (int u = 0; u < UNITS; ++u) {
                const int row = r + 8 * u, length = row < panel_.rows ? panel_.length(row) : 0;
                const T* from = data_ + (row_offset(row) + k);
#pragma unroll
                for (int v = 0; v < STEPS / 4; ++v)
                    load_if(f.x[u][v], from + 4 * v, k + 4 * v < length);
            }
        } else {
#pragma unroll
            for (int v = 0; v < STEPS / 4; ++v) {
                const int row = k + 4 * v, length = row < panel_.rows ? panel_.length(row) : 0;
                const T* from = data_ + (row_offset(row) + r);
#pragma unroll
                for (int u = 0; u < UNITS; ++u)
                    load_if(f.x[u][v], from + 8 * u, r + 8 * u < length);
            }
        }
        if (hermitian_ && !on_diagonal(k0) && runs_along(k0) != left_) conjugate(f);
    }

    // Element (r, k), or zero. Returns whether it is stored.
    __device__ __forceinline__ bool load_any(T& x, int r, int k) const {
        const bool by_rows = mirrored_ ? k <= r : along_;
        const int row = by_rows ? r : k, col = by_rows ? k : r;
        const bool stored = row < panel_.rows && col < panel_.length(row);
        load_if(x, data_ + (row_offset(row) + col), stored);
        if constexpr (is_complex<T>)
            if (hermitian_) x.im = r == k ? 0 : negate_if(x.im, by_rows != left_);
        return stored;
    }

    // Whether steps [k0, k0 + 16) hold structural zeros.
    __device__ bool crosses_diagonal(int k0) const {
        if (mirrored_) return false;
        return along_ ? panel_.crosses_diagonal(r0_, k0, STEPS)
                      : panel_.crosses_diagonal(k0, r0_, LINES);
    }

    __device__ static void conjugate(Fragments& f) {
#pragma unroll
        for (int u = 0; u < UNITS; ++u)
#pragma unroll
            for (int v = 0; v < STEPS / 4; ++v) f.x[u][v] = conjugate_if(f.x[u][v], true);
    }

  private:
    __device__ bool on_diagonal(int k0) const {
        return mirrored_ && k0 + STEPS > r0_ && k0 < r0_ + LINES;
    }
    __device__ bool runs_along(int k0) const { return mirrored_ ? k0 < r0_ : along_; }
    // In 32 bits, which suffice (fragments_can).
    __device__ int row_offset(int row) const {
        return row * static_cast<int>(panel_.ld) + (panel_.packed ? row_start<int>(row) : 0);
    }
    __device__ __forceinline__ static void load_if(T& x, const T* from, bool needed) {
        x = T{};
        if (needed) x = *from;
    }

    const Panel<T>& panel_;
    const T* data_;
    const bool mirrored_, hermitian_, along_, left_;
    const int r0_;
};

// A tile of 16 x 16 sums, of which each warp of a block adds up a share of the terms.
template <class T>
class FragmentTile {
    using Sum = typename DoublePrecision<T>::type;
    using Loader = FragmentLoader<T>;
    using Fragments = typename Loader::Fragments;
    static constexpr int SIDE = FRAGMENT_SIDE, STEPS = Loader::STEPS, NT = SIDE / 8, ACCS = NT * 4;
    static constexpr int PARTS = is_complex<T> ? 2 : 1;  // Real and imaginary.
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
            double again[PARTS * ACCS];
            multiply_stored(args, i0, j0, matrix, first, range.end, again);
#pragma unroll
            for (int e = 0; e < PARTS * ACCS; ++e) tile.sums_[e / ACCS][e % ACCS] = again[e];
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
        Sum x[8], y[NT][4];
#pragma unroll
        for (int e = 0; e < 8; ++e) x[e] = DoublePrecision<T>::widen(a.x[e % 2][e / 2]);
#pragma unroll
        for (int n = 0; n < NT; ++n)
#pragma unroll
            for (int e = 0; e < 4; ++e) y[n][e] = DoublePrecision<T>::widen(b.x[n][e]);
        if constexpr (is_complex<T>) {
            const auto re = [](Sum z) { return z.re; };
            const auto im = [](Sum z) { return z.im; };
            add_products(sums_[0], x, y, re, re);
            add_products(sums_[1], x, y, re, im);
            add_products(sums_[1], x, y, im, re);
            add_products(sums_[0], x, y, [](Sum z) { return negate_if(z.im, true); }, im);
        } else {
            const auto all = [](Sum z) { return z; };
            add_products(sums_[0], x, y, all, all);
        }
        return load_a_.crosses_diagonal(k) || load_b_.crosses_diagonal(k);
    }
    // Of parts of the elements.
    template <class OfA, class OfB>
    __device__ __forceinline__ static void add_products(double (&sums)[ACCS], const Sum (&x)[8],
                                                        const Sum (&y)[NT][4], OfA of_a, OfB of_b) {
        double a[8];
#pragma unroll
        for (int e = 0; e < 8; ++e) a[e] = of_a(x[e]);
#pragma unroll
        for (int n = 0; n < NT; ++n) {
            double b[4];
#pragma unroll
            for (int e = 0; e < 4; ++e) b[e] = of_b(y[n][e]);
            ptx::mma_16816(sums + n * 4, a, b);
        }
    }

    __device__ bool is_finite() const {
        bool all = true;
#pragma unroll
        for (int e = 0; e < PARTS * ACCS; ++e) all &= finite(sums_[e / ACCS][e % ACCS]);
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
                                                        double* sums) {
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
                        fma_into(sum, DoublePrecision<T>::widen(x),
                                 DoublePrecision<T>::widen(conjugate_if(y, args.conj_b)));
                }
            if constexpr (is_complex<T>) {
                sums[e] = sum.re;
                sums[ACCS + e] = sum.im;
            } else {
                sums[e] = sum;
            }
        }
    }

    __device__ void put(Sum* to) const {
#pragma unroll
        for (int e = 0; e < ACCS; e += 2) {
            Sum* place = to + row_of(e) * PITCH + col_of(e);
            if constexpr (is_complex<T>) {
                place[0] = {sums_[0][e], sums_[1][e]};
                place[1] = {sums_[0][e + 1], sums_[1][e + 1]};
            } else {
                *reinterpret_cast<double2*>(place) = make_double2(sums_[0][e], sums_[0][e + 1]);
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
            if (beta != 0) value = add(value, scale(DoublePrecision<T>::widen(*to), beta));
            *to = DoublePrecision<T>::round(value);
        }
    }

    const bool conj_b_;
    const Loader load_a_, load_b_;
    double sums_[PARTS][ACCS] = {};
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
