// What a block has in its shared memory that computes products by images of packed operands (shared_images.h).
#pragma once

#include <algorithm>

#include "config.h"
#include "engine_layout.h"
#include "image.h"

namespace packedtri::cuda {

// What a block of Method::SharedImages has in its shared memory, in this order, and for how many threads.
struct SharedImagesLayout {
    int side;      // Of a packed matrix, in blocks of its image.
    int operands;  // Packed ones that are read: one, if both are the same.
    int panels;  // Of the dense operand, if there is one: 64 of its vectors each, which are loaded one after another.
    int slots;   // How many of them there is room for.
    int raw_slots;  // For packed matrices as they lie in memory: one, if both share it with what is staged of the result.
    int raw_bytes;  // Of each.
    int staging_bytes;  // What is staged beside them.

    static constexpr int MOST_SIDE = 4;  // For which there are kernels.

    // Warpgroups that multiply.
    PACKEDTRI_HD constexpr int groups() const { return side; }
    // How many blocks registers of a multiprocessor suffice for.
    PACKEDTRI_HD static constexpr int most_blocks(int groups) {
        return groups == 1 ? 6 : groups == 2 ? 3 : 1;
    }
    PACKEDTRI_HD constexpr int images_bytes() const {
        return operands * row_start<int>(side) * Image::BLOCK_BYTES;
    }
    PACKEDTRI_HD constexpr int panel_bytes() const { return side * Image::BLOCK_BYTES; }
    PACKEDTRI_HD constexpr int ring() const { return images_bytes(); }
    PACKEDTRI_HD constexpr int raw() const { return ring() + slots * panel_bytes(); }
    PACKEDTRI_HD constexpr int staging() const {
        return staging_bytes > 0 ? raw() + raw_slots * raw_bytes : raw();
    }
    PACKEDTRI_HD constexpr int barriers() const {
        return raw() + raw_slots * raw_bytes + staging_bytes;
    }
    // Two for each slot.
    PACKEDTRI_HD constexpr int bytes() const { return barriers() + 2 * 8 * (slots + raw_slots); }
    PACKEDTRI_HD constexpr int threads() const { return 128 * groups() + 32; }
    PACKEDTRI_HD constexpr bool shares_staging() const { return staging_bytes == 0; }
};

// Results that are not packed are staged by tiles of 16 x 64, one a warp.
constexpr int STAGED_TILE_BYTES = 16 * Image::ROW_BYTES;

// With as much of the dense operand under way as lets `blocks` have room on a multiprocessor. `bytes()` of it tells whether
// one has room at all.
inline SharedImagesLayout shared_images_layout(const Product& p, const Device& device,
                                               int blocks = 1) {
    const bool one = p.a.kind == Kind::Dense || p.b.kind == Kind::Dense;
    SharedImagesLayout x{};
    x.side = static_cast<int>(ceil_div(p.k, Image::SIDE));
    x.operands = one || same_image(p.a, p.b) ? 1 : 2;
    x.panels = one ? static_cast<int>(ceil_div(vectors_of(p), Image::SIDE)) : 0;
    // From the word of 16 bytes on in which it begins, and with a row of a block that is read beyond.
    x.raw_bytes = static_cast<int>(ceil_div(row_start(p.k) * 2 + 32 + Image::ROW_BYTES, 16) * 16);
    const int staged = p.c.kind == Kind::Dense ? 4 * x.groups() * STAGED_TILE_BYTES : x.raw_bytes;
    x.raw_slots = x.operands;
    x.slots = x.panels > 0 ? 1 : 0;
    x.staging_bytes = staged;
    if (device.room_for(x.bytes()) == 0) {
        x.staging_bytes = 0;
        x.raw_slots = 1;
        x.raw_bytes = std::max(x.raw_bytes, staged);
    }
    while (x.panels > 0 && x.slots < std::min(2 * x.panels, 8)) {
        SharedImagesLayout more = x;
        ++more.slots;
        if (device.room_for(more.bytes()) < blocks) break;
        x = more;
    }
    return x;
}

}  // namespace packedtri::cuda
