// A warpgroup that multiplies 64 rows of a block's tile, or half of their columns.
#pragma once

#include "engine_storer.cuh"
#include "part_sums.cuh"

namespace packedtri::cuda {

template <class Shape, int PRODUCTS, class Across>
class EngineConsumer {
    using T = typename Shape::T;
    using Args = EngineArgsOf<Shape, PRODUCTS>;
    using Tile = typename Shape::Tile;
    using Item = typename Shape::Item;
    static constexpr int SIDE = Shape::SIDE;

  public:
    __device__ EngineConsumer(const Args& args, const EngineShared<Shape>& shared, int rank,
                              int group)
        : args_(args), shared_(shared), rank_(rank), warp_{group}, storer_(args, shared, warp_) {}

    __device__ void run() {
        for (;;) {
            ptx::mbarrier_wait(shared_.full(at_.stage), at_.parity);
            // One value for the warp, and known to be: products of a warpgroup must not diverge. The
            // lane that reads it is the one whose arrival allows the next write.
            const int64_t read = threadIdx.x % 32 == 0 ? *shared_.item(at_.stage) : 0;
            const int64_t word = __shfl_sync(~0u, read, 0);
            if (word == EngineItem::NONE) break;
            const Item drawn = Item::of(word);
            product_ = drawn.product;
            const Item item = p().placed(drawn);
            matrix_ = item.matrix;
            const Tile tile(p().a.kind, p().b.kind, p().a.across, p().b.across, p().work, item,
                            rank_, p().n_blocks, p().k_blocks);
            float acc[Shape::ACCS];
#pragma unroll
            for (int e = 0; e < Shape::ACCS; ++e) acc[e] = 0;
            ask_for_exponents();
            multiply(tile, acc);
            const int exponent = this->exponent();
            const int rows = whole_of(item, acc);
            if (rows && (!p().marks || right(tile, rows, acc)))
                storer_.store(p(), matrix_, tile, rows, exponent, acc);
            __syncwarp();
        }
        // What is staged must outlive the copies.
        if constexpr (Args::STORES) {
            if (ptx::elect()) ptx::bulk_store_read();
        }
    }

  private:
    // ------------------------------------------------------------------------------- the sum

    __device__ void multiply(const Tile& tile, float* acc) {
        if constexpr (Across::KNOWN) multiply<Across::A, Across::B>(tile, acc);
        else if (tile.a_across && tile.b_across) multiply<true, true>(tile, acc);
        else if (tile.a_across) multiply<true, false>(tile, acc);
        else if (tile.b_across) multiply<false, true>(tile, acc);
        else multiply<false, false>(tile, acc);
    }

    template <bool A_ACROSS, bool B_ACROSS>
    __device__ __forceinline__ void multiply(Tile tile, float* acc) {
        tile.b_across = B_ACROSS;  // For the compiler to know.
        const bool exists = (tile.i0 + warp_.row()) * SIDE < p().c.m;
        for (int k = tile.k0; k < tile.end(); ++k) {
            ptx::mbarrier_wait(shared_.full(at_.stage), at_.parity);
            if (exists && tile.needs_row(warp_.row(), k))
                step<A_ACROSS, B_ACROSS>(tile.missing_columns(k), acc);
            else
                __syncwarp();  // As products do: no lane must wait for a stage that is filled again.
            release();
        }
    }

    // Near the diagonal of B the last of the columns, in the order of the stage, have no block at k.
    template <bool A_ACROSS, bool B_ACROSS>
    __device__ __forceinline__ void step(int missing, float* acc) {
        if (Shape::BESIDE) {
            if (warp_.place() + missing < Shape::COLS) products<Shape::WN, A_ACROSS, B_ACROSS>(acc);
            else __syncwarp();
        } else if (missing == 0) products<Shape::BN, A_ACROSS, B_ACROSS>(acc);
        else if (missing == 1) products<Shape::BN - SIDE, A_ACROSS, B_ACROSS>(acc);
        else if (Shape::COLS > 2 && missing == 2)
            products<Shape::COLS / 2 * SIDE, A_ACROSS, B_ACROSS>(acc);
        else if (Shape::COLS > 2 && missing == 3) products<SIDE, A_ACROSS, B_ACROSS>(acc);
    }

