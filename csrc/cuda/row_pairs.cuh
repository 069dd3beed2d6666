// A kernel for batches of small products of two lower triangles on the ordinary floating-point units.
// Each lane has pairs of rows of a result, the p-th from the top and the p-th from the bottom, so that
// all lanes have equally much to do. It reads its rows of A as they are packed: rows of a triangle
// start at triangular numbers, of which 32 in a row fall into 32 different banks.
#pragma once

#include "small.cuh"

namespace packedtri::cuda {

// A lane has PAIRS pairs of rows, and shares them with the other GROUPS - 1 groups of lanes: columns,
// in blocks of 8, go to the groups in turn. The more rows a lane has, the fewer reads of B there are
// for each product; their data come at 4 lanes a clock, even if all are the same.
template <class T_, int SIDE_, int PAIRS_>
struct RowPairs {
    using T = T_;
    static constexpr int SIDE = SIDE_, PAIRS = PAIRS_, GROUPS = PAIRS_;
    static constexpr int LANES = SIDE / (2 * PAIRS);  // Of a group.
    static constexpr int TEAM = LANES * GROUPS;       // Threads that share a matrix.
    static constexpr int WARPS = TEAM > 32 ? TEAM / 32 : 1;
    static constexpr int MATRICES = TEAM < 32 ? 32 / TEAM : 1;             // That share a warp.
    static constexpr int THREADS = 32 * WARPS, TEAMS = WARPS > 1 ? 1 : 4;  // TEAMS in a block.
    static constexpr int BLOCKS_PER_SM = SIDE > 64 ? 3 : SIDE > 32 ? 2 : 16 / sizeof(T);
    using Crew = Team<WARPS>;

    static constexpr int BLOCK = 8, BLOCKS = SIDE / BLOCK;
    static_assert(LANES % BLOCK == 0, "where a row ends is known for all lanes together");
    // How many of the first `blocks` blocks of columns a group has, at most.
    __host__ __device__ static constexpr int own(int blocks) {
        return (blocks + GROUPS - 1) / GROUPS;
    }
    // In shared memory rows of B come in blocks of 8, each as long as the longest of its block, and so
    // long that all groups have equally many columns.
    __host__ __device__ static constexpr int b_length(int block) {
        return own(block + 1) * GROUPS * BLOCK;
    }
    __host__ __device__ static constexpr int b_block(int block) {
        int start = 0;
        for (int b = 0; b < block; ++b) start += BLOCK * b_length(b);
        return start;
    }
    __device__ static int b_row(int k) {
        // Blocks of equal length come in runs of GROUPS.
        const int block = k / BLOCK, run = block / GROUPS;
        return BLOCK * BLOCK * GROUPS *
                   (GROUPS * (run * (run + 1) / 2) + block % GROUPS * (run + 1)) +
               k % BLOCK * (run + 1) * GROUPS * BLOCK;
    }

    struct Args {
        Pieces<T> a, b;
        T* c;
        int64_t c_stride;
        int n, batch;
        // 16 more than a multiple of 128, so that the matrices of a warp lie in different banks.
        __host__ __device__ int matrix_bytes() const {
            // Rows past the last read the last one, and up to a block of steps past its end.
            const int bytes =
                (b_block(BLOCKS) + BLOCK) * static_cast<int>(sizeof(T)) + 16 * a.words();
            return (bytes - 16 + 127) / 128 * 128 + 16;
        }
        __host__ __device__ int team_bytes() const { return MATRICES * matrix_bytes(); }
    };

    // The products of every `step`-th group of MATRICES from number `group` on.
    __device__ static void run(const Args& args, int64_t group, int64_t step, char* shared) {
        for (int64_t batch = group * MATRICES; batch < args.batch; batch += step * MATRICES) {
            const int count = min(MATRICES, args.batch - static_cast<int>(batch));
            for (int x = 0; x < count; ++x) {
                args.a.template begin<THREADS>(batch + x, raw(args, shared, x));
                args.b.template begin<THREADS>(batch + x, b_of(args, shared, x));
            }
            ptx::cp_async_commit();
            ptx::cp_async_wait<0>();
            Crew::sync();
            for (int x = 0; x < count; ++x) {
                T* b = b_of(args, shared, x);
                unpack_b(args.b.first(batch + x, b), args.n, b);
            }
            const bool staged = RowPairs(args, batch, count, shared).multiply();
            Crew::sync();
            for (int x = 0; x < count && staged; ++x)
                Pieces<T>::template store<THREADS>(args.c + (batch + x) * args.c_stride,
                                                   raw(args, shared, x), args.a.count);
            Crew::sync();
        }
    }

