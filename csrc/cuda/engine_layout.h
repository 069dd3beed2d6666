// How the engine reads the operands of a product, and the scratch memory that it needs. Free of CUDA.
#pragma once

#include "config.h"
#include "engine_work.h"

namespace packedtri::cuda {

// One operand.
struct EngineSource {
    bool mapped;                // Read where it is; else through an image.
    Run run;                    // How its rows of memory do.
    bool same;                  // All matrices of the batch have the same.
    Grid blocks;                // Of its image.
    int64_t part_bytes, bytes;  // Of one part of the image, and of all.

    int64_t scratch_bytes(int64_t matrices) const { return same ? bytes : matrices * bytes; }
};

// A line of tiles is a panel where a dense operand is larger than the L2 cache holds: the tiles of some panels, which
// read the same of it, come before those of others, as the matrices of a batch do. Otherwise all of the longest sums
// come first, which would read it once for each line of tiles across the panels.
enum class Panels : int8_t { None, Columns, Rows };

// Pieces of scratch memory take multiples of 1024 bytes, so that all are aligned as the first.
inline int64_t scratch_piece(int64_t bytes) { return ceil_div(bytes, 1024) * 1024; }

struct EngineLayout {
    EngineSource a, b;
    bool shared_image;  // Both operands read that of a.
    EngineWork work;    // Of all tiles, or of a panel of them.
    Panels panels = Panels::None;
    int panel_count = 1;
    // Sums that are cut, where they are (Config::part), and for how many places there is memory.
    PartWork cut;
    int64_t places;
    // Words of a matrix: Marks, if it may have any, and lines of scaled images (EngineChecker).
    int64_t marks, lines;

    // How many rows the copy engine stores at a time: a warp's, or half of them where blocks share sums.
    static constexpr int box_rows(int split) { return split > 1 ? 8 : 16; }

    // Words and sums of all places (add_parts): of two blocks, each of which has 128 x 256 sums.
    static constexpr int64_t WORDS_OF_PLACE = 8, SUMS_OF_PLACE = 128 * 256;
    int64_t part_words() const { return 2 * places * WORDS_OF_PLACE; }
    int64_t part_bytes() const { return 2 * places * SUMS_OF_PLACE * 4; }

    // Of all words that must be zero for so many matrices, but those for unmade images: counters (EngineCounters),
    // marks, lines and words of parts.
    int64_t control_bytes(int64_t matrices) const {
        return scratch_piece((EngineCounters::COUNT + matrices * (marks + lines) + part_words()) *
                             4);
    }
    int64_t scratch_bytes(int64_t matrices) const {
        return control_bytes(matrices) + part_bytes() + a.scratch_bytes(matrices) +
               (shared_image ? 0 : b.scratch_bytes(matrices));
    }
};

// For a device of so many multiprocessors, of which a tile of 256 x 256 has two.
EngineLayout engine_layout(const Product& p, const Config& config, int multiprocessors);

// Whether an operand can be mapped, and whether a dense operand is, which is then read where it is. A map needs a matrix
// whose rows start at multiples of 16 bytes, at equal distances. It does not split elements and does not round them to
// others.
bool mappable(const Product& p, const Operand& x);
bool maps_dense_operand(const Product& p);

// Whether the copy engine can store a result: a dense one of 16-bit elements whose rows are aligned.
bool stores_boxes(const Product& p);

// Whether a batch of dense matrices beside one packed matrix can be a single product, in which their columns are side
// by side: A [B1 B2 …]. A block of columns must not have those of two matrices, and rows of results must be aligned.
bool can_join(const Product& p);
// That product, as if its columns were a matrix.
Product joined(const Product& p);

// Whether two operands, both of which need images, have the same.
bool same_image(const Operand& x, const Operand& other);

}  // namespace packedtri::cuda
