// What the engine's blocks of threads have to do, as pure functions: which tile or part of one, which
// steps of its sum, which image blocks at each step. Free of CUDA, so that a host test can compare
// them with the definitions.
#pragma once

#include "../krange.h"
#include "image.h"
#include "schedule.h"

namespace packedtri::cuda {

// Columns of the result that one of Product::marks stands for; its rows are those of an image block.
constexpr int MARKED_COLUMNS = 128;

// A tile of the result, or where `share` is positive a part of its sum: the shares of a launch are
// numbered from 1 on, tile after tile. Travels as one word.
struct EngineItem {
    static constexpr int64_t NONE = -1;  // Instead of an item, it ends the work.
    int i, j, share;

    PACKEDTRI_HD constexpr int64_t word() const {
        return int64_t{share} << 32 | int64_t{i} << 16 | j;
    }
    PACKEDTRI_HD static constexpr EngineItem of(int64_t word) {
        return {static_cast<int>(word >> 16 & 0xffff), static_cast<int>(word & 0xffff),
                static_cast<int>(word >> 32)};
    }
};

// The items of a launch. The first shared_tiles of the schedule are computed by `split` blocks each,
// a part of the sum a block.
struct EngineWork {
    Schedule schedule;
    int split, shared_tiles;

    PACKEDTRI_HD constexpr int64_t size() const {
        return schedule.size() + int64_t{shared_tiles} * (split - 1);
    }

    // Of the numbers below size(), some fall into gaps of the schedule: their item does not exist.
    PACKEDTRI_HD constexpr EngineItem at(int number, bool& exists) const {
        const int shares = shared_tiles * split;
        const bool share = number < shares;
        const Schedule::Tile tile =
            schedule.at(share ? number / split : number - shares + shared_tiles);
        exists = tile.exists;
        return {tile.i, tile.j, share ? number + 1 : 0};
    }

    PACKEDTRI_HD constexpr int parts(const EngineItem& item) const {
        return item.share > 0 ? split : 1;
    }
    PACKEDTRI_HD constexpr int part(const EngineItem& item) const {
        return item.share > 0 ? (item.share - 1) % split : 0;
    }

    // Parts meet in pairs of `width` = 1, then the pairs in pairs of 2, and so on. The number of the
    // pair of that width to which the item's part belongs is its own below shared_tiles * split.
    PACKEDTRI_HD constexpr int pair(const EngineItem& item, int width) const {
        const int first = (item.share - 1) / split * split;
        return first + part(item) / (2 * width) * (2 * width) + width - 1;
    }
};

// What one block of threads does for an item, in image blocks. Its tile has ROWS x COLS of them; the
// blocks of a cluster have theirs one above the other.
template <int ROWS, int COLS, int CLUSTER, bool B_ACROSS>
struct EngineTile {
    Kind a, b;
    int i0, j0;   // The first block of its rows and columns.
    int columns;  // How many columns of blocks exist.
    int k0, k1;

    PACKEDTRI_HD constexpr EngineTile(Kind a, Kind b, const EngineWork& work,
                                      const EngineItem& item, int rank, int n_blocks, int k_blocks)
        : a(a), b(b), i0(item.i * ROWS * CLUSTER + rank * ROWS), j0(item.j * COLS),
          columns(n_blocks - j0 < COLS ? n_blocks - j0 : COLS), k0(0), k1(0) {
        const int first = item.i * ROWS * CLUSTER;
        const KRange range = k_range(a, b, first, first + ROWS * CLUSTER, j0, j0 + COLS, k_blocks);
        const int begin = static_cast<int>(range.begin), steps = static_cast<int>(range.length());
        k0 = begin + steps * work.part(item) / work.parts(item);
        k1 = begin + steps * (work.part(item) + 1) / work.parts(item);
    }

    // A tile whose sum is empty, or a part of one, passes the stages once all the same.
    PACKEDTRI_HD constexpr int end() const { return k1 > k0 ? k1 : k0 + 1; }

    // Columns of blocks lie in a stage in this order: so that those with a structural zero at k, left
    // of the diagonal or right of it, are the last, and the tensor cores leave them out.
    PACKEDTRI_HD static constexpr int column_at(int place) {
        return B_ACROSS ? place : COLS - 1 - place;
    }
    // How many of the last places have no block of B at k. Where rows of B run along k, places for
    // columns past the edge of the matrix are filled with the last column.
    PACKEDTRI_HD constexpr int missing_columns(int k) const {
        if (k >= k1) return COLS;
        if (!B_ACROSS) return b == Kind::Upper && k > j0 ? k - j0 : 0;
        return COLS - (b == Kind::Lower && k - j0 + 1 < columns ? k - j0 + 1 : columns);
    }
    PACKEDTRI_HD constexpr bool needs_row(int row, int k) const {
        return k < k1 && !(a == Kind::Lower && k > i0 + row) && !(a == Kind::Upper && k < i0 + row);
    }
};

}  // namespace packedtri::cuda