  private:
    __device__ static T* b_of(const Args& args, char* shared, int matrix) {
        return reinterpret_cast<T*>(shared + matrix * args.matrix_bytes());
    }
    // The words of A, later of the result.
    __device__ static T* raw(const Args& args, char* shared, int matrix) {
        return b_of(args, shared, matrix) + b_block(BLOCKS);
    }

    // Moves the rows of B from where its words begin to their places, the last ones first: each goes to
    // where nothing is any more that is still to be moved. Zeros fill the rows.
    __device__ static void unpack_b(const T* words, int n, T* b) {
        constexpr int WIDTH = SIDE < 32 ? SIDE : 32, AT_ONCE = THREADS / WIDTH,
                      PASSES = BLOCK / AT_ONCE, CHUNKS = (SIDE + 31) / 32;
        const int lane = threadIdx.x % WIDTH, first = threadIdx.x / WIDTH;
#pragma unroll
        for (int block = BLOCKS - 1; block >= 0; --block) {
            if (block * BLOCK >= n) continue;
            T x[PASSES][CHUNKS];
#pragma unroll
            for (int pass = 0; pass < PASSES; ++pass) {
                const int row = block * BLOCK + pass * AT_ONCE + first;
                const T* from = words + row * (row + 1) / 2 + lane;
#pragma unroll
                for (int c = 0; c < CHUNKS; ++c)
                    if (c * 32 < b_length(block))
                        x[pass][c] = row < n && c * 32 + lane <= row ? from[c * 32] : T{};
            }
            Crew::sync();
#pragma unroll
            for (int pass = 0; pass < PASSES; ++pass) {
                T* to = b + b_block(block) + (pass * AT_ONCE + first) * b_length(block) + lane;
#pragma unroll
                for (int c = 0; c < CHUNKS; ++c)
                    if (c * 32 + lane < b_length(block)) to[c * 32] = x[pass][c];
            }
            Crew::sync();
        }
    }

    __device__ RowPairs(const Args& args, int64_t batch, int count, char* shared)
        : n_(args.n), first_(threadIdx.x % LANES), group_(threadIdx.x / LANES % GROUPS) {
        // Threads without a matrix of their own repeat the first one's sums.
        const int matrix = static_cast<int>(threadIdx.x) / TEAM % MATRICES;
        writes_ = matrix < count;
        const int own = writes_ ? matrix : 0;
        T* words = raw(args, shared, own);
        b_ = b_of(args, shared, own);
        a_ = words + ptx::past_word(args.a.data + (batch + own) * args.a.stride);
        // What rows past the last come to is stored nowhere.
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            const int i = min(row(r), n_ - 1);
            rows_[r] = a_ + i * (i + 1) / 2;
        }
        c_ = args.c + (batch + own) * args.c_stride;
        out_ = words + ptx::past_word(c_);
    }

    // Row r of this lane: first those from the top, then those from the bottom.
    __device__ int row(int r) const {
        const int p = first_ + LANES * (r % PAIRS);
        return r < PAIRS ? p : SIDE - 1 - p;
    }
    // The first of the lanes' r-th rows, and where the longest of them ends.
    __device__ static constexpr int row_begin(int r) { return row_end(r) - LANES; }
    __device__ static constexpr int row_end(int r) {
        return r < PAIRS ? LANES * (r + 1) : SIDE - LANES * (r - PAIRS);
    }
    // The columns of row r that this lane has, and the place of each.
    __device__ static constexpr int columns(int r) { return own(row_end(r) / BLOCK) * BLOCK; }

    static constexpr int ROWS = 2 * PAIRS, COLUMNS = SIDE / GROUPS;
    using Sums = T[ROWS][COLUMNS];

