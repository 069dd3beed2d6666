// What the engine's blocks of threads have to do, as pure functions: which tile or part of one, which
// steps of its sum, which image blocks at each step. Free of CUDA, so that a host test can compare
// them with the definitions.
#pragma once

#include "../krange.h"
#include "image.h"
#include "part_work.h"
#include "schedule.h"

namespace packedtri::cuda {

// Which block of threads has stored what of a result, and what it has left to be computed from stored elements
// (EngineStored). A word is for 8 rows, half of those of a warp, of a tile of 128 x 128. The words of a tile lie one after
// another, tiles by rows.
struct Marks {
    static constexpr int SIDE = 128, ROWS = 8, OF_TILE = SIDE / ROWS;

    PACKEDTRI_HD static constexpr int tiles(int size) { return (size + SIDE - 1) / SIDE; }
    // Zero stands for neither.
    PACKEDTRI_HD static constexpr int left_by(unsigned block) {
        return 1 + static_cast<int>(block);
    }
    PACKEDTRI_HD static constexpr int stored_by(unsigned block) { return -left_by(block); }
    // Of a result of m x n.
    PACKEDTRI_HD static constexpr int count(int m, int n) { return tiles(m) * tiles(n) * OF_TILE; }
};

// A tile of the result of one of the products of a launch, or where `share` is positive a part of its sum:
// part share - 1. Travels as one word.
struct EngineItem {
    static constexpr int64_t NONE = -1;  // Instead of an item, it ends the work.
    static constexpr int MOST_MATRICES = 1 << 15;
    int i, j, share;
    int product = 0;
    int matrix = 0;  // Of the batch.

    PACKEDTRI_HD constexpr int64_t word() const {
        return int64_t{matrix} << 48 | int64_t{product} << 40 | int64_t{share} << 32 |
               int64_t{i} << 16 | j;
    }
    PACKEDTRI_HD static constexpr EngineItem of(int64_t word) {
        return {static_cast<int>(word >> 16 & 0xffff), static_cast<int>(word & 0xffff),
                static_cast<int>(word >> 32 & 0xff), static_cast<int>(word >> 40 & 0xff),
                static_cast<int>(word >> 48)};
    }
};

// The same of a launch that cuts sums, which computes one product of one matrix. Its steps are blocks of images.
struct EnginePiece {
    static constexpr int product = 0, matrix = 0;
    PartWork::Piece piece;

    // `i` and `j` have 10 bits, what is told of parts 5 and 5, and places 13 and 13.
    static constexpr int MOST_TILES = 1 << 10, MOST_PARTS = (1 << 5) - 1, MOST_PLACES = 1 << 13;
    PACKEDTRI_HD constexpr int64_t word() const {
        return int64_t{piece.last} << 43 | int64_t{piece.first} << 30 | int64_t{piece.parts} << 25 |
               int64_t{piece.part} << 20 | int64_t{piece.i} << 10 | piece.j;
    }
    // Without the steps, which follow from what the word has.
    PACKEDTRI_HD static constexpr EnginePiece of(int64_t word) {
        const auto bits = [&](int first, int count) {
            return static_cast<int>(word >> first & ((1 << count) - 1));
        };
        EnginePiece item{};
        item.piece.j = bits(0, 10);
        item.piece.i = bits(10, 10);
        item.piece.part = bits(20, 5);
        item.piece.parts = bits(25, 5);
        item.piece.first = bits(30, 13);
        item.piece.last = bits(43, 13);
        return item;
    }
};

// Words that the blocks of threads of a launch count with.
struct EngineCounters {
    // How many items have been drawn that blocks have alone; of the lines of scaled images (EngineChecker), how many have
    // been drawn, how many looked at, and whether any of these has lost too much; and whether anything is left to a
    // launch of EngineStored.
    static constexpr int ITEMS = 0, LINES = 1, CHECKED = 2, LOSSY = 3, LEFT = 4, COUNT = 5;
};

// In which order the items of the matrices of a batch come: of each the longest sums first, and those of
// `group` matrices in turn, so that the longest of all these are first. The last `tail` of each come behind those of
// all groups.
struct BatchOrder {
    int matrices, group;
    int each, all;  // How many items there are.
    int tail = 0;

