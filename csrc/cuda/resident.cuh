// Batches of products of a packed matrix and a dense one. A block copies the packed matrix to shared memory as it lies in
// memory, all at once, and its warps take fragments for the tensor cores from there, and those of the dense one from memory.
#pragma once

#include "fragment_loader.cuh"
#include "fragment_math.cuh"
#include "hopper.cuh"
#include "panel.cuh"
#include "resident_lines.cuh"

namespace packedtri::cuda {

// C = P X, or the transpose of that: C = X P, where X and C below are the transposes of what the product has.
template <class T>
struct ResidentArgs {
    ProductArgs<T> product;
    const T *packed, *dense;
    int64_t packed_stride, dense_stride;  // From matrix to matrix.
    bool left;                            // Whether the packed matrix is the left operand.
    bool hermitian;                       // Whether that is a Hermitian one.
    int order, columns;                   // Of P; and how many columns X has.
    int ld;          // Of X: from row to row, or from column to column, if it is `along`.
    bool along;      // Whether columns of X lie in memory as such.
    bool x_words;    // Whether elements of neighbouring columns may be loaded at once.
    bool c_words;    // Whether those of C may be stored so.
    int apiece;      // How many matrices a block has.
    int slot;        // Bytes of shared memory for each.
    int prefetched;  // Bytes of each X that the L2 cache fetches at once.
};

// Elements that are loaded or stored at once: in words of up to 16 bytes, of which they have the alignment.
template <class T, int N>
struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) Words {
    T x[N];
};

// Fragments of X: 8 NT columns from s0 on, of which each lane has NT side by side.
template <class T, int NT>
class ResidentColumns {
  public:
    struct Fragments {
        T x[NT][4];
    };

    __device__ ResidentColumns(const ResidentArgs<T>& args, int64_t matrix, int s0)
        : args_(args), data_(args.dense + matrix * args.dense_stride),
          first_(s0 + static_cast<int>(threadIdx.x) % 32 / 4 * NT),
          full_(s0 + 8 * NT <= args.columns) {}

    // To be called before columns are loaded at these steps.
    __device__ __forceinline__ void turn_to(const LaneSteps& steps) {
#pragma unroll
        for (int v = 0; v < 4; ++v)
            at_[v] = args_.along ? first_ * args_.ld + steps.k[v] : first_ + steps.k[v] * args_.ld;
    }

    // Steps [k0, k0 + 16), zeros past the end.
    __device__ __forceinline__ void load(Fragments& f, int k0, const LaneSteps& steps) const {
        const int step = args_.along ? k0 : k0 * args_.ld, next = args_.along ? args_.ld : 1;
        if (!full_ || k0 + 16 > args_.order) {
#pragma unroll
            for (int v = 0; v < 4; ++v)
#pragma unroll
                for (int n = 0; n < NT; ++n) {
                    f.x[n][v] = T{};
                    if (k0 + steps.k[v] < args_.order && first_ + n < args_.columns)
                        f.x[n][v] = data_[at_[v] + step + n * next];
                }
        } else if (args_.x_words) {
#pragma unroll
            for (int v = 0; v < 4; ++v) {
                const auto words = *reinterpret_cast<const Words<T, NT>*>(data_ + (at_[v] + step));
#pragma unroll
                for (int n = 0; n < NT; ++n) f.x[n][v] = words.x[n];
            }
        } else {
#pragma unroll
            for (int v = 0; v < 4; ++v)
#pragma unroll
                for (int n = 0; n < NT; ++n) f.x[n][v] = data_[at_[v] + step + n * next];
        }
    }

  private:
    const ResidentArgs<T>& args_;
    const T* data_;
    const int first_;
    const bool full_;
    int at_[4];
};

// What a warp has of C: 16 MT rows by 8 NT columns. KIND: of P.
template <class T, int MT, int NT, Kind KIND>
class ResidentTile {
    using Math = FragmentMath<T>;
    using Lines = ResidentLines<T, MT, KIND>;
    using Columns = ResidentColumns<T, NT>;
    static constexpr int STEPS = 16;
    static constexpr int OWN = 2 * NT;  // Columns that a lane has sums of, side by side.

  public:
    static constexpr int ROWS = 16 * MT, COLS = 8 * NT;

