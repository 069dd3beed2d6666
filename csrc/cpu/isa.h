// The kernels that are compiled once for each instruction set, behind one table.
#pragma once

#include <string>

#include "../index.h"
#include "../problem.h"
#include "../solve_problem.h"
#include "block.h"

namespace packedtri::cpu {

// Where a strip of the rows of a triangle may begin: at multiples of the order of every square (square.h).
inline int64_t aligned(int64_t row) { return row / 32 * 32; }

// A block of the result: rows [i0, i1), columns [j0, j1).
struct Tile {
    int64_t i0, i1, j0, j1;
};

// A packed matrix times a vector, y = M x: with T the triangle of order n, M is T for Lower, T' for
// Upper, and T with its strict half mirrored for Symmetric, conjugated where hermitian. `conj` takes
// the conjugate of M.
struct MatrixVector {
    DType dtype;
    Kind kind;
    int64_t n;
    const void* triangle;
    const void* x;
    int64_t x_stride;
    void* y;
    int64_t y_stride;
    bool hermitian = false, conj = false;
    int64_t first = 0;  // Rows before it are not there, and taken for zeros.
};

// As many products, which lie so many elements apart.
struct MatrixVectors {
    MatrixVector first;
    int64_t count, triangle_step, x_step, y_step;
};

// The same for `count` vectors: an element of a vector is followed by the next one x_next elements
// further, and by that of the next vector x_vector elements further.
struct FewVectors {
    DType dtype;
    Kind kind;
    int64_t n, count;
    const void* triangle;
    const void* x;
    int64_t x_next, x_vector;
    void* y;
    int64_t y_next, y_vector;
    bool hermitian = false, conj = false;
};

// A solve, as solve_problem.h has it, of an order of at most small_triangle, for one strip of X. The
// triangle is conjugated where `conj` says so. X is n x m where left, else m x n; `lower` means that
// it is a triangle, m = n.
struct SmallSolve {
    bool upper, left, unit, conj, lower;
    int64_t n, m;
    Block t, x;
};

// T y = x, or T' y = x, in place, with T packed lower of order n, for `count` vectors x, x_next elements apart.
struct VectorSubstitution {
    DType dtype;
    bool transposed, unit;
    int64_t n;
    const void* triangle;
    void* x;
    int64_t x_stride;
    int64_t count, x_next;
};

constexpr int64_t small_triangle = 64;

// Where an element lies so many behind the first.
inline const char* at_element(const void* data, DType dtype, int64_t number) {
    return static_cast<const char*>(data) + number * element_size(dtype);
}
inline char* at_element(void* data, DType dtype, int64_t number) {
    return static_cast<char*>(data) + number * element_size(dtype);
}

// Products of at most tiny_order rows and columns are summed without panels up to so many terms, those of dense matrices of
// at most dots_order as dot products.
constexpr int64_t tiny_order = 16, tiny_terms = 512;
constexpr int dots_order = 4;

// The partial sums of a vector of n numbers lie so far apart that each begins a cache line.
constexpr int64_t part_stride(int64_t n) { return ceil_div(n, 16) * 16; }

struct TileSize {
    int64_t rows, cols;
};

// What is chosen for products of bfloat16, whose pairs some machines have instructions for.
struct PairTiles {
    // Tiles begin at multiples of this, which is 1 without such instructions.
    int64_t unit = 1;
    TileSize tile{768, 512};
    // From which order on dense torch multiplies symmetric and dense matrices faster.
    int64_t dense_from = 0;
};

// Single-threaded pieces of the operations; what calls them shares them among threads.
struct Kernels {
    const char* name;
    // One tile of one matrix product of the batch.
    void (*mm_tile)(const Product& p, int64_t batch, const Tile& tile);
    // Columns [begin, end) of one slim product of the batch, or rows where it has more of these.
    void (*mm_slim)(const Product& p, int64_t batch, int64_t begin, int64_t end);
    // Elements [begin, end) of y; for Symmetric all of them, begin = 0 and end = n.
    void (*mv)(const MatrixVector& p, int64_t begin, int64_t end);
    void (*mv_each)(const MatrixVectors& p);
    // For Symmetric: what the rows [begin, end) of the triangle add to y, as n unrounded numbers.
    void (*symv_part)(const MatrixVector& p, int64_t begin, int64_t end, void* part);
    // y as the sum of `count` such parts, which lie part_stride(n) numbers apart; they are spoiled.
    void (*symv_sum)(const MatrixVector& p, void* parts, int64_t count);
    // How many numbers a row of a panel has, in which up to as many vectors lie side by side.
    int64_t (*few_width)(DType dtype, Kind kind, int64_t count);
    // The vectors x as a panel.
    void (*few_load)(const FewVectors& p, void* panel);
    // Adds to the panel y what the rows [begin, end) of the triangle contribute, or, for Upper, its columns.
    void (*few_part)(const FewVectors& p, const void* x, int64_t begin, int64_t end, void* y);
    // Elements [begin, end) of the vectors y as the sum of `count` such panels.
    void (*few_sum)(const FewVectors& p, const void* parts, int64_t count, int64_t begin,
                    int64_t end);
    // Rows [begin, end) of one packed triangle of the batch, and what mirrors them. Of an Upper, unpack has the columns of the
    // matrix that are as long as these rows.
    void (*pack)(const Conversion& c, int64_t batch, int64_t begin, int64_t end);
    void (*unpack)(const Conversion& c, int64_t batch, int64_t begin, int64_t end);
    // The same of a block, the rows [begin, end) of the matrix as far as it has them.
    void (*pack_block)(const BlockConversion& c, int64_t batch, int64_t begin, int64_t end);
    void (*unpack_block)(const BlockConversion& c, int64_t batch, int64_t begin, int64_t end);
    // Rows [begin, end) of one packed triangle of the batch.
    void (*scale_band)(const BandScale& p, int64_t batch, int64_t begin, int64_t end);
    void (*solve)(const SmallSolve& p);
    void (*solve_vector)(const VectorSubstitution& p);
    // Factors a triangle of an order of at most small_triangle in place. Returns the order of the
    // first leading minor that is not positive definite, 0 where all are.
    int64_t (*cholesky)(const Block& a, int64_t n);
    // One matrix of the batch; returns the same.
    int64_t (*update_cholesky)(const FactorUpdate& p, int64_t batch);
    // Whether so many elements of bfloat16, which lie side by side, are all finite.
    bool (*finite_bf16)(const void* elements, int64_t count);
    PairTiles pairs{};
};

// The fastest kernels that this machine runs, or the ones that PACKEDTRI_CPU_ISA names. The choice
// is made at the first call; std::runtime_error if the name is unknown or the machine too old.
const Kernels& kernels();
// What PACKEDTRI_CPU_ISA named at the first call, or nothing.
const std::string& wanted_isa();

}  // namespace packedtri::cpu
