// Products on Hopper's tensor cores. Operands are tile images (image.h) or mapped dense matrices;
// the sum over k of a tile of the result is fed block by block to shared memory, by one thread, and
// multiplied by two warpgroups. Blocks of threads stay on their multiprocessor and draw tiles, the
// longest sums first, until none is left. The longest sums of all may be shared by clusters of blocks.
#pragma once

#include <algorithm>
#include <type_traits>

#include "engine_layout.h"
#include "engine_work.h"
#include "pack_rows.cuh"
#include "panel.cuh"
#include "scalar.cuh"
#include "wgmma.cuh"

namespace packedtri::cuda {

struct EngineOperand {
    const char* image;   // Its first part; null where the matrix is mapped.
    int64_t part_bytes;  // To the next part.
    // To the image of the next matrix of the batch; of a mapped operand one, or zero if all have the same.
    int64_t next;
    Grid blocks;  // Of the image.
    Run run;
    // Where the image is made while the product is computed: how many units each piece has, as they come.
    const int* ready;

    // What is behind a scaled image, in words of 8 bytes: see ImageScale.
    __device__ const uint2* notes(int matrix) const {
        return reinterpret_cast<const uint2*>(image + matrix * next + part_bytes);
    }
};

template <class T>
struct EngineResult {
    T* data;
    int64_t ld, next;    // `next`: to the next matrix.
    bool packed, lower;  // How it is stored (see row_offset), and whether only to its diagonal.
    float alpha, beta;
    int m, n;
    int joined;  // How many columns each matrix has of those that are joined; zero, if none are.

    // Where a column begins, in a row.
    __device__ int64_t column(int j) const {
        return joined > 0 ? int64_t{j / joined} * next + j % joined : j;
    }
};

// An operand as direct kernels read it (EngineStored).
template <class T>
struct StoredOperand {
    OrientedPanel<T> at;
    int64_t next;  // To the next matrix.
    bool strict;
};

template <class T>
struct EngineProduct {
    CUtensorMap a_map, b_map;
    EngineOperand a, b;
    EngineResult<T> c;
    int n_blocks, k_blocks;
    EngineWork work;
    // Zero when the launch starts, null if there are none.
    int* marks;  // See Marks and EngineConsumer.
    int* lines;  // Which lines of scaled images have lost too much: see EngineChecker.
    StoredOperand<T> a_stored, b_stored;
    int k;
    Panels panels;

    // An item as drawn, which names a panel for a matrix.
    __device__ EngineItem placed(EngineItem item) const {
        if (panels == Panels::None) return item;
        (panels == Panels::Columns ? item.j : item.i) = item.matrix;
        item.matrix = 0;
        return item;
    }
    __device__ EnginePiece placed(const EnginePiece& item) const { return item; }
    // How many blocks of columns each matrix has of those that are joined; zero, if none are.
    __device__ int joined_blocks() const { return c.joined / Image::SIDE; }
    __device__ int m_blocks() const { return static_cast<int>(ceil_div(c.m, Image::SIDE)); }
    // The word of a row of blocks of A, or of a column of blocks of B, among `lines`.
    __device__ int* line(int matrix, bool of_a, int number) const {
        const int rows = m_blocks();
        return lines + int64_t{matrix} * (rows + n_blocks) + (of_a ? 0 : rows) + number;
    }
};

// Whether the rows of memory of A and of B run across the sum. Of two products in a launch that is told with each tile, and
// where that costs nothing: small tiles, float32 and TF32 are 1 to 2% slower by it in the mean, up to 9%. Where rows turn
// it is asked on the way.
template <bool A_, bool B_>
struct Across {
    static constexpr bool KNOWN = true, TURNS = false, A = A_, B = B_;
};
struct AcrossByTile {
    static constexpr bool KNOWN = false, TURNS = false;
};
struct AcrossByStep {
    static constexpr bool KNOWN = false, TURNS = true;
};

// Images that are made while the product is computed.
template <class T, bool PACKS>
struct EnginePacking {};
template <class T>
struct EnginePacking<T, true> {
    PackArgs<T> of[MOST_IMAGES];
    PackWork work;
};

// Sums that are cut.
template <bool CUTS>
struct EngineCutting {};
template <>
struct EngineCutting<true> {
    PartWork work;
    // See add_parts, which the two blocks of a cluster do each for itself, and how many there are for one of them.
    int* words;
    float* sums;
    int64_t words_of_block, sums_of_block;
};

// A dense result that the copy engine stores. Those of two products side by side are packed.
template <bool STORES>
struct EngineStoring {};
template <>
struct EngineStoring<true> {
    CUtensorMap map;
    bool wanted;
};

// What each block or cluster begins with, and how many of the items that are not shared that takes (deal_first): to draw an
// item, and to find what it is, would take longer than images are made in. Where they are made meanwhile the arguments
// have no room for it, nor is there need.
constexpr int MOST_DEALT = 160;
template <bool PACKS>
struct EngineDealing {
    int64_t first[MOST_DEALT];
    int count;
};
template <>
struct EngineDealing<true> {};

// A launch computes one product, or two side by side, whose tiles of one number come one after another.
template <class T, int PRODUCTS, bool PACKS, bool CUTS>
struct EngineArgs {
    EngineProduct<T> of[PRODUCTS];
    int matrices;  // Of the batch.
    // Tiles of all products that are shared, and that blocks have alone, of all matrices or panels.
    BatchOrder shared, alone;
    int split;
    EngineDealing<PACKS> dealing;
    int* counters;  // EngineCounters, zero when the launch starts.
    EnginePacking<T, PACKS> packing;
    EngineCutting<CUTS> cutting;
    static constexpr bool STORES = PRODUCTS == 1 && sizeof(T) == 2;
    EngineStoring<STORES> storing;

