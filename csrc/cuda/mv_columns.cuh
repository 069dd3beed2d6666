// Sums over columns of memory of a packed triangle times a vector.
#pragma once

#include "mv_rows.cuh"

namespace packedtri::cuda {

// One warp's share of the sums over memory columns, y_j += T_ij x_i, for COLS columns: every shares-th piece of rows. A
// lane has rows that follow one another, of one column, AT_ONCE of them on their way. STRICT leaves the diagonal out.
template <class T, int COLS, int AT_ONCE, bool STRICT, bool HERMITIAN>
class ColumnSums {
    using Acc = typename Accumulator<T>::type;
    using Word = Neighbours<T>;
    static constexpr int V = Word::COUNT;
    static constexpr int PIECE = 32 / COLS * AT_ONCE;  // Rows.

  public:
    // Of the columns from j0 on, a multiple of COLS.
    __device__ ColumnSums(const MvArgs<T>& args, const T* triangle, const T* x, int j0)
        : args_(args), triangle_(triangle), x_(x), j0_(j0) {}

    // What the first COLS lanes return is that of their columns.
    __device__ Acc sum(int share, int shares) const {
        const bool aligned = is_aligned(x_, args_.x_stride);
        const int end = whole_words<T>(aligned, args_.n);
        Acc sum{};
        // What the last word of x would hold that reaches out of its memory.
        if (share == 0 && lane() < COLS)
            for (int i = end; i < args_.n; ++i)
                if (stored(i)) add(triangle_[offset(i, j0_ + lane())], x_[i * args_.x_stride], sum);
        for (int i0 = j0_ + share * PIECE; i0 < end; i0 += shares * PIECE) {
            const int i = i0 + lane() / COLS * AT_ONCE;
            if (i0 >= j0_ + COLS && i0 + PIECE <= end) add_piece<true>(i, end, aligned, sum);
            else add_piece<false>(i, end, aligned, sum);
        }
#pragma unroll
        for (int distance = COLS; distance < 32; distance *= 2)
            sum = packedtri::cuda::add(sum, shuffle_xor(sum, distance));
        return sum;
    }

  private:
    __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }

    // In this lane's column.
    __device__ bool stored(int i) const {
        const int j = j0_ + lane() % COLS;
        return STRICT ? j < i : j <= i;
    }
    __device__ void add(T t, T x, Acc& sum) const {
        fma_into(sum, conjugate_if(Accumulator<T>::widen(t), HERMITIAN && !args_.conj_rows),
                 Accumulator<T>::widen(x));
    }

    // Rows from i0 on, before `end`. ALL: all are stored.
    template <bool ALL>
    __device__ __forceinline__ void add_piece(int i0, int end, bool aligned, Acc& sum) const {
        const auto wanted = [&](int i) { return ALL || (i < end && stored(i)); };
        T t[AT_ONCE];
        Word v[AT_ONCE / V];
        const T* at = triangle_ + offset(i0, j0_ + lane() % COLS);
#pragma unroll
        for (int u = 0; u < AT_ONCE; ++u) {
            t[u] = wanted(i0 + u) ? *at : T{};
            at += i0 + u + 1;
        }
#pragma unroll
        for (int u = 0; u < AT_ONCE; u += V)
            v[u / V] = Word::of_vector(x_, args_.x_stride, aligned, i0 + u, args_.n);
#pragma unroll
        for (int u = 0; u < AT_ONCE; ++u)
            if (wanted(i0 + u)) add(t[u], v[u / V][u % V], sum);
    }

    const MvArgs<T>& args_;
    const T *triangle_, *x_;
    const int j0_;
};

}  // namespace packedtri::cuda
