// How a tile of the kernel for strips (strips.cuh) lies in shared memory.
#pragma once

#include "../index.h"
#include "ptx.cuh"
#include "scalar.cuh"
#include "strip_units.h"

namespace packedtri::cuda {

// Elements of a tile. A row of it begins where it begins in its word of 16 bytes in memory. Rows are counted from a
// multiple of 8 on, so that this follows from the place of the first one: the row `8 m` of a packed triangle begins
// a multiple of 4 elements after row 0.
template <class T, int PITCH>
struct StripTile {
    static constexpr int WORD = 16 / sizeof(T);
    T* first;
    unsigned place;

    __device__ int place_of(unsigned row) const {
        const unsigned r = row % 8;
        return (place + r * (r + 1) / 2) % WORD;
    }
    // Where the word of its first element lies.
    __device__ T* row(int row) const { return first + row * PITCH; }
    __device__ T* at(int row, int col) const { return this->row(row) + place_of(row) + col; }
    // The same from another element on.
    __device__ StripTile from(int row, int col) const { return {first + row * PITCH + col, place}; }
};

// Steps of a sum that a warp multiplies at once.
constexpr int STRIP_STEPS = 16;

// How elements are multiplied: strip_f32.cuh, strip_f64.cuh.
template <class T, int VECTORS>
struct StripMath;

}  // namespace packedtri::cuda
