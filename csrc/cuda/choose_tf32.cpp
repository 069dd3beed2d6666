// Which products that may be rounded to TF32 have small tiles of operands as they lie in memory (loader_floats.cuh).
#include "choice.h"

namespace packedtri::cuda {
namespace {

// How long all else takes that there is for a product, in microseconds: kernels that keep all bits, tile images, dense
// torch on unpacked copies. And the order of a cube from which on, of one matrix and of a batch together, these are asked
// at all: before, what keeps all bits is faster.
struct Others {
    double start;
    // For a thousand terms of a sum, and for a million elements.
    double of_k, of_operands, of_result;
    double slow;  // Where dense torch is (slow_when_dense).
    double least, least_of_batch;
};

// Fitted to timings of an H200 (benchmarks/shares).
Others others(const Product& p) {
    const bool dense = p.a.kind == Kind::Dense || p.b.kind == Kind::Dense;
    if (has_symmetric(p)) {
        if (dense) return {4.97, 5.53, 2.10, 1.75, 4.97, 260, 320};
        if (triangles(p) == 1) return {2.89, 7.04, 4.67, 0, 0.99, 400, 320};
        return {3.87, 8.25, 3.49, 0, 4.97, 300, 260};
    }
    switch (triangles(p)) {
        case 0: return {5.58, 1.61, 3.33, 3.53, 3.55, 200, 180};
        case 1:
            if (p.batch == 1) return {5.77, 4.02, 0.88, 3.08, 0.53, 220, 220};
            return {3.09, 5.94, 0.57, 5.60, 1.79, 220, 220};
        default:
            if (p.c.kind == Kind::Dense && p.batch == 1) return {5.1, 7.7, 0, 0, 1.03, 260, 220};
            if (p.c.kind == Kind::Dense) return {3.08, 6.92, 6.12, 0, 1.03, 260, 220};
            if (p.batch > 1) return {7.7, 0, 1.9, 4.3, 0.9, 320, 215};
            return {1.33, 6.81, 0.90, 6.23, 0.45, 320, 180};
    }
}

// As tile images have them.
double elements(const Product& p, const Operand& x) {
    const bool half =
        is_triangular(x.kind) || (x.kind == Kind::Symmetric && p.k >= least_half_image(p));
    return static_cast<double>(x.rows) * static_cast<double>(x.cols) * (half ? 0.5 : 1);
}

double time_of_others(const Product& p, const Others& x) {
    const bool one = p.a.data == p.b.data;
    const double millions = static_cast<double>(p.batch) / 1e6,
                 operands = elements(p, p.a) + (one ? 0 : elements(p, p.b)),
                 result = static_cast<double>(p.m) * static_cast<double>(p.n) *
                          (p.c.kind == Kind::Lower ? 0.5 : 1);
    // Larger ones go through tile images.
    const bool slow = slow_when_dense(p) && (!has_symmetric(p) || triangles(p) > 0 || p.k < 450);
    return x.start + x.of_k * static_cast<double>(p.k) / 1e3 + x.of_operands * millions * operands +
           x.of_result * millions * result + (slow ? x.slow : 0);
}

// Whether there are timings of products like this one, some of which are faster so. Of orders between 64 and 112 much of the
// tiles is padding, which shows where there are many.
bool timed(const Product& p) {
    const int64_t order = p.c.kind == Kind::Lower ? p.m : p.k, narrow = narrowest(p);
    if (narrow <= 56) return false;
    // What keeps all bits is faster with two triangles that fill one tile.
    if (narrow <= 64 && p.c.kind == Kind::Lower && triangles(p) == 2 && p.a.data != p.b.data)
        return false;
    if (triangles(p) == 1 && p.batch == 1 && !has_symmetric(p) && narrow > 64) {
        if ((p.k > 3500 && narrow >= 128) || longest(p) > 8192) return false;
    } else if (longest(p) > (narrow <= 256 ? 4096 : 1200)) {
        return false;
    }
    if (order > 64 && order < 112 && p.batch > 64) return false;
    const bool one_for_all = p.a.batch_stride == 0 || p.b.batch_stride == 0;
    if (p.batch > 1 && one_for_all) return false;
    return !has_symmetric(p) || p.c.kind == Kind::Dense;
}

// Whether a batch has matrices of 193 to 256 rows and columns. Those of fewer fill three direct tiles.
bool three_to_four_tiles(const Product& p) {
    return p.batch > 1 && !has_symmetric(p) && !slow_when_dense(p) && narrowest(p) > 192 &&
           longest(p) <= 256;
}

}  // namespace

bool many_past_direct_tiles(const Product& p, const Device& device) {
    if (!p.tf32 || !device.clusters || !three_to_four_tiles(p) || triangles(p) != 1 ||
        p.c.kind != Kind::Dense || p.a.batch_stride == 0 || p.b.batch_stride == 0)
        return false;
    return p.batch >= (longest(p) <= 232 ? 48 : 100);
}

bool tf32_tiles_may_win(const Product& p, const Device& device, int together) {
    if (!p.tf32 || !device.clusters || any_forced() || is_mv(p) || !timed(p)) return false;
    // Two products by tile images are one launch, and have some images in common.
    if (together > 1 && p.k > 700) return false;
    const Others x = others(p);
    const double least = p.batch == 1 ? x.least : x.least_of_batch;
    return volume(p) * static_cast<double>(p.batch) >= least * least * least &&
           hopper_can(p, TileSize::Small, device);
}

bool tf32_tiles_win(const Product& p, const Device& device, int together) {
    if (!tf32_tiles_may_win(p, device, together)) return false;
    if (many_small_pairs(p, device)) return false;
    if (three_to_four_tiles(p)) {
        if (triangles(p) == 1 && p.c.kind == Kind::Dense) return !many_past_direct_tiles(p, device);
        // Rows that do not begin with a cache line each.
        if (p.c.kind == Kind::Lower && triangles(p) == 0 && longest(p) < 224 && p.batch >= 48)
            return false;
    }
    // The images of so many matrices are made at the speed of the memory, for which the figures above are too high.
    const double others_gain = p.batch >= 200 && p.k > 200 ? 1.15 : 1;
    return others_gain * split_direct_sums(p, device).time < time_of_others(p, others(p));
}

}  // namespace packedtri::cuda
