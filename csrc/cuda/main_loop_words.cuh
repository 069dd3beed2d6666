// The main loop for 16-bit elements: every warp multiplies 64 x 64 elements of the tile, and warps
// with the same ones share the sum over k. Operands go from the words that hold them to registers.
#pragma once

#include "hopper.cuh"
#include "loader_words.cuh"
#include "main_loop.cuh"

namespace packedtri::cuda {

// A BM x BN tile by quadrants of 64 x 64. WARPS_K warps share the sum over k of each.
template <int BM_, int BN_, int WARPS_K>
struct WarpTile {
    using Acc = float;
    static constexpr int BM = BM_, BN = BN_, BK = 32 * WARPS_K;
    static constexpr int SIDE = 64;
    static constexpr int QUADRANTS = (BM / SIDE) * (BN / SIDE);
    static constexpr int THREADS = 32 * WARPS_K * QUADRANTS;

    // The number of this warp among those of its quadrant.
    __device__ static int share() { return ptx::thread_of<THREADS>() / 32 % WARPS_K; }
    __device__ static int quadrant() { return ptx::thread_of<THREADS>() / 32 / WARPS_K; }
    __device__ static int row() { return quadrant() % (BM / SIDE) * SIDE; }
    __device__ static int col() { return quadrant() / (BM / SIDE) * SIDE; }
};

template <class T_, int BM, int BN, int WARPS_K, int STAGES, bool A_K_MAJOR, bool B_K_MAJOR>
class MainLoopWords {
  public:
    using T = T_;
    using Mma = WarpTile<BM, BN, WARPS_K>;
    using Index = int;  // See product_kernel.
    using Args = ProductArgs<T>;
    static constexpr int THREADS = Mma::THREADS;

  private:
    static constexpr int BK = Mma::BK, SIDE = Mma::SIDE;
    // In 16 x 8 x 16 products.
    static constexpr int MT = SIDE / 16, NT = SIDE / 8;
    using LoadA = WordLoader<T, BM, BK, THREADS, A_K_MAJOR>;
    using LoadB = WordLoader<T, BN, BK, THREADS, B_K_MAJOR>;
    static constexpr int CHUNK = LoadA::CHUNK;
    static constexpr int STAGE = (LoadA::SIZE + LoadB::SIZE) * static_cast<int>(sizeof(T));
    // The sums of all warps, and those of a cluster that meet in one of its blocks.
    static constexpr int AREA = SIDE * SIDE;
    static constexpr int SUMS = WARPS_K * Mma::QUADRANTS * AREA * 4,
                         MEETING = Mma::QUADRANTS * AREA * 4;

  public:
    static constexpr bool STORES = true, GRADED = false;
    static constexpr int shared_bytes(bool cluster) {
        const int epilogue = SUMS + (cluster ? MEETING : 0);
        return STAGES * STAGE > epilogue ? STAGES * STAGE : epilogue;
    }

    // Computes a part of a tile, and stores its share of the rows of the tile's sum from
    // first_row to end_row.
    __device__ static void run(const ProductArgs<T>& args, int64_t batch, const TilePart& part,
                               const SharedSum& sum, int first_row, int end_row, char* shared) {
        // The zeros past a diagonal, times an infinite or nan element, are nan: such an element leaves
        // its mark on every sum that it enters. Then all is multiplied once more, chunks with such zeros over stored
        // elements only.
        for (bool exact = false;; exact = true) {
            MainLoopWords loop(args, batch, part, shared);
            ptx::wait_for_dependency();
            if (ptx::block_or<THREADS>(loop.multiply_all(exact))) continue;
            // The next kernel may start where there is room. Earlier it would take places in which its
            // blocks are badly balanced.
            ptx::launch_dependents();
            loop.put_sums(reinterpret_cast<float*>(shared));
            loop.store(reinterpret_cast<float*>(shared), batch, sum, first_row, end_row);
            return;
        }
    }

