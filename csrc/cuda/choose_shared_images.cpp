// Which batches of 16-bit products have images of their packed operands in shared memory (shared_images.h).
#include "choice.h"
#include "shared_images_layout.h"

namespace packedtri::cuda {
namespace {

bool shared_images_can(const Product& p, const Device& device) {
    if (!device.clusters || element_size(p.dtype) != 2 || !is_plain(p) || is_mv(p) || is_empty(p))
        return false;
    const int dense = (p.a.kind == Kind::Dense) + (p.b.kind == Kind::Dense);
    if (dense == 2 || (dense == 1 && !maps_dense_operand(p))) return false;
    if (p.c.kind == Kind::Dense) {
        // Rows are stored by whole words.
        if (p.n % 8 > 0 || !rows_begin_at(16, p.c.data, p.c.row_stride, p.c.batch_stride, 2) ||
            !counts_in_32_bits(p.m, p.c.row_stride, 64))
            return false;
    } else if (dense > 0) {
        return false;
    }
    return counts_in_32_bits(p.a, 64) && counts_in_32_bits(p.b, 64) &&
           p.k <= SharedImagesLayout::MOST_SIDE * Image::SIDE &&
           device.room_for(shared_images_layout(p, device).bytes()) > 0;
}

// Where each multiprocessor has a product, or nearly.
Orders of_many(const Product& p) {
    // More have not been timed.
    if (has_vectors(p) && vectors_of(p) > 512) return NO_ORDERS;
    // Beside few vectors other kernels read less that is not stored.
    if (has_vectors(p) && vectors_of(p) <= 32) return {p.batch < 500 ? 64 : 96};
    if (triangles(p) == 2 && p.c.kind == Kind::Lower) return {p.batch < 200 ? 49 : 33};
    return {33};
}
// Where about half of them have one: others have tiles for all.
Orders of_some(const Product& p) {
    if (!has_vectors(p)) return {triangles(p) == 2 ? 129 : 49};
    // A block has all vectors of a product, for which others have tiles.
    if (vectors_of(p) <= 32 || vectors_of(p) > p.k) return NO_ORDERS;
    return {49, has_symmetric(p) ? 128 : 224};
}

// From timings of an H100 (benchmarks/shares).
bool shared_images_pay(const Product& p, const Device& device) {
    // Beside a dense matrix small tiles are few as soon as these are.
    if (3 * p.batch >= device.multiprocessors && has_ways_beside_dense(p, device) &&
        vectors_of(p) <= p.k && p.k >= 96 && p.k <= 192)
        return true;
    if (15 * p.batch < 7 * device.multiprocessors) return false;
    return (4 * p.batch < 3 * device.multiprocessors ? of_some(p) : of_many(p)).contain(p.k);
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
