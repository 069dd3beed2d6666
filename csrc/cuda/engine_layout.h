// How the engine reads the operands of a product, and the scratch memory that it needs. Free of CUDA.
#pragma once

#include "config.h"
#include "engine_work.h"

namespace packedtri::cuda {

// One operand.
struct EngineSource {
    bool mapped;                // Read where it is; else through an image.
    bool across;                // Its rows of memory run across the sum.
    Grid blocks;                // Of its image.
    int64_t part_bytes, bytes;  // Of one part of the image, and of all.
};

struct EngineLayout {
    EngineSource a, b;
    bool shared_image;  // Both operands read that of a.
    EngineWork work;
    int64_t marks;          // Words: see EngineConsumer::finite.
    int64_t control_bytes;  // Of all words that must be zero, but those for unmade images.

    int64_t scratch_bytes() const { return control_bytes + a.bytes + (shared_image ? 0 : b.bytes); }
};

// Pieces of scratch memory begin at multiples of 1024 bytes, as the swizzle of images wants it.
inline int64_t scratch_piece(int64_t bytes) { return ceil_div(bytes, 1024) * 1024; }

EngineLayout engine_layout(const Product& p, const Config& config);

// Whether an operand of `p` and another one, both of which need images, have the same.
bool same_image(const Product& p, const Operand& x, const EngineSource& source,
                const Operand& other, const EngineSource& other_source);

}  // namespace packedtri::cuda
