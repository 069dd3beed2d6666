// The main loop for small tiles on Hopper's tensor cores, of 16-bit elements and of float32 in TF32: rows of memory become
// image blocks on their way through registers, or are copied as such where they are aligned, and are multiplied in the
// background.
#pragma once

#include "hopper.cuh"
#include "loader_floats.cuh"
#include "loader_mapped.cuh"
#include "loader_rows.cuh"
#include "main_loop.cuh"
#include "wgmma.cuh"

namespace packedtri::cuda {

// Which operand is a mapped dense matrix.
enum class Mapped { None, A, B };

template <class T>
struct MappedArgs : ProductArgs<T> {
    CUtensorMap map;
};

// A tile of 64 x 64, of which each of two warpgroups multiplies 32 columns. ANY: operands may be symmetric, and how they
// lie is known at run time only, as where one is mapped. WIDE: each warpgroup has 64 rows or columns of the mapped one, so
// that what is brought in line of the other operand meets twice as many.
template <class T_, bool A_K_MAJOR, bool B_K_MAJOR, bool ANY = false, Mapped MAPPED = Mapped::None,
          bool WIDE = false>
class MainLoopWgmma {
    static constexpr bool MAPS = MAPPED != Mapped::None;
    static_assert((ANY || !MAPS) && (MAPS || !WIDE));
    static constexpr int SIDE = 64;

  public:
    using T = T_;
    using Args = std::conditional_t<MAPS, MappedArgs<T>, ProductArgs<T>>;
    using Index = int;  // See product_kernel.
    struct Mma {
        static constexpr int BM = WIDE && MAPPED == Mapped::A ? 2 * SIDE : SIDE,
                             BN = WIDE && MAPPED == Mapped::B ? 2 * SIDE : SIDE, BK = SIDE;
    };
    static constexpr int THREADS = 256;
    static constexpr bool STORES = true, GRADED = true;

  private:
    // What a warpgroup multiplies at once.
    static constexpr int COLS = WIDE ? SIDE : SIDE / 2, WARPS = THREADS / 32;
    template <bool K_MAJOR, int BLOCK>
    using Rows = std::conditional_t<sizeof(T) == 4, FloatLoader<THREADS, K_MAJOR, BLOCK, ANY>,
                                    RowLoader<T, THREADS, K_MAJOR, BLOCK, ANY>>;
    using Map = MappedLoader<WIDE ? 2 : 1>;
    using LoadA = std::conditional_t<MAPPED == Mapped::A, Map, Rows<A_K_MAJOR, 0>>;
    using LoadB = std::conditional_t<MAPPED == Mapped::B, Map, Rows<B_K_MAJOR, LoadA::STAGE_BYTES>>;
    struct Words {
        typename LoadA::Words a;
        typename LoadB::Words b;
    };
    static constexpr int BESIDE = LoadA::STAGE_BYTES + LoadB::STAGE_BYTES;
    static constexpr int STAGE = (BESIDE + Rows<true, 0>::BESIDE_BYTES + 1023) / 1024 * 1024;
    static constexpr int STAGES_END = 2 * STAGE + (MAPS ? Map::RING_BYTES : 0);
    static constexpr int SUM_ROW = Mma::BN * 4, SUMS = Mma::BM * SUM_ROW;
    static_assert(SUMS <= STAGES_END && STAGES_END % 16 == 0);
    // Where the sums of all blocks of a cluster meet: of 64 rows three blocks have 22 each at most.
    static constexpr int MEETING = SUMS + 2 * SUM_ROW;

  public:
    // That is behind the stages, and a barrier counts what has come.
    static constexpr int shared_bytes(bool cluster) {
        return STAGES_END + (cluster ? MEETING + 16 : 0);
    }

    // Computes a part of a tile, and stores its share of the rows of the tile's sum.
    __device__ static void run(const Args& args, int64_t batch, const TilePart& part,
                               const SharedSum& sum, int, int, char* shared) {
        MainLoopWgmma loop(args, batch, part, sum, shared);
        if (MAPS && threadIdx.x == 0) loop.start();
        if (MAPS)
            __syncwarp();  // For racecheck, which takes what the same thread does next for another's.
        loop.prepare_meeting();
        ptx::wait_for_dependency();
        loop.multiply_all();
        ptx::launch_dependents();
        loop.put_sums();
        loop.store();
    }

