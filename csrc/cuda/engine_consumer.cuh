// A warpgroup that multiplies 64 rows of a block's tile, or every other step of their sums.
#pragma once

#include "engine_drawer.cuh"
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
        for (int64_t word = first_item(); word != EngineItem::NONE; word = next_item()) {
            const Item drawn = Item::of(word);
            product_ = drawn.product;
            const Item item = p().placed(drawn);
            matrix_ = item.matrix;
            const Tile tile(p().a.run, p().b.run, p().work, item, rank_, p().n_blocks,
                            p().k_blocks);
            float acc[Shape::SUMS];
#pragma unroll
            for (int e = 0; e < Shape::SUMS; ++e) acc[e] = zero();
            ask_for_exponents();
            multiply(tile, acc);
            const int exponent = this->exponent();
            float own[Shape::ACCS];
            trade(acc, own);
            const int rows = whole_of(item, own);
            if (rows && (!p().marks || right(tile, rows, own)))
                storer_.store(p(), matrix_, tile, rows, exponent, own);
            __syncwarp();
        }
        // What is staged must outlive the copies.
        if constexpr (Args::STORES) {
            if (ptx::elect()) ptx::bulk_store_read();
        }
    }

  private:
    // Known before anything is loaded for it.
    __device__ __forceinline__ int64_t first_item() const {
        if constexpr (Shape::PACKS) return next_item();
        else return EngineDrawer<Shape, PRODUCTS>::dealt(args_);
    }
    __device__ __forceinline__ int64_t next_item() const {
        ptx::mbarrier_wait(shared_.full(at_.stage), at_.parity);
        // One value for the warp, and known to be: products of a warpgroup must not diverge. The
        // lane that reads it is the one whose arrival allows the next write.
        const int64_t read = threadIdx.x % 32 == 0 ? *shared_.item(at_.stage) : 0;
        return __shfl_sync(~0u, read, 0);
    }

    // ------------------------------------------------------------------------------- the sum

    __device__ void multiply(const Tile& tile, float* acc) {
        if constexpr (Across::KNOWN) {
            multiply<Across::A, Across::B>(tile, tile.k0, tile.end(), acc);
        } else if constexpr (Across::TURNS) {
            for (int k = tile.k0, end; k < tile.end(); k = end) {
                end = tile.straight_until(k);
                multiply(tile, k, end, acc);
            }
        } else multiply(tile, tile.k0, tile.end(), acc);
    }

    // Steps [first, last), in which rows of memory run one way.
    __device__ __forceinline__ void multiply(const Tile& tile, int first, int last, float* acc) {
        const bool a = first >= tile.a_turn, b = first >= tile.b_turn;
        if (a && b) multiply<true, true>(tile, first, last, acc);
        else if (a) multiply<true, false>(tile, first, last, acc);
        else if (b) multiply<false, true>(tile, first, last, acc);
        else multiply<false, false>(tile, first, last, acc);
    }
    template <bool A_ACROSS, bool B_ACROSS>
    __device__ __forceinline__ void multiply(Tile tile, int first, int last, float* acc) {
        if (!Across::TURNS || B_ACROSS) tile.ascending = B_ACROSS;  // For the compiler to know.
        const bool exists = (tile.i0 + warp_.row()) * SIDE < p().c.m;
        if constexpr (Shape::HALVED) {
            if (exists && tile.k1 > tile.k0) take_turns<A_ACROSS, B_ACROSS>(tile, first, last, acc);
            else pass(last - first);
        } else {
            for (int k = first; k < last; ++k) {
                ptx::mbarrier_wait(shared_.full(at_.stage), at_.parity);
                if (exists && tile.needs_row(warp_.row(), k))
                    step<A_ACROSS, B_ACROSS>(tile.missing_columns(k), acc);
                else
                    __syncwarp();  // As products do: no lane must wait for a stage that is filled again.
                release();
            }
        }
    }

    // Of a halved tile each warpgroup has all columns of every other step, since the one that multiplies then reads A for all
    // of them, and while it waits for its products the other one begins. Its one row of blocks is needed at each step.
    template <bool A_ACROSS, bool B_ACROSS>
    __device__ __forceinline__ void take_turns(const Tile& tile, int first, int last, float* acc) {
        const KRange whole = tile.whole(1);
        const int begin = max(first, min(static_cast<int>(whole.begin), last)),
                  end = max(begin, min(static_cast<int>(whole.end), last));
        take_turns<SIDE, A_ACROSS, B_ACROSS>(tile, first, begin, acc);
        take_turns<Shape::BN, A_ACROSS, B_ACROSS>(tile, begin, end, acc);
        take_turns<SIDE, A_ACROSS, B_ACROSS>(tile, end, last, acc);
    }
    // Steps with N columns. No product is behind a branch, for nvcc would have it wait for the one before.
    template <int N, bool A_ACROSS, bool B_ACROSS>
    __device__ __forceinline__ void take_turns(const Tile& tile, int k, int end, float* acc) {
        if (k < end && (k - tile.k0) % 2 != warp_.group) {
            pass(1);
            ++k;
        }
        for (; k < end; k += 2) {
            ptx::mbarrier_wait(shared_.full(at_.stage), at_.parity);
            products<N, A_ACROSS, B_ACROSS>(acc);
            release();
            pass(min(1, end - k - 1));
        }
    }
    // Leaves so many steps to the other warpgroup.
    __device__ __forceinline__ void pass(int steps) {
        for (int s = 0; s < steps; ++s) {
            ptx::mbarrier_wait(shared_.full(at_.stage), at_.parity);
            __syncwarp();  // As products do: no lane must wait for a stage that is filled again.
            release();
        }
    }

    // Near the diagonal of B the last of the columns, in the order of the stage, have no block at k.
    template <bool A_ACROSS, bool B_ACROSS>
    __device__ __forceinline__ void step(int missing, float* acc) {
        if (missing == 0) products<Shape::BN, A_ACROSS, B_ACROSS>(acc);
        else if (missing == 1) products<Shape::BN - SIDE, A_ACROSS, B_ACROSS>(acc);
        else if (Shape::COLS > 2 && missing == 2)
            products<Shape::COLS / 2 * SIDE, A_ACROSS, B_ACROSS>(acc);
        else if (Shape::COLS > 2 && missing == 3) products<SIDE, A_ACROSS, B_ACROSS>(acc);
    }

    template <int N, bool A_ACROSS, bool B_ACROSS>
    __device__ __forceinline__ void products(float* acc) {
        const uint32_t a = shared_.a(at_.stage) + warp_.row() * Image::BLOCK_BYTES,
                       b = shared_.b(at_.stage);
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

    // In the end each warpgroup of a halved tile gives its sums of one block of columns for the other's of its own.
    __device__ __forceinline__ void trade(const float* acc, float* own) const {
        if constexpr (!Shape::HALVED) {
#pragma unroll
            for (int e = 0; e < Shape::ACCS; ++e) own[e] = acc[e];
            return;
        }
        constexpr int OF_GROUP = Shape::OF_TRADE / 2, STEP = 128 * 16;
        const bool second = warp_.group == 1;
        const auto either = [&](float of_first, float of_second) {
            return second ? of_second : of_first;
        };
        const uint32_t given = ptx::shared_address(shared_.staging()) +
                               static_cast<int>(threadIdx.x) % 128 * 16,
                       mine = given + (second ? OF_GROUP : 0),
                       other = given + (second ? 0 : OF_GROUP);
        // Until all warps have stored what they had staged of the tile before.
        if constexpr (Args::STORES) {
            __syncwarp();
            if (ptx::elect()) ptx::bulk_store_read();
        }
        ptx::barrier_sync(TRADE, 32 * Shape::WARPS);
#pragma unroll
        for (int e = 0; e < Shape::ACCS; e += 4) {
            uint32_t x[4];
#pragma unroll
            for (int f = 0; f < 4; ++f)
                x[f] = __float_as_uint(either(acc[Shape::ACCS + e + f], acc[e + f]));
            ptx::store_shared(mine + e / 4 * STEP, make_uint4(x[0], x[1], x[2], x[3]));
        }
        ptx::barrier_sync(TRADE, 32 * Shape::WARPS);
#pragma unroll
        for (int e = 0; e < Shape::ACCS; e += 4) {
            const float4 x = ptx::load_shared_f32x4(other + e / 4 * STEP);
            const float of_other[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
            for (int f = 0; f < 4; ++f)
                own[e + f] = either(acc[e + f], acc[Shape::ACCS + e + f]) + of_other[f];
        }
        ptx::barrier_sync(TRADE, 32 * Shape::WARPS);
    }

    // Not told to be a constant, which nvcc would bring from where sums begin to where products are added to them, and have
    // these wait for one another there.
    __device__ __forceinline__ static float zero() {
        float x;
        asm volatile("mov.f32 %0, 0f00000000;" : "=f"(x));
        return x;
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
        ptx::mbarrier_wait(shared_.full(at_.stage), at_.parity);  // Until they are known.
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
        if (!Shape::HALVED) *at = mark;
        else if (mark > 0) atomicExch(at, mark);
        else atomicCAS(at, 0, mark);
    }

    __device__ const EngineProduct<T>& p() const { return args_.of[PRODUCTS > 1 ? product_ : 0]; }

    static constexpr int ALL_ROWS = 3;
    static constexpr int TRADE = 2;  // A barrier.

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
