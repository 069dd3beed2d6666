// How tiles of operands with 16-bit elements reach shared memory on Hopper, in the order in which its
// tensor cores read: rows go through registers, where their elements are brought in line.
#pragma once

#include "image.h"
#include "panel.cuh"
#include "ptx.cuh"

namespace packedtri::cuda {

// Loads 64 rows of A and 64 columns of B by 64 steps of k as image blocks (see image.h). A row of a block
// is 64 neighbours in memory, and begins anywhere in a word of 16 bytes, so that it lies in nine of them.
// Nine lanes load a row's words, and each stores the pairs of elements that its word holds to where they
// belong; the element before, which may begin its first pair, comes from the lane before.
//
// Where a row begins in its word is the same in every tile, since 64 rows or columns further offsets in
// memory differ by multiples of 8. So is therefore where its pairs go.
//
// Places in matrices are counted in 32 bits: short sums wait for their first addresses.
template <class T, int THREADS, bool A_K_MAJOR, bool B_K_MAJOR>
class RowLoader {
    static constexpr int SIDE = Image::SIDE, WORD = 16 / sizeof(T), WORDS = SIDE / WORD;
    // A warp loads so many rows at once, GROUPS times.
    static constexpr int ROWS = 32 / (WORDS + 1), AT_ONCE = ROWS * (THREADS / 32),
                         GROUPS = (SIDE + AT_ONCE - 1) / AT_ONCE;

  public:
    // A block for each operand, and behind them a place for each thread's pairs outside of rows.
    static constexpr int BYTES = 2 * Image::BLOCK_BYTES + 4 * THREADS;

    // What a lane has loaded of a tile.
    struct Words {
        uint4 a[GROUPS], b[GROUPS];
    };

    // The first tile has rows i0, columns j0 and steps k0 and following. `a_matrix`, `b_matrix`: how
    // many elements after the panels' data the matrices lie.
    __device__ RowLoader(const Panel<T>& a, int64_t a_matrix, const Panel<T>& b, int64_t b_matrix,
                         int i0, int j0, int k0)
        : a_source_(a, a_matrix), b_source_(b, b_matrix), i0_(i0), j0_(j0) {
#pragma unroll
        for (int g = 0; g < GROUPS; ++g) {
            a_[g] = start<A_K_MAJOR>(a_source_, i0, k0, row(g), 0);
            b_[g] = start<B_K_MAJOR>(b_source_, j0, k0, row(g), Image::BLOCK_BYTES);
        }
    }

    // Starts loading the next tile. What is loaded for places that are not stored does not matter.
    __device__ __forceinline__ void load(Words& w) {
#pragma unroll
        for (int g = 0; g < GROUPS; ++g) load<A_K_MAJOR>(w.a[g], a_[g], a_source_);
#pragma unroll
        for (int g = 0; g < GROUPS; ++g) load<B_K_MAJOR>(w.b[g], b_[g], b_source_);
    }

    // Stores what was loaded for the tile at k, with zeros for what the operands do not store.
    __device__ __forceinline__ void store(const Words& w, uint32_t to, int k) const {
        if (full<A_K_MAJOR>(a_source_, i0_, k) && full<B_K_MAJOR>(b_source_, j0_, k)) {
            store_all<true>(w, to, k);
        } else {
            store_all<false>(w, to, k);
            store_last<A_K_MAJOR>(a_source_, to, i0_, k);
            store_last<B_K_MAJOR>(b_source_, to + Image::BLOCK_BYTES, j0_, k);
        }
    }

  private:
    struct Source {
        const Panel<T>& panel;
        const uint4* words;  // The word that holds the first element of the matrix.
        uint32_t past;       // How many elements that is behind its start.
        uint32_t whole;      // Words that end in the matrix, and the elements behind them.
        int rest;

