// The kernels that are compiled once for each instruction set, behind one table.
#pragma once

#include "../index.h"
#include "../problem.h"

namespace packedtri::cpu {

// A block of the result: rows [i0, i1), columns [j0, j1).
struct Tile {
    int64_t i0, i1, j0, j1;
};

// A packed matrix times a vector, y = M x: with T the triangle of order n, M is T for Lower, T' for
// Upper, and T with its strict half mirrored for Symmetric.
struct MatrixVector {
    DType dtype;
    Kind kind;
    int64_t n;
    const void* triangle;
    const void* x;
    int64_t x_stride;
    void* y;
    int64_t y_stride;
};

// The partial sums of a vector of n numbers lie so far apart that each begins a cache line.
constexpr int64_t part_stride(int64_t n) { return ceil_div(n, 16) * 16; }

// Single-threaded pieces of the operations; what calls them shares them among threads.
struct Kernels {
    const char* name;
    // One tile of one matrix product of the batch.
    void (*mm_tile)(const Product& p, int64_t batch, const Tile& tile);
    // Elements [begin, end) of y; for Symmetric all of them, begin = 0 and end = n.
    void (*mv)(const MatrixVector& p, int64_t begin, int64_t end);
    // For Symmetric: what the rows [begin, end) of the triangle add to y, as n unrounded numbers.
    void (*symv_part)(const MatrixVector& p, int64_t begin, int64_t end, void* part);
    // y as the sum of `count` such parts, which lie part_stride(n) numbers apart; they are spoiled.
    void (*symv_sum)(const MatrixVector& p, void* parts, int64_t count);
    // Rows [begin, end) of one packed triangle of the batch, and what mirrors them.
    void (*pack)(const Conversion& c, int64_t batch, int64_t begin, int64_t end);
    void (*unpack)(const Conversion& c, int64_t batch, int64_t begin, int64_t end);
};

// The fastest kernels that this machine runs, or the ones that PACKEDTRI_CPU_ISA names. The choice
// is made at the first call; std::runtime_error if the name is unknown or the machine too old.
const Kernels& kernels();

}  // namespace packedtri::cpu