    template <int N, bool A_ACROSS, bool B_ACROSS>
    __device__ __forceinline__ void products(float* acc) {
        const uint32_t a = shared_.a(at_.stage) + warp_.row() * Image::BLOCK_BYTES,
                       b = shared_.b(at_.stage) + warp_.place() * Image::BLOCK_BYTES;
        if constexpr (Shape::PARTS == 1) {
            ptx::wgmma_fence();
            products_of_parts<N, A_ACROSS, B_ACROSS>(acc, a, b, true);
            ptx::wgmma_commit();
            ptx::wgmma_wait();
        } else {
            // x = x0 + x1 + x2 in bfloat16. The six products that matter are summed on the tensor
            // cores, the small ones first, and 64 steps at a time: they truncate every addition.
            float sum[N / 2];
            constexpr int A_PART = Shape::ROWS * Image::BLOCK_BYTES,
                          B_PART = Shape::COLS * Image::BLOCK_BYTES;
            ptx::wgmma_fence();
            products_of_parts<N, A_ACROSS, B_ACROSS>(sum, a + 2 * A_PART, b, false);
            products_of_parts<N, A_ACROSS, B_ACROSS>(sum, a + A_PART, b + B_PART, true);
            products_of_parts<N, A_ACROSS, B_ACROSS>(sum, a, b + 2 * B_PART, true);
            products_of_parts<N, A_ACROSS, B_ACROSS>(sum, a + A_PART, b, true);
            products_of_parts<N, A_ACROSS, B_ACROSS>(sum, a, b + B_PART, true);
            products_of_parts<N, A_ACROSS, B_ACROSS>(sum, a, b, true);
            ptx::wgmma_commit();
            ptx::wgmma_wait();
#pragma unroll
            for (int e = 0; e < N / 2; ++e) acc[e] += sum[e];
        }
    }

    template <int N, bool A_ACROSS, bool B_ACROSS>
    __device__ __forceinline__ static void products_of_parts(float* acc, uint32_t a, uint32_t b,
                                                             bool add) {
        const uint64_t da = tile_descriptor(a), db = tile_descriptor(b);
        constexpr int A_STEP = A_ACROSS ? STEP_ACROSS : STEP_ALONG,
                      B_STEP = B_ACROSS ? STEP_ACROSS : STEP_ALONG;
#pragma unroll
        for (int x = 0; x < Image::ROW_BYTES / 32; ++x)
            ptx::wgmma<N, A_ACROSS, B_ACROSS>(acc, da + x * A_STEP, db + x * B_STEP, add || x > 0,
                                              typename Shape::Element{});
    }

    // For this warp the stage may be filled again, here and, where a block of the cluster fills it for
    // both, there. Every warp arrives for itself, since warps without products in a step do not wait
    // for each other.
    __device__ void release() {
        const int lane = threadIdx.x % 32;
        if (Shape::CLUSTER == 1) {
            if (lane == 0) ptx::mbarrier_arrive(shared_.empty(at_.stage));
        } else if (lane < Shape::CLUSTER) {
            ptx::mbarrier_arrive_peer(ptx::peer_address(shared_.empty(at_.stage), rank_ ^ lane));
        }
        at_.advance();
    }

    // ------------------------------------------------------------------------- sums in parts

