// y = T x, Tᵀ x or S x of many matrices that shared memory holds. The copy engine brings them as they lie in memory; then each
// thread has a row of the matrix, or a share of it, so that no sums cross lanes. Lanes that read one column, each in its row,
// meet different banks, and two lanes the same one where elements have 2 bytes: from a multiple of 32 on, the first elements
// of 32 rows are at places that are all different modulo 32.
#pragma once

#include "hopper.cuh"
#include "mv_held_layout.h"
#include "mv_rows.cuh"

namespace packedtri::cuda {

template <class T>
struct MvHeldArgs {
    MvArgs<T> mv;
    MvHeldLayout layout;
};

// What a thread has of row k of a matrix: every shares-th block of 32 columns. To the left of the diagonal they are in row k
// of the triangle, and behind it in its column k.
template <class T, Kind KIND, bool HERMITIAN>
class HeldRow {
    using Acc = typename Accumulator<T>::type;
    using Word = Neighbours<Acc>;
    static constexpr int V = Word::COUNT, BLOCK = MvHeldLayout::BLOCK;
    static constexpr int AT_ONCE = 8;  // Elements that are read before the first is multiplied.
    static constexpr int SUMS = 2;     // That are independent of one another.

  public:
    // `x` has zeros up to the end of a block. `landed`: the barriers of the triangle's pieces.
    __device__ HeldRow(const MvHeldArgs<T>& args, const T* triangle, const Acc* x, uint32_t landed,
                       int k)
        : args_(args), triangle_(triangle), row_(triangle + row_start<int>(min(k, n() - 1))), x_(x),
          landed_(landed), k_(k) {}

    // What rows past the end have is of no use.
    __device__ Acc sum(int share, int shares) {
        const int diagonal = k_ / BLOCK, blocks = args_.layout.lines() / BLOCK;
        const int begin = KIND == Kind::Upper ? diagonal : 0,
                  end = KIND == Kind::Lower ? diagonal + 1 : blocks;
        int piece = -1;
#pragma unroll 1
        for (int b = begin + share; b < end; b += shares) {
            const int rows = min((max(b, diagonal) + 1) * BLOCK, n());  // That are read.
            while (piece < 0 || args_.layout.ends[piece] < rows)
                ptx::mbarrier_wait(landed_ + 8 * ++piece, 0);
            if (b < diagonal) add_row(b * BLOCK);
            else if (b == diagonal) add_diagonal(b * BLOCK);
            else if ((b + 1) * BLOCK <= n()) add_column<true>(b * BLOCK);
            else add_column<false>(b * BLOCK);
        }
#pragma unroll
        for (int s = 1; s < SUMS; ++s) sum_[0] = add(sum_[0], sum_[s]);
        return sum_[0];
    }

  private:
    __device__ int n() const { return args_.mv.n; }

    // Elements of the triangle, as those of its row or of its column.
    __device__ Acc along(T t) const {
        return conjugate_if(Accumulator<T>::widen(t), HERMITIAN && args_.mv.conj_rows);
    }
    __device__ Acc across(T t) const {
        return conjugate_if(Accumulator<T>::widen(t), HERMITIAN && !args_.mv.conj_rows);
    }

    __device__ __forceinline__ void add_row(int j0) {
        add_block(j0, [&](int j) { return row_[j]; }, [&](int, T t) { return along(t); });
    }

    // ALL: all rows exist.
    template <bool ALL>
    __device__ __forceinline__ void add_column(int i0) {
        const T* at = triangle_ + row_start<int>(i0) + k_;
        add_block(
            i0,
            [&](int i) {
                const T t = ALL || i < n() ? *at : T{};
                at += i + 1;
                return t;
            },
            [&](int, T t) { return across(t); });
    }

    // The block on the diagonal. What is read past the end of a row or of the triangle is not used; it may be of the next
    // matrix, which is still on its way, or of the vectors.
    __device__ __forceinline__ void add_diagonal(int i0) {
        const T* at = triangle_ + row_start<int>(i0) + k_;
        add_block(
            i0,
            [&](int i) {
                const bool in_row = KIND == Kind::Lower || (KIND == Kind::Symmetric && i <= k_);
                const T t = i < n() ? *(in_row ? row_ + i : at) : T{};
                at += i + 1;
                return t;
            },
            [&](int i, T t) {
                Acc element = i <= k_ ? along(t) : across(t);
                if constexpr (HERMITIAN)
                    if (i == k_) element.im = 0;
                return element;
            },
            [&](int i) {
                return KIND == Kind::Lower ? i <= k_ : KIND == Kind::Upper ? i >= k_ : true;
            });
    }