  private:
    __device__ MainLoopWgmma(const Args& args, int64_t batch, const TilePart& part,
                             const SharedSum& sum, char* shared)
        : args_(args), batch_(batch), part_(part), sum_(sum), shared_(shared),
          group_(__shfl_sync(~0u, static_cast<int>(threadIdx.x) / 128, 0)),
          load_a_(loader<LoadA>(args, args.a, args.a_batch_stride, args.a_kind, args.a_k_major,
                                part.i0)),
          load_b_(loader<LoadB>(args, args.b, args.b_batch_stride, args.b_kind, args.b_k_major,
                                part.j0)) {}

    template <class Load>
    __device__ __forceinline__ Load loader(const Args& args, const Panel<T>& panel, int64_t stride,
                                           Kind kind, bool k_major, int r0) const {
        if constexpr (Load::MAPPED)
            return {args.map,    stride == 0 ? 0 : static_cast<int>(batch_), k_major, r0, part_.k0,
                    part_.steps, ptx::shared_address(shared_) + 2 * STAGE};
        else return {panel, batch_ * stride, kind, k_major, r0, part_.k0, BESIDE};
    }

    __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }
    __device__ static int warp() { return static_cast<int>(threadIdx.x) / 32; }

    __device__ float* sums() const { return reinterpret_cast<float*>(shared_); }
    __device__ float* meeting() const { return reinterpret_cast<float*>(shared_ + STAGES_END); }
    __device__ uint32_t met() const { return ptx::shared_address(shared_ + STAGES_END + MEETING); }

    // ------------------------------------------------------------------------------- the sum

    __device__ void start() const {
        load_a_.start();
        load_b_.start();
    }
    // Of what is mapped.
    __device__ __forceinline__ void begin(int step) const {
        load_a_.begin(step);
        load_b_.begin(step);
    }
    __device__ __forceinline__ void load(Words& words) {
        load_a_.load(words.a);
        load_b_.load(words.b);
    }
    template <bool FULL>
    __device__ __forceinline__ void store(const Words& words, uint32_t stage, int k) const {
        if constexpr (sizeof(T) == 4) {
            load_a_.template store<FULL>(words.a, stage, k);
            load_b_.template store<FULL>(words.b, stage, k);
        } else {
#pragma unroll
            for (int g = 0; g < Rows<true, 0>::GROUPS; ++g) {
                load_a_.template store<FULL>(words.a, stage, k, g);
                load_b_.template store<FULL>(words.b, stage, k, g);
            }
        }
    }
    // With zeros for what the operands do not store.
    __device__ __forceinline__ void fill(const Words& words, uint32_t stage, int k) const {
        if (load_a_.full(k) && load_b_.full(k)) {
            store<true>(words, stage, k);
        } else {
            store<false>(words, stage, k);
            load_a_.store_last(stage, k);
            load_b_.store_last(stage, k);
        }
        load_a_.mirror(stage, k);
        load_b_.mirror(stage, k);
    }

    // Rows are loaded two steps ahead, and multiplied while those of the next step are stored.
    __device__ __forceinline__ void multiply_all() {
#pragma unroll
        for (int e = 0; e < COLS / 2; ++e) acc_[e] = 0;
        if (part_.steps <= 0) return;
#pragma unroll
        for (int s = 0; s < Map::AHEAD; ++s) begin(s);
        Words even, odd;
        load(even);
        if (part_.steps > 1) load(odd);
        const uint32_t stage = ptx::shared_address(shared_);
#pragma unroll 1
        for (int s = 0;; s += 2) {
            step(even, stage, s);
            if (s + 1 >= part_.steps) break;
            step(odd, stage + STAGE, s + 1);
            if (s + 2 >= part_.steps) break;
        }
        ptx::wgmma_wait();
    }

    __device__ __forceinline__ void step(Words& words, uint32_t stage, int s) {
        const int k = part_.k0 + s * Mma::BK;
        fill(words, stage, k);
        ptx::bulk_fence();
        ptx::wgmma_wait();  // So after the barrier the other stage can be filled.
        __syncthreads();
        begin(s + Map::AHEAD);
        if (s + 2 < part_.steps) load(words);
        load_a_.wait(s);
        load_b_.wait(s);
        const uint32_t a = load_a_.block(stage, s), b = load_b_.block(stage, s);
        if constexpr (sizeof(T) == 4) {
            multiply<true, true>(a, b);
        } else if constexpr (ANY) {
            const bool a_along = load_a_.k_major(k), b_along = load_b_.k_major(k);
            if (a_along && b_along) multiply<true, true>(a, b);
            else if (a_along) multiply<true, false>(a, b);
            else if (b_along) multiply<false, true>(a, b);
            else multiply<false, false>(a, b);
        } else {
            multiply<A_K_MAJOR, B_K_MAJOR>(a, b);
        }
    }

    // Where the warpgroup's own block of a mapped operand is.
    __device__ int group_block() const { return group_ * Image::BLOCK_BYTES; }

