// What a block of the kernel for vectors and matrices that shared memory holds (mv_held.cuh) has there.
#pragma once

#include <algorithm>
#include <cmath>

#include "config.h"

namespace packedtri::cuda {

// Matrices, each in a slot where it begins as far behind a multiple of 16 bytes as in memory, their vectors, and where rows
// are shared, parts of sums. A matrix comes in pieces of about as many elements, which are blocks of rows.
struct MvHeldLayout {
    static constexpr int BLOCK = 32, MOST_THREADS = 1024, MOST_PIECES = 4;
    int apiece;  // How many matrices a block of threads has.
    int shares;  // How many threads share a row.
    int slot;    // Bytes.
    int pieces;
    int ends[MOST_PIECES];  // How many rows are in the pieces up to each.

    // Rows of whole blocks.
    PACKEDTRI_HD static constexpr int64_t lines_of(int64_t n) { return ceil_div(n, BLOCK) * BLOCK; }
    PACKEDTRI_HD constexpr int lines() const {
        return static_cast<int>(lines_of(ends[pieces - 1]));
    }
};

inline int64_t mv_held_slot(const Product& p) {
    const int64_t size = element_size(p.dtype);
    return ceil_div(row_start(p.k) * size + 16 - size, 16) * 16;
}
// All of it. Sums of 16-bit elements are float32.
inline int64_t mv_held_bytes(const Product& p, int apiece, int shares) {
    const int64_t sums = std::max<int64_t>(element_size(p.dtype), 4) * shares;
    return apiece * (mv_held_slot(p) + MvHeldLayout::lines_of(p.k) * sums);
}
inline bool mv_held_can(const Product& p, const Device& device, int apiece, int shares) {
    constexpr int64_t of_a_block = 1024;  // Of the multiprocessor's, more than the barriers take.
    return device.clusters &&
           MvHeldLayout::lines_of(p.k) * apiece * shares <= MvHeldLayout::MOST_THREADS &&
           mv_held_bytes(p, apiece, shares) <= device.shared_kib * 1024 - of_a_block;
}

// Matrices that leave room for few others are multiplied as they come.
inline MvHeldLayout mv_held_layout(const Product& p, int apiece, int shares) {
    const int64_t n = p.k, blocks = ceil_div(n, MvHeldLayout::BLOCK);
    const bool few = mv_held_bytes(p, apiece, shares) > 56 * 1024;
    MvHeldLayout layout{
        apiece, shares, static_cast<int>(mv_held_slot(p)), few ? MvHeldLayout::MOST_PIECES : 1, {}};
    for (int x = 0; x < layout.pieces; ++x) {
        const double part = std::sqrt((x + 1.0) / layout.pieces);
        const auto whole = static_cast<int64_t>(std::ceil(static_cast<double>(blocks) * part));
        layout.ends[x] = static_cast<int>(std::min(n, whole * MvHeldLayout::BLOCK));
    }
    return layout;
}

}  // namespace packedtri::cuda
