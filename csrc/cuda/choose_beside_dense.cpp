// Which way a 16-bit triangle and a dense matrix of aligned rows are multiplied on Hopper: by estimates of how long each
// takes, in microseconds of an H200. docs/cuda.md says how well they tell what is fastest.
#include <algorithm>
#include <cmath>
#include <iterator>

#include "choice.h"
#include "engine_layout.h"

namespace packedtri::cuda {
namespace {

// Millions of elements of all triangles, as dense ones, and of all results, and thousands of millions of multiplications.
struct Sizes {
    double triangles, results, volume;
};
Sizes sizes_of(const Product& p) {
    const auto k = static_cast<double>(p.k), batch = static_cast<double>(p.batch);
    return {batch * k * k / 1e6, batch * static_cast<double>(p.m) * static_cast<double>(p.n) / 1e6,
            batch * volume(p) / 1e9};
}

// Fitted to benchmarks/shares/beside-dense-nvidia-h200.json.
double images_time(const Product& p, const Device& device) {
    const Sizes x = sizes_of(p);
    const SharedEstimate sums = estimate_engine_sums(p, device, 1);
    const bool halves = sums.best.tile == TileSize::Half;
    if (p.batch == 1)
        return 5.94 + 1.05 * x.triangles + 0.5 * x.results + (halves ? 0.461 : 0.495) * sums.time;
    return 4.71 + 0.585 * x.triangles + 0.92 * x.results + (halves ? 0.72 : 0.488) * sums.time;
}
double long_time(const Product& p, const Device& device) {
    const double time = split_direct_sums(p, device, true).time;
    return p.batch == 1 ? 0.1 + 1.015 * time : 2.34 + 0.788 * time;
}

// Of batches. With the launch that makes good what structural zeros spoil.
double dense_time(const Product& p) {
    const Sizes x = sizes_of(p);
    // Dense torch is slow where its tiles are not full.
    const double padded = covered(p, 128) / (static_cast<double>(p.m) * static_cast<double>(p.n));
    return 6.62 + 1.115 * x.triangles + 0.675 * x.results + 2.22 * padded * x.volume;
}
double square_time(const Product& p, const Device& device) {
    return -0.35 + 0.992 * split_direct_sums(p, device).time;
}

}  // namespace

bool has_ways_beside_dense(const Product& p, const Device& device) {
    if (any_forced() || !images_allowed() || !device.clusters || element_size(p.dtype) != 2 ||
        !is_plain(p) || triangles(p) != 1 || p.c.kind != Kind::Dense || has_symmetric(p) ||
        p.k == 0 || slow_when_dense(p) || !maps_dense_operand(p) || !engine_can(p, device))
        return false;
    const int64_t vectors = vectors_of(p);
    const double cube = std::cbrt(volume(p) * static_cast<double>(p.batch));
    if (p.batch == 1) {
        if (p.k < 512) return p.k > 200 && cube >= (5 * vectors > 22 * p.k ? 590 : 795);
        const int64_t few = p.k < 2400 ? 256 : p.k <= MOST_SHARED ? 160 : 128;
        return vectors > few && cube >= 640 && cube <= 2100;
    }
    return vectors > 64 && p.k >= 96 && cube >= 250 && cube <= 2200;
}

BesideDense fastest_beside_dense(const Product& p, const Device& device) {
    struct Way {
        double time;
        BesideDense way;
    };
    // Of very short and of long sums images were as fast as long tiles or faster.
    if (p.batch == 1 && (p.k < 512 || p.k >= 2400)) return BesideDense::Images;
    const Way images{images_time(p, device), BesideDense::Images},
        tiles{long_time(p, device), BesideDense::Long};
    // With one product neither dense torch nor square tiles were faster than both.
    if (p.batch == 1) return tiles.time < images.time ? tiles.way : images.way;
    const Way ways[] = {
        images,
        tiles,
        {dense_time(p), BesideDense::Dense},
        {square_time(p, device), BesideDense::Square},
    };
    return std::min_element(std::begin(ways), std::end(ways),
                            [](const Way& a, const Way& b) { return a.time < b.time; })
        ->way;
}

}  // namespace packedtri::cuda
