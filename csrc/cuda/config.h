// Which kernel a product gets, as a pure function of the problem and the device. Free of torch and
// CUDA, so that the choice can be printed and tested without a GPU.
#pragma once

#include <string>

#include "../problem.h"
#include "../solve_problem.h"
#include "schedule.h"

namespace packedtri::cuda {

struct Device {
    int multiprocessors;
    bool clusters;         // Thread block clusters, and machine code of ours that uses them.
    int shared_kib = 227;  // Shared memory that one block may have.
    int64_t scratch = int64_t{4} << 30;  // Bytes that tile images, or parts of sums, may take.
    // How many clusters of four and of eight blocks fit whose blocks have a multiprocessor each; zero: as usual.
    int fours = 0, eights = 0;
    // Whether its tensor cores multiply float64 about as fast as other units multiply float32.
    bool fast_doubles = false;

    // How many multiprocessors clusters of so many blocks can use. They do not straddle the parts of a device, some of
    // which lack multiprocessors: 31 of four and 15 of eight blocks are usual on 132.
    constexpr int64_t usual(int cluster) const {
        if (cluster <= 2) return multiprocessors;
        const int fitting = multiprocessors * (cluster == 4 ? 31 : 15) / 132;
        return cluster * (fitting > 0 ? fitting : 1);
    }
    constexpr int64_t usable(int cluster) const {
        const int fitting = cluster == 4 ? fours : cluster == 8 ? eights : 0;
        return fitting > 0 ? cluster * fitting : usual(cluster);
    }
    // For how many blocks of so much shared memory a multiprocessor has room. A KiB of each block's is not its own.
    constexpr int room_for(int shared_bytes) const {
        return (shared_kib + 1) * 1024 / (shared_bytes + 1024);
    }
};

// The device of so much shared memory for a block and of `memory` bytes in all.
Device describe(int multiprocessors, int major, int shared_kib, int64_t memory);

// Direct: from the operands as they lie in memory. Engine: through tile images, on Hopper's tensor
// cores, with scratch memory (engine.h). Hopper: like Direct, but by what only Hopper has: float64 by
// blocks that go from one tile to the next, with scratch memory (persistent.cuh), small tiles of 16-bit elements and in TF32
// by its tensor cores (main_loop_wgmma.cuh). Thin: for a dense operand of few vectors (thin.h).
// Fused: the engine, which makes the images while it multiplies, instead of a kernel before it. Wide: for a dense
// operand of a hundred vectors or so, with scratch memory (wide.h). Vector: for one vector (mv.h). Small: for many small
// products (small.h, small_side). Strips: for a dense operand of some vectors, by tensor cores and with scratch memory
// (strips.h). Mapped: like Hopper for 16-bit elements, but a dense operand whose rows are aligned comes by the copy engine (loader_mapped.cuh), to tiles that Tile
// calls large where they are twice as long along it. Fragments: small
// tiles by the tensor cores for float64, to whose registers elements go straight from memory (fragments.h). Resident: for
// batches beside dense matrices, with the packed operand in a block's shared memory as a whole (resident.h). SharedImages:
// for batches of 16-bit elements, with tile images of the packed operands in a block's shared memory (shared_images.h), of
// which Config::group says how many a multiprocessor shall have room for.
enum class Method : int32_t {
    Direct,
    Engine,
    Hopper,
    Thin,
    Fused,
    Wide,
    Vector,
    Small,
    Strips,
    Mapped,
    Fragments,
    Resident,
    SharedImages
};
// Half: of the engine alone, a small tile's upper or lower half.
enum class TileSize : int32_t { Small, Large, Half };

struct Config {
    Method method;
    TileSize tile;
    int split;  // Blocks or clusters that share the sum over k of one tile: 1, 2, 4 or 8; see below.
    int split_above;  // Only sums of at least this many tiles are shared.
    int group;        // Side of the square groups in which tiles are visited.
    // Of small direct tiles where as few blocks, up to four, share each sum as parts of so many half tiles at most take;
    // else zero.
    int graded = 0;
    // Of blocks that go from one tile to the next, which share no sums but compute parts of them: how many steps these
    // have (PartWork); zero, if none is cut.
    int part = 0;
    // Of tile images: whether the columns of all matrices of the batch are those of one product (joined).
    bool joined = false;