        __device__ Source(const Panel<T>& p, int64_t matrix) : panel(p) {
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

    // What the steps from tile to tile grow by.
    template <bool K_MAJOR>
    __device__ static uint32_t bend(const Source& x) {
        return K_MAJOR ? 0 : x.bent() * (SIDE * SIDE / WORD);
    }

    // This lane's word of row y of a block whose first row or column is r0.
    template <bool K_MAJOR>
    __device__ static __forceinline__ Strand start(const Source& x, int r0, int k0, int y,
                                                   int block) {
        Strand strand;
        const int v = word();
        const auto row = static_cast<uint32_t>((K_MAJOR ? r0 : k0) + y),
                   ld = static_cast<uint32_t>(x.panel.ld);
        const uint32_t at =
            row * ld + x.bent() * row_start<uint32_t>(row) + x.past + (K_MAJOR ? k0 : r0);
        // Lanes without a row load nothing.
        constexpr uint32_t NOWHERE = 1u << 31;
        strand.at = y < SIDE ? at / WORD + v : NOWHERE;
        strand.step = K_MAJOR ? WORDS
                              : ld * (SIDE / WORD) + x.bent() * (row * (SIDE / WORD) +
                                                                 row_start<uint32_t>(SIDE) / WORD);
        strand.shift = at % WORD;
        // Pairs are numbered from the start of the row.
        const int first = static_cast<int>(v * (WORD / 2) - (strand.shift + 1) / 2);
        const uint32_t to = block + y * Image::ROW_BYTES;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const uint32_t pair = first + i;
            strand.to[i] = y < SIDE && pair < SIDE / 2 ? to + (pair * 4 ^ y % 8 * 16)
                                                       : 2 * Image::BLOCK_BYTES + threadIdx.x * 4;
        }
        return strand;
    }

    template <bool K_MAJOR>
    __device__ __forceinline__ static void load(uint4& word, Strand& strand, const Source& x) {
        ptx::load_if(word, x.words + strand.at, strand.at < x.whole);
        strand.at += strand.step;
        strand.step += bend<K_MAJOR>(x);
    }

    // Whether all elements of the block at k are stored, in words that end in the matrix: behind the last
    // row of a triangle's block it stores more, behind that of a dense matrix there may be nothing.
    template <bool K_MAJOR>
    __device__ static bool full(const Source& x, int r0, int k) {
        const int row = K_MAJOR ? r0 : k, col = K_MAJOR ? k : r0;
        return x.panel.full(row, col, SIDE, SIDE) &&
               (x.rest == 0 || x.panel.packed || row + SIDE < x.panel.rows);
    }

    // FULL: nothing of the tile needs a zero. That every pair would have to ask.
    template <bool FULL>
    __device__ __forceinline__ void store_all(const Words& w, uint32_t to, int k) const {
#pragma unroll
        for (int g = 0; g < GROUPS; ++g) {
            store_pairs<FULL, A_K_MAJOR>(a_[g], w.a[g], a_source_, to, i0_, k, row(g));
            store_pairs<FULL, B_K_MAJOR>(b_[g], w.b[g], b_source_, to, j0_, k, row(g));
        }
    }
    __device__ static uint32_t lane_before(uint32_t x) { return __shfl_up_sync(~0u, x, 1); }

    template <bool FULL, bool K_MAJOR>
    __device__ __forceinline__ static void store_pairs(const Strand& strand, const uint4& w,
                                                       const Source& x, uint32_t to, int r0, int k,
                                                       int y) {
        const uint32_t before = lane_before(w.w);
        const uint32_t selector = strand.shift % 2 ? 0x5432 : 0x7654;
        uint32_t pairs[4] = {__byte_perm(before, w.x, selector), __byte_perm(w.x, w.y, selector),
                             __byte_perm(w.y, w.z, selector), __byte_perm(w.z, w.w, selector)};
        if (!FULL) {
            const int row = (K_MAJOR ? r0 : k) + y,
                      col = (K_MAJOR ? k : r0) + word() * WORD -
                            static_cast<int>(strand.shift + 1) / 2 * 2;
            const int stored = row < x.panel.rows ? x.panel.length(row) - col : 0;
#pragma unroll
            for (int i = 0; i < 4; ++i)
                pairs[i] = stored >= 2 * i + 2 ? pairs[i] : stored > 2 * i ? pairs[i] & 0xffffu : 0;
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) ptx::store_shared(to + strand.to[i], pairs[i]);
    }

    // The last elements of a matrix, where the word that holds them does not end in it.
    template <bool K_MAJOR>
    __device__ __forceinline__ static void store_last(const Source& x, uint32_t to, int r0, int k) {
        const int last = x.panel.rows - 1, y = last - (K_MAJOR ? r0 : k),
                  c = x.panel.length(last) - x.rest - (K_MAJOR ? k : r0);
        if (x.rest == 0 || y < 0 || y >= SIDE || c + x.rest <= 0 || c >= SIDE) return;
        __syncthreads();
        const int e = c + static_cast<int>(threadIdx.x);
        if (static_cast<int>(threadIdx.x) >= x.rest || e < 0 || e >= SIDE) return;
        ptx::store_shared(to + Image::offset_of(y, e * 2),
                          reinterpret_cast<const uint16_t*>(x.words + x.whole)[threadIdx.x]);
    }

    const Source a_source_, b_source_;
    const int i0_, j0_;
    Strand a_[GROUPS], b_[GROUPS];
};

}  // namespace packedtri::cuda
