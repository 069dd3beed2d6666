// Packing and unpacking at the speed of memory: square tiles, transposed through shared memory
// where the packed order and the dense order differ. Elements of 2 bytes move by words of 16 where that pays.
#include <utility>

#include "../index.h"
#include "chunk.cuh"
#include "conversion_tile.cuh"
#include "elements.cuh"
#include "hopper.cuh"
#include "image.h"
#include "kernels.h"
#include "launch.h"

namespace packedtri::cuda {
namespace {

using namespace conversion;

template <class T>
struct ConvertArgs {
    T* packed;
    T* dense;
    int64_t packed_batch_stride, dense_batch_stride, row_stride, col_stride;
    Kind kind;
    int n, batch;
    bool hermitian;
};

// The tile (i0, j0), j0 <= i0, and the matrix of the batch that a block works on.
template <class T, int TILE>
struct Place {
    T* packed;
    T* dense;
    int i0, j0;

    __device__ explicit Place(const ConvertArgs<T>& args) {
        const auto matrices = static_cast<unsigned>(args.batch);
        const unsigned batch = blockIdx.x % matrices, tile = blockIdx.x / matrices;
        const int64_t i = row_of(tile);
        packed = args.packed + batch * args.packed_batch_stride;
        dense = args.dense + batch * args.dense_batch_stride;
        i0 = static_cast<int>(i) * TILE;
        j0 = static_cast<int>(tile - row_start(i)) * TILE;
    }
};

template <int TILE, class T>
__global__ void __launch_bounds__(THREADS) pack_kernel(const ConvertArgs<T> args) {
    __shared__ T mirror[TILE][TILE + 1];
    ptx::wait_for_dependency();
    ptx::launch_dependents();
    const Place<T, TILE> at(args);
    const auto dense = [&](int i, int j) -> const T& {
        return at.dense[i * args.row_stride + j * args.col_stride];
    };
    if (args.kind != Kind::Lower) {
        for_tile<TILE>([&](int r, int c, int) {
            if (at.j0 + r < args.n && at.i0 + c < args.n)
                mirror[r][c] = dense(at.j0 + r, at.i0 + c);
        });
        __syncthreads();
    }
    for_tile<TILE>([&](int r, int c, int) {
        const int i = at.i0 + r, j = at.j0 + c;
        if (i >= args.n || j > i) return;
        T value = args.kind == Kind::Upper ? mirror[c][r] : dense(i, j);
        if (i == j) value = on_diagonal(value, args.hermitian);
        else if (args.kind == Kind::Symmetric)
            value = add(value, conjugate_if(mirror[c][r], args.hermitian));
        at.packed[offset(i, j)] = value;
    });
}

template <int TILE, class T>
__global__ void __launch_bounds__(THREADS) unpack_kernel(const ConvertArgs<T> args) {
    __shared__ T tile[TILE][TILE + 1];
    ptx::wait_for_dependency();
    ptx::launch_dependents();
    const Place<T, TILE> at(args);
    for_tile<TILE>([&](int r, int c, int) {
        const int i = at.i0 + r, j = at.j0 + c;
        if (i < args.n && j <= i) tile[r][c] = at.packed[offset(i, j)];
    });
    __syncthreads();
    const auto put = [&](int i, int j, T value) {
        if (i < args.n && j < args.n) at.dense[i * args.row_stride + j * args.col_stride] = value;
    };
    const bool lower = args.kind != Kind::Upper, upper = args.kind != Kind::Lower;
    const bool diagonal = at.i0 == at.j0;
    for_tile<TILE>([&](int r, int c, int) {
        if (diagonal && c > r)
            put(at.i0 + r, at.j0 + c, upper ? conjugate_if(tile[c][r], args.hermitian) : T{});
        else if (diagonal && c == r)
            put(at.i0 + r, at.j0 + c, on_diagonal(tile[r][c], args.hermitian));
        else put(at.i0 + r, at.j0 + c, lower ? tile[r][c] : T{});
    });
    if (diagonal) return;
    for_tile<TILE>([&](int r, int c, int) {
        put(at.j0 + r, at.i0 + c, upper ? conjugate_if(tile[c][r], args.hermitian) : T{});
    });
}

// --------------------------------------------------------------------- elements of 2 bytes, by words

// How many elements from j on a row has whose first `length` exist, of `most` at most.
__device__ int within(int length, int j, int most) { return max(0, min(length - j, most)); }

// The lower triangle in the order of its rows: a warp has a segment of a row, and a lane 8 elements.
constexpr int SEGMENT = 32 * 8, PASSES = 2, ROWS = PASSES * WARPS;

// The rows from i0 on, and their segment from j0 on, that a block works on.
template <class T>
struct RowPlace {
    T* packed;
    T* dense;
    int i0, j0;

