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

// Of the launch that makes good what structural zeros spoil in dense products.
constexpr double MEND = 0.95;

// Fitted to benchmarks/shares/beside-dense-nvidia-h200.json. What is less certain must be faster by more.
double dense_time(const Product& p) {
    const Sizes x = sizes_of(p);
    // In batches dense torch is slow where its tiles are not full.
    const double padded = p.batch == 1 ? 1
                                       : static_cast<double>(128 * ceil_div(p.m, 128)) *
                                             static_cast<double>(128 * ceil_div(p.n, 128)) /
                                             (static_cast<double>(p.m) * static_cast<double>(p.n));
    const double time =
        p.batch == 1 ? 6.47 + 0.92 * x.triangles + 0.174 * x.results + 2.386 * x.volume
                     : 5.63 + 1.1 * x.triangles + 0.83 * x.results + 1.85 * padded * x.volume;
    return 1.03 * (time + MEND);
}
double images_time(const Product& p, const Device& device) {
    const Sizes x = sizes_of(p);
    const SharedEstimate sums = estimate_engine_sums(p, device, 1);
    const double time = 5.604 + 0.746 * x.triangles + 0.359 * x.results +
                        (sums.best.tile == TileSize::Half ? 0.775 : 0.596) * sums.time;
    return (p.batch == 1 ? 1.06 : 1) * time;
}
double long_time(const Product& p, const Device& device) {
    const double time = split_direct_sums(p, device, true).time;
    return 1.1 * (p.batch == 1 ? 1.78 + 0.829 * time : 2.04 + 0.782 * time);
}
double square_time(const Product& p, const Device& device) {
    return 1.08 * (-0.2 + 0.95 * split_direct_sums(p, device).time);
}

}  // namespace

bool has_ways_beside_dense(const Product& p, const Device& device) {
    if (any_forced() || !device.clusters || element_size(p.dtype) != 2 || !is_plain(p) ||
        triangles(p) != 1 || p.c.kind != Kind::Dense || has_symmetric(p) || p.k == 0 ||
        slow_when_dense(p) || !maps_dense_operand(p))
        return false;
    const int64_t vectors = vectors_of(p);
    const double cube = std::cbrt(volume(p) * static_cast<double>(p.batch));
    if (p.batch == 1) return vectors > 256 && p.k >= 512 && cube >= 640 && cube <= 2100;
    return vectors > 64 && p.k >= 96 && cube >= 250 && cube <= 1700;
}

BesideDense fastest_beside_dense(const Product& p, const Device& device) {
    struct Way {
        double time;
        BesideDense way;
    };
    // One product with so many columns has more tiles than square ones are good for.
    const Way ways[] = {
        {dense_time(p), BesideDense::Dense},
        {images_time(p, device), BesideDense::Images},
        {long_time(p, device), BesideDense::Long},
        {p.batch == 1 ? INFINITY : square_time(p, device), BesideDense::Square},
    };
    return std::min_element(std::begin(ways), std::end(ways),
                            [](const Way& a, const Way& b) { return a.time < b.time; })
        ->way;
}

}  // namespace packedtri::cuda
