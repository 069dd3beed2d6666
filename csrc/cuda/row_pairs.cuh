// A kernel for batches of small products of two lower triangles on the ordinary floating-point units.
// Each lane has two rows of a result, the p-th from the top and the p-th from the bottom, so that all
// lanes have equally much to do. It reads its rows of A as they are packed: rows of a triangle start
// at triangular numbers, of which 32 in a row fall into 32 different banks. All lanes read the same
// row of B at the same time.
#pragma once

#include "small.cuh"

namespace packedtri::cuda {

template <class T_, int SIDE_>
struct RowPairs {
    using T = T_;
    static constexpr int SIDE = SIDE_, PAIRS = SIDE / 2;
    static constexpr int WARPS = PAIRS > 32 ? PAIRS / 32 : 1;              // That share a matrix.
    static constexpr int MATRICES = PAIRS < 32 ? 32 / PAIRS : 1;           // That share a warp.
    static constexpr int THREADS = 32 * WARPS, TEAMS = WARPS > 1 ? 1 : 4;  // TEAMS in a block.
    static constexpr int BLOCKS_PER_SM = SIDE > 64   ? 3
                                         : SIDE > 32 ? 12 / static_cast<int>(sizeof(T))
                                                     : 16 / static_cast<int>(sizeof(T));
    using Crew = Team<WARPS>;

    // In shared memory rows of B come in blocks of 8, each as long as the longest of its block.
    static constexpr int BLOCK = 8;
    static constexpr int B_SIZE = SIDE * (SIDE + BLOCK) / 2;
    __device__ static constexpr int b_row(int k) {
        const int block = k / BLOCK;
        return BLOCK * BLOCK * (block * (block + 1) / 2) + k % BLOCK * BLOCK * (block + 1);
    }

    struct Args {
        Pieces<T> a, b;
        T* c;
        int64_t c_stride;
        int n, batch;
        // A multiple of 16, and 16 more than one of 128, so that the matrices of a warp lie in
        // different banks.
        __host__ __device__ int matrix_bytes() const {
            const int bytes = B_SIZE * static_cast<int>(sizeof(T)) + 16 * a.words();
            return (bytes - 16 + 127) / 128 * 128 + 16;
        }
        __host__ __device__ int team_bytes() const { return MATRICES * matrix_bytes(); }
    };

