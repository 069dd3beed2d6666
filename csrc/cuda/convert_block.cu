// Blocks of a matrix, to and from packed storage, by square tiles. What lies above the diagonal is read down the
// columns of the other side, and so goes through shared memory.
#include "conversion_tile.cuh"
#include "elements.cuh"
#include "hopper.cuh"
#include "kernels.h"
#include "launch.h"

namespace packedtri::cuda {
namespace {

using namespace conversion;

template <class T>
struct BlockArgs {
    T* packed;
    T* dense;
    int64_t packed_batch_stride, dense_batch_stride, row_stride;
    Kind kind;
    int n, batch, top, left, rows, cols;
    bool hermitian;

    // Whether the block has element (i, j) of the matrix, and where.
    __device__ bool has(int i, int j) const {
        return i >= top && i < top + rows && j >= left && j < left + cols;
    }
    __device__ int64_t at(int i, int j) const { return (i - top) * row_stride + (j - left); }
};

// The matrix of the batch that a block of threads works on, and the number of its tile there.
template <class T>
struct Share {
    T* packed;
    T* dense;
    unsigned tile;

    __device__ explicit Share(const BlockArgs<T>& args) {
        const auto matrices = static_cast<unsigned>(args.batch);
        const unsigned batch = blockIdx.x % matrices;
        tile = blockIdx.x / matrices;
        packed = args.packed + batch * args.packed_batch_stride;
        dense = args.dense + batch * args.dense_batch_stride;
    }
};

struct Corner {
    int i, j;
};

// The first element of a tile of the block, of which the tiles lie row by row.
template <int TILE, class T>
__device__ Corner corner(const BlockArgs<T>& args, unsigned tile) {
    const auto across = static_cast<unsigned>(ceil_div(args.cols, TILE));
    return {args.top + static_cast<int>(tile / across) * TILE,
            args.left + static_cast<int>(tile % across) * TILE};
}

template <int TILE, class T>
__global__ void __launch_bounds__(THREADS) unpack_block_kernel(const BlockArgs<T> args) {
    __shared__ T mirror[TILE][TILE + 1];
    ptx::wait_for_dependency();
    ptx::launch_dependents();
    const Share<T> share(args);
    const Corner first = corner<TILE>(args, share.tile);
    const int i0 = first.i, j0 = first.j;
    const T* packed = share.packed;
    T* dense = share.dense;
    T below[TILE * TILE / THREADS];
    for_tile<TILE>([&](int r, int c, int k) {
        const int i = i0 + r, j = j0 + c;
        below[k] = args.has(i, j) && (i == j || (i > j && args.kind != Kind::Upper))
                       ? packed[offset(i, j)]
                       : T{};
    });
    const bool above = args.kind != Kind::Lower && j0 + TILE - 1 > i0;
    if (above) {
        for_tile<TILE>([&](int r, int c, int) {
            const int i = j0 + r, j = i0 + c;
            if (i > j && args.has(j, i)) mirror[r][c] = packed[offset(i, j)];
        });
        __syncthreads();
    }
    for_tile<TILE>([&](int r, int c, int k) {
        const int i = i0 + r, j = j0 + c;
        if (!args.has(i, j)) return;
        T value = below[k];
        if (i == j) value = on_diagonal(value, args.hermitian);
        else if (above && i < j) value = conjugate_if(mirror[c][r], args.hermitian);
        dense[args.at(i, j)] = value;
    });
}

template <int TILE, class T>
__global__ void __launch_bounds__(THREADS) pack_block_kernel(const BlockArgs<T> args) {
    __shared__ T mirror[TILE][TILE + 1];
    ptx::wait_for_dependency();
    ptx::launch_dependents();
    const Share<T> share(args);
    const int64_t row = row_of(share.tile);
    const int i0 = static_cast<int>(row) * TILE,
              j0 = static_cast<int>(share.tile - row_start(row)) * TILE;
    T* packed = share.packed;
    const T* dense = share.dense;
    const bool above = args.kind != Kind::Lower;
    T own[TILE * TILE / THREADS];
    for_tile<TILE>([&](int r, int c, int k) {
        const int i = i0 + r, j = j0 + c;
        own[k] =
            args.has(i, j) && (i == j || args.kind != Kind::Upper) ? dense[args.at(i, j)] : T{};
    });
    if (above) {
        for_tile<TILE>([&](int r, int c, int) {
            const int i = j0 + r, j = i0 + c;
            mirror[r][c] = args.has(i, j) ? dense[args.at(i, j)] : T{};
        });
        __syncthreads();
    }
    for_tile<TILE>([&](int r, int c, int k) {
        const int i = i0 + r, j = j0 + c;
        if (i >= args.n || j > i) return;
        T value = own[k];
        if (i == j) value = on_diagonal(value, args.hermitian);
        else if (above) value = add(value, conjugate_if(mirror[c][r], args.hermitian));
        packed[offset(i, j)] = value;
    });
}

template <int TILE, class T>
__global__ void __launch_bounds__(THREADS) write_block_kernel(const BlockArgs<T> args) {
    __shared__ T mirror[TILE][TILE + 1];
    ptx::wait_for_dependency();
    ptx::launch_dependents();
    const Share<T> share(args);
    const Corner first = corner<TILE>(args, share.tile);
    const int i0 = first.i, j0 = first.j;
    T* packed = share.packed;
    const T* dense = share.dense;
    for_tile<TILE>([&](int r, int c, int) {
        const int i = i0 + r, j = j0 + c;
        if (!args.has(i, j)) return;
        const T value = dense[args.at(i, j)];
        if (i > j && args.kind != Kind::Upper) packed[offset(i, j)] = value;
        if (i == j) packed[offset(i, j)] = on_diagonal(value, args.hermitian);
        mirror[r][c] = value;
    });
    if (args.kind == Kind::Lower || j0 + TILE - 1 <= i0) return;
    __syncthreads();
    for_tile<TILE>([&](int r, int c, int) {
        const int i = i0 + c, j = j0 + r;
        // Of two that mirror each other the lower one is written.
        const bool twice = args.kind == Kind::Symmetric && args.has(j, i);
        if (i < j && args.has(i, j) && !twice)
            packed[offset(j, i)] = conjugate_if(mirror[c][r], args.hermitian);
    });
}

template <class T>
BlockArgs<T> arguments(const BlockConversion& b) {
    const Conversion& c = b.whole;
    check_reach({c.n, c.batch});
    return {static_cast<T*>(c.packed),
            static_cast<T*>(c.dense),
            c.packed_batch_stride,
            c.dense_batch_stride,
            c.row_stride,
            c.kind,
            static_cast<int>(c.n),
            static_cast<int>(c.batch),
            static_cast<int>(b.top),
            static_cast<int>(b.left),
            static_cast<int>(b.rows),
            static_cast<int>(b.cols),
            c.hermitian};
}

// tiles_of(side): how many tiles each matrix has.
template <class T, class TilesOf>
void launch(void (*small)(BlockArgs<T>), void (*large)(BlockArgs<T>), const TilesOf& tiles_of,
            const BlockConversion& b, cudaStream_t stream) {
    const int64_t most = tiles_of(LARGE<T>) * b.whole.batch;
    const bool few = most < 8 * int64_t{current_device().multiprocessors};
    const dim3 grid = grid_of(few ? tiles_of(SMALL) * b.whole.batch : most);
    launch_overlapping(few ? small : large, grid, THREADS, arguments<T>(b), stream,
                       "cannot launch the conversion of a block");
}

auto tiles_of_block(const BlockConversion& b) {
    return [&b](int64_t side) { return ceil_div(b.rows, side) * ceil_div(b.cols, side); };
}

}  // namespace

void pack_block(const BlockConversion& b, cudaStream_t stream) {
    with_element_type(b.whole.dtype, [&](auto element) {
        using T = decltype(element);
        const auto tiles_of = [&](int64_t side) { return row_start(ceil_div(b.whole.n, side)); };
        launch<T>(pack_block_kernel<SMALL, T>, pack_block_kernel<LARGE<T>, T>, tiles_of, b, stream);
    });
}

void unpack_block(const BlockConversion& b, cudaStream_t stream) {
    with_element_type(b.whole.dtype, [&](auto element) {
        using T = decltype(element);
        launch<T>(unpack_block_kernel<SMALL, T>, unpack_block_kernel<LARGE<T>, T>,
                  tiles_of_block(b), b, stream);
    });
}

void write_block(const BlockConversion& b, cudaStream_t stream) {
    with_element_type(b.whole.dtype, [&](auto element) {
        using T = decltype(element);
        launch<T>(write_block_kernel<SMALL, T>, write_block_kernel<LARGE<T>, T>, tiles_of_block(b),
                  b, stream);
    });
}

}  // namespace packedtri::cuda
