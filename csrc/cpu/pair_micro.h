// The shape of products of pairs of bfloat16, neighbours along k (pair_panels.h).
#pragma once

namespace packedtri::cpu::PACKEDTRI_ISA {

// Shape of a micro-block: with AMX four tiles, each 16 x 16 sums. A row of A lies along k; of B, rows k and k + 1
// lie element by element in turn.
struct PairMicro {
    static constexpr int rows = 32, cols = 32, depth = 256, unit = 32;
    // Not a multiple of a large power of two, so that the rows fall into different cache sets.
    static constexpr int row_stride = depth + 32;
};

}  // namespace packedtri::cpu::PACKEDTRI_ISA
