// Batches of products of 16-bit elements. A block has one product after another. It copies the packed operands to shared
// memory as they lie in memory, makes their images there, and multiplies these with one another, or with a dense operand
// that the copy engine brings, by the tensor cores. What the next product needs is under way meanwhile.
#pragma once

#include "fragment_loader.cuh"
#include "fragment_math.cuh"
#include "hopper.cuh"
#include "shared_image.cuh"
#include "shared_images_layout.h"
#include "wgmma.cuh"

namespace packedtri::cuda {

template <class T>
struct SharedImagesArgs {
    CUtensorMap map;  // Of the dense operand, if there is one.
    ProductArgs<T> product;
    const T* packed[2];  // What is read: one, if both operands are the same.
    int64_t stride[2];   // From matrix to matrix.
    bool mirrored[2];
    int stored;        // Elements of each.
    bool dense_is_a;   // Which operand is dense, if there is one.
    bool dense_alike;  // Whether all matrices of the batch have the same.
    SharedImagesLayout layout;
};

// A place in a ring of so many slots as there are.
struct RingPlace {
    int slot = 0, parity = 0;
    __device__ void advance(int slots) {
        if (++slot == slots) slot = 0, parity ^= 1;
    }
};

// Where things are in a block's shared memory.
template <class T>
struct SharedImagesMemory {
    const SharedImagesLayout& layout;
    const uint32_t base;

    __device__ uint32_t image(int operand) const {
        return base + operand * row_start<int>(layout.side) * Image::BLOCK_BYTES;
    }
    __device__ uint32_t panel(int slot) const {
        return base + layout.ring() + slot * layout.panel_bytes();
    }
    __device__ uint32_t raw(int slot) const {
        return base + layout.raw() + slot * layout.raw_bytes;
    }
    __device__ uint32_t staging() const { return base + layout.staging(); }
    __device__ uint32_t raw_full(int slot) const { return base + layout.barriers() + 16 * slot; }
    __device__ uint32_t raw_empty(int slot) const { return raw_full(slot) + 8; }
    __device__ uint32_t panel_full(int slot) const { return raw_full(layout.raw_slots + slot); }
    __device__ uint32_t panel_empty(int slot) const { return panel_full(slot) + 8; }

    // By one thread, before any is used. All lanes of the warp that brings operands arrive for what they have stored.
    __device__ void start() const {
        for (int s = 0; s < layout.raw_slots; ++s) start(raw_full(s), 32);
        for (int s = 0; s < layout.slots; ++s) start(panel_full(s), 1);
        ptx::mbarrier_init_fence();
    }

  private:
    __device__ void start(uint32_t full, int arrivals) const {
        ptx::mbarrier_init(full, arrivals);
        ptx::mbarrier_init(full + 8, 128 * layout.groups());
    }
};

// The warp that brings operands.
template <class T>
class SharedImagesProducer {
  public:
    __device__ SharedImagesProducer(const SharedImagesArgs<T>& args,
                                    const SharedImagesMemory<T>& memory)
        : args_(args), memory_(memory) {}

    __device__ void run() {
        for (int matrix = blockIdx.x; matrix < args_.product.batch; matrix += gridDim.x) {
            for (int x = 0; x < args_.layout.operands; ++x)
                load_packed(args_.packed[x] + matrix * args_.stride[x]);
            for (int panel = 0; panel < args_.layout.panels; ++panel) load_panel(matrix, panel);
        }
    }

  private:
    static constexpr int WORD = 16 / sizeof(T);

