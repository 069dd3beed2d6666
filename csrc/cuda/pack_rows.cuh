// What makes tile images of the rows of memory of an operand, and how one warp makes rows of those of packed triangles, with
// nothing but its registers: in a launch of its own, or beside a product that has the shared memory.
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

// Makes rows of the image of a packed triangle, eight at a time: a warp has as many columns as a piece, a chunk of each row
// a lane. The fewer instructions that takes, the more is made. The distances of rows from aligned addresses are known in
// advance: row i + r starts r i + r (r + 1) / 2 elements behind row i, and where i is a multiple of 8 that is r (r + 1) / 2,
// modulo 8. Row i itself starts at a multiple of 16 bytes, or 8 bytes behind one where i is no multiple of 16. So a lane
// loads the two words that hold its 8 elements, and cuts them out by constants.
//
// For that the triangle must start at a multiple of 16 bytes, and have no gaps (starts_of_rows_known).
template <class T>
class RowPacker {
    static_assert(sizeof(T) == 2, "words of 8 elements");
    static constexpr int CHUNK = 8;

  public:
    static constexpr int ROWS = 8, WIDTH = PackOrder::SIDE * Image::SIDE;
    static_assert(WIDTH / CHUNK == 32 && Image::SIDE % ROWS == 0, "");

    // Rows from row0 on, columns from col0 on, multiples of ROWS and of WIDTH, of the matrix at `data`.
    __device__ static void run(const PackArgs<T>& args, const T* data, char* image, int row0,
                               int col0) {
        if (row0 % 16 == 0) run<0>(args, data, image, row0, col0);
        else run<8>(args, data, image, row0, col0);
    }

  private:
    // Elements from where row i starts to where row i + r does, less r i.
    __device__ static constexpr int distance(int r) { return r * (r + 1) / 2; }

    // FIRST: what row0 is, modulo 16.
    template <int FIRST>
    __device__ __forceinline__ static void run(const PackArgs<T>& args, const T* data, char* image,
                                               int row0, int col0) {
        // The second word of the last lane may reach into the row behind.
        if (row0 + ROWS < args.panel.rows && args.left(row0, col0) >= WIDTH)
            pack<FIRST, true>(args, data, image, row0, col0);
        else pack<FIRST, false>(args, data, image, row0, col0);
    }

    // FULL: whether every place of the rows has a stored element.
    template <int FIRST, bool FULL>
    __device__ __forceinline__ static void pack(const PackArgs<T>& args, const T* data, char* image,
                                                int row0, int col0) {
        const Panel<T>& panel = args.panel;
        const int chunk = static_cast<int>(threadIdx.x) % 32, j = col0 + chunk * CHUNK;
        const int block_row = row0 / Image::SIDE, block_col = j / Image::SIDE;
        if (!FULL && !args.blocks.has(block_row, block_col)) return;
        char* const to = image + args.blocks.index(block_row, block_col) * Image::BLOCK_BYTES +
                         row0 % Image::SIDE * Image::ROW_BYTES;
        constexpr int BEGIN = distance(FIRST) % CHUNK;
        const int64_t first = panel.row_offset(row0) + j - BEGIN;
        const T* from = data + first;
        // How many elements row r has from where this lane's begin; less than one, if none.
        const auto stored = [&](int r) { return args.left(row0 + r, j); };
        uint4 low[ROWS], high[ROWS];
        // How many elements are behind `from`, as far as that matters: a word may reach out of them.
        [[maybe_unused]] const int behind =
            static_cast<int>(min(panel.end - first, int64_t{Panel<T>::ALL}));
#pragma unroll
        for (int r = 0; r < ROWS; ++r, from += row0) {
            const int start = BEGIN + distance(r), shift = start % CHUNK;
            const auto* words = reinterpret_cast<const uint4*>(from + start - shift);
            if constexpr (FULL) {
                low[r] = __ldg(words);
                if (shift > 0) high[r] = __ldg(words + 1);
            } else {
                const auto load = [&](uint4& loaded, int word, bool needed) {
                    const bool inside = r * row0 + start - shift + (word + 1) * CHUNK <= behind;
                    loaded = {};
                    ptx::load_if(loaded, words + word, needed && inside);
                };
                load(low[r], 0, stored(r) > 0);
                if (shift > 0) load(high[r], 1, shift + stored(r) > CHUNK);
            }
        }
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            uint32_t w[8] = {low[r].x,  low[r].y,  low[r].z,  low[r].w,
                             high[r].x, high[r].y, high[r].z, high[r].w};
            shift_words(w, (BEGIN + distance(r)) % CHUNK);
            uint4 word = make_uint4(w[0], w[1], w[2], w[3]);
            if (!FULL) word = clipped(word, stored(r));
            *place(to, r, chunk) = word;
        }
        if constexpr (!FULL) {
            // The last elements of all, which the last row has unless there are fewer than a word of them in each row.
            if (row0 + ROWS < panel.rows) return;
            for (int i = max(row0, panel.rows > CHUNK ? panel.rows - 1 : 0); i < panel.rows; ++i)
                *place(to, i - row0, chunk) =
                    load_chunk(data + panel.row_offset(i) + j, max(0, min(CHUNK, args.left(i, j))),
                               data, data + panel.end);
        }
    }

    // Where row r of those from a multiple of ROWS on has its chunk.
    __device__ __forceinline__ static uint4* place(char* to, int r, int chunk) {
        static_assert(ROWS == 8, "places of chunks repeat then");
        return reinterpret_cast<uint4*>(to + Image::chunk_offset(r, chunk % 8));
    }
};

// Has the L2 cache fetch what a unit will be made of, a row a lane.
template <class T>
__device__ __forceinline__ void prefetch_unit(const PackArgs<T>& args, int row, int col, int part) {
    constexpr int WIDTH = RowPacker<T>::WIDTH, LINE = 128 / sizeof(T);
    static_assert(PackOrder::UNIT_ROWS == 32, "a lane has a row");
    const int i = row * WIDTH + part * PackOrder::UNIT_ROWS + threadIdx.x % 32, j = col * WIDTH;
    const int count = args.left(i, j);
    const T* from = args.panel.data + args.panel.row_offset(i) + j;
#pragma unroll
    for (int x = 0; x < WIDTH; x += LINE)
        if (x < count) ptx::prefetch_l2(from + x);
}

}  // namespace packedtri::cuda
