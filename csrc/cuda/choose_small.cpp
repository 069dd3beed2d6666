// Which products of small matrices one block or one warp has as a whole.
#include "choice.h"

namespace packedtri::cuda {
namespace {

// With a symmetric operand, against unpacking it to memory for dense torch, whose launches take as long for a few products
// as for hundreds (orders 4 to 128, 1 to 1024 products). Tiles of their own may suit them better still.
bool symmetric_pays(const Product& p) {
    const int64_t order = longest(p), size = element_size(p.dtype);
    const bool many = p.batch >= 600;
    if (has_complex_elements(p.dtype)) return many && order <= (size == 8 ? 28 : 12);
    if (order <= 32) return many && (order <= 28 || size < 8 || !beside_dense(p));
    if (beside_dense(p)) return many && size == 2 && slow_when_dense(p);
    return p.batch >= (size == 2 && order <= 64 ? 600 : 128) &&
           (order <= 100 || p.c.kind == Kind::Dense);
}

// Up to how many small products of 16-bit elements have tiles of their own, one block each, of which a multiprocessor has
// two: beside a dense matrix these are faster also where they share it.
int most_tiles_of_16_bits(const Product& p, const Device& device) {
    const bool two = triangles(p) == 1 && longest(p) > 16 && longest(p) <= 64;
    return two ? 2 * device.multiprocessors + 1 : device.multiprocessors;
}

// Whether tiles of its own suit a product without symmetric operands better, even if its matrices are small, of `side`.
bool tiles_pay(const Product& p, int side, const Device& device) {
    // The kernel for two lower triangles is faster all the same.
    if (side <= 64 && goes_by_lane_grid(p)) return false;
    // Few products leave multiprocessors idle, which tiles of their own do not, and in 16-bit types those
    // start sooner.
    const int64_t order = longest(p), size = element_size(p.dtype);
    const bool tiles = side > 32 || (size == 2 ? hopper_can(p, TileSize::Small, device)
                                               : device.clusters && order >= 16);
    const bool few = tiles && p.batch < (size == 2         ? most_tiles_of_16_bits(p, device)
                                         : device.clusters ? 100
                                                           : 24);
    // In float64 tiles start sooner, and tiles of dense operands are loaded faster.
    const bool f64 = p.dtype == DType::f64, sooner = f64 && order > 16 && p.batch < 256;
    const bool faster = p.batch >= 256 && order > 60 && triangles(p) < 2 &&
                        (f64 || (size > 2 && p.batch <= 1024 && p.dtype != DType::c128));
    return few || (side == 32 && sooner) || (side == 64 && faster) ||
           (side == 128 && order <= 100 && faster && triangles(p) == 1);
}

}  // namespace

int small_side(const Product& p, const Device& device) {
    const int side = longest(p) <= 32 ? 32 : longest(p) <= 64 ? 64 : longest(p) <= 128 ? 128 : 0;
    const int64_t size = element_size(p.dtype);
    const bool wanted = is_forced(Method::Small);
    if (!is_plain(p) || (forced.method >= 0 && !wanted)) return 0;
    if (side == 0 || forced.tile >= 0 || (side == 128 && size > 4)) return 0;
    if (!wanted && (has_symmetric(p) ? !symmetric_pays(p) || mirrored_pays(p, device)
                                     : tiles_pay(p, side, device)))
        return 0;
    if (!in_one_piece(p.a) || !in_one_piece(p.b)) return 0;
    if (p.c.kind == Kind::Dense && p.c.row_stride != p.n) return 0;
    // Both operands are in shared memory at once as they are stored, and as padded tiles; in the kernel for two lower
    // triangles only as stored, up to whole steps of rows.
    const int64_t stored = stored_elements(p.a) + stored_elements(p.b);
    const int64_t beside = goes_by_lane_grid(p) ? row_start(side) - row_start(longest(p)) + side
                                                : 2 * int64_t{side} * (side + 8);
    return size * (stored + beside) <= (device.shared_kib - 3) * 1024 ? side : 0;
}

}  // namespace packedtri::cuda
