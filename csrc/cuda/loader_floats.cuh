// How tiles of operands with float32 elements reach shared memory on Hopper, rounded to TF32, in the order in which its
// tensor cores read.
#pragma once

#include "image.h"
#include "panel.cuh"
#include "ptx.cuh"

namespace packedtri::cuda {

// Loads 64 rows of A, or columns of B, by 64 steps of k, as two image blocks of 32 steps each (see image.h), since the
// tensor cores read elements of 4 bytes along k alone. Elements go one by one through registers, where they are rounded.
// Where rows of memory run along k, a warp has 32 neighbours of a row; where they run across, a lane has four steps of one
// row of the block, which it stores as one word of 16 bytes. Either way lanes meet different banks.
//
// Places in matrices are counted in 32 bits, and found by additions. Blocks are BLOCK behind where their stages begin. ANY
// is as in RowLoader.
template <int THREADS, bool K_MAJOR, int BLOCK, bool ANY>
class FloatLoader {
    static constexpr int SIDE = Image::SIDE, WARPS = THREADS / 32;
    static_assert(WARPS == 8, "a warp has every eighth row, or two times four steps");

  public:
    static constexpr int GROUPS = 4;
    static constexpr bool MAPPED = false;
    static constexpr int STAGE_BYTES = 2 * Image::BLOCK_BYTES;  // Of each stage.
    static constexpr int BESIDE_BYTES = 0;

    // What a lane has loaded of a tile: of each group two rows and two blocks, or four steps.
    struct Words {
        uint32_t of[GROUPS][4];
    };

    // As RowLoader's.
    __device__ FloatLoader(const Panel<float>& panel, int64_t matrix, Kind kind, bool k_major,
                           int r0, int k0, int /*beside*/)
        : panel_(panel), data_(ptx::hidden(reinterpret_cast<const uint32_t*>(panel.data + matrix))),
          mirrored_(kind == Kind::Symmetric), along_(k_major), r0_(r0), next_k_(k0) {
        begin_at(k_major_of(k0), k0);
    }

    __device__ bool k_major(int) const { return true; }

    // Starts loading the next tile. What is loaded for places that are not stored does not matter.
    __device__ __forceinline__ void load(Words& w) {
        const bool along = k_major_of(next_k_);
        // Past the diagonal of a symmetric operand rows run the other way.
        if (ANY && mirrored_ && next_k_ == r0_ + SIDE) begin_at(false, next_k_);
        if (along) {
            uint32_t at = at_, down = WARPS * pitch_ + bent() * row_start<uint32_t>(WARPS);
#pragma unroll
            for (int x = 0; x < SIDE / WARPS; ++x) {
                load_two(at, w.of[x / 2][x % 2 * 2], w.of[x / 2][x % 2 * 2 + 1]);
                at += down;
                down += bent() * (WARPS * WARPS);
            }
            at_ += SIDE;
        } else {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const uint32_t rows = half * 32;
                uint32_t at = at_ + rows * pitch_ + bent() * row_start<uint32_t>(rows),
                         down = pitch_ + bent() * (rows + 1);
#pragma unroll
                for (int e = 0; e < 4; ++e) {
                    load_two(at, w.of[2 * half][e], w.of[2 * half + 1][e]);
                    at += down;
                    down += bent();
                }
            }
            at_ += SIDE * pitch_ + bent() * row_start<uint32_t>(SIDE);
            pitch_ += bent() * SIDE;
        }
        if (ANY) next_k_ += SIDE;
    }

    // Whether all elements of the tile at k are stored.
    __device__ bool full(int k) const {
        const bool along = k_major_of(k);
        return panel_.full(along ? r0_ : k, along ? k : r0_, SIDE, SIDE);
    }

    // Stores what was loaded of the tile at k to a stage. FULL: nothing needs a zero for what the operand does not store.
    template <bool FULL>
    __device__ __forceinline__ void store(const Words& w, uint32_t stage, int k) const {
        if (k_major_of(k)) store_along<FULL>(w, stage, k);
        else store_across<FULL>(w, stage, k);
    }

    __device__ void store_last(uint32_t, int) const {}

