// Which kernel a product gets, as a pure function of the problem and the device. Free of torch and
// CUDA, so that the choice can be printed and tested without a GPU.
#pragma once

#include <string>

#include "../problem.h"
#include "schedule.h"

namespace packedtri::cuda {

struct Device {
    int multiprocessors;
    bool clusters;  // Thread block clusters, and machine code of ours that uses them.
};

enum class TileSize : int32_t { Small, Large };

struct Config {
    TileSize tile;
    int split;        // Blocks that share the sum over k of one tile: 1, 2, 4 or 8.
    int split_above;  // Only sums of at least this many tiles are shared.
    int group;        // Side of the square groups in which tiles are visited.
};

// Side of the square tiles.
constexpr int tile_side(DType dtype, TileSize size) {
    const bool complex = dtype == DType::c64 || dtype == DType::c128;
    return size == TileSize::Small || complex ? 64 : 128;
}

// How many blocks a multiprocessor runs at once.
constexpr int blocks_per_sm(DType dtype, TileSize size) {
    if (dtype == DType::c64 || dtype == DType::c128) return 1;
    const int large = dtype == DType::f32 ? 2 : 1;
    return size == TileSize::Large ? large : 2 * large;
}

// Whether a product is a packed triangle times one column, or one row times a packed triangle. Such
// products have kernels of their own (mv.h); choose is about all others.
inline bool is_mv(const Product& p) {
    if (p.c.kind != Kind::Dense) return false;
    const bool a_dense = p.a.kind == Kind::Dense, b_dense = p.b.kind == Kind::Dense;
    return (!a_dense && b_dense && p.n == 1) || (a_dense && !b_dense && p.m == 1);
}

Config choose(const Product& p, const Device& device);

// For many small products, each of which one block or one warp has as a whole (small.h): the side of
// the square tile that holds every operand, 32, 64 or 128. 0 for all other products.
int small_side(const Product& p, const Device& device);

// Whether the copy engine loads the tiles of a product (main_loop_bulk.cuh).
bool copies_in_bulk(const Product& p, const Config& config, const Device& device);

// The choice in words, for `packedtri info`.
std::string explain(const Product& p, const Device& device);

// Makes choose return this tile, split and group wherever the product allows it, for tests and
// tuning; -1 leaves a part of the choice free.
void force(int tile, int split, int split_above, int group);

}  // namespace packedtri::cuda
