// What the parts of the engine's host side tell each other about one product.
#pragma once

#include <cuda.h>

#include "engine.h"
#include "image.h"

namespace packedtri::cuda {

// How one operand reaches shared memory.
struct EngineSource {
    bool mapped;  // Through `map`, from where it is; else through an image.
    bool across;  // Its rows of memory run across the sum.
    CUtensorMap map;
    Image layout;
    int64_t part_bytes, bytes;  // Of one part of the image, and of all.
    char* image;
};

struct EnginePlan {
    Product product;  // One matrix of the batch.
    EngineSource a, b;
    bool large;  // Tiles of 256 x 256 by two blocks, not of 128 x 128 by one.
    Schedule schedule;
    int split, shared_tiles;
    int64_t control_bytes, partial_bytes;
    char *control, *partials;
};

}  // namespace packedtri::cuda