    struct Place {
        int matrix, number;  // The latter within the matrix.
    };
    // Of a number below `all`. Divisions take long, and most products are alone.
    PACKEDTRI_HD constexpr Place at(int number) const {
        if (matrices == 1) return {0, number};
        const int early = each - tail, late = number - matrices * early;
        if (late >= 0) return {late % matrices, early + late / matrices};
        const auto x = static_cast<unsigned>(number),
                   of_group = static_cast<unsigned>(group * early);
        const unsigned first = x / of_group * static_cast<unsigned>(group),
                       left = static_cast<unsigned>(matrices) - first,
                       turns = left < static_cast<unsigned>(group) ? left : group;
        const unsigned within = x - first * static_cast<unsigned>(early);
        return {static_cast<int>(first + within % turns), static_cast<int>(within / turns)};
    }
};

// So many matrices take turns that there are `items` of a group.
constexpr BatchOrder batch_order(int matrices, int each, int items, int tail = 0) {
    const int early = each - tail, group = early == 0 ? 1 : (items + early - 1) / early;
    return {matrices, group < matrices ? group : matrices, each, matrices * each, tail};
}

// The items of a product. The first shared_tiles of the schedule are computed by `split` blocks each, which
// form a cluster: a part of the sum a block. The others are numbered from 0 on.
struct EngineWork {
    Schedule schedule;
    int split, shared_tiles;
    int cut = 0;     // Of launches that cut sums, how many steps a part has (PartWork).
    int halved = 0;  // 1 where each tile of the schedule is two, one above the other.

    // How many tiles blocks have alone.
    PACKEDTRI_HD constexpr int64_t size() const {
        return (schedule.size() << halved) - shared_tiles;
    }

    // Some tiles fall into gaps of the schedule, and numbers behind the last have none: their item does not
    // exist.
    PACKEDTRI_HD constexpr EngineItem alone(int number, bool& exists) const {
        exists = number < size();
        return exists ? item(shared_tiles + number, 0, exists) : EngineItem{};
    }
    PACKEDTRI_HD constexpr EngineItem shared(int tile, int part, bool& exists) const {
        exists = tile < shared_tiles;
        return exists ? item(tile, 1 + part, exists) : EngineItem{};
    }

    PACKEDTRI_HD constexpr int parts(const EngineItem& item) const {
        return item.share > 0 ? split : 1;
    }
    PACKEDTRI_HD static constexpr int part(const EngineItem& item) {
        return item.share > 0 ? item.share - 1 : 0;
    }

  private:
    PACKEDTRI_HD constexpr EngineItem item(int number, int share, bool& exists) const {
        const Schedule::Tile tile = schedule.at(number >> halved);
        exists = tile.exists;
        return {tile.i << halved | (number & halved), tile.j, share};
    }
};

// What blocks begin with, which are `groups` of `sharers`: each group with the first shared tile of its own, which are
// every so manieth, and where there is none each block with the next of the others. Returns how many of these are dealt.
// `items` tells how many there are of both, and which is of what number.
template <class Items>
int deal_first(const Items& items, int groups, int sharers, int64_t* first) {
    int dealt = 0;
    for (int g = 0; g < groups; ++g) {
        int64_t* const of_group = first + g * sharers;
        int tile = g;
        while (tile < items.shared_items() && items.shared_item(tile, 0) == EngineItem::NONE)
            tile += groups;
        const bool shares = tile < items.shared_items();
        for (int part = 0; part < sharers; ++part) {
            int64_t& word = of_group[part] = EngineItem::NONE;
            if (shares) word = items.shared_item(tile, part);
            while (!shares && word == EngineItem::NONE && dealt < items.lone_items())
                word = items.lone_item(dealt++);
        }
    }
    return dealt;
}

// How the rows of memory of an operand run that the engine reads: across the sum, or along it. In the image of half a
// symmetric matrix a line, a row of blocks of A or a column of those of B, is read along up to the end of the large square
// on the diagonal, and across it behind that.
struct Run {
    Kind kind;
    bool across;  // Where they turn, behind that.
    bool turns;

    // From which step on they run across the sum.
    PACKEDTRI_HD constexpr int turn(int line) const {
        if (turns) return ((line >> Image::LARGE) + 1) << Image::LARGE;
        return across ? 0 : NEVER;
    }
    static constexpr int NEVER = 1 << 30;
};

// What one block of threads does for an item, in image blocks. Its tile has ROWS x COLS of them; the
// blocks of a cluster have theirs one above the other.
template <int ROWS, int COLS, int CLUSTER>
struct EngineTile {
    static_assert(ROWS * CLUSTER <= 1 << Image::LARGE && COLS <= 1 << Image::LARGE,
                  "all lines of a tile turn at the same step");
    Kind a, b;
    // From which steps on the rows of memory of either run across the sum (Run), for all lines of the tile.
    int a_turn, b_turn;
    bool ascending;  // Whether columns of blocks lie in a stage in their order.
    int i0, j0;      // The first block of its rows and columns.
    int columns;     // How many columns of blocks exist.
    int k0, k1;

