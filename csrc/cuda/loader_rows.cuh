// How tiles of operands with 16-bit elements reach shared memory on Hopper, in the order in which its
// tensor cores read: rows go through registers, where their elements are brought in line.
#pragma once

#include "image.h"
#include "panel.cuh"
#include "ptx.cuh"

namespace packedtri::cuda {

// Loads 64 rows of A, or columns of B, by 64 steps of k as image blocks (see image.h). A row of a block
// is 64 neighbours in memory, and begins anywhere in a word of 16 bytes, so that it lies in nine of them.
// Nine lanes load a row's words, and each stores the pairs of elements that its word holds to where they
// belong; the element before, which may begin its first pair, comes from the lane before.
//
// Where a row begins in its word is the same in every tile, since 64 rows or columns further offsets in
// memory differ by multiples of 8. So is therefore where its pairs go.
//
// Places in matrices are counted in 32 bits: short sums wait for their first addresses.
//
// Blocks are BLOCK behind where their stages begin.
//
// ANY: the operand may be symmetric, and how it lies is known at run time only. Left of the diagonal rows of memory of
// a symmetric operand run along k, right of it across, in the same blocks but for what the tensor cores are told. The
// block on the diagonal is loaded as it is stored and mirrored where it lies.
template <class T, int THREADS, bool K_MAJOR, int BLOCK, bool ANY>
class RowLoader {
    static constexpr int SIDE = Image::SIDE, WORD = 16 / sizeof(T), WORDS = SIDE / WORD;
    // A warp loads so many rows at once, GROUPS times.
    static constexpr int ROWS = 32 / (WORDS + 1), AT_ONCE = ROWS * (THREADS / 32);

  public:
    static constexpr int GROUPS = (SIDE + AT_ONCE - 1) / AT_ONCE;
    static constexpr bool MAPPED = false;
    static constexpr int STAGE_BYTES = Image::BLOCK_BYTES;  // Of each stage.
    // A place for each thread's pairs outside of rows.
    static constexpr int BESIDE_BYTES = 4 * THREADS;

    // What a lane has loaded of a tile.
    struct Words {
        uint4 of[GROUPS];
    };

    // The first tile has rows, or columns, r0 and steps k0 and following. `matrix`: how many elements after the
    // panel's data the matrix lies. `beside`: where in a stage pairs outside of rows go.
    __device__ RowLoader(const Panel<T>& panel, int64_t matrix, Kind kind, bool k_major, int r0,
                         int k0, int beside)
        : source_(panel, matrix, kind, k_major), r0_(r0), next_k_(k0) {
#pragma unroll
        for (int g = 0; g < GROUPS; ++g) strands_[g] = start(k0, row(g), beside);
    }

    // Whether rows of the tile at k run along k.
    __device__ bool k_major(int k) const {
        if (!ANY) return K_MAJOR;
        return source_.mirrored ? k <= r0_ : source_.along;
    }

    // Starts loading the next tile. What is loaded for places that are not stored does not matter.
    __device__ __forceinline__ void load(Words& w) {
        const bool along = k_major(next_k_);
        if constexpr (ANY) turn();
#pragma unroll
        for (int g = 0; g < GROUPS; ++g) {
            Strand& strand = strands_[g];
            ptx::load_if(w.of[g], source_.words + strand.at, strand.at < source_.whole);
            strand.at += strand.step;
            strand.step += along ? 0 : source_.bent() * (SIDE * SIDE / WORD);
        }
        if (ANY) next_k_ += SIDE;
    }

    // Whether all elements of the block at k are stored, in words that end in the matrix: behind the last
    // row of a triangle's block it stores more, behind that of a dense matrix there may be nothing.
    __device__ bool full(int k) const {
        const bool along = k_major(k);
        const int row = along ? r0_ : k, col = along ? k : r0_;
        return source_.panel.full(row, col, SIDE, SIDE) &&
               (source_.rest == 0 || source_.panel.packed || row + SIDE < source_.panel.rows);
    }

