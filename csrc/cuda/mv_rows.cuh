// Sums over rows of memory of a packed triangle times a vector.
#pragma once

#include <type_traits>

#include "../index.h"
#include "elements.cuh"
#include "scalar.cuh"
#include "vector_product.h"

namespace packedtri::cuda {

// y = T x, Tᵀ x or S x for a packed triangle T and the symmetric matrix S that it stands for. Where
// S is Hermitian, one of its halves is read conjugated, and the diagonal real.
template <class T>
struct MvArgs {
    const T* triangle;
    const T* x;
    T* y;
    int64_t triangle_batch_stride, x_batch_stride, y_batch_stride, x_stride;
    int n, batch;
    bool conj_rows;  // Of a Hermitian S: whether the half that is stored is conjugated.
};

// The transpose of a Hermitian matrix is its conjugate.
template <class T>
MvArgs<T> mv_args(const Product& p) {
    const VectorProduct sides(p);
    return {static_cast<const T*>(sides.packed.data),
            static_cast<const T*>(sides.vectors.data),
            static_cast<T*>(p.c.data),
            sides.packed.batch_stride,
            sides.vectors.batch_stride,
            p.c.batch_stride,
            sides.x_step,
            static_cast<int>(p.k),
            static_cast<int>(p.batch),
            !sides.left};
}

// Neighbours that a lane reads at once: aligned words of 8 bytes, or 16.
template <class T>
class Neighbours {
    using Bits = std::conditional_t<sizeof(T) <= 4, uint2, uint4>;

  public:
    static constexpr int COUNT = sizeof(Bits) / sizeof(T);

    __device__ Neighbours() : bits_{} {}
    __device__ explicit Neighbours(const T* from) : bits_(*reinterpret_cast<const Bits*>(from)) {}
    __device__ T operator[](int e) const {
        if constexpr (sizeof(T) == 2) {
            const uint32_t word = e < 2 ? bits_.x : bits_.y;
            const auto half = static_cast<uint16_t>(e % 2 ? word >> 16 : word);
            return *reinterpret_cast<const T*>(&half);
        } else return reinterpret_cast<const T*>(&bits_)[e];
    }
    // Those from line j on, a multiple of COUNT, of a vector of n elements, zero outside of it. If it is `aligned`, those of
    // a last word that is not whole are zero too: see whole_words.
    __device__ static Neighbours of_vector(const T* x, int64_t stride, bool aligned, int j, int n) {
        Neighbours v;
        if (aligned) {
            if (j >= 0 && j + COUNT <= n) v = Neighbours(x + j);
            return v;
        }
        T some[COUNT];
#pragma unroll
        for (int e = 0; e < COUNT; ++e)
            some[e] = j + e >= 0 && j + e < n ? x[(j + e) * stride] : T{};
        if constexpr (sizeof(T) == 2) {
            const auto* half = reinterpret_cast<const uint16_t*>(some);
            v.bits_ = {half[0] | static_cast<uint32_t>(half[1]) << 16,
                       half[2] | static_cast<uint32_t>(half[3]) << 16};
        } else {
#pragma unroll
            for (int e = 0; e < COUNT; ++e) reinterpret_cast<T*>(&v.bits_)[e] = some[e];
        }
        return v;
    }

  private:
    Bits bits_;
};
// Whether a vector can be read by words, and how many of its n elements come so: a word that reaches out of its memory is
// not read.
template <class T>
__device__ bool is_aligned(const T* x, int64_t stride) {
    constexpr int BYTES = Neighbours<T>::COUNT * sizeof(T);
    return stride == 1 && reinterpret_cast<uintptr_t>(x) % BYTES == 0;
}
template <class T>
__device__ int whole_words(bool aligned, int n) {
    return aligned ? n - n % Neighbours<T>::COUNT : n;
}

// One warp's share of the sums over memory rows, y_i += T_ij x_j, for four rows: every shares-th piece of columns. Words
// must be aligned, so that those of a row start some columns before the piece, and hold elements of the rows before
// and behind, which are left out. The word in which a matrix begins is read as a whole. Those in which it and the vector
// end may reach out of their memory: what they hold of the last rows goes one by one.
template <class T, bool HERMITIAN>
class RowSums {
    using Acc = typename Accumulator<T>::type;
    using Word = Neighbours<T>;
    static constexpr int V = Word::COUNT, COLUMNS = 32 * V;  // Of a piece.
    static constexpr int PIECES = 2;  // Whose words are on their way at once.
    // Whether there is code of its own for vectors that are read by words. 16-bit elements take two thirds of the time so
    // (n = 1024, a matrix alone), others up to a fifth longer.
    static constexpr bool KNOWS_ALIGNED = sizeof(T) == 2;

  public:
    static constexpr int ROWS = 4;
    static_assert(ROWS % V == 0, "all rows start at known distances from aligned addresses");

    // Of the rows from i0 on, a multiple of ROWS.
    __device__ RowSums(const MvArgs<T>& args, const T* triangle, const T* x, int i0)
        : args_(args), first_(triangle + row_start(i0)), x_(x), i0_(i0),
          aligned_(is_aligned(x, args.x_stride)), last_(i0 + ROWS >= args.n) {
#pragma unroll
        for (int r = 0; r < ROWS; ++r) reach_[r] = i0 + r;
        if (!last_) return;
        // Elements from row i0 on up to the end of the last whole word.
        const int64_t stored = row_start(int64_t{args.n}) - row_start(int64_t{i0}),
                      whole = stored - place_of(first_ + stored);
        const int columns = whole_words<T>(aligned_, args.n);
#pragma unroll
        for (int r = 0; r < ROWS; ++r)
            reach_[r] =
                static_cast<int>(min(int64_t{min(i0 + r, columns - 1)}, whole - offset(r) - 1));
    }

