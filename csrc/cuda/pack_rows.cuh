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
    bool mirrored;    // Of a triangle that stands for a symmetric matrix.
    bool transposed;  // Each block in its place.
    Image image;
    char* to;
    int64_t part_bytes;

    __device__ bool has_block(int row, int col) const {
        return row < image.rows && col < image.cols && !(image.packed && col > row);
    }
    __device__ char* block(int row, int col) const {
        return to + image.index(row, col) * Image::BLOCK_BYTES;
    }
    // From row `i` to the next, in elements.
    __device__ int64_t step(int i) const { return panel.ld + (panel.packed ? i + 1 : 0); }
    // How many elements row `i` has from `j` on; a negative number where it ends before.
    __device__ int left(int i, int j) const {
        return i < panel.rows ? panel.length(i) - j : -Image::SIDE;
    }
};

template <class T>
PackArgs<T> pack_args(const ImageRequest& request) {
    return {orient<T>(request.operand, true).panel,
            request.operand.kind == Kind::Symmetric,
            request.across,
            request.layout,
            request.to,
            request.part_bytes};
}

// Calls load(0, x), then for each of `count` batches, an even number, load(the next one, y) and store(it, x), and
// so on in turns: loads are on their way while what came before is stored. x and y are registers.
template <class Registers, class Load, class Store>
__device__ __forceinline__ void in_turns(int count, Load load, Store store) {
    Registers x, y;
    load(0, x);
#pragma unroll 1
    for (int b = 0; b < count; b += 2) {
        load(b + 1, y);
        store(b, x);
        if (b + 2 < count) load(b + 2, x);
        store(b + 1, y);
    }
}

// Makes units of a piece of SIDE x SIDE blocks: 32 rows, as wide as the piece. Few warps do this, one
// instruction after another, so where all elements of a unit are stored each row takes as few as can be.
// Of 2-byte elements every lane loads two at a time of each block, from the aligned word in which they begin,
// and gets those in which they end from the lane behind it.
template <class T, int SIDE>
class UnitPacker {
    static_assert(sizeof(T) == 2, "");
    static constexpr int ROWS = PackOrder::UNIT_ROWS, WIDTH = SIDE * Image::SIDE;
    static constexpr int BATCH = 16 / SIDE;  // Rows at a time.

  public:
    // Part `part` of the piece at (row, col).
    __device__ static void run(const PackArgs<T>& args, int row, int col, int part) {
        const int row0 = row * WIDTH + part * ROWS, col0 = col * WIDTH;
        // The last word of a row may end behind its element.
        const bool full = row0 + ROWS < args.panel.rows && args.left(row0, col0) >= WIDTH;
        // The first may begin before the first of all.
        const bool inside = args.panel.row_offset(row0) + col0 > 0;
        if (full && inside) pack_full(args, row0, col0);
        else pack(args, row0, col0);
    }

  private:
    __device__ __forceinline__ static void pack_full(const PackArgs<T>& args, int row0, int col0) {
        const int lane = threadIdx.x % 32;
        const T* row = args.panel.data + args.panel.row_offset(row0) + col0;
        char* to = args.block(row0 / Image::SIDE, col0 / Image::SIDE) +
                   row0 % Image::SIDE * Image::ROW_BYTES;
        struct Rows {
            uint32_t words[BATCH][SIDE + 1];
            uint32_t odd;  // A bit a row: whether it begins in the second half of a word.
        };
        in_turns<Rows>(
            ROWS / BATCH,
            [&](int batch, Rows& rows) {
                rows.odd = 0;
#pragma unroll
                for (int b = 0; b < BATCH; ++b) {
                    const auto address = reinterpret_cast<uintptr_t>(row);
                    const auto* from =
                        reinterpret_cast<const uint32_t*>(address & ~uintptr_t{3}) + lane;
                    rows.odd |= static_cast<uint32_t>(address & 2) << b;
#pragma unroll
                    for (int x = 0; x < SIDE; ++x) rows.words[b][x] = __ldg(from + 32 * x);
                    // Of the word behind them all only the first lane's is used.
                    rows.words[b][SIDE] =
                        __ldg(from + (lane == 0 && (address & 2) ? 32 * SIDE : 0));
                    row += args.step(row0 + batch * BATCH + b);
                }
            },
            [&](int batch, const Rows& rows) {
#pragma unroll
                for (int b = 0; b < BATCH; ++b) {
                    const int r = batch * BATCH + b;
                    char* at = to + Image::offset_of(r, lane * 4);
#pragma unroll
                    for (int x = 0; x < SIDE; ++x) {
                        const uint32_t word = rows.words[b][x];
                        const uint32_t behind = __shfl_sync(
                            ~0u, lane == 0 ? rows.words[b][x + 1] : word, (lane + 1) % 32);
                        *reinterpret_cast<uint32_t*>(at + x * Image::BLOCK_BYTES) =
                            __funnelshift_r(word, behind, rows.odd >> b << 3 & 16);
                    }
                }
            });
    }

    // Whatever the unit holds. Not at the cost of registers that the others would have.
    __device__ __noinline__ static void pack(const PackArgs<T>& args, int row0, int col0) {
        constexpr int LANES = 8 * SIDE;  // For a row.
        const int lane = threadIdx.x % 32, j = col0 + lane % LANES * 8;
        const int block_row = row0 / Image::SIDE, block_col = j / Image::SIDE;
        if (!args.has_block(block_row, block_col)) return;
        char* to = args.block(block_row, block_col);
        const T* end = args.panel.data + args.panel.end;
        for (int i = row0 + lane / LANES; i < row0 + ROWS; i += 32 / LANES) {
            const T* from = args.panel.data + args.panel.row_offset(i) + j;
            *reinterpret_cast<uint4*>(to + Image::chunk_offset(i % Image::SIDE, lane % 8)) =
                load_chunk(from, max(0, min(8, args.left(i, j))), args.panel.data, end);
        }
    }
};

