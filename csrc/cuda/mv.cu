#include "mv.h"

#include <algorithm>

#include "../index.h"
#include "cluster_sum.cuh"
#include "elements.cuh"
#include "hopper.cuh"
#include "launch.h"

namespace packedtri::cuda {
namespace {

// y = T x, Tᵀ x or S x for a packed triangle T and the symmetric matrix S that it stands for. Where
// S is Hermitian, one of its halves is read conjugated, and the diagonal real.
template <class T>
struct MvArgs {
    const T* triangle;
    const T* x;
    T* y;
    int64_t triangle_batch_stride, x_batch_stride, y_batch_stride, x_stride;
    int n, batch;
    int split;       // Blocks of a cluster, which share the sums of the same elements of y.
    bool conj_rows;  // Of a Hermitian S: whether the half that is stored is conjugated.
};

// Element (i, j) of T as one of row i of S, or of row j.
template <bool HERMITIAN, class T>
__device__ auto row_element(const MvArgs<T>& args, T t, int i, int j) {
    auto x = Accumulator<T>::widen(t);
    if constexpr (HERMITIAN) {
        if (i == j) x.im = 0;
        x = conjugate_if(x, args.conj_rows);
    }
    return x;
}
template <bool HERMITIAN, class T>
__device__ auto column_element(const MvArgs<T>& args, T t) {
    return conjugate_if(Accumulator<T>::widen(t), HERMITIAN && !args.conj_rows);
}

// What a warp loads before it adds: pairs of neighbours in 8 rows, or 16 rows of columns. Kilobytes
// on their way keep the memory busy.
constexpr int ROWS = 8;
template <class T>
constexpr int PAIRS = sizeof(T) < 8 ? 2 : 1;
constexpr int COL_UNROLL = 16;

// Two neighbours, read at once.
template <class T>
struct alignas(sizeof(T) < 16 ? 2 * sizeof(T) : 16) Pair {
    T x[2];
};

// One warp's share of the sums over memory rows, y_i += T_ij x_j, for 8 rows from i0 on, a multiple
// of 8: every shares-th piece of 64 columns. Pairs must be aligned, so those of a row that starts at
// an odd element start one column before the piece; ODD tells whether row i0 does.
template <int ODD, bool HERMITIAN, class T, class Acc>
__device__ void add_rows(const MvArgs<T>& args, const T* triangle, const T* x, int i0, int share,
                         int shares, Acc* y) {
    const int lane = threadIdx.x % 32;
    const auto before = [](int r) { return (r + 1) / 2 % 2 ^ ODD; };
    Acc sum[ROWS] = {};
    const auto add_pieces = [&](int j0, auto load, auto stored) {
        Pair<T> t[PAIRS<T>][ROWS];
        T v[PAIRS<T>][3];
#pragma unroll
        for (int u = 0; u < PAIRS<T>; ++u) {
            const int j = j0 + u * 64 * shares;
#pragma unroll
            for (int e = 0; e < 3; ++e)
                v[u][e] = stored(args.n - 1, j + e - 1) ? x[(j + e - 1) * args.x_stride] : T{};
#pragma unroll
            for (int r = 0; r < ROWS; ++r) t[u][r] = load(i0 + r, j - before(r));
        }
#pragma unroll
        for (int u = 0; u < PAIRS<T>; ++u)
#pragma unroll
            for (int r = 0; r < ROWS; ++r)
#pragma unroll
                for (int e = 0; e < 2; ++e)
                    if (stored(i0 + r, j0 + u * 64 * shares - before(r) + e))
                        fma_into(sum[r],
                                 row_element<HERMITIAN>(args, t[u][r].x[e], i0 + r,
                                                        j0 + u * 64 * shares - before(r) + e),
                                 Accumulator<T>::widen(v[u][1 - before(r) + e]));
    };
    const auto stored = [&](int i, int j) { return 0 <= j && j <= i && i < args.n; };
    const int step = 64 * shares;
    int j0 = 64 * share;
    const auto any_step = [&] {
        add_pieces(
            j0 + 2 * lane,
            [&](int i, int j) {
                return Pair<T>{stored(i, j) ? triangle[offset(i, j)] : T{},
                               stored(i, j + 1) ? triangle[offset(i, j + 1)] : T{}};
            },
            stored);
        j0 += PAIRS<T> * step;
    };
    if (j0 == 0) any_step();
    for (; j0 + (PAIRS<T> - 1) * step + 64 <= i0 && i0 + ROWS <= args.n; j0 += PAIRS<T> * step)
        add_pieces(
            j0 + 2 * lane,
            [&](int i, int j) {
                return *reinterpret_cast<const Pair<T>*>(triangle + offset(i, j));
            },
            [](int, int) { return true; });
    while (j0 < min(i0 + ROWS, args.n) + ODD) any_step();
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        sum[r] = warp_sum(sum[r]);
        if (lane == 0) y[r] = sum[r];
    }
}

// One warp's share of the sums over memory columns, y_j += T_ij x_i, for 32 COLS columns from j0 on:
// every shares-th row. STRICT leaves the diagonal out.
template <bool STRICT, bool HERMITIAN, int COLS, class T, class Acc>
__device__ void add_columns(const MvArgs<T>& args, const T* triangle, const T* x, int j0, int share,
                            int shares, Acc* y) {
    const int lane = threadIdx.x % 32;
    Acc sum[COLS] = {};
    const auto add_rows = [&](int i0, auto stored) {
        T t[COL_UNROLL][COLS], v[COL_UNROLL];
#pragma unroll
        for (int u = 0; u < COL_UNROLL; ++u) {
            const int i = i0 + u * shares;
            v[u] = i < args.n ? x[i * args.x_stride] : T{};
#pragma unroll
            for (int c = 0; c < COLS; ++c) {
                const int j = j0 + 32 * c + lane;
                t[u][c] = stored(i, j) ? triangle[offset(i, j)] : T{};
            }
        }
#pragma unroll
        for (int u = 0; u < COL_UNROLL; ++u)
#pragma unroll
            for (int c = 0; c < COLS; ++c)
                if (stored(i0 + u * shares, j0 + 32 * c + lane))
                    fma_into(sum[c], column_element<HERMITIAN>(args, t[u][c]),
                             Accumulator<T>::widen(v[u]));
    };
    for (int i = j0 + share; i < args.n; i += COL_UNROLL * shares) {
        if (i >= j0 + 32 * COLS && i + (COL_UNROLL - 1) * shares < args.n)
            add_rows(i, [](int, int) { return true; });
        else add_rows(i, [&](int i, int j) { return i < args.n && (STRICT ? j < i : j <= i); });
    }
#pragma unroll
    for (int c = 0; c < COLS; ++c) y[32 * c + lane] = sum[c];
}

// A block, or the `split` blocks of a cluster, computes GROUP elements of y: its warps share the
// sums, which are then added up in a fixed order. BY_ROWS and BY_COLUMNS say which of T x and Tᵀ x
// go into y; with both, it is S x, and the diagonal counts once.
template <class T, bool BY_ROWS, bool BY_COLUMNS, int GROUP, int WARPS, bool HERMITIAN = false>
__global__ void __launch_bounds__(32 * WARPS, BY_ROWS         ? (sizeof(T) < 16 ? 2 : 1)
                                              : sizeof(T) < 8 ? 5
                                                              : 4) mv_kernel(const MvArgs<T> args) {
    using Acc = typename Accumulator<T>::type;
    ptx::wait_for_dependency();
    ptx::launch_dependents();
    constexpr int PARTS = GROUP / ROWS, SHARES = WARPS / PARTS;
    __shared__ Acc by_rows[SHARES][GROUP], by_columns[BY_COLUMNS ? WARPS : 1][GROUP], total[GROUP];
    const int warp = threadIdx.x / 32, rank = blockIdx.x % args.split;
    const int64_t item = blockIdx.x / args.split, batch = item % args.batch;
    const int groups = static_cast<int>(ceil_div(args.n, GROUP)),
              g = static_cast<int>(item / args.batch);
    const int i0 = (BY_ROWS ? groups - 1 - g : g) * GROUP;  // Long sums first.
    const T* triangle = args.triangle + batch * args.triangle_batch_stride;
    const T* x = args.x + batch * args.x_batch_stride;

    if constexpr (BY_ROWS) {
        const bool odd = reinterpret_cast<uintptr_t>(triangle) / sizeof(T) % 2;
        const int i = i0 + warp % PARTS * ROWS, share = rank * SHARES + warp / PARTS;
        Acc* y = by_rows[warp / PARTS] + warp % PARTS * ROWS;
        if (odd) add_rows<1, HERMITIAN>(args, triangle, x, i, share, args.split * SHARES, y);
        else add_rows<0, HERMITIAN>(args, triangle, x, i, share, args.split * SHARES, y);
    }
    if constexpr (BY_COLUMNS)
        add_columns<BY_ROWS, HERMITIAN, GROUP / 32>(args, triangle, x, i0, rank * WARPS + warp,
                                                    args.split * WARPS, by_columns[warp]);
    __syncthreads();
    const int place = threadIdx.x;
    Acc sum{};
    if (place < GROUP) {
        if (BY_ROWS)
            for (int w = 0; w < SHARES; ++w) sum = add(sum, by_rows[w][place]);
        if (BY_COLUMNS)
            for (int w = 0; w < WARPS; ++w) sum = add(sum, by_columns[w][place]);
        total[place] = sum;
    }
    if (args.split > 1) ptx::cluster_sync();
    if (rank == 0 && place < GROUP && i0 + place < args.n) {
        if (args.split > 1) sum = cluster_sum(total + place, args.split);
        args.y[batch * args.y_batch_stride + i0 + place] = Accumulator<T>::round(sum);
    }
    if (args.split > 1) leave_cluster();
}

// Rows of many small triangles, a few a warp, up to 32 PER_LANE of their columns at once.
constexpr int SMALL_WARPS = 8;
template <class T, int PER_LANE>
__global__ void __launch_bounds__(32 * SMALL_WARPS) small_rows_kernel(const MvArgs<T> args) {
    using Acc = typename Accumulator<T>::type;
    constexpr int AT_ONCE = mv_rows_at_once<T, PER_LANE>;
    ptx::wait_for_dependency();
    ptx::launch_dependents();
    const int lane = threadIdx.x % 32, groups = static_cast<int>(ceil_div(args.n, AT_ONCE));
    const unsigned warp = blockIdx.x * SMALL_WARPS + threadIdx.x / 32, batch = warp / groups;
    if (batch >= static_cast<unsigned>(args.batch)) return;
    const int i0 = static_cast<int>(warp - batch * groups) * AT_ONCE;
    const T* triangle = args.triangle + batch * args.triangle_batch_stride;
    const T* x = args.x + batch * args.x_batch_stride;
    Acc sum[AT_ONCE] = {};
    for (int j0 = lane; j0 - lane < min(i0 + AT_ONCE, args.n); j0 += 32 * PER_LANE) {
        T t[AT_ONCE][PER_LANE], v[PER_LANE];
#pragma unroll
        for (int c = 0; c < PER_LANE; ++c) {
            const int j = j0 + 32 * c;
            v[c] = j < min(i0 + AT_ONCE, args.n) ? x[j * args.x_stride] : T{};
#pragma unroll
            for (int r = 0; r < AT_ONCE; ++r)
                t[r][c] = j <= i0 + r && i0 + r < args.n ? triangle[offset(i0 + r, j)] : T{};
        }
#pragma unroll
        for (int c = 0; c < PER_LANE; ++c)
#pragma unroll
            for (int r = 0; r < AT_ONCE; ++r)
                if (j0 + 32 * c <= i0 + r)
                    fma_into(sum[r], Accumulator<T>::widen(t[r][c]), Accumulator<T>::widen(v[c]));
    }
#pragma unroll
    for (int r = 0; r < AT_ONCE; ++r) {
        sum[r] = warp_sum(sum[r]);
        if (lane == 0 && i0 + r < args.n)
            args.y[batch * args.y_batch_stride + i0 + r] = Accumulator<T>::round(sum[r]);
    }
}

template <int GROUP, int WARPS, class T>
void launch(void (*kernel)(MvArgs<T>), MvArgs<T> args, int split, cudaStream_t stream) {
    args.split = split;
    const int64_t blocks = ceil_div(args.n, GROUP) * args.batch * split;
    launch_overlapping(kernel, grid_of(blocks), 32 * WARPS, args, stream,
                       "cannot launch a matrix-vector product", split);
}

template <int PER_LANE, class T>
void launch_small_rows(const MvArgs<T>& args, cudaStream_t stream) {
    const int64_t warps = ceil_div(args.n, mv_rows_at_once<T, PER_LANE>) * args.batch;
    launch_overlapping(small_rows_kernel<T, PER_LANE>,
                       dim3(static_cast<unsigned>(ceil_div(warps, SMALL_WARPS))), 32 * SMALL_WARPS,
                       args, stream, "cannot launch a matrix-vector product");
}

// Rows of memory are summed by blocks of their own, whose warps share the sums; in a batch of small matrices
// each warp has rows of its own. Sums over columns need more blocks than there are groups of columns, so that
// clusters share them.
template <class T>
void launch(const MvArgs<T>& args, Kind kind, bool hermitian, cudaStream_t stream) {
    const Device& device = current_device();
    if (kind == Kind::Lower) {
        if (args.n <= (args.batch < 16 ? 256 : 512) && int64_t{args.n} * args.batch <= INT32_MAX)
            return args.n <= 64 ? launch_small_rows<2>(args, stream)
                                : launch_small_rows<8>(args, stream);
        return launch<8, 8>(mv_kernel<T, true, false, 8, 8>, args, 1, stream);
    }
    const int64_t groups = ceil_div(args.n, 64) * args.batch;
    // Few groups share their sums with others of a cluster, as long as there are multiprocessors without any;
    // more do where sums are so long that the memory is to be kept busy.
    int split = 1;
    while (device.clusters && split < 8 && args.n > std::max(128, 64 * split) &&
           groups * split < (args.n >= 512 * split ? 8 : 1) * device.multiprocessors)
        split *= 2;
    if constexpr (is_complex<T>)
        if (hermitian)
            return launch<64, 8>(mv_kernel<T, true, true, 64, 8, true>, args, split, stream);
    launch<64, 8>(
        kind == Kind::Upper ? mv_kernel<T, false, true, 64, 8> : mv_kernel<T, true, true, 64, 8>,
        args, split, stream);
}

}  // namespace

void mv(const Product& p, cudaStream_t stream) {
    const bool left = p.a.kind != Kind::Dense;
    const Operand& triangle = left ? p.a : p.b;
    const Operand& x = left ? p.b : p.a;
    // A row times T is Tᵀ times a column; the transpose of a Hermitian matrix is its conjugate.
    Kind kind = triangle.kind;
    if (!left) kind = transposed(kind);
    with_element_type(p.dtype, [&](auto element) {
        using T = decltype(element);
        launch<T>({static_cast<const T*>(triangle.data), static_cast<const T*>(x.data),
                   static_cast<T*>(p.c.data), triangle.batch_stride, x.batch_stride,
                   p.c.batch_stride, left ? x.row_stride : x.col_stride, static_cast<int>(p.k),
                   static_cast<int>(p.batch), 1, !left},
                  kind, triangle.hermitian, stream);
    });
}

}  // namespace packedtri::cuda
