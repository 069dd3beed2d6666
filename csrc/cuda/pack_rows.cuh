// What makes tile images of the rows of memory of an operand; and how one warp makes a unit of a piece
// (pack_order.h), with nothing but its registers, beside a product that has the shared memory.
#pragma once

#include <type_traits>

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

// Makes units of a piece of SIDE x SIDE blocks: 32 rows, as wide as the piece. Few warps do this, one
// instruction after another, so the fewer a row takes, the more is made. Where all elements of a unit are
// stored, the distances of its rows from aligned addresses are known in advance: those of any rows r that
// follow a multiple of 16 are r (r + 1) / 2, modulo 8, because all rows start at sums of such numbers. So a
// lane loads the two words that hold its 16 bytes of the image, and cuts them by constants.
//
// For that the matrix must start at a multiple of 16 bytes, and be packed without gaps (see can_fuse).
template <class T, int SIDE>
class UnitPacker {
    static constexpr bool ROUNDED = std::is_same_v<T, Tf32>;
    static constexpr int ROWS = PackOrder::UNIT_ROWS, WIDTH = SIDE * Image::SIDE;
    static constexpr int CHUNK = 16 / sizeof(T);  // Elements.
    // Chunks of a row are those of LANES lanes, of which each may have several; rows that warps have together.
    static constexpr int LANES = WIDTH / CHUNK < 32 ? WIDTH / CHUNK : 32;
    static constexpr int EACH = WIDTH / CHUNK / LANES, TOGETHER = 32 / LANES;
    static constexpr int TURN = 16, BATCH = 8 / EACH;  // Rows after which distances repeat, and at a time.
    static_assert(TOGETHER <= 2 && ROWS % TURN == 0 && TURN / TOGETHER % BATCH == 0, "");
    static constexpr int HALF = Image::SIDE / 2;  // Columns of a block of TF32 are in two images.

  public:
    // Part `part` of the piece at (row, col).
    __device__ static void run(const PackArgs<T>& args, int row, int col, int part) {
        const int row0 = row * WIDTH + part * ROWS, col0 = col * WIDTH;
        const Panel<T>& panel = args.panel;
        // The second word of the last lane may reach into the row behind.
        const bool full = row0 + ROWS < panel.rows && args.left(row0, col0) >= WIDTH;
        // The word in which the last row ends may reach out of the memory.
        const int last = min(row0 + ROWS, panel.rows) - 1;
        const int64_t end =
            last < row0 ? 0 : panel.row_offset(last) + min(panel.length(last), col0 + WIDTH);
        if (ROUNDED && args.transposed) {
            if (full) pack_transposed<true>(args, row0, col0);
            else pack_transposed<false>(args, row0, col0);
        } else if (full) {
            pack_rows<true>(args, row0, col0);
        } else if ((end + CHUNK - 1) / CHUNK * CHUNK <= panel.end) {
            pack_rows<false>(args, row0, col0);
        } else {
            pack_last(args, row0, col0);
        }
    }

  private:
    template <bool FULL>
    __device__ __forceinline__ static void pack_rows(const PackArgs<T>& args, int row0, int col0) {
        const int lane = threadIdx.x % 32, chunk = lane % LANES;
        // The second of two rows together is as far from the end of a turn as the first from its beginning:
        // then their distances are the same.
        const bool second = lane >= LANES;
        const int block = chunk * CHUNK / Image::SIDE, last = TURN - 1;
        const int block_row = row0 / Image::SIDE, block_col = col0 / Image::SIDE + block;
        char* to = args.block(block_row, block_col) +
                   half_of(chunk * CHUNK) * args.part_bytes +
                   (row0 % Image::SIDE + (second ? last : 0)) * Image::ROW_BYTES;
        const int place = chunk % 8 ^ (second ? 7 : 0);  // Before the swizzle of the row.
        const char* from = reinterpret_cast<const char*>(
            args.panel.data + args.panel.row_offset(row0) + col0 + chunk * CHUNK);
        int exists = 0;  // A bit a block.
#pragma unroll
        for (int e = 0; e < EACH; ++e)
            exists |= args.has_block(block_row, block_col + e * (LANES * CHUNK / Image::SIDE)) << e;
#pragma unroll 1
        for (int i = row0; i < row0 + ROWS; i += TURN) {
            // But for the part that is known, rows are equally far apart.
            const int pitch = i * static_cast<int>(sizeof(T));
            const int step = second ? -pitch - TURN * static_cast<int>(sizeof(T)) : pitch;
            // From where this lane's elements begin in the first row to the diagonal; rows that there are.
            [[maybe_unused]] const int diagonal = i + args.panel.reach - col0 - chunk * CHUNK,
                                       rows = args.panel.rows - i;
            const char* at =
                from + (second ? last * pitch + distance(last) * static_cast<int>(sizeof(T)) : 0);
#pragma unroll
            for (int first = 0; first < TURN / TOGETHER; first += BATCH) {
                uint4 low[BATCH][EACH], high[BATCH][EACH];
                // How many elements are stored from where this lane's begin in row r, or a row and more before:
                // less than one.
                const auto stored = [&](int r, int e) {
                    const int row = second ? last - r : r;
                    return (row < rows ? row + diagonal : -WIDTH) - e * LANES * CHUNK;
                };
#pragma unroll
                for (int b = 0; b < BATCH; ++b) {
                    const int r = first + b, shift = distance(r) % CHUNK;
                    const auto* words = reinterpret_cast<const uint4*>(
                        at + (distance(r) - shift) * static_cast<int>(sizeof(T)));
#pragma unroll
                    for (int e = 0; e < EACH; ++e) {
                        if (FULL) {
                            low[b][e] = __ldg(words + e * LANES);
                            if (shift > 0) high[b][e] = __ldg(words + e * LANES + 1);
                        } else {
                            low[b][e] = high[b][e] = {};
                            const int count = stored(r, e);
                            ptx::load_if(low[b][e], words + e * LANES, count > 0);
                            if (shift > 0)
                                ptx::load_if(high[b][e], words + e * LANES + 1,
                                             shift + count > CHUNK);
                        }
                    }
                    at += step;
                }
#pragma unroll
                for (int b = 0; b < BATCH; ++b) {
                    const int r = first + b;
                    char* row = to + (second ? -r : r) * Image::ROW_BYTES + (place ^ r % 8) * 16;
#pragma unroll
                    for (int e = 0; e < EACH; ++e) {
                        constexpr int BLOCKS = LANES * CHUNK / Image::SIDE;
                        uint4 word = cut(low[b][e], high[b][e], distance(r) % CHUNK);
                        if (!FULL) {
                            word = clipped(word, stored(r, e) * (static_cast<int>(sizeof(T)) / 2));
                            if (!(exists >> e & 1)) continue;
                        }
                        *reinterpret_cast<uint4*>(row + e * BLOCKS * Image::BLOCK_BYTES) = word;
                    }
                }
            }
            from += TURN * pitch + distance(TURN) * static_cast<int>(sizeof(T));
            to += TURN * Image::ROW_BYTES;
        }
    }

