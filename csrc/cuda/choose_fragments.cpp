// Which products have small tiles whose operands go straight to registers (fragments.h), and how many warps share a sum.
#include "choice.h"
#include "engine_layout.h"

namespace packedtri::cuda {
namespace {

// The kernel counts so, and by whole tiles.
bool fragments_can(const Product& p) {
    return counts_in_32_bits(p.a, FRAGMENT_SIDE) && counts_in_32_bits(p.b, FRAGMENT_SIDE);
}

int64_t tiles(const Product& p) {
    const int64_t m = ceil_div(p.m, FRAGMENT_SIDE), n = ceil_div(p.n, FRAGMENT_SIDE);
    return (p.c.kind == Kind::Lower && m == n ? row_start(m) : m * n) * p.batch;
}
// Of tiles, as if all sums were as long.
int64_t longest_sum(const Product& p) { return ceil_div(p.k, FRAGMENT_SIDE); }

// Below so many blocks of 16 x 16 x 16 multiplications these tiles are faster than what a product has otherwise: where no
// dimension is larger than 16, 32, 64, 128, and of larger ones.
struct Most {
    int64_t up_to_16, up_to_32, up_to_64, up_to_128, beyond;
    constexpr int64_t of(int64_t order) const {
        return order <= 16    ? up_to_16
               : order <= 32  ? up_to_32
               : order <= 64  ? up_to_64
               : order <= 128 ? up_to_128
                              : beyond;
    }
};

// Of kinds of products. A triangle counts half of what its dense matrix would.
struct MostOfKinds {
    Most triangles, triangle_and_dense, symmetric_and_dense, symmetric_and_packed, dense;
};
// From timings of an H100 (benchmarks/shares), and less where operands of a batch do not fit in the L2 cache.
constexpr MostOfKinds MOST_16_BITS{{ANY, 1401, 2401, 2501, 1856},
                                   {ANY, 2049, 1351, 6251, 1373},
                                   {ANY, 5601, 2305, 4097, 4609},
                                   {ANY, ANY, 4609, 3457, 4201},
                                   {ANY, 1537, 4609, 2017, 937}};
constexpr MostOfKinds MOST_F32{{ANY, 1401, ANY, 4609, 17000},
                               {ANY, 2801, 27649, 64001, 18000},
                               {ANY, 8193, 27649, 64001, 12289},
                               {ANY, ANY, ANY, 32257, 25000},
                               {ANY, 1537, ANY, 8065, 4201}};
constexpr MostOfKinds MOST_F64{{ANY, ANY, ANY, 29401, 10000},
                               {ANY, ANY, 20000, 25001, 5325},
                               {ANY, ANY, 40000, 12501, 5185},
                               {ANY, ANY, ANY, ANY, 18514},
                               {ANY, ANY, ANY, 2017, 4201}};
// Of batches without a symmetric matrix whose sizes are all 96 and more, from timings of an H200: others have small tiles
// that suit short sums.
constexpr int64_t MOST_IN_F64_BATCHES = 2600;
constexpr MostOfKinds MOST_C64{{ANY, ANY, ANY, ANY, 125000},
                               {ANY, 2801, ANY, ANY, 190000},
                               {ANY, ANY, 110593, 16000, 30000},
                               {ANY, ANY, ANY, ANY, 190000},
                               {ANY, ANY, ANY, ANY, 190000}};
constexpr MostOfKinds MOST_C128{{ANY, ANY, ANY, ANY, 88000},
                                {ANY, ANY, ANY, 8000, 18433},
                                {ANY, 8193, 10801, 2305, 2305},
                                {ANY, ANY, ANY, 32257, 33000},
                                {ANY, ANY, ANY, ANY, 22000}};
// Beside the kernel for two lower triangles (lane_grid.cuh).
constexpr Most MOST_BESIDE_LANE_GRID{0, 257, 1400, 0, 0};

// Of one matrix beside vectors, up to 4, 8, 16, 32, 64, 128 and 256 of them: up to which order, where it is more than FEW_ROWS.
// One block has all of a sum, so that others, whose blocks share sums, are faster with long ones.
constexpr int64_t FEW_ROWS = 384, MOST_VECTORS = 256, TIMED = 3072;
struct MostBesideVectors {
    int64_t along[7], across[7], symmetric[7];
};
constexpr MostBesideVectors VECTORS_16_BITS{{800, 600, 500, 500, 400, 400, 0},
                                            {600, 600, 500, 500, 400, 400, 0},
                                            {1400, 1400, 1100, 650, 550, 400, 0}};
constexpr MostBesideVectors VECTORS_F32{{900, 900, 1000, 2500, 2500, 1600, 520},
                                        {600, 700, 900, 1800, 1800, 1100, 450},
                                        {TIMED, TIMED, TIMED, 2500, 1100, 600, 0}};
constexpr MostBesideVectors VECTORS_F64{{1000, 1000, 1000, 2500, 860, 900, 450},
                                        {600, TIMED, TIMED, TIMED, 2500, 900, 450},
                                        {TIMED, TIMED, TIMED, 2500, 1100, 600, 0}};
constexpr MostBesideVectors VECTORS_C64{{TIMED, TIMED, TIMED, TIMED, TIMED, TIMED, TIMED},
                                        {TIMED, TIMED, TIMED, TIMED, TIMED, TIMED, TIMED},
                                        {TIMED, TIMED, TIMED, TIMED, 1700, 800, 900}};
constexpr MostBesideVectors VECTORS_C128{{TIMED, TIMED, TIMED, TIMED, TIMED, TIMED, 1400},
                                         {TIMED, TIMED, TIMED, TIMED, TIMED, TIMED, 1400},
                                         {TIMED, TIMED, TIMED, TIMED, 600, 0, 0}};

struct Limits {
    const MostOfKinds& of_kinds;
    const MostBesideVectors& beside_vectors;
};
// What may be rounded to TF32 has other kernels nearly as soon as 16-bit elements do.
Limits limits(const Product& p) {
    switch (p.tf32 ? DType::bf16 : p.dtype) {
        case DType::f32: return {MOST_F32, VECTORS_F32};
        case DType::f64: return {MOST_F64, VECTORS_F64};
        case DType::c64: return {MOST_C64, VECTORS_C64};
        case DType::c128: return {MOST_C128, VECTORS_C128};
        default: return {MOST_16_BITS, VECTORS_16_BITS};
    }
}

int64_t most_rows(const Product& p) {
    const int64_t vectors = vectors_of(p);
    // Rows of so few 16-bit elements are not aligned, which makes others slow.
    if (element_size(p.dtype) == 2 && vectors <= 4 && !maps_dense_operand(p) &&
        (has_symmetric(p) || !sums_along_rows(p)))
        return 2300;
    const MostBesideVectors& of = limits(p).beside_vectors;
    int bucket = 0;
    while (vectors > int64_t{4} << bucket) ++bucket;
    return (has_symmetric(p) ? of.symmetric : sums_along_rows(p) ? of.along : of.across)[bucket];
}

const Most& most_of(const Product& p) {
    const MostOfKinds& of = limits(p).of_kinds;
    if (beside_dense(p)) return of.symmetric_and_dense;
    if (has_symmetric(p)) return of.symmetric_and_packed;
    if (triangles(p) == 2) return of.triangles;
    return triangles(p) == 1 ? of.triangle_and_dense : of.dense;
}

bool fragments_pay(const Product& p, const Device& device) {
    if (!device.fast_doubles) return false;
    if (p.batch == 1 && has_vectors(p) && p.k > FEW_ROWS && vectors_of(p) <= MOST_VECTORS)
        return p.k <= most_rows(p);
    const int64_t order = longest(p), all = tiles(p) * longest_sum(p) / (1 + triangles(p));
    if (order <= 64 && is_plain(p) && goes_by_lane_grid(p))
        return all < MOST_BESIDE_LANE_GRID.of(order);
    // Rows of so few elements fill no other tile, and dense torch is slow with them where it rounds to TF32.
    if (p.dtype == DType::f32 && p.batch == 1 && p.a.kind == Kind::Dense && has_vectors(p) &&
        p.k <= FRAGMENT_SIDE)
        return true;
    if (p.dtype == DType::f64 && p.batch > 1 && narrowest(p) >= 96 && !has_symmetric(p) &&
        all >= MOST_IN_F64_BATCHES)
        return false;
    // With 128 dense torch fills its tiles (measured on an H200).
    if (p.dtype == DType::c128 && p.batch > 1 && triangles(p) == 0 && !has_symmetric(p) &&
        narrowest(p) > 112 && order <= 128 && all >= 2600)
        return false;
    // Alone large ones may have more, whose sums are shared by more warps.
    if (p.dtype == DType::c128 && p.batch > 1 && triangles(p) == 1 && !has_symmetric(p) &&
        order > 128 && all >= MOST_C128.triangle_and_dense.up_to_128)
        return false;
    return all < most_of(p).of(order);
}

// By as many warps as take the least time for the longest part of a sum, the longer the more of them there are for each
// multiprocessor from 25 on, and for starting all of them. Complex elements take twice as much of either.
int choose_warps(const Product& p, const Device& device) {
    const int64_t sum = std::max<int64_t>(3, longest_sum(p));
    const double of_one = (has_complex_elements(p.dtype) ? 2.0 : 1.0) *
                          static_cast<double>(tiles(p)) / device.multiprocessors;
    int best = 1;
    double least = std::numeric_limits<double>::infinity();
    for (int warps = FRAGMENT_WARPS; warps >= 1; warps /= 2) {
        const double crowd = of_one * warps, part = static_cast<double>(ceil_div(sum, warps)),
                     cost = part * std::max(1.0, 0.04 * crowd) + 0.12 * crowd;
        if (cost >= least) continue;
        least = cost;
        best = warps;
    }
    return best;
}

}  // namespace

bool goes_by_fragments(const Product& p, const Device& device) {
    if (!fragments_can(p) || p.m == 0 || p.n == 0 || p.batch == 0) return false;
    if (any_forced() || forced.tile >= 0) return is_forced(Method::Fragments);
    if (has_ways_beside_dense(p, device)) return false;
    return !is_mv(p) && fragments_pay(p, device);
}

Config choose_fragments(const Product& p, const Device& device) {
    const int split = forced.split, warps = split >= 1 ? split : choose_warps(p, device);
    return {Method::Fragments, TileSize::Small, std::min(warps, FRAGMENT_WARPS), 1, 1};
}

}  // namespace packedtri::cuda
