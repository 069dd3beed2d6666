// The main loop for 16-bit elements: every warp multiplies 64 x 64 elements of the tile, and warps
// with the same ones share the sum over k. Operands go from the words that hold them to registers.
#pragma once

#include "loader_words.cuh"
#include "main_loop.cuh"

namespace packedtri::cuda {

// The sums of a BM x BN tile, of which WARPS_K warps make those of 64 x 64. In the end each of them has
// some of these rows.
template <class T, int BM_, int BN_, int WARPS_K, bool A_K_MAJOR, bool B_K_MAJOR>
struct WarpSums {
    using Acc = float;
    static constexpr int BM = BM_, BN = BN_, BK = 32 * WARPS_K;
    static constexpr int SIDE = 64;
    static constexpr int THREADS = 32 * WARPS_K * (BM / SIDE) * (BN / SIDE);
    // In 16 x 8 x 16 products.
    static constexpr int MT = SIDE / 16, NT = SIDE / 8, OWN = MT / WARPS_K;
    static constexpr int ACCS = OWN * NT * 4;
    // Runs of accumulators that are neighbours in a row.
    static constexpr int RUN = B_K_MAJOR ? 2 : 8;

    float acc[ACCS];
    int row0, col0;  // This lane's first element in the tile.

    __device__ WarpSums() {
        const int lane = threadIdx.x % 32;
        row0 =
            row() + (A_K_MAJOR ? lane / 4 + 16 * OWN * share() : lane / 4 * 8 + 2 * OWN * share());
        col0 = col() + (B_K_MAJOR ? lane % 4 * 2 : lane % 4 * 16);
    }
    // The place in the tile of what this warp multiplies, and its number among those that do so.
    __device__ static int warp() { return static_cast<int>(threadIdx.x) / 32; }
    __device__ static int share() { return warp() % WARPS_K; }
    __device__ static int row() { return warp() / WARPS_K % (BM / SIDE) * SIDE; }
    __device__ static int col() { return warp() / WARPS_K / (BM / SIDE) * SIDE; }

    __device__ static int row_of_acc(int e) {
        const int m = e / (4 * NT), h = e / (2 * NT) % 2;
        return A_K_MAJOR ? 16 * m + 8 * h : 2 * m + h;
    }
    __device__ static int col_of_acc(int e) {
        return B_K_MAJOR ? e / 2 % NT * 8 + e % 2 : e / NT % 2 * 8 + e % NT;
    }
    // Accumulator x of product (m, n), the order of an instruction being (h, p) = x / 2, x % 2.
    __device__ static constexpr int index(int m, int n, int x) {
        return 4 * NT * m + 2 * NT * (x / 2) + (B_K_MAJOR ? 2 * n + x % 2 : NT * (x % 2) + n);
    }
};

template <class T_, int BM, int BN, int WARPS_K, int STAGES, bool A_K_MAJOR, bool B_K_MAJOR>
class MainLoopWords {
  public:
    using T = T_;
    using Mma = WarpSums<T, BM, BN, WARPS_K, A_K_MAJOR, B_K_MAJOR>;
    using Index = int;  // See product_kernel.
    static constexpr int THREADS = Mma::THREADS;

  private:
    static constexpr int BK = Mma::BK, MT = Mma::MT, NT = Mma::NT;
    using LoadA = WordLoader<T, BM, BK, THREADS, A_K_MAJOR>;
    using LoadB = WordLoader<T, BN, BK, THREADS, B_K_MAJOR>;
    static constexpr int CHUNK = LoadA::CHUNK;
    static constexpr int STAGE = (LoadA::SIZE + LoadB::SIZE) * static_cast<int>(sizeof(T));
    static constexpr int EXCHANGE = WARPS_K * BM * BN * static_cast<int>(sizeof(float));

  public:
    static constexpr int SHARED_BYTES = STAGES * STAGE > EXCHANGE ? STAGES * STAGE : EXCHANGE;

