// Products of a few columns, subtracted in shared memory.
#pragma once

#include "leaf.cuh"

namespace packedtri::cuda {

// C(r, c) -= sum over k in [k0, k0 + STEP) of X(r, k) Y(c, k)^H for r from r0 on and c from c0 on: a multiple of 8 rows
// and of STEP columns, or of a square, where LOWER, its lower half. Elements above it may change. FEW: there are 8 rows.
template <class T, bool LOWER, bool FEW = false>
class SharedUpdate {
    using Matrix = SharedTriangle<T>;
    static constexpr int WORD = 16 / sizeof(T);
    // Rows and columns of a thread: neighbours in the lower half. Elsewhere those of a word are neighbours, and words
    // as far apart as can be, so that lanes read neighbouring words.
    static constexpr int ROWS = FEW ? WORD : SHARE, COLS = SHARE;
    static_assert(!LOWER || !FEW, "half a square is shared out by squares");

  public:
    __device__ SharedUpdate(const Matrix& c, const Matrix& x, const Matrix& y, bool conj)
        : c_(c), x_(x), y_(y), conj_(conj) {}

    __device__ void run(int r0, int rows, int c0, int cols, int k0) const {
        const int high = rows / ROWS, wide = cols / COLS,
                  count = LOWER ? high * (high + 1) / 2 : high * wide;
        const int across = LOWER ? WORD : rows / (ROWS / WORD),
                  down = LOWER ? WORD : cols / (COLS / WORD);
        constexpr int FIRST = LOWER ? SHARE : WORD;
        for (int t = threadIdx.x; t < count; t += static_cast<int>(blockDim.x)) {
            int i = t % high, j = t / high;
            if constexpr (LOWER) {
                // The row of a square is exact for the few there are.
                i = static_cast<int>((sqrtf(static_cast<float>(8 * t + 1)) - 1) * 0.5f);
                j = t - row_start<int>(i);
            }
            tile(r0 + i * FIRST, across, c0 + j * FIRST, down, k0);
        }
    }

  private:
    // Long code takes longer to be fetched than to run.
    static constexpr int UNROLL = is_complex<T> ? 4 : STEP;

    __device__ void tile(int row, int across, int col, int down, int k0) const {
        T rest[COLS][ROWS];
        for_columns(col, down, [&](int j, int c) { c_.load(rest[j], row, across, c); });
#pragma unroll UNROLL
        for (int k = k0; k < k0 + STEP; ++k) {
            T x[ROWS], y[COLS];
            x_.load(x, row, across, k);
            y_.load(y, col, down, k);
#pragma unroll
            for (int j = 0; j < COLS; ++j)
#pragma unroll
                for (int i = 0; i < ROWS; ++i)
                    subtract(rest[j][i], x[i], conjugate_if(y[j], conj_));
        }
        for_columns(col, down, [&](int j, int c) { c_.store(rest[j], row, across, c); });
    }

    template <class F>
    __device__ static void for_columns(int col, int down, F f) {
#pragma unroll
        for (int j = 0; j < COLS; ++j) f(j, col + j / WORD * down + j % WORD);
    }

    const Matrix &c_, &x_, &y_;
    const bool conj_;
};

// By the tensor cores, 8 rows and STEP columns a warp. The pitches of solves and factors keep its reads in different
// banks.
template <bool LOWER, bool FEW>
class SharedUpdate<double, LOWER, FEW> {
    using Matrix = SharedTriangle<double>;

  public:
    __device__ SharedUpdate(const Matrix& c, const Matrix& x, const Matrix& y, bool)
        : c_(c), x_(x), y_(y) {}

    __device__ void run(int r0, int rows, int c0, int cols, int k0) const {
        const int high = rows / 8, wide = cols / STEP,
                  count = LOWER ? wide * (wide + 1) : high * wide;
        for (int t = threadIdx.x / 32; t < count; t += static_cast<int>(blockDim.x / 32)) {
            int i = t % high, j = t / high;
            if constexpr (LOWER) {
                // Column j of a square has two tiles fewer than the one before.
                for (i = t, j = 0; i >= high - 2 * j; ++j) i -= high - 2 * j;
                i += 2 * j;
            }
            tile(r0 + i * 8, c0 + j * STEP, k0);
        }
    }

  private:
    __device__ void tile(int row, int col, int k0) const {
        const int group = threadIdx.x % 32 / 4, lane = threadIdx.x % 4;
        double a[8], b[4], sums[4]{};
#pragma unroll
        for (int e = 0; e < 8; ++e) a[e] = y_.at(col + group + e % 2 * 8, k0 + lane + e / 2 * 4);
#pragma unroll
        for (int e = 0; e < 4; ++e) b[e] = x_.at(row + group, k0 + lane + e * 4);
        ptx::mma_16816(sums, a, b);
#pragma unroll
        for (int e = 0; e < 4; ++e)
            c_.at(row + 2 * lane + e % 2, col + group + e / 2 * 8) -= sums[e];
    }

    const Matrix &c_, &x_, &y_;
};

}  // namespace packedtri::cuda