    // From where row i starts to where row i + r does, less r i.
    __device__ static constexpr int distance(int r) { return r * (r + 1) / 2; }

    __device__ static int half_of(int column) { return ROUNDED ? column / HALF % 2 : 0; }

    // The chunk that begins `shift` elements behind the start of two words.
    __device__ __forceinline__ static uint4 cut(uint4 low, uint4 high, int shift) {
        uint32_t w[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
        if constexpr (ROUNDED) {
#pragma unroll
            for (int x = 0; x < 4; ++x)
                w[x] = ptx::round_to_tf32(__uint_as_float(w[x + shift]));
        } else {
            shift_words(w, shift);
        }
        return make_uint4(w[0], w[1], w[2], w[3]);
    }

    // Whatever the unit holds. Not at the cost of registers that the others would have.
    __device__ __noinline__ static void pack_last(const PackArgs<T>& args, int row0, int col0) {
        for (int x = threadIdx.x % 32; x < ROWS * WIDTH / CHUNK; x += 32) {
            const int i = row0 + x / (WIDTH / CHUNK), j = col0 + x % (WIDTH / CHUNK) * CHUNK;
            const int block_row = i / Image::SIDE, block_col = j / Image::SIDE;
            if (!args.has_block(block_row, block_col)) continue;
            const T* from = args.panel.data + args.panel.row_offset(i) + j;
            const int left = args.left(i, j);
            uint4 chunk;
            if constexpr (ROUNDED) {
                uint32_t w[CHUNK];
#pragma unroll
                for (int e = 0; e < CHUNK; ++e)
                    w[e] = e < left ? ptx::round_to_tf32(from[e].value) : 0;
                chunk = make_uint4(w[0], w[1], w[2], w[3]);
            } else {
                chunk = load_chunk(from, max(0, min(CHUNK, left)), args.panel.data,
                                   args.panel.data + args.panel.end);
            }
            char* to = args.block(block_row, block_col) + half_of(j) * args.part_bytes;
            *reinterpret_cast<uint4*>(to + Image::chunk_offset(i % Image::SIDE, j / CHUNK % 8)) =
                chunk;
        }
    }

    // Blocks of TF32, each in its place: a lane has a row of memory, which becomes a column.
    template <bool FULL>
    __device__ __forceinline__ static void pack_transposed(const PackArgs<T>& args, int row0,
                                                           int col0) {
        if constexpr (ROUNDED) {
            static_assert(ROWS == HALF, "a lane has a row");
            constexpr int COLUMNS = 16;
            const int lane = threadIdx.x % 32, i = row0 + lane;
            const int block_row = row0 / Image::SIDE, half = row0 / HALF % 2;
#pragma unroll 1
            for (int j = col0; j < col0 + WIDTH; j += COLUMNS) {
                const int block_col = j / Image::SIDE;
                if (!FULL && !args.has_block(block_row, block_col)) return;
                const float* row = &args.panel.data->value + args.panel.row_offset(i) + j;
                float column[COLUMNS];
#pragma unroll
                for (int c = 0; c < COLUMNS; ++c)
                    column[c] = FULL || args.left(i, j + c) > 0 ? __ldg(row + c) : 0;
                char* to = args.block(block_row, block_col) + half * args.part_bytes +
                           j % Image::SIDE * Image::ROW_BYTES;
#pragma unroll
                for (int c = 0; c < COLUMNS; ++c)
                    *reinterpret_cast<uint32_t*>(to + Image::offset_of(c, lane * 4)) =
                        ptx::round_to_tf32(column[c]);
            }
        }
    }
};

// Has the L2 cache fetch what a unit will be made of.
template <class T, int SIDE>
__device__ __forceinline__ void prefetch_unit(const PackArgs<T>& args, int row, int col, int part) {
    constexpr int WIDTH = SIDE * Image::SIDE, LINE = 128 / sizeof(T);
    const int j = col * WIDTH;
    const int i = row * WIDTH + part * PackOrder::UNIT_ROWS + threadIdx.x % 32;
    const int count = args.left(i, j);
    const T* from = args.panel.data + args.panel.row_offset(i) + j;
#pragma unroll
    for (int x = 0; x < WIDTH; x += LINE)
        if (x < count) ptx::prefetch_l2(from + x);
}

}  // namespace packedtri::cuda
