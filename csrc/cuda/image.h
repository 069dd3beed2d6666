// Tile images: a matrix cut into blocks of 64 x 64, each stored in the order in which the tensor
// cores read shared memory, with zeros past the diagonal and past the edge. A block is then copied to
// shared memory as it is, aligned, by one instruction.
//
// A block holds 64 rows of 128 bytes, which are 64 elements of 2 bytes. Within 8 rows, which are 1024
// bytes, the 16-byte chunk c of row r lies at place c ^ (r % 8): the 128-byte swizzle of the hardware.
// float32 in three bfloat16 parts has an image for each part; float32 in TF32 has one of float16 (ImageScale).
//
// An image keeps the rows of memory of its matrix. Whether they run along the sum of a product or
// across it is told to the tensor cores, so that one image serves a triangle as either operand, as it
// is or transposed. That of a symmetric matrix may be of its stored half: left of the diagonal a line
// is a row of blocks then, and behind it a column. So that all lines of a tile turn at the same step,
// squares as large as the largest tile are there as a whole on the diagonal.
#pragma once

#include <cstdint>

#include "../index.h"
#include "../problem.h"

namespace packedtri::cuda {

// The squares that a matrix is cut into, which come one row of them after another: blocks of an image, for
// one.
struct Grid {
    int rows, cols;
    bool packed;  // Nothing is above the diagonal, but what large squares on it have there.
    // The logarithm to base 2 of the side of these, which are single squares of a triangle.
    int8_t large = 0;

    PACKEDTRI_HD constexpr bool has(int row, int col) const {
        return row < rows && col < cols && !(packed && col >= end_of(row));
    }
    // Where the row of a packed grid ends: behind the large square on the diagonal. LARGE: whether there may be any.
    template <bool LARGE = true>
    PACKEDTRI_HD constexpr int end_of(int row) const {
        return LARGE ? ((row >> large) + 1) << large : row + 1;
    }
    PACKEDTRI_HD constexpr int64_t count() const { return index(rows, 0); }
    // `Index` is what it is computed in.
    template <class Index = int64_t, bool LARGE = true>
    PACKEDTRI_HD constexpr Index index(int row, int col) const {
        return (packed ? start_of<Index, LARGE>(row) : Index{row} * cols) + col;
    }
    // The square of an index. Some of the last large square may be past the edge.
    template <bool LARGE = true>
    PACKEDTRI_HD constexpr void find(int64_t index, int& row, int& col) const {
        if (!packed) {
            row = static_cast<int>(index / cols);
            col = static_cast<int>(index % cols);
            return;
        }
        if (!LARGE) {
            row = static_cast<int>(row_of(index));
            col = static_cast<int>(index - row_start(row));
            return;
        }
        const auto line = static_cast<int>(row_of(index >> 2 * large));
        const auto within = static_cast<int>(index - (row_start(int64_t{line}) << 2 * large));
        const int length = (line + 1) << large, down = large > 0 ? within / length : 0;
        row = (line << large) + down;
        col = within - down * length;
    }

  private:
    // Rows of a line of large squares are equally long.
    template <class Index, bool LARGE>
    PACKEDTRI_HD constexpr Index start_of(int row) const {
        if (!LARGE) return row_start<Index>(row);
        const Index line = row >> large, down = row - (line << large);
        return (row_start<Index>(line) << 2 * large) + (down * (line + 1) << large);
    }
};

struct Image {
    static constexpr int SIDE = 64;
    static constexpr int8_t LARGE = 2;  // Of squares of half a symmetric matrix (Grid::large).
    static constexpr int ROW_BYTES = 128;
    static constexpr int BLOCK_BYTES = SIDE * ROW_BYTES;

    // Where byte `byte` of row `row` lies in its block.
    PACKEDTRI_HD static constexpr int offset_of(int row, int byte) {
        return row * ROW_BYTES + (byte / 16 ^ row % 8) * 16 + byte % 16;
    }
    // Where chunk `chunk` of it does.
    PACKEDTRI_HD static constexpr int chunk_offset(int row, int chunk) {
        return offset_of(row, chunk * 16);
    }
};

// Whether the rows of an operand of 16-bit elements, of so many matrices, start at known distances from multiples of 16
// bytes, so that RowPacker can make its image: those of packed matrices without gaps that start at one.
inline bool starts_of_rows_known(const Operand& x, int64_t matrices) {
    return x.kind != Kind::Dense && x.stagger == Stagger::None &&
           reinterpret_cast<uintptr_t>(x.data) % 16 == 0 &&
           (matrices == 1 || x.batch_stride % 8 == 0);
}

// float16 has the 11 significant bits of TF32, but not its range. So the image of a matrix in TF32 holds x 2^s, with
// one s for all of the matrix, by which a sample of its elements comes to LARGEST_SAMPLE. What is too large then is
// nan. What is below SMALLEST has lost bits, though it is never zero, and is as good as in TF32 beside an element of
// its line, a row or a column, that is strong. Rows of a result whose lines have lost bits and no such element are
// computed from stored elements, as those that are nan are (EngineChecker, EngineStored).
struct ImageScale {
    static constexpr int LARGEST_SAMPLE = 3;  // At least this power of two, and less than the next.
    static constexpr float TOO_LARGE = 0x1p15f, STRONG = 0x1p-13f, SMALLEST = 0x1p-14f,
                           LEAST = 0x1p-24f;  // That is not zero.

    // Behind the blocks of an image is s, in 8 bytes, and then for each block 8 bytes, one of each warp that makes it,
    // which has every eighth row: whether all stored elements are strong, and none has lost bits.
    static constexpr int WARPS = 8;
    static constexpr uint8_t ALL_STRONG = 1, CLEAN = 2;
    PACKEDTRI_HD static constexpr int64_t bytes(int64_t blocks) { return (1 + blocks) * WARPS; }
};

// Describes to the tensor cores a tile of blocks that lie one after another in shared memory. Fields:
// address, stride to the next block across, stride to the next 8 rows, swizzle; strides in 16 bytes.
PACKEDTRI_HD constexpr uint64_t tile_descriptor(uint32_t address) {
    return uint64_t{(address & 0x3ffff) >> 4} | uint64_t{Image::BLOCK_BYTES >> 4} << 16 |
           uint64_t{8 * Image::ROW_BYTES >> 4} << 32 | uint64_t{1} << 62;
}
// What an instruction's step of k, 32 bytes, adds to the descriptor: along the rows of a block, or
// down 16 rows of 2-byte elements.
constexpr int STEP_ALONG = 32 >> 4, STEP_ACROSS = 16 * Image::ROW_BYTES >> 4;

}  // namespace packedtri::cuda
