// Which products go through tile images, and how.
#include "choice.h"
#include "engine_layout.h"
#include "pack_order.h"
#include "remembered.h"

namespace packedtri::cuda {
namespace {

// What part of the multiplications of a dense product those of stored elements are, whose results are
// stored.
double stored_share(const Product& p) {
    const bool lower = p.c.kind == Kind::Lower;
    return 1.0 / ((lower ? 2 : 1) * (1 + triangles(p)));
}

// From which order on, and between how many small tiles for each multiprocessor, tile images are faster than all else that
// there is for a batch.
struct BatchLimits {
    int64_t order;
    double tiles, most_tiles = std::numeric_limits<double>::infinity();
};
constexpr BatchLimits NO_BATCH{ANY, 0};

// Fitted to timings of an H200 (benchmarks/shares/tile-images-nvidia-h200.json).
BatchLimits batch_limits(const Product& p) {
    const bool packed = p.c.kind == Kind::Lower, slow = slow_when_dense(p);
    const int count = triangles(p);
    // Of 16-bit elements, and of float32 in TF32 and in parts.
    const auto limits = [&](BatchLimits bits16, BatchLimits tf32, BatchLimits parts) {
        return element_size(p.dtype) == 2 ? bits16 : p.tf32 ? tf32 : parts;
    };
    const auto either = [&](BatchLimits aligned, BatchLimits otherwise) {
        return slow ? otherwise : aligned;
    };
    if (has_symmetric(p)) {
        if (count == 1) return limits(either({200, 0}, {96, 0}), {180, 0.15}, {180, 0});
        if (packed) return limits({112, 0}, either({180, 0.1}, {90, 0.1}), {112, 0});
        // Aligned copies of both halves dense torch multiplies quickly, in TF32 those of many small matrices.
        // Those of about 512 fill its tiles.
        const bool full = Orders{430, 540}.contain(narrowest(p));
        const BatchLimits small{257, 0, full ? 1.6 : 4}, large{1000, 0};
        return limits(either(NO_BATCH, {90, 0.1}),
                      either(narrowest(p) < large.order ? small : large, {90, 0.15}),
                      narrowest(p) < 400 ? BatchLimits{112, 0.3} : BatchLimits{400, 0.15});
    }
    if (count == 2 && !packed)
        return limits({200, 0.3}, either({240, 0.2}, {144, 0.2}), {144, 0.25});
    if (count == 2 && same_image(p.a, p.b)) return limits({257, 0.5}, {350, 0.8}, {180, 0.3});
    if (count == 2) return limits(either({350, 0.5}, {257, 0.3}), {257, 0.6}, {257, 0.2});
    if (packed && count == 0)
        return limits(either({64, 0.3}, {257, 0.25}), {180, 0.25}, {200, 0.2});
    // The only one that was not timed.
    if (packed) return limits({200, 0.6}, {300, 0.6}, {300, 0.6});
    return limits(either({250, 2.5}, {112, 0.3}), {180, 0.2}, {180, 0.4});
}

// Whether a batch, of `together` products, has enough to multiply for tile images.
bool enough_in_batch(const Product& p, const Device& device, int together) {
    if (many_small_pairs(p, device)) return false;
    constexpr int64_t side = engine_tile_side(TileSize::Small);
    const BatchLimits limits = batch_limits(p);
    const double filled = static_cast<double>(p.m) * static_cast<double>(p.n) / covered(p, side),
                 tiles = together * work(p, side, device.multiprocessors).tiles_per_slot * filled;
    return narrowest(p) >= limits.order && tiles >= limits.tiles && tiles < limits.most_tiles;
}

// From how many multiplications on tile images pay, of one matrix each.
double least_for_images(const Product& p) {
    const bool two = triangles(p) == 2, dense = two && p.c.kind == Kind::Dense;
    if (element_size(p.dtype) == 2) {
        if (triangles(p) == 1 && slow_when_dense(p)) return 2.2e8;
        return dense ? 1.4e8 : 2.5e8;
    }
    if (!p.tf32) return triangles(p) == 0 ? 1.75e8 : two ? 1.1e8 : 1.25e8;
    return dense ? 4e7 : two ? 3.5e7 : 6.5e7;
}

// From which order on, and how many multiplications, tile images are faster than all else that there is for one product.
struct SingleLimits {
    int64_t order;
    double multiplications = 0;
};

// With a symmetric operand, of which all is made, or half (least_half_image). What else there is for it, an unpacked copy, is
// quick where dense torch may have it; beside a triangle it may not.
SingleLimits symmetric_limits(const Product& p) {
    const bool bits16 = element_size(p.dtype) == 2, packed = p.c.kind == Kind::Lower,
               both = p.a.kind == p.b.kind;
    if (triangles(p) == 1) return {bits16 ? 500 : p.tf32 ? 501 : 513};
    if (packed && in_parts(p)) return {200, 4.4e7};
    if (packed) return {bits16 ? 500 : 430};
    if (in_parts(p) && (narrowest(p) >= 280 || p.k < 1000)) return {280, 7e7};
    if (in_parts(p)) return {33, p.k >= 1400 ? 7e7 : 1.6e8};
    if (p.tf32) return {p.k >= 4500 ? 33 : p.k >= 2400 ? 97 : 200, slow_when_dense(p) ? 6e7 : 9e7};
    if (!slow_when_dense(p)) return {p.k >= 4000 ? 129 : 200, narrowest(p) >= 512 ? 3e8 : 5e8};
    if (row_alignment(p) == 2 && !both) return {250, 6e7};
    return {both ? 250 : 510};
}

// Without one. A narrow one leaves much of its tiles empty, or has few.
SingleLimits single_limits(const Product& p) {
    const double least = least_for_images(p);
    if (narrowest(p) >= 512) return {512, least};
    // Fewer columns beside one triangle have tiles enough for float32, whose other kernels multiply slowly.
    if (triangles(p) == 1 && in_parts(p)) {
        if (narrowest(p) >= 192) return {192, 1.6e8};
        return p.k >= 2300 ? SingleLimits{65, least} : SingleLimits{129, 3e8};
    }
    if (triangles(p) == 1 && p.tf32) return {128, least};
    return {128, std::max(least, triangles(p) == 1 && slow_when_dense(p) ? 2.8e8 : 5e8)};
}

// Whether there is enough to multiply for tile images, of `together` products like this one: making them costs
// time, which must be small beside the product.
bool enough_for_images(const Product& p, const Device& device, int together) {
    if (p.batch > 1) return enough_in_batch(p, device, together);
    if (dense_pair_pays(p, device)) return true;
    const SingleLimits limits = has_symmetric(p) ? symmetric_limits(p) : single_limits(p);
    return narrowest(p) >= limits.order &&
           together * volume(p) * stored_share(p) >= limits.multiplications;
}

// From where on the L2 cache does not hold the images, and neighbours matter more than balance.
constexpr int64_t BY_GROUPS = 8192;
// From where on it holds so little of them that two triangles with a packed result gain by either.
constexpr int64_t FAR_ABOVE = 10000;
constexpr PartCosts ENGINE_COSTS{4, 0.9, 1.15, 0.91};

// The part of sums of large tiles.
int part_of_large(const Product& p, const Device& device, int together) {
    if (!engine_cuts(p, TileSize::Large, together)) return 0;
    // Scaled elements make parts of dense results dearer than what they spare where most sums are short.
    if (p.tf32 && p.c.kind != Kind::Lower && triangles(p) > 0) return 0;
    // Small tiles that are one round are sooner beside columns of 16-bit elements.
    if (element_size(p.dtype) == 2 && beside_dense(p) &&
        work(p, engine_tile_side(TileSize::Small), device.multiprocessors).tiles_per_slot <= 1)
        return 0;
    const int64_t side = engine_tile_side(TileSize::Large), slots = device.multiprocessors / 2;
    return choose_parts(p, side, slots, ENGINE_COSTS).part;
}

// Whether large tiles of the engine are faster than `small` ones. They need half the traffic, but there must be
// enough of them, and they leave no room for the parts of float32. In a batch half of each may be padding,
// the more where triangles meet.
bool engine_takes_large(const Product& p, const Work& small, const Device& device, int together) {
    if (in_parts(p)) return false;
    const int count = triangles(p);
    if (count < 2 && p.batch == 1)
        return large_tiles_win(p, device, together, part_of_large(p, device, together) > 0);
    const bool lower = p.c.kind == Kind::Lower;
    const int least = count == 2 && (p.tf32 || lower) ? 1100
                      : count == 0 && p.tf32 && lower ? 1800
                                                      : 700;
    if (p.batch > 1 && narrowest(p) < least) return false;
    const double most = count == 0 && p.tf32 ? 16 : count == 2 && !lower ? 23 : 24;
    return small.per_slot >= most;
}

// Whether the engine can make the images of the operands itself.
bool can_fuse(const Product& p, const Config& config, const Device& device) {
    constexpr int64_t most = PackOrder::MOST_LINES * PackOrder::SIDE * Image::SIDE;
    if (element_size(p.dtype) != 2 || longest(p) > most || has_symmetric(p)) return false;
    const EngineLayout layout = engine_layout(p, config, device.multiprocessors);
    return !(layout.a.mapped && layout.b.mapped) &&
           (layout.a.mapped || starts_of_rows_known(p.a, p.batch)) &&
           (layout.b.mapped || starts_of_rows_known(p.b, p.batch));
}

// A kernel of its own is quicker to make the first of an image, and the engine slower while it makes the rest. Where both
// operands have an image and the result is packed, up to 8% are gained.
bool fusing_pays(const Product& p) {
    return triangles(p) == 2 && p.c.kind == Kind::Lower && !same_image(p.a, p.b) &&
           p.k >= FAR_ABOVE;
}

// In groups of how many rows and columns tiles come, where the L2 cache does not hold the images. Those beside a dense
// matrix have panels instead. Measured with 8192 and 12288 in 16-bit types and TF32.
int group_of(const Product& p) {
    if (p.k < BY_GROUPS) return 1;
    // Of few rows or columns of tiles the cache holds enough, and the longest sums have to come first.
    if (narrowest(p) <= (in_parts(p) ? 1024 : 256)) return 1;
    if (in_parts(p) || triangles(p) == 0 || has_symmetric(p)) return 8;
    if (triangles(p) == 1) return 1;
    return p.c.kind == Kind::Lower && p.k < FAR_ABOVE ? 1 : 4;
}

}  // namespace

bool engine_cuts(const Product& p, TileSize tile, int together) {
    const int64_t reach = int64_t{EnginePiece::MOST_TILES} * engine_tile_side(TileSize::Large);
    return tile == TileSize::Large && p.m <= reach && p.n <= reach && p.batch == 1 &&
           together == 1 && p.k < BY_GROUPS && !in_parts(p);
}

// Whether the engine can compute the product: it knows float32 in three parts, and two-byte elements and float32 in
// TF32, which it cannot add to what is there.
bool engine_can(const Product& p, const Device& device) {
    if (!device.clusters || is_mv(p)) return false;
    const bool plain = p.alpha == 1 && p.beta == 0;
    // It names a tile by 16 bits for its row and 16 for its column.
    const int64_t reach = int64_t{0xffff} * engine_tile_side(TileSize::Small);
    if (p.m > reach || p.n > reach) return false;
    return in_parts(p) || ((p.tf32 || element_size(p.dtype) == 2) && plain);
}

// Narrow matrices have little to multiply, and what is stored takes the time: half of it here.
bool dense_pair_pays(const Product& p, const Device& device) {
    if (!device.clusters || triangles(p) > 0 || has_symmetric(p) || p.c.kind != Kind::Lower ||
        p.batch > 1 || !engine_can(p, device))
        return false;
    const double tiles = work(p, engine_tile_side(TileSize::Small), 1).tiles_per_slot;
    const auto from = [&](double least_tiles, int64_t least) {
        return tiles >= least_tiles && p.k >= least;
    };
    if (in_parts(p)) return from(36, 200) || from(55, 120) || from(78, 60) || from(300, 32);
    const bool slow = slow_when_dense(p);
    if (p.tf32)
        return !slow &&
               (from(28, 500) || from(45, 100) || from(55, 64) || from(171, 32) || from(528, 16));
    return from(105, 16) || from(78, 96) || (!slow && from(45, 160));
}

bool many_small_pairs(const Product& p, const Device& device) {
    if (!p.tf32 || p.batch < 200 || triangles(p) > 0 || has_symmetric(p) ||
        p.c.kind != Kind::Lower || slow_when_dense(p) || narrowest(p) <= 192 || longest(p) > 600)
        return false;
    return work(p, engine_tile_side(TileSize::Small), device.multiprocessors).tiles_per_slot >= 5;
}

bool images_pay_in_batch(const Product& p, const Device& device, int together) {
    return p.batch > 1 && images_allowed() && engine_can(p, device) && !small_side(p, device) &&
           !goes_by_fragments(p, device) && enough_in_batch(p, device, together);
}

bool images_have_room(const Product& p, const Config& config, const Device& device) {
    return engine_layout(p, config, device.multiprocessors).scratch_bytes(1) <= device.scratch;
}

bool engine_pays(const Product& p, const Config& config, const Device& device, int together) {
    if (!images_allowed()) return false;
    const auto way = way_beside_dense(p, device);
    return (way ? way == BesideDense::Images : enough_for_images(p, device, together)) &&
           images_have_room(p, config, device);
}

bool goes_joined(const Product& p, const Device& device) {
    if (!device.clusters || !can_join(p)) return false;
    const Product all = joined(p);
    if (!by_images(remembered_choice(all, device, true))) return false;
    // How long the product is that all columns make says nothing about the batch.
    return is_elongated(all, device) || !leaves_to_dense(all, device);
}

Config choose_joined(const Product& p, const Device& device) {
    Config config = remembered_choice(joined(p), device, true);
    config.method = Method::Engine;
    config.part = 0;
    config.joined = true;
    return config;
}

Config choose_engine(const Product& p, const Device& device, int together) {
    Config config{Method::Engine, TileSize::Small, 1, 1, 1};
    Work small = work(p, engine_tile_side(TileSize::Small), device.multiprocessors);
    small.per_slot *= together;
    if (engine_takes_large(p, small, device, together)) {
        config.tile = TileSize::Large;
        config.part = part_of_large(p, device, together);
    } else {
        const Shared shared = share_engine_sums(p, device, together);
        config.tile = shared.tile;
        config.split = shared.split;
        config.split_above = shared.above;
    }
    config.group = group_of(p);
    return config;
}

void complete_engine(Config& config, const Product& p, const Device& device, int together) {
    if (config.tile == TileSize::Large) config.split = 1;  // Its blocks come in clusters already.
    else config.part = 0;
    config.split = std::min(config.split, MOST_SHARERS);
    // An item has 16 bits for the number of its row of tiles.
    if (config.tile == TileSize::Half && ceil_div(p.m, engine_tile_side(config.tile)) > 0x7fff)
        config.tile = TileSize::Small;
    if (config.part > 0) config.group = 1;
    const bool fuses =
        forced.method < 0 ? fusing_pays(p) && together == 1 : is_forced(Method::Fused);
    if (!fuses || !can_fuse(p, config, device)) return;
    config.method = Method::Fused;
    if (p.k >= BY_GROUPS && forced.group < 1) config.group = 8;  // Faster there.
    config.part = 0;
    config.tile = TileSize::Large;  // Pieces of images are as large.
    config.split = 1;
}

}  // namespace packedtri::cuda
