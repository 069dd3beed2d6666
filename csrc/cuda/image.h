// Tile images: a matrix cut into blocks of 64 x 64, each stored in the order in which the tensor
// cores read shared memory, with zeros past the diagonal and past the edge. A block is then copied to
// shared memory as it is, aligned, by one instruction.
//
// A block holds 64 rows of 64 elements of 2 bytes. Within 8 rows, which are 1024 bytes, the 16-byte
// chunk c of row r lies at place c ^ (r % 8): the 128-byte swizzle of the hardware. Elements of 4
// bytes are split into several 2-byte parts, with one image each.
//
// An image keeps the rows of memory of its matrix. Whether they run along the sum of a product or
// across it is told to the tensor cores, so that one image serves a triangle as either operand, as it
// is or transposed.
#pragma once

#include "../index.h"

namespace packedtri::cuda {

struct Image {
    static constexpr int SIDE = 64;
    static constexpr int BLOCK_BYTES = SIDE * SIDE * 2;

    int rows, cols;  // In blocks.
    bool packed;     // Only the blocks on and below the diagonal exist.

    PACKEDTRI_HD constexpr int64_t blocks() const {
        return packed ? row_start(rows) : int64_t{rows} * cols;
    }
    PACKEDTRI_HD constexpr int64_t index(int row, int col) const {
        return packed ? offset(row, col) : int64_t{row} * cols + col;
    }

    // Where chunk `chunk` of row `row` lies in its block.
    PACKEDTRI_HD static constexpr int chunk_offset(int row, int chunk) {
        return row * SIDE * 2 + (chunk ^ row % 8) * 16;
    }
};

}  // namespace packedtri::cuda
