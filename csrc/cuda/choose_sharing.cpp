// Whether the engine has small tiles or halves of them, and which of their sums clusters of blocks share, by estimates of
// how long a launch takes. Times are in tiles of a sum: what a block takes for 128 steps of k of a small tile.
// docs/cuda.md says how well they tell what is fastest.
#include <algorithm>
#include <cmath>

#include "../krange.h"
#include "choice.h"

namespace packedtri::cuda {
namespace {

constexpr int SIDE = engine_tile_side(TileSize::Small);

// Sharing must take less than so much of the time without it.
constexpr double WORTH = 0.97;

// What an item takes beside its sum, if a block has it alone, or two or four share it.
struct ItemCosts {
    double alone, by_two, by_four;

    double of(int split) const { return split == 1 ? alone : split == 2 ? by_two : by_four; }
};

// What tiles of one size take: 128 steps of a sum, and the rest.
struct TileCosts {
    double step;
    ItemCosts items;
};
// How long all takes where not all run at once: so many times as long as by what there is for each, and what comes last.
struct Costs {
    TileCosts small, half, half_dense;  // The last of dense results.
    double uneven, end;

    const TileCosts& of(TileSize tile, bool dense) const {
        return tile != TileSize::Half ? small : dense ? half_dense : half;
    }
};
constexpr Costs IN_PARTS{{1, {1.1, 1.1, 1.85}}, {}, {}, 1, 2.3},
    IN_TF32{{1, {0.7, 3.5, 5.5}}, {0.5, {0.65, 0.9, 3.75}}, {0.5, {0.35, 2.35, 5.35}}, 1.32, 2.3},
    IN_16BIT{{1, {0.7, 3.2, 4.25}}, {0.5, {1.45, 1.95, 2.85}}, {0.52, {0.45, 2, 4.65}}, 1.27, 1.5};
const Costs& costs_of(const Product& p) {
    return in_parts(p) ? IN_PARTS : p.tf32 ? IN_TF32 : IN_16BIT;
}

// How many of the chip's places clusters of so many blocks can have: those of four do not fill the parts that it has.
int places(int slots, int split) { return split == 4 ? slots * 10 / 11 / 4 * 4 : slots; }

// Sums of different lengths.
class UnequalSums {
  public:
    UnequalSums(const Product& p, TileSize tile, const Device& device, int together)
        : p_(p), tile_(tile), halved_(tile == TileSize::Half), costs_(costs_of(p)),
          tile_costs_(costs_.of(tile, p.c.kind != Kind::Lower)), schedule_(schedule_of(p, SIDE, 1)),
          matrices_(p.batch * together), longest_(static_cast<int>(ceil_div(p.k, SIDE))),
          slots_(device.multiprocessors), tiles_((schedule_.size() * matrices_) << halved_),
          together_(together) {
        // The work of `work`, which counts lengths by halves and thirds, to the last tile.
        const int count = triangles(p);
        const double more = count == 2 && p.c.kind != Kind::Lower ? 1.5 : count;
        const Work all = work(p, SIDE, 1);
        sums_ = all.per_slot * (together << halved_) * (1 + more / longest_) * tile_costs_.step;
    }

    // Of tiles twice as large, of which two blocks have one, if none is cut. Each step takes longer.
    double large_time() const {
        const Work large = work(p_, 2 * SIDE, std::max(1, slots_ / 2));
        const double step = p_.tf32 ? 1.5 : 1.46, item = p_.tf32 ? 6 : 3.2,
                     length = static_cast<double>(large.longest);
        return std::max(
            longest_ * step + item,
            2 * step * large.per_slot * together_ * (1 + triangles(p_) / length) * costs_.uneven +
                costs_.end);
    }

    Shared best() const {
        Shared best{tile_, 1, longest_ + 1};
        // Where there is as much for each block as the longest sum has, nobody waits for that.
        if (sums_ >= steps(longest_) * slots_) return best;
        double least = WORTH * time(best);
        for (int split = 2; split <= MOST_SHARERS; split *= 2)
            for (int above = 2;
                 above <= longest_ && steps(above - 1) + tile_costs_.items.alone < least; ++above)
                // Of equal ones the last, where fewer sums are shared.
                if (const double time = this->time({tile_, split, above}); time <= least) {
                    least = time;
                    best = {tile_, split, above};
                }
        return best;
    }

    // Clusters have the shared sums one after another, and then their blocks draw the others, the longest first. It ends
    // when the last cluster is done, when the longest sum is that a block has alone, or when all are that there are.
    double time(const Shared& shared) const {
        const double cost = tile_costs_.items.of(shared.split);
        const int slots = places(slots_, shared.split), clusters = slots / shared.split;
        const int64_t together =
            shared.split == 1
                ? 0
                : std::min(tiles_, (schedule_.count_long(longest_, shared.above) * matrices_)
                                       << halved_);
        double time = 0, begin = 0;
        // Those of a round at its ends; the longest of all is in the first one.
        for (int64_t tile = 0; tile < together; tile += clusters)
            time += steps(tile == 0 ? longest_
                                    : std::max(length(tile),
                                               length(std::min(tile + clusters, together) - 1))) /
                        shared.split +
                    cost;
        if (together == tiles_) return time;
        if (together >= clusters) begin = steps(length(clusters - 1)) / shared.split + cost;
        const int alone = together == 0 ? longest_ : shared.above - 1;
        time = std::max(time, begin + steps(alone) + tile_costs_.items.alone);
        const auto joint = static_cast<double>(together),
                   others = static_cast<double>(tiles_ - together);
        if (joint * shared.split + others <= slots) return time;
        const double all = sums_ + joint * shared.split * cost + others * tile_costs_.items.alone;
        return std::max(time, all / slots * costs_.uneven + costs_.end);
    }

