// How a tile of the kernel for strips (strips.cuh) lies in shared memory.
#pragma once

#include "../index.h"
#include "ptx.cuh"
#include "scalar.cuh"
#include "strip_units.h"

namespace packedtri::cuda {

// Elements of a tile. A row of it begins where it begins in its word of 16 bytes in memory. Rows are counted from a
// multiple of 16 on, so that this follows from the place of the first one: the row `16 m` of a packed triangle begins
// a multiple of 8 elements after row 0.
template <class T, int PITCH>
struct StripTile {
    static constexpr int WORD = 16 / sizeof(T);
    T* first;
    unsigned place;

    __device__ int place_of(unsigned row) const {
        const unsigned r = row % 16;
        return (place + r * (r + 1) / 2) % WORD;
    }
    // Where the word of its first element lies.
    __device__ T* row(int row) const { return first + row * PITCH; }
    __device__ T* at(int row, int col) const { return this->row(row) + place_of(row) + col; }
    // The same from another element on.
    __device__ StripTile from(int row, int col) const { return {first + row * PITCH + col, place}; }
};

// Columns of a tile. Each of its rows is a copy of its own, which take as long if they are shorter.
constexpr int STRIP_TILE = 128;

// Steps of a sum that a warp multiplies at once, as many as rows or columns.
constexpr int STRIP_STEPS = 16;

// Which elements of such a block of a tile are part of the matrix. Its first row is `below` rows below its first column;
// there are `rows` rows from there on. What a tile holds for others is what follows in memory, or was there before.
struct StripBlock {
    int below, rows;
    __device__ bool has(int row, int col) const { return col <= row + below && row < rows; }
    __device__ bool has_all() const { return below >= STRIP_STEPS - 1 && rows >= STRIP_STEPS; }
    __device__ bool has_any() const { return below > -STRIP_STEPS && rows > 0; }
};

// How elements are multiplied: strip_f32.cuh, strip_f64.cuh.
template <class T, int VECTORS>
struct StripMath;

}  // namespace packedtri::cuda
