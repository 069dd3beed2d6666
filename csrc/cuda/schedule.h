// Which tile of the result a block computes, as a pure function of the block's index: longest sums
// first for balance, neighbours together for the L2 cache. No torch and no CUDA, so that a host
// test can check that every tile comes exactly once.
#pragma once

#include "../index.h"
#include "../problem.h"

namespace packedtri::cuda {

// The tiles of the result, tiles_m x tiles_n; only those on and below the diagonal when `lower`,
// which needs as many rows as columns of them, or `trapezoid`, which does not.
// Tiles are visited in square groups of `group` x `group`: those of one group run at about the same
// time and read the same rows of A and columns of B.
struct Schedule {
    // What the length of the sum over k grows with, and so what comes first.
    enum class Longest : int8_t {
        FarFromDiagonal,
        LowRows,
        HighRows,
        LowColumns,
        HighColumns,
        All,  // They are equally long.
    };

    int tiles_m, tiles_n;
    int group;
    bool lower;
    Longest longest;
    bool trapezoid = false;

    struct Tile {
        int i, j;
        bool exists;
    };

    PACKEDTRI_HD constexpr int groups(int tiles) const { return (tiles + group - 1) / group; }

    // How many indices there are. Some fall outside the result: Tile::exists tells.
    PACKEDTRI_HD constexpr int64_t size() const {
        const int64_t per_group = int64_t{group} * group, m = groups(tiles_m);
        return per_group * (lower ? row_start(m) : m * groups(tiles_n));
    }

    // In 32 bits, without divisions where groups have one tile, a launch starts sooner; but in some
    // kernels that makes the compiler spill.
    PACKEDTRI_HD constexpr Tile at(int index) const {
        const int within = group == 1 ? 0 : index % (group * group);
        if (group > 1) index /= group * group;
        const Tile g = lower ? lower_group(index) : dense_group(index);
        int i = g.i, j = g.j;
        if (group > 1) {
            i = i * group + (group - 1 - within / group);
            j = j * group + within % group;
        }
        return {i, j, exists(i, j)};
    }
    PACKEDTRI_HD constexpr Tile at(int64_t index) const {
        const int within = static_cast<int>(index % (group * group));
        const Tile g =
            lower ? lower_group(index / (group * group)) : dense_group(index / (group * group));
        const int i = g.i * group + (group - 1 - within / group), j = g.j * group + within % group;
        return {i, j, exists(i, j)};
    }

    // How many of the first indices have sums of at least `length` tiles, when the longest sum has
    // max_length of them.
    PACKEDTRI_HD constexpr int64_t count_long(int max_length, int length) const {
        if (longest == Longest::All) return length <= max_length ? size() : 0;
        const int rows = (max_length - length + group) / group;
        if (rows <= 0) return 0;
        const int64_t per_group = int64_t{group} * group;
        if (lower) {
            // These orders begin with the longest row or column of the triangle, the others with the shortest.
            const int m = groups(tiles_m), first = rows < m ? rows : m;
            const bool turned = longest == Longest::HighRows || longest == Longest::LowColumns;
            return per_group * (turned ? row_start(m) - row_start(m - first) : row_start(first));
        }
        const bool by_rows = longest != Longest::LowColumns && longest != Longest::HighColumns;
        return per_group * rows * groups(by_rows ? tiles_n : tiles_m);
    }

  private:
    PACKEDTRI_HD constexpr bool exists(int i, int j) const {
        return i < tiles_m && j < tiles_n && (!(lower || trapezoid) || j <= i);
    }

    PACKEDTRI_HD static constexpr int group_row(int64_t index) {
        return static_cast<int>(row_of(index));
    }
#if defined(__CUDA_ARCH__)
    // No memory holds a triangle of 2^30 groups.
    __device__ static int group_row(int index) { return row_of_small(index); }
#endif

    // Short of a division where there is nothing to divide by.
    template <class Index>
    PACKEDTRI_HD constexpr int groups_of(int tiles) const {
        return sizeof(Index) == 4 && group == 1 ? tiles : groups(tiles);
    }

    template <class Index>
    PACKEDTRI_HD constexpr Tile lower_group(Index index) const {
        const int last = groups_of<Index>(tiles_m) - 1;
        if (longest == Longest::HighRows || longest == Longest::LowColumns)
            index = row_start<Index>(last + 1) - 1 - index;
        const int r = group_row(index), s = static_cast<int>(index - row_start<Index>(r));
        switch (longest) {
            case Longest::FarFromDiagonal: return {s + last - r, s, true};
            case Longest::LowColumns:
            case Longest::HighColumns: return {last - s, last - r, true};
            default: return {r, s, true};
        }
    }

    template <class Index>
    PACKEDTRI_HD constexpr Tile dense_group(Index index) const {
        const int gm = groups_of<Index>(tiles_m), gn = groups_of<Index>(tiles_n);
        if (longest == Longest::LowColumns || longest == Longest::HighColumns) {
            const int j = static_cast<int>(index / gm), i = static_cast<int>(index % gm);
            return {i, longest == Longest::LowColumns ? j : gn - 1 - j, true};
        }
        const int i = static_cast<int>(index / gn), j = static_cast<int>(index % gn);
        return {longest == Longest::HighRows ? gm - 1 - i : i, j, true};
    }
};

// The order that starts the longest sums of a product first (see krange.h for the lengths). `lower`: only tiles on and
// below the diagonal are computed.
constexpr Schedule::Longest longest_first(Kind a, Kind b, bool lower) {
    using Longest = Schedule::Longest;
    if (!is_triangular(a) && !is_triangular(b)) return Longest::All;
    if (lower && a == Kind::Lower && b == Kind::Lower) return Longest::FarFromDiagonal;
    if (a == Kind::Upper) return Longest::LowRows;
    if (b == Kind::Upper) return Longest::HighColumns;
    if (b == Kind::Lower) return Longest::LowColumns;
    return a == Kind::Lower ? Longest::HighRows : Longest::LowRows;
}

// The order of a product's tiles of `rows` x `cols`, which differ for dense results only.
inline Schedule schedule_of(const Product& p, int64_t rows, int64_t cols, int group) {
    const bool trapezoid = p.c.kind == Kind::Lower, lower = trapezoid && p.m == p.n;
    return {static_cast<int>(ceil_div(p.m, rows)),
            static_cast<int>(ceil_div(p.n, cols)),
            group,
            lower,
            longest_first(p.a.kind, p.b.kind, lower),
            trapezoid};
}
inline Schedule schedule_of(const Product& p, int64_t side, int group) {
    return schedule_of(p, side, side, group);
}

}  // namespace packedtri::cuda
