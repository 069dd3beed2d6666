#include "config.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "choice.h"
#include "engine_layout.h"
#include "pack_order.h"
#include "persistent_work.h"

namespace packedtri::cuda {
namespace {

// Whether each matrix of a batch lies in memory without gaps.
bool in_one_piece(const Operand& x) {
    if (x.kind != Kind::Dense) return true;
    return runs_along_rows(x) ? x.row_stride == x.cols : x.col_stride == x.rows;
}

// What part of the multiplications of a dense product those of stored elements are, whose results are
// stored.
double stored_share(const Product& p) {
    const bool lower = p.c.kind == Kind::Lower;
    return 1.0 / ((lower ? 2 : 1) * (1 + triangles(p)));
}

// How long the sums of a product are, in tiles.
struct Work {
    int64_t longest;
    // How many tiles, and how many of all sums together, there are for each block that runs at once.
    double tiles_per_slot, per_slot;
};

Work work(const Product& p, int64_t side, int64_t slots) {
    const int64_t tm = ceil_div(p.m, side), tn = ceil_div(p.n, side), tk = ceil_div(p.k, side);
    const bool lower = p.c.kind == Kind::Lower && tm == tn;
    const int64_t tiles = (lower ? row_start(tm) : tm * tn) * p.batch;
    const double tiles_per_slot = static_cast<double>(tiles) / static_cast<double>(slots);
    return {tk, tiles_per_slot, tiles_per_slot * static_cast<double>(tk) / (1 + triangles(p))};
}

Work direct_work(const Product& p, TileSize size, const Device& device) {
    return work(p, tile_side(p.dtype, size),
                int64_t{device.multiprocessors} * blocks_per_sm(p.dtype, size));
}

// Whether a product is one of a batch of small ones: many tiles with short sums, whose best choices are not
// those of one product of as many tiles.
bool small_in_batch(const Product& p) {
    return p.batch >= 8 && longest(p) <= 1024 && !has_complex_elements(p.dtype);
}

// From so many steps of the sum on batches of float64 have the kernel of persistent.cuh.
constexpr int64_t PERSISTENT_STEPS = 112;

// Whether such products have enough large tiles to give each slot some: more, where their sums differ. Blocks that
// go from tile to tile, and cut sums, need fewer, and tiles may be half empty.
bool enough_large_tiles(const Product& p, const Work& large, bool persistent) {
    if (persistent && p.k >= PERSISTENT_STEPS)
        return large_tiles_fit(p, 1.8) && large.tiles_per_slot >= (triangles(p) == 2 ? 1.2 : 0.95);
    if (!large_tiles_fit(p)) return false;
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

// Lets `split` blocks share the sums that have `above` of the tiles of the longest one, and at least `least`.
void share_sums(Config& config, const Work& work, int split, double above, int least) {
    config.split = split;
    config.split_above =
        std::max(least, static_cast<int>(above * static_cast<double>(work.longest)));
}

// Whether the engine multiplies float32 in parts that keep all of its bits.
bool in_parts(const Product& p) { return p.dtype == DType::f32 && !p.tf32; }

// Whether the engine can compute the product: it knows two-byte elements, which it cannot scale, and
// float32 in TF32 or in three parts.
bool engine_can(const Product& p, const Device& device) {
    if (!device.clusters || is_mv(p)) return false;
    const bool plain = p.alpha == 1 && p.beta == 0;
    // It names a tile by 16 bits for its row and 16 for its column.
    const int64_t reach = int64_t{0xffff} * engine_tile_side(TileSize::Small);
    if (p.m > reach || p.n > reach) return false;
    return p.dtype == DType::f32 || (element_size(p.dtype) == 2 && plain);
}

// Whether a batch, of `multiplications` for each matrix, has enough to multiply for tile images. What these take
// grows with the square of the order, what they save with its cube, hence `weight`. Products of dense matrices,
// and those of one triangle, rather need tiles for all multiprocessors.
bool enough_in_batch(const Product& p, const Device& device, int together, double multiplications) {
    const double all = multiplications * static_cast<double>(p.batch),
                 weight = all * static_cast<double>(narrowest(p)),
                 tiles =
                     together * work(p, engine_tile_side(TileSize::Small), device.multiprocessors)
                                    .tiles_per_slot;
    const int count = triangles(p);
    const bool packed = p.c.kind == Kind::Lower, slow = slow_when_dense(p);
    if (in_parts(p)) {
        if (has_symmetric(p) && count == 0 && packed) return narrowest(p) >= 120 && all >= 2.2e8;
        if (has_symmetric(p))
            return count == 1 ? narrowest(p) >= 250 && all >= 2.5e8
                              : narrowest(p) >= 500 && all >= 3e8;
        return weight >= 2.5e10 && narrowest(p) >= (packed ? 500 : count == 2 ? 380 : 300);
    }
    // Unpacked copies of both halves are quicker than their images, where dense torch multiplies quickly.
    if (has_symmetric(p)) {
        const double elements = static_cast<double>(p.m * p.n * p.batch);
        if (!slow) return false;
        if (count == 0 && packed) return narrowest(p) >= (p.tf32 ? 128 : 65) && elements >= 2e6;
        if (count == 0 && row_alignment(p) < 8 && !p.tf32)
            return narrowest(p) >= 65 && elements >= 1e6;
        const int least = p.tf32 ? 700 : row_alignment(p) < 8 ? 190 : 850;
        return all >= 4e8 && narrowest(p) >= least;
    }
    if (packed && count == 2) {
        if (!p.tf32) return weight >= (slow ? 1e11 : 3e11);
        const bool one_image = shares_image(p) && (p.batch >= 16 || large_tiles_fit(p));
        return narrowest(p) >= (one_image ? 150 : 256) && weight >= (one_image ? 3.4e9 : 2e10);
    }
    if (packed) {
        const double least = p.tf32 ? 0.68 : slow ? 0.9 : 1.4;
        return narrowest(p) >= (p.tf32 && slow ? 250 : 128) && tiles >= least;
    }
    if (p.tf32 && count == 2) return narrowest(p) >= 192 && weight > (slow ? 1.4e10 : 5e10);
    if (p.tf32) return narrowest(p) >= 250 && tiles >= 2 && (slow || maps_dense_operand(p));
    if (slow) return narrowest(p) >= 129 && tiles >= (narrowest(p) < 250 ? 2 : 1.2);
    return narrowest(p) >= 250 && tiles >= (count == 1 ? 2.5 : 2);
}

// Whether there is enough to multiply for tile images, of `together` products like this one: making them costs
// time, which must be small beside the product.
bool enough_for_images(const Product& p, const Device& device, int together) {
    const double multiplications = together * volume(p) * stored_share(p);
    if (p.batch > 1) return enough_in_batch(p, device, together, multiplications);
    const double least = element_size(p.dtype) == 2 ? 2.5e8 : p.tf32 ? 7e7 : 8.5e7;
    // A narrow one leaves much of its tiles empty, or has few. Of a symmetric operand both halves are made,
    // and what else there is for it, an unpacked copy, is quick where dense torch may have it.
    const bool symmetric = has_symmetric(p);
    // Beside a triangle the copy is not for dense torch.
    if (symmetric && p.dtype == DType::f32 && triangles(p) == 1)
        return narrowest(p) > 512 && multiplications >= 6e7;
    // Where dense torch is slow.
    if (symmetric && triangles(p) == 0 && slow_when_dense(p)) {
        if (p.c.kind == Kind::Lower) return narrowest(p) >= (p.tf32 ? 500 : 640);
        const bool both = p.a.kind == p.b.kind;
        if (!p.tf32) return narrowest(p) >= (both ? 250 : row_alignment(p) == 2 ? 440 : 510);
    }
    const double more = !symmetric ? 0 : row_alignment(p) == 8 ? 6e8 : 3e8, least_narrow = 5e8;
    return narrowest(p) >= (symmetric ? 200 : 128) &&
           multiplications >= std::max({least, more, narrowest(p) >= 512 ? 0 : least_narrow});
}

bool engine_pays(const Product& p, const Config& config, const Device& device, int together) {
    return enough_for_images(p, device, together) &&
           engine_layout(p, config).scratch_bytes(1) <= device.scratch;
}

// Whether the kernel for 16-bit elements on Hopper reaches all of a matrix of `lines` memory rows, `pitch`
// elements apart at most: it counts elements in 32 bits and by whole tiles.
bool in_reach(int64_t lines, int64_t pitch) {
    constexpr int64_t most = int64_t{1} << 31, tile = 64;
    return (lines + tile) * (pitch + tile) < most;
}
// It also relies on the word in which the matrix ends holding elements of the last row only, so rows must
// be as long as a word, and not overlap.
bool in_reach(const Operand& x) {
    const bool by_rows = runs_along_rows(x);
    const int64_t lines = by_rows ? x.rows : x.cols, length = by_rows ? x.cols : x.rows;
    if (length < 8) return false;
    if (x.kind != Kind::Dense) return in_reach(lines, length);
    const int64_t pitch = by_rows ? x.row_stride : x.col_stride;
    return pitch >= length && in_reach(lines, pitch);
}

// Whether there is a direct kernel for Hopper: for large tiles of float64, and for small ones of 16-bit
// elements.
bool hopper_can(const Product& p, TileSize tile, const Device& device) {
    if (!device.clusters || has_symmetric(p)) return false;
    if (p.dtype == DType::f64) return tile == TileSize::Large;
    return is_plain(p) && element_size(p.dtype) == 2 && tile == TileSize::Small && in_reach(p.a) &&
           in_reach(p.b) && in_reach(p.m, p.c.kind == Kind::Lower ? p.m : p.c.row_stride);
}

// Whether large tiles of the engine are faster than `small` ones. They need half the traffic, but there must be
// enough of them, and they leave no room for the parts of float32. In a batch half of each may be padding,
// the more where triangles meet.
bool engine_takes_large(const Product& p, const Work& small) {
    if (in_parts(p)) return false;
    const bool both = triangles(p) == 2 && (p.tf32 || p.c.kind == Kind::Lower);
    if (p.batch > 1 && narrowest(p) < (both ? 1100 : 700)) return false;
    return small.per_slot >= (p.tf32 && triangles(p) == 0 ? 16 : 24);
}

Config choose_engine(const Product& p, const Device& device, int together) {
    Config config{Method::Engine, TileSize::Small, 1, 1, 1};
    Work small = work(p, engine_tile_side(TileSize::Small), device.multiprocessors);
    small.per_slot *= together;
    if (engine_takes_large(p, small)) {
        config.tile = TileSize::Large;
    } else {
        const double excess = static_cast<double>(small.longest) / small.per_slot;
        const auto share = [&](int split, double above) {
            share_sums(config, small, split, above, 2);
        };
        if (excess > 6) share(4, 0.5);
        else if (excess > 4) share(2, 0.35);
        else if (excess > 2.2) share(2, 0.63);
        else if (excess > (in_parts(p) ? 1.2 : 1.5)) share(2, in_parts(p) ? 0.63 : 0.75);
    }
    // From where on the L2 cache does not hold the images, neighbours matter more than balance.
    if (p.k >= 8192) config.group = 8;
    return config;
}

// Whether the engine can make an operand's image itself: of a triangle without gaps, where rows start at
// known distances from aligned addresses (pack_rows.cuh).
bool can_fuse(const Product& p, const Operand& x, const EngineSource& source) {
    return source.mapped || (is_triangular(x.kind) && x.stagger == Stagger::None &&
                             reinterpret_cast<uintptr_t>(x.data) % 16 == 0 &&
                             (p.batch == 1 || x.batch_stride % 8 == 0));
}
bool can_fuse(const Product& p, const Config& config) {
    constexpr int64_t most = PackOrder::MOST_LINES * PackOrder::SIDE * Image::SIDE;
    if (element_size(p.dtype) != 2 || longest(p) > most) return false;
    const EngineLayout layout = engine_layout(p, config);
    return !(layout.a.mapped && layout.b.mapped) && can_fuse(p, p.a, layout.a) &&
           can_fuse(p, p.b, layout.b);
}

// A kernel of its own is quicker to make the first of an image; the engine makes the rest for nothing.
bool fusing_pays(const Product& p) { return std::min({p.m, p.n, p.k}) >= 5000; }

// Into how many parts the engine can cut a sum. Large tiles have clusters already. Of more than two parts some
// rows are stored although others of their mark are not finite, which a sum into C does not bear.
int engine_split(const Product& p, const Config& config) {
    if (config.tile == TileSize::Large) return 1;
    return p.beta == 0 ? config.split : std::min(config.split, 2);
}

// Into how many parts the kernel of persistent.cuh cuts the sums of the tiles that are left over, where all are equally
// long: so that their rounds take the least time, of which a part costs that of one tile more.
int parts_of_left_over(const Product& p, int64_t longest, const Device& device) {
    const int64_t slots = device.multiprocessors,
                  left = left_over(schedule_of(p, tile_side(p.dtype, TileSize::Large), 1), p.batch,
                                   device.multiprocessors);
    int best = 1;
    double least = std::numeric_limits<double>::max();
    for (int parts = 1; parts <= std::min<int64_t>(PersistentWork::MOST_PARTS, longest); ++parts) {
        const double rounds = static_cast<double>(ceil_div(left * parts, slots)),
                     time = rounds * (static_cast<double>(longest) / parts + 1);
        if (time >= least) continue;
        least = time;
        best = parts;
    }
    return best;
}

// How that kernel cuts sums. Triangles: those that are longer than the work there is for each multiprocessor, into
// parts of about that, or shorter ones where these are few, which then fit together better. In a batch others
// fill the time, and sums may be half as long again (L @ L of 1024 to 4096, batches of 8 to 512 of 192 to 1024).
void cut_sums(Config& config, const Product& p, const Work& work, const Device& device) {
    if (triangles(p) == 0) {
        config.split = parts_of_left_over(p, work.longest, device);
        return;
    }
    const bool few = p.batch == 1 && work.per_slot < 7.5;
    const int part = std::max(2, static_cast<int>(std::lround(work.per_slot * (few ? 0.7 : 1.07))));
    const double bearable = work.per_slot * (p.batch == 1 ? 1 : 1.5);
    if (static_cast<double>(work.longest) <= bearable || part >= work.longest) return;
    config.split = static_cast<int>(
        std::min<int64_t>(PersistentWork::MOST_PARTS, ceil_div(work.longest, part)));
    config.split_above = part + 1;
}

Config choose_direct(const Product& p, const Device& device, bool scratch) {
    Config config{Method::Direct, TileSize::Large, 1, 1, 1};
    const bool small_elements = element_size(p.dtype) == 2, in_batch = small_in_batch(p),
               persistent = p.dtype == DType::f64 && scratch &&
                            hopper_can(p, TileSize::Large, device) && !is_forced(Method::Direct);
    // Large tiles reuse more of what they load, but a small problem has too few to fill the device.
    // Small tiles of 16-bit elements share a multiprocessor, where one copies while the other multiplies.
    const Work large = direct_work(p, TileSize::Large, device);
    const double few = small_elements          ? 8
                       : p.dtype != DType::f64 ? 5
                       : !persistent           ? 7
                       : triangles(p) == 0     ? 2
                                               : 5;
    const bool enough = !in_batch        ? large.per_slot >= few
                        : small_elements ? direct_work(p, TileSize::Small, device).per_slot >= 30
                                         : enough_large_tiles(p, large, persistent);
    if (!enough || tile_shared_kib(p.dtype, TileSize::Large) > device.shared_kib)
        config.tile = TileSize::Small;
    if (const int tile = forced.tile; tile >= 0) config.tile = static_cast<TileSize>(tile);

    // One block cannot finish its tile earlier than its sum is long. Where the longest sums come
    // near the work that there is for each slot, or exceed it, blocks share them. Shorter sums are
    // more accurate too, which at small n counts against libraries that do the same.
    const Work w = direct_work(p, config.tile, device);
    const double excess = static_cast<double>(w.longest) / w.per_slot;
    if (persistent && config.tile == TileSize::Large) {
        // It starts later.
        const bool pays = !in_batch || p.k >= PERSISTENT_STEPS;
        if (forced.method < 0 ? pays : is_forced(Method::Hopper)) {
            config.method = Method::Hopper;
            cut_sums(config, p, w, device);
            return config;
        }
    } else if (small_elements && hopper_can(p, config.tile, device)) {
        // Its kernel starts and ends sooner, but does not multiply faster than that for large tiles.
        const bool pays = in_batch || w.per_slot < 4.5;
        if (forced.method < 0 ? pays : is_forced(Method::Hopper)) config.method = Method::Hopper;
    }
    if (device.clusters && p.k >= 64 && !(in_batch && enough_tiles(p, w))) {
        const bool f32 = p.dtype == DType::f32;
        const auto share = [&](int split, double above) {
            while (split > 1 && p.k / split < (f32 ? 16 : 32)) split /= 2;
            share_sums(config, w, split, above, 1);
        };
        if (small_elements && config.method == Method::Hopper) {
            // Blocks meet so quickly that sums of a few tiles are worth sharing.
            if (w.longest <= 2) share(1, 1);
            else if (excess > 8) share(4, w.longest <= 8 ? 0.5 : 0.25);
            else if (excess > 0.3) share(2, excess > 2 ? 0.63 : 0.87);
        } else if (small_elements) {
            // Their sums of a few tiles take less time than a cluster needs to meet.
            if (w.longest <= 4) share(1, 1);
            else if (excess > 8) share(4, 0.5);
            else if (excess > 2) share(2, excess > 4 ? 0.5 : 0.65);
            else if (excess > 0.3) share(2, 0.87);
        } else if (p.dtype == DType::f64 && config.tile == TileSize::Small) {
            // With one triangle more of the sums are nearly the longest.
            const bool one = triangles(p) == 1;
            if (excess > 30) share(8, 0);
            else if (excess > 8) share(4, 0.25);
            else if (excess > 4) share(2, 0.25);
            else if (excess > 2.9) share(2, 0.65);
            else if (excess > (one ? 1.7 : 2)) share(2, one ? 0.89 : 0.77);
            else if (excess > 0.3 && !one) share(2, 0.87);
        } else if (excess > (f32 ? 16 : 20)) share(8, 0);
        else if (excess > 8) share(4, 0);
        else if (excess > 4) share(2, 0.25);
        else if (excess > 2) share(2, blocks_per_sm(p.dtype, config.tile) > 2 ? 0.65 : 0.25);
        else if (excess > 0.3 && blocks_per_sm(p.dtype, config.tile) > 1) share(2, 0.87);
    }
    // 16-bit tiles are multiplied so fast that the L2 cache must serve them; then neighbours matter
    // more than balance.
    if (small_elements && w.longest >= 64) config.group = 8;
    return config;
}

std::string explain_wide(const Product& p, const Config& config) {
    std::string text =
        std::to_string(wide_vectors(vectors_of(p), config.tile)) + " vectors at once";
    if (has_symmetric(p)) text += ", two passes over the triangle";
    if (config.split > 1) text += ", sums shared by " + std::to_string(config.split) + " blocks";
    return text;
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
    return {multiprocessors, clusters, shared_kib, std::max(Device{}.scratch, memory / 8)};
}

// The thresholds were measured on an H100 (docs/cuda.md).
Config choose(const Product& p, const Device& device, bool scratch, int together) {
    // A product with marks has only the blocks that the engine has not stored.
    if (p.marks) return {Method::Direct, TileSize::Large, 1, 1, 1};
    if (is_mv(p)) return {Method::Vector, TileSize::Small, 1, 1, 1};
    if (goes_wide(p, device)) return choose_wide(p, device);
    if (goes_thin(p)) return {Method::Thin, TileSize::Small, 1, 1, 1};
    if (small_side(p, device)) return {Method::Small, TileSize::Small, 1, 1, 1};
    Config config = choose_direct(p, device, scratch);
    if (scratch && engine_can(p, device)) {
        const Config engine = choose_engine(p, device, together);
        if (forced.method < 0 ? engine_pays(p, engine, device, together)
                              : is_forced(Method::Engine) || is_forced(Method::Fused))
            config = engine;
    }
    // The engine has tiles of one size for parts of float32.
    if (const int tile = forced.tile; tile >= 0 && by_images(config) && !in_parts(p))
        config.tile = static_cast<TileSize>(tile);
    if (const int split = forced.split; split >= 1) config.split = device.clusters ? split : 1;
    if (const int above = forced.above; above >= 1) config.split_above = above;
    if (const int group = forced.group; group >= 1) config.group = group;
    if (by_images(config)) config.split = engine_split(p, config);
    const bool fuses = forced.method < 0 ? fusing_pays(p) : is_forced(Method::Fused);
    if (by_images(config) && fuses && can_fuse(p, config)) {
        config.method = Method::Fused;
        config.tile = TileSize::Large;  // Pieces of images are as large.
        config.split = 1;
    }
    return config;
}

// One block takes long for more than 128 rows, which others wait for only in large batches. Of a large matrix
// the parts of sums must not take longer than what they save; batches are the second dimension of a grid.
bool mv_symmetric_can(const Product& p) {
    if (!has_symmetric(p)) return false;
    if (p.k <= MV_SMALL_SYMMETRIC) return p.k <= 128 || p.batch >= 100;
    return (p.k >= 512 || p.batch >= 8) && p.batch <= 65535;
}

int small_side(const Product& p, const Device& device) {
    const int side = longest(p) <= 32 ? 32 : longest(p) <= 64 ? 64 : longest(p) <= 128 ? 128 : 0;
    const int64_t size = element_size(p.dtype);
    if (!is_plain(p) || has_symmetric(p) || forced.method >= 0) return 0;
    if (side == 0 || forced.tile >= 0 || (side == 128 && size > 4)) return 0;
    // Few products leave multiprocessors idle, which tiles of their own do not, and in 16-bit types those
    // start sooner; the kernel for two lower triangles is faster all the same.
    const bool tiles = side > 32 || hopper_can(p, TileSize::Small, device);
    const bool few = tiles && p.batch < (size == 2 ? device.multiprocessors : 24);
    // In float64 tiles start sooner, and tiles of dense operands are loaded faster.
    const int64_t order = longest(p);
    const bool f64 = p.dtype == DType::f64, sooner = f64 && order > 16 && p.batch < 256;
    const bool faster =
        p.batch >= 256 && order > 60 &&
        (f64 ? triangles(p) < 2 : p.dtype == DType::f32 && triangles(p) == 0 && p.batch <= 1024);
    const bool better = few || (side == 32 && sooner) || (side == 64 && faster);
    if (better && !(side <= 64 && goes_by_lane_grid(p))) return 0;
    if (!in_one_piece(p.a) || !in_one_piece(p.b)) return 0;
    if (p.c.kind == Kind::Dense && p.c.row_stride != p.n) return 0;
    // Both operands are in shared memory at once as they are stored, and as padded tiles; in the kernel for two lower
    // triangles only as stored, up to whole steps of rows.
    const int64_t stored = stored_elements(p.a) + stored_elements(p.b);
    const int64_t beside = goes_by_lane_grid(p) ? row_start(side) - row_start(order) + side
                                                : 2 * int64_t{side} * (side + 8);
    return size * (stored + beside) <= (device.shared_kib - 3) * 1024 ? side : 0;
}

static std::string explain_small(const Product& p, int side) {
    if (goes_by_lane_grid(p)) return "small, the result in registers";
    return "small, both operands in shared memory as " + std::to_string(side) + " x " +
           std::to_string(side);
}

static std::string explain_tiles(const Product& p, const Config& c) {
    const bool engine = by_images(c);
    const std::string side =
        std::to_string(engine ? engine_tile_side(c.tile) : tile_side(p.dtype, c.tile));
    std::string text = (engine ? "tile images, tiles " : "direct, tiles ") + side + " x " + side;
    if (c.method == Method::Fused) text += ", images made on the way";
    if (c.method == Method::Hopper)
        text += is_persistent(c) ? ", loaded by warps of their own" : ", multiplied by warpgroups";
    if (engine && p.dtype == DType::f32)
        text += in_parts(p) ? ", in three bfloat16 parts" : ", in tf32";
    const std::string parts = std::to_string(c.split),
                      long_sums = ", sums of " + std::to_string(c.split_above) + " tiles and more";
    if (c.split > 1 && is_persistent(c) && triangles(p) == 0)
        text += ", sums of the tiles left over cut into " + parts + " parts";
    else if (c.split > 1 && is_persistent(c))
        text += long_sums + " cut into up to " + parts + " parts";
    else if (c.split > 1) text += long_sums + " shared by " + parts + " blocks";
    if (c.group > 1)
        text += ", groups of " + std::to_string(c.group) + " x " + std::to_string(c.group);
    return text;
}

std::string explain(const Product& p, const Device& device) {
    if (wide_when_aligned(p, device))
        return "rows of the dense operand aligned, then " + explain_wide(p, choose_wide(p, device));
    if (leaves_to_dense(p, device)) {
        if (!goes_on_unpacked(p, device)) return "unpacked, then dense torch";
        return "symmetric operand unpacked, then " + explain(with_unpacked(p), device);
    }
    const Config c = choose(p, device);
    switch (c.method) {
        case Method::Vector:
            return has_symmetric(p) && !mv_symmetric_can(p)
                       ? "matrix-vector, two passes over the triangle"
                       : "matrix-vector, one pass over the triangle";
        case Method::Thin:
            return has_symmetric(p) ? "a few vectors, two passes over the triangle"
                                    : "a few vectors";
        case Method::Wide: return explain_wide(p, c);
        case Method::Small: return explain_small(p, small_side(p, device));
        default: return explain_tiles(p, c);
    }
}

void force(int method, int tile, int split, int split_above, int group) {
    forced.method = method;
    forced.tile = tile;
    forced.split = split;
    forced.above = split_above;
    forced.group = group;
}

}  // namespace packedtri::cuda