    // The products of every `step`-th group of MATRICES from number `group` on.
    __device__ static void run(const Args& args, int64_t group, int64_t step, char* shared) {
        // Behind its rows' ends and its last row B stays zero.
        for (int w = threadIdx.x; w < args.team_bytes() / 4; w += THREADS)
            reinterpret_cast<uint32_t*>(shared)[w] = 0;
        Crew::sync();
        for (int64_t batch = group * MATRICES; batch < args.batch; batch += step * MATRICES) {
            const int count = min(MATRICES, args.batch - static_cast<int>(batch));
            for (int x = 0; x < count; ++x) {
                args.a.template begin<THREADS>(batch + x, raw(args, shared, x));
                begin_b(args, batch + x, b_of(args, shared, x));
            }
            ptx::cp_async_commit();
            ptx::cp_async_wait<0>();
            Crew::sync();
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
        return b_of(args, shared, matrix) + B_SIZE;
    }

    // Starts copying B. Rows p and SIDE - 2 - p together have SIDE elements, one a lane.
    __device__ static void begin_b(const Args& args, int64_t batch, T* b) {
        const T* from = args.b.data + batch * args.b.stride;
#pragma unroll 4
        for (int x = threadIdx.x; x < (SIDE / 2 + 1) * SIDE; x += THREADS) {
            const int p = x / SIDE, place = x % SIDE;
            const bool upper = p < SIDE / 2 && place <= p;
            const int row = upper ? p : p < SIDE / 2 ? SIDE - 2 - p : SIDE - 1;
            const int col = upper || p == SIDE / 2 ? place : place - p - 1;
            if (row < args.n && (upper || p != SIDE / 2 - 1))
                ptx::cp_async<sizeof(T)>(ptx::shared_address(b + b_row(row) + col),
                                         from + row * (row + 1) / 2 + col);
        }
    }

    __device__ RowPairs(const Args& args, int64_t batch, int count, char* shared) {
        // Threads without a matrix of their own repeat the first one's sums.
        const int matrix = static_cast<int>(threadIdx.x) / PAIRS % MATRICES;
        const int pair = threadIdx.x % PAIRS, own = matrix < count ? matrix : 0;
        T* words = raw(args, shared, own);
        b_ = b_of(args, shared, own);
        a_ = words + Pieces<T>::shift(args.a.data + (batch + own) * args.a.stride);
        c_ = args.c + (batch + own) * args.c_stride;
        out_ = words + Pieces<T>::shift(c_);
        writes_ = matrix < count;
        top_ = pair < args.n ? pair : -1;
        bottom_ = SIDE - 1 - pair < args.n ? SIDE - 1 - pair : -1;
        const int warp = threadIdx.x / 32;
        top_end_ = min(args.n, WARPS > 1 ? 32 * (warp + 1) : PAIRS);
        bottom_end_ = min(args.n, WARPS > 1 ? SIDE - 32 * warp : SIDE);
    }

    // Returns whether the result is in shared memory; else it is stored.
    __device__ bool multiply() {
        T top[PAIRS] = {}, bottom[SIDE] = {};
#pragma unroll
        for (int block = 0; block < SIDE / BLOCK; ++block) {
            if (block * BLOCK >= bottom_end_) break;
            if (block < PAIRS / BLOCK && block * BLOCK < top_end_)
                add_block<true>(block, top, bottom);
            else add_block<false>(block, top, bottom);
        }
        // An infinite or nan element leaves its mark on every sum that it enters, even by way of
        // zeros that are no part of the product.
        T mark{};
#pragma unroll
        for (int j = 0; j < SIDE; ++j) {
            fma_into(mark, bottom[j], T{});
            if (j < PAIRS) fma_into(mark, top[j % PAIRS], T{});
        }
        if (Crew::any(mark != T{})) {
            store_exact(top_, c_);
            store_exact(bottom_, c_);
            return false;
        }
        write(top_, top);
        write(bottom_, bottom);
        return true;
    }

    template <bool TOP>
    __device__ __forceinline__ void add_block(int block, T (&top)[PAIRS], T (&bottom)[SIDE]) const {
        constexpr int V = 16 / sizeof(T);
        struct alignas(16) Word {
            T x[V];
        };
        const T *row_top = a_ + top_ * (top_ + 1) / 2,
                *row_bottom = a_ + bottom_ * (bottom_ + 1) / 2;
        const T* b = b_ + b_row(block * BLOCK);
#pragma unroll 2
        for (int x = 0; x < BLOCK; ++x) {
            const int k = block * BLOCK + x;
            const T low = k <= bottom_ ? row_bottom[k] : T{};
            const T high = TOP && k <= top_ ? row_top[k] : T{};
#pragma unroll
            for (int j = 0; j < (block + 1) * BLOCK; j += V) {
                const Word word = *reinterpret_cast<const Word*>(b + x * (block + 1) * BLOCK + j);
#pragma unroll
                for (int e = 0; e < V; ++e) {
                    fma_into(bottom[j + e], low, word.x[e]);
                    if (TOP) fma_into(top[(j + e) % PAIRS], high, word.x[e]);
                }
            }
        }
    }

    // The result takes the place of A, which by then nobody reads any more.
    template <int COLS>
    __device__ void write(int row, const T (&sum)[COLS]) const {
        T* to = out_ + row * (row + 1) / 2;
#pragma unroll
        for (int j = 0; j < COLS; ++j)
            if (writes_ && j <= row) to[j] = sum[j];
    }

    // For operands with infinite or nan elements: only stored ones enter.
    __device__ void store_exact(int row, T* c) const {
#pragma unroll 1
        for (int j = 0; writes_ && j <= row; ++j) {
            T sum{};
            for (int k = j; k <= row; ++k)
                fma_into(sum, a_[row * (row + 1) / 2 + k], b_[b_row(k) + j]);
            c[row * (row + 1) / 2 + j] = sum;
        }
    }

    T *a_, *b_, *out_, *c_;
    int top_, bottom_;          // Rows of this lane, -1 where there is none.
    int top_end_, bottom_end_;  // Of the steps that a row of the warp needs.
    bool writes_;
};

// Whether this kernel can compute a small product.
inline bool of_lower_triangles(const Product& p) {
    return p.a.kind == Kind::Lower && p.b.kind == Kind::Lower && p.c.kind == Kind::Lower;
}

template <class T>
void launch_row_pairs(const Product& p, cudaStream_t stream) {
    const auto launch = [&](auto side) {
        using Rows = RowPairs<T, side()>;
        const typename Rows::Args args{pieces<T>(p.a, p.batch),   pieces<T>(p.b, p.batch),
                                       static_cast<T*>(p.c.data), p.c.batch_stride,
                                       static_cast<int>(p.n),     static_cast<int>(p.batch)};
        launch_teams<Rows>(args, ceil_div(p.batch, Rows::MATRICES), stream);
    };
    if (p.n <= 16) launch(std::integral_constant<int, 16>{});
    else if (p.n <= 32) launch(std::integral_constant<int, 32>{});
    else if (p.n <= 64) launch(std::integral_constant<int, 64>{});
    else if constexpr (sizeof(T) == 4) launch(std::integral_constant<int, 128>{});
}

}  // namespace packedtri::cuda