    // `data`: P, in shared memory.
    __device__ __forceinline__ static void run(const ResidentArgs<T>& args, const T* data,
                                               int64_t matrix, int r0, int s0) {
        ResidentTile tile(args);
        tile.multiply(data, matrix, r0, s0);
        // Zeros past a diagonal, and what is multiplied past the end of P, make nan of an infinite or nan element: it leaves
        // its mark on every sum that it enters.
        const bool padded = KIND != Kind::Symmetric || args.order % STEPS != 0;
        if (padded && __any_sync(~0u, !tile.is_finite(r0))) store_again(args, matrix, r0, s0);
        else tile.store(matrix, r0, s0);
    }

  private:
    __device__ explicit ResidentTile(const ResidentArgs<T>& args) : args_(args) {}

    __device__ __forceinline__ void multiply(const T* data, int64_t matrix, int r0, int s0) {
        Lines lines(data, args_.order, args_.hermitian, !args_.left, r0);
        Columns columns(args_, matrix, s0);
        const int begin = KIND == Kind::Upper ? r0 : 0,
                  end = KIND == Kind::Lower ? min(r0 + ROWS, args_.order) : args_.order;
        typename Columns::Fragments coming{};
        LaneSteps steps = LaneSteps::every_fourth();
        columns.turn_to(steps);
        // In the first round nothing is multiplied, in the last one nothing is loaded.
#pragma unroll 1
        for (int k = begin - STEPS; k < end; k += STEPS) {
            typename Math::B y[NT];
#pragma unroll
            for (int n = 0; n < NT; ++n) y[n] = Math::right(coming.x[n]);
            if (k >= begin) lines.turn_to(k, steps);
            if (k + STEPS < end) {
                if (k + STEPS == lines.all_across()) {
                    steps = Lines::steps_across();
                    columns.turn_to(steps);
                }
                columns.load(coming, k + STEPS, steps);
            }
            if (k < begin) continue;
#pragma unroll
            for (int m = 0; m < MT; ++m) {
                if (!lines.needed(m, k)) continue;
                Math::add_products(sums_[m], Math::left(lines.load(m, k).x), y);
            }
        }
    }

    // Of what is stored: rows past the end may be anything.
    __device__ bool is_finite(int r0) const {
        using Real = typename Math::Real;
        bool all = true;
#pragma unroll
        for (int h = 0; h < 2 * MT; ++h) {
            Real zero = 0;
#pragma unroll
            for (int n = 0; n < NT; ++n)
#pragma unroll
                for (int e = 0; e < 2 * Math::PARTS; ++e)
                    zero = fma(sums_[h / 2][n].part[e / 2][h % 2 * 2 + e % 2], Real{0}, zero);
            all &= zero == 0 || r0 + row(h) >= args_.order;
        }
        return all;
    }

    // This lane's rows of sums, of which each m has two, and columns.
    __device__ static int row(int h) { return h / 2 * 16 + Lines::lane_line(h % 2); }
    __device__ static int column(int x) { return static_cast<int>(threadIdx.x) % 4 * OWN + x; }

    __device__ void store(int64_t matrix, int r0, int s0) const {
        const ProductArgs<T>& p = args_.product;
        T* c = p.c + matrix * p.c_batch_stride;
        const int ld = static_cast<int>(p.c_ld), s = s0 + column(0);
        const bool words = args_.c_words && s + OWN <= args_.columns;
#pragma unroll
        for (int h = 0; h < 2 * MT; ++h) {
            const int r = r0 + row(h);
            if (r >= args_.order) continue;
            Words<T, OWN> own;
#pragma unroll
            for (int x = 0; x < OWN; ++x)
                own.x[x] = Math::round(sums_[h / 2][x % NT][h % 2 * 2 + x / NT]);
            if (words) {
                *reinterpret_cast<Words<T, OWN>*>(c + (r * ld + s)) = own;
                continue;
            }
#pragma unroll
            for (int x = 0; x < OWN; ++x)
                if (s + x < args_.columns)
                    c[args_.left ? r * ld + s + x : (s + x) * ld + r] = own.x[x];
        }
    }