    // A block from `first` on: what `read` returns, each widened, where `wanted`.
    template <class Read, class Widen, class Wanted>
    __device__ __forceinline__ void add_block(int first, Read read, Widen widen, Wanted wanted) {
#pragma unroll
        for (int i = first; i < first + BLOCK; i += AT_ONCE) {
            T t[AT_ONCE];
            Word v[AT_ONCE / V];
#pragma unroll
            for (int u = 0; u < AT_ONCE; ++u) t[u] = read(i + u);
#pragma unroll
            for (int u = 0; u < AT_ONCE; u += V) v[u / V] = Word(x_ + (i + u));
#pragma unroll
            for (int u = 0; u < AT_ONCE; ++u)
                if (wanted(i + u)) fma_into(sum_[u % SUMS], widen(i + u, t[u]), v[u / V][u % V]);
        }
    }
    template <class Read, class Widen>
    __device__ __forceinline__ void add_block(int first, Read read, Widen widen) {
        add_block(first, read, widen, [](int) { return true; });
    }

    const MvHeldArgs<T>& args_;
    const T *triangle_, *row_;
    const Acc* x_;
    const uint32_t landed_;
    const int k_;
    Acc sum_[SUMS] = {};
};

template <class T, Kind KIND, bool HERMITIAN>
__global__ void __launch_bounds__(MvHeldLayout::MOST_THREADS)
    held_kernel(const __grid_constant__ MvHeldArgs<T> args) {
#if PACKEDTRI_HOPPER
    using Acc = typename Accumulator<T>::type;
    constexpr int WORD = 16 / static_cast<int>(sizeof(T));
    extern __shared__ __align__(16) char slots[];
    __shared__ uint64_t barriers[MvHeldLayout::MOST_PIECES];
    const MvHeldLayout& layout = args.layout;
    const uint32_t landed = ptx::shared_address(barriers);
    ptx::launch_dependents();
    // Of this thread: the matrix, its row and its share of that.
    const int thread = static_cast<int>(threadIdx.x), n = args.mv.n, lines = layout.lines(),
              g = thread / lines % layout.apiece, k = thread % lines,
              share = thread / lines / layout.apiece;
    const int64_t first = int64_t{blockIdx.x} * layout.apiece;
    const int count = min(layout.apiece, static_cast<int>(args.mv.batch - first));
    if (thread == 0) {
        for (int p = 0; p < layout.pieces; ++p) ptx::mbarrier_init(landed + 8 * p, 1);
        ptx::mbarrier_init_fence();
    }
    __syncthreads();
    ptx::wait_for_dependency();
    const auto triangle = [&](int g) {
        return args.mv.triangle + (first + g) * args.mv.triangle_batch_stride;
    };
    const auto slot = [&](int g) { return reinterpret_cast<T*>(slots + g * layout.slot); };
    if (thread < count) {
        const T* from = triangle(thread);
        const int place = ptx::past_word(from);
        int begin = 0;
        for (int p = 0; p < layout.pieces; ++p) {
            // The word in which the matrix ends may reach out of its memory.
            const int rows = layout.ends[p], stored = place + row_start<int>(rows),
                      end = rows < n ? static_cast<int>(ceil_div(stored, WORD)) : stored / WORD;
            if (end == begin) continue;
            ptx::mbarrier_expect(landed + 8 * p, (end - begin) * 16);
            ptx::bulk_load(ptx::shared_address(slot(thread)) + begin * 16,
                           from - place + begin * WORD, (end - begin) * 16, landed + 8 * p);
            begin = end;
        }
    }
    Acc* const x = reinterpret_cast<Acc*>(slots + layout.apiece * layout.slot) + g * lines;
    if (g < count && share == 0) {
        x[k] = Accumulator<T>::widen(
            k < n ? args.mv.x[(first + g) * args.mv.x_batch_stride + k * args.mv.x_stride] : T{});
        const T* from = triangle(g);
        const int place = ptx::past_word(from), end = place + row_start<int>(n),
                  e = end / WORD * WORD + k;
        if (e >= place && e < end) slot(g)[e] = from[e - place];
    }
    __syncthreads();
    if (thread < layout.pieces) ptx::mbarrier_arrive(landed + 8 * thread);
    Acc sum{};
    if (g < count)
        sum = HeldRow<T, KIND, HERMITIAN>(args, slot(g) + ptx::past_word(triangle(g)), x, landed, k)
                  .sum(share, layout.shares);
    if (layout.shares > 1) {
        // Behind all vectors.
        const int all = layout.apiece * lines;
        Acc* const parts = x + all + k;
        if (share > 0) parts[(share - 1) * all] = sum;
        __syncthreads();
        if (share > 0) return;
        for (int s = 1; s < layout.shares; ++s) sum = add(sum, parts[(s - 1) * all]);
    }
    if (g < count && k < n)
        args.mv.y[(first + g) * args.mv.y_batch_stride + k] = Accumulator<T>::round(sum);
#endif
}

}  // namespace packedtri::cuda
