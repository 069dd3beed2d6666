// What the files of the choice of kernels (config.h) have in common.
#pragma once

#include <algorithm>
#include <atomic>
#include <limits>
#include <utility>

#include "config.h"

namespace packedtri::cuda {

// What `force` has set.
struct Forced {
    std::atomic<int> method{-1}, tile{-1}, split{-1}, above{-1}, group{-1};
    std::atomic<int64_t> changes{0};  // How often it was set.
};
inline Forced forced;

// Whether a method is forced, so that none is chosen for its speed.
inline bool any_forced() { return forced.method >= 0; }
inline bool is_forced(Method method) { return forced.method == static_cast<int>(method); }

// The method that is forced where all is chosen freely but for tile images, so that what else there is can be timed.
constexpr int ALL_BUT_IMAGES = -2;
inline bool images_allowed() { return forced.method != ALL_BUT_IMAGES; }
// The one that is forced where all is chosen freely but for symmetric operands of float64, which are multiplied by triangles.
constexpr int BY_TRIANGLES = -3;

// A limit that all sizes are within.
constexpr int64_t ANY = std::numeric_limits<int64_t>::max();

// Between which orders a kernel is faster than what a product has otherwise.
struct Orders {
    int64_t least, most = ANY;
    bool contain(int64_t order) const { return order >= least && order <= most; }
};
constexpr Orders NO_ORDERS{ANY};

inline int64_t longest(const Product& p) { return std::max({p.m, p.n, p.k}); }
inline int64_t narrowest(const Product& p) { return std::min({p.m, p.n, p.k}); }
// Whether there is nothing to multiply.
inline bool is_empty(const Product& p) { return narrowest(p) == 0 || p.batch == 0; }
// Multiplications of a matrix of the batch, as if all elements were stored.
inline double volume(const Product& p) {
    return static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
}

// Whether an operand is symmetric and the other one a triangle.
inline bool beside_triangle(const Product& p) { return has_symmetric(p) && has_triangle(p); }
// The same of a dense one.
inline bool beside_dense(const Product& p) {
    return has_symmetric(p) && (p.a.kind == Kind::Dense || p.b.kind == Kind::Dense);
}

// The operands of a product of a packed matrix and vectors (has_vectors).
inline const Operand& dense_operand(const Product& p) {
    return p.a.kind == Kind::Dense ? p.a : p.b;
}
inline const Operand& packed_operand(const Product& p) {
    return p.a.kind == Kind::Dense ? p.b : p.a;
}

// Whether elements of a matrix, whose lines are so far apart, can be counted in 32 bits, with `beyond` rows and columns
// more.
inline bool counts_in_32_bits(int64_t lines, int64_t pitch, int64_t beyond) {
    constexpr int64_t end = int64_t{1} << 31;
    return lines < end && pitch < end && (lines + beyond) * (pitch + beyond) < end;
}
inline bool counts_in_32_bits(const Operand& x, int64_t beyond) {
    const bool dense = x.kind == Kind::Dense && x.stagger == Stagger::None;
    const int64_t side = std::max(x.rows, x.cols), stride = std::max(x.row_stride, x.col_stride),
                  pitch = dense ? stride : side + (x.stagger == Stagger::None ? 0 : stride);
    return counts_in_32_bits(side, pitch, beyond);
}

// How many operands are triangles.
inline int triangles(const Product& p) { return is_triangular(p.a.kind) + is_triangular(p.b.kind); }

// At multiples of how many bytes all rows begin of what dense torch would multiply, on unpacked copies: 16 at most.
inline int64_t row_alignment(const Product& p) {
    int64_t all = 16 | p.n * element_size(p.dtype);
    for (const Operand& x : {p.a, p.b}) {
        const int64_t pitch = x.kind != Kind::Dense ? p.k
                              : runs_along_rows(x)  ? x.row_stride
                                                    : x.col_stride;
        all |= pitch * element_size(p.dtype);
    }
    return all & -all;
}
// Where they do at less, it is several times slower than elsewhere in 16-bit types and TF32.
inline bool slow_when_dense(const Product& p) {
    return (element_size(p.dtype) == 2 || p.tf32) && row_alignment(p) < 16;
}

// How long the sums of a product are, in tiles.
struct Work {
    int64_t longest;
    // How many tiles, and how many of all sums together, there are for each block that runs at once.
    double tiles_per_slot, per_slot;
};

inline Work work(const Product& p, int64_t side, int64_t slots) {
    const int64_t tm = ceil_div(p.m, side), tn = ceil_div(p.n, side), tk = ceil_div(p.k, side);
    const bool lower = p.c.kind == Kind::Lower && tm == tn;
    const int64_t tiles = (lower ? row_start(tm) : tm * tn) * p.batch;
    const double tiles_per_slot = static_cast<double>(tiles) / static_cast<double>(slots);
    return {tk, tiles_per_slot, tiles_per_slot * static_cast<double>(tk) / (1 + triangles(p))};
}

// Lets `split` blocks share the sums that have `above` of the tiles of the longest one, and at least `least`.
inline void share_sums(Config& config, const Work& work, int split, double above, int least) {
    config.split = split;
    config.split_above =
        std::max(least, static_cast<int>(above * static_cast<double>(work.longest)));
}

// Where the longest sum is `excess` times as long as the work that there is for each slot, or more, `split` blocks or
// clusters share the sums that have `above` of its tiles and more.
struct Sharing {
    double excess;
    int split;
    double above;
};

// Of the rows of a table the first one that fits counts.
struct SharingTable {
    const Sharing *first, *last;
    template <int count>
    SharingTable(const Sharing (&rows)[count]) : first(rows), last(rows + count) {}
    SharingTable() : first(nullptr), last(nullptr) {}

