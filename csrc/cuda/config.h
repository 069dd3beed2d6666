// Which kernel a product gets, as a pure function of the problem and the device. Free of torch and
// CUDA, so that the choice can be printed and tested without a GPU.
#pragma once

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
    int split;  // Blocks that share the sum over k of one tile: 1, 2, 4 or 8.
    int group;  // Side of the square groups in which tiles are visited.
};

// Side of the square tiles.
constexpr int tile_side(DType dtype, TileSize size) {
    const bool complex = dtype == DType::c64 || dtype == DType::c128;
    return size == TileSize::Small || complex ? 64 : 128;
}

Config choose(const Product& p, const Device& device);

// Makes choose return this tile, split and group wherever the product allows it, for tests and
// tuning; -1 leaves a part of the choice free.
void force(int tile, int split, int group);

}  // namespace packedtri::cuda
