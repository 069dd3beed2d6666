// The order of tile images against the rules by which the tensor cores read shared memory: what an
// instruction finds at the addresses of its descriptors are the elements that it multiplies.
#include "cuda/image.h"

#include <vector>

#include "check.h"

using namespace packedtri;
using cuda::Image;

// The fields of a descriptor (PTX ISA, wgmma, matrix descriptor), in bytes.
struct Descriptor {
    uint32_t start, next_block, next_rows, swizzle;

    explicit Descriptor(uint64_t bits)
        : start(static_cast<uint32_t>(bits & 0x3fff) << 4),
          next_block(static_cast<uint32_t>(bits >> 16 & 0x3fff) << 4),
          next_rows(static_cast<uint32_t>(bits >> 32 & 0x3fff) << 4),
          swizzle(static_cast<uint32_t>(bits >> 62)) {}

    // The 128-byte swizzle exchanges 16-byte chunks by bits 7 to 9 of the address.
    static uint32_t swizzled(uint32_t address) { return address ^ (address >> 7 & 7) << 4; }

    // Where element (r, k) of a tile lies whose memory rows run along k, and of one where they run
    // across it, for elements of `size` bytes.
    uint32_t along_k(int r, int k, int size) const {
        return swizzled(start + r / 8 * next_rows + r % 8 * 128 + k * size);
    }
    uint32_t across_k(int r, int k, int size) const {
        const int row = 128 / size;
        return swizzled(start + r / row * next_block + k / 8 * next_rows + k % 8 * 128 +
                        r % row * size);
    }
};

// The shared memory of a stage, from an address on at which blocks may start.
constexpr uint32_t BASE = 3 * Image::BLOCK_BYTES;

struct Stage {
    std::vector<int32_t> words = std::vector<int32_t>((BASE + 4 * Image::BLOCK_BYTES) / 2, -1);
    void put(uint32_t address, int size, int value) { words[address / size] = value; }
    int get(uint32_t address, int size) const { return words[address / size]; }
};

// `blocks` blocks one after another, with the number 64 r + k for element (r, k) of each, or with
// their rows of memory across k. Elements are of `size` bytes, so that a block has 128 / size of k.
Stage fill(int blocks, int size, bool across) {
    Stage stage;
    const int length = Image::ROW_BYTES / size;
    for (int block = 0; block < blocks; ++block)
        for (int row = 0; row < Image::SIDE; ++row)
            for (int x = 0; x < length; ++x) {
                const int r = block * Image::SIDE + (across ? x : row), k = across ? row : x;
                stage.put(BASE + block * Image::BLOCK_BYTES + Image::offset_of(row, x * size), size,
                          64 * r + k);
            }
    return stage;
}

// Instructions of 64 ... 256 rows, step by step along a stage.
void instructions_read_blocks(int size, bool across) {
    const int steps = 32 / size, depth = across ? Image::SIDE : Image::ROW_BYTES / size;
    for (int blocks = 1; blocks <= 4; ++blocks) {
        const Stage stage = fill(blocks, size, across);
        const uint64_t first = cuda::tile_descriptor(BASE);
        for (int x = 0; x < depth / steps; ++x) {
            const Descriptor d(first + x * (across ? cuda::STEP_ACROSS : cuda::STEP_ALONG));
            CHECK(d.swizzle == 1, "%u", d.swizzle);
            for (int r = 0; r < blocks * Image::SIDE; ++r)
                for (int k = 0; k < steps; ++k) {
                    const uint32_t at = across ? d.across_k(r, k, size) : d.along_k(r, k, size);
                    CHECK(stage.get(at, size) == 64 * r + x * steps + k,
                          "size %d, step %d: (%d, %d) is %d", size, x, r, k, stage.get(at, size));
                }
        }
    }
}

// Every byte of a block has a place of its own, and a chunk stays in one piece.
void places_are_distinct() {
    std::vector<int> seen(Image::BLOCK_BYTES);
    for (int row = 0; row < Image::SIDE; ++row)
        for (int byte = 0; byte < Image::ROW_BYTES; ++byte) {
            ++seen[Image::offset_of(row, byte)];
            CHECK(Image::offset_of(row, byte) == Image::chunk_offset(row, byte / 16) + byte % 16,
                  "(%d, %d)", row, byte);
        }
    for (const int count : seen) CHECK(count == 1, "%d", count);
}

// Every square of a grid has an index of its own, below their count, by which it is found again; those of a row follow one
// another. Nothing is above the diagonal, but for large squares.
void squares_are_distinct(const cuda::Grid& grid) {
    std::vector<int> seen(grid.count());
    for (int row = 0; row < grid.rows; ++row)
        for (int col = 0; col < grid.cols; ++col) {
            const bool stored = !grid.packed || col >> grid.large <= row >> grid.large;
            CHECK(grid.has(row, col) == stored, "(%d, %d)", row, col);
            if (!stored) continue;
            const int64_t index = grid.index(row, col);
            CHECK(index >= 0 && index < grid.count() && ++seen[index] == 1, "(%d, %d)", row, col);
            CHECK(grid.index<int>(row, col) == index && index == grid.index(row, 0) + col,
                  "(%d, %d)", row, col);
            int found_row = -1, found_col = -1;
            grid.find(index, found_row, found_col);
            CHECK(found_row == row && found_col == col, "(%d, %d) found at (%d, %d)", row, col,
                  found_row, found_col);
            if (grid.large > 0) continue;
            grid.find<false>(index, found_row, found_col);
            CHECK((found_row == row && found_col == col &&
                   grid.index<int64_t, false>(row, col) == index),
                  "(%d, %d) without large squares", row, col);
        }
    CHECK(!grid.has(grid.rows, 0) && !grid.has(grid.rows - 1, grid.cols), "past the edge");
    // What is left over is past the edge.
    for (int64_t index = 0; index < grid.count(); ++index) {
        int row = -1, col = -1;
        grid.find(index, row, col);
        CHECK(grid.has(row, col) == (seen[index] == 1), "index %d", (int)index);
    }
}

int main() {
    for (int rows = 1; rows < 30; ++rows) {
        squares_are_distinct({rows, 7, false});
        squares_are_distinct({rows, rows, true});
        squares_are_distinct({rows, rows, true, Image::LARGE});
    }
    places_are_distinct();
    instructions_read_blocks(2, false);
    instructions_read_blocks(2, true);
    instructions_read_blocks(4, false);  // The hardware has no other way for 4 bytes.
    std::puts("image: ok");
}
