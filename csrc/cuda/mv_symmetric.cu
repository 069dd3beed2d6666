// y = S x for a packed symmetric S, whose stored half is read once: each element enters two sums,
// y_i += S_ij x_j and y_j += S_ij x_i, in one of them conjugated where S is Hermitian. One block has all of
// a small matrix. Of a large one, what a block adds up goes to scratch memory, and a second kernel adds up
// that, in an order that does not depend on timing. So it is done with rows of a triangle, of which nothing
// else is there, for one of the sums or both.
#include "../index.h"
#include "elements.cuh"
#include "hopper.cuh"
#include "launch.h"
#include "mv.h"
#include "vector_product.h"

namespace packedtri::cuda {
namespace {

// A block has ROWS x COLS elements of the triangle, a warp some of the rows and all of the columns.
constexpr int ROWS = 64, COLS = 256, WARPS = 8, STRIPS = COLS / ROWS;
static_assert(32 * WARPS == MV_SMALL_SYMMETRIC, "a thread has an element of y");

template <class T>
struct SymmetricArgs {
    using Acc = typename Accumulator<T>::type;
    const T* triangle;
    const T* x;
    T* y;
    int64_t triangle_batch_stride, x_batch_stride, y_batch_stride, x_stride;
    int n;
    bool conj_rows, conj_columns;  // In the sums over rows of the triangle, or over its columns.
    bool has_rows, has_columns;    // Which of them there are. The diagonal enters one.
    int first;                     // Rows before it are not there.
    // Of a large matrix: sums over a block's columns, for each chunk of columns as many as there are rows, and over
    // its rows, n for each strip of rows.
    Acc* by_rows;
    Acc* by_columns;

    __host__ __device__ int chunks() const { return static_cast<int>(ceil_div(n, COLS)); }
    __host__ __device__ int strips() const { return static_cast<int>(ceil_div(n, ROWS)); }
    __host__ __device__ int first_strip() const { return first / ROWS; }
    __host__ __device__ Acc* rows_of(int64_t batch, int chunk) const {
        return by_rows + (batch * chunks() + chunk) * (n - first);
    }
    __host__ __device__ Acc* columns_of(int64_t batch, int strip) const {
        return by_columns + (batch * (strips() - first_strip()) + strip - first_strip()) * n;
    }
    // Parts of each matrix.
    int64_t row_parts() const { return has_rows ? int64_t{chunks()} * (n - first) : 0; }
    int64_t column_parts() const { return has_columns ? int64_t{strips() - first_strip()} * n : 0; }
};

// Sums of a warp over rows of the triangle and over 32 PER_LANE of its columns, from j0 on.
template <class T, int PER_LANE>
class SymmetricSums {
    using Acc = typename Accumulator<T>::type;

  public:
    static constexpr int AT_ONCE = mv_rows_at_once<T, PER_LANE>;

    __device__ SymmetricSums(const SymmetricArgs<T>& args, int64_t batch, int j0)
        : args_(args), triangle_(args.triangle + batch * args.triangle_batch_stride),
          x_(args.x + batch * args.x_batch_stride), j0_(j0), lane_(threadIdx.x % 32) {
#pragma unroll
        for (int c = 0; c < PER_LANE; ++c) {
            column_[c] = Acc{};
            const int j = j0 + lane_ + 32 * c;
            xj_[c] = Accumulator<T>::widen(j < args.n ? x_[j * args.x_stride] : T{});
        }
    }

