// What blocks have to do that draw tiles, and parts of the sums of some, as a pure function of the product. Free of CUDA, so
// that a host test can check that every part comes exactly once.
#pragma once

#include <algorithm>
#include <stdexcept>

#include "../krange.h"
#include "schedule.h"

namespace packedtri::cuda {

// The items that blocks draw, the longest first: one for each tile, or for the last part of its sum, and others for
// the parts before, which are equally long. The matrices of a batch take turns: tile `index * batch + matrix`.
//
// Sums are counted in steps of k, of which the side of a tile has four.
struct PartWork {
    static constexpr int TILE = 4;
    // Steps that a last part has at least, but where a matrix ends.
    static constexpr int LEAST = 3;
    // Of a sum. More would take long to add up.
    static constexpr int MOST_PARTS = 12;

    // Where sums are longest of a dense result, and so which tiles come first: those of a product of two triangles in
    // the last or the first row and column, then those in the next ones. `No`: the schedule tells.
    enum class Corner : int8_t { No, Last, First };
    Corner corner;
    int part;  // How many steps all parts of a sum have but the last one.

    // Tiles from number `tile` on, whose sums are about equally long: how many parts these have before the last one, and
    // the first item that is one of those.
    struct Group {
        int tile, before, first;
    };
    static constexpr int MOST_GROUPS = 48;
    Group groups[MOST_GROUPS];
    // Groups in the order of their last parts, and the first item that is one.
    struct Lasts {
        int group, first;
    };
    Lasts lasts[MOST_GROUPS];
    int group_count;
    int items;
    // Parts but the last follow one another. Each has a place in memory, and the last ones of tiles that are cut, which
    // follow one another too, have theirs behind.
    int first_part, parts_before;
    int first_cut, end_cut;

    // What is done for an item: steps of the sum of a tile, of a matrix of the batch.
    struct Piece {
        int i, j, matrix;
        int begin, end;   // Steps.
        int part, parts;  // Of the sum.
        int first, last;  // Places of the first part and of the last one.
        PACKEDTRI_HD constexpr int place(int x) const { return x < parts - 1 ? first + x : last; }
    };
    // Of a product of these kinds whose longest sum takes `steps`. False where there is nothing to do.
    PACKEDTRI_HD constexpr bool find(int number, const Schedule& schedule, int batch, Kind a,
                                     Kind b, int steps, Piece& piece) const {
        const Item item = at(number);
        const Schedule::Tile tile = tile_at(schedule, item.tile / batch);
        if (!tile.exists) return false;
        const auto range = k_range<int>(a, b, tile.i * TILE, (tile.i + 1) * TILE, tile.j * TILE,
                                        (tile.j + 1) * TILE, steps);
        piece.parts = parts(item, range.length());
        if (!item.last && item.part >= piece.parts - 1) return false;
        piece.i = tile.i;
        piece.j = tile.j;
        piece.matrix = item.tile % batch;
        piece.part = item.last ? piece.parts - 1 : item.part;
        piece.begin = range.begin + piece.part * part;
        piece.end = item.last ? range.begin + range.length() : piece.begin + part;
        // Whole sums have none.
        piece.first = piece.parts > 1 ? item.first_place : 0;
        piece.last = piece.parts > 1 ? parts_before + item.tile - first_cut : 0;
        return true;
    }
    PACKEDTRI_HD constexpr int places() const { return parts_before + end_cut - first_cut; }

  private:
    // Part number `part` of the sum of tile number `tile`, or the last one. Where the sum is shorter than others of its
    // group there may be no such part.
    struct Item {
        int tile, part;
        bool last;
        int before;       // How many parts there are before the last one.
        int first_place;  // Of the parts.
    };
    PACKEDTRI_HD constexpr Item at(int number) const {
        const int before_last = number - first_part;
        if (before_last >= 0 && before_last < parts_before) {
            int g = group_count - 1;
            while (groups[g].before == 0 || number < groups[g].first) --g;
            const Group& group = groups[g];
            const int within = number - group.first, tile = within / group.before,
                      part = within - tile * group.before;
            return {group.tile + tile, part, false, group.before, before_last - part};
        }
        int l = group_count - 1;
        while (number < lasts[l].first) --l;
        const Group& group = groups[lasts[l].group];
        const int within = number - lasts[l].first;
        return {group.tile + within, group.before, true, group.before,
                group.first - first_part + within * group.before};
    }
    // The tile of this index, of a matrix.
    PACKEDTRI_HD constexpr Schedule::Tile tile_at(const Schedule& schedule, int index) const {
        if (corner == Corner::No) return schedule.at(int64_t{index});
        int side = 0;  // Of the square of tiles that come before this one's row and column.
        while ((side + 1) * (side + 1) <= index) ++side;
        const int within = index - side * side;
        const int i = within <= side ? side : within - side - 1, j = within <= side ? within : side;
        if (corner == Corner::First) return {i, j, true};
        return {schedule.tiles_m - 1 - i, schedule.tiles_m - 1 - j, true};
    }