  private:
    // What so many tiles of a sum take.
    double steps(double tiles) const { return tiles * tile_costs_.step; }
    // Of the sum of a tile.
    double length(int64_t number) const {
        const Schedule::Tile tile = schedule_.at((number >> halved_) / matrices_);
        return k_range<int>(p_.a.kind, p_.b.kind, tile.i, tile.i + 1, tile.j, tile.j + 1, longest_)
            .length();
    }

    const Product& p_;
    const TileSize tile_;
    const int halved_;
    const Costs& costs_;
    const TileCosts& tile_costs_;
    const Schedule schedule_;
    const int64_t matrices_;
    const int longest_, slots_;
    const int64_t tiles_;
    const int together_;
    double sums_;
};

// Sums that are all equally long: rounds of all blocks.
struct EqualSums {
    int slots;
    TileCosts small, half;
    double large;  // Of a large tile,
    double cut;    // and of all of them where sums are cut.

    double time(const Work& work, const Shared& shared) const {
        const bool halved = shared.tile == TileSize::Half;
        const TileCosts& costs = halved ? half : small;
        const double tiles = std::round(work.tiles_per_slot * slots) * (halved ? 2 : 1);
        return std::ceil(tiles * shared.split / places(slots, shared.split)) *
               (costs.step * static_cast<double>(work.longest) / shared.split +
                costs.items.of(shared.split));
    }
    Shared best(const Work& work, bool halves) const {
        const auto all = static_cast<int>(work.longest);
        Shared best{TileSize::Small, 1, all};
        for (const TileSize tile : {TileSize::Small, TileSize::Half}) {
            if (tile == TileSize::Half && !halves) break;
            for (int split = 1; split <= MOST_SHARERS; split *= 2)
                if (const Shared other{tile, split, all};
                    time(work, other) < WORTH * time(work, best))
                    best = other;
        }
        return best;
    }
    // A large tile has twice the multiplications for each block.
    double large_time(double tiles_per_slot, const Work& work, bool cuts) const {
        const double sum = 1.19 * static_cast<double>(work.longest);
        return cuts ? tiles_per_slot * sum + cut : std::ceil(tiles_per_slot) * (sum + large);
    }
};
EqualSums equal_sums(const Product& p, const Device& device) {
    const int slots = device.multiprocessors;
    if (in_parts(p)) return {slots, {1, {0.7, 1.3, 1.5}}, {}, 0, 0};
    const TileCosts half{0.65, {0.5, 2.7, 5}};
    // Dense results are twice as large.
    const TileCosts small{1,
                          p.c.kind == Kind::Lower ? ItemCosts{1, 3.3, 4.2} : ItemCosts{1, 3.6, 5}};
    return p.tf32 ? EqualSums{slots, small, half, 3.4, 21} : EqualSums{slots, small, half, 2.2, 12};
}

// Of as many products as there are `together`, in small tiles.
Work small_work(const Product& p, const Device& device, int together) {
    Work small = work(p, SIDE, device.multiprocessors);
    small.tiles_per_slot *= together;
    return small;
}

// With more for each block halves were slower, and so they are with images of both halves of a large symmetric matrix.
// Float32 in parts has none.
bool may_be_halved(const Product& p, const Work& small) {
    if (has_symmetric(p) && p.k >= least_half_image(p)) return false;
    return !in_parts(p) && 2 * small.tiles_per_slot <= (p.tf32 ? 2 : 2.2);
}

}  // namespace

SharedEstimate estimate_engine_sums(const Product& p, const Device& device, int together) {
    const Work work = small_work(p, device, together);
    const bool may_halve = may_be_halved(p, work);
    if (triangles(p) > 0) {
        const UnequalSums small(p, TileSize::Small, device, together);
        const Shared best = small.best();
        const double time = small.time(best);
        if (!may_halve) return {best, time};
        const UnequalSums halves(p, TileSize::Half, device, together);
        const Shared other = halves.best();
        const double other_time = halves.time(other);
        return other_time < WORTH * time ? SharedEstimate{other, other_time}
                                         : SharedEstimate{best, time};
    }
    const EqualSums times = equal_sums(p, device);
    const Shared best = times.best(work, may_halve);
    return {best, times.time(work, best)};
}

Shared share_engine_sums(const Product& p, const Device& device, int together) {
    return estimate_engine_sums(p, device, together).best;
}

bool large_tiles_win(const Product& p, const Device& device, int together, bool cuts) {
    const double time = estimate_engine_sums(p, device, together).time;
    if (triangles(p) > 0)
        return UnequalSums(p, TileSize::Small, device, together).large_time() < time;
    const double tiles =
        together *
        work(p, engine_tile_side(TileSize::Large), device.multiprocessors / 2).tiles_per_slot;
    return equal_sums(p, device).large_time(tiles, small_work(p, device, together), cuts) < time;
}

}  // namespace packedtri::cuda
