// A kernel for products of small matrices. Operands and results move between memory and shared
// memory as they lie, in wide aligned words; in shared memory operands are unpacked into tiles.
#pragma once

#include "main_loop.cuh"
#include "product_launch.cuh"
#include "tile.cuh"

namespace packedtri::cuda {

// The warps that have a product: a whole block, or one warp of several.
template <int WARPS>
struct Team {
    __device__ static void sync() {
        if constexpr (WARPS == 1) __syncwarp();
        else __syncthreads();
    }
    // Whether x holds for any of them, and a sync.
    __device__ static bool any(bool x) {
        if constexpr (WARPS > 1) return __syncthreads_or(x);
        __syncwarp();
        return __any_sync(0xffffffffu, x);
    }
};

// A batch of matrices as they lie in memory, each in one piece of `count` elements.
template <class T>
struct Pieces {
    static constexpr int WORD = 16 / sizeof(T);
    const T* data;
    int64_t stride;
    int count, batch;

    // Starts copying matrix b to `raw` in aligned words. It begins past_word(...) elements further.
    // LONG ones pay for code that asks once, not for every word, whether it is inside the batch.
    template <int THREADS, bool LONG>
    __device__ void begin(int64_t b, T* raw) const {
        const T *from = data + b * stride, *end = data + (batch - 1) * stride + count;
        const int before = ptx::past_word(from), words = (before + count + WORD - 1) / WORD;
        const T* first = from - before;
        if (LONG && first >= data && first + words * WORD <= end) {
#pragma unroll 4
            for (int w = threadIdx.x; w < words; w += THREADS)
                ptx::cp_async<16>(ptx::shared_address(raw + w * WORD), first + w * WORD);
            return;
        }
        for (int w = threadIdx.x; w < words; w += THREADS) {
            const T* word = first + w * WORD;
            if (word >= data && word + WORD <= end)
                ptx::cp_async<16>(ptx::shared_address(raw + w * WORD), word);
            else
                for (int e = 0; e < WORD; ++e)
                    if (word + e >= from && word + e < from + count) raw[w * WORD + e] = word[e];
        }
    }
    __device__ const T* first(int64_t b, const T* raw) const {
        return raw + ptx::past_word(data + b * stride);
    }
    // Writes matrix b from `raw`, where it begins as far from an aligned address as in memory.
    template <int THREADS>
    __device__ static void store(T* to, const T* raw, int count) {
        const int before = ptx::past_word(to), begin = before > 0, end = (before + count) / WORD;
        T* words = to - before;
#pragma unroll 4
        for (int w = begin + threadIdx.x; w < end; w += THREADS)
            *reinterpret_cast<uint4*>(words + w * WORD) =
                *reinterpret_cast<const uint4*>(raw + w * WORD);
        // The first word and the last may be parts of words.
        const int e = threadIdx.x, last = end * WORD + e;
        if (begin && e >= before && e < min(WORD, before + count)) words[e] = raw[e];
        if (end >= begin && last < before + count) words[last] = raw[last];
    }
    // What `raw` has to hold.
    __host__ __device__ int words() const { return (count + 2 * WORD - 2) / WORD; }
};

// Copies an operand from its piece to `tile`, zeros past its stored elements.
template <class Layout, int SIDE, int WARPS, bool K_MAJOR, class T>
__device__ void unpack_tile(const Panel<T>& panel, const T* piece, T* tile) {
    // Where the tile transposes, 4 x 8 lanes write to different banks (see MmaSimt).
    constexpr int LANES = Layout::k_major == K_MAJOR ? 32 : 8;
    constexpr int ROWS = 32 / LANES * WARPS;
    // Hidden, or the compiler would keep every row's place in registers from product to product.
    const int lane = ptx::hidden(threadIdx.x % 32);
    const int first = threadIdx.x / 32 * (32 / LANES) + (LANES == 32 ? 0 : lane / LANES);
#pragma unroll(WARPS == 1 ? SIDE / ROWS : 8)
    for (int pass = 0; pass < SIDE / ROWS; ++pass) {
        const int r = (WARPS == 1 && LANES == 32 ? 0 : first) + pass * ROWS;
        const int start = panel.packed ? row_start<int>(r) : r * panel.cols;
        const int length = r < panel.rows ? panel.length(r) : 0;
#pragma unroll
        for (int c = lane % LANES; c < SIDE; c += LANES)
            tile[K_MAJOR ? Layout::at(r, c) : Layout::at(c, r)] =
                c < length ? piece[start + c] : T{};
    }
}

// Element (i, j) of a Hermitian matrix, for which x is stored, or for (j, i).
template <class T>
__device__ __forceinline__ T hermitian_element(T x, int, int) {
    return x;
}
template <class R>
__device__ __forceinline__ Complex<R> hermitian_element(Complex<R> x, int i, int j) {
    return {x.re, i == j ? 0 : i < j ? -x.im : x.im};
}

// Like unpack_tile, of a symmetric operand, whose triangle is a piece: both halves. TRANSPOSED: the tile has its transpose,
// which of a Hermitian one is another matrix.
template <class Layout, int SIDE, int WARPS, bool TRANSPOSED, class T>
__device__ void mirror_tile(int n, bool hermitian, const T* piece, T* tile) {
    const int lane = ptx::hidden(threadIdx.x % 32);
    const int warp = WARPS == 1 ? 0 : static_cast<int>(threadIdx.x) / 32;
#pragma unroll 8
    for (int y = warp; y < SIDE; y += WARPS) {
#pragma unroll
        for (int x = lane; x < SIDE; x += 32) {
            // Lanes write neighbours. They read neighbours, or the ends of rows, which lie in different banks.
            const int r = Layout::k_major ? y : x, k = Layout::k_major ? x : y;
            const int row = max(r, k), col = min(r, k);
            T value{};
            if (row < n) value = piece[row_start<int>(row) + col];
            if (hermitian) value = hermitian_element(value, TRANSPOSED ? k : r, TRANSPOSED ? r : k);
            tile[Layout::at(r, k)] = value;
        }
    }
}

// MmaOf<SIDE, BK> multiplies SIDE x SIDE tiles by BK steps of k.
template <class T_, template <int, int> class MmaOf, int SIDE_, int BK, bool A_K_MAJOR,
          bool B_K_MAJOR>
struct SmallProduct {
    using T = T_;
    using Mma = MmaOf<SIDE_, BK>;
    static constexpr int SIDE = SIDE_, THREADS = Mma::THREADS;
    static constexpr bool ONE_PRODUCT = false;  // A team goes on to further ones.
    // Teams of several warps have a block each.
    static constexpr int TEAMS = THREADS > 32 ? 1 : sizeof(T) <= 4 ? 4 : 2;
    // At least, for registers; shared memory allows more or fewer.
    static constexpr int BLOCKS_PER_SM = SIDE == 128      ? 4 / static_cast<int>(sizeof(T))
                                         : sizeof(T) <= 4 ? 5
                                                          : 16 / static_cast<int>(sizeof(T));
    using LayoutA = typename MmaOf<SIDE, SIDE>::template Layout<SIDE, A_K_MAJOR>;
    using LayoutB = typename MmaOf<SIDE, SIDE>::template Layout<SIDE, B_K_MAJOR>;
    static constexpr int OPERANDS = (LayoutA::size + LayoutB::size) * static_cast<int>(sizeof(T));
    static constexpr int TILE_BYTES =
        OPERANDS > Staging<Mma>::bytes ? OPERANDS : Staging<Mma>::bytes;
    using Crew = Team<THREADS / 32>;