  private:
    __device__ MainLoopWords(const ProductArgs<T>& args, int64_t batch, const TilePart& part,
                             char* shared)
        : args_(args), part_(part), shared_(ptx::shared_address(shared)),
          load_a_(at_batch(args.a, batch * args.a_batch_stride), part.i0, part.k0, Mma::row()),
          load_b_(at_batch(args.b, batch * args.b_batch_stride), part.j0, part.k0, Mma::col()) {
        const int i = part.i0 + Mma::row(), j = part.j0 + Mma::col();
        const auto needed =
            k_range<int>(args.a_kind, args.b_kind, i, i + Mma::SIDE, j, j + Mma::SIDE, args.k);
        k_last_ = k_range<int>(args.a_kind, args.b_kind, part.i0, part.i0 + BM, part.j0,
                               part.j0 + BN, args.k)
                      .end;
        k_begin_ = needed.begin;
        k_end_ = i < args.m && j < args.n ? needed.end : 0;
    }

    __device__ uint32_t a_tile(int step) const { return shared_ + step % STAGES * STAGE; }
    __device__ uint32_t b_tile(int step) const {
        return a_tile(step) + LoadA::SIZE * static_cast<int>(sizeof(T));
    }

    // Returns whether zeros that are not stored took part in sums that are not finite.
    __device__ __forceinline__ bool multiply_all(bool exact) {
        bool padded = false;
        // One loop also fills the pipeline before the first step, so that its code, which short sums
        // wait for, is there once.
#pragma unroll 1
        for (int s = 1 - STAGES; s < part_.steps; ++s) {
            if (s == 0) {
                load_a_.prepare_reading();
                load_b_.prepare_reading();
            }
            if (s >= 0) {
                ptx::cp_async_wait<STAGES - 2>();
                ptx::block_sync<THREADS>();
            }
            begin(s + STAGES - 1);
            if (s < 0) continue;
            const int chunk = Mma::share(), k = part_.k0 + s * BK + chunk * CHUNK;
            if (k >= k_end_ || k + CHUNK <= k_begin_) continue;
            if (load_a_.full(k) && load_b_.full(k)) {
                multiply<true>(a_tile(s), b_tile(s), chunk, k);
            } else if (exact) {
                acc_ = multiply_stored(acc_, load_a_.panel(), load_b_.panel(),
                                       part_.i0 + Mma::row(), part_.j0 + Mma::col(), k);
            } else {
                multiply<false>(a_tile(s), b_tile(s), chunk, k);
                padded = true;
            }
        }
        ptx::cp_async_wait<0>();
        return padded && !all_finite<MT * NT * 4>(
                             [&](int e) { return acc_.x[e / 4 / NT][e / 4 % NT][e % 4]; });
    }