    // Returns whether the result is in shared memory; else it is stored.
    __device__ bool multiply() {
        Sums sums = {};
        add_blocks<0>(sums);
        // An infinite or nan element leaves its mark on every sum that it enters, even by way of
        // zeros that are no part of the product.
        T mark{};
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            if (row(r) >= n_) continue;
#pragma unroll
            for (int c = 0; c < COLUMNS; ++c)
                if (c < columns(r)) fma_into(mark, sums[r][c], T{});
        }
        if (Crew::any(mark != T{})) {
            store_exact();
            return false;
        }
        // The result takes the place of A, which nobody reads any more.
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            if (!writes_ || row(r) >= n_) continue;
            T* to = out_ + row(r) * (row(r) + 1) / 2 + group_ * BLOCK;
#pragma unroll
            for (int c = 0; c < COLUMNS; ++c) {
                const int first = c / BLOCK * GROUPS * BLOCK + c % BLOCK;
                const bool stored = first + (GROUPS - 1) * BLOCK < row_begin(r);
                if (c < columns(r) && (stored || first + group_ * BLOCK <= row(r)))
                    to[first] = sums[r][c];
            }
        }
        return true;
    }

    // Adds the products of a block of rows of B and those behind it.
    template <int FROM>
    __device__ __forceinline__ void add_blocks(Sums& sums) const {
        if constexpr (FROM < BLOCKS) {
            if (FROM * BLOCK >= n_) return;
            add_block<FROM>(sums);
            add_blocks<FROM + 1>(sums);
        }
    }
    template <int block>
    __device__ __forceinline__ void add_block(Sums& sums) const {
        constexpr int V = 16 / sizeof(T);
        struct alignas(16) Word {
            T x[V];
        };
        const T* b = b_ + b_block(block) + group_ * BLOCK;
#pragma unroll 2
        for (int x = 0; x < BLOCK; ++x) {
            const int k = block * BLOCK + x;
            T a[ROWS];
#pragma unroll
            for (int r = 0; r < ROWS; ++r) {
                if (block * BLOCK >= row_end(r)) continue;
                const bool stored = block * BLOCK + BLOCK <= row_begin(r) + 1;
                a[r] = stored || k <= row(r) ? rows_[r][k] : T{};
            }
#pragma unroll
            for (int c = 0; c < own(block + 1) * BLOCK; c += V) {
                const Word word = *reinterpret_cast<const Word*>(
                    b + x * b_length(block) + c / BLOCK * GROUPS * BLOCK + c % BLOCK);
#pragma unroll
                for (int r = 0; r < ROWS; ++r)
#pragma unroll
                    for (int e = 0; e < V; ++e)
                        if (block * BLOCK < row_end(r) && c < columns(r))
                            fma_into(sums[r][c + e], a[r], word.x[e]);
            }
        }
    }

    // For operands with infinite or nan elements: only stored ones enter.
    __device__ void store_exact() const {
#pragma unroll 1
        for (int r = 0; r < ROWS; ++r) {
            const int i = row(r);
#pragma unroll 1
            for (int j = 0; writes_ && i < n_ && j <= i; ++j) {
                if (j / BLOCK % GROUPS != group_) continue;
                T sum{};
                for (int k = j; k <= i; ++k)
                    fma_into(sum, a_[i * (i + 1) / 2 + k], b_[b_row(k) + j]);
                c_[i * (i + 1) / 2 + j] = sum;
            }
        }
    }

    const int n_, first_, group_;
    bool writes_;
    T *a_, *b_, *out_, *c_;
    const T* rows_[2 * PAIRS];  // Of A, this lane's.
};

template <class Rows>
void launch_rows(const Product& p, cudaStream_t stream) {
    using T = typename Rows::T;
    const typename Rows::Args args{pieces<T>(p.a, p.batch),   pieces<T>(p.b, p.batch),
                                   static_cast<T*>(p.c.data), p.c.batch_stride,
                                   static_cast<int>(p.n),     static_cast<int>(p.batch)};
    launch_teams<Rows>(args, ceil_div(p.batch, Rows::MATRICES), stream);
}

template <class T>
void launch_row_pairs(const Product& p, cudaStream_t stream) {
    if (p.n <= 16) return launch_rows<RowPairs<T, 16, 1>>(p, stream);
    if (p.n <= 32) return launch_rows<RowPairs<T, 32, 1>>(p, stream);
    if constexpr (sizeof(T) == 4) {
        if (p.n <= 64) return launch_rows<RowPairs<T, 64, 2>>(p, stream);
        launch_rows<RowPairs<T, 128, 4>>(p, stream);
    }
}

}  // namespace packedtri::cuda