    // Adds rows i0 and following, whose own sums go to by_rows. `stored` says which elements there are; BESIDE that these
    // are all that are asked for, and none on the diagonal.
    template <bool BESIDE = false, class Stored>
    __device__ __forceinline__ void add_rows(int i0, Acc* by_rows, Stored stored) {
        T t[AT_ONCE][PER_LANE];
        Acc xi[AT_ONCE], row[AT_ONCE];
#pragma unroll
        for (int r = 0; r < AT_ONCE; ++r) {
            const int i = i0 + r;
            const T* from = triangle_ + row_start(i) + j0_ + lane_;
            xi[r] = Accumulator<T>::widen(i < args_.n ? x_[i * args_.x_stride] : T{});
#pragma unroll
            for (int c = 0; c < PER_LANE; ++c)
                t[r][c] = stored(i, j0_ + lane_ + 32 * c) ? from[32 * c] : T{};
        }
#pragma unroll
        for (int r = 0; r < AT_ONCE; ++r) {
            row[r] = Acc{};
#pragma unroll
            for (int c = 0; c < PER_LANE; ++c) {
                const int i = i0 + r, j = j0_ + lane_ + 32 * c;
                if (!stored(i, j)) continue;
                Acc element = Accumulator<T>::widen(t[r][c]);
                // The diagonal counts once, and is real where it is its own conjugate.
                if constexpr (is_complex<T>)
                    if (!BESIDE && i == j && (args_.conj_rows || args_.conj_columns))
                        element.im = 0;
                fma_into(row[r], conjugate_if(element, args_.conj_rows), xj_[c]);
                if (BESIDE || i != j || !args_.has_rows)
                    fma_into(column_[c], conjugate_if(element, args_.conj_columns), xi[r]);
            }
        }
#pragma unroll
        for (int r = 0; r < AT_ONCE; ++r) {
            row[r] = warp_sum(row[r]);
            const bool inside = BESIDE || (i0 + r >= args_.first && i0 + r < args_.n);
            if (lane_ == 0 && args_.has_rows && inside) by_rows[r] = row[r];
        }
    }

    __device__ void put_columns(Acc* to) const {
#pragma unroll
        for (int c = 0; c < PER_LANE; ++c) to[lane_ + 32 * c] = column_[c];
    }

