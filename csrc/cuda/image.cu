#include "image_pack.h"

#include <algorithm>
#include <type_traits>

#include "elements.cuh"
#include "hopper.cuh"
#include "image_source.cuh"
#include "launch.h"
#include "scaled_block.cuh"

namespace packedtri::cuda {
namespace {

constexpr int SIDE = Image::SIDE;

// One block of the image by 256 threads, 8 lanes a row.
template <class T>
__device__ void pack_block(const PackArgs<T>& args, const T* data, int row, int col, char* to) {
    const int chunk = threadIdx.x % 8;
    const T* end = data + args.panel.end;
#pragma unroll
    for (int pass = 0; pass < 2; ++pass) {
        const int r = threadIdx.x / 8 + 32 * pass, i = row * SIDE + r, j = col * SIDE + chunk * 8;
        const int valid = i < args.panel.rows ? max(0, min(8, args.panel.length(i) - j)) : 0;
        const uint4 word = load_chunk(data + args.panel.row_offset(i) + j, valid, data, end);
        *reinterpret_cast<uint4*>(to + Image::chunk_offset(r, chunk)) = word;
    }
}

// x as a sum of three bfloat16, exact to 24 bits. Where that cannot be, because x is not finite, or
// so large or small that its parts leave their range, the parts are nan, which the engine reports.
__device__ __forceinline__ void split(float x, __nv_bfloat16 (&parts)[3]) {
    constexpr float smallest = 0x1p-109f, largest = 0x1.fep127f;
    const float size = fabsf(x);
    if (!(size <= largest) || (size < smallest && size != 0)) x = NAN;
    parts[0] = __float2bfloat16_rn(x);
    const float rest = x - __bfloat162float(parts[0]);
    parts[1] = __float2bfloat16_rn(rest);
    parts[2] = __float2bfloat16_rn(rest - __bfloat162float(parts[1]));
}

// The same for float32: a warp a row, two elements a lane, three images. All are read before the first is stored, for
// the compiler does not know that they are not the same memory.
__device__ void pack_block(const PackArgs<float>& args, const float* data, int row, int col,
                           char* to) {
    constexpr int WARPS = 8, ROWS = SIDE / WARPS;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    ColumnWalk<float, WARPS> walk(args.panel, data, row * SIDE + warp, col * SIDE + 2 * lane);
    float2 read[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r, walk.advance()) read[r] = {walk.at(0), walk.at(1)};
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        __nv_bfloat16 x[3], y[3];
        split(read[r].x, x);
        split(read[r].y, y);
        char* at = to + Image::chunk_offset(warp + WARPS * r, lane / 4) + lane % 4 * 4;
#pragma unroll
        for (int p = 0; p < 3; ++p)
            *reinterpret_cast<__nv_bfloat162*>(at + p * args.part_bytes) = {x[p], y[p]};
    }
}

// Writes chunk `chunk` of row `r` of a block, whose elements are x(0) ... x(7).
template <class T, class X>
__device__ __forceinline__ void store_chunk(char* to, int64_t /*part_bytes*/, int r, int chunk, X x,
                                            T) {
    __align__(16) T row[8];
#pragma unroll
    for (int e = 0; e < 8; ++e) row[e] = x(e);
    *reinterpret_cast<uint4*>(to + Image::chunk_offset(r, chunk)) = *reinterpret_cast<uint4*>(row);
}
template <class X>
__device__ __forceinline__ void store_chunk(char* to, int64_t part_bytes, int r, int chunk, X x,
                                            float) {
    __align__(16) __nv_bfloat16 rows[3][8];
#pragma unroll
    for (int e = 0; e < 8; ++e) {
        __nv_bfloat16 parts[3];
        split(x(e), parts);
#pragma unroll
        for (int p = 0; p < 3; ++p) rows[p][e] = parts[p];
    }
#pragma unroll
    for (int p = 0; p < 3; ++p)
        *reinterpret_cast<uint4*>(to + p * part_bytes + Image::chunk_offset(r, chunk)) =
            *reinterpret_cast<uint4*>(rows[p]);
}

// Writes a block whose elements are x(r, c).
template <class T, class X>
__device__ __forceinline__ void store_block(char* to, int64_t part_bytes, X x, T) {
    for (int place = threadIdx.x; place < SIDE * SIDE / 8; place += 256) {
        const int r = place / 8, chunk = place % 8;
        store_chunk(to, part_bytes, r, chunk, [&](int e) { return x(r, chunk * 8 + e); }, T{});
    }
}

template <class T>
__device__ void pack_mirrored(const PackArgs<T>& args, const T* data, int row, int col, char* to) {
    const MirroredBlock<T> block(args, data, row, col);
    store_block(to, args.part_bytes, [&](int r, int c) { return block.at(r, c); }, T{});
}

// A block by 256 threads.
template <class T>
__device__ __forceinline__ void pack_any(const PackArgs<T>& args, const T* data, int row, int col,
                                         bool mirrored, char* to) {
    if (mirrored) pack_mirrored(args, data, row, col, to);
    else pack_block(args, data, row, col, to);
}

template <class T>
struct PackAll {
    PackArgs<T> of[MOST_IMAGES];
    int64_t end[MOST_IMAGES];  // The block of threads behind those for each image.
    int* control;
    int control_words;
};

// What a block of threads works on.
struct PackPlace {
    int which, matrix;
    int64_t index;  // Of those for this image.
    bool exists;
};

// BATCH: of more than one matrix. To tell takes registers, and so warps that hide how long loads take.
template <class T, bool BATCH>
__device__ __forceinline__ PackPlace begin_packing(const PackAll<T>& all) {
    ptx::wait_for_dependency();
    ptx::launch_dependents();
    const int matrix = BATCH ? blockIdx.y : 0, matrices = BATCH ? gridDim.y : 1;
    if (blockIdx.x == 0)
        for (int w = matrix * 256 + threadIdx.x; w < all.control_words; w += matrices * 256)
            all.control[w] = 0;
    int which = 0;
    while (blockIdx.x >= all.end[which]) ++which;
    return {which, matrix, blockIdx.x - (which > 0 ? all.end[which - 1] : 0),
            !BATCH || matrix < all.of[which].matrices};
}

// How many blocks of threads a multiprocessor has at once: few where each thread has many loads under way.
template <class T>
constexpr int BLOCKS = std::is_same_v<T, Tf32> ? 4
                       : sizeof(T) == 4        ? 6
                                               : 8;

// LARGE: whether some image is of half a symmetric matrix, of which blocks that reach above the diagonal are mirrored. To ask
// that of every image takes a microsecond or two, since none of the code is in the caches when a launch begins.
template <class T, bool BATCH, bool LARGE>
__global__ void __launch_bounds__(256, BLOCKS<T>)
    pack_kernel(const __grid_constant__ PackAll<T> all) {
    const auto [which, matrix, index, exists] = begin_packing<T, BATCH>(all);
    if (!exists) return;
    const PackArgs<T>& args = all.of[which];
    const T* data = args.panel.data + matrix * args.next;
    int row, col;
    args.blocks.template find<LARGE>(index, row, col);
    if (LARGE && col >= args.blocks.cols) return;  // Of a large square past the edge.
    const bool mirrored = args.mirrored && (!LARGE || col >= row);
    char* image = args.to + matrix * args.next_image;
    if constexpr (std::is_same_v<T, Tf32>)
        ScaledBlock::pack(args, data, row, col, index, mirrored, image);
    else pack_any(args, data, row, col, mirrored, image + index * Image::BLOCK_BYTES);
}

// What pack_rows_kernel has for an image: a row of the image blocks of a piece by 256 threads. Pieces on the diagonal of a
// symmetric matrix go block by block, and come first, since mirroring takes longer.
struct RowWork {
    Grid pieces;
    bool symmetric;
    static constexpr int64_t ROWS = PackOrder::SIDE, SQUARES = ROWS * ROWS;

