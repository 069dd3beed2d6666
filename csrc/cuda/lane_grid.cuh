// A kernel for batches of small products of two lower triangles on the ordinary floating-point units.
// Operands are read in shared memory as they are packed: rows of a triangle start at triangular
// numbers, of which 32 in a row fall into 32 different banks. A team has one product. The others of
// its multiprocessor hide what it waits for, and blocks that start as room becomes free share the
// work better than those that go on to further products.
#pragma once

#include "small.cuh"

namespace packedtri::cuda {

// The threads of a matrix are a grid of HEIGHT x WIDTH. Thread (y, x) has the rows y, y + HEIGHT, ...
// and the columns x, x + WIDTH, ... of the result in registers. WIDTH threads read each element of A
// and HEIGHT each of B, most of the traffic in shared memory: it is least where the grid is nearly
// square, and grows with the number of threads. All threads have equally much to do, and multiply by
// zeros only near the diagonals. STEPS of k are one after another in the code: more of them read
// ahead further, until the code misses the instruction cache.
template <class T_, int SIDE_, int HEIGHT, int WIDTH, int STEPS, int TEAMS_, int BLOCKS_PER_SM_>
struct LaneGrid {
    using T = T_;
    static constexpr int SIDE = SIDE_, ROWS = SIDE / HEIGHT, COLUMNS = SIDE / WIDTH;
    static constexpr int WARPS = HEIGHT * WIDTH / 32, THREADS = 32 * WARPS, TEAMS = TEAMS_;
    static constexpr int BLOCKS_PER_SM = BLOCKS_PER_SM_;
    static constexpr bool ONE_PRODUCT = true;
    static_assert(HEIGHT * WIDTH % 32 == 0 && HEIGHT % WIDTH == 0);
    static_assert(WARPS == 1 || TEAMS == 1, "teams of several warps have a block each");
    using Crew = Team<WARPS>;

    struct Args {
        Pieces<T> a, b;
        T* c;
        int64_t c_stride;
        int n, batch;
        // Rows of B up to the last step of k.
        __host__ __device__ int b_rows() const { return (n + HEIGHT - 1) / HEIGHT * HEIGHT; }
        // Words of B, with elements past its last one that are read and not used.
        __host__ __device__ int b_elements() const {
            constexpr int WORD = Pieces<T>::WORD;
            return (row_start<int>(b_rows()) + WIDTH + 2 * WORD - 2) / WORD * WORD;
        }
        // The last row of A is read to the last step of k.
        __host__ __device__ int team_bytes() const {
            const int a_elements = a.words() * Pieces<T>::WORD + HEIGHT;
            return (b_elements() + a_elements) * static_cast<int>(sizeof(T));
        }
    };

    // The product number `batch`.
    __device__ static void run(const Args& args, int64_t batch, int64_t, char* shared) {
        if (batch >= args.batch) return;
        T *b = reinterpret_cast<T*>(shared), *a = b + args.b_elements();
        args.b.template begin<THREADS, true>(batch, b);
        args.a.template begin<THREADS, true>(batch, a);
        ptx::cp_async_commit();
        ptx::cp_async_wait<0>();
        Crew::sync();
        if (args.n % HEIGHT != 0) {
            // Zero times what happens to be there could be nan.
            T* rows = b + ptx::past_word(args.b.data + batch * args.b.stride);
            for (int e = args.b.count + threadIdx.x; e < row_start<int>(args.b_rows());
                 e += THREADS)
                rows[e] = T{};
            Crew::sync();
        }
        LaneGrid(args, batch, a, b).multiply_and_store(args.a.count, a);
    }

  private:
    __device__ LaneGrid(const Args& args, int64_t batch, T* a, T* b)
        : n_(args.n), y_(static_cast<int>(threadIdx.x) % HEIGHT),
          x_(static_cast<int>(threadIdx.x) / HEIGHT),
          a_(a + ptx::past_word(args.a.data + batch * args.a.stride)),
          b_(b + ptx::past_word(args.b.data + batch * args.b.stride)),
          c_(args.c + batch * args.c_stride) {
        // What rows past the last come to is stored nowhere.
#pragma unroll
        for (int r = 0; r < ROWS; ++r) rows_[r] = a_ + row_start<int>(min(row(r), n_ - 1));
    }

    // The r-th row of this thread, and how many of its columns some thread has.
    __device__ int row(int r) const { return y_ + HEIGHT * r; }
    __device__ static constexpr int columns(int r) { return HEIGHT / WIDTH * (r + 1); }
    using Sums = T[ROWS][COLUMNS];

