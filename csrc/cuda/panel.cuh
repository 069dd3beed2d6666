// How a product kernel sees its operands and its result.
#pragma once

#include "../index.h"
#include "../krange.h"
#include "../problem.h"
#include "config.h"
#include "scalar.cuh"
#include "schedule.h"

namespace packedtri::cuda {

// Where row R of a matrix starts, from its first element on. In a block of a packed triangle whose
// first row is row0 of the triangle, rows are row0 + 1, row0 + 2 ... elements apart: `ld` is row0.
PACKEDTRI_HD inline int64_t row_offset(int64_t R, int64_t ld, bool packed) {
    return R * ld + (packed ? row_start(R) : 0);
}

// One operand, by rows of memory: row R holds elements (R, 0) ... (R, length(R) - 1) side by side.
// A packed triangle and a dense matrix differ only in where rows start and how long they are. The
// product indexes an operand by (r, k), r a row of A or a column of B; it is K-major when memory
// rows run along k, and MN-major when they run along r.
template <class T>
struct Panel {
    const T* data;
    int64_t ld;
    int rows, cols;
    bool packed;
    // Row R stores elements (R, 0) ... (R, R + reach - 1), as far as there are such: `reach` is 1
    // for a triangle, 0 for one without its diagonal.
    int reach;
    int64_t end;  // Elements from the first to the end of the last row.
    static constexpr int ALL = 1 << 30;

    PACKEDTRI_HD int64_t row_offset(int64_t R) const { return cuda::row_offset(R, ld, packed); }
    PACKEDTRI_HD int length(int R) const {
        // Of a dense operand the sum may exceed what an int holds.
        return static_cast<int>(min(after_last(R), static_cast<unsigned>(cols)));
    }

    // Whether the nr x nc rectangle at (R, c) holds stored elements only.
    __device__ bool full(int R, int c, int nr, int nc) const {
        return R + nr <= rows && c + nc <= length(R);
    }
    // Element (r, k) of the operand, null where none is stored.
    __device__ const T* stored(bool k_major, int r, int k) const {
        const int row = k_major ? r : k, col = k_major ? k : r;
        return row < rows && col < length(row) ? data + row_offset(row) + col : nullptr;
    }
    // Whether it holds structural zeros: places right of the diagonal.
    __device__ bool crosses_diagonal(int R, int c, int nc) const {
        return static_cast<unsigned>(c + nc) > after_last(R);
    }

  private:
    PACKEDTRI_HD unsigned after_last(int R) const {
        return static_cast<unsigned>(R) + static_cast<unsigned>(reach);
    }
};

// An operand, and whether its memory rows run along k.
template <class T>
struct OrientedPanel {
    Panel<T> panel;
    bool k_major;
};

template <class T>
OrientedPanel<T> orient(const Operand& x, bool is_a) {
    const int rows = static_cast<int>(x.rows), cols = static_cast<int>(x.cols);
    const bool triangle = x.kind != Kind::Dense, block = x.stagger != Stagger::None;
    const bool by_rows = runs_along_rows(x);
    const int64_t ld = triangle && !block ? 0 : by_rows ? x.row_stride : x.col_stride;
    const T* data = static_cast<const T*>(x.data);
    const int reach = !triangle ? Panel<T>::ALL : x.strict ? 0 : 1;
    Panel<T> panel{data, ld, by_rows ? rows : cols, by_rows ? cols : rows, triangle || block,
                   reach};
    const int last = panel.rows - 1;
    panel.end = panel.row_offset(last) + panel.length(last);
    return {panel, by_rows == is_a};
}

// Which tiles blocks of a cluster share the sums of: those before `by_all` all blocks of one, and in clusters of four those
// before `by_three` three, beside a block with a tile of its own, and those before `by_two` two. Of the others each block
// has one.
struct SharedTiles {
    int64_t by_all, by_three, by_two;
};

template <class T>
struct ProductArgs {
    Panel<T> a, b;
    int64_t a_batch_stride, b_batch_stride;
    T* c;
    int64_t c_ld, c_batch_stride;
    bool c_packed, c_lower;  // How c is stored, and whether only up to its diagonal.
    typename Accumulator<T>::real alpha, beta;
    Kind a_kind, b_kind;
    bool a_k_major, b_k_major;  // Of a symmetric operand: the half that is stored.
    bool conj_b, a_strict, b_strict;
    bool a_hermitian, b_hermitian;  // Whether a symmetric operand is a Hermitian one.
    int m, n, k;
    int batch;
    int split;  // Blocks of a cluster, a power of two up to 8.
    // So many clusters, if others follow them to the same multiprocessors, come in the opposite order: then the shortest
    // of them meets the longest of those that follow.
    int turned;
    SharedTiles shared;
    Schedule schedule;
    int64_t items;  // As many as there are tiles of all matrices.
};

}  // namespace packedtri::cuda