    __device__ __forceinline__ void begin(int step) {
        if (step < part_.steps) {
            const int depth = k_last_ - part_.k0 - step * BK;
            load_a_.begin(a_tile(step), depth);
            load_b_.begin(b_tile(step), depth);
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
            for (int n = 0; n < NT; ++n) ptx::mma_16816(acc_.x[m][n], a, b[q][n], T{});
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

    struct Acc {
        float x[MT][NT][4];
    };
    // Where this lane's sum acc_.x[m][n][2 * h + p] is among the 64 x 64 of its warp.
    __device__ static int row_of_acc(int m, int h) {
        const int g = static_cast<int>(threadIdx.x) % 32 / 4;
        return A_K_MAJOR ? 16 * m + 8 * h + g : 8 * g + 2 * m + h;
    }
    __device__ static int col_of_acc(int n, int p) {
        const int t = static_cast<int>(threadIdx.x) % 4;
        return B_K_MAJOR ? 8 * n + 2 * t + p : 16 * t + n + NT * p;
    }

    // Adds the products of stored elements of one chunk to sums whose first row and column are i and j.
    __device__ static __noinline__ Acc multiply_stored(Acc acc, Panel<T> a, Panel<T> b, int i,
                                                       int j, int k0) {
#pragma unroll 1
        for (int m = 0; m < MT; ++m) {
            float sum[2 * NT][2];
#pragma unroll
            for (int c = 0; c < 2 * NT; ++c)
#pragma unroll
                for (int h = 0; h < 2; ++h) sum[c][h] = acc.x[m][c / 2][2 * h + c % 2];
            // What is not stored is read as some element, so that the loads of a few steps are under way at once.
#pragma unroll 4
            for (int k = k0; k < k0 + CHUNK; ++k) {
                const T* in_a[2];
                float x[2];
#pragma unroll
                for (int h = 0; h < 2; ++h) {
                    in_a[h] = a.stored(A_K_MAJOR, i + row_of_acc(m, h), k);
                    x[h] = Accumulator<T>::widen(*(in_a[h] ? in_a[h] : a.data));
                }
#pragma unroll
                for (int c = 0; c < 2 * NT; ++c) {
                    const T* in_b = b.stored(B_K_MAJOR, j + col_of_acc(c / 2, c % 2), k);
                    const float y = Accumulator<T>::widen(*(in_b ? in_b : b.data));
#pragma unroll
                    for (int h = 0; h < 2; ++h)
                        if (in_a[h] && in_b) fma_into(sum[c][h], x[h], y);
                }
            }
#pragma unroll
            for (int c = 0; c < 2 * NT; ++c)
#pragma unroll
                for (int h = 0; h < 2; ++h) acc.x[m][c / 2][2 * h + c % 2] = sum[c][h];
        }
        return acc;
    }

    // Element (row, col) of 64 x 64 sums in shared memory. Rows are permuted, so that lanes write what
    // they have 8 or 16 bytes at a time to all banks.
    __device__ static int place(int row, int col) {
        const int group = A_K_MAJOR ? row : row / 8;
        const int word =
            B_K_MAJOR ? (col / 4) ^ (group % 4 * 2) : (col / 4) ^ (col / 32 * 2) ^ (group % 2);
        return row * SIDE + word * 4 + col % 4;
    }

    __device__ __forceinline__ void put_sums(float* sums) const {
        const int t = threadIdx.x % 4;
        sums += (Mma::quadrant() * WARPS_K + Mma::share()) * AREA;
#pragma unroll
        for (int m = 0; m < MT; ++m)
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const int row = row_of_acc(m, h);
                const auto sum = [&](int n, int p) { return acc_.x[m][n][2 * h + p]; };
                if constexpr (B_K_MAJOR) {
#pragma unroll
                    for (int n = 0; n < NT; ++n)
                        *reinterpret_cast<float2*>(sums + place(row, 8 * n + 2 * t)) =
                            make_float2(sum(n, 0), sum(n, 1));
                } else {
#pragma unroll
                    for (int n = 0; n < 2 * NT; n += 4)
                        *reinterpret_cast<float4*>(sums + place(row, 16 * t + n)) =
                            make_float4(sum(n % NT, n / NT), sum(n % NT + 1, n / NT),
                                        sum(n % NT + 2, n / NT), sum(n % NT + 3, n / NT));
                }
            }
    }

    // A warp has every WARPS_K-th row of its quadrant, ROWS of them at a time, and a lane every 32nd
    // element.
    static constexpr int ROWS = 8;
    struct Sums {
        float x[ROWS][2];
    };

    // Adds up `count` areas of sums, `distance` apart, in their order, which does not depend on timing.
    __device__ __forceinline__ static void add_up(Sums& sum, const float* sums, int count,
                                                  int distance, int row, int last) {
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int u = 0; u < ROWS; ++u) sum.x[u][0] = sum.x[u][1] = 0;
#pragma unroll 1
        for (int i = 0; i < count; ++i, sums += distance)
#pragma unroll
            for (int u = 0; u < ROWS; ++u) {
                const int y = min(row + u * WARPS_K, last);
                sum.x[u][0] += sums[place(y, lane)];
                sum.x[u][1] += sums[place(y, lane + 32)];
            }
    }