    // Of which rows this warp has the whole sum of an item then: a bit for each eight.
    __device__ __forceinline__ int whole_of(const EngineItem& item, float* acc) {
        if constexpr (Shape::CLUSTER > 1) return ALL_ROWS;
        else return item.share == 0 ? ALL_ROWS : meet(EngineWork::part(item), acc);
    }
    __device__ __forceinline__ int whole_of(const EnginePiece& item, float (&acc)[Shape::ACCS]) {
        if (item.piece.parts == 1) return ALL_ROWS;
        const auto& cutting = args_.cutting;
        const bool has = add_parts<Shape::WARPS>(acc, item.piece, warp_.number(),
                                                 cutting.words + rank_ * cutting.words_of_block,
                                                 cutting.sums + rank_ * cutting.sums_of_block);
        return has ? ALL_ROWS : 0;
    }

    // Each block of a cluster has eight rows of its warps, where four share a sum of every second warp, and the
    // others send it their parts of these: so all warps send, and as many as can be store. Parts go to memory that is
    // kept for them, or to where the stages are, once these have been read in all blocks.
    __device__ int meet(int part, float* acc) {
        const int parity = meetings_.parity, sets = args_.split / 2, set = warp_.number() % sets;
        meetings_.advance();
        if constexpr (!Shape::MEETS_APART) let_send(part);
        ptx::mbarrier_wait(shared_.ready(), Shape::MEETS_APART ? parity ^ 1 : parity);
        if (2 * set != part) send<0>(part, 2 * set, acc);
        if (2 * set + 1 != part) send<1>(part, 2 * set + 1, acc);
        const bool has = part / 2 == set;
        if (has) {
            ptx::mbarrier_wait(shared_.met(), parity);
            if (part % 2 == 0) add<0>(acc);
            else add<1>(acc);
            if constexpr (!Shape::MEETS_APART) ptx::bulk_fence();
            __syncwarp();
            if (threadIdx.x % 32 == 0) {
                if (warp_.number() == set)
                    ptx::mbarrier_arrive_expect(shared_.met(), Shape::met_bytes(args_.split));
                if constexpr (!Shape::MEETS_APART) ptx::mbarrier_arrive(shared_.parted());
            }
        }
        if constexpr (Shape::MEETS_APART) let_send(part);
        return has ? 1 << part % 2 : 0;
    }
    // For this warp the other blocks may send.
    __device__ __forceinline__ void let_send(int part) const {
        const int lane = static_cast<int>(threadIdx.x) % 32;
        __syncwarp();
        if (lane < args_.split && lane != part)
            ptx::mbarrier_arrive_peer(ptx::peer_address(shared_.ready(), lane));
    }
    // Where a block has what the one that comes after so many others sends to this warp.
    __device__ __forceinline__ uint32_t sent(int by) const {
        const int sets = args_.split / 2;
        return shared_.meeting() + static_cast<int>(threadIdx.x) % 32 * 16 +
               (by * (Shape::WARPS / sets) + warp_.number() / sets) * Shape::HALF_BYTES;
    }
    template <int HALF>
    __device__ __forceinline__ void send(int part, int to, const float* acc) const {
        const uint32_t there = ptx::peer_address(sent(part - (part > to)), to),
                       met = ptx::peer_address(shared_.met(), to);
#pragma unroll
        for (int e = 0; e < Shape::ACCS; e += 8) {
            const float x[4] = {acc[e + 2 * HALF], acc[e + 2 * HALF + 1], acc[e + 4 + 2 * HALF],
                                acc[e + 5 + 2 * HALF]};
            ptx::store_peer(there + e * 64, x, met);
        }
    }
    // Of the other rows nothing is left.
    template <int HALF>
    __device__ __forceinline__ void add(float* acc) const {
#pragma unroll 1
        for (int by = 0; by < args_.split - 1; ++by) {
            const uint32_t from = sent(by);
#pragma unroll
            for (int e = 0; e < Shape::ACCS; e += 8) {
                const float4 x = ptx::load_shared_f32x4(from + e * 64);
                acc[e + 2 * HALF] += x.x, acc[e + 2 * HALF + 1] += x.y;
                acc[e + 4 + 2 * HALF] += x.z, acc[e + 5 + 2 * HALF] += x.w;
            }
        }
#pragma unroll
        for (int e = 0; e < Shape::ACCS; e += 4) acc[e + 2 - 2 * HALF] = acc[e + 3 - 2 * HALF] = 0;
    }