    struct Args {
        ProductArgs<T> product;
        Pieces<T> a, b;
        __host__ __device__ int team_bytes() const {
            return TILE_BYTES + 16 * (a.words() + b.words());
        }
    };

    // The products of every `step`-th matrix from `batch` on; the next operands are on their way
    // while one product is made.
    __device__ static void run(const Args& args, int64_t batch, int64_t step, char* shared) {
        T *a = reinterpret_cast<T*>(shared), *b = a + LayoutA::size;
        T *raw_a = reinterpret_cast<T*>(shared + TILE_BYTES),
          *raw_b = raw_a + args.a.words() * Pieces<T>::WORD;
        const auto begin = [&](int64_t batch) {
            if (batch < args.product.batch) {
                args.a.template begin<THREADS, (SIDE > 32)>(batch, raw_a);
                args.b.template begin<THREADS, (SIDE > 32)>(batch, raw_b);
            }
            ptx::cp_async_commit();
        };
        begin(batch);
        for (; batch < args.product.batch; batch += step) {
            ptx::cp_async_wait<0>();
            Crew::sync();
            unpack<LayoutA, A_K_MAJOR, false>(args.product.a, args.product.a_kind,
                                              args.product.a_hermitian, args.a.first(batch, raw_a),
                                              a);
            unpack<LayoutB, B_K_MAJOR, true>(args.product.b, args.product.b_kind,
                                             args.product.b_hermitian, args.b.first(batch, raw_b),
                                             b);
            Crew::sync();
            begin(batch + step);
            multiply_and_store(args.product, batch, a, b, shared);
        }
    }

