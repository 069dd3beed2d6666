// A warpgroup that multiplies 64 rows of a block's tile and stores them.
#pragma once

#include "engine.cuh"
#include "part_sums.cuh"

namespace packedtri::cuda {

template <class Shape, int PRODUCTS, class Across>
class EngineConsumer {
    using T = typename Shape::T;
    using Args = EngineArgsOf<Shape, PRODUCTS>;
    using Result = EngineResult<T>;
    using Tile = typename Shape::Tile;
    using Item = typename Shape::Item;
    static constexpr int SIDE = Shape::SIDE;

  public:
    __device__ EngineConsumer(const Args& args, const EngineShared<Shape>& shared, int rank,
                              int group)
        : args_(args), shared_(shared), rank_(rank), group_(group) {}

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
            if (has_whole(item, acc) && (!p().marks || right(tile, acc)))
                store(tile, exponent, acc);
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
        const bool exists = (tile.i0 + group_) * SIDE < p().c.m;
        for (int k = tile.k0; k < tile.end(); ++k) {
            ptx::mbarrier_wait(shared_.full(at_.stage), at_.parity);
            if (exists && tile.needs_row(group_, k))
                step<A_ACROSS, B_ACROSS>(tile.missing_columns(k), acc);
            else
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
        const uint32_t a = shared_.a(at_.stage) + group_ * Image::BLOCK_BYTES,
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

    // Whether this warp has the whole sum of an item then.
    __device__ __forceinline__ bool has_whole(const EngineItem& item, float* acc) {
        return item.share == 0 || meet(EngineWork::part(item), acc);
    }
    __device__ __forceinline__ bool has_whole(const EnginePiece& item, float (&acc)[Shape::ACCS]) {
        if (item.piece.parts == 1) return true;
        const auto& cutting = args_.cutting;
        return add_parts<Shape::WARPS>(acc, item.piece,
                                       group_ * 4 + static_cast<int>(threadIdx.x) % 128 / 32,
                                       cutting.words + rank_ * cutting.words_of_block,
                                       cutting.sums + rank_ * cutting.sums_of_block);
    }

    // Each block of a cluster has the rows of some of its warps, for which the others send it their parts.
    // They go to where the stages are, once these have been read in all blocks. Returns whether this warp
    // has its rows of the whole sum.
    __device__ bool meet(int part, float* acc) {
        const int parts = args_.split, own = Shape::WARPS / parts;
        const int warp = group_ * 4 + threadIdx.x % 128 / 32, lane = threadIdx.x % 32;
        const int owner = warp / own, parity = meetings_.parity;
        meetings_.advance();
        // Of each part, the rows of the block's own warps.
        const auto place = [&](int part) {
            return shared_.a(0) + (part * own + warp % own) * Shape::WARP_BYTES + lane * 16;
        };
        __syncwarp();
        if (lane < parts && lane != part)
            ptx::mbarrier_arrive_peer(ptx::peer_address(shared_.ready(), lane));
        if (owner != part) {
            ptx::mbarrier_wait(shared_.ready(), parity);
            const uint32_t to = ptx::peer_address(place(part), owner),
                           met = ptx::peer_address(shared_.met(), owner);
#pragma unroll
            for (int e = 0; e < Shape::ACCS; e += 4) ptx::store_peer(to + e * 128, acc + e, met);
            return false;
        }
        ptx::mbarrier_wait(shared_.met(), parity);
#pragma unroll 1
        for (int p = 0; p < parts; ++p) {
            if (p == part) continue;
            const uint32_t from = place(p);
#pragma unroll
            for (int e = 0; e < Shape::ACCS; e += 4) {
                const float4 x = ptx::load_shared_f32x4(from + e * 128);
                acc[e] += x.x, acc[e + 1] += x.y, acc[e + 2] += x.z, acc[e + 3] += x.w;
            }
        }
        ptx::bulk_fence();
        __syncwarp();
        if (lane == 0) {
            if (warp % own == 0)
                ptx::mbarrier_arrive_expect(shared_.met(),
                                            Shape::WARP_BYTES * (Shape::WARPS - own));
            ptx::mbarrier_arrive(shared_.parted());
        }
        return true;
    }

    // ----------------------------------------------------------------------------- the scale

    // The exponents of both operands come while the sum is computed, to where rows are staged later: loads to
    // registers would be waited for before the first product.
    __device__ __forceinline__ void ask_for_exponents() const {
        if constexpr (!Shape::SCALED) return;
        const int lane = static_cast<int>(threadIdx.x) % 32;
        if (lane < 2)
            ptx::cp_async<8>(ptx::shared_address(staging()) + lane * 8,
                             (lane == 0 ? p().a : p().b).notes(matrix_));
        ptx::cp_async_commit();
    }
    __device__ __forceinline__ int exponent() const {
        if constexpr (!Shape::SCALED) return 0;
        ptx::cp_async_wait<0>();
        __syncwarp();
        const auto* both = reinterpret_cast<const int2*>(staging());
        return both[0].x + both[1].x;
    }

    // What the result is multiplied by, which is one, has room for it, or two factors of the sums have.
    __device__ __forceinline__ static void remove_scale(int exponent, float& alpha, float* acc) {
        if constexpr (!Shape::SCALED) return;
        const auto power = [](int exponent) { return __int_as_float((127 - exponent) << 23); };
        if (abs(exponent) <= 126) {
            alpha = power(exponent);
            return;
        }
        const int half = exponent / 2;
        const float first = power(half), second = power(exponent - half);
#pragma unroll
        for (int e = 0; e < Shape::ACCS; ++e) acc[e] = acc[e] * first * second;
    }

    // ---------------------------------------------------------------------------- the result

    // Where the elements of one row of the tile go. A row is staged at the same distance from 16-byte
    // boundaries as it has in memory, so that all but the few elements at its ends are stored 16
    // bytes at a time.
    struct Row {
        static constexpr int UNIT = 16 / static_cast<int>(sizeof(T));
        T* out;
        int count;

        __device__ Row(T* out, int count) : out(out), count(count) {}
        __device__ Row(const Result& c, int i, int j0) {
            out = c.data + row_offset(i, c.ld, c.packed) + (begins_at_zero(c) ? 0 : j0);
            const int end = c.lower ? min(i + 1, c.n) : c.n;
            count = i < c.m ? max(0, min(Shape::STAGED, end - j0)) : 0;
        }
        __device__ Row of_lane(int lane) const {
            const auto address = reinterpret_cast<unsigned long long>(out);
            return {reinterpret_cast<T*>(__shfl_sync(~0u, address, lane)),
                    __shfl_sync(~0u, count, lane)};
        }
        __device__ int shift() const {
            return static_cast<int>(reinterpret_cast<uintptr_t>(out) % 16 / sizeof(T));
        }
    };

    // Whether rows are told from column zero on, since joined columns lie in several matrices.
    __device__ static bool begins_at_zero(const Result& c) {
        return !Shape::STORES_BOXES && c.joined > 0;
    }

    // Of this warp.
    __device__ T* staging() const {
        return shared_.staging() + (group_ * 4 + threadIdx.x % 128 / 32) * 8 * Shape::PITCH;
    }

    __device__ void store(const Tile& tile, int exponent, float* acc) {
        if constexpr (Args::STORES) {
            if (args_.storing.wanted) return store_boxes(tile, acc);
        }
        Result c = p().c;  // Copied, since what is indexed is not kept in registers.
        c.data += matrix_ * c.next;
        remove_scale(exponent, c.alpha, acc);
        if constexpr (Across::KNOWN) store<Across::B>(c, tile, acc);
        else if (tile.b_across) store<true>(c, tile, acc);
        else store<false>(c, tile, acc);
    }
    template <bool B_ACROSS>
    __device__ __forceinline__ void store(const Result& c, const Tile& tile, const float* acc) {
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
            for (int first = 0; first < Shape::BN; first += Shape::STAGED)
                store_rows<B_ACROSS>(c, tile, acc, half, first);
    }

    // By the copy engine, which stores a box while the next one is staged, or the next tile multiplied.
    __device__ __forceinline__ void store_boxes(const Tile& tile, const float* acc) const {
        if constexpr (Across::KNOWN) store_boxes<Across::B>(tile, acc);
        else if (tile.b_across) store_boxes<true>(tile, acc);
        else store_boxes<false>(tile, acc);
    }
    template <bool B_ACROSS>
    __device__ __forceinline__ void store_boxes(const Tile& tile, const float* acc) const {
        const int warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;
        const int i0 = (tile.i0 + group_) * SIDE + warp * Shape::BOX_ROWS;
        if (i0 >= p().c.m) return;
        const int joined = p().joined_blocks();
        const uint32_t boxes = ptx::shared_address(shared_.staging()) +
                               (group_ * 4 + warp) * Shape::BOXES * Shape::BOX_BYTES;
        // The row that this lane addresses of two matrices of 8 x 8, one above the other, and which of two such pairs.
        const int row = lane % 16, beside = lane / 16;
#pragma unroll
        for (int c = 0; c < Shape::COLS; ++c) {
            if (c >= tile.columns) break;
            const uint32_t box = boxes + c % Shape::BOXES * Shape::BOX_BYTES,
                           to = box + row * Image::ROW_BYTES;
            if (ptx::elect()) {
                // The boxes of the tile before may end with either.
                if (c == 0) ptx::bulk_store_read();
                else ptx::bulk_store_read<Shape::BOXES - 1>();
            }
            __syncwarp();
#pragma unroll
            for (int x = 0; x < SIDE / 8; x += 2) {
                const float* at = acc + 4 * (Tile::column_at(c, B_ACROSS) * 8 + x);
                uint32_t pairs[4];
#pragma unroll
                for (int e = 0; e < 4; ++e) {
                    const T both[2] = {Accumulator<T>::round(at[2 * e]),
                                       Accumulator<T>::round(at[2 * e + 1])};
                    pairs[e] = *reinterpret_cast<const uint32_t*>(both);
                }
                ptx::store_matrices(to + ((x + beside) ^ (row % 8)) * 16, pairs);
            }
            ptx::bulk_fence();
            __syncwarp();
            if (!ptx::elect()) continue;
            const int j = tile.j0 + c, matrix = joined > 0 ? j / joined : matrix_;
            ptx::tensor_store(&args_.storing.map, box, matrix, i0,
                              (joined > 0 ? j - matrix * joined : j) * SIDE);
        }
    }

    // Stores 8 rows of each warp, STAGED columns from `first` on.
    template <bool B_ACROSS>
    __device__ __forceinline__ void store_rows(const Result& c, const Tile& tile, const float* acc,
                                               int half, int first) {
        const int warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;
        const int i0 = (tile.i0 + group_) * SIDE + warp * 16, j0 = tile.j0 * SIDE + first;
        T* staging = this->staging();
        const Row rows(c, i0 + half * 8 + lane % 8, j0);  // One a lane.
        const int shift = __shfl_sync(~0u, rows.shift(), lane / 4);
        __syncwarp();
        stage<B_ACROSS>(staging + lane / 4 * Shape::PITCH, shift, acc, half, first / SIDE);
        __syncwarp();
        store_middles(c, rows, j0, staging);
        store_ends(c, rows, staging);
    }

    // Writes this lane's elements of its row to staging, from column `first` of blocks on.
    template <bool B_ACROSS>
    __device__ __forceinline__ void stage(T* row, int shift, const float* acc, int half,
                                          int first) {
        const int t = threadIdx.x % 4;
        [[maybe_unused]] uint32_t last = 0;
#pragma unroll
        for (int c = 0; c < Shape::STAGED / 8; ++c) {
            const float* pair =
                acc + 4 * (Tile::column_at(first + c / 8, B_ACROSS) * 8 + c % 8) + 2 * half;
            T* to = row + shift + c * 8 + 2 * t;
            if constexpr (sizeof(T) == 4) {
                to[0] = pair[0];
                to[1] = pair[1];
            } else {
                // In a row that is staged at an odd place a word has the second element of the lane
                // before and the first of this one; the lane before the first is the last of the
                // columns before.
                const bool odd = shift % 2 != 0;
                const T both[2] = {Accumulator<T>::round(pair[0]), Accumulator<T>::round(pair[1])};
                const uint32_t word = *reinterpret_cast<const uint32_t*>(both);
                const uint32_t before =
                    __shfl_sync(~0u, t == 3 ? last : word, (threadIdx.x & 28) | ((t + 3) & 3));
                *reinterpret_cast<uint32_t*>(to - odd) =
                    odd ? __byte_perm(before, word, 0x5432) : word;
                if (c == Shape::STAGED / 8 - 1 && odd && t == 3) to[1] = both[1];
                last = word;
            }
        }
    }

    // Of joined columns, which are aligned, there is nothing else.
    __device__ __forceinline__ void store_middles(const Result& c, const Row& rows, int j0,
                                                  const T* staging) {
        constexpr int UNIT = Row::UNIT, LANES = Shape::STAGED / UNIT, AT_ONCE = 32 / LANES,
                      COUNT = 8 / AT_ONCE;
        const int lane = threadIdx.x % 32, first = lane / LANES, x = lane % LANES * UNIT;
        const int64_t along = begins_at_zero(c) ? c.column(j0 + x) : x;
        // All are read before the first is stored, since a store might be to what is read next, for all that is known.
        uint4 words[COUNT];
#pragma unroll
        for (int y = 0; y < COUNT; ++y)
            words[y] =
                *reinterpret_cast<const uint4*>(staging + (first + y * AT_ONCE) * Shape::PITCH + x);
#pragma unroll
        for (int y = 0; y < COUNT; ++y) {
            const Row row = rows.of_lane(first + y * AT_ONCE);
            const int shift = row.shift();
            T* const to = row.out - shift + along;
            if (x >= shift && x + UNIT <= shift + row.count)
                ptx::store_global(to, blend(c, words[y], to));
        }
    }

    // The elements before the first and after the last boundary of 8 rows, by 2 UNIT lanes a row.
    __device__ __forceinline__ void store_ends(const Result& c, const Row& rows, const T* staging) {
        constexpr int UNIT = Row::UNIT, LANES = 2 * UNIT, AT_ONCE = 32 / LANES, COUNT = 8 / AT_ONCE;
        const int lane = threadIdx.x % 32, place = lane % LANES;
        T ends[COUNT];
        T* to[COUNT];
#pragma unroll
        for (int y = 0; y < COUNT; ++y) {
            const int r = lane / LANES + y * AT_ONCE;
            const Row row = rows.of_lane(r);
            const int shift = row.shift(), end = shift + row.count;
            const int tail = max(shift, end / UNIT * UNIT);
            // In staging: the first unit where it begins with another row's elements, and the last.
            const int x = place < UNIT ? place : tail + place - UNIT;
            const bool head = place < UNIT && shift > 0 && x >= shift && x < min(end, UNIT);
            const bool last = place >= UNIT && x < end && (shift == 0 || tail >= UNIT);
            to[y] = head || last ? row.out + x - shift : nullptr;
            if (to[y]) ends[y] = staging[r * Shape::PITCH + x];
        }
#pragma unroll
        for (int y = 0; y < COUNT; ++y)
            if (to[y]) ptx::store_global(to[y], blend(c, ends[y], to[y]));
    }

    // ------------------------------------------------------------------------------ what is left

    // An infinite or nan element meets the zeros past the other operand's diagonal in a block, and
    // its parts meet each other: nan may come out where the product has none. Such rows are not stored but
    // computed from stored elements in the end, as are those that depend on lines of scaled images which have lost too
    // much. Which do is not known yet, so it is noted who has stored what.
    __device__ __forceinline__ bool right(const Tile& tile, const float* acc) {
        const bool finite = __all_sync(~0u, all_finite<Shape::ACCS>([&](int e) { return acc[e]; }));
        if (Shape::SCALED || !finite)
            mark(p(), tile, finite ? Marks::stored_by(blockIdx.x) : Marks::left_by(blockIdx.x));
        if (!finite) note_left();
        return finite;
    }

    __device__ __forceinline__ void note_left() const {
        if constexpr (Shape::PACKS) args_.counters[EngineCounters::LEFT] = 1;
        else *shared_.left() = 1;
    }
    // The rows of this warp, where they exist.
    __device__ __forceinline__ void mark(const EngineProduct<T>& p, const Tile& tile,
                                         int mark) const {
        static_assert(Shape::ROWS * SIDE == Marks::SIDE, "a block has the rows of its marks");
        const int lane = static_cast<int>(threadIdx.x) % 32, warp = threadIdx.x % 128 / 32;
        const int columns = Marks::tiles(p.c.n), j = tile.j0 * SIDE / Marks::SIDE + lane,
                  i = tile.i0 / Shape::ROWS;
        if (lane >= Shape::BN / Marks::SIDE || j >= columns || i >= Marks::tiles(p.c.m)) return;
        p.marks[int64_t{matrix_} * Marks::count(p.c.m, p.c.n) + (i * columns + j) * Marks::OF_TILE +
                group_ * (SIDE / Marks::ROWS) + warp] = mark;
    }

    // alpha AB + beta C. Only float32 comes with other factors than 1 and 0.
    __device__ static uint4 blend(const Result& c, uint4 staged, const T* there) {
        if constexpr (sizeof(T) == 4) {
            float4 x = *reinterpret_cast<float4*>(&staged);
            x.x *= c.alpha, x.y *= c.alpha, x.z *= c.alpha, x.w *= c.alpha;
            if (c.beta != 0) {
                const float4 y = *reinterpret_cast<const float4*>(there);
                x.x += c.beta * y.x, x.y += c.beta * y.y;
                x.z += c.beta * y.z, x.w += c.beta * y.w;
            }
            return *reinterpret_cast<uint4*>(&x);
        }
        return staged;
    }
    __device__ static T blend(const Result& c, T staged, const T* there) {
        if constexpr (sizeof(T) == 4)
            return c.alpha * staged + (c.beta != 0 ? c.beta * *there : 0.f);
        return staged;
    }

    __device__ const EngineProduct<T>& p() const { return args_.of[PRODUCTS > 1 ? product_ : 0]; }

    const Args& args_;
    const EngineShared<Shape> shared_;
    const int rank_, group_;
    int product_ = 0, matrix_ = 0;  // That the tile is of.
    StageCounter<Shape::STAGES> at_;
    StageCounter<1> meetings_;
};

}  // namespace packedtri::cuda