    // `piece` is where the words of A are.
    __device__ void multiply_and_store(int count, T* piece) {
        Sums sums = {};
        add_steps<0>(sums, b_ + x_);
        // An infinite or nan element leaves its mark on every sum that it enters, even by way of
        // zeros that are no part of the product.
        T mark{};
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            T of_row{};
#pragma unroll
            for (int c = 0; c < columns(r); ++c) fma_into(of_row, sums[r][c], T{});
            if (row(r) < n_) mark += of_row;
        }
        if (Crew::any(mark != T{})) return store_exact();
        // The result takes the place of A, which nobody reads any more.
        T* result = piece + ptx::past_word(c_);
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            if (row(r) >= n_) continue;
            T* to = result + row_start<int>(row(r)) + x_;
#pragma unroll
            for (int c = 0; c < columns(r); ++c)
                if (c * WIDTH + WIDTH <= r * HEIGHT || c * WIDTH + x_ <= row(r))
                    to[c * WIDTH] = sums[r][c];
        }
        Crew::sync();
        Pieces<T>::template store<THREADS>(c_, piece, count);
    }

    // Adds the products of WIDTH rows of B, the LAST-th such, and those behind them. LAST is also the
    // last of the thread's columns that they have. `b` is where the thread's first element of them is.
    template <int LAST>
    __device__ __forceinline__ void add_steps(Sums& sums, const T* b) {
        if constexpr (LAST < COLUMNS) {
            constexpr int FIRST = LAST * WIDTH / HEIGHT;  // Of the thread's rows that have these k.
            if (LAST * WIDTH % HEIGHT == 0 && LAST * WIDTH >= n_) return;
#pragma unroll 1
            for (int from = 0; from < WIDTH; from += STEPS) {
#pragma unroll
                for (int s = 0; s < STEPS; ++s) {
                    const int step = from + s, k = LAST * WIDTH + step;
                    T a[ROWS];
#pragma unroll
                    for (int r = FIRST; r < ROWS; ++r) a[r] = rows_[r][s];
                    if (k > row(FIRST)) a[FIRST] = T{};
#pragma unroll
                    for (int c = 0; c <= LAST; ++c) {
                        const T b_c = c < LAST || x_ <= step ? b[c * WIDTH] : T{};
#pragma unroll
                        for (int r = FIRST; r < ROWS; ++r) fma_into(sums[r][c], a[r], b_c);
                    }
                    b += k + 1;
                }
#pragma unroll
                for (int r = FIRST; r < ROWS; ++r) rows_[r] += STEPS;
            }
            add_steps<LAST + 1>(sums, b);
        }
    }

    // For operands with infinite or nan elements: only stored ones enter.
    __device__ void store_exact() const {
#pragma unroll 1
        for (int i = y_; i < n_; i += HEIGHT) {
#pragma unroll 1
            for (int j = x_; j <= i; j += WIDTH) {
                T sum{};
#pragma unroll 1
                for (int k = j; k <= i; ++k)
                    fma_into(sum, a_[row_start<int>(i) + k], b_[row_start<int>(k) + j]);
                c_[row_start<int>(i) + j] = sum;
            }
        }
    }

    const int n_, y_, x_;
    const T *a_, *b_;
    T* c_;
    const T* rows_[ROWS];  // This thread's of A, from the next k on.
};

template <class Grid>
void launch_grid(const Product& p, cudaStream_t stream) {
    using T = typename Grid::T;
    const typename Grid::Args args{pieces<T>(p.a, p.batch),   pieces<T>(p.b, p.batch),
                                   static_cast<T*>(p.c.data), p.c.batch_stride,
                                   static_cast<int>(p.n),     static_cast<int>(p.batch)};
    launch_teams<Grid>(args, p.batch, stream);
}

template <class T>
void launch_lane_grid(const Product& p, cudaStream_t stream) {
    if (p.n <= 16) return launch_grid<LaneGrid<T, 16, 8, 4, 4, 4, 8>>(p, stream);
    if (p.n <= 32) return launch_grid<LaneGrid<T, 32, 8, 4, 4, 1, 24>>(p, stream);
    if (p.n <= 64) return launch_grid<LaneGrid<T, 64, 8, 8, 8, 1, 48 / sizeof(T)>>(p, stream);
    if constexpr (sizeof(T) == 4) {
        if (p.n <= 96) return launch_grid<LaneGrid<T, 96, 8, 8, 4, 1, 6>>(p, stream);
        launch_grid<LaneGrid<T, 128, 16, 8, 4, 1, 3>>(p, stream);
    }
}

}  // namespace packedtri::cuda