  private:
    template <class Layout, bool K_MAJOR, bool IS_B>
    __device__ static void unpack(const Panel<T>& panel, Kind kind, bool hermitian, const T* piece,
                                  T* tile) {
        if (kind == Kind::Symmetric)
            mirror_tile<Layout, SIDE, THREADS / 32, IS_B>(panel.rows, hermitian, piece, tile);
        else unpack_tile<Layout, SIDE, THREADS / 32, K_MAJOR>(panel, piece, tile);
    }

    __device__ static void multiply_and_store(const ProductArgs<T>& args, int64_t batch, const T* a,
                                              const T* b, char* shared) {
        Mma mma;
        mma.row0 = ptx::hidden(mma.row0);  // See unpack_tile.
        mma.col0 = ptx::hidden(mma.col0);
        if (!args.c_packed || mma.warp_col() < mma.warp_row() + Mma::WM)
            for (int k = 0; k < args.k; k += BK)
                if (warp_needs(args, mma, TilePart{}, k))
                    step(mma, a + LayoutA::at(0, k), b + LayoutB::at(0, k));
        // An infinite or nan element leaves its mark on every sum that it enters, even by way of
        // the zeros that pad the other operand.
        bool finite_sums = true;
#pragma unroll
        for (int e = 0; e < Mma::ACCS; ++e) finite_sums &= finite(mma.acc[e]);
        T* c = args.c + batch * args.c_batch_stride;
        if (Crew::any(!finite_sums)) return multiply_stored_elements(args, c, a, b);
        // Elements of 16 bits want wide stores more than shared memory without bank conflicts.
        if constexpr (sizeof(T) == 2) {
            T* raw = reinterpret_cast<T*>(shared);
            put(args, mma, raw + ptx::past_word(c));
            Crew::sync();
            Pieces<T>::template store<THREADS>(
                c, raw, args.c_packed ? row_start<int>(args.m) : args.m * args.n);
        } else {
            auto* staging = reinterpret_cast<typename Mma::Acc*>(shared);
            Staging<Mma>::put(mma, staging);
            Crew::sync();
            store_rows<Mma, THREADS, 1>(args, c, staging, 0, 1, 0, 0, 0, SIDE);
        }
    }

    // Puts the sums where the result has them.
    __device__ static void put(const ProductArgs<T>& args, const Mma& mma, T* piece) {
#pragma unroll
        for (int e = 0; e < Mma::ACCS; ++e) {
            const int i = mma.row0 + Mma::row_of_acc(e), j = mma.col0 + Mma::col_of_acc(e);
            if (i < args.m && j < (args.c_packed ? i + 1 : args.n))
                piece[(args.c_packed ? row_start<int>(i) : i * args.n) + j] =
                    Accumulator<T>::round(mma.acc[e]);
        }
    }

