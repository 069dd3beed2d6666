// How a triangle is cut into tiles for a hundred vectors or so, and who adds up which of them.
#include "cuda/wide_units.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "check.h"
#include "cuda/unit_shares.h"

using namespace packedtri;
using namespace packedtri::cuda;

// Groups follow one another, and those of an element have the tiles along its row, or down its column.
void groups_in_order(WideUnits units) {
    int64_t unit = 0;
    for (int group = 0; group < units.all_groups(); ++group) {
        CHECK(units.before(group) == unit, "group %d", group);
        const int first = units.first(group) / WIDE_SIDE;
        CHECK(units.tiles(group) == (units.is_of_rows(group) ? first + 1 : units.groups - first),
              "group %d", group);
        for (const int i : {units.first(group), units.first(group) + WIDE_SIDE - 1})
            CHECK(group == (units.is_of_rows(group) ? units.row_group(i) : units.column_group(i)),
                  "element %d", i);
        unit += units.tiles(group);
    }
    CHECK(units.all() == unit, "%d groups", units.groups);
}

// A block and a group give another number for each pair of them that have a unit in common, below the number of sums.
void places_of_sums(WideUnits units, int64_t matrices, int64_t most_blocks) {
    const int64_t all = units.all() * matrices, blocks = std::min(all, most_blocks);
    std::vector<int> taken(static_cast<size_t>(wide_sums(units, matrices, blocks) / WIDE_SIDE));
    for (int64_t matrix = 0; matrix < matrices; ++matrix)
        for (int group = 0; group < units.all_groups(); ++group) {
            const int64_t first = matrix * units.all() + units.before(group),
                          last = first + units.tiles(group) - 1;
            for (int64_t block = block_of_unit(first, blocks, all);
                 block <= block_of_unit(last, blocks, all); ++block) {
                const int64_t place = block + matrix * units.all_groups() + group;
                CHECK(place < static_cast<int64_t>(taken.size()), "block %d", (int)block);
                CHECK(taken[static_cast<size_t>(place)]++ == 0, "block %d, group %d", (int)block,
                      group);
            }
        }
}

int main() {
    for (int groups : {1, 2, 3, 64, 1000})
        for (const auto& [rows, columns] : {std::pair{true, false}, {false, true}, {true, true}}) {
            const WideUnits units{groups, rows, columns};
            groups_in_order(units);
            for (int64_t matrices : {1, 3})
                for (int64_t blocks : {1, 7, 132}) places_of_sums(units, matrices, blocks);
        }
    std::puts("wide units: ok");
}