    PACKEDTRI_HD explicit RowWork(const Grid& blocks)
        : pieces(PackOrder::pieces_of(blocks)), symmetric(blocks.large > 0) {}

    PACKEDTRI_HD int64_t mirrored() const { return symmetric ? pieces.rows * SQUARES : 0; }
    PACKEDTRI_HD int64_t count() const {
        return mirrored() + ROWS * (symmetric ? row_start(pieces.rows - 1) : pieces.count());
    }
};

// The same where starts_of_rows_known, of all images of a launch.
template <class T, bool BATCH, bool SYMMETRIC>
__global__ void __launch_bounds__(256, 3) pack_rows_kernel(const __grid_constant__ PackAll<T> all) {
    using Rows = RowPacker<T>;
    static_assert(256 / 32 * Rows::ROWS == SIDE && Rows::WIDTH == PackOrder::SIDE * SIDE, "");
    auto [which, matrix, index, exists] = begin_packing<T, BATCH>(all);
    if (!exists) return;
    const PackArgs<T>& args = all.of[which];
    const RowWork work(args.blocks);
    const T* data = args.panel.data + matrix * args.next;
    char* image = args.to + matrix * args.next_image;
    int row, col;
    if (SYMMETRIC && index < work.mirrored()) {
        const int piece = static_cast<int>(index / RowWork::SQUARES) * PackOrder::SIDE,
                  square = static_cast<int>(index % RowWork::SQUARES);
        row = piece + square / PackOrder::SIDE, col = piece + square % PackOrder::SIDE;
        if (args.blocks.has(row, col))
            pack_any(args, data, row, col, col >= row,
                     image + args.blocks.index(row, col) * Image::BLOCK_BYTES);
        return;
    }
    if (SYMMETRIC) index -= work.mirrored();
    work.pieces.template find<false>(index / PackOrder::SIDE, row, col);
    if (SYMMETRIC && work.symmetric) ++row;  // Below the diagonal.
    const int first = (row * PackOrder::SIDE + static_cast<int>(index % PackOrder::SIDE)) * SIDE,
              warp = static_cast<int>(threadIdx.x) / 32;
    Rows::run(args, data, image, first + warp * Rows::ROWS, col * Rows::WIDTH);
}

// By a kernel for one matrix or one for a batch, with so many blocks of threads for each image.
template <class T, class Blocks>
void launch_pack(void (*one)(PackAll<T>), void (*batch)(PackAll<T>), Blocks blocks_of,
                 const ImageRequest* requests, int count, int* control, int words,
                 cudaStream_t stream) {
    PackAll<T> all{};
    int64_t blocks = 0;
    int matrices = 0;
    for (int r = 0; r < count; ++r) {
        all.of[r] = pack_args<T>(requests[r]);
        all.end[r] = blocks += blocks_of(requests[r].blocks);
        matrices = std::max(matrices, requests[r].matrices);
    }
    all.control = control;
    all.control_words = words;
    const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(matrices));
    launch_overlapping(matrices > 1 ? batch : one, grid, 256, all, stream,
                       "cannot launch the packing of a product's operands");
}