  private:
    const SymmetricArgs<T>& args_;
    const T *triangle_, *x_;
    const int j0_, lane_;
    Acc xj_[PER_LANE], column_[PER_LANE];
};

// A block of ROWS x COLS elements, whose sums are parts of those of y.
template <class T>
__device__ void add_block(const SymmetricArgs<T>& args, int strip, int chunk, int64_t batch) {
    using Acc = typename Accumulator<T>::type;
    using Sums = SymmetricSums<T, COLS / 32>;
    constexpr int WARP_ROWS = ROWS / WARPS;
    __shared__ Acc shared[WARPS][COLS];
    const int warp = threadIdx.x / 32, i0 = strip * ROWS + warp * WARP_ROWS, j0 = chunk * COLS;
    Acc* by_rows = args.rows_of(batch, chunk) + (i0 - args.first);
    Sums sums(args, batch, j0);
    const bool full = j0 + COLS <= i0 && i0 >= args.first && i0 + WARP_ROWS <= args.n;
#pragma unroll
    for (int r = 0; r < WARP_ROWS; r += Sums::AT_ONCE) {
        if (full) sums.template add_rows<true>(i0 + r, by_rows + r, [](int, int) { return true; });
        else
            sums.add_rows(i0 + r, by_rows + r,
                          [&](int i, int j) { return i >= args.first && i < args.n && j <= i; });
    }
    if (!args.has_columns) return;
    sums.put_columns(shared[warp]);
    __syncthreads();
    Acc sum{};
#pragma unroll
    for (int w = 0; w < WARPS; ++w) sum = add(sum, shared[w][threadIdx.x]);
    const int j = j0 + static_cast<int>(threadIdx.x);
    if (j < args.n) args.columns_of(batch, strip)[j] = sum;
}

// Blocks that a multiprocessor runs at once, so that enough is on its way from memory.
template <class T>
constexpr int AT_LEAST = sizeof(T) <= 4   ? 3
                         : sizeof(T) == 8 ? 2
                                          : 1;

template <class T>
__global__ void __launch_bounds__(32 * WARPS, AT_LEAST<T>)
    symmetric_kernel(const __grid_constant__ SymmetricArgs<T> args) {
    ptx::wait_for_dependency();
    ptx::launch_dependents();
    // STRIPS strips begin within the columns of one chunk, and have equally many chunks.
    // Rows far from the first may have more before them than 32 bits count.
    const int64_t index = row_start(args.first / COLS) + blockIdx.x / STRIPS;
    const int group = static_cast<int>(row_of(index)),
              chunk = static_cast<int>(index - row_start(group)),
              strip = group * STRIPS + static_cast<int>(blockIdx.x % STRIPS);
    if (strip >= args.first_strip() && strip < args.strips())
        add_block(args, strip, chunk, blockIdx.y);
}

// A matrix of order 32 PER_LANE at most a block.
template <class T, int PER_LANE>
__global__ void __launch_bounds__(32 * WARPS)
    symmetric_small_kernel(const __grid_constant__ SymmetricArgs<T> args) {
    using Acc = typename Accumulator<T>::type;
    using Sums = SymmetricSums<T, PER_LANE>;
    __shared__ Acc by_rows[32 * PER_LANE], by_columns[WARPS][32 * PER_LANE];
    ptx::wait_for_dependency();
    ptx::launch_dependents();
    const int warp = threadIdx.x / 32;
    Sums sums(args, blockIdx.x, 0);
#pragma unroll 1
    for (int i = warp * Sums::AT_ONCE; i < args.n; i += WARPS * Sums::AT_ONCE)
        sums.add_rows(i, by_rows + i, [&](int i, int j) { return i < args.n && j <= i; });
    sums.put_columns(by_columns[warp]);
    __syncthreads();
    const int j = threadIdx.x;
    if (j >= args.n) return;
    Acc sum = by_rows[j];
#pragma unroll
    for (int w = 0; w < WARPS; ++w) sum = add(sum, by_columns[w][j]);
    args.y[blockIdx.x * args.y_batch_stride + j] = Accumulator<T>::round(sum);
}

// 32 elements of y a block, each warp a share of their parts.
template <class T>
__global__ void __launch_bounds__(32 * WARPS)
    add_parts_kernel(const __grid_constant__ SymmetricArgs<T> args) {
    using Acc = typename Accumulator<T>::type;
    __shared__ Acc shared[WARPS][32];
    ptx::wait_for_dependency();
    ptx::launch_dependents();
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int j = static_cast<int>(blockIdx.x) * 32 + lane;
    const int64_t batch = blockIdx.y;
    Acc sum{};
    if (j < args.n) {
        if (args.has_rows && j >= args.first) {
            const Acc* rows = args.rows_of(batch, 0) + (j - args.first);
#pragma unroll 4
            for (int c = warp; c <= j / COLS; c += WARPS)
                sum = add(sum, rows[int64_t{c} * (args.n - args.first)]);
        }
        if (args.has_columns) {
            const int first = max(j / ROWS, args.first_strip());
            const Acc* columns = args.columns_of(batch, first) + j;
#pragma unroll 4
            for (int s = first + warp; s < args.strips(); s += WARPS)
                sum = add(sum, columns[int64_t{s - first} * args.n]);
        }
    }
    shared[warp][lane] = sum;
    __syncthreads();
    if (warp > 0 || j >= args.n) return;
#pragma unroll
    for (int w = 1; w < WARPS; ++w) sum = add(sum, shared[w][lane]);
    args.y[batch * args.y_batch_stride + j] = Accumulator<T>::round(sum);
}

constexpr const char* FAILURE = "cannot launch a matrix-vector product";

// The bytes of scratch memory that the parts of so many matrices take.
template <class T>
int64_t bytes_of_parts(const SymmetricArgs<T>& args, int64_t batch) {
    return (args.row_parts() + args.column_parts()) * batch *
           static_cast<int64_t>(sizeof(*args.by_rows));
}

template <class T>
void launch_parts(SymmetricArgs<T> args, int64_t batch, void* scratch, cudaStream_t stream) {
    args.by_rows = static_cast<decltype(args.by_rows)>(scratch);
    args.by_columns = args.by_rows + args.row_parts() * batch;
    const auto grid = [&](int64_t blocks) {
        return dim3(grid_of(blocks).x, static_cast<unsigned>(batch));
    };
    const int64_t blocks = STRIPS * (row_start(args.chunks()) - row_start(args.first / COLS));
    launch_overlapping(symmetric_kernel<T>, grid(blocks), 32 * WARPS, args, stream, FAILURE);
    launch_overlapping(add_parts_kernel<T>, grid(ceil_div(args.n, 32)), 32 * WARPS, args, stream,
                       FAILURE);
}

template <class T>
bool launch(SymmetricArgs<T> args, int64_t batch, Scratch* scratch, cudaStream_t stream) {
    if (args.n <= MV_SMALL_SYMMETRIC) {
        const auto kernel = args.n <= 64    ? symmetric_small_kernel<T, 2>
                            : args.n <= 128 ? symmetric_small_kernel<T, 4>
                                            : symmetric_small_kernel<T, 8>;
        launch_overlapping(kernel, dim3(static_cast<unsigned>(batch)), 32 * WARPS, args, stream,
                           FAILURE);
        return true;
    }
    void* parts = scratch->reserve_if_free(bytes_of_parts(args, batch));
    if (parts) launch_parts(args, batch, parts, stream);
    return parts != nullptr;
}

}  // namespace

bool mv_symmetric(const Product& p, Scratch* scratch, cudaStream_t stream) {
    const VectorProduct sides(p);
    const Operand &s = sides.packed, &x = sides.vectors;
    bool done = false;
    with_element_type(p.dtype, [&](auto element) {
        using T = decltype(element);
        SymmetricArgs<T> args{};
        args.triangle = static_cast<const T*>(s.data);
        args.x = static_cast<const T*>(x.data);
        args.y = static_cast<T*>(p.c.data);
        args.triangle_batch_stride = s.batch_stride;
        args.x_batch_stride = x.batch_stride;
        args.y_batch_stride = p.c.batch_stride;
        args.x_stride = sides.x_step;
        args.n = static_cast<int>(p.k);
        args.conj_rows = s.hermitian && !sides.left;
        args.conj_columns = s.hermitian && sides.left;
        args.has_rows = args.has_columns = true;
        done = launch<T>(args, p.batch, scratch, stream);
    });
    return done;
}

void multiply_rows(const RowsVector& p, Scratch* scratch, cudaStream_t stream) {
    check_reach({p.n, p.batch});
    // The second dimension of a grid.
    constexpr int64_t most = 65535;
    with_element_type(p.dtype, [&](auto element) {
        using T = decltype(element);
        SymmetricArgs<T> args{};
        args.triangle_batch_stride = p.triangle_batch_stride;
        args.x_batch_stride = p.x_batch_stride;
        args.y_batch_stride = p.n;
        args.x_stride = 1;
        args.n = static_cast<int>(p.n);
        args.first = static_cast<int>(p.first);
        args.conj_columns = p.hermitian;
        args.has_rows = p.kind != Kind::Upper;
        args.has_columns = p.kind != Kind::Lower;
        for (int64_t at = 0; at < p.batch; at += most) {
            const int64_t batch = std::min(most, p.batch - at);
            args.triangle = static_cast<const T*>(p.triangle) + at * p.triangle_batch_stride;
            args.x = static_cast<const T*>(p.x) + at * p.x_batch_stride;
            args.y = static_cast<T*>(p.y) + at * p.n;
            launch_parts(args, batch, scratch->reserve(bytes_of_parts(args, batch)), stream);
        }
    });
}

}  // namespace packedtri::cuda
