// What makes tile images of the rows of memory of an operand; and how one warp makes a unit of a piece
// (pack_order.h), with nothing but its registers, beside a product that has the shared memory.
#pragma once

#include "chunk.cuh"
#include "hopper.cuh"
#include "image_pack.h"
#include "panel.cuh"
#include "ptx.cuh"
#include "scalar.cuh"

namespace packedtri::cuda {

template <class T>
struct PackArgs {
    Panel<T> panel;
    bool mirrored;  // Of a triangle that stands for a symmetric matrix.
    Grid blocks;
    char* to;
    int64_t part_bytes;
    // To the next matrix, in elements and in bytes of its image.
    int64_t next, next_image;
    int matrices;

    __device__ char* block(int row, int col) const {
        return to + blocks.index(row, col) * Image::BLOCK_BYTES;
    }
    // How many elements row `i` has from `j` on; a negative number where it ends before.
    __device__ int left(int i, int j) const {
        return i < panel.rows ? panel.length(i) - j : -Image::SIDE;
    }
};

template <class T>
PackArgs<T> pack_args(const ImageRequest& request) {
    return {orient<T>(request.operand, true).panel,
            request.operand.kind == Kind::Symmetric,
            request.blocks,
            request.to,
            request.part_bytes,
            request.operand.batch_stride,
            request.bytes,
            request.matrices};
}

// Makes units of a piece: 32 rows, as wide as the piece, a chunk of each row a lane. Few warps do this, one
// instruction after another, so the fewer a row takes, the more is made. The distances of rows from aligned
// addresses are known in advance: those of rows i + r, where i is a multiple of 16, are r (r + 1) / 2, modulo
// 8, because row i + r starts (i + r)(i + r + 1) / 2 elements behind the first. So a lane loads the two words
// that hold its 8 elements of the image, and cuts them out by constants.
//
// For that the triangle must start at a multiple of 16 bytes, and have no gaps (can_fuse in choose_engine.cpp).
template <class T>
class UnitPacker {
    static_assert(sizeof(T) == 2, "words of 8 elements");
    static constexpr int ROWS = PackOrder::UNIT_ROWS, WIDTH = PackOrder::SIDE * Image::SIDE,
                         CHUNK = 8, BYTES = 2;
    static constexpr int TURN = 16, BATCH = 8;  // Rows after which distances repeat, and at a time.
    static_assert(WIDTH / CHUNK == 32 && ROWS % TURN == 0, "");

  public:
    // Part `part` of the piece at (row, col).
    __device__ static void run(const PackArgs<T>& args, int row, int col, int part) {
        const int row0 = row * WIDTH + part * ROWS, col0 = col * WIDTH;
        const Panel<T>& panel = args.panel;
        // The second word of the last lane may reach into the row behind.
        if (row0 + ROWS < panel.rows && args.left(row0, col0) >= WIDTH)
            return pack_rows<true>(args, row0, col0);
        // The word in which the last row ends may reach out of the memory.
        const int last = min(row0 + ROWS, panel.rows) - 1;
        const int64_t end =
            last < row0 ? 0 : panel.row_offset(last) + min(panel.length(last), col0 + WIDTH);
        if ((end + CHUNK - 1) / CHUNK * CHUNK <= panel.end) pack_rows<false>(args, row0, col0);
        else pack_last(args, row0, col0);
    }