template <class T>
void pack_all(const ImageRequest* requests, int count, int* control, int words,
              cudaStream_t stream) {
    const bool symmetric = std::any_of(requests, requests + count,
                                       [](const ImageRequest& r) { return r.blocks.large > 0; });
    if constexpr (sizeof(T) == 2) {
        const bool by_rows = std::all_of(requests, requests + count, [](const ImageRequest& r) {
            return r.blocks.packed && starts_of_rows_known(r.operand, r.matrices);
        });
        const auto blocks = [](const Grid& of) { return RowWork(of).count(); };
        if (by_rows && symmetric)
            return launch_pack<T>(pack_rows_kernel<T, false, true>, pack_rows_kernel<T, true, true>,
                                  blocks, requests, count, control, words, stream);
        if (by_rows)
            return launch_pack<T>(pack_rows_kernel<T, false, false>,
                                  pack_rows_kernel<T, true, false>, blocks, requests, count,
                                  control, words, stream);
    }
    const auto blocks = [](const Grid& of) { return of.count(); };
    if (symmetric)
        launch_pack<T>(pack_kernel<T, false, true>, pack_kernel<T, true, true>, blocks, requests,
                       count, control, words, stream);
    else
        launch_pack<T>(pack_kernel<T, false, false>, pack_kernel<T, true, false>, blocks, requests,
                       count, control, words, stream);
}

struct ClearArgs {
    int* control;
    int words;
};
constexpr int CLEARED = 1024;  // By a block.

__global__ void __launch_bounds__(256) clear_kernel(const __grid_constant__ ClearArgs args) {
    ptx::wait_for_dependency();
    ptx::launch_dependents();
    for (int x = threadIdx.x; x < CLEARED; x += 256)
        if (const int w = blockIdx.x * CLEARED + x; w < args.words) args.control[w] = 0;
}

}  // namespace

void clear_words(int* control, int words, cudaStream_t stream) {
    launch_overlapping(clear_kernel, dim3(static_cast<unsigned>(ceil_div(words, CLEARED))), 256,
                       ClearArgs{control, words}, stream, "cannot clear scratch memory");
}

void pack_images(DType dtype, bool tf32, const ImageRequest* requests, int count, int* control,
                 int words, cudaStream_t stream) {
    switch (dtype) {
        case DType::f16: return pack_all<__half>(requests, count, control, words, stream);
        case DType::bf16: return pack_all<__nv_bfloat16>(requests, count, control, words, stream);
        case DType::f32:
            return tf32 ? pack_all<Tf32>(requests, count, control, words, stream)
                        : pack_all<float>(requests, count, control, words, stream);
        default: throw std::logic_error("[packedtri] no images of this element type");
    }
}

}  // namespace packedtri::cuda