    // Adds up the sums of the warps and, in a cluster, those of its blocks, each of which has its part
    // of the rows, and stores them.
    __device__ __forceinline__ void store(float* sums, int64_t batch, const SharedSum& shared,
                                          int first_row, int end_row) const {
        const int lane = threadIdx.x % 32, warp = Mma::share(),
                  rows = SIDE >> (__ffs(shared.parts) - 1);
        const float* areas = sums + Mma::quadrant() * WARPS_K * AREA;
        int count = WARPS_K, distance = AREA, first = 0;
        Sums sum;
        if (shared.parts > 1) {
            ptx::cluster_sync();  // All sums are there, and operands are nowhere needed any more.
            float* meeting = sums + (Mma::QUADRANTS * WARPS_K + Mma::quadrant()) * AREA;
            // The blocks' sums of the rows that one of them owns lie there one after another.
#pragma unroll 1
            for (int row = warp; row < SIDE; row += ROWS * WARPS_K) {
                add_up(sum, areas, WARPS_K, AREA, row, SIDE - 1);
#pragma unroll
                for (int u = 0; u < ROWS; ++u) {
                    const int y = row + u * WARPS_K, owner = y * shared.parts / SIDE;
                    float* to = ptx::cluster_peer(meeting + (shared.part - owner) * rows * SIDE,
                                                  shared.first_rank + owner);
                    to[place(y, lane)] = sum.x[u][0];
                    to[place(y, lane + 32)] = sum.x[u][1];
                }
            }
            ptx::cluster_sync();
            first = shared.part * rows;
            areas = meeting - first * SIDE;
            count = shared.parts, distance = rows * SIDE;
        } else {
            ptx::block_sync<THREADS>();
        }

        const int i0 = part_.i0 + Mma::row(), j = part_.j0 + Mma::col() + lane;
        // Rows of this quadrant of the tile.
        const int last = first + rows - 1;
        const int end = min(min(first + rows, args_.m - i0), end_row - Mma::row());
        first = max(first, first_row - Mma::row());
        T* out = args_.c + batch * args_.c_batch_stride +
                 row_offset(i0 + first + warp, args_.c_ld, args_.c_packed) + j;
        int64_t step = WARPS_K * args_.c_ld;
        const int bent = args_.c_packed ? WARPS_K * WARPS_K : 0;
        if (args_.c_packed) step += WARPS_K * (i0 + first + warp) + WARPS_K * (WARPS_K + 1) / 2;
#pragma unroll 1
        for (int row = first + warp; row < end; row += ROWS * WARPS_K) {
            add_up(sum, areas, count, distance, row, last);
            // Calls f(element of the sums, its place in memory, whether the result has it).
            const auto for_each = [&](auto f) {
                T* at = out;
                int64_t next = step;
#pragma unroll
                for (int u = 0; u < ROWS; ++u, at += next, next += bent) {
                    const int y = row + u * WARPS_K;
                    const int limit = args_.c_lower ? min(i0 + y + 1, args_.n) : args_.n;
#pragma unroll
                    for (int x = 0; x < 2; ++x)
                        f(sum.x[u][x], at + x * 32, y < end && j + x * 32 < limit);
                }
            };
            if (args_.beta == 0) {
#pragma unroll
                for (int u = 0; u < ROWS; ++u)
#pragma unroll
                    for (int x = 0; x < 2; ++x) sum.x[u][x] = scale(sum.x[u][x], args_.alpha);
            } else {
                // All is read before the first element is stored, for reading takes long.
                for_each([&](float& x, const T* at, bool exists) {
                    const float there = exists ? Accumulator<T>::widen(*at) : 0;
                    x = scale(x, args_.alpha) + scale(there, args_.beta);
                });
            }
            for_each([&](float x, T* at, bool exists) {
                ptx::store_if(at, Accumulator<T>::round(x), exists);
            });
            out += ROWS * step + bent * (ROWS * (ROWS - 1) / 2);
            step += ROWS * bent;
        }
    }

    const ProductArgs<T>& args_;
    const TilePart part_;
    uint32_t shared_;
    LoadA load_a_;
    LoadB load_b_;
    int k_last_;           // Where the tile's sum ends.
    int k_begin_, k_end_;  // What this warp's sums need.
    Acc acc_{};
};

}  // namespace packedtri::cuda
