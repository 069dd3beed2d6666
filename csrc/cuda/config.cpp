#include "config.h"

#include <algorithm>
#include <atomic>

namespace packedtri::cuda {
namespace {

std::atomic<int> forced_tile{-1}, forced_split{-1}, forced_above{-1}, forced_group{-1};

bool triangular(Kind kind) { return kind == Kind::Lower || kind == Kind::Upper; }

int64_t stored(const Operand& x) {
    return x.kind == Kind::Dense ? x.rows * x.cols : row_start(x.rows);
}

// Whether each matrix of a batch lies in memory without gaps.
bool in_one_piece(const Operand& x) {
    if (x.kind != Kind::Dense) return true;
    return x.col_stride == 1 || x.cols <= 1 ? x.row_stride == x.cols : x.col_stride == x.rows;
}

// How long the sums of a product are, in tiles.
struct Work {
    int64_t longest;
    double per_slot;  // Of all sums together, for each block that runs at once.
};

Work work(const Product& p, TileSize size, const Device& device) {
    const int64_t side = tile_side(p.dtype, size);
    const int64_t tm = ceil_div(p.m, side), tn = ceil_div(p.n, side), tk = ceil_div(p.k, side);
    const int64_t tiles = (p.c.kind == Kind::Lower ? row_start(tm) : tm * tn) * p.batch;
    const int triangles = triangular(p.a.kind) + triangular(p.b.kind);
    const double average = static_cast<double>(tk) / (1 + triangles);
    const int slots = device.multiprocessors * blocks_per_sm(p.dtype, size);
    return {tk, static_cast<double>(tiles) * average / slots};
}

}  // namespace

// The thresholds were measured on an H100, L@L at n = 1024 ... 8192 (docs/performance.md).
Config choose(const Product& p, const Device& device) {
    Config config{TileSize::Large, 1, 1, 1};
    // Large tiles reuse more of what they load, but a small problem has too few to fill the device.
    if (work(p, TileSize::Large, device).per_slot < 5) config.tile = TileSize::Small;

    // One block cannot finish its tile earlier than its sum is long. Where the longest sums come
    // near the work that there is for each slot, or exceed it, blocks share them. Shorter sums are
    // more accurate too, which at small n counts against libraries that do the same.
    const Work w = work(p, config.tile, device);
    const double excess = static_cast<double>(w.longest) / w.per_slot;
    if (device.clusters && p.k >= 64) {
        const auto share = [&](int split, double above) {
            while (split > 1 && p.k / split < 32) split /= 2;
            config.split = split;
            config.split_above =
                std::max(1, static_cast<int>(above * static_cast<double>(w.longest)));
        };
        if (excess > 20) share(8, 0);
        else if (excess > 8) share(4, 0);
        else if (excess > 4) share(2, 0.25);
        else if (excess > 2) share(2, blocks_per_sm(p.dtype, config.tile) > 2 ? 0.65 : 0.25);
        else if (excess > 0.3 && blocks_per_sm(p.dtype, config.tile) > 1) share(2, 0.87);
        // Without a triangle all sums are equally long.
        if (!triangular(p.a.kind) && !triangular(p.b.kind)) config.split_above = 1;
    }
    // 16-bit tiles are multiplied so fast that the L2 cache must serve them; then neighbours matter
    // more than balance.
    const bool small_elements = element_size(p.dtype) == 2;
    if (small_elements && w.longest >= 64) config.group = 8;

    if (const int tile = forced_tile; tile >= 0) config.tile = static_cast<TileSize>(tile);
    if (const int split = forced_split; split >= 1) config.split = device.clusters ? split : 1;
    if (const int above = forced_above; above >= 1) config.split_above = above;
    if (const int group = forced_group; group >= 1) config.group = group;
    return config;
}

int small_side(const Product& p, const Device& device) {
    const int64_t longest = std::max({p.m, p.n, p.k});
    const int side = longest <= 32 ? 32 : longest <= 64 ? 64 : longest <= 128 ? 128 : 0;
    const int64_t size = element_size(p.dtype);
    if (side == 0 || forced_tile >= 0 || (side == 128 && size > 4)) return 0;
    // Fewer products leave multiprocessors idle, which tiles of their own do not.
    if (side > 32 && p.batch < device.multiprocessors) return 0;
    if (!in_one_piece(p.a) || !in_one_piece(p.b)) return 0;
    if (p.c.kind == Kind::Dense && p.c.row_stride != p.n) return 0;
    // Both operands, as they are stored and as padded tiles, are in shared memory at once.
    const int64_t bytes = size * (2 * side * (side + 8) + stored(p.a) + stored(p.b));
    return bytes <= (device.clusters ? 220 : 96) * 1024 ? side : 0;
}

bool copies_in_bulk(const Product& p, const Config& config, const Device& device) {
    return device.clusters && p.dtype == DType::f64 && config.tile == TileSize::Large;
}

std::string explain(const Product& p, const Device& device) {
    if (is_mv(p)) return "matrix-vector, one pass over the triangle";
    if (const int side = small_side(p, device))
        return "small, both operands in shared memory as " + std::to_string(side) + " x " +
               std::to_string(side);
    const Config c = choose(p, device);
    const std::string side = std::to_string(tile_side(p.dtype, c.tile));
    std::string text = "direct, tiles " + side + " x " + side;
    if (c.split > 1)
        text += ", sums of " + std::to_string(c.split_above) + " tiles and more shared by " +
                std::to_string(c.split) + " blocks";
    if (c.group > 1)
        text += ", groups of " + std::to_string(c.group) + " x " + std::to_string(c.group);
    return text;
}

void force(int tile, int split, int split_above, int group) {
    forced_tile = tile;
    forced_split = split;
    forced_above = split_above;
    forced_group = group;
}

}  // namespace packedtri::cuda