    __device__ explicit RowPlace(const ConvertArgs<T>& args) {
        const auto matrices = static_cast<unsigned>(args.batch);
        const unsigned batch = blockIdx.x % matrices, place = blockIdx.x / matrices;
        const auto segments = static_cast<unsigned>(ceil_div(args.n, SEGMENT));
        packed = args.packed + batch * args.packed_batch_stride;
        dense = args.dense + batch * args.dense_batch_stride;
        i0 = static_cast<int>(place / segments) * ROWS;
        j0 = static_cast<int>(place % segments) * SEGMENT;
    }
    __device__ static int row(int pass) {
        return static_cast<int>(threadIdx.x) / 32 + pass * WARPS;
    }
};

__device__ int lane() { return static_cast<int>(threadIdx.x) % 32; }

// Stores the first `count` elements of a segment at `to`. What lies before the first boundary of 16
// bytes there, and behind the last, goes element by element: others have the rest of these words.
template <class T>
__device__ void store_segment(T* to, int count, uint4 word, uint4* staged) {
    const int shift = ptx::past_word(to), at = lane() * 8 - shift;
    const uint32_t own[4] = {word.x, word.y, word.z, word.w};
    uint32_t w[8];
#pragma unroll
    for (int x = 0; x < 4; ++x) {
        const uint32_t before = __shfl_up_sync(~0u, own[x], 1);
        w[x] = shift > 0 ? before : own[x];
        w[4 + x] = own[x];
    }
    shift_words(w, (8 - shift) % 8);
    if (at >= 0 && at + 8 <= count)
        *reinterpret_cast<uint4*>(to + at) = make_uint4(w[0], w[1], w[2], w[3]);
    if (shift == 0 && count % 8 == 0) return;
    __syncwarp();  // The segment before has been read.
    staged[lane()] = word;
    __syncwarp();
    const T* elements = reinterpret_cast<const T*>(staged);
    const int head = min(shift > 0 ? 8 - shift : 0, count),
              tail = max(head, (count + shift) / 8 * 8 - shift);
    if (lane() < head) to[lane()] = elements[lane()];
    if (tail + lane() < count) to[tail + lane()] = elements[tail + lane()];
}

template <class T>
__global__ void __launch_bounds__(THREADS) pack_rows_kernel(const ConvertArgs<T> args) {
    __shared__ uint4 staged[WARPS][32];
    ptx::wait_for_dependency();
    ptx::launch_dependents();
    const RowPlace<T> at(args);
    if (at.j0 >= at.i0 + ROWS) return;
    const T* end = at.dense + (args.n - 1) * args.row_stride + args.n;
    uint4 words[PASSES];
#pragma unroll
    for (int pass = 0; pass < PASSES; ++pass) {
        const int i = at.i0 + at.row(pass), j = at.j0 + lane() * 8;
        words[pass] = load_chunk(at.dense + i * args.row_stride + j,
                                 i < args.n ? within(i + 1, j, 8) : 0, at.dense, end);
    }
#pragma unroll
    for (int pass = 0; pass < PASSES; ++pass) {
        const int i = at.i0 + at.row(pass);
        store_segment(at.packed + offset(i, at.j0), i < args.n ? within(i + 1, at.j0, SEGMENT) : 0,
                      words[pass], staged[threadIdx.x / 32]);
    }
}

template <class T>
__global__ void __launch_bounds__(THREADS) unpack_rows_kernel(const ConvertArgs<T> args) {
    __shared__ uint4 staged[WARPS][32];
    ptx::wait_for_dependency();
    ptx::launch_dependents();
    const RowPlace<T> at(args);
    const T* end = at.packed + row_start(args.n);
    uint4 words[PASSES];
#pragma unroll
    for (int pass = 0; pass < PASSES; ++pass) {
        const int i = at.i0 + at.row(pass), j = at.j0 + lane() * 8;
        words[pass] = load_chunk(at.packed + offset(i, j), i < args.n ? within(i + 1, j, 8) : 0,
                                 at.packed, end);
    }
#pragma unroll
    for (int pass = 0; pass < PASSES; ++pass) {
        const int i = at.i0 + at.row(pass);
        store_segment(at.dense + i * args.row_stride + at.j0,
                      i < args.n ? within(args.n, at.j0, SEGMENT) : 0, words[pass],
                      staged[threadIdx.x / 32]);
    }
}

// Blocks of 64 x 64, for dense rows that are aligned to words: 8 lanes have a row. Where rows and columns
// change places, they lie in shared memory as in an image: neither rows nor columns of words meet in
// one bank there.
constexpr int SIDE = Image::SIDE;

__device__ int row_of_pass(int pass) {
    return static_cast<int>(threadIdx.x) / 8 + pass * (THREADS / 8);
}
__device__ int chunk() { return static_cast<int>(threadIdx.x) % 8; }

__device__ void transpose(uint4 (&words)[PASSES], char* block) {
    static_assert(PASSES * THREADS == SIDE * SIDE / 8, "");
    const int warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll
    for (int pass = 0; pass < PASSES; ++pass)
        *reinterpret_cast<uint4*>(block + Image::chunk_offset(row_of_pass(pass), chunk())) =
            words[pass];
    __syncthreads();
    uint32_t x[2][4];
#pragma unroll
    for (int half = 0; half < 2; ++half)
        ptx::ldmatrix_x4_trans(
            x[half], ptx::shared_address(block) + Image::chunk_offset(half * 32 + lane(), warp));
    __syncthreads();
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int m = 0; m < 4; ++m)
            *reinterpret_cast<uint32_t*>(
                block + Image::chunk_offset(warp * 8 + lane() / 4, half * 4 + m) + lane() % 4 * 4) =
                x[half][m];
    __syncthreads();
#pragma unroll
    for (int pass = 0; pass < PASSES; ++pass)
        words[pass] = *reinterpret_cast<const uint4*>(
            block + Image::chunk_offset(row_of_pass(pass), chunk()));
}

template <class T>
__global__ void __launch_bounds__(THREADS) unpack_blocks_kernel(const ConvertArgs<T> args) {
    __shared__ __align__(128) char block[Image::BLOCK_BYTES];
    ptx::wait_for_dependency();
    ptx::launch_dependents();
    const Place<T, SIDE> at(args);
    const T* end = at.packed + row_start(args.n);
    uint4 words[PASSES], mirror[PASSES] = {};
#pragma unroll
    for (int pass = 0; pass < PASSES; ++pass) {
        const int i = at.i0 + row_of_pass(pass), j = at.j0 + chunk() * 8;
        words[pass] = load_chunk(at.packed + offset(i, j), i < args.n ? within(i + 1, j, 8) : 0,
                                 at.packed, end);
    }
    if (args.kind != Kind::Lower) {
#pragma unroll
        for (int pass = 0; pass < PASSES; ++pass) mirror[pass] = words[pass];
        transpose(mirror, block);
    }
    const auto put = [&](int i, int j, uint4 word) {
        const int count = i < args.n ? within(args.n, j, 8) : 0;
        T* to = at.dense + i * args.row_stride + j;
        if (count == 8) {
            *reinterpret_cast<uint4*>(to) = word;
        } else {
            const T* elements = reinterpret_cast<const T*>(&word);
#pragma unroll
            for (int e = 0; e < 7; ++e)
                if (e < count) to[e] = elements[e];
        }
    };
    const bool diagonal = at.i0 == at.j0;
#pragma unroll
    for (int pass = 0; pass < PASSES; ++pass) {
        const int r = row_of_pass(pass), c = chunk() * 8;
        uint4 x = args.kind == Kind::Upper ? uint4{} : words[pass];
        const uint4 y = mirror[pass];
        // On the diagonal, each is zero where the other half is, and both are the same between.
        if (diagonal) x = make_uint4(x.x | y.x, x.y | y.y, x.z | y.z, x.w | y.w);
        put(at.i0 + r, at.j0 + c, x);
        if (!diagonal) put(at.j0 + r, at.i0 + c, y);
    }
}

// ------------------------------------------------------------------------------------- launches

template <class T>
ConvertArgs<T> arguments(const Conversion& c) {
    check_reach({c.n, c.batch});
    ConvertArgs<T> args{static_cast<T*>(c.packed),
                        static_cast<T*>(c.dense),
                        c.packed_batch_stride,
                        c.dense_batch_stride,
                        c.row_stride,
                        c.col_stride,
                        c.kind,
                        static_cast<int>(c.n),
                        static_cast<int>(c.batch),
                        c.hermitian};
    // The kernels read along the columns of a row; a matrix that lies by columns is the transpose
    // of one that lies by rows. That of a Hermitian one is its conjugate, which they do not store.
    if (args.col_stride != 1 && args.row_stride == 1 && !c.hermitian) {
        std::swap(args.row_stride, args.col_stride);
        if (c.kind == Kind::Lower) args.kind = Kind::Upper;
        if (c.kind == Kind::Upper) args.kind = Kind::Lower;
    }
    return args;
}

// `places`: blocks of threads for each matrix.
template <class T>
void launch(void (*kernel)(ConvertArgs<T>), int64_t places, const ConvertArgs<T>& args,
            cudaStream_t stream) {
    launch_overlapping(kernel, grid_of(places * args.batch), THREADS, args, stream,
                       "cannot launch a conversion");
}

template <class T>
void launch_tiles(void (*small)(ConvertArgs<T>), void (*large)(ConvertArgs<T>),
                  const ConvertArgs<T>& args, cudaStream_t stream) {
    const int64_t tiles = row_start(ceil_div(args.n, LARGE<T>));
    const bool few = tiles * args.batch < 8 * int64_t{current_device().multiprocessors};
    if (few) launch(small, row_start(ceil_div(args.n, SMALL)), args, stream);
    else launch(large, tiles, args, stream);
}

template <class T>
int64_t row_places(const ConvertArgs<T>& args) {
    return ceil_div(args.n, SEGMENT) * ceil_div(args.n, ROWS);
}

template <class T>
bool aligned(const ConvertArgs<T>& args) {
    return reinterpret_cast<uintptr_t>(args.dense) % 16 == 0 && args.row_stride % 8 == 0 &&
           args.dense_batch_stride % 8 == 0 && args.col_stride == 1;
}

// Short rows leave most of a warp idle, and few of them most of the device.
template <class T>
bool packs_by_rows(const ConvertArgs<T>& args) {
    return args.kind == Kind::Lower && args.col_stride == 1 && args.n >= SEGMENT &&
           row_places(args) * args.batch >= 512;
}
template <class T>
bool unpacks_by_rows(const ConvertArgs<T>& args) {
    return args.kind == Kind::Lower && args.col_stride == 1 &&
           args.n >= (aligned(args) ? SEGMENT : SEGMENT / 2);
}

}  // namespace

void pack(const Conversion& c, cudaStream_t stream) {
    with_element_type(c.dtype, [&](auto element) {
        using T = decltype(element);
        const ConvertArgs<T> args = arguments<T>(c);
        if constexpr (sizeof(T) == 2)
            if (packs_by_rows(args))
                return launch(pack_rows_kernel<T>, row_places(args), args, stream);
        launch_tiles(pack_kernel<SMALL, T>, pack_kernel<LARGE<T>, T>, args, stream);
    });
}

void unpack(const Conversion& c, cudaStream_t stream) {
    with_element_type(c.dtype, [&](auto element) {
        using T = decltype(element);
        const ConvertArgs<T> args = arguments<T>(c);
        if constexpr (sizeof(T) == 2) {
            if (unpacks_by_rows(args))
                return launch(unpack_rows_kernel<T>, row_places(args), args, stream);
            if (aligned(args))
                return launch(unpack_blocks_kernel<T>, row_start(ceil_div(args.n, SIDE)), args,
                              stream);
        }
        launch_tiles(unpack_kernel<SMALL, T>, unpack_kernel<LARGE<T>, T>, args, stream);
    });
}

}  // namespace packedtri::cuda
