// Substitution by a block, with a triangle and right-hand sides in shared memory.
#pragma once

#include "shared_update.cuh"

namespace packedtri::cuda {

// A block solves for LINES lines, element e of which is at e * PITCH + line, a multiple of SHARE. The diagonal of the
// triangle holds reciprocals. A lane solves for STEP elements of a line, in registers; then all threads take from the
// elements behind what these contribute. By substitution: the inverse of a triangle, even of order STEP, may be so
// large that residuals are.
template <class T, int LINES, int PITCH>
class LineSteps {
    static_assert(LINES % 8 == 0 && PITCH % SHARE == 0, "lines are read by shares");

  public:
    __device__ LineSteps(const SharedTriangle<T>& triangle, T* x)
        : triangle_(triangle), lines_{x, PITCH} {}

    // For `count` elements, a multiple of STEP. All threads of the block come here, and meet before they return.
    __device__ void run(int count) const {
        for (int s = 0; s < count; s += STEP) {
            if (threadIdx.x < LINES) solve(s, threadIdx.x);
            __syncthreads();
            const int behind = count - s - STEP;
            if (behind == 0) return;
            SharedUpdate<T, false, LINES == 8>(lines_, lines_, triangle_, false)
                .run(0, LINES, s + STEP, behind, s);
            __syncthreads();
        }
    }

  private:
    static constexpr int WORD = 16 / sizeof(T);

    // Elements [s, s + STEP) of a line.
    __device__ void solve(int s, int line) const {
        T y[STEP];
#pragma unroll
        for (int e = 0; e < STEP; ++e) y[e] = lines_.at(line, s + e);
#pragma unroll
        for (int k = 0; k < STEP; ++k) {
            // Elements above the diagonal are read, and not used.
#pragma unroll
            for (int g = k / SHARE; g < STEP / SHARE; ++g) {
                T share[SHARE];
                triangle_.load(share, s + g * SHARE, WORD, s + k);
#pragma unroll
                for (int e = 0; e < SHARE; ++e) {
                    if (g * SHARE + e == k) y[k] = multiply(y[k], share[e]);
                    else if (g * SHARE + e > k) subtract(y[g * SHARE + e], share[e], y[k]);
                }
            }
        }
#pragma unroll
        for (int e = 0; e < STEP; ++e) lines_.at(line, s + e) = y[e];
    }

    const SharedTriangle<T> triangle_, lines_;
};

}  // namespace packedtri::cuda