// The same for TF32, whose blocks have two halves. A lane has an element of each of several half rows;
// where blocks are transposed it has a row.
template <int SIDE>
class UnitPacker<Tf32, SIDE> {
    static constexpr int HALF = Image::SIDE / 2, HALVES = 2 * SIDE, WIDTH = SIDE * Image::SIDE;
    static constexpr int ROWS = PackOrder::UNIT_ROWS;
    static_assert(ROWS == HALF, "a lane has a row");

  public:
    __device__ static void run(const PackArgs<Tf32>& args, int row, int col, int part) {
        const int row0 = row * WIDTH + part * ROWS, col0 = col * WIDTH;
        const bool full = row0 + ROWS <= args.panel.rows && args.left(row0, col0) >= WIDTH;
        if (full && args.transposed) pack_transposed<true>(args, row0, col0);
        else if (args.transposed) pack_transposed<false>(args, row0, col0);
        else if (full) pack<true>(args, row0, col0);
        else pack<false>(args, row0, col0);
    }

  private:
    template <bool FULL>
    __device__ __forceinline__ static void pack(const PackArgs<Tf32>& args, int row0, int col0) {
        constexpr int BATCH = 16 / HALVES;
        const int lane = threadIdx.x % 32;
        const Tf32* row = args.panel.data + args.panel.row_offset(row0) + col0 + lane;
        struct Rows {
            float x[BATCH][HALVES];
        };
        in_turns<Rows>(
            ROWS / BATCH,
            [&](int batch, Rows& rows) {
#pragma unroll
                for (int b = 0; b < BATCH; ++b) {
                    const int i = row0 + batch * BATCH + b;
#pragma unroll
                    for (int h = 0; h < HALVES; ++h)
                        rows.x[b][h] = FULL || args.left(i, col0 + h * HALF + lane) > 0
                                             ? row[h * HALF].value
                                             : 0;
                    row += args.step(i);
                }
            },
            [&](int batch, const Rows& rows) {
                const int i = row0 + batch * BATCH;
#pragma unroll
                for (int h = 0; h < HALVES; ++h) {
                    char* to = half_block<FULL>(args, i, col0 + h * HALF, h % 2);
                    if (!to) continue;
#pragma unroll
                    for (int b = 0; b < BATCH; ++b)
                        store(to, (i + b) % Image::SIDE, rows.x[b][h]);
                }
            });
    }

    template <bool FULL>
    __device__ __forceinline__ static void pack_transposed(const PackArgs<Tf32>& args, int row0,
                                                           int col0) {
        constexpr int COLUMNS = 16;
        const int i = row0 + threadIdx.x % 32;
        const Tf32* row = args.panel.data + args.panel.row_offset(i) + col0;
        struct Columns {
            float x[COLUMNS];
        };
        in_turns<Columns>(
            WIDTH / COLUMNS,
            [&](int batch, Columns& columns) {
                const int j = batch * COLUMNS;
#pragma unroll
                for (int c = 0; c < COLUMNS; ++c)
                    columns.x[c] =
                        FULL || args.left(i, col0 + j + c) > 0 ? row[j + c].value : 0;
            },
            [&](int batch, const Columns& columns) {
                const int j = col0 + batch * COLUMNS;
                char* to = half_block<FULL>(args, row0, j, row0 / HALF % 2);
                if (!to) return;
#pragma unroll
                for (int c = 0; c < COLUMNS; ++c) store(to, j % Image::SIDE + c, columns.x[c]);
            });
    }

    // Null where there is no block with element (i, j).
    template <bool FULL>
    __device__ __forceinline__ static char* half_block(const PackArgs<Tf32>& args, int i, int j,
                                                       int half) {
        const int row = i / Image::SIDE, col = j / Image::SIDE;
        return FULL || args.has_block(row, col) ? args.block(row, col) + half * args.part_bytes
                                                : nullptr;
    }
    // An element a lane of row `r` in one half of a block.
    __device__ __forceinline__ static void store(char* to, int r, float x) {
        *reinterpret_cast<uint32_t*>(to + Image::offset_of(r, threadIdx.x % 32 * 4)) =
            ptx::round_to_tf32(x);
    }
};

// Has the L2 cache fetch what a unit will be made of, a row a lane.
template <class T, int SIDE>
__device__ __forceinline__ void prefetch_unit(const PackArgs<T>& args, int row, int col, int part) {
    constexpr int WIDTH = SIDE * Image::SIDE;
    const int i = row * WIDTH + part * PackOrder::UNIT_ROWS + threadIdx.x % 32, j = col * WIDTH;
    const int count = min(WIDTH, args.left(i, j));
    if (count <= 0) return;
    const auto begin = reinterpret_cast<uintptr_t>(args.panel.data + args.panel.row_offset(i) + j);
    const uintptr_t from = (begin + 15) & ~uintptr_t{15}, end = begin + count * sizeof(T);
    if (end >= from + 16) ptx::prefetch_l2(from, static_cast<uint32_t>(end - from) & ~15u);
}

}  // namespace packedtri::cuda
