// Which batches have their packed operand in shared memory as a whole (resident.h), and how.
#include "choice.h"

namespace packedtri::cuda {
namespace {

// Bytes that each block takes of the shared memory for blocks beside those that it asks for.
constexpr int64_t OF_A_BLOCK = 1024;
// How many packed matrices one can have.
int64_t most_of_a_block(const Product& p, const Device& device) {
    return (device.shared_kib * 1024 - OF_A_BLOCK) / resident_bytes(p);
}

// The kernel counts elements in 32 bits, and by whole tiles.
bool resident_can(const Product& p, const Device& device) {
    if (!device.clusters || !has_vectors(p) || is_mv(p) || is_empty(p)) return false;
    return most_of_a_block(p, device) >= 1 && counts_in_32_bits(dense_operand(p), 64) &&
           counts_in_32_bits(std::max(p.m, p.n), p.c.row_stride, 64);
}

// Large tiles are multiplied with fewer loads, but leave more idle at the edges, and fewer warps at work.
TileSize choose_tile(const Product& p) {
    if (has_complex_elements(p.dtype) || element_size(p.dtype) == 2) return TileSize::Small;
    const int64_t vectors = vectors_of(p);
    const bool f32 = p.dtype == DType::f32, many = vectors >= 384 && p.k > (f32 ? 32 : 47),
               wide = f32 && vectors > p.k && p.k > 127;
    return vectors > 32 && (p.k > (f32 ? 150 : 110) || many || wide) ? TileSize::Large
                                                                     : TileSize::Small;
}

// Few warps of a block are soon done, and others take their place; but a multiprocessor wants sixteen at work, and what all
// its blocks read of dense matrices had better be in its L1 cache.
struct BlockSize {
    int warps, matrices;
};
BlockSize choose_block(const Product& p, const Device& device, TileSize tile) {
    const int64_t bytes = resident_bytes(p), tiles = resident_tasks(p, tile);
    const double on_one =
        static_cast<double>(p.batch) / static_cast<double>(device.multiprocessors);
    // So that no warp is without a tile, and of small matrices more, as long as there are two blocks for each.
    const int64_t wanted = vectors_of(p) >= 2 * p.k ? 1
                           : p.k <= 40              ? 4
                           : p.k > 64               ? 1
                           : bytes <= 10240         ? 2
                                                    : ceil_div(4, tiles);
    const int64_t matrices =
        std::max<int64_t>(1, std::min(wanted, static_cast<int64_t>(on_one / 1.9)));
    const int64_t tasks = tiles * matrices,
                  room = device.shared_kib * 1024 / (bytes * matrices + OF_A_BLOCK);
    const double blocks =
        std::min(on_one / static_cast<double>(matrices), static_cast<double>(room));
    const bool complex = has_complex_elements(p.dtype);
    int warps = blocks < 1.5 ? 12 : blocks < 3 && !complex ? 8 : 4;
    if (vectors_of(p) > (element_size(p.dtype) == 2 ? 64 : 32) && !complex) {
        if (bytes > 51200 || (tile == TileSize::Large && vectors_of(p) > p.k)) warps = 12;
        else if (bytes > 20480) warps = std::max(warps, 8);
        else if (p.k > 64 && ceil_div(tasks, 4) >= 2 * ceil_div(tasks, 8))
            warps = std::max(warps, 8);
    }
    warps = std::min(warps, resident_warps(p.dtype));
    while (warps > 4 && tasks <= warps - 4) warps -= 4;
    return {warps, static_cast<int>(matrices)};
}

// Of a triangle to the left of the dense matrix and to its right, and of a symmetric matrix to the left; to the right, of
// which there are no timings, others stay.
struct OrdersOfKinds {
    Orders left, right, symmetric;
    const Orders& of(const Product& p) const {
        const bool to_left = p.b.kind == Kind::Dense;
        if (has_symmetric(p)) return to_left ? symmetric : NO_ORDERS;
        return to_left ? left : right;
    }
};
constexpr OrdersOfKinds OF_NO_KIND{NO_ORDERS, NO_ORDERS, NO_ORDERS};
// Of batches of so many matrices and more.
constexpr int64_t MANY_MATRICES = 528, SOME_MATRICES = 200, LEAST_MATRICES = 100;
struct OrdersOfBatches {
    OrdersOfKinds many, some, few;
    const OrdersOfKinds& of(const Product& p) const {
        return p.batch >= MANY_MATRICES ? many : p.batch >= SOME_MATRICES ? some : few;
    }
};
// Beside up to so many vectors matrices that are larger have other kernels as well.
constexpr int64_t VECTORS = 32;
bool beside_few(const Product& p) { return vectors_of(p) <= VECTORS && p.k > VECTORS; }
struct OrdersOfType {
    OrdersOfBatches beside_matrices, beside_vectors;
    const Orders& of(const Product& p) const {
        return (beside_few(p) ? beside_vectors : beside_matrices).of(p).of(p);
    }
};
// From timings of an H100 (benchmarks/shares).
constexpr OrdersOfType ORDERS_16_BITS{
    {{{30, 160}, NO_ORDERS, {30, 80}}, {{32, 160}, NO_ORDERS, {65, 0}}, OF_NO_KIND},
    {{{33}, NO_ORDERS, {33}}, {{97}, NO_ORDERS, {65}}, OF_NO_KIND}};
constexpr OrdersOfType ORDERS_F32{{{{17}, {33}, {17}}, {{24}, {33}, {28}}, {{32}, {33}, {40}}},
                                  {{{33}, NO_ORDERS, {33}}, {{65}, NO_ORDERS, {90}}, OF_NO_KIND}};
constexpr OrdersOfType ORDERS_F64{
    {{{17}, {33}, {17, 161}}, {{24}, {33}, {28, 161}}, {{40, 112}, {33, 112}, {40, 161}}},
    {{{33}, NO_ORDERS, {33}}, {{65}, NO_ORDERS, {65}}, OF_NO_KIND}};
constexpr OrdersOfType ORDERS_C64{
    {{{17}, {17}, {17}}, {{32}, {33}, {33}}, {{32}, {50}, {40}}},
    {{{33, 64}, NO_ORDERS, {129}}, {{97, 161}, NO_ORDERS, {192}}, OF_NO_KIND}};
constexpr OrdersOfType ORDERS_C128{
    {{{17}, {17}, {8, 90}}, {{33}, {17}, {8, 97}}, {{33}, {17}, {8, 112}}},
    {{{33}, NO_ORDERS, {33}}, {{33}, NO_ORDERS, {33}}, OF_NO_KIND}};

const OrdersOfType& orders(DType dtype) {
    switch (dtype) {
        case DType::f32: return ORDERS_F32;
        case DType::f64: return ORDERS_F64;
        case DType::c64: return ORDERS_C64;
        case DType::c128: return ORDERS_C128;
        default: return ORDERS_16_BITS;
    }
}

// Whether blocks that go from tile to tile have full ones (persistent.cuh).
bool large_tiles_of_f64(const Product& p) {
    return p.dtype == DType::f64 && !has_symmetric(p) && !beside_few(p) &&
           p.batch >= SOME_MATRICES && p.k > 96 && large_tiles_fit(p);
}

// A large triangle beside hardly any vectors is only read, by more blocks than there is room for here.
bool hardly_any_vectors(const Product& p) {
    return vectors_of(p) <= 8 && !has_symmetric(p) && element_size(p.dtype) > 2 &&
           !has_complex_elements(p.dtype) && resident_bytes(p) > 102400;
}

// Where rows of dense matrices are not aligned, elements are read one by one: those of 16 bits too slowly, others where
// kernels for small products pad little.
bool slow_rows(const Product& p) {
    const Operand& dense = dense_operand(p);
    const int64_t size = element_size(p.dtype);
    const bool aligned = runs_along_rows(dense) &&
                         rows_begin_at(16, dense.data, dense.row_stride, dense.batch_stride, size);
    if (size == 2) return !beside_few(p) && !aligned;
    return !aligned && ((p.k > 20 && p.k <= 32) || (p.k > 40 && p.k <= 64));
}

// Beside clearly more vectors than it has rows what is spared of the packed matrix matters less, and dense torch, or larger
// tiles, multiply faster.
bool too_many_vectors(const Product& p) {
    const int64_t vectors = vectors_of(p);
    // Copies fill the tiles of dense torch (measured on an H200).
    if (p.dtype == DType::f64 && has_symmetric(p) && p.batch >= 100 && p.k >= 108 && p.k <= 136 &&
        vectors >= 108)
        return true;
    if (vectors <= p.k) return false;
    if (has_symmetric(p)) {
        switch (p.dtype) {
            case DType::f32: return vectors > 384 && p.k <= 128;
            case DType::f64: return vectors > 200;
            case DType::c64: return vectors >= 4 * p.k || vectors >= 256;
            case DType::c128: return vectors >= 4 * p.k || vectors > 160 || p.k >= 80;
            default: return false;
        }
    }
    if (p.dtype != DType::f64) return false;
    const bool to_right = p.a.kind == Kind::Dense;
    return (p.k >= 70 && p.k <= 128 && vectors >= 2 * p.k) || (to_right && p.k >= 150);
}

bool resident_pays(const Product& p, const Device& device) {
    if (p.tf32 || p.batch < LEAST_MATRICES || large_tiles_of_f64(p) || slow_rows(p) ||
        hardly_any_vectors(p) || too_many_vectors(p))
        return false;
    if (element_size(p.dtype) > 2 && !device.fast_doubles) return false;
    const Orders& of = orders(p.dtype).of(p);
    // Beside columns that are clearly fewer, but not few, there is no upper limit.
    const bool fewer = p.b.kind == Kind::Dense && !beside_few(p) && 4 * p.n < 3 * p.k;
    // Beside so many there is work for all warps from small orders on.
    const bool many = element_size(p.dtype) > 2 && of.least < ANY && p.batch >= SOME_MATRICES &&
                      vectors_of(p) > VECTORS && vectors_of(p) >= 2 * p.k;
    return p.k >= (many ? std::min<int64_t>(17, of.least) : of.least) && (p.k <= of.most || fewer);
}

}  // namespace

bool goes_resident(const Product& p, const Device& device) {
    if (!resident_can(p, device)) return false;
    if (any_forced() || forced.tile >= 0) return is_forced(Method::Resident);
    return resident_pays(p, device);
}

Config choose_resident(const Product& p, const Device& device) {
    const TileSize tile =
        forced.tile >= 0 ? static_cast<TileSize>(forced.tile.load()) : choose_tile(p);
    auto [warps, matrices] = choose_block(p, device, tile);
    if (forced.split >= 1) warps = std::min(forced.split.load(), resident_warps(p.dtype));
    if (forced.group >= 1) matrices = forced.group;
    const int64_t most = std::min(most_of_a_block(p, device), p.batch);
    return {Method::Resident, tile, warps, 1, static_cast<int>(std::min<int64_t>(matrices, most))};
}

}  // namespace packedtri::cuda
