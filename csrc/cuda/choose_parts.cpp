// Into how long parts sums are cut, where blocks go from one tile to the next (part_work.h).
#include <algorithm>
#include <cmath>
#include <limits>

#include "choice.h"
#include "part_work.h"

namespace packedtri::cuda {
namespace {

// What is added to the time of a launch for each part of a sum, of what an item costs.
constexpr double ADDING = 0.45;

// Sums are cut where that takes less than so much of the time, by an estimate.
constexpr double PAYS = 0.97;

// So many items that take so many steps each.
struct Items {
    int64_t count;
    int steps;
};

// How many steps a launch takes, if blocks draw these items, the longest first: no less than the longest, nor than
// `slots` blocks need for all of them, nor than a block that has two, or three, of those that are so many.
double estimate(Items* items, int kinds, int64_t slots, const PartCosts& costs) {
    std::sort(items, items + kinds,
              [](const Items& a, const Items& b) { return a.steps > b.steps; });
    double all = 0, time = items[0].steps + costs.item;
    int64_t count = 0, rounds = 1;
    for (int x = 0; x < kinds; ++x) {
        const double each = items[x].steps + costs.item;
        all += static_cast<double>(items[x].count) * each;
        count += items[x].count;
        for (; rounds <= 4 && count > rounds * slots; ++rounds)
            time = std::max(time, static_cast<double>(rounds + 1) * each);
    }
    return std::max(time, all / static_cast<double>(slots) / costs.fill);
}

double adding(const SumCut& cut, const PartCosts& costs) {
    return cut.before > 0 ? ADDING * costs.item * (cut.before + 1) : 0;
}

// The same for sums that are cut into parts of `part` steps.
double estimate(const SumGroup* groups, int count, int part, int64_t slots,
                const PartCosts& costs) {
    Items items[PartWork::MOST_GROUPS + 1];
    int64_t parts = 0;
    double most = 0;
    for (int g = 0; g < count; ++g) {
        const SumCut cut(groups[g].steps, part);
        parts += cut.before * groups[g].tiles();
        most = std::max(most, adding(cut, costs));
        items[g] = {groups[g].tiles(), cut.last};
    }
    if (parts == 0) return estimate(items, count, slots, costs);
    items[count] = {parts, part};
    return estimate(items, count + 1, slots, costs) + most;
}

// The same for equally long sums, fewer than there are slots: those that have no other part get last parts one after
// another; if there are too many of these, some come behind all that was before.
double estimate_equal(int64_t tiles, int steps, int part, int64_t slots, const PartCosts& costs) {
    const SumCut cut(steps, part);
    const int64_t free = slots - tiles * cut.before;
    if (free < 0) return std::numeric_limits<double>::infinity();
    if (cut.before == 0) return steps + costs.item;
    const double longer = part + costs.item, last = cut.last + costs.item;
    const auto each = static_cast<int64_t>(longer / last);
    const double time = free * each < tiles
                            ? longer + last
                            : std::max(longer, static_cast<double>(ceil_div(tiles, free)) * last);
    return time + adding(cut, costs);
}

// Of equally long sums, of which only those of the last group are cut, if it does not fill a round.
PartChoice parts_of_rest(const SumGroup& rest, int64_t slots, const PartCosts& costs) {
    const int steps = rest.steps;
    const double whole = steps + costs.item,
                 rounds = static_cast<double>(rest.tile / slots) * whole,
                 uncut = rounds + static_cast<double>(ceil_div(rest.tiles(), slots)) * whole;
    if (rest.whole) return {0, uncut};
    int best = 0;
    double least = std::min(PAYS * uncut, rounds + costs.last_round * whole);
    const int stride = std::max(1, steps / 256);
    for (int part = std::max(2, static_cast<int>(ceil_div(steps, PartWork::MOST_PARTS)));
         part + PartWork::LEAST <= steps; part += stride) {
        const double time = rounds + estimate_equal(rest.tiles(), steps, part, slots, costs);
        if (time >= least) continue;
        least = time;
        best = part;
    }
    return {best, best > 0 ? least : uncut};
}

}  // namespace

PartChoice choose_parts(const Product& p, int64_t side, int64_t slots, const PartCosts& costs) {
    slots = std::max<int64_t>(slots, 1);
    SumGroup groups[PartWork::MOST_GROUPS];
    const int count = sum_groups(groups, p, side, slots);
    if (count == 0) return {0, 0};
    if (triangles(p) == 0) return parts_of_rest(groups[count - 1], slots, costs);
    const auto time = [&](int part) { return estimate(groups, count, part, slots, costs); };
    const double uncut = time(std::numeric_limits<int>::max());
    if (!sums_shrink(p)) return {0, uncut};
    int64_t all = 0, longest = 0;
    for (int g = 0; g < count; ++g) {
        all += groups[g].tiles() * groups[g].steps;
        longest = std::max<int64_t>(longest, groups[g].steps);
    }
    const double share = static_cast<double>(all) / static_cast<double>(slots);
    const auto least = std::max<int64_t>(static_cast<int64_t>(std::ceil(costs.part * share)),
                                         ceil_div(longest, PartWork::MOST_PARTS));
    // All sums of a group have as many parts then. Else the last parts of some would be the longest, and drawn at last.
    const int64_t together = lengths_together(p, side),
                  multiple = together > 1 ? together * PartWork::TILE : 1,
                  steps = ceil_div(least, multiple) * multiple;
    if (steps + PartWork::LEAST > longest) return {0, uncut};
    const auto part = static_cast<int>(steps);
    const double cut = time(part);
    return cut < PAYS * uncut ? PartChoice{part, cut} : PartChoice{0, uncut};
}

}  // namespace packedtri::cuda
