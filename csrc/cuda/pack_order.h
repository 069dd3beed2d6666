// In which order the engine makes tile images while it multiplies: what the first tiles of the result
// need comes first, along their sums. A pure function, free of CUDA, so that a host test can check that
// every piece of every image is made exactly once.
//
// A piece is a square of image blocks with the side of a large tile of the result; tiles wait for pieces.
// Warps make units, of which a piece has several. Pieces come in phases: the rows or columns of pieces, here
// called lines, that a wave of tiles is the first to read.
#pragma once

#include "image.h"
#include "schedule.h"

namespace packedtri::cuda {

constexpr int MOST_IMAGES = 4;

// Which image an operand is read from, if any, and whether a row of tiles of A, or a column of tiles of
// B, reads a column of its pieces instead of a row.
struct ImageUse {
    static constexpr int NONE = -1;
    int image;
    bool by_columns;
};

struct PackOrder {
    static constexpr int SIDE = 4;  // Of a piece, in blocks.
    // What launches may need, within the 4 KB of a kernel's arguments.
    static constexpr int MOST_PHASES = 32, MOST_LINES = 128;
    static constexpr int UNUSED = 255;  // Instead of a phase.

    struct Lines {
        int8_t image;
        bool by_columns;
        int16_t begin, end;
    };
    struct Phase {
        int first;  // Unit.
        int16_t k_begin, k_end;
        int16_t sources, lines;
        Lines of[MOST_IMAGES];  // So many sources.
    };
    // Rows of a piece, half as many as a block has. Travels as one word, which is not negative.
    static constexpr int UNIT_ROWS = Image::SIDE / 2;
    static constexpr int UNITS = SIDE * Image::SIDE / UNIT_ROWS;  // Of a piece.
    struct Unit {
        int image, row, col, part;
        PACKEDTRI_HD constexpr int word() const {
            return image << 20 | row << 12 | col << 4 | part;
        }
        PACKEDTRI_HD static constexpr Unit of(int word) {
            return {word >> 20, word >> 12 & 0xff, word >> 4 & 0xff, word & 0xf};
        }
    };

    int phases, units;
    Phase of[MOST_PHASES];
    uint8_t phase_of_row[MOST_IMAGES][MOST_LINES], phase_of_column[MOST_IMAGES][MOST_LINES];
    Grid pieces[MOST_IMAGES];

    PACKEDTRI_HD static constexpr Grid pieces_of(const Grid& blocks) {
        return {(blocks.rows + SIDE - 1) / SIDE, (blocks.cols + SIDE - 1) / SIDE, blocks.packed};
    }
    static_assert(SIDE == 1 << Image::LARGE, "those of a symmetric matrix are a triangle too");

    // Unit `number`, counted through all phases, and whether there is one. `phase` is where the caller's last one
    // was.
    PACKEDTRI_HD constexpr Unit at(int number, int& phase, bool& exists) const {
        while (phase + 1 < phases && number >= of[phase + 1].first) ++phase;
        const Phase& p = of[phase];
        const int rest = number - p.first, piece = rest / UNITS;
        const int step = piece / p.lines;
        const int k = p.k_begin + step;
        int line = piece - step * p.lines, source = 0;
        while (line >= p.of[source].end - p.of[source].begin) {
            line -= p.of[source].end - p.of[source].begin;
            ++source;
        }
        const Lines& from = p.of[source];
        line += from.begin;
        const int row = from.by_columns ? k : line, col = from.by_columns ? line : k;
        exists = has(from, row, col, phase);
        return {from.image, row, col, rest - piece * UNITS};
    }

  private:
    // Whether the piece exists, and no earlier phase makes it, nor another line of this one.
    PACKEDTRI_HD constexpr bool has(const Lines& from, int row, int col, int phase) const {
        const int x = from.image;
        if (!pieces[x].has(row, col)) return false;
        const int other = from.by_columns ? phase_of_row[x][row] : phase_of_column[x][col];
        return other > phase || (other == phase && !from.by_columns);
    }
};

// The products of a launch, whose tiles of one number come one after another.
struct OrderedProduct {
    Schedule schedule;
    ImageUse a, b;
};

// Sets the order for images of so many blocks, where `wave` tiles run at once. False if it has no room for
// so many lines or phases.
bool set_pack_order(PackOrder& order, const OrderedProduct* products, int count, const Grid* images,
                    int image_count, int wave);

// What the warps of a launch share that makes images. The words are zero when it starts.
struct PackWork {
    PackOrder order;
    int *drawn, *done;  // How many units have been drawn; how many warps have found none left.
    int* ready[MOST_IMAGES];  // How many units each piece has got, as pieces come in their grid.
};

}  // namespace packedtri::cuda
