// How many blocks share the sums of small direct tiles: by an estimate of how long a launch takes, in microseconds of an
// H100 or H200. docs/cuda.md says how well it tells what is fastest.
#include <algorithm>
#include <array>
#include <cmath>

#include "choice.h"

namespace packedtri::cuda {
namespace {

constexpr int SMALL_SIDE = tile_side(DType::f64, TileSize::Small);

// Fitted to timings of many shares of each product (benchmarks/shares).
struct SplitCosts {
    double start, by_two, by_four, by_eight;  // The last three where blocks meet.
    // A tile of a sum: of a block by itself; of all together on a multiprocessor, on the average, and of those that share
    // the one that is busiest.
    double alone, busy, stacked;
    // Where blocks share multiprocessors: of the longest part, and of each block, and what each keeps the longest waiting.
    double longest, item, beside;
    double later;   // Where not all run at once: of the longest part.
    double graded;  // Where sums are shared by various numbers of blocks.
    double crowd;   // Where each block has a multiprocessor: times the share of them that is taken.
    // Where blocks that share a multiprocessor have a kernel of their own (most_few), else zero: a tile of one of them,
    // instead of `alone`; what the first block takes that follows another, besides both; and where some more blocks than
    // there is room for follow those that share multiprocessors.
    double paired = 0, following = 0, waiting = 0;

    double meeting(int split) const {
        return split == 1 ? 0 : split == 2 ? by_two : split == 4 ? by_four : by_eight;
    }
};

SplitCosts split_costs(const Product& p) {
    if (p.tf32 && has_symmetric(p))
        return {3.09, 0.44, 0.52, 0.73, 1.16, 1.05, 0.79, -0.91, 1.90, 1.70, -0.02, -0.08, 0.78};
    if (p.tf32)
        return {1.80, 0.44, 0.51, 0.78, 0.77, 0.57, 0.71, -1.87, 1.66, 1.04, 0.23, 0.13, 0.57};
    switch (p.dtype) {
        case DType::f64:
            return {2.84, 0.31, 0.51, 0.84, 1.71, 1.93, 0.60, -0.86,
                    1.82, 1.12, 0.47, 0.03, 0.87, 2.99, 4.75, 1.47};
        case DType::f32:
            return {2.49, 0.56, 0.74, 1.34, 4.42, 1.74, 2.05, 0.35, 1.19, 0.78, 0.01, 0.22, 0.80};
        case DType::c64:
            return {3.27, 0.54, 0.34, 0.40, 9.87, 7.66, 8.91, -0.60, 1.98, 0.80, 3.20, 0.24, 0.22};
        case DType::c128: return {3.04, 1.42, 1.46, 1.80, 13.3, 11.1, 0, 0, 6.46, 0, 0, 0, 0};
        default:
            return {2.50, 0.42, 0.90, 1.20, 0.69, 0.36, 0.65, 0.38, 1.07, 0.72, 0.63, -0.08, 0.46};
    }
}

// Of tiles that are twice as long along a mapped operand.
constexpr SplitCosts WIDE_COSTS{1.84,  1.42, 1.74, 2.40,  0.67,  0.62, 0.53,
                                -0.98, 2.93, 2.61, -0.02, -0.32, 0.64};

// Sums are cut between steps of k.
constexpr int steps_of_tile(const Product& p) {
    switch (p.dtype) {
        case DType::f64: return 2;
        case DType::f32: return p.tf32 ? 1 : 4;
        case DType::c64:
        case DType::c128: return 8;
        default: return 1;
    }
}

class DirectSums {
  public:
    DirectSums(const Product& p, const Device& device, bool wide)
        : costs_(wide ? WIDE_COSTS : split_costs(p)), schedule_(schedule(p, wide)),
          differ_(schedule_.longest != Schedule::Longest::All), batch_(p.batch),
          longest_(static_cast<int>(ceil_div(p.k, SMALL_SIDE))),
          full_(static_cast<double>(p.k) / (SMALL_SIDE * longest_)),
          steps_of_tile_(steps_of_tile(p)),
          steps_(static_cast<int>(ceil_div(p.k * steps_of_tile_, SMALL_SIDE))), device_(device),
          together_(small_tiles_per_sm(p)) {
        for (int length = 1; length <= longest_; ++length) all_ += tiles(length);
    }