    // Computes `part` and gives it to `finish` when the shared memory is free again.
    template <class Finish>
    __device__ static void run(const ProductArgs<T>& args, int64_t batch, const TilePart& part,
                               char* shared, Finish finish) {
        MainLoopWords loop(args, batch, part, shared);
        const bool padded = loop.multiply_all();
        __syncthreads();
        Mma mma;
        loop.exchange(mma, shared);
        // The zeros past a diagonal, times an infinite or nan element, are nan: such an element leaves
        // its mark on every sum that it enters.
        bool made_again = false;
        if (padded) {
#pragma unroll
            for (int e = 0; e < Mma::ACCS; ++e) made_again |= !isfinite(mma.acc[e]);
        }
        if (!made_again) return finish(mma);
        Mma stored;
        add_stored_elements(args, batch, part, stored);
        finish(stored);
    }

  private:
    __device__ MainLoopWords(const ProductArgs<T>& args, int64_t batch, const TilePart& part,
                             char* shared)
        : args_(args), part_(part), shared_(ptx::shared_address(shared)),
          load_a_(at_batch(args.a, batch * args.a_batch_stride), part.i0, part.k0, Mma::row()),
          load_b_(at_batch(args.b, batch * args.b_batch_stride), part.j0, part.k0, Mma::col()) {
        const KRange a = load_a_.plain_range(), b = load_b_.plain_range();
        plain_begin_ = static_cast<int>(max(a.begin, b.begin));
        plain_end_ = static_cast<int>(min(a.end, b.end));
        const int i = part.i0 + Mma::row(), j = part.j0 + Mma::col();
        const KRange needed =
            k_range(args.a_kind, args.b_kind, i, i + Mma::SIDE, j, j + Mma::SIDE, args.k);
        k_begin_ = static_cast<int>(needed.begin);
        k_end_ = i < args.m && j < args.n ? static_cast<int>(needed.end) : 0;
    }

    __device__ uint32_t a_tile(int step) const { return shared_ + step % STAGES * STAGE; }
    __device__ uint32_t b_tile(int step) const {
        return a_tile(step) + LoadA::SIZE * static_cast<int>(sizeof(T));
    }

    // Returns whether zeros that are not stored took part.
    __device__ __forceinline__ bool multiply_all() {
        bool padded = false;
        // One loop also fills the pipeline before the first step, so that its code, which short sums
        // wait for, is there once.
#pragma unroll 1
        for (int s = 1 - STAGES; s < part_.steps; ++s) {
            if (s >= 0) {
                ptx::cp_async_wait<STAGES - 2>();
                __syncthreads();
            }
            begin(s + STAGES - 1);
            if (s < 0) continue;
            const int chunk = Mma::share(), k = part_.k0 + s * BK + chunk * CHUNK;
            if (k >= k_end_ || k + CHUNK <= k_begin_) continue;
            if (load_a_.full(k) && load_b_.full(k)) {
                multiply<true>(a_tile(s), b_tile(s), chunk, k);
            } else {
                multiply<false>(a_tile(s), b_tile(s), chunk, k);
                padded = true;
            }
        }
        ptx::cp_async_wait<0>();
        return padded;
    }

    __device__ __forceinline__ void begin(int step) {
        if (step < part_.steps) {
            const int k = part_.k0 + step * BK;
            if (k >= plain_begin_ && k < plain_end_) {
                load_a_.template begin<true>(a_tile(step));
                load_b_.template begin<true>(b_tile(step));
            } else {
                load_a_.template begin<false>(a_tile(step));
                load_b_.template begin<false>(b_tile(step));
            }
        }
        ptx::cp_async_commit();
    }

    // acc += this warp's lines of one chunk.
    template <bool FULL>
    __device__ __forceinline__ void multiply(uint32_t a_tile, uint32_t b_tile, int chunk, int k) {
        uint32_t b[2][NT][2];  // By halves of the chunk.
        if constexpr (B_K_MAJOR) {
#pragma unroll
            for (int n = 0; n < NT; n += 2) {
                const auto words = load_b_.template along<FULL>(b_tile, chunk, n / 2, k);
#pragma unroll
                for (int x = 0; x < 8; ++x) b[x / 2 % 2][n + x / 4][x % 2] = words.x[x / 4][x % 4];
            }
        } else {
#pragma unroll
            for (int q = 0; q < 2; ++q) {
                const auto words = load_b_.template across<FULL>(b_tile, chunk, q, k);
#pragma unroll
                for (int n = 0; n < NT; ++n)
#pragma unroll
                    for (int h = 0; h < 2; ++h) b[q][n][h] = words.x[h][n];
            }
        }
        const auto multiply_row = [&](int m, int q, const uint32_t (&a)[4]) {
#pragma unroll
            for (int n = 0; n < NT; ++n) ptx::mma_16816(acc_[m][n], a, b[q][n], T{});
        };
        if constexpr (A_K_MAJOR) {
#pragma unroll
            for (int m = 0; m < MT; ++m) {
                const auto words = load_a_.template along<FULL>(a_tile, chunk, m, k);
#pragma unroll
                for (int q = 0; q < 2; ++q)
                    multiply_row(m, q,
                                 {words.x[0][2 * q], words.x[1][2 * q], words.x[0][2 * q + 1],
                                  words.x[1][2 * q + 1]});
            }
        } else {
#pragma unroll
            for (int q = 0; q < 2; ++q) {
                const auto words = load_a_.template across<FULL>(a_tile, chunk, q, k);
#pragma unroll
                for (int m = 0; m < MT; ++m)
                    multiply_row(m, q,
                                 {words.x[0][2 * m], words.x[0][2 * m + 1], words.x[1][2 * m],
                                  words.x[1][2 * m + 1]});
            }
        }
    }