    // ----------------------------------------------------------------------------- the scale

    // The exponents of both operands come while the sum is computed, to where rows are staged later: loads to
    // registers would be waited for before the first product.
    __device__ __forceinline__ void ask_for_exponents() const {
        if constexpr (!Shape::SCALED) return;
        const int lane = static_cast<int>(threadIdx.x) % 32;
        if (lane < 2)
            ptx::cp_async<8>(ptx::shared_address(shared_.staging(warp_.number())) + lane * 8,
                             (lane == 0 ? p().a : p().b).notes(matrix_));
        ptx::cp_async_commit();
    }
    __device__ __forceinline__ int exponent() const {
        if constexpr (!Shape::SCALED) return 0;
        ptx::cp_async_wait<0>();
        __syncwarp();
        const auto* both = reinterpret_cast<const int2*>(shared_.staging(warp_.number()));
        return both[0].x + both[1].x;
    }

    // ------------------------------------------------------------------------------ what is left

    // An infinite or nan element meets the zeros past the other operand's diagonal in a block, and
    // its parts meet each other: nan may come out where the product has none. Such rows are not stored but
    // computed from stored elements in the end, as are those that depend on lines of scaled images which have lost too
    // much. Which do is not known yet, so it is noted who has stored what.
    __device__ __forceinline__ bool right(const Tile& tile, int rows, const float* acc) {
        const bool finite = __all_sync(~0u, all_finite<Shape::ACCS>([&](int e) { return acc[e]; }));
        if (Shape::SCALED || !finite)
            mark(p(), tile, rows,
                 finite ? Marks::stored_by(blockIdx.x) : Marks::left_by(blockIdx.x));
        if (!finite) note_left();
        return finite;
    }

    __device__ __forceinline__ void note_left() const {
        if constexpr (Shape::PACKS) args_.counters[EngineCounters::LEFT] = 1;
        else *shared_.left() = 1;
    }
    // The rows of this warp, where they exist.
    __device__ __forceinline__ void mark(const EngineProduct<T>& p, const Tile& tile, int rows,
                                         int mark) const {
        constexpr int ROWS = Marks::SIDE / SIDE;
        const int half = static_cast<int>(threadIdx.x) % 2,
                  across = static_cast<int>(threadIdx.x) % 32 / 2;
        const int columns = Marks::tiles(p.c.n), i = tile.i0 / ROWS,
                  j = tile.j0 * SIDE / Marks::SIDE + across;
        if (across >= Shape::BN / Marks::SIDE || j >= columns || i >= Marks::tiles(p.c.m) ||
            !(rows >> half & 1))
            return;
        int* const at =
            p.marks + int64_t{matrix_} * Marks::count(p.c.m, p.c.n) +
            (i * columns + j) * Marks::OF_TILE +
            ((tile.i0 + warp_.row()) % ROWS * SIDE + warp_.of_group() * 16) / Marks::ROWS + half;
        // Of two warps that have the same rows either leaves them.
        if (!Shape::BESIDE) *at = mark;
        else if (mark > 0) atomicExch(at, mark);
        else atomicCAS(at, 0, mark);
    }

    __device__ const EngineProduct<T>& p() const { return args_.of[PRODUCTS > 1 ? product_ : 0]; }

    static constexpr int ALL_ROWS = 3;

    const Args& args_;
    const EngineShared<Shape> shared_;
    const int rank_;
    const EngineWarp<Shape> warp_;
    const EngineStorer<Shape, PRODUCTS, Across> storer_;
    int product_ = 0, matrix_ = 0;  // That the tile is of.
    StageCounter<Shape::STAGES> at_;
    StageCounter<1> meetings_;
};

}  // namespace packedtri::cuda
