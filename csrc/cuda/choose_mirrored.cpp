// Which products with symmetric operands have small tiles that mirror the stored half, and are not left to dense torch on
// unpacked copies.
#include "choice.h"
#include "engine_layout.h"

namespace packedtri::cuda {
namespace {

// Blocks of 64 x 64 x 64 multiplications.
int64_t blocks(const Product& p) {
    constexpr int64_t side = tile_side(DType::f64, TileSize::Small);
    return ceil_div(p.m, side) * ceil_div(p.n, side) * ceil_div(p.k, side) * p.batch;
}

// How many of these a product of a symmetric and a dense matrix may take so that tiles are faster. Of many matrices of one
// tile, and of few vectors, unpacking takes most of the time; where rows are not aligned, the dense product does.
int64_t most_beside_dense(const Product& p) {
    const int64_t order = longest(p), vectors = vectors_of(p);
    // Strips are faster with larger matrices.
    const bool few = vectors <= 32,
               many = few && order <= 320 && p.batch >= (p.dtype == DType::f64 ? 64 : 128);
    switch (p.dtype) {
        case DType::f32:
            if (order <= 64) return order <= 32 ? 300 : ANY;
            if (p.batch > 1) return many ? ANY : 100;
            return vectors <= 8     ? 64
                   : vectors <= 16  ? 100
                   : vectors <= 64  ? 196
                   : vectors <= 256 ? 400
                                    : 242;
        case DType::f64:
            if (order <= 64) return order <= 32 ? 256 : ANY;
            if (p.batch > 1) return many ? ANY : 32;
            return vectors <= 16 ? 64 : vectors <= 64 ? 196 : 50;
        case DType::c64:
            if (p.batch > 1) return few ? 32 : 16;
            return few ? 36 : 27;
        case DType::c128:
            // Dense torch is slow with small ones that its tensor cores do not have.
            if (p.batch > 1) return order <= 16 ? 64 : order <= 32 ? 16 : 0;
            return order <= 16 ? 0 : vectors <= 16 ? 25 : vectors <= 32 ? 9 : order <= 100 ? 8 : 4;
        default: {
            const bool slow = slow_when_dense(p);
            if (p.batch > 1) {
                if (order <= 64) return 512;
                if (few) return many && order > 128 ? ANY : 1024;
                return order <= (slow ? 192 : 128) ? 512 : slow ? 1000 : 256;
            }
            if (slow) return vectors > 256 ? 343 : maps_dense_operand(p) ? 2500 : 700;
            // Tiles with all columns, whose sums four blocks share, or two.
            const bool four = order >= 1200 && order <= 1900,
                       two = order >= 3300 && order <= MOST_SHARED_SYMMETRIC;
            if (vectors > 64 && vectors <= 128 && (four || two) && maps_dense_operand(p))
                return ANY;
            return vectors <= 64 ? 784 : vectors <= 128 ? 392 : 216;
        }
    }
}

// The same beside a triangle.
int64_t most_beside_triangle(const Product& p) {
    const int64_t order = longest(p);
    switch (p.dtype) {
        case DType::f32: return order <= 32 ? 512 : order <= 64 ? 400 : 729;
        case DType::f64: return order <= 32 ? 512 : order <= 64 ? ANY : 2197;
        case DType::c64: return order <= 32 ? 256 : order <= 128 ? ANY : 125;
        case DType::c128: return order <= 32 ? 128 : order <= 64 ? ANY : 27;
        default: return p.batch > 1 && order <= 32 ? 256 : 512;
    }
}

// Of two symmetric matrices, whose product is packed or not.
int64_t most_of_two(const Product& p) {
    const int64_t order = longest(p);
    const bool packed = p.c.kind == Kind::Lower;
    switch (p.dtype) {
        case DType::f32:
            if (order <= 64) return order <= 32 ? 512 : 400;
            return packed ? 800 : 343;
        case DType::f64:
            if (order <= 128) return order <= 32 ? 256 : packed || order <= 64 ? ANY : 125;
            return packed ? 343 : 125;
        case DType::c64: return order <= 32 ? 256 : !packed ? 27 : order <= 64 ? ANY : 128;
        case DType::c128: return order <= 32 ? 128 : 8;
        default:
            if (p.batch > 1) return 512;
            return packed || slow_when_dense(p) ? 343 : 216;
    }
}

}  // namespace

bool mirrored_pays(const Product& p, const Device& device) {
    // Elsewhere blocks cannot share sums, which such small products need.
    if (!has_symmetric(p) || !device.clusters || p.tf32 || is_mv(p)) return false;
    if (element_size(p.dtype) == 2 && !hopper_can(p, TileSize::Small, device)) return false;
    return blocks(p) <= (beside_dense(p)      ? most_beside_dense(p)
                         : beside_triangle(p) ? most_beside_triangle(p)
                                              : most_of_two(p));
}

}  // namespace packedtri::cuda
