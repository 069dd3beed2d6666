// How the engine reads the operands of a product, and the scratch memory that it needs. Free of CUDA.
#pragma once

#include "config.h"
#include "engine_work.h"

namespace packedtri::cuda {

// One operand.
struct EngineSource {
    bool mapped;                // Read where it is; else through an image.
    bool across;                // Its rows of memory run across the sum.
    bool same;                  // All matrices of the batch have the same.
    Grid blocks;                // Of its image.
    int64_t part_bytes, bytes;  // Of one part of the image, and of all.

    int64_t scratch_bytes(int64_t matrices) const { return same ? bytes : matrices * bytes; }
};

// Pieces of scratch memory take multiples of 1024 bytes, so that all are aligned as the first.
inline int64_t scratch_piece(int64_t bytes) { return ceil_div(bytes, 1024) * 1024; }

struct EngineLayout {
    EngineSource a, b;
    bool shared_image;  // Both operands read that of a.
    EngineWork work;
    // Words of a matrix: Marks, if it may have any, and lines of scaled images (EngineChecker).
    int64_t marks, lines;

    // Of all words that must be zero for so many matrices, but those for unmade images: counters (EngineCounters),
    // marks and lines.
    int64_t control_bytes(int64_t matrices) const {
        return scratch_piece((EngineCounters::COUNT + matrices * (marks + lines)) * 4);
    }
    int64_t scratch_bytes(int64_t matrices) const {
        return control_bytes(matrices) + a.scratch_bytes(matrices) +
               (shared_image ? 0 : b.scratch_bytes(matrices));
    }
};

EngineLayout engine_layout(const Product& p, const Config& config);

// Whether a dense operand is read where it is.
bool maps_dense_operand(const Product& p);

// Whether two operands, both of which need images, have the same.
bool same_image(const Operand& x, const Operand& other);

}  // namespace packedtri::cuda