    __device__ void load_packed(const T* from) {
        const int lane = static_cast<int>(threadIdx.x) % 32;
        const int place = ptx::past_word(from), end = place + args_.stored, words = end / WORD;
        const uint32_t to = memory_.raw(raw_.slot), full = memory_.raw_full(raw_.slot);
        ptx::mbarrier_wait(memory_.raw_empty(raw_.slot), raw_.parity ^ 1);
        // The elements below may lie where a copy writes next time.
        ptx::bulk_fence();
        // The word in which the matrix ends may reach out of its memory.
        const int e = words * WORD + lane;
        if (e >= place && e < end)
            ptx::store_shared(to + e * static_cast<int>(sizeof(T)),
                              reinterpret_cast<const uint16_t*>(from)[e - place]);
        if (lane > 0) {
            ptx::mbarrier_arrive(full);
        } else {
            ptx::mbarrier_arrive_expect(full, words * 16);
            if (words > 0) ptx::bulk_load(to, from - place, words * 16, full);
        }
        __syncwarp();
        raw_.advance(args_.layout.raw_slots);
    }

    __device__ void load_panel(int matrix, int panel) {
        const uint32_t to = memory_.panel(panel_.slot), full = memory_.panel_full(panel_.slot);
        const bool along = args_.dense_is_a ? args_.product.a_k_major : args_.product.b_k_major;
        ptx::mbarrier_wait(memory_.panel_empty(panel_.slot), panel_.parity ^ 1);
        if (ptx::elect()) {
            ptx::mbarrier_arrive_expect(full, args_.layout.panel_bytes());
            for (int k = 0; k < args_.layout.side; ++k) {
                const int vector = panel * Image::SIDE, step = k * Image::SIDE;
                ptx::tensor_load(to + k * Image::BLOCK_BYTES, &args_.map,
                                 args_.dense_alike ? 0 : matrix, along ? vector : step,
                                 along ? step : vector, full);
            }
        }
        __syncwarp();
        panel_.advance(args_.layout.slots);
    }

    const SharedImagesArgs<T>& args_;
    const SharedImagesMemory<T>& memory_;
    RingPlace raw_, panel_;
};

// The warps that make images of packed operands, multiply and store.
template <class T, int GROUPS>
class SharedImagesConsumer {
    static constexpr int THREADS = 128 * GROUPS, SIDE = Image::SIDE, WORD = 16 / sizeof(T);

  public:
    __device__ SharedImagesConsumer(const SharedImagesArgs<T>& args,
                                    const SharedImagesMemory<T>& memory, int group)
        : args_(args), memory_(memory), group_(group),
          warp_(__shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32, 0)) {}

    __device__ void run() {
        const bool packed = args_.product.c_packed;
        clear_images();
        for (matrix_ = blockIdx.x; matrix_ < args_.product.batch; matrix_ += gridDim.x) {
            make_images();
            multiply();
            if (packed) send_packed();
            else ptx::block_sync<THREADS>();  // The images can be made anew.
            if (args_.layout.shares_staging()) {
                if (threadIdx.x == 0) ptx::bulk_store_read();
                release_raw();
            }
        }
        if (packed && threadIdx.x == 0) ptx::bulk_store_done();
    }

