// Which products of float64 on Hopper have blocks that go from tile to tile (persistent.cuh), with small tiles or large ones,
// and which direct tiles: by estimates, in microseconds of an H200, of how long each takes. docs/cuda.md says how well they tell
// what is fastest.
#include "choice.h"

namespace packedtri::cuda {
namespace {

constexpr PartCosts COSTS{1.3, 0.97, 1, 1};

struct Estimate {
    Config config;
    double time;
};

// Fitted to timings (benchmarks/shares): of a launch, and of a step. Where the rows in which both operands lie in memory run
// along the sum steps take longer than where they run across it.
double time_of(const Product& p, TileSize tile, double steps) {
    const bool along_a = runs_along_rows(p.a), along_b = !runs_along_rows(p.b);
    if (tile == TileSize::Small) return 4.9 + (along_a && along_b ? 0.81 : 0.73) * steps;
    return 1.55 + (along_a && along_b ? 2.64 : along_a || along_b ? 2.33 : 2.56) * steps;
}

Estimate with_tiles(const Product& p, TileSize tile, const Device& device) {
    const int64_t slots = int64_t{device.multiprocessors} * blocks_per_sm(p.dtype, tile);
    const auto [part, steps] = choose_parts(p, tile_side(p.dtype, tile), slots, COSTS);
    return {{Method::Hopper, tile, 1, 1, 1, 0, part}, time_of(p, tile, steps)};
}

}  // namespace

bool persistent_can(const Product& p, const Device& device) {
    return p.dtype == DType::f64 && hopper_can(p, TileSize::Large, device) &&
           (!any_forced() || is_forced(Method::Hopper));
}

Config choose_f64(const Product& p, const Device& device) {
    const Estimate small = with_tiles(p, TileSize::Small, device),
                   large = with_tiles(p, TileSize::Large, device);
    const bool forced_large = forced.tile == static_cast<int>(TileSize::Large),
               takes_large = forced.tile < 0 ? large.time < small.time : forced_large;
    const Estimate& best = takes_large ? large : small;
    if (is_forced(Method::Hopper) || forced_large) return best.config;
    const SplitEstimate direct = split_direct_sums(p, device);
    // Direct tiles of a single column, whose sums are long, take longer than their estimate.
    const bool column = p.c.kind == Kind::Dense &&
                        (p.a.kind == Kind::Dense) != (p.b.kind == Kind::Dense) &&
                        vectors_of(p) <= 64;
    if (best.time < direct.time * (column && p.k >= 2000 ? 1.2 : 1)) return best.config;
    Config config{Method::Direct, TileSize::Small, 1, 1, 1};
    share_sums(config, direct.choice);
    return config;
}

}  // namespace packedtri::cuda