  private:
    // FULL: whether every place of the unit has a stored element.
    template <bool FULL>
    __device__ __forceinline__ static void pack_rows(const PackArgs<T>& args, int row0, int col0) {
        const int chunk = threadIdx.x % 32;
        const int block_row = row0 / Image::SIDE, block_col = col0 / Image::SIDE + chunk / 8;
        const bool exists = FULL || args.blocks.has(block_row, block_col);
        char* to = args.block(block_row, block_col) + row0 % Image::SIDE * Image::ROW_BYTES;
        const char* from = reinterpret_cast<const char*>(
            args.panel.data + args.panel.row_offset(row0) + col0 + chunk * CHUNK);
#pragma unroll 1
        for (int i = row0; i < row0 + ROWS; i += TURN) {
            // But for the distance that is known, rows are equally far apart.
            const int pitch = i * BYTES;
            const char* at = from;
            // How many elements row r of the turn has from where this lane's begin; less than one, if none.
            const auto stored = [&](int r) {
                const int row = i + r;
                return row < args.panel.rows ? row + args.panel.reach - col0 - chunk * CHUNK : 0;
            };
#pragma unroll
            for (int first = 0; first < TURN; first += BATCH) {
                uint4 low[BATCH], high[BATCH];
#pragma unroll
                for (int b = 0; b < BATCH; ++b) {
                    const int r = first + b, shift = distance(r) % CHUNK;
                    const auto* words =
                        reinterpret_cast<const uint4*>(at + (distance(r) - shift) * BYTES);
                    if (FULL) {
                        low[b] = __ldg(words);
                        if (shift > 0) high[b] = __ldg(words + 1);
                    } else {
                        low[b] = high[b] = {};
                        ptx::load_if(low[b], words, stored(r) > 0);
                        if (shift > 0) ptx::load_if(high[b], words + 1, shift + stored(r) > CHUNK);
                    }
                    at += pitch;
                }
#pragma unroll
                for (int b = 0; b < BATCH; ++b) {
                    const int r = first + b;
                    uint32_t w[8] = {low[b].x,  low[b].y,  low[b].z,  low[b].w,
                                     high[b].x, high[b].y, high[b].z, high[b].w};
                    shift_words(w, distance(r) % CHUNK);
                    uint4 word = make_uint4(w[0], w[1], w[2], w[3]);
                    if (!FULL) word = clipped(word, stored(r));
                    char* row = to + r * Image::ROW_BYTES + (chunk % 8 ^ r % 8) * 16;
                    if (exists) *reinterpret_cast<uint4*>(row) = word;
                }
            }
            from += TURN * pitch + distance(TURN) * BYTES;
            to += TURN * Image::ROW_BYTES;
        }
    }

    // From where row i starts to where row i + r does, less r i.
    __device__ static constexpr int distance(int r) { return r * (r + 1) / 2; }

    // Whatever the unit holds. Not at the cost of registers that the others would have.
    __device__ __noinline__ static void pack_last(const PackArgs<T>& args, int row0, int col0) {
        const int chunk = threadIdx.x % 32, j = col0 + chunk * CHUNK;
        const int block_row = row0 / Image::SIDE, block_col = j / Image::SIDE;
        if (!args.blocks.has(block_row, block_col)) return;
        char* to = args.block(block_row, block_col);
        const T* end = args.panel.data + args.panel.end;
        for (int i = row0; i < row0 + ROWS; ++i) {
            const T* from = args.panel.data + args.panel.row_offset(i) + j;
            *reinterpret_cast<uint4*>(to + Image::chunk_offset(i % Image::SIDE, chunk % 8)) =
                load_chunk(from, max(0, min(CHUNK, args.left(i, j))), args.panel.data, end);
        }
    }
};

// Has the L2 cache fetch what a unit will be made of, a row a lane.
template <class T>
__device__ __forceinline__ void prefetch_unit(const PackArgs<T>& args, int row, int col, int part) {
    constexpr int WIDTH = PackOrder::SIDE * Image::SIDE, LINE = 128 / sizeof(T);
    static_assert(PackOrder::UNIT_ROWS == 32, "a lane has a row");
    const int i = row * WIDTH + part * PackOrder::UNIT_ROWS + threadIdx.x % 32, j = col * WIDTH;
    const int count = args.left(i, j);
    const T* from = args.panel.data + args.panel.row_offset(i) + j;
#pragma unroll
    for (int x = 0; x < WIDTH; x += LINE)
        if (x < count) ptx::prefetch_l2(from + x);
}

}  // namespace packedtri::cuda
