// Which batches of 16-bit products have images of their packed operands in shared memory (shared_images.h).
#include "choice.h"
#include "shared_images.h"

namespace packedtri::cuda {
namespace {

bool shared_images_can(const Product& p, const Device& device) {
    if (!device.clusters || element_size(p.dtype) != 2 || !is_plain(p) || is_mv(p) || p.m == 0 ||
        p.n == 0 || p.k == 0 || p.batch == 0)
        return false;
    const int dense = (p.a.kind == Kind::Dense) + (p.b.kind == Kind::Dense);
    if (dense == 2 || (dense == 1 && !maps_dense_operand(p))) return false;
    if (p.c.kind == Kind::Dense) {
        if (p.n % 8 > 0 ||
            !rows_begin_at(16, p.c.data, p.c.row_stride, p.c.batch_stride, 2) ||
            !counts_in_32_bits(p.m, p.c.row_stride, 64))
            return false;
    } else if (dense > 0) {
        return false;
    }
    return counts_in_32_bits(p.a, 64) && counts_in_32_bits(p.b, 64) && p.k <= 4 * Image::SIDE &&
           shared_images_layout(p, device).bytes() <= device.shared_kib * 1024;
}

bool shared_images_pay(const Product& p, const Device&) {
    (void)p;
    return false;
}

}  // namespace

bool goes_by_shared_images(const Product& p, const Device& device) {
    if (!shared_images_can(p, device)) return false;
    if (any_forced() || forced.tile >= 0) return is_forced(Method::SharedImages);
    return shared_images_pay(p, device);
}

Config choose_shared_images(const Product& p) {
    int blocks = p.k <= 64 ? 4 : p.k <= 128 ? 2 : 1;
    if (forced.group >= 1) blocks = forced.group;
    return {Method::SharedImages, TileSize::Small, 1, 1, blocks};
}

}  // namespace packedtri::cuda