    // The items by number, as words: parts of tiles that are shared, and what blocks have alone. NONE where no tile is.
    PACKEDTRI_HD int64_t shared_item(int number, int part) const {
        const auto [matrix, within] = shared.at(number);
        bool exists = false;
        EngineItem item = work_of(within).shared(tile_of(within), part, exists);
        item.product = product_of(within);
        item.matrix = matrix;
        return exists ? item.word() : EngineItem::NONE;
    }
    PACKEDTRI_HD int64_t lone_item(int number) const {
        if constexpr (CUTS) {
            const EngineProduct<T>& p = of[0];
            EnginePiece item;
            return cutting.work.find(number, p.work.schedule, 1, p.a.run.kind, p.b.run.kind,
                                     p.k_blocks, item.piece)
                       ? item.word()
                       : EngineItem::NONE;
        } else {
            const auto [matrix, within] = alone.at(number);
            bool exists = false;
            EngineItem item = work_of(within).alone(tile_of(within), exists);
            item.product = product_of(within);
            item.matrix = matrix;
            return exists ? item.word() : EngineItem::NONE;
        }
    }
    PACKEDTRI_HD int lone_items() const {
        if constexpr (CUTS) return cutting.work.items;
        else return alone.all;
    }
    PACKEDTRI_HD int shared_items() const { return shared.all; }

