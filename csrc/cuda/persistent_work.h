// What the blocks of persistent.cuh have to do, as a pure function of the product: which tiles, and which parts of the
// sums of others. Free of CUDA, so that a host test can check that every part comes exactly once.
#pragma once

#include <algorithm>
#include <stdexcept>

#include "schedule.h"

namespace packedtri::cuda {

// The items that blocks draw, in the order of the schedule: the tiles of a batch one after another for each index of
// it, and the parts of a tile's sum one after another.
struct PersistentWork {
    static constexpr int MOST_PARTS = 8;

    // Tiles from number `tile` on are cut into `parts` each, the first of which is item number `first`.
    struct Run {
        int parts, tile, first;
    };
    Run runs[MOST_PARTS];
    int run_count;
    int items;
    // Those that are parts of a sum follow one another.
    int first_part, part_count;

    // Part `part` of `parts` of the sum of tile number `tile`, the first of which is item `first`.
    struct Item {
        int tile, first, part, parts;
    };
    PACKEDTRI_HD constexpr Item at(int number) const {
        int r = 0;
        while (r + 1 < run_count && number >= runs[r + 1].first) ++r;
        const int within = number - runs[r].first, parts = runs[r].parts, part = within % parts;
        return {runs[r].tile + within / parts, number - part, part, parts};
    }
};

// How many tiles come last that do not fill a round of all multiprocessors, where all sums are equally long.
constexpr int64_t left_over(const Schedule& schedule, int64_t batch, int multiprocessors) {
    return schedule.size() * batch % multiprocessors;
}

// `longest`: of how many tiles the longest sum is. Those of at least `above` are cut into parts that are shorter, but
// into no more than `most`. Where all are equally long, those of the tiles that are left over are cut into `most`.
inline PersistentWork persistent_work(const Schedule& schedule, int64_t batch, int longest,
                                      int most, int above, int multiprocessors) {
    PersistentWork work{};
    int64_t tile = 0, item = 0;
    const auto run_until = [&](int64_t end, int parts) {
        if (end <= tile) return;
        const int64_t count = (end - tile) * parts;
        if (item + count > INT32_MAX / 2)
            throw std::runtime_error("[packedtri] the batch is too large for one launch");
        work.runs[work.run_count++] = {parts, static_cast<int>(tile), static_cast<int>(item)};
        if (parts > 1) {
            if (work.part_count == 0) work.first_part = static_cast<int>(item);
            work.part_count += static_cast<int>(count);
        }
        item += count;
        tile = end;
    };
    const int64_t all = schedule.size() * batch;
    most = std::min(most, PersistentWork::MOST_PARTS);
    if (schedule.longest == Schedule::Longest::All) {
        run_until(all - left_over(schedule, batch, multiprocessors), 1);
        run_until(all, most);
    } else {
        for (int parts = most; parts > 1; --parts)
            run_until(schedule.count_long(longest, (parts - 1) * (above - 1) + 1) * batch, parts);
        run_until(all, 1);
    }
    work.items = static_cast<int>(item);
    return work;
}

}  // namespace packedtri::cuda
