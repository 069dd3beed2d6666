// Which sums of the engine's small tiles clusters of blocks share, by estimates of how long a launch takes. Times are in
// tiles of a sum: what a block takes for 128 steps of k. docs/cuda.md says how well they tell what is fastest.
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

// Sums of different lengths.
class UnequalSums {
  public:
    UnequalSums(const Product& p, const Device& device, int together)
        : p_(p), schedule_(schedule_of(p, SIDE, 1)), matrices_(p.batch * together),
          longest_(static_cast<int>(ceil_div(p.k, SIDE))), slots_(device.multiprocessors),
          tiles_(schedule_.size() * matrices_), together_(together) {
        // The work of `work`, which counts lengths by halves and thirds, to the last tile.
        const int count = triangles(p);
        const double more = count == 2 && p.c.kind != Kind::Lower ? 1.5 : count;
        const Work all = work(p, SIDE, 1);
        sums_ = all.per_slot * together * (1 + more / longest_);
        if (in_parts(p)) return;
        costs_ = p.tf32 ? ItemCosts{1.5, 1.7, 3.2} : ItemCosts{1.5, 2.2, 3.7};
        uneven_ = 1.2;
        end_ = p.tf32 ? 2 : 1;
    }

    // Of tiles twice as large, of which two blocks have one, if none is cut. Each step takes longer.
    double large_time() const {
        const Work large = work(p_, 2 * SIDE, std::max(1, slots_ / 2));
        const double step = p_.tf32 ? 1.5 : 1.46, item = p_.tf32 ? 6 : 2.7,
                     length = static_cast<double>(large.longest);
        return std::max(
            longest_ * step + item,
            2 * step * large.per_slot * together_ * (1 + triangles(p_) / length) * uneven_ + end_);
    }

    Shared best() const {
        Shared best{1, longest_ + 1};
        // Where there is as much for each block as the longest sum has, nobody waits for that.
        if (sums_ >= static_cast<double>(longest_) * slots_) return best;
        double least = WORTH * time(best);
        for (const int split : {2, 4})
            for (int above = 2; above <= longest_ && above - 1 + costs_.alone < least; ++above)
                // Of equal ones the last, where fewer sums are shared.
                if (const double time = this->time({split, above}); time <= least) {
                    least = time;
                    best = {split, above};
                }
        return best;
    }

    // Clusters have the shared sums one after another, and then their blocks draw the others, the longest first. It ends
    // when the last cluster is done, when the longest sum is that a block has alone, or when all are that there are.
    double time(const Shared& shared) const {
        const double cost = costs_.of(shared.split);
        // Clusters of four do not fill the parts that the chip has.
        const int slots = shared.split == 4 ? slots_ * 10 / 11 / 4 * 4 : slots_,
                  clusters = slots / shared.split;
        const int64_t together =
            shared.split == 1
                ? 0
                : std::min(tiles_, schedule_.count_long(longest_, shared.above) * matrices_);
        double time = 0, begin = 0;
        // Those of a round at its ends; the longest of all is in the first one.
        for (int64_t tile = 0; tile < together; tile += clusters)
            time += (tile == 0 ? longest_
                               : std::max(length(tile),
                                          length(std::min(tile + clusters, together) - 1))) /
                        shared.split +
                    cost;
        if (together == tiles_) return time;
        if (together >= clusters) begin = length(clusters - 1) / shared.split + cost;
        const int alone = together == 0 ? longest_ : shared.above - 1;
        time = std::max(time, begin + alone + costs_.alone);
        const auto joint = static_cast<double>(together),
                   others = static_cast<double>(tiles_ - together);
        if (joint * shared.split + others <= slots) return time;
        const double all = sums_ + joint * shared.split * cost + others * costs_.alone;
        return std::max(time, all / slots * uneven_ + end_);
    }

  private:
    // Of the sum of a tile.
    double length(int64_t number) const {
        const Schedule::Tile tile = schedule_.at(number / matrices_);
        return k_range<int>(p_.a.kind, p_.b.kind, tile.i, tile.i + 1, tile.j, tile.j + 1, longest_)
            .length();
    }

    const Product& p_;
    const Schedule schedule_;
    const int64_t matrices_;
    const int longest_, slots_;
    const int64_t tiles_;
    const int together_;
    double sums_;
    ItemCosts costs_{1, 1.2, 1.8};
    // Where not all run at once: how much longer it takes than by what there is for each, and what comes last.
    double uneven_ = 1, end_ = 2;
};

// Sums that are all equally long: rounds of all blocks.
struct EqualSums {
    ItemCosts small;
    double large;  // Of a large tile,
    double cut;    // and of all of them where sums are cut.

    double small_time(const Work& work, int split) const {
        return std::ceil(work.tiles_per_slot * split) *
               (static_cast<double>(work.longest) / split + small.of(split));
    }
    int best_split(const Work& work) const {
        int best = 1;
        for (const int split : {2, 4})
            if (small_time(work, split) < WORTH * small_time(work, best)) best = split;
        return best;
    }
    // A large tile has twice the multiplications for each block.
    double large_time(double tiles_per_slot, const Work& work, bool cuts) const {
        const double sum = 1.19 * static_cast<double>(work.longest);
        return cuts ? tiles_per_slot * sum + cut : std::ceil(tiles_per_slot) * (sum + large);
    }
};
EqualSums equal_sums(const Product& p) {
    if (in_parts(p)) return {{0.7, 1.3, 1.5}, 0, 0};
    // Dense results are twice as large.
    const ItemCosts small = p.c.kind == Kind::Lower ? ItemCosts{1, 2.6, 4.2} : ItemCosts{1, 3.6, 5};
    return p.tf32 ? EqualSums{small, 5, 21} : EqualSums{small, 2.2, 12};
}

}  // namespace

Shared share_engine_sums(const Product& p, const Device& device, int together) {
    if (triangles(p) > 0) return UnequalSums(p, device, together).best();
    Work small = work(p, SIDE, device.multiprocessors);
    small.tiles_per_slot *= together;
    return {equal_sums(p).best_split(small), static_cast<int>(small.longest)};
}

bool large_tiles_win(const Product& p, const Device& device, int together, bool cuts) {
    if (triangles(p) > 0) {
        const UnequalSums sums(p, device, together);
        return sums.large_time() < sums.time(sums.best());
    }
    const EqualSums times = equal_sums(p);
    Work small = work(p, SIDE, device.multiprocessors);
    small.tiles_per_slot *= together;
    const double tiles =
        together *
        work(p, engine_tile_side(TileSize::Large), device.multiprocessors / 2).tiles_per_slot;
    return times.large_time(tiles, small, cuts) < times.small_time(small, times.best_split(small));
}

}  // namespace packedtri::cuda