    __device__ void add(int share, int shares, Acc* y) const {
        if (!KNOWS_ALIGNED || aligned_) add<true>(share, shares, y);
        else add<false>(share, shares, y);
    }

  private:
    __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }
    // Of an element in its word.
    __device__ static int place_of(const T* at) {
        return static_cast<int>(reinterpret_cast<uintptr_t>(at) / sizeof(T) % V);
    }

    // Where the rows start at `PLACE` in a word, those of a lane start so many columns before the word of x.
    template <int PLACE>
    __device__ static constexpr int before(int r) {
        return (r * (r + 1) / 2 + PLACE) % V;
    }

    template <bool ALIGNED>
    __device__ __forceinline__ void add(int share, int shares, Acc* y) const {
        const int place = place_of(first_);
        if (V == 1 || place == 0) add<0, ALIGNED>(share, shares, y);
        else if (V == 2 || place == 1) add<1 % V, ALIGNED>(share, shares, y);
        else if (place == 2) add<2 % V, ALIGNED>(share, shares, y);
        else add<3 % V, ALIGNED>(share, shares, y);
    }

    template <int PLACE, bool ALIGNED>
    __device__ __forceinline__ void add(int share, int shares, Acc* y) const {
        const int step = COLUMNS * shares;
        Acc sum[ROWS] = {};
        if (V > 1 && last_ && share == 0) add_rest(sum);
        int j0 = COLUMNS * share;
        // The first columns, those around the diagonal and the last rows are not all stored.
        const auto some = [&] {
            add_pieces<PLACE, ALIGNED, false>(j0 + V * lane(), step, sum);
            j0 += PIECES * step;
        };
        if (j0 == 0) some();
        for (; j0 + (PIECES - 1) * step + COLUMNS <= i0_ && !last_; j0 += PIECES * step)
            add_pieces<PLACE, ALIGNED, true>(j0 + V * lane(), step, sum);
        while (j0 < min(i0_ + ROWS, args_.n) + V - 1) some();
        put(sum, y);
    }

    // What whole words do not hold, less than a word of a row, but of small matrices in several rows.
    __device__ __forceinline__ void add_rest(Acc* sum) const {
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            const int i = i0_ + r, j = i - lane();
            if (lane() < V && i < args_.n && j >= 0 && j > reach_[r])
                fma_into(sum[r], element(first_[offset(r) + j], i, j),
                         Accumulator<T>::widen(x_[j * args_.x_stride]));
        }
    }

    template <int PLACE, bool ALIGNED, bool ALL>
    __device__ __forceinline__ void add_pieces(int j0, int step, Acc* sum) const {
        const bool aligned = KNOWS_ALIGNED ? ALIGNED : aligned_;
        Word t[PIECES][ROWS], v[PIECES][2];
#pragma unroll
        for (int u = 0; u < PIECES; ++u) {
            const int j = j0 + u * step;
#pragma unroll
            for (int r = 0; r < ROWS; ++r) {
                const int c = j - before<PLACE>(r);
                const bool any = ALL || (c + V > 0 && c <= reach_[r]);
                if (any) t[u][r] = Word(first_ + (offset(r) + c));
            }
#pragma unroll
            for (int h = 0; h < 2; ++h)
                if (V > 1 || h == 1)
                    v[u][h] =
                        Word::of_vector(x_, args_.x_stride, aligned, j + (h - 1) * V, args_.n);
        }
#pragma unroll
        for (int u = 0; u < PIECES; ++u)
#pragma unroll
            for (int r = 0; r < ROWS; ++r)
#pragma unroll
                for (int e = 0; e < V; ++e) {
                    const int c = j0 + u * step - before<PLACE>(r) + e, i = i0_ + r,
                              at = V - before<PLACE>(r) + e;
                    if (!ALL && (c < 0 || c > reach_[r])) continue;
                    fma_into(sum[r], element(t[u][r][e], i, c),
                             Accumulator<T>::widen(v[u][at / V][at % V]));
                }
    }
    // From the first element of row i0 to that of row i0 + r.
    __device__ int64_t offset(int r) const { return int64_t{r} * i0_ + r * (r + 1) / 2; }

    // As one of row i of S.
    __device__ Acc element(T t, int i, int j) const {
        auto x = Accumulator<T>::widen(t);
        if constexpr (HERMITIAN) {
            if (i == j) x.im = 0;
            x = conjugate_if(x, args_.conj_rows);
        }
        return x;
    }

    // Each lane keeps half of the rows that it has, and gets the other half of its sums from another lane, until it has one.
    __device__ __forceinline__ static void put(Acc (&sum)[ROWS], Acc* y) {
        int distance = 16, row = 0;
#pragma unroll
        for (int left = ROWS / 2; left > 0; left /= 2, distance /= 2) {
            const bool upper = lane() & distance;
            row = 2 * row + upper;
#pragma unroll
            for (int r = 0; r < left; ++r) {
                const Acc mine = upper ? sum[r + left] : sum[r],
                          other = upper ? sum[r] : sum[r + left];
                sum[r] = packedtri::cuda::add(mine, shuffle_xor(other, distance));
            }
        }
#pragma unroll
        for (; distance > 0; distance /= 2)
            sum[0] = packedtri::cuda::add(sum[0], shuffle_xor(sum[0], distance));
        if (lane() % (32 / ROWS) == 0) y[row] = sum[0];
    }

    const MvArgs<T>& args_;
    const T *first_, *x_;
    const int i0_;
    const bool aligned_, last_;
    int reach_[ROWS];  // The last column of each row that goes by words; none of rows past the end.
};

}  // namespace packedtri::cuda
