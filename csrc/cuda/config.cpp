#include "config.h"

#include "choice.h"
#include "part_work.h"
#include "remembered.h"

namespace packedtri::cuda {
namespace {

// How many blocks share sums, where so many are wanted: clusters have a power of two of them.
int split_for(const Device& device, int wanted) {
    if (!device.clusters) return 1;
    int split = 1;
    while (2 * split <= wanted) split *= 2;
    return split;
}

// Whether direct tiles are known to be faster than images: such as mirror symmetric operands, and those of one product of
// few columns that the copy engine brings.
bool too_few_for_images(const Product& p, const Config& config, const Device& device) {
    if (forced.method >= 0) return false;
    if (mirrored_pays(p, device)) return true;
    if (const auto way = way_beside_dense(p, device)) return by_small_tiles(way);
    if (p.batch > 1 || config.method != Method::Mapped || !has_vectors(p)) return false;
    return p.k <= most_mapped(vectors_of(p)) ||
           (is_wide_mapped(config) && volume(p) <= LEAST_UNPACKED);
}

// What is forced of Config::part, but no more parts than there is memory for.
int part_for(const Product& p, const Config& config) {
    if (forced.split == 1 || forced.above == 0) return 0;
    if (forced.above < 0) return config.part;
    const int64_t steps = ceil_div(p.k, side_of_tiles(p, config) / PartWork::TILE);
    return std::max(forced.above.load(), static_cast<int>(ceil_div(steps, PartWork::MOST_PARTS)));
}

}  // namespace

Device describe(int multiprocessors, int major, int shared_kib, int64_t memory) {
    // Only the sm_90a code uses clusters; later chips run the sm_80 code, built from its PTX.
#if defined(PACKEDTRI_NO_HOPPER)
    const bool clusters = false;
    (void)major;
#else
    const bool clusters = major == 9;
#endif
    // Images of 16-bit operands are as large as these: room for those of an eighth of the memory.
    Device device{multiprocessors, clusters, shared_kib, std::max(Device{}.scratch, memory / 8)};
    // Of the devices that have them those of this kind were measured (choose_fragments.cpp); some are slow, which only the
    // driver tells (current_device).
    device.fast_doubles = clusters;
    return device;
}

// The thresholds were measured on an H100 (docs/cuda.md).
Config choose(const Product& p, const Device& device, bool scratch, int together) {
    if (is_mv(p)) return {Method::Vector, TileSize::Small, 1, 1, 1};
    if (remembered_tf32_tiles(p, device, together)) return choose_direct(p, device, scratch);
    if (goes_by_shared_images(p, device)) return choose_shared_images(p);
    if (goes_resident(p, device)) return choose_resident(p, device);
    const bool wide = scratch && goes_wide(p, device);
    if (!wide && goes_by_fragments(p, device)) return choose_fragments(p, device);
    if (scratch && goes_joined(p, device)) return choose_joined(p, device);
    if (scratch && goes_by_strips(p, device)) return {Method::Strips, TileSize::Small, 1, 1, 1};
    if (wide) return {Method::Wide, TileSize::Small, 1, 1, 1};
    if (goes_thin(p, device)) return {Method::Thin, TileSize::Small, 1, 1, 1};
    if (small_side(p, device)) return {Method::Small, TileSize::Small, 1, 1, 1};
    Config config = choose_direct(p, device, scratch);
    if (scratch && engine_can(p, device) && !too_few_for_images(p, config, device)) {
        const Config engine = choose_engine(p, device, together);
        if (forced.method < 0 ? engine_pays(p, engine, device, together)
                              : is_forced(Method::Engine) || is_forced(Method::Fused))
            config = engine;
    }
    // The engine has tiles of one size for parts of float32.
    if (const int tile = forced.tile; tile >= 0 && by_images(config) && !in_parts(p))
        config.tile = static_cast<TileSize>(tile);
    const int above = forced.above;
    if (is_persistent(p.dtype, config) ||
        (by_images(config) && engine_cuts(p, config.tile, together)))
        config.part = part_for(p, config);
    if (is_persistent(p.dtype, config)) return config;
    if (const int split = forced.split; split >= 1) {
        config.split = split_for(device, split);
        config.graded = 0;
    }
    if (above >= 1) {
        config.split_above = above;
        config.graded = 0;
    } else if (above < -1 && device.clusters && !by_images(config) &&
               (config.tile == TileSize::Small || is_wide_mapped(config)) &&
               (element_size(p.dtype) > 2 || by_warpgroups(p.dtype, config))) {
        share_sums(config, share_gradually(-above));
    }
    if (const int group = forced.group; group >= 1) config.group = group;
    if (by_images(config)) complete_engine(config, p, device, together);
    return config;
}

void force(int method, int tile, int split, int split_above, int group) {
    forced.method = method;
    forced.tile = tile;
    forced.split = split;
    forced.above = split_above;
    forced.group = group;
    ++forced.changes;
}

}  // namespace packedtri::cuda