    // For operands with infinite or nan elements; see multiply_stored.
    __device__ static void multiply_stored_elements(const ProductArgs<T>& args, T* c, const T* a,
                                                    const T* b) {
#pragma unroll 1
        for (int x = threadIdx.x; x < args.m * args.n; x += THREADS) {
            const int i = x / args.n, j = x % args.n;
            if (args.c_packed && j > i) continue;
            const KRange range = k_range(args.a_kind, args.b_kind, i, i + 1, j, j + 1, args.k);
            typename Mma::Acc sum{};
            for (int k = static_cast<int>(range.begin); k < range.end; ++k)
                fma_into(sum, Accumulator<T>::widen(a[LayoutA::at(i, k)]),
                         Accumulator<T>::widen(b[LayoutB::at(j, k)]));
            c[(args.c_packed ? row_start(i) : i * args.n) + j] = Accumulator<T>::round(sum);
        }
    }

    __device__ static void step(Mma& mma, const T* a, const T* b) {
        if constexpr (sizeof(T) == 2) mma.template step<LayoutA, LayoutB>(a, b);
        else mma.template step<LayoutA, LayoutB>(a, b, [](int) {});
    }
};

template <class Small>
__global__ void __launch_bounds__(Small::TEAMS* Small::THREADS, Small::BLOCKS_PER_SM)
    small_kernel(const __grid_constant__ typename Small::Args args) {
    extern __shared__ __align__(1024) char shared[];
    ptx::wait_for_dependency();
    ptx::launch_dependents();
    Small::run(args, int64_t{blockIdx.x} * Small::TEAMS + threadIdx.y,
               int64_t{gridDim.x} * Small::TEAMS, shared + threadIdx.y * args.team_bytes());
}

// `work`: how many teams could be busy at once.
template <class Small>
void launch_teams(const typename Small::Args& args, int64_t work, cudaStream_t stream) {
    int shared = Small::TEAMS * args.team_bytes();
    const auto kernel = small_kernel<Small>;
    allow_shared(kernel);
    int64_t blocks = ceil_div(work, Small::TEAMS);
    // Teams that go on to further products are as many as run at once.
    if constexpr (!Small::ONE_PRODUCT) {
        constexpr int threads = Small::THREADS * Small::TEAMS;
        int at_once = 0;
        check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&at_once, kernel, threads, shared),
              "cannot count blocks");
        blocks = std::min(blocks, int64_t{at_once} * current_device().multiprocessors);
    }
    shared = keep_apart(shared, blocks);
    launch_overlapping(kernel, dim3(static_cast<unsigned>(blocks)),
                       dim3(Small::THREADS, Small::TEAMS), args, stream, "cannot launch a product",
                       1, shared);
}

template <class T>
Pieces<T> pieces(const Operand& x, int64_t batch) {
    return {static_cast<const T*>(x.data), x.batch_stride, static_cast<int>(stored_elements(x)),
            static_cast<int>(batch)};
}

template <class T, template <int, int> class MmaOf, int SIDE, int BK>
void launch_small(const Product& p, cudaStream_t stream) {
    const OrientedPanel<T> a = orient<T>(p.a, true), b = orient<T>(p.b, false);
    const auto args =
        arguments<MmaOf<SIDE, BK>>(p, {Method::Direct, TileSize::Small, 1, 1, 1}, a, b);
    const auto launch = [&](auto a_k_major, auto b_k_major) {
        using Small = SmallProduct<T, MmaOf, SIDE, BK, a_k_major(), b_k_major()>;
        launch_teams<Small>({args, pieces<T>(p.a, p.batch), pieces<T>(p.b, p.batch)}, p.batch,
                            stream);
    };
    const std::true_type yes;
    const std::false_type no;
    if (a.k_major && b.k_major) launch(yes, yes);
    else if (a.k_major) launch(yes, no);
    else if (b.k_major) launch(no, yes);
    else launch(no, no);
}

// Sides are those of small_side: 128 is for elements of 2 and 4 bytes.
template <class T, template <int, int> class MmaOf, int BK>
void launch_small(const Product& p, int side, cudaStream_t stream) {
    if (side == 32) return launch_small<T, MmaOf, 32, BK>(p, stream);
    if constexpr (sizeof(T) <= 4)
        if (side == 128) return launch_small<T, MmaOf, 128, BK>(p, stream);
    launch_small<T, MmaOf, 64, BK>(p, stream);
}

}  // namespace packedtri::cuda