    SplitEstimate best(int most_split) {
        consider({1, longest_ + 1, 0}, blocks(1, longest_ + 1));
        for (int split = 2; split <= most_split; split *= 2) {
            // All sums, or as many of the longest as let all blocks have a multiprocessor, or a place on one.
            consider({split, 1, 0}, blocks(split, 1));
            // In 16-bit types and TF32, whose blocks meet quickly, those that are longer than the parts of the longest.
            if (const int above = (longest_ + split - 1) / split + 1;
                steps_of_tile_ == 1 && above <= longest_)
                consider({split, above, 0}, blocks(split, above));
            for_each_limit(split, [&](int64_t most) {
                for (int above = 2; above <= longest_; ++above)
                    if (const int64_t count = blocks(split, above); count <= most)
                        return consider({split, above, 0}, count);
            });
        }
        if (most_split >= 4 && differ_)
            for_each_limit(4, [&](int64_t most) {
                for (int half_tiles = (longest_ + 1) / 2; half_tiles <= longest_; ++half_tiles)
                    if (const int64_t count = graded_blocks(half_tiles); count <= most)
                        return consider(share_gradually(half_tiles), count);
            });
        return {best_, least_};
    }

  private:
    static Schedule schedule(const Product& p, bool wide) {
        const bool right = p.b.kind == Kind::Dense;
        const auto side = [&](bool dense) { return wide && dense ? 2 * SMALL_SIDE : SMALL_SIDE; };
        return schedule_of(p, side(!right), side(right), 1);
    }
    // Tiles of all matrices whose sums have so many tiles at least.
    int64_t tiles(int length) const {
        return std::min(schedule_.count_long(longest_, std::max(1, length)), schedule_.size()) *
               batch_;
    }
    // How many multiprocessors there are: as the costs were fitted with, and where each block is to have one for itself.
    int64_t slots(int split) const { return device_.usual(split); }
    int64_t apart(int split) const { return device_.usable(split); }
    // How many have the kernel for those that do not share one.
    int64_t few(int split) const {
        const int64_t count = apart(split);
        return costs_.paired > 0 ? split * most_few(count / split, differ_) : count;
    }
    // How many run at once, and as many as that and some more, the last and shortest, which wait for others.
    int64_t room(int split) const { return together_ * slots(split); }
    int64_t full(int split) const {
        return costs_.paired > 0 && split < 8 && differ_ ? room(split) * 13 / 12 : room(split);
    }
    template <class Consider>
    void for_each_limit(int split, Consider consider) const {
        int64_t last = 0;
        // Clusters of eight had better all run at once.
        const int64_t few = split < 8 ? this->few(split) : apart(split);
        for (const int64_t most : {apart(split), few, room(split), full(split)}) {
            if (most != last) consider(most);
            last = most;
        }
    }
    int64_t graded_blocks(int half_tiles) const {
        const int64_t by_four = tiles(graded_above(half_tiles, 4)),
                      by_three = tiles(graded_above(half_tiles, 3)) - by_four,
                      shared = tiles(graded_above(half_tiles, 2)),
                      by_two = shared - by_three - by_four,
                      alone = schedule_.size() * batch_ - shared;
        // Beside three blocks is one with a tile alone.
        return 4 * (by_four + by_three + ceil_div(by_two, 2) +
                    ceil_div(std::max<int64_t>(0, alone - by_three), 4));
    }
    int64_t blocks(int split, int above) const {
        const int64_t shared = tiles(above), alone = schedule_.size() * batch_ - shared;
        return shared * split + ceil_div(alone, split) * split;
    }

