// What the warps of the kernel for strips (strips.cuh) share: the work of their block, and its shared memory.
#pragma once

#include <algorithm>

#include "hopper.cuh"
#include "ring.cuh"
#include "strip_args.cuh"
#include "strip_f32.cuh"
#include "strip_f64.cuh"

namespace packedtri::cuda {

// What a block is made of: eight warps for the sums over rows, eight for those over columns, as far as there are such,
// and four that load.
template <class T, int VECTORS_, bool ROWS_, bool COLUMNS_>
struct StripShape {
    using Math = StripMath<T, VECTORS_>;
    using Tile = StripTile<T, Math::PITCH>;
    // Tiles of a unit, and their columns.
    static constexpr int TILE = STRIP_TILE, TILES = STRIP_WIDTH / TILE;
    static constexpr int VECTORS = VECTORS_, STAGES = Math::STAGES;
    static constexpr bool ROWS = ROWS_, COLUMNS = COLUMNS_, BOTH = ROWS && COLUMNS;
    static constexpr int TEAM = 256, CONSUMERS = BOTH ? 2 * TEAM : TEAM, PRODUCERS = 128,
                         THREADS = CONSUMERS + PRODUCERS;
    // Per thread, as in PersistentShape.
    static constexpr int COMPILED_REGISTERS = 65536 / THREADS / 8 * 8;
    static constexpr int PRODUCER_REGISTERS = BOTH ? 64 : 96, ROW_REGISTERS = BOTH ? 88 : 200,
                         COLUMN_REGISTERS = BOTH ? 120 : 200;
    static_assert(PRODUCERS * PRODUCER_REGISTERS +
                      TEAM * (ROWS * ROW_REGISTERS + COLUMNS * COLUMN_REGISTERS) <=
                  THREADS * COMPILED_REGISTERS);
    // Products under way at once, of as many times 8 vectors.
    static constexpr int CHAINS = std::min(VECTORS / 8, 4);
    // How many steps of a tile are laid out one after another: more need more registers.
    static constexpr int UNROLLED = BOTH && sizeof(T) < 8 && VECTORS >= 32 ? 1 : 2;
    // Warps that have the same rows of a tile, each a part of their elements.
    static constexpr int SHARES = 4;
    // Of 16 rows or columns and all vectors, what a lane has: two neighbouring vectors of two of them, for each 8.
    using Acc = typename Accumulator<T>::type;
    using Sums = Acc[VECTORS / 8][4];

    struct Shared {
        alignas(16) T tiles[STAGES][STRIP_BAND * Math::PITCH];
        typename Math::template Vectors<STRIP_WIDTH> strip;
        typename Math::template Vectors<STRIP_BAND> bands[2];
        Acc row_sums[SHARES][STRIP_BAND][VECTORS];
        Ring<STAGES> ring;
        Ring<2> band_ring;
        // The last strip and the last bands, as the block counts units, where the vectors have elements that tensor
        // cores cannot multiply.
        int bad_strip, bad_bands[2];
    };
    static_assert(sizeof(Shared) <= 227 * 1024, "");
    static_assert(Math::PITCH * sizeof(T) % 16 == 0 && Math::PITCH >= TILE + Tile::WORD, "");
};

// Where a warp stands in the units of its block. Producers and consumers go through them each for themselves.
template <class T, class Shape>
class StripWalk {
  public:
    const StripArgs<T>& args;
    int64_t first;  // The first of so many units.
    int units;
    int64_t matrix;   // Which of all groups of all matrices.
    int strip, band;  // The band is counted from the first row of the matrix.
    // Of the matrix and the group of vectors.
    const T *triangle, *x;
    int vector;

    __device__ explicit StripWalk(const StripArgs<T>& args)
        : args(args), first(first_unit(blockIdx.x, args.blocks, args.all)),
          units(static_cast<int>(first_unit(blockIdx.x + 1, args.blocks, args.all) - first)),
          matrix(first / args.units.all()), strip(0) {
        band = static_cast<int>(first % args.units.all());
        while (band >= args.units.before(strip + 1)) ++strip;
        band += strip * args.units.fewer - args.units.before(strip);
        enter_matrix();
    }

    // Goes to the next unit. Returns whether another strip begins.
    __device__ bool next() {
        if (++band < args.units.bands) return false;
        if (++strip == args.units.strips()) {
            ++matrix, strip = 0;
            enter_matrix();
        }
        band = strip * args.units.fewer;
        return true;
    }

    __device__ int row() const { return band * STRIP_BAND; }
    __device__ int column(int tile) const { return strip * STRIP_WIDTH + tile * Shape::TILE; }
    // Whether any element of a tile of the unit is stored; and how many are of its row `r`.
    __device__ bool exists(int tile) const {
        return column(tile) < min(row() + STRIP_BAND, args.n);
    }
    __device__ int length(int tile, int r) const {
        const int i = row() + r;
        return i < args.n ? max(0, min(Shape::TILE, i + 1 - column(tile))) : 0;
    }
    // Where it begins in a word of 16 bytes.
    __device__ unsigned place() const { return static_cast<unsigned>(ptx::past_word(triangle)); }

    // Element k of vector c of the group; and four that are 4 steps apart.
    __device__ T element(int k, int c) const {
        return k < args.n && vector + c < args.vectors ? x[k * args.x_step + c * args.x_next] : T{};
    }
    __device__ void elements(int k, int c, T (&four)[4]) const {
#pragma unroll
        for (int e = 0; e < 4; ++e) four[e] = element(k + 4 * e, c);
    }

  private:
    __device__ void enter_matrix() {
        const int64_t of_batch = matrix / args.groups;
        vector = static_cast<int>(matrix - of_batch * args.groups) * Shape::VECTORS;
        triangle = args.triangle + of_batch * args.triangle_batch_stride;
        x = args.x + of_batch * args.x_batch_stride + vector * args.x_next;
    }
};

// Which elements of K steps of the vectors one of so many threads has: fours of a vector that are 4 steps apart, so
// that neighbours have neighbours in memory.
template <int K, int VECTORS, int THREADS>
struct StripShare {
    static constexpr int FOURS = K / 4,
                         COUNT = FOURS * VECTORS > THREADS ? FOURS * VECTORS / THREADS : 1;
    static_assert(THREADS % VECTORS == 0 && THREADS % FOURS == 0,
                  "threads keep to a vector or to steps");
    const bool across;
    const int four0, c0;

    __device__ StripShare(bool across, unsigned thread)
        : across(across), four0(across ? thread / VECTORS : thread % FOURS),
          c0(across ? thread % VECTORS : thread / FOURS) {}
    // The vector and the first step of four `o`, and whether the thread has it.
    __device__ int c(int o) const { return c0 + (across ? 0 : o * (THREADS / FOURS)); }
    __device__ int k(int o) const {
        const unsigned four = this->four(o);
        return four / 4 * 16 + four % 4;
    }
    __device__ bool has(int o) const { return four(o) < FOURS && c(o) < VECTORS; }

  private:
    __device__ int four(int o) const { return four0 + (across ? o * (THREADS / VECTORS) : 0); }
};

}  // namespace packedtri::cuda