    PACKEDTRI_HD constexpr EngineTile(Run a, Run b, const EngineWork& work, const EngineItem& item,
                                      int rank, int n_blocks, int k_blocks)
        : EngineTile(a, b, item.i, item.j, rank, n_blocks, k_blocks) {
        // Without divisions where there is nothing to divide, tiles begin sooner.
        if (item.share > 0) {
            const int begin = k0, steps = k1 - k0;
            k0 = begin + steps * work.part(item) / work.split;
            k1 = begin + steps * (work.part(item) + 1) / work.split;
        }
    }
    PACKEDTRI_HD constexpr EngineTile(Run a, Run b, const EngineWork& work, const EnginePiece& item,
                                      int rank, int n_blocks, int k_blocks)
        : EngineTile(a, b, item.piece.i, item.piece.j, rank, n_blocks, k_blocks) {
        const int begin = k0 + item.piece.part * work.cut;
        if (item.piece.part < item.piece.parts - 1) k1 = begin + work.cut;
        k0 = begin;
    }

    // A tile whose sum is empty, or a part of one, passes the stages once all the same.
    PACKEDTRI_HD constexpr int end() const { return k1 > k0 ? k1 : k0 + 1; }
    // Up to which step all rows of memory run as they do at k.
    PACKEDTRI_HD constexpr int straight_until(int k) const {
        int until = end();
        if (a_turn > k && a_turn < until) until = a_turn;
        if (b_turn > k && b_turn < until) until = b_turn;
        return until;
    }

    // Columns of blocks lie in a stage in this order: so that those with a structural zero at k, left
    // of the diagonal or right of it, are the last, and the tensor cores leave them out.
    PACKEDTRI_HD static constexpr int column_at(int place, bool ascending) {
        return ascending ? place : COLS - 1 - place;
    }
    // How many of the last places have no block of B at k. Where columns descend, places for those
    // past the edge of the matrix are filled with the last column.
    PACKEDTRI_HD constexpr int missing_columns(int k) const {
        if (k >= k1) return COLS;
        if (!ascending) return b == Kind::Upper && k > j0 ? k - j0 : 0;
        return COLS - (b == Kind::Lower && k - j0 + 1 < columns ? k - j0 + 1 : columns);
    }
    // The steps that need all rows of A and all columns of B, where `rows` of the former exist.
    PACKEDTRI_HD constexpr KRange whole(int rows) const {
        int begin = k0, end = rows == ROWS && (columns == COLS || !ascending) ? k1 : k0;
        if (a == Kind::Lower && end > i0 + 1) end = i0 + 1;
        if (a == Kind::Upper && begin < i0 + ROWS - 1) begin = i0 + ROWS - 1;
        if (b == Kind::Lower && begin < j0 + COLS - 1) begin = j0 + COLS - 1;
        if (b == Kind::Upper && end > j0 + 1) end = j0 + 1;
        return {begin, end};
    }
    PACKEDTRI_HD constexpr bool needs_row(int row, int k) const {
        return k < k1 && !(a == Kind::Lower && k > i0 + row) && !(a == Kind::Upper && k < i0 + row);
    }

  private:
    // With the whole sum.
    PACKEDTRI_HD constexpr EngineTile(Run a, Run b, int i, int j, int rank, int n_blocks,
                                      int k_blocks)
        : a(a.kind), b(b.kind), a_turn(a.turn(i * ROWS * CLUSTER)), b_turn(b.turn(j * COLS)),
          ascending(b.across), i0(i * ROWS * CLUSTER + rank * ROWS), j0(j * COLS),
          columns(n_blocks - j0 < COLS ? n_blocks - j0 : COLS), k0(0), k1(0) {
        // In 32 bits.
        const int first = i * ROWS * CLUSTER;
        const auto range =
            k_range<int>(this->a, this->b, first, first + ROWS * CLUSTER, j0, j0 + COLS, k_blocks);
        k0 = range.begin;
        k1 = range.begin + range.length();
    }
};

}  // namespace packedtri::cuda