    // Sums from `least` tiles on, up to `end`, which `sharers` blocks share.
    struct Shared {
        int sharers, least, end;
    };
    std::array<Shared, 4> shares(const SplitChoice& x) const {
        const int by_three = x.graded > 0 ? graded_above(x.graded, 3) : x.above,
                  by_two = x.graded > 0 ? graded_above(x.graded, 2) : x.above;
        return {{{x.split, x.above, longest_ + 1},
                 {3, by_three, x.above},
                 {2, by_two, by_three},
                 {1, 1, by_two}}};
    }
    // How long the part of block number `rank` is, if they come by their lengths.
    double part(const SplitChoice& choice, int64_t rank) const {
        const auto all = shares(choice);
        // Blocks with parts of so many steps at least.
        const auto longer = [&](int steps) {
            int64_t count = 0;
            for (const Shared& x : all) {
                // The last tile of a sum may have fewer steps.
                if ((steps - 1) * x.sharers >= steps_) continue;
                const int least = std::max(x.least, (steps - 1) * x.sharers / steps_of_tile_ + 1);
                if (least < x.end) count += x.sharers * (tiles(least) - tiles(x.end));
            }
            return count;
        };
        int low = 0, high = steps_of_tile_ * longest_ + 1;
        while (high - low > 1) {
            const int middle = (low + high) / 2;
            (longer(middle) > rank ? low : high) = middle;
        }
        return static_cast<double>(low) / steps_of_tile_;
    }

    void consider(const SplitChoice& choice, int64_t count) {
        const int64_t slots = this->slots(choice.split), apart = this->apart(choice.split);
        int64_t layers = 1;
        if (count > few(choice.split)) {
            layers = std::max<int64_t>(2, ceil_div(count, slots));
            if (count <= full(choice.split))
                layers = std::min(layers, std::max<int64_t>(2, together_));
        }
        const double longest = part(choice, 0),
                     of_each = static_cast<double>(count) / static_cast<double>(slots),
                     work = costs_.busy * full_ * static_cast<double>(all_) /
                            static_cast<double>(slots);
        double time = (layers > 1 && costs_.paired > 0 ? costs_.paired : costs_.alone) * longest;
        if (layers == 1) {
            time += costs_.crowd * of_each;
            // The first that is done, the shortest of those that all run at once, makes room for the longest of the others.
            if (count > apart)
                time =
                    std::max(time, costs_.alone * (part(choice, apart - 1) + part(choice, apart)) +
                                       costs_.following);
        } else if (layers > together_) {
            time = std::max(time, work + costs_.later * longest + costs_.item * of_each);
        } else {
            double stack = longest;
            for (int64_t layer = 1; layer < layers; ++layer)
                stack += part(choice, layer * std::min(slots, apart));
            const double beside = costs_.beside * static_cast<double>(layers - 1);
            time = std::max({time + beside, work + costs_.longest * longest + costs_.item * of_each,
                             costs_.stacked * stack + beside});
            if (count > room(choice.split)) time += costs_.waiting;
        }
        time +=
            costs_.start + costs_.meeting(choice.split) + (choice.graded > 0 ? costs_.graded : 0);
        if (time >= least_) return;
        least_ = time;
        best_ = choice;
    }

    const SplitCosts costs_;
    const Schedule schedule_;
    const bool differ_;  // Whether sums are not all equally long.
    const int64_t batch_;
    const int longest_;
    const double full_;                // What part of the tiles of the longest sum there is.
    const int steps_of_tile_, steps_;  // Of a tile, and of the longest sum.
    const Device& device_;
    const int64_t together_;
    int64_t all_ = 0;  // Tiles of all sums.
    double least_ = 1e300;
    SplitChoice best_{1, 1, 0};
};

// By how many blocks sums are shared at most, whose parts have some steps of k each.
int most_split(const Product& p) {
    const int64_t steps = element_size(p.dtype) == 2 || p.tf32 ? 32
                          : p.dtype == DType::f64              ? 16
                                                               : 8;
    int most = 8;
    while (most > 1 && p.k / most < steps) most /= 2;
    return most;
}

}  // namespace

SplitEstimate split_direct_sums(const Product& p, const Device& device, bool wide) {
    return DirectSums(p, device, wide).best(most_split(p));
}

bool wide_tiles_win(const Product& p, const Device& device) {
    // The estimate of the others is from products of which no operand is mapped, and too long for triangles.
    const double least = has_symmetric(p) ? 0.9 : 0.8;
    return split_direct_sums(p, device, true).time < least * split_direct_sums(p, device).time;
}

}  // namespace packedtri::cuda