    // Stores what was loaded in group g of the tile at k to a stage. FULL: nothing needs a zero for what the operand
    // does not store. That every pair would have to ask.
    template <bool FULL>
    __device__ __forceinline__ void store(const Words& w, uint32_t stage, int k, int g) const {
        store_pairs<FULL>(strands_[g], w.of[g], stage, k, row(g));
    }

    // To be called after `store`, of which not all was full: the last elements of a matrix, where the word that holds
    // them does not end in it.
    __device__ __forceinline__ void store_last(uint32_t stage, int k) const {
        const Panel<T>& panel = source_.panel;
        const bool along = k_major(k);
        const int rest = source_.rest, last = panel.rows - 1, y = last - (along ? r0_ : k),
                  c = panel.length(last) - rest - (along ? k : r0_);
        if (rest == 0 || y < 0 || y >= SIDE || c + rest <= 0 || c >= SIDE) return;
        __syncthreads();
        const int e = c + static_cast<int>(threadIdx.x);
        if (static_cast<int>(threadIdx.x) >= rest || e < 0 || e >= SIDE) return;
        const auto* elements = reinterpret_cast<const uint16_t*>(source_.words + source_.whole);
        ptx::store_shared(stage + BLOCK + Image::offset_of(y, e * 2), elements[threadIdx.x]);
    }

    // To be called last: of the block on the diagonal of a symmetric operand, what lies above from what lies below. A warp
    // has eight rows, by tiles of 8 x 8 elements that ldmatrix turns.
    __device__ __forceinline__ void mirror(uint32_t stage, int k) const {
        static_assert(THREADS / 32 == SIDE / 8);
        if (!ANY || !source_.mirrored || k != r0_) return;
        __syncthreads();
        const uint32_t to = stage + BLOCK;
        const int row = lane() / 4;
#pragma unroll 1
        for (int first = warp(); first < SIDE / 8; first += 4) {
            uint32_t turned[4];
            const int tile = min(first + lane() / 8, SIDE / 8 - 1);
            ptx::ldmatrix_x4_trans(turned, to + Image::chunk_offset(8 * tile + lane() % 8, warp()));
#pragma unroll
            for (int x = 0; x < 4; ++x) {
                if (first + x >= SIDE / 8) break;
                const int col = lane() % 4 * 2;
                const uint32_t at =
                    to + Image::offset_of(8 * warp() + row, 16 * (first + x) + 2 * col);
                uint32_t pair = turned[x];
                if (first + x == warp()) {
                    const uint32_t stored = ptx::load_shared(at);
                    pair = col > row       ? pair
                           : col + 1 > row ? stored & 0xffffu | pair & ~0xffffu
                                           : stored;
                }
                ptx::store_shared(at, pair);
            }
        }
    }

    // Where the block of a step is in its stage, for the tensor cores.
    __device__ uint32_t block(uint32_t stage, int) const { return stage + BLOCK; }

    // As MappedLoader has them.
    __device__ void start() const {}
    __device__ void begin(int) const {}
    __device__ void wait(int) const {}

  private:
    struct Source {
        const Panel<T>& panel;
        const uint4* words;  // The word that holds the first element of the matrix.
        uint32_t past;       // How many elements that is behind its start.
        uint32_t whole;      // Words that end in the matrix, and the elements behind them.
        int rest;
        bool mirrored, along;  // Where that is known at run time.

        __device__ Source(const Panel<T>& p, int64_t matrix, Kind kind, bool k_major)
            : panel(p), mirrored(kind == Kind::Symmetric), along(k_major) {
            const T* data = p.data + matrix;
            past = static_cast<uint32_t>(ptx::past_word(data));
            words = ptx::hidden(reinterpret_cast<const uint4*>(data - past));
            const uint32_t end = past + static_cast<uint32_t>(p.end);
            whole = end / WORD;
            rest = static_cast<int>(end % WORD);
        }
        __device__ uint32_t bent() const { return panel.packed ? 1 : 0; }
    };
    // A lane's word in one row of each tile.
    struct Strand {
        uint32_t at,
            step;  // Its number in the matrix for the next tile, and how far the one after is.
        uint32_t to[4];  // Where its pairs go.
        uint32_t shift;  // Elements of the row's first word that are before the row.
    };