    bool operator==(const Config& x) const {
        return method == x.method && tile == x.tile && split == x.split &&
               split_above == x.split_above && group == x.group && graded == x.graded &&
               part == x.part && joined == x.joined;
    }
};

// From how many tiles on so many blocks at least share a sum, where parts have `half_tiles` half tiles at most.
constexpr int graded_above(int half_tiles, int sharers) {
    return (sharers - 1) * half_tiles / 2 + 1;
}

// Whether blocks go from one tile to the next (persistent.cuh).
inline bool is_persistent(DType dtype, const Config& config) {
    return config.method == Method::Hopper && dtype == DType::f64;
}

// Side of the square tiles.
constexpr int tile_side(DType dtype, TileSize size) {
    return size == TileSize::Small || has_complex_elements(dtype) ? 64 : 128;
}

// Of those of Method::Fragments, and how many warps share a sum of them at most: Config::split says how many.
constexpr int FRAGMENT_SIDE = 16, FRAGMENT_WARPS = 8;

// Whether small tiles of 16-bit elements, or of float32 in TF32, are multiplied by Hopper's tensor cores.
constexpr bool by_warpgroups(DType dtype, const Config& config) {
    return (element_size(dtype) == 2 || dtype == DType::f32) &&
           (config.method == Method::Hopper || config.method == Method::Mapped);
}

// Whether a kernel that reads operands as they lie in memory mirrors the stored half of symmetric ones. Other such
// kernels have their triangles one after the other.
constexpr bool mirrors(DType dtype, const Config& config) {
    if (by_warpgroups(dtype, config)) return true;
    return element_size(dtype) > 2 && tile_side(dtype, config.tile) == 64 &&
           config.method == Method::Direct;
}

inline bool by_images(const Config& config) {
    return config.method == Method::Engine || config.method == Method::Fused;
}

// Side of the square tiles of the engine (engine.h), or of those of which it has halves.
constexpr int engine_tile_side(TileSize size) { return size == TileSize::Large ? 256 : 128; }

// How many blocks share a sum of it at most.
constexpr int MOST_SHARERS = 4;

// How many blocks a multiprocessor runs at once.
constexpr int blocks_per_sm(DType dtype, TileSize size) {
    if (has_complex_elements(dtype)) return dtype == DType::c64 ? 2 : 1;
    const int large = dtype == DType::f32 ? 2 : 1;
    return size == TileSize::Large ? large : 2 * large;
}

// How many blocks, or clusters of them, at most have small tiles of float64 whose blocks do not share a multiprocessor: as
// many as there is room for `apart`, and where sums differ some more, the last and shortest, which follow the first that are
// done.
constexpr int64_t most_few(int64_t apart, bool differ) { return apart + (differ ? apart / 4 : 0); }

// Shared memory that a block takes at least for a direct product's tile, where that is more than every device
// has; Hopper's own kernels are never chosen for less than its 227.
constexpr int tile_shared_kib(DType dtype, TileSize size) {
    if (dtype == DType::f64) return size == TileSize::Large ? 217 : 72;
    if (element_size(dtype) == 2) return size == TileSize::Large ? 145 : 80;
    return 0;
}

// Whether the rows of an operand's memory are its own rows, not its columns.
inline bool runs_along_rows(const Operand& x) {
    if (x.stagger != Stagger::None) return x.stagger == Stagger::Rows;
    return x.kind == Kind::Dense ? x.col_stride == 1 || x.cols <= 1 : x.kind != Kind::Upper;
}

// Whether each matrix of a batch lies in memory without gaps.
inline bool in_one_piece(const Operand& x) {
    if (x.kind != Kind::Dense) return true;
    return runs_along_rows(x) ? x.row_stride == x.cols : x.col_stride == x.rows;
}

// Whether rows of memory, so many elements of `size` bytes apart, begin at multiples of `bytes` in all matrices of a batch.
inline bool rows_begin_at(int64_t bytes, const void* data, int64_t row_stride, int64_t batch_stride,
                          int64_t size) {
    return reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(bytes) == 0 &&
           row_stride * size % bytes == 0 && batch_stride * size % bytes == 0;
}

// Whether the sums of a product of a triangle and a dense matrix run along the rows of the triangle's
// memory: rows times T are the rows of Tᵀ times columns.
inline bool sums_along_rows(const Product& p) {
    return p.a.kind == Kind::Lower || p.b.kind == Kind::Upper;
}

// Whether a product is a packed matrix times columns, or rows times a packed matrix; and how many these are.
inline bool has_vectors(const Product& p) {
    return is_plain(p) && p.c.kind == Kind::Dense &&
           (p.a.kind == Kind::Dense) != (p.b.kind == Kind::Dense);
}
inline int64_t vectors_of(const Product& p) { return p.a.kind == Kind::Dense ? p.m : p.n; }

// Method::Resident. Config::split says how many warps a block has, of so many at most, and Config::group how many matrices.
constexpr int resident_warps(DType dtype) { return has_complex_elements(dtype) ? 8 : 12; }
// How much shared memory each packed matrix takes: from the word of 16 bytes on in which it begins, and with what is read
// beyond.
inline int64_t resident_bytes(const Product& p) {
    return ceil_div((row_start(p.k) + 16) * element_size(p.dtype), 16) * 16 + 16;
}
// What a warp has of a result at once, in blocks of 16 rows by 8 columns, if the packed matrix is to the left of the other.
struct ResidentShape {
    int rows, cols;
};
constexpr ResidentShape resident_shape(DType dtype, TileSize tile) {
    const bool large = tile == TileSize::Large;
    switch (dtype) {
        case DType::f16:
        case DType::bf16: return {2, 4};
        case DType::f32: return large ? ResidentShape{4, 2} : ResidentShape{2, 2};
        case DType::f64: return large ? ResidentShape{4, 2} : ResidentShape{2, 2};
        case DType::c64: return {2, 2};
        case DType::c128: return {2, 1};
    }
    return {};
}
// Of how many such tiles a result is made up.
inline int64_t resident_tasks(const Product& p, TileSize tile) {
    const ResidentShape shape = resident_shape(p.dtype, tile);
    return ceil_div(p.k, 16 * shape.rows) * ceil_div(vectors_of(p), 8 * shape.cols);
}

// How many vectors Method::Strips has at once: of elements of 2 bytes at least as many as a product of warpgroups pays for.
inline int strip_vectors(const Product& p) {
    const int64_t vectors = vectors_of(p);
    if (vectors <= 8 && element_size(p.dtype) > 2) return 8;
    return vectors <= 16 ? 16 : 32;
}
// The same of Method::Wide.
inline int wide_vectors(const Product& p) {
    const int64_t vectors = vectors_of(p);
    if (p.dtype == DType::f32)
        return vectors <= 16 ? 16 : vectors <= 32 ? 32 : vectors <= 64 ? 64 : 128;
    if (p.dtype == DType::f64) return vectors <= 64 ? 64 : 128;
    // In two groups the blocks have as many sums together as in one, but half of those parts that are added up at last.
    if (vectors > 192 && p.k <= 5000 && !has_symmetric(p)) return 128;
    return vectors <= 16 ? 16 : vectors <= 64 ? 64 : vectors <= 128 ? 128 : 256;
}

// Which sums both have: along the rows of the triangle's memory, and down its columns.
inline bool adds_rows(const Product& p) { return has_symmetric(p) || sums_along_rows(p); }
inline bool adds_columns(const Product& p) { return has_symmetric(p) || !sums_along_rows(p); }

// Those of a single one have kernels of their own (mv.h).
inline bool is_mv(const Product& p) { return has_vectors(p) && vectors_of(p) == 1; }

// The product as it is computed, which may be rounded to TF32 only where that makes it faster: what `choose` takes, where what
// is said below of dense torch, and `explain`, take what was asked for. `together`: how many products like it there are.
Product settled(const Product& p, const Device& device, int together = 1);

// `scratch`: whether there is any. `together`: how many products like this one the engine gets at once.
Config choose(const Product& p, const Device& device, bool scratch = true, int together = 1);

// Up to this order a block can have all of a symmetric matrix, to multiply it by a vector.
constexpr int MV_SMALL_SYMMETRIC = 256;

// How a packed matrix is multiplied by a vector, to y (mv.h).
struct MvChoice {
    // Rows: a warp has some whole rows of one of many small matrices. Groups: a block has `group` elements of y; `sharers`
    // warps share their sums over rows of memory, over its columns, or, of a symmetric matrix, which is read twice then, over
    // either. Columns: for sums over the columns of many matrices. Block: a block has all of a symmetric matrix. Parts: a
    // large symmetric one is read once, and parts of sums go to scratch memory. Held: a block has `group` matrices in shared
    // memory, and `sharers` threads for each of their rows.
    enum class Way { Rows, Groups, Columns, Block, Parts, Held };
    Way way;
    int group = 0, sharers = 0;
};
// `scratch`: whether there is any.
MvChoice choose_mv(const Product& p, const Device& device, bool scratch = true);

// What is left to dense torch, on unpacked copies, because it is faster with them, packing included (measured on an H100,
// docs/cuda.md). Products of symmetric matrices, but of small ones (choose_mirrored.cpp, small.h): other direct kernels read
// the stored half twice, and round 16-bit sums twice; large ones of float32 have the engine, in TF32 larger ones, since
// images take long, and large ones of float64 beside some columns are two triangles. Middle-sized products of
// triangles whose results are dense, solves with one right-hand side, and factors of one matrix: their steps wait for each
// other. Complex products, whose kernels here do without tensor cores, and products with one long dimension (is_elongated).
// Some have only their symmetric operands unpacked (goes_on_unpacked). Batches go there in pieces whose copies have room.
bool leaves_to_dense(const Product& p, const Device& device);
bool leaves_to_dense(const Solve& p);
bool leaves_to_dense(const Factor& p);
// What is copied of a product then.
Copies copies(const Product& p);

// Whether the columns of a batch are turned into the rows of one product: not where they can be joined as they lie.
bool turns(const ColumnBatch& x, const Device& device);

// Whether a product is computed by kernels of ours once its symmetric operands are unpacked, since a dense product
// would multiply what is not needed: zeros of a triangle, or the upper half of a symmetric result.
bool goes_on_unpacked(const Product& p, const Device& device);
// That product, of copies whose rows follow one another; their data is not there yet.
Product with_unpacked(const Product& p);

// For many small products, each of which one block or one warp has as a whole (small.h): the side of
// the square tile that holds every operand, 32, 64 or 128. 0 for all other products.
int small_side(const Product& p, const Device& device);

// Whether a small product has the kernel for two lower triangles (lane_grid.cuh).
inline bool goes_by_lane_grid(const Product& p) {
    const bool lower =
        p.a.kind == Kind::Lower && p.b.kind == Kind::Lower && p.c.kind == Kind::Lower;
    return lower && (p.dtype == DType::f32 || p.dtype == DType::f64);
}

// The choice in words, for `packedtri info`.
std::string explain(const Product& p, const Device& device);

// Makes choose return this method, tile, split and group wherever the product allows it, for tests and tuning; -1 leaves a
// part of the choice free. The method -2 allows all but tile images, and with -3 symmetric operands of float64 are two
// triangles (choice.h). Below -1 the opposite of split_above is Config::graded, and clusters have four blocks whatever
// `split` is.
void force(int method, int tile, int split, int split_above, int group);

}  // namespace packedtri::cuda