    // Adds up what the warps with the same lines have; each gets its own rows. The order of the parts
    // is that of the warps, and does not depend on timing.
    __device__ __forceinline__ void exchange(Mma& mma, char* shared) const {
        constexpr int WORDS = Mma::ACCS / 4;  // Of 16 bytes, of each owner from each warp.
        float4* area = reinterpret_cast<float4*>(shared) +
                       threadIdx.x / (32 * WARPS_K) * (32 * WARPS_K * WARPS_K * WORDS) +
                       threadIdx.x % 32;
        const int share = Mma::share();
        const auto place = [](int owner, int from, int word) {
            return ((owner * WARPS_K + from) * WORDS + word) * 32;
        };
#pragma unroll
        for (int w = 0; w < WARPS_K * WORDS; ++w) {
            const float* x = acc_[w / NT][w % NT];
            area[place(w / WORDS, share, w % WORDS)] = make_float4(x[0], x[1], x[2], x[3]);
        }
        __syncthreads();
#pragma unroll
        for (int w = 0; w < WORDS; ++w) {
            float4 sum = area[place(share, 0, w)];
#pragma unroll
            for (int from = 1; from < WARPS_K; ++from) {
                const float4 x = area[place(share, from, w)];
                sum.x += x.x, sum.y += x.y, sum.z += x.z, sum.w += x.w;
            }
            mma.acc[Mma::index(w / NT, w % NT, 0)] = sum.x;
            mma.acc[Mma::index(w / NT, w % NT, 1)] = sum.y;
            mma.acc[Mma::index(w / NT, w % NT, 2)] = sum.z;
            mma.acc[Mma::index(w / NT, w % NT, 3)] = sum.w;
        }
        __syncthreads();
    }

    // The same sums, element by element and stored elements only.
    __device__ static __noinline__ void add_stored_elements(const ProductArgs<T>& args,
                                                            int64_t batch, const TilePart& part,
                                                            Mma& mma) {
        const auto element = [](const Panel<T>& panel, bool k_major, int r, int k) {
            const int row = k_major ? r : k, col = k_major ? k : r;
            const bool stored = row < panel.rows && col < panel.length(row);
            return stored ? panel.data + panel.row_offset(row) + col : nullptr;
        };
        const Panel<T> a = at_batch(args.a, batch * args.a_batch_stride),
                       b = at_batch(args.b, batch * args.b_batch_stride);
        for (int e = 0; e < Mma::ACCS; ++e) {
            float sum = 0;
            for (int k = part.k0; k < part.k0 + part.steps * BK; ++k) {
                const T *x = element(a, A_K_MAJOR, part.i0 + mma.row0 + Mma::row_of_acc(e), k),
                        *y = element(b, B_K_MAJOR, part.j0 + mma.col0 + Mma::col_of_acc(e), k);
                if (x && y) fma_into(sum, Accumulator<T>::widen(*x), Accumulator<T>::widen(*y));
            }
            mma.acc[e] = sum;
        }
    }

    const ProductArgs<T>& args_;
    const TilePart part_;
    uint32_t shared_;
    LoadA load_a_;
    LoadB load_b_;
    int plain_begin_, plain_end_;
    int k_begin_, k_end_;  // What this warp's sums need.
    float acc_[MT][NT][4] = {};
};

}  // namespace packedtri::cuda