    template <bool A_ALONG, bool B_ALONG>
    __device__ __forceinline__ void multiply(uint32_t a_block, uint32_t b_block) {
        const uint64_t a = tile_descriptor(a_block + (Mma::BM > SIDE ? group_block() : 0)),
                       b = tile_descriptor(
                           b_block + (Mma::BN > SIDE ? group_block()
                                      : WIDE ? 0
                                             : group_ * COLS * (B_ALONG ? Image::ROW_BYTES : 2)));
        // An instruction has 32 bytes of k. Where these run along the rows of a block, so do the next ones, as far as it has
        // them.
        constexpr int STEPS = Mma::BK * sizeof(T) / 32, IN_BLOCK = Image::ROW_BYTES / 32;
        const auto advance = [](bool along, int x) {
            return along ? x % IN_BLOCK * STEP_ALONG + x / IN_BLOCK * (Image::BLOCK_BYTES >> 4)
                         : x * STEP_ACROSS;
        };
        ptx::wgmma_fence();
#pragma unroll
        for (int x = 0; x < STEPS; ++x)
            ptx::wgmma<COLS, !A_ALONG, !B_ALONG>(acc_, a + advance(A_ALONG, x),
                                                 b + advance(B_ALONG, x), true, T{});
        ptx::wgmma_commit();
    }

    // ------------------------------------------------------------------------- sums in parts

    // Each block of a cluster has a part of the rows of the tile, for which all send it their sums.
    __device__ __forceinline__ void prepare_meeting() const {
        if (sum_.parts == 1) return;
        if (threadIdx.x == 0) {
            ptx::mbarrier_init(met(), 1);
            ptx::mbarrier_init_fence();
        }
        __syncwarp();
        ptx::cluster_arrive();
    }

    // Where element (row, col) of sums lies in shared memory: lanes write what they have 8 bytes at a
    // time to all banks.
    __device__ static int place(int row, int col) {
        return row * Mma::BN + (((col / 8) ^ (row % 4)) * 8 | col % 8);
    }

    __device__ __forceinline__ void put_sums() const {
        __syncthreads();                    // Operands are nowhere needed any more.
        const bool below = Mma::BM > SIDE;  // The warpgroups have other rows, not columns.
        const int row = (below ? group_ * SIDE : 0) + warp() % 4 * 16 + lane() / 4,
                  col = below ? 0 : group_ * COLS;
#pragma unroll
        for (int c = 0; c < COLS / 8; ++c) {
            float* to = sums() + place(row, col + 8 * c + lane() % 4 * 2);
#pragma unroll
            for (int h = 0; h < 2; ++h)
                *reinterpret_cast<float2*>(to + h * 8 * Mma::BN) =
                    make_float2(acc_[4 * c + 2 * h], acc_[4 * c + 2 * h + 1]);
        }
        __syncthreads();
        if (sum_.parts > 1) send_sums();
    }

    // The rows that a block adds up: where they begin, and how many there are.
    __device__ int first_row(int part) const { return sum_.first_row(part, Mma::BM); }
    __device__ int rows_of(int part) const { return first_row(part + 1) - first_row(part); }

    // Sends all blocks, this one last, the rows that they add up, as they lie here.
    __device__ __forceinline__ void send_sums() const {
        constexpr int WORD = 16;
        const uint32_t from = ptx::shared_address(sums()), to = ptx::shared_address(meeting());
        if (threadIdx.x == 0)
            ptx::mbarrier_arrive_expect(met(), sum_.parts * rows_of(sum_.part) * SUM_ROW);
        ptx::cluster_wait();
        int owner = sum_.part;
#pragma unroll 1
        for (int sent = 0; sent < sum_.parts; ++sent) {
            owner = owner + 1 < sum_.parts ? owner + 1 : 0;
            const int rank = sum_.first_rank + owner, bytes = rows_of(owner) * SUM_ROW;
            const uint32_t there = ptx::peer_address(to, rank) + sum_.part * bytes,
                           met_there = ptx::peer_address(met(), rank),
                           here = from + first_row(owner) * SUM_ROW;
#pragma unroll 1
            for (int x = threadIdx.x * WORD; x < bytes; x += THREADS * WORD) {
                const float4 v = ptx::load_shared_f32x4(here + x);
                const float four[4] = {v.x, v.y, v.z, v.w};
                ptx::store_peer(there + x, four, met_there);
            }
        }
        ptx::mbarrier_wait(met(), 0);
    }

    // --------------------------------------------------------------------------- the result