  private:
    PACKEDTRI_HD static int product_of(int number) { return PRODUCTS > 1 ? number & 1 : 0; }
    PACKEDTRI_HD static int tile_of(int number) { return PRODUCTS > 1 ? number >> 1 : number; }
    PACKEDTRI_HD const EngineWork& work_of(int number) const { return of[product_of(number)].work; }
};
template <class Shape, int PRODUCTS>
using EngineArgsOf = EngineArgs<typename Shape::T, PRODUCTS, Shape::PACKS, Shape::CUTS>;

// What a shape has that others have not. Halved: tiles are halves of others; each of the warpgroups that multiply has
// every other step of their sums, and in the end half of their columns. Packing: images are made meanwhile. Cutting:
// sums are cut into parts that any clusters compute.
enum class EngineForm { Plain, Halved, Packing, Cutting };

// Shapes and resources. The tile of a block is 128 x BN, or 64 x BN if halved; a cluster of two has one
// above the other and loads the columns of B for both.
// The tensor cores multiply Elements, of 2 bytes, PARTS of which stand for a T; a float32 by a single one is
// scaled (ImageScale). A stage holds image blocks for 64 steps of k, with their parts.
template <class T_, class Element_, int PARTS_, int BN_, int STAGES_, int CLUSTER_,
          EngineForm FORM = EngineForm::Plain>
struct EngineShape {
    using T = T_;
    using Element = Element_;
    static constexpr int PARTS = PARTS_, BN = BN_, STAGES = STAGES_, CLUSTER = CLUSTER_;
    static constexpr int SIDE = Image::SIDE;
    static_assert(SIDE * sizeof(Element) == Image::ROW_BYTES, "a block has 64 steps of k");
    static constexpr bool SCALED = sizeof(T) > sizeof(Element) && PARTS == 1;
    static constexpr bool HALVED = FORM == EngineForm::Halved;
    static constexpr int ROWS = HALVED ? 1 : 2,
                         COLS = BN / SIDE;           // Of a block's tile, in image blocks.
    static constexpr int WN = HALVED ? BN / 2 : BN;  // Columns of a warpgroup, when all is summed.
    static_assert(!HALVED || WN == SIDE, "a warpgroup has one block of columns");
    static constexpr int THREADS = 384, WARPS = 8;  // The latter multiply.
    static constexpr bool PACKS = FORM == EngineForm::Packing;
    static constexpr int PACKERS = 3;  // Warps that do.
    // Whether a thread of its own loads B: for one that loads both, a stage takes as long as the tensor cores take for it
    // where that is least, and B alone may be there before the images of A are made.
    static constexpr bool LOADS_APART = CLUSTER == 1 && PARTS == 1;
    // Who fills a stage arrives there, also with nothing to load: else it could miss that others have been done with it.
    static constexpr int LOADERS = LOADS_APART ? 2 : 1;
    static constexpr bool CUTS = FORM == EngineForm::Cutting;
    static_assert(!CUTS || CLUSTER == 2, "");
    // Whether there is a kernel for images of half a symmetric matrix (EngineLayout).
    static constexpr bool TURNS = !PACKS && !HALVED;
    using Item = std::conditional_t<CUTS, EnginePiece, EngineItem>;
    // Per thread, of the 168 that each of 384 has at first: who copies and packs needs fewer.
    static constexpr int PRODUCER_REGISTERS = PACKS ? 88 : 72,
                         CONSUMER_REGISTERS = PACKS ? 208 : 216;
    // Arrivals that empty a stage: one of each warp that multiplies, here and in the other block.
    static constexpr int RELEASES = WARPS * CLUSTER;
    // Of a thread that multiplies: while it does, and when all is summed.
    static constexpr int SUMS = BN / 2, ACCS = WN / 2;
    using Tile = EngineTile<ROWS, COLS, CLUSTER>;

    static constexpr int A_BYTES = ROWS * PARTS * Image::BLOCK_BYTES;
    static constexpr int STAGE_BYTES = A_BYTES + COLS * PARTS * Image::BLOCK_BYTES;
    // Columns of a result that are staged at once; a row of staging is padded so that the lanes of
    // a store meet different banks.
    static constexpr int STAGED = WN < 512 / sizeof(T) ? WN : 512 / sizeof(T);
    static constexpr int PITCH = STAGED + 8;
    // Results that the copy engine stores are staged by boxes of a warp's 16 rows and 64 columns, two at a time.
    static constexpr int BOX_BYTES = 16 * Image::ROW_BYTES, BOXES = 2;
    static constexpr bool STORES_BOXES = sizeof(T) == 2;
    static constexpr int
        OF_ROWS = WARPS * 8 * PITCH * static_cast<int>(sizeof(T)),
        OF_BOXES = STORES_BOXES ? WARPS * BOXES * BOX_BYTES : 0,
        // What warpgroups give each other of sums of halves (EngineConsumer::trade).
        OF_TRADE = HALVED ? 2 * 128 * ACCS * 4 : 0,
        STAGING_BYTES = std::max({OF_ROWS, OF_BOXES, OF_TRADE});
    // Tiles that the first block of a cluster may be ahead, or one of the threads that load.
    static constexpr int DRAWS = 8;
    static_assert((CLUSTER == 1 && !LOADS_APART) || STAGES + 1 <= DRAWS,
                  "a tile of one step for each stage");
    static constexpr int BARRIERS = 2 * STAGES + DRAWS + 4;
    static constexpr int WORDS = STAGES + DRAWS + 1;
    // Where sums in parts meet (see EngineConsumer::meet), eight rows of a warp take so many bytes. Halves of tiles leave
    // memory for that.
    static constexpr bool MEETS_APART = HALVED;
    static constexpr int HALF_BYTES = ACCS / 2 * 32 * 4;
    PACKEDTRI_HD static constexpr int meeting_warps(int parts) { return 2 * WARPS / parts; }
    PACKEDTRI_HD static constexpr int met_bytes(int parts) {
        return meeting_warps(parts) * (parts - 1) * HALF_BYTES;
    }
    static_assert(CLUSTER > 1 || met_bytes(MOST_SHARERS) <= STAGES * STAGE_BYTES,
                  "stages are too small");
    static constexpr int MEETING_BYTES = MEETS_APART ? met_bytes(MOST_SHARERS) : 0;
    static constexpr int SHARED_BYTES =
        STAGES * STAGE_BYTES + STAGING_BYTES + MEETING_BYTES + (BARRIERS + WORDS) * 8;
    static_assert(SHARED_BYTES <= 227 * 1024);
};

// The shared memory of a block, by name.
template <class Shape>
struct EngineShared {
    char* base;