    // The sums of stored elements only. A call, so that the registers that this takes are not the main loop's.
    __device__ __noinline__ static void store_again(const ResidentArgs<T>& args, int64_t matrix,
                                                    int r0, int s0) {
        const ProductArgs<T>& p = args.product;
        const FragmentLoader<T> a(p.a, matrix * p.a_batch_stride, p.a_kind, p.a_hermitian,
                                  p.a_k_major, true, 0),
            b(p.b, matrix * p.b_batch_stride, p.b_kind, p.b_hermitian, p.b_k_major, false, 0);
#pragma unroll 1
        for (int e = 0; e < 2 * MT * OWN; ++e) {
            const int r = r0 + row(e / OWN), s = s0 + column(e % OWN);
            if (r >= args.order || s >= args.columns) continue;
            const int i = args.left ? r : s, j = args.left ? s : r;
            p.c[matrix * p.c_batch_stride + i * p.c_ld + j] =
                product_of_stored<Math>(a, b, i, j, p.k);
        }
    }

    const ResidentArgs<T>& args_;
    typename Math::Sums sums_[MT][NT];
};

// Copies what a block has of packed matrices, and waits for it.
template <class T>
__device__ __forceinline__ void copy_resident(const ResidentArgs<T>& args, int64_t first, int count,
                                              char* slots, uint64_t* landed) {
    constexpr int WORD = 16 / static_cast<int>(sizeof(T));
    const uint32_t barrier = ptx::shared_address(landed);
    for (int g = static_cast<int>(threadIdx.x); g < count; g += static_cast<int>(blockDim.x)) {
        if (args.prefetched > 0) {
            const T* x = args.dense + (first + g) * args.dense_stride;
            ptx::bulk_prefetch(x - ptx::past_word(x), args.prefetched);
        }
        const T* from = args.packed + (first + g) * args.packed_stride;
        const int place = ptx::past_word(from), end = place + row_start<int>(args.order);
        // The word in which the matrix ends may reach out of its memory.
        const int words = end / WORD;
        T* to = reinterpret_cast<T*>(slots + g * args.slot);
        for (int e = max(place, words * WORD); e < end; ++e) to[e] = from[e - place];
        if (words == 0) continue;
        ptx::mbarrier_expect(barrier, words * 16);
        ptx::bulk_load(ptx::shared_address(to), from - place, words * 16, barrier);
    }
    __syncthreads();
    if (threadIdx.x == 0) ptx::mbarrier_arrive(barrier);
    ptx::mbarrier_wait(barrier, 0);
}

// Up to THREADS in a block.
template <class T, int MT, int NT, int THREADS, Kind KIND>
__global__ void __launch_bounds__(THREADS, 1)
    resident_kernel(const __grid_constant__ ResidentArgs<T> args) {
#if PACKEDTRI_HOPPER
    using Tile = ResidentTile<T, MT, NT, KIND>;
    extern __shared__ __align__(16) char slots[];
    __shared__ uint64_t landed;
    if (threadIdx.x == 0) {
        ptx::mbarrier_init(ptx::shared_address(&landed), 1);
        ptx::mbarrier_init_fence();
    }
    __syncthreads();
    const int64_t first = int64_t{blockIdx.x} * args.apiece;
    const int count = min(args.apiece, static_cast<int>(args.product.batch - first));
    ptx::wait_for_dependency();
    copy_resident(args, first, count, slots, &landed);

    const unsigned down = (args.order + Tile::ROWS - 1) / Tile::ROWS,
                   across = (args.columns + Tile::COLS - 1) / Tile::COLS, each = across * down;
    // The same for all lanes, which the compiler does not see otherwise.
    const unsigned warp = __shfl_sync(~0u, threadIdx.x / 32, 0), warps = blockDim.x / 32;
    for (unsigned task = warp; task < each * count; task += warps) {
        const unsigned g = count == 1 ? 0 : task / each, tile = task - g * each,
                       row = tile / across;
        // The longest sums come first.
        const int r0 = static_cast<int>(KIND == Kind::Lower ? down - 1 - row : row) * Tile::ROWS,
                  s0 = static_cast<int>(tile - row * across) * Tile::COLS;
        const int64_t matrix = first + g;
        const int place = ptx::past_word(args.packed + matrix * args.packed_stride);
        Tile::run(args, reinterpret_cast<const T*>(slots + g * args.slot) + place, matrix, r0, s0);
    }
    ptx::launch_dependents();
#endif
}

}  // namespace packedtri::cuda