  private:
    __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }

    // -------------------------------------------------------------------------------- images

    // Rows past the end of a matrix are multiplied as well.
    __device__ void clear_images() const {
        const uint32_t first = memory_.image(0), end = first + args_.layout.images_bytes();
        for (uint32_t at = first + threadIdx.x * 16; at < end; at += THREADS * 16)
            ptx::store_shared(at, uint4{});
        ptx::block_sync<THREADS>();
    }

    __device__ void make_images() {
        const SharedImagesLayout& layout = args_.layout;
        for (int x = 0; x < layout.operands; ++x) {
            ptx::mbarrier_wait(memory_.raw_full(raw_.slot), raw_.parity);
            const SharedImage image(memory_.raw(raw_.slot),
                                    ptx::past_word(args_.packed[x] + matrix_ * args_.stride[x]),
                                    args_.product.k, args_.mirrored[x]);
            image.make(memory_.image(x), warp_, 4 * GROUPS);
            // What shares its place with the last one is staged first.
            if (!layout.shares_staging() || x + 1 < layout.operands) release_raw();
        }
        ptx::bulk_fence();
        // Then nothing that was staged of the product before is needed either.
        if (args_.product.c_packed && threadIdx.x == 0) ptx::bulk_store_read();
        ptx::block_sync<THREADS>();
    }

    __device__ void release_raw() {
        ptx::mbarrier_arrive(memory_.raw_empty(raw_.slot));
        raw_.advance(args_.layout.raw_slots);
    }

    // ------------------------------------------------------------------------------ products

    // The tiles of one panel of vectors after another, or else those of one row of blocks after another. Warpgroups take
    // turns, the longest sums first.
    __device__ void multiply() {
        const ProductArgs<T>& p = args_.product;
        const int side = args_.layout.side, panels = args_.layout.panels;
        const bool last_first =
            args_.dense_is_a ? p.b_kind == Kind::Upper : p.a_kind == Kind::Lower;
        int turn = group_;
        for (int line = 0; line < (panels > 0 ? panels : side); ++line) {
            const int row = side - 1 - line, tiles = panels == 0 && p.c_lower ? row + 1 : side;
            if (panels > 0) ptx::mbarrier_wait(memory_.panel_full(panel_.slot), panel_.parity);
            for (; turn < tiles; turn += GROUPS) {
                const int x = last_first ? tiles - 1 - turn : turn;
                if (panels == 0) tile(row, turn);
                else tile(args_.dense_is_a ? line : x, args_.dense_is_a ? x : line);
            }
            turn -= tiles;
            if (panels == 0) continue;
            turn = (turn + 1) % GROUPS;
            ptx::mbarrier_arrive(memory_.panel_empty(panel_.slot));
            panel_.advance(args_.layout.slots);
        }
    }

    // The blocks of an operand that the sum of a tile meets, one after another. In a panel they lie side by side, in an
    // image along a row, up to the diagonal, or down a column, from there on; then rows of memory run across the sum.
    struct Strand {
        uint32_t at;
        int down;  // The step from which on it goes down, or its rows run across the sum.
        bool packed;

        __device__ bool across(int k) const { return k >= down; }
        __device__ void advance(int k) {
            at += (packed && k >= down ? k + 1 : 1) * Image::BLOCK_BYTES;
        }
    };
    static constexpr int NEVER = 1 << 16;
    // Of row or column `line` of an operand, from step k on. RUNS_ALONG: the kind that is read along its rows.
    template <Kind RUNS_ALONG>
    __device__ Strand strand(Kind kind, bool k_major, uint32_t image, int line, int k) const {
        if (kind == Kind::Dense)
            return {memory_.panel(panel_.slot) + k * Image::BLOCK_BYTES, k_major ? NEVER : 0,
                    false};
        const int down = kind == Kind::Symmetric ? line
                         : kind == RUNS_ALONG    ? NEVER
                                                 : 0,
                  index = k >= down ? row_start<int>(k) + line : row_start<int>(line) + k;
        return {image + index * Image::BLOCK_BYTES, down, true};
    }

    __device__ __forceinline__ void tile(int i, int j) {
        const ProductArgs<T>& p = args_.product;
        const int side = args_.layout.side,
                  begin = max(p.a_kind == Kind::Upper ? i : 0, p.b_kind == Kind::Lower ? j : 0),
                  end = min(p.a_kind == Kind::Lower ? i + 1 : side,
                            p.b_kind == Kind::Upper ? j + 1 : side);
        const bool one_image = p.a_kind == Kind::Dense || args_.layout.operands == 1;
        Strand a = strand<Kind::Lower>(p.a_kind, p.a_k_major, memory_.image(0), i, begin),
               b = strand<Kind::Upper>(p.b_kind, p.b_k_major, memory_.image(one_image ? 0 : 1), j,
                                       begin);
        float acc[32];
#pragma unroll
        for (float& x : acc) x = 0;
        for (int k = begin; k < end; ++k) {
            if (a.across(k) && b.across(k)) multiply<true, true>(acc, a.at, b.at);
            else if (a.across(k)) multiply<true, false>(acc, a.at, b.at);
            else if (b.across(k)) multiply<false, true>(acc, a.at, b.at);
            else multiply<false, false>(acc, a.at, b.at);
            a.advance(k);
            b.advance(k);
        }
        ptx::wgmma_wait();
        const int row = i * SIDE + warp_ % 4 * 16, col = j * SIDE;
        if (row >= p.m) return;
        if (p.c_packed) stage_packed(acc, row, col);
        else store_dense(acc, row, col);
        // Zeros past a diagonal make nan of an infinite or nan element: it leaves its mark on every sum that it enters.
        const bool padded = is_triangular(p.a_kind) || is_triangular(p.b_kind);
        if (padded && __any_sync(~0u, !all_finite<32>([&](int e) { return acc[e]; })))
            mend(args_.product, matrix_, row, col, memory_.staging());
    }

    template <bool A_ACROSS, bool B_ACROSS>
    __device__ __forceinline__ static void multiply(float* acc, uint32_t a, uint32_t b) {
        const uint64_t da = tile_descriptor(a), db = tile_descriptor(b);
        constexpr int A_STEP = A_ACROSS ? STEP_ACROSS : STEP_ALONG,
                      B_STEP = B_ACROSS ? STEP_ACROSS : STEP_ALONG;
        ptx::wgmma_fence();
#pragma unroll
        for (int x = 0; x < SIDE / 16; ++x)
            ptx::wgmma<SIDE, A_ACROSS, B_ACROSS>(acc, da + x * A_STEP, db + x * B_STEP, true, T{});
        ptx::wgmma_commit();
    }

    // -------------------------------------------------------------------------------- result

    // The row and column of this lane's element e of a tile of 16 x 64: see ptx::wgmma.
    __device__ static int row_of(int e) { return e % 4 / 2 * 8 + lane() / 4; }
    __device__ static int col_of(int e) { return e / 4 * 8 + lane() % 4 * 2 + e % 2; }

    __device__ static uint32_t pair(float x, float y) {
        const T both[2] = {Accumulator<T>::round(x), Accumulator<T>::round(y)};
        return *reinterpret_cast<const uint32_t*>(both);
    }

    // Through shared memory, so that a row is stored 16 bytes at a time. Rows are as long as whole words.
    __device__ __forceinline__ void store_dense(const float* acc, int row, int col) const {
        const ProductArgs<T>& p = args_.product;
        const uint32_t staged = memory_.staging() + warp_ * STAGED_TILE_BYTES,
                       to = staged + row_of(0) * Image::ROW_BYTES + lane() % 4 * 4;
        __syncwarp();
#pragma unroll
        for (int c = 0; c < 8; ++c)
#pragma unroll
            for (int h = 0; h < 2; ++h)
                ptx::store_shared(to + (c ^ row_of(0)) * 16 + h * 8 * Image::ROW_BYTES,
                                  pair(acc[4 * c + 2 * h], acc[4 * c + 2 * h + 1]));
        __syncwarp();
        const int chunk = lane() % 8, j = col + chunk * WORD, y = lane() / 8,
                  ld = static_cast<int>(p.c_ld);
        T* c = p.c + matrix_ * p.c_batch_stride + ((row + y) * ld + j);
        const int rows = j < p.n ? p.m - row - y : 0;
#pragma unroll
        for (int x = 0; x < 16; x += 4) {
            const uint4 word = ptx::load_shared_u32x4(staged + Image::chunk_offset(y + x, chunk));
            if (x < rows) *reinterpret_cast<uint4*>(c) = word;
            c += 4 * ld;
        }
    }

    __device__ T* packed_result() const {
        return args_.product.c + matrix_ * args_.product.c_batch_stride;
    }

    // As it lies in memory, from the word of 16 bytes on in which the matrix begins.
    __device__ __forceinline__ void stage_packed(const float* acc, int row, int col) const {
        if (row >= col + SIDE && row + 16 <= args_.product.n) stage_packed<true>(acc, row, col);
        else stage_packed<false>(acc, row, col);
    }
    // FULL: all elements are stored.
    template <bool FULL>
    __device__ __forceinline__ void stage_packed(const float* acc, int row, int col) const {
        const int place = ptx::past_word(packed_result());
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const int i = row + row_of(2 * h), j = col + col_of(0);
            const int count = FULL ? SIDE : i < args_.product.n ? i + 1 - j : 0;
            const uint32_t to = memory_.staging() + (place + row_start<int>(i) + j) * 2;
#pragma unroll
            for (int x = 0; x < SIDE; x += 8) {
                const uint32_t both = pair(acc[x / 2 + 2 * h], acc[x / 2 + 2 * h + 1]);
                const auto first = static_cast<uint16_t>(both),
                           second = static_cast<uint16_t>(both >> 16);
                if (FULL) {
                    ptx::store_shared(to + x * 2, first);
                    ptx::store_shared(to + x * 2 + 2, second);
                } else {
                    ptx::store_shared_if(to + x * 2, first, x < count);
                    ptx::store_shared_if(to + x * 2 + 2, second, x + 1 < count);
                }
            }
        }
    }

    // Whole words by the copy engine, the elements before and behind them one by one.
    __device__ void send_packed() const {
        T* to = packed_result();
        const int place = ptx::past_word(to), end = place + args_.stored,
                  first = (place + WORD - 1) / WORD * WORD, last = max(first, end / WORD * WORD);
        ptx::bulk_fence();
        ptx::block_sync<THREADS>();
        const int thread = static_cast<int>(threadIdx.x);
        if (thread == 0 && last > first)
            ptx::bulk_store(to + (first - place), memory_.staging() + first * 2,
                            (last - first) * 2);
        const int e = thread < WORD ? place + thread : last + thread - WORD;
        if (thread < 2 * WORD && e < (thread < WORD ? min(first, end) : end))
            reinterpret_cast<uint16_t*>(to)[e - place] =
                static_cast<uint16_t>(ptx::load_shared_u16(memory_.staging() + e * 2));
    }

    // Puts sums of stored elements only in the place of those of a warp's tile. A call, so that the registers that this
    // takes are not the main loop's.
    __device__ __noinline__ static void mend(const ProductArgs<T>& p, int matrix, int row, int col,
                                             uint32_t staging) {
        const FragmentLoader<T> a(p.a, matrix * p.a_batch_stride, p.a_kind, false, p.a_k_major,
                                  true, 0),
            b(p.b, matrix * p.b_batch_stride, p.b_kind, false, p.b_k_major, false, 0);
        T* c = p.c + matrix * p.c_batch_stride;
        __syncwarp();
#pragma unroll 1
        for (int e = 0; e < 32; ++e) {
            const int i = row + row_of(e), j = col + col_of(e);
            if (i >= p.m || j >= (p.c_lower ? i + 1 : p.n)) continue;
            const T rounded = product_of_stored<FragmentMath<T>>(a, b, i, j, p.k);
            if (p.c_packed)
                ptx::store_shared(staging + (ptx::past_word(c) + row_start<int>(i) + j) * 2,
                                  *reinterpret_cast<const uint16_t*>(&rounded));
            else c[i * p.c_ld + j] = rounded;
        }
    }

    const SharedImagesArgs<T>& args_;
    const SharedImagesMemory<T>& memory_;
    const int group_, warp_;
    int matrix_ = 0;
    RingPlace raw_, panel_;
};

template <class T, int GROUPS>
__global__ void __launch_bounds__(128 * GROUPS + 32, SharedImagesLayout::most_blocks(GROUPS))
    shared_images_kernel(const __grid_constant__ SharedImagesArgs<T> args) {
#if PACKEDTRI_HOPPER
    extern __shared__ __align__(1024) char shared[];
    const SharedImagesMemory<T> memory{args.layout, ptx::shared_address(shared)};
    const int group = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 128, 0);
    if (threadIdx.x == 0) memory.start();
    __syncthreads();
    ptx::wait_for_dependency();
    if (group == GROUPS) SharedImagesProducer<T>(args, memory).run();
    else SharedImagesConsumer<T, GROUPS>(args, memory, group).run();
    ptx::launch_dependents();
#endif
}

}  // namespace packedtri::cuda
