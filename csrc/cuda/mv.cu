#include "mv.h"

#include "hopper.cuh"
#include "launch.h"
#include "mv_columns.cuh"
#include "mv_rows.cuh"

namespace packedtri::cuda {
namespace {

// How many elements of a lane are on their way where so many are wanted: more of 16 bytes would not stay in registers.
template <class T, int WANTED>
constexpr int fitting = sizeof(T) == 16 && WANTED > 8 ? 8 : WANTED;

// GROUP elements of y a block. ROW_WARPS share the sums over rows of memory, and COL_WARPS, each of whose lanes has AT_ONCE
// elements on their way, those over columns. Both are then added up in a fixed order; with both it is S x, and the
// diagonal counts once.
template <class T, int GROUP, int ROW_WARPS, int COL_WARPS, int AT_ONCE, bool HERMITIAN>
__global__ void __launch_bounds__(32 * (ROW_WARPS + COL_WARPS)) group_kernel(const MvArgs<T> args) {
    using Acc = typename Accumulator<T>::type;
    constexpr bool BY_ROWS = ROW_WARPS > 0, BY_COLUMNS = COL_WARPS > 0;
    using Rows = RowSums<T, HERMITIAN>;
    constexpr int PARTS = GROUP / Rows::ROWS, SHARES = BY_ROWS ? ROW_WARPS / PARTS : 1;
    __shared__ Acc by_rows[SHARES][GROUP], by_columns[BY_COLUMNS ? COL_WARPS : 1][GROUP];
    ptx::launch_dependents();
    const int warp = static_cast<int>(threadIdx.x) / 32,
              groups = static_cast<int>(ceil_div(args.n, GROUP)),
              block = static_cast<int>(blockIdx.x);
    // A division takes long, and most matrices are alone.
    const int batch = args.batch > 1 ? block % args.batch : 0,
              g = args.batch > 1 ? block / args.batch : block;
    const int i0 = (BY_COLUMNS ? g : groups - 1 - g) * GROUP;  // Long sums first.
    const T* triangle = args.triangle + batch * args.triangle_batch_stride;
    const T* x = args.x + batch * args.x_batch_stride;
    if constexpr (BY_ROWS) {
        const int part = warp % PARTS, share = warp / PARTS;
        const Rows sums(args, triangle, x, i0 + part * Rows::ROWS);
        ptx::wait_for_dependency();
        if (!BY_COLUMNS || warp < ROW_WARPS)
            sums.add(share, SHARES, by_rows[share] + part * Rows::ROWS);
    }
    if constexpr (BY_COLUMNS) {
        const int share = warp - ROW_WARPS;
        if constexpr (!BY_ROWS) ptx::wait_for_dependency();
        if (!BY_ROWS || share >= 0) {
            const Acc sum = ColumnSums<T, GROUP, AT_ONCE, BY_ROWS, HERMITIAN>(args, triangle, x, i0)
                                .sum(share, COL_WARPS);
            const int lane = static_cast<int>(threadIdx.x) % 32;
            if (lane < GROUP) by_columns[share][lane] = sum;
        }
    }
    __syncthreads();
    const int place = static_cast<int>(threadIdx.x);
    if (place >= GROUP || i0 + place >= args.n) return;
    Acc sum{};
    if (BY_ROWS)
#pragma unroll
        for (int w = 0; w < SHARES; ++w) sum = add(sum, by_rows[w][place]);
    if (BY_COLUMNS)
#pragma unroll
        for (int w = 0; w < COL_WARPS; ++w) sum = add(sum, by_columns[w][place]);
    args.y[batch * args.y_batch_stride + i0 + place] = Accumulator<T>::round(sum);
}

// Sums over columns of many triangles: 64 columns a block, two a lane, whose warps share the rows.
constexpr int MANY_COLUMNS = 64, MANY_WARPS = 8;
template <class T>
__global__ void __launch_bounds__(32 * MANY_WARPS, sizeof(T) < 8 ? 5 : 4)
    many_columns_kernel(const MvArgs<T> args) {
    using Acc = typename Accumulator<T>::type;
    constexpr int OF_LANE = MANY_COLUMNS / 32, AT_ONCE = 16;  // Columns, and rows on their way.
    __shared__ Acc parts[MANY_WARPS][MANY_COLUMNS];
    ptx::wait_for_dependency();
    ptx::launch_dependents();
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    // A stride that the compiler knew would cost it registers for what it keeps of each row.
    const int warps = static_cast<int>(blockDim.x) / 32;
    const int64_t batch = blockIdx.x % args.batch;
    const int j0 = static_cast<int>(blockIdx.x) / args.batch * MANY_COLUMNS;  // Long sums first.
    const T* triangle = args.triangle + batch * args.triangle_batch_stride;
    const T* x = args.x + batch * args.x_batch_stride;
    Acc sum[OF_LANE] = {};
    const auto add_rows = [&](int i0, auto stored) {
        T t[AT_ONCE][OF_LANE], v[AT_ONCE];
#pragma unroll
        for (int u = 0; u < AT_ONCE; ++u) {
            const int i = i0 + u * warps;
            v[u] = i < args.n ? x[i * args.x_stride] : T{};
#pragma unroll
            for (int c = 0; c < OF_LANE; ++c) {
                const int j = j0 + 32 * c + lane;
                t[u][c] = stored(i, j) ? triangle[offset(i, j)] : T{};
            }
        }
#pragma unroll
        for (int u = 0; u < AT_ONCE; ++u)
#pragma unroll
            for (int c = 0; c < OF_LANE; ++c)
                if (stored(i0 + u * warps, j0 + 32 * c + lane))
                    fma_into(sum[c], Accumulator<T>::widen(t[u][c]), Accumulator<T>::widen(v[u]));
    };
    for (int i = j0 + warp; i < args.n; i += AT_ONCE * warps) {
        if (i >= j0 + MANY_COLUMNS && i + (AT_ONCE - 1) * warps < args.n)
            add_rows(i, [](int, int) { return true; });
        else add_rows(i, [&](int i, int j) { return i < args.n && j <= i; });
    }
#pragma unroll
    for (int c = 0; c < OF_LANE; ++c) parts[warp][32 * c + lane] = sum[c];
    __syncthreads();
    const int place = static_cast<int>(threadIdx.x);
    if (place >= MANY_COLUMNS || j0 + place >= args.n) return;
    Acc all{};
#pragma unroll
    for (int w = 0; w < MANY_WARPS; ++w) all = add(all, parts[w][place]);
    args.y[batch * args.y_batch_stride + j0 + place] = Accumulator<T>::round(all);
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

// Columns of many small triangles, 32 a warp.
template <class T>
__global__ void __launch_bounds__(32 * SMALL_WARPS) small_columns_kernel(const MvArgs<T> args) {
    ptx::wait_for_dependency();
    ptx::launch_dependents();
    const int lane = static_cast<int>(threadIdx.x) % 32,
              groups = static_cast<int>(ceil_div(args.n, 32));
    const unsigned warp = blockIdx.x * SMALL_WARPS + threadIdx.x / 32, batch = warp / groups;
    if (batch >= static_cast<unsigned>(args.batch)) return;
    const int j0 = static_cast<int>(warp - batch * groups) * 32;
    const auto sum = ColumnSums<T, 32, fitting<T, 16>, false, false>(
                         args, args.triangle + batch * args.triangle_batch_stride,
                         args.x + batch * args.x_batch_stride, j0)
                         .sum(0, 1);
    if (j0 + lane < args.n)
        args.y[batch * args.y_batch_stride + j0 + lane] = Accumulator<T>::round(sum);
}

constexpr const char* FAILURE = "cannot launch a matrix-vector product";

template <int GROUP, int ROW_WARPS, int COL_WARPS, int AT_ONCE, bool HERMITIAN = false, class T>
void launch_groups(const MvArgs<T>& args, cudaStream_t stream) {
    launch_overlapping(group_kernel<T, GROUP, ROW_WARPS, COL_WARPS, fitting<T, AT_ONCE>, HERMITIAN>,
                       grid_of(ceil_div(args.n, GROUP) * args.batch), 32 * (ROW_WARPS + COL_WARPS),
                       args, stream, FAILURE);
}

template <bool HERMITIAN, class T>
void launch_symmetric(const MvArgs<T>& args, const MvChoice& choice, cudaStream_t stream) {
    if (choice.group == 4) launch_groups<4, 4, 4, 8, HERMITIAN>(args, stream);
    else if (choice.group == 8) launch_groups<8, 8, 8, 8, HERMITIAN>(args, stream);
    else if (choice.group == 16) launch_groups<16, 8, 8, 16, HERMITIAN>(args, stream);
    else launch_groups<32, 8, 8, 16, HERMITIAN>(args, stream);
}

template <class T>
void launch_upper(const MvArgs<T>& args, const MvChoice& choice, cudaStream_t stream) {
    const bool wide = choice.sharers == 16;
    if (choice.group == 8 && !wide) launch_groups<8, 0, 8, 8>(args, stream);
    else if (choice.group == 8) launch_groups<8, 0, 16, 8>(args, stream);
    else if (choice.group == 16) launch_groups<16, 0, 16, 16>(args, stream);
    else if (wide) launch_groups<32, 0, 16, 16>(args, stream);
    else launch_groups<32, 0, 8, 16>(args, stream);
}

template <int PER_LANE, class T>
void launch_small_rows(const MvArgs<T>& args, cudaStream_t stream) {
    const int64_t warps = ceil_div(args.n, mv_rows_at_once<T, PER_LANE>) * args.batch;
    launch_overlapping(small_rows_kernel<T, PER_LANE>, grid_of(ceil_div(warps, SMALL_WARPS)),
                       32 * SMALL_WARPS, args, stream, FAILURE);
}

// Of y = T x, `kind` is that of T.
template <class T>
void launch(const MvArgs<T>& args, Kind kind, bool hermitian, const MvChoice& choice,
            cudaStream_t stream) {
    if (choice.way == MvChoice::Way::Rows)
        return args.n <= 64 ? launch_small_rows<2>(args, stream)
                            : launch_small_rows<8>(args, stream);
    if (choice.way == MvChoice::Way::Columns && args.n <= 64)
        return launch_overlapping(small_columns_kernel<T>,
                                  grid_of(ceil_div(ceil_div(args.n, 32) * args.batch, SMALL_WARPS)),
                                  32 * SMALL_WARPS, args, stream, FAILURE);
    if (choice.way == MvChoice::Way::Columns)
        return launch_overlapping(many_columns_kernel<T>,
                                  grid_of(ceil_div(args.n, MANY_COLUMNS) * args.batch),
                                  32 * MANY_WARPS, args, stream, FAILURE);
    if (kind == Kind::Upper) return launch_upper(args, choice, stream);
    if (kind == Kind::Lower)
        return choice.sharers == 4 ? launch_groups<4, 4, 0, 0>(args, stream)
                                   : launch_groups<4, 8, 0, 0>(args, stream);
    if constexpr (is_complex<T>)
        if (hermitian) return launch_symmetric<true>(args, choice, stream);
    launch_symmetric<false>(args, choice, stream);
}

}  // namespace

void mv(const Product& p, Scratch* scratch, cudaStream_t stream) {
    const MvChoice choice = choose_mv(p, current_device(), scratch != nullptr);
    if (choice.way == MvChoice::Way::Block || choice.way == MvChoice::Way::Parts) {
        if (!mv_symmetric(p, scratch, stream)) mv(p, nullptr, stream);
        return;
    }
    if (choice.way == MvChoice::Way::Held) return mv_held(p, choice, stream);
    const VectorProduct sides(p);
    with_element_type(p.dtype, [&](auto element) {
        using T = decltype(element);
        launch(mv_args<T>(p), sides.kind, sides.packed.hermitian, choice, stream);
    });
}

}  // namespace packedtri::cuda
