// Blocks of packed triangles and of dense matrices, as solves and factorizations cut them.
#pragma once

#include <limits>
#include <utility>

#include "../index.h"
#include "../solve_problem.h"
#include "config.h"

namespace packedtri::cuda {

// Triangles of about this order are solved and factored in shared memory, by kernels of their own
// (leaf.h); larger ones are cut in two, and products do the work between the halves.
constexpr int64_t leaf_order(DType dtype) { return dtype == DType::f32 ? 128 : 64; }

// Into what a triangle is cut: triangles of this order, and a last one that may be larger by the rest, for which a
// step of its own would take longer.
struct Leaves {
    int64_t order, rest;

    constexpr int64_t most() const { return order + rest; }
    // Where a longer range is cut: near its middle, so that the products are as large as can be.
    constexpr int64_t first_half(int64_t length) const {
        return ceil_div(ceil_div(length - rest, order), 2) * order;
    }
};

// Those of a solve. A multiprocessor has one large triangle at a time, but several smaller ones, so large ones pay
// where all blocks of threads have room at once, of so many lines each: fewer, the larger the triangle (measured on
// an H100).
inline Leaves solve_leaves(const Solve& p, const Device& device) {
    const int64_t order = leaf_order(p.dtype), rest = 16;
    const auto at_once = [&](int64_t lines) {
        return ceil_div(p.m, lines) * p.batch <= device.multiprocessors;
    };
    const bool room = at_once(64) && device.shared_kib >= 120;
    if (p.dtype == DType::c128 || (p.dtype == DType::f32 && !room)) return {order, 0};
    if (element_size(p.dtype) == 8 && device.shared_kib >= 208 && at_once(64))
        return {2 * order, at_once(32) ? rest : 0};
    return {order, rest};
}

// Columns that a factor has at most in a panel, all of whose tiles one launch works on (factor_panel): all of a matrix
// that is not large. Of larger ones panels are narrow, so that most work is in products of the panels. 0 where leaves
// are faster (measured on an H100, complex ones on an H200).
inline int64_t panel_order(const Factor& p) {
    const double n = static_cast<double>(p.n), batch = static_cast<double>(p.batch),
                 size = n * n * batch;
    switch (p.dtype) {
        case DType::c64: return 0;
        case DType::c128:
            if (n < 192 || batch > 128 || (n < 1200 && batch <= 8)) return 0;
            break;
        case DType::f64:
            if (n <= 112 && batch > 100) return 0;
            break;
        default: break;
    }
    const double whole = p.dtype == DType::f32 ? 3500 : 4500;
    return size <= whole * whole ? 4608 : size <= 7000.0 * 7000 ? 2048 : 1024;
}

// Up to how many elements of all right-hand sides leaves solve sooner than panels do, whose blocks wait for one another: with
// few, blocks of leaves have few lines each (measured on an H200). Infinite for any number.
inline double most_by_leaves(const Solve& p) {
    constexpr double ANY = std::numeric_limits<double>::infinity();
    if (p.x_kind == Kind::Lower) {
        if (p.dtype == DType::c64) return p.n < 256 ? ANY : 3e6;
        if (p.dtype == DType::c128) return p.n < 384 ? ANY : 1.5e6;
        if (p.n <= 160 || (p.dtype == DType::f64 && p.batch >= 100 && p.n < 250)) return ANY;
        return p.dtype == DType::f64 ? 1.5e6 : p.n <= 512 ? 1.3e6 : 3.7e5;
    }
    if (p.m <= 64 && (p.dtype != DType::f32 || p.n <= 1200 || p.m <= 16)) return ANY;
    switch (p.dtype) {
        case DType::c64: return p.n < 192 ? ANY : 2.2e6;
        case DType::c128: return p.n < 192 || (p.batch == 1 && p.m <= 256) ? ANY : 9e5;
        case DType::f64: return p.n < 256 ? ANY : p.n < 400 ? 2.2e6 : 1.05e6;
        default: break;
    }
    return p.n < 256 ? ANY : p.n < 400 ? 4.3e6 : p.n <= 512 ? 2e6 : p.n <= 1024 ? 2.3e5 : 0;
}

// The order of the triangles that one launch solves with (solve_panel), likewise.
inline int64_t solve_panel_order(const Solve& p) {
    const bool packed = p.x_kind == Kind::Lower;
    const double one = static_cast<double>(p.n) * static_cast<double>(packed ? p.n : p.m);
    if (one * static_cast<double>(p.batch) <= most_by_leaves(p)) return 0;
    if (packed || p.batch > 1 || has_complex_elements(p.dtype)) return 2048;
    return one < 3e6 ? 2048 : one < 5e7 ? 1024 : 512;
}

// Bytes that the tiles of a panel may take, beyond those of one matrix.
constexpr int64_t PANEL_IMAGES_LIMIT = int64_t{256} << 20;

// Blocks that a multiprocessor has for a panel: as many as there is room for, but of one matrix with few items one,
// since those that wait for one another then have it to themselves.
inline int64_t panel_blocks(int64_t batch, int64_t items, const Device& device, int shared_bytes) {
    if (batch == 1 && items <= 4 * int64_t{device.multiprocessors}) return 1;
    return device.room_for(shared_bytes);
}

// Where a range is cut that is longer than a panel, or than a leaf if there are no panels.
inline int64_t first_half(int64_t length, int64_t panel, const Leaves& leaves) {
    return (panel > 0 && length > panel ? Leaves{panel, 0} : leaves).first_half(length);
}

// Indices [begin, end) of rows or columns.
struct Span {
    int64_t begin, end;
    PACKEDTRI_HD constexpr int64_t length() const { return end - begin; }
};

// A matrix whose blocks are operands and results of products: the packed triangle at `data`, or a
// dense matrix by rows.
struct Blocked {
    void* data;
    DType dtype;
    bool packed;
    int64_t row_stride, batch_stride;

    // The block as it lies in memory. One of a packed triangle is on its diagonal, or holds stored
    // elements only.
    Operand operand(Span rows, Span cols) const {
        return {element(rows.begin, cols.begin),
                kind(rows, cols),
                rows.length(),
                cols.length(),
                stride(rows),
                1,
                batch_stride,
                packed ? Stagger::Rows : Stagger::None};
    }

    Result result(Span rows, Span cols) const {
        return {element(rows.begin, cols.begin), kind(rows, cols), stride(rows), batch_stride,
                packed};
    }

  private:
    Kind kind(Span rows, Span cols) const {
        return packed && rows.begin == cols.begin ? Kind::Lower : Kind::Dense;
    }
    int64_t stride(Span rows) const { return packed ? rows.begin : row_stride; }
    void* element(int64_t i, int64_t j) const {
        return static_cast<char*>(data) +
               (packed ? offset(i, j) : i * row_stride + j) * element_size(dtype);
    }
};

// The transpose of a block off the diagonal.
inline Operand transposed(Operand x) {
    x.stagger = Stagger::Columns;
    std::swap(x.rows, x.cols);
    std::swap(x.row_stride, x.col_stride);
    return x;
}

// C -= A B
inline Product subtraction(DType dtype, int64_t batch, const Operand& a, const Operand& b,
                           const Result& c) {
    return {dtype, a.rows, b.cols, a.cols, batch, a, b, c, -1, 1};
}

}  // namespace packedtri::cuda
