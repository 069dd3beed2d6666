// Makes sums of persistent.cuh again that are not finite, over stored elements only: zeros past a diagonal have turned an
// infinite element of the other operand into a nan that is no part of the product. Straight from memory, since others
// multiply meanwhile what is in shared memory.
#pragma once

#include "main_loop.cuh"
#include "panel.cuh"
#include "ptx.cuh"

namespace packedtri::cuda {

// The sums of one lane of Mma over two ranges of k; its first row and column are i and j.
template <class Mma, bool A_K_MAJOR, bool B_K_MAJOR>
__device__ __forceinline__ void sum_stored(const Panel<double>& a, const Panel<double>& b, int i,
                                           int j, BasicKRange<int> first, BasicKRange<int> second,
                                           double* sums) {
    const int first_length = first.length(), all = first_length + second.length();
    constexpr int ROWS = 2 * Mma::MT, COLS = 4, NEXT = Mma::col_of(1) - Mma::col_of(0);
#pragma unroll 1
    for (int n = 0; n < Mma::NT; n += COLS / 2) {
        double acc[ROWS][COLS] = {};
#pragma unroll 1
        for (int number = 0; number < all; ++number) {
            const int k =
                number < first_length ? first.begin + number : second.begin + number - first_length;
            // What is not stored is read as some element, so that all loads are under way at once.
            double x[ROWS], y[COLS];
            bool in_a[ROWS], in_b[COLS];
#pragma unroll
            for (int h = 0; h < ROWS; ++h) {
                const double* from = a.stored(A_K_MAJOR, i + 8 * h, k);
                in_a[h] = from != nullptr;
                x[h] = *(from ? from : a.data);
            }
#pragma unroll
            for (int c = 0; c < COLS; ++c) {
                const double* from = b.stored(B_K_MAJOR, j + (n + c / 2) * 8 + c % 2 * NEXT, k);
                in_b[c] = from != nullptr;
                y[c] = *(from ? from : b.data);
            }
#pragma unroll
            for (int h = 0; h < ROWS; ++h)
#pragma unroll
                for (int c = 0; c < COLS; ++c)
                    if (in_a[h] && in_b[c]) acc[h][c] = fma(x[h], y[c], acc[h][c]);
        }
#pragma unroll
        for (int h = 0; h < ROWS; ++h)
#pragma unroll
            for (int c = 0; c < COLS; ++c)
                sums[(h / 2 * Mma::NT + n + c / 2) * 4 + h % 2 * 2 + c % 2] = acc[h][c];
    }
}

// Adds a range of k, a multiple of 16, in which there are no structural zeros, by a whole warp. Lane (g, t), of 8 by 4,
// loads rows i + 8 h of A and columns j + 8 n of B, g already added to both.
template <class Mma, bool A_K_MAJOR, bool B_K_MAJOR>
__device__ __forceinline__ void add_inner(const Panel<double>& a, const Panel<double>& b, int i,
                                          int j, BasicKRange<int> range, double* sums) {
    const auto element = [](const double* from) { return from ? *from : 0; };
    constexpr int COLS = 2;
#pragma unroll 1
    for (int n0 = 0; n0 < Mma::NT; n0 += COLS) {
        double acc[Mma::MT][COLS][4];
        const auto for_all = [&](auto f) {
#pragma unroll
            for (int m = 0; m < Mma::MT; ++m)
#pragma unroll
                for (int n = 0; n < COLS; ++n)
#pragma unroll
                    for (int e = 0; e < 4; ++e)
                        f(acc[m][n][e], sums[(m * Mma::NT + n0 + n) * 4 + e]);
        };
        for_all([](double& here, double& there) { here = there; });
#pragma unroll 1
        for (int k = range.begin + static_cast<int>(threadIdx.x) % 4; k < range.end; k += 16) {
            double x[Mma::MT][8], y[COLS][4];
#pragma unroll
            for (int m = 0; m < Mma::MT; ++m)
#pragma unroll
                for (int q = 0; q < 8; ++q)
                    x[m][q] = element(a.stored(A_K_MAJOR, i + m * 16 + q % 2 * 8, k + q / 2 * 4));
#pragma unroll
            for (int n = 0; n < COLS; ++n)
#pragma unroll
                for (int q = 0; q < 4; ++q)
                    y[n][q] = element(b.stored(B_K_MAJOR, j + (n0 + n) * 8, k + q * 4));
#pragma unroll
            for (int n = 0; n < COLS; ++n)
#pragma unroll
                for (int m = 0; m < Mma::MT; ++m) ptx::mma_16816(acc[m][n], x[m], y[n]);
        }
        for_all([](double& here, double& there) { there = here; });
    }
}

// The sums of a warp over a range of k; its first row and column are i and j. No part of the kernel, and by few columns at
// a time, so that its main loop keeps all registers.
template <class Mma, bool A_K_MAJOR, bool B_K_MAJOR>
__device__ __noinline__ void sum_again(const ProductArgs<double>& p, int64_t matrix, int i, int j,
                                       int begin, int end, double* sums) {
    end = max(begin, end);
    // Where there are no structural zeros for this warp.
    BasicKRange<int> inner{begin, end};
    if (p.a_kind == Kind::Lower) inner.end = min(inner.end, i);
    if (p.b_kind == Kind::Upper) inner.end = min(inner.end, j);
    if (p.a_kind == Kind::Upper) inner.begin = max(inner.begin, i + Mma::WM);
    if (p.b_kind == Kind::Lower) inner.begin = max(inner.begin, j + Mma::WN);
    inner.begin = min(inner.begin, end);
    inner.end = inner.begin + inner.length() / 16 * 16;

    const Panel<double> a = at_batch(p.a, matrix * p.a_batch_stride),
                        b = at_batch(p.b, matrix * p.b_batch_stride);
    const int g = static_cast<int>(threadIdx.x) % 32 / 4, t = static_cast<int>(threadIdx.x) % 4;
    sum_stored<Mma, A_K_MAJOR, B_K_MAJOR>(a, b, i + Mma::row_of(g), j + Mma::col_of(2 * t),
                                          {begin, inner.begin}, {inner.end, end}, sums);
    add_inner<Mma, A_K_MAJOR, B_K_MAJOR>(a, b, i + Mma::row_of(g), j + Mma::col_of(g), inner, sums);
}

}  // namespace packedtri::cuda