    __device__ uint32_t address(int offset) const { return ptx::shared_address(base) + offset; }
    __device__ uint32_t a(int stage) const { return address(stage * Shape::STAGE_BYTES); }
    __device__ uint32_t b(int stage) const { return a(stage) + Shape::A_BYTES; }
    __device__ typename Shape::T* staging() const {
        return reinterpret_cast<typename Shape::T*>(base + STAGING);
    }
    // For rows, of this warp of those that multiply.
    __device__ typename Shape::T* staging(int warp) const {
        return staging() + warp * 8 * Shape::PITCH;
    }
    // Where others send their parts of sums.
    __device__ uint32_t meeting() const { return Shape::MEETS_APART ? address(MEETING) : a(0); }
    __device__ uint32_t full(int stage) const { return address(BARRIERS + stage * 8); }
    __device__ uint32_t empty(int stage) const { return full(Shape::STAGES + stage); }
    __device__ uint32_t drawn(int slot) const { return full(2 * Shape::STAGES + slot); }
    // For sums in parts: whether all other blocks can be sent to, what they have sent, and whether the
    // stages can be filled again.
    __device__ uint32_t ready() const { return drawn(Shape::DRAWS); }
    __device__ uint32_t met() const { return ready() + 8; }
    __device__ uint32_t parted() const { return ready() + 16; }
    // Whether the next item is to be drawn.
    __device__ uint32_t wanted() const { return ready() + 24; }
    // The item that a stage belongs to, and those drawn that no stage has yet.
    __device__ volatile int64_t* item(int stage) const { return words() + stage; }
    __device__ volatile int64_t* draw(int slot) const { return words() + Shape::STAGES + slot; }
    // Whether some part of the result is left to EngineStored, and, once EngineChecker has run, whether a line has lost
    // too much.
    __device__ volatile int* left() const {
        return reinterpret_cast<volatile int*>(words() + Shape::STAGES + Shape::DRAWS);
    }
    __device__ volatile int* lossy() const { return left() + 1; }

  private:
    static constexpr int STAGING = Shape::STAGES * Shape::STAGE_BYTES;
    static constexpr int MEETING = STAGING + Shape::STAGING_BYTES;
    static constexpr int BARRIERS = MEETING + Shape::MEETING_BYTES;
    __device__ volatile int64_t* words() const {
        return reinterpret_cast<volatile int64_t*>(base + BARRIERS + Shape::BARRIERS * 8);
    }
};

// What a warp that multiplies has of a block's tile.
template <class Shape>
struct EngineWarp {
    int group;  // Of the two warpgroups.

    // Of the tile's blocks, the row of those that it has.
    __device__ int row() const { return Shape::HALVED ? 0 : group; }
    // Which of the tile's columns of blocks comes after `c` others of its own.
    template <bool ASCENDING>
    __device__ int column(int c) const {
        return Shape::HALVED ? Shape::Tile::column_at(group, ASCENDING) : c;
    }
    // Where its sums of that begin.
    template <bool ASCENDING>
    __device__ static constexpr int block(int c) {
        return Shape::HALVED ? 0 : 32 * Shape::Tile::column_at(c, ASCENDING);
    }
    __device__ static int of_group() { return static_cast<int>(threadIdx.x) % 128 / 32; }
    // Of those of both groups.
    __device__ int number() const { return group * 4 + of_group(); }
};

// The stages are used in turn; both sides of the pipeline count for themselves.
template <int STAGES>
struct StageCounter {
    int stage = 0, parity = 0;
    __device__ void advance() {
        if (++stage == STAGES) {
            stage = 0;
            parity ^= 1;
        }
    }
};

}  // namespace packedtri::cuda
