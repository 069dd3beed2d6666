// Which of the kernels that read operands as they lie in memory a product gets: tiles, methods, and who shares sums.
#include "choice.h"
#include "engine_layout.h"
#include "remembered.h"

namespace packedtri::cuda {
namespace {

Work direct_work(const Product& p, TileSize size, const Device& device) {
    return work(p, tile_side(p.dtype, size),
                int64_t{device.multiprocessors} * blocks_per_sm(p.dtype, size));
}

// Whether a product is one of a batch of small ones: many tiles with short sums, whose best choices are not
// those of one product of as many tiles.
bool small_in_batch(const Product& p) {
    return p.batch >= 8 && longest(p) <= 1024 && !has_complex_elements(p.dtype);
}

// Whether such products have enough large tiles to give each slot some: more, where their sums differ.
bool enough_large_tiles(const Product& p, const Work& large) {
    if (!large_tiles_fit(p, 1.2)) return false;
    const bool differ = large.longest > 2;
    if (p.dtype == DType::f64) return large.tiles_per_slot >= (differ ? 1.5 : 0.9);
    return large.tiles_per_slot >= (differ && triangles(p) == 2 ? 1.3 : 1);
}

// Whether blocks had better not share sums of such products.
bool enough_tiles(const Product& p, const Work& work) {
    if (work.longest <= 1) return work.tiles_per_slot >= 0.2;
    if (p.dtype == DType::f32) return work.tiles_per_slot >= 0.66;
    if (p.dtype == DType::f64) return work.tiles_per_slot >= 0.25;
    return work.longest <= 3 || work.tiles_per_slot >= 0.75;
}

// Whether the kernels for small tiles on Hopper reach all of a matrix: they count elements in 32 bits and by whole
// tiles. That for 16-bit elements also relies on the word in which the matrix ends holding elements of the last row only, so
// rows must be as long as a word, and not overlap.
bool in_reach(const Operand& x) {
    const bool by_rows = runs_along_rows(x);
    const int64_t lines = by_rows ? x.rows : x.cols, length = by_rows ? x.cols : x.rows;
    if (length < 8) return false;
    if (x.kind != Kind::Dense) return counts_in_32_bits(lines, length, 64);
    const int64_t pitch = by_rows ? x.row_stride : x.col_stride;
    return pitch >= length && counts_in_32_bits(lines, pitch, 64);
}

// From how much work for each slot on one product has large tiles: they reuse more of what they load, but a small
// problem has too few to fill the device.
double least_for_large_tiles(const Product& p) {
    if (element_size(p.dtype) == 2) return 8;
    return p.dtype == DType::f64 ? 7 : 5;
}

// Whether what is rounded to TF32, and has no images, has small tiles that the tensor cores multiply: other direct kernels
// keep all bits, and multiply slowly. For very short sums that does not matter.
bool rounds_small_tiles(const Product& p, const Device& device) {
    return p.tf32 && p.k > 24 && !is_forced(Method::Direct) &&
           hopper_can(p, TileSize::Small, device);
}

TileSize direct_tile(const Product& p, const Device& device) {
    if (is_forced(Method::Mapped)) return TileSize::Small;
    if (const int tile = forced.tile; tile >= 0) return static_cast<TileSize>(tile);
    if (tile_shared_kib(p.dtype, TileSize::Large) > device.shared_kib) return TileSize::Small;
    if (rounds_small_tiles(p, device)) return TileSize::Small;
    if (mirrored_pays(p, device) || by_small_tiles(way_beside_dense(p, device)))
        return TileSize::Small;
    // Of a result of a few rows or columns, half of each large tile would be padding.
    if (!large_tiles_fit(p, 1.9)) return TileSize::Small;
    const Work large = direct_work(p, TileSize::Large, device);
    // Small tiles of 16-bit elements share a multiprocessor, where one copies while the other multiplies.
    const bool enough = !small_in_batch(p) ? large.per_slot >= least_for_large_tiles(p)
                        : element_size(p.dtype) == 2
                            ? direct_work(p, TileSize::Small, device).per_slot >= 30
                            : enough_large_tiles(p, large);
    return enough ? TileSize::Large : TileSize::Small;
}

// Whether a tile of 16-bit elements, or of float32, has the kernel of its own that there is on Hopper.
bool takes_hopper(const Product& p, TileSize tile, const Work& work, const Device& device) {
    if (p.dtype == DType::f64 || !hopper_can(p, tile, device)) return false;
    if (forced.method >= 0) return is_forced(Method::Hopper) || is_forced(Method::Mapped);
    if (p.dtype == DType::f32) return rounds_small_tiles(p, device);
    if (by_small_tiles(way_beside_dense(p, device))) return true;
    // It starts and ends sooner, but does not multiply faster than the general one for large tiles.
    const bool mapped = maps_dense_operand(p);
    if (mapped && p.batch == 1 && has_vectors(p) &&
        (p.k <= most_mapped(vectors_of(p)) || mirrored_pays(p, device)))
        return true;
    return small_in_batch(p) || work.per_slot < (mapped ? 10 : 4.5);
}

// Whether of 16-bit products a dense operand comes by the copy engine. Short sums do not take less time so.
bool goes_mapped(const Product& p, const Device& device) {
    if (!maps_dense_operand(p)) return false;
    if (forced.method >= 0) return is_forced(Method::Mapped);
    if (way_beside_dense(p, device) == BesideDense::Long) return true;
    return p.k >= (has_symmetric(p) ? 0 : triangles(p) == 0 ? 500 : 160);
}

// Whether such products have tiles with twice as many rows or columns of the dense operand.
bool goes_wide_mapped(const Product& p, const Device& device) {
    if (p.c.kind != Kind::Dense) return false;
    if (forced.method >= 0) return forced.tile == static_cast<int>(TileSize::Large);
    if (const auto way = way_beside_dense(p, device)) return way == BesideDense::Long;
    const int64_t most = has_symmetric(p) ? MOST_SHARED_SYMMETRIC : MOST_SHARED;
    if (p.batch > 1 || vectors_of(p) <= 64 || p.k < 500 || p.k > most) return false;
    return wide_tiles_win(p, device);
}

// Of 16-bit elements.
SharingTable sharing_16bit(const Config& config, int64_t longest) {
    // On Hopper blocks meet so quickly that sums of a few tiles are worth sharing. Those are of batches, and very long ones:
    // others are shared by an estimate.
    static constexpr Sharing hopper_short[] = {{8, 4, 0.5}, {2, 2, 0.63}, {0.3, 2, 0.87}},
                             hopper_long[] = {{8, 4, 0.25}, {2, 2, 0.63}, {0.3, 2, 0.87}};
    if (by_warpgroups(DType::f16, config)) {
        if (longest <= 2) return {};
        return longest <= 8 ? hopper_short : hopper_long;
    }
    // Elsewhere such sums take less time than a cluster needs to meet.
    static constexpr Sharing rows[] = {{8, 4, 0.5}, {4, 2, 0.5}, {2, 2, 0.65}, {0.3, 2, 0.87}};
    return longest <= 4 ? SharingTable() : rows;
}

SharingTable sharing_table(const Product& p, const Config& config, int64_t longest) {
    if (element_size(p.dtype) == 2) return sharing_16bit(config, longest);
    // By how many blocks share a multiprocessor.
    static constexpr Sharing alone[] = {{20, 8, 0}, {8, 4, 0}, {4, 2, 0.25}, {2, 2, 0.25}},
                             two[] = {
                                 {16, 8, 0}, {8, 4, 0}, {4, 2, 0.25}, {2, 2, 0.25}, {0.3, 2, 0.87}};
    return blocks_per_sm(p.dtype, config.tile) == 1 ? SharingTable(alone) : two;
}

// One block cannot finish its tile earlier than its sum is long. Where the longest sums come near the work that there
// is for each slot, or exceed it, blocks share them. Shorter sums are more accurate too, which at small n counts
// against libraries that do the same.
void share_direct_sums(Config& config, const Product& p, const Work& work, const Device& device) {
    if (!device.clusters) return;
    const bool warpgroups = by_warpgroups(p.dtype, config);
    // The estimate is for sums of some length, and not good for many of them where each block has a multiprocessor. In
    // 16-bit types longer ones are of few columns.
    const bool estimated =
        (element_size(p.dtype) > 2 ||
         (warpgroups && (p.batch == 1 || by_small_tiles(way_beside_dense(p, device))))) &&
        (config.method == Method::Mapped ||
         tile_side(p.dtype, config.tile) == tile_side(p.dtype, TileSize::Small)) &&
        p.k <= (is_wide_mapped(config)                    ? MOST_SHARED_SYMMETRIC
                : element_size(p.dtype) == 2              ? MOST_SHARED
                : warpgroups                              ? 16384
                : blocks_per_sm(p.dtype, config.tile) > 1 ? 1600
                                                          : 800);
    if (estimated) {
        Product as_computed = p;
        as_computed.tf32 = p.tf32 && warpgroups;
        share_sums(config, split_direct_sums(as_computed, device, is_wide_mapped(config)).choice);
        return;
    }
    if (p.k < 64 || (small_in_batch(p) && enough_tiles(p, work))) return;
    const Sharing* row = sharing_table(p, config, work.longest).find(work);
    if (!row) return;
    int split = row->split;
    while (split > 1 && p.k / split < (p.dtype == DType::f32 ? 16 : 32)) split /= 2;
    share_sums(config, work, split, row->above, 1);
}

}  // namespace

bool hopper_can(const Product& p, TileSize tile, const Device& device) {
    if (!device.clusters) return false;
    if (p.dtype == DType::f64) return !has_symmetric(p);
    const bool narrow = element_size(p.dtype) == 2 || p.tf32;
    return is_plain(p) && narrow && tile == TileSize::Small && in_reach(p.a) && in_reach(p.b) &&
           counts_in_32_bits(p.m, p.c.kind == Kind::Lower ? p.m : p.c.row_stride, 64);
}

Config choose_direct(const Product& p, const Device& device, bool scratch) {
    if (scratch && persistent_can(p, device)) return choose_f64(p, device);
    Config config{Method::Direct, direct_tile(p, device), 1, 1, 1};
    const Work work = direct_work(p, config.tile, device);
    if (takes_hopper(p, config.tile, work, device))
        config.method = goes_mapped(p, device) ? Method::Mapped : Method::Hopper;
    if (config.method == Method::Mapped && goes_wide_mapped(p, device))
        config.tile = TileSize::Large;
    share_direct_sums(config, p, work, device);
    // 16-bit tiles are multiplied so fast that the L2 cache must serve them; then neighbours matter
    // more than balance.
    if (element_size(p.dtype) == 2 && work.longest >= 64 && !is_wide_mapped(config))
        config.group = 8;
    return config;
}

}  // namespace packedtri::cuda