    // A warp stores every WARPS-th row, so many at a time, and a lane every 32nd element. Of a sum that is shared a block
    // has few rows.
    static constexpr int XS = Mma::BN / 32, ROWS = (WIDE ? 4 : 8) / XS;
    struct Sums {
        float x[ROWS][XS];
    };

    template <bool K_MAJOR>
    __device__ static const T* stored(const Panel<T>& x, Kind kind, bool k_major, int r, int k) {
        if (!ANY) return x.stored(K_MAJOR, r, k);
        return x.stored(kind == Kind::Symmetric ? k <= r : k_major, r, k);
    }

    // The zeros past a diagonal, times an infinite or nan element, are nan: such an element leaves
    // its mark on every sum that it enters. These sums are made again, over stored elements.
    __device__ static __noinline__ Sums of_stored(Sums sum, const ProductArgs<T>& args,
                                                  int64_t batch, int i, int j) {
        const Panel<T> a = at_batch(args.a, batch * args.a_batch_stride),
                       b = at_batch(args.b, batch * args.b_batch_stride);
#pragma unroll 1
        for (int e = 0; e < ROWS * XS; ++e) {
            float& x = sum.x[e / XS][e % XS];
            if (isfinite(x)) continue;
            x = 0;
#pragma unroll 1
            for (int k = 0; k < args.k; ++k) {
                const T *p = stored<A_K_MAJOR>(a, args.a_kind, args.a_k_major, i + e / XS * WARPS,
                                               k),
                        *q = stored<B_K_MAJOR>(b, args.b_kind, args.b_k_major, j + e % XS * 32, k);
                if (p && q) fma_into(x, Accumulator<T>::widen(*p), Accumulator<T>::widen(*q));
            }
        }
        return sum;
    }

    __device__ __forceinline__ void store() const {
        const int first = first_row(sum_.part), rows = rows_of(sum_.part);
        // All rows of a warp are permuted in the same way.
        const float* from =
            (sum_.parts > 1 ? meeting() : sums()) + place(first + warp(), lane()) - first * Mma::BN;
        T* const c = args_.c + batch_ * args_.c_batch_stride;
        // In 32 bits, and from row to row.
        const auto row = static_cast<uint32_t>(part_.i0 + first + warp()),
                   ld = static_cast<uint32_t>(args_.c_ld);
        const int j = part_.j0 + lane();
        uint32_t at = row * ld + (args_.c_packed ? row_start<uint32_t>(row) : 0) + j,
                 step =
                     WARPS * ld + (args_.c_packed ? WARPS * row + row_start<uint32_t>(WARPS) : 0);
        const uint32_t bend = args_.c_packed ? WARPS * WARPS : 0;
#pragma unroll 1
        for (int r = warp(); r < rows; r += ROWS * WARPS, from += ROWS * WARPS * Mma::BN) {
            const int i0 = part_.i0 + first + r, own = rows - r, end = min(own, args_.m - i0);
            Sums sum;
#pragma unroll
            for (int u = 0; u < ROWS; ++u)
#pragma unroll
                for (int x = 0; x < XS; ++x) sum.x[u][x] = 0;
            const float* of_part = from;
#pragma unroll 1
            for (int p = 0; p < sum_.parts; ++p, of_part += rows * Mma::BN)
#pragma unroll
                for (int u = 0; u < ROWS; ++u)
                    if (u * WARPS < own)
#pragma unroll
                        for (int x = 0; x < XS; ++x)
                            sum.x[u][x] += of_part[u * WARPS * Mma::BN + 32 * x];
            bool finite = true;
#pragma unroll
            for (int u = 0; u < ROWS; ++u)
#pragma unroll
                for (int x = 0; x < XS; ++x) finite &= isfinite(sum.x[u][x]);
            if (!finite && (is_triangular(args_.a_kind) || is_triangular(args_.b_kind)))
                sum = of_stored(sum, args_, batch_, i0, j);
#pragma unroll
            for (int u = 0; u < ROWS; ++u) {
                const int length = args_.c_lower ? min(i0 + u * WARPS + 1, args_.n) : args_.n,
                          limit = u * WARPS < end ? length - j : 0;
#pragma unroll
                for (int x = 0; x < XS; ++x)
                    ptx::store_if(c + at + 32 * x, Accumulator<T>::round(sum.x[u][x]),
                                  32 * x < limit);
                at += step;
                step += bend;
            }
        }
    }

    const Args& args_;
    const int64_t batch_;
    const TilePart part_;
    const SharedSum sum_;
    char* const shared_;
    const int group_;
    LoadA load_a_;
    LoadB load_b_;
    float acc_[COLS / 2];
};

}  // namespace packedtri::cuda
