// A Cholesky factor by a block, in shared memory.
#pragma once

#include "roots.cuh"
#include "shared_update.cuh"

namespace packedtri::cuda {

// Factors a triangle, by groups of STEP columns: one lane a row, while the first STEP lanes of every warp factor the
// triangle at their top, each warp for itself; then all threads take what the group contributes from the columns
// behind. A block has at least two threads for each row.
template <class T>
class FactorSteps {
    using Real = typename RealPart<T>::type;

  public:
    // `padded` rows, a multiple of STEP.
    __device__ FactorSteps(const SharedTriangle<T>& a, int padded) : a_(a), padded_(padded) {}

    // Returns the order of the first leading minor that is not positive, or 0. Behind such a minor of other tiles
    // all is nan, and to factor that would take longer than what is not. To be called when all threads have met.
    __device__ int run() {
        if (isnan(real(a_.at(0, 0)))) {
            __syncthreads();  // Until all have seen it, which others may write then.
            return 1;
        }
        for (int s = 0; s < padded_; s += STEP) {
            eliminate(s);
            const int behind = padded_ - s - STEP;
            if (behind == 0) break;
            SharedUpdate<T, true>(a_, a_, a_, true).run(s + STEP, behind, s + STEP, behind, s);
            __syncthreads();
        }
        return failed_;
    }

  private:
    // Factors columns [s, s + STEP). Pivots that are not positive, or nearly over- or underflow, are rare, and for the
    // code that can do with them too.
    __device__ void eliminate(int s) {
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        const bool active = warp == 0 || s + (warp + 1) * STEP < padded_;
        const int row = s + (lane < STEP ? lane : warp * STEP + lane);
        T x[STEP];
        if (active) {
            load(x, row, s);
            if (!eliminate_rows<false>(x, s)) {
                load(x, row, s);
                eliminate_rows<true>(x, s);
            }
        }
        __syncthreads();
        if (active && row < padded_ && (warp == 0 || lane >= STEP))
#pragma unroll
            for (int c = 0; c < STEP; ++c) a_.at(row, s + c) = x[c];
        __syncthreads();
    }

    __device__ void load(T (&x)[STEP], int row, int s) const {
#pragma unroll
        for (int c = 0; c < STEP; ++c) x[c] = row < padded_ ? a_.at(row, s + c) : T{};
    }

    // From one pivot to the next there are a reciprocal root, a product and a difference: every lane computes it for
    // itself, from what the shuffles have brought meanwhile. The roots are taken at the end, all at once. False if not
    // ANY_PIVOT, and there is one for which it must be.
    template <bool ANY_PIVOT>
    __device__ bool eliminate_rows(T (&x)[STEP], int s) {
        const int lane = threadIdx.x % 32;
        Real pivot = shuffle(real(x[0]), 0), own_pivot{};
        bool usual = true;
#pragma unroll
        for (int c = 0; c < STEP; ++c) {
            if constexpr (ANY_PIVOT) {
                if (failed_ == 0 && !(pivot > 0)) failed_ = s + c + 1;
            } else {
                usual = usual && is_usual(pivot);
            }
            const Real reciprocal =
                ANY_PIVOT ? reciprocal_root(pivot) : usual_reciprocal_root(pivot);
            if (lane == c) own_pivot = pivot;
            if (c + 1 < STEP) pivot = shuffle(real(x[c + 1]), c + 1);
            const T whole = x[c];
            x[c] = scale(whole, reciprocal);
            const T multiple = scale(x[c], reciprocal);
#pragma unroll
            for (int k = c + 1; k < STEP; ++k) {
                const T other = conjugate_if(shuffle(whole, k), true);
                if (k == c + 1) subtract_square(pivot, scale(other, reciprocal));
                subtract(x[k], multiple, other);
            }
        }
        const T diagonal = from_real<T>(root(own_pivot, reciprocal_root(own_pivot)));
#pragma unroll
        for (int c = 0; c < STEP; ++c)
            if (lane == c) x[c] = diagonal;
        return usual;
    }

    const SharedTriangle<T> a_;
    const int padded_;
    int failed_ = 0;
};

}  // namespace packedtri::cuda
