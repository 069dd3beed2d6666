#include "config.h"

#include <algorithm>
#include <atomic>

namespace packedtri::cuda {
namespace {

std::atomic<int> forced_tile{-1}, forced_split{-1}, forced_above{-1}, forced_group{-1};

int64_t count_tiles(const Product& p, int side) {
    const int64_t tm = ceil_div(p.m, side), tn = ceil_div(p.n, side);
    return (p.c.kind == Kind::Lower ? row_start(tm) : tm * tn) * p.batch;
}

}  // namespace

Config choose(const Product& p, const Device& device) {
    Config config{TileSize::Large, 1, 1, 1};
    // Large tiles reuse more of what they load, but small problems have too few of them to fill
    // the device, even with their sums split.
    const int64_t large = count_tiles(p, tile_side(p.dtype, TileSize::Large));
    const int64_t slots = device.multiprocessors;
    if (large * (device.clusters ? 4 : 1) < slots) config.tile = TileSize::Small;
    const int64_t tiles = count_tiles(p, tile_side(p.dtype, config.tile));
    if (device.clusters) {
        while (config.split < 8 && tiles * config.split < 8 * slots && p.k / config.split >= 256)
            config.split *= 2;
    }
    if (tiles >= 16 * slots) config.group = 8;

    if (const int tile = forced_tile; tile >= 0) config.tile = static_cast<TileSize>(tile);
    if (const int split = forced_split; split >= 1) config.split = device.clusters ? split : 1;
    if (const int above = forced_above; above >= 1) config.split_above = above;
    if (const int group = forced_group; group >= 1) config.group = group;
    return config;
}

void force(int tile, int split, int split_above, int group) {
    forced_tile = tile;
    forced_split = split;
    forced_above = split_above;
    forced_group = group;
}

}  // namespace packedtri::cuda