    // To be called last: of the tile on the diagonal of a symmetric operand, what lies above from what lies below.
    __device__ __forceinline__ void mirror(uint32_t stage, int k) const {
        if (!ANY || !mirrored_ || k != r0_) return;
        __syncthreads();
        const auto place = [&](int row, int step) {
            return stage + BLOCK + step / 32 * Image::BLOCK_BYTES +
                   Image::offset_of(row, step % 32 * 4);
        };
        // All that a lane turns is read before the first is written.
        const auto turn = [&](auto&& of_place) {
#pragma unroll
            for (int x = 0; x < SIDE / WARPS; ++x)
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const int row = warp() + WARPS * x, step = lane() + 32 * half;
                    if (step > row) of_place(2 * x + half, row, step);
                }
        };
        uint32_t above[2 * SIDE / WARPS];
        turn([&](int e, int row, int step) { above[e] = ptx::load_shared(place(step, row)); });
        turn([&](int e, int row, int step) { ptx::store_shared(place(row, step), above[e]); });
    }

    // Where the blocks of a step are in its stage, for the tensor cores.
    __device__ uint32_t block(uint32_t stage, int) const { return stage + BLOCK; }

    // As MappedLoader has them.
    __device__ void start() const {}
    __device__ void begin(int) const {}
    __device__ void wait(int) const {}

  private:
    template <bool FULL>
    __device__ __forceinline__ void store_along(const Words& w, uint32_t stage, int k) const {
        // Eight warps: each row that one has is at the same place in its eight.
        const uint32_t to =
            stage + BLOCK + warp() * Image::ROW_BYTES + (lane() / 4 ^ warp()) * 16 + lane() % 4 * 4;
#pragma unroll
        for (int x = 0; x < SIDE / WARPS; ++x)
#pragma unroll
            for (int half = 0; half < 2; ++half)
                ptx::store_shared(to + x * (WARPS * Image::ROW_BYTES) + half * Image::BLOCK_BYTES,
                                  rounded<FULL>(w.of[x / 2][x % 2 * 2 + half],
                                                r0_ + warp() + WARPS * x, k + lane() + 32 * half));
    }
    template <bool FULL>
    __device__ __forceinline__ void store_across(const Words& w, uint32_t stage, int k) const {
        const uint32_t to = stage + BLOCK + lane() * Image::ROW_BYTES + (warp() ^ lane() % 8) * 16;
#pragma unroll
        for (int g = 0; g < GROUPS; ++g) {
            uint32_t x[4];
#pragma unroll
            for (int e = 0; e < 4; ++e)
                x[e] = rounded<FULL>(w.of[g][e], k + 4 * warp() + 32 * (g / 2) + e,
                                     r0_ + lane() + 32 * (g % 2));
            ptx::store_shared(to + g / 2 * Image::BLOCK_BYTES + g % 2 * (32 * Image::ROW_BYTES),
                              make_uint4(x[0], x[1], x[2], x[3]));
        }
    }
    // What is multiplied for an element, in this place of memory.
    template <bool FULL>
    __device__ __forceinline__ uint32_t rounded(uint32_t x, int row, int col) const {
        const bool stored = FULL || ((row < panel_.rows) & (col < panel_.length(row)));
        return stored ? ptx::round_to_tf32(x) : 0;
    }

    // Without a sign, so that they are quick to divide.
    __device__ static uint32_t lane() { return threadIdx.x % 32; }
    __device__ static uint32_t warp() { return threadIdx.x / 32; }
    __device__ uint32_t bent() const { return panel_.packed ? 1 : 0; }

    // The element at `at`, and the one 32 columns on.
    __device__ __forceinline__ void load_two(uint32_t at, uint32_t& x, uint32_t& y) const {
        const auto end = static_cast<uint32_t>(panel_.end), last = end < 32 ? 0 : end - 32;
        ptx::load_if(x, data_ + at, at < end);
        ptx::load_if<32 * sizeof(float)>(y, data_ + at, at < last);
    }

    // Whether rows of memory of the tile at k run along k.
    __device__ bool k_major_of(int k) const {
        if (!ANY) return K_MAJOR;
        return mirrored_ ? k <= r0_ : along_;
    }

    // Lets the tile at k be the next one.
    __device__ __forceinline__ void begin_at(bool along, int k) {
        const auto row = static_cast<uint32_t>(along ? r0_ + warp() : k + 4 * warp()),
                   ld = static_cast<uint32_t>(panel_.ld);
        at_ = row * ld + bent() * row_start<uint32_t>(row) + (along ? k : r0_) + lane();
        pitch_ = ld + bent() * row;
    }

    const Panel<float>& panel_;
    const uint32_t* const data_;
    const bool mirrored_, along_;  // Where that is known at run time.
    const int r0_;
    int next_k_;  // Of the tile that is loaded next, where the operand may be symmetric.
    // This lane's first element of it, and how far the next row of memory is; rows of triangles grow by one.
    uint32_t at_, pitch_;
};

}  // namespace packedtri::cuda