    // Null where none fits.
    const Sharing* find(const Work& work) const {
        const double excess = static_cast<double>(work.longest) / work.per_slot;
        const Sharing* row =
            std::find_if(first, last, [&](const Sharing& x) { return excess > x.excess; });
        return row == last ? nullptr : row;
    }
};

// Whether the engine multiplies float32 in parts that keep all of its bits.
inline bool in_parts(const Product& p) { return p.dtype == DType::f32 && !p.tf32; }

// From which order of a symmetric operand on small tiles of the engine read an image of its stored half, as large ones do at
// every order. Making both halves takes longer than making one, and twice the memory, but where there is little to make,
// kernels are faster in which rows of memory run one way.
inline int64_t least_half_image(const Product& p) { return in_parts(p) ? 2500 : 2048; }

// What parts of sums cost, where blocks go from one tile to the next.
struct PartCosts {
    // An item takes as long as so many steps more than it has, in which its sums are stored, or left to others.
    double item;
    double fill;  // What part of the time blocks have work, where there is enough for all of them.
    // How long parts are: of what there is for each block.
    double part;
    // Equally long sums that do not fill a round are cut where that takes less than so much of its time.
    double last_round;
};
// How many steps they have (Config::part), and how many a launch takes then.
struct PartChoice {
    int part;
    double steps;
};
// With tiles of this side and so many blocks at once.
PartChoice choose_parts(const Product& p, int64_t side, int64_t slots, const PartCosts& costs);

// Side of the tiles of a kernel that has them.
inline int side_of_tiles(const Product& p, const Config& config) {
    return by_images(config) ? engine_tile_side(config.tile) : tile_side(p.dtype, config.tile);
}

// Whether small tiles are 64 x 128 or 128 x 64, the longer side along the operand that the copy engine brings.
inline bool is_wide_mapped(const Config& config) {
    return config.method == Method::Mapped && config.tile == TileSize::Large;
}

// How many small direct tiles a multiprocessor has at once. Those of float32 in TF32 are multiplied as 16-bit ones are.
constexpr int small_tiles_per_sm(const Product& p) {
    return blocks_per_sm(p.tf32 ? DType::bf16 : p.dtype, TileSize::Small);
}

// Whether a product that may be rounded to TF32 has small tiles of operands as they lie in memory, since that is faster than
// all else that there is for it; `together` products like this one.
bool tf32_tiles_win(const Product& p, const Device& device, int together);
// What is known of that without an estimate.
bool tf32_tiles_may_win(const Product& p, const Device& device, int together);

// Whether many dense products of a triangle of 193 to 256 rows end before images for TF32 have been made and multiplied, or as
// many direct tiles (measured on an H200).
bool many_past_direct_tiles(const Product& p, const Device& device);

// Whether a product is one of many small pairs of dense matrices in TF32 with packed results, all of which dense torch
// multiplies sooner: measured on an H200 with 512 of orders 256 to 512.
bool many_small_pairs(const Product& p, const Device& device);

// Whether there is a direct kernel for Hopper: for float64, and for small tiles of 16-bit elements and in TF32.
bool hopper_can(const Product& p, TileSize tile, const Device& device);

// Up to how many terms of 16-bit elements small tiles have sums that are shared by an estimate.
constexpr int64_t MOST_SHARED = 3200;
// The same of 16-bit symmetric matrices beside 65 to 128 columns, a tile of which has them all: as long as two blocks for each
// of them find room.
constexpr int64_t MOST_SHARED_SYMMETRIC = 4224;
// Up to which order a triangle has these beside so many aligned columns, which the copy engine brings (Method::Mapped),
// before dense torch and images, where the kernel for a hundred vectors does not come first.
constexpr int64_t most_mapped(int64_t vectors) { return vectors <= 256 ? MOST_SHARED : 0; }
// Up to how many multiplications more columns have them.
constexpr double LEAST_UNPACKED = 795.0 * 795 * 795;

// How blocks share the sums of small tiles: as Config says it.
struct SplitChoice {
    int split, above, graded;
};
// And how long they take then, in microseconds.
struct SplitEstimate {
    SplitChoice choice;
    double time;
};
// Of elements of 4 bytes or more, and on Hopper of 16-bit ones of a single matrix. `wide`: of tiles with twice as many rows
// or columns of a mapped operand.
SplitEstimate split_direct_sums(const Product& p, const Device& device, bool wide = false);
// Whether these are faster than square ones.
bool wide_tiles_win(const Product& p, const Device& device);
// With parts of `half_tiles` half tiles at most.
constexpr SplitChoice share_gradually(int half_tiles) {
    return {4, graded_above(half_tiles, 4), half_tiles};
}
inline void share_sums(Config& config, const SplitChoice& choice) {
    config.split = choice.split;
    config.split_above = choice.split == 1 ? 1 : choice.above;
    config.graded = choice.graded;
}

// How a 16-bit triangle and a dense matrix of aligned rows are multiplied: by small tiles, which may be long (is_wide_mapped),
// through tile images, or by dense torch on an unpacked copy.
enum class BesideDense : int32_t { Square, Long, Images, Dense };
// Whether that is known by estimates, of many columns or of batches, and which way is fastest then.
bool has_ways_beside_dense(const Product& p, const Device& device);
BesideDense fastest_beside_dense(const Product& p, const Device& device);

// Whether small tiles that mirror symmetric operands are faster than all else that there is for a product.
bool mirrored_pays(const Product& p, const Device& device);

// Whether a product of float64 can have blocks that go from tile to tile, if there is scratch memory; and the best choice then,
// which may be direct tiles all the same.
bool persistent_can(const Product& p, const Device& device);
Config choose_f64(const Product& p, const Device& device);

// The best of the kernels that read operands as they lie in memory. `scratch`: whether there is any.
Config choose_direct(const Product& p, const Device& device, bool scratch);
// Whether there is scratch memory for the images of one matrix.
bool images_have_room(const Product& p, const Config& config, const Device& device);
// Whether the engine can compute a product, and whether it is faster so configured; `together` products like this one.
bool engine_can(const Product& p, const Device& device);
bool engine_pays(const Product& p, const Config& config, const Device& device, int together);
// Whether it is faster with a batch than all else, kernels that keep all bits of float32 among it.
bool images_pay_in_batch(const Product& p, const Device& device, int together);
// Whether two dense matrices, whose product is packed, have tiles enough for the engine, however short sums are.
bool dense_pair_pays(const Product& p, const Device& device);
Config choose_engine(const Product& p, const Device& device, int together);
// Whether the columns of a batch are those of one product by tile images, and how it goes.
bool goes_joined(const Product& p, const Device& device);
Config choose_joined(const Product& p, const Device& device);
// Whether it has small tiles or halves of them, and which sums clusters share: of `split` blocks, those of `above` tiles
// and more.
struct Shared {
    TileSize tile;
    int split, above;
};
struct SharedEstimate {
    Shared best;
    double time;  // In tiles of a sum (choose_sharing.cpp).
};
SharedEstimate estimate_engine_sums(const Product& p, const Device& device, int together);
Shared share_engine_sums(const Product& p, const Device& device, int together);
// Whether its large tiles are faster, of no triangles or one. `cuts`: whether sums of theirs that are all equally long are cut.
bool large_tiles_win(const Product& p, const Device& device, int together, bool cuts);
// Whether launches of large tiles can cut sums (EnginePiece): of one product, whose tiles are not visited in groups.
bool engine_cuts(const Product& p, TileSize tile, int together);
// Brings what was forced within what the engine can do, and lets it make images itself where that pays.
void complete_engine(Config& config, const Product& p, const Device& device, int together);

// Whether a product has small tiles whose operands go straight to registers, and how.
bool goes_by_fragments(const Product& p, const Device& device);
Config choose_fragments(const Product& p, const Device& device);

// Whether a product of a batch has a packed operand in shared memory as a whole, and how.
bool goes_resident(const Product& p, const Device& device);
Config choose_resident(const Product& p, const Device& device);

// Whether a product of a batch has images of its packed operands in shared memory.
bool goes_by_shared_images(const Product& p, const Device& device);
Config choose_shared_images(const Product& p);

// Whether a product has the kernel for few vectors, and is fastest with it.
bool goes_thin(const Product& p, const Device& device);
// The same of more vectors of real elements, and of a hundred or so of 16-bit elements, where there is scratch memory.
bool goes_by_strips(const Product& p, const Device& device);
bool goes_wide(const Product& p, const Device& device);

// The products that one with a symmetric operand is, C = alpha (L + U) B + beta C: by its stored half as it is, and by its
// strict half transposed, into the same result.
std::pair<Product, Product> halves(const Product& p);
// Whether that is how it is computed, each half as is chosen for it.
bool goes_by_triangles(const Product& p, const Device& device);

// Whether one dimension of a product is so much longer than the others, and there is so much of it, that dense torch is
// faster on unpacked copies.
bool is_elongated(const Product& p, const Device& device);

// What tiles with so long sides cover of the plane that the result of a product lies in.
inline double covered(const Product& p, int64_t side) {
    return static_cast<double>(ceil_div(p.m, side) * ceil_div(p.n, side) * side * side);
}
// Whether large tiles cover the result of a product with hardly more padding than small ones: `most` times the area.
inline bool large_tiles_fit(const Product& p, double most = 1.2) {
    return covered(p, 128) <= most * covered(p, 64);
}

}  // namespace packedtri::cuda
