// How the work of the kernels for strips (strips.cuh, strips_16bit.cuh) is numbered. Free of CUDA.
#pragma once

#include "../index.h"

namespace packedtri::cuda {

// Rows of a band, and columns of a strip.
constexpr int STRIP_BAND = 32, STRIP_WIDTH = 256;
// No GPU has memory for matrices of a larger order, whose units an int would not hold.
constexpr int64_t STRIP_ORDER = 1 << 20;

// The units of work of one packed matrix: the bands of its strips, strip after strip. Each strip begins where the
// diagonal comes to its first column, and so has fewer bands than the one before.
struct StripUnits {
    int bands;  // Of the first strip.
    int fewer;  // How many fewer the next strip has: as many as it is wide.

    PACKEDTRI_HD constexpr int strips() const { return static_cast<int>(ceil_div(bands, fewer)); }
    // Units of the strips before this one.
    PACKEDTRI_HD constexpr int before(int strip) const {
        return strip * bands - fewer * (strip * (strip - 1) / 2);
    }
    PACKEDTRI_HD constexpr int64_t all() const { return before(strips()); }
    // The unit of a band, which is counted from the first row of the matrix.
    PACKEDTRI_HD constexpr int at(int strip, int band) const {
        return before(strip) + band - strip * fewer;
    }
};

PACKEDTRI_HD constexpr StripUnits strip_units(int64_t n) {
    return {static_cast<int>(ceil_div(n, STRIP_BAND)), STRIP_WIDTH / STRIP_BAND};
}

// How many sums are written to scratch memory, to be added up, for each vector of a group.
struct StripSums {
    int64_t by_rows, by_columns;
    constexpr int64_t all() const { return by_rows + by_columns; }
};

// Every unit has some of rows; of columns so many blocks have some of each of their strips.
constexpr StripSums strip_sums(StripUnits units, int64_t matrices, int64_t blocks, bool rows,
                               bool columns) {
    return {rows ? units.all() * matrices * STRIP_BAND : 0,
            columns ? (blocks + matrices * units.strips()) * STRIP_WIDTH : 0};
}

}  // namespace packedtri::cuda
