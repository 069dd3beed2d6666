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
    double later;  // Where not all run at once: of the longest part.

    double meeting(int split) const {
        return split == 1 ? 0 : split == 2 ? by_two : split == 4 ? by_four : by_eight;
    }
};

SplitCosts costs_of(DType dtype) {
    switch (dtype) {
        case DType::f64: return {2.41, 0.69, 1.08, 1.57, 2.39, 1.57, 1.86, -0.49, 2.88, 1.90, 0.11};
        case DType::c64: return {3.27, 0.54, 0.65, 0.40, 7.36, 7.66, 7.81, -0.55, 1.46, 1.38, 2.94};
        case DType::c128: return {3.04, 1.42, 1.48, 1.80, 11.7, 15.4, 0, 0, 4.69, 0, 0};
        default: return {2.49, 0.83, 1.11, 1.09, 3.02, 1.97, 2.05, 0.60, 1.15, 1.07, 0.23};
    }
}

class DirectSums {
  public:
    DirectSums(const Product& p, const Device& device)
        : costs_(costs_of(p.dtype)), schedule_(schedule_of(p, SMALL_SIDE, 1)), batch_(p.batch),
          longest_(static_cast<int>(ceil_div(p.k, SMALL_SIDE))),
          full_(static_cast<double>(p.k) / (SMALL_SIDE * longest_)),
          multiprocessors_(device.multiprocessors),
          together_(blocks_per_sm(p.dtype, TileSize::Small)) {
        for (int length = 1; length <= longest_; ++length) all_ += tiles(length);
    }

    SplitChoice best(bool graded, int most_split) {
        consider({1, longest_ + 1, false}, blocks(1, longest_ + 1));
        for (int split = 2; split <= most_split; split *= 2) {
            // All sums, or as many of the longest as let all blocks have a multiprocessor, or a place on one.
            consider({split, 1, false}, blocks(split, 1));
            for (const int64_t room : {slots(split), together_ * slots(split)})
                for (int above = 2; above <= longest_; ++above)
                    if (const int64_t count = blocks(split, above); count <= room) {
                        consider({split, above, false}, count);
                        break;
                    }
        }
        for (int part = (longest_ + 3) / 4; graded && most_split >= 4 && 2 * part <= longest_;
             ++part)
            if (const int64_t count = graded_blocks(schedule_, longest_, part) * batch_;
                count <= together_ * slots(4)) {
                consider({4, 2 * part + 1, true}, count);
                break;
            }
        return best_;
    }

  private:
    // Tiles of all matrices whose sums have so many tiles at least.
    int64_t tiles(int length) const {
        return std::min(schedule_.count_long(longest_, std::max(1, length)), schedule_.size()) *
               batch_;
    }
    // How many multiprocessors clusters can use: on 132 there are 31 of four blocks, and 15 of eight.
    int64_t slots(int split) const {
        if (split <= 2) return multiprocessors_;
        return split * (multiprocessors_ * (split == 4 ? 62 : 30) / 264);
    }
    int64_t blocks(int split, int above) const {
        const int64_t shared = tiles(above), alone = schedule_.size() * batch_ - shared;
        return shared * split + ceil_div(alone, split) * split;
    }

    // Sums from `least` tiles on, up to `end`, which `sharers` blocks share.
    struct Shared {
        int sharers, least, end;
    };
    std::array<Shared, 3> shares(const SplitChoice& x) const {
        const int middle = x.graded ? (x.above - 1) / 2 + 1 : x.above;
        return {{{x.split, x.above, longest_ + 1}, {2, middle, x.above}, {1, 1, middle}}};
    }
    // How long the part of block number `rank` is, if they come by their lengths.
    double part(const SplitChoice& choice, int64_t rank) const {
        const auto all = shares(choice);
        // Blocks with parts of `eighths` at least.
        const auto longer = [&](int eighths) {
            int64_t count = 0;
            for (const Shared& x : all) {
                const int least = std::max(x.least, (eighths * x.sharers + 7) / 8);
                if (least < x.end) count += x.sharers * (tiles(least) - tiles(x.end));
            }
            return count;
        };
        int low = 0, high = 8 * longest_ + 1;
        while (high - low > 1) {
            const int middle = (low + high) / 2;
            (longer(middle) > rank ? low : high) = middle;
        }
        return low / 8.0;
    }

    void consider(const SplitChoice& choice, int64_t count) {
        const int64_t slots = this->slots(choice.split), layers = ceil_div(count, slots);
        const double longest = full_ * part(choice, 0),
                     of_each = static_cast<double>(count) / static_cast<double>(slots),
                     work = costs_.busy * full_ * static_cast<double>(all_) /
                            static_cast<double>(slots);
        double time = costs_.alone * longest;
        if (layers > together_) {
            time = std::max(time, work + costs_.later * longest + costs_.item * of_each);
        } else if (layers > 1) {
            double stack = longest;
            for (int64_t layer = 1; layer < layers; ++layer)
                stack += full_ * part(choice, layer * slots);
            const double beside = costs_.beside * static_cast<double>(layers - 1);
            time = std::max({time + beside, work + costs_.longest * longest + costs_.item * of_each,
                             costs_.stacked * stack + beside});
        }
        time += costs_.start + costs_.meeting(choice.split);
        if (time >= least_) return;
        least_ = time;
        best_ = choice;
    }

    const SplitCosts costs_;
    const Schedule schedule_;
    const int64_t batch_;
    const int longest_;
    const double full_;  // What part of the tiles of the longest sum there is.
    const int64_t multiprocessors_, together_;
    int64_t all_ = 0;  // Tiles of all sums.
    double least_ = 1e300;
    SplitChoice best_{1, 1, false};
};

}  // namespace

int64_t graded_blocks(const Schedule& schedule, int64_t longest, int64_t part) {
    const auto longer = [&](int64_t length) {
        return schedule.count_long(static_cast<int>(longest), static_cast<int>(length + 1));
    };
    const int64_t by_four = longer(2 * part), by_two = longer(part) - by_four,
                  alone = schedule.size() - by_two - by_four;
    return 4 * (by_four + ceil_div(by_two, 2) + ceil_div(alone, 4));
}

SplitChoice split_direct_sums(const Product& p, const Device& device) {
    // Parts have some steps of k each.
    const int64_t steps = p.dtype == DType::f64 ? 16 : 8;
    int most = 8;
    while (most > 1 && p.k / most < steps) most /= 2;
    return DirectSums(p, device).best(triangles(p) == 2 && p.c.kind == Kind::Lower, most);
}

}  // namespace packedtri::cuda