    __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }
    __device__ static int warp() { return static_cast<int>(threadIdx.x) / 32; }
    // Of a block; a lane has none where that is SIDE or more.
    __device__ static int row(int group) {
        const int y = lane() / (WORDS + 1);
        return y < ROWS ? group * AT_ONCE + warp() * ROWS + y : SIDE;
    }
    __device__ static int word() { return lane() % (WORDS + 1); }

    // Lets a strand be that of this lane's word of row y of the block at k, and says before how many elements that
    // row begins.
    __device__ __forceinline__ uint32_t locate(bool along, int k, int y, Strand& strand) const {
        const auto row = static_cast<uint32_t>((along ? r0_ : k) + y),
                   ld = static_cast<uint32_t>(source_.panel.ld);
        const uint32_t at =
            row * ld + source_.bent() * row_start<uint32_t>(row) + source_.past + (along ? k : r0_);
        // Lanes without a row load nothing.
        constexpr uint32_t NOWHERE = 1u << 31;
        strand.at = y < SIDE ? at / WORD + word() : NOWHERE;
        strand.step =
            along ? WORDS
                  : ld * (SIDE / WORD) +
                        source_.bent() * (row * (SIDE / WORD) + row_start<uint32_t>(SIDE) / WORD);
        return at;
    }

    __device__ __forceinline__ Strand start(int k, int y, int beside) const {
        Strand strand;
        strand.shift = locate(k_major(k), k, y, strand) % WORD;
        // Pairs are numbered from the start of the row.
        const int first = static_cast<int>(word() * (WORD / 2) - (strand.shift + 1) / 2);
        const uint32_t to = BLOCK + y * Image::ROW_BYTES;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const uint32_t pair = first + i;
            strand.to[i] = y < SIDE && pair < SIDE / 2 ? to + (pair * 4 ^ y % 8 * 16)
                                                       : beside + threadIdx.x * 4;
        }
        return strand;
    }

    // Past the diagonal of a symmetric operand strands run the other way.
    __device__ __forceinline__ void turn() {
        if (!source_.mirrored || next_k_ != r0_ + SIDE) return;
#pragma unroll
        for (int g = 0; g < GROUPS; ++g) locate(false, next_k_, row(g), strands_[g]);
    }

    __device__ static uint32_t lane_before(uint32_t x) { return __shfl_up_sync(~0u, x, 1); }

    template <bool FULL>
    __device__ __forceinline__ void store_pairs(const Strand& strand, const uint4& w,
                                                uint32_t stage, int k, int y) const {
        const uint32_t before = lane_before(w.w);
        const uint32_t selector = strand.shift % 2 ? 0x5432 : 0x7654;
        uint32_t pairs[4] = {__byte_perm(before, w.x, selector), __byte_perm(w.x, w.y, selector),
                             __byte_perm(w.y, w.z, selector), __byte_perm(w.z, w.w, selector)};
        if (!FULL) {
            const bool along = k_major(k);
            const int row = (along ? r0_ : k) + y, col = (along ? k : r0_) + word() * WORD -
                                                         static_cast<int>(strand.shift + 1) / 2 * 2;
            const int stored = row < source_.panel.rows ? source_.panel.length(row) - col : 0;
#pragma unroll
            for (int i = 0; i < 4; ++i)
                pairs[i] = stored >= 2 * i + 2 ? pairs[i] : stored > 2 * i ? pairs[i] & 0xffffu : 0;
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) ptx::store_shared(stage + strand.to[i], pairs[i]);
    }

    const Source source_;
    const int r0_;
    int next_k_;  // Of the tile that is loaded next, where the operand may be symmetric.
    Strand strands_[GROUPS];
};

}  // namespace packedtri::cuda
