// How the work of the kernel for a hundred vectors or so (wide.cuh) is numbered. Free of CUDA.
#pragma once

#include "../index.h"

namespace packedtri::cuda {

// Elements of each vector of the result that are added up together, and steps of their sums at once.
constexpr int WIDE_SIDE = 128;

// The units of work of one packed matrix: tiles of 128 x 128. Sums along rows have groups of 128 rows, of which group q has
// q + 1 tiles, up to the diagonal; sums down columns have as many, counted from the last columns on.
struct WideUnits {
    int groups;          // Of rows, or of columns.
    bool rows, columns;  // Which sums there are.

    PACKEDTRI_HD constexpr int all_groups() const { return (rows + columns) * groups; }
    PACKEDTRI_HD constexpr int64_t of_side() const { return row_start<int64_t>(groups); }
    PACKEDTRI_HD constexpr int64_t all() const { return (rows + columns) * of_side(); }
    // Groups of both kinds are numbered together, those of rows first.
    PACKEDTRI_HD constexpr bool is_of_rows(int group) const { return rows && group < groups; }
    PACKEDTRI_HD constexpr int tiles(int group) const { return group % groups + 1; }
    // The first unit of a group.
    PACKEDTRI_HD constexpr int64_t before(int group) const {
        return group / groups * of_side() + row_start<int64_t>(group % groups);
    }
    // The groups of element i: of sums along rows, and down columns.
    PACKEDTRI_HD constexpr int row_group(int i) const { return i / WIDE_SIDE; }
    PACKEDTRI_HD constexpr int column_group(int i) const {
        return all_groups() - 1 - i / WIDE_SIDE;
    }
    // The first element of a group.
    PACKEDTRI_HD constexpr int first(int group) const {
        return (is_of_rows(group) ? group : all_groups() - 1 - group) * WIDE_SIDE;
    }
};

// How many sums are written to scratch memory, to be added up, for each vector of a group.
constexpr int64_t wide_sums(WideUnits units, int64_t matrices, int64_t blocks) {
    return (blocks + matrices * units.all_groups()) * WIDE_SIDE;
}

}  // namespace packedtri::cuda