    // How many parts there are of a sum of so many steps, which may be fewer than others of the group have.
    PACKEDTRI_HD constexpr int parts(const Item& item, int steps) const {
        const int needed = (steps + part - 1) / part;
        return needed > item.before ? item.before + 1 : (needed > 1 ? needed : 1);
    }
};

// Of two triangles of different kinds.
inline PartWork::Corner corner_of(const Product& p) {
    using Corner = PartWork::Corner;
    if (p.c.kind == Kind::Lower || p.m != p.n || p.m != p.k) return Corner::No;
    if (p.a.kind == Kind::Lower && p.b.kind == Kind::Upper) return Corner::Last;
    return p.a.kind == Kind::Upper && p.b.kind == Kind::Lower ? Corner::First : Corner::No;
}

// Whether sums get shorter along the order of tiles, so that it pays to cut them: not of two triangles where tiles of the
// result have empty sums.
inline bool sums_shrink(const Product& p) {
    if (!is_triangular(p.a.kind) || !is_triangular(p.b.kind)) return true;
    return p.c.kind != Kind::Lower ? corner_of(p) != PartWork::Corner::No
                                   : p.a.kind != Kind::Upper || p.b.kind != Kind::Upper;
}

// How many tiles come last that do not fill a round of all slots, where all sums are equally long.
constexpr int64_t left_over(const Schedule& schedule, int64_t batch, int64_t slots) {
    return schedule.size() * batch % (slots > 1 ? slots : 1);
}

// Tiles whose sums are about equally long, as they come in a schedule. `whole`: they are not cut, since they fill rounds.
struct SumGroup {
    int64_t tile, end;
    int steps;
    bool whole = false;
    int64_t tiles() const { return end - tile; }
};

// How a sum of so many steps is cut.
struct SumCut {
    int before, last;  // Parts before the last one, and the steps of that.
    SumCut(int steps, int part)
        : before(steps > PartWork::LEAST ? (steps - PartWork::LEAST) / part : 0),
          last(steps - before * part) {}
};

// How many lengths of sums a group has where they differ: so many that there are few enough groups.
inline int lengths_together(const Product& p, int64_t side) {
    return static_cast<int>(ceil_div(ceil_div(p.k, side), PartWork::MOST_GROUPS - 1));
}

// All of them. Returns how many there are. Where sums differ groups end at multiples of `lengths_together`.
inline int sum_groups(SumGroup* groups, const Product& p, int64_t side, int64_t slots) {
    const Schedule schedule = schedule_of(p, side, 1);
    const int64_t all = schedule.size() * p.batch, step = side / PartWork::TILE;
    const auto longest = static_cast<int>(ceil_div(p.k, side)),
               steps = static_cast<int>(ceil_div(p.k, step));
    int count = 0;
    const auto until = [&](int64_t end, int steps, bool whole = false) {
        const int64_t tile = count > 0 ? groups[count - 1].end : 0;
        if (end > tile) groups[count++] = {tile, end, steps, whole};
    };
    if (schedule.longest == Schedule::Longest::All) {
        until(all - left_over(schedule, p.batch, slots), steps, true);
        until(all, steps);
        return count;
    }
    // Sums that end with the matrix all lack what its last tile lacks.
    const bool to_end = p.a.kind != Kind::Lower && p.b.kind != Kind::Upper;
    const int missing = longest * PartWork::TILE - steps;
    const int together = lengths_together(p, side);
    // How many tiles have sums of at least this length.
    const auto longer = [&](int64_t length) {
        if (corner_of(p) == PartWork::Corner::No)
            return schedule.count_long(longest, static_cast<int>(length));
        return (longest + 1 - length) * (longest + 1 - length);
    };
    for (int length = longest; length > 0;) {
        const int next = (length - 1) / together * together;
        until(std::min(all, longer(next + 1) * p.batch),
              std::min(steps, length * PartWork::TILE - (to_end ? missing : 0)));
        length = next;
    }
    until(all, 0);
    return count;
}

// The work of a product whose tiles have this side, for so many blocks at once. Sums are cut into parts of `part` steps,
// unless it is zero; where all are equally long, those of the tiles that are left over.
inline PartWork part_work(const Product& p, int64_t side, int part, int64_t slots) {
    const int64_t all = schedule_of(p, side, 1).size() * p.batch;
    if (all > INT32_MAX / 4)
        throw std::runtime_error("[packedtri] the batch is too large for one launch");
    PartWork work{};
    work.corner = corner_of(p);
    work.part = part > 0 ? part : INT32_MAX / 2;
    SumGroup sums[PartWork::MOST_GROUPS];
    int count = 1;
    if (part > 0) count = sum_groups(sums, p, side, slots);
    else sums[0] = {0, all, 0, true};

    int last[PartWork::MOST_GROUPS];  // How many steps the last part has.
    int64_t parts = 0;
    for (int g = 0; g < count; ++g) {
        const auto [tile, end, steps, whole] = sums[g];
        const auto [before, rest] = SumCut(steps, whole ? INT32_MAX : part);
        if (before > 0 && parts == 0) work.first_cut = static_cast<int>(tile);
        if (before > 0) work.end_cut = static_cast<int>(end);
        work.groups[g] = {static_cast<int>(tile), before, static_cast<int>(parts)};
        last[g] = rest;
        parts += before * (end - tile);
        work.lasts[g].group = g;
    }
    if (all + parts > INT32_MAX / 2)
        throw std::runtime_error("[packedtri] the batch is too large for one launch");
    work.group_count = count;
    work.items = static_cast<int>(all + parts);
    work.parts_before = static_cast<int>(parts);

    std::stable_sort(work.lasts, work.lasts + count,
                     [&](const auto& a, const auto& b) { return last[a.group] > last[b.group]; });
    int64_t item = 0;
    bool behind = false;  // Whether what follows comes behind the parts before the last.
    for (int l = 0; l < count; ++l) {
        const int g = work.lasts[l].group;
        if (!behind && last[g] < part) {
            work.first_part = static_cast<int>(item);
            item += parts;
            behind = true;
        }
        work.lasts[l].first = static_cast<int>(item);
        item += sums[g].tiles();
    }
    if (!behind) work.first_part = static_cast<int>(item);
    for (int g = 0; g < count; ++g) work.groups[g].first += work.first_part;
    return work;
}

}  // namespace packedtri::cuda
